"""From nodes as llama.cpp names them to kernels that name the file's layers. Recorded from SmolLM2-135M."""

import pytest

from inferometer.engines.llamacpp.nodes import LlamaNode, NodeInput, StepNodes, layers_of_nodes


def node(name, kind, *sources, key=0, **more):
    return LlamaNode(name=name, kind=kind, key=key, sources=tuple(NodeInput(name=each) for each in sources), **more)


RECORDED = [
    (node("embd", "GET_ROWS", "token_embd.weight", "inp_tokens"), ("token_embd",)),
    (node("attn_norm-0", "MUL", "norm-0", "blk.0.attn_norm.weight"), ("blk.0.attn_norm",)),
    (node("Qcur-3", "MUL_MAT", "blk.3.attn_q.weight", "attn_norm-3"), ("blk.3.attn_q",)),
    (node("Qcur-3", "ADD", "Qcur-3", "blk.3.attn_q.bias"), ("blk.3.attn_q",)),
    (node("Qcur-3", "ROPE", "Qcur-3", "inp_pos"), ("blk.3.rope",)),
    (node("Kcur-3", "ROPE", "Kcur-3", "inp_pos", "rope_freqs.weight"), ("blk.3.rope",)),
    (node("cache_k_l3 (view)", "SET_ROWS", "Kcur-3 (view)", "attn_inp_k_idxs", "cache_k_l3"), ("blk.3.attn",)),
    (node("node_24", "FLASH_ATTN_EXT", "Qcur-0 (view) (permuted)", "cache_k_l0 (view) (permuted)"), ("blk.0.attn",)),
    (node("kq-0", "MUL_MAT", "cache_k_l0 (view) (permuted)", "Qcur-0 (permuted)"), ("blk.0.attn",)),
    (node("kq_soft_max-0", "SOFT_MAX", "kq-0", "attn_inp_kq_mask"), ("blk.0.attn",)),
    (node("kqv-0", "MUL_MAT", "cache_v_l0 (view)", "kq_soft_max-0"), ("blk.0.attn",)),
    (node("attn_out-0", "MUL_MAT", "blk.0.attn_output.weight", "kqv_out-0"), ("blk.0.attn_output",)),
    (node("ffn_inp-0", "ADD", "attn_out-0", "embd"), ("blk.0.attn_residual",)),
    (node("ffn_swiglu-12", "SWIGLU", "ffn_gate-12", "ffn_up-12"), ("blk.12.ffn_act",)),
    (node("ffn_out-12", "MUL_MAT", "blk.12.ffn_down.weight", "ffn_swiglu-12"), ("blk.12.ffn_down",)),
    (node("ffn_moe_gate-1", "MUL_MAT_ID", "blk.1.ffn_gate_exps.weight", "x", "ids"), ("blk.1.ffn_gate_exps",)),
    (node("ffn_moe_topk-1", "ARGSORT", "ffn_moe_probs-1"), ("blk.1.ffn_moe",)),
    (node("l_out-12", "ADD", "ffn_out-12", "ffn_inp-12"), ("blk.12.ffn_residual",)),
    (node("result_output", "MUL_MAT", "token_embd.weight", "result_norm"), ("output",)),
    (node("result_output", "MUL_MAT", "output.weight", "result_norm"), ("output",)),
    (node("node_926", "GET_ROWS", "attn_out-29", "out_ids"), ("blk.29.attn",)),
    (node("node_2", "DUP", "inp_mixed_embd"), ()),
]


@pytest.mark.parametrize(("given", "expected"), RECORDED, ids=[f"{each.name} {each.kind}" for each, _ in RECORDED])
def test_a_node_names_its_layer(given, expected):
    assert layers_of_nodes([given]) == (expected,)


def test_a_norm_belongs_to_the_weight_that_is_applied_to_it():
    norm = LlamaNode(name="norm-0", kind="RMS_NORM", key=7, sources=(NodeInput(name="embd", key=1),))
    scaled = LlamaNode(
        name="attn_norm-0",
        kind="MUL",
        key=8,
        sources=(NodeInput(name="norm-0", key=7), NodeInput(name="blk.0.attn_norm.weight", key=9)),
    )
    assert layers_of_nodes([norm, scaled]) == (("blk.0.attn_norm",), ("blk.0.attn_norm",))


def test_a_norm_without_a_weight_of_its_own_is_nobodys_whoever_reads_it_next():
    """What reads it first decides, and nothing that ran before it: a pass uses the memory of tensors again."""
    norm = LlamaNode(name="norm", kind="RMS_NORM", key=7, sources=(NodeInput(name="embd", key=1),))
    weight = NodeInput(name="blk.1.ffn_norm.weight", key=9)
    scaled = LlamaNode(name="x", kind="MUL", key=8, sources=(NodeInput(name="norm", key=7), weight))
    plain = LlamaNode(name="y", kind="SCALE", key=10, sources=(NodeInput(name="norm", key=7),))
    assert layers_of_nodes([norm, plain, scaled])[0] == ()
    assert layers_of_nodes([norm, scaled, plain])[0] == ("blk.1.ffn_norm",)
    assert layers_of_nodes([scaled, norm])[1] == ()


def test_a_node_without_a_name_goes_on_with_what_made_its_source():
    found = layers_of_nodes(
        [node("node_33", "FLASH_ATTN_EXT", "Qcur-2 (permuted)"), node("node_36", "MUL_MAT", "node_33 (reshaped)")]
    )
    assert found == (("blk.2.attn",), ("blk.2.attn",))


def test_each_step_is_a_sample_and_pieces_of_a_prompt_are_one():
    steps = StepNodes()
    steps.begin("prefill")
    steps.add("prefill", [(node("a", "MUL"), 1.0), (node("a", "ROPE"), 2.0)])
    steps.add("prefill", [(node("a", "MUL"), 10.0), (node("a", "ROPE"), 20.0)])
    steps.begin("prefill")
    steps.add("prefill", [(node("a", "MUL"), 5.0)])
    first, second = steps.take()["prefill"]
    assert (first.name, first.kind, first.samples_s) == ("a", "MUL", (11.0, 5.0))
    assert (second.name, second.kind, second.samples_s) == ("a#2", "ROPE", (22.0, 0.0))
    assert steps.take() == {}


def test_bytes_are_what_is_read_and_written_where_all_of_it_is():
    steps = StepNodes()
    steps.begin("decode")
    weight = NodeInput(name="blk.0.attn_q.weight", dtype="q4_1", nbytes=200)
    whole = LlamaNode(
        name="q", kind="MUL_MAT", sources=(weight, NodeInput(name="x", nbytes=10)), nbytes=20, dtype="f32"
    )
    part = LlamaNode(name="embd", kind="GET_ROWS", sources=(weight,), nbytes=20)
    unknown = LlamaNode(name="y", kind="ADD", sources=(NodeInput(name="x"),), nbytes=20, dtype="f32")
    steps.add("decode", [(whole, 1.0), (part, 1.0), (unknown, 1.0)])
    kernels = steps.take()["decode"]
    assert [kernel.bytes for kernel in kernels] == [230.0, None, None]
    assert [kernel.dtype for kernel in kernels] == ["q4_1", "q4_1", "f32"]
