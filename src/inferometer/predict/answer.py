"""Graph × Device × RuntimeEffects × Workload → Profile: how long, bound by what, does it fit, what does it cost.

A model that makes tokens has the phases load, prefill and decode (and encode, where part of it runs once a request);
any other has load and forward, and a pipeline what is around its steps. One-time costs are phases of their own and in
no sum. With a `context` the decode phase is one step with that many tokens in the cache; without one it is the step in
the middle of the generation, which is the mean step, because a step's time grows evenly with the context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from inferometer.core.device import Device
from inferometer.core.engine import RuntimeEffects
from inferometer.core.errors import DomainError
from inferometer.core.finding import Finding
from inferometer.core.frozen import frozen, later, made_when_read
from inferometer.core.kept import Kept
from inferometer.core.profile import DeviceFacts, Headline, Phase, Profile, Provenance
from inferometer.core.request import phase_repeats
from inferometer.core.settings import catalog_folders
from inferometer.core.sizes import require_room
from inferometer.core.workload import Workload
from inferometer.known.engines import require_effects
from inferometer.known.formulas.edge import frame_budget, frame_headroom
from inferometer.predict.energy import battery_of, battery_seconds, charge_requests, lasting
from inferometer.predict.headline import (
    AROUND,
    headline_times,
    recording_note,
    tokens_gained,
    windows_per_s,
    with_own_steps,
    with_repeats,
)
from inferometer.predict.memory.fit import capacity_of, peak_use, reserve_of
from inferometer.predict.money import HourlyPrice, carbon_grams, hourly_price, million_usd
from inferometer.predict.options import Options
from inferometer.predict.parallel import of_draft, replica_batch
from inferometer.predict.phases import (
    ONCE,
    PlanDevices,
    constant_phase,
    energy_notes,
    first_run_phase,
    latency_notes,
    load_phase,
    outside_notes,
    phase_of,
    rated,
    site_of,
)
from inferometer.predict.price.hosts import host_note
from inferometer.predict.price.lone import StepSums, lone_sums, sums_of_step
from inferometer.predict.ready import ReadyGraph, make_ready
from inferometer.predict.request import (
    completed,
    decode_context,
    goes_beyond,
    image_notes,
    prefill_steps,
    step_sizes,
    window_notes,
)
from inferometer.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.core.calibration import Calibration
    from inferometer.core.graph import Graph
    from inferometer.core.workload import Parallel
    from inferometer.predict.price.plan import PricePlan


def predict_graph(  # noqa: PLR0913 - what a prediction depends on
    graph: Graph,
    device: Device,
    *,
    runtime: RuntimeEffects | str = "ideal",
    workload: Workload | None = None,
    calibration: Calibration | None = None,
    options: Options | None = None,
    now: Callable[[], str] | None = None,
) -> Profile:
    """Predict a model on a device. The impossible is an error; what is not known is in the notes of the provenance."""
    effects, options = require_effects(runtime), with_own_steps(graph, options or Options())
    workload = completed(graph, workload or Workload(), options, beyond=goes_beyond(effects))
    if options.speculative is not None and options.speculative.up_to:
        drafting = options.speculative.at(replica_batch(workload.batch, workload.parallel))
        options = replace(options, speculative=drafting)
    ready = make_ready(
        graph, device, effects=effects, workload=workload, options=options, calibration=_covering(calibration, effects)
    )
    notes = [*ready.notes, *window_notes(graph, workload), *image_notes(graph, workload)]
    start = _starts.get_or_make(
        (workload.parallel, catalog_folders()), (ready, device, effects, options),
        lambda: _start(ready, device, effects, workload.parallel, options),
    )  # fmt: skip
    job = _Job(
        ready=ready, device=device, effects=effects, workload=workload, options=options, start=start, notes=notes
    )
    phases = with_repeats(job.phases(), workload, options)
    if job.waiting:
        notes.append(host_note(job.waiting, options, ready.plan.calibration))
    summary = job.headline(phases)
    profile = Profile(
        kind="predicted",
        model=ready.layout.facts,
        device=DeviceFacts(name=device.name, title=device.title, count=workload.parallel.devices),
        runtime=effects.name,
        workload=workload.in_formats(ready.layout.precision),
        phases=tuple(phases),
        summary=summary,
        provenance=Provenance(
            tool="inferometer",
            version=__version__,
            created=(now or now_text)(),
            notes=tuple(job.notes),
        ),
        findings=job.findings(summary),
        arithmetic=ready.plan.arithmetic,
        sizes=dict(options.sizes),
    )
    if options.cooling_w is None and device.cooling_w is None:
        return profile
    sustained = lasting(profile.steady, device, options, workload.parallel.devices)
    warm = replace(summary, sustained_s=None if sustained is None else sustained.steady_s)
    return replace(profile, summary=warm, sustained=sustained)


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _covering(calibration: Calibration | None, effects: RuntimeEffects) -> Calibration | None:
    if calibration is not None and calibration.runtime != effects.name:
        raise DomainError(
            f"The calibration is of {calibration.runtime} on {calibration.device}, and {effects.name} was asked for.",
            remedy=f"Ask for --runtime {calibration.runtime}, or leave the calibration out.",
        )
    return calibration


def _priced(plan: PricePlan, sizes: Mapping[str, Any], name: str, phase: str | None = None) -> StepSums:
    phase, once = phase or rated(name), name in ONCE
    sums = lone_sums(plan, sizes, phase, once=once)
    return sums_of_step(plan, plan.step(sizes, phase, once=once), once=once) if sums is None else sums


@frozen
class _Start:
    """What is the same at every size: the devices and their price, and the phases before the first step.

    `notes` are to be said of the devices and the phases.
    """

    site: PlanDevices
    phases: tuple[Phase, ...]
    notes: tuple[str, ...]
    price: HourlyPrice | None
    capacity_bytes: float | None
    reserve_bytes: float


made_when_read(_Start, "price")  # sizes that cannot be are refused before a price that is not known


def _start(ready: ReadyGraph, device: Device, effects: RuntimeEffects, parallel: Parallel, options: Options) -> _Start:
    site = site_of(device, ready.graph, parallel, options)
    load, notes = load_phase(ready, device, site, options)
    phases = (load, first_run_phase(effects, ready.graph))
    return _Start(
        site=site,
        phases=tuple([each for each in phases if each is not None]),
        notes=(*notes, *energy_notes(device, site)),
        price=later(lambda: hourly_price(device, parallel.devices, options.place)),
        capacity_bytes=capacity_of(device, ready.residency.weights_bytes),
        reserve_bytes=reserve_of(effects, device),
    )


_starts = Kept()
_rooms = Kept(1024)  # graphs at sizes that were found to leave room for every window


@dataclass(slots=True)
class _Job:
    """One prediction under way; `notes` collects what a reader of it should know."""

    ready: ReadyGraph
    device: Device
    effects: RuntimeEffects
    workload: Workload
    options: Options
    start: _Start
    notes: list[str]
    waiting: list[str] = field(default_factory=list)  # phases that wait for their host

    @property
    def batch(self) -> int:
        """Sequences that a device works on at once: a replica's share, in micro-batches where a pipeline has them."""
        share = replica_batch(self.workload.batch, self.workload.parallel)
        return -(-share // self.options.micro_batches)

    def phases(self) -> list[Phase]:
        parallel = self.workload.parallel
        site, phases = self.start.site, [*self.start.phases]
        self.notes += self.start.notes
        reads, prompt = self.effects.reads, self.workload.prompt
        if reads and prompt and prompt % reads:
            whole = -(-prompt // reads) * reads
            self.notes.append(f"Prompts are read {reads} tokens at a time: {prompt} take as long as {whole}.")
        if parallel.devices > 1:
            self.notes += latency_notes(self.device, parallel, self.options)
            hidden = f"{self.options.overlap:.0%} of the communication hides behind computing"
            spread = f", the busiest expert device has {self.options.imbalance:g} × the mean" if parallel.ep > 1 else ""
            self.notes.append(f"{parallel.devices} devices: {hidden}{spread}.")
        if not self.ready.generative:
            if self.ready.layout.encodes:
                phases.append(self._run(AROUND, self._forward_sizes(), site))
            phases.append(self._run("forward", self._forward_sizes(), site))
            return phases
        return [*phases, *self._generation(site)]

    def _generation(self, site: PlanDevices) -> list[Phase]:
        phases: list[Phase] = []
        host, workload = self.options.host, self.workload
        if workload.prompt is not None:
            if host.tokenise_s_per_token is not None:
                phases.append(constant_phase("tokenise", host.tokenise_s_per_token * workload.prompt * workload.batch))
            if self.ready.layout.encodes:
                phases.append(self._run("encode", self._prefill_sizes(), site))
            phases.append(self._run("prefill", self._prefill_sizes(), site))
        if workload.context is not None or (workload.generate or 0) > 1:
            phases += self._decode(site)
        if host.sampling_s is not None:
            phases.append(constant_phase("sampling", host.sampling_s))
        if host.detokenise_s_per_token is not None and (workload.generate or workload.context is not None):
            phases.append(constant_phase("detokenise", host.detokenise_s_per_token * workload.batch))
        return phases

    def _decode(self, site: PlanDevices) -> list[Phase]:
        sizes = {
            "batch": self.batch,
            "query": 1,
            "context": decode_context(self.ready.graph, self.workload),
            "logits": 1,
        }
        drafting = self.options.speculative
        if drafting is not None and not drafting.length:
            self.notes.append(f"With {self.workload.batch} sequences at once nothing is drafted.")
        if drafting is None or not drafting.length:
            return [self._run("decode", sizes, site)]
        own = of_draft(self.workload)
        draft = make_ready(drafting.draft, self.device, effects=self.effects, workload=own, options=Options())
        proposed = phase_of("draft", _priced(draft.plan, sizes, "draft"), draft.plan, site)
        checked = {**sizes, "query": drafting.length + 1, "logits": drafting.length + 1}
        self.notes.append(
            f"{drafting.length} draft steps and one check of {drafting.length + 1} tokens give "
            f"{tokens_gained(drafting):.3g} tokens on average. The decode phase is the check; a token takes both."
        )
        return [proposed, self._run("decode", checked, site)]

    def _run(self, name: str, sizes: dict[str, Any], site: PlanDevices) -> Phase:
        plan, phase = self.ready.plan, rated(name, sizes["query"])
        sums = _priced(plan, sizes, name, phase)
        self.notes += outside_notes(name, sums)
        if sums.waits_for_host:
            self.waiting.append(name)
        return phase_of(name, sums, plan, site, phase)

    def _forward_sizes(self) -> dict[str, Any]:
        sizes = {"batch": self.batch, "query": self.workload.prompt or 1, "context": 0, "logits": 1}
        graph = self.ready.graph
        _rooms.get_or_make((id(graph), *sizes.values()), (graph,), lambda: require_room(graph, sizes))
        return sizes

    def _prefill_sizes(self) -> dict[str, Any]:
        """The prompt's tokens that are not in the cache yet."""
        encodes = self.ready.layout.encodes
        steps = prefill_steps(self.ready.graph, self.workload, self.options, self.ready.effects, encodes=encodes)
        return step_sizes(steps, self.batch)

    def headline(self, phases: list[Phase]) -> Headline:
        used = float(peak_use(self.ready, self.workload, self.options).total_bytes)
        capacity, needed = self.start.capacity_bytes, used + self.start.reserve_bytes
        times = headline_times(phases, self.workload, self.options)
        speed = self.workload.batch / times["tpot_s"] if times["tpot_s"] else None
        joules, low_j, high_j = self._joules(phases)
        windows = windows_per_s(self.ready.graph, self.options)
        if windows and self.options.audio_s is not None and times["e2e_s"]:
            self.notes.append(recording_note(windows * self.options.audio_s, times["e2e_s"]))
        return Headline(
            **times,
            tokens_per_s=speed,
            tokens_per_s_per_user=1 / times["tpot_s"] if times["tpot_s"] else None,
            inputs_per_s=self.workload.batch / times["latency_s"] if times["latency_s"] else None,
            real_time_factor=windows * times["e2e_s"] if windows and times["e2e_s"] else None,
            peak_memory_bytes=round(used),
            fits=None if capacity is None else needed <= capacity,
            energy_j=joules,
            energy_low_j=low_j,
            energy_high_j=high_j,
            co2e_g=None if joules is None else carbon_grams(joules, self.options.place),
            **self._prices(times, speed),
            **self._battery(joules, times),
            **self._frames(times["latency_s"]),
            unattributed_s=sum(phase.unattributed_s or 0.0 for phase in phases),
            top_unit=self.device.unit,
            top_unit_by_count=self.device.unit,
        )

    def _prices(self, times: Mapping[str, float | None], speed: float | None) -> dict[str, float]:
        """Dollars for a million output tokens of such requests, or for a million inferences."""
        batch, latency, whole = self.workload.batch, times["latency_s"], times["e2e_s"]
        rate = batch * (self.workload.generate or 0) / whole if whole else speed
        paid, rate = ("inferences", batch / latency) if latency else ("tokens", rate)
        price = self.start.price
        if price is None or not rate:
            return {}
        self.notes.append(price.note)
        return {f"usd_per_million_{paid}": float(million_usd(price, rate))}

    def _joules(self, phases: list[Phase]) -> tuple[float | None, float | None, float | None]:
        """Energy of the whole request, reading the prompt and every step after the first token, and its two ends.

        They are known where the power is an estimate: not of a bound, nor of prices for an operation and a byte.
        """
        repeats = phase_repeats(phases, self.workload, "predicted")
        # Phases of ops alone, which know what of their time is no op's.
        counted = [phase for phase in phases if phase.unattributed_s is not None and phase.name in repeats]
        if any(phase.energy_j is None for phase in counted):
            return None, None, None
        joules = sum(repeats[phase.name] * (phase.energy_j or 0.0) for phase in counted)
        power = self.start.site.power
        if power is None or power.bound or self.start.site.energy is not None:
            return joules, None, None
        low, high = 0.0, 0.0
        for phase in counted:
            ends = power.ends(repeats[phase.name] * (phase.energy_j or 0.0), phase.time_s, phase.low_s, phase.high_s)
            low, high = low + ends[0], high + ends[1]
        return joules, low, high if math.isfinite(high) else None

    def _battery(self, joules: float | None, times: Mapping[str, float | None]) -> dict[str, float]:
        """How long the battery lasts and what it answers, where there is one."""
        battery, power = battery_of(self.device, self.options), self.start.site.power
        request_s = times["e2e_s"] or times["latency_s"] or times["tpot_s"] or times["ttft_s"]
        if battery is None or request_s is None or (joules is None and self.options.battery is None):
            return {}
        if joules is None:
            raise DomainError(
                f"The energy of {self.ready.graph.name} on {self.device.name} is not known, nor is a battery's life.",
                remedy="Give --joules-per-flop and --joules-per-byte, or a device with a power figure.",
            )
        is_priced = self.start.site.energy is not None
        idle_w = 0.0 if power is None else power.resting_w if is_priced else power.idle_w
        life_s = battery_seconds(battery, joules=joules, time_s=request_s, idle_w=idle_w)
        answered = self.workload.batch * charge_requests(battery, life_s, request_s)
        return {"battery_s": life_s, "inferences_per_charge": answered}

    def _frames(self, latency_s: float | None) -> dict[str, float]:
        """The time in which a batch of frames arrives, and the share of it that is left."""
        rate = self.options.frame_rate
        if rate is None or latency_s is None:
            return {}
        batches_per_s = rate / self.workload.batch
        return {
            "frame_budget_s": float(frame_budget(fps=batches_per_s)),
            "frame_headroom": float(frame_headroom(inference_time=latency_s, fps=batches_per_s)),
        }

    def findings(self, summary: Headline) -> tuple[Finding, ...]:
        """A model that does not fit: its times are hypothetical."""
        if summary.fits is not False:
            return ()
        capacity, needed = (
            self.start.capacity_bytes or 0.0, (summary.peak_memory_bytes or 0) + self.start.reserve_bytes
        )  # fmt: skip
        return (
            Finding(
                code="memory.does-not-fit",
                severity="critical",
                title=f"{self.ready.graph.name} does not fit into the memory of {self.device.name}",
                evidence={"needed_bytes": needed, "capacity_bytes": capacity},
                advice="Use fewer bits a weight, a shorter context, a smaller batch, or more devices; "
                "the times are those it would have if it fitted.",
            ),
        )
