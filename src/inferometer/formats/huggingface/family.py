"""Families: what a `model_type` means, as rows of data.

A row in `families/*.toml` says which template expands it and which features it has. `like` starts from another row.
`variants` are changes that hold when the config has certain values, in order; `refuses` names values that the template
cannot expand, with the reason. Nothing here is code: a new family of a known shape is a new row.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.formats.huggingface.config import Config
from inferometer.known.files import tables

_MERGED = ("names", "parts", "keys", "defaults", "nested_defaults", "tasks", "heads")


@frozen
class Family:
    """One row. The comments say what a template makes of each feature."""

    name: str  # the config's model_type
    template: str
    classes: tuple[str, ...] = ()  # class names, or their beginnings, for configs without a model_type
    base: str = ""  # the module that holds the body where a head stands beside it
    keeps_base: bool = False  # even the bare body's weights have its module before their names
    needs: tuple[str, ...] = ()  # keys without which nothing can be said
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # our name of a key → the family's
    defaults: Mapping[str, Any] = field(default_factory=dict)  # for keys its configs leave out
    nested_defaults: Mapping[str, Any] = field(default_factory=dict)  # for keys left out where it is a part of a model
    parts: Mapping[str, str] = field(default_factory=dict)  # the rows of a model's parts
    names: Mapping[str, str] = field(default_factory=dict)  # our name of a module → the checkpoint's; "" is none
    tasks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the end of a class name → its heads
    heads: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)  # a head's steps
    refuses: tuple[Mapping[str, Any], ...] = ()

    norm: str = "rms"  # rms | rms_offset | layer
    norm_bias: bool = False
    # attention | latent | mamba | mamba2 | jamba | delta (with attention between) | wkv | single (one part a layer)
    mixer: str = "attention"
    parallel: bool = False  # attention and MLP side by side
    bare_first: bool = False  # the first layer's attention has no norm before it
    positions: str = "rotary"  # rotary | learned | alibi | relative | none
    position_offset: int = 0  # rows the position table has beyond the positions
    rotary_share: float = 1.0  # of a head's features, where the config does not say
    rotary_dim_key: bool = False  # the config says how many features are rotated, not which share
    # plain: scores are written out in f32, and neighbours turn as pairs | broadcast: keys of one head are given as such
    # to all queries' heads, which no fused kernel of PyTorch takes
    attention: str = ""
    attention_bias: str = ""  # which of q, k, v, o have a bias
    fused_qkv: bool = False
    gated_attention: bool = False  # q_proj also gives a gate for attention's output
    indexed: bool = False  # latent attention meets only tokens that an index chose
    qk_norm: str = ""  # head | all
    kv_heads: str = "key"  # key: as the config says, else as many as heads | one
    causal: bool = True
    window: str = ""  # all | last | first: in which layers attention is not windowed (the last or first of a period)
    window_period: int = 0
    gated: bool = True
    fused_mlp: bool = False
    mlp_bias: bool = False
    mlp_ratio: int = 4  # the MLP's width over the hidden size, where the config does not say
    transposed: bool = False  # weights are stored as [in, out]
    experts: str = ""  # "" | all | step | after | period: which layers route
    stacked: bool = False
    router_bias: bool = False
    correction: bool = False
    shared: str = ""  # "" | count: as wide as that number of experts | width: a width of its own
    embed_scale: bool = False
    tied: bool = False  # where the config does not say
    head_bias: bool = False
    conv_bias: bool = True  # of a vision stem
    class_tokens: int = 0  # learned tokens before the patches
    own_keys: bool = False  # what the row needs are keys of ours: transformers' config of that name has others
    flat_tokens: bool = False  # they and the position table are stored without axes of one


@cache
def _texts() -> Mapping[str, str]:
    """The text of every row by its name. Rows are parsed when they are asked for: a config needs two or three."""
    texts: dict[str, str] = {}
    for file in sorted((Path(__file__).parent / "families").glob("*.toml")):
        for (name, _), text in tables(file.read_text(encoding="utf-8")):
            texts[name] = texts.get(name, "") + text
    return texts


@cache
def _row(name: str) -> Mapping[str, Any]:
    row: Mapping[str, Any] = tomllib.loads(_texts()[name])[name]
    return row


def _rows() -> Mapping[str, Mapping[str, Any]]:
    return {name: _row(name) for name in _texts()}


@cache
def families() -> tuple[str, ...]:
    """Every known `model_type`."""
    return tuple(sorted(name for name, row in _rows().items() if not row.get("abstract")))


def family_of(config: Config, name: str = "") -> Family:
    """The family of a config (or the one named), with the variants its values call for."""
    name = name or model_type(config)
    row = _merged(name)
    known = dict(row.get("defaults", {}))
    for variant in row.get("variants", ()):
        if _holds(variant["when"], config, row, known):
            row = _over(row, {key: value for key, value in variant.items() if key != "when"})
    family = _family(name, row)
    for refusal in family.refuses:
        if _holds(refusal["when"], config, row, known):
            raise FormatError(f"The config of {config.name!r} asks for {refusal['why']}, which {name} here has not.")
    return family


def prepared(config: Config, family: Family, *, nested: bool = False) -> Config:
    """The config with the family's names of keys and its defaults, checked for what it needs."""
    defaults = {**(family.nested_defaults if nested else {}), **family.defaults}
    ready = Config(name=config.name, values=config.values, aliases=family.keys, defaults=defaults, inside=config.inside)
    ready.require(family.needs)
    return ready


