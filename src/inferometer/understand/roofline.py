"""The roofline: what each op and each phase reaches, beside what the device could reach at that intensity.

Ceilings are the device's own (datasheet, or measured on it) and a calibration's, for each number format and each level
of memory. `attainable = min(peak, intensity × bandwidth)`, with the main memory and the format used for the arithmetic.
An op above its roof is not an error: its bytes came from a cache.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import fsum, isfinite
from typing import Literal

from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.dtypes import DTYPES, dtype
from inferometer.core.frozen import frozen
from inferometer.core.profile import JudgedBy, OpTime, Phase, Profile
from inferometer.known.engines import engine_or_ideal

Regime = Literal["compute", "memory", "link", "storage", "overhead", "unknown"]
REGIMES: tuple[Regime, ...] = ("compute", "memory", "link", "storage", "overhead", "unknown")
# A short op whose floor is less than this share of its time is overhead: most of its time is the launch.
_LITTLE = 0.1
_SHORT_S = {"gpu": 15e-6, "npu": 50e-6, "tpu": 15e-6, "cpu": 50e-6}


@frozen
class RoofCeiling:
    """`level` is a number format for arithmetic, a level of memory for bytes."""

    of: Literal["compute", "memory"]
    level: str
    value: float  # FLOP/s, or B/s
    origin: str
    source: str


@frozen
class RooflinePoint:
    """One op, or a whole phase. Rates are None if its work is unknown, `attainable…` if the roof is."""

    name: str
    phase: str
    time_s: float
    share: float
    regime: Regime
    flops: float | None = None
    bytes: float | None = None
    intensity: float | None = None  # FLOP a byte
    flop_per_s: float | None = None
    bytes_per_s: float | None = None
    attainable_flop_per_s: float | None = None
    efficiency: float | None = None  # of what is attainable at this intensity
    floor_share: float | None = None  # floor over time; unlike `efficiency` it accounts for fusion and caches
    compute_utilisation: float | None = None  # of the peak
    bandwidth_utilisation: float | None = None  # of the main memory


@frozen
class PhaseRoof:
    """`regimes` are shares of the phase's time, and add up to 1."""

    point: RooflinePoint
    regimes: Mapping[str, float]


@frozen
class Roofline:
    """`peak` and `memory` are the ceilings that `attainable` is made of."""

    ceilings: tuple[RoofCeiling, ...]
    peak: RoofCeiling | None
    memory: RoofCeiling | None
    phases: tuple[PhaseRoof, ...]
    ops: tuple[RooflinePoint, ...]

    @property
    def ridge(self) -> float | None:
        """FLOP per byte above which arithmetic is the bound."""
        return None if self.peak is None or self.memory is None else self.peak.value / self.memory.value

    def phase(self, name: str) -> PhaseRoof | None:
        return next((phase_roof for phase_roof in self.phases if phase_roof.point.name == name), None)


def roofline_of(profile: Profile) -> Roofline:
    """All phases that repeat, under the roofs that the profile is judged by; without any, its ops' own bounds count."""
    ceilings = tuple(_ceilings(profile.judged_by, profile.device.count)) if profile.judged_by else ()
    device = profile.judged_by.device if profile.judged_by else None
    roof = Roofline(ceilings=ceilings, peak=_peak(profile, ceilings), memory=_main(device, ceilings), phases=(), ops=())
    unit = device.unit if device else profile.summary.top_unit
    repeating = [phase for phase in profile.phases if not phase.once and phase.time_s > 0]
    ops = [(phase, op, regime_of(op, roof, unit=unit, kind=profile.kind)) for phase in repeating for op in phase.ops]
    return replace(
        roof,
        phases=tuple(_phase_roof(phase, roof, [(op, r) for p, op, r in ops if p is phase]) for phase in repeating),
        ops=tuple(_op_point(op, phase, roof, regime) for phase, op, regime in ops),
    )


def regime_of(op: OpTime, roof: Roofline, *, unit: str | None, kind: str = "measured") -> Regime:
    """What an op's time is spent on: arithmetic, moving bytes, or the cost of running it at all.

    A prediction knows. A measured op whose work explains little of its time is overhead if it is short; a long one is
    merely slow, and stays with what should bound it.
    """
    if op.bound is not None and (kind == "predicted" or op.bound in {"link", "storage", "overhead"}):
        return op.bound
    computing, moving = _seconds(op.flops, roof.peak), _seconds(op.bytes, roof.memory)
    known = [value for value in (computing, moving) if value is not None]
    floor = op.floor_s if op.floor_s is not None else max(known, default=None)
    short = op.time_s / max(op.count, 1) < _SHORT_S.get((unit or "cpu").partition(":")[0], 50e-6)
    if floor is not None and floor < _LITTLE * op.time_s and short:
        return "overhead"
    if op.bound is not None:
        return op.bound
    if computing is None or moving is None:
        return "unknown"
    return "compute" if computing >= moving else "memory"


def _seconds(work: float | None, ceiling: RoofCeiling | None) -> float | None:
    return None if work is None or ceiling is None else work / ceiling.value


def _phase_roof(phase: Phase, roof: Roofline, ops: list[tuple[OpTime, Regime]]) -> PhaseRoof:
    seconds: dict[str, float] = {}
    for op, regime in ops:
        seconds[regime] = seconds.get(regime, 0.0) + op.time_s
    inside = fsum(seconds.values())
    if not ops:
        seconds[phase.bound or _bound_of_work(phase, roof)] = phase.time_s
    elif phase.time_s > inside:
        seconds["overhead"] = seconds.get("overhead", 0.0) + phase.time_s - inside
    whole = fsum(seconds.values())
    shares = {name: value / whole for name, value in seconds.items()} if whole > 0 else {"unknown": 1.0}
    leading: Regime = max(REGIMES, key=lambda name: shares.get(name, 0.0))
    flops, moved = _total(phase, "flops"), _total(phase, "bytes")
    return PhaseRoof(
        point=_point(phase.name, phase, roof, leading, time_s=phase.time_s, work=(flops, moved, phase.floor_s)),
        regimes=shares,
    )


