"""What llama.cpp wants to know of a model: read off the graph's ops where they say it, off the config where not.

Keys: the GGUF specification and llama.cpp's src/llama-arch.cpp.
"""

from collections.abc import Iterator, Mapping
from itertools import islice, product
from typing import Any

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op
from inferometer.formats.gguf.architecture import Architecture, architecture_of
from inferometer.formats.gguf.write.file import Value
from inferometer.formats.synth.files import epsilon_of, rope_theta_of

# A vocabulary that works: byte-level pairs, every token reachable, exactly as many as the model has.
#
# The first 256 tokens are the bytes, written as GPT-2 writes them. Then come pairs of letters, and pairs of pairs, each
# with the merge that makes it; the last four are the marks llama.cpp looks for by name. Any text can be tokenised and
# every token can be printed; what it says is noise, as the weights are.

_LETTERS = "etaoinshrdlcumwfgypbvkjxqz"
_SPECIAL = ("<unk>", "<s>", "</s>", "<|endoftext|>")
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5  # GGUF's token types
LEAST = 256 + len(_SPECIAL)


@frozen
class Vocabulary:
    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    types: tuple[int, ...]
    begin: int
    end: int


def vocabulary(size: int) -> Vocabulary:
    if size < LEAST:
        raise InferometerError(
            f"A vocabulary of {size} tokens cannot work: with all bytes and four marks it has at least {LEAST}.",
            remedy=f"Give a config whose vocab_size is {LEAST} or more.",
        )
    made = tuple(islice(_merges(), size - LEAST))
    # GPT-2's letter for each byte: itself where it can be seen, the letters from U+0100 on for the others.
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(0x100, 0x200))
    byte_letters = tuple(chr(byte) if byte in seen else chr(next(hidden)) for byte in range(256))
    tokens = (*byte_letters, *(left + right for left, right in made))
    unused = tuple(f"<|unused{index}|>" for index in range(size - LEAST - len(made)))
    return Vocabulary(
        tokens=(*tokens, *unused, *_SPECIAL),
        merges=tuple(f"{left} {right}" for left, right in made),
        types=(_NORMAL,) * len(tokens) + (_UNUSED,) * len(unused) + (_CONTROL,) * len(_SPECIAL),
        begin=size - 3,
        end=size - 2,
    )


def _merges() -> Iterator[tuple[str, str]]:
    """A space before each letter, all pairs of letters, all pairs of those: 457,678 tokens."""
    yield from (("Ġ", letter) for letter in _LETTERS)
    yield from product(_LETTERS, repeat=2)
    pairs = [left + right for left, right in product(_LETTERS, repeat=2)]
    yield from product(pairs, repeat=2)


# model_type of a config → GGUF's architecture
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "smollm3": "smollm3", "granite": "granite",
    "qwen2": "qwen2", "qwen3": "qwen3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "olmo2": "olmo2",
    "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3", "phi": "phi2", "phi3": "phi3",
    "starcoder2": "starcoder2", "stablelm": "stablelm", "gpt2": "gpt2", "gpt_neox": "gptneox",
    "falcon": "falcon", "bloom": "bloom", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
    "gpt_oss": "gpt-oss", "mamba": "mamba", "mamba2": "mamba2",
}  # fmt: skip
_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"


def _architecture(graph: Graph) -> str:
    """GGUF's name for the graph's architecture, where llama.cpp can run what the graph has."""
    architecture = ARCHITECTURES.get(graph.architecture or "")
    if architecture is None:
        raise InferometerError(
            f"{graph.name!r} cannot be written as GGUF: its architecture is {graph.architecture or 'not known'}.",
            remedy=f"GGUF is written for {', '.join(ARCHITECTURES)}. Other models: .onnx or .safetensors.",
        )
    if why := _lacking(architecture, [op for _, op in graph.ops()]):
        raise InferometerError(
            f"{graph.name!r} cannot be written as GGUF: llama.cpp's {architecture} has no {why}.",
            remedy="Write it as .onnx or .safetensors.",
        )
    return architecture


