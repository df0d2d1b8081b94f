"""Encoders of text: BERT and its kin, and the text side of CLIP and SigLIP. Heads are steps in the family's row."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Seen, attention_op
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.decoder import embedded, named_sizes
from inferometer.formats.huggingface.family import Family, family_of, prepared
from inferometer.formats.huggingface.layer import Mlp, feed, stack
from inferometer.formats.huggingface.plan import planned_layers

# Heads as steps in a family's row: pick a token, project, activate, normalise.


def headed(family: Family, config: Config, stream: Tensor, heads: tuple[str, ...], place: nn.NamePrefixes) -> list[Op]:
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


def _step(family: Family, config: Config, x: Tensor, step: Mapping[str, Any], place: nn.NamePrefixes) -> list[Op]:
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
            return [nn.activation(name, x, nn.function_of(step.get("function") or config.text("hidden_act", "gelu")))]
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
        return nn.labels_of(config)
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
        function=nn.function_of(config.text("hidden_act", "gelu")),
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


def encoder(family: Family, config: Config, heads: tuple[str, ...], place: nn.NamePrefixes) -> nn.Body:
    ids = nn.tensor(f"{place.at}input_ids", nn.BATCH, nn.QUERY, role="index")
    words = embedded(family, config, ids, place)
    body = encoded(family, config, heads, place, words)
    return replace(body, inputs=(ids,), context_limit=config.whole("context", None))


def encoded(family: Family, config: Config, heads: tuple[str, ...], place: nn.NamePrefixes, stem: list[Op]) -> nn.Body:
    """What `stem` gives, through the layers and the heads."""
    at, layers = place.at, planned_layers(family, config, place.body, cached=False)
    stream = nn.tensor(f"{at}hidden", nn.BATCH, nn.output(stem).shape[1], config.whole("hidden_size"))
    ends: list[Op] = []
    if module := family.names.get("final_norm"):
        ends.append(nn.norm(f"{at}final_norm", stream, family.norm, f"{place.body}{module}", bias=family.norm_bias))
    ends += headed(family, config, nn.output(ends) if ends else stream, heads, place)
    return nn.Body(
        blocks=(
            Block(name=f"{at}embed", ops=nn.ending_in(stem, stream.name)),
            *stack(layers, at, stream, f"{at}encoder"),
            *((Block(name=f"{at}head", ops=tuple(ends)),) if ends else ()),
        ),
        outputs=(nn.output(ends) if ends else stream,),
        metadata=named_sizes(config, layers),
    )


# Vision transformers: patches, layers, and what is read off at the end.


def vision(family: Family, config: Config, heads: tuple[str, ...], place: nn.NamePrefixes) -> nn.Body:
    pixels = nn.tensor(f"{place.at}pixel_values", nn.BATCH, config.whole("num_channels", 3), nn.IMAGE, nn.IMAGE)
    # Patches, learned tokens before them, positions, and CLIP's first norm
    names, hidden, size = family.names, config.whole("hidden_size"), config.whole("patch_size")
    side = config.whole("image_size") // size
    if not side:
        raise config.error("patch_size", f"is {size}, more than the image's side")
    at, prefix = f"{place.at}embed", place.body
    ops = patches(f"{at}.patches", pixels, hidden, size, (f"{prefix}{names['patch']}", family.conv_bias))
    if family.class_tokens:
        ops.append(_tokens(family, f"{at}.tokens", nn.output(ops), prefix))
    count = side * side + family.class_tokens
    shape = (count, hidden) if family.flat_tokens else (1, count, hidden)
    table = nn.weight(f"{prefix}{names['position_table']}", *shape)
    ops.append(nn.elementwise(f"{at}.positions", "add", ops, weights=(table,)))
    if module := names.get("first_norm", ""):
        ops.append(nn.norm(f"{at}.norm", ops, family.norm, f"{prefix}{module}", bias=family.norm_bias))
    body = encoded(family, config, heads, place, ops)
    sizes = {**body.metadata, "default_sizes": {"image": config.whole("image_size")}}
    return replace(body, inputs=(pixels,), metadata=sizes)


def patches(name: str, pixels: Tensor, features: int, size: int, modules: tuple[str, bool]) -> list[Op]:
    """Each patch of `size` × `size` pixels becomes one token: a convolution whose stride is its kernel.

    `modules` is the convolution's name in the checkpoint and whether it has a bias.
    """
    module, bias = modules
    conv = nn.convolution(name, pixels, nn.square(features, size, stride=size, padding=0), module, bias=bias)
    y = nn.output(conv)
    return [conv, nn.view(f"{name}.rows", y, nn.BATCH, y.shape[2] * y.shape[3], features)]


def _tokens(family: Family, name: str, rows: Tensor, prefix: str) -> Op:
    names, hidden = family.names, nn.width(rows)
    shape = (hidden,) if family.flat_tokens else (1, 1, hidden)
    tokens = [
        nn.weight(f"{prefix}{names[part]}", *shape) for part in ("class_token", "distillation_token") if part in names
    ]
    if "mask_token" in names:  # stored with the others; only training reads it
        tokens.append(nn.weight(f"{prefix}{names['mask_token']}", 1, hidden))
    count = rows.shape[1] + family.class_tokens
    return nn.copy(name, "concat", (rows,), nn.BATCH, count, hidden, weights=tuple(tokens))


# CLIP and SigLIP: an image tower and a text tower that end in the same space.


def contrastive(family: Family, config: Config, heads: tuple[str, ...]) -> nn.Body:
    """Images and texts come in equal numbers: every image is compared with every text."""
    seen = _tower(family, config, "vision", heads)
    read = _tower(family, config, "text", heads)
    ops = _compared(family, seen.outputs[0], read.outputs[0])
    sizes = {**seen.metadata["default_sizes"]}
    if read.context_limit is not None:
        sizes["query"] = read.context_limit
    return nn.Body(
        blocks=(*seen.blocks, *read.blocks, Block(name="compare", ops=ops)),
        inputs=(*seen.inputs, *read.inputs),
        outputs=(nn.output(ops),),
        context_limit=read.context_limit,
        metadata={
            "vision": {key: value for key, value in seen.metadata.items() if key != "default_sizes"},
            "text": dict(read.metadata),
            "default_sizes": sizes,
        },
    )


def _tower(family: Family, config: Config, side: str, heads: tuple[str, ...]) -> nn.Body:
    plain = config.table(f"{side}_config")
    shared = {"projection_dim": config.get("projection_dim")} if "projection" in heads else {}
    plain = Config(name=config.name, values={**plain.values, **shared}, inside=plain.inside)
    row = family_of(plain, family.parts[side])
    ready = prepared(plain, row, nested=True)
    ends = (*row.tasks["Model"], *heads)
    expand = vision if side == "vision" else encoder
    return expand(row, ready, ends, nn.NamePrefixes(body=f"{row.base}.", at=f"{side}."))


def _compared(family: Family, image: Tensor, text: Tensor) -> tuple[Op, ...]:
    images, texts = nn.norm("compare.image_norm", image, "l2"), nn.norm("compare.text_norm", text, "l2")
    # CLIP stores its scale as a scalar, SigLIP scale and bias as one number each
    weights = [nn.weight(family.names["scale"], *((1,) if "bias" in family.names else ()))]
    if "bias" in family.names:
        weights.append(nn.weight(family.names["bias"], 1))
    scores = Op(
        name="compare.scores",
        kind="matmul",
        inputs=(nn.output(images), nn.output(texts)),
        outputs=(nn.tensor("compare.scores", nn.BATCH, nn.BATCH),),
        weights=tuple(weights),
        attributes={"contracted": nn.width(image)},
    )
    return images, texts, scores
