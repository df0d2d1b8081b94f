"""Torch's number formats under our names."""

from inferometer.core.dtype import dtype
from inferometer.errors import UnknownNameError

__all__ = ["SCALAR_TYPES", "format_of"]

# The numbers that exported programs use for formats (torch's serialised ScalarType). Formats that have no row of their
# own stand for another of the same width, so that their bytes are exact.
SCALAR_TYPES: dict[int, str] = {
    1: "u8",
    2: "i8",
    3: "i16",
    4: "i32",
    5: "i64",
    6: "f16",
    7: "f32",
    8: "f64",
    9: "u32",  # a complex number of two halves
    10: "c64",
    11: "c128",
    12: "bool",
    13: "bf16",
    28: "u16",
    29: "f8e4m3",
    30: "f8e5m2",
    31: "f8e4m3",  # other infinities, the same width
    32: "f8e5m2",
    33: "u8",  # eight bits of exponent: the scales of micro-scaled formats
    34: "u32",
    35: "u64",
}

_BY_WIDTH = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "c128"}


def format_of(name: str, width: int) -> str | None:
    """The format of a torch dtype, by its name without `torch.`, else by the bytes one number takes."""
    try:
        return dtype(name).name
    except UnknownNameError:
        return _BY_WIDTH.get(width)
