"""The energy of the runs that a loop collects.

A run that is long enough for the sensors is measured as it is collected, at the cost of two readings and a few in
between. Shorter ones are left alone: when the loop is over they are repeated, back to back, for as long as the sensors
need.
"""

from dataclasses import dataclass, field

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.profile import EnergyFacts
from inferometer.measure.bench.subject import RunOutcome, Subject
from inferometer.measure.spans.energy import EnergyMeter, EnergyStretch, EnergyWindow

BUDGET_S = 3.0  # for repeating short runs, or as long as the loop took, if that is more


@frozen
class RunEnergy:
    """Joules of one call, and how they were measured; None where they were not, for the reason given there."""

    energy_j: float | None
    facts: EnergyFacts


@dataclass(slots=True, kw_only=True)
class MeteredSubject:
    """A subject whose runs are also measured in joules. Without sensors it only passes the runs on."""

    subject: Subject
    meter: EnergyMeter
    calls: int = 1
    spent_s: float = 0.0  # in runs that count
    _last_s: float = 0.0
    _measured: list[tuple[EnergyWindow, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.subject.name

    def close(self) -> None:
        self.subject.close()

    def run(self, *, watched: bool = False) -> RunOutcome:
        """Run once. Warm-up runs, which are `watched`, say how long the next one will take."""
        if watched or not self.meter.channels or self._last_s < self.meter.least_s:
            outcome = self.subject.run(watched=watched)
        else:
            outcome, window = self.meter.over(self.subject.run)
            if outcome.seconds is not None:
                self._measured.append((window, outcome.calls))
        if outcome.seconds is not None:
            self.calls, self._last_s = outcome.calls, outcome.seconds * outcome.calls
            self.spent_s += 0.0 if watched else self._last_s
        return outcome

    def energy(self, phase: str, *, unit: str | None = None) -> RunEnergy:
        """Of one call. Without a unit, the accelerators count that were seen at work."""
        if not self.meter.channels:
            return RunEnergy(energy_j=None, facts=self.meter.facts({}))
        measured = self._measured or self._repeated()
        if isinstance(measured, str):
            return RunEnergy(energy_j=None, facts=self.meter.facts({}, reason=measured))
        meter = self.meter.for_busy(measured[0][0]) if unit is None else self.meter.for_unit(unit)
        stretches = [_stretch(meter.counted(window), calls) for window, calls in measured]
        known = [stretch for stretch in stretches if stretch is not None]
        if not known:
            return RunEnergy(energy_j=None, facts=EnergyFacts(reason=self.meter.trouble))
        total = sum(known[1:], start=known[0])
        return RunEnergy(energy_j=total.each_j, facts=meter.facts({phase: total}))

    def _repeated(self) -> list[tuple[EnergyWindow, int]] | str:
        """Short runs, back to back; or why they cannot be measured."""
        reason = self.meter.too_slow(max(BUDGET_S, self.spent_s))
        if reason is not None:
            return reason
        clock, wanted_ns = self.meter.clock_ns, self.meter.least_s * 1e9

        def all_of_them() -> int:
            begun, calls = clock(), 0
            while True:
                outcome = self.subject.run()
                if outcome.seconds is None:
                    return 0
                calls += outcome.calls
                if clock() - begun >= wanted_ns:
                    return calls

        try:
            calls, window = self.meter.over(all_of_them)
        except InferometerError as error:  # the times are measured already: they stay
            return f"a run failed while its energy was measured: {error.message.rstrip('.')}"
        return [(window, calls)] if calls else "a run failed while its energy was measured"


def _stretch(window: EnergyWindow, calls: int) -> EnergyStretch | None:
    joules = window.joules()
    return None if joules is None else EnergyStretch(joules=joules, seconds=window.seconds, count=calls)
