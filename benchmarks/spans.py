"""What a span costs, against a bare pair of clock readings in the same run, beside other profilers that are installed.

All of them are timed in turn, in short rounds, so that a slow moment falls on each, and the best round of each is
taken: what disturbs only ever adds. It is done in a process of its own, first as the profiler is before anything
imports asyncio, then after. Spans are kept while they are timed, as in use; what they cost once the memory reserved for
them is full is told apart.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path

from figure import Figure

from inferometer.measure.spans import Everything, Measure, Profiler

SPANS, ROUNDS, BLOCKS = 500, 10, 60  # a block is 10 rounds of each subject, which begins it with nothing recorded
SLOW = 5e-6  # seconds a span: beyond it a few rounds are enough
EXPORTED = 10_000_000
REPORTED, REPORTS = 1_000_000, 5


def empty_loop():
    for _ in repeat(None, SPANS):
        pass


def bare_pair(clock=time.perf_counter_ns):
    for _ in repeat(None, SPANS):
        clock()
        clock()


def spans_of(profiler):
    def run():
        for _ in repeat(None, SPANS):
            with profiler.span("forward"):
                pass

    return run


def spans_with_facts_of(profiler):
    def run():
        for number in range(SPANS):
            with profiler.span("forward", unit="gpu", layer=3, token=number):
                pass

    return run


def contexts_of(make):
    def run():
        for _ in repeat(None, SPANS):
            with make():
                pass

    return run


def viztracer_events():
    """It hooks every call while it runs, so it runs only while it is timed."""
    tracer = import_module("viztracer").VizTracer(verbose=0, tracer_entries=SPANS * ROUNDS * 4, log_sparse=True)
    run = contexts_of(lambda: tracer.log_event("forward"))

    def started():
        tracer.start()
        run()
        tracer.stop()

    return started


def opentelemetry_spans():
    tracer = import_module("opentelemetry.sdk.trace").TracerProvider().get_tracer("benchmark")
    return contexts_of(lambda: tracer.start_as_current_span("forward"))


def codetiming_timers():
    timer = import_module("codetiming").Timer
    return contexts_of(lambda: timer("forward", logger=None))


def torch_records():
    record = import_module("torch.profiler").record_function
    return contexts_of(lambda: record("forward"))


def nvtx_ranges():
    annotate = import_module("nvtx").annotate
    return contexts_of(lambda: annotate("forward"))


PEERS = {
    "codetiming": ("codetiming", codetiming_timers),
    "viztracer": ("viztracer_log_event", viztracer_events),
    "opentelemetry.sdk.trace": ("opentelemetry_sdk", opentelemetry_spans),
    "torch": ("torch_record_function", torch_records),
    "nvtx": ("nvtx_annotate", nvtx_ranges),
}


def plain_subjects():
    """Name → what makes a fresh one to time: each begins with nothing recorded, and keeps all it records."""
    return {
        "recorded": lambda: spans_of(Profiler(enabled=True)),
        "recorded_with_facts": lambda: spans_with_facts_of(Profiler(enabled=True)),
        "disabled": lambda: spans_of(Profiler(enabled=False)),
        "disabled_with_facts": lambda: spans_with_facts_of(Profiler(enabled=False)),
    }


def subjects_beside_asyncio():
    return {
        "recorded_beside_asyncio": lambda: spans_of(Profiler(enabled=True)),
        "following_tasks": lambda: spans_of(Profiler(enabled=True, measure=Measure(tasks=True))),
    }


def peers():
    return {name: make for module, (name, make) in PEERS.items() if installed(module)}


def installed(module):
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package around it is not there
        return False


def costs(makers):
    """Seconds each takes for one span, the loop around it taken off; and a bare pair."""
    makers = {"bare_pair": lambda: bare_pair, **makers}
    best = dict.fromkeys(makers, float("inf"))
    loop = float("inf")
    for _ in range(BLOCKS):
        running = {name: make() for name, make in makers.items()}
        for turn in range(ROUNDS):
            loop = min(loop, timed(empty_loop))
            for name, run in running.items():
                if turn == 0 or best[name] < SLOW * SPANS:  # a slow one is not near any line: once is enough
                    best[name] = min(best[name], timed(run))
    return {name: (seconds - loop) / SPANS for name, seconds in best.items()}


def in_a_process_of_its_own():
    """What `spans.py` prints: costs before and after asyncio is imported, and others', each with a pair of its time."""
    done = subprocess.run([sys.executable, __file__], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def timed(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def cost_figures():
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    limits = {"recorded": 3, "recorded_beside_asyncio": 3, "disabled": 1}
    for found in in_a_process_of_its_own():
        pair = found.pop("bare_pair")
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


def growth_figures():
    """What a span costs once memory must be had from the system: in a child, whose allocator has none to spare."""
    read, write = os.pipe()
    if os.fork() == 0:
        profiler = Profiler(enabled=True, keep=Everything(reserve=0))
        run = spans_of(profiler)
        taken = [timed(run) / SPANS for _ in range(200)]
        os.write(write, f"{statistics.median(taken)}".encode())
        os._exit(0)
    os.wait()
    seconds = float(os.read(read, 100))
    yield Figure(
        name="span_recorded_beyond_the_reserve",
        value=seconds * 1e9,
        unit="ns",
        target="none",
        met=True,
        note=f"median of {200 * SPANS:,} spans, page faults included",
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
    Profiler(enabled=True).report()  # loads what a report is made with
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    taken = []
    for _ in range(REPORTS):
        with profiler.span("token", token=0):  # something new, so that all is computed again
            pass
        begin = time.perf_counter()
        text = profiler.report()
        taken.append(time.perf_counter() - begin)
    seconds, count = min(taken), len(profiler.recording())
    yield Figure(
        name="report_of_a_million_spans",
        value=seconds,
        unit="s",
        target="≤ 2",
        met=seconds <= 2,
        note=f"{count:,} spans, {len(text.splitlines())} lines; best of {REPORTS}, the worst {max(taken):.2f} s, load "
        f"{load:.1f}",
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
        yield from growth_figures()
    yield from cost_figures()
    yield from report_figures()


if __name__ == "__main__":
    if "asyncio" in sys.modules:
        raise SystemExit("asyncio is imported already: there is no telling what a span costs without it")
    before = costs(plain_subjects())
    import_module("asyncio")
    beside = costs(subjects_beside_asyncio())
    print(json.dumps([before, beside, costs(peers())]))  # others last: some hook into every call
