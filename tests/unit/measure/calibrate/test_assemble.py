from dataclasses import replace

import pytest
from click.testing import CliRunner

from inferometer.cli.commands.calibrate import command
from inferometer.core.errors import DomainError
from inferometer.core.workload import Precision, Workload
from inferometer.formats.huggingface import graph_from_config
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.assemble import (
    assemble_calibration,
    at_reached_peak,
    best_rates,
    overheads_of,
)
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint, measured_point, overhead
from inferometer.measure.calibrate.fitting.single import linear, vector, work_of_single
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.measure.calibrate.job import CalibrationJob, PreparedEngine, calibrate
from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate
from inferometer.predict.answer import predict_graph
from inferometer.predict.basis.calibrations import calibration_for
from inferometer.predict.basis.files import content_hash
from inferometer.understand.view.calibrations import calibration_table

H200 = device("nvidia-h200")
KERNEL = 1e-6
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 8192,
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip


def subject(**given):
    values = {"device": H200, "runtime": require_effects("torch-graph"), "dtype": "bf16", "created": "2026-11-15"}
    return CalibrationSubject(**values | given)


def points(share=0.5):
    """Products and sums that reach half of their peaks, and kernels of a microsecond."""
    singles = [linear(rows, size, size) for rows in (1, 16, 256, 4096) for size in (512, 1024, 2048, 4096)]
    singles += [vector("elementwise", 2**power, inputs=2) for power in range(12, 26, 2)]
    found = [overhead("kernel", KERNEL, dtype="bf16", probe="o")]
    for single in singles:
        work = work_of_single(single, H200, runtime="torch-graph", dtype="bf16")
        found.append(
            measured_point(work, KERNEL * work.launches + work.floor_s / share, dtype="bf16", probe=single.op.name)
        )
    return found


def step(seconds=1e-3, **given):
    values = {"model": "probe", "phase": "decode", "seconds": seconds, "dtype": "bf16", "config": CONFIG, "batch": 1}
    return StepPoint(**values | {"context": 512} | given)


def decode_s(calibration, context=512):
    graph = graph_from_config(CONFIG, name="probe")
    workload = Workload(batch=1, prompt=1, context=context, precision=Precision(weights="bf16", activations="bf16"))
    return predict_graph(graph, H200, runtime="torch-graph", workload=workload, calibration=calibration).phase("decode")


def test_a_prediction_says_what_the_points_said():
    made = assemble_calibration(subject(), points())
    ops = {op.name: op for op in decode_s(made).ops}
    gate = ops["layers.0.mlp.gate_proj"]
    assert gate.origin == "calibrated"
    each = gate.time_s / gate.count
    assert each == pytest.approx(KERNEL + gate.floor_s / gate.count / 0.5, rel=0.02)


def test_a_calibration_is_sealed_and_says_what_it_holds_for():
    made = assemble_calibration(subject(versions={"torch": "2.11"}), points())
    assert made.content_hash == content_hash(made)
    assert made.points == 24
    assert made.valid["linear"]["rows"] == (1.0, 4096.0)
    assert made.overheads["kernel"].value == KERNEL
    assert made.versions == {"torch": "2.11"}


def test_whole_steps_move_the_prediction_towards_them():
    bare = assemble_calibration(subject(), points())
    truth = 1.2 * decode_s(bare).time_s
    around_s = sum(decode_s(bare).parts.get(part, 0.0) for part in ("write", "read", "between"))  # not of bare steps
    steps = [step(seconds=truth - around_s, model=name) for name in ("probe-a", "probe-b", "probe-c")]
    made = assemble_calibration(subject(), points(), steps)
    assert abs(decode_s(made).time_s / truth - 1) < 0.05 < abs(decode_s(bare).time_s / truth - 1)
    assert made.fitted_on == ("probe-a", "probe-b", "probe-c")
    assert "step.decode" in made.residuals


def test_outside_of_what_was_measured_the_interval_widens_and_says_so():
    made = assemble_calibration(subject(), points())
    narrow = replace(made, tables=tuple(_cut(table) for table in made.tables))
    near, far = decode_s(made), decode_s(narrow)
    assert far.high_s / far.low_s > near.high_s / near.low_s
    graph = graph_from_config(CONFIG, name="probe")
    workload = Workload(batch=1, prompt=1, context=512, precision=Precision(weights="bf16", activations="bf16"))
    told = predict_graph(graph, H200, runtime="torch-graph", workload=workload, calibration=narrow).provenance.notes
    assert any("outside of what was calibrated" in note and "linear" in note for note in told)
    assert any("eight in ten" in note for note in told)


def _cut(table):
    """The table of an axis that ends far below every op."""
    return replace(table, grid=tuple((1e-6,) for _ in table.grid), values=(table.values[0],))


def test_points_of_another_format_are_not_mixed_in():
    with pytest.raises(DomainError, match="No op was measured in f32"):
        assemble_calibration(subject(dtype="f32"), points())


def test_steps_of_another_format_move_nothing():
    own = [step(seconds=2e-4, model=name) for name in ("probe-a", "probe-b", "probe-c")]
    strangers = [replace(each, dtype="f32", seconds=1.0, model=f"{each.model}-wide") for each in own]
    alone = assemble_calibration(subject(), points(), own)
    assert "step.decode" in alone.residuals
    assert assemble_calibration(subject(), points(), [*strangers, *own]) == alone


