"""Every reader's table of number formats, beside the names that the formats' own schemas have for the numbers."""

import re

import pytest

from inferometer.formats.ctranslate2.graph import _TYPES as CTRANSLATE2
from inferometer.formats.executorch.graph import TYPES as XNNPACK
from inferometer.formats.executorch.program import TYPES as EXECUTORCH
from inferometer.formats.mnn import _TYPES as MNN
from inferometer.formats.onnx.messages import ELEMENTS
from inferometer.formats.openvino.convert import _ELEMENTS as OPENVINO
from inferometer.formats.openvino.convert import _NARROW
from inferometer.formats.tflite.schema import TENSOR_TYPES
from inferometer.formats.torch.counted import _STORAGES, _TYPES
from inferometer.formats.torch.program import SCALAR_TYPES

C_NAMES = {
    "float": "f32", "double": "f64", "half": "f16", "bool": "bool", "boolean": "bool", "byte": "u8", "char": "i8",
    "short": "i16", "int": "i32", "long": "i64", "string": "string", "complexfloat": "c64", "complexdouble": "c128",
    "complexhalf": "u32",  # of the same width
}  # fmt: skip
PLAIN = re.compile(r"(?:q[bcdp]?)?(?P<kind>uint|int|u|i|bfloat|bf|p?float|p?fp|f|complex|c)(?P<bits>\d+)")
SMALL = re.compile(r"(?:float|f)(?P<form>\d_?e\dm\d)(?:fn|fnuz)?")


def ours(name):
    """A schema's word for a format as ours: `QUINT8`, `BFloat16Storage`, `FLOAT8_E4M3FN`, `pfp32`."""
    word = name.casefold().removesuffix("storage").replace("_", "")
    if found := SMALL.fullmatch(word):
        return f"f{found['form']}"
    if found := PLAIN.fullmatch(word):
        kind = found["kind"]
        letters = "bf" if kind.startswith("bf") else kind[0] if kind[0] in "uic" else "f"
        return f"{letters}{found['bits']}"
    return C_NAMES[word]


def numbered(text):
    """`FLOAT UINT8 28:UINT16`: the names one after the other, from a number on where one stands; `-` for none."""
    found, number = {}, -1
    for word in text.split():
        at, colon, name = word.rpartition(":")
        number = int(at) if colon else number + 1
        if name != "-":
            found[number] = name
    return found


@pytest.mark.parametrize(
    ("table", "schema"),
    [
        (  # onnx.proto3, TensorProto.DataType
            {number: element.name for number, element in ELEMENTS.items()},
            (
                "1:FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 "
                "COMPLEX128 BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ UINT4 INT4 FLOAT4E2M1 "
                "FLOAT8E8M0 UINT2 INT2 FLOAT6E2M3 FLOAT6E3M2"
            ),
        ),
        (  # TensorFlow Lite's schema.fbs, TensorType; 5, 13 and 14 are texts and handles
            {number: name for number, name in TENSOR_TYPES.items() if name is not None},
            (
                "FLOAT32 FLOAT16 INT32 UINT8 INT64 - BOOL INT16 COMPLEX64 INT8 FLOAT64 COMPLEX128 UINT64 - - UINT32 "
                "UINT16 INT4 BFLOAT16 INT2 UINT4 FLOAT8_E4M3FN FLOAT8_E5M2"
            ),
        ),
        (  # ExecuTorch's scalar_type.fbs
            EXECUTORCH,
            (
                "BYTE CHAR SHORT INT LONG HALF FLOAT DOUBLE 11:BOOL QINT8 QUINT8 QINT32 BFLOAT16 23:FLOAT8E5M2 "
                "FLOAT8E4M3FN FLOAT8E5M2FNUZ FLOAT8E4M3FNUZ UINT16 UINT32 UINT64"
            ),
        ),
        (  # its XNNPACK delegate's schema.fbs, XNNDatatype
            XNNPACK,
            "1:fp32 fp16 qint8 quint8 qint32 qcint8 qcint32 qcint4 qdint8 qbint4 qpint8 int32 pfp32 bf16",
        ),
        (  # torch/_export/serde/schema.py, ScalarType
            {number: name for number, name in SCALAR_TYPES.items() if number != 33},  # scales: an exponent in a byte
            (
                "1:BYTE CHAR SHORT INT LONG HALF FLOAT DOUBLE COMPLEXHALF COMPLEXFLOAT COMPLEXDOUBLE BOOL BFLOAT16 "
                "28:UINT16 FLOAT8E4M3FN FLOAT8E5M2 FLOAT8E4M3FNUZ FLOAT8E5M2FNUZ 34:UINT32 UINT64"
            ),
        ),
        (MNN, "1:FLOAT 3:INT32 UINT8 6:INT8 9:INT64 19:HALF"),  # MNN's Tensor.fbs, DataType
        (  # CTranslate2's types.h, DataType
            {number: name for number, (name, _) in CTRANSLATE2.items()},
            "FLOAT32 INT8 INT16 INT32 FLOAT16 BFLOAT16",
        ),
    ],
    ids=("onnx", "tflite", "executorch", "xnnpack", "torch.export", "mnn", "ctranslate2"),
)
def test_a_schemas_number_for_a_format_is_the_one_of_its_name(table, schema):
    assert table == {number: ours(name) for number, name in numbered(schema).items()}


def test_torchs_and_openvinos_own_names_are_ours():
    assert {name: ours(name) for name in (*_STORAGES, *_TYPES)} == {**_STORAGES, **_TYPES}
    alike = {"nf4": "u4", "u1": "u2"}  # stored in as many bits, or in the fewest that there are
    found = {name: ELEMENTS[number].name for name, number in OPENVINO.items()}
    assert found == {name: alike.get(name) or ours(name) for name in OPENVINO}
    narrow = {name for name in set(found.values()) if re.fullmatch(r"[iuf][1-8](e\dm\d)?", name)}
    assert {ELEMENTS[number].name for number in _NARROW} == narrow - {"f8e8m0"}, "weights, and no scales"
