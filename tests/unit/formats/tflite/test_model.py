import struct
from pathlib import Path

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.tflite.graph import tflite_graph
from inferometer.formats.tflite.model import parse_model
from unit.formats.tflite.tflite_bytes import (
    F32,
    I8,
    Numbers,
    Repeated,
    Table,
    convolution,
    ints,
    model,
    operator,
    quantised,
    subgraph,
    tensor,
)

HERE = Path("model.tflite")


def parsed(raw):
    return parse_model(raw, HERE)


def one(tensors, operators=(), **how):
    return model([0], [subgraph(tensors, (), (), operators)], **how)


def test_a_sound_file_is_read():
    found = parsed(convolution())
    (main,) = found.subgraphs
    assert [t.shape for t in main.tensors] == [(1, 8, 8, 3), (4, 3, 3, 3), (4,), (1, 4, 4, 4)]
    assert [t.nbytes for t in main.tensors] == [None, 432, 16, None]
    assert main.operators[0].options["stride_w"] == 2
    assert main.operators[0].options["dilation_w"] == 1  # left out of the file: the schema's default
    assert (found.version, found.buffer_bytes) == (3, 448)


def test_quantisation_is_kept_as_counts():
    quantized = tensor("t", (4, 2), I8, buffer=1, quantization=quantised(4, axis=0))
    (main,) = parsed(one([quantized], buffers=[bytes(8)])).subgraphs
    found = main.tensors[0].quantization
    assert (found.scales, found.zero_points, found.axis) == (4, 4, 0)


def test_a_sparse_tensor_is_its_numbers_and_their_indices():
    segments, indices = Table({0: Numbers("H", (0, 1, 2, 3, 3))}), Table({0: bytes(3)})
    compressed = Table({0: ("b", 1), 2: ("B", 2), 3: segments, 4: ("B", 3), 5: indices})
    sparsity = Table({0: ints(0, 1), 2: [Table({0: ("b", 0), 1: ("i", 4)}), compressed]})
    raw = one([tensor("s", (4, 8), buffer=1, sparsity=sparsity)], buffers=[bytes(12)])
    (main,) = parsed(raw).subgraphs
    assert (main.tensors[0].sparse, main.tensors[0].nbytes) == (True, 12 + 5 * 2 + 3)
    (other,) = parsed(one([tensor("s", (4, 8), buffer=1)], buffers=[bytes(128)])).subgraphs
    assert not other.tensors[0].sparse


def test_buffers_may_lie_behind_the_flatbuffer():
    tensors = [tensor("t", (4,), buffer=1)]
    raw = one(tensors, buffers=[Table({1: ("Q", 1000), 2: ("Q", 16)})])
    (main,) = parsed(raw.ljust(1000, b"\0") + bytes(16)).subgraphs
    assert main.tensors[0].nbytes == 16
    with pytest.raises(FormatError, match="ends at byte 1,016"):
        parsed(raw.ljust(1000, b"\0") + bytes(15))
    with pytest.raises(FormatError, match="2\\^63 or more"):
        parsed(one(tensors, buffers=[Table({1: ("Q", 2**63), 2: ("Q", 2**63)})]))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "identifier"),
        (b"\x08\0\0\0TFL2" + bytes(40), "identifier"),
        (struct.pack("<I4s", 2**31, b"TFL3") + bytes(40), "the root points to byte"),
        (struct.pack("<I4s", 0, b"TFL3") + bytes(40), "the root points to byte 0"),
        (struct.pack("<I4si", 8, b"TFL3", 2**30) + bytes(40), "vtable"),
        (struct.pack("<I4si", 8, b"TFL3", -(2**30)) + bytes(40), "vtable"),
        (model([0], [], version=4), "schema version 4"),
        (model([0], []), "no subgraph"),
        (one([tensor("t", (2,), kind=77)]), "tensor 0 has the unknown type 77"),
        (one([tensor("t", (2, -3))]), "has the shape"),
        (one([tensor("t", (1,) * 65)]), "has 65 elements"),
        (one([tensor("t", (2,), buffer=9)]), "names buffer 9 of 1"),
        (one([tensor("t", (5,), buffer=1)], buffers=[bytes(16)]), "20 bytes, in a buffer of 16"),
        (one([tensor("t", (2**31 - 1,) * 4, buffer=1)], buffers=[bytes(16)]), "2\\^63 or more bytes"),
        (one([tensor("t", (2,))], [operator(3, (0,), (0,))]), "names operator code 3 of 1"),
        (one([tensor("t", (2,))], [operator(0, (5,), (0,))]), "names tensor 5 of 1 in the inputs of operator 0"),
        (one([tensor("t", (2,))], [operator(0, (-2,), (0,))]), "names tensor -2"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_for_what_it_says(raw, says):
    with pytest.raises(FormatError, match=says) as caught:
        parsed(raw)
    assert "model.tflite" in caught.value.message


def test_a_list_that_claims_more_than_the_file_holds_is_refused():
    whole = convolution()
    shape = whole.index(struct.pack("<5i", 4, 1, 8, 8, 3))
    with pytest.raises(FormatError, match="claims 2,147,483,648 elements"):
        parsed(whole[:shape] + struct.pack("<I", 2**31) + whole[shape + 4 :])


def test_entries_that_all_point_to_one_table_do_not_make_a_small_file_large():
    """What is visited is bounded, not what is distinct."""
    wide = operator(0, (0,) * 16_000, (0,))
    with pytest.raises(FormatError, match="brings the elements to more than"):
        parsed(one([tensor("t", (2,))], Repeated(wide, 1000)))
    with pytest.raises(FormatError, match="claims 300,000; more than 262,144 are not read"):
        parsed(one(Repeated(tensor("t", (2,)), 300_000)))


def test_every_truncation_is_refused_or_read():
    raw = convolution()
    for cut in range(len(raw)):
        try:
            tflite_graph(parse_model(raw[:cut], HERE), name="m", label="m")
        except FormatError as error:
            assert "TFLite" in error.message


def test_the_table_of_operators_is_the_schemas():
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    from inferometer.formats.tflite.schema import CUSTOM, OPERATORS

    named = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    assert {number: OPERATORS[number].name for number in named if number != CUSTOM} == {
        number: name for number, name in named.items() if number != CUSTOM
    }
    assert F32 == schema.TensorType.FLOAT32
