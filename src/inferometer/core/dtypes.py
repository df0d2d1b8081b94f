"""Number formats: how many bytes they take when stored, and what arithmetic they are computed in.

A format is stored in blocks: `elements` numbers in `block_bytes` bytes, the scales counted. Plain formats have blocks
of one number (f32: 1 in 4 bytes), packed ones of a few (i4: 2 in 1 byte), GGUF's and the micro-scaled ones of many
(q4_0: 32 numbers in 18 bytes, so 4.5 bits each). Sizes are integers, so bytes are exact.
"""

from fractions import Fraction
from typing import Any

from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen


@frozen
class DType:
    name: str
    elements: int  # numbers in one storage block
    block_bytes: int  # bytes of one storage block, scales and minima included
    arithmetic: tuple[str, ...]  # formats it can be computed in, the preferred one first
    aliases: tuple[str, ...] = ()
    gguf_type: int | None = None  # GGML's number for it

    @property
    def bits(self) -> Fraction:
        """Stored bits per number, exactly."""
        return Fraction(8 * self.block_bytes, self.elements)

    def nbytes(self, count: Any) -> Any:
        """Bytes that `count` numbers take (an int or an array of ints); a part of a block takes the whole block."""
        return -(-count // self.elements) * self.block_bytes


def _plain(name: str, size: int, *arithmetic: str, aliases: tuple[str, ...] = (), gguf: int | None = None) -> DType:
    return DType(
        name=name, elements=1, block_bytes=size, arithmetic=(name, *arithmetic), aliases=aliases, gguf_type=gguf
    )


def _block(name: str, elements: int, size: int, gguf: int, aliases: tuple[str, ...] = ()) -> DType:
    """A GGUF block type: weights only; engines multiply it as int8 with int8 activations, or widen it to f16.

    Its aliases are llama.cpp's mixtures of it, as files of GGUF are named: most of their matrices are in this format.
    """
    arithmetic = ("i8", "f16", "bf16", "f32")
    return DType(name=name, elements=elements, block_bytes=size, arithmetic=arithmetic, aliases=aliases, gguf_type=gguf)


def _scaled(name: str, elements: int, size: int, *arithmetic: str, gguf: int | None = None) -> DType:
    """A micro-scaled format: numbers that share one scale per block."""
    return DType(name=name, elements=elements, block_bytes=size, arithmetic=(name, *arithmetic), gguf_type=gguf)


_WIDE = ("bf16", "f16", "f32")
# Ways to four bits that checkpoints are named after. Scales of their groups (0.1 to 0.5 bits a number) are not counted.
_FOUR_BITS = ("awq", "gptq", "nf4", "4bit", "int4_awq", "awq_int4", "gptq_int4", "bnb_4bit", "bnb_nf4")
_ALL = (
    _plain("f64", 8, aliases=("float64", "fp64", "double"), gguf=28),
    _plain("f32", 4, aliases=("float32", "fp32", "float", "single"), gguf=0),
    # 19 significant bits, held in 32: tf32 is how f32 is multiplied, not how it is stored
    _plain("tf32", 4, "f32", aliases=("tensorfloat32",)),
    _plain("bf16", 2, "f16", "f32", aliases=("bfloat16",), gguf=30),
    _plain("f16", 2, "bf16", "f32", aliases=("float16", "fp16", "half"), gguf=1),
    _plain("f8e4m3", 1, *_WIDE, aliases=("float8_e4m3fn", "fp8", "fp8_e4m3", "float8", "f8", "e4m3")),
    _plain("f8e5m2", 1, *_WIDE, aliases=("float8_e5m2", "fp8_e5m2", "e5m2")),
    _plain("i64", 8, aliases=("int64",), gguf=27),
    _plain("i32", 4, aliases=("int32",), gguf=26),
    _plain("i16", 2, "i32", aliases=("int16",), gguf=25),
    _plain("i8", 1, *_WIDE, aliases=("int8", "s8", "8bit"), gguf=24),
    _plain("u8", 1, "i8", *_WIDE, aliases=("uint8",)),
    _plain("u16", 2, "i32", aliases=("uint16",)),
    _plain("u32", 4, "i32", aliases=("uint32",)),
    _plain("u64", 8, "i64", aliases=("uint64",)),
    _plain("bool", 1, "i8", aliases=("boolean",)),
    _plain("c64", 8, "f32", aliases=("complex64",)),
    _plain("c128", 16, "f64", aliases=("complex128",)),
    DType(name="i4", elements=2, block_bytes=1, arithmetic=("i4", "i8", *_WIDE), aliases=("int4", "s4", *_FOUR_BITS)),
    DType(name="u4", elements=2, block_bytes=1, arithmetic=("i4", "i8", *_WIDE), aliases=("uint4",)),
    DType(name="i5", elements=8, block_bytes=5, arithmetic=("i5", "i8", *_WIDE), aliases=("int5",)),
    DType(name="i6", elements=4, block_bytes=3, arithmetic=("i6", "i8", *_WIDE), aliases=("int6",)),
    DType(name="i2", elements=4, block_bytes=1, arithmetic=("i2", "i4", "i8", *_WIDE), aliases=("int2",)),
    DType(name="i1", elements=8, block_bytes=1, arithmetic=("i1", "i4", "i8", *_WIDE), aliases=("binary",)),
    DType(name="f6e2m3", elements=4, block_bytes=3, arithmetic=("mxfp6", "mxfp8", "f8e4m3", *_WIDE)),
    DType(name="f6e3m2", elements=4, block_bytes=3, arithmetic=("mxfp6", "mxfp8", "f8e4m3", *_WIDE)),
    _plain("f8e8m0", 1, *_WIDE),  # a power of two: the scale of a micro-scaled block
    DType(name="f4e2m1", elements=2, block_bytes=1, arithmetic=("nvfp4", "mxfp4", "f8e4m3", *_WIDE)),
    # OCP Microscaling v1.0: 32 numbers share one 8-bit power-of-two scale
    _scaled("mxfp8", 32, 33, "f8e4m3", *_WIDE),
    _scaled("mxfp6", 32, 25, "mxfp8", "f8e4m3", *_WIDE),
    _scaled("mxfp4", 32, 17, "nvfp4", "mxfp8", "f8e4m3", *_WIDE, gguf=39),
    # 16 numbers share one 8-bit float scale; GGUF groups four such blocks into 64 numbers and 36 bytes
    _scaled("nvfp4", 16, 9, "mxfp4", "f8e4m3", *_WIDE, gguf=40),
    _block("q4_0", 32, 18, 2),
    _block("q4_1", 32, 20, 3),
    _block("q5_0", 32, 22, 6),
    _block("q5_1", 32, 24, 7),
    _block("q8_0", 32, 34, 8),
    _block("q8_1", 32, 36, 9),
    _block("q2_k", 256, 84, 10, aliases=("q2_k_s",)),
    _block("q3_k", 256, 110, 11, aliases=("q3_k_s", "q3_k_m", "q3_k_l")),
    _block("q4_k", 256, 144, 12, aliases=("q4_k_s", "q4_k_m")),
    _block("q5_k", 256, 176, 13, aliases=("q5_k_s", "q5_k_m")),
    _block("q6_k", 256, 210, 14),
    _block("q8_k", 256, 292, 15),
    _block("iq2_xxs", 256, 66, 16),
    _block("iq2_xs", 256, 74, 17),
    _block("iq3_xxs", 256, 98, 18),
    _block("iq1_s", 256, 50, 19),
    _block("iq4_nl", 32, 18, 20),
    _block("iq3_s", 256, 110, 21, aliases=("iq3_m",)),
    _block("iq2_s", 256, 82, 22, aliases=("iq2_m",)),
    _block("iq4_xs", 256, 136, 23),
    _block("iq1_m", 256, 56, 29),
    _block("tq1_0", 256, 54, 34),
    _block("tq2_0", 256, 66, 35),
    _block("q1_0", 128, 18, 41),
)

DTYPES: dict[str, DType] = {entry.name: entry for entry in _ALL}
_BY_ANY_NAME = DTYPES | {alias: entry for entry in _ALL for alias in entry.aliases}


def is_gguf_block(name: str) -> bool:
    """Whether ggml alone has kernels for numbers of this format. Micro-scaled floats lie elsewhere too."""
    known = dtype(name)
    return known.gguf_type is not None and known.elements > 1 and known.arithmetic[0] != known.name


def dtype(name: str) -> DType:
    """The format of that name or alias; an unknown one is an error with suggestions."""
    known = _BY_ANY_NAME.get(name) or _BY_ANY_NAME.get(name.casefold().replace("-", "_"))
    if known is None:
        raise UnknownNameError("number format", name, _BY_ANY_NAME, listing=f"Known: {', '.join(DTYPES)}.")
    return known
