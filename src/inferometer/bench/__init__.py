"""Measuring: how often and how long, in what order, with what limits, how quiet it was, and what the numbers say."""

from typing import TYPE_CHECKING

from inferometer.lazy import attributes

if TYPE_CHECKING:
    from inferometer.bench.guard import Guard, NoGuard
    from inferometer.bench.measurement import Measurement
    from inferometer.bench.plan import Plan
    from inferometer.bench.run import bench, bench_against, bench_commands
    from inferometer.bench.verdict import Criteria, judge

__all__ = [
    "Criteria", "Guard", "Measurement", "NoGuard", "Plan", "bench", "bench_against", "bench_commands", "judge",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.bench.guard": ("Guard", "NoGuard"),
    "inferometer.bench.measurement": ("Measurement",),
    "inferometer.bench.plan": ("Plan",),
    "inferometer.bench.run": ("bench", "bench_against", "bench_commands"),
    "inferometer.bench.verdict": ("Criteria", "judge"),
})  # fmt: skip
