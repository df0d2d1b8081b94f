"""Measuring without a process of its own, for tests of what is measured with an engine that takes seconds to import."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.measure.run.child import carry_out
from inferometer.measure.run.isolate import _with, _with_partial
from inferometer.measure.run.raw import Raw

if TYPE_CHECKING:
    from inferometer.measure.run.order import MeasureOrder


def measured_here(order: MeasureOrder, **_: Any) -> Raw:
    """What `isolated` returns. The order and every answer are pickled, as between two processes."""
    raw = Raw(ended="crashed")

    def tell(name: str, value: Any) -> None:
        nonlocal raw
        value = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own
        if name == "ended":
            ended, error, remedy = value
            raw = replace(raw, ended=ended, error=error, remedy=remedy)
        elif name != "progress":
            raw = _with(raw, name, value)

    carry_out(pickle.loads(pickle.dumps(order)), tell)  # noqa: S301 - our own
    return _with_partial(raw)
