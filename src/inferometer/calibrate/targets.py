"""What predictions aim at, and whether they reach it: rows of aims over groups of cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inferometer.calibrate.accuracy import Judged, standing

__all__ = ["AIMS", "Aim", "against_aims"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    what: str
    median: float
    p90: float | None
    holds: Callable[[Judged], bool]
    covered: tuple[float, float] = (0.75, 0.90)


def _gpu(runtime: str, phase: str) -> Callable[[Judged], bool]:
    return lambda each: (each.case.device, each.case.runtime, each.case.phase) == ("nvidia-h200", runtime, phase)


def _cpu(runtime: str) -> Callable[[Judged], bool]:
    return lambda each: each.case.device != "nvidia-h200" and each.case.runtime == runtime


AIMS = (
    Aim(what="H200, torch-compile, decode", median=0.05, p90=0.15, holds=_gpu("torch-compile", "decode")),
    Aim(what="H200, torch-compile, prefill", median=0.06, p90=0.15, holds=_gpu("torch-compile", "prefill")),
    Aim(what="H200, vision and BERT forward, graph", median=0.10, p90=0.25, holds=_gpu("torch-graph", "forward")),
    Aim(what="CPU, ONNX Runtime", median=0.08, p90=0.20, holds=_cpu("onnxruntime")),
    Aim(what="CPU, llama.cpp", median=0.08, p90=0.20, holds=_cpu("llamacpp")),
)
PRIORS_AIM = Aim(what="datasheet and priors alone", median=0.25, p90=None, holds=lambda _: True)


def against_aims(judged: Sequence[Judged], priors: Sequence[Judged]) -> list[dict[str, Any]]:
    """Each aim that there are cases for, with what is reached."""
    rows = [_row(aim, [each for each in judged if aim.holds(each)]) for aim in AIMS]
    rows.append(_row(PRIORS_AIM, list(priors)))
    return [row for row in rows if row["n"]]


def _row(aim: Aim, judged: Sequence[Judged]) -> dict[str, Any]:
    found = standing(judged)
    words = f"≤ {aim.median:.0%}" + ("" if aim.p90 is None else f", ≤ {aim.p90:.0%}")
    met = bool(found["n"]) and found["median"] <= aim.median and (aim.p90 is None or found["p90"] <= aim.p90)
    return {"what": aim.what, **found, "aim": words, "met": met}
