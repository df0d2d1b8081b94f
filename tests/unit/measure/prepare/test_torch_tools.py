"""Exported programs of ONNX files, with smaller numbers, and compiled ahead of time."""

from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

for module in ("torch", "torchao", "onnxruntime"):
    pytest.importorskip(module, reason=f"{module} is not installed")
if find_spec("onnx2torch") is None:  # importing it needs torchvision, which the tool does without
    pytest.skip("onnx2torch is not installed", allow_module_level=True)

import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402, TID251 - what is made is its program
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from inferometer.core.errors import EngineError, FormatError, TrustError  # noqa: E402
from inferometer.engines.base import Target  # noqa: E402
from inferometer.engines.openvino_genai import convert as openvino_genai  # noqa: E402 - as above
from inferometer.engines.order import ToolOrder  # noqa: E402
from inferometer.engines.torch import aotinductor, compiled, eager, onnx2torch, torchao  # noqa: E402  # noqa: E402
from inferometer.formats.detect import read_graph  # noqa: E402
from inferometer.formats.trust import door  # noqa: E402

DRAWN = np.random.default_rng(0)
IMAGE = DRAWN.standard_normal((1, 3, 8, 8)).astype(np.float32)
ROWS = DRAWN.standard_normal((3, 64)).astype(np.float32)


def network(folder, *, strange=False):
    """A convolution whose name has points, doubled in size, and a size that is read out of a tensor."""
    weight = numpy_helper.from_array(DRAWN.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    shape = numpy_helper.from_array(np.array([0, -1]), "shape")
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="body.0.conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="body.0.act"),
        helper.make_node(
            "Resize", ["r", "", "scales"], ["large"], name="up", mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        helper.make_node("Reshape", ["large", "shape"], ["flat"], name="flat"),
        helper.make_node("Gelu" if strange else "Tanh", ["flat"], ["y"], name="last"),
    ]  # fmt: skip
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "net", values, results, [weight, shape, scales])
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def ordered(source, folder, array, **more):
    target = folder / "made.pt2"
    given = {"shapes": {"x": array.shape}, "dtypes": {"x": "float32"}}
    return ToolOrder(source=source, target=target, format="pt2", **given, **more)


def ran(path, array, runtime=eager, form="pt2", *, instrument=False):
    """What it gives, and its kernels."""
    session = runtime.open(Target(path=path, format=form, threads=1, instrument=instrument))
    try:
        session.feed({session.opened.inputs[0].name: array})
        session.step()
        (found,) = session.outputs().values()
        return found, session.kernels().get("forward", ()), session.opened
    finally:
        session.close()


def test_an_onnx_file_becomes_a_program_that_gives_the_same_with_layers_of_the_same_names(tmp_path):
    source = network(tmp_path)
    order = ordered(source, tmp_path, IMAGE)
    assert "written back to 17" in " ".join(onnx2torch.to_program(order))
    names = [op.name for _, op in read_graph(order.target).ops()]
    assert {"body.0.conv", "body.0.act", "up", "last"} <= set(names)
    (expected,) = onnxruntime.InferenceSession(source).run(None, {"x": IMAGE})
    assert np.allclose(ran(order.target, IMAGE)[0], expected, atol=1e-5)


def test_slices_and_paddings_by_constants_and_names_that_files_divide_by_become_numbers(tmp_path):
    """A step back, a mirrored edge of a matrix, a constant that nobody reads after them, and a name with `;`."""
    held = {"s": [5, 0], "e": [-9, 8], "a": [1, 0], "d": [-1, 2], "p": [0, 2, 0, 1], "unused": np.zeros(0, np.int64)}
    stored = [numpy_helper.from_array(np.array(values, np.int64), name) for name, values in held.items()]
    nodes = [
        helper.make_node("Slice", ["x", "s", "e", "a", "d"], ["cut"], name="cut;cut"),
        helper.make_node("Pad", ["cut", "p"], ["wide"], name="edge", mode="reflect"),
        helper.make_node("Reshape", ["wide", "flat"], ["y"], name="last"),
    ]
    stored.append(numpy_helper.from_array(np.array([-1]), "flat"))
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 8])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "net", values, results, stored)
    source = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), source)
    array = DRAWN.standard_normal((8, 8)).astype(np.float32)
    order = ordered(source, tmp_path, array)
    list(onnx2torch.to_program(order))
    (expected,) = onnxruntime.InferenceSession(source).run(None, {"x": array})
    assert np.array_equal(ran(order.target, array)[0], expected)


