"""Language models that see: an image tower, a projector, and a decoder that reads image tokens among its own.

The tower and the projector run once a request. The decoder's `query` counts image tokens and text tokens together.
"""

from collections.abc import Mapping
from dataclasses import replace

from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.decoder import decoder, named_sizes
from inferometer.formats.huggingface.encoder import vision
from inferometer.formats.huggingface.family import Family, family_of, prepared
from inferometer.formats.huggingface.layer import Layer, stack
from inferometer.formats.huggingface.plan import planned_layers


def llava(family: Family, config: Config, heads: tuple[str, ...]) -> nn.Body:
    """LLaVA and Gemma 3: a CLIP or SigLIP tower and a small projector."""
    row, ready = _part(family, config, "vision")
    names = family.names
    tower = vision(row, ready, tuple(row.tasks["Model"]), nn.NamePrefixes(body=names["vision"], at="vision."))
    text = _text(family, config, heads)
    seen = _stream(tower)
    wide = text.metadata["hidden_size"]
    projected = (
        _gemma_projector(config, seen, wide, names["projector"])
        if family.name == "gemma3"
        else _llava_projector(row, config, seen, wide, names["projector"])
    )
    return _joined(tower, projected, text)


def _llava_projector(row: Family, config: Config, x: Tensor, features: int, module: str) -> list[Op]:
    """Two layers over the patches; the class token is left out."""
    bias = config.flag("multimodal_projector_bias")
    patches = nn.view("projector.patches", x, nn.BATCH, x.shape[1] - row.class_tokens, nn.width(x))
    first = nn.linear("projector.linear_1", patches, features, f"{module}.linear_1", bias=bias)
    act = nn.activation("projector.act", first, nn.function_of(config.text("projector_hidden_act")))
    return [
        patches,
        first,
        act,
        nn.linear("projector.linear_2", act, features, f"{module}.linear_2", bias=bias),
    ]


