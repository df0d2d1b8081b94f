"""Denoisers whose text and image tokens attend to each other: FLUX and Stable Diffusion 3."""

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Op, Tensor
from inferometer.readers.huggingface.attention import Attention, Seen, attention_op, rotary_op
from inferometer.readers.huggingface.body import Body, ending_in
from inferometer.readers.huggingface.conditioning import LATENT, modulated, moved, timestep, two_layers
from inferometer.readers.huggingface.config import Config
from inferometer.readers.huggingface.mlp import Mlp, feed
from inferometer.readers.huggingface.parts import (
    BATCH,
    ENCODER,
    IMAGE,
    activation,
    add,
    constant,
    copy,
    elementwise,
    head_norm,
    linear,
    multiply,
    norm,
    output,
    tensor,
    view,
    width,
)
from inferometer.readers.huggingface.vision import patches

__all__ = ["flux", "sd3"]

_FLUX_SIZES = {"image": 1024, "encoder": 512}  # what its pipeline makes and reads unless told otherwise
_SD3_TOKENS = 77 + 256  # CLIP's and T5's, one after the other


@frozen
class Streams:
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
        return tensor("hidden", BATCH, self.tokens, self.features)

    @property
    def text(self) -> Tensor:
        return tensor("text.hidden", BATCH, ENCODER, self.features)

    @property
    def joined(self) -> Tensor:
        return tensor("hidden", BATCH, ENCODER + self.tokens, self.features)


def flux(config: Config) -> Body:
    """Double blocks with weights for each stream, then single blocks over text and image as one sequence."""
    side = IMAGE // (2 * LATENT)  # a token is two by two latent pixels
    spec = _streams(config, side * side, rotary=True)
    channels = config.whole("in_channels")
    latent = tensor("latent", BATCH, spec.tokens, channels)
    text, told = _started(config, spec, guided=config.flag("guidance_embeds"))
    stem = [linear("embed.image", latent, spec.features, "x_embedder", bias=True)]
    condition, doubles = output(told), config.layers("num_layers")
    blocks = [
        Block(name="embed", ops=(*told, *text, *ending_in(stem, spec.image.name))),
        Block(name="double", ops=_double(spec, condition, last=False), count=doubles),
    ]
    x = spec.image
    if singles := config.layers("num_single_layers", least=0):
        both = copy("single.concat", "concat", (spec.text, spec.image), *spec.joined.shape)
        blocks.append(Block(name="join", ops=ending_in([both], spec.joined.name)))
        blocks.append(Block(name="single", ops=_single(spec, condition), count=singles))
        cut = view("final.image", spec.joined, *spec.image.shape)
        blocks.append(Block(name="cut", ops=(cut,)))
        x = output(cut)
    blocks.append(_end(x, condition, config.whole("out_channels", channels)))
    return _body(config, blocks, latent, _FLUX_SIZES)


def sd3(config: Config) -> Body:
    """Double blocks only; the last one does not keep the text."""
    size, side = config.whole("patch_size"), IMAGE // LATENT
    latent = tensor("latent", BATCH, config.whole("in_channels"), side, side)
    features = config.whole("num_attention_heads") * config.whole("attention_head_dim")
    stem = patches("embed.patches", latent, features, size, ("pos_embed.proj", True))
    spec = _streams(config, output(stem).shape[1], rotary=False)
    text, told = _started(config, spec, guided=False)
    table = constant("pos_embed.pos_embed", 1, config.whole("pos_embed_max_size") ** 2, features)
    stem.append(elementwise("embed.positions", "add", output(stem), weights=(table,)))
    condition, count = output(told), config.layers("num_layers")
    blocks = [Block(name="embed", ops=(*told, *text, *ending_in(stem, spec.image.name)))]
    if count > 1:
        blocks.append(Block(name="double", ops=_double(spec, condition, last=False), count=count - 1))
    blocks.append(Block(name="double", ops=_double(spec, condition, last=True), first=count - 1))
    channels = size * size * config.whole("out_channels", config.whole("in_channels"))
    blocks.append(_end(spec.image, condition, channels))
    return _body(config, blocks, latent, {"image": LATENT * config.whole("sample_size"), "encoder": _SD3_TOKENS})


