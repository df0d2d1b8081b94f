"""The engine itself, on small models made here and on files others made."""

import json
from dataclasses import replace

import numpy as np
import pytest

from contract.runtime_cases_onnxruntime import LLAMA, packaged
from inferometer.core.errors import DomainError, EngineError, FormatError, UnknownNameError
from inferometer.engines.base import Request, Target
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.onnx import write as onnx_writer
from inferometer.formats.synth import synthesise
from inferometer.formats.synth.files import Order

onnxruntime = pytest.importorskip("onnxruntime", reason="SKIPPED LOUDLY: onnxruntime is not installed, nothing was run")
onnx = pytest.importorskip("onnx", reason="SKIPPED LOUDLY: onnx is not installed, nothing was run")

from inferometer.engines.onnxruntime import recorder, runtime  # noqa: E402 - only with the engine
from inferometer.engines.onnxruntime.recorder import measure_timers, timers_from  # noqa: E402 - as above

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
make = onnx.helper


def port(name, shape, kind=FLOAT):
    return make.make_tensor_value_info(name, kind, shape)


def saved(path, nodes, inputs, outputs, stored=(), *, ir=9, opset=17):
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in stored]
    graph = make.make_graph(nodes, "g", inputs, outputs, tensors)
    path.write_bytes(
        make.make_model(graph, ir_version=ir, opset_imports=[make.make_opsetid("", opset)]).SerializeToString()
    )
    return path


def perceptron(path, **more):
    """Nodes without names, a product with a bias, and an activation."""
    nodes = [
        make.make_node("MatMul", ["x", "w"], ["a"]),
        make.make_node("Relu", ["a"], ["b"]),
        make.make_node("MatMul", ["b", "w"], ["c"]),
        make.make_node("Add", ["c", "bias"], ["y"]),
    ]
    weight = np.eye(4, dtype=np.float32)
    stored = [("w", weight), ("bias", np.full(4, 0.5, np.float32))]
    return saved(path, nodes, [port("x", ["rows", 4])], [port("y", ["rows", 4])], stored, **more)


@pytest.fixture
def opened():
    sessions = []

    def open_it(path, **more):
        session = runtime.open(Target(path=path, **{"format": "onnx", **more}))
        sessions.append(session)
        return session

    yield open_it
    for session in sessions:
        session.close()


ONES = {"x": np.ones((3, 4), np.float32)}


@pytest.mark.parametrize("instrument", [False, True])
def test_an_output_of_another_shape_than_declared_is_given_in_every_step(tmp_path, opened, instrument):
    nodes = [make.make_node("Relu", ["x"], ["a"]), make.make_node("Concat", ["a", "a"], ["y"], axis=1)]
    path = saved(tmp_path / "m.onnx", nodes, [port("x", ["rows", "columns"])], [port("y", ["rows", 4])])
    session = opened(path, instrument=instrument)
    session.feed(ONES)
    for _ in range(3):
        session.step()
    np.testing.assert_array_equal(session.outputs()["y"], np.ones((3, 8), np.float32))
    assert sum("[rows, 4], and it is [3, 8]" in note for note in session.opened.notes) == 1


def test_the_outputs_are_those_of_the_model(tmp_path, opened):
    session = opened(perceptron(tmp_path / "m.onnx"))
    session.feed(ONES)
    session.step()
    np.testing.assert_array_equal(session.outputs()["y"], np.full((3, 4), 1.5, np.float32))


def test_a_step_before_inputs_is_refused(tmp_path, opened):
    with pytest.raises(DomainError, match="before any inputs"):
        opened(perceptron(tmp_path / "m.onnx")).step()


def test_load_and_compile_are_apart(tmp_path, opened):
    assert [stage.name for stage in opened(perceptron(tmp_path / "m.onnx")).opened.stages] == ["load", "compile"]


def test_inputs_may_change_their_open_sizes(tmp_path, opened):
    session = opened(perceptron(tmp_path / "m.onnx"))
    for rows in (1, 5, 2):
        session.feed({"x": np.ones((rows, 4), np.float32)})
        session.step()
        assert session.outputs()["y"].shape == (rows, 4)


