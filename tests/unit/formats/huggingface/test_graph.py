"""What a config becomes: blocks in the order of execution, ops in one vocabulary, symbols for what is decided late."""

import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol, evaluate, symbols_in
from inferometer.core.errors import FormatError
from inferometer.core.graph import KINDS
from inferometer.core.workload import Precision
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.known.zoo import model
from inferometer.predict.work.rules.attention import attention_pairs, cache_bytes
from unit.formats.huggingface.examples import (
    DEEPSEEK,
    DELTA,
    GEMMA3,
    LLAMA,
    MIXTRAL,
    RESNET,
    RWKV,
    SINGLE,
    SPARSE,
    VIT,
)


def graph(config, **changes):
    return graph_from_config({**config, **changes}, name="example")


def ops_of(made, block):
    return [op for entry in made.blocks if entry.name == block for op in entry.ops]


def op_named(made, name):
    return next(op for _, op in made.ops() if op.name == name)


def test_equal_layers_are_one_block():
    made = graph(LLAMA)
    assert [(block.name, block.count) for block in made.blocks] == [("embed", 1), ("decoder", 4), ("head", 1)]


def test_a_layer_reads_in_the_order_it_runs():
    names = [op.name.removeprefix("layers.{}.") for op in ops_of(graph(LLAMA), "decoder")]
    assert names == [
        "attn.norm", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.rotary", "attn.attention", "attn.o_proj",
        "attn.residual", "mlp.norm", "mlp.gate_proj", "mlp.up_proj", "mlp.act", "mlp.mul", "mlp.down_proj",
        "mlp.residual",
    ]  # fmt: skip


def test_only_known_kinds_of_ops_are_used():
    for config in (LLAMA, GEMMA3, MIXTRAL, DEEPSEEK, VIT, RESNET):
        assert {op.kind for _, op in graph(config).ops()} <= KINDS


def test_weights_have_the_checkpoints_names_with_the_layer_left_open():
    op = op_named(graph(LLAMA), "layers.{}.attn.q_proj")
    assert [weight.name for weight in op.weights] == ["model.layers.{}.self_attn.q_proj.weight"]
    assert op.weights[0].shape == (64, 64)


def test_the_graph_says_what_it_is():
    made = graph(LLAMA)
    assert (made.architecture, made.precision, made.context_limit) == ("llama", "bf16", 256)
    assert made.metadata["hidden_size"] == 64
    assert made.metadata["layers"] == 4
    assert (made.metadata["heads"], made.metadata["kv_heads"], made.metadata["head_dim"]) == (8, 2, 8)


def test_grouped_queries_have_fewer_keys_than_heads():
    attention = op_named(graph(LLAMA), "layers.{}.attn.attention")
    assert (attention["heads"], attention["kv_heads"], attention["head_dim"]) == (8, 2, 8)
    assert attention["causal"]
    assert attention["cached"]
    assert attention["context"] == Symbol("context")


def test_a_head_may_be_wider_than_its_share_of_the_hidden_size():
    made = graph(LLAMA, head_dim=32)
    assert op_named(made, "layers.{}.attn.q_proj").weights[0].shape == (256, 64)
    assert op_named(made, "layers.{}.attn.o_proj").weights[0].shape == (64, 256)


def test_logits_are_computed_for_the_positions_asked_for_only():
    made = graph(LLAMA)
    head = op_named(made, "lm_head")
    assert head.outputs[0].shape == (Symbol("batch"), Symbol("logits"), 50)
    assert made.metadata["default_sizes"]["logits"] == 1


def test_a_tied_head_counts_its_table_once():
    untied, tied = graph(LLAMA, tie_word_embeddings=False), graph(LLAMA, tie_word_embeddings=True)
    assert untied.parameters - tied.parameters == 50 * 64
    assert op_named(tied, "lm_head").weights[0].name == "model.embed_tokens.weight"


def test_local_and_global_layers_take_turns_as_blocks_of_their_own():
    layers = [block for block in graph(GEMMA3).blocks if block.name == "decoder"]
    windows = [next(op["window"] for op in block.ops if op.kind == "attention") for block in layers]
    assert [(block.first, block.count) for block in layers] == [(0, 5), (5, 1), (6, 5), (11, 1), (12, 2)]
    assert windows == [32, None, 32, None, 32]


def test_layer_types_in_a_config_win_over_the_familys_pattern():
    types = ["full_attention"] * 13 + ["sliding_attention"]
    layers = [block for block in graph(GEMMA3, layer_types=types).blocks if block.name == "decoder"]
    assert [(block.first, block.count) for block in layers] == [(0, 13), (13, 1)]


