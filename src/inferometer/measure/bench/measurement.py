"""The result of a benchmark: raw samples, their statistics, every failure, and the state of the machine.

`profile` is the same as a `Profile`, which is what is saved, compared and shown.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferometer.core.errors import InferometerError
from inferometer.core.lazy import late
from inferometer.core.profile import DeviceFacts, Environment, Headline, ModelFacts, Phase, Profile, Provenance
from inferometer.core.statistics import Summary
from inferometer.core.units import counted, format_quantity
from inferometer.core.workload import Workload
from inferometer.measure.bench.loop import LoopSamples
from inferometer.measure.bench.plan import Plan
from inferometer.version import __version__

TOOL = "inferometer bench"  # of a profile whose model's name is that of a function or a command line
BENCH = "bench"  # the key of `environment.host` under which a profile keeps how it was collected


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(LoopSamples):
    """One subject, measured: what the loop collected, with its statistics and the machine it was taken on.

    Times are of one call; warm-up is never among `samples_s`. `turns` names the interleaved collection that this one
    was part of; those of the same name compare pair by pair.
    """

    summary: Summary
    plan: Plan
    environment: Environment
    created: str
    phase: str = "run"
    command: str | None = None
    turns: str | None = None
    energy_j: float | None = None  # of one call

    def __repr__(self) -> str:
        return f"<measurement of {self.name}: median {format_quantity(self.summary.median, 's')} of {self.runs} runs>"

    def _repr_html_(self) -> str:
        return str(late("notebook", "view_html")(self))

    @property
    def success_rate(self) -> float:
        """Of all runs, warm-up included."""
        return 1 - len(self.failures) / self.runs

    @property
    def disturbed(self) -> bool | None:
        return self.environment.disturbed

    @property
    def profile(self) -> Profile:
        summary, median = self.summary, self.summary.median
        interval = summary.median_interval
        phase = Phase(
            name=self.phase,
            time_s=median,
            low_s=interval.low if interval else None,
            high_s=interval.high if interval else None,
            statistic="median",
            samples_s=self.samples_s,
            clean_s=median,
            energy_j=self.energy_j,
        )
        host, machine = self.environment.host, self.environment.machine
        return Profile(
            kind="measured",
            model=ModelFacts(name=self.name),
            device=DeviceFacts(name="local", title=machine.cpu if machine else host.get("cpu")),
            workload=Workload(),
            phases=(phase,),
            summary=Headline(latency_s=median, peak_memory_bytes=self.peak_memory_bytes, energy_j=self.energy_j),
            environment=dataclasses.replace(self.environment, host={**host, BENCH: self._record()}),
            provenance=Provenance(
                tool=TOOL,
                version=__version__,
                created=self.created,
                command=self.command,
                notes=self.notes,
            ),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the number should know."""
        notes = []
        if self.failures:
            first = self.failures[0]
            notes.append(f"{len(self.failures)} of {counted(self.runs, 'run')} failed; run {first.run}: {first.reason}")
        if self.discarded:
            were = "was" if self.discarded == 1 else "were"
            notes.append(f"{counted(self.discarded, 'run')} {were} disturbed and repeated")
        if not self.complete:
            wanted = f"{counted(self.plan.runs, 'run')} and {self.plan.seconds:g} s that were wanted at least"
            how = "interrupted" if self.interrupted else "stopped at a limit"
            notes.append(f"{how} before the {wanted}")
        if self.settled is False:
            notes.append(f"the times were not steady after {counted(len(self.warmup_s), 'warm-up run')}")
        if self.calls > 1:
            notes.append(f"each sample is the mean of {self.calls} calls")
        return tuple(notes)

    def _record(self) -> Mapping[str, Any]:
        plan = {name: value for name, value in dataclasses.asdict(self.plan).items() if value is not None}
        names = ("settled", "discarded", "complete", "interrupted", "calls", "turns")
        return {
            "runs": self.runs,
            "success_rate": self.success_rate,
            "failures": [dataclasses.asdict(failure) for failure in self.failures],
            "warmup_s": list(self.warmup_s),
            **{name: getattr(self, name) for name in names},
            "plan": plan,
        }


def measured(  # noqa: PLR0913 - what the loop does not know
    collected: LoopSamples,
    plan: Plan,
    environment: Environment,
    *,
    created: str,
    phase: str = "run",
    command: str | None = None,
    turns: str | None = None,
    energy_j: float | None = None,
) -> Measurement:
    """What was collected, with its statistics. Without any sample it is an error that names the first failure."""
    from inferometer.measure.bench.statistics import summarise  # noqa: PLC0415 - brings numpy, when the runs are over

    if not collected.samples_s:
        first = collected.failures[0] if collected.failures else None
        why = f" Run {first.run}: {first.reason}." if first else ""
        none_of = "The one run" if collected.runs == 1 else f"None of the {collected.runs:,} runs"
        raise InferometerError(
            f"{none_of} of {collected.name} gave a time.{why}",
            remedy="Run it by hand first; a limit that is too tight fails every run.",
        )
    return Measurement(
        **{entry.name: getattr(collected, entry.name) for entry in dataclasses.fields(collected)},
        summary=summarise(collected.samples_s, name=collected.name, seed=plan.seed),
        plan=plan,
        environment=environment,
        created=created,
        phase=phase,
        command=command,
        turns=turns,
        energy_j=energy_j,
    )


def turns_of(profile: Profile) -> str | None:
    """The interleaved collection that a saved profile was part of."""
    record = profile.environment.host.get(BENCH) if profile.environment else None
    turns = record.get("turns") if isinstance(record, Mapping) else None
    return turns if isinstance(turns, str) else None