def test_overheads_are_medians_and_rates_the_best():
    readings = [overhead("host", s, dtype="bf16", probe="o") for s in (1e-6, 2e-6, 9e-6)]
    assert overheads_of(readings) == {"host": 2e-6}
    fast, slow = (
        OpPoint(classes=("linear",), axes={}, seconds=1.0, floor_s=1.0, dtype="f32", probe="p",
              rates={"peak:f32": rate, "bandwidth:dram": 10.0})
        for rate in (5.0, 3.0)
    )  # fmt: skip
    assert best_rates([slow, fast]) == ({"f32": 5.0}, {"dram": 10.0})


class Half:
    """A provider of the points above."""

    def candidates(self):
        return [ProbeCandidate(key=each.op or each.probe, op_class="vector", axes=each.axes) for each in points()]

    def measure(self, candidate):
        found = next(each for each in points() if (each.op or each.probe) == candidate.key)
        return CandidateResult(points=(found,))


def test_a_job_measures_fits_and_writes(tmp_path):
    job = CalibrationJob(device=H200, runtime="torch-graph", dtype="bf16", budget_s=60.0, folder=tmp_path)
    found = calibrate(job, PreparedEngine(provider=Half(), versions={"torch": "2.11"}))
    assert found.path.exists()
    assert found.calibration.versions == {"torch": "2.11"}
    again = calibrate(job, PreparedEngine(provider=Half()))
    assert again.outcome.done == found.outcome.done  # nothing was left to measure
    rows = calibration_table(found.calibration).rows
    assert {"linear", "vector", "overhead: kernel"} <= {row["what"] for row in rows}


def test_an_interrupted_job_writes_nothing_and_keeps_its_journal(tmp_path):
    class Stopped(Half):
        count = 0

        def measure(self, candidate):
            self.count += 1
            if self.count > 5:
                raise KeyboardInterrupt
            return super().measure(candidate)

    job = CalibrationJob(device=H200, runtime="torch-graph", dtype="bf16", budget_s=60.0, folder=tmp_path)
    found = calibrate(job, PreparedEngine(provider=Stopped()))
    assert found.outcome.interrupted
    assert found.path is None
    assert len(job.journal.points()) == 5


def test_the_shipped_calibration_is_found_and_is_one_value():
    first = calibration_for("nvidia-h200", "torch-compile", "bf16").calibration
    assert first is not None
    assert calibration_for("nvidia-h200", "torch-compile", "bf16").calibration is first
    assert calibration_for("nvidia-h200", "torch-compile", "q4_0").calibration is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "nvidia-h2000"], "nvidia-h2000"),
        (["--device", "nvidia-h200", "--unit", "cpu"], "is a gpu"),
        (["--device", "nvidia-h200", "--runtime", "torch-magic"], "torch-magic"),
    ],
)
def test_the_command_refuses_what_cannot_be(tmp_path, arguments, words):
    found = CliRunner().invoke(command, [*arguments, "--folder", str(tmp_path)])
    assert found.exit_code == 1
    assert words in str(found.exception)


def test_a_budget_that_is_no_time_is_refused_by_its_option():
    found = CliRunner().invoke(command, ["--device", "nvidia-h200", "--budget", "many"])
    assert (found.exit_code, "'--budget'" in found.output, "many" in found.output) == (2, True, True)


@pytest.mark.parametrize("found", [1.0, 0.5, 0.25])
def test_a_ceiling_that_was_disturbed_is_raised_to_what_products_reached(found):
    """Products of 0.8 of 100 GFLOP/s beside reads at 10 GB/s; the probe of ceilings found a part of the peak."""
    peak, moved, reached = 100e9, 10e9, 0.8

    def point(rows, size, seconds=None):
        flops, nbytes = 2.0 * rows * size * size, 4.0 * size * size
        computed, read = flops / (found * peak), nbytes / moved
        taken = max(flops / (reached * peak), read)
        return OpPoint(
            classes=("linear",), axes={"flops": flops, "bytes": nbytes, "rows": rows}, seconds=seconds or taken,
            floor_s=max(computed, read), dtype="bf16", probe=f"p{size}",
            rates={"peak:bf16": found * peak, "bandwidth:dram": moved},
        )  # fmt: skip

    given = [point(rows, size) for rows in (1, 512, 1024) for size in range(256, 4352, 256)]
    given.append(point(1024, 512, seconds=1e-9))  # timed too short by far: it raises nothing
    bare = replace(H200, peaks={"bf16": replace(H200.peaks["bf16"], value=found * peak)})
    whose, raised = at_reached_peak(subject(device=bare, reached=True), given)
    expected = max(found, reached) * peak
    assert whose.device.peaks["bf16"].value == pytest.approx(expected)
    for each in raised:
        assert each.rates["peak:bf16"] == pytest.approx(expected)
        flops, nbytes = each.axes["flops"], each.axes["bytes"]
        assert each.floor_s == pytest.approx(max(flops / expected, nbytes / moved))
        assert each.floor_s <= each.seconds * 1.000001 or each.seconds == 1e-9
