"""Memory of each span: what it kept, and the most that was in use inside it, for nested spans and threads alike."""

import mmap
import tracemalloc

import pytest

from inferometer.measure.spans import Measure, Profiler
from inferometer.measure.spans.meters import MeterLevel, PeakMeter, ProcessMemory, PsutilMemory, process_memory
from inferometer.measure.spans.record import Open
from unit.measure.spans.clocks import Manual, Ticking


class Heap:
    """A gauge with a memory that tests fill and empty."""

    prefix = "rss"

    def __init__(self, *, restarts=True):
        self.current = self.peak = 100
        self.restarts = restarts

    def hold(self, size):
        self.current += size
        self.peak = max(self.peak, self.current)

    def read(self):
        return MeterLevel(self.current, self.peak)

    def restart(self):
        if self.restarts:
            self.peak = self.current
        return self.restarts


SPAN = Open("any")


def test_delta_is_what_stays_and_peak_is_the_most():
    heap = Heap()
    meter = PeakMeter(heap)
    state = meter.begin(SPAN)
    heap.hold(50)
    heap.hold(-40)
    assert meter.end(SPAN, state) == {"rss_delta_bytes": 10, "rss_peak_bytes": 150}


def test_an_inner_spans_peak_is_also_the_outer_ones():
    heap = Heap()
    meter = PeakMeter(heap)
    outer = meter.begin(SPAN)
    heap.hold(5)
    inner = meter.begin(SPAN)
    heap.hold(900)
    heap.hold(-900)
    assert meter.end(SPAN, inner)["rss_peak_bytes"] == 1005
    after = meter.begin(SPAN)
    assert meter.end(SPAN, after)["rss_peak_bytes"] == 105  # the mark was put back: it is not this one's
    assert meter.end(SPAN, outer) == {"rss_delta_bytes": 5, "rss_peak_bytes": 1005}


def test_a_mark_that_cannot_be_put_back_tells_of_spans_that_raised_it_only():
    heap = Heap(restarts=False)
    meter = PeakMeter(heap)
    first = meter.begin(SPAN)
    heap.hold(60)
    heap.hold(-60)
    assert meter.end(SPAN, first) == {"rss_delta_bytes": 0, "rss_peak_bytes": 160}
    second = meter.begin(SPAN)
    heap.hold(20)
    heap.hold(-20)
    assert meter.end(SPAN, second) == {"rss_delta_bytes": 0}


def test_linux_memory_is_read_from_status(tmp_path):
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
    (tmp_path / "clear_refs").write_text("")
    gauge = ProcessMemory(tmp_path)
    assert gauge.read() == MeterLevel(1024 * 1024, 2048 * 1024)
    assert gauge.restart()
    assert (tmp_path / "clear_refs").read_text() == "5"


def test_a_mark_that_may_not_be_put_back_says_so(tmp_path):
    (tmp_path / "status").write_text("VmRSS:\t 4 kB\n")
    (tmp_path / "clear_refs").mkdir()
    assert not ProcessMemory(tmp_path).restart()
    assert ProcessMemory(tmp_path).read() == MeterLevel(4096, None)


def test_this_process_has_memory():
    for gauge in (process_memory(), PsutilMemory()):
        level = gauge.read()
        assert level.current > 2**20
        assert level.peak is None or level.peak > 2**20


def test_a_span_that_allocates_shows_it():
    held = []
    with Profiler(enabled=True, clock=Ticking(), measure=Measure(allocations=True)) as profiler, profiler.span("outer"):
        with profiler.span("allocate"):
            held.append(bytearray(3_000_000))
            del held[:]
            held.append(bytearray(1_000_000))
        with profiler.span("idle"):
            pass
    assert not tracemalloc.is_tracing()
    allocate, idle = profiler.stats("allocate").memory, profiler.stats("idle").memory
    assert allocate["python_delta_bytes"] == pytest.approx(1_000_000, rel=0.1)
    assert allocate["python_peak_bytes"] - idle["python_peak_bytes"] > 1_500_000
    assert idle["python_delta_bytes"] < 100_000


def test_resident_memory_goes_into_statistics_trace_and_report():
    profiler = Profiler(enabled=True, measure=Measure(memory=True))
    with profiler.span("allocate"):
        held = mmap.mmap(-1, 30_000_000)  # fresh pages: the allocator may have some to spare
        for page in range(0, len(held), 4096):
            held[page] = 1
    stats = profiler.stats("allocate")
    assert stats.memory_delta_bytes > 20_000_000
    assert profiler.trace().spans[0].memory_delta_bytes == stats.memory_delta_bytes
    assert "process delta" in profiler.report()
    held.close()


def test_the_meters_own_work_is_outside_the_span(monkeypatch):
    clock = Manual()

    class Slow(Heap):
        def read(self):
            clock.pass_ms(40)
            return super().read()

        def restart(self):
            clock.pass_ms(10)
            return super().restart()

    monkeypatch.setattr("inferometer.measure.spans.recorder.process_memory", Slow)
    profiler = Profiler(enabled=True, clock=clock, measure=Measure(memory=True))
    begun = clock.now
    with profiler.span("work"):
        clock.pass_ms(3)
    assert clock.now - begun > 80e6  # the memory was read at both ends
    assert profiler.stats("work").total_s == pytest.approx(3e-3, abs=1e-8)


def test_a_mark_that_stands_where_it_would_be_put_is_left_alone():
    heap = Heap()
    meter = PeakMeter(heap)
    restarts = []
    heap.restart = lambda: restarts.append(heap.peak)
    meter.end(SPAN, meter.begin(SPAN))
    assert restarts == []
    state = meter.begin(SPAN)
    heap.hold(50)
    heap.hold(-50)
    meter.end(SPAN, state)
    assert restarts == [150]
