"""Denoisers of transformer layers: DiT, and FLUX and Stable Diffusion 3, whose text and image tokens attend jointly."""

from dataclasses import replace

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Seen, attend, attention_op, rotary_op
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.encoder import patches
from inferometer.formats.huggingface.layer import Mlp, feed

# DiT, as its authors built it and as diffusers ports it.


@frozen
class DitNames:
    """Where a port keeps a block's modules."""

    attention: Attention
    up: str
    down: str
    modulation: str
    time: str
    label: str
    layers: tuple[str, str] = nn.LAYERS  # the two of the time step's MLP


def dit(config: Config) -> nn.Body:
    """One embedder of time step and label for the whole model, and a stored table of positions."""
    at = "blocks.{}."
    names = DitNames(
        attention=_attention(config, qkv=f"{at}attn.qkv", o=f"{at}attn.proj"),
        up=f"{at}mlp.fc1",
        down=f"{at}mlp.fc2",
        modulation=f"{at}adaLN_modulation.1",
        time="t_embedder.mlp",
        label="y_embedder.embedding_table",
        layers=("0", "2"),  # torch's Sequential numbers its layers
    )
    features, latent = _features(config), _latent(config)
    grid = config.whole("sample_size") // config.whole("patch_size")
    table = nn.weight("pos_embed", 1, grid * grid, features)
    stem = patches("embed.patches", latent, features, config.whole("patch_size"), ("x_embedder.proj", True))
    stem.append(nn.elementwise("embed.positions", "add", stem, weights=(table,)))
    condition = _conditioned("condition", names, config)
    stream = nn.tensor("hidden", *nn.output(stem).shape)
    end = nn.modulated("final", stream, nn.output(condition), "final_layer.adaLN_modulation.1", 2)
    patch = config.whole("patch_size") ** 2 * config.whole("out_channels", 2 * config.whole("in_channels"))
    end.append(nn.linear("final.linear", end, patch, "final_layer.linear", bias=True))
    blocks = (
        Block(name="embed", ops=(*condition, *nn.ending_in(stem, stream.name))),
        Block(name="decoder", ops=_block(names, stream, nn.output(condition)), count=config.layers("num_layers")),
        Block(name="head", ops=tuple(end)),
    )
    return _dit_body(config, blocks, latent)


def diffusers_dit(config: Config) -> nn.Body:
    """Every block has an embedder of its own; positions are computed, not stored."""
    at = "transformer_blocks.{}."
    q, k, v, o = (f"{at}attn1.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0"))
    names = DitNames(
        attention=_attention(config, q=q, k=k, v=v, o=o),
        up=f"{at}ff.net.0.proj",
        down=f"{at}ff.net.2",
        modulation=f"{at}norm1.linear",
        time=f"{at}norm1.emb.timestep_embedder",
        label=f"{at}norm1.emb.class_embedder.embedding_table",
    )
    latent = _latent(config)
    stem = patches("embed.patches", latent, _features(config), config.whole("patch_size"), ("pos_embed.proj", True))
    stem.append(nn.elementwise("embed.positions", "add", stem))
    stream = nn.tensor("hidden", *nn.output(stem).shape)
    condition = _conditioned("layers.{}.condition", names, config)
    blocks = (
        Block(name="embed", ops=nn.ending_in(stem, stream.name)),
        Block(
            name="decoder",
            ops=(*condition, *_block(names, stream, nn.output(condition))),
            count=config.layers("num_layers"),
        ),
        Block(name="head", ops=_diffusers_end(config, names, stream)),
    )
    return _dit_body(config, blocks, latent)


def _diffusers_end(config: Config, names: DitNames, stream: Tensor) -> tuple[Op, ...]:
    """The last modulation is made with the first block's embedder, which runs again for it."""
    first = replace(names, time=names.time.replace("{}", "0"), label=names.label.replace("{}", "0"))
    condition = _conditioned("final.condition", first, config)
    active = nn.activation("final.silu", condition, "silu")
    vectors = nn.linear("final.modulation", active, 2 * nn.width(stream), "proj_out_1", bias=True)
    normed = nn.norm("final.norm", stream, "layer")
    shifted = nn.moved("final", nn.output(normed), nn.output(vectors))
    patch = config.whole("patch_size") ** 2 * config.whole("out_channels", config.whole("in_channels"))
    last = nn.linear("final.linear", shifted, patch, "proj_out_2", bias=True)
    return (*condition, active, vectors, normed, shifted, last)


