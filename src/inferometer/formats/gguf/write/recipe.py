"""Which format each tensor of a GGUF file has.

A format's plain name (`q4_0`, `q6_k`) means every matrix in it. `q4_k_m` and `q5_k_m` are llama.cpp's mixtures: more
bits where they help most. Norms, biases, routers and other small tensors stay f32, as llama.cpp keeps them. Rows that
are no whole number of blocks take the next format that fits. Source: llama.cpp, src/llama-quant.cpp.
"""

from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.formats.gguf.write.blocks import BLOCK_FORMATS
from inferometer.formats.gguf.write.names import WrittenTensor

# our name → llama.cpp's number for the file
_FILE_TYPES = {
    "f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "q4_0": 2, "q4_1": 3, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 11,
    "q4_k": 14, "q5_k": 16, "q6_k": 18, "q4_k_m": 15, "q5_k_m": 17,
}  # fmt: skip
FORMATS = tuple(_FILE_TYPES)
_MIXTURES = {"q4_k_m": "q4_k", "q5_k_m": "q5_k"}
# where rows are no multiple of 256, and then of 32
_NARROWER = {"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}


@frozen
class GgufFacts:
    """What the mixtures look at."""

    layers: int
    heads: int = 1
    kv_heads: int = 1
    experts: int = 0
    tied: bool = False


def require_format(name: str) -> None:
    if name not in _FILE_TYPES:
        raise InferometerError(
            f"GGUF cannot be written with {name} weights here.", remedy=f"Choose one of {', '.join(FORMATS)}."
        )


def file_type(name: str) -> int:
    return _FILE_TYPES[name]


def format_of(target: WrittenTensor, name: str, model: GgufFacts) -> str:
    """The format of one tensor in a file of that format."""
    if not target.matrix:
        return "f32"
    chosen = _mixed(target, name, model) if name in _MIXTURES else name
    row = target.shape[-1]
    if chosen in _NARROWER and row % 256:
        chosen = _NARROWER[chosen]
    return "f16" if chosen in BLOCK_FORMATS and row % DTYPES[chosen].elements else chosen


def _mixed(target: WrittenTensor, name: str, model: GgufFacts) -> str:
    """The mixture's own rules, the first that holds; its base where none does."""
    base, part = _MIXTURES[name], target.stem
    more, eight = _more(target.layer, model.layers), model.experts == 8
    large = model.layers == 80 and model.kv_heads < model.heads
    rules = (
        (part == "output" or (part == "token_embd" and model.tied), "q6_k"),
        (eight and part in {"attn_k", "attn_v"}, "q8_0"),
        (more and part in {"attn_v", "ffn_down", "ffn_down_exps", "ffn_down_shexp"}, "q6_k"),
        (large and part == "attn_v", "q5_k"),
        (eight and part == "attn_output", "q5_k"),
        (part == "attn_qkv", "q5_k" if base == "q4_k" else "q6_k"),
    )
    return next((chosen for holds, chosen in rules if holds), base)


def _more(layer: int, layers: int) -> bool:
    """The first and last eighth of the layers, and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
