"""Language models of architectures that the catalog's templates do not have, from transformers' own code.

A config lists what differs from transformers' default of the architecture.
"""

from workshop.networks.nets.net import Config


def _gemma4(width, layers, heads, kv, hidden, window, wide_kv):
    config = {
        "model_type": "gemma4_text", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": hidden, "sliding_window": window, "head_dim": 256,
        "global_head_dim": 512,
    }  # fmt: skip
    return config if wide_kv is None else {**config, "num_global_key_value_heads": wide_kv, "attention_k_eq_v": True}


def _pattern(layers, period):
    return ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(layers)]


def nets():
    lfm2 = {"model_type": "lfm2", "vocab_size": 65536, "conv_L_cache": 3, "num_key_value_heads": 8}
    convs = ("conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv", "full_attention",
             "conv", "full_attention", "conv", "full_attention", "conv", "full_attention", "conv")  # fmt: skip
    return {
        "llama-4-scout": Config(
            config={"model_type": "llama4_text"}, published="107769861120", layers=48, period=4
        ),
        "llama-4-maverick": Config(
            config={"model_type": "llama4_text", "num_local_experts": 128, "interleave_moe_layer_step": 2},
            published="400711848960", layers=48, period=4,
        ),
        "minimax-m2": Config(config={"model_type": "minimax_m2"}, published="228689748992", layers=62),
        "glm-4.7-flash": Config(
            config={"model_type": "glm4_moe_lite"}, published="29943390976", layers=47, head=1
        ),
        "dots-llm1": Config(
            config={
                "model_type": "dots1", "hidden_size": 4096, "n_routed_experts": 128, "n_shared_experts": 2,
                "num_experts_per_tok": 6, "first_k_dense_replace": 1,
            },
            published="142774373888", layers=62, head=1,
        ),
        "glm-4.5-air": Config(
            config={"model_type": "glm4_moe", "head_dim": 128, "attention_bias": True},
            published="106852245504", layers=46, head=1,
        ),
        "hunyuan-a13b": Config(
            config={
                "model_type": "hunyuan_v1_moe", "vocab_size": 128167, "intermediate_size": 3072, "head_dim": 128,
                "num_key_value_heads": 8, "num_experts": 64, "moe_topk": 8, "tie_word_embeddings": True,
            },
            published="80393183232", layers=32,
        ),
        "stablelm-3b-4e1t": Config(config={"model_type": "stablelm"}, published="2795443200", layers=32),
        "starcoder": Config(
            config={
                "model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "n_inner": 24576,
                "n_positions": 8192, "vocab_size": 49152, "multi_query": True,
            },
            published="15517456384",
        ),
        "minicpm3-4b": Config(config={"model_type": "minicpm3"}, published="4073875968", layers=62),
        "afm-4.5b": Config(
            config={
                "model_type": "arcee", "num_hidden_layers": 36, "num_attention_heads": 20, "num_key_value_heads": 4,
                "head_dim": 128, "vocab_size": 128004,
            },
            published="4619184640", layers=36,
        ),
        "lfm2-350m": Config(
            config={
                **lfm2, "hidden_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16,
                "layer_types": list(convs), "intermediate_size": 6656,
            },
            published="354M",
        ),
        "lfm2-700m": Config(
            config={
                **lfm2, "hidden_size": 1536, "num_hidden_layers": 16, "num_attention_heads": 24,
                "layer_types": list(convs), "intermediate_size": 10240,
            },
            published="742M",
        ),
        "lfm2-1.2b": Config(
            config={
                **lfm2, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
                "layer_types": list(convs), "intermediate_size": 12288,
            },
            published="1.17B",
        ),
        "gemma-4-26b-a4b": Config(
            config={
                **_gemma4(2816, 30, 16, 8, 2112, 1024, 2), "hidden_size_per_layer_input": 0, "enable_moe_block": True,
                "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
            },
            published="25233141760", layers=30, period=6,
        ),
        "gemma-4-31b": Config(
            config={**_gemma4(5376, 60, 32, 16, 21504, 1024, 4), "hidden_size_per_layer_input": 0},
            published="30697345280", layers=60, period=6,
        ),
        "gemma-4-e2b": Config(
            config={
                **_gemma4(1536, 35, 8, 1, 6144, 512, None), "num_kv_shared_layers": 20, "use_double_wide_mlp": True,
                "layer_types": _pattern(35, 5),
            },
            published="4.6B",
        ),
        "gemma-4-e4b": Config(
            config={**_gemma4(2560, 42, 8, 2, 10240, 512, None), "num_kv_shared_layers": 18}, published="7.5B"
        ),
        "gemma-3n-e4b": Config(config={"model_type": "gemma3n_text"}),
        "gemma-3n-e2b": Config(
            config={"model_type": "gemma3n_text", "num_hidden_layers": 30, "intermediate_size": 8192}
        ),
    }  # fmt: skip
