"""Encoders of text: BERT and its kin, and the text side of CLIP and SigLIP. Heads are steps in the family's row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.graph import Block, Op, Tensor
from inferometer.readers.huggingface.body import Body, ending_in, function_of, labels_of
from inferometer.readers.huggingface.decoder import sizes_of
from inferometer.readers.huggingface.embed import embedded
from inferometer.readers.huggingface.layer import stack
from inferometer.readers.huggingface.parts import BATCH, QUERY, activation, linear, norm, output, reduce, tensor, view
from inferometer.readers.huggingface.plan import layers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.dims import Dim
    from inferometer.readers.huggingface.config import Config
    from inferometer.readers.huggingface.family import Family

__all__ = ["encoder", "headed"]


def encoder(
    family: Family,
    config: Config,
    heads: tuple[str, ...],
    *,
    prefix: str,
    outer: str = "",
    at: str = "",
    tokens: Dim = QUERY,
) -> Body:
    """`at` goes before every op's name where the encoder is one part of a model."""
    layers = layers_of(family, config, prefix, cached=False)
    ids = tensor(f"{at}input_ids", BATCH, tokens, role="index")
    words = embedded(family, config, ids, prefix, at=f"{at}embed")
    stream = tensor(f"{at}hidden", BATCH, tokens, config.whole("hidden_size"))
    blocks = stack(layers, at, stream, block=f"{at}encoder")
    ends: list[Op] = []
    if module := family.names.get("final_norm"):
        ends.append(norm(f"{at}final_norm", stream, family.norm, f"{prefix}{module}", bias=family.norm_bias))
    ends += headed(family, config, output(ends) if ends else stream, heads, (prefix, outer, at))
    limit = config.whole("context", None)
    return Body(
        blocks=(
            Block(name=f"{at}embed", ops=ending_in(words, stream.name)),
            *blocks,
            *((Block(name=f"{at}head", ops=tuple(ends)),) if ends else ()),
        ),
        inputs=(ids,),
        outputs=(output(ends) if ends else stream,),
        context_limit=limit,
        metadata=sizes_of(config, layers),
    )


def headed(
    family: Family, config: Config, stream: Tensor, heads: tuple[str, ...], places: tuple[str, str, str]
) -> list[Op]:
    """The steps of each head, one after the other; the step `stream` starts again from the encoder's output."""
    ops: list[Op] = []
    x = stream
    for head in heads:
        for step in family.heads[head]:
            if step["step"] == "stream":
                x = stream
                continue
            ops.append(_step(family, config, x, step, places))
            x = output(ops)
    return ops


def _step(
    family: Family, config: Config, x: Tensor, step: Mapping[str, Any], places: tuple[str, str, str]
) -> Op:
    """`inside` says that a module belongs to the body, so its name starts with the body's."""
    prefix, outer, at = places
    module = step.get("module", "")
    full = f"{prefix if step.get('inside') else outer}{module}"
    name = f"{at}head.{step.get('name', module.replace('cls.predictions.', 'mlm.') or step['step'])}"
    match step["step"]:
        case "first" | "last":
            return view(name, x, x.shape[0], x.shape[-1])
        case "mean":
            return reduce(name, x, "mean", axis=1)
        case "activation":
            return activation(name, x, function_of(step.get("function") or config.text("hidden_act", "gelu")))
        case "norm":
            return norm(name, x, family.norm, full, bias=family.norm_bias)
        case _:
            return _head_linear(family, config, x, step, (name, full, prefix, outer))


def _head_linear(
    family: Family, config: Config, x: Tensor, step: Mapping[str, Any], names: tuple[str, str, str, str]
) -> Op:
    name, full, prefix, outer = names
    features = _features(config, step["to"])
    bias = step.get("bias", False)
    shared = step.get("tied", False) and config.flag("tie_word_embeddings", family.tied)
    table = f"{prefix}{family.names['embed']}.weight" if shared else ""
    return linear(name, x, features, full, bias=f"{outer}{bias}" if isinstance(bias, str) else bias, tied=table)


def _features(config: Config, to: str) -> int:
    if to == "labels":
        return labels_of(config)
    return int(to) if to.isdigit() else int(config.whole(to))
