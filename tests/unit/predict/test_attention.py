import pytest

from inferometer import predict
from inferometer.core import Precision
from inferometer.known.engines import require_effects
from inferometer.predict import work_of
from inferometer.predict.work.rules.attention import causal_pairs, mutual_pairs
from unit.predict.decoders import CONTEXT, QUERY, at, attend, tokens
from unit.predict.examples import cross, encoder, mla, op

GQA = attend("attention", heads=32, kv_heads=8, head_dim=128)
WINDOWED = attend("attention", heads=32, kv_heads=8, head_dim=128, window=4096)
A_PAIR = 32 * (2 * (128 + 128) + 5)
KV_TOKEN = 2 * 8 * 128 * 2  # key and value, 8 heads of 128, two bytes each


def test_prefill_counts_each_causal_pair_once():
    assert work_of(GQA, at(query=10)).total_flops == (10 * 11 // 2) * A_PAIR


def test_decode_meets_every_cached_token_and_itself():
    assert work_of(GQA, at(query=1, context=1000)).total_flops == 1001 * A_PAIR


def test_a_chunk_meets_what_is_cached_and_its_own_triangle():
    assert work_of(GQA, at(query=4, context=100)).total_flops == (4 * 100 + 4 * 5 // 2) * A_PAIR


def test_a_window_that_is_full_bounds_the_pairs_of_a_decode_step():
    assert work_of(WINDOWED, at(context=100_000)).total_flops == 4096 * A_PAIR


def test_an_encoder_meets_everything():
    assert work_of(encoder(), at(query=7)).total_flops == 7 * 7 * 4 * (2 * 64 + 5)


def test_cross_attention_meets_the_whole_encoder_and_appends_nothing():
    work = work_of(cross(cached=True), at(batch=2, query=3, encoder=1500))
    assert work.total_flops == 2 * 8 * 3 * 1500 * (2 * 128 + 5)
    assert work.kv_reads == 2 * 1500 * 2 * 512 * 2
    assert work.kv_writes == 0
    assert work.reads == 2 * 3 * 512 * 2


def test_a_host_joins_nothing_with_the_keys_of_an_encoder():
    eager, own = require_effects("torch-eager"), attend("own", heads=8, kv_heads=8, head_dim=64)
    assert eager.kernels(cross(cached=True)) == eager.kernels(cross(cached=False))
    assert eager.kernels(cross(cached=True))[1] < eager.kernels(own)[1]


def test_cross_attention_without_a_cache_reads_the_encoders_keys_as_activations():
    work = work_of(cross(cached=False), at(query=3, encoder=1500))
    assert work.kv_reads == 0
    assert work.reads == (3 + 1500 + 1500) * 512 * 2


def test_shared_keys_shrink_the_cache_and_not_the_arithmetic():
    every, one = (attend("attention", heads=32, kv_heads=n, head_dim=128) for n in (32, 1))
    binding = at(context=1000)
    assert work_of(every, binding).total_flops == work_of(one, binding).total_flops
    assert work_of(every, binding).kv_reads == 32 * work_of(one, binding).kv_reads


def test_decode_reads_the_cache_writes_one_token_and_reads_the_new_ones_from_activations():
    work = work_of(GQA, at(batch=3, context=1000))
    assert work.kv_reads == 3 * 1000 * KV_TOKEN
    assert work.kv_writes == 3 * KV_TOKEN
    assert work.reads == 3 * (32 + 8 + 8) * 128 * 2
    assert work.writes == 3 * 32 * 128 * 2
    assert work.weights == 0


def test_prefill_reads_nothing_from_an_empty_cache():
    work = work_of(GQA, at(query=100))
    assert (work.kv_reads, work.kv_writes) == (0, 100 * KV_TOKEN)


def test_a_window_reads_only_what_its_first_query_can_reach():
    assert work_of(WINDOWED, at(context=100_000)).kv_reads == 4095 * KV_TOKEN
    assert work_of(WINDOWED, at(context=100_000, query=16)).kv_reads == 4095 * KV_TOKEN
    assert work_of(WINDOWED, at(context=10)).kv_reads == 10 * KV_TOKEN


def test_an_encoder_leaves_nothing_in_a_cache():
    work = work_of(encoder(), at(query=7))
    assert (work.kv_reads, work.kv_writes, work.reads) == (0, 0, 3 * 7 * 128 * 2)


def test_a_cache_in_another_format_moves_that_formats_bytes():
    precision = Precision(weights="bf16", activations="bf16", kv="q8_0")
    work = work_of(GQA, at(context=10, precision=precision))
    assert work.kv_reads == 10 * 2 * (8 * 128 // 32 * 34)
    assert work.reads == (32 + 8 + 8) * 128 * 2


def test_a_soft_cap_costs_three_operations_a_score():
    capped = attend("attention", heads=32, kv_heads=8, head_dim=128, soft_cap=True)
    assert work_of(capped, at(context=9)).total_flops == 10 * (A_PAIR + 32 * 3)


def test_values_may_be_of_another_width_than_keys():
    odd = op(
        "attention", [tokens("q", 4 * 24), tokens("k", 4 * 24), tokens("v", 4 * 16)], [tokens("y", 4 * 16)],
        heads=4, head_dim=24, value_dim=16, query=QUERY, context=CONTEXT, causal=True, cached=True,
    )  # fmt: skip
    work = work_of(odd, at(batch=2, context=9))
    assert work.total_flops == 2 * 10 * 4 * (2 * (24 + 16) + 5)
    assert work.kv_reads == 2 * 9 * 4 * (24 + 16) * 2


@pytest.mark.parametrize("absorbed", [True, False])
def test_latent_attention_caches_one_latent_a_token(absorbed):
    work = work_of(mla(absorbed=absorbed), at(batch=2, context=1000))
    assert work.kv_reads == 2 * 1000 * 576 * 2
    assert work.kv_writes == 2 * 576 * 2


def test_absorbed_latent_attention_works_in_the_latent_space():
    work = work_of(mla(absorbed=True), at(context=1000))
    assert work.total_flops == 1001 * 128 * (2 * (576 + 512) + 5)
    assert work.reads == (128 * 192 + 576) * 2


def test_naive_latent_attention_expands_the_cached_latents_again():
    work = work_of(mla(absorbed=False), at(context=1000))
    expanded = 1000 * 128 * (128 + 128)
    assert work.total_flops == 1001 * 128 * (2 * (192 + 128) + 5) + 2 * 512 * expanded
    assert work.reads == (128 * 192 + 576 + expanded) * 2
    assert work.writes == (128 * 128 + expanded) * 2


def test_naive_latent_attention_expands_nothing_in_a_prefill():
    assert work_of(mla(absorbed=False), at(query=10)).total_flops == 55 * 128 * (2 * 320 + 5)


def test_without_a_rope_width_the_unrotated_key_is_as_wide_as_a_value():
    stated = mla(absorbed=True)
    unstated = op("attention", stated.inputs, stated.outputs,
                  **{k: v for k, v in stated.attributes.items() if k != "rope_dim"})  # fmt: skip
    assert work_of(unstated, at(context=9)) == work_of(stated, at(context=9))


def test_a_bidirectional_window_has_half_of_it_on_each_side():
    # 5 tokens, one neighbour on each side: 2 + 3 + 3 + 3 + 2
    assert mutual_pairs(5, 0, 2) == 13
    assert mutual_pairs(5, 0, 1) == 5


def test_a_window_of_one_sees_itself_only():
    assert causal_pairs(12, 30, 1) == 12


def test_a_rotation_is_six_operations_a_pair():
    turned = op("rotary", [tokens("q", 128), tokens("k", 32)], [tokens("q", 128), tokens("k", 32)])
    assert work_of(turned, at(query=3)).total_flops == 3 * 6 * (128 + 32) // 2


def test_a_partial_rotation_leaves_the_other_numbers_alone():
    turned = op("rotary", [tokens("q", 4 * 64)], [tokens("q", 4 * 64)], rotary_dim=16, head_dim=64)
    assert work_of(turned, at()).total_flops == 6 * 4 * 16 // 2


@pytest.mark.parametrize("runtime", ["torch-compile", "torch-graph", "torch-eager"])
@pytest.mark.parametrize("gpu", ["nvidia-l4", "nvidia-h200", "nvidia-t4", "nvidia-rtx-4090"])
def test_a_mask_over_padding_does_not_keep_attention_from_a_fused_kernel(gpu, runtime):
    """BERT-large on an L4 was once predicted to attend for 76 times what its work takes at the peaks."""
    forward = predict("bert-large", on=gpu, batch=32, prompt=384, runtime=runtime).phase("forward")
    attention = [op for op in forward.ops if op.kind == "attention"]
    assert sum(op.time_s for op in attention) < 20 * sum(op.floor_s for op in attention)
    assert sum(op.time_s for op in attention) < 0.5 * forward.time_s


def test_one_key_head_that_is_given_to_all_queries_as_it_is_has_no_fused_kernel():
    """A Falcon-7B on an H200 took 27.7 ms for 512 tokens and 6.92 ms for the next one; half was predicted."""
    asked = {"on": "nvidia-h200", "prompt": 512, "generate": 24}
    graph, served = predict("falcon-7b", runtime="torch-graph", **asked), predict("falcon-7b", runtime="vllm", **asked)
    assert graph.phase("prefill").time_s == pytest.approx(27.7e-3, rel=0.1)
    assert graph.phase("decode").time_s == pytest.approx(6.92e-3, rel=0.1)
    written, fused = (
        sum(op.time_s for op in each.phase("prefill").ops if op.kind == "attention") for each in (graph, served)
    )
    assert written > 10 * fused


@pytest.mark.parametrize("runtime", ["torch-graph", "torch-eager"])
def test_scores_that_are_written_out_pass_through_memory_for_every_head_and_pair(runtime):
    def attended(prompt):
        prefill = predict("falcon-7b", on="nvidia-h200", runtime=runtime, prompt=prompt).phase("prefill")
        return sum(op.time_s for op in prefill.ops if op.kind == "attention")

    assert attended(2048) > 3.5 * attended(1024) > 10 * attended(512)


def test_sound_of_1500_frames_attends_as_long_as_such_attention_was_timed():
    """A whisper-small in f32 on an H200 took 15.7 ms, of which 28.4 were predicted by causal attention."""
    encode = predict("whisper-small", on="nvidia-h200", runtime="torch-eager", weights="f32").phase("encode")
    assert encode.time_s == pytest.approx(15.7e-3, rel=0.12)
