"""From a config to a Graph."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError, UnknownNameError
from inferometer.core.graph import Graph
from inferometer.formats.huggingface.body import Body, Place
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.family import Family, class_name, family_of, prepared
from inferometer.formats.huggingface.quantized import quantized

# A row's `template` is a function of the module of that name, or of the one said here; it is imported when needed.
_MODULES = {
    "llava": "multimodal", "qwen_vl": "multimodal", "diffusers_dit": "dit", "flux": "mmdit", "sd3": "mmdit",
    "inverted": "mobile", "resnet": "cnn", "convnext": "cnn", "densenet": "cnn", "plain": "cnn", "squeezenet": "cnn",
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


def _expand(family: Family, config: Config) -> Body:
    heads, bare = _heads(family, config)
    expand = _template(family.template)
    if family.template in _HEADED:
        prefix = f"{family.base}." if family.base and (family.keeps_base or not bare) else ""
        return expand(family, config, heads, Place(body=prefix))
    if family.template in _JOINED:
        return expand(family, config, heads)
    return expand(family, config) if family.template in _NUMBERED else expand(config)


def _template(name: str) -> Callable[..., Body]:
    module = import_module(f"inferometer.formats.huggingface.{_MODULES.get(name, name)}")
    function: Callable[..., Body] = getattr(module, name)
    return function


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
