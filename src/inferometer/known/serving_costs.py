"""What serving engines take beside their kernels, as `workshop/serving/fit.py` fitted it to published figures.

`data/serving_costs.json` is written by that script and by nothing else.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from inferometer.core.device import Sourced
from inferometer.core.engine import StepCosts

FILE = Path(__file__).parent / "data" / "serving_costs.json"
NUMBERS = (
    "step_s", "sequence_s", "prompt_s", "launch_s", "later", "kernels", "kernels_prompt", "together", "context_s",
    "ttft_spread", "tpot_spread", "batch_spread",
)  # fmt: skip


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document


def fitted_costs(engine: str) -> tuple[StepCosts, ...]:
    """Of every era of an engine and class of devices that was fitted, in the file's order: the oldest era first."""
    document = _document()
    source, date = document["source"], document["date"]

    def sourced(value: float) -> Sourced:
        return Sourced(value=value, origin="calibrated", source=source, date=date)

    return tuple(
        StepCosts(since=row["since"], devices=tuple(row["devices"]), **{name: sourced(row[name]) for name in NUMBERS})
        for row in document["costs"]
        if row["engine"] == engine
    )


def fitted_number(name: str) -> float:
    """A number of the fit that belongs to no engine."""
    return float(_document()["numbers"][name])


def fitted_on(engine: str) -> tuple[frozenset[str], frozenset[str]]:
    """The devices and the models whose published figures with an engine are in the fit."""
    known = _document()["fitted_on"].get(engine, {})
    return frozenset(known.get("devices", ())), frozenset(known.get("models", ()))