def _bound_of_work(phase: Phase, roof: Roofline) -> Regime:
    computing, moving = _seconds(phase.flops, roof.peak), _seconds(phase.bytes, roof.memory)
    if computing is None or moving is None or not max(computing, moving):
        return "unknown"
    return "compute" if computing >= moving else "memory"


def _total(phase: Phase, key: str) -> float | None:
    stated: float | None = getattr(phase, key)
    if stated is not None:
        return stated
    known = [value for op in phase.ops if (value := getattr(op, key)) is not None]
    return fsum(known) if known and len(known) == len(phase.ops) else None


def _op_point(op: OpTime, phase: Phase, roof: Roofline, regime: Regime) -> RooflinePoint:
    return _point(op.name, phase, roof, regime, time_s=op.time_s, work=(op.flops, op.bytes, op.floor_s))


def _point(  # noqa: PLR0913 - a point is all of these
    name: str,
    phase: Phase,
    roof: Roofline,
    regime: Regime,
    *,
    time_s: float,
    work: tuple[float | None, float | None, float | None],
) -> RooflinePoint:
    flops, moved, floor_s = work
    rate, flow = _rate(flops, time_s), _rate(moved, time_s)
    intensity = flops / moved if flops is not None and moved is not None and moved >= 1 else None  # of no byte: none
    attainable = None
    if intensity is not None and roof.peak is not None and roof.memory is not None:
        attainable = min(roof.peak.value, intensity * roof.memory.value)
    return RooflinePoint(
        name=name,
        phase=phase.name,
        time_s=time_s,
        share=time_s / phase.time_s if phase.time_s > 0 else 0.0,
        regime=regime,
        flops=flops,
        bytes=moved,
        intensity=intensity,
        flop_per_s=rate,
        bytes_per_s=flow,
        attainable_flop_per_s=attainable,
        efficiency=rate / attainable if rate is not None and attainable else None,
        floor_share=floor_s / time_s if floor_s is not None and time_s > 0 else None,
        compute_utilisation=_utilisation(rate, roof.peak),
        bandwidth_utilisation=_utilisation(flow, roof.memory),
    )


def _utilisation(rate: float | None, ceiling: RoofCeiling | None) -> float | None:
    """The share of a ceiling that was reached; None above it, where the ceiling is not what bounds it."""
    if rate is None or ceiling is None or rate > ceiling.value:
        return None
    return rate / ceiling.value


def _rate(work: float | None, seconds: float) -> float | None:
    if work is None or not seconds > 0:
        return None
    rate = work / seconds
    return rate if isfinite(rate) else None


def _ceilings(judged_by: JudgedBy, count: int) -> Iterator[RoofCeiling]:
    """Ceilings of all the profile's devices together: the device's own, then what a calibration reached."""
    for name, peak in judged_by.device.peaks.items():
        yield _ceiling("compute", name, peak, count)
    for memory in judged_by.device.memories:
        if memory.bandwidth_bytes_per_s is not None:
            yield _ceiling("memory", memory.level, memory.bandwidth_bytes_per_s, count)
    for level, rate in judged_by.reached.items():
        yield _ceiling("compute" if level in DTYPES else "memory", level, rate, count)


def _ceiling(of: Literal["compute", "memory"], level: str, number: Sourced, count: int) -> RoofCeiling:
    return RoofCeiling(of=of, level=level, value=count * number.value, origin=number.origin, source=number.source)


def _peak(profile: Profile, ceilings: tuple[RoofCeiling, ...]) -> RoofCeiling | None:
    """The peak of the format that the runtime computes in; if that is unknown, the only peak there is."""
    peaks = {
        ceiling.level: ceiling for ceiling in reversed(ceilings) if ceiling.of == "compute"
    }  # reversed: the device's own win
    if not peaks:
        return None
    for name in _arithmetic(profile):
        if name in peaks:
            return peaks[name]
    return next(iter(peaks.values())) if len(peaks) == 1 else None


def _arithmetic(profile: Profile) -> tuple[str, ...]:
    precision = profile.workload.precision
    stored = precision.activations or precision.weights
    if stored is None:
        return ()
    return (*engine_or_ideal(profile.runtime).effects.candidates("linear", stored), *dtype(stored).arithmetic)


def _main(device: Device | None, ceilings: tuple[RoofCeiling, ...]) -> RoofCeiling | None:
    if device is None or device.memory is None:
        return None
    level = device.memory.level
    return next((ceiling for ceiling in ceilings if ceiling.of == "memory" and ceiling.level == level), None)


def drawn_roofs(judged_by: JudgedBy) -> Device:
    """The device with the rates a calibration reached beside its own roofs, for the chart: `bf16, calibrated`."""
    device = judged_by.device
    if not judged_by.reached:
        return device
    peaks = {f"{level}, calibrated": rate for level, rate in judged_by.reached.items() if level in DTYPES}
    levels = tuple(
        Memory(level=f"{level}, calibrated", bandwidth_bytes_per_s=rate)
        for level, rate in judged_by.reached.items()
        if level not in DTYPES
    )
    return replace(device, peaks={**device.peaks, **peaks}, memories=(*device.memories, *levels))
