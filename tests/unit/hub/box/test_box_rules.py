"""Every rule of a box by itself: the filter played call by call, limits by number, the kernel's files made up."""

import errno
import os
import platform
import re
import signal
import socket
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.core.box import BoxOrder, Ceiling, Means, parse_ceiling
from inferometer.hub.box import entering, found, process, seccomp, view
from inferometer.hub.box import found as cgroups
from inferometer.hub.box.found import CgroupPlace, JobCgroup, place_here, scope_of
from inferometer.hub.box.view import BoxView

# The filter of calls

ALLOW, NOTIFY, ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def answer(lines, *, machine, number, arguments=(0,) * 6, arch=None):
    """What the kernel would do with a call: the filter, played by hand."""
    data = struct.pack("<iIQ6Q", number, MACHINES[machine] if arch is None else arch, 0, *arguments)
    at, held = 0, 0
    for _ in range(len(lines)):
        code, if_true, if_false, value = struct.unpack_from("<HBBI", lines, 8 * at)
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            held = struct.unpack_from("<I", data, value)[0]
            continue
        holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
        at += if_true if holds else if_false
    raise AssertionError("the filter gave no answer")


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
each_machine = pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])


@each_machine
def test_the_numbers_are_those_of_the_kernels_own_headers(machine, column):
    if not HEADERS[machine].is_file():
        pytest.skip(f"the kernel's headers are not installed: {HEADERS[machine].name}")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text()))
    others = {
        "socket": seccomp._SOCKET, "connect": seccomp._CONNECT, "sendto": seccomp._SENDTO, "clone": seccomp._CLONE,
        "clone3": seccomp._CLONE3,
    }  # fmt: skip
    expected = {name: numbers[column] for name, numbers in {**seccomp._NUMBERS, **others}.items()}
    assert {name: int(known[name]) if name in known else None for name in expected} == expected


@each_machine
@pytest.mark.parametrize("notify", [True, False])
@pytest.mark.parametrize("connecting", [True, False])
def test_every_call_that_is_listed_is_refused_and_the_plain_ones_pass(machine, column, notify, connecting):
    lines = seccomp.program(machine, connecting=connecting, notify=notify)
    refused = NOTIFY if notify else ERRNO | errno.EPERM

    def asked(number, *arguments):
        return answer(lines, machine=machine, number=number, arguments=(*arguments, *(0,) * (6 - len(arguments))))

    for name, numbers in seccomp._NUMBERS.items():
        if numbers[column] is not None:
            assert asked(numbers[column]) == refused, name
    listed = {numbers[column] for numbers in seccomp._NUMBERS.values()}
    special = {numbers[column] for numbers in (seccomp._SOCKET, seccomp._CONNECT, seccomp._SENDTO, seccomp._CLONE3)}
    plain = set(range(500)) - listed - special
    assert {asked(number) for number in plain} == {ALLOW}
    assert asked(seccomp._CLONE3[column]) == ERRNO | errno.ENOSYS
    assert asked(seccomp._CONNECT[column]) == (ALLOW if connecting else refused)


@each_machine
def test_a_call_of_another_machine_or_of_the_second_set_of_numbers_is_none(machine, column):
    lines = seccomp.program(machine, connecting=True, notify=True)
    other = next(arch for name, arch in MACHINES.items() if name != machine)
    assert answer(lines, machine=machine, number=0, arch=other) == ERRNO | errno.ENOSYS
    if machine == "x86_64":
        assert answer(lines, machine=machine, number=0x40000000) == ERRNO | errno.ENOSYS
        assert answer(lines, machine=machine, number=0x3FFFFFFF) == ALLOW
    assert column in {0, 1}


@each_machine
def test_only_sockets_of_the_machines_own_can_be_made(machine, column):
    lines = seccomp.program(machine, connecting=True, notify=True)
    made = {
        family: answer(lines, machine=machine, number=seccomp._SOCKET[column], arguments=(family, *(0,) * 5))
        for family in range(50)
    }
    assert {family for family, found_ in made.items() if found_ == ALLOW} == {socket.AF_UNIX}
    assert {family for family, found_ in made.items() if found_ == NOTIFY} == {socket.AF_INET, socket.AF_INET6}
    assert {made[family] for family in (0, 3, 16, 40)} == {ERRNO | errno.EAFNOSUPPORT}


