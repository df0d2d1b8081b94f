"""Quantised blocks are packed as ggml reads them: its own de-quantisers give the numbers back."""

import numpy as np
import pytest

from inferometer.core.dtypes import DTYPES
from inferometer.formats.gguf.write.file import BLOCK_FORMATS, pack
from inferometer.formats.synth.weights import Weight, units, whole

SPREAD = 0.03
WEIGHT = Weight(name="w", shape=(16, 256), spread=SPREAD)
LEVELS = {
    "q8_0": 255, "q4_0": 15, "q4_1": 16, "q5_0": 31, "q5_1": 32, "q2_k": 4, "q3_k": 7, "q4_k": 16, "q5_k": 32,
    "q6_k": 63,
}  # fmt: skip


def packed(name):
    return pack(next(units(WEIGHT, 0)), SPREAD, name)


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_a_format_takes_its_exact_bytes(name):
    assert packed(name).nbytes == DTYPES[name].nbytes(WEIGHT.elements)


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_each_number_is_the_nearest_of_its_steps(name):
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    kind = gguf.GGMLQuantizationType(DTYPES[name].gguf_type)
    back = gguf.dequantize(packed(name).reshape(-1), kind)
    step = 2 * SPREAD / (LEVELS[name] - 1)
    assert np.abs(back - whole(WEIGHT, 0).reshape(-1)).max() <= step / 2 * 1.01 + 1e-5
    assert abs(back.mean()) < step


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_a_block_does_not_depend_on_the_piece_it_comes_in(name):
    pieces = [pack(piece, SPREAD, name).reshape(-1) for piece in units(WEIGHT, 0, chunk=512)]
    assert np.array_equal(np.concatenate(pieces), packed(name).reshape(-1))
