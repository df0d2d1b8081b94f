"""Encoders and decoders of speech and translation, each by itself, as phones run them.

The encoder also makes the keys and values of the decoder's cross-attention; the decoder makes one token from caches of
a fixed length. AI Hub's Whisper has room for 200 tokens and 1500 frames, its OpusMT for 256 tokens.
"""

import torch
import transformers as hf
from torch import nn
from torch.nn import functional

from workshop.networks.nets.net import Net


class CrossCaches(nn.Module):
    def __init__(self, width, layers, key_bias):
        super().__init__()
        self.k = nn.ModuleList(nn.Linear(width, width, bias=key_bias) for _ in range(layers))
        self.v = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        return [layer(x) for layer in (*self.k, *self.v)]


class WithCaches(nn.Module):
    def __init__(self, encoder, width, layers, key_bias):
        super().__init__()
        self.encoder, self.caches = encoder, CrossCaches(width, layers, key_bias)

    def forward(self, x):
        return self.caches(self.encoder(x).last_hidden_state)


class CachedAttention(nn.Module):
    """One query against a cache of keys and values; `own`: a new key and value join it."""

    def __init__(self, width, heads, own, key_bias):
        super().__init__()
        self.heads, self.size, self.own = heads, width // heads, own
        self.q, self.out = nn.Linear(width, width), nn.Linear(width, width)
        if own:
            self.k, self.v = nn.Linear(width, width, bias=key_bias), nn.Linear(width, width)

    def forward(self, x, keys, values):
        batch = x.shape[0]
        q = self.q(x).view(batch, 1, self.heads, self.size).transpose(1, 2)
        if self.own:
            new_k = self.k(x).view(batch, 1, self.heads, self.size).transpose(1, 2)
            new_v = self.v(x).view(batch, 1, self.heads, self.size).transpose(1, 2)
            keys, values = torch.cat((keys, new_k), 2), torch.cat((values, new_v), 2)
        y = functional.scaled_dot_product_attention(q, keys, values)
        return self.out(y.transpose(1, 2).reshape(batch, 1, self.heads * self.size)), keys, values


class Layer(nn.Module):
    def __init__(self, width, heads, hidden, key_bias, function):
        super().__init__()
        self.own, self.cross = (
            CachedAttention(width, heads, True, key_bias),
            CachedAttention(width, heads, False, key_bias),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.up, self.down, self.function = nn.Linear(width, hidden), nn.Linear(hidden, width), function

    def forward(self, x, own, cross):
        y, keys, values = self.own(self.norms[0](x), *own)
        x = x + y
        x = x + self.cross(self.norms[1](x), *cross)[0]
        return x + self.down(self.function(self.up(self.norms[2](x)))), keys, values


class Decoder(nn.Module):
    """One token. Keys and values come as one tensor each: [batch, layers × heads, tokens, size]."""

    def __init__(self, layers, width, heads, hidden, vocab, key_bias=False, positions=448, function=functional.gelu):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocab, width)
        self.positions = nn.Parameter(torch.empty(positions, width))
        self.layers = nn.ModuleList(Layer(width, heads, hidden, key_bias, function) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, token, own_k, own_v, cross_k, cross_v):
        x = self.embed(token) + self.positions[:1]
        caches = [tensor.split(self.heads, 1) for tensor in (own_k, own_v, cross_k, cross_v)]
        kept = []
        for layer, k, v, ck, cv in zip(self.layers, *caches, strict=True):
            x, *new = layer(x, (k, v), (ck, cv))
            kept += new
        return functional.linear(self.norm(x), self.embed.weight), kept


def caches(layers, width, heads, own, cross):
    size = width // heads
    token = ((1, 1), "int64")
    return (token, *(((1, layers * heads, length, size)) for length in (own, own, cross, cross)))


_WHISPER = {
    "whisper-tiny": (384, 6, 4, 4, 80, 51865), "whisper-base": (512, 8, 6, 6, 80, 51865),
    "whisper-small": (768, 12, 12, 12, 80, 51865), "whisper-medium": (1024, 16, 24, 24, 80, 51865),
    "whisper-large-v2": (1280, 20, 32, 32, 80, 51865), "whisper-large-v3": (1280, 20, 32, 32, 128, 51866),
    "whisper-large-v3-turbo": (1280, 20, 32, 4, 128, 51866), "distil-whisper-large-v3": (1280, 20, 32, 2, 128, 51866),
    "distil-whisper-small-en": (768, 12, 12, 4, 80, 51864),
}  # fmt: skip

# Vocabularies of Marian's pairs; all of them have six layers of 512 each way, the large ones 1024.
_OPUS = {
    "en-de": 58101, "de-en": 58101, "en-fr": 59514, "fr-en": 59514, "en-es": 65001, "es-en": 65001, "en-it": 80035,
    "it-en": 80035, "en-zh": 65001, "zh-en": 65001, "en-ja": 46276, "ja-en": 60716, "ko-en": 65001, "en-ru": 62518,
    "ru-en": 62518, "en-nl": 67028, "nl-en": 67028, "en-ar": 62834, "ar-en": 62834, "en-hi": 61950, "hi-en": 61127,
}  # fmt: skip
_LARGE_OPUS = {"en-ko": 32001, "en-pt": 54776}


def nets():
    found = {}
    for name, (width, heads, encoders, decoders, mels, vocab) in _WHISPER.items():
        found[f"{name}/encoder"] = Net(
            make=lambda w=width, h=heads, n=encoders, d=decoders, m=mels: WithCaches(_whisper(w, h, n, m), w, d, False),
            inputs=((1, mels, 3000),),
        )
        found[f"{name}/decoder"] = Net(
            make=lambda w=width, h=heads, d=decoders, v=vocab: Decoder(d, w, h, 4 * w, v),
            inputs=caches(decoders, width, heads, 199, 1500),
        )
    for pairs, width in ((_OPUS, 512), (_LARGE_OPUS, 1024)):
        for pair, vocab in pairs.items():
            found[f"opus-mt-{pair}/encoder"] = Net(
                make=lambda w=width, v=vocab: WithCaches(_marian(w, v), w, 6, True), inputs=(((1, 256), "int64"),)
            )
            found[f"opus-mt-{pair}/decoder"] = Net(
                make=lambda w=width, v=vocab: Decoder(
                    6, w, w // 64, 4 * w, v, key_bias=True, positions=512, function=functional.silu
                ),
                inputs=caches(6, width, width // 64, 255, 256),
            )
    return found


def _whisper(width, heads, layers, mels):
    config = hf.WhisperConfig(
        d_model=width, encoder_attention_heads=heads, encoder_layers=layers, encoder_ffn_dim=4 * width,
        num_mel_bins=mels,
        decoder_attention_heads=heads, decoder_layers=1, decoder_ffn_dim=64,
    )  # fmt: skip
    config._attn_implementation = "sdpa"  # noqa: SLF001 - the package has no other way for a part
    return hf.models.whisper.modeling_whisper.WhisperEncoder(config)


def _marian(width, vocab):
    config = hf.MarianConfig(
        d_model=width, encoder_attention_heads=width // 64, encoder_layers=6, encoder_ffn_dim=4 * width,
        vocab_size=vocab,
        max_position_embeddings=512, activation_function="swish", pad_token_id=0,
    )  # fmt: skip
    config._attn_implementation = "sdpa"  # noqa: SLF001 - as above
    return hf.models.marian.modeling_marian.MarianEncoder(config)