def _features(config: Config) -> int:
    return config.whole("num_attention_heads") * config.whole("attention_head_dim")


def _latent(config: Config) -> Tensor:
    side = nn.IMAGE // nn.LATENT
    return nn.tensor("latent", nn.BATCH, config.whole("in_channels"), side, side)


def _attention(config: Config, *, o: str, qkv: str = "", q: str = "", k: str = "", v: str = "") -> Attention:  # noqa: PLR0913 - four names
    heads = config.whole("num_attention_heads")
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=config.whole("attention_head_dim"),
        qkv=qkv,
        q=q,
        k=k,
        v=v,
        o=o,
        bias="qkvo",
        causal=False,
        cached=False,
    )


def _conditioned(at: str, names: DitNames, config: Config) -> list[Op]:
    """The vector of time step and class. The table has one row more: no class, for guidance."""
    features = _features(config)
    ops = nn.timestep(f"{at}.time", names.time, features, layers=names.layers)
    moment = nn.output(ops)
    label = nn.tensor("class_labels", nn.BATCH, role="index")
    rows = config.whole("num_embeds_ada_norm") + 1
    ops.append(nn.embedding(f"{at}.class", label, rows, features, f"{names.label}.weight"))
    return [*ops, nn.add(at, moment, ops)]


def _block(names: DitNames, x: Tensor, condition: Tensor) -> tuple[Op, ...]:
    """Modulated norm → attention → gate → modulated norm → MLP → gate. One projection gives all six vectors."""
    at = "layers.{}"
    ops = nn.modulated(f"{at}.attn", x, condition, names.modulation, 6)
    vectors = nn.output(ops[1])
    ops += attend(names.attention, f"{at}.attn", nn.output(ops), Seen())
    ops.append(nn.multiply(f"{at}.attn.gate", ops, vectors))
    ops.append(nn.add(f"{at}.attn.residual", x, ops))
    middle = nn.output(ops)
    ops.append(nn.norm(f"{at}.mlp.norm", middle, "layer"))
    ops.append(nn.moved(f"{at}.mlp", nn.output(ops), vectors))
    mlp = Mlp(width=4 * nn.width(x), function="gelu_tanh", up=names.up, down=names.down, bias=True)
    ops += feed(mlp, f"{at}.mlp", nn.output(ops))
    ops.append(nn.multiply(f"{at}.mlp.gate", ops, vectors))
    return (*ops, nn.add(f"{at}.mlp.residual", middle, ops, out=x.name))


def _dit_body(config: Config, blocks: tuple[Block, ...], latent: Tensor) -> nn.Body:
    return nn.Body(
        blocks=blocks,
        inputs=(latent, nn.tensor("timestep", nn.BATCH), nn.tensor("class_labels", nn.BATCH, role="index")),
        outputs=(nn.output(blocks[-1].ops),),
        metadata={
            "layers": config.layers("num_layers"),
            "hidden_size": _features(config),
            "heads": config.whole("num_attention_heads"),
            "default_sizes": {"image": nn.LATENT * config.whole("sample_size")},
        },
    )


_FLUX_SIZES = {"image": 1024, "encoder": 512}  # what its pipeline makes and reads unless told otherwise
_SD3_TOKENS = 77 + 256  # CLIP's and T5's, one after the other


@frozen
class ImageTextStreams:
    """What the streams of image and text have in common."""

    heads: int
    head_dim: int
    normed: bool
    rotary: bool
    tokens: Dim  # of the image

    @property
    def features(self) -> int:
        return self.heads * self.head_dim

    @property
    def image(self) -> Tensor:
        return nn.tensor("hidden", nn.BATCH, self.tokens, self.features)

    @property
    def text(self) -> Tensor:
        return nn.tensor("text.hidden", nn.BATCH, nn.ENCODER, self.features)

    @property
    def joined(self) -> Tensor:
        return nn.tensor("hidden", nn.BATCH, nn.ENCODER + self.tokens, self.features)