def _streams(config: Config, tokens: Dim, *, rotary: bool) -> Streams:
    return Streams(
        heads=config.whole("num_attention_heads"),
        head_dim=config.whole("attention_head_dim"),
        normed=config.get("qk_norm") is not None,
        rotary=rotary,
        tokens=tokens,
    )


def _started(config: Config, spec: Streams, *, guided: bool) -> tuple[tuple[Op, ...], list[Op]]:
    """The text's tokens, and the vector of time step, guidance and pooled text."""
    features, module = spec.features, "time_text_embed"
    prompt = tensor("prompt", BATCH, ENCODER, config.whole("joint_attention_dim"))
    text = [linear("embed.text", prompt, features, "context_embedder", bias=True)]
    told = timestep("condition.time", f"{module}.timestep_embedder", features)
    parts = [output(told)]
    if guided:
        told += timestep("condition.guidance", f"{module}.guidance_embedder", features)
        parts.append(output(told))
    pooled = tensor("pooled_prompt", BATCH, config.whole("pooled_projection_dim"))
    told += two_layers("condition.text", pooled, f"{module}.text_embedder", features)
    told.append(add("condition", *parts, output(told)))
    return ending_in(text, spec.text.name), told


def _double(spec: Streams, condition: Tensor, *, last: bool) -> tuple[Op, ...]:
    """Each stream has its own weights and one attention runs over both. SD3's last block drops the text after it."""
    at, module = "double.layers.{}", "transformer_blocks.{}."
    attention, features = f"{module}attn.", spec.features
    seen = modulated(f"{at}.image", spec.image, condition, f"{module}norm1.linear", 6)
    read = modulated(f"{at}.text", spec.text, condition, f"{module}norm1_context.linear", 2 if last else 6)
    ours = _projected(spec, f"{at}.image", output(seen), attention, ("to_{}", "norm_{}"))
    theirs = _projected(spec, f"{at}.text", output(read), attention, ("add_{}_proj", "norm_added_{}"))
    joint = _attended(spec, at, _qkv(theirs), _qkv(ours))
    ops = [*seen, *read, *ours, *theirs, *joint]
    cut = view(f"{at}.image.attended", output(joint), *spec.image.shape)
    out = linear(f"{at}.image.o_proj", output(cut), features, f"{attention}to_out.0", bias=True)
    ops += [cut, out, *_fed(f"{at}.image", spec.image, output(out), output(seen[1]), f"{module}ff")]
    if last:
        return tuple(ops)
    cut = view(f"{at}.text.attended", output(joint), *spec.text.shape)
    out = linear(f"{at}.text.o_proj", output(cut), features, f"{attention}to_add_out", bias=True)
    return (*ops, cut, out, *_fed(f"{at}.text", spec.text, output(out), output(read[1]), f"{module}ff_context"))


def _projected(spec: Streams, at: str, x: Tensor, module: str, names: tuple[str, str]) -> list[Op]:
    """Queries, keys and values of one stream; the last three ops give them. `names` of projections and of norms."""
    projections, norms = names
    q, k, v = (
        linear(f"{at}.{letter}_proj", x, spec.features, f"{module}{projections.format(letter)}", bias=True)
        for letter in "qkv"
    )
    if not spec.normed:
        return [q, k, v]
    normed = [
        head_norm(f"{at}.{letter}_norm", output(op), "rms", f"{module}{norms.format(letter)}", spec.head_dim)
        for letter, op in (("q", q), ("k", k))
    ]
    return [q, k, *normed, v]


def _qkv(ops: list[Op]) -> tuple[Tensor, Tensor, Tensor]:
    return output(ops[-3]), output(ops[-2]), output(ops[-1])


