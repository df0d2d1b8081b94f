"""The cross product as data: what is asked for, and the pieces of it that are worked on one at a time.

A combination is a Question with its four sizes left open: model, device, runtime, formats, devices that share the work.
Within it batch, prompt, generate and context vary freely. Rows come in the order of `AXES`, the last one fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from inferometer.core.calibration import Calibration
from inferometer.core.device import Device
from inferometer.core.dtypes import dtype, is_gguf_block
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.reformat import stored_in
from inferometer.core.sizes import in_graph_names
from inferometer.core.workload import MOST, Parallel, Precision, Workload
from inferometer.known import instance
from inferometer.known.engines import require_effects
from inferometer.predict import fields
from inferometer.predict.applicable import SIZES, unused
from inferometer.predict.ask import usual_runtime
from inferometer.predict.basis.roof import roof_for
from inferometer.predict.money import carbon_grams
from inferometer.predict.options import Hosting, Options
from inferometer.predict.question import CalibrationChoices, Question
from inferometer.predict.request import goes_beyond, window_notes

if TYPE_CHECKING:
    from inferometer.core.engine import RuntimeEffects

CHUNK_ROWS = 1 << 16  # where a row may take a millisecond: a kill loses no more
SHARED_ROWS = 1 << 20  # where it takes a fraction of a microsecond: what rows share is worked out once a chunk

AXES = ("models", "devices", *fields.AXES)
SIZES_OF_ROWS = ("batch", "prompt", "generate", "context")  # what varies within a combination
COUNTED = {name: axis.least for name, axis in fields.AXES.items() if axis.takes == "whole"}
_LISTED = {"batch": "batch", "query": "prompt", "context": "context"}  # sizes that have axes
_NEVER_OPEN = {"models", "devices", *(name for name, axis in fields.AXES.items() if axis.default is not None)}


@frozen
class Sizes:
    """The four sizes that vary within a combination; None leaves one to the model."""

    batch: tuple[int, ...] = (1,)
    prompt: tuple[int | None, ...] = (None,)
    generate: tuple[int | None, ...] = (None,)
    context: tuple[int | None, ...] = (None,)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.batch), len(self.prompt), len(self.generate), len(self.context)

    def part(self, tile: Tile) -> Sizes:
        axes = (self.batch, self.prompt, self.generate, self.context)
        batch, prompt, generate, context = (
            axis[start:stop] for axis, (start, stop) in zip(axes, tile.ranges, strict=True)
        )
        return Sizes(batch=batch, prompt=prompt, generate=generate, context=context)  # type: ignore[arg-type]  # batch has no None

    def by_prompt(self) -> Iterator[Sizes]:
        return (replace(self, prompt=(prompt,)) for prompt in self.prompt)


@frozen
class Tile:
    """A run of consecutive rows of a combination: from … to on each of the four axes."""

    ranges: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        return prod(stop - start for start, stop in self.ranges)


@frozen
class SweepChunk:
    """What is computed, written and journalled at once: one tile of each of some combinations."""

    number: int
    combinations: range
    tile: Tile

    @property
    def rows(self) -> int:
        return len(self.combinations) * self.tile.rows


class Settled(NamedTuple):
    """The checkpoint and the engine that a question is about in some formats, and which calibration answers it."""

    graph: Graph
    runtime: RuntimeEffects | str
    calibration: int | None


@frozen
class Study:
    """A whole sweep. Every choice that a prediction leaves open is made in it: it is the same in any process.

    `questions` are models × devices × runtimes × threads, their formats and sizes left open. `settled` has what was
    chosen for each of those in each of the formats.
    """

    questions: tuple[Question, ...]
    settled: tuple[Settled, ...]
    weights: tuple[str | None, ...] = (None,)
    activations: tuple[str | None, ...] = (None,)
    kv: tuple[str | None, ...] = (None,)
    parallel: tuple[Parallel, ...] = (Parallel(),)
    image: tuple[int | None, ...] = (None,)
    sizes: Sizes = field(default_factory=Sizes)
    calibrations: tuple[Calibration, ...] = ()
    details: bool = False
    chunk_rows: int = CHUNK_ROWS

    @property
    def _inner(self) -> tuple[tuple[Any, ...], ...]:
        return (self.weights, self.activations, self.kv, self.parallel, self.image)

    @property
    def combinations(self) -> int:
        return len(self.questions) * prod(len(axis) for axis in self._inner)

    def __len__(self) -> int:
        return self.combinations * prod(self.sizes.shape)

    def question(self, number: int) -> Question:
        return next(self.questions_in(range(number, number + 1)))

    def window_notes(self) -> tuple[str, ...]:
        """What a prediction says beyond a model's window, once for each model: of the row with the most tokens."""
        sizes = self.sizes
        prompt, generate, context = (
            max((size for size in axis if size is not None), default=None)
            for axis in (sizes.prompt, sizes.generate, sizes.context)
        )
        asked = (Workload(prompt=prompt, generate=generate), Workload(context=context or 0))
        graphs = {id(each.graph): each.graph for each in self.questions if goes_beyond(each.runtime)}
        notes = (
            [note for workload in asked for note in window_notes(graph, workload)]
            for graph in graphs.values()
            if is_generative(graph)
        )
        return tuple(found[-1] for found in notes if found)

    def questions_in(self, numbers: range) -> Iterator[Question]:
        """Combinations: questions with their four sizes left open."""
        whole, plans = prod(len(axis) for axis in self._inner), len(self.parallel) * len(self.image)
        workloads: dict[int, Workload] = {}
        for number in numbers:
            outer, inner = divmod(number, whole)
            if (workload := workloads.get(inner)) is None:
                workload = workloads[inner] = self._workload(inner)
            question, (graph, runtime, which) = self.questions[outer], self.settled[number // plans]
            yield Question(
                graph=graph,
                device=question.device,
                runtime=runtime,
                workload=workload,
                options=question.options,
                calibrated=False,
                calibration=None if which is None else self.calibrations[which],
                roof=question.roof,
                had_threads=question.had_threads,
                prefill_on=question.prefill_on,
            )

    def _workload(self, number: int) -> Workload:
        places = []
        for axis in reversed(self._inner):
            number, place = divmod(number, len(axis))
            places.append(axis[place])
        image, parallel, kv, activations, weights = places
        precision = Precision(weights=weights, activations=activations, kv=kv)
        return Workload(precision=precision, parallel=parallel, image=image)

    def chunks(self) -> Iterator[SweepChunk]:
        """All of it, in the order of the rows."""
        whole = prod(self.sizes.shape)
        number, together = 0, max(1, self.chunk_rows // whole)
        for first in range(0, self.combinations, together):
            numbers = range(first, min(first + together, self.combinations))
            for tile in _tiles(self.sizes.shape, self.chunk_rows):
                yield SweepChunk(number=number, combinations=numbers, tile=tile)
                number += 1


def _tiles(shape: tuple[int, ...], most: int) -> Iterator[Tile]:
    """Runs of consecutive rows: the first axes at one place each, a range of one axis, the others whole."""
    cut, inner = 0, prod(shape[1:])
    # The outermost axis that must be cut is cut, so that a tile is a run of rows as they are written.
    while inner > most and cut < len(shape) - 1:
        cut += 1
        inner = prod(shape[cut + 1 :])
    width = max(1, most // inner)
    rest = tuple((0, size) for size in shape[cut + 1 :])
    for outer in product(*(range(size) for size in shape[:cut])):
        fixed = tuple((place, place + 1) for place in outer)
        for start in range(0, shape[cut], width):
            yield Tile(ranges=(*fixed, (start, min(start + width, shape[cut])), *rest))


def study_of(  # noqa: PLR0913 - the axes, and what holds for all rows
    axes: Mapping[str, Any],
    *,
    details: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    calibrated: bool = True,
    calibrations: Iterable[Calibration] = (),
    options: Options | None = None,
    prefill_on: Device | None = None,
) -> Study:
    """The cross product of the lists in `axes`, whose keys are AXES; a single value is a list of one.

    Models are Graphs, devices Devices, runtimes names or RuntimeEffects; `details` adds the columns of that name. With
    `calibrated` each row is answered from the calibration that `predict` would take. `prefill_on` reads every prompt on
    another device. What no row could hold is refused.
    """
    unsized = unsized_study(
        axes, calibrated=calibrated, calibrations=calibrations, options=options, prefill_on=prefill_on
    )
    return sized_study(unsized, axes, details=details, chunk_rows=chunk_rows)


def unsized_study(
    axes: Mapping[str, Any],
    *,
    calibrated: bool = True,
    calibrations: Iterable[Calibration] = (),
    options: Options | None = None,
    prefill_on: Device | None = None,
) -> Study:
    """… with its four sizes left to the models."""
    for name in axes:
        if name not in AXES:
            raise UnknownNameError("axis of a sweep", name, AXES, listing=f"The axes are {', '.join(AXES)}.")
    found = {name: _listed(name, axes.get(name)) for name in AXES if name not in SIZES_OF_ROWS}
    _require_kinds(found)
    counts = {name: _all_whole(name, values) for name, values in found.items() if name in COUNTED}
    weights, activations, kv = (tuple(map(_format, found[name])) for name in ("weights", "activations", "kv"))
    plans = tuple(
        Parallel(tp=tp, pp=pp, ep=ep, dp=dp)  # type: ignore[arg-type]  # none is None
        for tp, pp, ep, dp in product(*(counts[name] for name in ("tp", "pp", "ep", "dp")))
    )
    _require_place((options or Options()).place)
    runtimes = [None if value is None else require_effects(value) for value in found["runtimes"]]
    sized = _options_by_model(options or Options(), found["models"])
    questions = tuple(
        Question(
            graph=graph,
            device=device,
            runtime=runtime or usual_runtime(device, graph, None),
            options=sized[id(graph)] if threads is None else replace(sized[id(graph)], threads=threads),
            calibrated=calibrated,
            roof=roof_for(device),
            prefill_on=prefill_on,
        )
        for graph, device, runtime, threads in product(found["models"], found["devices"], runtimes, counts["threads"])
    )
    _require_used(questions, plans)
    outer = product(found["models"], found["devices"], runtimes, counts["threads"])
    usual = (runtime is None for _, _, runtime, _ in outer)
    used, settled = _settled(questions, usual, [*product(weights, activations, kv)], calibrations)
    return Study(
        questions=questions,
        settled=settled,
        weights=weights,
        activations=activations,
        kv=kv,
        parallel=plans,
        image=counts["image"],
        calibrations=used,
    )


def sized_study(study: Study, axes: Mapping[str, Any], *, details: bool, chunk_rows: int) -> Study:
    """A study with the sizes that `axes` list."""
    sizes = {name: _all_whole(name, _listed(name, axes.get(name))) for name in SIZES_OF_ROWS}
    models = {id(question.graph): question.graph for question in study.questions}
    _require_meant(models.values(), {**sizes, "image": study.image})
    if chunk_rows < 1:
        raise DomainError(f"A chunk has one row or more, and not {chunk_rows!r}.")
    return replace(study, sizes=Sizes(**sizes), details=details, chunk_rows=chunk_rows)  # type: ignore[arg-type]  # batch has no None


def _options_by_model(options: Options, graphs: Iterable[Graph]) -> dict[int, Options]:
    """The options with the open sizes that each model has, by its names for them. One that none has is an error."""
    by_model: dict[int, Options] = {}
    used: set[str] = set()
    refused: DomainError | None = None
    for graph in graphs:
        sizes: dict[str, int] = {}
        for name, value in options.sizes.items():
            try:
                sizes |= in_graph_names(graph, {name: value})
                used.add(name)
            except DomainError as error:
                refused = error
        for name in sizes:
            if name in _LISTED:
                raise DomainError(f"{name} is no size of its own in a sweep.", remedy=f"Give {_LISTED[name]}=[…].")
        by_model[id(graph)] = replace(options, sizes=sizes)
    if refused is not None and used != options.sizes.keys():
        raise refused
    return by_model


def _settled(
    questions: Iterable[Question],
    usual: Iterable[bool],
    formats: Sequence[tuple[str | None, ...]],
    given: Iterable[Calibration],
) -> tuple[tuple[Calibration, ...], tuple[Settled, ...]]:
    """The calibrations that answer the questions in each of the formats, and what is settled for each."""
    precisions = [Precision(weights=weights, activations=activations, kv=kv) for weights, activations, kv in formats]
    given = tuple(given)
    choices, used = CalibrationChoices(given), dict[int, tuple[int, Calibration]]()
    settled: list[Settled] = []
    for question, open_ in zip(questions, usual, strict=True):
        # Where no engine was asked for, it depends on the format of the weights too.
        engines: dict[str | None, RuntimeEffects | str] = {None: question.runtime}
        for precision in precisions:
            blocks = precision.weights if open_ and precision.weights and is_gguf_block(precision.weights) else None
            if (runtime := engines.get(blocks)) is None:
                runtime = engines[blocks] = usual_runtime(question.device, question.graph, blocks)
            graph = stored_in(question.graph, precision.weights)
            which = None
            if given or question.calibrated:
                asked = replace(question, runtime=runtime, graph=graph)
                calibration = choices.calibration(asked, precision)
                if calibration is not None:
                    # Each calibration travels to the workers once, however many combinations it answers.
                    which, _ = used.setdefault(id(calibration), (len(used), calibration))
            settled.append(Settled(graph, runtime, which))
    return tuple(calibration for _, calibration in used.values()), tuple(settled)


def _require_used(questions: Sequence[Question], plans: Sequence[Parallel]) -> None:
    """Refuse an option that no combination uses. One that some use holds for those."""
    reasons: dict[str, str] | None = None
    for question, plan in product(questions, plans):
        found = unused(
            question.graph, question.device, plan, question.options, two_machines=question.prefill_on is not None
        )
        reasons = {name: reason for name, reason in (reasons or found).items() if name in found}
        if not reasons:
            return
    for reason in (reasons or {}).values():
        raise DomainError(reason, remedy="Leave it out: no row would use it.")


def _require_meant(graphs: Iterable[Graph], counts: Mapping[str, tuple[int | None, ...]]) -> None:
    """Refuse sizes that no model of the sweep has: every row would be there as often, with the same numbers."""
    models = tuple(graphs)
    for name, applies in SIZES.items():
        given = any(count is not None for count in counts[name])
        if given and not any(applies(graph) for graph in models):
            names = ", ".join(graph.name for graph in models)
            raise DomainError(f"{name} means nothing to {names}.", remedy=f"Leave {name} out.")


def _require_place(place: Hosting) -> None:
    """Names that the catalog does not have are an error now, and not in the middle."""
    carbon_grams(1.0, place)  # only to look the names up
    if place.instance is not None:
        instance(place.instance)


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    """A list's values; what is not given is left open, or 1 where it cannot be."""
    if value is None:
        if name in {"models", "devices"}:  # a sweep without either would have no rows
            raise DomainError(f"A sweep needs {name}.", remedy=f"Give {name}=[…].")
        return (1,) if name in _NEVER_OPEN else (None,)
    # A name is one value, though its letters could be walked through.
    single = isinstance(value, str | Mapping) or not isinstance(value, Iterable)
    found = (value,) if single else tuple(value)
    if not found:
        raise DomainError(
            f"The list of {name} is empty, so there is nothing to sweep.", remedy="Give a value, or none."
        )
    if name in _NEVER_OPEN and any(entry is None for entry in found):
        raise DomainError(f"One of {name} is None, and each must be given.")
    return found


def _require_kinds(found: Mapping[str, tuple[Any, ...]]) -> None:
    for name, kind in (("models", Graph), ("devices", Device)):
        for value in found[name]:
            if not isinstance(value, kind):
                raise DomainError(f"One of {name} is {value!r}, which is no {kind.__name__}.")


def _all_whole(name: str, values: tuple[Any, ...]) -> tuple[int | None, ...]:
    """An axis of a thousand plain numbers is looked at as a whole."""
    if {*map(type, values)} == {int} and min(values) >= COUNTED[name] and max(values) <= MOST.get(name, max(values)):
        return values
    return tuple(_whole(name, value) for value in values)


def _whole(name: str, value: Any) -> int | None:
    if value is None:
        return None
    least = COUNTED[name]
    plain = value.item() if hasattr(value, "item") else value  # numpy's numbers
    if isinstance(plain, float) and plain.is_integer():  # lists from JSON and data frames have 8.0
        plain = int(plain)
    if not isinstance(plain, int) or isinstance(plain, bool) or plain < least:
        raise DomainError(f"{name} must be whole numbers of {least} or more, and one is {value!r}.")
    if plain > MOST.get(name, plain):
        raise DomainError(f"{name} must be whole numbers from {least} to {MOST[name]:,}, and one is {value!r}.")
    return plain


def _format(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise DomainError(f"A number format is a name such as bf16 or q4_0, and not {value!r}.")
    return None if value is None else dtype(value).name
