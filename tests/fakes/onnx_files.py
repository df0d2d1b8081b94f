"""Small ONNX files for tests that need one which can be read."""


def one_layer(onnx) -> bytes:
    """A model of a single ReLU."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, kind, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    return helper.make_model(graph, ir_version=9).SerializeToString()
