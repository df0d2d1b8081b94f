"""Shapes that the file does not give, of sizes that it does not fix."""

import pytest

from inferometer.core.dims import Symbol
from inferometer.formats.onnx.faults import Fault
from unit.formats.onnx.onnx_bytes import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    ints,
    node,
    only,
    ops,
    read,
    scalar,
    shapes,
    tensor,
    value,
)

IMAGE = value("x", ("batch", 3, "height", "width"))
TOKENS = value("ids", ("batch", "query"), INT64)
HIDDEN = value("x", ("batch", "query", 768))


def result(nodes, *inputs, stored=(), **more):
    """The shape of `y`."""
    graph = read(nodes, inputs, ["y"], stored, **more)
    return tuple(str(dim) for dim in graph.outputs[0].shape)


def test_a_convolution_rounds_down():
    weight = tensor("w", (8, 3, 3, 3))
    conv = node("Conv", "x w", "y", kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    assert result([conv], IMAGE, stored=[weight]) == ("batch", "8", "((height + 1) // 2)", "((width + 1) // 2)")


@pytest.mark.parametrize(
    ("attributes", "side"),
    [
        ({"auto_pad": "SAME_UPPER", "strides": (2, 2)}, "((height + 1) // 2)"),
        ({"auto_pad": "VALID", "strides": (2, 2)}, "(((height + 1) // 2) - 1)"),
        ({"dilations": (2, 2)}, "(height - 4)"),
        ({}, "(height - 2)"),
    ],
)
def test_padding_strides_and_dilation(attributes, side):
    conv = node("Conv", "x w", "y", **attributes)
    assert result([conv], IMAGE, stored=[tensor("w", (8, 3, 3, 3))])[2] == side


def test_a_transposed_convolution_spreads():
    conv = node("ConvTranspose", "x w", "y", strides=(2, 2), output_padding=(1, 1), pads=(1, 1, 1, 1))
    assert result([conv], IMAGE, stored=[tensor("w", (3, 5, 3, 3))]) == ("batch", "5", "(2 * height)", "(2 * width)")


def test_a_pool_that_rounds_up_leaves_out_windows_in_the_padding():
    pool = node("MaxPool", "x", "y", kernel_shape=(1,), strides=(2,), pads=(0, 1), ceil_mode=1)
    assert result([pool], value("x", (1, 1, 4))) == ("1", "1", "2")


def test_reshape_keeps_zeros_and_finds_the_open_size():
    heads = node("Reshape", "x s", "y")
    assert result([heads], HIDDEN, stored=[ints("s", 0, -1, 12, 64)]) == ("batch", "query", "12", "64")


def test_a_shape_that_the_model_computes_is_followed():
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "b", axis=0), node("Gather", "s one", "t", axis=0),
        node("Unsqueeze", "b axis", "bv"), node("Mul", "t two", "tt"), node("Unsqueeze", "tt axis", "tv"),
        node("Concat", "bv tv rest", "target", axis=0), node("Reshape", "x target", "y"),
    ]  # fmt: skip
    stored = [scalar("zero", 0), scalar("one", 1), scalar("two", 2), ints("axis", 0), ints("rest", 384)]
    assert result(nodes, HIDDEN, stored=stored) == ("batch", "(2 * query)", "384")


def test_a_size_scaled_as_a_float_and_rounded_is_followed():
    nodes = [
        node("Shape", "x", "s"), node("Slice", "s two four", "hw"), node("Cast", "hw", "f", to=FLOAT),
        node("Mul", "f half", "scaled"), node("Floor", "scaled", "low"), node("Cast", "low", "i", to=INT64),
        node("Slice", "s zero two", "nc"), node("Concat", "nc i", "sizes", axis=0),
        node("Resize", "x _ _ sizes", "y", mode="nearest"),
    ]  # fmt: skip
    stored = [ints("zero", 0), ints("two", 2), ints("four", 4), scalar("half", 0.5, FLOAT)]
    assert result(nodes, IMAGE, stored=stored) == ("batch", "3", "(height // 2)", "(width // 2)")


def test_resize_by_scales():
    scales = tensor("s", (4,), FLOAT, (1.0, 1.0, 2.0, 0.5))
    assert result([node("Resize", "x _ s", "y")], IMAGE, stored=[scales])[2:] == ("(2 * height)", "(width // 2)")


def test_expand_asks_whether_a_size_is_minus_one():
    nodes = [
        node("Shape", "x", "s"), node("Equal", "s minus", "open"), node("Where", "open ones s", "target"),
        node("Expand", "row target", "y"),
    ]  # fmt: skip
    stored = [ints("minus", -1), ints("ones", 1, 1, 1), tensor("row", (1, 1, 768))]
    assert result(nodes, HIDDEN, stored=stored) == ("batch", "query", "768")


