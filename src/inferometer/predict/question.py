"""The one door to a prediction.

A `Question` holds everything a prediction depends on. `basis` settles what was left open: which calibration to use and
which of the device's figures count. `answer` prices the graph on that basis. Commands, sweeps, what-ifs, findings, the
hub and accuracy all come through here, so one question has one answer.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.calibration import Calibration
from inferometer.core.device import Device, Link, Roof, is_local
from inferometer.core.engine import RuntimeEffects, is_one_of
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.kept import Kept
from inferometer.core.profile import CalibrationMark, JudgedBy, Profile
from inferometer.core.reformat import with_formats
from inferometer.core.settings import catalog_folders
from inferometer.core.workload import Precision, Workload
from inferometer.known import device as device_named
from inferometer.known.engines import require_effects
from inferometer.predict.answer import now_text, predict_graph
from inferometer.predict.applicable import require_applicable, require_used
from inferometer.predict.basis.calibrations import (
    as_calibrated,
    calibration_for_question,
    calibrations_stamp,
    format_key,
    rates_reached,
    with_calibration,
)
from inferometer.predict.basis.roof import busy_notes, roof_for, with_roof
from inferometer.predict.change import Change, changed_device, parse_change
from inferometer.predict.flags import options_from
from inferometer.predict.memory.fit import Fit, fit
from inferometer.predict.options import Options
from inferometer.predict.precision import engine_formats, held_precision
from inferometer.predict.price.class_figures import memory_of_cores, with_class_figures
from inferometer.predict.price.variants import with_threads
from inferometer.predict.running import (
    engine_notes,
    measured_otherwise,
    require_run,
    threads_notes,
    usual_threads,
    version_notes,
    with_own_host,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


@frozen
class Basis:
    """What a question is answered with. `notes` say what a reader should know about the choice."""

    device: Device
    precision: Precision
    calibration: Calibration | None = None
    notes: tuple[str, ...] = ()

    def judged_by(self) -> JudgedBy:
        """The basis in the form that is stored with a profile."""
        device, calibration = self.device, self.calibration
        if calibration is None:
            return JudgedBy(device=device)
        return _judged_by.get_or_make((), (device, calibration), lambda: _marked(device, calibration))


@frozen
class Question:
    """How fast a model runs on a device.

    With `calibrated` the newest calibration that fits is used, unless `calibration` gives one. `roof` has the peaks of
    a machine without a datasheet. `had_threads` is how many the engine had, whoever chose it: the intervals of a
    calibration made with another number are widened. What a user asks for is `options.threads`. `host_call_s` is how
    fast the host is that starts a device's kernels, as `doctor` reads it: it is taken where the calibration knows the
    figure of its own host, unless `options` ask for another; `host_module_s`, what that host took to call a small
    module while the model ran, is nearer to the run and comes first. `prefill_on` reads the prompt on another device,
    which sends its cache over `options.link`. With `learned`, what profiles of this machine taught corrects the stored
    calibration, or the priors where there is none.
    """

    graph: Graph
    device: Device
    runtime: RuntimeEffects | str
    workload: Workload = field(default_factory=Workload)
    options: Options = field(default_factory=Options)
    calibrated: bool = True
    calibration: Calibration | None = None
    roof: Roof | None = None
    had_threads: int | None = None
    host_call_s: float | None = None
    host_module_s: float | None = None
    prefill_on: Device | None = None
    learned: bool = True

    @property
    def runtime_name(self) -> str:
        return self.runtime if isinstance(self.runtime, str) else self.runtime.name

    @property
    def precision(self) -> Precision:
        """The formats asked for, completed by the engine's defaults for this model and device."""
        asked = engine_formats(self.workload.precision, self.runtime_name)
        effects = require_effects(self.runtime)
        quantised = is_one_of(self.device, effects.quantises)
        return held_precision(self.graph, asked, effects, self.device.unit, quantised=quantised)

    def in_formats(self, precision: Precision) -> Question:
        return replace(self, workload=self.workload.in_formats(precision))

    def basis(self) -> Basis:
        """Choose the calibration, the device's figures and the number formats.

        Sizes do not decide on them, and a sweep has many: what was chosen is kept, but of this machine, which learns.
        """
        if is_local(self.device.name):
            return self._basis()
        options, given = self.options, None if isinstance(self.runtime, str) else self.runtime
        key = (
            self.runtime_name, self.workload.precision, self.calibrated, self.had_threads, options.threads,
            options.layout, options.engine_version, catalog_folders(),
            calibrations_stamp() if self.calibrated and self.calibration is None else None,
        )  # fmt: skip
        of = (self.graph, self.device, given, self.calibration, self.roof)
        return _bases.get_or_make(key, of, lambda: (self._basis(), self.graph.size))[0]

    def _basis(self) -> Basis:
        precision, calibration = self.precision, self.calibration
        notes: tuple[str, ...] = ()
        if calibration is None and self.calibrated:
            choice = calibration_for_question(
                self.graph,
                self.device,
                self.runtime_name,
                precision,
                self.had_threads or self.options.threads,
                version=self.options.engine_version,
            )
            calibration, notes = choice.calibration, choice.notes
            if calibration is not None and (reason := measured_otherwise(self, calibration)) is not None:
                calibration, notes = None, (reason,)
            if self.learned and is_local(self.device.name):
                from inferometer.predict.basis.learned import with_learned  # noqa: PLC0415 - others learn nothing

                calibration, taught = with_learned(self, calibration)
                notes = (*notes, *taught)
        device = _figures(self.device, calibration, self.roof)
        notes = (*engine_notes(self), *notes, *busy_notes(self.roof))
        if calibration is not None:
            precision = as_calibrated(self.runtime_name, precision)
        if calibration is None or calibration.is_published:
            device, lacking = with_class_figures(device)
            notes = (*notes, *lacking)
        if calibration is None and (threads := self.options.threads or usual_threads(self)) is not None:
            said = threads_notes(self, device)
            device, notes = _limited(device, threads, told=not said), (*notes, *said)
        return Basis(device=device, precision=precision, calibration=calibration, notes=notes)

    def answer(self) -> Profile:
        """Predict."""
        require_applicable(self)
        require_run(self)
        if self.prefill_on is not None:
            return self._on_two_machines(self.prefill_on)
        basis = self.basis()
        workload, options = self.workload.in_formats(basis.precision), with_own_host(self, basis.calibration)

        def predict() -> Profile:
            return predict_graph(
                self.graph,
                basis.device,
                runtime=self.runtime,
                workload=workload,
                calibration=basis.calibration,
                options=options,
            )

        of = (self.graph, basis.device, basis.calibration)
        profile, _ = _answers.get_or_make(
            workload, of, lambda: (predict(), self.graph.size), alike=(self.runtime, options)
        )
        provenance = profile.provenance
        if provenance is not None:
            notes = (*provenance.notes, *basis.notes, *version_notes(self))
            provenance = replace(provenance, created=now_text(), notes=notes)
        return replace(profile, judged_by=basis.judged_by(), provenance=provenance)

    def _on_two_machines(self, reader: Device) -> Profile:
        from inferometer.predict.disaggregate import handed_over, prompt_cache_bytes  # noqa: PLC0415 - rarely used

        link = self.options.link or _link_between(reader, self.device)
        if link is None:
            raise DomainError(
                f"The link between {reader.name} and {self.device.name} is not known.",
                remedy="Name one from the catalog with --link, such as infiniband-ndr.",
            )
        writing = replace(self, prefill_on=None).answer()
        elsewhere = replace(self, prefill_on=None, device=reader, roof=roof_for(reader))
        reading = replace(elsewhere, calibration=None, host_call_s=None, host_module_s=None).answer()
        cache = prompt_cache_bytes(self.graph, writing.workload, require_effects(self.runtime), self.options)
        return handed_over(reading, writing, cache_bytes=cache, link=link, options=self.options)

    def fit(self) -> Fit:
        """Whether the model fits into the device's memory, and the longest context and largest batch that do."""
        require_applicable(self)
        basis = self.basis()
        return fit(
            self.graph,
            basis.device,
            workload=self.workload.in_formats(basis.precision),
            runtime=self.runtime,
            options=self.options,
        )

    def changed(self, change: Change | str) -> Question:
        """The same question with one thing changed; see `predict.change` for what can be."""
        change = parse_change(change) if isinstance(change, str) else change
        return _CHANGES[change.of](self, change)


