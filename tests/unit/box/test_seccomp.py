"""The filter of each machine, run as the kernel runs it: which calls of a job go through, and which do not."""

import errno
import re
import socket
import struct
from pathlib import Path

import pytest

from inferometer.box import seccomp

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # of linux/bpf_common.h
ALLOW, TELL, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000 | errno.EPERM  # of linux/seccomp.h
ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # of linux/audit.h
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NEW_USER, NEW_NET, VM, SIGCHLD = 0x10000000, 0x40000000, 0x100, 17
# read, openat, mmap, futex, execve, sendmsg, exit_group
COMMON = {"x86_64": (0, 257, 9, 202, 59, 46, 231), "aarch64": (63, 56, 222, 98, 221, 211, 94)}
machines = pytest.mark.parametrize("machine", ARCHES)


def verdict(machine, number, *arguments, arch=None, connecting=False, notify=False):
    """What the filter says of a call."""
    lines = list(struct.iter_unpack("<HBBI", seccomp.program(machine, connecting=connecting, notify=notify)))
    data = struct.pack("<IIQ6Q", number, arch or ARCHES[machine], 0, *(*arguments, *[0] * 6)[:6])
    at = held = 0
    while True:
        code, if_true, if_false, value = lines[at]
        at += 1
        if code == RETURN:
            return value
        if code == LOAD:
            held = struct.unpack_from("<I", data, value)[0]
        else:
            holds = {EQUAL: held == value, AT_LEAST: held >= value, ANY_BIT: bool(held & value)}[code]
            at += if_true if holds else if_false


def numbers_of(machine):
    column = list(ARCHES).index(machine)
    return {name: numbers[column] for name, numbers in seccomp._NUMBERS.items()}


@machines
def test_the_numbers_are_those_of_the_kernels_own_headers(machine):
    if not HEADERS[machine].is_file():
        pytest.skip(f"the kernel's headers are not installed: {HEADERS[machine].name}")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text()))
    column = list(ARCHES).index(machine)
    others = {
        "socket": seccomp._SOCKET, "connect": seccomp._CONNECT, "sendto": seccomp._SENDTO, "clone": seccomp._CLONE,
        "clone3": seccomp._CLONE3,
    }  # fmt: skip
    expected = {**numbers_of(machine), **{name: numbers[column] for name, numbers in others.items()}}
    assert {name: int(known[name]) if name in known else None for name in expected} == expected


@machines
def test_what_engines_call_goes_through(machine):
    assert {verdict(machine, number) for number in COMMON[machine]} == {ALLOW}


@machines
def test_every_call_that_reaches_out_of_a_job_is_refused_and_told_where_somebody_listens(machine):
    numbers = [number for number in numbers_of(machine).values() if number is not None]
    assert {verdict(machine, number) for number in numbers} == {REFUSE}
    assert {verdict(machine, number, notify=True) for number in numbers} == {TELL}


@machines
def test_another_set_of_numbers_is_unknown_to_a_job(machine):
    missing = 0x00050000 | errno.ENOSYS
    other = next(arch for name, arch in ARCHES.items() if name != machine)
    assert verdict(machine, COMMON[machine][0], arch=other) == missing
    assert verdict("x86_64", 0x40000000) == missing, "the numbers of x32"


@machines
@pytest.mark.parametrize(
    ("family", "said"),
    [
        (socket.AF_UNIX, ALLOW), (socket.AF_INET, REFUSE), (socket.AF_INET6, REFUSE),
        (16, 0x00050000 | errno.EAFNOSUPPORT), (17, 0x00050000 | errno.EAFNOSUPPORT),  # netlink, packets
    ],
)  # fmt: skip
def test_sockets_are_of_this_machine_only(machine, family, said):
    number = seccomp._SOCKET[list(ARCHES).index(machine)]
    assert verdict(machine, number, family, socket.SOCK_STREAM) == said


@machines
def test_nobody_is_reached_by_a_socket_that_was_not_made_as_a_pair(machine):
    column = list(ARCHES).index(machine)
    connect, send = seccomp._CONNECT[column], seccomp._SENDTO[column]
    assert verdict(machine, connect, 3) == REFUSE
    assert verdict(machine, connect, 3, connecting=True) == ALLOW, "in a box of its own nobody listens"
    assert verdict(machine, send, 3, 0, 9, 0, 0) == ALLOW, "to nobody in particular: the other end of a pair"
    assert verdict(machine, send, 3, 0, 9, 0, 0x7F00_0000_0000) == REFUSE, "an address with its lower half at zero"
    assert verdict(machine, send, 3, 0, 9, 0, 0x1000) == REFUSE


@machines
def test_processes_and_threads_can_be_made_and_namespaces_cannot(machine):
    column = list(ARCHES).index(machine)
    clone, newer = seccomp._CLONE[column], seccomp._CLONE3[column]
    assert {verdict(machine, clone, flags) for flags in (SIGCHLD, VM | SIGCHLD)} == {ALLOW}
    assert {verdict(machine, clone, flags | SIGCHLD) for flags in (NEW_USER, NEW_NET)} == {REFUSE}
    assert verdict(machine, newer) == 0x00050000 | errno.ENOSYS, "the C library then takes clone"
