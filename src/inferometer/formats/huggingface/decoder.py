"""Decoders of text: embedding, layers, head. The family's row says what kind of layers."""

from typing import Any

from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Latent, Seen, last_positions, soft_capped
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.family import Family
from inferometer.formats.huggingface.layer import Experts, Layer, Mlp, stack
from inferometer.formats.huggingface.plan import planned_layers


def decoder(family: Family, config: Config, heads: tuple[str, ...], place: nn.NamePrefixes) -> nn.Body:
    layers = planned_layers(family, config, place.body)
    ids = nn.tensor("input_ids", nn.BATCH, nn.QUERY, role="index")
    words = embedded(family, config, ids, place)
    stream = nn.tensor("hidden", nn.BATCH, nn.QUERY, config.whole("hidden_size"))
    blocks = stack(layers, "", stream, "decoder", Seen(context=nn.CONTEXT))
    # The final norm, and OPT's way back to the width of its words.
    names, normed = family.names, list[Op]()
    if names["final_norm"]:
        normed.append(
            nn.norm("final_norm", stream, family.norm, f"{place.body}{names['final_norm']}", bias=family.norm_bias)
        )
    narrow = config.whole("word_embed_proj_dim", None) if "project_out" in names else None
    if narrow is not None and narrow != config.whole("hidden_size"):
        normed.append(
            nn.linear(
                "project_out", nn.output(normed) if normed else stream, narrow, f"{place.body}{names['project_out']}"
            )
        )
    ops = (*normed, *_head(family, config, nn.output(normed) if normed else stream, heads, place))
    end = (Block(name="head", ops=ops),) if ops else ()
    return nn.Body(
        blocks=(Block(name="embed", ops=nn.ending_in(words, stream.name)), *blocks, *end),
        inputs=(ids,),
        outputs=(nn.output(ops) if ops else stream,),
        context_limit=config.whole("context", None),
        metadata={**named_sizes(config, layers), "default_sizes": {"logits": 1}},
    )


def _head(family: Family, config: Config, x: Tensor, heads: tuple[str, ...], place: nn.NamePrefixes) -> list[Op]:
    """The head, on the positions whose logits are asked for."""
    if not heads:
        return []
    ops, names = [last_positions("last", x, nn.LOGITS)], family.names
    if "score" in heads:
        return [*ops, nn.linear("score", ops, nn.labels_of(config), f"{place.head}{names['score']}")]
    shared = config.flag("tie_word_embeddings", family.tied)
    table = f"{place.body}{names['embed']}.weight" if shared else ""
    head = f"{place.head}{names['head']}"
    ops.append(nn.linear("lm_head", ops, config.whole("vocab_size"), head, tied=table, bias=family.head_bias))
    if config.get("final_logit_softcapping") is not None:
        ops.append(soft_capped("lm_head.soft_cap", nn.output(ops)))
    return ops


def named_sizes(config: Config, layers: list[Layer]) -> dict[str, Any]:
    """Sizes that people ask for by name."""
    sizes: dict[str, Any] = {"layers": len(layers), "hidden_size": config.whole("hidden_size")}
    if (vocab := config.whole("vocab_size", None)) is not None:
        sizes["vocab_size"] = vocab
    for layer in dict.fromkeys(layers):
        sizes |= _mixer_sizes(layer)
        match layer.ffn:
            case Experts() as experts:
                sizes |= {"experts": experts.experts, "experts_per_token": experts.top_k, "expert_size": experts.width}
            case Mlp() as mlp:
                sizes["intermediate_size"] = mlp.width
    return sizes


def _mixer_sizes(layer: Layer) -> dict[str, Any]:
    match layer.mixer:
        case Attention() as attention:
            return {"heads": attention.heads, "kv_heads": attention.kv_heads, "head_dim": attention.head_dim}
        case Latent() as latent:
            return {"heads": latent.heads, "kv_latent": latent.kv_rank + latent.rope_dim}
        case None:
            return {}
        case stateful:
            return {"state_size": stateful.state}


def embedded(family: Family, config: Config, ids: Tensor, place: nn.NamePrefixes) -> list[Op]:
    """Words, with what the family adds to them: positions, token types, a scale, a norm, a projection."""
    names, hidden = family.names, config.whole("hidden_size")
    at, prefix = f"{place.at}embed", place.body
    narrow = config.whole("word_embed_proj_dim", hidden) if "project_in" in names else hidden
    ops = [nn.embedding(at, ids, config.whole("vocab_size"), narrow, f"{prefix}{names['embed']}.weight")]
    if narrow != hidden:
        ops.append(nn.linear(f"{at}.project", ops, hidden, f"{prefix}{names['project_in']}"))
    if family.embed_scale or config.get("embedding_multiplier", 1.0) != 1.0:
        ops.append(nn.elementwise(f"{at}.scale", "multiply", ops))
    added = [nn.output(ops)]
    for part, rows in _tables(family, config):
        shape = ids.shape if part == "types" else ids.shape[-1:]  # every sequence has the same positions
        places = nn.tensor(f"{at}.{part}.ids", *shape, role="index")
        ops.append(nn.embedding(f"{at}.{part}", places, rows, hidden, f"{prefix}{names[part]}.weight"))
        added.append(nn.output(ops))
    if len(added) > 1:
        ops.append(nn.add(f"{at}.add", *added))
    if module := names.get("embed_norm"):
        ops.append(nn.norm(f"{at}.norm", ops, family.norm, f"{prefix}{module}", bias=family.norm_bias))
    return ops


def _tables(family: Family, config: Config) -> list[tuple[str, int]]:
    """The tables that are added to the words, with their rows."""
    tables = []
    if family.names.get("types"):
        tables.append(("types", config.whole("type_vocab_size")))
    if family.positions == "learned":
        tables.append(("positions", config.whole("context") + family.position_offset))
    return tables