def _gemma_projector(config: Config, x: Tensor, features: int, module: str) -> list[Op]:
    """Patches are averaged down to a fixed number of tokens, normalised, and projected."""
    side = int(config.whole("mm_tokens_per_image") ** 0.5)
    plain = config.table("vision_config")
    across = plain.whole("image_size", 224) // plain.whole("patch_size", 16)
    kernel = max(across // max(side, 1), 1)
    grid = nn.IMAGE // plain.whole("patch_size", 16)
    plane = nn.reshaped(x, nn.BATCH, nn.width(x), grid, grid)
    pooled = nn.pool("projector.pool", plane, "average", (kernel, kernel, 0))
    y = nn.output(pooled)
    rows = nn.view("projector.rows", y, nn.BATCH, y.shape[2] * y.shape[3], nn.width(x))
    normed = nn.norm("projector.norm", rows, "rms", f"{module}.mm_soft_emb_norm")
    table = f"{module}.mm_input_projection_weight"
    return [
        pooled, rows, normed,
        nn.linear("projector.linear", normed, features, module, tied=table, transposed=True),
    ]  # fmt: skip


def qwen_vl(family: Family, config: Config, heads: tuple[str, ...]) -> nn.Body:
    """Qwen2-VL to Qwen3.5: a tower with rotary positions whose patches are merged four to one.

    Qwen3-VL also merges what earlier layers of the tower give, for the text model's first layers (deepstack).
    """
    text = _text(family, config, heads)
    row, ready = _part(family, config, "vision")
    prefix, names = family.names["vision"], row.names
    tower = _qwen_tower(row, ready, prefix)
    seen = _stream(tower)
    merged = _merger(row, ready, seen, f"{prefix}{names['merger']}")
    if "deep_merger" in names and ready.get("deepstack_visual_indexes"):
        for index in range(len(ready.wholes("deepstack_visual_indexes", least=0))):
            at = f"projector.deep_{index}"
            merged = [*_merger(row, ready, seen, f"{prefix}{names['deep_merger']}.{index}", at), *merged]
    return _joined(tower, merged, text)


def _qwen_tower(row: Family, config: Config, prefix: str) -> nn.Body:
    hidden, size = config.whole("hidden_size"), config.whole("patch_size")
    frames = config.whole("temporal_patch_size")
    pixels = nn.tensor("vision.pixel_values", nn.BATCH, config.whole("in_channels"), frames, nn.IMAGE, nn.IMAGE)
    kernel = (frames, size, size)
    patch = nn.ConvFilter(features=hidden, kernel=kernel, strides=kernel, padding=(0, 0, 0))
    conv = nn.convolution("vision.embed", pixels, patch, f"{prefix}{row.names['patch']}", bias=row.conv_bias)
    y = nn.output(conv)
    ops = [conv, nn.view("vision.rows", y, nn.BATCH, y.shape[3] * y.shape[4], hidden)]
    if "positions" in row.names:  # a square table, resampled to the image's grid
        table = nn.weight(f"{prefix}{row.names['positions']}.weight", config.whole("num_position_embeddings"), hidden)
        ops.append(nn.elementwise("vision.positions", "add", ops, weights=(table,)))
    stream = nn.tensor("vision.hidden", *nn.output(ops).shape)
    layers = _windowed(config, planned_layers(row, config, prefix, cached=False), size)
    return nn.Body(
        blocks=(
            Block(name="vision.embed", ops=nn.ending_in(ops, stream.name)),
            *stack(layers, "vision.", stream, "vision.encoder"),
        ),
        inputs=(pixels,),
        outputs=(stream,),
        # images come in any size, and this one is cut into patches and windows without a rest
        metadata={**named_sizes(config, layers), "default_sizes": {"image": 32 * size}},
    )


def _windowed(config: Config, layers: list[Layer], patch: int) -> list[Layer]:
    """Qwen2.5-VL attends inside square windows, but for a few layers."""
    side = config.whole("window_size", 0, least=0) // patch
    if not side:
        return layers
    full = config.wholes("fullatt_block_indexes", least=0) if config.get("fullatt_block_indexes") else ()
    return [
        layer
        if index in full or not isinstance(layer.mixer, Attention)
        else replace(layer, mixer=replace(layer.mixer, chunk=side * side))
        for index, layer in enumerate(layers)
    ]


def _merger(row: Family, config: Config, x: Tensor, module: str, at: str = "projector") -> list[Op]:
    """Neighbouring patches side by side, then a two-layer MLP into the text model's width.

    A deepstack merger (one that stands elsewhere than at `projector`) normalises them once they are side by side.
    """
    merge, names = config.whole("spatial_merge_size"), row.names
    shape = (nn.BATCH, x.shape[1] // (merge * merge), nn.width(x) * merge * merge)
    ops: list[Op] = []
    for step in ("view", "norm") if at != "projector" else ("norm", "view"):
        read = nn.output(ops) if ops else x
        norm = nn.norm(f"{at}.norm", read, row.norm, f"{module}.{names['merger_norm']}", bias=row.norm_bias)
        ops.append(norm if step == "norm" else nn.view(f"{at}.merged", read, *shape))
    ops.append(nn.linear(f"{at}.linear_1", ops, nn.width(nn.output(ops)), f"{module}.{names['merger_1']}", bias=True))
    ops.append(nn.activation(f"{at}.act", ops, "gelu"))
    out = config.whole("out_hidden_size")
    return [*ops, nn.linear(f"{at}.linear_2", ops, out, f"{module}.{names['merger_2']}", bias=True)]


def _part(family: Family, config: Config, side: str) -> tuple[Family, Config]:
    """A part's row and config: its own model_type decides, where it names another family than the whole does."""
    plain = config.table(f"{side}_config")
    asked = plain.get("model_type")
    inner = asked is None or (isinstance(asked, str) and asked.startswith(family.name))
    # a mixture of experts names the tower of its dense sibling: qwen3_5_vision in qwen3_5_moe
    inner = inner or (side == "vision" and family.name.startswith(str(asked).removesuffix("_vision")))
    row = family_of(plain, family.parts[side] if inner else "")
    usual = family_of(plain, family.parts[side])
    if row.template != usual.template:
        raise plain.error("model_type", f"is {row.name}, which cannot be the {side} part of {family.name}")
    return row, prepared(plain, row, nested=True)


def _text(family: Family, config: Config, heads: tuple[str, ...]) -> nn.Body:
    """The decoder. Qwen2-VL's first configs keep its keys at the top, later ones in `text_config`."""
    if isinstance(config.get("text_config"), Mapping):
        row, ready = _part(family, config, "text")
    else:
        plain = Config(name=config.name, values=config.values)
        row = family_of(plain, family.parts["text"])
        ready = prepared(plain, row)
    if isinstance(tied := config.get("tie_word_embeddings"), bool):  # the whole model's word counts
        ready = replace(ready, values={**ready.values, "tie_word_embeddings": tied})
    return decoder(row, ready, heads, nn.NamePrefixes(body=family.names["body"], head=family.names["head"]))


def _joined(tower: nn.Body, projected: list[Op], text: nn.Body) -> nn.Body:
    """Image tokens take their places in the embedded sequence before the first layer."""
    embed = text.blocks[0]
    words = nn.output(embed.ops)
    placed = nn.copy("embed.images", "scatter", (words, projected), *words.shape)
    started = replace(embed, ops=nn.ending_in([*embed.ops, placed], words.name))
    projector = Block(name="projector", ops=tuple(projected))
    sizes = {**text.metadata["default_sizes"], **tower.metadata["default_sizes"]}
    seen = {key: value for key, value in tower.metadata.items() if key != "default_sizes"}
    return nn.Body(
        blocks=(*nn.once_only((*tower.blocks, projector)), started, *text.blocks[1:]),
        inputs=(*tower.inputs, *text.inputs),
        outputs=text.outputs,
        context_limit=text.context_limit,
        metadata={**text.metadata, "vision": seen, "default_sizes": sizes},
    )


def _stream(tower: nn.Body) -> Tensor:
    """The tower's token stream, not what its own head makes of it."""
    encoder = next(block for block in reversed(tower.blocks) if block.name.endswith("encoder"))
    return nn.output(encoder.ops)
