"""The accuracy page's sections as plain rows for the report."""

from __future__ import annotations

from typing import Any

from inferometer.core.frozen import frozen
from inferometer.understand.accuracy.cases import read_cases, read_peers
from inferometer.understand.accuracy.judge import Judged, by_group, groups_of, judge_cases, peer_errors
from inferometer.understand.accuracy.targets import against_aims


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
