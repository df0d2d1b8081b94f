import gzip
import json

import pytest

from inferometer.core.errors import FormatError
from inferometer.engines.torch import results
from inferometer.engines.torch.results import _short
from unit.engines.results.sources import DATA, only, parsed, taken, times, written


def trace(*events, **more):
    return {"schemaVersion": 1, "traceEvents": list(events), **more}


def span(category, name, start, duration, *, thread=7, process=9, **args):
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": start, "dur": duration,
        "args": {key.replace("_", " "): value for key, value in args.items()},
    }  # fmt: skip


def test_an_op_inside_another_is_counted_once():
    # Steps of 200 and 120 µs: linear 100 and 60, of which addmm 80 and 50; relu 20.5 and 10.5.
    forward = only("torch_cpu.json").phase("forward")
    assert times(forward) == pytest.approx({"aten::linear": 15, "aten::addmm": 65, "aten::relu": 15.5}, rel=1e-4)
    assert forward.samples_s == pytest.approx((200e-6, 120e-6))
    assert forward.unattributed_s == pytest.approx(64.5e-6, rel=1e-4)
    assert forward.ops[1].samples_s == pytest.approx((80e-6, 50e-6), rel=1e-4)


def test_python_frames_are_no_ops():
    assert not any("Module" in op.name for op in only("torch_cpu.json").phase("forward").ops)


def test_a_kernel_belongs_to_the_op_that_launched_it():
    forward = only("torch_gpu.json").phase("forward")
    ops = {op.name: op for op in forward.ops}
    assert ops["aten::addmm"].device_s == pytest.approx(60e-6)  # by its external id
    assert ops["aten::relu"].device_s == pytest.approx(5e-6)  # by the correlation of the call inside relu
    assert ops["aten::addmm"].kernel == "cutlass::Kernel2"
    assert ops["aten::linear"].device_s is None
    assert {name: op.unit for name, op in ops.items()} == {
        "aten::linear": "cpu", "aten::addmm": "gpu", "aten::relu": "gpu", "aten::item": "cpu",
    }  # fmt: skip


def test_an_op_takes_the_longer_of_host_and_device_and_waiting_is_nobodys():
    # addmm: 20 µs on the host, 60 on the device. relu: 10 and 5. linear: 30 − 20. item: 50, of which 48 wait.
    forward = only("torch_gpu.json").phase("forward")
    assert times(forward) == pytest.approx({"aten::linear": 10, "aten::addmm": 60, "aten::relu": 10, "aten::item": 2})
    assert forward.clocks == pytest.approx({"host": 42e-6, "device": 65e-6, "wait": 48e-6})
    assert forward.unattributed_s == pytest.approx(18e-6)


def test_the_device_is_the_one_that_kernels_ran_on():
    assert only("torch_gpu.json").device.name == "NVIDIA H200"
    assert only("torch_cpu.json").device.name == "unknown"


def test_a_packed_trace_is_read_alike(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress((DATA / "torch_gpu.json").read_bytes()))
    (profile,) = taken(path)
    assert profile.phases == only("torch_gpu.json").phases


def test_without_steps_the_annotation_with_the_most_time_marks_the_runs(tmp_path):
    events = [
        span("user_annotation", "setup", 0, 5),
        span("cpu_op", "aten::zeros", 1, 3),
        *(span("user_annotation", "forward", start, 100) for start in (100, 300)),
        *(span("cpu_op", "aten::mm", start, 60) for start in (110, 310)),
        span("cpu_op", "aten::print", 450, 5),
    ]
    (profile,) = taken(written(tmp_path, trace(*events)))
    assert profile.phase("forward").samples_s == pytest.approx((100e-6, 100e-6))
    assert times(profile.phase("forward")) == {"aten::mm": 60}


def test_without_any_mark_the_whole_trace_is_one_run_and_is_told_so(tmp_path):
    events = [span("cpu_op", "aten::mm", 10, 60), span("cpu_op", "aten::mm", 80, 20)]
    (profile,) = taken(written(tmp_path, trace(*events)))
    forward = profile.phase("forward")
    assert forward.time_s == pytest.approx(90e-6)
    assert (forward.ops[0].count, times(forward)) == (2, {"aten::mm": 80})
    assert any("one run" in note for note in profile.provenance.notes)