@pytest.mark.parametrize(
    ("bounds", "length"),
    [
        ((0, 2**63 - 1, 1), "query"),
        ((1, 2**31 - 1, 1), "(query - 1)"),
        ((0, -1, 1), "(query - 1)"),
        ((-1, 2**63 - 1, 1), "1"),
        ((0, 2**63 - 1, 2), "((query + 1) // 2)"),
        ((0, 5, 1), "5"),
        ((-1, -(2**63) + 1, -1), "query"),
        ((119, -(2**63), -1), "120"),
        ((9, 3, -2), "3"),
    ],
)
def test_slices_of_a_size_that_varies(bounds, length):
    start, end, step = bounds
    stored = [ints("a", start), ints("b", end), ints("axes", 1), ints("steps", step)]
    assert result([node("Slice", "x a b axes steps", "y")], HIDDEN, stored=stored) == ("batch", length, "768")


def test_a_table_sliced_to_the_sequence_is_as_long_as_it():
    nodes = [
        node("Shape", "x", "s"), node("Slice", "s one two", "t"), node("Slice", "table zero t axes", "rows"),
        node("Add", "x rows", "y"),
    ]  # fmt: skip
    stored = [ints("zero", 0), ints("one", 1), ints("two", 2), ints("axes", 1), tensor("table", (1, 512, 768))]
    graph = read(nodes, [HIDDEN], ["y"], stored)
    assert shapes(graph)["rows"] == ("1", "query", "768")
    assert graph.metadata["assumptions"]["first"] == {"rows": "a slice that ends at query lies within 512"}


def test_split_into_even_parts_and_into_given_ones():
    even = read([node("Split", "x", "a b c", axis=-1, num_outputs=3)], [HIDDEN], ["a"], version=18)
    assert [tensor.shape[-1] for tensor in only(even).outputs] == [256, 256, 256]
    given = read([node("Split", "x parts", "a b", axis=2)], [HIDDEN], ["a"], [ints("parts", 512, 256)])
    assert [tensor.shape[-1] for tensor in only(given).outputs] == [512, 256]
    rest = read([node("Split", "x parts", "a b c", axis=2)], [HIDDEN], ["a"], [ints("parts", 512, -1, 56)])
    assert [tensor.shape[-1] for tensor in only(rest).outputs] == [512, 200, 56]


def test_axes_are_attributes_in_old_files_and_inputs_in_new_ones():
    old = result([node("Unsqueeze", "x", "y", axes=(0, 4))], HIDDEN, version=11)
    new = result([node("Unsqueeze", "x axes", "y")], HIDDEN, stored=[ints("axes", 0, 4)], version=13)
    assert old == new == ("1", "batch", "query", "768", "1")
    old = result([node("ReduceMean", "x", "y", axes=(-1,), keepdims=0)], HIDDEN, version=13)
    new = result([node("ReduceMean", "x axes", "y", keepdims=0)], HIDDEN, stored=[ints("axes", -1)], version=18)
    assert old == new == ("batch", "query")
    old = result([node("Slice", "x", "y", starts=(0,), ends=(9,), axes=(2,))], HIDDEN, version=9)
    assert old == ("batch", "query", "9")
    old = result([node("Squeeze", "x", "y", axes=(1,))], value("x", ("batch", 1, 4)), version=11)
    new = result([node("Squeeze", "x axes", "y")], value("x", ("batch", 1, 4)), stored=[ints("axes", 1)])
    assert old == new == ("batch", "4")
    old = result([node("TopK", "x", "y i", k=5)], HIDDEN, version=9)
    new = result([node("TopK", "x k", "y i")], HIDDEN, stored=[ints("k", 5)], version=11)
    assert old == new == ("batch", "query", "5")


def test_broadcasting_prefers_what_is_known():
    nodes = [node("NonZero", "mask", "places"), node("Gather", "places zero", "rows"), node("Add", "rows x", "y")]
    inputs = [value("mask", (9,), BOOL), value("x", ("count",), INT64)]
    assert result(nodes, *inputs, stored=[scalar("zero", 0)]) == ("count",)


def test_sizes_only_the_data_tells_are_named_after_the_tensor():
    graph = read([node("NonZero", "x", "y")], [HIDDEN], ["y"])
    assert only(graph).outputs[0].shape == (3, Symbol("y.1"))


def test_what_the_file_declares_fills_what_rules_do_not_know():
    nodes = [node("Mystery", "x", "h", domain="strange"), node("Relu", "h", "y")]
    graph = read(nodes, [HIDDEN], ["y"], infos=[value("h", ("batch", 7))], domains=["strange"])
    assert shapes(graph)["y"] == ("batch", "7")


def test_a_wrong_declaration_is_noted_and_not_believed():
    graph = read([node("Relu", "x", "y")], [value("x", (2, 3))], [value("y", (2, 4))])
    assert only(graph).outputs[0].shape == (2, 3)
    assert graph.metadata["disagreements"]["count"] == 1


