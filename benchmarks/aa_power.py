"""How often equal things are called different, and how often a planted slow-down is found.

Real pairs: the same function measured against itself, in turns and one after the other, and a command line against
itself. Resampled pairs: stretches of one long real recording, so that its noise and its drift are in them.
"""

import random
import sys
import time

from figure import Figure

from inferometer.bench import Guard, NoGuard, Plan, bench_against, bench_commands, judge
from inferometer.bench.compare import compare
from inferometer.bench.run import function_subject, measure

RUNS = (30, 100)  # a side; 30 is the default plan's least
RESAMPLED = 1000
REAL = 32
COMMANDS = 30
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
        note=f"{len(verdicts)} pairs: {counts}{note}",
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
        note=f"{counts}{noise}",
    )


def spread(series):
    ordered = sorted(series)
    middle = ordered[len(ordered) // 2]
    return 1.4826 * sorted(abs(taken - middle) for taken in series)[len(series) // 2] / middle


def real_figures():
    plan = Plan(warmup=10, runs=RUNS[0], seconds=0.0, calls=1)
    pairs = [bench_against(work, work, plan, guard=NoGuard()) for _ in range(REAL)]
    yield share("aa_real_in_turns", [verdict_of(a, b) for a, b in pairs])
    yield one_after_the_other()
    nothing = [sys.executable, "-I", "-S", "-c", "pass"]
    runs = Plan(warmup=1, runs=15, seconds=0.0, seconds_at_most=2.0)
    started, found = time.perf_counter(), []
    while len(found) < COMMANDS and time.perf_counter() - started < 20:
        found.append(verdict_of(*bench_commands([nothing, nothing], runs, guard=NoGuard())))
    yield share("aa_real_commands", found)


def one_after_the_other():
    """As two people would who measure at different times: here the guard's word counts."""
    guard = Guard()
    first = guard.before()
    plan = Plan(warmup=10, runs=RUNS[0], seconds=0.1, calls=1, retries=0)
    pairs = [
        [measure([function_subject(work, plan)], plan, guard=guard, first=first)[0] for _ in "AB"] for _ in range(REAL)
    ]
    found = [verdict_of(a, b) for a, b in pairs]
    unguarded = [judge(a.samples_s, b.samples_s).verdict for a, b in pairs]
    disturbed = sum(bool(a.disturbed or b.disturbed) for a, b in pairs)
    note = f"; {disturbed} pairs were disturbed; without the guard's word {called(unguarded)} would be called different"
    return share("aa_real_one_after_the_other", found, note=note)


def verdict_of(a, b):
    return compare(a.profile, b.profile).main.verdict


def planted_figures():
    """A real function with 5 % more work, measured in turns with the other, as long as a careful person would."""
    plan = Plan(warmup=20, runs=300, seconds=0.0, calls=1)
    found = [verdict_of(*bench_against(work, slower_work, plan, guard=NoGuard())) for _ in range(10)]
    caught = found.count("slower")
    yield Figure(
        name="planted_5_percent_caught",
        value=100 * caught / len(found),
        unit="%",
        target="≥ 90",
        met=caught >= 0.9 * len(found),
        note=f"{caught} of {len(found)} pairs of 300 runs called slower, {found.count('undecided')} undecided",
    )


def figures():
    recording(50)
    series = recording(4000)
    yield from resampled_figures(series)
    yield from real_figures()
    yield from planted_figures()
