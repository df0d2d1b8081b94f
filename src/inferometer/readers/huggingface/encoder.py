"""Encoders of text: BERT and its kin, and the text side of CLIP and SigLIP. Heads are steps in the family's row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.graph import Block, Op
from inferometer.readers.huggingface.body import Body, ending_in
from inferometer.readers.huggingface.decoder import sizes_of
from inferometer.readers.huggingface.embed import embedded
from inferometer.readers.huggingface.heads import headed
from inferometer.readers.huggingface.layer import stack
from inferometer.readers.huggingface.parts import BATCH, QUERY, norm, output, tensor
from inferometer.readers.huggingface.plan import layers_of

if TYPE_CHECKING:
    from inferometer.core.dims import Dim
    from inferometer.readers.huggingface.config import Config
    from inferometer.readers.huggingface.family import Family

__all__ = ["encoder"]


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
