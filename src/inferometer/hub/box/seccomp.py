"""A filter of system calls for this process and all that it starts (Linux, seccomp-bpf).

The kernel asks the filter about every call. Most are allowed; what opens a network, looks into other processes or
changes the machine is refused. Where the kernel can (5.0), it tells the other end of a descriptor which call was
refused, so that a job can be told in words what it tried.
"""

import ctypes
import errno
import platform
import socket
import struct
import sys
from typing import NamedTuple

# The numbers of the calls by machine (x86_64, aarch64); None: that machine has no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),  # its queues carry calls that no filter sees
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "quotactl": (179, 60),
    "open_by_handle_at": (304, 265),  # reaches files by number, past every view of the file system
}
_FORKS = {"fork": (57, None), "vfork": (58, None)}
_SOCKET, _CONNECT, _SENDTO, _CLONE, _CLONE3 = (41, 198), (42, 203), (44, 206), (56, 220), (435, 435)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, and AUDIT_ARCH
_X32 = 0x40000000  # a second set of numbers on x86_64, which nothing of ours uses
_THREAD = 0x00010000  # CLONE_THREAD
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID and NET

_ALLOW, _NOTIFY, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENT_0, _ARGUMENT_4 = 0, 4, 16, 48  # offsets in seccomp_data, little endian

_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
# A process with a filter used to be slowed down against Spectre v4 before Linux 5.16: it measures, so it is not.
_SPEC_ALLOW, _NEW_LISTENER = 4, 8
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # ioctls of a listener
_NOTIFICATION, _ANSWER = struct.Struct("<QII iIQ6Q"), struct.Struct("<QqiI")


class Refused(NamedTuple):
    """A call that was refused; `family` is the address family of a socket."""

    call: str
    family: int | None = None

    @property
    def words(self) -> str:
        if self.call in {"socket", "connect", "sendto"}:
            return "open a network socket"
        return f"call {self.call}"


def machine_known() -> bool:
    return sys.platform == "linux" and sys.byteorder == "little" and platform.machine() in _MACHINES


def available() -> bool:
    """Whether the kernel has filters: it is asked about the plainest action, which changes nothing."""
    if not machine_known():
        return False
    action = ctypes.c_uint32(_ERRNO)
    return not _libc().syscall(_SECCOMP_CALL[platform.machine()], _GET_ACTION_AVAIL, 0, ctypes.byref(action))


def program(machine: str, *, connecting: bool, notify: bool, alone: bool = False) -> bytes:
    """The filter as the kernel takes it: instructions of eight bytes, each jump counted from the next one.

    Sockets of this machine's own can be made: CUDA does not start without. With `connecting` they can also reach
    somebody, which is for a box in which nobody listens. `alone`: threads can be started, and no processes.
    """
    column, arch = _MACHINES[machine]
    refuse = _NOTIFY if notify else _ERRNO | errno.EPERM
    lines = [
        _line(_LOAD, _ARCH),
        _line(_EQUAL, arch, 1, 0),
        _line(_RETURN, _ERRNO | errno.ENOSYS),
        _line(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        lines += [_line(_AT_LEAST, _X32, 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    for numbers in (*_NUMBERS.values(), *(_FORKS.values() if alone else ())):
        number = numbers[column]
        if number is not None:
            lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, refuse)]
    # The flags of clone3 are behind a pointer, which a filter cannot follow: the C library then takes clone.
    lines += [_line(_EQUAL, _CLONE3[column], 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    if not connecting:
        lines += [_line(_EQUAL, _CONNECT[column], 0, 1), _line(_RETURN, refuse)]
        lines += [
            _line(_EQUAL, _SENDTO[column], 0, 6),
            _line(_LOAD, _ARGUMENT_4),  # to whom: nobody in particular where both ends were made as a pair
            _line(_EQUAL, 0, 0, 2),
            _line(_LOAD, _ARGUMENT_4 + 4),  # the upper half of the address
            _line(_EQUAL, 0, 1, 0),
            _line(_RETURN, refuse),
            _line(_RETURN, _ALLOW),
        ]
    thread = [_line(_ANY_BIT, _THREAD, 1, 0), _line(_RETURN, refuse)] if alone else []
    lines += [
        _line(_EQUAL, _CLONE[column], 0, 4 + len(thread)),
        _line(_LOAD, _ARGUMENT_0),
        _line(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _line(_RETURN, refuse),
        *thread,
        _line(_RETURN, _ALLOW),
        _line(_EQUAL, _SOCKET[column], 0, 6),
        _line(_LOAD, _ARGUMENT_0),
        _line(_EQUAL, socket.AF_INET, 1, 0),
        _line(_EQUAL, socket.AF_INET6, 0, 1),
        _line(_RETURN, refuse),
        _line(_EQUAL, socket.AF_UNIX, 1, 0),
        _line(_RETURN, _ERRNO | errno.EAFNOSUPPORT),
        _line(_RETURN, _ALLOW),
    ]
    return b"".join(lines)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def install(*, connecting: bool, alone: bool = False, notify: bool = True) -> int | None:
    """Filter the calls of this thread and all that it starts from now on. Gives the descriptor of a listener, or None.

    Only one process of a family may have a listener: in a container that has one, and before Linux 5.0, calls are
    refused without a word. So they are without `notify`.
    """
    machine, libc = platform.machine(), _libc()
    for listens in (True, False) if notify else (False,):
        lines = program(machine, connecting=connecting, notify=listens, alone=alone)
        held = ctypes.create_string_buffer(lines, len(lines))
        packed = struct.pack("@HP", len(lines) // 8, ctypes.addressof(held))
        flags = _SPEC_ALLOW | (_NEW_LISTENER if listens else 0)
        made: int = libc.syscall(_SECCOMP_CALL[machine], _SET_MODE_FILTER, flags, packed)
        if made >= 0:
            return made if listens else None
    raise OSError(ctypes.get_errno(), "the system calls cannot be filtered")


def answer_refused(listener: int) -> Refused | None:
    """Take one notification from a listener that has one, refuse the call, and say which it was."""
    import fcntl  # noqa: PLC0415 - not on Windows, where a hub asks only whether there is a filter

    space = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, space)
        identity, _pid, _flags, number, _arch, _at, first, *_rest = _NOTIFICATION.unpack(space)
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(identity, 0, -errno.EPERM, 0))
    except OSError:
        return None  # whoever made the call is gone
    column, _ = _MACHINES[platform.machine()]
    if number == _SOCKET[column]:
        return Refused("socket", first)
    others = {"clone": _CLONE, "connect": _CONNECT, "sendto": _SENDTO, **_NUMBERS, **_FORKS}
    return next((Refused(name) for name, numbers in others.items() if numbers[column] == number), None)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
