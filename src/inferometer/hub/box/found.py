"""What this system has to hold a job with, found by trying, and the command lines that use it."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from inferometer.core.box import Means
from inferometer.hub.box import landlock, seccomp
from inferometer.hub.box.cgroups import place_here
from inferometer.hub.box.view import BoxView

_TRY_S = 10.0


@cache
def means_here() -> Means:
    if sys.platform != "linux":
        return Means(system=sys.platform)
    return Means(
        bubblewrap=_bubblewrap(),
        landlock=landlock.version(),
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
