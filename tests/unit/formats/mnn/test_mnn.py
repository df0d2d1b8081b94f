"""MNN's files as graphs: those of its own converter, and damaged ones."""

from types import SimpleNamespace

import numpy as np
import pytest

from contract.runtime_cases_mnn import convert, write_network
from inferometer.core.errors import FormatError
from inferometer.engines.base import FileNode, Target
from inferometer.engines.mnn import runtime
from inferometer.formats.base import look
from inferometer.formats.mnn import reader
from inferometer.formats.mnn.layers import _slice_tf
from inferometer.formats.resolve import read


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("mnn"))


def test_operators_have_their_shapes_weights_and_the_activation_that_runs_inside(network):
    graph = reader.read(network)
    ops = {op.name: op for _, op in graph.ops()}
    assert graph.parameters == 3 * 3 * 3 * 8 + 8 + 8 * 10 + 10
    assert [(tensor.name, tensor.shape) for tensor in graph.inputs] == [("x", (1, 3, 16, 16))]
    convolution = next(op for op in ops.values() if op.kind == "convolution")
    assert convolution.outputs[0].shape == (1, 8, 16, 16)
    assert ops[f"{convolution.name}/activation"].kind == "activation"
    assert not [op.name for op in ops.values() if op.kind == "custom"]


@pytest.mark.parametrize(
    ("how", "stored"), [((), "f32"), (("--fp16",), "f16"), (("--weightQuantBits", "8"), "i8"),
                        (("--weightQuantBits", "4"), "i4")],
)  # fmt: skip
def test_a_converted_network_has_the_shapes_and_weights_of_its_original(tmp_path, how, stored):
    """Windows, steps and a part that differ in width and height, groups, and a product of what flows."""
    original, made = write_uneven(tmp_path, *how)
    before, after = read(str(original)), reader.read(made)
    assert after.parameters == before.parameters
    for kind in ("convolution", "pool", "matmul"):
        assert shapes_of(after, kind) == shapes_of(before, kind), kind
    assert [tensor.shape for tensor in after.outputs] == [tensor.shape for tensor in before.outputs]
    assert next(op.weights[0].dtype for _, op in after.ops() if op.kind == "convolution") == stored


@pytest.mark.parametrize(("how", "stored"), [((), "f32"), (("--weightQuantBits", "8"), "i8")])
@pytest.mark.parametrize("kept", [True, False])
def test_weights_that_lie_apart_or_are_gone_are_counted(tmp_path, how, stored, kept):
    original, made = write_uneven(tmp_path, "--saveExternalData", *how)
    if not kept:
        (tmp_path / "uneven.mnn.weight").unlink()
    before, after = read(str(original)), reader.read(made)
    assert after.parameters == before.parameters
    assert next(op.weights[0].dtype for _, op in after.ops() if op.kind == "convolution") == stored
    assert bool(after.metadata["external_data"]["missing"]) == (not kept)


def shapes_of(graph, kind):
    ops = [op for _, op in graph.ops() if op.kind == kind]
    return [(op.outputs[0].shape, op["groups"] if kind == "convolution" else None) for op in ops]


def write_uneven(folder, *how):
    from onnx import helper, numpy_helper, save

    shapes = {"w": (8, 8, 3, 5), "b": (8,), "d": (8, 1, 3, 3), "e": (8,)}
    stored = [numpy_helper.from_array(np.ones(size, np.float32), name) for name, size in shapes.items()]
    whole = {"begin": [2, 1], "end": [5, 7], "axes": [1, 2]}
    stored += [numpy_helper.from_array(np.array(values), name) for name, values in whole.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], kernel_shape=[3, 5], strides=[1, 2], pads=[1, 2, 1, 2]),
        helper.make_node("Conv", ["a", "d", "e"], ["c"], kernel_shape=[3, 3], group=8, pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 3], strides=[2, 1]),
        helper.make_node("Slice", ["p", "begin", "end", "axes"], ["s"]),
        helper.make_node("MatMul", ["s", "m"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    inputs = [value("x", 1, [1, 8, 16, 24]), value("m", 1, [1, 3, 10, 7])]
    graph = helper.make_graph(nodes, "uneven", inputs, [value("y", 1, [1, 3, 6, 7])], initializer=stored)
    source, made = folder / "uneven.onnx", folder / "uneven.mnn"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), source)
    convert("MNNConvert", "-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(made), "--bizCode", "test", *how)
    return source, made


def test_a_part_that_begins_later_ends_later():
    """TensorFlow says where a part begins and how large it is, and −1 for all that is left; ONNX wants its end."""
    op = SimpleNamespace(name="cut", inputs=("data", "begin", "size"), outputs=("out",))
    listed = []
    site = SimpleNamespace(
        op=op, numbers={"begin": (0, 2, 3), "size": (1, 4, -1)}, node=lambda kind, inputs: (kind, inputs),
        listed=lambda part, values: listed.append(values) or part,
    )  # fmt: skip
    assert _slice_tf(site) == [("Slice", ("data", "begin", "ends"))]
    assert listed == [[1, 6, 2**31 - 1]]


def test_it_is_known_by_its_content(network, tmp_path):
    other = tmp_path / "network.bin"
    other.write_bytes(network.read_bytes())
    assert 0 < reader.match(look(other)) < reader.match(look(network))
    other.write_bytes(b"\x28\0\0\0" + bytes(64))
    assert reader.match(look(other)) == 0


def test_a_damaged_file_is_an_error_that_names_it(network, tmp_path):
    raw, path = network.read_bytes(), tmp_path / "cut.mnn"
    for size in range(8, len(raw) // 2, max(1, len(raw) // 40)):
        path.write_bytes(raw[:size])
        with pytest.raises(FormatError, match=r"cut\.mnn"):
            reader.read(path)


def test_kernels_stand_for_the_nodes_of_the_graph(network):
    nodes = tuple(FileNode(name=op.name, kind=op.kind) for _, op in reader.read(network).ops())
    session = runtime.open(Target(path=network, format="mnn", threads=1, instrument=True, nodes=nodes))
    session.step()
    kernels = session.kernels()["forward"]
    session.close()
    names = {node.name for node in nodes}
    assert all(set(kernel.layers) <= names for kernel in kernels)
    convolution = next(kernel for kernel in kernels if kernel.kind == "Convolution")
    assert [layer.rpartition("/")[2] for layer in convolution.layers[1:]] == ["activation"]
