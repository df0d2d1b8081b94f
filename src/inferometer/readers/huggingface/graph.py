"""From a config to a Graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.dtype import dtype
from inferometer.core.graph import Graph
from inferometer.errors import FormatError, UnknownNameError
from inferometer.readers.huggingface.cnn import convnext, densenet, plain, resnet, squeezenet
from inferometer.readers.huggingface.config import Config
from inferometer.readers.huggingface.contrastive import contrastive
from inferometer.readers.huggingface.decoder import decoder
from inferometer.readers.huggingface.dit import diffusers_dit, dit
from inferometer.readers.huggingface.encoder import encoder
from inferometer.readers.huggingface.family import Family, class_name, family_of, prepared
from inferometer.readers.huggingface.mmdit import flux, sd3
from inferometer.readers.huggingface.mobile import inverted
from inferometer.readers.huggingface.multimodal import llava, qwen_vl
from inferometer.readers.huggingface.place import Place
from inferometer.readers.huggingface.quantized import quantized
from inferometer.readers.huggingface.seq2seq import seq2seq
from inferometer.readers.huggingface.swin import swin
from inferometer.readers.huggingface.unet import unet
from inferometer.readers.huggingface.vision import vision
from inferometer.readers.huggingface.yolo import yolo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.readers.huggingface.body import Body

__all__ = ["graph_from_config"]

# What a row's `template` names, by what the function needs to know.
_HEADED: dict[str, Callable[[Family, Config, tuple[str, ...], Place], Body]] = {
    "decoder": decoder,
    "encoder": encoder,
    "seq2seq": seq2seq,
    "vision": vision,
    "swin": swin,
}
_JOINED = {"contrastive": contrastive, "llava": llava, "qwen_vl": qwen_vl}
_NUMBERED = {"plain": plain, "inverted": inverted}
_ALONE = {
    "unet": unet,
    "dit": dit,
    "diffusers_dit": diffusers_dit,
    "flux": flux,
    "sd3": sd3,
    "resnet": resnet,
    "convnext": convnext,
    "densenet": densenet,
    "squeezenet": squeezenet,
    "yolo": yolo,
}


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
    template = family.template
    if template in _HEADED:
        prefix = f"{family.base}." if family.base and (family.keeps_base or not bare) else ""
        return _HEADED[template](family, config, heads, Place(body=prefix))
    if template in _JOINED:
        return _JOINED[template](family, config, heads)
    if template in _NUMBERED:
        return _NUMBERED[template](family, config)
    return _ALONE[template](config)


def _heads(family: Family, config: Config) -> tuple[tuple[str, ...], bool]:
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
    said = config.get("torch_dtype", config.get("dtype"))
    if not isinstance(said, str):
        return None
    try:
        return dtype(said.removeprefix("torch.")).name
    except UnknownNameError:
        return None
