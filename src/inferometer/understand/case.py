"""What findings are made from: a profile, its device, its roofline, and the gains that changes would bring."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import field
from math import isfinite
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.profile import Environment, OpTime, Phase, Profile
from inferometer.core.request import repeats
from inferometer.predict.gains import Gain, gain_of
from inferometer.understand.attribution import by_phase
from inferometer.understand.roofline import PhaseRoof, Roofline, roofline_of

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.finding import Severity
    from inferometer.predict.question import Question

# What a change would gain, for findings: the question behind a profile, asked again with one thing changed.

Price = Callable[[str, str], Gain | None]  # (change, phase) → its gain; None if it cannot be predicted


def unpriced(change: str, phase: str) -> Gain | None:  # noqa: ARG001 - the Price for a profile without a graph
    return None


def pricer(question: Question, before: Profile) -> Price:
    """A Price for changes to `question`, whose answer is `before`. Each change is predicted once, for all phases."""
    answers: dict[str, Profile | None] = {}

    def price(change: str, phase: str) -> Gain | None:
        if change not in answers:
            answers[change] = _answer(question, change)
        after = answers[change]
        return None if after is None else gain_of(change, phase, before, after)

    return price


def _answer(question: Question, change: str) -> Profile | None:
    try:
        return question.changed(change).answer()
    except InferometerError:
        return None


_NAMES = {"decode": "decoding", "prefill": "reading the prompt", "forward": "the forward pass", "run": "the run"}
_WARNING_SHARE = 0.1  # of a request's time: a defect that takes this much is a warning


@frozen
class Case:
    """`predicted` is the cost model's answer to the same question; a predicted profile is its own prediction."""

    profile: Profile
    roof: Roofline
    predicted: Profile | None = None
    price: Price = field(default=unpriced)
    graph: Graph | None = None  # of the model, where it is at hand

    @property
    def device(self) -> Device | None:
        """The device that the profile is judged by."""
        return self.profile.judged_by.device if self.profile.judged_by else None

    @property
    def steady(self) -> Phase | None:
        return self.profile.steady

    @property
    def repeating(self) -> tuple[Phase, ...]:
        """The phases of a request that run the model, in order."""
        times_run = repeats(self.profile)
        return tuple(phase for phase in self.profile.phases if times_run.get(phase.name) and phase.time_s > 0)

    @property
    def request_s(self) -> float | None:
        """Seconds of one request, without one-time costs."""
        request_s = by_phase(self.profile).whole_s
        return request_s if request_s > 0 else None

    @property
    def unit(self) -> str | None:
        unit = self.profile.summary.top_unit or (self.device.unit if self.device else None)
        return unit.partition(":")[0] if unit else None

    @property
    def threads(self) -> int | None:
        """Threads of a measured run on the CPU; None for any other."""
        environment = self.profile.environment
        if self.profile.kind != "measured" or environment is None or self.unit not in {None, "cpu"}:
            return None
        return environment.threads or None

    @property
    def cpus(self) -> float | None:
        """CPUs that a run could use: those of its own machine, otherwise the device's cores; never the reader's."""
        environment = self.profile.environment or Environment()
        machine, host = environment.machine, environment.host
        numbers = (machine.usable_cpus, machine.logical_cores) if machine else ()
        for number in (*numbers, host.get("usable_cpus"), host.get("logical_cores")):
            if isinstance(number, int | float) and number >= 1:
                return float(number)
        cores = self.device.cores if self.device and self.device.unit == "cpu" else None
        return cores.value if cores else None

    @property
    def weight_bits(self) -> float | None:
        """Bits per weight as stored in the file, scales included."""
        model = self.profile.model
        return 8 * model.weight_bytes / model.parameters if model.weight_bytes and model.parameters else None

    @property
    def capacity_bytes(self) -> float | None:
        memory = self.device.memory if self.device else None
        return memory.room.value if memory and memory.room else None

    def times(self, phase: Phase) -> float:
        return repeats(self.profile).get(phase.name, 1.0)

    def stake(self, phase: Phase, seconds: float) -> float:
        """Seconds of a request, given seconds of one run of a phase."""
        return self.times(phase) * seconds

    def share(self, stake_s: float) -> float:
        request_s = self.request_s
        return stake_s / request_s if request_s else 0.0

    def roof_of(self, phase: Phase) -> PhaseRoof | None:
        return self.roof.phase(phase.name)

    def regimes(self, phase: Phase) -> dict[str, float]:
        phase_roof = self.roof_of(phase)
        return dict(phase_roof.regimes) if phase_roof else {}

    def in_regime(self, phase: Phase, regime: str) -> list[OpTime]:
        """The phase's ops in that regime."""
        points = [point for point in self.roof.ops if point.phase == phase.name]
        return [op for op, point in zip(phase.ops, points, strict=True) if point.regime == regime]

    def throughput(self, change: str, phase: Phase) -> Gain | None:
        """The gain of a change, or None if it does not fit into memory."""
        gain = self.price(change, phase.name)
        return None if gain is None or gain.fits is False else gain


def case_of(
    profile: Profile, *, predicted: Profile | None = None, price: Price = unpriced, graph: Graph | None = None
) -> Case:
    return Case(
        profile=profile,
        roof=roofline_of(profile),
        predicted=predicted or (profile if profile.kind == "predicted" else None),
        price=price,
        graph=graph,
    )


def phase_words(phase: Phase) -> str:
    """The name of a phase inside a sentence."""
    return _NAMES.get(phase.name, f"the phase {phase.name}")


def times_words(ratio: float) -> str:
    """How many times, inside a sentence: 1.6, 13, 130; nobody reads 1.3e+02."""
    return f"{ratio:.2g}" if ratio < 99.5 else f"{float(f'{ratio:.2g}'):,.0f}"


def command_option(case: Case, option: str) -> str | None:
    """The value that an option had on the command line of the measurement."""
    line = case.profile.provenance.command if case.profile.provenance else None
    try:
        words = shlex.split(line or "")
    except ValueError:
        return None
    for index, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option:
            return next(iter(words[index + 1 :]), None)
    return None


def graded(share: float) -> Severity:
    """A defect that takes much of a request is a warning."""
    return "warning" if share >= _WARNING_SHARE else "info"


def evidence(**numbers: float | None) -> dict[str, float]:
    """The numbers that are known and finite: JSON cannot hold infinity or NaN."""
    return {name: float(value) for name, value in numbers.items() if value is not None and isfinite(value)}


def faster(gain: Gain | None) -> dict[str, Any]:
    """The gain of a change as a finding's fields: latency."""
    if gain is None:
        return {}
    return {"gain": gain.gain, "gain_low": gain.low, "gain_high": gain.high, "gain_of": "latency"}


def more(gain: Gain | None) -> dict[str, Any]:
    """The same for throughput: sequences per second, not steps."""
    if gain is None:
        return {}
    low, high = gain.throughput_low, gain.throughput_high
    return {"gain": gain.throughput_gain, "gain_low": low, "gain_high": high, "gain_of": "throughput"}


def at_stake(case: Case, phase: Phase, seconds: float) -> dict[str, Any]:
    """A finding's fields that follow from the seconds it costs in one run of a phase."""
    stake_s = case.stake(phase, seconds)
    return {"severity": graded(case.share(stake_s)), "phase": phase.name, "stake_s": stake_s}


def at_most(share: float) -> float | None:
    """The speed-up if this share of the time disappeared: Amdahl's limit."""
    return 1 / (1 - share) if 0 <= share < 1 else None