def _attended(spec: Streams, at: str, text: tuple[Tensor, ...], image: tuple[Tensor, ...]) -> list[Op]:
    q, k, v = (
        copy(f"{at}.attn.{letter}", "concat", pair, *spec.joined.shape)
        for letter, pair in zip("qkv", zip(text, image, strict=True), strict=True)
    )
    return [q, k, v, *_core(spec, at, output(q), output(k), output(v))]


def _core(spec: Streams, at: str, q: Tensor, k: Tensor, v: Tensor) -> list[Op]:
    ops: list[Op] = []
    if spec.rotary:
        ops.append(rotary_op(f"{at}.attn.rotary", q, k, head_dim=spec.head_dim, rotated=spec.head_dim))
        q, k = ops[-1].outputs
    shape = Attention(heads=spec.heads, kv_heads=spec.heads, head_dim=spec.head_dim, causal=False, cached=False)
    return [*ops, attention_op(f"{at}.attn.attention", (q, k, v), shape, Seen())]


def _fed(at: str, x: Tensor, attended: Tensor, vectors: Tensor, module: str) -> list[Op]:
    """Gate and add attention's output, then the same for the MLP's."""
    gated = multiply(f"{at}.attn.gate", attended, vectors)
    middle = add(f"{at}.attn.residual", x, output(gated))
    normed = norm(f"{at}.mlp.norm", output(middle), "layer")
    shifted = moved(f"{at}.mlp", output(normed), vectors)
    up, down = f"{module}.net.0.proj", f"{module}.net.2"
    fed = feed(Mlp(width=4 * width(x), function="gelu_tanh", up=up, down=down, bias=True), f"{at}.mlp", output(shifted))
    last = multiply(f"{at}.mlp.gate", output(fed), vectors)
    joined = add(f"{at}.mlp.residual", output(middle), output(last), out=x.name)
    return [gated, middle, normed, shifted, *fed, last, joined]


def _single(spec: Streams, condition: Tensor) -> tuple[Op, ...]:
    """Attention and MLP side by side, joined by one projection."""
    at, module, features = "single.layers.{}", "single_transformer_blocks.{}.", spec.features
    x = spec.joined
    ops = modulated(at, x, condition, f"{module}norm.linear", 3)
    vectors, seen = output(ops[1]), output(ops)
    up = linear(f"{at}.mlp.up_proj", seen, 4 * features, f"{module}proj_mlp", bias=True)
    act = activation(f"{at}.mlp.act", output(up), "gelu_tanh")
    projected = _projected(spec, at, seen, f"{module}attn.", ("to_{}", "norm_{}"))
    core = _core(spec, at, *_qkv(projected))
    both = copy(f"{at}.concat", "concat", (output(core), output(act)), *x.shape[:-1], 5 * features)
    out = linear(f"{at}.proj_out", output(both), features, f"{module}proj_out", bias=True)
    gated = multiply(f"{at}.gate", output(out), vectors)
    end = add(f"{at}.residual", x, output(gated), out=x.name)
    return (*ops, up, act, *projected, *core, both, out, gated, end)


def _end(x: Tensor, condition: Tensor, channels: int) -> Block:
    ops = modulated("final", x, condition, "norm_out.linear", 2)
    ops.append(linear("final.linear", output(ops), channels, "proj_out", bias=True))
    return Block(name="head", ops=tuple(ops))


def _body(config: Config, blocks: list[Block], latent: Tensor, sizes: dict[str, int]) -> Body:
    pooled = tensor("pooled_prompt", BATCH, config.whole("pooled_projection_dim"))
    prompt = tensor("prompt", BATCH, ENCODER, config.whole("joint_attention_dim"))
    told = (tensor("timestep", BATCH), *((tensor("guidance", BATCH),) if config.get("guidance_embeds") else ()))
    return Body(
        blocks=tuple(blocks),
        inputs=(latent, prompt, pooled, *told),
        outputs=(output(blocks[-1].ops),),
        metadata={
            "layers": config.layers("num_layers") + config.layers("num_single_layers", 0, least=0),
            "hidden_size": config.whole("num_attention_heads") * config.whole("attention_head_dim"),
            "heads": config.whole("num_attention_heads"),
            "default_sizes": dict(sizes),
        },
    )
