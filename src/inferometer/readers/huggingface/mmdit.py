"""Denoisers whose text and image tokens attend to each other: FLUX and Stable Diffusion 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferometer.core.graph import Block, Op, Tensor
from inferometer.readers.huggingface.attention import Attention, attention_op, rotary_op
from inferometer.readers.huggingface.body import Body, ending_in
from inferometer.readers.huggingface.conditioning import LATENT, modulated, timestep, two_layers
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
    linear,
    norm,
    output,
    tensor,
    view,
)
from inferometer.readers.huggingface.vision import patches

if TYPE_CHECKING:
    from inferometer.core.dims import Dim
    from inferometer.readers.huggingface.config import Config

__all__ = ["flux", "sd3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """How a double block names its two streams' parts; image first, then text."""

    heads: int
    head_dim: int
    normed: bool
    rotary: bool

    @property
    def features(self) -> int:
        return self.heads * self.head_dim


def flux(config: Config) -> Body:
    spec = _stream(config, rotary=True)
    features, tokens = spec.features, (IMAGE // (2 * LATENT)) * (IMAGE // (2 * LATENT))
    channels = config.whole("in_channels")
    latent = tensor("latent", BATCH, tokens, channels)
    text, told = _started(config, spec, guided=config.flag("guidance_embeds"))
    stem = [linear("embed.image", latent, features, "x_embedder", bias=True)]
    blocks = [Block(name="embed", ops=(*told, *text, *ending_in(stem, "hidden")))]
    condition = output(told)
    double = _double(spec, tokens, condition, last=False)
    blocks.append(Block(name="double", ops=double, count=config.layers("num_layers")))
    if singles := config.layers("num_single_layers", least=0):
        streams = (tensor("text.hidden", BATCH, ENCODER, features), tensor("hidden", BATCH, tokens, features))
        joined = copy("single.concat", "concat", streams, BATCH, ENCODER + tokens, features)
        blocks.append(Block(name="join", ops=ending_in([joined], "hidden")))
        blocks.append(Block(name="single", ops=_single(spec, tokens, condition), count=singles))
    blocks.append(_end(spec, tokens, condition, config.whole("out_channels", channels)))
    return _body(config, blocks, latent, {"image": 1024, "encoder": 512})


def sd3(config: Config) -> Body:
    spec = _stream(config, rotary=False)
    features, size = spec.features, config.whole("patch_size")
    side = IMAGE // LATENT
    latent = tensor("latent", BATCH, config.whole("in_channels"), side, side)
    text, told = _started(config, spec, guided=False)
    stem = patches("embed.patches", latent, features, size, "pos_embed.proj", bias=True)
    table = constant("pos_embed.pos_embed", 1, config.whole("pos_embed_max_size") ** 2, features)
    stem.append(elementwise("embed.positions", "add", output(stem), weights=(table,)))
    tokens, condition, count = output(stem).shape[1], output(told), config.layers("num_layers")
    blocks = [Block(name="embed", ops=(*told, *text, *ending_in(stem, "hidden")))]
    if count > 1:
        blocks.append(Block(name="double", ops=_double(spec, tokens, condition, last=False), count=count - 1))
    blocks.append(Block(name="double", ops=_double(spec, tokens, condition, last=True), first=count - 1))
    channels = size * size * config.whole("out_channels", config.whole("in_channels"))
    blocks.append(_end(spec, tokens, condition, channels))
    return _body(config, blocks, latent, {"image": LATENT * config.whole("sample_size"), "encoder": 333})


def _stream(config: Config, *, rotary: bool) -> Stream:
    return Stream(
        heads=config.whole("num_attention_heads"),
        head_dim=config.whole("attention_head_dim"),
        normed=config.get("qk_norm") is not None,
        rotary=rotary,
    )


def _started(config: Config, spec: Stream, *, guided: bool) -> tuple[tuple[Op, ...], list[Op]]:
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
    return ending_in(text, "text.hidden"), told


def _double(spec: Stream, tokens: Dim, condition: Tensor, *, last: bool) -> tuple[Op, ...]:
    """Each stream has its own weights and one attention runs over both. SD3's last block drops the text after it."""
    at, module, features = "double.layers.{}", "transformer_blocks.{}.", spec.features
    image = tensor("hidden", BATCH, tokens, features)
    text = tensor("text.hidden", BATCH, ENCODER, features)
    ops = modulated(f"{at}.image", image, condition, f"{module}norm1.linear", 6, features)
    image_vectors, seen = output(ops[1]), output(ops)
    told = modulated(f"{at}.text", text, condition, f"{module}norm1_context.linear", 2 if last else 6, features)
    text_vectors, read = output(told[1]), output(told)
    attention = f"{module}attn."
    ops += told
    ours = _projected(spec, f"{at}.image", seen, attention, ("to_q", "to_k", "to_v"), "norm_{}")
    theirs = _projected(spec, f"{at}.text", read, attention, ("add_q_proj", "add_k_proj", "add_v_proj"), "norm_added_{}")
    ops += [*ours, *theirs]
    joint = _attended(spec, at, _qkv(theirs), _qkv(ours), ENCODER + tokens)
    ops += joint
    both = output(joint)
    out = view(f"{at}.image.attended", both, BATCH, tokens, features)
    ops += [out, linear(f"{at}.image.o_proj", output(out), features, f"{attention}to_out.0", bias=True)]
    if not last:
        out = view(f"{at}.text.attended", both, BATCH, ENCODER, features)
        ops += [out, linear(f"{at}.text.o_proj", output(out), features, f"{attention}to_add_out", bias=True)]
        ops += _fed(spec, f"{at}.text", text, output(ops), text_vectors, f"{module}ff_context")
    attended = next(op for op in ops if op.name == f"{at}.image.o_proj")
    return (*ops, *_fed(spec, f"{at}.image", image, output(attended), image_vectors, f"{module}ff"))


def _projected(
    spec: Stream, at: str, x: Tensor, module: str, names: tuple[str, str, str], norms: str
) -> list[Op]:
    """Queries, keys and values of one stream; the last three ops give them."""
    q, k, v = (
        linear(f"{at}.{letter}_proj", x, spec.features, f"{module}{name}", bias=True)
        for letter, name in zip("qkv", names, strict=True)
    )
    if not spec.normed:
        return [q, k, v]
    normed = [
        norm(f"{at}.{letter}_norm", output(op), "rms", f"{module}{norms.format(letter)}", features=spec.head_dim)
        for letter, op in (("q", q), ("k", k))
    ]
    return [q, k, *normed, v]


def _qkv(ops: list[Op]) -> tuple[Tensor, Tensor, Tensor]:
    return output(ops[-3]), output(ops[-2]), output(ops[-1])


def _attended(
    spec: Stream, at: str, text: tuple[Tensor, ...], image: tuple[Tensor, ...], tokens: Dim
) -> list[Op]:
    joined = [
        copy(f"{at}.attn.{letter}", "concat", pair, BATCH, tokens, spec.features)
        for letter, pair in zip("qkv", zip(text, image, strict=True), strict=True)
    ]
    return [*joined, *_core(spec, at, *(output(op) for op in joined))]


def _core(spec: Stream, at: str, q: Tensor, k: Tensor, v: Tensor) -> list[Op]:
    ops: list[Op] = []
    if spec.rotary:
        ops.append(rotary_op(f"{at}.attn.rotary", q, k, heads=spec.heads, head_dim=spec.head_dim, rotated=spec.head_dim))
        q, k = ops[-1].outputs
    shape = Attention(heads=spec.heads, kv_heads=spec.heads, head_dim=spec.head_dim, causal=False, cached=False)
    return [*ops, attention_op(f"{at}.attn.attention", q, k, v, shape, 0)]


def _fed(spec: Stream, at: str, x: Tensor, attended: Tensor, vectors: Tensor, module: str) -> list[Op]:
    """Gate and add attention's output, then the same for the MLP's."""
    gated = elementwise(f"{at}.attn.gate", "multiply", attended, vectors)
    middle = add(f"{at}.attn.residual", x, output(gated))
    normed = norm(f"{at}.mlp.norm", output(middle), "layer")
    moved = elementwise(f"{at}.mlp.modulate", "scale and shift", output(normed), vectors, flops=2)
    mlp = Mlp(width=4 * spec.features, function="gelu", up=f"{module}.net.0.proj", down=f"{module}.net.2", bias=True)
    fed = feed(mlp, f"{at}.mlp", output(moved))
    last = elementwise(f"{at}.mlp.gate", "multiply", output(fed), vectors)
    joined = add(f"{at}.mlp.residual", output(middle), output(last), out=x.name)
    return [gated, middle, normed, moved, *fed, last, joined]


def _single(spec: Stream, tokens: Dim, condition: Tensor) -> tuple[Op, ...]:
    """Text and image as one sequence; attention and MLP side by side, joined by one projection."""
    at, module, features = "single.layers.{}", "single_transformer_blocks.{}.", spec.features
    x = tensor("hidden", BATCH, ENCODER + tokens, features)
    ops = modulated(at, x, condition, f"{module}norm.linear", 3, features)
    vectors, seen = output(ops[1]), output(ops)
    up = linear(f"{at}.mlp.up_proj", seen, 4 * features, f"{module}proj_mlp", bias=True)
    act = activation(f"{at}.mlp.act", output(up), "gelu")
    projected = _projected(spec, at, seen, f"{module}attn.", ("to_q", "to_k", "to_v"), "norm_{}")
    core = _core(spec, at, *_qkv(projected))
    both = copy(f"{at}.concat", "concat", (output(core), output(act)), *x.shape[:-1], 5 * features)
    out = linear(f"{at}.proj_out", output(both), features, f"{module}proj_out", bias=True)
    gated = elementwise(f"{at}.gate", "multiply", output(out), vectors)
    end = add(f"{at}.residual", x, output(gated), out="hidden")
    return (*ops, up, act, *projected, *core, both, out, gated, end)


def _end(spec: Stream, tokens: Dim, condition: Tensor, channels: int) -> Block:
    x = tensor("hidden", BATCH, tokens, spec.features)
    ops = modulated("final", x, condition, "norm_out.linear", 2, spec.features)
    ops.append(linear("final.linear", output(ops), channels, "proj_out", bias=True))
    return Block(name="head", ops=tuple(ops))


def _body(config: Config, blocks: list[Block], latent: Tensor, sizes: dict[str, int]) -> Body:
    prompt = tensor("prompt", BATCH, ENCODER, config.whole("joint_attention_dim"))
    return Body(
        blocks=tuple(blocks),
        inputs=(latent, prompt),
        outputs=(output(blocks[-1].ops),),
        metadata={
            "layers": config.layers("num_layers") + config.layers("num_single_layers", 0, least=0),
            "hidden_size": config.whole("num_attention_heads") * config.whole("attention_head_dim"),
            "heads": config.whole("num_attention_heads"),
            "default_sizes": sizes,
        },
    )
