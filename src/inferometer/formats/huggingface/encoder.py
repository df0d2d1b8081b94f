"""Encoders of text: BERT and its kin, and the text side of CLIP and SigLIP. Heads are steps in the family's row."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Seen, attention_op
from inferometer.formats.huggingface.body import Body, NamePrefixes, ending_in, function_of, labels_of
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.decoder import embedded, named_sizes
from inferometer.formats.huggingface.family import Family
from inferometer.formats.huggingface.layer import stack
from inferometer.formats.huggingface.mlp import Mlp, feed
from inferometer.formats.huggingface.plan import planned_layers

# Heads as steps in a family's row: pick a token, project, activate, normalise.


def headed(family: Family, config: Config, stream: Tensor, heads: tuple[str, ...], place: NamePrefixes) -> list[Op]:
    """The steps of each head, one after the other; the step `stream` starts again from the encoder's output."""
    ops: list[Op] = []
    x = stream
    for head in heads:
        for step in family.heads[head]:
            if step["step"] == "stream":
                x = stream
                continue
            ops += _step(family, config, x, step, place)
            x = nn.output(ops)
    return ops


def _step(family: Family, config: Config, x: Tensor, step: Mapping[str, Any], place: NamePrefixes) -> list[Op]:
    """`inside` says that a module belongs to the body, so its name starts with the body's."""
    module = step.get("module", "")
    full = f"{place.body if step.get('inside') else place.head}{module}"
    name = f"{place.at}head.{step.get('name', module.replace('cls.predictions.', 'mlm.'))}"
    match step["step"]:
        case "first" | "last":
            return [nn.view(name, x, x.shape[0], x.shape[-1])]
        case "first and mean":
            mean = nn.reduce(f"{name}.mean", x, "mean", axis=1)
            first = nn.view(f"{name}.first", x, x.shape[0], x.shape[-1])
            return [
                mean,
                first,
                nn.copy(name, "concat", (first, mean), x.shape[0], 2 * nn.width(x)),
            ]
        case "activation":
            return [nn.activation(name, x, function_of(step.get("function") or config.text("hidden_act", "gelu")))]
        case "norm":
            return [nn.norm(name, x, family.norm, full, bias=family.norm_bias)]
        case "probe":
            return _probe(family, config, x, name, full)
        case _:
            bias = step.get("bias", False)
            shared = step.get("tied", False) and config.flag("tie_word_embeddings", family.tied)
            table = f"{place.body}{family.names['embed']}.weight" if shared else ""
            named = f"{place.head}{bias}" if isinstance(bias, str) else bias
            return [nn.linear(name, x, _features(config, step["to"]), full, bias=named, tied=table)]


def _features(config: Config, to: str) -> int:
    if to == "labels":
        return labels_of(config)
    return int(to) if to.isdigit() else int(config.whole(to))


def _probe(family: Family, config: Config, x: Tensor, at: str, module: str) -> list[Op]:
    """SigLIP pools by attention: one learned query looks at every patch, then an MLP with a residual."""
    hidden, heads = nn.width(x), config.whole("num_attention_heads")
    query = nn.tensor(f"{at}.probe", x.shape[0], 1, hidden)
    probe = nn.copy(f"{at}.probe", "expand", (), *query.shape, weights=(nn.weight(f"{module}.probe", 1, 1, hidden),))
    asked = _packed(f"{at}.q_proj", nn.output(probe), hidden, f"{module}.attention")
    keys = _packed(f"{at}.kv_proj", x, 2 * hidden, f"{module}.attention")
    parts = nn.split(f"{at}.kv", keys, k=x.shape, v=x.shape)
    k, v = parts.outputs
    spec = Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads, causal=False, cached=False)
    core = attention_op(f"{at}.attention", (nn.output(asked), k, v), spec, Seen(source=x))
    out = nn.linear(f"{at}.o_proj", core, hidden, f"{module}.attention.out_proj", bias=True)
    normed = nn.norm(f"{at}.norm", out, family.norm, f"{module}.layernorm", bias=True)
    mlp = Mlp(
        width=config.whole("intermediate_size"),
        function=function_of(config.text("hidden_act", "gelu")),
        up=f"{module}.mlp.fc1",
        down=f"{module}.mlp.fc2",
        bias=True,
    )
    fed = feed(mlp, f"{at}.mlp", nn.output(normed))
    joined = nn.add(f"{at}.residual", out, fed)
    return [
        probe,
        asked,
        keys,
        parts,
        core,
        out,
        normed,
        *fed,
        joined,
        nn.view(at, joined, x.shape[0], hidden),
    ]


def _packed(name: str, x: Tensor, features: int, module: str) -> Op:
    """A part of torch's packed projection: the tensor holds q, k and v, an op uses its own rows of it."""
    hidden = nn.width(x)
    weights = (
        nn.weight(f"{module}.in_proj_weight", 3 * hidden, hidden),
        nn.weight(f"{module}.in_proj_bias", 3 * hidden),
    )
    y = nn.tensor(name, *x.shape[:-1], features)
    attributes = {"in_features": hidden, "out_features": features}
    return Op(name=name, kind="linear", inputs=(x,), outputs=(y,), weights=weights, attributes=attributes)


def encoder(family: Family, config: Config, heads: tuple[str, ...], place: NamePrefixes) -> Body:
    ids = nn.tensor(f"{place.at}input_ids", nn.BATCH, nn.QUERY, role="index")
    words = embedded(family, config, ids, place)
    body = encoded(family, config, heads, place, words)
    return replace(body, inputs=(ids,), context_limit=config.whole("context", None))


def encoded(family: Family, config: Config, heads: tuple[str, ...], place: NamePrefixes, stem: list[Op]) -> Body:
    """What `stem` gives, through the layers and the heads."""
    at, layers = place.at, planned_layers(family, config, place.body, cached=False)
    stream = nn.tensor(f"{at}hidden", nn.BATCH, nn.output(stem).shape[1], config.whole("hidden_size"))
    ends: list[Op] = []
    if module := family.names.get("final_norm"):
        ends.append(nn.norm(f"{at}final_norm", stream, family.norm, f"{place.body}{module}", bias=family.norm_bias))
    ends += headed(family, config, nn.output(ends) if ends else stream, heads, place)
    return Body(
        blocks=(
            Block(name=f"{at}embed", ops=ending_in(stem, stream.name)),
            *stack(layers, at, stream, f"{at}encoder"),
            *((Block(name=f"{at}head", ops=tuple(ends)),) if ends else ()),
        ),
        outputs=(nn.output(ends) if ends else stream,),
        metadata=named_sizes(config, layers),
    )
