"""Vision transformers: patches, layers, and what is read off at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.graph import Block, Op, Tensor
from inferometer.readers.huggingface.body import Body, ending_in
from inferometer.readers.huggingface.decoder import sizes_of
from inferometer.readers.huggingface.heads import headed
from inferometer.readers.huggingface.layer import stack
from inferometer.readers.huggingface.parts import (
    BATCH,
    IMAGE,
    convolution,
    copy,
    elementwise,
    norm,
    output,
    tensor,
    view,
    weight,
)
from inferometer.readers.huggingface.plan import layers_of

if TYPE_CHECKING:
    from inferometer.readers.huggingface.config import Config
    from inferometer.readers.huggingface.family import Family

__all__ = ["patches", "vision"]


def vision(
    family: Family, config: Config, heads: tuple[str, ...], *, prefix: str, outer: str = "", at: str = ""
) -> Body:
    """`at` goes before every op's name where the tower is one part of a model."""
    pixels = tensor(f"{at}pixel_values", BATCH, config.whole("num_channels", 3), IMAGE, IMAGE)
    stem = _stem(family, config, pixels, prefix, at)
    tokens = output(stem).shape[1]
    stream = tensor(f"{at}hidden", BATCH, tokens, config.whole("hidden_size"))
    layers = layers_of(family, config, prefix, cached=False)
    ends: list[Op] = []
    if module := family.names.get("final_norm"):
        ends.append(norm(f"{at}final_norm", stream, family.norm, f"{prefix}{module}", bias=family.norm_bias))
    ends += headed(family, config, output(ends) if ends else stream, heads, (prefix, outer, at))
    return Body(
        blocks=(
            Block(name=f"{at}embed", ops=ending_in(stem, stream.name)),
            *stack(layers, at, stream, block=f"{at}encoder"),
            *((Block(name=f"{at}head", ops=tuple(ends)),) if ends else ()),
        ),
        inputs=(pixels,),
        outputs=(output(ends) if ends else stream,),
        metadata={**sizes_of(config, layers), "default_sizes": {"image": config.whole("image_size")}},
    )


def patches(name: str, pixels: Tensor, features: int, size: int, module: str, *, bias: bool) -> list[Op]:
    """Each patch of `size` × `size` pixels becomes one token: a convolution whose stride is its kernel."""
    conv = convolution(name, pixels, features, (size, size), module, strides=(size, size), bias=bias)
    y = output(conv)
    return [conv, view(f"{name}.rows", y, BATCH, y.shape[2] * y.shape[3], features)]


def _stem(family: Family, config: Config, pixels: Tensor, prefix: str, at: str) -> list[Op]:
    names, hidden, size = family.names, config.whole("hidden_size"), config.whole("patch_size")
    side = config.whole("image_size") // size
    if not side:
        raise config.error("patch_size", f"is {size}, more than the image's side")
    module = f"{prefix}{names['patch']}"
    ops = patches(f"{at}embed.patches", pixels, hidden, size, module, bias=family.conv_bias)
    extra = family.class_tokens
    if extra:
        rows = output(ops)
        shape = (hidden,) if family.flat_tokens else (1, 1, hidden)
        tokens = [weight(f"{prefix}{names['class_token']}", *shape)]
        if "distillation_token" in names:
            tokens.append(weight(f"{prefix}{names['distillation_token']}", *shape))
        if "mask_token" in names:  # stored with the others; only training reads it
            tokens.append(weight(f"{prefix}{names['mask_token']}", 1, hidden))
        shape_out = (BATCH, rows.shape[1] + extra, hidden)
        ops.append(copy(f"{at}embed.tokens", "concat", (rows,), *shape_out, weights=tuple(tokens)))
    count = side * side + extra
    table = weight(f"{prefix}{names['position_table']}", *((count, hidden) if family.flat_tokens else (1, count, hidden)))
    ops.append(elementwise(f"{at}embed.positions", "add", output(ops), weights=(table,)))
    if module := names.get("first_norm", ""):
        ops.append(norm(f"{at}embed.norm", output(ops), family.norm, f"{prefix}{module}", bias=family.norm_bias))
    return ops
