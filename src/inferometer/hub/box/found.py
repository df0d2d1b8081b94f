"""What this system has to hold a job with, found by trying, and the command lines that use it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from inferometer.core.box import Means
from inferometer.core.frozen import frozen
from inferometer.hub.box import entering, seccomp
from inferometer.hub.box.view import BoxView

# A group of processes whose memory and number the kernel counts together (Linux, cgroup 1 and 2).

ROOT = Path("/sys/fs/cgroup")
_ENDS_S, _LOOK_S = 5.0, 0.02


@frozen
class CgroupPlace:
    """Where groups may be made: a folder a controller. In version 2 it is the same one."""

    version: int
    folders: Mapping[str, Path]

    def make(self, name: str, *, memory_bytes: int, processes: int) -> "JobCgroup":
        """A group with limits; nothing runs in it yet."""
        made = {controller: folder / name for controller, folder in self.folders.items()}
        for folder in made.values():
            folder.mkdir(exist_ok=True)
        group = JobCgroup(version=self.version, folders=made)
        names = {1: ("memory.limit_in_bytes", "pids.max"), 2: ("memory.max", "pids.max")}[self.version]
        group.write("memory", names[0], memory_bytes)
        group.write("pids", names[1], processes)
        with contextlib.suppress(OSError):  # without it, a job that is too big would swap for minutes first
            if self.version == 2:
                group.write("memory", "memory.swap.max", 0)
            else:
                group.write("memory", "memory.memsw.limit_in_bytes", memory_bytes)
        return group


@frozen
class JobCgroup:
    version: int
    folders: Mapping[str, Path]

    def write(self, controller: str, name: str, value: int | str) -> None:
        (self.folders[controller] / name).write_text(str(value), encoding="ascii")

    def join(self) -> None:
        """Put this process into it, and what it starts from now on."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def ran_out_of_memory(self) -> bool:
        return self._count("memory", "memory.oom_control" if self.version == 1 else "memory.events", "oom_kill") > 0

    def ran_out_of_processes(self) -> bool:
        return self._count("pids", "pids.events", "max") > 0

    def _count(self, controller: str, name: str, key: str) -> int:
        try:
            lines = (self.folders[controller] / name).read_text(encoding="ascii").splitlines()
        except (OSError, KeyError):
            return 0
        counts = dict(line.split(" ", 1) for line in lines if " " in line)
        return int(counts.get(key, 0))

    def end(self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        """Kill what is in it until nothing is, and remove it."""
        until = clock() + _ENDS_S
        while (pids := self._pids()) and clock() < until:
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            sleep(_LOOK_S)
        for folder in set(self.folders.values()):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _pids(self) -> list[int]:
        folder = next(iter(self.folders.values()))
        try:
            return [int(pid) for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split()]
        except OSError:
            return []


def place_here(root: Path = ROOT) -> CgroupPlace | None:
    """Where this user may make groups that count memory and processes; None if nowhere."""
    first = {name: root / name for name in ("memory", "pids")}
    if all((folder / "cgroup.procs").exists() for folder in first.values()):
        return CgroupPlace(version=1, folders=first) if _may_make(first) else None
    try:
        counted = (root / "cgroup.subtree_control").read_text(encoding="ascii").split()
    except OSError:
        return None
    second = dict.fromkeys(("memory", "pids"), root)
    return CgroupPlace(version=2, folders=second) if {"memory", "pids"} <= set(counted) and _may_make(second) else None


def _may_make(folders: Mapping[str, Path]) -> bool:
    """By trying: file permissions do not say whether the file system is mounted read-only, as in containers."""
    name = f"inferometer-try-{os.getpid()}"
    for folder in set(folders.values()):
        try:
            (folder / name).mkdir()
            (folder / name).rmdir()
        except OSError:
            return False
    return True


def scope_of(pid: int, unit: str, root: Path = ROOT) -> JobCgroup | None:
    """The group of version 2 that systemd made for a process under this name; None if it is not in there (yet)."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
    except OSError:
        return None
    path = next((line[3:] for line in text.splitlines() if line.startswith("0::/")), "")
    if not path.endswith(f"/{unit}.scope"):
        return None
    return JobCgroup(version=2, folders=dict.fromkeys(("memory", "pids"), root / path.lstrip("/")))


_TRY_S = 10.0


@cache
def means_here() -> Means:
    if sys.platform != "linux":
        return Means(system=sys.platform)
    return Means(
        bubblewrap=_bubblewrap(),
        landlock=entering.landlock_version(),
        seccomp=seccomp.available(),
        memory="cgroup" if place_here() else "systemd" if _systemd() else "watch",
    )


def _bubblewrap() -> str | None:
    """Where it is, if it may do here what a box needs: a container or a distribution may forbid namespaces."""
    path = shutil.which("bwrap")
    return path if path and _works([path, *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "true"]) else None


NAMESPACES = ("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent")
SCOPE = ("--user", "--scope", "--quiet", "--collect")


def _systemd() -> bool:
    path = shutil.which("systemd-run")
    return path is not None and _works([path, *SCOPE, "-p", "MemoryMax=1G", "true"])


def _works(command: list[str]) -> bool:
    try:
        return not subprocess.run(command, capture_output=True, check=False, timeout=_TRY_S).returncode  # noqa: S603 - ours
    except (OSError, subprocess.TimeoutExpired):
        return False


# The command lines that put a process into a box.

# Of /proc: root needs no capability to write there, in a namespace neither.
_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver", "mtrr")
_SHARED_BYTES = 256_000_000  # of /dev/shm, which counts as memory


def in_bubblewrap(program: str, view: BoxView, command: Sequence[str], *, inside: Path) -> list[str]:
    """A file system of its own in which only the view is, and no network; all of it ends with its first process."""
    words = [program, *NAMESPACES, "--new-session", "--proc", "/proc", "--dev", "/dev"]
    for name in _SETTINGS:
        words += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for path in view.readable:
        link = Path(path).readlink() if Path(path).is_symlink() else None  # as /lib is one to usr/lib
        words += ["--ro-bind-try", path, path] if link is None else ["--symlink", str(link), path]
    for path in view.devices:
        words += ["--dev-bind-try", path, path]
    for path in view.writable:
        words += ["--bind", path, path]
    words += ["--size", str(_SHARED_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev", "--remount-ro", "/"]  # noqa: S108 - the system's own
    return [*words, "--chdir", str(inside), "--", *command]


def in_scope(command: Sequence[str], *, unit: str, memory_bytes: int, processes: int) -> list[str]:
    """In a group of the user's own systemd, which counts its memory and its processes."""
    limits = ("-p", f"MemoryMax={memory_bytes}", "-p", "MemorySwapMax=0", "-p", f"TasksMax={processes}")
    return ["systemd-run", *SCOPE, f"--unit={unit}.scope", *limits, "--", *command]
