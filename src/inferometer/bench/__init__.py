"""Benchmarking: plans and limits, the measuring loop, the environment guard, statistics and verdicts.

The package is a verb too: `inferometer.bench(function)` measures, and `inferometer.bench.Plan` says how.
"""

from typing import TYPE_CHECKING

from inferometer.lazy import attributes, callable_package

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
    "inferometer.bench.run": ("bench_against", "bench_commands"),
    "inferometer.bench.verdict": ("Criteria", "judge"),
})  # fmt: skip


callable_package(__name__, "inferometer.bench.run")