@each_machine
@pytest.mark.parametrize(("to", "allowed"), [(0, True), (1, False), (0x7F00_0000_0000, False), (1 << 32, False)])
def test_something_is_sent_to_the_other_end_of_a_pair_and_to_nobody_by_address(machine, column, to, allowed):
    arguments = (3, 1, 2, 0, to, 0)
    for connecting, found_ in ((False, ALLOW if allowed else NOTIFY), (True, ALLOW)):
        lines = seccomp.program(machine, connecting=connecting, notify=True)
        assert answer(lines, machine=machine, number=seccomp._SENDTO[column], arguments=arguments) == found_


@each_machine
def test_threads_and_processes_are_started_and_namespaces_are_not(machine, column):
    lines = seccomp.program(machine, connecting=False, notify=True)

    def clone(flags):
        return answer(lines, machine=machine, number=seccomp._CLONE[column], arguments=(flags, *(0,) * 5))

    assert clone(0x003D0F00) == clone(signal.SIGCHLD) == ALLOW
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert clone(flag | signal.SIGCHLD) == NOTIFY


def test_what_was_refused_is_said_by_its_name(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    taken, sent = [], []

    def ioctl(_listener, request, space):
        if request == seccomp._RECEIVE:
            number, first = taken.pop(0)
            space[:] = seccomp._NOTIFICATION.pack(77, 1, 0, number, 0, 0, first, 0, 0, 0, 0, 0)
        else:
            sent.append(seccomp._ANSWER.unpack(space))

    monkeypatch.setattr("fcntl.ioctl", ioctl)
    taken += [(41, 10), (42, 0), (44, 0), (56, 0), (165, 0), (999, 0)]
    assert [seccomp.answer_refused(5) for _ in range(6)] == [
        seccomp.Refused("socket", 10), seccomp.Refused("connect"), seccomp.Refused("sendto"), seccomp.Refused("clone"),
        seccomp.Refused("mount"), None,
    ]  # fmt: skip
    assert set(sent) == {(77, 0, -errno.EPERM, 0)}
    words = [seccomp.Refused(call).words for call in ("socket", "connect", "sendto", "mount")]
    assert words == ["open a network socket"] * 3 + ["call mount"]

    def gone(*_given):
        raise OSError(errno.ENOENT, "gone")

    monkeypatch.setattr("fcntl.ioctl", gone)
    assert seccomp.answer_refused(5) is None


class Libc:
    """Answers system calls, and keeps what was asked."""

    def __init__(self, *answers):
        self.answers, self.calls = list(answers), []

    def syscall(self, *given):
        self.calls.append(given)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def __getattr__(self, name):
        return lambda *given: self.calls.append((name, *given)) or self.answers[0]


def test_a_filter_with_a_listener_is_tried_first_and_one_without_then(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    for answers, made, flags in (((9,), 9, [12]), ((-1, 0), None, [12, 4])):
        libc = Libc(*answers)
        monkeypatch.setattr(seccomp, "_libc", lambda libc=libc: libc)
        assert seccomp.install(connecting=True) == made
        assert [call[:3] for call in libc.calls] == [(277, 1, flag) for flag in flags]
        count = struct.unpack("@HP", libc.calls[0][3])[0]
        assert count == len(seccomp.program("aarch64", connecting=True, notify=True)) // 8
    monkeypatch.setattr(seccomp, "_libc", lambda: Libc(-1))
    with pytest.raises(OSError, match="cannot be filtered"):
        seccomp.install(connecting=True)


@pytest.mark.parametrize(
    ("machine", "system", "order", "known"),
    [("x86_64", "linux", "little", True), ("aarch64", "linux", "little", True), ("riscv64", "linux", "little", False),
     ("x86_64", "darwin", "little", False), ("x86_64", "linux", "big", False)],
)  # fmt: skip
def test_filters_are_for_machines_whose_calls_are_known(monkeypatch, machine, system, order, known):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(sys, "byteorder", order)
    monkeypatch.setattr(seccomp, "_libc", lambda: Libc(0))
    assert (seccomp.machine_known(), seccomp.available()) == (known, known)
    monkeypatch.setattr(seccomp, "_libc", lambda: Libc(-1))
    assert not seccomp.available()


# Landlock


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (1, [(1 << 13) - 1]), (2, [(1 << 14) - 1]), (3, [(1 << 15) - 1]), (4, [(1 << 15) - 1, 3]),
        (5, [(1 << 16) - 1, 3]),
        (6, [(1 << 16) - 1, 3, 3]), (9, [(1 << 16) - 1, 3, 3]),
    ],
)  # fmt: skip
def test_a_box_of_landlock_holds_what_its_version_can(monkeypatch, tmp_path, version, words):
    granted = []
    libc = Libc(0)
    libc.answers = [7, 0]
    monkeypatch.setattr(entering, "_libc", lambda: libc)
    monkeypatch.setattr(entering, "landlock_version", lambda: version)
    monkeypatch.setattr(entering, "_grant", lambda _libc, rules, path, rights: granted.append((rules, path, rights)))
    monkeypatch.setattr(entering.os, "close", lambda _number: None)
    entering.restrict(["/r"], ["/w"], ["/dev/null"], write_proc=False)
    made, restricted = libc.calls
    assert made == (444, struct.pack(f"<{len(words)}Q", *words), 8 * len(words), 0)
    assert restricted == (446, 7, 0)
    held, ioctl = words[0], 1 << 15
    assert granted == [
        (7, "/r", 0b1101), (7, "/w", held), (7, "/dev", 0b1000), (7, "/proc", 0b1101),
        (7, "/dev/null", (0b1110 | ioctl) & held),
    ]  # fmt: skip
    granted.clear()
    libc.answers = [7, 0]
    entering.restrict([], [], [], write_proc=True)
    assert granted[-1] == (7, "/proc", 0b1111)


