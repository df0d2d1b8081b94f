"""Small models of real architectures: two layers, 64 wide."""

import json

LLM = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 160, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
TEXT = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **LLM},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True, **LLM},
    "mistral": {"model_type": "mistral", "sliding_window": None, **LLM},
    "gemma3_text": {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 8, **LLM},
    "gpt2": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 4,
        "n_positions": 64, "vocab_size": 160, "bos_token_id": 1, "eos_token_id": 2,
    },
}  # fmt: skip
# Models whose steps make tensors of Python's numbers, or ask the device how many tokens there are.
AWKWARD = {
    "falcon": {"model_type": "falcon", "multi_query": True, "new_decoder_architecture": False, **LLM},
    "falcon-alibi": {"model_type": "falcon", "multi_query": True, "alibi": True, **LLM},
    "opt": {"model_type": "opt", "ffn_dim": 96, "word_embed_proj_dim": 64, **LLM},
    "bloom": {"model_type": "bloom", "n_layer": 2, "n_head": 4, **LLM},
    "gpt_neo": {
        "model_type": "gpt_neo", "num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]], **LLM,
    },
    "gpt2-padded": {**TEXT["gpt2"], "pad_token_id": 0},
    "gpt_oss": {
        "model_type": "gpt_oss", "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"],
        "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, **LLM,
    },
}  # fmt: skip
# Uneven, so that an encoder's layers are not taken for the decoder's.
SEQ2SEQ = {
    "whisper": {
        "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 64,
        "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "vocab_size": 160, "num_mel_bins": 8, "max_source_positions": 20,
        "max_target_positions": 48, "decoder_start_token_id": 1, "pad_token_id": 0, "eos_token_id": 2,
    },
    "t5": {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 64, "d_kv": 8, "d_ff": 96,
        "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 160, "n_positions": 32,
        "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 2,
    },
}  # fmt: skip
RECURRENT = {
    "mamba": {"model_type": "mamba", "state_size": 8, **LLM},
    "mamba2": {
        "model_type": "mamba2", "state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 8, **LLM,
    },
}  # fmt: skip
IMAGE = {"image_size": 32, "num_channels": 3}
ARRAYS = {
    "bert": {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 160, "max_position_embeddings": 64,
    },
    "vit": {
        "model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 64, "patch_size": 8,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": 10, **IMAGE,
    },
    "resnet": {
        "model_type": "resnet", "architectures": ["ResNetForImageClassification"], "embedding_size": 8,
        "hidden_sizes": [16, 32], "depths": [1, 2], "layer_type": "bottleneck", "num_labels": 10, **IMAGE,
    },
    "swin": {
        "model_type": "swin", "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4,
        "patch_size": 2, **IMAGE,
    },
}  # fmt: skip


def written(folder, config):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path
