"""What a process gives up before it runs somebody else's model, beside files and calls; and who its descendants are."""

import contextlib
import ctypes
import os
import signal
import struct
import sys
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL, _DROP_BOUND, _SUBREAPER, _NO_NEW_PRIVS = 1, 24, 36, 38
_CAPABILITIES_3 = 0x20080522
_NEW_MOUNTS = 0x00020000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 32, 4096, 16384, 1 << 18


def give_up_privileges() -> None:
    """No program that it starts gets more than it has, and root has no more than its files."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
    if os.geteuid() != 0:
        return
    for number in range(64):
        if libc.prctl(_DROP_BOUND, number, 0, 0, 0):  # the first unknown one is the end
            break
    if libc.capset(struct.pack("<Ii", _CAPABILITIES_3, 0), bytes(24)):
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")


def keep_settings_from_root() -> bool:
    """Make everything in /proc that is not a process read-only, for this process and what it starts.

    Root needs no capability to write the kernel's settings there; others cannot. Gives whether that is so now.
    """
    if os.geteuid() != 0:
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) or libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None):
        return False
    for entry in os.scandir(b"/proc"):
        if entry.name.isdigit() or entry.is_symlink():
            continue
        for flags in (_BIND | _RECURSIVE, _BIND | _REMOUNT | _READ_ONLY):
            if libc.mount(entry.path, entry.path, None, flags, None):
                return False
    return True


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Processes whose parent ended become ours: one that makes itself a daemon is still found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def set_oom_score(score: int) -> None:
    """How soon the kernel ends this process when memory runs out: 1000 first, −1000 never. As far as it is allowed."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score), encoding="ascii")


def limit(*, file_bytes: int, processes: int | None) -> None:
    """Files no larger, no core dumps, and no more processes of this user than `processes`; None: others count them."""
    try:
        import resource  # noqa: PLC0415 - POSIX only
    except ImportError:
        return
    wanted = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: file_bytes}
    if processes is not None:
        wanted[resource.RLIMIT_NPROC] = processes
    for kind, most in wanted.items():
        _soft, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (least, least))


def descendants(pid: int) -> list[int]:
    """Every process below one. The kernel keeps the list (Linux); elsewhere all processes are looked at."""
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        import psutil  # noqa: PLC0415 - only there

        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        return []
    found, asked = [], [pid]
    while asked:
        below = _children(asked.pop())
        found += below
        asked += below
    return found


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []
    below: list[int] = []
    for task in tasks:
        with contextlib.suppress(OSError):
            below += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    return below


def held_bytes(pid: int) -> int:
    """Memory that nobody else could have: its own pages, shared ones that are no file's, and what was swapped out.

    Pages of a model file that is mapped can be dropped and read again, so they do not count.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0 if sys.platform == "linux" else _resident(pid)
    sizes = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return 1024 * sum(int(sizes[name].split()[0]) for name in ("RssAnon", "RssShmem", "VmSwap") if name in sizes)


def _resident(pid: int) -> int:
    import psutil  # noqa: PLC0415 - only there

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def kill_all(pids: list[int]) -> None:
    """All are halted before any is ended: one that starts another at every end gets no turn."""
    for number in (signal.SIGSTOP, signal.SIGKILL) if sys.platform != "win32" else (signal.SIGTERM,):
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
