"""Device time on a real CUDA device: is it right, does it wait for nothing, and what does it cost?

Without a CUDA device there is nothing to say, and it says so. To run it alone: `python benchmarks/run.py cuda_spans`.
"""

import statistics
import sys
import time
from importlib import import_module

from figure import Figure

from inferometer.profiler import Measure, Profiler
from inferometer.profiler.cuda import cuda_missing

SIZE, CALLS = 8192, 50


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
    yield agreement(torch, square)
    yield asynchrony(torch, square)
    yield nesting(torch, square)
    yield placement(torch, square)
    yield memory(torch)
    yield capture(torch, square)
    yield cost(torch)
    yield energy(torch, square)


def recorded(torch, run, **measure):
    profiler = Profiler(enabled=True, measure=Measure(cuda=True, **measure))
    for _ in range(CALLS):
        with profiler.span("matmul", unit="gpu", flops=2.0 * SIZE**3):
            run()
    torch.cuda.synchronize()
    return profiler


def agreement(torch, square):
    """The device time of spans, against events recorded by hand around the same calls."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    by_hand = []
    for _ in range(CALLS):
        begin.record()
        square @ square
        end.record()
        end.synchronize()
        by_hand.append(begin.elapsed_time(end) * 1e-3)
    stats = recorded(torch, lambda: square @ square).stats("matmul")
    each, expected = stats.device_s / stats.count, statistics.median(by_hand)
    ratio = each / expected
    return Figure(
        name="cuda_device_time_over_events_by_hand",
        value=ratio,
        unit="×",
        target="0.97 to 1.03",
        met=0.97 <= ratio <= 1.03,
        note=f"{each * 1e6:.1f} µs, {stats.flops / stats.device_s / 1e12:.0f} TFLOP/s",
    )


def asynchrony(torch, square):
    """The host must run ahead: spans take far less host time than the device needs."""
    stats = recorded(torch, lambda: square @ square).stats("matmul")
    ratio = stats.total_s / stats.device_s
    return Figure(
        name="cuda_host_time_over_device_time",
        value=ratio,
        unit="×",
        target="≤ 0.2 (no wait in a span)",
        met=ratio <= 0.2,
        note=f"host {stats.total_s * 1e3:.2f} ms, device {stats.device_s * 1e3:.2f} ms",
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
    ratio = profiler.stats("inner").device_s / profiler.stats("outer").device_s
    return Figure(
        name="cuda_inner_over_outer", value=ratio, unit="×", target="0.95 to 1", met=0.95 <= ratio <= 1.0001, note=""
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
    worst = float(max(abs(late.min()), abs(late.max())))
    note = f"{late.min():.1f} to {late.max():.1f} µs after the host's start"
    return Figure(name="cuda_placement", value=worst, unit="µs", target="≤ 200", met=worst <= 200, note=note)


def memory(torch):
    """The peak of a span that allocates and frees is what it held at most."""
    profiler = Profiler(enabled=True, measure=Measure(cuda=True))
    with profiler.span("allocate"):
        held = torch.empty(2**28, device="cuda", dtype=torch.uint8)
        del held
    found = profiler.stats("allocate").memory
    grown = found["cuda_peak_bytes"] - torch.cuda.memory_allocated()
    return Figure(
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
    return Figure(
        name="cuda_graph_replay",
        value=(replayed or 0) * 1e6,
        unit="µs",
        target="a device time, and none while capturing",
        met=bool(replayed) and captured is None,
        note="",
    )


def cost(torch):
    """What a span with device events and device memory costs the host."""
    profiler = Profiler(enabled=True, measure=Measure(cuda=True))
    begin = time.perf_counter()
    for _ in range(2000):
        with profiler.span("empty"):
            pass
    seconds = (time.perf_counter() - begin) / 2000
    torch.cuda.synchronize()
    said = profiler.recording().run.span_cost_s
    return Figure(
        name="cuda_span_cost",
        value=seconds * 1e6,
        unit="µs",
        target="none",
        met=True,
        note=f"the profiler itself says {said * 1e6:.1f} µs",
    )


def energy(torch, square):
    """Joules of two seconds of work, by the driver's counter or by integration."""
    profiler = Profiler(enabled=True, measure=Measure(cuda=True, power_every_s=0.05))
    with profiler.span("work"):
        until = time.perf_counter() + 2
        while time.perf_counter() < until:
            square @ square
            torch.cuda.synchronize()
    profiler.close()
    stats, power = profiler.stats("work"), profiler.recording().run.power
    joules = stats.energy_j
    note = "; ".join(f"{kind}: {why}" for kind, why in power.missing.items()) if joules is None else "mean power"
    watts = float("nan") if joules is None else joules / stats.total_s
    return Figure(
        name="cuda_power_of_matmuls", value=watts, unit="W", target="50 to 1500", met=50 < watts < 1500, note=note
    )
