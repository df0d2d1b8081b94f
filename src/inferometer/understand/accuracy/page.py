"""The accuracy page's sections as plain rows for the report, and the results of devices left out."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec

from inferometer.core.frozen import frozen
from inferometer.known import device
from inferometer.measure.calibrate.priors.judged import JudgedSteps
from inferometer.understand.accuracy.cases import CASES, read_cases, read_peers
from inferometer.understand.accuracy.judge import Judged, by_group, error_summary, groups_of, judge_cases, peer_errors

# How accurate predictions should be, and whether they are: an aim for each group of cases.
#
# An aim is met if the errors' median and 90th percentile are low enough, and if the intervals cover neither too few
# cases nor too many: intervals that always hold are too wide.


@frozen
class Aim:
    what: str
    median: float
    p90: float | None
    holds: Callable[[Judged], bool]
    covered: tuple[float, float] = (0.75, 0.90)


def _gpu(runtime: str, phase: str) -> Callable[[Judged], bool]:
    return lambda judged: (
        (judged.case.device, judged.case.runtime, judged.case.phase) == ("nvidia-h200", runtime, phase)
    )


def _cpu(runtime: str) -> Callable[[Judged], bool]:
    """Cases with a calibration: a datasheet alone has an aim of its own."""
    return lambda judged: (
        judged.case.runtime == runtime and judged.how != "priors" and device(judged.case.device).unit == "cpu"
    )


AIMS = (
    Aim(what="H200, torch-compile, decode", median=0.05, p90=0.15, holds=_gpu("torch-compile", "decode")),
    Aim(what="H200, torch-compile, prefill", median=0.06, p90=0.15, holds=_gpu("torch-compile", "prefill")),
    Aim(what="H200, vision and BERT forward, graph", median=0.10, p90=0.25, holds=_gpu("torch-graph", "forward")),
    Aim(what="CPU, ONNX Runtime", median=0.08, p90=0.20, holds=_cpu("onnxruntime")),
    Aim(what="CPU, llama.cpp", median=0.08, p90=0.20, holds=_cpu("llamacpp")),
)


def against_aims(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Each aim that has cases, with what is reached. Cases that a fit or a prior has seen do not count."""
    unseen = [prediction for prediction in judged if prediction.how != "seen"]
    rows = [_row(aim, [prediction for prediction in unseen if aim.holds(prediction)]) for aim in AIMS]
    return [row for row in rows if row["n"]]


def _row(aim: Aim, judged: Sequence[Judged]) -> dict[str, Any]:
    row = error_summary(judged)
    if not row["n"]:
        return {"what": aim.what, **row}
    least, most = aim.covered
    near = f"≤ {aim.median:.0%}" + ("" if aim.p90 is None else f", ≤ {aim.p90:.0%}")
    met = row["median"] <= aim.median and (aim.p90 is None or row["p90"] <= aim.p90)
    met = met and least <= row["covered"] <= most
    return {"what": aim.what, **row, "aim": f"{near}, {least:.0%} to {most:.0%} covered", "met": met}


@frozen
class AccuracyFindings:
    """Everything that the page shows."""

    judged: tuple[Judged, ...]
    priors: tuple[Judged, ...]
    aims: list[dict[str, Any]]
    by_phase: dict[tuple[str, ...], dict[str, Any]]
    by_family: dict[tuple[str, ...], dict[str, Any]]
    by_op: dict[tuple[str, ...], dict[str, Any]]
    priors_by_phase: dict[tuple[str, ...], dict[str, Any]]
    peers: list[dict[str, Any]]


def accuracy_findings() -> AccuracyFindings:
    """All shipped cases, predicted with the shipped calibrations and with priors alone."""
    cases = read_cases()
    judged, _ = judge_cases(cases)
    alone, _ = judge_cases(cases, priors=True)

    def grouped(what: str, cases_judged: tuple[Judged, ...]) -> dict[tuple[str, ...], dict[str, Any]]:
        names = groups_of(what)
        return by_group(cases_judged, lambda prediction: (*names(prediction), prediction.how))

    return AccuracyFindings(
        judged=judged,
        priors=alone,
        aims=against_aims(judged),
        by_phase=grouped("phase", judged),
        by_family=grouped("family", judged),
        by_op=grouped("op", judged),
        priors_by_phase=grouped("phase", alone),
        peers=peer_errors(judged, read_peers()),
    )


# What the fit of the priors is off by on published steps that were left out of it: read from its committed results.

RESULTS = (CASES / "published-left-out.json", CASES / "published-tokens-left-out.json")


@cache
def left_out_results() -> tuple[JudgedSteps, ...]:
    """As `python -m inferometer.measure.calibrate.priors` wrote them: one row a group and way of leaving out."""
    read = (msgspec.json.decode(path.read_bytes(), type=tuple[JudgedSteps, ...]) for path in RESULTS)
    return tuple(group for groups in read for group in groups)