class CalibrationChoices:
    """The calibrations for many questions at once: each is chosen once and shared by the questions it fits.

    `given` calibrations come before the stored ones for questions about their device and runtime: the one of the
    question's format, else the first. A question that carries its calibration has the same answer in any process.
    """

    def __init__(self, given: Iterable[Calibration] = ()) -> None:
        self._given = tuple(given)
        self._formats, self._chosen = Kept(65_536), Kept(65_536)  # more than a sweep has devices, engines and formats

    def calibration(self, question: Question, precision: Precision) -> Calibration | None:
        """The calibration for the question in these formats."""
        graph, device, runtime, options = question.graph, question.device, question.runtime_name, question.options

        def choose() -> Calibration | None:
            matching = [given for given in self._given if (given.device, given.runtime) == (device.name, runtime)]
            matching.sort(key=lambda given: given.dtype != dtype)  # stable: the first given stays first
            return matching[0] if matching else question.in_formats(precision).basis().calibration

        dtype = self._formats.get_or_make(
            (runtime, device.unit, precision),
            (graph,),
            lambda: format_key(graph, runtime, question.in_formats(precision).precision),
        )
        chosen_by = (question.had_threads, options.threads, options.layout, options.engine_version)
        # What profiles of this machine taught differs from model to model.
        of = (device, graph) if is_local(device.name) else (device,)
        return self._chosen.get_or_make((runtime, dtype, *chosen_by), of, choose)


