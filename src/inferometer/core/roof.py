"""Roof: the best a machine has shown, for one that no datasheet describes."""

from collections.abc import Mapping

from inferometer.core.device import Sourced
from inferometer.core.frozen import frozen


@frozen
class Roof:
    """Measured by one method, kept, and stored with every run that is judged by it.

    `peaks` are operations per second by arithmetic format; `bandwidth_bytes_per_s` is of main memory. `call_s` is what
    a CPU takes for one call from Python into compiled code. `threads` copied memory at once, one for each CPU that may
    be used. `busy` says that other programs used the machine meanwhile, so that it may do better. `power_w`, `idle_w`,
    `cooling_w` and `warms_s` are there once `calibrate --cooling` has fitted a long run with a power meter.
    """

    machine: str
    created: str
    peaks: Mapping[str, Sourced]
    bandwidth_bytes_per_s: Sourced
    call_s: Sourced | None = None
    threads: int = 1
    busy: bool = False
    power_w: Sourced | None = None
    idle_w: Sourced | None = None
    cooling_w: Sourced | None = None
    warms_s: Sourced | None = None