def test_a_window_on_both_sides_counts_the_token_itself():
    config = {
        "model_type": "modernbert", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 8, "vocab_size": 50, "local_attention": 16, "global_attn_every_n_layers": 3,
    }  # fmt: skip
    windows = [op["window"] for _, op in graph(config).ops() if op.kind == "attention"]
    assert windows == [None, 17, None]  # the two local layers are one block


def test_gemma_caps_scores_and_logits():
    config = {**GEMMA3, "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]}
    capped, plain = graph(config), graph(config, attn_logit_softcapping=None, final_logit_softcapping=None)
    assert op_named(capped, "layers.{}.attn.attention")["soft_cap"]
    assert not op_named(plain, "layers.{}.attn.attention")["soft_cap"]
    assert {op.name for _, op in capped.ops()} - {op.name for _, op in plain.ops()} == {"lm_head.soft_cap"}


def test_experts_are_one_stack_that_the_router_chooses_from():
    made = graph(MIXTRAL)
    router, experts = op_named(made, "layers.{}.mlp.router"), op_named(made, "layers.{}.mlp.experts")
    assert (router["experts"], router["top_k"]) == (8, 2)
    assert [weight.shape for weight in experts.weights] == [(8, 96, 64), (8, 96, 64), (8, 64, 96)]
    assert experts.weights[0].name == "model.layers.{}.block_sparse_moe.experts.*.w1.weight"


def test_a_token_leaves_the_experts_idle_that_it_is_not_routed_to():
    made = graph(MIXTRAL)
    assert made.parameters - made.active_parameters == 4 * 6 * 3 * 64 * 96


def test_latent_attention_caches_one_vector_a_token():
    made = graph(DEEPSEEK)
    attention = op_named(made, "layers.{}.attn.attention")
    assert attention["kv_latent"] == 32 + 8
    assert (attention["head_dim"], attention["value_dim"]) == (24, 16)
    assert [block.count for block in made.blocks if block.name == "decoder"] == [1, 3]  # one dense, three sparse


def test_a_hybrid_has_each_kind_of_layer_where_its_config_says():
    config = {
        "model_type": "jamba", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8,
        "num_attention_heads": 8, "vocab_size": 50, "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 16,
    }  # fmt: skip
    kinds = []
    for block in graph(config).blocks:
        if block.name == "decoder":
            mixer = "ssm" if any(op.kind == "ssm_scan" for op in block.ops) else "attention"
            ffn = "experts" if any(op.kind == "moe_experts" for op in block.ops) else "mlp"
            kinds += [(mixer, ffn)] * block.count
    assert [mixer for mixer, _ in kinds] == ["ssm"] * 4 + ["attention"] + ["ssm"] * 3
    assert [ffn for _, ffn in kinds] == ["mlp", "experts"] * 4


def test_a_state_space_model_keeps_a_state_and_no_cache():
    config = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16, "vocab_size": 50}
    made = graph(config)
    scan = op_named(made, "layers.{}.ssm.scan")
    assert [tensor.shape for tensor in scan.inputs if tensor.role == "state"] == [(Symbol("batch"), 128, 16)]
    assert "context" not in made.symbols


def test_an_encoder_runs_once_and_its_keys_are_made_once():
    config = {
        "model_type": "t5", "d_model": 64, "d_kv": 8, "d_ff": 96, "num_layers": 3, "num_decoder_layers": 2,
        "num_heads": 8, "vocab_size": 50,
    }  # fmt: skip
    made = graph(config)
    assert all(op.get("once") for op in ops_of(made, "encoder"))
    assert op_named(made, "decoder.layers.{}.cross.k_proj").get("once")
    assert not op_named(made, "decoder.layers.{}.cross.q_proj").get("once")
    assert op_named(made, "decoder.layers.{}.cross.attention")["context"] == Symbol("encoder")


def test_whisper_halves_its_frames():
    config = {
        "model_type": "whisper", "d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 8,
        "encoder_ffn_dim": 96, "decoder_layers": 1, "decoder_attention_heads": 8, "decoder_ffn_dim": 96,
        "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448, "vocab_size": 50,
    }  # fmt: skip
    made = graph(config)
    frames = made.metadata["default_sizes"]["frames"]
    cross = op_named(made, "decoder.layers.{}.cross.attention")
    assert frames == 3000
    assert evaluate(cross["context"], {"frames": frames}) == 1500


def test_whispers_encoder_can_stand_alone():
    config = {
        "model_type": "whisper", "architectures": ["WhisperEncoder"], "d_model": 64, "encoder_layers": 1,
        "encoder_attention_heads": 8, "encoder_ffn_dim": 96, "decoder_layers": 1, "decoder_attention_heads": 8,
        "decoder_ffn_dim": 96, "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448,
        "vocab_size": 50,
    }  # fmt: skip
    names = {weight.name for _, op in graph(config).ops() for weight in op.weights}
    assert "conv1.weight" in names
    assert "layers.{}.self_attn.q_proj.weight" in names
    assert not any(name.startswith(("model.", "decoder.")) for name in names)


