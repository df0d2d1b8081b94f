"""Which process a run belongs to, and whether that process is still alive.

A process number alone says little: numbers are used again, start over at boot, and mean something else in a container.
"""

import os
import socket
import sys
from pathlib import Path

from inferometer.core.frozen import frozen


@frozen
class Owner:
    """`boot` tells one start of the machine from the next, `space` one container's process numbers from another's."""

    host: str
    boot: str
    space: str
    pid: int
    born: str | None  # when the process began, in its machine's own count


def this_process(*, proc: Path = Path("/proc")) -> Owner:
    pid = os.getpid()
    return Owner(host=socket.gethostname(), boot=_boot(proc), space=_space(proc), pid=pid, born=_born(pid, proc))


def gone(owner: Owner, here: Owner, *, proc: Path = Path("/proc")) -> bool | None:
    """Whether the owner's process has ended. None where that cannot be seen from here: another machine or container."""
    if owner.host != here.host:
        return None
    if owner.boot != here.boot:
        return True
    if owner.space != here.space:
        return None
    born = _born(owner.pid, proc)
    return born is None or born != owner.born


def _boot(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _space(proc: Path) -> str:
    try:
        return str((proc / "self/ns/pid").readlink())
    except OSError:
        return ""


def _born(pid: int, proc: Path) -> str | None:
    """When a process began; None where there is none, or only what is left of one until its parent looks."""
    if not sys.platform.startswith("linux"):
        return _born_elsewhere(pid)
    try:
        # The name in brackets may hold anything; the fields after it are the state first and the start as the 20th.
        fields = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


def _born_elsewhere(pid: int) -> str | None:
    import psutil  # noqa: PLC0415 - Linux has it in a file

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(round(process.create_time()))
    except psutil.Error:
        return None