def test_what_is_fed_is_kept_from_later_changes(tmp_path, opened):
    session, array = opened(perceptron(tmp_path / "m.onnx")), np.ones((3, 4), np.float32)
    session.feed({"x": array})
    array[:] = 7
    session.step()
    assert session.outputs()["y"].max() == 1.5


def test_sizes_fix_open_dims(tmp_path, opened):
    session = opened(perceptron(tmp_path / "m.onnx"), sizes={"rows": 2})
    assert session.opened.inputs[0].shape == (2, 4)
    with pytest.raises(DomainError, match=r"\[2, 4\]"):
        session.feed(ONES)


def test_a_size_of_no_open_dim_is_refused_with_those_there_are(tmp_path, opened):
    with pytest.raises(UnknownNameError, match="rows"):
        opened(perceptron(tmp_path / "m.onnx"), sizes={"row": 2})
    with pytest.raises(DomainError, match="whole number"):
        opened(perceptron(tmp_path / "m.onnx"), sizes={"rows": 0})


def test_levels_of_optimisation_change_what_is_run(tmp_path, opened):
    path = perceptron(tmp_path / "m.onnx")
    kinds = {}
    for level in ("none", "all"):
        session = opened(path, instrument=True, optimisation=level)
        session.feed(ONES)
        session.step()
        kinds[level] = [kernel.kind for kernel in session.kernels()["forward"]]
    assert kinds["none"] == ["MatMul", "Relu", "MatMul", "Add"]
    assert kinds["all"] == ["MatMul", "Relu", "Gemm"]
    with pytest.raises(UnknownNameError, match="extended"):
        opened(path, optimisation="extendet")


def test_nodes_without_names_are_named_by_their_results(tmp_path, opened):
    session = opened(perceptron(tmp_path / "m.onnx"), instrument=True)
    session.feed(ONES)
    session.step()
    assert [kernel.layers for kernel in session.kernels()["forward"]] == [("a",), ("b",), ("c", "y")]


def test_a_kernel_knows_its_bytes_with_the_weights_it_reads(tmp_path, opened):
    session = opened(perceptron(tmp_path / "m.onnx"), instrument=True)
    session.feed(ONES)
    session.step()
    first = session.kernels()["forward"][0]
    assert first.bytes == 3 * 4 * 4 + 4 * 4 * 4 + 3 * 4 * 4  # rows in, the weight, rows out
    assert (first.dtype, first.shapes, first.unit, first.provider) == (
        "float32", ((3, 4),), "cpu", "CPUExecutionProvider",
    )  # fmt: skip


