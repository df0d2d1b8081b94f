"""The one seam between detection and the world: files, programs, and a few facts about this process.

`LocalMachine` is this machine. The tests have one that answers from a folder of recorded files, so that a Raspberry Pi,
a Jetson or a Mac can be detected and examined anywhere.
"""

import ctypes
import importlib
import mmap
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from inferometer.core.frozen import frozen

_BYTES_AT_MOST = 2**23  # no file read here is larger, and a wrong one must not fill the memory
_PROGRAM_S = 15.0  # nvidia-smi without persistence mode and a cold PowerShell take seconds


@frozen
class Disk:
    """A folder that measuring writes to, and the room there is in its file system."""

    name: str
    total_bytes: int
    free_bytes: int


class Machine(Protocol):
    """Every answer may be missing: None, or empty. No method raises because something is not there."""

    @property
    def system(self) -> str:
        """`Linux`, `Darwin`, `Windows`, as `platform.system()` says."""

    @property
    def architecture(self) -> str:
        """`x86_64`, `aarch64`, `arm64`, `AMD64`, as `platform.machine()` says."""

    @property
    def node(self) -> str | None:
        """The host's name, as `platform.node()` says."""

    @property
    def python(self) -> str | None: ...

    @property
    def pid(self) -> int | None:
        """The process that asks, so that it is not counted among the others."""

    @property
    def privileged(self) -> bool | None:
        """Whether this is root."""

    @property
    def page_bytes(self) -> int:
        """The size of a memory page, the unit of several of Linux's counters."""

    def read(self, path: str) -> str | None: ...

    def names(self, folder: str) -> tuple[str, ...]: ...

    def run(self, *argv: str) -> str | None:
        """What the program printed, if it is there and ended well."""

    def which(self, program: str) -> str | None: ...

    def affinity(self) -> int | None:
        """On how many CPUs the scheduler may put this process."""

    def module(self, name: str) -> Any:
        """An installed Python module (psutil, pynvml), or None."""

    def installed(self, distribution: str) -> str | None:
        """The version of an installed package, without importing it."""

    def disks(self) -> tuple[Disk, ...]: ...

    def processor_feature(self, code: int) -> bool | None:
        """Windows' IsProcessorFeaturePresent."""


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """The machine this runs on."""

    system: str = field(default_factory=platform.system)
    architecture: str = field(default_factory=platform.machine)
    node: str | None = field(default_factory=platform.node)
    python: str | None = field(default_factory=platform.python_version)
    pid: int | None = field(default_factory=os.getpid)
    page_bytes: int = mmap.PAGESIZE

    @property
    def privileged(self) -> bool | None:
        return os.geteuid() == 0 if hasattr(os, "geteuid") else None

    def read(self, path: str) -> str | None:
        try:
            with Path(path).open("rb") as file:
                return file.read(_BYTES_AT_MOST).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(path.name for path in Path(folder).iterdir()))
        except (OSError, ValueError):
            return ()

    def run(self, *argv: str) -> str | None:
        quiet = getattr(subprocess, "CREATE_NO_WINDOW", 0)
        try:
            done = subprocess.run(  # noqa: S603 - the commands are the constants of this package
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROGRAM_S, check=True, creationflags=quiet
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return done.stdout.decode("utf-8", "replace")

    def which(self, program: str) -> str | None:
        return shutil.which(program)

    def affinity(self) -> int | None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None

    def module(self, name: str) -> Any:
        if find_spec(name) is None:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an old pynvml warns of its own successor
                return importlib.import_module(name)
        except (ImportError, OSError):
            return None

    def installed(self, distribution: str) -> str | None:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - detection does not need it

        try:
            return version(distribution)
        except PackageNotFoundError:
            return None

    def disks(self) -> tuple[Disk, ...]:
        disks = []
        for name, path in (("working folder", "."), ("temporary folder", tempfile.gettempdir())):
            try:
                usage = shutil.disk_usage(path)
            except OSError:
                continue
            disks.append(Disk(name=name, total_bytes=usage.total, free_bytes=usage.free))
        return tuple(disks)

    def processor_feature(self, code: int) -> bool | None:
        windll = getattr(ctypes, "windll", None)  # only there on Windows
        return None if windll is None else bool(windll.kernel32.IsProcessorFeaturePresent(code))