def test_annotations_that_contain_each_other_mark_nothing(tmp_path):
    events = [
        span("user_annotation", "block", 0, 100), span("user_annotation", "block", 10, 50),
        span("cpu_op", "aten::mm", 20, 30),
    ]  # fmt: skip
    (profile,) = taken(written(tmp_path, trace(*events)))
    assert profile.phase("forward").time_s == pytest.approx(30e-6)


def test_a_kernel_without_a_known_caller_goes_by_its_own_name(tmp_path):
    events = [span("kernel", "void my::kernel<int, 4>(float*)", 10, 7, process=0, device=0)]
    (profile,) = taken(written(tmp_path, trace(*events)))
    (op,) = profile.phase("forward").ops
    assert (op.name, op.unit, op.count) == ("my::kernel", "gpu", 1)


def test_kernels_launched_in_one_step_and_run_in_the_next_belong_to_the_first(tmp_path):
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 50), span("user_annotation", "ProfilerStep#2", 50, 50),
        span("cpu_op", "aten::mm", 10, 10, External_id=1),
        span("kernel", "gemm", 60, 30, process=0, External_id=1),
    ]  # fmt: skip
    (profile,) = taken(written(tmp_path, trace(*events)))
    assert profile.phase("forward").ops[0].samples_s == pytest.approx((30e-6, 0))


def test_kernels_on_two_streams_overlap_and_nothing_is_said_to_be_left_over(tmp_path):
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 50),
        *(span("kernel", f"k{stream}", 0, 45, process=0, thread=stream) for stream in (7, 8)),
    ]
    (profile,) = taken(written(tmp_path, trace(*events)))
    assert profile.phase("forward").unattributed_s is None


def test_a_compiled_region_tells_torch_compile(tmp_path):
    eager = parsed("torch_cpu.json")
    assert only("torch_cpu.json").runtime == "torch-eager"
    eager["traceEvents"].append(span("cpu_op", "Torch-Compiled Region: 0/0", 3864444463005.0, 1))
    (profile,) = taken(written(tmp_path, eager))
    assert profile.runtime == "torch-compile"


@pytest.mark.parametrize("wrong", [-1, "x", float("nan"), None, {}])
def test_a_duration_that_cannot_be_is_named(tmp_path, wrong):
    event = span("cpu_op", "aten::mm", 10, 60)
    with pytest.raises(FormatError, match="`dur` of event 0"):
        taken(written(tmp_path, json.dumps(trace({**event, "dur": wrong}))))


def test_a_trace_of_annotations_alone_is_no_profile(tmp_path):
    with pytest.raises(FormatError, match="No importer knows"):
        taken(written(tmp_path, trace(span("user_annotation", "forward", 0, 5))))


def test_a_kernel_is_called_by_its_function_and_one_without_a_name_by_all_of_it():
    assert _short("void at::native::gemm<float, 4>(float*)") == "at::native::gemm"
    assert (_short("relu(int)"), _short("void "), _short("<lambda>(int)")) == ("relu", "void ", "<lambda>(int)")


def test_an_op_is_called_by_the_kernel_that_took_most_of_all_its_runs():
    def run(host, device, calls, **kernels):
        return results._Op(host=host, device=device, calls=calls, kernels=kernels)

    made = results._op("aten::mm", [run(5.0, 8.0, 2, a=5.0, b=3.0), run(9.0, 6.0, 3, b=4.0), run(1.0, 0.0, 1, c=6.0)])
    assert (made.kernel, made.count, made.unit) == ("b", 3, "gpu"), "3 and 4 µs, against 5 and 6"
    assert (made.samples_s, made.time_s) == (pytest.approx((8e-6, 9e-6, 1e-6)), pytest.approx(6e-6))
    assert made.device_s == pytest.approx(14e-6 / 3)
    alone = results._op("aten::mm", [run(5.0, 0.0, 0)])
    assert (alone.kernel, alone.count, alone.unit, alone.device_s, alone.samples_s) == (None, 1, "cpu", None, None)
