"""A group of processes whose memory and number the kernel counts together (Linux, cgroup 1 and 2)."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from inferometer.core.frozen import frozen

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
