"""CTranslate2 in the suite of every runtime: a small Llama, written by its own library without torch."""

import numpy as np
import pytest

from inferometer.engines.base import Target

HIDDEN, LAYERS, HEADS, KV_HEADS, MLP, VOCABULARY = 64, 2, 4, 2, 96, 300


def write_llama(folder, quantisation=None):
    """A folder with random weights, as its converter writes one of a checkpoint."""
    specs = pytest.importorskip("ctranslate2.specs", reason="SKIPPED LOUDLY: ctranslate2 is not installed")
    random = np.random.default_rng(5)
    model = specs.TransformerDecoderModelSpec.from_config(
        LAYERS, HEADS, activation=specs.Activation.SWISH, pre_norm=True, ffn_glu=True, rms_norm=True, rotary_dim=0,
        rotary_interleave=False, num_heads_kv=KV_HEADS,
    )  # fmt: skip

    def matrix(rows, columns):
        return (random.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32)

    decoder = model.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight, decoder.projection.weight = (matrix(VOCABULARY, HIDDEN) for _ in range(2))
    for layer in decoder.layer:
        size = HIDDEN // HEADS
        layer.self_attention.linear[0].weight = matrix(HIDDEN + 2 * KV_HEADS * size, HIDDEN)
        layer.self_attention.linear[1].weight = matrix(HIDDEN, HIDDEN)
        layer.ffn.linear_0.weight, layer.ffn.linear_0_noact.weight = (matrix(MLP, HIDDEN) for _ in range(2))
        layer.ffn.linear_1.weight = matrix(HIDDEN, MLP)
    for place, norm in enumerate(norms(decoder)):
        norm.gamma = np.full(HIDDEN, 1 + place / 100, np.float32)
    model.register_vocabulary([f"t{number}" for number in range(VOCABULARY)])
    model.config.bos_token, model.config.eos_token, model.config.unk_token = "t1", "t2", "t0"
    model.config.layer_norm_epsilon = 1e-5
    model.validate()
    model.optimize(quantization=quantisation)
    folder.mkdir(parents=True, exist_ok=True)
    model.save(str(folder))
    return folder


def norms(decoder):
    yield decoder.layer_norm
    for layer in decoder.layer:
        yield from (layer.self_attention.layer_norm, layer.ffn.layer_norm)


def llama(folder):
    return Target(path=write_llama(folder / "llama"), format="ctranslate2", text=True, threads=1)


def llama_i8(folder):
    return Target(path=write_llama(folder / "llama", "int8"), format="ctranslate2", text=True, threads=1)


CASES = [("ctranslate2", llama, (7, 8, 9, 10)), ("ctranslate2", llama_i8, (7, 8, 9, 10))]
