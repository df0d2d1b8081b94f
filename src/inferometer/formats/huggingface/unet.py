"""The conditional U-Net of diffusers: Stable Diffusion 1.x, 2.x and XL."""

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Seen
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.layer import Layer, Mlp, Norms, stack

_TOKENS = 77  # of the CLIP text encoders that these networks are conditioned on
_KNOWN = {
    "DownBlock2D": False,
    "CrossAttnDownBlock2D": True,
    "UpBlock2D": False,
    "CrossAttnUpBlock2D": True,
}


@frozen
class UnetLevel:
    """One resolution: its width, how many resnets, and its transformers where it has any."""

    channels: int
    resnets: int
    layers: int  # transformer layers after each resnet, 0 for none
    heads: int


def unet(config: Config) -> nn.Body:
    levels = _levels(config)
    side = nn.IMAGE // nn.LATENT
    latent = nn.tensor("latent", nn.BATCH, config.whole("in_channels"), side, side)
    text = nn.tensor("prompt", nn.BATCH, nn.ENCODER, config.whole("cross_attention_dim"))
    condition = _condition(config, levels[0].channels)
    first = nn.convolution("conv_in", latent, nn.square(levels[0].channels, 3), "conv_in", bias=True)
    net = _Net(config, nn.output(condition), text)
    blocks = [Block(name="embed", ops=(*condition, first))]
    x, skips = nn.output(first), [nn.output(first)]
    for index, level in enumerate(levels):
        blocks += (made := net.down(index, level, x, skips, last=index == len(levels) - 1))
        x = nn.output(made[-1].ops)
    blocks += (made := net.middle(levels[-1], x))
    x = nn.output(made[-1].ops)
    for index, level in enumerate(reversed(levels)):
        blocks += (made := net.up(index, level, x, skips, last=index == len(levels) - 1))
        x = nn.output(made[-1].ops)
    groups = config.whole("norm_num_groups", 32)
    normed = nn.channel_norm("out.norm", x, "group", "conv_norm_out", groups=groups)
    act = nn.activation("out.act", normed, "silu")
    last = nn.convolution("conv_out", act, nn.square(config.whole("out_channels"), 3), "conv_out", bias=True)
    blocks.append(Block(name="head", ops=(normed, act, last)))
    return nn.Body(
        blocks=tuple(blocks),
        inputs=(latent, text, nn.tensor("timestep", nn.BATCH), *_pooled(config)),
        outputs=(nn.output(blocks[-1].ops),),
        metadata={
            "hidden_size": levels[-1].channels,
            "default_sizes": {"image": nn.LATENT * config.whole("sample_size"), "encoder": _TOKENS},
        },
    )


def _levels(config: Config) -> list[UnetLevel]:
    """The levels on the way down; the way up has the same in reverse, with one resnet more each."""
    widths = config.wholes("block_out_channels")
    count = len(widths)
    kinds, ups = config.texts("down_block_types"), config.texts("up_block_types")
    for key, listed in (("down_block_types", kinds), ("up_block_types", ups)):
        if len(listed) != count or any(kind not in _KNOWN for kind in listed):
            raise config.error(key, f"must be {count} of {', '.join(_KNOWN)}, and is {', '.join(listed)[:80]}")
    if [_KNOWN[kind] for kind in ups] != [_KNOWN[kind] for kind in reversed(kinds)]:
        raise config.error("up_block_types", "must mirror down_block_types")
    resnets = config.wholes("layers_per_block", count=count)
    layers = config.wholes("transformer_layers_per_block", count=count)
    heads = config.wholes("heads", count=count)
    for key, values in (("layers_per_block", resnets), ("transformer_layers_per_block", layers), ("heads", heads)):
        if len(values) != count:
            raise config.error(key, f"has {len(values)} entries for {count} levels")
    return [
        UnetLevel(channels=widths[i], resnets=resnets[i], layers=layers[i] if _KNOWN[kinds[i]] else 0, heads=heads[i])
        for i in range(count)
    ]


