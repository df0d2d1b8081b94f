"""Whether the load generator keeps up: how late its loop wakes, how busy its core is, how late requests leave."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.served import ClientReadings
from inferometer.core.units import format_quantity

if TYPE_CHECKING:
    import asyncio

_EVERY_S = 0.02
_BUSY = 0.9  # of a core: beyond it a queue builds up in the client
_LATE_S = 0.001  # p99 of the send delay, where the requests themselves are short
_LATE_SHARE = 0.05  # … or of the usual time to the first token, whichever is more
_LAG_S = 0.005
_SOME = 0.5  # of a core: below it, what holds the client up is not its own work


class Watch:
    """A timer that notes how late it is called, from `start` to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.lags = loop, array("d")
        self._handle: asyncio.TimerHandle | None = None
        self._cpu = self._began = 0.0

    def start(self) -> None:
        self._cpu, self._began = time.process_time(), time.perf_counter()
        self._wait()

    def _wait(self) -> None:
        due = self._loop.time() + _EVERY_S
        self._handle = self._loop.call_at(due, self._called, due)

    def _called(self, due: float) -> None:
        self.lags.append(max(0.0, self._loop.time() - due))
        self._wait()

    def stop(self) -> float:
        """The share of one core that this process used since the start."""
        if self._handle is not None:
            self._handle.cancel()
        wall = time.perf_counter() - self._began
        return (time.process_time() - self._cpu) / wall if wall > 0 else 0.0


def saves_power(root: Path = Path("/sys")) -> bool:
    """Whether a CPU here has the governor `powersave`, where Linux says which it has."""
    files = (root / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    with suppress(OSError, UnicodeDecodeError):
        return any(file.read_text(encoding="ascii").strip() == "powersave" for file in files)
    return False


@frozen
class ProcessHealth:
    """Of one process over one round."""

    lags: Sequence[float]
    cpu_share: float
    connections: int


def readings(
    processes: Sequence[ProcessHealth], delays: Sequence[float], usual_s: float | None, *, shed: int = 0
) -> ClientReadings:
    """What the client says of itself. `usual_s` is the median time to a first token, `shed` requests it could not open.

    A delay counts against what is measured: a millisecond means nothing beside an answer of ten seconds.
    """
    lags = np.concatenate([np.asarray(each.lags) for each in processes]) if processes else np.empty(0)
    late = np.asarray(delays, float)
    cpu = max((each.cpu_share for each in processes), default=0.0)
    allowed = max(_LATE_S, _LATE_SHARE * (usual_s or 0.0))
    p99 = float(np.quantile(late, 0.99)) if len(late) else None
    lag = float(np.quantile(lags, 0.99)) if len(lags) else None
    reasons = []
    if p99 is not None and p99 > allowed:
        reasons.append(f"requests left {format_quantity(p99, 's', digits=3)} late at p99")
    if cpu > _BUSY:
        reasons.append(f"it used {cpu:.0%} of a core: more --processes would share that")
    if lag is not None and lag > max(_LAG_S, allowed):
        why = "" if cpu > _SOME else f" with {cpu:.0%} of a core used: something else keeps this machine busy"
        reasons.append(f"its event loop was {format_quantity(lag, 's', digits=3)} behind at p99{why}")
    if shed:
        reasons.append(f"{shed} connections could not be opened: too many files (ulimit -n)")
    return ClientReadings(
        processes=len(processes),
        send_delay_p50_s=float(np.quantile(late, 0.5)) if len(late) else None,
        send_delay_p99_s=p99,
        send_delay_max_s=float(late.max()) if len(late) else None,
        lag_p99_s=lag,
        lag_max_s=float(lags.max()) if len(lags) else None,
        cpu_share=cpu,
        connections=sum(each.connections for each in processes),
        bottleneck=bool(reasons),
        reasons=tuple(reasons),
    )
