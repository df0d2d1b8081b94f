"""Device time on a real CUDA device: is it right, does it wait for nothing, and what does a span cost the host?

Without a CUDA device there is nothing to say, and it says so. To run it alone: `python benchmarks/run.py cuda_spans`.
With INFEROMETER_BENCHMARK_RAW=FILE in the environment every sample goes to that file as JSON, with date, versions and
the device's name.
"""

import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from figure import Figure

from inferometer.measure.spans import Measure, Profiler
from inferometer.measure.spans.cuda import cuda_missing

RAW = "INFEROMETER_BENCHMARK_RAW"
SIZE, CALLS = 8192, 50
SPANS, BATCHES = 100, 40  # a batch is timed as a whole; batches of all subjects take turns

raw = {}


def figures():
    missing = cuda_missing()
    if missing is not None:
        print(f"cuda_spans: not measurable here, {missing}", file=sys.stderr)
        return
    torch = import_module("torch")
    square = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    for _ in range(5):
        square @ square
    torch.cuda.synchronize()
    found = []
    for part in (costs, agreement, asynchrony, nesting, placement, memory, capture, energy):
        for figure in part(torch, square):
            found.append(figure)
            yield figure
    write_raw(torch, found)


def write_raw(torch, found):
    path = os.environ.get(RAW)  # noqa: TID251 - a benchmark's own setting
    if path:
        document = about(torch) | {"figures": [asdict(figure) for figure in found], "samples": raw}
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def about(torch):
    versions = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
    for name in ("numpy", "msgspec", "nvidia-ml-py"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "date": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs",
        "versions": versions,
    }


# ── what a span costs the host ──────────────────────────────────────────────────────────────────────────────────────


def costs(torch, _square):
    """Empty spans on an idle device, batch by batch in turns; the device is drained between batches, untimed."""
    measures = {
        "time_only": Measure(),
        "events": Measure(cuda=True),
        "events_and_nvtx": Measure(cuda=True, nvtx=True),
        "events_and_memory": Measure(cuda=True, cuda_memory=True),
        "memory": Measure(cuda_memory=True),
        "nvtx": Measure(nvtx=True),
    }
    profilers = {name: Profiler(enabled=True, measure=measure) for name, measure in measures.items()}
    subjects = {name: spans_of(profiler) for name, profiler in profilers.items()}
    subjects |= {"two_records_by_hand": two_records(torch), "loop": lambda: [None for _ in range(SPANS)]}
    taken = {name: [] for name in subjects}
    for _ in range(BATCHES):
        for name, run in subjects.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            run()
            taken[name].append((time.perf_counter() - begin) / SPANS)
    raw["host_cost_s"] = taken
    loop = statistics.median(taken.pop("loop"))
    by_hand = statistics.median(taken.pop("two_records_by_hand")) - loop
    limits = {"events": 15.0}
    for name, samples in taken.items():
        cost = statistics.median(samples) - loop
        said = profilers[name].recording().run.span_cost_s
        yield Figure(
            name=f"cuda_span_host_cost_{name}",
            value=cost * 1e6,
            unit="µs",
            target=f"≤ {limits[name]:g}" if name in limits else "none",
            met=cost * 1e6 <= limits.get(name, float("inf")),
            note=f"best batch {(min(samples) - loop) * 1e6:.2f}, worst {(max(samples) - loop) * 1e6:.1f}; first "
            f"{(samples[0] - loop) * 1e6:.2f}; two event.record() by hand {by_hand * 1e6:.2f}; the profiler itself "
            f"says {said * 1e6:.2f}",
        )


def spans_of(profiler):
    def run():
        for _ in range(SPANS):
            with profiler.span("empty"):
                pass

    return run


def two_records(torch):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def run():
        for _ in range(SPANS):
            begin.record()
            end.record()

    return run


# ── is the device's time right? ─────────────────────────────────────────────────────────────────────────────────────


def agreement(torch, square):
    """Spans against events placed by hand just inside and just outside them, around the very same calls."""
    small = torch.ones(1024, device="cuda")
    for name, run, idle in (
        ("matmul_in_a_full_queue", lambda: square @ square, False),
        ("matmul_on_an_idle_device", lambda: square @ square, True),
        ("small_kernel", lambda: small + 1, False),
    ):
        inside, spans, outside = compared(torch, run, idle=idle)
        raw[f"agreement_{name}"] = {"inside_s": inside, "span_s": spans, "outside_s": outside}
        middle = [statistics.median(samples) for samples in (inside, spans, outside)]
        ratio = statistics.median(span / inner for span, inner in zip(spans, inside, strict=True))
        ordered = sum(a <= b + 1e-6 and b <= c + 1e-6 for a, b, c in zip(inside, spans, outside, strict=True))
        wanted = name != "small_kernel"
        yield Figure(
            name=f"cuda_device_time_over_events_inside_{name}",
            value=ratio,
            unit="×",
            target="0.97 to 1.03" if wanted else "none",
            met=not wanted or 0.97 <= ratio <= 1.03,
            note=f"inside {middle[0] * 1e6:.2f}, span {middle[1] * 1e6:.2f}, outside {middle[2] * 1e6:.2f} µs; "
            f"inside ≤ span ≤ outside in {ordered} of {len(spans)}",
        )


