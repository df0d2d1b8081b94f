"""`python -m inferometer.hub.box.entering PLAN`: the first process in a box gives up what it may not have, and goes on.

Everything up to the module that runs then is our own code without a byte of a job. It starts no thread: what is given
up holds for this thread and all that it starts.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from inferometer.core.frozen import frozen
from inferometer.hub.box import process, seccomp
from inferometer.hub.box.view import BoxView

if TYPE_CHECKING:
    from collections.abc import Iterable

# Rules for files without any privilege (Linux 5.13, Landlock): what was not granted cannot be opened.
#
# A process grants itself paths and then gives up all others, for good and for all that it starts. It cannot hide that a
# path is there (`stat` is not asked), only what is in it. Newer kernels also hold TCP ports, devices' ioctl calls, and
# signals to processes outside.

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every machine
_ASK_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
# What each version of the interface holds: files by then, TCP from 4 on, signals and abstract sockets from 6 on.
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP, _SCOPES = 0b11, 0b11


def landlock_version() -> int:
    """The version of the interface; 0 where the kernel has none, or it is switched off."""
    if sys.platform != "linux":
        return 0
    return max(int(_libc().syscall(_CREATE, None, 0, _ASK_VERSION)), 0)


def restrict(readable: Iterable[str], writable: Iterable[str], devices: Iterable[str], *, write_proc: bool) -> None:
    """Give up every path but these, in this thread and all that it starts.

    Every program reads /proc. There the kernel keeps what is private of processes outside from those inside, but not
    their command lines. CUDA also names its threads there, and does not start if it cannot.
    """
    libc, known = _libc(), landlock_version()
    if not known:
        raise OSError("this kernel has no Landlock")
    held = _FILES[min(known, max(_FILES))]
    words = [held, *([_TCP] if known >= 4 else []), *([_SCOPES] if known >= 6 else [])]
    attributes = struct.pack(f"<{len(words)}Q", *words)
    rules: int = libc.syscall(_CREATE, attributes, len(attributes), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), "Landlock refuses a set of rules")
    try:
        for paths, rights in (
            (readable, _READ), (writable, held), (("/dev",), _READ_DIR),
            (("/proc",), _READ | (_WRITE_FILE if write_proc else 0)),
            (devices, _READ_FILE | _READ_DIR | _WRITE_FILE | _IOCTL),
        ):  # fmt: skip
            for path in paths:
                _grant(libc, rules, path, rights & held)
        if libc.syscall(_RESTRICT, rules, 0):
            raise OSError(ctypes.get_errno(), "Landlock refuses its rules")
    finally:
        os.close(rules)


def _grant(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return  # what we cannot open ourselves is nobody's
    try:
        allowed = rights if stat.S_ISDIR(os.fstat(folder).st_mode) else rights & _OF_FILES
        if libc.syscall(_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", allowed, folder), 0):
            raise OSError(ctypes.get_errno(), "Landlock refuses a path", path)
    finally:
        os.close(folder)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


@frozen
class EntryPlan:
    """`view`: what Landlock leaves visible; None in a file system of its own. `channel`: a socket for the listener.

    `run` is the module that goes on, and its arguments. `alone`: it starts no process, so that limits of its own hold.
    """

    run: tuple[str, ...]
    file_bytes: int
    processes: int | None
    view: BoxView | None
    filtered: bool
    connecting: bool  # to sockets of its own machine, where nobody else's are
    channel: int | None = None
    alone: bool = False


def enter(plan: EntryPlan) -> None:
    process.set_oom_score(1000)
    process.limit(file_bytes=plan.file_bytes, processes=plan.processes)
    if plan.view is not None:
        process.die_with_parent()
        harmless = process.keep_settings_from_root()
        process.give_up_privileges()
        restrict(plan.view.readable, plan.view.writable, plan.view.devices, write_proc=harmless)
    if plan.filtered:
        told = plan.channel is not None  # else a refused call would wait for an answer that nobody gives
        listener = seccomp.install(connecting=plan.connecting, alone=plan.alone, notify=told)
        if listener is not None and plan.channel is not None:
            with socket.socket(fileno=plan.channel) as channel:
                socket.send_fds(channel, [b"refused"], [listener])
            os.close(listener)


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=EntryPlan)
    enter(plan)
    sys.argv = list(plan.run)
    import_module(plan.run[0]).main()  # only now: it brings libraries, which may start threads


if __name__ == "__main__":
    main()
