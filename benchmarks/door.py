"""What users call, as they call it: default engines, points that all differ, the command as well as the call.

Times are CPU time, and each figure has a ratio to a bare loop or a bare interpreter of the same run, so that a slow
machine does not matter: `run.py` holds that ratio to the last recorded one. `quick` has smaller grids of the same kind,
a second each, which every change is held to.
"""

import ast
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figure import Figure
from sweep import looped

import inferometer as im
from inferometer.known.zoo import models

COMMAND = str(Path(sys.executable).with_name("inferometer"))
ONE = {"models": "llama-3.2-1b", "devices": "nvidia-h200"}
EVERYDAY = {
    "models": ["llama-3.1-8b", "qwen3-8b"], "devices": ["nvidia-h200", "nvidia-l40s"],
    "runtimes": ["torch-compile", "vllm"], "weights": ["bf16", "i4"], "batch": list(range(1, 257)),
    "prompt": [128, 256, 512, 1024, 2048, 4096, 8192],
}  # fmt: skip
SHARED = {
    "models": ["llama-3.1-8b", "llama-3.2-1b"], "weights": ["bf16", "i8"], "batch": list(range(1, 513)),
    "devices": ["nvidia-h200", "nvidia-l40s", "nvidia-a100-80gb", "nvidia-l4"], "context": list(range(16, 4097, 16)),
}  # fmt: skip


def grids(side):
    """What is swept, and the microseconds a row that are aimed at."""
    whole = list(range(1, side + 1))
    return {
        "batch_by_prompt": (ONE | {"runtimes": "torch-compile", "batch": whole, "prompt": whole}, 0.3),
        "batch_by_context": (ONE | {"runtimes": "torch-compile", "batch": whole, "context": whole}, 0.2),
        "batch_by_prompt_vllm": (ONE | {"runtimes": "vllm", "batch": whole, "prompt": whole}, 2.0),
    }


def swept_s(asked, **more):
    """CPU seconds of this process and of those it started."""
    before = cpu_s()
    rows = im.sweep(**asked, **more)
    rows["tpot_s"], rows["energy_j"], rows["peak_memory_bytes"]
    return cpu_s() - before, len(rows)


def cpu_s():
    return time.process_time() + child_s()


def child_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def as_users_have():
    """The variables of this process, with modules compiled once and for all."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # noqa: TID251 - see above


def command_s(*command, **variables):
    """CPU seconds of a command with these variables, the least of five that follow a first one."""
    variables = as_users_have() | variables
    taken = []
    for _ in range(6):
        before = child_s()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables)
        taken.append(child_s() - before)
    return min(taken[1:])


def row_figure(name, seconds, rows, aim_us):
    loop, own = min(looped() for _ in range(3)), seconds / rows
    return Figure(
        name=f"door_{name}", value=own * 1e6, unit="µs a row", target=f"≤ {aim_us:g}", met=own <= aim_us * 1e-6,
        note=f"{rows:,} rows; the loop {loop * 1e6:.2f} µs", ratio=own / loop,
    )  # fmt: skip


def sweeps(side=1000):
    for name, (asked, aim) in grids(side).items():
        yield row_figure(name, *swept_s(asked), aim)
    seconds, rows = swept_s(EVERYDAY)
    yield row_figure("everyday_sweep", seconds, rows, 0.3e6 / rows)


def first_swept_s(asked, folder):
    """CPU seconds of the first sweep of another process, with what lies kept in a folder."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import door; print(door.swept_s({asked}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True,
        env=as_users_have() | {"INFEROMETER_CACHE": folder},
    )  # fmt: skip
    return ast.literal_eval(told.stdout)[0]


def shared():
    """A grid of shared columns in this process, in one where nothing was kept, and in others after it."""
    own, rows = min(swept_s(SHARED) for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        first, *later = (first_swept_s(SHARED, folder) for _ in range(4))
    for name, seconds in {"": own, "_first_of_all": first, "_first_of_a_process": min(later)}.items():
        yield row_figure(f"shared_columns{name}", seconds, rows, 0.1)


def written(side=1000):
    """The command that writes the rows beside a program that holds them: a process each, with the same kept."""
    asked = grids(side)["batch_by_prompt"][0]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            COMMAND, "sweep", "--models", asked["models"], "--on", asked["devices"], "--runtime", asked["runtimes"],
            "--batch", f"1-{side}", "--prompt", f"1-{side}", "--out", f"{folder}/rows.parquet",
        ]  # fmt: skip
        looked_at = "rows['tpot_s'], rows['energy_j'], rows['peak_memory_bytes']"
        program = f"import inferometer as im; rows = im.sweep(**{asked}); {looked_at}"
        held = command_s(sys.executable, "-c", program, INFEROMETER_CACHE=folder)
        taken = command_s(*command, INFEROMETER_CACHE=folder)
    yield Figure(
        name="door_written_over_held", value=taken / held, unit="×", target="≤ 1.5", met=taken <= 1.5 * held,
        note=f"{taken / side**2 * 1e6:.2f} µs a row with the start", ratio=taken / held,
    )  # fmt: skip


