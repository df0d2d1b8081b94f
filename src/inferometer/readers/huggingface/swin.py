"""Swin: attention inside windows, which every second block shifts, and patches merged between stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.graph import Block, Op, Tensor
from inferometer.readers.huggingface.attention import Attention, attention_op
from inferometer.readers.huggingface.body import Body, ending_in, function_of, labels_of
from inferometer.readers.huggingface.mlp import Mlp, feed
from inferometer.readers.huggingface.parts import (
    BATCH,
    IMAGE,
    add,
    constant,
    copy,
    linear,
    norm,
    output,
    reduce,
    tensor,
    weight,
)
from inferometer.readers.huggingface.vision import patches

if TYPE_CHECKING:
    from inferometer.core.dims import Dim
    from inferometer.readers.huggingface.config import Config
    from inferometer.readers.huggingface.family import Family

__all__ = ["swin"]


def swin(family: Family, config: Config, heads: tuple[str, ...], *, prefix: str) -> Body:
    depths = config.wholes("depths")
    counts = config.wholes("num_heads")
    if len(depths) != len(counts):
        raise config.error("num_heads", f"has {len(counts)} entries for {len(depths)} stages")
    features, size = config.whole("embed_dim"), config.whole("patch_size")
    pixels = tensor("pixel_values", BATCH, config.whole("num_channels"), IMAGE, IMAGE)
    stem = patches(
        "embed.patches", pixels, features, size, f"{prefix}embeddings.patch_embeddings.projection", bias=True
    )
    stem.append(norm("embed.norm", output(stem), "layer", f"{prefix}embeddings.norm", bias=True))
    blocks = [Block(name="embed", ops=ending_in(stem, "hidden"))]
    side: Dim = IMAGE // size
    for stage, (depth, count) in enumerate(zip(depths, counts, strict=True)):
        if features % count:
            raise config.error("num_heads", f"has {count} heads, which do not divide a width of {features}")
        blocks += _stage(family, config, prefix, (stage, depth, count), features, side)
        if stage < len(depths) - 1:
            side = (side + 1) // 2
            blocks.append(_merge(f"{prefix}encoder.layers.{stage}.downsample", stage, features, side))
            features *= 2
    blocks.append(_end(config, tensor("hidden", BATCH, side * side, features), heads, prefix))
    metadata = {
        "layers": sum(depths), "hidden_size": features, "heads": counts[-1],
        "default_sizes": {"image": config.whole("image_size")},
    }  # fmt: skip
    last = blocks[-1].ops
    return Body(blocks=tuple(blocks), inputs=(pixels,), outputs=(output(last),), metadata=metadata)


def _stage(
    family: Family, config: Config, prefix: str, shape: tuple[int, int, int], features: int, side: Dim
) -> list[Block]:
    """Plain and shifted blocks take turns, so each is a Block of its own."""
    stage, depth, heads = shape
    window = config.whole("window_size")
    at = f"{prefix}encoder.layers.{stage}.blocks.{{}}."
    mlp = Mlp(
        width=int(features * config.number("mlp_ratio")),
        function=function_of(config.text("hidden_act")),
        up=f"{at}intermediate.dense",
        down=f"{at}output.dense",
        bias=True,
    )
    spec = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=features // heads,
        q=f"{at}attention.self.query",
        k=f"{at}attention.self.key",
        v=f"{at}attention.self.value",
        o=f"{at}attention.output.dense",
        bias=family.attention_bias,
        causal=False,
        cached=False,
        biased=True,
    )
    hidden = tensor("hidden", BATCH, side * side, features)
    return [
        Block(
            name=f"stage{stage}",
            ops=_block(spec, mlp, (f"stages.{stage}.layers.{{}}", at), hidden, (side, window), shifted=index % 2 == 1),
            first=index,
        )
        for index in range(depth)
    ]


def _block(
    spec: Attention, mlp: Mlp, names: tuple[str, str], x: Tensor, plane: tuple[Dim, int], *, shifted: bool
) -> tuple[Op, ...]:
    """Windows are cut out of the (padded, shifted) plane, attended to as sequences of their own, and put back."""
    (name, at), (side, window) = names, plane
    features = spec.heads * spec.head_dim
    across = (side + (window - 1)) // window
    rows = (BATCH * across * across, window * window, features)
    before = norm(f"{name}.attn.norm", x, "layer", f"{at}layernorm_before", bias=True)
    cut = copy(f"{name}.attn.windows", "shift and partition" if shifted else "partition", (output(before),), *rows)
    q, k, v = (
        linear(f"{name}.attn.{letter}_proj", output(cut), features, module, bias=letter in spec.bias)
        for letter, module in (("q", spec.q), ("k", spec.k), ("v", spec.v))
    )
    core = attention_op(f"{name}.attn.attention", output(q), output(k), output(v), spec, 0)
    table = weight(f"{at}attention.self.relative_position_bias_table", (2 * window - 1) ** 2, spec.heads)
    index = constant(f"{at}attention.self.relative_position_index", window * window, window * window)
    core = Op(
        name=core.name,
        kind=core.kind,
        inputs=core.inputs,
        outputs=core.outputs,
        weights=(table, index),
        attributes=core.attributes,
    )
    out = linear(f"{name}.attn.o_proj", output(core), features, spec.o, bias="o" in spec.bias)
    back = copy(f"{name}.attn.plane", "reverse", (output(out),), *x.shape)
    joined = add(f"{name}.attn.residual", x, output(back))
    after = norm(f"{name}.mlp.norm", output(joined), "layer", f"{at}layernorm_after", bias=True)
    fed = feed(mlp, f"{name}.mlp", output(after))
    end = add(f"{name}.mlp.residual", output(joined), output(fed), out="hidden")
    return (before, cut, q, k, v, core, out, back, joined, after, *fed, end)


def _merge(module: str, stage: int, features: int, side: Dim) -> Block:
    """Four neighbours become one token of twice the width. `side` is the plane's after merging."""
    at = f"stages.{stage}.merge"
    before = tensor("hidden", BATCH, side * side * 4, features)
    gathered = copy(f"{at}.gather", "concat", (before,), BATCH, side * side, 4 * features)
    normed = norm(f"{at}.norm", output(gathered), "layer", f"{module}.norm", bias=True)
    reduced = linear(f"{at}.reduction", output(normed), 2 * features, f"{module}.reduction")
    return Block(name=f"merge{stage}", ops=ending_in([gathered, normed, reduced], "hidden"))


def _end(config: Config, x: Tensor, heads: tuple[str, ...], prefix: str) -> Block:
    normed = norm("final_norm", x, "layer", f"{prefix}layernorm", bias=True)
    pooled = reduce("pool", output(normed), "mean", axis=1)
    ops = [normed, pooled]
    if heads:
        ops.append(linear("classifier", output(pooled), labels_of(config), "classifier", bias=True))
    return Block(name="head", ops=tuple(ops))
