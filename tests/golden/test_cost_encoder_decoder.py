"""T5 by hand: the prompt lies in the cache of cross-attention; the decoder's own holds what it has written.

t5-small (huggingface.co/google-t5/t5-small, config.json): width 512, 8 heads of 64, 6 decoder layers. In bf16 a token
takes 2 · 512 · 2 B = 2,048 B in a layer's cache, 12,288 B in the six.
"""

import pytest

from inferometer.core import Precision, Workload
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.known.engines import runtime_effects
from inferometer.predict.answer import predict_graph
from inferometer.predict.memory.fit import fit
from inferometer.predict.options import Options
from inferometer.predict.question import Question
from inferometer.predict.ready import make_layout
from inferometer.predict.request import decode_context, last_tokens, start_tokens
from inferometer.predict.sweep import sweep
from unit.predict.machines import WIRE

T5, WHISPER, H200 = read("t5-small"), read("whisper-tiny"), device("nvidia-h200")
BF16 = Precision(weights="bf16", activations="bf16", kv="bf16")
LAYER, TOKEN = 2_048, 12_288


def workload(**sizes):
    return Workload(precision=BF16, **sizes)


def predict(graph=T5, **sizes):
    return predict_graph(graph, H200, runtime="ideal", workload=workload(**sizes))


def attention(profile, name):
    return [op for op in profile.phase("decode").ops if op.kind == "attention" and f".{name}." in op.name]


def test_the_decoders_own_cache_holds_what_it_has_written():
    """Of 128 tokens the first comes with the start token; the other 127 steps find 1 … 127 tokens: 64 on average."""
    asked = workload(prompt=512, generate=128)
    assert start_tokens(T5, asked) == 1
    assert decode_context(T5, asked) == 64
    assert last_tokens(T5, asked) == 128
    assert decode_context(T5, workload(prompt=512, context=9)) == 9


def test_whisper_reads_its_prompt_itself():
    assert start_tokens(WHISPER, workload(prompt=4)) == 4
    assert decode_context(WHISPER, workload(prompt=4, generate=12)) == 9


def test_a_step_reads_its_own_tokens_and_the_whole_prompt():
    profile = predict(prompt=512, generate=128)
    # 64 tokens read, one written, and q, k, v and the result of 512 numbers each
    assert sum(op.bytes for op in attention(profile, "attn")) == 6 * (64 * LAYER + LAYER + 4 * 512 * 2)
    # 512 tokens read, none written, and q and the result
    assert sum(op.bytes for op in attention(profile, "cross")) == 6 * (512 * LAYER + 2 * 512 * 2)


def test_a_longer_prompt_makes_cross_attention_longer_and_nothing_else():
    short, long = predict(prompt=512, generate=128), predict(prompt=1024, generate=128)
    longer = {op.name: op.time_s for op in long.phase("decode").ops}
    for op in short.phase("decode").ops:
        assert longer[op.name] > op.time_s if ".cross.attention" in op.name else longer[op.name] == op.time_s


def test_memory_is_both_caches():
    layout = make_layout(
        T5, effects=runtime_effects("ideal"), workload=workload(prompt=512, generate=128), options=Options()
    )
    last = layout.residency.use({"batch": 1, "query": 1, "context": 127, "logits": 1}, first=False)
    assert last.kv_bytes == (128 + 512) * TOKEN == 7_864_320
    found = fit(T5, H200, workload=workload(prompt=512, generate=4096))
    assert found.kv_bytes == (4096 + 512) * TOKEN
    assert found.kv_bytes_per_token == TOKEN
    assert predict(prompt=512, generate=4096).summary.peak_memory_bytes == found.total_bytes


def test_the_encoders_results_are_gone_when_tokens_are_written():
    """Its widest step holds 512 · (512 + 2,048) numbers and more, a step of the decoder some thousand."""
    short, long = (fit(T5, H200, workload=workload(prompt=512, generate=generate)) for generate in (1, 8192))
    assert short.activations_bytes > 512 * (512 + 2048) * 2
    assert long.activations_bytes < short.activations_bytes / 10


def test_the_prompt_is_no_part_of_the_decoders_window():
    assert predict(prompt=100_000, generate=2).workload.prompt == 100_000


def test_a_sweep_says_the_same():
    rows = sweep(T5, H200, runtimes="ideal", weights="bf16", activations="bf16", prompt=[64, 512], generate=[2, 128])
    expected = [predict(prompt=prompt, generate=generate).summary for prompt in (64, 512) for generate in (2, 128)]
    assert rows["tpot_s"].tolist() == pytest.approx([each.tpot_s for each in expected], rel=1e-12)
    assert rows["peak_memory_bytes"].tolist() == [each.peak_memory_bytes for each in expected]


def test_between_machines_the_cache_of_the_prompt_travels():
    profile = Question(
        graph=T5, device=H200, runtime="ideal", workload=workload(prompt=512, generate=8), prefill_on=H200,
        options=Options(link=WIRE),
    ).answer()  # fmt: skip
    assert profile.phase("transfer").bytes == (512 + 1) * TOKEN