def _condition(config: Config, channels: int) -> list[Op]:
    """The time step's vector; SDXL adds one of the pooled prompt and the picture's size and crop."""
    features = 4 * channels
    ops = nn.timestep("condition.time", "time_embedding", features, frequencies=channels)
    if config.get("addition_embed_type") is None:
        return ops
    if config.get("addition_embed_type") != "text_time":
        raise config.error("addition_embed_type", "other than text_time is not known")
    step = nn.output(ops)
    ops += nn.two_layers("condition.text", _pooled(config)[0], "add_embedding", features)
    return [*ops, nn.add("condition", step, ops)]


def _pooled(config: Config) -> tuple[Tensor, ...]:
    """SDXL's vector of the whole prompt, with the picture's size and crop behind it."""
    if config.get("addition_embed_type") is None:
        return ()
    return (nn.tensor("pooled_prompt", nn.BATCH, config.whole("projection_class_embeddings_input_dim")),)


class _Net:
    """The parts of the network that share a condition and a text."""

    def __init__(self, config: Config, condition: Tensor, text: Tensor) -> None:
        self._linear = config.flag("use_linear_projection")
        self._groups = config.whole("norm_num_groups", 32)
        self._config = config
        self._condition = condition
        self._text = text

    def down(self, index: int, level: UnetLevel, x: Tensor, skips: list[Tensor], *, last: bool) -> list[Block]:
        blocks: list[Block] = []
        name, module = f"down.{index}", f"down_blocks.{index}"
        for number in range(level.resnets):
            blocks += self._pair(name, module, number, level, x)
            x = nn.output(blocks[-1].ops)
            skips.append(x)
        if not last:
            at, conv = f"{name}.downsample", f"{module}.downsamplers.0.conv"
            op = nn.convolution(at, x, nn.square(level.channels, 3, stride=2), conv, bias=True)
            blocks.append(Block(name=name, ops=(op,)))
            skips.append(nn.output(op))
        return blocks

    def middle(self, level: UnetLevel, x: Tensor) -> list[Block]:
        blocks = [self._resnet("mid.resnets.0", "mid_block.resnets.0", x, level.channels, "mid")]
        layers = self._config.wholes("transformer_layers_per_block", count=1)[-1]
        deep = UnetLevel(channels=level.channels, resnets=2, layers=layers, heads=level.heads)
        blocks += self._transformer("mid.attentions.0", "mid_block.attentions.0", nn.output(blocks[0].ops), deep, "mid")
        x = nn.output(blocks[-1].ops)
        return [*blocks, self._resnet("mid.resnets.1", "mid_block.resnets.1", x, level.channels, "mid")]

    def up(self, index: int, level: UnetLevel, x: Tensor, skips: list[Tensor], *, last: bool) -> list[Block]:
        """Each resnet reads the stream beside what the way down left at the same size."""
        blocks: list[Block] = []
        name, module = f"up.{index}", f"up_blocks.{index}"
        for number in range(level.resnets + 1):
            skip = skips.pop()
            channels = nn.channels_of(x) + nn.channels_of(skip)
            joined = nn.copy(f"{name}.concat.{number}", "concat", (x, skip), nn.BATCH, channels, *x.shape[2:])
            blocks.append(Block(name=name, ops=(joined,)))
            blocks += self._pair(name, module, number, level, nn.output(joined))
            x = nn.output(blocks[-1].ops)
        if not last:
            larger = nn.resize(f"{name}.resize", x, "nearest", skips[-1].shape[2:])
            conv = f"{module}.upsamplers.0.conv"
            op = nn.convolution(f"{name}.upsample", larger, nn.square(level.channels, 3), conv, bias=True)
            blocks.append(Block(name=name, ops=(larger, op)))
        return blocks

    def _norm(self, name: str, x: Tensor, module: str) -> Op:
        return nn.channel_norm(name, x, "group", module, groups=self._groups)

    def _pair(self, name: str, module: str, number: int, level: UnetLevel, x: Tensor) -> list[Block]:
        """A resnet, and its transformer where the level has them."""
        place = f"resnets.{number}"
        blocks = [self._resnet(f"{name}.{place}", f"{module}.{place}", x, level.channels, name)]
        if level.layers:
            place = f"attentions.{number}"
            blocks += self._transformer(f"{name}.{place}", f"{module}.{place}", nn.output(blocks[0].ops), level, name)
        return blocks

    def _resnet(self, at: str, module: str, x: Tensor, channels: int, block: str) -> Block:
        """Norm, SiLU, 3 × 3, plus the condition; norm, SiLU, 3 × 3; added to the input, which a 1 × 1 may widen."""
        ops = [self._norm(f"{at}.norm1", x, f"{module}.norm1")]
        ops.append(nn.activation(f"{at}.act1", ops, "silu"))
        ops.append(nn.convolution(f"{at}.conv1", ops, nn.square(channels, 3), f"{module}.conv1", bias=True))
        inner = nn.output(ops)
        active = nn.activation(f"{at}.time_act", self._condition, "silu")
        shift = nn.linear(f"{at}.time_proj", active, channels, f"{module}.time_emb_proj", bias=True)
        ops += [active, shift, nn.add(f"{at}.time_add", inner, shift)]
        ops.append(self._norm(f"{at}.norm2", nn.output(ops), f"{module}.norm2"))
        ops.append(nn.activation(f"{at}.act2", ops, "silu"))
        ops.append(nn.convolution(f"{at}.conv2", ops, nn.square(channels, 3), f"{module}.conv2", bias=True))
        inner = nn.output(ops)
        if nn.channels_of(x) != channels:
            ops.append(
                nn.convolution(f"{at}.shortcut", x, nn.square(channels, 1), f"{module}.conv_shortcut", bias=True)
            )
            x = nn.output(ops)
        return Block(name=block, ops=(*ops, nn.add(f"{at}.residual", x, inner)))

    def _transformer(self, at: str, module: str, x: Tensor, level: UnetLevel, block: str) -> list[Block]:
        """The plane as a sequence: self-attention, attention to the text, a gated MLP, in each layer."""
        channels, side = level.channels, x.shape[2]
        normed = self._norm(f"{at}.norm", x, f"{module}.norm")
        rows = (nn.BATCH, side * side, channels)
        if self._linear:
            flat = nn.view(f"{at}.rows", normed, *rows)
            start = [
                normed,
                flat,
                nn.linear(f"{at}.proj_in", flat, channels, f"{module}.proj_in", bias=True),
            ]
        else:
            conv = nn.convolution(f"{at}.proj_in", normed, nn.square(channels, 1), f"{module}.proj_in", bias=True)
            start = [normed, conv, nn.view(f"{at}.rows", conv, *rows)]
        stream = nn.tensor(f"{at}.hidden", *rows)
        layer = self._layer(f"{module}.transformer_blocks.{{}}.", level)
        inside = stack([layer] * level.layers, f"{at}.", stream, block, Seen(source=self._text))
        if self._linear:
            last = nn.linear(f"{at}.proj_out", stream, channels, f"{module}.proj_out", bias=True)
            end = [last, nn.view(f"{at}.plane", last, *x.shape)]
        else:
            plane = nn.view(f"{at}.plane", stream, *x.shape)
            end = [
                plane,
                nn.convolution(f"{at}.proj_out", plane, nn.square(channels, 1), f"{module}.proj_out", bias=True),
            ]
        joined = nn.add(f"{at}.residual", x, end)
        return [
            Block(name=block, ops=nn.ending_in(start, stream.name)), *inside, Block(name=block, ops=(*end, joined)),
        ]  # fmt: skip

    def _layer(self, at: str, level: UnetLevel) -> Layer:
        if level.channels % level.heads:
            problem = f"has {level.heads} heads, which do not divide {level.channels} channels"
            raise self._config.error("heads", problem)
        itself, other = (
            Attention(
                heads=level.heads,
                kv_heads=level.heads,
                head_dim=level.channels // level.heads,
                q=f"{at}{name}.to_q",
                k=f"{at}{name}.to_k",
                v=f"{at}{name}.to_v",
                o=f"{at}{name}.to_out.0",
                bias="o",
                causal=False,
                cached=False,
            )
            for name in ("attn1", "attn2")
        )
        norms = Norms(kind="layer", bias=True, pre_attention=f"{at}norm1", pre_cross=f"{at}norm2", pre_mlp=f"{at}norm3")
        mlp = Mlp(
            width=4 * level.channels, function="gelu", gate_up=f"{at}ff.net.0.proj", down=f"{at}ff.net.2", bias=True
        )
        return Layer(norms=norms, mixer=itself, cross=other, ffn=mlp)