def _link_between(one: Device, other: Device) -> Link | None:
    """The peer link that both have, else the slower of their networks; None where no bandwidth is known."""
    if one.peer_link is not None and one.peer_link == other.peer_link:
        return one.peer_link
    links = (one.network_link, other.network_link)
    known = [link for link in links if link is not None and link.bandwidth_bytes_per_s is not None]
    return min(known, key=lambda link: float(link.bandwidth_bytes_per_s or 0), default=None)


_devices, _judged_by, _with_threads = Kept(), Kept(), Kept()
# By the ops of the graphs that it holds on to: more than a sweep has models, devices, engines and formats.
_bases = Kept(400_000, weigh=lambda kept: 1 + kept[1])
_ANSWERED_OPS = 20_000  # of all the answers that are kept: some ten megabytes
_answers = Kept(_ANSWERED_OPS, weigh=lambda kept: 1 + 2 * kept[1])  # most models have two phases of all their ops


def _limited(device: Device, threads: int, *, told: bool) -> Device:
    """A CPU that runs on `threads` of its cores; the same arguments give the same object, as below.

    Where runs with as many are `told` of, what they got of the memory is in the fit.
    """

    def limit() -> Device:
        return with_threads(device if told else memory_of_cores(device, threads), threads)

    return _with_threads.get_or_make((threads, told), (device,), limit)


def _figures(device: Device, calibration: Calibration | None, roof: Roof | None) -> Device:
    """The device with the figures its row lacks, from the calibration first, then from the measured roof.

    The same arguments give the same object, because pricing caches what it prepared by the device's identity.
    """
    if calibration is None and roof is None:
        return device

    def fill() -> Device:
        filled = device if calibration is None else with_calibration(device, calibration)
        if roof is None:
            return filled
        # A calibration has peaks only of the formats it measured: the others still come from the roof.
        # Shares that were measured on another machine are of its peaks: what it has none of computes here as there.
        elsewhere = calibration is not None and not is_local(calibration.device)
        own = {} if elsewhere else with_roof(device, roof).peaks
        return replace(with_roof(filled, roof), peaks={**own, **filled.peaks})

    return _devices.get_or_make((), (device, calibration, roof), fill)


def _change_device(question: Question, change: Change) -> Question:
    if change.key == "on":
        device = device_named(change.value)
        # A given calibration is of the device before, and so is its host.
        unhosted = replace(question, host_call_s=None, host_module_s=None)
        return replace(unhosted, device=device, roof=roof_for(device), calibration=None)
    return replace(question, device=changed_device(question.device, change))


def _change_runtime(question: Question, change: Change) -> Question:
    return replace(question, runtime=change.value, calibration=None)


def _change_formats(question: Question, change: Change) -> Question:
    """`precision` sets weights and activations. A given calibration is kept only if it still fits the format.

    What a file stores is taken as stored in the new format: that is what the change asks.
    """
    names = ("weights", "activations") if change.key == "precision" else (change.key,)
    before = question.workload.precision
    after = replace(before, **dict.fromkeys(names, change.value))
    weights, activations = (change.value if name in names else None for name in ("weights", "activations"))
    graph = with_formats(question.graph, weights=weights, activations=activations)
    keys = {format_key(question.graph, question.runtime_name, before), format_key(graph, question.runtime_name, after)}
    calibration = question.calibration if len(keys) == 1 else None
    workload = replace(question.workload, precision=after)
    return replace(question, graph=graph, workload=workload, calibration=calibration)


def _change_size(question: Question, change: Change) -> Question:
    size: dict[str, Any] = {change.key: change.number}
    return replace(question, workload=replace(question.workload, **size))


def _change_plan(question: Question, change: Change) -> Question:
    parallel = replace(question.workload.parallel, **{change.key: change.number})
    return replace(question, workload=replace(question.workload, parallel=parallel))


def _change_option(question: Question, change: Change) -> Question:
    options = options_from({change.key: change.field_value}, question.options)
    require_used(
        question.graph, question.device, question.workload.parallel, options,
        two_machines=question.prefill_on is not None,
    )  # fmt: skip
    return replace(question, options=options)


def _refuse(question: Question, change: Change) -> Question:
    raise DomainError(
        f"{change} changes how {question.graph.name} is run, which a prediction does not cover.",
        remedy="Measure it: `inferometer profile`, then `inferometer explain last --try`.",
    )


_CHANGES = {
    "device": _change_device, "runtime": _change_runtime, "format": _change_formats, "size": _change_size,
    "plan": _change_plan, "option": _change_option, "run": _refuse,
}  # fmt: skip


def _marked(device: Device, calibration: Calibration) -> JudgedBy:
    mark = CalibrationMark(
        device=calibration.device,
        runtime=calibration.runtime,
        dtype=calibration.dtype,
        created=calibration.created,
        content_hash=calibration.content_hash,
    )
    return JudgedBy(device=device, calibration=mark, reached=rates_reached(device, calibration))
