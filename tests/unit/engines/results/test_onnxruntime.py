import json

import pytest

from inferometer.core.errors import FormatError
from unit.engines.results.sources import only, parsed, taken, times, written


@pytest.fixture
def events():
    return parsed("onnxruntime.json")


def test_the_first_run_is_a_phase_of_its_own_and_the_others_are_samples():
    profile = only("onnxruntime.json")
    assert [phase.name for phase in profile.phases] == ["load", "first_run", "forward"]
    first, forward = profile.phases[1:]
    assert first.time_s == pytest.approx(3100e-6)
    assert forward.samples_s == pytest.approx((700e-6, 740e-6))
    assert forward.time_s == pytest.approx(720e-6)
    assert forward.statistic == "mean"


def test_a_body_is_not_counted_again_in_the_node_that_holds_it():
    # Runs 2 and 3: the If takes 100 and 80 µs, of which its Add takes 60 and 40.
    forward = only("onnxruntime.json").phase("forward")
    assert times(forward) == {"conv1": 520, "branch": 40, "body_add": 50, "probs": 10}
    assert [op.kind for op in forward.ops] == ["convolution", "control", "elementwise", "softmax"]
    assert forward.ops[0].samples_s == pytest.approx((500e-6, 540e-6))


def test_the_sums_close():
    forward = only("onnxruntime.json").phase("forward")
    assert forward.unattributed_s == pytest.approx(100e-6)
    assert sum(op.time_s for op in forward.ops) + forward.unattributed_s == pytest.approx(forward.time_s)


def test_loading_is_reading_and_initialising():
    load = only("onnxruntime.json").phase("load")
    assert load.time_s == pytest.approx(28190e-6)
    assert load.parts == pytest.approx({"model_loading_uri": 2190e-6, "session_initialization": 26000e-6})


def test_each_op_says_where_it_ran(events, tmp_path):
    profile = only("onnxruntime.json")
    assert {op.unit for op in profile.phase("forward").ops} == {"cpu"}
    assert profile.summary.top_unit == profile.summary.top_unit_by_count == "cpu"
    for event in events:
        if event["name"] == "conv1_kernel_time":
            event["args"]["provider"] = "CUDAExecutionProvider"
    (moved,) = taken(written(tmp_path, events))
    assert moved.phase("forward").ops[0].unit == "gpu"
    assert moved.phase("forward").ops[0].provider == "CUDAExecutionProvider"
    assert moved.summary.top_unit == "gpu"
    assert moved.summary.top_unit_by_count == "cpu"
    assert any("CUDAExecutionProvider are the host's" in note for note in moved.provenance.notes)


def test_a_provider_that_chooses_its_unit_leaves_it_unknown(events, tmp_path):
    for event in events:
        if "provider" in event["args"]:
            event["args"]["provider"] = "QNNExecutionProvider"
    (profile,) = taken(written(tmp_path, events))
    assert {op.unit for op in profile.phase("forward").ops} == {None}
    assert profile.summary.top_unit is None


def test_numbers_may_be_text(events, tmp_path):
    for event in events:
        event["dur"], event["ts"] = str(event["dur"]), str(event["ts"])
    (profile,) = taken(written(tmp_path, events))
    assert profile.phases == only("onnxruntime.json").phases


def test_fence_events_of_older_versions_are_no_ops(events, tmp_path):
    fence = {**events[2], "name": "conv1_fence_before", "dur": 1}
    (profile,) = taken(written(tmp_path, [*events, fence]))
    assert times(profile.phase("forward")).keys() == {"conv1", "branch", "body_add", "probs"}


def test_one_run_is_the_forward_and_is_told_to_be_the_first(events, tmp_path):
    one = [event for event in events if event["ts"] < 60000]
    (profile,) = taken(written(tmp_path, one))
    assert [phase.name for phase in profile.phases] == ["load", "forward"]
    assert profile.phase("forward").samples_s == pytest.approx((3100e-6,))
    assert any("also the first" in note for note in profile.provenance.notes)


def test_without_model_run_the_executors_outermost_events_are_the_runs(events, tmp_path):
    cut = [event for event in events if event["name"] != "model_run"]
    (profile,) = taken(written(tmp_path, cut))
    assert profile.phase("forward").samples_s == pytest.approx((680e-6, 720e-6))


def test_nodes_outside_every_run_are_left_out_and_told(events, tmp_path):
    stray = {**events[2], "ts": 90000}
    (profile,) = taken(written(tmp_path, [*events, stray]))
    assert any("1 node events lie outside" in note for note in profile.provenance.notes)
    assert times(profile.phase("forward"))["conv1"] == 520


def test_ops_of_a_parallel_executor_overlap_and_nothing_is_said_to_be_left_over(events, tmp_path):
    for event in events:
        if event["name"] == "probs_kernel_time":
            event["tid"], event["dur"] = 99, 690
            event["ts"] = event["ts"] // 10000 * 10000 + 10
    (profile,) = taken(written(tmp_path, events))
    assert profile.phase("forward").unattributed_s is None
    assert any("overlapped" in note for note in profile.provenance.notes)


def test_a_profile_without_runs_is_refused(events, tmp_path):
    with pytest.raises(FormatError, match="no run of the model"):
        taken(written(tmp_path, events[:2]))


@pytest.mark.parametrize("wrong", [-3, "NaN", "fast", None, True, [], 1e30])
def test_a_time_that_cannot_be_is_named(events, tmp_path, wrong):
    events[2]["dur"] = wrong
    with pytest.raises(FormatError, match="`dur` of event 2"):
        taken(written(tmp_path, events))


def test_a_full_file_says_that_events_were_dropped(events, tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.engines.onnxruntime.results._MOST_EVENTS", len(events))
    (profile,) = taken(written(tmp_path, events))
    assert any("drops events" in note for note in profile.provenance.notes)


def test_the_arena_is_kept_apart_from_the_memory_of_the_process():
    profile = only("onnxruntime.json")
    assert profile.environment.host["arena_peak_bytes"] == 4968832
    assert profile.summary.peak_memory_bytes is None


def test_a_file_that_onnxruntime_writes_today(tmp_path):
    """The shape is the engine's own: a real session, profiled here, closes to the microsecond of its clock."""
    ort, onnx, numpy = (pytest.importorskip(name) for name in ("onnxruntime", "onnx", "numpy"))
    helper = onnx.helper
    weight = helper.make_tensor("w", 1, [64, 64], numpy.ones((64, 64), numpy.float32).tobytes(), raw=True)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
            helper.make_node("Softmax", ["h"], ["y"], name="probs"),
        ],
        "small",
        [helper.make_tensor_value_info("x", 1, [4, 64])],
        [helper.make_tensor_value_info("y", 1, [4, 64])],
        [weight],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "run")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for _ in range(4):
        session.run(None, {"x": numpy.ones((4, 64), numpy.float32)})
    raw = json.loads((path := tmp_path.joinpath(session.end_profiling())).read_text())
    (profile,) = taken(path)
    forward = profile.phase("forward")
    runs = [event["dur"] for event in raw if event["name"] == "model_run"]
    assert len(forward.samples_s) == 3
    assert forward.samples_s == pytest.approx([run / 1e6 for run in runs[1:]])
    assert {op.kind for op in forward.ops} == {"matmul", "softmax"}
    assert sum(op.time_s for op in forward.ops) + forward.unattributed_s == pytest.approx(forward.time_s)
