"""How often `inferometer runs watch` cries wolf, and how soon it finds a step: on recorded and on made-up noise.

    python benchmarks/alarms.py                          # with the newest recorded/series-noise-*.json
    python benchmarks/alarms.py --seed 100               # other draws than those that the rule was set on
    python benchmarks/alarms.py --record noise.json --minutes 10

A series-day is one run of one series. Noise is resampled in blocks from runs recorded on a busy machine (the same work,
measured in turns under two names), or made up: a spread between runs, a slow drift, and one run in twenty disturbed. A
planted step is one that stays. Confirming is rounds in turns with noise of their own. Detectors of PyPI see the series
alone and are run again after every run, where they are installed (`pip install ruptures signal-processing-algorithms`):
Pelt with the penalty of BIC, and MongoDB's E-Divisive at its own defaults (5 %, 100 permutations).
"""

import argparse
import json
import time
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from figure import Figure

from inferometer.understand.series import ROUNDS, AlarmRule, rounds_verdict, suspicion

RECORDED = max((Path(__file__).parent / "recorded").glob("series-noise-*.json"))
RULE, HISTORY, AFTER = AlarmRule(), 20, 3
SERIES, QUIET = 400, 1000  # with a planted step, and without


class Recorded:
    """Runs and pairs as they were, in blocks of neighbours, so that what drifts goes on drifting."""

    name = "recorded"

    def __init__(self, kept):
        self.medians, self.pairs = np.log(kept["runs_s"]), np.log(kept["pairs"])

    def series(self, rng, length):
        starts = rng.integers(0, len(self.medians) - 5, size=length // 5 + 1)
        return np.concatenate([self.medians[at : at + 5] for at in starts])[:length]

    def pair(self, rng):
        return rng.choice(self.pairs)


class MadeUp:
    """Normal noise between runs with a memory of the last one, a drift, and one run in twenty disturbed."""

    def __init__(self, spread):
        self.spread, self.name = spread, f"{100 * spread:g} % spread"

    def series(self, rng, length):
        noise = rng.normal(0, self.spread, length)
        for at in range(1, length):
            noise[at] = 0.3 * noise[at - 1] + noise[at] * np.sqrt(1 - 0.3**2)
        drift = np.cumsum(rng.normal(0, self.spread / 20, length))
        return noise + drift + (rng.random(length) < 0.05) * rng.exponential(0.15, length)

    def pair(self, rng):
        return np.median(rng.normal(0, self.spread, 30) + (rng.random(30) < 0.05) * rng.normal(0, 0.1, 30))


def confirmed(noise, rng, step):
    """Rounds in turns, judged as `api.watching` judges them."""
    medians = [float(np.exp(noise.pair(rng) + step)) for _ in range(ROUNDS)]
    return rounds_verdict([1.0] * ROUNDS, medians, RULE) == "slower"


def watched(noise, rng, step):
    """After how many runs the step was told (None: not within three), and how many measurements in turns it took."""
    logs = noise.series(rng, HISTORY + AFTER)
    logs[HISTORY:] += step
    turns = 0
    for day in range(1, AFTER + 1):
        found = suspicion(np.exp(logs[: HISTORY + day]).tolist(), RULE)
        if found is not None and found.stands_out:
            turns += 1
            if confirmed(noise, rng, step):
                return day, turns
    return None, turns


def ruptures_told(noise, rng, step, *, least=1):
    """When Pelt first puts a change to slower into the newest three runs; `least` runs make a level."""
    import ruptures  # noqa: PLC0415 - benchmarks only, and where somebody installed it

    logs = noise.series(rng, HISTORY + AFTER)
    logs[HISTORY:] += step
    for day in range(1, AFTER + 1):
        seen = logs[: HISTORY + day].reshape(-1, 1)
        scale = np.median(np.abs(np.diff(seen[:, 0]))) / 0.954 or 1e-9
        ends = ruptures.Pelt(model="l2", min_size=least, jump=1).fit(seen / scale).predict(pen=3 * np.log(len(seen)))
        starts = [end for end in ends[:-1] if end >= HISTORY]
        if starts and np.median(seen[starts[-1] :]) - np.median(seen[: starts[-1]]) > np.log1p(RULE.threshold):
            return day, 0
    return None, 0


def mongodb_told(noise, rng, step):
    """When E-Divisive first puts a change to slower into the newest three runs."""
    from signal_processing_algorithms.energy_statistics.energy_statistics import e_divisive  # noqa: PLC0415 - as above

    logs = noise.series(rng, HISTORY + AFTER)
    logs[HISTORY:] += step
    np.random.seed(int(rng.integers(2**31)))  # noqa: NPY002 - its permutations are drawn from there
    for day in range(1, AFTER + 1):
        seen = logs[: HISTORY + day]
        starts = [at for at in sorted(e_divisive(np.exp(seen), pvalue=0.05, permutations=100)) if at >= HISTORY]
        if starts and np.median(seen[starts[-1] :]) - np.median(seen[: starts[-1]]) > np.log1p(RULE.threshold):
            return day, 0
    return None, 0


def table(noise, detector, seed, series=SERIES):
    """False alarms in 500 series-days, and the share of steps told within three runs, by size."""
    rng = np.random.default_rng(seed)
    quiet = [detector(noise, rng, 0.0) for _ in range(series * QUIET // SERIES)]
    days = len(quiet) * AFTER
    row = {"false_in_500_days": 500 * sum(day is not None for day, _ in quiet) / days}
    row["in_turns"] = sum(turns for _, turns in quiet) / days
    for step in (0.02, 0.05, 0.10):
        answers = [detector(noise, rng, np.log1p(step)) for _ in range(series)]
        days = [day for day, _ in answers if day is not None]
        row[f"found_{step:.0%}"] = len(days) / series
        row[f"delay_{step:.0%}"] = float(np.mean(days)) if days else None
    return row


def results(seed=0, series=SERIES):
    noises = [MadeUp(0.005), MadeUp(0.01), MadeUp(0.02), Recorded(json.loads(RECORDED.read_text(encoding="utf-8")))]
    detectors = {"watch": watched}
    if find_spec("ruptures"):
        detectors |= {"ruptures": ruptures_told, "ruptures, levels of 3": partial(ruptures_told, least=3)}
    if find_spec("signal_processing_algorithms"):
        detectors |= {"E-Divisive (MongoDB)": mongodb_told}
    for at, noise in enumerate(noises):
        for name, detector in detectors.items():
            yield name, noise.name, table(noise, detector, seed + at, series)


def figures():
    for name, noise, row in results():
        if name == "watch":
            alarms, found = row["false_in_500_days"], row["found_5%"]
            yield Figure(
                name=f"watch, {noise}: false alarms",
                value=alarms,
                unit="in 500 series-days",
                target="1",
                met=alarms <= 1,
            )
            yield Figure(
                name=f"watch, {noise}: 5 % steps told within three runs", value=100 * found, unit="%", target="95",
                met=found >= 0.95,
            )  # fmt: skip


def record(path, minutes):
    """The same small matrix work under two names, 30 pairs in turns every two seconds, CPU seconds of the thread."""
    work, end, runs, pairs = (
        np.random.default_rng(0).standard_normal((160, 160)),
        time.monotonic() + 60 * minutes,
        [],
        [],
    )

    def once():
        start = time.thread_time()
        for _ in range(4):
            work @ work
        return time.thread_time() - start

    while time.monotonic() < end:
        a, b = zip(*((once(), once()) for _ in range(30)), strict=True)
        runs.append(float(np.median(a)))
        pairs.append(float(np.median(np.array(b) / np.array(a))))
        time.sleep(2)
    about = f"{record.__doc__} Recorded while other programs kept the machine busy."
    kept = {"about": about, "date": datetime.now(UTC).date().isoformat(), "runs_s": runs, "pairs": pairs}
    path.write_text(json.dumps(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--series", type=int, default=SERIES, help="with a step; two and a half times as many without")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    asked = parser.parse_args()
    if asked.record:
        record(asked.record, asked.minutes)
    for name, noise, row in () if asked.record else results(asked.seed, asked.series):
        print(json.dumps({"detector": name, "noise": noise, **row}), flush=True)
