"""What of a profile can be compared: the times of its phases and ops, and a few single numbers."""

from dataclasses import dataclass

from inferometer.core.profile import OpTime, Phase, Profile

__all__ = ["LATENCY", "Figure", "Key", "op_times", "phase_times", "scalars"]

LATENCY = "latency"
_LATENCY_PHASES = ("forward", "run")

Key = tuple[str | None, str]  # phase, where it is an op's, and name


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A time, with whatever is known of its noise."""

    value: float
    samples: tuple[float, ...] | None = None
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float, float] | None:
        if self.low is None or self.high is None or not 0 < self.low <= self.value <= self.high:
            return None
        return self.low, self.value, self.high


def phase_times(profile: Profile) -> dict[Key, Figure]:
    """By metric name: the phase's, or `latency` for the one phase of a model without a cache."""
    found: dict[Key, Figure] = {}
    for phase in profile.phases:
        whole = phase.name in _LATENCY_PHASES and profile.summary.latency_s is not None
        found[None, LATENCY if whole else phase.name] = _of_phase(phase)
    return found


def op_times(profile: Profile) -> dict[Key, Figure]:
    """By phase and name; the second op of the same name is `name #2`."""
    found: dict[Key, Figure] = {}
    for phase in profile.phases:
        seen: dict[str, int] = {}
        for op in phase.ops:
            seen[op.name] = seen.get(op.name, 0) + 1
            name = op.name if seen[op.name] == 1 else f"{op.name} #{seen[op.name]}"
            found[phase.name, name] = _of_op(op)
    return found


def scalars(profile: Profile) -> dict[str, float | None]:
    """Figures of the headline that have no samples."""
    summary = profile.summary
    return {
        "memory": summary.peak_memory_bytes,
        "energy": summary.energy_j,
        "tokens_per_s": summary.tokens_per_s,
    }


def _of_phase(phase: Phase) -> Figure:
    return Figure(value=phase.time_s, samples=phase.samples_s or None, low=phase.low_s, high=phase.high_s)


def _of_op(op: OpTime) -> Figure:
    samples: tuple[float, ...] | None = getattr(op, "samples_s", None)  # for a runtime that keeps them
    return Figure(value=op.time_s, samples=samples or None, low=op.low_s, high=op.high_s)
