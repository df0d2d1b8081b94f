from fractions import Fraction

import gguf
import numpy as np
import pytest

from fakes.every import every
from inferometer.core.dtypes import DTYPES, dtype, is_gguf_block
from inferometer.core.errors import UnknownNameError


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("f32", 32), ("tf32", 32), ("bf16", 16), ("f16", 16), ("f8e4m3", 8), ("f8e5m2", 8), ("i8", 8), ("i4", 4),
        ("mxfp4", 4.25), ("nvfp4", 4.5), ("mxfp6", 6.25), ("mxfp8", 8.25), ("q4_0", 4.5), ("q4_1", 5), ("q5_0", 5.5),
        ("q5_1", 6), ("q8_0", 8.5), ("q2_k", 2.625), ("q3_k", 3.4375), ("q4_k", 4.5), ("q5_k", 5.5), ("q6_k", 6.5625),
        ("iq1_s", 1.5625), ("iq4_nl", 4.5), ("iq4_xs", 4.25), ("tq1_0", 1.6875), ("tq2_0", 2.0625),
    ],
)  # fmt: skip
def test_stored_bits_count_the_scales(name, bits):
    assert dtype(name).bits == Fraction(bits)


GGML_TYPES = {kind: size for kind, size in gguf.GGML_QUANT_SIZES.items() if kind.name != "Q8_1"}


@every(GGML_TYPES, name=lambda kind: kind.name)
def test_every_gguf_type_takes_the_bytes_that_the_gguf_package_says(kind):
    elements, size = GGML_TYPES[kind]
    ours = next(entry for entry in DTYPES.values() if entry.gguf_type == int(kind))
    assert ours.nbytes(elements * 7) == size * 7


def test_q8_1_follows_ggml_itself():
    """ggml's block_q8_1 is two halves and 32 bytes; the gguf package still says 40, from when they were floats."""
    assert dtype("q8_1").nbytes(32) == 36


def test_a_part_of_a_block_takes_the_whole_block():
    assert dtype("q4_0").nbytes(33) == 36
    assert dtype("i4").nbytes(3) == 2
    assert dtype("f32").nbytes(0) == 0


def test_bytes_are_counted_for_arrays_at_once():
    assert dtype("q4_0").nbytes(np.array([32, 64, 65])).tolist() == [18, 36, 54]


def test_arithmetic_names_formats_that_exist_and_begins_with_its_own_or_a_native_one():
    for entry in DTYPES.values():
        assert entry.arithmetic
        assert all(name in DTYPES for name in entry.arithmetic)


def test_other_libraries_names_are_known():
    assert dtype("bfloat16") is dtype("bf16")
    assert dtype("float32") is dtype("f32")
    assert dtype("Q4_K") is dtype("q4_k")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("q4_k_m", "q4_k"), ("Q4_K_S", "q4_k"), ("q5_k_m", "q5_k"), ("q3_k_l", "q3_k"), ("iq3_m", "iq3_s"),
        ("int8", "i8"), ("int4", "i4"), ("fp16", "f16"), ("float16", "f16"), ("bfloat16", "bf16"), ("fp8", "f8e4m3"),
        ("fp8_e5m2", "f8e5m2"), ("awq", "i4"), ("GPTQ", "i4"), ("gptq-int4", "i4"), ("nf4", "i4"), ("mxfp4", "mxfp4"),
    ],
)  # fmt: skip
def test_formats_are_known_by_the_names_of_files_and_checkpoints(said, meant):
    assert dtype(said).name == meant


def test_no_name_means_two_formats():
    names = [name for entry in DTYPES.values() for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))


def test_only_blocks_that_ggml_alone_multiplies_need_an_engine_that_opens_gguf():
    assert is_gguf_block("q4_k_m")
    assert not is_gguf_block("mxfp4")  # gpt-oss is served so by engines that never open a GGUF file


def test_an_unknown_format_is_an_error_with_suggestions():
    with pytest.raises(UnknownNameError, match="Did you mean q4_0"):
        dtype("q4_00")
