"""The processor's own counters, through Linux's perf_event: cycles, instructions, cache and branch misses.

They are opened before an engine makes its threads, count nothing until they are switched on, and count the threads that
were made since too. Only what runs in user mode is counted, which the kernel allows every user by default. A processor
has few counters: where more are asked for than it has, the kernel takes turns, and a count is scaled to the whole time.

Virtual machines mostly hide them, and other systems than Linux have none that a program may read: then there is a
reason, and no number.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from inferometer.core.machine import COUNTERS

_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "loongarch64": 241, "ppc64le": 319, "s390x": 331}
_HARDWARE = 0  # the type of an event that the processor counts; its number is the counter's place in COUNTERS
_TIMES = 1 | 2  # read beside the count: how long it was wanted, and how long it really counted
_FLAGS = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6  # disabled, inherited by threads, neither kernel nor hypervisor
_CLOSE_ON_EXEC = 8
_ENABLE, _DISABLE, _RESET = 0x2400, 0x2401, 0x2403
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")  # perf_event_attr as it first was: 64 bytes
_READING = struct.Struct("=QQQ")
_DENIED = frozenset({errno.EACCES, errno.EPERM})


class KernelCalls(Protocol):
    """The calls of the operating system that are used. Each raises OSError."""

    def open(self, event: int) -> int: ...

    def control(self, descriptor: int, request: int) -> None: ...

    def read(self, descriptor: int) -> bytes: ...

    def close(self, descriptor: int) -> None: ...


class LinuxKernel:
    """The real calls: of this process, on any processor."""

    def open(self, event: int) -> int:
        number = _SYSCALL.get(platform.machine())
        if platform.system() != "Linux" or number is None:
            raise OSError(errno.ENOSYS, "no perf_event")
        attributes = ctypes.create_string_buffer(
            _ATTRIBUTES.pack(_HARDWARE, _ATTRIBUTES.size, event, 0, 0, _TIMES, _FLAGS, 0, 0, 0)
        )
        library = ctypes.CDLL(None, use_errno=True)
        descriptor = int(library.syscall(number, attributes, 0, -1, -1, _CLOSE_ON_EXEC))
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return descriptor

    def control(self, descriptor: int, request: int) -> None:
        import fcntl  # noqa: PLC0415 - only where Linux is

        fcntl.ioctl(descriptor, request, 0)

    def read(self, descriptor: int) -> bytes:
        return os.read(descriptor, _READING.size)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


@dataclass(slots=True, kw_only=True)
class HardwareCounters:
    """Open counters, by name; none where `reason` says why. `counting` switches them on."""

    kernel: KernelCalls
    descriptors: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    counts: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Afterwards `counts` has what ran inside. A counter that got no turn has no count."""
        self.counts = {}
        self._all(_RESET)
        self._all(_ENABLE)
        try:
            yield
        finally:
            self._all(_DISABLE)
        self.counts = self.read()

    def read(self) -> dict[str, float]:
        """What was counted since the counters were switched on, by name."""
        found = {}
        for name, descriptor in self.descriptors.items():
            with suppress(OSError, struct.error):
                count, wanted, counted = _READING.unpack(self.kernel.read(descriptor))
                if counted:
                    found[name] = count * wanted / counted
        return found

    def _all(self, request: int) -> None:
        for descriptor in self.descriptors.values():
            with suppress(OSError):
                self.kernel.control(descriptor, request)

    def close(self) -> None:
        for descriptor in self.descriptors.values():
            with suppress(OSError):
                self.kernel.close(descriptor)
        self.descriptors = {}


@dataclass(slots=True, kw_only=True)
class PieceCounts:
    """Counts of what runs piece after piece, such as layers: `begin` before each, `end` after it, by their place."""

    counters: HardwareCounters
    pieces: list[dict[str, float]] = field(default_factory=list)
    _mark: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        self._mark = self.counters.read()

    def end(self) -> None:
        now = self.counters.read()
        self.pieces.append({name: now[name] - self._mark[name] for name in now if name in self._mark})


def hardware_counters(kernel: KernelCalls | None = None) -> HardwareCounters:
    """The counters that can be opened here; or none, and why."""
    kernel = kernel or LinuxKernel()
    descriptors: dict[str, int] = {}
    refusal: OSError | None = None
    for event, name in enumerate(COUNTERS):
        try:
            descriptors[name] = kernel.open(event)
        except OSError as error:
            refusal = refusal or error
    reason = None if descriptors or refusal is None else _reason(refusal)
    return HardwareCounters(kernel=kernel, descriptors=descriptors, reason=reason)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSYS:
        return "this system has no perf_event"
    if error.errno in _DENIED:
        return "the kernel does not allow it (/proc/sys/kernel/perf_event_paranoid must be 2 or less)"
    if error.errno in {errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO}:
        return "the processor, or the virtual machine, has no counters that can be read"
    return f"the kernel refuses: {os.strerror(error.errno or 0)}"
