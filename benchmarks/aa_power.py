"""How often equal things are called different, and how often a planted slow-down is found.

Real pairs: the same function measured against itself, in turns and one after the other, and a command line against
itself. Resampled pairs: stretches of one long real recording, so that its noise and its drift are in them.
"""

import random
import sys
import time

from figure import Figure

from inferometer.bench import Guard, NoGuard, Plan, bench, bench_against, bench_commands, judge
from inferometer.bench.compare import compare

RUNS = 30  # a side, in every resampled pair: the default plan's least
RESAMPLED = 1000
REAL = 40
COMMANDS = 30
PLANTED = (0.02, 0.05, 0.10)
LOOPS = 4000


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


def in_turns(series, start, slowdown=0.0):
    """A stretch of the recording, dealt to two sides in turns."""
    part = series[start : start + 2 * RUNS]
    return part[::2], [taken * (1 + slowdown) for taken in part[1::2]]


def called(verdicts):
    return sum(verdict in {"faster", "slower"} for verdict in verdicts)


def share(name, verdicts, *, target=True, note=""):
    wrong = called(verdicts)
    value = 100 * wrong / len(verdicts)
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in ("same", "undecided", "faster", "slower"))
    return Figure(
        name=name,
        value=value,
        unit="%",
        target="≤ 1" if target else "none",
        met=value <= 1 or not target,
        note=f"{len(verdicts)} pairs: {counts}{note}",
    )


def resampled_figures(series):
    order = random.Random(0)
    starts = [order.randrange(len(series) - 2 * RUNS) for _ in range(RESAMPLED)]
    noise = f"; {RUNS} runs a side, median {1e3 * sorted(series)[len(series) // 2]:.3g} ms"
    pairs = [in_turns(series, start) for start in starts]
    yield share("aa_resampled_in_turns", [judge(a, b, paired=True).verdict for a, b in pairs], note=noise)
    drawn = [(order.choices(series, k=RUNS), order.choices(series, k=RUNS)) for _ in range(RESAMPLED)]
    yield share("aa_resampled_drawn", [judge(a, b).verdict for a, b in drawn], note=noise)
    for slowdown in PLANTED:
        pairs = [in_turns(series, start, slowdown) for start in starts]
        found = [judge(a, b, paired=True).verdict for a, b in pairs]
        caught = found.count("slower")
        yield Figure(
            name=f"power_{100 * slowdown:.0f}_percent",
            value=100 * caught / len(found),
            unit="%",
            target="none",
            met=True,
            note=f"slower {caught}, undecided {found.count('undecided')}, same {found.count('same')}, "
            f"faster {found.count('faster')} of {len(found)}{noise}",
        )


def real_figures():
    plan = Plan(warmup=10, runs=RUNS, seconds=0.0, calls=1)
    pairs = [bench_against(work, work, plan, guard=NoGuard()) for _ in range(REAL)]
    yield share("aa_real_in_turns", [verdict_of(a, b) for a, b in pairs])
    guard = Guard()
    first = guard.before()
    state = "; the machine was disturbed" if first.disturbances else "; the machine was quiet"
    single = Plan(warmup=10, runs=RUNS, seconds=0.2, calls=1, retries=0)
    found = [bench_twice(single, guard, first) for _ in range(REAL)]
    yield share("aa_real_one_after_the_other", found, note=state)
    nothing = [sys.executable, "-I", "-S", "-c", "pass"]
    runs = Plan(warmup=1, runs=15, seconds=0.0, seconds_at_most=2.0)
    started = time.perf_counter()
    found = []
    while len(found) < COMMANDS and time.perf_counter() - started < 40:
        found.append(verdict_of(*bench_commands([nothing, nothing], runs, guard=NoGuard())))
    yield share("aa_real_commands", found)


def bench_twice(plan, guard, first):
    from inferometer.bench.run import function_subject, measure

    a, b = (
        measure([function_subject(work, plan)], plan, guard=guard, first=first)[0] for _ in range(2)
    )  # fmt: skip
    return verdict_of(a, b)


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
