"""Benchmarking: plans and limits, the measuring loop, the environment guard, statistics and verdicts.

The package is a verb too: `inferometer.bench(function)` measures, and `inferometer.bench.Plan` says how.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

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

_load = attributes(__name__, {
    "inferometer.bench.guard": ("Guard", "NoGuard"),
    "inferometer.bench.measurement": ("Measurement",),
    "inferometer.bench.plan": ("Plan",),
    "inferometer.bench.run": ("bench_against", "bench_commands"),
    "inferometer.bench.verdict": ("Criteria", "judge"),
})  # fmt: skip


class _Verb(ModuleType):
    """Importing any module of a package sets the package's name in its parent: so the package itself is callable."""

    def __call__(self, *arguments: Any, **options: Any) -> "Measurement":
        from inferometer.bench.run import bench  # noqa: PLC0415 - loaded when it is used, as all names here

        return bench(*arguments, **options)


sys.modules[__name__].__class__ = _Verb


def __getattr__(name: str) -> Any:
    """`bench` of this package is the package itself, which can be called."""
    return sys.modules[__name__] if name == "bench" else _load(name)
