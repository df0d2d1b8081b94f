"""Device time by events, on a torch that is only acted: placed on the host's clock, read late, never waited for."""

import importlib
import importlib.util
import json

import pytest

from inferometer.core.codec import decode, encode
from inferometer.core.errors import MissingDependencyError
from inferometer.core.trace import Trace
from inferometer.measure.spans import Measure, Profiler, cuda, from_trace, stats
from unit.measure.spans.clocks import Manual


class ActedEvent:
    """As torch's: made on the first device that records it, and of no use on another."""

    def __init__(self, cuda):
        self._cuda, self.at, self.device = cuda, None, None

    def record(self, stream):
        assert not self._cuda.capturing, "an event was recorded while a graph was captured"
        assert self.device in {None, stream.device}, "an event was recorded on another device than its own"
        self.device, self.at = stream.device, self._cuda.queue(device=stream.device)
        self._cuda.records += 1

    def synchronize(self):
        self._cuda.waits += 1
        self._cuda.host.now = max(self._cuda.host.now, self.at)

    def query(self):
        self._cuda.queries += 1
        return self.at <= self._cuda.host.now

    def elapsed_time(self, other):
        assert self.device == other.device, "events of two devices were compared"
        for event in (self, other):
            assert event.at <= self._cuda.host.now, "an event was read before it was done"
        self._cuda.reads += 1
        return (other.at - self.at) / 1e6


class ActedStream:
    def __init__(self, device):
        self.device = device


class ActedCuda:
    """Devices that work off a queue: a kernel starts when the one before is done, and the host goes on at once."""

    def __init__(self, host):
        self.host, self.busy_until = host, [0, 0]
        self.waits = self.events = self.records = self.queries = self.reads = self.streams = self.statistics = 0
        self.device, self.capturing = 0, False
        self.ranges = []
        self.nvtx = self
        self.held = self.most = 0

    def queue(self, work_ns=0, device=None):
        index = self.device if device is None else device
        self.busy_until[index] = max(self.busy_until[index], self.host.now) + work_ns
        return self.busy_until[index]

    def Event(self, *, enable_timing):  # noqa: N802 - torch's name
        assert enable_timing
        self.events += 1
        return ActedEvent(self)

    def current_stream(self, device):
        self.streams += 1
        return ActedStream(device)

    def synchronize(self, device):
        self.waits += 1
        self.host.now = max(self.host.now, self.busy_until[device])

    def current_device(self):
        return self.device

    def is_available(self):
        return True

    def is_current_stream_capturing(self):
        return self.capturing

    def range_push(self, name):
        self.ranges.append(name)

    def range_pop(self):
        self.ranges.append("/")

    def memory_stats_as_nested_dict(self):
        self.statistics += 1
        return {
            "allocated_bytes": {"all": {"current": self.held, "peak": self.most}},
            "reserved_bytes": {"all": {"current": 512, "peak": 600}},
        }

    def reset_peak_memory_stats(self):
        self.most = self.held


@pytest.fixture
def host():
    return Manual()


@pytest.fixture
def device(host, monkeypatch):
    numbered = type("_C", (), {"_cuda_getCurrentRawStream": staticmethod(lambda device: 1000 + device)})
    torch = type("torch", (), {"cuda": ActedCuda(host), "_C": numbered})
    monkeypatch.setattr("inferometer.measure.spans.recorder.load_torch", lambda: torch)
    monkeypatch.setattr("inferometer.measure.spans.recorder.span_cost_s", lambda *_, **__: 1e-6)
    return torch.cuda


