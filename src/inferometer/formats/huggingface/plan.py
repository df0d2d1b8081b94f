"""From a family's row and a config to one `Layer` value a layer."""

from dataclasses import fields, replace
from typing import Any

from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Index, Latent
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.family import Family
from inferometer.formats.huggingface.layer import Experts, Layer, Mixer, Mlp, Norms
from inferometer.formats.huggingface.ssm import Delta, Mamba, Wkv


def planned_layers(family: Family, config: Config, prefix: str, *, cached: bool = True) -> list[Layer]:
    """One value a layer, in order. `cached`: keys and values stay for the next step."""
    at = f"{prefix}{family.names['layers']}.{{}}."
    slots = {slot.name: family.names.get(slot.name, "") for slot in fields(Norms)}
    named = {slot: f"{at}{module}" for slot, module in slots.items() if module}
    norms = Norms(kind=family.norm, bias=family.norm_bias, **named)
    if family.mixer == "single":
        pattern = config.get("hybrid_override_pattern")
        words = config.texts("layers_block_type", list(pattern) if isinstance(pattern, str) else ())
        count = config.layers("num_hidden_layers", len(words))
        if len(words) != count or any(word not in _KINDS for word in words):
            raise config.error("hybrid_override_pattern", f"must have one of M, *, E and - for each of {count} layers")
        return [_single(family, config, at, norms, _KINDS[word]) for word in words]
    count = config.layers("num_hidden_layers")
    windows = _windows_of(family, config, count)
    layers = [
        Layer(
            norms=norms,
            mixer=_mixer(family, config, at, index, window=windows[index], cached=cached),
            ffn=_ffn(family, config, at, index),
            parallel=family.parallel,
        )
        for index in range(count)
    ]
    if family.bare_first:
        layers[0] = replace(layers[0], norms=replace(norms, pre_attention=""))
    return layers


# What a layer of one part is: the letters of `hybrid_override_pattern`, and the words of `layers_block_type`.
_KINDS = {
    "M": "mamba2", "linear_attention": "mamba2", "mamba": "mamba2", "*": "attention", "full_attention": "attention",
    "attention": "attention", "E": "moe", "moe": "moe", "-": "mlp", "mlp": "mlp",
}  # fmt: skip


def _single(family: Family, config: Config, at: str, norms: Norms, kind: str) -> Layer:
    """A layer that is a mixer or an MLP, and not both (Nemotron-H)."""
    if kind in {"moe", "mlp"}:
        ffn = _experts(family, config, at) if kind == "moe" else _mlp_of(family, config, at)
        return Layer(norms=norms, mixer=None, ffn=ffn)
    return Layer(
        norms=norms, mixer=attention_of(family, config, at) if kind == "attention" else _mamba(family, config, at)
    )


def _mixer(  # noqa: PLR0913 - what attention sees belongs to the layer
    family: Family, config: Config, at: str, index: int, *, window: int | None, cached: bool
) -> Mixer:
    kind = family.mixer
    if kind == "jamba":
        period, offset = config.whole("attn_layer_period"), config.whole("attn_layer_offset", least=0)
        kind = "attention" if index % period == offset else "mamba"
    if kind == "delta":
        kind = "attention" if _attends(config, index) else "delta"
    if kind == "delta":
        key_heads, value_heads = config.whole("linear_num_key_heads"), config.whole("linear_num_value_heads")
        if value_heads % key_heads:
            raise config.error("linear_num_value_heads", f"is {value_heads}, which {key_heads} key heads do not divide")
        return Delta(
            at=f"{at}{family.names['mixer']}",
            key_heads=key_heads,
            value_heads=value_heads,
            key_dim=config.whole("linear_key_head_dim"),
            value_dim=config.whole("linear_value_head_dim"),
            kernel=config.whole("linear_conv_kernel_dim"),
            fused=family.fused_qkv,
        )
    if kind == "wkv":
        return _wkv(family, config, at, index)
    if kind == "latent":
        return _latent(family, config, at, index)
    if kind in {"mamba", "mamba2"}:
        return _mamba(family, config, at)
    return replace(attention_of(family, config, at, index=index), window=window, cached=cached)


def _attends(config: Config, index: int) -> bool:
    """Whether a layer among linear ones has full attention."""
    if config.get("layer_types") is not None:
        types = config.texts("layer_types")
        if len(types) != config.layers("num_hidden_layers"):
            raise config.error(
                "layer_types", f"has {len(types)} entries for {config.layers('num_hidden_layers')} layers"
            )
        return types[index] == "full_attention"
    return bool((index + 1) % config.whole("full_attention_interval") == 0)