def test_a_profile_that_grows_too_long_is_read_in_parts(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(recorder, "EVENTS_AT_MOST", 7)  # three nodes a run: two runs a profile
    session = opened(perceptron(tmp_path / "m.onnx"), instrument=True)
    session.feed(ONES)
    for _ in range(7):
        session.step()
    assert [len(kernel.samples_s) for kernel in session.kernels()["forward"]] == [7, 7, 7]


def test_runs_that_the_profile_lacks_are_an_error(tmp_path, opened):
    session = opened(perceptron(tmp_path / "m.onnx"), instrument=True)
    session.feed(ONES)
    session.step()
    session.recorder.ran("forward")  # one that never was
    with pytest.raises(EngineError, match=r"2 times .* 1 runs"):
        session.kernels()


def test_no_file_is_left_behind(tmp_path, opened, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    session = opened(perceptron(tmp_path / "m.onnx"), instrument=True)
    session.feed(ONES)
    session.step()
    session.kernels()
    assert session.cost_per_kernel_s >= 0
    session.close()
    assert list((tmp_path / "temp").iterdir()) == []


def test_the_profilers_cost_is_what_a_node_reports_beyond_its_price():
    found = timers_from(10e-6, 100e-6, 100e-6 + 128 * 2e-6)
    assert found.node_s == pytest.approx(8e-6)
    assert found.step_s == pytest.approx(68e-6)
    assert timers_from(1e-6, 100e-6, 1.0).node_s == 0.0
    assert timers_from(1e-6, 100e-6, 1.0).step_s == 0.0
    assert measure_timers(1).node_s >= 0.0


def test_a_newer_ir_version_is_read_as_the_newest_known_with_a_note(tmp_path, opened):
    session = opened(perceptron(tmp_path / "m.onnx", ir=14))
    session.feed(ONES)
    session.step()
    assert session.outputs()["y"].max() == 1.5
    assert any("IR version 14" in note for note in session.opened.notes)


def test_a_precision_cannot_be_chosen_and_is_refused(tmp_path, opened):
    with pytest.raises(DomainError, match="types of the file"):
        opened(perceptron(tmp_path / "m.onnx"), precision="bf16")


def test_an_operator_nobody_knows_is_named(tmp_path, opened):
    graph = make.make_graph(
        [make.make_node("Frob", ["x"], ["y"], domain="my.ops")], "g", [port("x", [1])], [port("y", [1])]
    )
    opsets = [make.make_opsetid("", 17), make.make_opsetid("my.ops", 1)]
    path = tmp_path / "frob.onnx"
    path.write_bytes(make.make_model(graph, ir_version=9, opset_imports=opsets).SerializeToString())
    with pytest.raises(EngineError, match=r"Frob") as caught:
        opened(path)
    assert "frob.onnx" in str(caught.value)


def test_a_failure_in_a_step_names_the_node(tmp_path, opened):
    nodes = [make.make_node("Reshape", ["x", "shape"], ["y"], name="fold")]
    ports = [port("x", ["n"]), port("shape", [1], INT64)]
    session = opened(saved(tmp_path / "m.onnx", nodes, ports, [port("y", ["k"])]))
    session.feed({"x": np.ones(6, np.float32), "shape": np.array([4])})
    with pytest.raises(EngineError, match=r"Reshape \(node 'fold'\)"):
        session.step()


def test_external_data_is_found_and_named_when_missing(tmp_path, opened):
    order = Order(graph=graph_from_config(LLAMA, name="tiny"), config=LLAMA, path=tmp_path / "m.onnx")
    onnx_writer.save(order, inline_bytes=0)
    for instrument in (False, True):
        assert list(opened(order.path, text=True, instrument=instrument).generate(Request(prompt=(1, 2), generate=2)))
    (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(EngineError, match=r"m\.onnx"):
        opened(order.path, text=True)


def test_a_folder_is_opened_by_the_model_in_it(tmp_path, opened):
    with pytest.raises(FormatError, match="no ONNX model"):
        opened(tmp_path)
    perceptron(tmp_path / "a.onnx")
    assert opened(tmp_path).opened.inputs[0].name == "x"
    perceptron(tmp_path / "b.onnx")
    with pytest.raises(FormatError, match=r"a\.onnx, b\.onnx"):
        opened(tmp_path)


@pytest.mark.parametrize("instrument", [False, True])
def test_a_file_in_the_engines_own_format_opens_with_the_kernels_it_holds(tmp_path, opened, instrument):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(perceptron(tmp_path / "m.onnx"), options, providers=["CPUExecutionProvider"])
    session = opened(tmp_path / "m.ort", format="ort", instrument=instrument)
    session.feed(ONES)
    session.step()
    np.testing.assert_array_equal(session.outputs()["y"], np.full((3, 4), 1.5, np.float32))
    kernels = session.kernels().get("forward", ())
    assert [kernel.kind for kernel in kernels] == (["MatMul", "Relu", "Gemm"] if instrument else [])
    assert all(kernel.layers for kernel in kernels)


def test_an_option_goes_to_the_engine(tmp_path, opened):
    assert opened(perceptron(tmp_path / "m.onnx"), options={"session.intra_op.allow_spinning": "0"})


def loop(path):
    """y = x + 1, `trips` times over."""
    body = make.make_graph(
        [
            make.make_node("Add", ["v", "one"], ["v2"], name="step"),
            make.make_node("Identity", ["c"], ["c2"], name="go"),
        ],
        "body",
        [port("i", [], INT64), port("c", [], onnx.TensorProto.BOOL), port("v", [2])],
        [port("c2", [], onnx.TensorProto.BOOL), port("v2", [2])],
    )
    nodes = [make.make_node("Loop", ["trips", "", "x"], ["y"], name="loop", body=body)]
    stored = [("one", np.ones(1, np.float32))]
    return saved(path, nodes, [port("x", [2]), port("trips", [], INT64)], [port("y", [2])], stored)


def test_a_loops_body_has_its_own_rows_within_the_loops_time(tmp_path, opened):
    session = opened(loop(tmp_path / "m.onnx"), instrument=True)
    session.feed({"x": np.zeros(2, np.float32), "trips": np.array(20)})
    session.step()
    assert session.outputs()["y"].tolist() == [20.0, 20.0]
    layers = [layer for kernel in session.kernels()["forward"] for layer in kernel.layers]
    assert layers[0] == "loop"
    assert "loop/body/step" in layers


def layers_of(session):
    session.step()
    return {kernel.name: kernel.layers for kernel in session.kernels()["forward"]}


def test_branches_that_use_the_same_names_are_told_apart(tmp_path, opened):
    """Each of two loops calls its tensors and nodes as the other does."""

    def body():
        nodes = [make.make_node("Mul", ["s", "s"], ["h"]), make.make_node("Add", ["h", "one"], ["out"])]
        keep = make.make_node("Identity", ["go"], ["on"])
        ports = [port("i", [], INT64), port("go", [], onnx.TensorProto.BOOL), port("s", [2])]
        return make.make_graph([*nodes, keep], "body", ports, [port("on", [], onnx.TensorProto.BOOL), port("out", [2])])

    nodes = [
        make.make_node("Loop", ["trips", "", given], [result], name=name, body=body())
        for name, given, result in (("first", "x", "m"), ("second", "m", "y"))
    ]
    stored = [("one", np.ones(2, np.float32))]
    path = saved(tmp_path / "m.onnx", nodes, [port("x", [2]), port("trips", [], INT64)], [port("y", [2])], stored)
    session = opened(path, instrument=True)
    session.feed({"x": np.zeros(2, np.float32), "trips": np.array(2)})
    layers = [layer for names in layers_of(session).values() for layer in names]
    for loop_name in ("first", "second"):
        assert sum(layer.startswith(f"{loop_name}/body/") for layer in layers) >= 2


def test_a_function_that_became_several_kernels_is_the_node_of_each(tmp_path, opened):
    """The engine prints these as kind and number, which stand in no graph that it writes."""
    nodes = [make.make_node("HardSwish", ["x"], ["a"], name="swish"), make.make_node("Relu", ["a"], ["y"], name="relu")]
    path = saved(tmp_path / "m.onnx", nodes, [port("x", ["rows", 4])], [port("y", ["rows", 4])])
    session = opened(path, instrument=True)
    session.feed(ONES)
    assert set(layers_of(session).values()) == {("swish",), ("relu",)}


def test_a_weight_that_is_unpacked_in_every_run_is_work_for_its_layer(tmp_path, opened):
    nodes = [
        make.make_node("DequantizeLinear", ["packed", "scale"], ["w"], name="unpack"),
        make.make_node("MatMul", ["x", "w"], ["y"], name="product"),
    ]
    stored = [("packed", np.eye(4, dtype=np.int8)), ("scale", np.array(0.5, np.float32))]
    path = saved(tmp_path / "m.onnx", nodes, [port("x", ["rows", 4])], [port("y", ["rows", 4])], stored)
    session = opened(path, instrument=True, optimisation="basic")
    session.feed(ONES)
    session.step()
    assert {kernel.kind: (kernel.own, kernel.layers) for kernel in session.kernels()["forward"]} == {
        "DequantizeLinear": (True, ("product",)), "MatMul": (False, ("product",)),
    }  # fmt: skip


# Files others made


@pytest.mark.parametrize(
    ("package", "pattern", "inputs"),
    [
        ("onnx", "backend/test/data/light/light_shufflenet.onnx", {"gpu_0/data_0": (1, 3, 224, 224)}),
        ("rapidocr_onnxruntime", "models/*cls*.onnx", {"x": (1, 3, 48, 192)}),
        ("nudenet", "320n.onnx", {"images": (1, 3, 320, 320)}),
    ],
)
def test_every_heavy_node_of_a_real_file_is_in_a_kernel(opened, package, pattern, inputs):
    session = opened(packaged(package, pattern), instrument=True)
    session.feed({name: np.ones(shape, np.float32) for name, shape in inputs.items()})
    session.step()
    kernels = session.kernels()["forward"]
    heavy = {"Conv", "Gemm", "MatMul", "BatchNormalization", "ConvTranspose"}
    assert all(kernel.layers for kernel in kernels)
    own = {kernel.kind for kernel in kernels if kernel.own}
    assert own <= {"ReorderInput", "ReorderOutput", "Reshape", "Transpose"}
    layers = [layer for kernel in kernels if not kernel.own for layer in kernel.layers]
    assert len(layers) == len(set(layers))
    assert {node.name for node in session.recorder.original.nodes if node.kind in heavy} <= set(layers)


# Language models


def with_mask_and_positions(path):
    """The common layout: all logits, a mask and positions beside the ids. Its next token is the sum of all it read."""
    nodes = [
        make.make_node("Cast", ["input_ids"], ["ids"], to=FLOAT),
        make.make_node("Unsqueeze", ["ids", "axes"], ["new"]),  # [batch, 1, query, 1]
        make.make_node("Concat", ["past_key_values.0.key", "new"], ["present.0.key"], axis=2),
        make.make_node("Concat", ["past_key_values.0.value", "new"], ["present.0.value"], axis=2),
        make.make_node("ReduceSum", ["present.0.key", "all"], ["sum"], keepdims=0),
        make.make_node("ReduceSum", ["attention_mask", "one"], ["seen"], keepdims=0),
        make.make_node("Cast", ["sum"], ["whole"], to=INT64),
        make.make_node("Mul", ["seen", "zero"], ["nothing"]),
        make.make_node("Add", ["whole", "nothing"], ["told"]),
        make.make_node("Mod", ["told", "size"], ["next"]),
        make.make_node("OneHot", ["next", "size", "ends"], ["hot"]),
        make.make_node("Unsqueeze", ["hot", "one"], ["row"]),
        make.make_node("Unsqueeze", ["position_ids", "two"], ["places"]),
        make.make_node("Cast", ["places"], ["shift"], to=FLOAT),
        make.make_node("Mul", ["shift", "none"], ["flat"]),
        make.make_node("Add", ["row", "flat"], ["logits"]),
    ]
    cache = ["batch", 1, "past", 1]
    inputs = [
        port("input_ids", ["batch", "query"], INT64), port("attention_mask", ["batch", "all"], INT64),
        port("position_ids", ["batch", "query"], INT64), port("past_key_values.0.key", cache),
        port("past_key_values.0.value", cache),
    ]  # fmt: skip
    later = ["batch", 1, "total", 1]
    outputs = [
        port("logits", ["batch", "query", "vocabulary"]), port("present.0.key", later), port("present.0.value", later),
    ]  # fmt: skip
    stored = [
        ("axes", np.array([1, 3])), ("all", np.array([1, 2, 3])), ("one", np.array([1])), ("two", np.array([2])),
        ("zero", np.array([0])), ("size", np.array(11)), ("ends", np.array([0, 1], np.float32)),
        ("none", np.array([0], np.float32)),
    ]  # fmt: skip
    return saved(path, nodes, inputs, outputs, stored)


def test_the_cache_holds_what_was_read_before(tmp_path, opened):
    """After 1, 2, 3 comes 6; after 1, 2, 3, 6 comes 12 mod 11 …"""
    session = opened(with_mask_and_positions(tmp_path / "m.onnx"), text=True)
    assert session.vocabulary == 11
    events = list(session.generate(Request(prompt=(1, 2, 3), generate=4)))
    assert [event.ids for event in events] == [(6,), (1,), (2,), (4,)]
    assert [event.context for event in events] == [0, 3, 4, 5]
    assert set(events[0].parts) == {"write", "run", "read", "sample"}


def test_a_batch_reads_the_same_tokens_in_every_row(tmp_path, opened):
    session = opened(with_mask_and_positions(tmp_path / "m.onnx"), text=True, batch=3)
    assert [event.ids for event in session.generate(Request(prompt=(1, 2, 3), generate=2))] == [(6,), (1,)]


def test_an_end_token_ends_the_text_only_where_it_may(tmp_path, opened):
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 1}))
    session = opened(with_mask_and_positions(tmp_path / "m.onnx"), text=True)
    request = Request(prompt=(1, 2, 3), generate=4)
    assert len(list(session.generate(request))) == 4
    assert [event.ids for event in session.generate(replace(request, ignore_end=False))] == [(6,), (1,)]


