"""Preparing an engine on a CPU for a calibration: probe models to run, and a guard that reports disturbances."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.device import Device
from inferometer.core.errors import DomainError, EngineError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Runtime, require_ready
from inferometer.known.engines import engine as engine_named
from inferometer.known.machine.detect.identity import machine_facts
from inferometer.measure.bench.guard import Guard, host_record
from inferometer.measure.calibrate.probes.decoders import DecoderProvider, decoder_provider
from inferometer.measure.calibrate.probes.provider import Opener, ProbeProvider, probe_provider

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inferometer.core.calibration import Calibration
    from inferometer.core.engine import Probing
    from inferometer.measure.calibrate.fitting.points import OpPoint

PROBED = "f32"  # the format of probes that take arrays
_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 5.0  # after a disturbed case, longer each time
_LOOKS = 6  # at a machine that is not quiet, before it is refused: a few seconds


@frozen
class ProbedEngine:
    """What is calibrated. If a runtime is calibrated by weight format, `dtype` is that format."""

    runtime: Runtime
    device: Device
    dtype: str
    threads: int
    journal: Path
    folder: Path | None = None  # where probe models are kept
    limit_s: float = 0.6  # a probe's: dozens of steps of most, and hundreds of probes in a budget of minutes


def engine_provider(
    engine: ProbedEngine, known: Sequence[OpPoint] = (), base: Calibration | None = None
) -> ProbeProvider | DecoderProvider:
    """The provider, with ceilings from beside the journal or measured now, not below those of the base.

    `known` points are the journal's.
    """
    require_ready(engine.runtime)
    described = engine_named(engine.runtime.name)
    probing = described.calibrated[engine.device.unit]
    if probing == "decoders":
        return decoder_provider(
            engine.runtime, engine.device, engine.dtype, journal=engine.journal, threads=engine.threads,
            folder=engine.folder, limit_s=engine.limit_s, base=base,
        )  # fmt: skip
    if engine.dtype != PROBED:
        raise DomainError(
            f"{engine.runtime.title} cannot be calibrated in {engine.dtype}: its probe models are in {PROBED}.",
            remedy=f"Leave out --dtype, or give --dtype {PROBED}.",
        )
    return probe_provider(
        engine.runtime, engine.device, engine.dtype, journal=engine.journal, threads=engine.threads,
        folder=engine.folder, limit_s=engine.limit_s, known=known, opener=_opener(probing), base=base,
        beyond_peaks=described.beyond_peaks,
    )  # fmt: skip


def decoders_beside(engine: ProbedEngine, provider: ProbeProvider | DecoderProvider) -> tuple[DecoderProvider, ...]:
    """Decoders for an engine that calls modules one by one, beside its other probes, as transformers builds them."""
    if not isinstance(provider, ProbeProvider) or find_spec("transformers") is None:
        return ()
    described = engine_named(engine.runtime.name)
    if described.calibrated[engine.device.unit] != "modules" or described.effects.execution != "launched":
        return ()
    decoders = DecoderProvider(
        runtime=engine.runtime, device=provider.device, weights=engine.dtype, folder=provider.folder,
        threads=engine.threads, limit_s=engine.limit_s, timed=False, pace=provider.pace,
    )  # fmt: skip
    return (decoders,)


def _opener(probing: Probing) -> Opener | None:
    """PyTorch opens no file of a network that its libraries do not build: those probes are built in the process."""
    if probing != "modules":
        return None
    from inferometer.measure.calibrate.torch.graphs import open_probe  # noqa: PLC0415 - only who runs torch needs it

    return open_probe


def require_quiet_machine(guard: Guard, looks: int = _LOOKS) -> None:
    """Look a few times until nothing disturbs the machine; otherwise raise, and say what does."""
    disturbances = guard.before(retries=looks).disturbances
    if disturbances:
        raise EngineError(
            f"The machine is not quiet: {'; '.join(disturbance.found for disturbance in disturbances)}.",
            remedy=disturbances[0].remedy or "Calibrate when nothing else runs, or give --no-guard.",
        )


def disturbed_by(guard: Guard, sleep: Callable[[float], None] = time.sleep) -> Callable[[], str | None]:
    """Each call returns what disturbed since the last one, or None. After a disturbance it waits for it to pass."""
    mark, often = guard.mark(), 0

    def look() -> str | None:
        nonlocal mark, often
        disturbances = guard.since(mark)
        often = often + 1 if disturbances else 0
        if disturbances:
            sleep(min(_LONGEST_PAUSE_S, _PAUSE_S * often))
        mark = guard.mark()
        return "; ".join(disturbance.found for disturbance in disturbances) or None

    return look


def circumstances(guard: Guard) -> dict[str, str]:
    """The machine described in words, for the calibration's file."""
    machine = machine_facts(guard.machine, guard.host)
    record = {name: str(value) for name, value in host_record(guard.host).items()}
    return {**record, "machine_id": machine.id}