def _lacking(architecture: str, ops: list[Op]) -> str | None:
    """What the graph has and llama.cpp's version of the architecture has not."""
    match architecture:
        case "gemma" | "gemma2" if any(op.name == "lm_head" and op.weights[0].name.startswith("lm_") for op in ops):
            return "output matrix apart from its embedding"
        case "falcon" if any(op.kind == "linear" and len(op.weights) > 1 for op in ops):
            return "biases"
        case "qwen3moe" if any(op.name.endswith(".mlp.up_proj") for op in ops):
            return "layers without experts"
        case _:
            return None


def architecture_row(graph: Graph, config: Mapping[str, Any]) -> Architecture:
    """The GGUF reader's row of the architecture: where each weight stands in a file."""
    name = _architecture(graph)
    own = {f"{name}.{key}": value for key, value in _model_metadata(graph, config, name).items()}
    row = architecture_of(name, own, ("token_embd.weight",))
    if row is None:
        raise InferometerError(f"{graph.name!r} cannot be written as GGUF: the reader has no names for {name}.")
    return row


def metadata_of(graph: Graph, config: Mapping[str, Any], *, file_type: int, seed: int) -> dict[str, Value]:
    architecture = _architecture(graph)
    general: dict[str, Value] = {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": graph.name,
        "general.description": f"Random weights, seed {seed}: the shapes are the model's, the numbers are not.",
        "general.file_type": file_type,
        "general.quantization_version": 2,
    }
    own = {f"{architecture}.{key}": value for key, value in _model_metadata(graph, config, architecture).items()}
    return general | own | _token_metadata(_rows(graph))


def _token_metadata(size: int) -> dict[str, Value]:
    made = vocabulary(size)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": made.tokens,
        "tokenizer.ggml.token_type": made.types,
        # an array must have an element to have a type; this pair of bytes makes no token
        "tokenizer.ggml.merges": made.merges or ("! !",),
        "tokenizer.ggml.bos_token_id": made.begin,
        "tokenizer.ggml.eos_token_id": made.end,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": _TEMPLATE,
    }


def _model_metadata(graph: Graph, config: Mapping[str, Any], architecture: str) -> dict[str, Value]:
    """Without the architecture's own prefix."""
    ops = [op for _, op in graph.ops()]
    embed = next(op for op in ops if op.kind == "embedding")
    hidden = _last(embed)
    norm = next(op for op in ops if op.kind == "norm")
    metadata: dict[str, Value] = {
        "vocab_size": _rows(graph),
        "context_length": graph.context_limit or 4096,
        "embedding_length": hidden,
        "block_count": len(_by_layer(graph, lambda _: 0)),
        "feed_forward_length": _width(ops),
        f"attention.layer_norm{'_rms' if norm['norm'] == 'rms' else ''}_epsilon": epsilon_of(config),
    }
    metadata |= _attention(graph, config) | _rotary(ops, config) | _experts(ops, config) | _scan(ops)
    match architecture:
        case "deepseek2":
            routed = _by_layer(graph, lambda block: int(any(op.kind == "moe_experts" for op in block.ops)))
            metadata["leading_dense_block_count"] = routed.index(1) if 1 in routed else len(routed)
        case "gptneox":
            metadata["use_parallel_residual"] = any(op.name == "layers.{}.residual" for op in ops)
        case "granite":
            metadata.setdefault("logit_scale", 1.0)
    return metadata


def _attention(graph: Graph, config: Mapping[str, Any]) -> dict[str, Value]:
    cores = [op for _, op in graph.ops() if op.kind == "attention"]
    if not cores:
        return {"attention.head_count": 0}
    core = cores[0]
    # One number where all layers agree, a list where not.
    heads = _by_layer(graph, lambda block: next((op["kv_heads"] for op in block.ops if op.kind == "attention"), 0))
    metadata: dict[str, Value] = {
        "attention.head_count": core["heads"],
        "attention.head_count_kv": heads[0] if len(set(heads)) == 1 else heads,
        "attention.key_length": core["head_dim"],
        "attention.value_length": core["value_dim"],
    }
    if core.get("kv_latent"):
        metadata |= _latent(core, config)
    windows = [op["window"] for op in cores if op.get("window")]
    if windows:
        metadata["attention.sliding_window"] = windows[0]
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if config.get(key) is not None:
            metadata[key] = float(config[key])
    scales = {
        "attention_multiplier": "attention.scale",
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
        "logit_scale": "logit_scale",
    }
    return metadata | {ours: float(config[key]) for key, ours in scales.items() if config.get(key) is not None}


