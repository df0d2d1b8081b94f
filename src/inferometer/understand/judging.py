"""Judging a profile: what it is compared with is chosen once and stored with it.

Judging adds the roofs, a prediction beside each op and the findings with their gains. Explaining then only reads, so a
stored run gets the same explanation wherever it is read.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from inferometer.core.device import Device, Roof, is_local
from inferometer.core.errors import InferometerError
from inferometer.core.graph import Graph
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import JudgedBy, Profile
from inferometer.formats.networks.shipped import is_shipped
from inferometer.known import device as device_named
from inferometer.known.engines import engine_or_ideal
from inferometer.known.files import row_named
from inferometer.known.machine.detect.identity import this_machine
from inferometer.measure.run.beside import with_prediction
from inferometer.predict.applicable import meaningful
from inferometer.predict.ask import graphs_named
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


# What a profile refers to: the graph behind its model's name, and the device behind its device's name.


def graph_behind(profile: Profile, *, files: bool) -> tuple[Graph | None, str | None]:
    """The model's graph, or None and why.

    If there are two candidates, it is the one whose layers share more names with the profile's ops. The model's own
    file is read only with `files`: a profile from elsewhere may name any file on this machine.
    """
    name, source = profile.model.name, profile.model.source
    sources = [source] if files and source and Path(source).exists() else []
    if row_named("models", name) is not None or is_shipped(name):
        sources.append(name)
    graphs: list[Graph] = []
    problems: list[str] = []
    for place in sources:
        try:
            graphs += graphs_named(place)
        except InferometerError as error:
            problems.append(str(error))
    if not graphs:
        why = problems[0] if problems else f"the catalog has no {name!r}"
        return None, f"Gains are not priced: {why.rstrip('.')}."
    return max(graphs, key=lambda graph: _shared_layers(profile, graph)), None


def _shared_layers(profile: Profile, graph: Graph) -> int:
    names = {block.full_name(op.name, repetition) for block, op in graph.ops() for repetition in range(block.count)}
    return sum(op.name in names for phase in profile.phases for op in phase.ops)


def device_behind(profile: Profile, on: str | None = None) -> tuple[Device | None, str | None]:
    """The device of the profile, or None and why. `on` names it; otherwise it is the one the profile was judged by.

    Nothing is measured here: a machine whose roof was not stored with the run has none.
    """
    if on is not None:
        return device_named(on), None
    if profile.judged_by is not None:
        return profile.judged_by.device, None
    name = profile.device.name
    if is_local(name):
        return None, "The run has no roof of its machine: name the device with `--on DEVICE`."
    if row_named("devices", name) is None:  # never a path: a guest of the hub could then read this machine's files
        return None, f"The catalog has no device {name!r}: name one with `--on DEVICE`."
    return device_named(name), None


def other_machine(profile: Profile) -> MachineFacts | None:
    """The machine of a run that was made on another one than this; None if it is this one, or not known."""
    machine = profile.environment.machine if profile.environment else None
    return None if machine is None or machine.id == this_machine().id else machine
