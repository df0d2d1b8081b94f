"""The engine itself, on files others made and on a small one made here."""

import numpy as np
import pytest

from contract.runtime_cases_onnxruntime import packaged
from inferometer.core.errors import DomainError, EngineError, FormatError, UnknownNameError
from inferometer.engines.base import FileNode, Target

openvino = pytest.importorskip("openvino", reason="SKIPPED LOUDLY: openvino is not installed, nothing was run")
onnx = pytest.importorskip("onnx", reason="SKIPPED LOUDLY: onnx is not installed, nothing was run")

from inferometer.engines.openvino import convert, runtime  # noqa: E402 - only with the engine
from inferometer.engines.order import ToolOrder  # noqa: E402 - as above

make, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def normed(path):
    """A convolution, a norm that is multiplied into it, and an activation; rows are open."""
    nodes = [
        make.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        make.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["c"], name="norm"),
        make.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    random = np.random.default_rng(0)
    stored = {"w": random.standard_normal((8, 3, 3, 3)), "s": random.random(8), "b": random.random(8),
              "m": random.random(8), "v": random.random(8) + 0.5}  # fmt: skip
    tensors = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in stored.items()]
    ports = [make.make_tensor_value_info(n, FLOAT, ["rows", c, 16, 16]) for n, c in (("x", 3), ("y", 8))]
    graph = make.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    model = make.make_model(graph, ir_version=9, opset_imports=[make.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def opened():
    sessions = []

    def open_it(path, format="onnx", **more):  # noqa: A002 - the target's word
        session = runtime.open(Target(path=path, format=format, **more))
        sessions.append(session)
        return session

    yield open_it
    for session in sessions:
        session.close()


def picture(rows=2):
    return {"x": np.random.default_rng(1).standard_normal((rows, 3, 16, 16)).astype(np.float32)}


def test_load_and_compile_are_apart_and_the_precision_is_the_models(tmp_path, opened):
    found = opened(normed(tmp_path / "m.onnx")).opened
    assert [stage.name for stage in found.stages] == ["load", "compile"]
    assert found.precision == "f32"
    assert (found.unit, set(found.placed)) == ("cpu", {"CPU"})


def test_open_sizes_are_compiled_for_what_is_fed(tmp_path, opened):
    session = opened(normed(tmp_path / "m.onnx"))
    for rows in (2, 3):
        session.feed(picture(rows))
        session.step()
        assert session.outputs()["y"].shape == (rows, 8, 16, 16)


def test_sizes_fix_open_dims_by_name(tmp_path, opened):
    session = opened(normed(tmp_path / "m.onnx"), sizes={"rows": 2})
    assert session._compiled.inputs[0].get_partial_shape().is_static
    session.feed(picture())
    session.step()
    assert session.outputs()["y"].shape[0] == 2
    with pytest.raises(UnknownNameError, match="rows"):
        opened(normed(tmp_path / "m.onnx"), sizes={"row": 2})


def test_an_input_that_gets_more_names_when_it_is_compiled_keeps_its_own(tmp_path, opened):
    """A cast to the type that it has already is left out: its result is then another name of the input."""
    nodes = [
        make.make_node("Cast", ["x"], ["a_cast"], to=FLOAT, name="cast"),
        make.make_node("Relu", ["a_cast"], ["y"], name="relu"),
    ]
    ports = [make.make_tensor_value_info(name, FLOAT, ["rows", 4]) for name in ("x", "y")]
    graph = make.make_graph(nodes, "g", ports[:1], ports[1:])
    model = make.make_model(graph, ir_version=9, opset_imports=[make.make_opsetid("", 17)])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    session = opened(tmp_path / "m.onnx")
    session.feed({"x": np.ones((2, 4), np.float32)})
    session.step()
    assert session.outputs()["y"].tolist() == [[1.0] * 4] * 2


def test_a_fused_kernel_stands_for_all_its_nodes(tmp_path, opened):
    session = opened(normed(tmp_path / "m.onnx"), instrument=True)
    session.feed(picture())
    session.step()
    kernels = session.kernels()["forward"]
    assert ("conv", "norm", "relu") in [kernel.layers for kernel in kernels]
    assert any("means" in note for note in session.opened.notes)


def test_numbers_are_halved_where_that_was_asked_for_and_nowhere_else(tmp_path):
    source, whole, half = normed(tmp_path / "m.onnx"), tmp_path / "whole.xml", tmp_path / "half.xml"
    convert.convert(ToolOrder(source=source, target=whole, format="openvino"))
    convert.halve(ToolOrder(source=whole, target=half, format="openvino"))

    def formats(path):
        """Of the stored numbers that are no sizes."""
        ops = openvino.Core().read_model(path).get_ops()
        constants = [op.get_output_element_type(0) for op in ops if op.get_type_name() == "Constant"]
        return {kind.get_type_name() for kind in constants if kind.is_real()}

    assert (formats(whole), formats(half)) == ({"f32"}, {"f16"})


def test_both_engines_give_the_same_numbers(tmp_path, opened):
    pytest.importorskip("onnxruntime", reason="SKIPPED LOUDLY: onnxruntime is not installed, nothing was compared")
    from inferometer.engines.onnxruntime import runtime as other

    path = normed(tmp_path / "m.onnx")
    found = []
    for session in (opened(path), other.open(Target(path=path, format="onnx"))):
        session.feed(picture())
        session.step()
        found.append(session.outputs()["y"])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_a_file_in_the_engines_own_format_opens(tmp_path, opened):
    import openvino

    openvino.save_model(openvino.Core().read_model(str(normed(tmp_path / "m.onnx"))), str(tmp_path / "m.xml"))
    session = opened(tmp_path / "m.xml", format="openvino", instrument=True)
    session.feed(picture())
    session.step()
    assert any(kernel.layers for kernel in session.kernels()["forward"])
    with pytest.raises(DomainError, match="no names to open dims"):
        opened(tmp_path / "m.xml", format="openvino", sizes={"rows": 2})


def test_a_convolution_of_the_engines_own_format_is_in_the_kernel_that_its_norm_was_fused_into(tmp_path, opened):
    """The kernel lists the norm, not the convolution: where that lies is known from the file's nodes."""
    model = openvino.Core().read_model(normed(tmp_path / "m.onnx"))
    openvino.save_model(model, tmp_path / "m.xml", compress_to_fp16=False)
    ops = [op for op in model.get_ordered_ops() if op.get_type_name() not in {"Constant", "Parameter", "Result"}]
    nodes = tuple(
        FileNode(
            name=op.get_friendly_name(),
            kind=op.get_type_name(),
            inputs=tuple(value.get_source_output().get_node().get_friendly_name() for value in op.inputs()),
            outputs=(op.get_friendly_name(),),
        )
        for op in ops
    )
    session = opened(tmp_path / "m.xml", format="openvino", instrument=True, nodes=nodes)
    session.feed(picture())
    session.step()
    convolutions = {node.name for node in nodes if node.kind == "Convolution"}
    (layers,) = (kernel.layers for kernel in session.kernels()["forward"] if kernel.kind == "Convolution")
    assert convolutions & set(layers)


def test_what_the_engine_refuses_is_named_with_the_op(opened):
    with pytest.raises(EngineError, match=r"silero_vad\.onnx.* at Conv"):
        opened(packaged("silero_vad", "data/silero_vad.onnx"))


def test_text_and_missing_files_are_refused(tmp_path, opened):
    with pytest.raises(DomainError, match="language model"):
        opened(normed(tmp_path / "m.onnx"), text=True)
    with pytest.raises(FormatError, match="nowhere"):
        opened(tmp_path / "nowhere.onnx")


def test_a_step_before_inputs_is_refused(tmp_path, opened):
    with pytest.raises(DomainError, match="before any inputs"):
        opened(normed(tmp_path / "m.onnx")).step()


def test_every_heavy_node_of_a_real_file_is_in_a_kernel(opened):
    session = opened(packaged("onnx", "backend/test/data/light/light_squeezenet.onnx"), instrument=True)
    session.feed({"data_0": np.ones((1, 3, 224, 224), np.float32)})
    session.step()
    kernels = session.kernels()["forward"]
    assert {kernel.kind for kernel in kernels if not kernel.layers} <= {"Reorder"}
    heavy = {node.name for node in session._original.nodes if node.kind in {"Conv", "Relu", "Concat", "MaxPool"}}
    assert heavy <= {layer for kernel in kernels for layer in kernel.layers}
