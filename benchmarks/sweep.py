"""Sweeps beside EdgeProfiler's own closed form in a plain Python loop: dense ones of a million sizes, and mixed ones.

Each configuration is the full prefill and decode model of a real graph with memory, energy and price; EdgeProfiler's is
its six formulas. Time is CPU time of this process, from graphs and devices to every number of the summary written out.
A mixed sweep has one size for each model, device and format; it is warm when its graphs and devices came before.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path

from figure import Figure

from inferometer.core.profile import Headline
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.known.files import rows_of
from inferometer.predict.sweep import sweep
from inferometer.predict.sweep.columns import COLUMNS

MODELS = ("llama-3.2-1b", "llama-3.1-8b")
DEVICES = ("nvidia-h200", "nvidia-a100-80gb", "nvidia-l4", "raspberry-pi-5")
WEIGHTS = ("bf16", "q4_0")
# 16 combinations of 65,536 rows each: 2²⁰ configurations, and four times as many.
MILLION = {"batch": range(1, 17), "prompt": range(64, 64 * 65, 64), "context": range(64, 64 * 65, 64)}
MILLIONS = {**MILLION, "batch": range(1, 65)}
SMALL = {"batch": [1], "prompt": [64], "context": [64]}
# What people sweep: 12 models × 4 formats × 40 devices, 1,920 combinations of one size.
MIXED_MODELS = (
    "llama-3.2-1b", "llama-3.1-8b", "qwen3-0.6b", "gemma-3-1b", "qwen3-30b-a3b", "gpt2", "mamba-130m", "t5-small",
    "bert-base", "resnet50", "mobilenet-v2", "vit-b-16",
)  # fmt: skip
MIXED_WEIGHTS = ("f32", "bf16", "i8", "q4_0")
MIXED_DEVICES = 40
LOOP = 50_000
# A fresh process writes rows to a file and says how much memory it held at its highest.
MEASURE = """
import resource, sys
from pathlib import Path
from inferometer.known import device
from inferometer.predict.sweep import stream, study_of
from inferometer.formats.resolve import read
axes = {"models": [read(sys.argv[2])], "devices": [device(sys.argv[3])], "batch": range(1, 17),
        "prompt": range(1, 129), "context": range(1, 1 + int(sys.argv[4]))}
stream(study_of(axes), Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def swept(models, devices, **asked):
    """CPU seconds a row, with every number of the summary written out, and the number of rows."""
    start = time.process_time()
    rows = sweep(models, devices, **asked)
    numbers = (entry.name for entry in fields(Headline) if not entry.name.startswith("top_unit"))
    for name in filter(COLUMNS.__contains__, numbers):  # ends of intervals are details, or no columns
        rows[name]
    return (time.process_time() - start) / len(rows), len(rows)


def dense(grid, devices=DEVICES, **asked):
    """Reading the models is not counted, making their plans is."""
    models = [read(name) for name in MODELS]
    return swept(models, [device(name) for name in devices], weights=WEIGHTS, **grid, **asked)


def mixed(**asked):
    """CPU seconds a combination and their number: cold, with graphs that were just read, and warm."""
    models = [read(name) for name in MIXED_MODELS]
    names = [name for name in rows_of("devices").by_name if name != "nvidia-h200"]
    chosen = ["nvidia-h200", *names[:: len(names) // MIXED_DEVICES]][:MIXED_DEVICES]
    asked = {"weights": MIXED_WEIGHTS, "batch": 1, "prompt": 64, **asked}
    machines = [device(name) for name in chosen]
    cold, count = swept(models, machines, **asked)
    return cold, min(swept(models, machines, **asked)[0] for _ in range(3)), count


def edgeprofiler(model, length, nbytes, hardware):
    """EdgeProfiler's formulas as they stand: milliseconds of a token, and joules."""
    layers, hidden, inner, vocabulary = model
    peak, memory, storage, host, network = hardware
    parameters = 4 * layers * hidden * hidden + 2 * layers * hidden * inner + 2 * vocabulary * hidden
    flops = layers * (8 * hidden * hidden + 4 * hidden * length + 4 * hidden * inner + 9 * hidden)
    moved = (parameters + length * hidden + 2 * layers * length * hidden) * nbytes
    compute = flops / (peak * 0.7)
    transfer = moved / (memory * 0.6)
    load = parameters * nbytes / (storage * 0.8)
    h2d = parameters * nbytes / (host * 0.7)
    net = length * hidden * nbytes / (network * 0.8)
    total = max(compute, transfer) + load + h2d + net
    return total * 1e3, flops * 1e-12 + moved * 1e-9


def looped():
    """CPU seconds a configuration of the bare loop."""
    hardware = ((50e9, 19e9, 5e8, 12e9, 1e8), (40e12, 102e9, 3e9, 12e9, 1e8))
    model = (24, 2048, 8192, 50257)
    start = time.process_time()
    found = [
        edgeprofiler(model, length, nbytes, row)
        for length in range(1, LOOP // 4 + 1)
        for nbytes in (4, 2)
        for row in hardware
    ]
    return (time.process_time() - start) / len(found)


def peak_bytes(contexts):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", MEASURE, str(Path(folder, "rows.csv")), MODELS[0], DEVICES[0], str(contexts)]
        taken = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(taken.stdout) * (1 if sys.platform == "darwin" else 1024)


def figures():
    if sys.platform != "win32":
        small, large = peak_bytes(100), peak_bytes(400)  # first: a child's highest mark starts at its parent's
        yield Figure(
            name="sweep_memory_four_times_the_rows", value=large / small, unit="×", target="≤ 1.1",
            met=large <= 1.1 * small, note=f"{small / 1e6:.0f} MB for 204,800 rows, {large / 1e6:.0f} MB for 819,200",
        )  # fmt: skip
    dense(SMALL)  # what is imported on first use is not a configuration's
    yield from dense_figures()
    yield from mixed_figures()


def dense_figures():
    asked = {
        "": (MILLION, {"calibrated": False}),
        "_of_four_million": (MILLIONS, {"calibrated": False}),
        "_calibrated": (MILLIONS, {"devices": ("nvidia-h200",)}),
    }
    for ending, (grid, more) in asked.items():
        (own, count), peer = min(dense(grid, **more) for _ in range(3)), min(looped() for _ in range(3))
        yield Figure(
            name=f"sweep_configuration{ending}", value=own * 1e6, unit="µs of CPU", target="≤ 0.14 on Neoverse-N1",
            met=own <= 0.14e-6, note=f"{count:,} configurations, {1 / own:,.0f} a second",
        )  # fmt: skip
        least = 10 if ending == "_calibrated" else 20  # every op is looked up in its table at every size
        yield Figure(
            name=f"sweep_over_edgeprofiler_loop{ending}", value=peer / own, unit="×", target=f"≥ {least}",
            met=peer >= least * own, note=f"its closed form takes {peer * 1e6:.2f} µs in a Python loop",
        )  # fmt: skip


def mixed_figures():
    for ending, more in (("", {"calibrated": False}), ("_calibrated", {})):
        cold, warm, count = min(mixed(**more) for _ in range(2))
        peer = min(looped() for _ in range(3))
        yield Figure(
            name=f"sweep_mixed_combination{ending}", value=warm * 1e6, unit="µs of CPU", target="≤ 100",
            met=warm <= 100e-6,
            note=f"{count:,} combinations warm, {cold * 1e6:.0f} µs cold; EdgeProfiler's loop {peer * 1e6:.2f} µs",
        )  # fmt: skip
