"""Engines on a CPU made ready for a calibration: probe models to run through them, and who disturbs meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.bench.guard import Guard, host_record
from inferometer.calibrate.probes.decoders import DecoderProvider, decoder_provider
from inferometer.calibrate.probes.provider import Opener, ProbeProvider, probe_provider
from inferometer.catalog.engines import engine as engine_named
from inferometer.core.device import Device
from inferometer.errors import DomainError, EngineError
from inferometer.runtimes.base import Runtime, require_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inferometer.calibrate.fitting.points import Point
    from inferometer.core.engine import Probing

PROBED = "f32"  # that probes which take arrays are made in
_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 5.0  # after a case that was disturbed, longer each time
_LOOKS = 6  # at a machine that is not quiet, before it is refused: some seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What is calibrated. For a runtime that is calibrated by its weights `dtype` is their format."""

    runtime: Runtime
    device: Device
    dtype: str
    threads: int
    journal: Path
    folder: Path | None = None  # where probe models are kept
    limit_s: float = 0.6


def engine_provider(engine: Engine, known: Sequence[Point] = ()) -> ProbeProvider | DecoderProvider:
    """The provider, its ceilings measured or taken from beside the journal. `known` points are those it has."""
    require_ready(engine.runtime)
    probing = engine_named(engine.runtime.name).calibrated[engine.device.unit]
    if probing == "decoders":
        return decoder_provider(
            engine.runtime, engine.device, engine.dtype, journal=engine.journal, threads=engine.threads,
            folder=engine.folder, limit_s=engine.limit_s,
        )  # fmt: skip
    if engine.dtype != PROBED:
        raise DomainError(
            f"{engine.runtime.title} was to be calibrated in {engine.dtype}; its probe models are made in {PROBED}.",
            remedy=f"Leave out --dtype, or give --dtype {PROBED}.",
        )
    return probe_provider(
        engine.runtime, engine.device, engine.dtype, journal=engine.journal, threads=engine.threads,
        folder=engine.folder, limit_s=engine.limit_s, known=known, opener=_opener(probing),
    )  # fmt: skip


def _opener(probing: Probing) -> Opener | None:
    """PyTorch has no file of a network that none of its libraries builds: those probes are made in the process."""
    if probing != "modules":
        return None
    from inferometer.calibrate.torch.graphs import open_probe  # noqa: PLC0415 - only who runs torch needs it

    return open_probe


def require_quiet(guard: Guard, looks: int = _LOOKS) -> None:
    """Look until nothing disturbs, a few times at most; then refuse, and say why."""
    disturbances = guard.before(retries=looks).disturbances
    if disturbances:
        raise EngineError(
            f"The machine is not quiet: {'; '.join(each.found for each in disturbances)}.",
            remedy=disturbances[0].remedy or "Calibrate when nothing else runs, or give --no-guard.",
        )


def disturbed_by(guard: Guard, sleep: Callable[[float], None] = time.sleep) -> Callable[[], str | None]:
    """Each call says what disturbed since the one before, or None. What passes by itself is waited for, in the call."""
    mark, often = guard.mark(), 0

    def look() -> str | None:
        nonlocal mark, often
        disturbances = guard.since(mark)
        often = often + 1 if disturbances else 0
        if disturbances:
            sleep(min(_LONGEST_PAUSE_S, _PAUSE_S * often))
        mark = guard.mark()
        return "; ".join(each.found for each in disturbances) or None

    return look


def circumstances(guard: Guard) -> dict[str, str]:
    """The machine in words, for the calibration's file."""
    return {name: str(value) for name, value in host_record(guard.host).items()}