def _wkv(family: Family, config: Config, at: str, index: int) -> Wkv:
    """Ranks that a config leaves out follow from the width, in steps of 32, as flash-linear-attention has it."""
    hidden = config.whole("hidden_size")

    def rank(key: str, factor: float, power: float) -> int:
        usual: int = max(32, round(factor * hidden**power / 32) * 32)
        return config.whole(key, usual)

    return Wkv(
        at=f"{at}{family.names['mixer']}",
        head_dim=config.whole("head_dim"),
        decay_rank=rank("decay_low_rank_dim", 1.8, 0.5),
        rate_rank=rank("a_low_rank_dim", 1.8, 0.5),
        value_rank=rank("v_low_rank_dim", 1.3, 0.5) if index else 0,
        gate_rank=rank("gate_low_rank_dim", 0.6, 0.8),
        shift_mlp=_named(family, at, "shift_mlp"),
    )


def attention_of(family: Family, config: Config, at: str, *, index: int = 0) -> Attention:
    heads, head_dim = config.whole("num_attention_heads"), _head_dim(config)
    kv_heads = 1 if family.kv_heads == "one" else config.whole("num_key_value_heads", heads)
    if heads % kv_heads:
        raise config.error("num_attention_heads", f"is {heads}, which {kv_heads} key-value heads do not divide")
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        **_modules(family, at, "q", "k", "v", "o", "q_norm", "k_norm", "sinks"),
        qkv=_named(family, at, "qkv") if family.fused_qkv else "",
        bias=family.attention_bias,
        transposed=family.transposed,
        norm=family.norm,
        qk_norm=family.qk_norm,
        rotary=_rotated(family, config, head_dim, index),
        soft_cap=config.get("attn_logit_softcapping") is not None,
        causal=family.causal,
        biased=family.positions in {"alibi", "relative"},
        written=family.attention,
        gated=family.gated_attention,
    )


def _named(family: Family, at: str, part: str) -> str:
    """A module's full name, or nothing where the family has none of that part."""
    name = family.names.get(part, "")
    return f"{at}{name}" if name else ""


def _modules(family: Family, at: str, *parts: str, before: str = "") -> dict[str, Any]:
    """The full names of several modules, whose names in the family's row may have a word before them."""
    return {part: _named(family, at, before + part) for part in parts}


def _head_dim(config: Config) -> int:
    head_dim = config.whole("head_dim", None)
    if head_dim is not None:
        return head_dim
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    if hidden % heads:
        raise config.error("hidden_size", f"is {hidden}, which {heads} heads do not divide")
    return hidden // heads


def _rotated(family: Family, config: Config, head_dim: int, index: int) -> int:
    """How many features of a head are rotated in a layer."""
    if family.positions != "rotary":
        return 0
    skips = config.get("no_rope_layers")
    if isinstance(skips, list) and index < len(skips) and not skips[index]:
        return 0
    every = config.whole("no_rope_layer_interval", 0, least=0) if not isinstance(skips, list) else 0
    if every and (index + 1) % every == 0:
        return 0
    if family.rotary_dim_key:
        return min(config.whole("rotary_dim", head_dim), head_dim)
    inside = config.get("rope_parameters")
    nested_share = inside.get("partial_rotary_factor") if isinstance(inside, dict) else None
    share = config.number("rotary_share", nested_share if isinstance(nested_share, float) else family.rotary_share)
    if not 0 < share <= 1:
        raise config.error("rotary_share", f"must be over 0 and at most 1, and is {share}")
    return int(head_dim * share)


def _latent(family: Family, config: Config, at: str, index: int) -> Latent:
    sparse = None
    if family.indexed:
        sparse = Index(
            heads=config.whole("index_n_heads"),
            head_dim=config.whole("index_head_dim"),
            top_k=config.whole("index_topk"),
            shared=_shares_index(config, index),
        )
    return Latent(
        index=sparse,
        heads=config.whole("num_attention_heads"),
        query_rank=config.whole("q_lora_rank", 0, least=0),
        kv_rank=config.whole("kv_lora_rank"),
        nope_dim=config.whole("qk_nope_head_dim"),
        rope_dim=config.whole("qk_rope_head_dim"),
        value_dim=config.whole("v_head_dim"),
        at=f"{at}{family.names['attention']}",
        bias=config.flag("attention_bias", False),  # noqa: FBT003 - the default of a config's key
    )


def _shares_index(config: Config, index: int) -> bool:
    """Whether a layer takes over the choice of the one before: the config's own list, else every n-th layer."""
    types = config.get("indexer_types")
    if types is not None:
        kinds = config.texts("indexer_types")
        return index < len(kinds) and kinds[index] == "shared"
    offset, every = config.whole("index_skip_topk_offset", 2, least=0), config.whole("index_topk_freq", 1)
    return max(index - offset + 1, 0) % every != 0