def test_device_time_is_the_kernels_and_host_time_the_launchs(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    with profiler.span("forward", unit="gpu"):
        device.queue(5_000_000)
        host.pass_ms(0.01)
    stats = profiler.stats("forward")
    assert stats.device_s == pytest.approx(5e-3, rel=1e-6)
    assert stats.total_s == pytest.approx(1e-5, abs=1e-7)


def test_no_span_waits_for_the_device(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    waits = device.waits
    for _ in range(100):
        with profiler.span("forward"):
            device.queue(1_000_000)
    assert device.waits == waits
    assert profiler.stats("forward").device_s == pytest.approx(0.1, rel=1e-6)
    assert device.waits == waits + 1  # once, when the profile is asked for


def test_device_spans_are_placed_on_the_hosts_clock(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    host.pass_ms(100)
    with profiler.span("forward"):
        device.queue(2_000_000)
    recording = profiler.recording()
    begin = recording.device[0][0]
    assert begin == pytest.approx(recording.start[0], abs=1000)
    assert any("± " in note for note in recording.run.notes)


def test_a_span_costs_two_events_and_no_look_at_the_device(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    records, streams = device.records, device.streams
    for _ in range(100):
        with profiler.span("forward"):
            device.queue(1000)
    assert device.records - records == 200
    assert device.streams == streams  # the object of a stream is made once
    assert (device.queries, device.reads, device.statistics) == (0, 0, 0)


def test_events_are_read_and_used_again_in_a_long_run(host, device, monkeypatch):
    monkeypatch.setattr(cuda, "_WAITING_AT_MOST", 8)
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    for _ in range(200):
        with profiler.span("forward"):
            device.queue(1000)
        host.pass_ms(1)
    assert device.events < 40  # two for each that waits, and the anchor
    assert profiler.stats("forward").device_s == pytest.approx(200e-6, rel=1e-2)


def test_no_one_span_reads_more_than_a_few_events(host, device, monkeypatch):
    monkeypatch.setattr(cuda, "_WAITING_AT_MOST", 8)
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    for _ in range(100):  # a device that lags behind
        with profiler.span("forward"):
            device.queue(1_000_000)
    host.pass_ms(1000)
    reads = device.reads
    with profiler.span("forward"):
        pass
    assert 0 < device.reads - reads <= 2 * cuda._READ_AT_A_TIME + 1
    assert profiler.stats("forward").count == 101


def test_events_that_are_not_done_are_left_alone(host, device, monkeypatch):
    monkeypatch.setattr(cuda, "_WAITING_AT_MOST", 2)
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    for _ in range(10):
        with profiler.span("forward"):
            device.queue(1_000_000_000)
    assert device.reads == 0
    assert profiler.stats("forward").device_s == pytest.approx(10, rel=1e-6)


def test_each_device_has_events_of_its_own(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    for _ in range(2):
        for index in (0, 1):
            device.device = index
            with profiler.span(f"on {index}"):
                device.queue(1000 * (index + 1))
        assert profiler.stats("on 1").device_s > profiler.stats("on 0").device_s  # read, and back in the pools


def test_a_span_that_changes_the_device_ends_on_its_own(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    with profiler.span("forward"):
        device.queue(5000)
        device.device = 1
    assert profiler.stats("forward").device_s == pytest.approx(5e-6, abs=1e-7)


def test_weighing_leaves_its_events_to_be_used(host, device, monkeypatch):
    monkeypatch.undo()
    torch = type("torch", (), {"cuda": device})
    monkeypatch.setattr("inferometer.measure.spans.recorder.load_torch", lambda: torch)
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    made = device.events
    for _ in range(50):
        with profiler.span("forward"):
            pass
    assert device.events == made
    assert len(profiler.recording()) == 50


def test_a_long_run_is_placed_by_the_anchor_before(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    for _ in range(5):
        host.pass_ms(1500)
        with profiler.span("forward"):
            device.queue(1000)
    recording = profiler.recording()
    assert abs(recording.device[0] - recording.start).max() < 2000


def test_a_graph_being_captured_is_left_alone(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    device.capturing = True
    with profiler.span("capture"):
        pass
    device.capturing = False
    assert profiler.stats("capture").device_s is None


def test_a_capture_that_begins_inside_a_span_is_left_alone_too(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    with profiler.span("capture"):
        device.capturing = True
    device.capturing = False
    assert profiler.stats("capture").device_s is None


@pytest.mark.parametrize("events", [True, False])
def test_nvtx_ranges_open_and_close_with_the_spans(host, device, events):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=events, nvtx=True))
    with profiler.span("forward"):
        device.capturing = True
        with profiler.span("attention"):
            pass
    assert device.ranges == ["forward", "attention", "/", "/"]
    assert (device.records > 0) == events


def test_device_memory_of_each_span_is_read_once_at_either_end(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda_memory=True))
    statistics = device.statistics
    with profiler.span("forward"):
        device.held, device.most = 100, 900
    assert device.statistics - statistics == 2
    memory = profiler.stats("forward").memory
    assert memory == {"cuda_delta_bytes": 100, "cuda_peak_bytes": 900, "cuda_reserved_bytes": 512,
                      "cuda_grown_bytes": 100, "cuda_mean_bytes": 900}  # fmt: skip
    assert profiler.stats("forward").device_s is None


def test_a_forked_child_leaves_the_device_alone(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True, cuda_memory=True, nvtx=True))
    records, statistics = device.records, device.statistics
    profiler._recorder.forked()
    with profiler.span("load"):
        pass
    assert (device.records, device.statistics, device.ranges) == (records, statistics, [])
    assert profiler.stats("load").count == 1
    assert any("forked from one that uses CUDA" in note for note in profiler.recording().run.notes)


def test_device_time_goes_into_the_trace_and_back(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    with profiler.span("forward"):
        device.queue(7000)
    (span,) = profiler.trace().spans
    assert span.device_s == pytest.approx(7e-6)
    assert span.device_start_ns == profiler.recording().device[0][0]
    again = from_trace(decode(encode(profiler.trace()), Trace))
    assert again.trace().spans == profiler.trace().spans
    assert stats(again, "forward").device_s == profiler.stats("forward").device_s


def test_the_device_has_a_lane_of_its_own_in_the_trace(host, device, tmp_path):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    with profiler.span("forward"):
        device.queue(1000)
    events = json.loads(profiler.export(tmp_path / "trace.json").read_bytes())["traceEvents"]
    lane = next(event["tid"] for event in events if event["args"].get("name") == "device")
    (on_device,) = (event for event in events if event["ph"] == "X" and event["tid"] == lane)
    assert (on_device["name"], on_device["dur"]) == ("forward", 1.0)


def has_cuda():
    if importlib.util.find_spec("torch") is None:
        return False
    return importlib.import_module("torch").cuda.is_available()


@pytest.mark.skipif(has_cuda(), reason="this machine has CUDA")
def test_without_cuda_it_says_so():
    with pytest.raises(MissingDependencyError, match=r"Device time was asked for, and torch .*Measure\(cuda=True\)"):
        Profiler(enabled=True, measure=Measure(cuda=True))


@pytest.mark.skipif(not has_cuda(), reason="no CUDA device here: run benchmarks/cuda_spans.py on a machine with one")
def test_on_a_real_device_a_kernel_takes_longer_than_its_launch():
    torch = importlib.import_module("torch")
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        square @ square
    torch.cuda.synchronize()
    profiler = Profiler(enabled=True, measure=Measure(cuda=True))
    for _ in range(20):
        with profiler.span("matmul", unit="gpu", flops=2 * 8192**3):
            square @ square
    stats = profiler.stats("matmul")
    assert stats.device_s > stats.total_s
    assert 1e14 < stats.flops / stats.device_s < 1e15
