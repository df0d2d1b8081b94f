"""Values as columns, which pandas and polars take as they are: SI units, None or NaN where nothing is known."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from inferometer.core.errors import MissingDependencyError
from inferometer.core.profile import OpTime, Profile

if TYPE_CHECKING:
    from inferometer.measure.bench.compare import Comparison
    from inferometer.predict.sweep import Rows

_LISTS = {"samples_s", "layers"}
_OP = tuple(entry.name for entry in fields(OpTime) if entry.name not in _LISTS)
_METRIC = (
    "name", "phase", "unit", "a", "b", "ratio", "low", "high", "p_value", "verdict", "sure", "better", "effect", "runs",
    "reason",
)  # fmt: skip


class Columned(Protocol):
    def to_columns(self) -> dict[str, Any]: ...


def profile_columns(profile: Profile) -> dict[str, list[Any]]:
    """One row an op, the phase first; a phase without ops, such as loading, is one row of its own."""
    rows: list[tuple[Any, ...]] = []
    for phase in profile.phases:
        rows += [(phase.name, *(getattr(op, name) for name in _OP)) for op in phase.ops]
        if not phase.ops:
            rows.append((phase.name, *(getattr(phase, name, None) if name != "kind" else "phase" for name in _OP)))
    return _columns(("phase", *_OP), rows)


def comparison_columns(comparison: Comparison) -> dict[str, list[Any]]:
    """One row a metric (`part` is `whole`), then one an op."""
    parts = (("whole", comparison.metrics), ("op", comparison.ops))
    rows = [(part, *(getattr(metric, name) for name in _METRIC)) for part, metrics in parts for metric in metrics]
    return _columns(("part", *_METRIC), rows)


def rows_columns(rows: Rows) -> dict[str, Any]:
    return {name: rows[name] for name in rows.columns}


def _columns(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def pandas_frame(value: Columned) -> Any:
    return _library("pandas").DataFrame(value.to_columns())


def polars_frame(value: Columned) -> Any:
    """A column of texts and gaps is made of Python's own values: numpy's objects would stay objects."""
    plain = {name: _plain(column) for name, column in value.to_columns().items()}
    return _library("polars").DataFrame(plain, strict=False)


def _plain(column: Any) -> Any:
    return column.tolist() if getattr(getattr(column, "dtype", None), "kind", None) == "O" else column


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingDependencyError(
            f"{name} is not installed.", remedy=f"pip install {name}, or take `to_columns()`."
        ) from None
