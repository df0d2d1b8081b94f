"""DiT, as its authors built it and as diffusers ports it."""

from dataclasses import replace

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Seen, attend
from inferometer.formats.huggingface.body import LATENT, LAYERS, Body, ending_in, modulated, moved, timestep
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.encoder import patches
from inferometer.formats.huggingface.mlp import Mlp, feed


@frozen
class DitNames:
    """Where a port keeps a block's modules."""

    attention: Attention
    up: str
    down: str
    modulation: str
    time: str
    label: str
    layers: tuple[str, str] = LAYERS  # the two of the time step's MLP


def dit(config: Config) -> Body:
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
    end = modulated("final", stream, nn.output(condition), "final_layer.adaLN_modulation.1", 2)
    patch = config.whole("patch_size") ** 2 * config.whole("out_channels", 2 * config.whole("in_channels"))
    end.append(nn.linear("final.linear", end, patch, "final_layer.linear", bias=True))
    blocks = (
        Block(name="embed", ops=(*condition, *ending_in(stem, stream.name))),
        Block(name="decoder", ops=_block(names, stream, nn.output(condition)), count=config.layers("num_layers")),
        Block(name="head", ops=tuple(end)),
    )
    return _body(config, blocks, latent)


def diffusers_dit(config: Config) -> Body:
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
        Block(name="embed", ops=ending_in(stem, stream.name)),
        Block(
            name="decoder",
            ops=(*condition, *_block(names, stream, nn.output(condition))),
            count=config.layers("num_layers"),
        ),
        Block(name="head", ops=_diffusers_end(config, names, stream)),
    )
    return _body(config, blocks, latent)


def _diffusers_end(config: Config, names: DitNames, stream: Tensor) -> tuple[Op, ...]:
    """The last modulation is made with the first block's embedder, which runs again for it."""
    first = replace(names, time=names.time.replace("{}", "0"), label=names.label.replace("{}", "0"))
    condition = _conditioned("final.condition", first, config)
    active = nn.activation("final.silu", condition, "silu")
    vectors = nn.linear("final.modulation", active, 2 * nn.width(stream), "proj_out_1", bias=True)
    normed = nn.norm("final.norm", stream, "layer")
    shifted = moved("final", nn.output(normed), nn.output(vectors))
    patch = config.whole("patch_size") ** 2 * config.whole("out_channels", config.whole("in_channels"))
    last = nn.linear("final.linear", shifted, patch, "proj_out_2", bias=True)
    return (*condition, active, vectors, normed, shifted, last)


def _features(config: Config) -> int:
    return config.whole("num_attention_heads") * config.whole("attention_head_dim")


def _latent(config: Config) -> Tensor:
    side = nn.IMAGE // LATENT
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
    ops = timestep(f"{at}.time", names.time, features, layers=names.layers)
    moment = nn.output(ops)
    label = nn.tensor("class_labels", nn.BATCH, role="index")
    rows = config.whole("num_embeds_ada_norm") + 1
    ops.append(nn.embedding(f"{at}.class", label, rows, features, f"{names.label}.weight"))
    return [*ops, nn.add(at, moment, ops)]


def _block(names: DitNames, x: Tensor, condition: Tensor) -> tuple[Op, ...]:
    """Modulated norm → attention → gate → modulated norm → MLP → gate. One projection gives all six vectors."""
    at = "layers.{}"
    ops = modulated(f"{at}.attn", x, condition, names.modulation, 6)
    vectors = nn.output(ops[1])
    ops += attend(names.attention, f"{at}.attn", nn.output(ops), Seen())
    ops.append(nn.multiply(f"{at}.attn.gate", ops, vectors))
    ops.append(nn.add(f"{at}.attn.residual", x, ops))
    middle = nn.output(ops)
    ops.append(nn.norm(f"{at}.mlp.norm", middle, "layer"))
    ops.append(moved(f"{at}.mlp", nn.output(ops), vectors))
    mlp = Mlp(width=4 * nn.width(x), function="gelu_tanh", up=names.up, down=names.down, bias=True)
    ops += feed(mlp, f"{at}.mlp", nn.output(ops))
    ops.append(nn.multiply(f"{at}.mlp.gate", ops, vectors))
    return (*ops, nn.add(f"{at}.mlp.residual", middle, ops, out=x.name))


def _body(config: Config, blocks: tuple[Block, ...], latent: Tensor) -> Body:
    return Body(
        blocks=blocks,
        inputs=(latent, nn.tensor("timestep", nn.BATCH), nn.tensor("class_labels", nn.BATCH, role="index")),
        outputs=(nn.output(blocks[-1].ops),),
        metadata={
            "layers": config.layers("num_layers"),
            "hidden_size": _features(config),
            "heads": config.whole("num_attention_heads"),
            "default_sizes": {"image": LATENT * config.whole("sample_size")},
        },
    )