def compared(torch, run, *, idle):
    """Device seconds of each call: by events inside the span, by the span, by events outside it."""
    profiler = Profiler(enabled=True, measure=Measure(cuda=True))
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in range(CALLS)]
    run()
    for outer, inner, inner_end, outer_end in events:
        if idle:
            torch.cuda.synchronize()
        outer.record()
        with profiler.span("call"):
            inner.record()
            run()
            inner_end.record()
        outer_end.record()
    torch.cuda.synchronize()
    device = profiler.recording().device
    spans = ((device[1] - device[0]) * 1e-9).tolist()
    inside = [inner.elapsed_time(end) * 1e-3 for _, inner, end, _ in events]
    outside = [outer.elapsed_time(end) * 1e-3 for outer, _, _, end in events]
    return inside, spans, outside


def asynchrony(torch, square):
    """The host must run ahead: all it does for the spans takes far less time than the device needs."""
    profiler = Profiler(enabled=True, measure=Measure(cuda=True))
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        with profiler.span("matmul", unit="gpu", flops=2.0 * SIZE**3):
            square @ square
    host_s = time.perf_counter() - begin
    torch.cuda.synchronize()
    stats = profiler.stats("matmul")
    ratio = host_s / stats.device_s
    raw["asynchrony"] = {"host_s": host_s, "inside_spans_s": stats.total_s, "device_s": stats.device_s}
    yield Figure(
        name="cuda_host_time_over_device_time",
        value=ratio,
        unit="×",
        target="≤ 0.2 (no wait in a span)",
        met=ratio <= 0.2,
        note=f"host {host_s * 1e3:.2f} ms, of it {stats.total_s * 1e3:.2f} ms inside the spans; device "
        f"{stats.device_s * 1e3:.2f} ms, {stats.flops / stats.device_s / 1e12:.0f} TFLOP/s",
    )


def nesting(torch, square):
    """An outer span's device time is the sum of what is inside it."""
    profiler = Profiler(enabled=True, measure=Measure(cuda=True, nvtx=True))
    for _ in range(CALLS):
        with profiler.span("outer"):
            for _ in range(4):
                with profiler.span("inner"):
                    square @ square
    torch.cuda.synchronize()
    inner, outer = (profiler.stats(name).device_s for name in ("inner", "outer"))
    raw["nesting"] = {"inner_s": inner, "outer_s": outer}
    yield Figure(
        name="cuda_inner_over_outer",
        value=inner / outer,
        unit="×",
        target="0.95 to 1",
        met=0.95 <= inner / outer <= 1.0001,
    )


def placement(torch, square):
    """On an idle device a kernel starts after its launch and soon: the device's clock is well placed on the host's."""
    profiler = Profiler(enabled=True, measure=Measure(cuda=True))
    for _ in range(20):
        torch.cuda.synchronize()
        time.sleep(0.15)  # longer than a second in all: several anchors
        with profiler.span("matmul"):
            square @ square
    recording = profiler.recording()
    late = (recording.device[0] - recording.start) * 1e-3
    raw["placement_us"] = late.tolist()
    worst = float(max(abs(late.min()), abs(late.max())))
    note = f"{late.min():.1f} to {late.max():.1f} µs after the host's start"
    yield Figure(name="cuda_placement", value=worst, unit="µs", target="≤ 200", met=worst <= 200, note=note)


# ── memory, graphs, energy ──────────────────────────────────────────────────────────────────────────────────────────


def memory(torch, _square):
    """The peak of a span that allocates and frees is what it held at most."""
    profiler = Profiler(enabled=True, measure=Measure(cuda_memory=True))
    with profiler.span("allocate"):
        held = torch.empty(2**28, device="cuda", dtype=torch.uint8)
        del held
    found = raw["memory"] = dict(profiler.stats("allocate").memory)
    grown = found["cuda_peak_bytes"] - torch.cuda.memory_allocated()
    yield Figure(
        name="cuda_peak_of_a_256_mib_span",
        value=grown / 2**20,
        unit="MiB",
        target="256",
        met=abs(grown - 2**28) < 2**21,
        note=f"delta {found['cuda_delta_bytes']:.0f} B",
    )


def capture(torch, square):
    """Spans inside a graph capture do not break it, and have no device time."""
    profiler = Profiler(enabled=True, measure=Measure(cuda=True))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), profiler.span("captured"):
        square @ square
    with profiler.span("replayed"):
        graph.replay()
    torch.cuda.synchronize()
    replayed, captured = profiler.stats("replayed").device_s, profiler.stats("captured").device_s
    yield Figure(
        name="cuda_graph_replay",
        value=(replayed or 0) * 1e6,
        unit="µs",
        target="a device time, and none while capturing",
        met=bool(replayed) and captured is None,
    )


def energy(torch, square):
    """Watts during two seconds of work, by the driver's counter or by integration."""
    profiler = Profiler(enabled=True, measure=Measure(cuda=True, power_every_s=0.05))
    with profiler.span("work"):
        until = time.perf_counter() + 2
        while time.perf_counter() < until:
            square @ square
            torch.cuda.synchronize()
    profiler.close()
    stats, power = profiler.stats("work"), profiler.recording().run.power
    if stats.energy_j is None:
        why = "; ".join(f"{kind}: {why}" for kind, why in power.missing.items())
        print(f"cuda_power_of_matmuls: not measurable here, {why}", file=sys.stderr)
        return
    watts = stats.energy_j / stats.total_s
    raw["energy"] = {"energy_j": stats.energy_j, "time_s": stats.total_s}
    yield Figure(name="cuda_power_of_matmuls", value=watts, unit="W", target="50 to 1500", met=50 < watts < 1500)