def flux(config: Config) -> nn.Body:
    """Double blocks with weights for each stream, then single blocks over text and image as one sequence."""
    side = nn.IMAGE // (2 * nn.LATENT)  # a token is two by two latent pixels
    spec = _streams(config, side * side, rotary=True)
    channels = config.whole("in_channels")
    latent = nn.tensor("latent", nn.BATCH, spec.tokens, channels)
    text, told = _started(config, spec, guided=config.flag("guidance_embeds"))
    stem = [nn.linear("embed.image", latent, spec.features, "x_embedder", bias=True)]
    condition, doubles = nn.output(told), config.layers("num_layers")
    blocks = [
        Block(name="embed", ops=(*told, *text, *nn.ending_in(stem, spec.image.name))),
        Block(name="double", ops=_double(spec, condition, last=False), count=doubles),
    ]
    x = spec.image
    if singles := config.layers("num_single_layers", least=0):
        both = nn.copy("single.concat", "concat", (spec.text, spec.image), *spec.joined.shape)
        blocks.append(Block(name="join", ops=nn.ending_in([both], spec.joined.name)))
        blocks.append(Block(name="single", ops=_single(spec, condition), count=singles))
        cut = nn.view("final.image", spec.joined, *spec.image.shape)
        blocks.append(Block(name="cut", ops=(cut,)))
        x = nn.output(cut)
    blocks.append(_end(x, condition, config.whole("out_channels", channels)))
    return _body(config, blocks, latent, _FLUX_SIZES)


def sd3(config: Config) -> nn.Body:
    """Double blocks only; the last one does not keep the text. In SD3.5 medium's first ones the image attends twice."""
    size, side = config.whole("patch_size"), nn.IMAGE // nn.LATENT
    latent = nn.tensor("latent", nn.BATCH, config.whole("in_channels"), side, side)
    features = config.whole("num_attention_heads") * config.whole("attention_head_dim")
    stem = patches("embed.patches", latent, features, size, ("pos_embed.proj", True))
    spec = _streams(config, nn.output(stem).shape[1], rotary=False)
    text, told = _started(config, spec, guided=False)
    table = nn.constant("pos_embed.pos_embed", 1, config.whole("pos_embed_max_size") ** 2, features)
    stem.append(nn.elementwise("embed.positions", "add", stem, weights=(table,)))
    condition, count = nn.output(told), config.layers("num_layers")
    dual = _dual_layers(config, count)
    blocks = [Block(name="embed", ops=(*told, *text, *nn.ending_in(stem, spec.image.name)))]
    if dual:
        blocks.append(Block(name="double", ops=_double(spec, condition, last=False, dual=True), count=dual))
    if count - 1 > dual:
        ops = _double(spec, condition, last=False)
        blocks.append(Block(name="double", ops=ops, count=count - 1 - dual, first=dual))
    blocks.append(Block(name="double", ops=_double(spec, condition, last=True), first=count - 1))
    channels = size * size * config.whole("out_channels", config.whole("in_channels"))
    blocks.append(_end(spec.image, condition, channels))
    return _body(config, blocks, latent, {"image": nn.LATENT * config.whole("sample_size"), "encoder": _SD3_TOKENS})


def _dual_layers(config: Config, count: int) -> int:
    """How many layers, from the first one on, let the image attend to itself beside the joint attention."""
    if not config.get("dual_attention_layers"):
        return 0
    dual = config.wholes("dual_attention_layers", least=0)
    if dual != tuple(range(len(dual))) or len(dual) >= count:
        raise config.error("dual_attention_layers", "must be the first layers, one after the other, and not the last")
    return len(dual)


def _streams(config: Config, tokens: Dim, *, rotary: bool) -> ImageTextStreams:
    return ImageTextStreams(
        heads=config.whole("num_attention_heads"),
        head_dim=config.whole("attention_head_dim"),
        normed=config.get("qk_norm") is not None,
        rotary=rotary,
        tokens=tokens,
    )


def _started(config: Config, spec: ImageTextStreams, *, guided: bool) -> tuple[tuple[Op, ...], list[Op]]:
    """The text's tokens, and the vector of time step, guidance and pooled text."""
    features, module = spec.features, "time_text_embed"
    prompt = nn.tensor("prompt", nn.BATCH, nn.ENCODER, config.whole("joint_attention_dim"))
    text = [nn.linear("embed.text", prompt, features, "context_embedder", bias=True)]
    told = nn.timestep("condition.time", f"{module}.timestep_embedder", features)
    parts = [nn.output(told)]
    if guided:
        told += nn.timestep("condition.guidance", f"{module}.guidance_embedder", features)
        parts.append(nn.output(told))
    pooled = nn.tensor("pooled_prompt", nn.BATCH, config.whole("pooled_projection_dim"))
    told += nn.two_layers("condition.text", pooled, f"{module}.text_embedder", features)
    told.append(nn.add("condition", *parts, told))
    return nn.ending_in(text, spec.text.name), told


