"""The energy of a measured model: of a forward pass, or of reading a prompt and of each token.

The clean run gives the times. Its steps are measured in joules too where they are long enough for the sensors by
themselves; otherwise a phase is repeated afterwards, back to back, until it is. A generation that is too short to be
cut in two is measured as a whole, and reading the prompt by itself: the difference is what its tokens took.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.profile import EnergyFacts, Phase, Profile
from inferometer.core.units import format_quantity
from inferometer.engines.base import Event
from inferometer.measure.bench.energy import BUDGET_S
from inferometer.measure.run.order import TextOrder
from inferometer.measure.spans.energy import NO_ENERGY, EnergyMeter, EnergyStretch, EnergyWindow

_SHARE = 0.2  # of a generation's time that its tokens must take, to be told from reading its prompt
Generate = Callable[[TextOrder], Iterable["Event"]]


@frozen
class CaseEnergy:
    """Joules of one run of each phase, by its name; of a language model, for one of its lengths."""

    joules: dict[str, float]
    facts: EnergyFacts
    order: TextOrder | None = None


@dataclass(slots=True, kw_only=True)
class TextEnergy:
    """Collects the energy of generations of one length, as they are measured, and of what has to be repeated."""

    meter: EnergyMeter
    order: TextOrder
    prefill_s: float = 0.0  # as the last generation took
    decode_s: float = 0.0
    spent_s: float = 0.0
    measured: dict[str, EnergyStretch] = field(default_factory=dict)

    def generated(self, generate: Callable[[], tuple[Event, ...]], *, counts: bool = True) -> tuple[Event, ...]:
        """Generate; measured where the one before says that a phase is long enough. Warm-up does not count."""
        long_enough = max(self.prefill_s, self.decode_s) >= self.meter.least_part_s
        if not counts or not self.meter.channels or not long_enough:
            events = generate()
        else:
            events, window = self.meter.over(generate)
            self._keep(window, events)
        if any(event.kind == "encode" for event in events):  # its energy cannot be told from that of the prompt
            self.meter = NO_ENERGY
        parts = _parts(events)
        self.prefill_s, self.decode_s = (
            (parts[name][1] - parts[name][0]) * 1e-9 if name in parts else 0.0 for name in ("prefill", "decode")
        )
        self.spent_s += self.prefill_s + self.decode_s if counts else 0.0
        return events

    def _keep(self, window: EnergyWindow, events: tuple[Event, ...]) -> None:
        for name, (start, end, count) in _parts(events).items():
            seconds = (end - start) * 1e-9
            joules = window.joules(start, end) if seconds >= self.meter.least_part_s else None
            if joules is not None:
                stretch = EnergyStretch(joules=joules, seconds=seconds, count=count)
                self.measured[name] = self.measured[name] + stretch if name in self.measured else stretch

    def finished(self, generate: Generate) -> CaseEnergy:
        """Repeat what was too short, and give the energy of each phase that could be measured."""
        if not self.meter.channels:
            return CaseEnergy(joules={}, facts=self.meter.facts({}), order=self.order)
        try:
            reason = self._repeat(generate)
        except InferometerError as error:  # the times are measured already: they stay
            reason = f"the engine failed when a phase was repeated: {error.message.rstrip('.')}"
        return CaseEnergy(
            joules={name: stretch.each_j for name, stretch in self.measured.items()},
            facts=self.meter.facts(self.measured, reason=reason),
            order=self.order,
        )

    def _repeat(self, generate: Generate) -> str | None:
        """Measure the phases that have no energy yet; or say why one has none."""
        wanted = {"prefill": self.prefill_s > 0, "decode": self.decode_s > 0}
        if all(name in self.measured or not there for name, there in wanted.items()):
            return None
        budget_s = max(BUDGET_S, self.spent_s)
        reason = self.meter.too_slow(budget_s)
        if reason is not None:
            return reason
        if "prefill" not in self.measured and wanted["prefill"]:
            alone = replace(self.order, generate=min(1, self.order.generate))
            stretch = self.meter.repeated(lambda: int(bool(list(generate(alone)))))
            if stretch is None:
                return self.meter.trouble
            self.measured["prefill"] = stretch
        if "decode" not in self.measured and wanted["decode"]:
            return self._tokens(generate, budget_s)
        return None

    def _tokens(self, generate: Generate, budget_s: float) -> str | None:
        """The energy of tokens: that of whole generations, less that of reading their prompts."""
        whole_s = self.prefill_s + self.decode_s
        seconds = self.meter.least_s * whole_s / self.decode_s
        if self.decode_s < _SHARE * whole_s or seconds > max(budget_s, whole_s):
            told = format_quantity(self.decode_s, "s")
            return f"the tokens of a generation take {told}, too little beside its prompt to be measured apart"
        tokens: list[int] = []

        def once() -> int:
            events = list(generate(self.order))
            tokens.append(sum(event.tokens for event in events if event.kind == "token"))
            return 1

        whole = self.meter.repeated(once, seconds=seconds)
        if whole is None:
            return self.meter.trouble
        prompts = self.measured.get("prefill")
        joules = whole.joules - (prompts.each_j * whole.count if prompts else 0.0)
        if joules <= 0 or not sum(tokens):
            return "the tokens of a generation take too little energy beside its prompt to be measured apart"
        self.measured["decode"] = EnergyStretch(
            joules=joules, seconds=whole.seconds * self.decode_s / whole_s, count=sum(tokens)
        )
        return None


def _parts(events: tuple[Event, ...]) -> dict[str, tuple[int, int, int]]:
    """When each phase of a generation began and ended, and how often it ran."""
    prompts = [event for event in events if event.kind == "prefill"]
    steps = [event for event in events if event.kind == "token"]
    parts = {}
    if prompts:
        parts["prefill"] = (prompts[0].start_ns, prompts[-1].end_ns, 1)
    if steps:
        start = prompts[-1].end_ns if prompts else steps[0].start_ns
        parts["decode"] = (start, steps[-1].end_ns, sum(event.tokens for event in steps))
    return parts


def with_energy(profile: Profile, energies: Iterable[CaseEnergy], case: TextOrder | None) -> Profile:
    """The profile with the energy of its phases and of a request, and with how they were measured."""
    energy = next((energy for energy in energies if energy.order == case), None)
    if energy is None or profile.environment is None:
        return profile
    phases = tuple(
        replace(phase, energy_j=energy.joules[phase.name]) if phase.name in energy.joules else phase
        for phase in profile.phases
    )
    return replace(
        profile,
        phases=phases,
        summary=replace(profile.summary, energy_j=_request_j(phases, profile.workload.generate)),
        environment=replace(profile.environment, energy=energy.facts),
    )


def _request_j(phases: Iterable[Phase], generate: int | None) -> float | None:
    """Joules of one inference, or of a request: its prompt and each token after the first. None if one is unknown."""
    known = {phase.name: phase.energy_j for phase in phases if phase.name in {"forward", "prefill", "decode"}}
    if not known or None in known.values():
        return None
    repeats = {"decode": max((generate or 1) - 1, 1)}
    return sum((joules or 0.0) * repeats.get(name, 1) for name, joules in known.items())