def test_a_cache_filled_first_changes_what_follows(tmp_path, opened):
    session = opened(synthesise(LLAMA, tmp_path / "m.onnx").path, text=True)
    score = session.score((5, 6, 7))
    assert score.shape == (3, LLAMA["vocab_size"])
    events = list(session.generate(Request(prompt=(5,), generate=1, depth=600)))
    assert events[0].context == 600


def test_prefill_and_steps_agree(tmp_path, opened):
    """Reading tokens one by one leaves the same logits as reading them at once."""
    session = opened(synthesise(LLAMA, tmp_path / "m.onnx").path, text=True)
    ids = (3, 1, 4, 1, 5, 9, 2, 6)
    first = next(iter(session.generate(Request(prompt=ids, generate=1)))).ids[0]
    assert session.score(ids)[-1].argmax() == first


def test_a_model_without_a_cache_is_no_language_model(tmp_path, opened):
    with pytest.raises(FormatError, match="past_key_values"):
        opened(perceptron(tmp_path / "m.onnx"), text=True)


def classifier(path):
    """As scikit-learn's are exported by default: the label, and for each row a map from class to probability."""
    nodes = [
        make.make_node(
            "LinearClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", coefficients=[1.0, 0.0, 0.0, 1.0],
            intercepts=[0.0, 0.0], classlabels_ints=[7, 8], post_transform="SOFTMAX",
        ),
        make.make_node("ZipMap", ["p"], ["odds"], domain="ai.onnx.ml", classlabels_int64s=[7, 8]),
    ]  # fmt: skip
    odds = make.make_map_type_proto(INT64, make.make_tensor_type_proto(FLOAT, None))
    ends = [port("label", ["n"], INT64), make.make_value_info("odds", make.make_sequence_type_proto(odds))]
    graph = make.make_graph(nodes, "g", [port("x", ["n", 2])], ends)
    domains = [make.make_opsetid("", 17), make.make_opsetid("ai.onnx.ml", 1)]
    path.write_bytes(make.make_model(graph, ir_version=9, opset_imports=domains).SerializeToString())
    return path


