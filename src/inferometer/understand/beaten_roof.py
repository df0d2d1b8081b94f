"""A run that is faster than its floor proves that the roof is too low: the machine has just done better.

What slows a run down cannot make it faster, so even a disturbed one is proof. The roof was then read in a slow moment,
or numpy's kernels are worse than the engine's. It is measured once more; where the run still beats it, the rate that
led is raised to what the run took, so that the run stands on its floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum

from inferometer.core.device import Device, Roof, is_local
from inferometer.core.frozen import frozen
from inferometer.core.profile import Phase, Profile
from inferometer.core.units import format_quantity
from inferometer.predict.basis.roof import MAIN_MEMORY, keep_roof, raised, read_again
from inferometer.understand.roofline import roofline_of

# Numpy's products are rarely less than half of what a processor does, and copies rarely less than half of what it
# reads: a run that shows more than twice as much did less work than was counted, which says nothing of the machine.
_MOST = 2.0
_CACHED = 4.0  # times the largest cache, that a phase must move before it tells of main memory
_ROUNDS = 6  # raising one rate lets others lead: the floor comes down to the run in a few steps
_SAME = 1.001  # of a floor: less is rounding

# Judges the run by a roof.
Judge = Callable[[Roof], Sequence[Profile]]


@frozen
class Beaten:
    """A phase that took less than its floor. `led` is the format of arithmetic that made most of it, or main memory."""

    phase: Phase
    led: str
    times: float  # what the rate that led must grow by, if the others stay, for the floor to be what the phase took


def unbeaten_roof(  # noqa: PLR0913 - the seams of a measurement
    device: Device,
    roof: Roof,
    judged: Sequence[Profile],
    judge: Judge,
    *,
    again: Callable[[Device, Roof], Roof] = read_again,
    keep: Callable[[Device, Roof], None] = keep_roof,
) -> tuple[Roof, tuple[str, ...]]:
    """The roof that a run of this machine stands under, kept for whoever asks next, and what to say of it.

    It is measured once more if the run beats it, and then raised by the run itself, as far as that is believable. Each
    roof is kept before the run is judged by it: a calibration of another core stands on what is kept.
    """
    found = beaten(judged) if is_local(device.name) else None
    if found is None:
        return roof, ()
    measured = best = again(device, roof)
    for _ in range(_ROUNDS):
        before, found = found, beaten(judge(best))
        if found is None:
            return best, (f"{_moved(roof, best)} {_AGAIN if best is measured else _BY_RUN}",)
        better = raised(best, found.led, found.times, by=f"a run: {found.phase.name} in {_took(found.phase)}")
        stuck = best is not measured and found.times >= before.times
        if stuck or not _tells_of(device, found) or _most_raised(measured, better) > _MOST:
            break
        keep(device, better)
        best = better
    keep(device, measured)
    return measured, (f"{before.phase.name} {_WORK}",)


_WORK = (
    "took less than its floor, though this machine's roof was measured again: what it read came from a cache, the "
    "engine does less work than is counted, or a calibration is of a slower moment. Nothing is said of its utilisation."
)
_AGAIN = "It was measured again, because this run did better than it allowed."
_BY_RUN = "Measured again it still was, so it is now what this run did."


def beaten(profiles: Sequence[Profile]) -> Beaten | None:
    """The phase that beats its floor by most, in any of the profiles."""
    quick = [
        (times, phase, profile)
        for profile in profiles
        for phase in profile.phases
        if not phase.once and phase.time_s > 0 and (times := phase.above_floor) is not None and times * _SAME < 1
    ]
    if not quick:
        return None
    _, phase, profile = min(quick, key=lambda found: found[0])
    floor_s = phase.floor_s or 0.0
    of = {bound: fsum(op.floor_s or 0.0 for op in phase.ops if op.bound == bound) for bound in ("compute", "memory")}
    bound = max(of, key=lambda name: of[name]) if any(of.values()) else phase.bound
    led_s = min(of.get(bound or "", 0.0), floor_s) or floor_s
    left_s = phase.time_s - (floor_s - led_s)
    times = led_s / left_s if left_s > 0 else floor_s / phase.time_s
    peak = roofline_of(profile).peak
    led = MAIN_MEMORY if bound == "memory" else peak.level if peak is not None else "f32"
    return Beaten(phase=phase, led=led, times=times)


def _tells_of(device: Device, found: Beaten) -> bool:
    """Arithmetic always; main memory only where a phase moves more than the caches hold."""
    caches = [float(memory.capacity_bytes or 0) for memory in device.memories[1:]]
    return found.led != MAIN_MEMORY or (found.phase.bytes or 0.0) > _CACHED * max(caches, default=0.0)


def _most_raised(before: Roof, after: Roof) -> float:
    return max(now / rate for (_, rate), (_, now) in zip(_rates(before), _rates(after), strict=True))


def _rates(roof: Roof) -> list[tuple[str, float]]:
    return [(MAIN_MEMORY, float(roof.bandwidth_bytes_per_s)), *sorted((n, float(p)) for n, p in roof.peaks.items())]


def _moved(before: Roof, after: Roof) -> str:
    known = dict(_rates(before))
    rates = [
        f"{name} {format_quantity(known[name], unit)} → {format_quantity(now, unit)}"
        for name, now in _rates(after)
        if name in known and now > known[name] and (unit := _unit(name))
    ]
    return f"This machine's roof was read too low{': ' if rates else ''}{', '.join(rates)}."


def _unit(rate: str) -> str:
    return "B/s" if rate == MAIN_MEMORY else "OP/s" if rate.startswith("i") else "FLOP/s"


def _took(phase: Phase) -> str:
    return format_quantity(phase.time_s, "s")
