"""From a config to a Graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.dtype import dtype
from inferometer.core.graph import Graph
from inferometer.errors import FormatError, UnknownNameError
from inferometer.readers.huggingface.body import Body
from inferometer.readers.huggingface.config import Config
from inferometer.readers.huggingface.contrastive import contrastive
from inferometer.readers.huggingface.decoder import decoder
from inferometer.readers.huggingface.dit import diffusers_dit, dit
from inferometer.readers.huggingface.encoder import encoder
from inferometer.readers.huggingface.family import Family, class_name, family_of, prepared
from inferometer.readers.huggingface.mmdit import flux, sd3
from inferometer.readers.huggingface.multimodal import llava, qwen_vl
from inferometer.readers.huggingface.seq2seq import seq2seq
from inferometer.readers.huggingface.swin import swin
from inferometer.readers.huggingface.unet import unet
from inferometer.readers.huggingface.vision import vision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["graph_from_config"]

Template = "Callable[[Family, Config, tuple[str, ...]], Body]"


def graph_from_config(config: Mapping[str, Any], *, name: str) -> Graph:
    """The graph of a model from its config alone: every weight's shape, every op, no weight read.

    The keys are Hugging Face's (`config.json` of transformers or diffusers). Weights have the checkpoint's names, with
    `{}` for the layer's index and `*` for the expert's.
    """
    plain = Config(name=name, values=config)
    family = family_of(plain)
    ready = prepared(plain, family)
    body = _expand(family, ready)
    return Graph(
        name=name,
        blocks=body.blocks,
        inputs=body.inputs,
        outputs=body.outputs,
        architecture=family.name,
        precision=_precision(plain),
        context_limit=body.context_limit,
        metadata=body.metadata,
    )


def _expand(family: Family, config: Config) -> Body:
    heads, bare = heads_of(family, config)
    prefix = f"{family.base}." if family.base and (family.keeps_base or not bare) else ""
    match family.template:
        case "decoder":
            return decoder(family, config, heads, prefix=prefix)
        case "encoder":
            return encoder(family, config, heads, prefix=prefix)
        case "seq2seq":
            return seq2seq(family, config, heads, prefix=prefix)
        case "vision":
            return vision(family, config, heads, prefix=prefix)
        case "swin":
            return swin(family, config, heads, prefix=prefix)
        case "contrastive":
            return contrastive(family, config, heads)
        case "llava":
            return llava(family, config, heads)
        case "qwen_vl":
            return qwen_vl(family, config, heads)
        case "unet":
            return unet(config)
        case "dit":
            return dit(config)
        case "diffusers_dit":
            return diffusers_dit(config)
        case "flux":
            return flux(config)
        case "sd3":
            return sd3(config)
        case other:
            raise ValueError(f"The row of {family.name} names an unknown template {other!r}.")


def heads_of(family: Family, config: Config) -> tuple[tuple[str, ...], bool]:
    """The heads of the class the config names (the family's first where it names none), and whether it is bare.

    A bare model (`LlamaModel`) is the body itself, so its weights do not have the body's module before their names.
    """
    if not family.tasks:
        return (), False
    asked = class_name(config) or next(iter(family.tasks))
    ends = [task for task in family.tasks if asked.endswith(task)]
    if not ends:
        known = ", ".join(family.tasks)
        raise FormatError(
            f"The config of {config.name!r} names the class {asked[:80]!r}, which is not known of {family.name}.",
            remedy=f"Classes of {family.name} that are known end in {known}.",
        )
    task = max(ends, key=len)
    return tuple(family.tasks[task]), task == "Model"


def _precision(config: Config) -> str | None:
    """What the weights are stored in, where the config says it in a name that is known."""
    said = config.get("dtype", config.get("torch_dtype"))
    if not isinstance(said, str):
        return None
    try:
        return dtype(said.removeprefix("torch.")).name
    except UnknownNameError:
        return None
