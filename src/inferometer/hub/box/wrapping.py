"""The command lines that put a process into a box."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.hub.box.found import NAMESPACES, SCOPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.hub.box.view import BoxView

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
