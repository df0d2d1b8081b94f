"""Benchmarking: plans and limits, the measuring loop, the environment guard, statistics and verdicts."""

from typing import TYPE_CHECKING

from inferometer.core.lazy import attributes

if TYPE_CHECKING:
    from inferometer.measure.bench.guard import Guard, NoGuard
    from inferometer.measure.bench.measurement import Measurement
    from inferometer.measure.bench.plan import Plan
    from inferometer.measure.bench.run import bench, bench_against, bench_commands
    from inferometer.measure.bench.verdict import Criteria, judge

__all__ = [
    "Criteria", "Guard", "Measurement", "NoGuard", "Plan", "bench", "bench_against", "bench_commands", "judge",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.measure.bench.guard": ("Guard", "NoGuard"),
    "inferometer.measure.bench.measurement": ("Measurement",),
    "inferometer.measure.bench.plan": ("Plan",),
    "inferometer.measure.bench.run": ("bench", "bench_against", "bench_commands"),
    "inferometer.measure.bench.verdict": ("Criteria", "judge"),
})  # fmt: skip
