"""Small configs that tests change one key at a time."""

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 50,
    "max_position_embeddings": 256, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 14, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 50,
    "sliding_window": 32, "sliding_window_pattern": 6,
}  # fmt: skip
MIXTRAL = {
    **LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8,
    "num_experts_per_tok": 2,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 256,
    "intermediate_size": 384, "moe_intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8,
    "vocab_size": 50, "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}  # fmt: skip
VIT = {
    "model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 8, "image_size": 32, "patch_size": 8, "num_labels": 10,
}  # fmt: skip
RESNET = {
    "model_type": "resnet", "embedding_size": 64, "hidden_sizes": [256, 512, 1024, 2048], "depths": [3, 4, 6, 3],
    "layer_type": "bottleneck", "num_labels": 1000,
}  # fmt: skip
SPARSE = {**DEEPSEEK, "model_type": "glm_moe_dsa", "index_n_heads": 4, "index_head_dim": 16, "index_topk": 64}
SINGLE = {
    **LLAMA, "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "M*E-",
    "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48,
}  # fmt: skip
DELTA = {
    **LLAMA, "model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 8,
}  # fmt: skip
RWKV = {**LLAMA, "model_type": "rwkv7", "architectures": ["RWKV7ForCausalLM"], "head_dim": 16}