def _mamba(family: Family, config: Config, at: str) -> Mamba:
    """Of either version; what only one of them has stands in `own`."""
    hidden = config.whole("hidden_size")
    chunk = config.whole("chunk_size", 128 if family.mixer == "single" else 256)  # NemotronHConfig's, Mamba2Config's
    if family.mixer == "single":
        heads = config.whole("mamba_num_heads")
        inner = heads * config.whole("mamba_head_dim")
        own = {"heads": heads, "groups": config.whole("n_groups"), "chunk": chunk}
    elif family.mixer == "mamba2":
        inner, heads = config.whole("expand") * hidden, config.whole("num_heads")
        if heads * config.whole("head_dim") != inner:
            raise config.error("num_heads", f"times head_dim must be expand × hidden_size, which is {inner}")
        own = {"heads": heads, "groups": config.whole("n_groups"), "chunk": chunk}
    else:
        automatic = config.get("time_step_rank") == "auto"
        own = {"rank": -(-hidden // 16) if automatic else config.whole("time_step_rank")}
        inner = config.whole("inner", None) or config.whole("expand") * hidden
    return Mamba(
        at=f"{at}{family.names['mixer']}",
        inner=inner,
        state=config.whole("state_size"),
        kernel=config.whole("conv_kernel"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias"),
        normed=family.mixer == "jamba",
        function=nn.function_of(config.text("mamba_hidden_act", config.text("hidden_act", "silu"))),
        **own,
    )


def _ffn(family: Family, config: Config, at: str, index: int) -> Mlp | Experts | None:
    if family.experts and _routes(family, config, index):
        return _experts(family, config, at)
    return _mlp_of(family, config, at) if "up" in family.names or "gate_up" in family.names else None


def _routes(family: Family, config: Config, index: int) -> bool:
    """Whether a layer has experts."""
    if config.whole("num_experts", least=0) <= (1 if family.experts == "period" else 0):
        return False
    match family.experts:
        case "step":
            dense = config.get("mlp_only_layers", [])
            step = config.whole("decoder_sparse_step", 1)
            return index not in (dense if isinstance(dense, list) else []) and (index + 1) % step == 0
        case "after":
            first = config.whole("first_k_dense_replace", least=0)
            return bool(index >= first and index % config.whole("moe_layer_freq") == 0)
        case "period":
            period, offset = config.whole("expert_layer_period"), config.whole("expert_layer_offset", least=0)
            return bool(index % period == offset)
        case _:
            return True


def _mlp_of(family: Family, config: Config, at: str) -> Mlp:
    return Mlp(
        width=config.whole("intermediate_size", family.mlp_ratio * config.whole("hidden_size")),
        function=nn.function_of(config.text("hidden_act", "silu")),
        **_modules(family, at, "up", "down"),
        gate=_named(family, at, "gate") if family.gated else "",
        gate_up=_named(family, at, "gate_up") if family.fused_mlp else "",
        bias=family.mlp_bias,
        transposed=family.transposed,
    )


def _experts(family: Family, config: Config, at: str) -> Experts:
    count, width = config.whole("num_experts"), config.whole("expert_width")
    return Experts(
        experts=count,
        top_k=config.whole("num_experts_per_tok", most=count),
        width=width,
        function=nn.function_of(config.text("hidden_act", "silu")),
        router=_named(family, at, "router"),
        **_modules(family, at, "gate", "up", "down", "gate_up", before="expert_"),
        router_bias=family.router_bias,
        correction=_named(family, at, "correction") if family.correction else "",
        stacked=family.stacked,
        latent=config.whole("moe_latent_size", 0, least=0),
        **_modules(family, at, "latent_in", "latent_out"),
        shared=_shared(family, config, at, width),
        shared_gate=_named(family, at, "shared_switch"),
    )


def _shared(family: Family, config: Config, at: str, expert_width: int) -> Mlp | None:
    if family.shared == "width":
        width = config.whole("shared_expert_intermediate_size")
    elif family.shared == "count" and (count := config.whole("n_shared_experts", 0, least=0)):
        width = count * expert_width
    else:
        return None
    function = nn.function_of(config.text("hidden_act", "silu"))
    return Mlp(width=width, function=function, **_modules(family, at, "gate", "up", "down", before="shared_"))


def _windows_of(family: Family, config: Config, count: int) -> list[int | None]:
    """The window of each layer, or None where it attends to everything. A window counts the token itself.

    Where attention is not causal the config's window is split over both sides, and the token itself comes on top.
    `layer_types` in a config says it layer by layer; without it the family's pattern holds.
    """
    window = config.whole("sliding_window", 0, least=0)
    if not window or not family.window:
        return [None] * count
    if not family.causal:
        window = 2 * (window // 2) + 1
    types = config.get("layer_types")
    if types is not None:
        kinds = config.texts("layer_types")
        if len(kinds) != count:
            raise config.error("layer_types", f"has {len(kinds)} entries for {count} layers")
        return [window if entry == "sliding_attention" else None for entry in kinds]
    full = _full_layers(family, config, count)
    return [None if index in full else window for index in range(count)]


def _full_layers(family: Family, config: Config, count: int) -> frozenset[int]:
    match family.window:
        case "all":
            return frozenset()
        case "after":
            return frozenset(range(min(config.whole("max_window_layers", count, least=0), count)))
        case "first":
            return frozenset(range(0, count, _period(family, config)))
        case _:
            period = _period(family, config)
            return frozenset(range(period - 1, count, period))


def _period(family: Family, config: Config) -> int:
    period: int = config.whole("window_period", family.window_period)
    return period
