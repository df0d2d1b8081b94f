"""The comparable numbers of a profile: the times of its phases and ops, and a few scalars."""

from inferometer.core import statistics
from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Phase, Profile

LATENCY, SUSTAINED = "latency", "sustained"
_LATENCY_PHASES = ("forward", "run")
_SERVED = ("e2e", "ttft", "tpot")

Key = tuple[str | None, str]  # phase, where it is an op's, and name


@frozen
class Figure:
    """A time, with whatever is known of its noise."""

    value: float
    samples: tuple[float, ...] | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, timed: Phase | OpTime) -> "Figure":
        return cls(value=timed.time_s, samples=timed.samples_s or None, low=timed.low_s, high=timed.high_s)

    @property
    def interval(self) -> tuple[float, float, float] | None:
        if self.low is None or self.high is None or not 0 < self.low <= self.value <= self.high:
            return None
        return self.low, self.value, self.high


def phase_times(profile: Profile) -> dict[Key, Figure]:
    """By metric name: the phase's, or `latency` for the one phase of a model without a cache.

    `sustained` is what the phase that repeats takes in the end of a long run, where both were watched for one.
    """
    times: dict[Key, Figure] = {}
    for phase in profile.phases:
        is_latency = phase.name in _LATENCY_PHASES and profile.summary.latency_s is not None
        times[None, LATENCY if is_latency else phase.name] = Figure.of(phase)
    if (lasts := profile.sustained) is not None:
        windows = tuple(each for at, each in zip(lasts.at_s, lasts.latency_s, strict=True) if at > lasts.steady_after_s)
        times[None, SUSTAINED] = Figure(
            value=lasts.steady_s, samples=windows or None, low=lasts.low_s, high=lasts.high_s
        )
    return times


def served_times(profile: Profile) -> dict[Key, Figure]:
    """Of a service under load, by level: `e2e at 4/s`, `ttft at 4/s`, `tpot at 4/s`; the headline level first."""
    served = profile.served
    if served is None:
        return {}
    from inferometer.core.traffic.figures import figures_of, median_of, times_of  # noqa: PLC0415 - numpy, for these alone

    times: dict[Key, Figure] = {}
    for level in sorted(served.levels, key=lambda level: level is not served.levels[served.headline]):
        figures = figures_of(level)
        for metric in _SERVED:
            samples = times_of(level, metric)
            stated = median_of(getattr(figures, f"{metric}_s"))
            if samples or stated is not None:
                value = statistics.median(samples) if samples else stated or 0.0
                times[None, f"{metric} at {level.name}"] = Figure(value=value, samples=samples or None)
    return times


def op_times(profile: Profile) -> dict[Key, Figure]:
    """By phase and name; the second op of the same name is `name #2`."""
    times: dict[Key, Figure] = {}
    for phase in profile.phases:
        seen: dict[str, int] = {}
        for op in phase.ops:
            seen[op.name] = seen.get(op.name, 0) + 1
            name = op.name if seen[op.name] == 1 else f"{op.name} #{seen[op.name]}"
            times[phase.name, name] = Figure.of(op)
    return times


def scalars(profile: Profile) -> dict[str, float | None]:
    """Figures of the headline that have no samples. An input is counted apart only where several ran at once."""
    summary, batch, decode = profile.summary, profile.workload.batch, profile.phase("decode")
    token_j = decode.energy_j if decode is not None else None
    return {
        "memory": summary.peak_memory_bytes,
        "energy": summary.energy_j,
        "energy_per_token": None if token_j is None else token_j / batch,
        "energy_per_input": None if summary.energy_j is None or batch < 2 else summary.energy_j / batch,
        "tokens_per_s": summary.tokens_per_s,
    }
