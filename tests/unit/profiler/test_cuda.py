"""Device time by events, on a torch that is only acted: placed on the host's clock, read late, never waited for."""

import importlib
import importlib.util

import pytest

from inferometer.errors import MissingDependencyError
from inferometer.profiler import Measure, Profiler, cuda
from unit.profiler.clocks import Manual


class ActedEvent:
    def __init__(self, device):
        self._device, self.at = device, None

    def record(self):
        self.at = self._device.queue()

    def synchronize(self):
        self._device.waits += 1
        self._device.host.now = max(self._device.host.now, self.at)

    def query(self):
        return self.at <= self._device.host.now

    def elapsed_time(self, other):
        assert self.query(), "an event was read before it was done"
        assert other.query(), "an event was read before it was done"
        return (other.at - self.at) / 1e6


class ActedCuda:
    """A device that works off a queue: a kernel starts when the one before is done, and the host goes on at once."""

    def __init__(self, host):
        self.host, self.busy_until, self.waits = host, 0, 0
        self.capturing = False
        self.ranges = []
        self.nvtx = self
        self.held = self.most = 0

    def queue(self, work_ns=0):
        self.busy_until = max(self.busy_until, self.host.now) + work_ns
        return self.busy_until

    def Event(self, *, enable_timing):  # noqa: N802 - torch's name
        assert enable_timing
        return ActedEvent(self)

    def synchronize(self, _device=None):
        self.waits += 1
        self.host.now = max(self.host.now, self.busy_until)

    def current_device(self):
        return 0

    def is_available(self):
        return True

    def is_current_stream_capturing(self):
        return self.capturing

    def range_push(self, name):
        self.ranges.append(name)

    def range_pop(self):
        self.ranges.append("/")

    def memory_allocated(self):
        return self.held

    def max_memory_allocated(self):
        return self.most

    def memory_reserved(self):
        return 512

    def reset_peak_memory_stats(self):
        self.most = self.held


@pytest.fixture
def host():
    return Manual()


@pytest.fixture
def device(host, monkeypatch):
    torch = type("torch", (), {"cuda": ActedCuda(host)})
    monkeypatch.setattr("inferometer.profiler.recorder.load_torch", lambda: torch)
    monkeypatch.setattr("inferometer.profiler.recorder.span_cost_s", lambda *_, **__: 1e-6)
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


def test_events_are_read_and_used_again_in_a_long_run(host, device, monkeypatch):
    monkeypatch.setattr(cuda, "_WAITING_AT_MOST", 8)
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    events = profiler._recorder._device
    for _ in range(200):
        with profiler.span("forward"):
            device.queue(1000)
        host.pass_ms(1)
    assert len(events._waiting) <= 9
    assert len(events._free) < 30
    assert profiler.stats("forward").device_s == pytest.approx(200e-6, rel=1e-2)


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


def test_nvtx_ranges_open_and_close_with_the_spans(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True, nvtx=True))
    with profiler.span("forward"), profiler.span("attention"):
        pass
    assert device.ranges == ["forward", "attention", "/", "/"]


def test_device_memory_of_each_span(host, device):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    with profiler.span("forward"):
        device.held, device.most = 100, 900
    memory = profiler.stats("forward").memory
    assert memory == {"cuda_delta_bytes": 100, "cuda_peak_bytes": 900, "cuda_reserved_bytes": 512}


def test_the_device_has_a_lane_of_its_own_in_the_trace(host, device, tmp_path):
    profiler = Profiler(enabled=True, clock=host, measure=Measure(cuda=True))
    with profiler.span("forward"):
        device.queue(1000)
    assert b'"name": "device"' in profiler.export(tmp_path / "trace.json").read_bytes()


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
