"""Series: one model in one engine on one machine, measured again and again on a branch; and whether it became slower.

Runs of a series differ by more than their own samples show: a neighbour, a clock, a cache. So a new run is not held
against the samples of the one before, but against how far runs of its series lie apart. What stands out is suspected,
no more. Only a measurement in turns with the baseline, in which whatever slows one slows both, makes it an alarm.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from statistics import median
from typing import Any, Literal

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Environment, Profile
from inferometer.measure.bench.verdict import Call, Criteria, judge

State = Literal["too few", "steady", "suspected", "withdrawn", "confirmed"]
_NORMAL = 1.4826  # median absolute deviation → standard deviation
ROUNDS = 12  # of confirming, each two processes in turns: few enough to wait for, enough to be sure of 5 %
_MISSED = 1.645  # standard errors below which one in twenty lies
_QUIET = 0.002  # of a series that seems to have no noise: clocks and alignment differ by as much


@frozen
class AlarmRule:
    """`threshold` is the smallest change that counts; `sureness` how many standard errors make a run stand out.

    The newest one, two and three runs are held against up to `window` before them, of which there must be `least`: a
    large step is seen at once, a small one when three runs show it. A step of `step` is not to be missed by then, so
    that in a noisy series less makes a run stand out. A low bar costs measurements in turns and no false alarms: those
    are what confirming is for.
    """

    threshold: float = 0.02
    step: float = 0.05
    sureness: float = 1.3
    window: int = 20
    least: int = 5
    together: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1 or self.sureness <= 0 or self.least < 3 or self.window < self.least:
            raise DomainError("A rule has a threshold between 0 and 1, and a baseline of three or more runs.")


@frozen
class Suspicion:
    """The newest `runs` of a series against those before: `ratio` of their times, in standard errors, and the noise."""

    ratio: float
    errors: float
    noise: float
    runs: int
    baseline: int
    stands_out: bool


def suspicion(times: Sequence[float], rule: AlarmRule | None = None) -> Suspicion | None:
    """How the newest runs stand out from those before, at their most; None while there are too few before them.

    The centre is a median, and the spread a median of deviations, so that one disturbed run in five changes neither.
    The error of the difference has both sides: 1/k of the newest k, and π/2n of a median of n.
    """
    rule = rule or AlarmRule()
    logs = [math.log(time) for time in times]
    found = []
    for newest in range(1, rule.together + 1):
        before = logs[:-newest][-rule.window :]
        if len(before) < rule.least:
            break
        centre = median(before)
        small = 1 + 2 / len(before)  # few deviations have too small a median
        noise = max(_QUIET, small * _NORMAL * median(abs(log - centre) for log in before))
        shift = median(logs[-newest:]) - centre
        error = noise * math.sqrt(1 / newest + math.pi / 2 / len(before))
        stands_out = abs(shift) >= math.log1p(rule.threshold) and abs(shift) >= rule.sureness * error
        if newest == rule.together:  # the last chance of such a step: what nineteen in twenty of them would show
            stands_out |= abs(shift) >= math.log1p(rule.step) - _MISSED * error
        found.append(
            Suspicion(
                ratio=math.exp(shift), errors=shift / error, noise=noise, runs=newest, baseline=len(before),
                stands_out=stands_out,
            )
        )  # fmt: skip
    return max(found, key=lambda each: (each.stands_out, abs(each.errors)), default=None)


def rounds_verdict(baseline: Sequence[float], run: Sequence[float], rule: AlarmRule) -> Call:
    """What rounds in turns say, each the median time of either side: `faster`, `slower`, `same` or `undecided`.

    A round is one pair: within it, runs share a process, with its addresses and its luck. Pairs are judged as `compare`
    judges runs taken in turns, at the same risk; a difference below the threshold is none.
    """
    found = judge(baseline, run, paired=True, criteria=Criteria(threshold=rule.threshold))
    return found.verdict if found.sure else "undecided"


@frozen
class EnvironmentChange:
    """Something of the machine that is not as it was: a suspect before any code is."""

    name: str
    before: str | None
    after: str | None


def environment_changes(before: Profile, after: Profile) -> tuple[EnvironmentChange, ...]:
    """What moved between two runs: versions, threads, kernel, limits and governors. What neither says is left out."""
    old, new = _facts(before.environment), _facts(after.environment)
    return tuple(
        EnvironmentChange(name=name, before=old.get(name), after=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def _facts(environment: Environment | None) -> dict[str, str]:
    if environment is None:
        return {}
    machine = {} if environment.machine is None else asdict(environment.machine)
    flat: dict[str, Any] = {f"version of {name}": version for name, version in environment.versions.items()}
    flat |= {name: value for name, value in environment.host.items() if isinstance(value, str | bool)}
    kept = ("name", "cpu", "usable_cpus", "memory_bytes", "system", "kernel", "hypervisor", "container")
    flat |= {f"machine's {name}": machine[name] for name in kept if machine.get(name) is not None}
    flat |= {"gpus": ", ".join(machine.get("gpus", ())) or None, "threads": environment.threads}
    return {name: str(value) for name, value in flat.items() if value is not None}


@frozen
class Alarm:
    """The verdict on the newest run of a series. `told`: somebody should hear of it, because it is confirmed."""

    state: State
    run: str
    series: Mapping[str, str | None]
    sentence: str
    ratio: float | None = None
    errors: float | None = None
    noise: float | None = None
    baseline: tuple[str, ...] = ()
    change_points: tuple[str, ...] = ()
    environment: tuple[EnvironmentChange, ...] = ()
    confirmations: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)
    notes: tuple[str, ...] = ()

    @property
    def told(self) -> bool:
        return self.state == "confirmed"

    def document(self) -> dict[str, Any]:
        return {"schema": "inferometer.alarm/1", **asdict(self), "told": self.told}
