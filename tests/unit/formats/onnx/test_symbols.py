"""What the file calls its sizes, and what we call them."""

from inferometer.core.dims import Symbol
from unit.formats.onnx.onnx_bytes import FLOAT, INT64, node, read, value


def inputs(*values):
    """The inputs' shapes as text, and where our names come from."""
    names = [f"i{place}" for place in range(len(values))]
    given = [value(name, dims, kind) for name, (dims, kind) in zip(names, values, strict=True)]
    graph = read([node("Identity", name, f"o{name}") for name in names], given, [f"o{name}" for name in names])
    return [tuple(str(dim) for dim in entry.shape) for entry in graph.inputs], graph.metadata["symbols"]


def test_usual_names_become_ours():
    (shape,), told = inputs((("batch_size", "sequence_length"), INT64))
    assert shape == ("batch", "query")
    assert told == {"batch": "named 'batch_size' in the file", "query": "named 'sequence_length' in the file"}


def test_a_signal_keeps_its_own_name():
    (shape,), _ = inputs((("batch", "sequence"), FLOAT))
    assert shape == ("batch", "sequence")


def test_vectors_of_a_sequence_are_tokens():
    (shape,), _ = inputs((("N", "seq_len", 768), FLOAT))
    assert shape == ("batch", "query", "768")


def test_a_cache_and_its_sum_with_the_new_tokens():
    shapes, told = inputs(
        (("batch_size", "sequence_length"), INT64),
        (("batch_size", "total_sequence_length"), INT64),
        (("batch_size", 8, "past_sequence_length", 64), FLOAT),
        (("batch_size", "past_sequence_length + 1"), INT64),
    )
    assert [shape[-1] for shape in shapes[:2]] == ["query", "(context + query)"]
    assert shapes[2] == ("batch", "8", "context", "64")
    assert shapes[3] == ("batch", "(context + 1)")
    assert told["context + query"] == "named 'total_sequence_length' in the file"


def test_layers_with_a_window_have_the_cache_of_the_others():
    shapes, _ = inputs(
        (("batch_size", "sequence_length"), INT64),
        (("batch_size", 4, "past_sliding_length", 32), FLOAT),
        (("batch_size", 4, "past_sequence_length", 32), FLOAT),
        (("batch_size", "total_sliding_length"), INT64),
    )
    assert [shape[2] for shape in shapes[1:3]] == ["context", "context"]
    assert shapes[3][1] == "(context + query)"


def test_of_two_usual_names_for_one_size_the_second_keeps_its_own():
    shapes, _ = inputs((("batch", "seq"), INT64), (("n", "sequence"), INT64))
    assert shapes == [("batch", "query"), ("n", "sequence")]


def test_our_own_name_in_the_file_wins():
    shapes, _ = inputs((("batch_size", "sequence"), INT64), (("batch", "query"), INT64))
    assert shapes == [("batch_size", "sequence"), ("batch", "query")]


def test_a_nameless_first_size_is_the_batch():
    (shape,), told = inputs(((None, 2048), INT64))
    assert shape == ("batch", "2048")
    assert told == {"batch": "nameless in the file: axis 0 of input 'i0'"}


def test_an_image_shows_by_its_channels():
    (first,), _ = inputs((("p2o.DynamicDimension.0", 3, "p2o.DynamicDimension.1", "?"), FLOAT))
    (second,), _ = inputs(((None, None, None, 3), FLOAT))
    assert first == ("batch", "3", "height", "width")
    assert second == ("batch", "height", "width", "3")


def test_names_that_exporters_make_up_count_as_none():
    (shape,), _ = inputs((("unk__749", "unk__750"), INT64))
    assert shape == ("batch", "query")


def test_a_size_without_a_place_is_named_after_its_input():
    (shape,), told = inputs((("batch", None, 7), FLOAT))
    assert shape == ("batch", "i0.1", "7")
    assert "i0.1" not in told


def test_a_size_of_minus_one_is_nameless():
    (shape,), _ = inputs(((-1, 3, 8, 8), FLOAT))
    assert shape == ("batch", "3", "8", "8")


def test_a_size_of_zero_is_a_size():
    (shape,), _ = inputs(((0, 4), FLOAT))
    assert shape == ("0", "4")


def test_a_name_that_is_no_expression_stays_whole():
    name = "floor(height/2 - 1/2) + 1"
    (shape,), _ = inputs((("batch", name), FLOAT))
    assert shape == ("batch", name)


def test_an_output_declared_with_the_files_names_gets_ours():
    nodes = [node("Mystery", "ids", "y", domain="strange")]
    graph = read(nodes, [value("ids", ("N", "seq"), INT64)], [value("y", ("N", "seq", 4))], domains=["strange"])
    assert graph.outputs[0].shape == (Symbol("batch"), Symbol("query"), 4)


def test_products_and_differences_of_known_names_are_followed():
    shapes, _ = inputs((("batch", "seq"), INT64), (("batch*2", "seq-1"), INT64), (("batch + - 2", 4), INT64))
    assert shapes[1] == ("(2 * batch)", "(query - 1)")
    assert shapes[2] == ("batch + - 2", "4")


def test_a_symbol_of_torch_is_never_a_sequence():
    shapes, told = inputs((("s6", 80, 800), FLOAT), (("s6", "s7"), INT64), (("s9", 4), FLOAT))
    assert shapes == [("batch", "80", "800"), ("batch", "query"), ("s9", "4")]
    assert told["batch"] == "axis 0 of input 'i0', 's6' in the file"


def test_a_single_letter_means_something_only_where_it_usually_stands():
    shapes, _ = inputs(((3, "n"), FLOAT), (("b2", "h"), FLOAT), ((1, "s", 80), FLOAT))
    assert shapes == [("3", "n"), ("b2", "h"), ("1", "s", "80")]


def test_the_files_names_are_kept_for_those_who_type_them():
    given = [value("x", ("p2o.DynamicDimension.0", 3, "DynamicDimension.1", "W"), FLOAT)]
    graph = read([node("Identity", "x", "o")], given, ["o"])
    assert graph.metadata["size_names"] == {
        "p2o.DynamicDimension.0": "batch", "DynamicDimension.1": "height", "W": "width"
    }  # fmt: skip


def test_a_state_has_its_batch_second_and_lengths_have_nothing_else():
    given = [value("x", (None, 64), FLOAT), value("state", (2, None, 128), FLOAT), value("x_lengths", (None,), INT64)]
    graph = read([node("Identity", name, f"o{name}") for name in ("x", "state", "x_lengths")], given, ["ox"])
    assert [tuple(map(str, tensor.shape)) for tensor in graph.inputs] == [
        ("batch", "64"), ("2", "batch", "128"), ("batch",)
    ]  # fmt: skip
