"""A decoder-only model built by hand, op by op, as a reader would build it."""

from inferometer.core import Binding, Block, Graph, Op, Precision, Symbol, Tensor

BATCH, QUERY, CONTEXT, LOGITS = (Symbol(name) for name in ("batch", "query", "context", "logits"))


def tensor(name, *shape, **rest):
    return Tensor(name=name, shape=shape, **rest)


def weight(name, *shape, **rest):
    return Tensor(name=name, shape=shape, role="weight", **rest)


def tokens(name, width, length=QUERY):
    return tensor(name, BATCH, length, width)


def project(name, source, target, inputs, outputs, *, length=QUERY, stored=None):
    return Op(
        name=name,
        kind="linear",
        inputs=(tokens(source, inputs, length),),
        outputs=(tokens(target, outputs, length),),
        weights=(stored or weight(f"{name}.weight", outputs, inputs),),
    )


def rms_norm(name, source, target, width, length=QUERY):
    return Op(
        name=name,
        kind="norm",
        inputs=(tokens(source, width, length),),
        outputs=(tokens(target, width, length),),
        weights=(weight(f"{name}.weight", width),),
        attributes={"norm": "rms"},
    )


def add(name, one, other, target, width):
    return Op(
        name=name,
        kind="elementwise",
        inputs=(tokens(one, width), tokens(other, width)),
        outputs=(tokens(target, width),),
        attributes={"function": "add"},
    )


def attend(name, *, heads, kv_heads, head_dim, window=None, **rest):
    return Op(
        name=name,
        kind="attention",
        inputs=(tokens("q", heads * head_dim), tokens("k", kv_heads * head_dim), tokens("v", kv_heads * head_dim)),
        outputs=(tokens("attended", heads * head_dim),),
        attributes={
            "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "query": QUERY, "context": CONTEXT,
            "causal": True, "cached": True, "window": window, **rest,
        },
    )  # fmt: skip


def layer(*, hidden, heads, kv_heads, head_dim, ffn, window=None):
    at = "layers.{}"
    wide, narrow = heads * head_dim, kv_heads * head_dim
    turned = (tokens("q", wide), tokens("k", narrow))
    gated = {"inputs": (tokens("gate", ffn), tokens("up", ffn)), "outputs": (tokens("gated", ffn),)}
    return (
        rms_norm(f"{at}.input_norm", "hidden", "normed", hidden),
        project(f"{at}.q_proj", "normed", "q", hidden, wide),
        project(f"{at}.k_proj", "normed", "k", hidden, narrow),
        project(f"{at}.v_proj", "normed", "v", hidden, narrow),
        Op(name=f"{at}.rotary", kind="rotary", inputs=turned, outputs=turned),
        attend(f"{at}.attention", heads=heads, kv_heads=kv_heads, head_dim=head_dim, window=window),
        project(f"{at}.o_proj", "attended", "projected", wide, hidden),
        add(f"{at}.attention_add", "hidden", "projected", "hidden", hidden),
        rms_norm(f"{at}.post_norm", "hidden", "normed", hidden),
        project(f"{at}.gate_proj", "normed", "gate", hidden, ffn),
        project(f"{at}.up_proj", "normed", "up", hidden, ffn),
        Op(name=f"{at}.act", kind="activation", attributes={"function": "silu"}, **gated),
        project(f"{at}.down_proj", "gated", "down", ffn, hidden),
        add(f"{at}.ffn_add", "hidden", "down", "hidden", hidden),
    )


def decoder(*, layers, hidden, vocab, tied=False, windows=(), **shape):
    """`windows` are (window, layers) of further blocks, before the one without a window."""
    table = weight("embed.weight", vocab, hidden)
    ids = tensor("ids", BATCH, QUERY, role="index")
    embed = Op(name="embed", kind="embedding", inputs=(ids,), outputs=(tokens("hidden", hidden),), weights=(table,))
    last = Op(name="last", kind="gather", inputs=(tokens("hidden", hidden),), outputs=(tokens("last", hidden, LOGITS),))
    head = project("lm_head", "final", "scores", hidden, vocab, length=LOGITS, stored=table if tied else None)
    blocks, first = [], 0
    for window, count in (*windows, (None, layers)):
        ops = layer(hidden=hidden, window=window, **shape)
        blocks.append(Block(name=f"decoder_{window}", ops=ops, count=count, first=first))
        first += count
    return Graph(
        name="decoder",
        blocks=(
            Block(name="in", ops=(embed,)),
            *blocks,
            Block(name="out", ops=(last, rms_norm("norm", "last", "final", hidden, LOGITS), head)),
        ),
        inputs=(ids,),
        outputs=(tokens("scores", vocab, LOGITS),),
        precision="bf16",
    )


# Hidden 4096, 32 heads of 128 over 8 KV heads, FFN 14336, vocabulary 128256: the config of meta-llama/Llama-3.1-8B.
LLAMA_3_1_8B = decoder(layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128_256)

BF16 = Precision(weights="bf16", activations="bf16")


def at(*, batch=1, query=1, context=0, logits=1, precision=BF16, **more):
    sizes = {"batch": batch, "query": query, "context": context, "logits": logits, **more}
    return Binding(sizes=sizes, precision=precision)