def test_a_vision_transformer_has_a_token_for_each_patch_and_one_more():
    made = graph(VIT)
    attention = op_named(made, "layers.{}.attn.attention")
    assert made.metadata["default_sizes"] == {"image": 32}
    assert evaluate(attention["query"], {"image": 32}) == 17
    assert not attention["cached"]
    assert not attention["causal"]


def test_a_residual_stage_is_its_first_block_and_the_equal_rest():
    made = graph(RESNET)
    stages = [(block.name, block.first, block.count) for block in made.blocks if block.name.startswith("layer")]
    assert stages[:4] == [("layer1", 0, 1), ("layer1", 1, 2), ("layer2", 0, 1), ("layer2", 1, 3)]
    last = op_named(made, "layer4.{}.conv3").outputs[0]
    assert [evaluate(dim, {"batch": 2, "image": 224}) for dim in last.shape] == [2, 2048, 7, 7]


def test_running_statistics_are_stored_but_are_no_parameters():
    constants = [w.name for _, op in graph(RESNET).ops() for w in op.weights if w.role == "constant"]
    assert "bn1.running_mean" in constants


def test_a_bare_model_has_no_head_and_its_names_no_prefix():
    made = graph(LLAMA, architectures=["LlamaModel"])
    names = {weight.name for _, op in made.ops() for weight in op.weights}
    assert "embed_tokens.weight" in names
    assert "logits" not in made.symbols


def test_without_an_architecture_the_familys_first_head_is_taken():
    config = {key: value for key, value in LLAMA.items() if key != "architectures"}
    assert graph(config).blocks == graph(LLAMA).blocks


def test_without_a_model_type_the_class_name_decides():
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert graph(config).architecture == "llama"
    assert graph({**config, "architectures": ["Qwen3ForCausalLM"]}).architecture == "qwen3"


@pytest.mark.parametrize(("written", "meant"), [("float16", "f16"), ("torch.bfloat16", "bf16"), ("unheard", None)])
def test_the_precision_is_the_configs_own(written, meant):
    assert graph(LLAMA, torch_dtype=written).precision == meant
    assert graph({**LLAMA, "torch_dtype": None}, dtype=written).precision == meant


def test_block_scaled_fp8_stores_a_byte_a_number_and_a_scale_a_block():
    said = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["o_proj"]}
    made = graph(DEEPSEEK, quantization_config=said, torch_dtype="bfloat16")
    down, scales = op_named(made, "layers.{}.mlp.down_proj").weights
    assert (down.dtype, down.shape) == ("f8e4m3", (256, 384))
    assert (scales.name, scales.shape) == ("model.layers.{}.mlp.down_proj.weight_scale_inv", (2, 3))
    assert (scales.dtype, scales.role) == ("f32", "constant")
    experts = op_named(made, "layers.{}.mlp.experts").weights
    assert experts[1].shape == (8, 1, 2)
    for name in ("lm_head", "embed", "layers.{}.mlp.router", "layers.{}.attn.o_proj"):
        assert op_named(made, name).weights[0].dtype is None
    assert made.parameters == graph(DEEPSEEK).parameters
    assert made.metadata["quantization"] == "fp8"


@pytest.mark.parametrize(
    ("sides", "scales"),
    [([96, 100], (3, 4)), ([256, 384], (1, 1)), ([1, 500], (256, 1)), ([0, 128], None), ([128, -1], None),
     ([128], None), ("128", None), ([128, 1.5], None), ([128, 10**13], None)],
)  # fmt: skip
def test_blocks_that_do_not_divide_a_matrix_have_a_scale_for_what_is_left_and_none_that_cannot_be(sides, scales):
    said = {"quant_method": "fp8", "weight_block_size": sides}
    weights = op_named(graph(DEEPSEEK, quantization_config=said), "layers.{}.mlp.down_proj").weights
    assert (weights[0].dtype, weights[0].shape) == ("f8e4m3", (256, 384))
    assert [weight.shape for weight in weights[1:]] == ([] if scales is None else [scales])


def test_mxfp4_is_for_the_experts_matrices():
    config = {
        "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 8, "head_dim": 8, "vocab_size": 50, "num_local_experts": 4, "num_experts_per_tok": 2,
        "sliding_window": 16, "quantization_config": {"quant_method": "mxfp4"},
    }  # fmt: skip
    made = graph(config)
    assert [weight.dtype for weight in op_named(made, "layers.{}.mlp.experts").weights] == ["mxfp4", None] * 2
    assert made.precision == "bf16"
    sinks = op_named(made, "layers.{}.attn.attention").weights
    assert [(weight.name, weight.shape) for weight in sinks] == [("model.layers.{}.self_attn.sinks", (8,))]