@pytest.mark.parametrize("instrument", [False, True])
def test_results_that_are_maps_are_read_as_a_table(opened, tmp_path, instrument):
    session = opened(classifier(tmp_path / "c.onnx"), instrument=instrument)
    session.feed({"x": np.array([[5.0, 0.0], [0.0, 5.0], [0.0, 0.0]], np.float32)})
    session.step()
    session.step()
    outputs = session.outputs()
    assert outputs["label"].tolist() == [7, 8, 7]
    assert outputs["odds"].shape == (3, 2)
    assert outputs["odds"].sum(axis=1) == pytest.approx(1)


def test_a_sequence_of_tensors_is_read_part_by_part(opened, tmp_path):
    parts = make.make_value_info("s", make.make_sequence_type_proto(make.make_tensor_type_proto(FLOAT, None)))
    nodes = [make.make_node("SplitToSequence", ["x", "sizes"], ["s"])]
    path = saved(tmp_path / "s.onnx", nodes, [port("x", [5])], [parts], [("sizes", np.array([2, 3]))])
    session = opened(path)
    session.feed({"x": np.arange(5, dtype=np.float32)})
    session.step()
    assert {name: part.tolist() for name, part in session.outputs().items()} == {"s.0": [0, 1], "s.1": [2, 3, 4]}