def _latent(core: Op, config: Mapping[str, Any]) -> dict[str, Value]:
    """The cache holds one latent vector a token, which llama.cpp treats as one key head."""
    rank = core["kv_latent"] - core["rope_dim"]
    metadata: dict[str, Value] = {
        "attention.head_count_kv": 1,
        "attention.key_length": core["kv_latent"],
        "attention.value_length": rank,
        "attention.key_length_mla": core["head_dim"],
        "attention.value_length_mla": core["value_dim"],
        "attention.kv_lora_rank": rank,
    }
    if config.get("q_lora_rank"):
        metadata["attention.q_lora_rank"] = int(config["q_lora_rank"])
    return metadata


def _rotary(ops: list[Op], config: Mapping[str, Any]) -> dict[str, Value]:
    turned = next((op for op in ops if op.kind == "rotary"), None)
    if turned is None:
        return {}
    base = rope_theta_of(config, "rotary_emb_base")
    return {"rope.dimension_count": turned["rotary_dim"], "rope.freq_base": base}


def _experts(ops: list[Op], config: Mapping[str, Any]) -> dict[str, Value]:
    stack = next((op for op in ops if op.kind == "moe_experts"), None)
    if stack is None:
        return {}
    metadata: dict[str, Value] = {
        "expert_count": stack["experts"],
        "expert_used_count": stack["top_k"],
        "expert_feed_forward_length": stack["intermediate"],
    }
    shared = next((op for op in ops if op.name.endswith("mlp.shared.up_proj")), None)
    if shared is not None:
        width = _last(shared)
        metadata["expert_shared_feed_forward_length"] = width
        metadata["expert_shared_count"] = max(1, width // stack["intermediate"])
    if config.get("routed_scaling_factor") is not None:
        metadata["expert_weights_scale"] = float(config["routed_scaling_factor"])
    if config.get("scoring_func") is not None or any(len(op.weights) > 1 for op in ops if op.kind == "moe_router"):
        metadata["expert_gating_func"] = 2 if config.get("scoring_func", "sigmoid") == "sigmoid" else 1
    return metadata


def _scan(ops: list[Op]) -> dict[str, Value]:
    scan = next((op for op in ops if op.kind == "ssm_scan"), None)
    if scan is None:
        return {}
    rank = next((op.inputs[0].shape[-1] for op in ops if op.name.endswith("ssm.dt_proj")), scan["heads"])
    metadata: dict[str, Value] = {
        "ssm.conv_kernel": scan["conv_kernel"],
        "ssm.inner_size": scan["inner"],
        "ssm.state_size": scan["state"],
        "ssm.time_step_rank": int(rank) if isinstance(rank, int) else scan["heads"],
    }
    return metadata | ({"ssm.group_count": scan["groups"]} if scan["version"] == 2 else {})


def _rows(graph: Graph) -> int:
    """The vocabulary: rows of the embedding."""
    for _, op in graph.ops():
        if op.kind == "embedding" and isinstance(op.weights[0].shape[0], int):
            return op.weights[0].shape[0]
    raise InferometerError(f"{graph.name!r} has no vocabulary.", remedy="GGUF is written for language models.")


def _by_layer(graph: Graph, one: Any) -> list[int]:
    """A number for each layer."""
    inside = [block for block in graph.blocks if any(op.name.startswith("layers.") for op in block.ops)]
    return [one(block) for block in inside for _ in range(block.count)]


def _width(ops: list[Op]) -> int:
    """The MLP's width; an expert's where every layer has experts, none where no layer has an MLP."""
    dense = [int(op["in_features"]) for op in ops if op.name.endswith(".mlp.down_proj")]
    return next(iter((*dense, *(int(op["intermediate"]) for op in ops if op.kind == "moe_experts"))), 0)


def _last(op: Op) -> int:
    size = op.outputs[0].shape[-1]
    if not isinstance(size, int):
        raise InferometerError(f"The features of {op.name!r} are no fixed number: {size}.")
    return size
