"""Engines on a CPU: what is refused, who disturbs, the ceilings of decoders, and a whole job with a fake engine."""

from __future__ import annotations

from dataclasses import replace
from math import isclose
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from inferometer.core.device import Device, Memory
from inferometer.core.errors import DomainError, EngineError, MissingDependencyError
from inferometer.core.workload import Workload
from inferometer.engines.base import Capabilities, Kernel, Missing, Ready
from inferometer.known import device
from inferometer.measure.bench.loop import Disturbance
from inferometer.measure.calibrate.engines import ProbedEngine, disturbed_by, engine_provider, require_quiet_machine
from inferometer.measure.calibrate.job import (
    CalibrationJob,
    calibration_threads,
    default_calibration_runtime,
    default_dtype,
    prepare_engine,
)
from inferometer.measure.calibrate.probes import decoders as probe_decoders
from inferometer.measure.calibrate.probes.decoders import PhaseTimes, decoder_provider
from inferometer.measure.calibrate.probes.models import read_probes
from inferometer.measure.calibrate.probes.points import price_probe
from inferometer.measure.calibrate.probes.provider import Ceilings, ceiling_runs, with_rates
from inferometer.predict.basis.calibrations import formats_of

if TYPE_CHECKING:
    from pathlib import Path

HERE = Device(name="here", title="Here", vendor="x", unit="cpu", memories=(Memory(level="dram"),))
BUSY = Disturbance(when="during", code="cpu-busy", found="other programs used 50% of all CPUs", remedy="Stop them.")


class FakeGuard:
    """Disturbed where a word says `busy`."""

    def __init__(self, words: str) -> None:
        self.answers = iter(words.split())
        self.marks = 0

    def mark(self) -> int:
        self.marks += 1
        return self.marks

    def since(self, mark: int) -> tuple[Disturbance, ...]:
        assert mark == self.marks, "what came before the last look is no part of this one"
        return (BUSY,) if next(self.answers, "quiet") == "busy" else ()

    def before(self, *, retries: int = 0) -> Any:
        found: tuple[Disturbance, ...] = ()
        for _ in range(retries + 1):
            found = self.since(self.marks)
            if not found:
                break
        return SimpleNamespace(disturbances=found)


# ---- who disturbs ---------------------------------------------------------------------------------------------------


def test_what_disturbed_is_said_once_and_waited_for_longer_each_time():
    pauses: list[float] = []
    look = disturbed_by(FakeGuard("busy busy quiet busy"), sleep=pauses.append)
    assert [look() for _ in range(4)] == [BUSY.found, BUSY.found, None, BUSY.found]
    assert pauses == [2.0, 4.0, 2.0]


def test_a_machine_that_calms_down_is_taken_and_one_that_does_not_is_refused_with_the_reason():
    require_quiet_machine(FakeGuard("busy busy"), looks=3)
    with pytest.raises(EngineError, match="not quiet: other programs used 50%") as refused:
        require_quiet_machine(FakeGuard("busy " * 9), looks=3)
    assert refused.value.remedy == "Stop them."


# ---- defaults -------------------------------------------------------------------------------------------------------


def test_what_is_calibrated_where_nothing_is_said():
    gpu = device("nvidia-h200")
    assert (default_calibration_runtime(gpu), default_calibration_runtime(HERE)) == ("torch-compile", "onnxruntime")
    assert default_dtype(gpu, "torch-compile") == "bf16"
    assert default_dtype(HERE, "onnxruntime") == "f32"
    assert default_dtype(HERE, "llamacpp") == "q8_0"
    assert calibration_threads(gpu, None) is None
    assert calibration_threads(HERE, 3) == 3
    assert (calibration_threads(HERE, None) or 0) >= 1
    with pytest.raises(DomainError, match="1 or more"):
        calibration_threads(HERE, 0)


def test_another_number_of_threads_has_a_journal_of_its_own(tmp_path: Path):
    one, two = (
        CalibrationJob(device=HERE, runtime="onnxruntime", dtype="f32", budget_s=9.0, folder=tmp_path, threads=threads)
        for threads in (1, 2)
    )
    assert one.journal.folder != two.journal.folder


def test_a_unit_without_probes_is_refused(tmp_path: Path):
    npu = replace(HERE, unit="npu")
    job = CalibrationJob(device=npu, runtime="onnxruntime", dtype="f32", budget_s=9.0, folder=tmp_path)
    with pytest.raises(DomainError, match="onnxruntime on a npu has no probes"):
        prepare_engine(job)


# ---- what an engine must be -----------------------------------------------------------------------------------------


class FakeRuntime:
    name, title, formats = "onnxruntime", "A fake engine", frozenset({"onnx"})
    capabilities = Capabilities()
    answer: Any = Ready(version="1")

    def probe(self) -> Any:
        return self.answer


def engine(tmp_path: Path, runtime: Any, dtype: str = "f32") -> ProbedEngine:
    return ProbedEngine(runtime=runtime, device=HERE, dtype=dtype, threads=1, journal=tmp_path, folder=tmp_path)


def test_an_engine_that_is_not_installed_says_how_to_get_it(tmp_path: Path):
    runtime = FakeRuntime()
    runtime.answer = Missing(reason="it is not installed", remedy="pip install it")
    with pytest.raises(MissingDependencyError, match="not installed"):
        engine_provider(engine(tmp_path, runtime))


