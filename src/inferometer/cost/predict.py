"""Graph × Device × RuntimeEffects × Workload → Profile: how long, bound by what, does it fit, what does it cost.

A model that makes tokens has the phases load, prefill and decode (and encode, where part of it runs once a request);
any other has load and forward. One-time costs are phases of their own and in no sum. With a `context` the decode phase
is one step with so many tokens in the cache; without one it is the step in the middle of the generation, which is the
mean step, because a step's time grows evenly with the context.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.device import Device
from inferometer.core.finding import Finding
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Phase, Profile, Provenance
from inferometer.core.workload import Workload
from inferometer.cost.effects import RuntimeEffects, require_effects
from inferometer.cost.energy import power_model
from inferometer.cost.fit import capacity_of, peak_use, reserve_of
from inferometer.cost.money import carbon_grams, hourly_price, million_tokens_usd
from inferometer.cost.options import Options, Speculative
from inferometer.cost.parallel import replica_batch, stage_share
from inferometer.cost.phases import Site, constant_phase, first_run_phase, load_phase, phase_of
from inferometer.cost.ready import Ready, is_generative, make_ready
from inferometer.errors import DomainError
from inferometer.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.calibration import Calibration
    from inferometer.core.graph import Graph

__all__ = ["GENERATE", "PROMPT", "completed", "decode_context", "predict_graph"]

PROMPT, GENERATE = 512, 128  # where nothing is asked for, as llama-bench does


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
    """Predict a model on a device. What cannot be is an error; what is not known is said in the provenance's notes."""
    effects, chosen = require_effects(runtime), options or Options()
    asked = completed(graph, workload or Workload(), chosen)
    ready = make_ready(
        graph, device, effects=effects, workload=asked, options=chosen, calibration=_covering(calibration, effects)
    )
    job = _Job(ready=ready, device=device, effects=effects, workload=asked, options=chosen, notes=[*ready.notes])
    phases = job.phases()
    summary = job.headline(phases)
    return Profile(
        kind="predicted",
        model=_facts(ready),
        device=DeviceFacts(name=device.name, title=device.title, count=asked.parallel.devices),
        runtime=effects.name,
        workload=replace(asked, precision=ready.layout.precision),
        phases=tuple(phases),
        summary=summary,
        provenance=Provenance(
            tool="inferometer",
            version=__version__,
            created=(now or _now)(),
            notes=tuple(job.notes),
        ),
        findings=job.findings(summary),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _covering(calibration: Calibration | None, effects: RuntimeEffects) -> Calibration | None:
    if calibration is not None and calibration.runtime != effects.name:
        raise DomainError(
            f"The calibration is of {calibration.runtime} on {calibration.device}, and {effects.name} was asked for.",
            remedy=f"Ask for --runtime {calibration.runtime}, or leave the calibration out.",
        )
    return calibration


def completed(graph: Graph, workload: Workload, options: Options) -> Workload:
    """The workload with what it leaves open filled in, refused where the model cannot do it."""
    if not is_generative(graph):
        symbols = graph.symbols
        limit = graph.context_limit
        if "query" in symbols and workload.prompt is None:
            workload = replace(workload, prompt=min(PROMPT, limit or PROMPT))
        _require_window(graph, workload.prompt or 0, "the prompt")
        return workload
    reads_text = "encoder" in graph.metadata.get("default_sizes", {})
    listens = "frames" in graph.metadata.get("default_sizes", {})
    if workload.context is None and workload.prompt is None:
        half = max(1, (graph.context_limit or 2 * PROMPT) // 2)
        workload = replace(workload, prompt=1 if listens else min(PROMPT, half))
    if workload.context is None and workload.generate is None:
        room = (graph.context_limit or GENERATE + (workload.prompt or 0)) - (0 if reads_text else workload.prompt or 0)
        workload = replace(workload, generate=max(1, min(GENERATE, room)))
    if workload.context is not None:
        _require_window(graph, workload.context, "the context")
    if workload.prompt is not None and not reads_text:
        _require_window(graph, workload.prompt + (workload.generate or 0), "prompt and generation")
        if options.cached_prefix >= workload.prompt:
            raise DomainError(
                f"{options.cached_prefix} cached tokens leave nothing of a prompt of {workload.prompt} to read.",
                remedy="At least the last token of a prompt is read.",
            )
    return workload


def _require_window(graph: Graph, tokens: int, what: str) -> None:
    if graph.context_limit is not None and tokens > graph.context_limit:
        raise DomainError(
            f"{graph.name} has a window of {graph.context_limit} tokens; {what} would be {tokens}.",
            remedy="Ask for fewer tokens, or for a model with a longer window.",
        )


def decode_context(workload: Workload) -> float:
    """Tokens in the cache at the step that stands for all of a generation: those of its middle."""
    if workload.context is not None:
        return workload.context
    return (workload.prompt or 1) + max(0, (workload.generate or 1) - 2) / 2


def _facts(ready: Ready) -> ModelFacts:
    return ModelFacts(
        name=ready.graph.name,
        parameters=ready.layout.parameters,
        active_parameters=ready.layout.active_parameters,
        weight_bytes=ready.layout.weight_bytes,
        kv_bytes_per_token=ready.residency.kv_bytes_per_token if ready.generative else None,
        architecture=ready.graph.architecture,
    )


@dataclass(slots=True)
class _Job:
    """One prediction under way; `notes` collects what must be said of it."""

    ready: Ready
    device: Device
    effects: RuntimeEffects
    workload: Workload
    options: Options
    notes: list[str]

    @property
    def batch(self) -> int:
        """Sequences that a device works on at once: a replica's share, in micro-batches where a pipeline has them."""
        share = replica_batch(self.workload.batch, self.workload.parallel)
        return -(-share // self.options.micro_batches)

    def _site(self) -> Site:
        """Through p stages m micro-batches take m + p − 1 times the longest; a device works m / p of a pass."""
        stages, micro = self.workload.parallel.pp, self.options.micro_batches
        stretch = float(micro)
        if stages > 1:
            stretch = (micro + stages - 1) * stage_share(self.ready.graph, stages)
        devices, busy = self.workload.parallel.devices, min(1.0, micro / (stages * stretch))
        return Site(power=power_model(self.device), devices=devices, stretch=stretch, busy=busy)

    def phases(self) -> list[Phase]:
        site = self._site()
        load, notes = load_phase(self.ready, self.device, site, self.options)
        self.notes += notes
        found = [load]
        first = first_run_phase(self.effects)
        if first is not None:
            found.append(first)
        self._say(site)
        if not self.ready.generative:
            found.append(self._run("forward", self._forward_sizes(), site))
            return found
        return [*found, *self._generation(site)]

    def _generation(self, site: Site) -> list[Phase]:
        found: list[Phase] = []
        host, workload = self.options.host, self.workload
        if workload.prompt is not None:
            if host.tokenise_s_per_token is not None:
                found.append(constant_phase("tokenise", host.tokenise_s_per_token * workload.prompt * workload.batch))
            if self.ready.layout.encodes:
                found.append(self._run("encode", self._prefill_sizes(), site))
            found.append(self._run("prefill", self._prefill_sizes(), site))
        if workload.context is not None or (workload.generate or 0) > 1:
            found += self._decode(site)
        if host.sampling_s is not None:
            found.append(constant_phase("sampling", host.sampling_s))
        if host.detokenise_s_per_token is not None and workload.generate:
            found.append(constant_phase("detokenise", host.detokenise_s_per_token * workload.batch))
        return found

    def _decode(self, site: Site) -> list[Phase]:
        sizes = {"batch": self.batch, "query": 1, "context": decode_context(self.workload), "logits": 1}
        drafting = self.options.speculative
        if drafting is None:
            return [self._run("decode", sizes, site)]
        draft = make_ready(drafting.draft, self.device, effects=self.effects, workload=self.workload, options=Options())
        proposed = phase_of("draft", draft.plan.step(sizes, "decode"), draft.plan, site)
        checked = {**sizes, "query": drafting.length + 1, "logits": drafting.length + 1}
        self.notes.append(
            f"{drafting.length} draft steps and one check of {drafting.length + 1} tokens give "
            f"{self._gained(drafting):.3g} tokens on average. The decode phase is the check; a token's time is of both."
        )
        return [proposed, self._run("decode", checked, site)]

    def _run(self, name: str, sizes: dict[str, Any], site: Site) -> Phase:
        plan = self.ready.plan
        once = name == "encode"
        step = plan.step(sizes, "prefill" if once else name, once=once)
        return phase_of(name, step, plan, site)

    def _forward_sizes(self) -> dict[str, Any]:
        return {"batch": self.batch, "query": self.workload.prompt or 1, "context": 0, "logits": 1}

    def _prefill_sizes(self) -> dict[str, Any]:
        """The prompt's tokens that are not in the cache yet; in chunks, one column a chunk, each with its logits."""
        defaults = self.ready.graph.metadata.get("default_sizes", {})
        total = 1 if "encoder" in defaults else self.workload.prompt or 1
        done = 0 if self.ready.layout.encodes else self.options.cached_prefix
        chunk = self.options.chunk
        if chunk is None or chunk >= total - done or self.ready.layout.encodes:
            return {"batch": self.batch, "query": total - done, "context": done, "logits": 1}
        starts = np.arange(done, total, chunk)
        ends = np.minimum(starts + chunk, total)
        return {"batch": self.batch, "query": ends - starts, "context": starts, "logits": 1}

    def _say(self, site: Site) -> None:
        if site.power is not None and site.power.bound:
            self.notes.append(f"Energy is the power limit of {self.device.name} times the time: an upper bound.")
        parallel = self.workload.parallel
        if parallel.devices > 1:
            hidden = f"{self.options.overlap:.0%} of the communication hides behind computing"
            spread = f", the busiest expert device has {self.options.imbalance:g} × the mean" if parallel.ep > 1 else ""
            self.notes.append(f"{parallel.devices} devices: {hidden}{spread}.")

    def headline(self, phases: list[Phase]) -> Headline:
        by_name = {phase.name: phase for phase in phases}
        used = float(peak_use(self.ready, self.workload, self.options).total_bytes)
        capacity = capacity_of(self.device)
        needed = used + reserve_of(self.effects, self.device)
        times = self._times(by_name)
        joules = self._joules(by_name)
        price = hourly_price(self.device, self.workload.parallel.devices, self.options.place)
        rate = times.pop("rate", None)
        if price is not None and rate:
            self.notes.append(price.note)
        return Headline(
            **times,
            peak_memory_bytes=round(used),
            fits=None if capacity is None else needed <= capacity,
            energy_j=joules,
            usd_per_million_tokens=float(million_tokens_usd(price, rate)) if price is not None and rate else None,
            co2e_g=None if joules is None else carbon_grams(joules, self.options.place),
            unattributed_s=sum(phase.unattributed_s or 0.0 for phase in phases),
            top_unit=self.device.unit,
            top_unit_by_count=self.device.unit,
        )

    def _times(self, by_name: dict[str, Phase]) -> dict[str, Any]:
        """The times a person asks for; `rate` is output tokens a second of the whole request, prompt included."""
        if "forward" in by_name:
            return {"latency_s": by_name["forward"].time_s * (self.options.steps or 1)}
        ttft = tpot = e2e = None
        if "prefill" in by_name:
            before = ("tokenise", "encode", "prefill", "sampling")
            ttft = sum(by_name[name].time_s for name in before if name in by_name)
        if "decode" in by_name:
            tpot = self._step_s(by_name)
        generate, batch = self.workload.generate or 0, self.workload.batch
        if ttft is not None and generate:
            e2e = ttft + (generate - 1) * (tpot or 0.0)
        speed = batch / tpot if tpot else None
        rate = batch * generate / e2e if e2e else speed
        return {"ttft_s": ttft, "tpot_s": tpot, "e2e_s": e2e, "tokens_per_s": speed, "rate": rate}

    def _step_s(self, by_name: dict[str, Phase]) -> float:
        """Seconds a token: a step, with sampling and detokenising where they are known, and drafts shared out."""
        around = sum(by_name[name].time_s for name in ("sampling", "detokenise") if name in by_name)
        step = by_name["decode"].time_s + around
        drafting = self.options.speculative
        if drafting is None:
            return step
        return (step + drafting.length * by_name["draft"].time_s) / self._gained(drafting)

    def _gained(self, drafting: Speculative) -> float:
        """Tokens that a round of drafting and checking gives on average."""
        from inferometer.formulas.llm import speculative_tokens  # noqa: PLC0415 - only drafting needs it

        return float(speculative_tokens(acceptance=drafting.acceptance, draft_length=drafting.length))

    def _joules(self, by_name: dict[str, Phase]) -> float | None:
        """Energy of the whole request: reading the prompt and every step after the first token."""
        total = 0.0
        for name, times in self._repeats(by_name).items():
            if name in by_name:
                joules = by_name[name].energy_j
                if joules is None:
                    return None
                total += times * joules
        return total

    def _repeats(self, by_name: dict[str, Phase]) -> dict[str, float]:
        """How often each phase runs in a request; a lone decode step runs once."""
        steps = 1.0
        if "prefill" in by_name and self.workload.generate:
            steps = self.workload.generate - 1.0
        found = {"forward": float(self.options.steps or 1), "encode": 1.0, "prefill": 1.0, "decode": steps}
        drafting = self.options.speculative
        if drafting is not None:
            rounds = steps / self._gained(drafting)
            found |= {"decode": rounds, "draft": rounds * drafting.length}
        return found

    def findings(self, summary: Headline) -> tuple[Finding, ...]:
        """That it does not fit is the one thing that makes the times hypothetical."""
        if summary.fits is not False:
            return ()
        capacity = capacity_of(self.device) or 0.0
        needed = (summary.peak_memory_bytes or 0) + reserve_of(self.effects, self.device)
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