def of_another_form(config: Config) -> bool:
    """Whether it has none of the keys that its family's row needs, and transformers has others for them."""
    family = family_of(config)
    return family.own_keys and all(config.get(key) is None for key in family.needs)


def part_of(family: Family, part: str, config: Config) -> tuple[Family, Config]:
    """The row of a part that shares the whole model's config, and that config in the part's terms."""
    plain = Config(name=config.name, values=config.values, inside=config.inside)
    row = family_of(plain, family.parts[part])
    return row, prepared(plain, row)


def model_type(config: Config) -> str:
    """By `model_type`, else by the class name in `architectures` or `_class_name`."""
    asked = config.get("model_type")
    if asked is None:
        asked = class_name(config)
        named = [
            (len(start), name)
            for name, row in _rows().items()
            for start in row.get("classes", ())
            if asked.startswith(start)
        ]
        if named:
            return max(named)[1]
    if not isinstance(asked, str) or not asked:
        raise FormatError(
            f"The config of {config.name!r} names no architecture: it has neither model_type nor architectures.",
            remedy=f"Add a model_type, one of {', '.join(families())}.",
        )
    if asked in _texts() and not _row(asked).get("abstract"):
        return asked
    raise UnknownNameError("architecture", asked[:80], families(), listing=_missing(asked, config))


def class_name(config: Config) -> str:
    name = config.get("_class_name")
    if name is None and config.get("architectures") is not None:
        name = config.texts("architectures")[0]
    return name if isinstance(name, str) else ""


def _missing(asked: str, config: Config) -> str:
    """What the config would lack to be read as the nearest families that are known."""
    known = families()
    near = UnknownNameError("architecture", asked[:80], known).suggestions or ("llama",)
    verdicts = []
    for name in near:
        family = _family(name, _merged(name))
        ready = Config(name=config.name, values=config.values, aliases=family.keys, defaults=family.defaults)
        lacking = [family.keys.get(key, (key,))[0] for key in family.needs if ready.get(key) is None]
        verdicts.append(
            f"to be read as {name} it lacks {', '.join(lacking)}" if lacking else f"{name}'s keys are all there"
        )
    return (
        f"{config.name!r} asks for it. Of its keys: {'; '.join(verdicts)}. "
        f"Where it is built as one of these, set model_type to that name. Known: {', '.join(known)}."
    )


def _merged(name: str) -> Mapping[str, Any]:
    row = _row(name)
    return _over(_merged(row["like"]), row) if "like" in row else row


def _over(row: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Tables are merged entry by entry, everything else is replaced."""
    merged = {**row, **changes}
    for key in _MERGED:
        if key in row and key in changes:
            merged[key] = {**row[key], **changes[key]}
    return merged


def _holds(when: Mapping[str, Any], config: Config, row: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    aliases = {key: tuple(names) for key, names in row.get("keys", {}).items()}
    ready = Config(name=config.name, values=config.values, aliases=aliases, defaults=known)
    return all(ready.get(key) == value for key, value in when.items())


def _family(name: str, row: Mapping[str, Any]) -> Family:
    allowed = {entry.name for entry in fields(Family)}
    values = {key: value for key, value in row.items() if key not in {"like", "variants", "abstract"}}
    if unknown := sorted(set(values) - allowed):
        raise ValueError(f"The row of {name} has unknown features: {', '.join(unknown)}.")
    keys = {key: tuple(names) for key, names in row.get("keys", {}).items()}
    tuples = {key: tuple(row[key]) for key in ("needs", "classes", "refuses") if key in row}
    return Family(**{**values, **tuples, "name": name, "keys": keys})
