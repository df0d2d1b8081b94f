"""A shipped calibration serves the machine at hand where core, count and engine are the same, and says what differs."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from inferometer.core.machine import MachineFacts
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.known.machine.detect import detect_host
from inferometer.known.machine.detect.host import Cpu
from inferometer.known.machine.local import device_of_host
from inferometer.predict.basis.calibrations import WIDER_THREADS, WIDER_VERSION, HostSetup, calibration_for, for_threads
from inferometer.predict.basis.roof import machine_roof, with_roof
from inferometer.predict.basis.same_core import WIDER_CORE, WIDER_MACHINE, _what_differs, shipped_for
from inferometer.predict.options import Options
from inferometer.predict.question import Question

ROW = "arm-neoverse-n1-2-cores"
SHIPPED = calibration_for(ROW, "onnxruntime", "f32").calibration
HERE = Cpu(model="Neoverse-N1", architecture="arm64", physical_cores=2)
LOCAL = device_of_host(replace(detect_host(), cpu=HERE, board=None), date="2026-11-17")
MACHINE = MachineFacts(
    id="another", cpu="Neoverse-N1", architecture="arm64", usable_cpus=2, logical_cores=2,
    memory_bytes=int(SHIPPED.environment["memory_bytes"]),
)  # fmt: skip
SETUP = HostSetup(versions=SHIPPED.versions, threads=2)


def chosen(machine=MACHINE, setup=SETUP, on=LOCAL, runtime="onnxruntime", dtype="f32"):
    return shipped_for(on, runtime, dtype, setup, machine)


def wider(choice):
    """By what factor what whole steps are off by has grown."""
    return choice.calibration.residuals["step.forward"] / SHIPPED.residuals["step.forward"]


@pytest.fixture
def here(monkeypatch):
    """This machine is one of two Neoverse-N1 cores, where nobody calibrated."""
    monkeypatch.setattr("inferometer.known.machine.detect.identity.this_machine", lambda: MACHINE)
    monkeypatch.setattr(
        "inferometer.predict.basis.calibrations.host_setup",
        lambda _, threads=None: replace(SETUP, threads=threads or 2),
    )


def test_a_machine_of_the_same_cores_is_predicted_as_the_calibrated_one_with_a_wider_interval(here):
    there = Question(graph=read("resnet50"), device=device(ROW), runtime="onnxruntime").answer()
    profile = Question(graph=read("resnet50"), device=LOCAL, runtime="onnxruntime").answer()
    assert profile.summary.latency_s == pytest.approx(there.summary.latency_s, rel=0.02)
    assert profile.phase("forward").high_s > 1.1 * there.phase("forward").high_s
    assert profile.judged_by.calibration.device == ROW
    rungs = {op.rung for op in profile.phase("forward").ops if op.kind == "convolution"}
    assert rungs == {f"calibrated on {ROW} on 2026-11-16"}
    assert any("serves it with a wider interval" in note for note in profile.provenance.notes)


def test_one_thread_of_two_computes_half_as_fast_and_is_less_certain(here):
    def seconds(threads):
        asked = Question(
            graph=read("resnet50"), device=LOCAL, runtime="onnxruntime", options=Options(threads=threads)
        ).answer()
        assert asked.judged_by.calibration.device == ROW
        return asked.phase("forward").time_s

    assert 1.7 * seconds(2) < seconds(1) < 2.1 * seconds(2)
    one = chosen(setup=replace(SETUP, threads=1))
    assert one.calibration.threads == 1
    assert wider(one) == pytest.approx(WIDER_MACHINE * WIDER_THREADS)
    assert one.notes[-1].endswith("was made with 2 threads; now there are 1.")


@pytest.mark.parametrize(
    ("machine", "on", "setup", "factor", "told"),
    [
        (replace(MACHINE, id=SHIPPED.environment["machine_id"]), LOCAL, SETUP, 1.0, "on this very machine"),
        (MACHINE, LOCAL, SETUP, WIDER_MACHINE, "is not calibrated on this machine"),
        (
            replace(MACHINE, memory_bytes=8 * 10**9), LOCAL, SETUP, WIDER_MACHINE * WIDER_VERSION,
            "of memory, and this machine 8 GB.",
        ),
        (
            MACHINE, replace(LOCAL, clock_hz=replace(device(ROW).peaks["f32"], value=3e9)), SETUP,
            WIDER_MACHINE * WIDER_VERSION, "runs at 2.5 GHz, and this machine at 3 GHz.",
        ),
        (
            MACHINE, LOCAL, HostSetup(versions={"onnxruntime": "9.9"}, threads=2), WIDER_MACHINE * WIDER_VERSION,
            "now it is 9.9.",
        ),
    ],
)  # fmt: skip
def test_what_differs_is_said_and_widens_the_interval(machine, on, setup, factor, told):
    choice = chosen(machine, setup, on)
    assert wider(choice) == pytest.approx(factor)
    assert told in " ".join(choice.notes)


@pytest.mark.parametrize(
    ("times", "differs"), [(1.0, False), (0.96, False), (1.04, False), (0.94, True), (1.06, True), (2.0, True)]
)
def test_another_clock_is_told_where_it_is_more_than_rounded(times, differs):
    row = device(ROW)
    notes, factor = _what_differs(SHIPPED, row, MACHINE, times * row.core_groups[0].clock_hz)
    plain, once = _what_differs(SHIPPED, row, MACHINE, None)
    assert factor == once * (WIDER_VERSION if differs else 1.0)
    assert any("runs at" in note for note in notes) == differs
    assert not any("runs at" in note for note in plain)


EMERALD = "intel-emerald-rapids-1-vcpu"


@pytest.fixture
def roof(monkeypatch):
    """Matrices are multiplied here at 120 GFLOP/s by all CPUs together."""
    peak = replace(device(ROW).peaks["f32"], value=120e9)
    monkeypatch.setattr(
        "inferometer.predict.basis.same_core.machine_roof", lambda _: SimpleNamespace(peaks={"f32": peak})
    )


@pytest.mark.parametrize(
    ("changed", "of"),
    [
        ({"cpu": "Neoverse-V2"}, ROW),
        ({"usable_cpus": 8, "logical_cores": 8}, ROW),
        ({"cpu": None}, ROW),
        ({"architecture": "x86-64"}, EMERALD),
        # a name that hypervisors give to many cores is that of none
        ({"cpu": "Intel(R) Xeon(R) Processor", "architecture": "x86-64"}, EMERALD),
    ],
)
def test_other_cores_of_the_architecture_reach_its_shares_of_what_matrices_take_here(roof, changed, of):
    choice = chosen(replace(MACHINE, **changed), setup=HostSetup())
    made = calibration_for(of, "onnxruntime", "f32").calibration
    assert choice.calibration.device == of
    assert choice.calibration.peaks["f32"].value == pytest.approx(120e9)
    faster = 120e9 / device(of).peaks["f32"].value
    stream = choice.calibration.bandwidths["stream.dram"].value / made.bandwidths["stream.dram"].value
    assert stream == pytest.approx(faster), "memory counts as much more as arithmetic does"
    assert choice.calibration.residuals["step.forward"] == WIDER_CORE * made.residuals["step.forward"]
    assert f"what it reached on {of}, of the same architecture" in choice.notes[0]


def test_a_thread_of_another_core_has_its_part_of_the_machine(roof):
    one = chosen(replace(MACHINE, cpu="Neoverse-V2"), setup=HostSetup(threads=1)).calibration
    assert (one.threads, one.peaks["f32"].value) == (1, pytest.approx(60e9))


@pytest.mark.parametrize(
    ("changed", "dtype", "runtime"),
    [
        ({"usable_cpus": 9, "logical_cores": 9}, "f32", "onnxruntime"),  # too many for what was seen of two
        ({"cpu": "Neoverse-V2"}, "i8", "onnxruntime"),  # which products of bytes it has, nobody knows
        ({"architecture": "riscv64"}, "f32", "onnxruntime"),
        ({"cpu": "Neoverse-V2"}, "f32", "mnn"),  # which nobody calibrated
    ],
)
def test_what_another_core_says_nothing_of_is_left_to_the_priors(roof, changed, dtype, runtime):
    assert chosen(replace(MACHINE, **changed), HostSetup(), runtime=runtime, dtype=dtype).calibration is None


def test_an_engine_that_is_built_once_for_all_cores_serves_another_core_in_bytes_too(roof):
    """Whatever products of bytes the core has, the package does not use them: only its f32 tells how much faster."""
    choice = chosen(replace(MACHINE, cpu="Neoverse-V2"), HostSetup(threads=2), runtime="llamacpp", dtype="q8_0")
    made = calibration_for(ROW, "llamacpp", "q8_0").calibration
    faster = choice.calibration.peaks["f32"].value / device(ROW).peaks["f32"].value
    assert choice.calibration.peaks["i8"].value == pytest.approx(faster * device(ROW).peaks["i8"].value)
    assert choice.calibration.residuals["step.decode"] == WIDER_CORE * made.residuals["step.decode"]


def test_shares_of_another_machine_are_not_taken_of_this_ones_peak_in_bytes(roof):
    """The other machine states no peak in bytes, so its shares are of f32, whatever this one multiplies bytes with."""
    own = with_roof(LOCAL, machine_roof(LOCAL)).peaks
    made = calibration_for("intel-emerald-rapids-1-vcpu", "llamacpp", "q8_0").calibration
    asked = Question(
        graph=read("smollm2-135m"), device=LOCAL, runtime="llamacpp", calibration=made, roof=machine_roof(LOCAL)
    )
    assert "i8" in own
    assert "i8" not in asked.basis().device.peaks


def test_an_engine_by_weights_takes_the_nearest_format_and_one_that_nobody_calibrated_has_none():
    choice = chosen(runtime="llamacpp", dtype="q5_0", setup=HostSetup(threads=2))
    assert choice.calibration.dtype in {"q4_0", "q8_0"}
    assert "There is no calibration of q5_0 weights" in choice.notes[-1]
    assert chosen(runtime="mnn").calibration is None


def test_the_same_question_has_the_same_calibration_object():
    assert chosen().calibration is chosen().calibration


def test_a_calibration_of_this_machines_own_is_scaled_to_the_threads_asked_for():
    own = for_threads(replace(SHIPPED, device="local"), 1)
    assert own.peaks["f32"].value == SHIPPED.peaks["f32"].value / 2
    assert (own.threads, own.bandwidths) == (1, SHIPPED.bandwidths)
    assert for_threads(SHIPPED, 2) is SHIPPED
