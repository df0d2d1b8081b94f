"""Quantisation and precision: speed-up bounds, model bytes, rounding and its noise."""

import numpy as np

from inferometer.known.formulas import parallel
from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.elementwise import greatest, least
from inferometer.known.formulas.registry import formula


@formula(
    row="12.2 Quantization speedup bound",
    source="definition",
    example={"original_bits": 16, "quantized_bits": 4.5},
    answer=16 / 4.5,
)
def quantization_speedup_bound(*, original_bits: q.Bits, quantized_bits: q.Bits) -> q.SomeRatio:
    """The most that fewer bits a weight can speed up a memory-bound step.

    Derivation: the time is bytes over bandwidth, so it falls as the bytes do: bits before over bits after. Count the
    scales: Q4_0 and Q4_K store 4.5 bits a weight, so from 16 bits the bound is 3.56 and not 4.
    Units: bit and bit, stored per weight → 1.
    Ignores: unpacking the weights, the parts that stay as they were, and compute-bound phases such as prefill.
    """
    return original_bits / quantized_bits


@formula(
    row="12.2 Amdahl-limited quant speedup",
    source="Amdahl 1967, Validity of the Single Processor Approach",
    example={"fraction": 0.9, "original_bits": 16, "quantized_bits": 4},
    answer=40 / 13,
)
def quantization_speedup(*, fraction: q.Fraction, original_bits: q.Bits, quantized_bits: q.Bits) -> q.SomeRatio:
    """The speed-up of quantising when only a fraction of the time is reading those weights.

    Derivation: Amdahl with s = bits before/bits after: 1/((1−f) + f·bits_q/bits_o).
    Units: a fraction of the old time, bit and bit → 1.
    Ignores: unpacking, which comes on top.
    """
    bound = quantization_speedup_bound(original_bits=original_bits, quantized_bits=quantized_bits)
    return parallel.amdahl(fraction=fraction, speedup=bound)


@formula(
    row="12.1 Model bytes",
    source="ggml, block_q4_0: 18 B per 32 weights (the example)",
    example={"parameters": 1_235_814_400, "bits": 4.5},
    answer=695_145_600.0,
)
def model_bytes(*, parameters: q.SomeAmount, bits: q.Bits) -> q.SomeBytes:
    """Bytes of a model's weights.

    Derivation: parameters × bits, eight to a byte. `bits` is what is stored, scales included: Q4_0 has 18 bytes for 32
    weights, 4.5 bits each.
    Units: parameters and bit per weight → B.
    Ignores: tensors kept in another type (norms, often the embedding and the head) and the file's own header.
    """
    return parameters * bits / 8


@formula(
    row="12.1 Symmetric quantize",
    source="Gholami et al. 2021, A Survey of Quantization Methods, arXiv:2103.13630",
    example={"value": 93.47, "largest": 98.56},
    answer=120,
)
def symmetric_quantize(*, value: q.Real, largest: q.SomeRatio, bits: q.WholeBits = 8) -> q.WholeNumber:
    """The integer that stands for a value.

    Derivation: the scale s maps the largest magnitude to the largest integer, s = max|x|/(2^(bits−1) − 1); then
    q = round(x/s), kept within ± that integer. Zero stays zero.
    Units: a value and the largest magnitude in one unit, and bits → an integer.
    Ignores: the lowest code (−128 in 8 bits), left out to stay symmetric. Halves go to the even neighbour.
    """
    top = 2.0 ** (bits - 1) - 1
    return np.rint(greatest(least(value / largest, 1.0), -1.0) * top)


@formula(
    row="12.1 Uniform quant SQNR",
    source="Bennett 1948, Spectra of Quantized Signals",
    example={"bits": 8},
    answer=49.92,
)
def quantization_sqnr(*, bits: q.Bits) -> q.Decibels:
    """The signal-to-noise ratio that uniform quantising leaves.

    Derivation: a full-scale sine has power A²/2; rounding to steps Δ = 2A/2ᵇ leaves an error of Δ²/12. Their quotient
    is 1.5·4ᵇ, which is 10·log₁₀(1.5) + 20·b·log₁₀(2) ≈ 1.76 + 6.02·b dB.
    Units: bit → dB. The constants are rounded as everyone writes them, 0.01 % low.
    Ignores: signals that do not fill the range. Weights are closer to a bell curve and lose several dB.
    """
    return 6.02 * bits + 1.76
