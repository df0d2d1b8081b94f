"""Quantised checkpoints: one weight of the model, several tensors of the file.

Each row says how a method stores the weight `X.weight`: under which name the numbers lie, and what lies beside them.
How many bits a number has follows from its bytes. Sources: the tensor names that AutoGPTQ/GPTQModel, AutoAWQ,
compressed-tensors, bitsandbytes, torchao, TensorRT Model Optimizer, fine-grained FP8 and gpt-oss checkpoints use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from inferometer.formats.stored import Companion, Stored

_BY_BITS = {2: "i2", 4: "i4", 8: "i8"}


@dataclass(frozen=True, slots=True)
class _Method:
    """`data` and `beside` follow the weight's name without `.weight`. `joint` counts what lies beside as the weight."""

    data: str
    beside: tuple[str, ...]
    formats: Mapping[int, str]
    joint: bool = False


_SCALES = (".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_global_scale", ".input_scale",
           ".weight_zero_point", ".weight_shape", ".weight_g_idx", ".input_global_scale", ".scales")  # fmt: skip
_BITSANDBYTES = (".weight.absmax", ".weight.quant_map", ".weight.nested_absmax", ".weight.nested_quant_map",
                 ".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4", ".SCB",
                 ".weight_format")  # fmt: skip
_METHODS = (
    _Method(".qweight", (".qzeros", ".scales", ".g_idx"), _BY_BITS),  # GPTQ, AWQ
    _Method(".weight_packed", _SCALES, _BY_BITS),  # compressed-tensors
    _Method("_blocks", ("_scales",), {4: "mxfp4"}, joint=True),  # gpt-oss: 32 numbers share a scale
    _Method(".weight", (".weight_scale_2", ".weight_scale", ".input_scale"), {4: "f4e2m1"}),  # Model Optimizer, NVFP4
    _Method("._weight_qdata", ("._weight_scale", "._weight_zero_point"), {8: "i8"}),  # torchao, by transformers
    _Method(".weight", _BITSANDBYTES, {4: "i4", 8: "i8"}),
)
_PLAIN = _Method(".weight", (*_SCALES, *_BITSANDBYTES), {})  # one number a number: FP8, int8


def quantised(name: str, shape: tuple[int, ...], tensors: Mapping[str, Stored]) -> Stored | None:
    """What the file holds for a weight of that shape, with the scales that belong to it, or None."""
    stem = name.removesuffix(".weight")
    whole = tensors.get(name)
    if whole is not None and whole.elements == prod(shape):
        return _with_companions(whole, stem, _PLAIN, tensors)
    for method in _METHODS:
        data = tensors.get(stem + method.data)
        beside = [stem + suffix for suffix in method.beside if stem + suffix in tensors]
        if data is None or not beside or not prod(shape):
            continue
        bits, rest = divmod(8 * data.nbytes, prod(shape))
        if rest == 0 and bits in method.formats:
            unpacked = replace(data, shape=shape, dtype=method.formats[bits])
            return _with_companions(unpacked, stem, method, tensors)
    return whole


def _with_companions(weight: Stored, stem: str, method: _Method, tensors: Mapping[str, Stored]) -> Stored:
    beside = {suffix: tensors[stem + suffix] for suffix in method.beside if stem + suffix in tensors}
    names = (*weight.names, *(stem + suffix for suffix in beside))
    if method.joint:
        return replace(weight, names=names, nbytes=weight.nbytes + sum(entry.nbytes for entry in beside.values()))
    companions = tuple(
        Companion(suffix=suffix, shape=entry.shape, dtype=entry.dtype, nbytes=entry.nbytes)
        for suffix, entry in beside.items()
    )
    return replace(weight, names=names, companions=companions)