def test_landlock_that_is_not_there_or_refuses_is_an_error(monkeypatch):
    monkeypatch.setattr(entering, "_grant", lambda *_given: None)
    monkeypatch.setattr(entering.os, "close", lambda _number: None)
    for known, answers, says in (
        (0, [0], "has no Landlock"),
        (1, [-1], "set of rules"),
        (1, [3, 1], "refuses its rules"),
    ):
        monkeypatch.setattr(entering, "landlock_version", lambda known=known: known)
        libc = Libc(*answers)
        monkeypatch.setattr(entering, "_libc", lambda libc=libc: libc)
        with pytest.raises(OSError, match=says):
            entering.restrict([], [], [], write_proc=True)


def test_a_file_gets_the_rights_of_files_alone_and_what_is_not_there_none(tmp_path):
    (tmp_path / "file").touch()
    libc = Libc(0)
    everything = (1 << 16) - 1
    for path in (tmp_path, tmp_path / "file", tmp_path / "none"):
        entering._grant(libc, 7, str(path), everything)
    rights = [struct.unpack("=Qi", call[3])[0] for call in libc.calls]
    assert rights == [everything, 0b1110_0000_0000_0111 & ~(1 << 13)]
    assert [call[:3] for call in libc.calls] == [(445, 7, 1)] * 2
    with pytest.raises(OSError, match="refuses a path"):
        entering._grant(Libc(1), 7, str(tmp_path), everything)


def test_the_version_of_landlock_is_never_below_nothing(monkeypatch):
    for answer_, version in ((4, 4), (-1, 0)):
        monkeypatch.setattr(entering, "_libc", lambda answer_=answer_: Libc(answer_))
        monkeypatch.setattr(sys, "platform", "linux")
        assert entering.landlock_version() == version
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(entering, "_libc", lambda: Libc(4))
    assert entering.landlock_version() == 0


# Processes


def test_memory_that_nobody_else_could_have_is_summed(monkeypatch):
    text = "Name:\tx\nRssAnon:\t  10 kB\nRssFile:\t 999 kB\nRssShmem:\t   5 kB\nVmSwap:\t   2 kB\nodd line\n"
    monkeypatch.setattr(process.Path, "read_text", lambda *_given, **_more: text)
    assert process.held_bytes(1) == 17 * 1024
    monkeypatch.setattr(process.Path, "read_text", lambda *_given, **_more: "RssAnon: 1 kB\n")
    assert process.held_bytes(1) == 1024

    def gone(*_given, **_more):
        raise OSError("gone")

    monkeypatch.setattr(process.Path, "read_text", gone)
    monkeypatch.setattr(process, "_resident", lambda _pid: 5)
    monkeypatch.setattr(sys, "platform", "linux")
    assert process.held_bytes(1) == 0
    monkeypatch.setattr(sys, "platform", "darwin")
    assert process.held_bytes(1) == 5