def test_probes_that_take_arrays_are_made_in_one_format(tmp_path: Path):
    with pytest.raises(DomainError, match="calibrated in bf16: its probe models are in f32"):
        engine_provider(engine(tmp_path, FakeRuntime(), "bf16"))


# ---- decoders -------------------------------------------------------------------------------------------------------


class FakeDecoder(FakeRuntime):
    name, formats = "llamacpp", frozenset({"gguf"})


RATE = 2e9


def ran_at_one_rate(provider: Any, probe: Any, run: Any) -> list[PhaseTimes]:
    """Every op of a prompt at so many operations and bytes a second."""
    ran = PhaseTimes(phase="prefill", seconds=1.0, query=run.prompt or 1, context=0, runs=3, steady=3)
    works = provider.priced(probe_decoders.graph_of(probe), ran, weights=provider.weights).works
    kernels = tuple(
        Kernel(name=name, kind="x", samples_s=(max(work.axes["flops"], work.axes["bytes"]) / RATE,), layers=(name,))
        for name, work in works.items()
        if work.launches
    )
    return [replace(ran, seconds=sum(kernel.samples_s[0] for kernel in kernels), kernels=kernels)]


@pytest.fixture
def fake_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Decoders that nothing is written for; the names of those that ran."""
    ran: list[str] = []

    def runs(provider: Any, probe: Any, run: Any) -> list[PhaseTimes]:
        ran.append(probe.name)
        return ran_at_one_rate(provider, probe, run)

    made = {probe.name: probe_decoders.graph_of(probe) for probe in read_probes() if probe.kind == "decoder"}
    monkeypatch.setattr(probe_decoders.DecoderProvider, "runs", runs)
    monkeypatch.setattr(probe_decoders.DecoderProvider, "_file", lambda _self, probe, _run: probe.name)
    monkeypatch.setattr(probe_decoders, "_read", lambda name: made[name])
    return ran


def test_decoders_have_a_ceiling_of_their_own_in_the_arithmetic_of_their_weights(tmp_path: Path, fake_runs: list[str]):
    first = decoder_provider(FakeDecoder(), HERE, "q8_0", journal=tmp_path, threads=1, folder=tmp_path)
    assert set(fake_runs) == {probe.name for probe, _ in ceiling_runs(read_probes(), writes=True)}
    assert {name: float(peak) for name, peak in first.device.peaks.items()}.keys() == {"f32", "i8"}
    assert isclose(float(first.device.peaks["i8"]), RATE, rel_tol=0.01)
    fake_runs.clear()
    again = decoder_provider(FakeDecoder(), HERE, "q8_0", journal=tmp_path, threads=1, folder=tmp_path)
    assert not fake_runs, "those beside the journal are taken"
    assert again.device == first.device
    decoder_provider(FakeDecoder(), HERE, "q4_0", journal=tmp_path, threads=1, folder=tmp_path)
    assert fake_runs, "another format of weights has other ceilings"


def test_a_rated_device_keeps_its_rates(tmp_path: Path, fake_runs: list[str]):
    rates = Ceilings(flop_per_s=1e11, bytes_per_s=2e10, dtype="f32", threads=1, source="a test", date="2026-11-15")
    made = decoder_provider(FakeDecoder(), with_rates(HERE, rates), "f16", journal=tmp_path, threads=1, folder=tmp_path)
    assert float(made.device.peaks["f32"]) == 1e11
    assert not fake_runs


def test_a_decoder_is_a_candidate_for_every_workload_and_says_its_shape(tmp_path: Path, fake_runs: list[str]):
    made = decoder_provider(FakeDecoder(), HERE, "q8_0", journal=tmp_path, threads=1, folder=tmp_path)
    found = {each.key: each for each in made.candidates()}
    assert len(found) == sum(len(probe.runs) for probe in read_probes() if probe.kind == "decoder")
    deep = found["probe-decoder-384 q8_0 1 x 288 tokens + 1200"]
    assert deep.axes["rows"] == 288
    assert deep.floor_s > 0
    assert deep.seconds > found["probe-decoder-384 q8_0 1 x 24 tokens + 64"].seconds
    assert found["probe-tiny-decoder q8_0 1 x 4 tokens + 8"].first
    assert made.measure(deep).points
    assert fake_runs[-1] == "probe-decoder-384"


def test_a_file_that_is_read_gives_the_format_and_a_config_is_told_it():
    rates = Ceilings(flop_per_s=1e11, bytes_per_s=2e10, dtype="f32", threads=1, source="a test", date="2026-11-15")
    probe = next(each for each in read_probes() if each.name == "probe-decoder-384")
    sizes = {"batch": 1, "query": 8, "context": 0, "logits": 1}
    heavy, light = (
        price_probe(
            probe_decoders.graph_of(probe), with_rates(HERE, rates), "llamacpp", sizes=sizes, phase="prefill",
            workload=Workload(precision=formats_of("llamacpp", weights)),
        ).works["layers.0.mlp.up_proj"]
        for weights in ("f16", "q4_0")
    )  # fmt: skip
    assert isclose(heavy.axes["weight_bytes"] / light.axes["weight_bytes"], 16 / 4.5)
