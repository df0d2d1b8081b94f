"""Encoders of text: BERT and its kin, and the text side of CLIP and SigLIP. Heads are steps in the family's row."""

from dataclasses import replace

from inferometer.core.graph import Block, Op
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.body import Body, Place, ending_in
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.decoder import embedded, named_sizes
from inferometer.formats.huggingface.family import Family
from inferometer.formats.huggingface.heads import headed
from inferometer.formats.huggingface.layer import stack
from inferometer.formats.huggingface.plan import planned_layers


def encoder(family: Family, config: Config, heads: tuple[str, ...], place: Place) -> Body:
    ids = nn.tensor(f"{place.at}input_ids", nn.BATCH, nn.QUERY, role="index")
    words = embedded(family, config, ids, place)
    body = encoded(family, config, heads, place, words)
    return replace(body, inputs=(ids,), context_limit=config.whole("context", None))


def encoded(family: Family, config: Config, heads: tuple[str, ...], place: Place, stem: list[Op]) -> Body:
    """What `stem` gives, through the layers and the heads."""
    at, layers = place.at, planned_layers(family, config, place.body, cached=False)
    stream = nn.tensor(f"{at}hidden", nn.BATCH, nn.output(stem).shape[1], config.whole("hidden_size"))
    ends: list[Op] = []
    if module := family.names.get("final_norm"):
        ends.append(nn.norm(f"{at}final_norm", stream, family.norm, f"{place.body}{module}", bias=family.norm_bias))
    ends += headed(family, config, nn.output(ends) if ends else stream, heads, place)
    return Body(
        blocks=(
            Block(name=f"{at}embed", ops=ending_in(stem, stream.name)),
            *stack(layers, at, stream, f"{at}encoder"),
            *((Block(name=f"{at}head", ops=tuple(ends)),) if ends else ()),
        ),
        outputs=(nn.output(ends) if ends else stream,),
        metadata=named_sizes(config, layers),
    )