def _double(spec: ImageTextStreams, condition: Tensor, *, last: bool, dual: bool = False) -> tuple[Op, ...]:
    """Each stream has its own weights and one attention runs over both. SD3's last block drops the text after it.

    In a dual block the image attends to itself besides, by weights of its own: the norm is shared, and the condition
    gives a shift, a scale and a gate more.
    """
    at, module = "double.layers.{}", "transformer_blocks.{}."
    attention, features = f"{module}attn.", spec.features
    seen = nn.modulated(f"{at}.image", spec.image, condition, f"{module}norm1.linear", 9 if dual else 6)
    read = nn.modulated(f"{at}.text", spec.text, condition, f"{module}norm1_context.linear", 2 if last else 6)
    ours = _projected(spec, f"{at}.image", nn.output(seen), attention, ("to_{}", "norm_{}"))
    theirs = _projected(spec, f"{at}.text", nn.output(read), attention, ("add_{}_proj", "norm_added_{}"))
    q, k, v = (
        nn.copy(f"{at}.attn.{letter}", "concat", pair, *spec.joined.shape)
        for letter, pair in zip("qkv", zip(_qkv(theirs), _qkv(ours), strict=True), strict=True)
    )
    joint = [q, k, v, *_core(spec, at, nn.output(q), nn.output(k), nn.output(v))]
    ops = [*seen, *read, *ours, *theirs, *joint]
    cut = nn.view(f"{at}.image.attended", joint, *spec.image.shape)
    out = nn.linear(f"{at}.image.o_proj", cut, features, f"{attention}to_out.0", bias=True)
    ops += [cut, out]
    image, attended = spec.image, nn.output(out)
    if dual:
        ops.append(nn.multiply(f"{at}.attn.gate", attended, nn.output(seen[1])))
        ops.append(nn.add(f"{at}.attn.residual", image, ops))
        image = nn.output(ops)
        ops += _attended_alone(spec, f"{at}.image.own", nn.output(seen[2]), nn.output(seen[1]), f"{module}attn2.")
        attended = nn.output(ops)
    ops += _fed(f"{at}.image", image, attended, nn.output(seen[1]), f"{module}ff")
    if last:
        return tuple(ops)
    cut = nn.view(f"{at}.text.attended", joint, *spec.text.shape)
    out = nn.linear(f"{at}.text.o_proj", cut, features, f"{attention}to_add_out", bias=True)
    return (*ops, cut, out, *_fed(f"{at}.text", spec.text, nn.output(out), nn.output(read[1]), f"{module}ff_context"))


def _attended_alone(spec: ImageTextStreams, at: str, normed: Tensor, vectors: Tensor, module: str) -> list[Op]:
    """The image attends to itself, after the norm that the joint attention reads too."""
    shifted = nn.moved(at, normed, vectors)
    projected = _projected(spec, at, nn.output(shifted), module, ("to_{}", "norm_{}"))
    core = _core(spec, at, *_qkv(projected))
    out = nn.linear(f"{at}.o_proj", core, spec.features, f"{module}to_out.0", bias=True)
    return [shifted, *projected, *core, out]


def _projected(spec: ImageTextStreams, at: str, x: Tensor, module: str, names: tuple[str, str]) -> list[Op]:
    """Queries, keys and values of one stream; the last three ops give them. `names` of projections and of norms."""
    projections, norms = names
    q, k, v = (
        nn.linear(f"{at}.{letter}_proj", x, spec.features, f"{module}{projections.format(letter)}", bias=True)
        for letter in "qkv"
    )
    if not spec.normed:
        return [q, k, v]
    normed = [
        nn.head_norm(f"{at}.{letter}_norm", op, "rms", f"{module}{norms.format(letter)}", spec.head_dim)
        for letter, op in (("q", q), ("k", k))
    ]
    return [q, k, *normed, v]


