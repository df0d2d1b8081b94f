"""ExecuTorch's programs as graphs: those of its own tools (tests/data/executorch), changed ones and damaged ones."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.core.binding import Binding
from inferometer.core.errors import FormatError, InferometerError
from inferometer.formats.executorch import reader
from inferometer.formats.executorch.graph import KINDS, _convolution, parse_xnnpack, pte_graph
from inferometer.formats.executorch.program import Instruction, PteProgram, PteTensor, TensorList
from inferometer.predict.work.count import coverage, op_works

PROGRAMS = Path(__file__).parents[3] / "data" / "executorch"
# Three convolutions and a dense layer; a norm of eight channels is inside the first convolution once it is lowered.
PARAMETERS = (8 * 3 * 9 + 8) + (8 * 9 + 8) + (16 * 8 + 16) + (10 * 16 + 10)
NORM = 4 * 8


def ops_of(name):
    return {op.name: op for _, op in reader.read(PROGRAMS / f"{name}.pte").ops()}


def products(graph):
    kinds = {"convolution", "linear", "matmul"}
    return sum(work.total_flops for _, op, work in op_works(graph, Binding()) if op.kind in kinds)


def test_a_lowered_program_has_xnnpacks_nodes_between_the_kernels_that_it_left():
    ops = ops_of("xnnpack")
    assert [name for name in ops if not name.startswith("transpose")] == [
        "conv2d_0.1", "max_pooling2d_0.2", "erf_1", "depthwise_conv2d_2.1", "add_2.2", "conv2d_2.3", "mean_3",
        "fully_connected_4.0", "softmax_4.1",
    ]  # fmt: skip
    first, deep, dense = ops["conv2d_0.1"], ops["depthwise_conv2d_2.1"], ops["fully_connected_4.0"]
    assert (first["kernel"], first["in_channels"], first["out_channels"]) == ((3, 3), 3, 8)
    assert first["fused_activation"] == "relu"
    assert (deep["groups"], deep["in_channels"], deep["out_channels"]) == (8, 8, 8)
    assert deep.get("fused_activation") is None
    assert (dense["in_features"], dense["out_features"]) == (16, 10)
    assert ops["add_2.2"]["fused_activation"] == "relu"


def test_parameters_and_work_are_those_of_the_network_lowered_or_not():
    graphs = {name: reader.read(PROGRAMS / f"{name}.pte") for name in ("xnnpack", "portable", "xnnpack-i8")}
    assert graphs["xnnpack"].parameters == PARAMETERS
    assert graphs["portable"].parameters == PARAMETERS + NORM
    work = {name: products(graph) for name, graph in graphs.items()}
    assert work["xnnpack"] == work["xnnpack-i8"] == pytest.approx(work["portable"], rel=1e-3)  # but for a bias
    for graph in graphs.values():
        assert [(tensor.name, tensor.shape) for tensor in graph.inputs] == [("input_0", (1, 3, 16, 16))]
        assert graph.outputs[0].shape == (1, 10)
        assert coverage(graph).share == 1


def test_heights_come_before_widths_in_xnnpacks_fields():
    """In its schema a convolution has kernel, step and dilation from the fifth field on, the height of each first."""
    node = SimpleNamespace(whole=lambda field: field, kind=SimpleNamespace(name="XNNConv2d"))
    _, told = _convolution(None, node, [])
    assert (told["kernel"], told["strides"], told["dilations"]) == ((4, 5), (6, 7), (8, 9))


def test_a_quantised_program_has_bytes_for_weights_with_their_scales():
    ops = ops_of("xnnpack-i8")
    weight, bias = ops["conv2d_0.2"].weights
    assert (weight.dtype, weight.nbytes) == ("i8", 8 * 3 * 9 + 8 * 4)
    assert (bias.dtype, ops["conv2d_0.2"].inputs[0].dtype) == ("i32", "i8")
    assert (ops["convert_0.0"].kind, ops["convert_0.5"].kind) == ("quantize", "dequantize")


def test_what_another_backend_was_given_is_named_and_not_counted(tmp_path):
    path = tmp_path / "other.pte"
    path.write_bytes((PROGRAMS / "xnnpack.pte").read_bytes().replace(b"XnnpackBackend", b"AnotherBackend"))
    graph = reader.read(path)
    opaque = [op for _, op in graph.ops() if op.kind == "custom"]
    assert [op.name for op in opaque] == ["anotherbackend_0", "anotherbackend_2", "anotherbackend_4"]
    assert "AnotherBackend" in opaque[0]["reason"]
    assert len(coverage(graph).uncovered) == 3


@pytest.mark.parametrize("name", ["xnnpack", "portable", "xnnpack-i8"])
def test_a_damaged_file_is_read_or_refused_by_name(name, tmp_path):
    raw, path, generator = (PROGRAMS / f"{name}.pte").read_bytes(), tmp_path / "damaged.pte", random.Random(3)  # noqa: S311
    for _ in range(150):
        changed = bytearray(raw)
        for _ in range(4):
            changed[generator.randrange(8, 4000)] = generator.randrange(256)
        path.write_bytes(changed)
        try:
            reader.read(path)
        except InferometerError as error:
            assert "damaged.pte" in str(error)
            assert "TFLite" not in str(error), "the other format that is read by the same means"
    path.write_bytes(raw[:-100])
    with pytest.raises(FormatError, match=r"damaged\.pte"):
        reader.read(path)


@pytest.mark.parametrize("size", [12, 20, 40, 100])
def test_what_a_backend_was_given_and_is_cut_off_is_no_sound_executorch_file(size):
    data = b"\0\0\0\0XH00" + bytes(2) + (30).to_bytes(4, "little") + (200).to_bytes(8, "little") + bytes(100)
    with pytest.raises(FormatError, match=r"'x\.pte' is not a sound ExecuTorch file"):
        parse_xnnpack(data[:size], Path("x.pte"))


def test_every_node_of_xnnpacks_schema_has_a_row():
    """As many as the union XNodeUnion of its schema has in ExecuTorch 1.5."""
    assert sorted(KINDS) == list(range(1, 48))


def test_results_in_a_list_and_copies_with_an_order_of_axes_are_known():
    """Two lists of the same tensors: what a kernel writes to, and what it returns."""
    values = {
        0: PteTensor(shape=(4, 8), dtype="f32"), 1: PteTensor(shape=(4, 4), dtype="f32"),
        2: PteTensor(shape=(4, 4), dtype="f32"), 3: PteTensor(shape=(4, 4), dtype="f16"),
        4: (4, 4), 5: 1, 6: TensorList((1, 2)), 7: TensorList((1, 2)), 8: None,
    }  # fmt: skip
    steps = (
        Instruction(args=(0, 4, 5, 6, 7), operator="aten::split_with_sizes_copy.out"),
        Instruction(args=(2, 8, 8, 3, 3), operator="dim_order_ops::_to_dim_order_copy.out"),
    )
    program = PteProgram(
        method="forward", methods=("forward",), values=values, inputs=(0,), outputs=(1, 3), instructions=steps
    )
    graph = pte_graph(program, b"", Path("split.pte"))
    split, cast = (op for _, op in graph.ops())
    assert [tensor.name for tensor in split.inputs] == ["input_0"]
    assert [tensor.name for tensor in split.outputs] == ["value_1", "value_2"]
    assert (cast.name, cast.kind, cast.outputs[0].dtype) == ("to_copy_1", "cast", "f16")
