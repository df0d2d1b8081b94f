"""Vision transformers: patches, layers, and what is read off at the end."""

from dataclasses import replace

from inferometer.core.graph import Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.body import Body, NamePrefixes
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.encoder import encoded
from inferometer.formats.huggingface.family import Family


def vision(family: Family, config: Config, heads: tuple[str, ...], place: NamePrefixes) -> Body:
    pixels = nn.tensor(f"{place.at}pixel_values", nn.BATCH, config.whole("num_channels", 3), nn.IMAGE, nn.IMAGE)
    body = encoded(family, config, heads, place, _stem(family, config, pixels, place))
    sizes = {**body.metadata, "default_sizes": {"image": config.whole("image_size")}}
    return replace(body, inputs=(pixels,), metadata=sizes)


def patches(name: str, pixels: Tensor, features: int, size: int, modules: tuple[str, bool]) -> list[Op]:
    """Each patch of `size` × `size` pixels becomes one token: a convolution whose stride is its kernel.

    `modules` is the convolution's name in the checkpoint and whether it has a bias.
    """
    module, bias = modules
    conv = nn.convolution(name, pixels, nn.square(features, size, stride=size, padding=0), module, bias=bias)
    y = nn.output(conv)
    return [conv, nn.view(f"{name}.rows", y, nn.BATCH, y.shape[2] * y.shape[3], features)]


def _stem(family: Family, config: Config, pixels: Tensor, place: NamePrefixes) -> list[Op]:
    """Patches, learned tokens before them, positions, and CLIP's first norm."""
    names, hidden, size = family.names, config.whole("hidden_size"), config.whole("patch_size")
    side = config.whole("image_size") // size
    if not side:
        raise config.error("patch_size", f"is {size}, more than the image's side")
    at, prefix = f"{place.at}embed", place.body
    ops = patches(f"{at}.patches", pixels, hidden, size, (f"{prefix}{names['patch']}", family.conv_bias))
    if family.class_tokens:
        ops.append(_tokens(family, f"{at}.tokens", nn.output(ops), prefix))
    count = side * side + family.class_tokens
    shape = (count, hidden) if family.flat_tokens else (1, count, hidden)
    table = nn.weight(f"{prefix}{names['position_table']}", *shape)
    ops.append(nn.elementwise(f"{at}.positions", "add", ops, weights=(table,)))
    if module := names.get("first_norm", ""):
        ops.append(nn.norm(f"{at}.norm", ops, family.norm, f"{prefix}{module}", bias=family.norm_bias))
    return ops


def _tokens(family: Family, name: str, rows: Tensor, prefix: str) -> Op:
    names, hidden = family.names, nn.width(rows)
    shape = (hidden,) if family.flat_tokens else (1, 1, hidden)
    tokens = [
        nn.weight(f"{prefix}{names[part]}", *shape) for part in ("class_token", "distillation_token") if part in names
    ]
    if "mask_token" in names:  # stored with the others; only training reads it
        tokens.append(nn.weight(f"{prefix}{names['mask_token']}", 1, hidden))
    count = rows.shape[1] + family.class_tokens
    return nn.copy(name, "concat", (rows,), nn.BATCH, count, hidden, weights=tuple(tokens))
