"""CLIP and SigLIP: an image tower and a text tower that end in the same space."""

from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.body import Body, NamePrefixes
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.encoder import encoder
from inferometer.formats.huggingface.family import Family, family_of, prepared
from inferometer.formats.huggingface.vision import vision


def contrastive(family: Family, config: Config, heads: tuple[str, ...]) -> Body:
    """Images and texts come in equal numbers: every image is compared with every text."""
    seen = _tower(family, config, "vision", heads)
    read = _tower(family, config, "text", heads)
    ops = _compared(family, seen.outputs[0], read.outputs[0])
    sizes = {**seen.metadata["default_sizes"]}
    if read.context_limit is not None:
        sizes["query"] = read.context_limit
    return Body(
        blocks=(*seen.blocks, *read.blocks, Block(name="compare", ops=ops)),
        inputs=(*seen.inputs, *read.inputs),
        outputs=(nn.output(ops),),
        context_limit=read.context_limit,
        metadata={
            "vision": {key: value for key, value in seen.metadata.items() if key != "default_sizes"},
            "text": dict(read.metadata),
            "default_sizes": sizes,
        },
    )


def _tower(family: Family, config: Config, side: str, heads: tuple[str, ...]) -> Body:
    plain = config.table(f"{side}_config")
    shared = {"projection_dim": config.get("projection_dim")} if "projection" in heads else {}
    plain = Config(name=config.name, values={**plain.values, **shared}, inside=plain.inside)
    row = family_of(plain, family.parts[side])
    ready = prepared(plain, row, nested=True)
    ends = (*row.tasks["Model"], *heads)
    expand = vision if side == "vision" else encoder
    return expand(row, ready, ends, NamePrefixes(body=f"{row.base}.", at=f"{side}."))


def _compared(family: Family, image: Tensor, text: Tensor) -> tuple[Op, ...]:
    images, texts = nn.norm("compare.image_norm", image, "l2"), nn.norm("compare.text_norm", text, "l2")
    # CLIP stores its scale as a scalar, SigLIP scale and bias as one number each
    weights = [nn.weight(family.names["scale"], *((1,) if "bias" in family.names else ()))]
    if "bias" in family.names:
        weights.append(nn.weight(family.names["bias"], 1))
    scores = Op(
        name="compare.scores",
        kind="matmul",
        inputs=(nn.output(images), nn.output(texts)),
        outputs=(nn.tensor("compare.scores", nn.BATCH, nn.BATCH),),
        weights=tuple(weights),
        attributes={"contracted": nn.width(image)},
    )
    return images, texts, scores