def test_every_process_below_one_is_found_once(monkeypatch):
    tree = {1: [2, 3], 2: [4], 3: [], 4: [5]}
    monkeypatch.setattr(process, "_children", lambda pid: tree.get(pid, []))
    monkeypatch.setattr(process.Path, "exists", lambda _path: True)
    assert sorted(process.descendants(1)) == [2, 3, 4, 5]
    assert process.descendants(9) == []


def test_all_are_halted_before_any_is_ended(monkeypatch):
    sent = []

    def kill(pid, number):
        sent.append((pid, number))
        if pid == 7:
            raise ProcessLookupError

    monkeypatch.setattr(process.os, "kill", kill)
    process.kill_all([7, 8])
    assert sent == [(7, signal.SIGSTOP), (8, signal.SIGSTOP), (7, signal.SIGKILL), (8, signal.SIGKILL)]


@pytest.mark.parametrize(
    ("hard", "processes", "wanted"),
    [
        (-1, 60, {4: 0, 1: 1000, 6: 60}),
        (-1, None, {4: 0, 1: 1000}),
        (500, 60, {4: 0, 1: 500, 6: 60}),
        (10, 60, {4: 0, 1: 10, 6: 10}),
    ],
)
def test_limits_are_set_as_low_as_asked_and_never_higher_than_allowed(monkeypatch, hard, processes, wanted):
    import resource

    made = {}
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (0, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: made.update({kind: pair}))
    process.limit(file_bytes=1000, processes=processes)
    assert resource.RLIM_INFINITY == -1
    assert made == {kind: (most, most) for kind, most in wanted.items()}


@pytest.mark.parametrize("root", [True, False])
def test_privileges_are_given_up_and_roots_too(monkeypatch, root):
    calls = []

    class Kernel:
        def prctl(self, option, value, *_rest):
            calls.append((option, value))
            return int(option == 24 and value == 3)  # the first unknown one is the end

        def capset(self, header, data):
            calls.append((header, data))
            return 0

    monkeypatch.setattr(process.ctypes, "CDLL", lambda *_given, **_more: Kernel())
    monkeypatch.setattr(process.os, "geteuid", lambda: 0 if root else 1000)
    process.give_up_privileges()
    dropped = [(24, number) for number in range(4)] + [(struct.pack("<Ii", 0x20080522, 0), bytes(24))]
    assert calls == [(38, 1), *(dropped if root else [])]
    process.die_with_parent()
    assert calls[-1] == (1, signal.SIGKILL)
    process.adopt_orphans()
    assert calls[-1] == (36, 1)


def test_settings_of_the_kernel_are_kept_from_root(monkeypatch):
    calls = []

    class Kernel:
        broken = ()

        def unshare(self, flags):
            calls.append(("unshare", flags))
            return int("unshare" in self.broken)

        def mount(self, _source, target, _kind, flags, _data):
            calls.append((target, flags))
            return int(target in self.broken)

    entries = [SimpleNamespace(name=name, path=b"/proc/" + name, is_symlink=lambda name=name: name == b"self")
               for name in (b"12", b"self", b"sys", b"irq")]  # fmt: skip
    monkeypatch.setattr(process.ctypes, "CDLL", lambda *_given, **_more: Kernel())
    monkeypatch.setattr(process.os, "scandir", lambda _path: entries)
    monkeypatch.setattr(process.os, "geteuid", lambda: 1000)
    assert (process.keep_settings_from_root(), calls) == (True, [])
    monkeypatch.setattr(process.os, "geteuid", lambda: 0)
    assert process.keep_settings_from_root()
    assert calls == [
        ("unshare", 0x20000), (b"/", 16384 | (1 << 18)), (b"/proc/sys", 4096 | 16384), (b"/proc/sys", 4096 | 32 | 1),
        (b"/proc/irq", 4096 | 16384), (b"/proc/irq", 4096 | 32 | 1),
    ]  # fmt: skip
    for broken in ("unshare", b"/", b"/proc/irq"):
        Kernel.broken = (broken,)
        assert not process.keep_settings_from_root()


