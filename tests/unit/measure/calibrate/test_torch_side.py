"""The edge to torch, with a torch that is made up: clocks, captured graphs, shared devices, cases that cannot be."""

import contextlib
from types import SimpleNamespace

import pytest

from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.known import device
from inferometer.measure.calibrate.job import CalibrationJob, prepare_engine
from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate, Together
from inferometer.measure.calibrate.torch.kernels import torch_dtype
from inferometer.measure.calibrate.torch.provider import _Careful, now_and_then, others_on, require_cuda
from inferometer.measure.calibrate.torch.timing import Clock


class FakeCuda:
    """A device whose kernels take time on a clock of its own; capturing a call records it."""

    def __init__(self, *, free=140e9, total=141e9, there=True):
        self.now, self.free, self.total, self.there, self.captures = 0.0, free, total, there, 0

    def is_available(self):
        return self.there

    def synchronize(self):
        pass

    def empty_cache(self):
        pass

    def mem_get_info(self):
        return self.free, self.total

    def memory_reserved(self):
        return 0

    def Stream(self):  # noqa: N802 - torch's own name
        return SimpleNamespace(wait_stream=lambda _: None)

    current_stream = Stream

    def stream(self, _):
        return contextlib.nullcontext()

    def CUDAGraph(self):  # noqa: N802 - as above
        return SimpleNamespace(replay=lambda: setattr(self, "now", self.now + 2e-3))

    def graph_pool_handle(self):
        return (0, 1)

    def get_sync_debug_mode(self):
        return 0

    def set_sync_debug_mode(self, _):
        pass

    @contextlib.contextmanager
    def graph(self, _, *, pool):
        assert pool == self.graph_pool_handle()
        self.captures += 1
        yield

    def Event(self, *, enable_timing):  # noqa: N802 - as above
        assert enable_timing
        event = SimpleNamespace(at=0.0)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda other: 1e3 * (other.at - event.at)
        return event


def clock(cuda, **given):
    return Clock(torch=SimpleNamespace(cuda=cuda), now=lambda: cuda.now, **given)


def test_a_replayed_graph_is_timed_on_the_device():
    cuda = FakeCuda()
    found = clock(cuda, limit_s=1.0).replayed(lambda: setattr(cuda, "now", cuda.now + 1e-2), calls=4)
    assert found.seconds == pytest.approx(2e-3 / 4)  # the replay's 2 ms, not the 10 ms of a plain call
    assert found.runs > 3
    assert cuda.captures == 1


def test_a_case_that_is_too_slow_is_run_no_further():
    cuda, calls = FakeCuda(), []

    def slow():
        calls.append(1)
        cuda.now += 30.0

    found = clock(cuda, limit_s=2.0).replayed(slow)
    assert (found.seconds, found.runs, len(calls), cuda.captures) == (30.0, 1, 2, 0)


def test_a_slow_first_call_is_only_warming_up():
    cuda, calls = FakeCuda(), []

    def compiled():
        calls.append(1)
        cuda.now += 20.0 if len(calls) == 1 else 1e-3

    assert clock(cuda, limit_s=2.0).wall(compiled).seconds == pytest.approx(1e-3)


def test_without_cuda_a_call_is_timed_plainly():
    cuda = FakeCuda()
    found = clock(cuda, limit_s=1.0, place="cpu").replayed(lambda: setattr(cuda, "now", cuda.now + 1e-2), calls=2)
    assert found.seconds == pytest.approx(5e-3)
    assert cuda.captures == 0


def test_a_gpu_whose_memory_others_hold_is_shared():
    torch = SimpleNamespace(cuda=FakeCuda(free=60e9))
    assert "81.0 GB" in others_on(torch)


def test_processes_that_the_driver_lists_are_told(monkeypatch):
    monkeypatch.setattr("inferometer.measure.calibrate.torch.provider.which", lambda _: "/usr/bin/nvidia-smi")
    torch = SimpleNamespace(cuda=FakeCuda())

    def listed(text):
        return lambda *_, **__: SimpleNamespace(stdout=text)

    assert others_on(torch, run=listed("10, 500 MiB\n")) is None  # our own
    assert "2 processes" in others_on(torch, run=listed("10, 500 MiB\n11, 900 MiB\n"))

    def missing(*_, **__):
        raise OSError

    assert others_on(torch, run=missing) is None


def test_the_driver_is_not_asked_all_the_time():
    times, looks = iter([0.0, 5.0, 11.0, 11.0, 12.0]), []
    look = now_and_then(lambda: looks.append(1) or "busy", 10.0, lambda: next(times))
    assert [look(), look(), look()] == [None, "busy", None]
    assert len(looks) == 1


def test_no_gpu_is_an_error_that_says_what_to_do():
    with pytest.raises(EngineError, match="no CUDA device"):
        require_cuda(SimpleNamespace(cuda=FakeCuda(there=False)))


class Provider:
    def __init__(self, key, error=None):
        self.key, self.error = key, error

    def candidates(self):
        return [ProbeCandidate(key=self.key, op_class="linear")]

    def measure(self, candidate):
        if self.error:
            raise self.error
        return CandidateResult(runs=len(candidate.key))


def test_providers_together_measure_each_its_own():
    both = Together(Provider("a"), Provider("bb"))
    assert [both.measure(each).runs for each in both.candidates()] == [1, 2]


def test_what_torch_cannot_run_leaves_out_one_case():
    failing = _Careful(Provider("a", RuntimeError("CUDA out of memory.\nmore")), clock(FakeCuda()))
    with pytest.raises(EngineError, match=r"torch cannot run it: CUDA out of memory\."):
        failing.measure(failing.candidates()[0])


def test_a_format_that_torch_has_no_kernels_for_is_refused():
    with pytest.raises(DomainError, match="q4_0 cannot be calibrated"):
        torch_dtype(SimpleNamespace(), "q4_0")


def test_a_budget_that_measures_nothing_is_refused(tmp_path):
    with pytest.raises(DomainError, match="measures nothing"):
        CalibrationJob(
            device=device("nvidia-h200"), runtime="torch-compile", dtype="bf16", budget_s=0.0, folder=tmp_path
        )


def test_a_runtime_that_is_not_known_is_named(tmp_path):
    job = CalibrationJob(
        device=device("nvidia-h200"), runtime="torch-magic", dtype="bf16", budget_s=9.0, folder=tmp_path
    )
    with pytest.raises(UnknownNameError, match="torch-magic"):
        prepare_engine(job)
