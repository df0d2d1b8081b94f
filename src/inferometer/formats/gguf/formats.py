"""GGUF's numbers for things: types of metadata values and of tensors.

Source: the GGUF specification (ggml, docs/gguf.md) and ggml.h. The block sizes of tensor types are `core.dtype`'s.
"""

from inferometer.core.dtypes import DTYPES, DType

# value type → struct letter
SCALARS: dict[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
BOOL, STRING, ARRAY = 7, 8, 9
VALUE_NAMES: dict[int, str] = {
    0: "u8", 1: "i8", 2: "u16", 3: "i16", 4: "u32", 5: "i32", 6: "f32", 7: "bool", 8: "string", 9: "array",
    10: "u64", 11: "i64", 12: "f64",
}  # fmt: skip

# Tensor type → the format, and how many numbers a row must be a multiple of. Types 31–33 and 36–38 are q4_0 and iq4_nl
# with their rows interleaved for one processor: withdrawn from the format, met in old files, of the same size.
_INTERLEAVED = {31: "q4_0", 32: "q4_0", 33: "q4_0", 36: "iq4_nl", 37: "iq4_nl", 38: "iq4_nl"}
_ROWS = {"nvfp4": 64}  # stored four blocks at a time

TENSOR_TYPES: dict[int, tuple[DType, int]] = {
    number: (entry, _ROWS.get(entry.name, entry.elements))
    for number, entry in [
        *((entry.gguf_type, entry) for entry in DTYPES.values() if entry.gguf_type is not None),
        *((number, DTYPES[name]) for number, name in _INTERLEAVED.items()),
    ]
}
