"""From a config to a Graph."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError, UnknownNameError
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.config import LARGEST, Config
from inferometer.formats.huggingface.family import Family, class_name, family_of, prepared

# What a config's `quantization_config` says of how weights are stored.
#
# Two methods keep the tensors' shapes, so the config alone gives the bytes: block-scaled fp8 (DeepSeek-V3) and mxfp4
# (gpt-oss). Others repack their tensors; for them only the method's name is kept, and the file must be read.


def quantized(graph: Graph, config: Config) -> Graph:
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return graph
    method = quantization.get("quant_method")
    graph = replace(
        graph, metadata={**graph.metadata, "quantization": method if isinstance(method, str) else "unknown"}
    )
    # Modules that stay as they were.
    names = quantization.get("modules_to_not_convert")
    kept = tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()
    match method:
        case "fp8":
            sides = _block_sides(quantization)
            return _over_ops(graph, lambda op: _as_fp8(op, kept, sides))
        case "mxfp4":
            return _over_ops(graph, _as_mxfp4)
        case _:
            return graph


def _over_ops(graph: Graph, change: Any) -> Graph:
    blocks = tuple(replace(block, ops=tuple(change(op) for op in block.ops)) for block in graph.blocks)
    return replace(graph, blocks=blocks)


def _block_sides(quantization: Mapping[str, Any]) -> tuple[int, int] | None:
    sides = quantization.get("weight_block_size")
    if not isinstance(sides, list) or len(sides) != 2:
        return None
    if not all(isinstance(side, int) and 0 < side < LARGEST for side in sides):
        return None
    return sides[0], sides[1]


def _as_fp8(op: Op, kept: tuple[str, ...], sides: tuple[int, int] | None) -> Op:
    """Matrices of the layers become one byte a number, with one f32 scale a block; embedding, head and router stay."""
    if op.kind not in {"linear", "moe_experts"} or op.name == "lm_head":
        return op
    weights: list[Tensor] = []
    for tensor in op.weights:
        if len(tensor.shape) < 2 or any(name in tensor.name for name in kept):
            weights.append(tensor)
            continue
        weights.append(replace(tensor, dtype="f8e4m3"))
        if sides is not None:
            *stack, rows, columns = tensor.shape
            blocks = (-(-1 * rows // sides[0]), -(-1 * columns // sides[1]))
            weights.append(
                Tensor(name=f"{tensor.name}_scale_inv", shape=(*stack, *blocks), dtype="f32", role="constant")
            )
    return replace(op, weights=tuple(weights))


def _as_mxfp4(op: Op) -> Op:
    """gpt-oss stores the experts' matrices so; the scales are in the format's own blocks."""
    if op.kind != "moe_experts":
        return op
    weights = tuple(replace(w, dtype="mxfp4") if len(w.shape) == 3 else w for w in op.weights)
    return replace(op, weights=weights)


# A row's `template` is a function of the module of that name, or of the one said here; it is imported when needed.
_MODULES = {
    "llava": "multimodal", "qwen_vl": "multimodal", "dit": "mmdit", "diffusers_dit": "mmdit", "flux": "mmdit",
    "sd3": "mmdit", "inverted": "cnn", "vision": "encoder", "contrastive": "encoder",
    "resnet": "cnn", "convnext": "cnn", "densenet": "cnn", "plain": "cnn", "squeezenet": "cnn",
}  # fmt: skip
# What the functions need to know beside the config; the others need nothing.
_HEADED = frozenset({"decoder", "encoder", "seq2seq", "vision", "swin"})
_JOINED = frozenset({"contrastive", "llava", "qwen_vl"})
_NUMBERED = frozenset({"plain", "inverted"})


def graph_from_config(config: Mapping[str, Any], *, name: str) -> Graph:
    """The graph of a model from its config alone: every weight's shape, every op, no weight read.

    The keys are Hugging Face's (`config.json` of transformers or diffusers). Weights have the checkpoint's names, with
    `{}` for the layer's index and `*` for the expert's: a stack of `experts` tensors is one tensor here.

    In the metadata stand sizes by name and `default_sizes`, what the model itself suggests for symbols (an image's
    side). Ops with the attribute `once` run once a request, not at every decoding step.
    """
    plain_config = Config(name=name, values=config)
    family = family_of(plain_config)
    ready = prepared(plain_config, family)
    body = _expand(family, ready)
    graph = Graph(
        name=name,
        blocks=body.blocks,
        inputs=body.inputs,
        outputs=body.outputs,
        architecture=family.name,
        precision=_precision(ready),
        context_limit=body.context_limit,
        metadata=body.metadata,
    )
    return quantized(graph, ready)


def _expand(family: Family, config: Config) -> nn.Body:
    heads, bare = _heads(family, config)
    module = import_module(f"inferometer.formats.huggingface.{_MODULES.get(family.template, family.template)}")
    expand: Callable[..., nn.Body] = getattr(module, family.template)
    if family.template in _HEADED:
        prefix = f"{family.base}." if family.base and (family.keeps_base or not bare) else ""
        return expand(family, config, heads, nn.NamePrefixes(body=prefix))
    if family.template in _JOINED:
        return expand(family, config, heads)
    return expand(family, config) if family.template in _NUMBERED else expand(config)


def _heads(family: Family, config: Config) -> tuple[tuple[str, ...], bool]:
    """The heads of the class the config names (the family's first where it names none), and whether it is bare.

    A bare model (`LlamaModel`) is the body itself, so its weights do not have the body's module before their names.
    """
    if not family.tasks:
        return (), False
    asked = class_name(config) or next(iter(family.tasks))
    ends = [task for task in family.tasks if asked.endswith(task) and (task != "Model" or _is_bare(family, asked))]
    if not ends:
        known = ", ".join(family.tasks)
        raise FormatError(
            f"The config of {config.name!r} names the class {asked[:80]!r}, which is not known of {family.name}.",
            remedy=f"Classes of {family.name} that are known end in {known}.",
        )
    task = max(ends, key=len)
    return tuple(family.tasks[task]), task == "Model"


def _is_bare(family: Family, asked: str) -> bool:
    """`LlamaModel` is bare; `BertLMHeadModel` also ends in Model, and is not."""
    stems = {start.removesuffix("Model").removesuffix("For") for start in family.classes}
    return asked in {"Model", *(f"{stem}Model" for stem in stems)}


def _precision(config: Config) -> str | None:
    """What the weights are stored in, where the config says it in a name that is known."""
    name = config.get("torch_dtype", config.get("dtype"))
    if not isinstance(name, str):
        return None
    try:
        return dtype(name.removeprefix("torch.")).name
    except UnknownNameError:
        return None