def workers(batches=2500, prompts=4000):
    """Two processes beside one, by the clock: ten million rows at the command; and what two commands apart get."""

    def started(rows, file, engine="local"):
        command = [
            COMMAND, "sweep", "--models", ONE["models"], "--on", ONE["devices"], "--runtime", "torch-compile",
            "--batch", rows, "--prompt", f"1-{prompts}", "--engine", engine, "--out", file,
        ]  # fmt: skip
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=as_users_have())

    def seconds(*asked):
        start = time.perf_counter()
        for process in [started(*each) for each in asked]:
            said = process.communicate()[1]
            if process.returncode:
                raise RuntimeError(said.decode())
        return time.perf_counter() - start

    with tempfile.TemporaryDirectory() as folder:
        one = seconds((f"1-{batches}", f"{folder}/one.parquet"))
        two = seconds((f"1-{batches}", f"{folder}/two.parquet", "local:2"))
        half = batches // 2
        apart = seconds((f"1-{half}", f"{folder}/a.parquet"), (f"{half + 1}-{batches}", f"{folder}/b.parquet"))
    yield Figure(
        name="door_two_workers_over_one", value=one / two, unit="×", target="≥ 1.7", met=one / two >= 1.7,
        ratio=two / one, note=f"{batches * prompts:,} rows to Parquet by the clock, {one:.1f} s by one; two commands "
        f"of half of them at once: {one / apart:.2f} ×",
    )  # fmt: skip


def calls():
    loop, prompts = min(looped() for _ in range(3)), itertools.count(100)
    for engine, again in itertools.product(("vllm", "torch-compile"), (False, True)):
        im.predict("llama-3.2-1b", on="nvidia-h200", runtime=engine, prompt=99)
        start = time.process_time()
        for _ in range(100):
            im.predict("llama-3.2-1b", on="nvidia-h200", runtime=engine, prompt=99 if again else next(prompts))
        own = (time.process_time() - start) / 100
        yield Figure(
            name=f"door_predict_{engine}{'_again' if again else ''}", value=own * 1e3, unit="ms", target="≤ 0.8",
            met=own <= 0.8e-3, note="the same question" if again else "another prompt each time", ratio=own / loop,
        )  # fmt: skip


def commands():
    bare = command_s(sys.executable, "-c", "pass")
    asked = {
        "help": (["--help"], 2.0, "×"),
        "devices": (["devices"], 0.15, "s"),
        "predict": (["predict", "llama-3.2-1b", "--on", "nvidia-h200"], 0.25, "s"),
    }
    for name, (arguments, aim, unit) in asked.items():
        for remember in (False, True) if unit == "s" else (False,):
            own = command_s(COMMAND, *arguments, INFEROMETER_REMEMBER="1" if remember else "0")
            value = own / bare if unit == "×" else own
            yield Figure(
                name=f"door_{name}_command{'_again' if remember else ''}", value=value, unit=unit, target=f"≤ {aim}",
                met=value <= aim, note=f"{own / bare:.1f} × bare Python", ratio=own / bare,
            )  # fmt: skip


def cold():
    """Two hundred models on ten devices from a cold start: every graph is read, every plan made."""
    names = sorted(models())[:: max(1, len(models()) // 200)][:200]
    script = (
        "import sys, inferometer as im; rows = im.sweep(sys.argv[1].split(), sys.argv[2].split()); rows['latency_s']"
    )
    devices = (
        "nvidia-h200 nvidia-h100-sxm nvidia-a100-80gb nvidia-l40s nvidia-l4 nvidia-t4 amd-mi300x raspberry-pi-5 "
        "apple-m3-ultra-gpu intel-emerald-rapids-1-vcpu"
    )
    own = command_s_once(sys.executable, "-c", script, " ".join(names), devices)
    yield Figure(
        name="door_two_hundred_models_on_ten_devices", value=own, unit="s", target="none", met=True,
        note=f"{len(names)} models", ratio=own / command_s(sys.executable, "-c", "pass"),
    )  # fmt: skip


def command_s_once(*command):
    before = child_s()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=as_users_have())
    return child_s() - before


def quick():
    for asked, _ in grids(1).values():  # what is imported or read on first use is no row's
        im.sweep(**asked)
    for name, (asked, aim) in grids(200).items():  # the least of three, since ten milliseconds differ by a fifth
        yield row_figure(f"{name}_quick", *min(swept_s(asked) for _ in range(3)), aim)
    yield from calls()
    yield from commands()


def figures():
    yield from quick()
    yield from sweeps()
    yield from shared()
    yield from written()
    yield from workers()
    yield from cold()
