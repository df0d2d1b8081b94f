"""Swin: attention inside windows, which every second block shifts, and patches merged between stages."""

from dataclasses import replace

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Seen, attention_op
from inferometer.formats.huggingface.config import MANY_LAYERS, Config
from inferometer.formats.huggingface.encoder import patches
from inferometer.formats.huggingface.family import Family
from inferometer.formats.huggingface.layer import Mlp, feed

_MANY_STAGES = 16
_LARGE_WINDOW = 4096


@frozen
class SwinStage:
    index: int
    depth: int
    heads: int
    features: int
    side: Dim  # of the plane
    window: int

    @property
    def stream(self) -> Tensor:
        return nn.tensor("hidden", nn.BATCH, self.side * self.side, self.features)

    @property
    def windows(self) -> tuple[Dim, ...]:
        """The (padded) plane as windows, each a sequence of its own."""
        across = (self.side + (self.window - 1)) // self.window
        return nn.BATCH * across * across, self.window * self.window, self.features


def swin(family: Family, config: Config, heads: tuple[str, ...], place: nn.NamePrefixes) -> nn.Body:
    pixels = nn.tensor("pixel_values", nn.BATCH, config.whole("num_channels"), nn.IMAGE, nn.IMAGE)
    module, features = f"{place.body}embeddings", config.whole("embed_dim")
    convolution = (f"{module}.patch_embeddings.projection", True)
    stem = patches("embed.patches", pixels, features, config.whole("patch_size"), convolution)
    stem.append(nn.norm("embed.norm", stem, "layer", f"{module}.norm", bias=True))
    blocks = [Block(name="embed", ops=nn.ending_in(stem, "hidden"))]
    stages = _stages(config)
    for stage in stages:
        at = f"{place.body}encoder.layers.{stage.index}"
        blocks += _stage_blocks(family, config, f"{at}.blocks.{{}}.", stage)
        if stage is not stages[-1]:
            blocks.append(_merge(f"{at}.downsample", stage, stages[stage.index + 1]))
    last = stages[-1]
    normed = nn.norm("final_norm", last.stream, "layer", f"{place.body}layernorm", bias=True)
    pooled = nn.reduce("pool", normed, "mean", axis=1)
    ops = [normed, pooled]
    if heads:
        ops.append(nn.linear("classifier", pooled, nn.labels_of(config), "classifier", bias=True))
    blocks.append(Block(name="head", ops=tuple(ops)))
    metadata = {
        "layers": sum(stage.depth for stage in stages), "hidden_size": last.features, "heads": last.heads,
        "default_sizes": {"image": config.whole("image_size")},
    }  # fmt: skip
    return nn.Body(blocks=tuple(blocks), inputs=(pixels,), outputs=(nn.output(blocks[-1].ops),), metadata=metadata)


def _stages(config: Config) -> list[SwinStage]:
    """The plane halves and the width doubles from stage to stage."""
    depths, counts = config.wholes("depths"), config.wholes("num_heads")
    if len(depths) != len(counts):
        raise config.error("num_heads", f"has {len(counts)} entries for {len(depths)} stages")
    if len(depths) > _MANY_STAGES or max(depths) > MANY_LAYERS:
        raise config.error("depths", f"must be at most {_MANY_STAGES} stages of at most {MANY_LAYERS} blocks")
    window = config.whole("window_size", most=_LARGE_WINDOW)
    stages: list[SwinStage] = []
    side: Dim = nn.IMAGE // config.whole("patch_size")
    for index, (depth, heads) in enumerate(zip(depths, counts, strict=True)):
        features = config.whole("embed_dim") * 2**index
        if features % heads:
            raise config.error("num_heads", f"has {heads} heads, which do not divide a width of {features}")
        side = (side + 1) // 2 if index else side
        stages.append(SwinStage(index=index, depth=depth, heads=heads, features=features, side=side, window=window))
    return stages


def _stage_blocks(family: Family, config: Config, at: str, stage: SwinStage) -> list[Block]:
    """Plain and shifted blocks take turns, so each is a Block of its own."""
    mlp = Mlp(
        width=int(stage.features * config.number("mlp_ratio")),
        function=nn.function_of(config.text("hidden_act")),
        up=f"{at}intermediate.dense",
        down=f"{at}output.dense",
        bias=True,
    )
    spec = Attention(
        heads=stage.heads,
        kv_heads=stage.heads,
        head_dim=stage.features // stage.heads,
        q=f"{at}attention.self.query",
        k=f"{at}attention.self.key",
        v=f"{at}attention.self.value",
        o=f"{at}attention.output.dense",
        bias=family.attention_bias,
        causal=False,
        cached=False,
        biased=True,
    )
    kinds = [_block(spec, mlp, at, stage, shifted=shifted) for shifted in (False, True)]
    return [Block(name=f"stage{stage.index}", ops=kinds[index % 2], first=index) for index in range(stage.depth)]


def _block(spec: Attention, mlp: Mlp, at: str, stage: SwinStage, *, shifted: bool) -> tuple[Op, ...]:
    """Windows are cut out of the (padded, shifted) plane, attended to as sequences of their own, and put back."""
    name, features, x = f"stages.{stage.index}.layers.{{}}", stage.features, stage.stream
    before = nn.norm(f"{name}.attn.norm", x, "layer", f"{at}layernorm_before", bias=True)
    function = "shift and partition" if shifted else "partition"
    cut = nn.copy(f"{name}.attn.windows", function, (before,), *stage.windows)
    q, k, v = (
        nn.linear(f"{name}.attn.{letter}_proj", cut, features, module, bias=letter in spec.bias)
        for letter, module in (("q", spec.q), ("k", spec.k), ("v", spec.v))
    )
    core = attention_op(f"{name}.attn.attention", (nn.output(q), nn.output(k), nn.output(v)), spec, Seen())
    core = replace(core, weights=_bias_table(f"{at}attention.self", stage))
    out = nn.linear(f"{name}.attn.o_proj", core, features, spec.o, bias="o" in spec.bias)
    back = nn.copy(f"{name}.attn.plane", "reverse", (out,), *x.shape)
    joined = nn.add(f"{name}.attn.residual", x, back)
    after = nn.norm(f"{name}.mlp.norm", joined, "layer", f"{at}layernorm_after", bias=True)
    fed = feed(mlp, f"{name}.mlp", nn.output(after))
    end = nn.add(f"{name}.mlp.residual", joined, fed, out=x.name)
    return (before, cut, q, k, v, core, out, back, joined, after, *fed, end)


def _bias_table(module: str, stage: SwinStage) -> tuple[Tensor, Tensor]:
    """One bias a head for each offset inside a window, and the stored index from token pairs to offsets."""
    tokens = stage.window * stage.window
    return (
        nn.weight(f"{module}.relative_position_bias_table", (2 * stage.window - 1) ** 2, stage.heads),
        replace(nn.constant(f"{module}.relative_position_index", tokens, tokens), dtype="i64"),
    )


def _merge(module: str, stage: SwinStage, following: SwinStage) -> Block:
    """Four neighbours become one token of twice the width."""
    at, side = f"stages.{stage.index}.merge", following.side
    gathered = nn.copy(f"{at}.gather", "concat", (stage.stream,), nn.BATCH, side * side, 4 * stage.features)
    normed = nn.norm(f"{at}.norm", gathered, "layer", f"{module}.norm", bias=True)
    reduced = nn.linear(f"{at}.reduction", normed, following.features, f"{module}.reduction")
    return Block(name=f"merge{stage.index}", ops=nn.ending_in([gathered, normed, reduced], stage.stream.name))