def test_an_unknown_shape_is_reported_and_takes_a_symbol():
    graph = read([node("Mystery", "x", "y", domain="strange")], [HIDDEN], ["y"], domains=["strange"])
    assert only(graph).outputs[0].shape == (Symbol("y.size"),)
    assert graph.metadata["unknown_shapes"]["first"] == {"y": "not even the number of dimensions"}


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        ("bsd,bte->bst", ("batch", "query", "t")),
        ("...d,dk->...k", ("batch", "query", "5")),
        ("bsd->sb", ("query", "batch")),
        ("bsd,bsd->", ()),
    ],
)
def test_einsum(equation, expected):
    others = {"bsd,bte->bst": ("batch", "t", 9), "...d,dk->...k": (768, 5), "bsd,bsd->": ("batch", "query", 768)}
    inputs = [HIDDEN] + ([value("z", others[equation])] if equation in others else [])
    names = "x z" if equation in others else "x"
    assert result([node("Einsum", names, "y", equation=equation)], *inputs) == expected


def test_formats_follow_the_operators():
    nodes = [
        node("Cast", "ids", "f", to=FLOAT), node("Greater", "f zero", "g"), node("ArgMax", "f", "a"),
        node("Shape", "f", "s"), node("DynamicQuantizeLinear", "f", "q scale zp"),
    ]  # fmt: skip
    graph = read(nodes, [TOKENS], ["g"], [scalar("zero", 0.0, FLOAT)])
    assert [op.outputs[0].dtype for op in ops(graph)] == ["f32", "bool", "i64", "i64", "u8"]


def test_ranges_count_up_to_a_size():
    nodes = [
        node("Shape", "ids", "s"), node("Gather", "s one", "n", axis=0), node("Range", "zero n one", "y"),
    ]  # fmt: skip
    assert result(nodes, TOKENS, stored=[scalar("zero", 0), scalar("one", 1)]) == ("query",)


def test_sequences_know_how_many_and_how_large():
    nodes = [
        node("SequenceConstruct", "a b", "s"), node("SequenceInsert", "s a", "t"), node("SequenceLength", "t", "n"),
        node("ConcatFromSequence", "t", "y", axis=0, new_axis=1),
    ]  # fmt: skip
    graph = read(nodes, [value("a", ("batch", 4)), value("b", ("batch", 4))], ["y", "n"])
    assert tuple(map(str, graph.outputs[0].shape)) == ("3", "batch", "4")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (node("Concat", "x z", "y", axis=0), "dimensions"),
        (node("Concat", "x x", "y", axis=7), "axis 7"),
        (node("MatMul", "x x", "y"), "matrix product"),
        (node("Transpose", "x", "y", perm=(0, 0)), "transpose"),
        (node("Reshape", "x s", "y"), "reshaped to"),
        (node("Add", "x z", "y"), "do not fit"),
        (node("Conv", "x", "y"), "1 inputs where 2 are needed"),
        (node("Cast", "x", "y", to=99), "element type 99"),
        (node("Cast", "x", "y"), "does not say to what"),
        (node("Gemm", "x z", "y"), "Gemm of tensors"),
        (node("MaxPool", "x", "y", kernel_shape=(2, 2)), "2 dimensions"),
        (node("Unsqueeze", "x", "y", axes="no"), "not what Unsqueeze takes"),
        (node("Flatten", "x", "y", axis=9), "axis 9"),
        (node("Einsum", "x", "y", equation="abc->abc"), "einsum"),
        (node("Split", "x", "y z2 z3", axis=1, split=(1, 1)), "parts"),
    ],
)
def test_what_cannot_be_is_an_error_that_names_the_node(bad, why):
    with pytest.raises(Fault, match=why) as caught:
        read([bad], [value("x", (2, 3)), value("z", (5,))], ["y"], [ints("s", 4, 4)])
    assert caught.value.where.startswith("node 'y'")
    assert caught.value.offset is not None


def test_old_casts_name_their_type():
    assert only(read([node("Cast", "x", "y", to="INT32")], [HIDDEN], ["y"], version=5)).outputs[0].dtype == "i32"


def test_a_recurrent_layer_of_either_layout():
    w, r = tensor("w", (2, 40, 7)), tensor("r", (2, 40, 10))
    steps_first = read(
        [node("LSTM", "x w r", "y h c", direction="bidirectional", hidden_size=10)],
        [value("x", ("t", "batch", 7))], ["y"], [w, r],
    )  # fmt: skip
    assert [tuple(map(str, t.shape)) for t in only(steps_first).outputs] == [
        ("t", "2", "batch", "10"), ("2", "batch", "10"), ("2", "batch", "10")
    ]  # fmt: skip
    batch_first = read(
        [node("GRU", "x w r", "y", hidden_size=10, layout=1)],
        [value("x", ("batch", "t", 7))], ["y"], [tensor("w", (1, 30, 7)), tensor("r", (1, 30, 10))],
    )  # fmt: skip
    assert only(batch_first).outputs[0].shape == (Symbol("batch"), Symbol("t"), 1, 10)
    assert (only(batch_first)["cell"], only(batch_first)["steps"]) == ("gru", Symbol("t"))


def test_integers_of_the_older_width_count_too():
    graph = read([node("Reshape", "x s", "y")], [HIDDEN], ["y"], [tensor("s", (2,), INT32, (-1, 768))])
    assert only(graph).outputs[0].shape[1] == 768