def test_an_operator_that_onnx2torch_lacks_is_named_with_its_node_and_a_remedy(tmp_path):
    order = ordered(network(tmp_path, strange=True), tmp_path, IMAGE)
    with pytest.raises(FormatError, match="no form of the operator Gelu, which the node 'last' is") as error:
        list(onnx2torch.to_program(order))
    assert error.value.remedy
    assert not order.target.exists()


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """Two dense layers, of which one has 4 bits' worth of rows, and its own outputs."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).eval()
    path = tmp_path_factory.mktemp("dense") / "dense.pt2"
    torch.export.save(torch.export.export(model, (torch.from_numpy(ROWS),)), path)
    return path, model(torch.from_numpy(ROWS)).detach().numpy()


@pytest.mark.parametrize(
    ("way", "stored", "most", "told"),
    [
        ("i8-weights", ["i8", "i8"], 0.02, "2 dense layers quantised."),
        ("i8-dynamic", ["i8", "i8"], 0.05, "2 dense layers quantised."),
        (
            "i4-weights",
            ["i4", "f32"],
            0.25,
            "1 dense layer quantised; 1 other of sizes that it has no kernels for stay",
        ),
    ],
)
def test_dense_layers_are_stored_small_read_as_such_and_near(dense, tmp_path, *, way, stored, most, told):
    source, expected = dense
    order = ordered(source, tmp_path, ROWS, options={"way": way})
    assert told in " ".join(torchao.quantise_dense(order))
    products = [op for _, op in read_graph(order.target).ops() if op.kind == "linear"]
    assert [op.weights[0].dtype for op in products] == stored
    assert [op.weights[0].shape for op in products] == [(32, 64), (10, 32)]
    off = ran(order.target, ROWS)[0] - expected
    assert 0 < np.abs(off).max() < most * np.abs(expected).max()


def test_weights_and_activations_in_i8_leave_no_wide_weights_in_the_file(dense, tmp_path):
    source, expected = dense
    np.savez(tmp_path / "set.npz", x=ROWS)
    order = ordered(source, tmp_path, ROWS, calibration=(tmp_path / "set.npz",))
    list(torchao.quantise(order))
    held = [tensor for _, op in read_graph(order.target).ops() for tensor in op.weights if len(tensor.shape) == 2]
    assert {tensor.dtype for tensor in held} == {"i8"}
    assert np.abs(ran(order.target, ROWS)[0] - expected).max() < 0.1 * np.abs(expected).max()


def test_a_model_without_dense_layers_is_refused_with_what_to_ask_for(tmp_path):
    path = tmp_path / "relu.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.from_numpy(ROWS),)), path)
    with pytest.raises(FormatError, match="no dense layer") as error:
        list(torchao.quantise_dense(ordered(path, tmp_path, ROWS, options={"way": "i8-weights"})))
    assert "i8" in (error.value.remedy or "")


@pytest.mark.slow
def test_a_package_runs_without_compiling_with_the_programs_layers_and_not_for_another_version(
    dense, tmp_path, monkeypatch
):
    # Compiling the headers ahead takes longer than compiling the one file that would use them.
    monkeypatch.setattr(import_module("torch._inductor.config").aot_inductor, "precompile_headers", False)
    source, expected = dense
    order = ordered(source, tmp_path, ROWS)
    assert "it runs nowhere else" in " ".join(aotinductor.compile_package(order))
    assert read_graph(order.target).metadata["format"] == "aoti"
    with pytest.raises(TrustError, match="is a compiled library, and was not made by `inferometer prepare` on this"):
        ran(order.target, ROWS, compiled, "aoti")
    door.remember(order.target)  # as the step does that calls the tool
    found, kernels, opened = ran(order.target, ROWS, compiled, "aoti", instrument=True)
    assert np.allclose(found, expected, atol=1e-5)
    assert "compile" not in {stage.name for stage in opened.stages}
    layers = {name for kernel in kernels for name in kernel.layers}
    assert {"0", "2"} <= layers
    monkeypatch.setattr(torch, "__version__", "1.0.0")
    with pytest.raises(EngineError, match=r"and not 1\.0\.0"):
        ran(order.target, ROWS, compiled, "aoti")


def test_a_token_sees_itself_and_those_before_it_that_are_no_padding():
    ids, mask = torch.ones(1, 2), torch.tensor([[0, 1, 1, 1]])
    found = openvino_genai._mask(ids, mask)
    assert found.shape == (1, 1, 2, 4)
    assert (found == 0).tolist() == [[[[False, True, True, False], [False, True, True, True]]]]


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [([1], [4], None, None), ([0, 1], [9, 3], [1, 0], [2, 1]), ([5], [-9], [-1], [-2]),
     ([3, 4], [0, 1], [0, 1], [-1, -1]),
     ([-3], [9], [1], None)],
)  # fmt: skip
def test_slices_by_numbers_are_those_of_numpy(starts, ends, axes, steps):
    x = np.arange(30).reshape(5, 6)
    along = range(len(starts)) if axes is None else axes
    cut = [slice(None)] * 2
    for place, axis in enumerate(along):
        step = 1 if steps is None else steps[place]
        end = None if step < 0 and ends[place] < -x.shape[axis] else ends[place]
        cut[axis] = slice(starts[place], end, step)
    given = [None if each is None else torch.tensor(each) for each in (starts, ends, axes, steps)]
    found = onnx2torch._sliced(None, torch.from_numpy(x), *given)(torch.from_numpy(x))
    assert found.tolist() == x[tuple(cut)].tolist()


def test_paddings_are_of_the_last_axes_that_are_padded():
    x = torch.arange(6.0).reshape(2, 3)
    last = onnx2torch._padded(SimpleNamespace(mode="constant"), x, torch.tensor([0, 1, 0, 2]), torch.tensor(7.0))
    assert last.keywords["pad"] == [1, 2]
    assert last(x).tolist() == [[7, 0, 1, 2, 7, 7], [7, 3, 4, 5, 7, 7]]
    both = onnx2torch._padded(SimpleNamespace(mode="constant"), x, torch.tensor([1, 0, 0, 2]))
    assert both.keywords["pad"] == [0, 2, 1, 0]
    mirrored = onnx2torch._padded(SimpleNamespace(mode="reflect"), x, torch.tensor([0, 1, 0, 1]))
    assert "value" not in mirrored.keywords