def test_the_kernel_ends_a_job_first(monkeypatch):
    written = []
    monkeypatch.setattr(process.Path, "write_text", lambda path, text, **_more: written.append((str(path), text)))
    process.set_oom_score(1000)
    assert written == [("/proc/self/oom_score_adj", "1000")]


# Groups


def test_a_group_of_version_1_is_made_with_its_limits_in_each_folder(tmp_path):
    for name in ("memory", "pids"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    place = place_here(tmp_path)
    assert place == CgroupPlace(version=1, folders={name: tmp_path / name for name in ("memory", "pids")})
    group = place.make("job", memory_bytes=1000, processes=60)
    limits = {
        "memory/job/memory.limit_in_bytes": "1000",
        "memory/job/memory.memsw.limit_in_bytes": "1000",
        "pids/job/pids.max": "60",
    }
    assert {name: (tmp_path / name).read_text() for name in limits} == limits
    group.join()
    for name in ("memory", "pids"):
        assert (tmp_path / name / "job" / "cgroup.procs").read_text() == str(os.getpid())
    (tmp_path / "memory/job/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    assert not group.ran_out_of_memory()
    (tmp_path / "memory/job/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (tmp_path / "pids/job/pids.events").write_text("max 0\n")
    assert (group.ran_out_of_memory(), group.ran_out_of_processes()) == (True, False)


def test_nothing_is_made_where_nothing_may_be_made(tmp_path, monkeypatch):
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    assert place_here(tmp_path).version == 2
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.subtree_control"]  # what was tried is gone
    (tmp_path / "cgroup.subtree_control").write_text("pids\n")
    assert place_here(tmp_path) is None
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    monkeypatch.setattr(cgroups, "_may_make", lambda _folders: False)
    assert place_here(tmp_path) is None
    monkeypatch.undo()
    assert not cgroups._may_make({"memory": tmp_path / "none"})


def test_a_group_is_ended_until_nothing_is_in_it_or_time_is_over(tmp_path, monkeypatch):
    killed, now = [], [0.0]
    monkeypatch.setattr(cgroups.os, "kill", lambda *given: killed.append(given))
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "cgroup.procs").write_text("11 12\n")
    group = JobCgroup(version=2, folders={"memory": folder, "pids": folder})

    def sleep(seconds):
        now[0] += seconds
        (folder / "cgroup.procs").unlink()

    group.end(clock=lambda: now[0], sleep=sleep)
    assert (killed, now, folder.exists()) == ([(11, signal.SIGKILL), (12, signal.SIGKILL)], [0.02], False)
    folder.mkdir()
    (folder / "cgroup.procs").write_text("11\n")
    slept = []

    def long(seconds):
        slept.append(seconds)
        now[0] += 1.0

    group.end(clock=lambda: now[0], sleep=long)
    assert len(slept) == 5
    assert JobCgroup(version=2, folders={}).ran_out_of_memory() is False


def test_a_scope_is_found_by_the_line_of_version_2(monkeypatch, tmp_path):
    text = "1:name=x:/a/u.scope\n0::/b/u.scope\n"
    monkeypatch.setattr(cgroups.Path, "read_text", lambda *_given, **_more: text)
    scope = scope_of(1, "u", tmp_path)
    assert scope == JobCgroup(version=2, folders=dict.fromkeys(("memory", "pids"), tmp_path / "b/u.scope"))
    monkeypatch.setattr(cgroups.Path, "read_text", lambda *_given, **_more: "1:name=x:/a/u.scope\n")
    assert scope_of(1, "u", tmp_path) is None


# What is found, shown and written


@pytest.mark.parametrize(
    ("place", "systemd", "memory"), [(True, True, "cgroup"), (None, True, "systemd"), (None, False, "watch")]
)
def test_memory_is_counted_by_the_best_that_there_is(monkeypatch, place, systemd, memory):
    monkeypatch.setattr(sys, "platform", "linux")
    for name, value in (("place_here", place), ("_systemd", systemd), ("_bubblewrap", "/bwrap")):
        monkeypatch.setattr(found, name, lambda value=value: value)
    monkeypatch.setattr(found.entering, "landlock_version", lambda: 4)
    monkeypatch.setattr(found.seccomp, "available", lambda: True)
    assert found.means_here.__wrapped__() == Means(bubblewrap="/bwrap", landlock=4, seccomp=True, memory=memory)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert found.means_here.__wrapped__() == Means(system="darwin")


def test_a_program_counts_if_it_is_there_and_works(monkeypatch):
    ran = []

    def run(command, **more):
        ran.append((command, more["timeout"]))
        if codes[0] is None:
            raise OSError
        return SimpleNamespace(returncode=codes[0])

    monkeypatch.setattr(found.subprocess, "run", run)
    codes = [0]
    monkeypatch.setattr(found.shutil, "which", lambda name: f"/x/{name}")
    for code, bubblewrap, systemd in ((0, "/x/bwrap", True), (1, None, False), (None, None, False)):
        codes[0] = code
        assert (found._bubblewrap(), found._systemd()) == (bubblewrap, systemd)
    assert ran[0][0][:2] == ["/x/bwrap", "--unshare-all"]
    assert ran[1] == (
        ["/x/systemd-run", "--user", "--scope", "--quiet", "--collect", "-p", "MemoryMax=1G", "true"],
        10.0,
    )
    monkeypatch.setattr(found.shutil, "which", lambda _name: None)
    codes[0] = 0
    assert (found._bubblewrap(), found._systemd()) == (None, False)


@pytest.mark.parametrize(
    ("means", "real"),
    [({}, False), ({"seccomp": True}, False), ({"landlock": 1}, False), ({"seccomp": True, "landlock": 1}, True),
     ({"seccomp": True, "bubblewrap": "b"}, True), ({"bubblewrap": "b"}, False)],
)  # fmt: skip
def test_a_box_is_real_if_it_holds_calls_and_files(means, real):
    assert Means(**means).real is real


@pytest.mark.parametrize(
    ("text", "ceiling"), [("100 %", Ceiling(share=1.0)), ("0.5%", Ceiling(share=0.005)), ("1 kB", Ceiling(amount=1000))]
)
def test_a_ceiling_as_it_is_written(text, ceiling):
    assert parse_ceiling(text, "--x") == ceiling
    assert (Ceiling().of(100), Ceiling(share=0.999).of(1000), Ceiling(amount=0, share=0.5).of(10)) == (0, 999, 0)
    assert BoxOrder().memory.of(1000) == BoxOrder().disk.of(1000) == 800


def test_a_view_shows_what_lies_in_it():
    shown = BoxView(readable=("/usr",), writable=("/own",), devices=("/dev/null",))
    asked = ("/usr", "/usr/lib/x", "/own/a", "/dev/null", "/usrx", "/etc", "/dev")
    assert [shown.shows(path) for path in asked] == [True, True, True, True, False, False, False]


def test_paths_are_shown_once_by_the_outermost_and_without_what_is_hidden(tmp_path):
    paths = [Path(name) for name in ("/a/b", "/a", "/ab", "/c/d", "/a")]
    assert view._outermost(paths) == ("/a", "/ab", "/c/d")
    for name in ("x/secret", "x/open/deep", "y"):
        (tmp_path / name).mkdir(parents=True)
    hidden = [tmp_path / "x/secret", tmp_path / "x/open/deep"]
    assert list(view._without(tmp_path / "x", hidden)) == []
    assert list(view._without(tmp_path / "x", hidden[:1])) == [tmp_path / "x/open"]
    assert list(view._without(tmp_path / "y", hidden)) == [tmp_path / "y"]
    assert list(view._without(hidden[0], hidden)) == []


def test_the_words_of_bubblewrap_come_in_their_order():
    shown = BoxView(readable=("/usr",), writable=("/own",), devices=("/dev/x",))
    words = found.in_bubblewrap("bwrap", shown, ["c"], inside=Path("/own"))
    begin = ["bwrap", *found.NAMESPACES, "--new-session", "--proc", "/proc", "--dev", "/dev"]
    assert words[: len(begin)] == begin
    assert words[len(begin) : len(begin) + 3] == ["--ro-bind-try", "/proc/sys", "/proc/sys"]
    tail = "--size 256000000 --tmpfs /dev/shm --remount-ro /dev --remount-ro / --chdir /own -- c"
    assert " ".join(words).endswith(tail)
    at = [words.index(word) for word in ("/usr", "/dev/x", "/own")]
    assert at == sorted(at)