def _qkv(ops: list[Op]) -> tuple[Tensor, Tensor, Tensor]:
    return nn.output(ops[-3]), nn.output(ops[-2]), nn.output(ops[-1])


def _core(spec: ImageTextStreams, at: str, q: Tensor, k: Tensor, v: Tensor) -> list[Op]:
    ops: list[Op] = []
    if spec.rotary:
        ops.append(rotary_op(f"{at}.attn.rotary", q, k, head_dim=spec.head_dim, rotated=spec.head_dim))
        q, k = ops[-1].outputs
    shape = Attention(heads=spec.heads, kv_heads=spec.heads, head_dim=spec.head_dim, causal=False, cached=False)
    return [*ops, attention_op(f"{at}.attn.attention", (q, k, v), shape, Seen())]


def _fed(at: str, x: Tensor, attended: Tensor, vectors: Tensor, module: str) -> list[Op]:
    """Gate and add attention's output, then the same for the MLP's."""
    gated = nn.multiply(f"{at}.attn.gate", attended, vectors)
    middle = nn.add(f"{at}.attn.residual", x, gated)
    normed = nn.norm(f"{at}.mlp.norm", middle, "layer")
    shifted = nn.moved(f"{at}.mlp", nn.output(normed), vectors)
    up, down = f"{module}.net.0.proj", f"{module}.net.2"
    fed = feed(
        Mlp(width=4 * nn.width(x), function="gelu_tanh", up=up, down=down, bias=True), f"{at}.mlp", nn.output(shifted)
    )
    last = nn.multiply(f"{at}.mlp.gate", fed, vectors)
    joined = nn.add(f"{at}.mlp.residual", middle, last, out=x.name)
    return [gated, middle, normed, shifted, *fed, last, joined]


def _single(spec: ImageTextStreams, condition: Tensor) -> tuple[Op, ...]:
    """Attention and MLP side by side, joined by one projection."""
    at, module, features = "single.layers.{}", "single_transformer_blocks.{}.", spec.features
    x = spec.joined
    ops = nn.modulated(at, x, condition, f"{module}norm.linear", 3)
    vectors, seen = nn.output(ops[1]), nn.output(ops)
    up = nn.linear(f"{at}.mlp.up_proj", seen, 4 * features, f"{module}proj_mlp", bias=True)
    act = nn.activation(f"{at}.mlp.act", up, "gelu_tanh")
    projected = _projected(spec, at, seen, f"{module}attn.", ("to_{}", "norm_{}"))
    core = _core(spec, at, *_qkv(projected))
    both = nn.copy(f"{at}.concat", "concat", (core, act), *x.shape[:-1], 5 * features)
    out = nn.linear(f"{at}.proj_out", both, features, f"{module}proj_out", bias=True)
    gated = nn.multiply(f"{at}.gate", out, vectors)
    end = nn.add(f"{at}.residual", x, gated, out=x.name)
    return (*ops, up, act, *projected, *core, both, out, gated, end)


def _end(x: Tensor, condition: Tensor, channels: int) -> Block:
    ops = nn.modulated("final", x, condition, "norm_out.linear", 2)
    ops.append(nn.linear("final.linear", ops, channels, "proj_out", bias=True))
    return Block(name="head", ops=tuple(ops))


def _body(config: Config, blocks: list[Block], latent: Tensor, sizes: dict[str, int]) -> nn.Body:
    pooled = nn.tensor("pooled_prompt", nn.BATCH, config.whole("pooled_projection_dim"))
    prompt = nn.tensor("prompt", nn.BATCH, nn.ENCODER, config.whole("joint_attention_dim"))
    told = (
        nn.tensor("timestep", nn.BATCH),
        *((nn.tensor("guidance", nn.BATCH),) if config.get("guidance_embeds") else ()),
    )
    return nn.Body(
        blocks=tuple(blocks),
        inputs=(latent, prompt, pooled, *told),
        outputs=(nn.output(blocks[-1].ops),),
        metadata={
            "layers": config.layers("num_layers") + config.layers("num_single_layers", 0, least=0),
            "hidden_size": config.whole("num_attention_heads") * config.whole("attention_head_dim"),
            "heads": config.whole("num_attention_heads"),
            "default_sizes": dict(sizes),
        },
    )