def test_mistral_looks_back_as_far_as_transformers_takes_it_to_unless_its_config_says_null():
    windows = [
        next(op["window"] for _, op in graph(LLAMA, model_type="mistral", **stated).ops() if op.kind == "attention")
        for stated in ({}, {"sliding_window": None}, {"sliding_window": 16})
    ]
    assert windows == [4096, None, 16]
    assert "sliding_window" in model("ministral-8b").config, "a profile writes the null, so that the library reads it"


def test_other_quantisation_is_named_and_left_to_the_file():
    made = graph(LLAMA, quantization_config={"quant_method": "gptq", "bits": 4})
    assert made.metadata["quantization"] == "gptq"
    assert graph(LLAMA, quantization_config={"bits": 4}).metadata["quantization"] == "unknown"
    assert all(weight.dtype is None for weight, _ in made.weights())


def test_a_language_model_that_sees_places_image_tokens_before_its_layers():
    config = {
        "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"],
        "text_config": {**LLAMA, "architectures": None}, "vision_config": {**VIT, "model_type": "clip_vision_model"},
    }  # fmt: skip
    made = graph(config)
    order = list(dict.fromkeys(block.name for block in made.blocks))
    assert order == ["vision.embed", "vision.encoder", "vision.head", "projector", "embed", "decoder", "head"]
    assert all(op.get("once") for op in ops_of(made, "vision.encoder"))
    assert made.metadata["vision"]["hidden_size"] == 64


def test_a_part_left_out_of_a_nested_config_takes_its_classs_default():
    """LLaVA 1.5's published text_config holds little more than its vocabulary."""
    config = {
        "model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064},
        "vision_config": {
            "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "image_size": 336,
            "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14,
        },
    }  # fmt: skip
    assert graph(config).parameters == 7_063_427_072  # https://huggingface.co/llava-hf/llava-1.5-7b-hf


def test_the_whole_gemma_3_4b_with_its_image_tower():
    """As published: the text_config leaves out heads and vocabulary."""
    config = {
        "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 256,
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "vision_config": {
            "model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
            "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
        },
    }  # fmt: skip
    assert graph(config).parameters == 4_300_079_472  # https://huggingface.co/google/gemma-3-4b-it: 4.3B


def test_an_index_leaves_attention_fewer_keys_and_the_cache_all_of_them():
    """A step after 1,000 tokens meets 64 of them, and finds them by scores of all; every token stays cached."""
    dense, sparse = graph({**SPARSE, "model_type": "deepseek_v3"}), graph(SPARSE)
    binding = Binding(
        sizes={"batch": 1, "query": 1, "context": 1000, "logits": 1}, precision=Precision(activations="bf16")
    )
    core, whole = (op_named(made, "layers.{}.attn.attention") for made in (sparse, dense))
    assert attention_pairs(core, binding) == 64
    assert cache_bytes(core, binding) == cache_bytes(whole, binding)
    scores = op_named(sparse, "layers.{}.attn.index.scores")
    assert attention_pairs(scores, binding) == 1001
    assert cache_bytes(scores, binding) == 1001 * 16 * 2  # one key a token


def test_layers_that_share_an_index_score_nothing():
    made = graph({**SPARSE, "indexer_types": ["full", "shared", "full", "shared"]})
    assert sum(block.count for block, op in made.ops() if op.name.endswith("index.scores")) == 2


def test_a_layer_of_one_part_has_one_residual():
    made = graph(SINGLE)
    parts = [{op.kind for op in block.ops} & {"ssm_scan", "attention", "moe_experts"} for block in made.blocks[1:-1]]
    assert parts == [{"ssm_scan"}, {"attention"}, {"moe_experts"}, set()]
    assert all(sum(op.name.endswith("residual") for op in block.ops) == 1 for block in made.blocks[1:-1])


@pytest.mark.parametrize("pattern", ["M*E", "M*EX", ""])
def test_a_pattern_that_names_no_kind_for_a_layer_is_refused(pattern):
    with pytest.raises(FormatError, match=r"hybrid_override_pattern|layers_block_type"):
        graph({**SINGLE, "hybrid_override_pattern": pattern})


@pytest.mark.parametrize("config", [DELTA, RWKV])
def test_a_state_does_not_grow_with_the_text(config):
    """Layers with a state keep as much after a thousand tokens as after one; every fourth of Qwen3.5's attends."""
    made = graph(config)
    states = [tensor for _, op in made.ops() for tensor in op.inputs if tensor.role == "state"]
    assert states
    assert not any(
        symbol in {"query", "context"} for tensor in states for dim in tensor.shape for symbol in symbols_in(dim)
    )
    attending = sum(block.count for block, op in made.ops() if op.kind == "attention")
    assert attending == (1 if config is DELTA else 0)
