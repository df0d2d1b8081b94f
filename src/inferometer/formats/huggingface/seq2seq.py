"""Encoder–decoders: T5 reads text, Whisper sound. The encoder runs once a request, the decoder at every step."""

from dataclasses import replace

from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Seen, last_positions
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.decoder import embedded, named_sizes
from inferometer.formats.huggingface.family import Family, part_of
from inferometer.formats.huggingface.layer import Layer, stack
from inferometer.formats.huggingface.plan import attention_of, planned_layers

_TEXT = 512  # tokens of a text, where neither the config nor the question says how many
_FRAME_S = 0.01  # of the log-Mel spectrogram that Whisper hears: 160 samples at 16 kHz


def seq2seq(family: Family, config: Config, heads: tuple[str, ...], place: nn.NamePrefixes) -> nn.Body:
    prefix = place.body
    alone = "encoder only" in heads
    if alone and family.base:  # the encoder as a model of its own has its modules at the top
        prefix = ""
    encoder = _encoder(family, config, prefix, alone=alone)
    if alone:
        return encoder
    decoder = _decoder(family, config, heads, prefix, encoder.outputs[0])
    return nn.Body(
        blocks=(*nn.once_only(encoder.blocks), *decoder.blocks),
        inputs=(*encoder.inputs, *decoder.inputs),
        outputs=decoder.outputs,
        context_limit=decoder.context_limit,
        metadata={
            **decoder.metadata,
            "encoder_layers": encoder.metadata["layers"],
            "default_sizes": {**encoder.metadata["default_sizes"], "logits": 1},
            **{name: encoder.metadata[name] for name in ("frame_s",) if name in encoder.metadata},
        },
    )


def _encoder(family: Family, config: Config, prefix: str, *, alone: bool) -> nn.Body:
    part, ready = part_of(family, "encoder", config)
    hears = "conv" in family.names
    # WhisperEncoder is the module `encoder` itself
    cut = "encoder." if hears and alone else ""
    names = {key: value.removeprefix(cut) for key, value in part.names.items()}
    own = {key: value.removeprefix(cut) for key, value in family.names.items()}
    part, family = replace(part, names=names), replace(family, names=own)
    stem, source = _heard(family, ready, prefix) if hears else _read(part, ready, prefix)
    tokens = nn.output(stem).shape[-2]
    stream = nn.tensor("encoder.hidden", nn.BATCH, tokens, ready.whole("hidden_size"))
    layers = _with_relative(part, ready, planned_layers(part, ready, prefix, cached=False), prefix)
    final = nn.norm(
        "encoder.final_norm", stream, family.norm, f"{prefix}{family.names['encoder_norm']}", bias=family.norm_bias
    )
    if hears:
        sizes = {"frames": 2 * config.whole("max_source_positions")}
    else:  # relative positions have no limit, and mT5's config states none
        sizes = {"encoder": config.whole("n_positions", _TEXT)}
    return nn.Body(
        blocks=(
            Block(name="encoder.embed", ops=nn.ending_in(stem, stream.name)),
            *stack(layers, "encoder.", stream, "encoder"),
            Block(name="encoder.head", ops=(final,)),
        ),
        inputs=(source,),
        outputs=(nn.output(final),),
        metadata={**named_sizes(ready, layers), "default_sizes": sizes, **({"frame_s": _FRAME_S} if hears else {})},
    )


def _read(part: Family, config: Config, prefix: str) -> tuple[list[Op], Tensor]:
    ids = nn.tensor("encoder.input_ids", nn.BATCH, nn.ENCODER, role="index")
    return embedded(part, config, ids, nn.NamePrefixes(body=prefix, at="encoder.")), ids


def _heard(family: Family, config: Config, prefix: str) -> tuple[list[Op], Tensor]:
    """Mel frames pass two convolutions, the second of which halves them, and get fixed positions."""
    hidden, names = config.whole("hidden_size"), family.names
    mel = nn.tensor("input_features", nn.BATCH, config.whole("num_mel_bins"), nn.FRAMES)
    ops: list[Op] = []
    x = mel
    for number, stride in ((1, 1), (2, 2)):
        module = f"{prefix}{names['conv']}{number}"
        at = f"encoder.conv{number}"
        shape = nn.ConvFilter(features=hidden, kernel=(3,), strides=(stride,), padding=(1,))
        ops.append(nn.convolution(at, x, shape, module, bias=True))
        ops.append(nn.activation(f"{at}.act", ops, "gelu"))
        x = nn.output(ops)
    tokens = x.shape[-1]
    rows = nn.view("encoder.rows", x, nn.BATCH, tokens, hidden)
    places = nn.tensor("encoder.position_ids", tokens, role="index")
    table = f"{prefix}{names['encoder_positions']}.weight"
    positions = nn.embedding("encoder.positions", places, config.whole("max_source_positions"), hidden, table)
    return [*ops, rows, positions, nn.add("encoder.embed", rows, positions)], mel


def _decoder(family: Family, config: Config, heads: tuple[str, ...], prefix: str, source: Tensor) -> nn.Body:
    part, ready = part_of(family, "decoder", config)
    ids = nn.tensor("decoder_input_ids", nn.BATCH, nn.QUERY, role="index")
    words = embedded(part, ready, ids, nn.NamePrefixes(body=prefix, at="decoder."))
    stream = nn.tensor("decoder.hidden", nn.BATCH, nn.QUERY, ready.whole("hidden_size"))
    layers = [replace(layer, cross=_cross(part, ready, prefix)) for layer in planned_layers(part, ready, prefix)]
    layers = _with_relative(part, ready, layers, prefix)
    blocks = stack(layers, "decoder.", stream, "decoder", Seen(context=nn.CONTEXT, source=source))
    module = f"{prefix}{family.names['decoder_norm']}"
    ops = [nn.norm("decoder.final_norm", stream, family.norm, module, bias=family.norm_bias)]
    if heads:
        ops.append(last_positions("last", nn.output(ops), nn.LOGITS))
        shared = config.flag("tie_word_embeddings", family.tied)
        table = f"{prefix}{family.names['embed']}.weight" if shared else ""
        ops.append(nn.linear("lm_head", ops, ready.whole("vocab_size"), family.names["head"], tied=table))
    return nn.Body(
        blocks=(
            Block(name="decoder.embed", ops=nn.ending_in(words, stream.name)),
            *blocks,
            Block(name="head", ops=tuple(ops)),
        ),
        inputs=(ids,),
        outputs=(nn.output(ops),),
        context_limit=ready.whole("context", None),
        metadata=named_sizes(ready, layers),
    )


def _cross(part: Family, config: Config, prefix: str) -> Attention:
    """Queries of the decoder, keys and values of the encoder's output: made once, kept for every step."""
    at = f"{prefix}{part.names['layers']}.{{}}."
    q, k, v, o = (f"{at}{part.names[f'cross_{letter}']}" for letter in "qkvo")
    return replace(attention_of(part, config, at), q=q, k=k, v=v, o=o, causal=False, biased=False)


def _with_relative(part: Family, config: Config, layers: list[Layer], prefix: str) -> list[Layer]:
    """The first layer of a T5 stack owns the table of relative positions that all of its layers use."""
    first = layers[0].mixer
    if part.positions != "relative" or not isinstance(first, Attention):
        return layers
    module = f"{prefix}{part.names['layers']}.{{}}.{part.names['relative']}"
    buckets = config.whole("relative_attention_num_buckets", 32)
    return [replace(layers[0], mixer=replace(first, relative=module, buckets=buckets)), *layers[1:]]
