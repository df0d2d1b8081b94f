"""Kernels of serving engines where their tables are not installed: the forms that they follow, five numbers each.

`known/data/kernel_forms.json` is written by workshop/kernels/forms.py and by nothing else.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from inferometer.core.calibration import Calibration, KernelForm, KernelForms

FILE = Path(__file__).parents[3] / "known" / "data" / "kernel_forms.json"
SOURCE = "forms fitted to the operator tables of aiconfigurator-core (Apache-2.0)"
ANY = "any"  # the forms of all systems together


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document


@cache
def form_calibration(engine: str, system: str | None, device: str) -> Calibration | None:
    """The forms of an engine's kernels on a system; families that it lacks follow those of all systems together."""
    known = _document()["engines"].get(engine)
    if known is None:
        return None
    own = known.get(system or ANY, known[ANY])
    families = {**known[ANY]["families"], **own["families"]}
    return Calibration(
        device=device,
        runtime=engine,
        dtype="bf16",
        created=_document()["date"],
        forms={family: _forms(family, kinds) for family, kinds in families.items()},
        versions={engine: own["version"]} if own["version"] else {},
    )


def _forms(family: str, kinds: dict[str, list[float]]) -> KernelForms:
    return KernelForms(family=family, by_format={kind: _form(numbers) for kind, numbers in kinds.items()})


def _form(numbers: list[float]) -> KernelForm:
    return KernelForm(**dict(zip(_document()["numbers"], numbers, strict=True)))
