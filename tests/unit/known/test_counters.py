"""The processor's counters: with a kernel that answers, with one that refuses, and with the real one."""

import errno
import os
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from inferometer.core.machine import branch_miss_share, cache_miss_share, instructions_per_cycle
from inferometer.core.profile import Environment, Phase
from inferometer.engines.base import Kernel
from inferometer.known.machine import counters as module
from inferometer.known.machine.counters import LinuxKernel, PieceCounts, hardware_counters
from inferometer.measure.run.arrays import count_steps
from inferometer.measure.run.ops import _counted
from inferometer.understand.view.phrases import counter_fact, counter_notes

ENABLE, DISABLE, RESET = 0x2400, 0x2401, 0x2403


class FakeKernel:
    """Counts a thousand times the event's number plus one, from when it is enabled; `shared` counters took turns."""

    def __init__(self, *, lacks=(), refusal=errno.ENOENT, shared=(), growing=False):
        self.lacks, self.refusal, self.shared, self.growing, self.readings = lacks, refusal, shared, growing, {}
        self.log, self.closed = [], []

    def open(self, event):
        if event in self.lacks:
            raise OSError(self.refusal, "no")
        return 10 + event

    def control(self, descriptor, request):
        self.log.append((descriptor, request))

    def read(self, descriptor):
        event = descriptor - 10
        counted = 50 if event in self.shared else 100
        self.readings[event] = self.readings.get(event, 0) + 1
        count = 100 * self.readings[event] if self.growing else 1000
        return struct.pack("=QQQ", count * (event + 1), 100, counted)

    def close(self, descriptor):
        self.closed.append(descriptor)


def test_counts_of_a_step_are_the_mean_of_those_that_ran():
    kernel, ran = FakeKernel(), []
    counters = hardware_counters(kernel)
    assert kernel.log == []  # nothing counts before it is asked for
    counted = count_steps(lambda: ran.append(1), counters, 0.05)
    assert len(ran) == 4  # as many as take a fifth of a second
    assert (counted.counts["cycles"], counted.counts["branch_misses"]) == (250, 1500)
    assert [request for descriptor, request in kernel.log if descriptor == 10] == [RESET, ENABLE, DISABLE]
    counters.close()
    assert len(kernel.closed) == 6


def test_a_counter_that_took_turns_is_scaled_to_the_whole_time():
    counters = hardware_counters(FakeKernel(shared=(1,)))
    with counters.counting():
        pass
    assert counters.counts["instructions"] == 4000
    assert counters.counts["cycles"] == 1000


def test_what_one_counter_lacks_the_others_still_tell():
    counters = hardware_counters(FakeKernel(lacks=(2, 3)))
    with counters.counting():
        pass
    assert counters.reason is None
    assert instructions_per_cycle(counters.counts) == 2
    assert cache_miss_share(counters.counts) is None
    assert branch_miss_share(counters.counts) == 6 / 5


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (errno.ENOENT, "has no counters"),
        (errno.EACCES, "perf_event_paranoid"),
        (errno.ENOSYS, "no perf_event"),
        (errno.EMFILE, "the kernel refuses"),
    ],
)
def test_a_refusal_is_a_reason_and_no_number(refusal, words):
    counters = hardware_counters(FakeKernel(lacks=range(6), refusal=refusal))
    counted = count_steps(lambda: pytest.fail("no step is needed"), counters, 0.1)
    assert words in counted.reason
    assert not counted.counts
    (note,) = counter_notes(Environment(host={"counters": counted.reason}))
    assert "not measurable here" in note


def test_layers_have_counts_of_their_own():
    """The fake counts on with every reading: each piece has what was added in it."""
    kernel = FakeKernel(lacks=(2, 3, 4, 5), growing=True)
    counters, ran = hardware_counters(kernel), PieceCounts(counters=hardware_counters(kernel))
    with counters.counting():
        for _ in range(2):
            ran.begin()
            ran.end()
    assert ran.pieces == [{"cycles": 100, "instructions": 200}] * 2
    named = zip("ab", ran.pieces, strict=True)
    kernels = [Kernel(name=name, kind="Conv", samples_s=(1.0,), counters=counts) for name, counts in named]
    assert _counted(kernels) == {"cycles": 200, "instructions": 400}
    assert _counted([*kernels, Kernel(name="c", kind="Conv", samples_s=(1.0,))]) == {}


def test_this_machine_counts_or_says_why_not():
    counters = hardware_counters()
    with counters.counting():
        sum(range(10_000))
    counters.close()
    assert counters.counts.get("instructions", 0) > 10_000 if counters.reason is None else counters.reason


def test_the_card_tells_instructions_a_cycle_and_misses():
    phase = Phase(name="forward", time_s=1, counters={"cycles": 2e9, "instructions": 3e9, "branches": 100.0})
    assert list(counter_fact(phase)) == [("IPC", "1.50", "3,000 million instructions")]
    full = replace(phase, counters={**phase.counters, "branch_misses": 1.0, "cache_references": 4, "cache_misses": 1})
    assert list(counter_fact(full)) == [
        ("IPC", "1.50", "3,000 million instructions, 25.0% cache misses, 1.0% branch misses")
    ]
    assert list(counter_fact(Phase(name="forward", time_s=1))) == []


@pytest.mark.parametrize(
    ("system", "machine", "number"),
    [("Linux", "x86_64", 298), ("Linux", "aarch64", 241), ("Linux", "vax", None), ("Darwin", "x86_64", None)],
)
def test_the_kernel_is_called_by_its_number_where_there_is_one(monkeypatch, system, machine, number):
    """A counter is off at first, of this process and its threads, in user mode, and gone with the program."""
    asked = []

    def syscall(*given):
        asked.append(given)
        return 7

    monkeypatch.setattr(module.platform, "system", lambda: system)
    monkeypatch.setattr(module.platform, "machine", lambda: machine)
    monkeypatch.setattr(module.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=syscall))
    if number is None:
        with pytest.raises(OSError, match="no perf_event") as caught:
            LinuxKernel().open(3)
        assert (caught.value.errno, asked) == (errno.ENOSYS, [])
        return
    assert LinuxKernel().open(3) == 7
    ((called, attributes, pid, cpu, group, flags),) = asked
    assert (called, pid, cpu, group, flags) == (number, 0, -1, -1, 8)
    assert struct.unpack("=IIQQQQQIIQ", attributes.raw[:64]) == (0, 64, 3, 0, 0, 3, 0b1100011, 0, 0, 0)


def test_a_refusal_of_the_kernel_is_its_own_error(monkeypatch):
    monkeypatch.setattr(module.platform, "system", lambda: "Linux")
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(module.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=lambda *_: -1))
    monkeypatch.setattr(module.ctypes, "get_errno", lambda: errno.EACCES)
    with pytest.raises(PermissionError):
        LinuxKernel().open(0)


def test_a_counter_is_read_and_closed_by_its_descriptor():
    reader, writer = os.pipe()
    os.write(writer, bytes(range(30)))
    assert LinuxKernel().read(reader) == bytes(range(24))
    for descriptor in (reader, writer):
        LinuxKernel().close(descriptor)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


def test_a_counter_is_switched_by_itself_and_not_with_its_group(monkeypatch):
    fcntl, asked = pytest.importorskip("fcntl", reason="only where Linux is"), []
    monkeypatch.setattr(fcntl, "ioctl", lambda *given: asked.append(given))
    LinuxKernel().control(7, ENABLE)
    assert asked == [(7, ENABLE, 0)]
