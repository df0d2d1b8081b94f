"""DiT, as its authors built it and as diffusers ports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.graph import Block, Op, Tensor
from inferometer.readers.huggingface.attention import Attention, attend
from inferometer.readers.huggingface.body import Body, ending_in
from inferometer.readers.huggingface.conditioning import LATENT, LAYERS, modulated, timestep
from inferometer.readers.huggingface.mlp import Mlp, feed
from inferometer.readers.huggingface.parts import (
    BATCH,
    IMAGE,
    activation,
    add,
    elementwise,
    embedding,
    linear,
    norm,
    output,
    tensor,
    weight,
)
from inferometer.readers.huggingface.vision import patches

if TYPE_CHECKING:
    from inferometer.core.dims import Dim
    from inferometer.readers.huggingface.config import Config

__all__ = ["diffusers_dit", "dit"]


def dit(config: Config) -> Body:
    """One embedder of time step and label for the whole model, and a stored table of positions."""
    features, x, grid = _sizes(config)
    table = weight("pos_embed", 1, grid * grid, features)
    stem = patches("embed.patches", x, features, config.whole("patch_size"), "x_embedder.proj", bias=True)
    stem.append(elementwise("embed.positions", "add", output(stem), weights=(table,)))
    told = _conditioned(
        "condition", "t_embedder.mlp", "y_embedder.embedding_table", config, features, layers=("0", "2")
    )
    at = "blocks.{}."
    ops = _block(
        config, features, output(stem).shape, output(told),
        attention={"qkv": f"{at}attn.qkv", "o": f"{at}attn.proj"},
        mlp=(f"{at}mlp.fc1", f"{at}mlp.fc2"),
        modulation=f"{at}adaLN_modulation.1",
    )  # fmt: skip
    stream = tensor("hidden", *output(stem).shape)
    end = modulated("final", stream, output(told), "final_layer.adaLN_modulation.1", 2, features)
    patch = config.whole("patch_size") ** 2 * config.whole("out_channels", 2 * config.whole("in_channels"))
    end.append(linear("final.linear", output(end), patch, "final_layer.linear", bias=True))
    first = Block(name="embed", ops=(*told, *ending_in(stem, "hidden")))
    layers = Block(name="decoder", ops=ops, count=config.layers("num_layers"))
    return _body(config, (first, layers, Block(name="head", ops=tuple(end))), x, features)


def diffusers_dit(config: Config) -> Body:
    """Every block has an embedder of its own; positions are computed, not stored."""
    features, x, _ = _sizes(config)
    stem = patches("embed.patches", x, features, config.whole("patch_size"), "pos_embed.proj", bias=True)
    stem.append(elementwise("embed.positions", "add", output(stem)))
    at = "transformer_blocks.{}."
    inside = f"{at}norm1.emb."
    told = _conditioned(
        "layers.{}.condition", f"{inside}timestep_embedder", f"{inside}class_embedder.embedding_table", config, features
    )
    letters = {"q": "to_q", "k": "to_k", "v": "to_v", "o": "to_out.0"}
    ops = _block(
        config, features, output(stem).shape, output(told),
        attention={letter: f"{at}attn1.{name}" for letter, name in letters.items()},
        mlp=(f"{at}ff.net.0.proj", f"{at}ff.net.2"),
        modulation=f"{at}norm1.linear",
    )  # fmt: skip
    stream = tensor("hidden", *output(stem).shape)
    blocks = (
        Block(name="embed", ops=ending_in(stem, "hidden")),
        Block(name="decoder", ops=(*told, *ops), count=config.layers("num_layers")),
        Block(name="head", ops=_diffusers_end(config, stream, features)),
    )
    return _body(config, blocks, x, features)


def _diffusers_end(config: Config, stream: Tensor, features: int) -> tuple[Op, ...]:
    """The last modulation is made from the first block's embedder."""
    condition = tensor("condition", BATCH, features)
    active = activation("final.silu", condition, "silu")
    told = linear("final.modulation", output(active), 2 * features, "proj_out_1", bias=True)
    normed = norm("final.norm", stream, "layer")
    moved = elementwise("final.modulate", "scale and shift", output(normed), output(told), flops=2)
    patch = config.whole("patch_size") ** 2 * config.whole("out_channels", config.whole("in_channels"))
    return active, told, normed, moved, linear("final.linear", output(moved), patch, "proj_out_2", bias=True)


def _sizes(config: Config) -> tuple[int, Tensor, int]:
    heads, head_dim = config.whole("num_attention_heads"), config.whole("attention_head_dim")
    side = IMAGE // LATENT
    x = tensor("latent", BATCH, config.whole("in_channels"), side, side)
    return heads * head_dim, x, config.whole("sample_size") // config.whole("patch_size")


def _conditioned(
    at: str, time: str, label: str, config: Config, features: int, *, layers: tuple[str, str] = LAYERS
) -> list[Op]:
    """The vector of time step and class. The table has one row more: no class, for guidance."""
    ops = timestep(at, time, features, layers=layers)
    moment = output(ops)
    ids = tensor(f"{at}.label", BATCH, role="index")
    ops.append(embedding(f"{at}.class", ids, config.whole("num_embeds_ada_norm") + 1, features, f"{label}.weight"))
    return [*ops, add(f"{at}.add", moment, output(ops))]


def _block(
    config: Config,
    features: int,
    shape: tuple[Dim, ...],
    condition: Tensor,
    *,
    attention: dict[str, str],
    mlp: tuple[str, str],
    modulation: str,
) -> tuple[Op, ...]:
    """Modulated norm → attention → gate → modulated norm → MLP → gate. One projection gives all six vectors."""
    at = "layers.{}"
    x = tensor("hidden", *shape)
    heads = config.whole("num_attention_heads")
    spec = Attention(
        heads=heads, kv_heads=heads, head_dim=features // heads, bias="qkvo", causal=False, cached=False, **attention
    )
    ops = modulated(f"{at}.attn", x, condition, modulation, 6, features)
    vectors = output(ops[1])
    ops += attend(spec, f"{at}.attn", output(ops), 0)
    ops.append(elementwise(f"{at}.attn.gate", "multiply", output(ops), vectors))
    ops.append(add(f"{at}.attn.residual", x, output(ops)))
    middle = output(ops)
    ops.append(norm(f"{at}.mlp.norm", middle, "layer"))
    ops.append(elementwise(f"{at}.mlp.modulate", "scale and shift", output(ops), vectors, flops=2))
    ops += feed(Mlp(width=4 * features, function="gelu", up=mlp[0], down=mlp[1], bias=True), f"{at}.mlp", output(ops))
    ops.append(elementwise(f"{at}.mlp.gate", "multiply", output(ops), vectors))
    return (*ops, add(f"{at}.mlp.residual", middle, output(ops), out="hidden"))


def _body(config: Config, blocks: tuple[Block, ...], x: Tensor, features: int) -> Body:
    return Body(
        blocks=blocks,
        inputs=(x,),
        outputs=(output(blocks[-1].ops),),
        metadata={
            "layers": config.layers("num_layers"),
            "hidden_size": features,
            "heads": config.whole("num_attention_heads"),
            "default_sizes": {"image": LATENT * config.whole("sample_size")},
        },
    )
