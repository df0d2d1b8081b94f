"""Judging a profile: what it is compared with is chosen once and stored with it.

Judging adds the roofs, a prediction beside each op and the findings with their gains. Explaining then only reads, so a
stored run gets the same explanation wherever it is read.
"""

from collections.abc import Mapping
from dataclasses import replace

from inferometer.core.device import Device, Roof
from inferometer.core.errors import InferometerError
from inferometer.core.graph import Graph
from inferometer.core.profile import JudgedBy, Profile
from inferometer.known.engines import engine_or_ideal
from inferometer.measure.run.beside import with_prediction
from inferometer.predict.applicable import meaningful
from inferometer.predict.options import Options
from inferometer.predict.question import Question
from inferometer.understand.case import Price, case_of, pricer, unpriced
from inferometer.understand.findings import findings_of

Notes = tuple[str, ...]


def judge_profile(
    profile: Profile,
    device: Device | None,
    *,
    graph: Graph | None = None,
    roof: Roof | None = None,
    sizes: Mapping[str, int] | None = None,
) -> tuple[Profile, Notes]:
    """The profile with what it is judged by, and notes about that for the reader.

    Without a device there are no roofs; without the graph there is no prediction, and changes have no gains.
    """
    if device is None or graph is None:
        judged_by = None if device is None else JudgedBy(device=device)
        return _with_findings(replace(profile, judged_by=judged_by), None, unpriced, graph), ()
    question, notes = question_behind(profile, graph, device, roof=roof, sizes=sizes or {})
    basis = question.basis()
    judged = replace(profile, judged_by=basis.judged_by())
    missing = _missing_calibration(profile, judged)
    if missing is not None:
        return _with_findings(profile, None, unpriced, graph), (*notes, missing)
    try:
        predicted = question.answer()
    except InferometerError as error:
        return _with_findings(judged, None, unpriced, graph), (*notes, *basis.notes, f"There is no prediction: {error}")
    if profile.kind == "measured":
        judged = with_prediction(judged, predicted, graph)
    return _with_findings(judged, predicted, pricer(question, predicted), graph), (*notes, *basis.notes)


def question_behind(
    profile: Profile, graph: Graph, device: Device, *, roof: Roof | None, sizes: Mapping[str, int]
) -> tuple[Question, Notes]:
    """The question that the profile answers. An engine without a descriptor is replaced by the ideal one."""
    runtime = engine_or_ideal(profile.runtime).name
    unknown = profile.runtime is not None and runtime != profile.runtime
    notes = (f"{profile.runtime} has no engine descriptor: it is predicted as an ideal engine.",) if unknown else ()
    question = Question(
        graph=graph,
        device=device,
        runtime=runtime,
        workload=meaningful(profile.workload, graph),  # a profile states formats and sizes that its model has not
        options=Options(sizes=dict(sizes or profile.sizes)),
        calibrated=profile.kind == "measured" or profile.judged_by is None or profile.judged_by.calibration is not None,
        roof=roof,
        had_threads=profile.environment.threads if profile.environment else None,
        host_call_s=profile.environment.host.get("call_s") if profile.environment else None,
        host_module_s=profile.environment.host.get("module_s") if profile.environment else None,
    )
    return question, notes


def _missing_calibration(profile: Profile, judged: Profile) -> str | None:
    """A prediction made with a calibration needs that same one to price changes: a note if it is not here."""
    wanted = profile.judged_by.calibration if profile.judged_by else None
    used = judged.judged_by.calibration if judged.judged_by else None
    if profile.kind == "measured" or wanted is None or wanted == used:
        return None
    return (
        f"It was predicted with the calibration of {wanted.device} with {wanted.runtime} of {wanted.created[:10]}, "
        "which is not here: gains are not priced."
    )


def _with_findings(profile: Profile, predicted: Profile | None, price: Price, graph: Graph | None) -> Profile:
    """The profile with what is found now, and with its own findings of other codes."""
    findings = findings_of(case_of(profile, predicted=predicted, price=price, graph=graph))
    codes = {finding.code for finding in findings}
    return replace(
        profile, findings=(*findings, *(finding for finding in profile.findings if finding.code not in codes))
    )
