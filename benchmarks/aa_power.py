"""How often equal things are called different, and how often a planted slow-down is found.

Real pairs: the same function measured against itself, in turns and one after the other, and a command line against
itself; the same with noise of its own. Resampled pairs: stretches of one long real recording, so that its noise and its
drift are in them. Each figure says the load of the machine at the time.
"""

import os
import random
import sys
import time

from figure import Figure

from inferometer.measure.bench import Guard, NoGuard, Plan, bench_against, bench_commands, judge
from inferometer.measure.bench.compare import compare
from inferometer.measure.bench.run import function_subject, measure

RUNS = (30, 100)  # a side; 30 is the default plan's least
RECORDED = 20_000  # calls: a hundred stretches of the longest pair that do not overlap
RESAMPLED = 1000
REAL = 32
COMMANDS, COMMANDS_S = 30, 60.0
PLANTED = (0.02, 0.05, 0.10)
LOOPS = 4000
ORDER = random.Random(0)  # noqa: S311 - which stretches to draw is no secret


def work(loops=LOOPS):
    total = 0
    for number in range(loops):
        total += number * number
    return total


def slower_work():
    return work(LOOPS + LOOPS // 20)  # 5 % more of the same


def noisy_work():
    return work(LOOPS + ORDER.randrange(LOOPS))  # anything from as much to twice as much


def load():
    return f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"


def recording(count):
    """Times of single calls, in the order they were taken."""
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return taken


def in_turns(series, start, runs, slowdown=0.0):
    """A stretch of the recording, dealt to two sides in turns."""
    part = series[start : start + 2 * runs]
    return part[::2], [taken * (1 + slowdown) for taken in part[1::2]]


def called(verdicts):
    return sum(verdict in {"faster", "slower"} for verdict in verdicts)


def share(name, verdicts, *, note=""):
    wrong = called(verdicts)
    value = 100 * wrong / len(verdicts)
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in ("same", "undecided", "faster", "slower"))
    return Figure(
        name=name,
        value=value,
        unit="%",
        target="≤ 1",
        met=value <= 1,
        note=f"{len(verdicts)} pairs: {counts}{note}; {load()}",
    )


def resampled_figures(series):
    noise = f"; median {1e3 * sorted(series)[len(series) // 2]:.3g} ms, spread {spread(series):.0%}"
    for runs in RUNS:
        starts = [ORDER.randrange(len(series) - 2 * runs) for _ in range(RESAMPLED)]
        pairs = [in_turns(series, start, runs) for start in starts]
        found = [judge(a, b, paired=True).verdict for a, b in pairs]
        yield share(f"aa_resampled_in_turns_{runs}_runs", found, note=noise)
        drawn = [(ORDER.choices(series, k=runs), ORDER.choices(series, k=runs)) for _ in range(RESAMPLED)]
        yield share(f"aa_resampled_drawn_{runs}_runs", [judge(a, b).verdict for a, b in drawn], note=noise)
        for slowdown in PLANTED:
            pairs = [in_turns(series, start, runs, slowdown) for start in starts]
            yield power(slowdown, runs, [judge(a, b, paired=True).verdict for a, b in pairs], noise)


def power(slowdown, runs, found, noise):
    counts = ", ".join(f"{found.count(kind)} {kind}" for kind in ("slower", "undecided", "same", "faster"))
    return Figure(
        name=f"power_{100 * slowdown:.0f}_percent_{runs}_runs",
        value=100 * found.count("slower") / len(found),
        unit="%",
        target="none",
        met=True,
        note=f"{counts}{noise}; {load()}",
    )


def spread(series):
    ordered = sorted(series)
    middle = ordered[len(ordered) // 2]
    return 1.4826 * sorted(abs(taken - middle) for taken in series)[len(series) // 2] / middle


def real_figures():
    plan = Plan(warmup=10, runs=RUNS[0], seconds=0.0, calls=1)
    for name, function in (("", work), ("noisy_", noisy_work)):
        pairs = [bench_against(function, function, plan, guard=NoGuard()) for _ in range(REAL)]
        yield share(f"aa_real_{name}in_turns", [verdict_of(a, b) for a, b in pairs])
        pairs = one_after_the_other(function, function, REAL, seconds=0.1)
        yield share(f"aa_real_{name}one_after_the_other", [verdict_of(a, b) for a, b in pairs], note=guarded(pairs))
    nothing = [sys.executable, "-I", "-S", "-c", "pass"]
    runs = Plan(warmup=1, runs=15, seconds=0.0, seconds_at_most=4.0)
    started, found = time.perf_counter(), []
    while len(found) < COMMANDS and time.perf_counter() - started < COMMANDS_S:
        found.append(verdict_of(*bench_commands([nothing, nothing], runs, guard=NoGuard())))
    yield share("aa_real_commands", found)


def one_after_the_other(old, new, pairs, *, seconds, runs=RUNS[0]):
    """As two people would who measure at different times: here the guard's word counts."""
    guard = Guard()
    first = guard.before()
    plan = Plan(warmup=10, runs=runs, seconds=seconds, calls=1, retries=0)
    return [
        [measure([function_subject(each, plan)], plan, guard=guard, first=first)[0] for each in (old, new)]
        for _ in range(pairs)
    ]


def guarded(pairs):
    disturbed = sum(bool(a.disturbed or b.disturbed) for a, b in pairs)
    alone = called([judge(a.samples_s, b.samples_s).verdict for a, b in pairs])
    return f"; {disturbed} pairs were disturbed; without the guard's word {alone} would be called different"


def verdict_of(a, b):
    return compare(a.profile, b.profile).main.verdict


def planted_figures():
    """A real function with 5 % more work: in turns with the other, and after it, as long as a careful person would."""
    plan = Plan(warmup=20, runs=300, seconds=0.0, calls=1)
    pairs = [bench_against(work, slower_work, plan, guard=NoGuard()) for _ in range(10)]
    yield caught("planted_5_percent_in_turns", [verdict_of(a, b) for a, b in pairs])
    pairs = one_after_the_other(work, slower_work, 10, seconds=0.0, runs=300)
    quiet = [(a, b) for a, b in pairs if not (a.disturbed or b.disturbed)]
    yield caught("planted_5_percent_one_after_the_other", [verdict_of(a, b) for a, b in quiet], note=guarded(pairs))


def caught(name, found, *, note=""):
    """On a machine that was never quiet there is no pair to be caught in, and no target."""
    slower = found.count("slower")
    return Figure(
        name=name,
        value=100 * slower / len(found) if found else 0.0,
        unit="%",
        target="≥ 90" if found else "none: no pair was left in peace",
        met=slower >= 0.9 * len(found),
        note=f"{slower} of {len(found)} pairs of 300 runs called slower, {found.count('undecided')} undecided{note}; "
        f"{load()}",
    )


def figures():
    recording(50)
    series = recording(RECORDED)
    yield from resampled_figures(series)
    yield from real_figures()
    yield from planted_figures()
