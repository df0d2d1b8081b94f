"""Vision transformers: patches, layers, and what is read off at the end."""

from inferometer.core.graph import Block, Op, Tensor
from inferometer.readers.huggingface.body import Body, ending_in
from inferometer.readers.huggingface.config import Config
from inferometer.readers.huggingface.decoder import sizes_of
from inferometer.readers.huggingface.family import Family
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
    square,
    tensor,
    view,
    weight,
    width,
)
from inferometer.readers.huggingface.place import Place
from inferometer.readers.huggingface.plan import layers_of

__all__ = ["patches", "vision"]


def vision(family: Family, config: Config, heads: tuple[str, ...], place: Place) -> Body:
    at = place.at
    pixels = tensor(f"{at}pixel_values", BATCH, config.whole("num_channels", 3), IMAGE, IMAGE)
    stem = _stem(family, config, pixels, place)
    tokens = output(stem).shape[1]
    stream = tensor(f"{at}hidden", BATCH, tokens, config.whole("hidden_size"))
    layers = layers_of(family, config, place.body, cached=False)
    ends: list[Op] = []
    if module := family.names.get("final_norm"):
        ends.append(norm(f"{at}final_norm", stream, family.norm, f"{place.body}{module}", bias=family.norm_bias))
    ends += headed(family, config, output(ends) if ends else stream, heads, place)
    return Body(
        blocks=(
            Block(name=f"{at}embed", ops=ending_in(stem, stream.name)),
            *stack(layers, at, stream, f"{at}encoder"),
            *((Block(name=f"{at}head", ops=tuple(ends)),) if ends else ()),
        ),
        inputs=(pixels,),
        outputs=(output(ends) if ends else stream,),
        metadata={**sizes_of(config, layers), "default_sizes": {"image": config.whole("image_size")}},
    )


def patches(name: str, pixels: Tensor, features: int, size: int, modules: tuple[str, bool]) -> list[Op]:
    """Each patch of `size` × `size` pixels becomes one token: a convolution whose stride is its kernel.

    `modules` is the convolution's name in the checkpoint and whether it has a bias.
    """
    module, bias = modules
    conv = convolution(name, pixels, square(features, size, stride=size, padding=0), module, bias=bias)
    y = output(conv)
    return [conv, view(f"{name}.rows", y, BATCH, y.shape[2] * y.shape[3], features)]


def _stem(family: Family, config: Config, pixels: Tensor, place: Place) -> list[Op]:
    """Patches, learned tokens before them, positions, and CLIP's first norm."""
    names, hidden, size = family.names, config.whole("hidden_size"), config.whole("patch_size")
    side = config.whole("image_size") // size
    if not side:
        raise config.error("patch_size", f"is {size}, more than the image's side")
    at, prefix = f"{place.at}embed", place.body
    ops = patches(f"{at}.patches", pixels, hidden, size, (f"{prefix}{names['patch']}", family.conv_bias))
    if family.class_tokens:
        ops.append(_tokens(family, f"{at}.tokens", output(ops), prefix))
    count = side * side + family.class_tokens
    shape = (count, hidden) if family.flat_tokens else (1, count, hidden)
    table = weight(f"{prefix}{names['position_table']}", *shape)
    ops.append(elementwise(f"{at}.positions", "add", output(ops), weights=(table,)))
    if module := names.get("first_norm", ""):
        ops.append(norm(f"{at}.norm", output(ops), family.norm, f"{prefix}{module}", bias=family.norm_bias))
    return ops


def _tokens(family: Family, name: str, rows: Tensor, prefix: str) -> Op:
    names, hidden = family.names, width(rows)
    shape = (hidden,) if family.flat_tokens else (1, 1, hidden)
    tokens = [
        weight(f"{prefix}{names[part]}", *shape) for part in ("class_token", "distillation_token") if part in names
    ]
    if "mask_token" in names:  # stored with the others; only training reads it
        tokens.append(weight(f"{prefix}{names['mask_token']}", 1, hidden))
    count = rows.shape[1] + family.class_tokens
    return copy(name, "concat", (rows,), BATCH, count, hidden, weights=tuple(tokens))
