"""What llama.cpp's converter makes of a Hugging Face model: metadata and tensors, from its config and its parameters.

Names come from the gguf package's own map, so the reader's table is checked against another's.
"""

import re
from collections import defaultdict

import gguf
from gguf.constants import MODEL_ARCH_NAMES

_EXPERT = re.compile(r"^(.*experts)\.\d+\.(.*)$")
_SIZES = {
    "block_count": ("num_hidden_layers", "n_layer"),
    "embedding_length": ("hidden_size", "n_embd"),
    "feed_forward_length": ("intermediate_size", "n_inner", "ffn_hidden_size"),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.key_length": ("head_dim",),
    "attention.sliding_window": ("sliding_window",),
    "context_length": ("max_position_embeddings", "n_positions"),
    "expert_count": ("num_local_experts", "num_experts", "n_routed_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_shared_count": ("n_shared_experts",),
    "leading_dense_block_count": ("first_k_dense_replace",),
    "attention.q_lora_rank": ("q_lora_rank",),
    "attention.kv_lora_rank": ("kv_lora_rank",),
    "attention.value_length": ("v_head_dim",),
    "ssm.state_size": ("state_size",),
    "ssm.conv_kernel": ("conv_kernel",),
    "ssm.group_count": ("n_groups",),
}


def metadata(architecture: str, config: dict) -> dict:
    found = {}
    for key, names in _SIZES.items():
        value = next((config[name] for name in names if config.get(name) is not None), None)
        if value is not None:
            found[key] = value
    found.setdefault("feed_forward_length", 4 * found["embedding_length"])
    if architecture == "deepseek2":
        found["rope.dimension_count"] = config["qk_rope_head_dim"]
        found["attention.key_length"] = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    if architecture.startswith("mamba"):
        found["ssm.inner_size"] = config.get("intermediate_size") or config["expand"] * config["hidden_size"]
        found["ssm.time_step_rank"] = config["num_heads" if architecture == "mamba2" else "time_step_rank"]
    if architecture == "gpt-oss":
        found["expert_feed_forward_length"] = found["feed_forward_length"]
    return {"general.architecture": architecture} | {f"{architecture}.{key}": value for key, value in found.items()}


def tensors(architecture: str, layers: int, parameters: dict[str, list[int]]) -> dict[str, tuple[int, ...]]:
    """Shapes by GGUF name; the experts of a layer stacked."""
    arch = next(number for number, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, layers)
    stacks = defaultdict(list)
    for name, shape in parameters.items():
        for spelled, part in _renamed(name, shape):
            expert = _EXPERT.match(spelled)
            key = f"{expert[1]}.{expert[2]}" if expert else spelled
            spellings = (key, key.removeprefix("transformer."))
            found = next((n for s in spellings if (n := names.get_name(s, try_suffixes=(".weight", ".bias")))), None)
            assert found is not None, f"gguf has no name for {key}"
            stacks[found].append(part)
    return {
        name: tuple(shapes[0]) if len(shapes) == 1 else (len(shapes), *shapes[0]) for name, shapes in stacks.items()
    }


def _renamed(name: str, shape: list[int]):
    """What the converter does before it looks a name up."""
    if name.endswith("self_attn.sinks"):
        yield f"{name}.weight", shape
    elif name.endswith("e_score_correction_bias"):
        yield name.replace("e_score_correction_bias", "e_score_correction.bias"), shape
    elif name.endswith(".dt_bias"):
        yield name.replace(".dt_bias", ".dt_proj.bias"), shape
    elif "experts.gate_up_proj" in name:  # gpt-oss: gate and up, which are interleaved, apart
        half = [*shape[:-1], shape[-1] // 2]
        end = ".bias" if name.endswith("_bias") else ".weight"
        stem = name.removesuffix("_bias").removesuffix("gate_up_proj")
        yield f"{stem}gate_proj{end}", half
        yield f"{stem}up_proj{end}", half
    elif "experts.down_proj" in name and name.endswith(("down_proj", "down_proj_bias")):
        yield name.removesuffix("_bias") + (".bias" if name.endswith("_bias") else ".weight"), shape
    else:
        yield name, shape
