"""One or more ops of every kind that has a work rule, over the symbols batch, query and context."""

from inferometer.core import Op, Symbol
from unit.predict.decoders import BATCH, CONTEXT, QUERY, add, attend, project, rms_norm, tensor, tokens, weight

ENCODER, IMAGE = Symbol("encoder"), Symbol("image")


def op(kind, inputs=(), outputs=(), weights=(), **attributes):
    return Op(
        name=kind,
        kind=kind,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        weights=tuple(weights),
        attributes=attributes,
    )


def image(name, channels, shrink=1):
    return tensor(name, BATCH, channels, IMAGE // shrink, IMAGE // shrink)


def state(name, *shape):
    return tensor(name, BATCH, *shape, role="state")


def same(kind, width=96, **attributes):
    return op(kind, [tokens("x", width)], [tokens("y", width)], **attributes)


def mla(*, absorbed):
    """One layer of DeepSeek-V3's shape: 128 heads of 128 + 64 rotated, values of 128, a latent of 512 + 64."""
    return op(
        "attention",
        [tokens("q", 128 * 192), tokens("latent", 576)],
        [tokens("attended", 128 * 128)],
        heads=128, head_dim=192, value_dim=128, kv_latent=576, rope_dim=64, absorbed=absorbed, query=QUERY,
        context=CONTEXT, causal=True, cached=True,
    )  # fmt: skip


def cross(*, cached):
    keys = tensor("keys", BATCH, ENCODER, 512)
    return op(
        "attention",
        [tokens("q", 512)] if cached else [tokens("q", 512), keys, tensor("values", BATCH, ENCODER, 512)],
        [tokens("attended", 512)],
        heads=8, head_dim=64, query=QUERY, context=ENCODER, cross=True, cached=cached,
    )  # fmt: skip


def encoder(window=None, heads=4):
    sides = [tokens(name, heads * 32) for name in "qkv"]
    return op(
        "attention",
        sides,
        [tokens("y", heads * 32)],
        heads=heads,
        head_dim=32,
        query=QUERY,
        causal=False,
        window=window,
    )


def experts(*, experts=64, top_k=6, gated=True, **stored):
    up = weight("up", experts, 48 * (2 if gated else 1), 32, **stored)
    return op(
        "moe_experts",
        [tokens("x", 32)],
        [tokens("y", 32)],
        [up, weight("down", experts, 32, 48, **stored)],
        experts=experts, top_k=top_k, hidden=32, intermediate=48, gated=gated, function="silu",
    )  # fmt: skip


_ROUTED = [tokens("scores", 6), tensor("chosen", BATCH, QUERY, 6, role="index")]
_KERNEL = {"in_channels": 16, "out_channels": 32, "kernel": (3, 3)}

EXAMPLES = [
    project("linear", "x", "y", 96, 40),
    project("q4", "x", "y", 96, 64, stored=weight("packed", 64, 96, dtype="q4_0")),
    op("matmul", [tokens("a", 96), tensor("b", BATCH, 96, QUERY)], [tokens("c", QUERY)], contracted=96),
    attend("full", heads=8, kv_heads=2, head_dim=16),
    attend("windowed", heads=8, kv_heads=1, head_dim=16, window=7, soft_cap=True),
    mla(absorbed=True),
    mla(absorbed=False),
    cross(cached=True),
    cross(cached=False),
    encoder(),
    encoder(window=6),
    op("convolution", [image("x", 16)], [image("y", 32, 2)], [weight("w", 32, 4, 3, 3)], groups=4, **_KERNEL),
    op("convolution", [image("x", 16, 2)], [image("y", 32)], [weight("w", 16, 32, 3, 3)], transposed=True, **_KERNEL),
    rms_norm("norm", "x", "y", 96),
    same("norm", norm="lrn", size=5),
    same("softmax"),
    add("elementwise", "x", "z", "y", 96),
    same("activation", function="gelu"),
    op("reduce", [tokens("x", 96)], [tokens("y", 1)], function="mean"),
    op("pool", [image("x", 16)], [image("y", 16, 2)], function="max", kernel=(2, 2)),
    op("resize", [image("x", 16, 2)], [image("y", 16)], mode="bilinear"),
    same("cast"),
    op("copy", [tokens("x", 96)], [tokens("y", 32)]),
    same("view"),
    op("embedding", [tensor("ids", BATCH, QUERY, role="index")], [tokens("y", 96)], [weight("table", 500, 96)]),
    op("gather", [tokens("x", 96), tensor("i", BATCH, 1, role="index")], [tokens("y", 96, 1)]),
    op("scatter", [tokens("x", 96), tensor("i", BATCH, role="index"), tokens("u", 96, 1)], [tokens("y", 96)]),
    op("sort", [tokens("x", 96)], [tokens("y", 5)], k=5),
    op("sort", [tensor("x", BATCH, QUERY)], [tensor("y", BATCH, QUERY)]),
    op("sampling", [tokens("scores", 500)], [tensor("token", BATCH, role="index")], top_k=40),
    op("rotary", [tokens("q", 128), tokens("k", 32)], [tokens("q", 128), tokens("k", 32)]),
    op("moe_router", [tokens("x", 96)], _ROUTED, [weight("router", 64, 96)], experts=64, top_k=6),
    experts(),
    op("ssm_scan", [tokens("x", 64), state("h", 64, 16)], [tokens("y", 64)], inner=64, state=16, version=1),
    op("ssm_scan", [tokens("x", 64), state("h", 64, 16)], [tokens("y", 64)], inner=64, state=16, version=2, heads=4),
    op("recurrent", [tokens("x", 40)], [tokens("y", 64)], [weight("w", 128, 40), weight("r", 128, 32)],
       cell="lstm", hidden=32, directions=2),
    op("quantize", [tokens("x", 96)], [tensor("y", BATCH, QUERY, 96, dtype="i8")]),
    op("dequantize", [tensor("x", BATCH, QUERY, 96, dtype="i8")], [tokens("y", 96)]),
    op("control", bodies=((project("linear", "x", "y", 96, 40),),), trips=QUERY),
    op("control", bodies=((same("softmax"),), (project("linear", "x", "y", 96, 40),))),
    op("collective", [tokens("x", 96)], [tokens("y", 96)], function="all_reduce", devices=8),
]  # fmt: skip

IDS = [f"{example.kind}-{example.name}-{number}" for number, example in enumerate(EXAMPLES)]
