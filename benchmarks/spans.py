"""What a span costs, against a bare pair of clock readings in the same run, beside other profilers that are installed.

All of them are timed in turn, so that a slow moment falls on each, and the best of many short rounds is taken: what
disturbs only ever adds. Spans are kept while they are timed, as in use.
"""

import os
import resource
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path

from figure import Figure

from inferometer.profiler import Measure, Profiler

SPANS, ROUNDS = 1000, 200
SLOW = 5e-6  # seconds a span
EXPORTED = 10_000_000
REPORTED = 1_000_000


def empty_loop():
    for _ in repeat(None, SPANS):
        pass


def bare_pair(clock=time.perf_counter_ns):
    for _ in repeat(None, SPANS):
        clock()
        clock()


def spans_of(profiler, **facts):
    if facts:

        def run():
            for number in range(SPANS):
                with profiler.span("forward", unit="gpu", layer=3, token=number):
                    pass
    else:

        def run():
            for _ in repeat(None, SPANS):
                with profiler.span("forward"):
                    pass

    return run, nothing_to_clear


def nothing_to_clear():
    pass


def contexts_of(make, clear=nothing_to_clear):
    def run():
        for _ in repeat(None, SPANS):
            with make():
                pass

    return run, clear


def viztracer_events():
    """It hooks every call while it runs, so it runs only while it is timed."""
    tracer = import_module("viztracer").VizTracer(verbose=0, tracer_entries=SPANS * 4, log_sparse=True)
    run, _ = contexts_of(lambda: tracer.log_event("forward"))

    def started():
        tracer.start()
        run()
        tracer.stop()

    return started, tracer.clear


def peers():
    """Other ways to time a block, where they are installed."""
    if find_spec("codetiming"):
        timer = import_module("codetiming").Timer
        yield "codetiming", contexts_of(lambda: timer(logger=None))
    if find_spec("viztracer"):
        yield "viztracer_log_event", viztracer_events()
    if find_spec("opentelemetry.sdk") if find_spec("opentelemetry") else None:
        telemetry = import_module("opentelemetry.sdk.trace").TracerProvider().get_tracer("benchmark")
        yield "opentelemetry_sdk", contexts_of(lambda: telemetry.start_as_current_span("forward"))
    if find_spec("torch"):
        record = import_module("torch.profiler").record_function
        yield "torch_record_function", contexts_of(lambda: record("forward"))
    if find_spec("nvtx"):
        annotate = import_module("nvtx").annotate
        yield "nvtx_annotate", contexts_of(lambda: annotate("forward"))


def costs():
    """Seconds each takes for one span, the loop around it taken off."""
    off = Profiler(enabled=False)
    subjects = {
        "bare_pair": (bare_pair, nothing_to_clear),
        "recorded": spans_of(Profiler(enabled=True)),
        "recorded_with_facts": spans_of(Profiler(enabled=True), facts=True),
        "disabled": spans_of(off),
        "disabled_with_facts": spans_of(off, facts=True),
        "following_tasks": spans_of(Profiler(enabled=True, measure=Measure(tasks=True))),
        **dict(peers()),
    }
    best = dict.fromkeys(subjects, float("inf"))
    loop = float("inf")
    for number in range(ROUNDS):
        loop = min(loop, timed(empty_loop))
        for name, (run, clear) in subjects.items():
            if number > 20 and best[name] > SLOW * SPANS:
                continue  # it is not near any line; the others need the time more
            best[name] = min(best[name], timed(run))
            clear()
    return {name: (seconds - loop) / SPANS for name, seconds in best.items()}


def timed(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def cost_figures():
    found = costs()
    pair = found.pop("bare_pair")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    limits = {"recorded": 3, "disabled": 1}
    for name, seconds in found.items():
        ratio, limit = seconds / pair, limits.get(name)
        yield Figure(
            name=f"span_{name}_over_bare_pair",
            value=ratio,
            unit="×",
            target="none" if limit is None else f"≤ {limit}",
            met=limit is None or ratio <= limit,
            note=f"{seconds * 1e9:.0f} ns over {pair * 1e9:.0f} ns, load {load:.1f}",
        )


def report_figures():
    profiler = Profiler(enabled=True)
    for token in range(REPORTED // 10):
        with profiler.span("token", token=token):
            for layer in range(3):
                with profiler.span("layer", layer=layer):
                    with profiler.span("attention", unit="cpu"):
                        pass
                    with profiler.span("mlp", unit="cpu"):
                        pass
    begin = time.perf_counter()
    text = profiler.report()
    seconds = time.perf_counter() - begin
    count = len(profiler.recording())
    yield Figure(
        name="report_of_a_million_spans",
        value=seconds,
        unit="s",
        target="≤ 2",
        met=seconds <= 2,
        note=f"{count:,} spans, {len(text.splitlines())} lines",
    )


def export_figures():
    """Ten million spans through a file to a trace, in a child whose memory can be told from ours."""
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                record_and_export(Path(folder))
            os._exit(0)
        _, _, used = os.wait4(child, 0)
        seconds, size = (float(part) for part in (Path(folder) / "figures").read_text().split())
        peak = used.ru_maxrss * (1 if os.uname().sysname == "Darwin" else 1024)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield Figure(
        name="ten_million_spans_exported",
        value=seconds,
        unit="s",
        target="without holding them",
        met=peak < held + 300e6,
        note=f"{EXPORTED:,} spans, {size / 1e9:.2f} GB of trace, peak memory {peak / 1e6:.0f} MB",
    )


def record_and_export(folder):
    with Profiler(enabled=True, file=folder / "run.spans") as profiler:
        for _ in repeat(None, EXPORTED):
            with profiler.span("forward"):
                pass
    begin = time.perf_counter()
    file = profiler.export(folder / "trace.json")
    seconds = time.perf_counter() - begin
    (folder / "figures").write_text(f"{seconds} {file.stat().st_size}")


def figures():
    if hasattr(os, "fork"):  # first, while this process is small: the child begins with its memory
        yield from export_figures()
    yield from cost_figures()
    yield from report_figures()
