"""A model without its last layer."""

import numpy as np
import pytest

from inferometer.measure.run.verify import without_last

onnx = pytest.importorskip("onnx", reason="onnx is not installed: no model can be written")


def saved(path, nodes, outputs=("y",)):
    port = onnx.helper.make_tensor_value_info
    weights = onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")
    ports = [port(name, onnx.TensorProto.FLOAT, [2, 3]) for name in outputs]
    graph = onnx.helper.make_graph(nodes, "g", [port("x", onnx.TensorProto.FLOAT, [2, 3])], ports, [weights])
    onnx.save(onnx.helper.make_model(graph, ir_version=10), path)
    return path


def node(kind, inputs, output, **more):
    return onnx.helper.make_node(kind, inputs, [output], **more)


def test_the_outputs_are_what_the_last_layer_takes(tmp_path):
    path = saved(tmp_path / "m.onnx", [node("MatMul", ["x", "w"], "h"), node("Softmax", ["h"], "y", name="last")])
    assert without_last(path, tmp_path / "new" / "cut.onnx") == "Softmax 'last'"
    cut = onnx.load(tmp_path / "new" / "cut.onnx")
    assert [port.name for port in cut.graph.output] == ["h"]


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ("one", ("y",)),  # nothing comes before it
        ("two", ("h", "y")),  # no one layer is the last
        ("sum", ("y",)),  # it takes more than one
    ],
)
def test_where_there_is_no_one_last_layer_nothing_is_cut(tmp_path, nodes, outputs):
    first = node("MatMul", ["x", "w"], "h")
    made = {
        "one": [node("MatMul", ["x", "w"], "y")],
        "two": [first, node("Softmax", ["h"], "y")],
        "sum": [first, node("Relu", ["h"], "r"), node("Add", ["h", "r"], "y")],
    }
    path = saved(tmp_path / "m.onnx", made[nodes], outputs)
    assert without_last(path, tmp_path / "cut.onnx") is None


def test_what_is_no_onnx_file_is_left_alone(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    for name in ("broken.onnx", "nowhere.onnx", "resnet50", "net.tflite"):
        assert without_last(tmp_path / name, tmp_path / "cut.onnx") is None
