"""From a decoder's variables to its graph: a config is made of their names and sizes, and its graph gets their bytes.

CTranslate2 keeps no config of the checkpoint. A decoder with RMS norms before its parts, rotary positions and a gated
MLP is a Llama, with biases of queries a Qwen2, with norms of them a Qwen3, with norms after its parts too a Gemma 2; of
any other the weights alone are known.
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Tensor
from inferometer.formats import stored
from inferometer.formats.stored import Companion, Stored

# The variables of a `model.bin`: names, shapes and formats, and the value of a single number; weights are not read.
#
# The file is a version, the name of the architecture's class and its revision, the variables with their bytes, and
# other names of some of them; all numbers are little-endian.

# By the number that the file has for a format: its name, and how Python unpacks one number of it.
_TYPES = {0: ("f32", "<f"), 1: ("i8", "<b"), 2: ("i16", "<h"), 3: ("i32", "<i"), 4: ("f16", "<e"), 5: ("bf16", "")}
_MOST = 1_000_000  # variables; a large model has some ten thousand
_LONGEST = 4096  # bytes of a name
_AXES = 8


@frozen
class Variable:
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    value: float | None = None  # of a single number


@frozen
class ModelBin:
    """`variables` by all of their names."""

    architecture: str  # the class that describes it: TransformerDecoderSpec
    variables: Mapping[str, Variable]
    aliases: Mapping[str, str]

    def number(self, name: str, default: float) -> float:
        variable = self.variables.get(name)
        return default if variable is None or variable.value is None else variable.value


def read_variables(path: Path) -> ModelBin:
    try:
        with path.open("rb") as file:
            return _parsed(file, path.stat().st_size)
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except OSError as error:
        raise FormatError(f"{str(path)!r} cannot be opened: {error}.") from None
    except (struct.error, ValueError) as error:
        raise FormatError(
            f"{str(path)!r} cannot be read as CTranslate2's weights: {error}.",
            remedy="Convert the model again: `inferometer prepare CHECKPOINT --for ctranslate2 -o FOLDER`.",
        ) from None


def _parsed(file: BinaryIO, size: int) -> ModelBin:
    _read_whole(file)  # the version of the file format
    architecture = _text(file)
    _read_whole(file)  # the revision of the class
    count = _counted(_read_whole(file))
    variables: dict[str, Variable] = {}
    for _ in range(count):
        name = _text(file)
        variables[name] = _variable(file, name, size)
    aliases = {}
    for _ in range(_counted(_read_whole(file))):
        alias, name = _text(file), _text(file)
        if name not in variables:
            raise ValueError(f"{alias!r} is another name of {name!r}, which is not there")
        aliases[alias] = name
    named = {alias: variables[name] for alias, name in aliases.items()}
    return ModelBin(architecture=architecture, variables=variables | named, aliases=aliases)


def _variable(file: BinaryIO, name: str, size: int) -> Variable:
    (axes,) = struct.unpack("<B", file.read(1))
    if axes > _AXES:
        raise ValueError(f"{name!r} has {axes} axes")
    shape = tuple(_read_whole(file) for _ in range(axes))
    (kind,) = struct.unpack("<B", file.read(1))
    nbytes = _read_whole(file)
    if kind not in _TYPES:
        raise ValueError(f"{name!r} is of a type with the number {kind}")
    if file.tell() + nbytes > size:
        raise ValueError(f"{name!r} has {nbytes} bytes, which are not all there")
    dtype, code = _TYPES[kind]
    if shape or not code or nbytes != struct.calcsize(code):
        file.seek(nbytes, 1)
        return Variable(shape=shape, dtype=dtype, nbytes=nbytes)
    return Variable(shape=shape, dtype=dtype, nbytes=nbytes, value=struct.unpack(code, file.read(nbytes))[0])


def _read_whole(file: BinaryIO) -> int:
    number: int = struct.unpack("<I", file.read(4))[0]
    return number


def _counted(number: int) -> int:
    if number > _MOST:
        raise ValueError(f"it would have {number} variables")
    return number


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<H", file.read(2))
    if not 1 <= length <= _LONGEST:
        raise ValueError(f"a name has {length} bytes")
    raw = file.read(length)
    if len(raw) != length or raw[-1]:
        raise ValueError("a name does not end where it should")
    return raw[:-1].decode()


_FIRST = "decoder/layer_0"
_ACTIVATIONS = {0: "relu", 1: "gelu_pytorch_tanh", 2: "silu", 3: "gelu"}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_QUERIES = re.compile(r"self_attn\.([qkv])_proj\.(weight|bias)")
# By the names in a checkpoint, the names here; of a layer without their beginning.
_IN_LAYER = {
    "input_layernorm.weight": "self_attention/layer_norm/gamma",
    "self_attn.o_proj.weight": "self_attention/linear_1/weight",
    "self_attn.q_norm.weight": "self_attention/q_norm/gamma",
    "self_attn.k_norm.weight": "self_attention/k_norm/gamma",
    "post_attention_layernorm.weight": "ffn/layer_norm/gamma",
    "mlp.gate_proj.weight": "ffn/linear_0/weight",
    "mlp.up_proj.weight": "ffn/linear_0_noact/weight",
    "mlp.down_proj.weight": "ffn/linear_1/weight",
}
_NORMS_OF_GEMMA = {
    "input_layernorm.weight": "input_layer_norm/gamma",
    "post_attention_layernorm.weight": "post_attention_layer_norm/gamma",
    "pre_feedforward_layernorm.weight": "pre_feedforward_layer_norm/gamma",
    "post_feedforward_layernorm.weight": "post_feedforward_layer_norm/gamma",
}
_OUTSIDE = {
    "model.embed_tokens.weight": "decoder/embeddings/weight",
    "model.norm.weight": "decoder/layer_norm/gamma",
    "lm_head.weight": "decoder/projection/weight",
}
_NUMBERS = frozenset({"f32", "f16", "bf16"})


def decoder_graph(held: ModelBin, *, name: str) -> Graph:
    from inferometer.formats.huggingface.graph import graph_from_config  # noqa: PLC0415 - quick to import this module

    config = _config(held)
    if config is None:
        return _tensors_only(held, name, "The architecture is none that is known by its weights")
    try:
        graph = graph_from_config(config, name=name)
    except InferometerError as error:
        return _tensors_only(held, name, f"No graph could be made of it ({error.message})")
    found, problems = stored.fit(graph, _locator(held, config))
    if problems:
        return _tensors_only(held, name, f"The weights do not fit ({stored.listed(problems)})")
    return replace(stored.with_stored(graph, found), precision=_precision(held))


def _config(held: ModelBin) -> dict[str, Any] | None:
    """As a checkpoint has it; None for an architecture that is not known."""
    variables, at = held.variables, f"{_FIRST}/self_attention"
    needed = (f"{at}/linear_0/weight", f"{_FIRST}/ffn/linear_0_noact/weight", "decoder/embeddings/weight")
    known = all(key in variables for key in needed) and f"{at}/rotary_dim" in variables
    around = all(f"{_FIRST}/{name}" in variables for name in _NORMS_OF_GEMMA.values())
    ends = ("/beta", "/router/weight") if around else ("/beta", "/router/weight", "input_layer_norm/gamma")
    plain = not any(key.endswith(ends) for key in variables)
    normed = around or f"{at}/layer_norm/gamma" in variables
    if not known or not plain or not normed or not held.number("decoder/pre_norm", 1):
        return None
    heads = int(held.number("decoder/num_heads", 0))
    kv = int(held.number(f"{at}/num_heads_kv", heads)) or heads
    fused, table = variables[needed[0]], variables["decoder/embeddings/weight"]
    if not heads or len(table.shape) != 2 or fused.shape[0] % (heads + 2 * kv):
        return None
    numbers = {key.split("/")[1].removeprefix("layer_") for key in held.variables if key.startswith("decoder/layer_")}
    layers = sum(1 for number in numbers if number.isdecimal())
    return {
        "model_type": _family(held, at),
        "hidden_size": table.shape[1],
        "intermediate_size": variables[needed[1]].shape[0],
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": fused.shape[0] // (heads + 2 * kv),
        "vocab_size": table.shape[0],
        "hidden_act": _ACTIVATIONS.get(int(held.number("decoder/activation", 2)), "silu"),
        "tie_word_embeddings": held.aliases.get("decoder/projection/weight") == "decoder/embeddings/weight",
    }


def _family(held: ModelBin, attention: str) -> str:
    if f"{attention}/q_norm/gamma" in held.variables:
        return "qwen3"
    if f"{_FIRST}/pre_feedforward_layer_norm/gamma" in held.variables:
        return "gemma2"
    return "qwen2" if f"{attention}/linear_0/bias" in held.variables else "llama"


def _precision(held: ModelBin) -> str:
    """The format of the numbers that are not quantised: that of the final norm."""
    norm = held.variables.get("decoder/layer_norm/gamma")
    return norm.dtype if norm is not None and norm.dtype in _NUMBERS else "f32"


def _locator(held: ModelBin, config: dict[str, Any]) -> Callable[[str, Tensor], Stored | None]:
    size, heads, kv = (config[key] for key in ("head_dim", "num_attention_heads", "num_key_value_heads"))
    rows = {"q": size * heads, "k": size * kv, "v": size * kv}
    inside = {**_IN_LAYER, **_NORMS_OF_GEMMA} if config["model_type"] == "gemma2" else _IN_LAYER

    def locate(name: str, _weight: Tensor) -> Stored | None:
        layer = _LAYER.fullmatch(name)
        if layer is None:
            return _whole(held, _OUTSIDE.get(name, ""))
        at, rest = f"decoder/layer_{layer[1]}", layer[2]
        if part := _QUERIES.fullmatch(rest):
            return _rows(held, f"{at}/self_attention/linear_0/{part[2]}", rows[part[1]])
        return _whole(held, f"{at}/{inside.get(rest, '')}")

    return locate


def _whole(held: ModelBin, name: str) -> Stored | None:
    variable = held.variables.get(name)
    return None if variable is None else _rows(held, name, variable.shape[0])


def _rows(held: ModelBin, name: str, count: int) -> Stored | None:
    """So many rows of a matrix that may hold several weights, with the scales of those rows."""
    variable = held.variables.get(name)
    if variable is None or not variable.shape or count > variable.shape[0]:
        return None
    own = held.aliases.get(name, name)
    scale = held.variables.get(f"{own}_scale")
    companions = () if scale is None else (_scale(scale, count, variable.shape[0]),)
    return Stored(
        names=(own,), shape=(count, *variable.shape[1:]), dtype=variable.dtype,
        nbytes=variable.nbytes * count // variable.shape[0], companions=companions,
    )  # fmt: skip


def _scale(scale: Variable, count: int, rows: int) -> Companion:
    one_a_row = scale.shape[:1] == (rows,)
    shape = (count, *scale.shape[1:]) if one_a_row else scale.shape
    nbytes = scale.nbytes * count // rows if one_a_row else scale.nbytes
    return Companion(suffix=".weight_scale", shape=shape, dtype=scale.dtype, nbytes=nbytes)


def _tensors_only(held: ModelBin, name: str, why: str) -> Graph:
    weights = [
        Stored(names=(key.replace("/", "."),), shape=variable.shape, dtype=variable.dtype, nbytes=variable.nbytes)
        for key, variable in held.variables.items()
        if variable.shape and key not in held.aliases and not key.endswith("_scale")
    ]
    graph = stored.tensors_graph(name, weights)
    return replace(graph, precision=_precision(held), metadata={**graph.metadata, "notes": (stored.tensors_only(why),)})
