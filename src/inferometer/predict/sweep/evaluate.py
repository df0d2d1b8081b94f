"""Combinations over all their sizes: the vector twin of `Question.answer`, from the same basis, plan and memory.

Combinations of one model (its devices, formats and engines) are priced at once.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import groupby, product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.device import is_local
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import is_generative
from inferometer.core.kept import Kept
from inferometer.core.settings import catalog_folders
from inferometer.known.engines import require_effects
from inferometer.predict.applicable import meaningful, require_engine
from inferometer.predict.energy import energy_costs
from inferometer.predict.headline import windows_per_s
from inferometer.predict.memory.fit import capacity_of, reserve_of
from inferometer.predict.money import carbon_grams
from inferometer.predict.precision import counted_precision
from inferometer.predict.question import Basis, Question
from inferometer.predict.ready import ReadyGraph, make_ready
from inferometer.predict.request import encodes_prompt, goes_beyond
from inferometer.predict.running import require_run
from inferometer.predict.sweep.answer import SweepAnswer, joined
from inferometer.predict.sweep.columns import LOADING
from inferometer.predict.sweep.group import GroupMember, Result, evaluated, group_of
from inferometer.predict.sweep.stage import absent_stage, spread_stages
from inferometer.predict.sweep.table import SweepTable, table_of
from inferometer.predict.sweep.workloads import AskedWorkloads, asked_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from inferometer.core.workload import Parallel, Workload
    from inferometer.predict.sweep.grid import Sizes, Study, SweepChunk


# Rows predicted one by one, where the plan or the steps change from row to row: the long way, a millisecond each.
#
# That is so for prompts read in chunks, drafts, diffusion models that read a prompt, and graphs whose memory is no
# polynomial of the sizes.


def one_by_one(question: Question, sizes: Sizes, *, details: bool) -> SweepTable:
    rows = product(sizes.batch, sizes.prompt, sizes.generate, sizes.context)
    asked = (
        replace(question.workload, batch=batch, prompt=prompt, generate=generate, context=context)
        for batch, prompt, generate, context in rows
    )
    return table_of([_row(replace(question, workload=each), details=details) for each in asked], details=details)


def _row(question: Question, *, details: bool) -> dict[str, Any]:
    try:
        # Lists of sizes are for all models of a sweep: what means nothing to this one is left out.
        profile = replace(question, workload=meaningful(question.workload, question.graph)).answer()
    except DomainError as error:
        workload = replace(question.workload, precision=question.basis().precision)
        return {**_inputs(question, workload), "reason": str(error)}
    row = {**_inputs(question, profile.workload), **asdict(profile.summary)}
    if not details:
        return row
    bounds = {f"{phase.name}_bound": phase.bound for phase in profile.phases}
    streams = {f"{phase.name}_{name}_s": time_s for phase in profile.phases for name, time_s in phase.streams.items()}
    return row | bounds | streams


def _inputs(question: Question, workload: Workload) -> dict[str, Any]:
    precision, parallel = counted_precision(question.graph, workload.precision), workload.parallel
    return {
        "model": question.graph.name,
        "device": question.device.name,
        "runtime": question.runtime_name,
        "threads": question.options.threads,
        **asdict(precision),
        **asdict(parallel),
        **{name: getattr(workload, name) for name in ("image", "batch", "prompt", "generate", "context")},
    }


_DENSE_ROWS = 256  # of a combination, above which it is quicker alone than beside others


def evaluate_chunk(study: Study, chunk: SweepChunk) -> list[SweepAnswer | SweepTable]:
    """How a row is computed follows from the study, not from the chunk: it is the same wherever chunks are cut."""
    sizes, dense = study.sizes.part(chunk.tile), prod(study.sizes.shape) > _DENSE_ROWS
    questions = study.questions_in(chunk.combinations)
    return [
        part
        for _, of_one_graph in groupby(questions, key=_kind)
        for part in _evaluate([*of_one_graph], sizes, details=study.details, dense=dense)
    ]


def _kind(question: Question) -> tuple[int, int | None, bool]:
    """What combinations have in common that are evaluated together."""
    return id(question.graph), question.options.threads, _is_special(question)


def _is_special(question: Question) -> bool:
    """Whether rows are predicted one by one: cut steps, two machines, a battery, a cooling, energy by the op."""
    options, device = question.options, question.device
    counted = energy_costs(device, options) or options.battery or device.battery_j
    effects = require_effects(question.runtime)
    cooled = options.cooling_w or device.cooling_w
    # Steps that are cut differ from row to row, and so does their number: no array has one axis for them.
    cut = options.chunk or effects.reads or effects.prompt != "whole"
    return bool(cut or options.speculative or question.prefill_on or counted or cooled)


def _evaluate(
    questions: Sequence[Question], sizes: Sizes, *, details: bool, dense: bool
) -> list[SweepAnswer | SweepTable]:
    """Every row of some combinations of one graph. What cannot be has a reason instead of numbers."""
    graph = questions[0].graph
    parts: list[Sizes] = []  # that each have one plan for all of their rows
    sees = "vision" in graph.metadata and (None in sizes.prompt or any(each.workload.image for each in questions))
    if not (_is_special(questions[0]) or sees):  # how many tokens a prompt has, an image says
        if "encoder" not in graph.metadata.get("default_sizes", {}):
            parts = [sizes]
        elif encodes_prompt(graph) and None not in sizes.prompt:
            parts = [*sizes.by_prompt()]
    answers = [_answer(questions, part, details=details, dense=dense) for part in parts]
    found = [answer for answer in answers if answer is not None]
    if found and len(found) == len(answers):
        return [joined(found)]
    return [one_by_one(question, sizes, details=details) for question in questions]


def _answer(questions: Sequence[Question], sizes: Sizes, *, details: bool, dense: bool) -> SweepAnswer | None:
    """The rows of all combinations; None where memory is no polynomial of the sizes."""
    graph, options = questions[0].graph, questions[0].options
    prompt = sizes.prompt[0] if encodes_prompt(graph) else None  # a plan depends on it where an encoder reads it
    folders = catalog_folders()
    found = [_combination(question, prompt, folders) for question in questions]
    # All combinations or none: the rows of one graph are in one answer, and one way of counting must hold for it.
    if any(each.ready is not None and each.ready.residency.passing.first is None for each in found):
        return None
    # Engines differ in the tokens that they let through, and in nothing else that is asked.
    beyond = np.array([each.beyond for each in found]).reshape(-1, 1, 1, 1, 1)
    ways = {way: asked_of(graph, sizes, options, beyond=way) for way in {*beyond.ravel().tolist()}}
    asked = next(iter(ways.values()))
    overlong = [np.where(beyond == way, reason, None) for way, each in ways.items() for reason in each.reasons]
    foreign = {place: each.foreign for place, each in enumerate(found) if each.foreign is not None}
    refused = {place: each.refused for place, each in enumerate(found) if each.refused is not None}
    groups: dict[Parallel, list[GroupMember]] = {}
    for place, (question, each) in enumerate(zip(questions, found, strict=True)):
        if each.ready is not None:
            member = GroupMember(place=place, ready=each.ready, room_bytes=each.room_bytes)
            groups.setdefault(question.workload.parallel, []).append(member)
    results: list[Result] = []
    late: dict[int, str] = {}
    unshared: dict[int, Any] = {}
    for parallel, members in groups.items():
        group = group_of(members, parallel, asked, options, details=details, dense=dense)
        priced, reasons = evaluated(group)
        results += priced
        late |= reasons
        unshared |= {member.place: reason for member in members for reason in group.shares.reasons}
    before, *after = (
        [_placed(reasons, (len(questions), *asked.shape))] if reasons else []
        # In the order in which `predict` would refuse: what the engine cannot run comes before what does not fit.
        for reasons in (foreign, refused, unshared, late)
    )
    against = (*before, *overlong, *(reason for reasons in after for reason in reasons))
    bases = [each.basis for each in found]
    return _assembled(questions, bases, asked, results, against, details=details)


@frozen
class Combination:
    """What a question is answered with at any sizes, or why it is not.

    `foreign` says which format or setting its engine cannot run with, which is looked at first; `refused` why nothing
    can be priced. NaN stands for a room that is not known.
    """

    basis: Basis
    beyond: bool
    foreign: str | None = None
    refused: str | None = None
    ready: ReadyGraph | None = None
    room_bytes: float = np.nan


_combinations = Kept(400_000, weigh=lambda kept: 1 if kept.ready is None else len(kept.ready.plan.prepared.rows))


def _combination(question: Question, prompt: int | None, folders: tuple[Path, ...]) -> Combination:
    """What a question of a study is answered with; it was settled beforehand which calibration that is."""
    if is_local(question.device.name):  # this machine may have learned
        return _combined(question, prompt)
    key, of, alike = _kept_for(question, prompt, folders)
    return _combinations.get_or_make(key, of, lambda: _combined(question, prompt), alike=alike)


def _kept_for(question: Question, prompt: int | None, folders: tuple[Path, ...]) -> tuple[Any, ...]:
    runtime = question.runtime
    named, given = (runtime, None) if isinstance(runtime, str) else (runtime.name, runtime)
    key = (named, question.workload, question.had_threads, prompt, folders)
    return key, (question.graph, question.device, given, question.calibration, question.roof), (question.options,)


def known_combinations(study: Study) -> list[Combination | None]:
    """What was made of a study so far, for each of its combinations. Encoders, made for one prompt each, are left."""
    folders = catalog_folders()
    kept = (_kept_for(question, None, folders) for question in study.questions_in(range(study.combinations)))
    return [_combinations.found(key, of, alike=alike) for key, of, alike in kept]


def take_combinations(study: Study, combinations: Sequence[Combination | None]) -> None:
    """What another process knew of a study is as if it had been made here."""
    folders = catalog_folders()
    for question, found in zip(study.questions_in(range(study.combinations)), combinations, strict=True):
        if found is not None:
            key, of, alike = _kept_for(question, None, folders)
            _combinations.get_or_make(key, of, lambda found=found: found, alike=alike)  # type: ignore[misc]  # mypy cannot infer it


def _combined(question: Question, prompt: int | None) -> Combination:
    basis, beyond = question.basis(), goes_beyond(question.runtime)
    try:
        require_engine(question)
        require_run(question)
    except DomainError as error:
        return Combination(basis=basis, beyond=beyond, foreign=str(error))
    workload = question.workload
    if basis.precision is not workload.precision or prompt is not None:
        workload = replace(workload, precision=basis.precision, prompt=prompt)
    effects, device = require_effects(question.runtime), basis.device
    try:
        ready = make_ready(
            question.graph, device, effects=effects, workload=workload, options=question.options,
            calibration=basis.calibration,
        )  # fmt: skip
    except DomainError as error:
        return Combination(basis=basis, beyond=beyond, refused=str(error))
    capacity = capacity_of(device, ready.residency.weights_bytes)
    room = np.nan if capacity is None else capacity - reserve_of(effects.at(device), device)
    return Combination(basis=basis, beyond=beyond, ready=ready, room_bytes=room)


def _placed(reasons: Mapping[int, Any], shape: tuple[int, ...]) -> Any:
    """Texts, or arrays of them over the batches, at the places of their combinations."""
    found = np.full((*shape[:2], 1, 1, 1), None, dtype=object)
    for place, reason in reasons.items():
        found[place] = reason
    return found


def _assembled(  # noqa: PLR0913 - what an answer is made of
    questions: Sequence[Question],
    bases: Sequence[Basis],
    asked: AskedWorkloads,
    results: Sequence[Result],
    reasons: tuple[Any, ...],
    *,
    details: bool,
) -> SweepAnswer:
    """One answer for all combinations, in their order."""
    count = len(questions)
    numbers = np.full((2 + len(LOADING), count), np.nan)
    for result in results:
        numbers[:, result.places] = result.numbers
    room, usd, *loading = numbers.reshape(-1, count, 1, 1, 1, 1)
    absent = absent_stage(details=details)
    return SweepAnswer(
        shape=(count, *asked.shape),
        constants=_constants(questions, bases),
        batch=asked.batch,
        prompt=asked.prompt,
        generate=asked.generate,
        context=asked.context,
        first=spread_stages([(result.places, result.first) for result in results], count) if results else absent,
        step=spread_stages([(result.places, result.step) for result in results], count) if results else absent,
        room_bytes=room,
        usd_rate=usd,
        loading=dict(zip(LOADING, loading, strict=True)),
        frame_rate=questions[0].options.frame_rate,
        windows_per_s=windows_per_s(questions[0].graph, questions[0].options),
        grams_per_j=carbon_grams(1.0, questions[0].options.place),
        single=not is_generative(questions[0].graph),
        reasons=reasons,
    )


def _constants(questions: Sequence[Question], bases: Sequence[Basis]) -> dict[str, list[Any]]:
    """What holds for all rows of a combination, by column."""
    graph, precisions = questions[0].graph, [basis.precision for basis in bases]
    formats = {precision: counted_precision(graph, precision) for precision in {*precisions}}
    found: dict[str, list[Any]] = {
        "model": [graph.name] * len(questions),
        "device": [question.device.name for question in questions],
        "runtime": [question.runtime_name for question in questions],
        "threads": [question.options.threads for question in questions],
        "image": [question.workload.image for question in questions],
        "top_unit": [question.device.unit for question in questions],
    }
    for name in ("weights", "activations", "kv"):
        found[name] = [getattr(formats[precision], name) for precision in precisions]
    for name in ("tp", "pp", "ep", "dp"):
        found[name] = [getattr(question.workload.parallel, name) for question in questions]
    return found
