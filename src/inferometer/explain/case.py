"""What findings are looked for in: a profile, its device, its roofline, and what changes would gain."""

from __future__ import annotations

import shlex
from dataclasses import field
from math import isfinite
from typing import TYPE_CHECKING, Any

from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.explain.attribution import by_phase, repeats
from inferometer.explain.gains import Price, unpriced
from inferometer.explain.roofline import PhaseRoof, Roofline, roofline

if TYPE_CHECKING:
    from inferometer.asking.gains import Gain
    from inferometer.core.device import Device
    from inferometer.core.finding import Severity

_NAMES = {"decode": "decoding", "prefill": "reading the prompt", "forward": "the forward pass", "run": "the run"}
_MUCH = 0.1  # of a request: from here on a defect is worth a warning


@frozen
class Case:
    """`predicted` is the cost model's answer to the same question; a predicted profile is its own."""

    profile: Profile
    roof: Roofline
    predicted: Profile | None = None
    price: Price = field(default=unpriced)

    @property
    def device(self) -> Device | None:
        """What the profile is judged by."""
        return self.profile.judged_by.device if self.profile.judged_by else None

    @property
    def steady(self) -> Phase | None:
        return self.profile.steady

    @property
    def repeating(self) -> tuple[Phase, ...]:
        """The phases of a request that run the model, in order."""
        often = repeats(self.profile)
        return tuple(phase for phase in self.profile.phases if often.get(phase.name) and phase.time_s > 0)

    @property
    def request_s(self) -> float | None:
        """Seconds of one request, one-time costs aside."""
        whole = by_phase(self.profile).whole_s
        return whole if whole > 0 else None

    @property
    def unit(self) -> str | None:
        found = self.profile.summary.top_unit or (self.device.unit if self.device else None)
        return found.partition(":")[0] if found else None

    @property
    def threads(self) -> int | None:
        """Of a measured run on the CPU."""
        environment = self.profile.environment
        if self.profile.kind != "measured" or environment is None or self.unit not in {None, "cpu"}:
            return None
        return environment.threads or None

    @property
    def cpus(self) -> float | None:
        """CPUs that a run could use: what the environment says, else the device's cores."""
        host = self.profile.environment.host if self.profile.environment else {}
        for key in ("usable_cpus", "logical_cores"):
            number = host.get(key)
            if isinstance(number, int | float) and number >= 1:
                return float(number)
        cores = self.device.cores if self.device and self.device.unit == "cpu" else None
        return cores.value if cores else None

    @property
    def weight_bits(self) -> float | None:
        """Stored bits a weight, as the file has them."""
        model = self.profile.model
        return 8 * model.weight_bytes / model.parameters if model.weight_bytes and model.parameters else None

    @property
    def capacity_bytes(self) -> float | None:
        memory = self.device.memory if self.device else None
        return memory.capacity_bytes.value if memory and memory.capacity_bytes else None

    def times(self, phase: Phase) -> float:
        return repeats(self.profile).get(phase.name, 1.0)

    def stake(self, phase: Phase, seconds: float) -> float:
        """Seconds of a request, from seconds of one run of a phase."""
        return self.times(phase) * seconds

    def share(self, stake_s: float) -> float:
        whole = self.request_s
        return stake_s / whole if whole else 0.0

    def roof_of(self, phase: Phase) -> PhaseRoof | None:
        return self.roof.phase(phase.name)

    def regimes(self, phase: Phase) -> dict[str, float]:
        found = self.roof_of(phase)
        return dict(found.regimes) if found else {}

    def in_regime(self, phase: Phase, regime: str) -> list[OpTime]:
        """The phase's ops whose time is of that regime."""
        points = [point for point in self.roof.ops if point.phase == phase.name]
        return [op for op, point in zip(phase.ops, points, strict=True) if point.regime == regime]

    def throughput(self, change: str, phase: Phase) -> Gain | None:
        """A priced change that also fits."""
        gain = self.price(change, phase.name)
        return None if gain is None or gain.fits is False else gain


def case_of(profile: Profile, *, predicted: Profile | None = None, price: Price = unpriced) -> Case:
    return Case(
        profile=profile,
        roof=roofline(profile),
        predicted=predicted or (profile if profile.kind == "predicted" else None),
        price=price,
    )


def named(phase: Phase) -> str:
    """A phase inside a sentence."""
    return _NAMES.get(phase.name, f"the phase {phase.name}")


def asked_of(case: Case, option: str) -> str | None:
    """What the command line that measured it said to an option."""
    line = case.profile.provenance.command if case.profile.provenance else None
    try:
        words = shlex.split(line or "")
    except ValueError:
        return None
    for place, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option:
            return next(iter(words[place + 1 :]), None)
    return None


def graded(share: float) -> Severity:
    """A defect that takes much of a request is a warning."""
    return "warning" if share >= _MUCH else "info"


def evidence(**numbers: float | None) -> dict[str, float]:
    """The numbers that are known, and are numbers: a document has no word for infinity."""
    return {name: float(value) for name, value in numbers.items() if value is not None and isfinite(value)}


def faster(gain: Gain | None) -> dict[str, Any]:
    """A priced change as a finding's gain in latency."""
    if gain is None:
        return {}
    return {"gain": gain.gain, "gain_low": gain.low, "gain_high": gain.high, "gain_of": "latency"}


def more(gain: Gain | None) -> dict[str, Any]:
    """The same in throughput: sequences, not steps."""
    if gain is None:
        return {}
    low, high = gain.throughput_low, gain.throughput_high
    return {"gain": gain.throughput_gain, "gain_low": low, "gain_high": high, "gain_of": "throughput"}


def at_most(share: float) -> float | None:
    """The speed-up if a share of the time were gone: Amdahl's limit."""
    return 1 / (1 - share) if 0 <= share < 1 else None
