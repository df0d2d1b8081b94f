"""What predictions aim at, and whether they reach it: rows of aims over groups of cases.

An aim is met where the median and the 90th percentile of the errors are, and the share of cases that the intervals
cover: intervals that hold always are too wide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inferometer.accuracy.judge import Judged, standing
from inferometer.catalog import device


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
    """Cases that a calibration speaks of: a datasheet alone has an aim of its own."""
    return lambda each: each.case.runtime == runtime and each.how != "priors" and device(each.case.device).unit == "cpu"


AIMS = (
    Aim(what="H200, torch-compile, decode", median=0.05, p90=0.15, holds=_gpu("torch-compile", "decode")),
    Aim(what="H200, torch-compile, prefill", median=0.06, p90=0.15, holds=_gpu("torch-compile", "prefill")),
    Aim(what="H200, vision and BERT forward, graph", median=0.10, p90=0.25, holds=_gpu("torch-graph", "forward")),
    Aim(what="CPU, ONNX Runtime", median=0.08, p90=0.20, holds=_cpu("onnxruntime")),
    Aim(what="CPU, llama.cpp", median=0.08, p90=0.20, holds=_cpu("llamacpp")),
)
PRIORS_AIM = Aim(what="datasheet and priors alone, each device left out", median=0.25, p90=None, holds=lambda _: True)


def against_aims(judged: Sequence[Judged], priors: Sequence[Judged]) -> list[dict[str, Any]]:
    """Each aim that there are cases for, with what is reached. Cases that a fit or a prior has seen do not count."""
    unseen, alone = ([each for each in those if each.how != "seen"] for those in (judged, priors))
    rows = [_row(aim, [each for each in unseen if aim.holds(each)]) for aim in AIMS]
    rows.append(_row(PRIORS_AIM, alone))
    return [row for row in rows if row["n"]]


def _row(aim: Aim, judged: Sequence[Judged]) -> dict[str, Any]:
    found = standing(judged)
    if not found["n"]:
        return {"what": aim.what, **found}
    least, most = aim.covered
    near = f"≤ {aim.median:.0%}" + ("" if aim.p90 is None else f", ≤ {aim.p90:.0%}")
    met = found["median"] <= aim.median and (aim.p90 is None or found["p90"] <= aim.p90)
    met = met and least <= found["covered"] <= most
    return {"what": aim.what, **found, "aim": f"{near}, {least:.0%} to {most:.0%} covered", "met": met}
