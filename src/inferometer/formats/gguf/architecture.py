"""From GGUF metadata to a Hugging Face config, and from a Hugging Face weight name to the file's tensors.

The rows are data: `architectures.toml`, which says what its entries mean.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from inferometer.core.frozen import frozen

_MERGED = ("keys", "body", "layer", "set")
_LAYER = re.compile(r"^blk\.(\d+)\.")


@frozen
class Architecture:
    """One row, with the variants that hold for a file."""

    name: str
    model_type: str
    prefix: str
    keys: Mapping[str, Any]
    set: Mapping[str, Any]
    body: Mapping[str, Any]
    layer: Mapping[str, Any]
    apart: tuple[str, ...]
    tries: tuple[Mapping[str, Any], ...]

    def places(self, weight: str) -> Iterator[tuple[str, ...]]:
        """Where a weight may stand in the file, one way after another; each is one tensor or several.

        `weight` has `{}` for the layer's index, and so have the answers.
        """
        table, start, name = self.body, "", weight
        if weight.startswith(self.prefix):
            table, start, name = self.layer, "blk.{}.", weight.removeprefix(self.prefix)
        suffix = ""
        if name not in table:
            name, dot, last = name.rpartition(".")
            suffix = dot + last
        for way in _ways(table.get(name, ())):
            yield tuple(f"{start}{part}{suffix}" for part in way.split(" + "))


def _ways(entry: Any) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else tuple(entry)


@cache
def _rows() -> Mapping[str, Any]:
    text = (files("inferometer.formats.gguf") / "architectures.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def layer_template(name: str) -> str:
    """`blk.7.attn_q.weight` → `blk.{}.attn_q.weight`."""
    return _LAYER.sub("blk.{}.", name)


def architecture_of(name: str, metadata: Mapping[str, Any], templates: Collection[str]) -> Architecture | None:
    """The row of an architecture, or None where there is none. `templates` are the file's tensors, layers as `{}`."""
    if name not in _rows():
        return None
    row = _merged(name)
    for variant in row.get("variants", ()):
        if _holds(variant, name, metadata, templates):
            row = _over(row, {key: value for key, value in variant.items() if key not in {"tensor", "lacks", "above"}})
    return Architecture(
        name=name,
        model_type=row["model_type"],
        prefix=row["prefix"],
        apart=tuple(row.get("apart", ())),
        tries=tuple(row.get("tries", ({},))),
        **{key: row.get(key, {}) for key in _MERGED},
    )


def _merged(name: str) -> Mapping[str, Any]:
    row = _rows()[name]
    return _over(_merged(row["like"]), row) if "like" in row else row


def _over(row: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Tables are merged entry by entry, everything else is replaced."""
    return {**row, **changes, **{key: {**row.get(key, {}), **changes.get(key, {})} for key in _MERGED}}


def _holds(variant: Mapping[str, Any], name: str, metadata: Mapping[str, Any], templates: Collection[str]) -> bool:
    for key, least in variant.get("above", {}).items():
        value = _number(metadata.get(f"{name}.{key}"))
        if value is None or value <= least:
            return False
    return variant.get("tensor", next(iter(templates), "")) in templates and variant.get("lacks") not in templates


def config_of(row: Architecture, metadata: Mapping[str, Any], *, vocabulary: int | None, tied: bool) -> dict[str, Any]:
    """The config that Hugging Face's template of the architecture wants."""
    config: dict[str, Any] = {"model_type": row.model_type, "tie_word_embeddings": tied, **row.set}
    for key, entry in row.keys.items():
        values = (_computed(way, row.name, metadata) for way in _ways(entry))
        if (value := next((value for value in values if value is not None), None)) is not None:
            config[key] = value
    if vocabulary is not None:
        config["vocab_size"] = vocabulary
    if (share := _rotated_share(row.name, metadata)) is not None:
        config["partial_rotary_factor"] = share
    return config


def _computed(way: str, name: str, metadata: Mapping[str, Any]) -> Any:
    """One metadata value, or two of them divided or subtracted."""
    left, *rest = way.split(" ")
    first = _number(metadata.get(f"{name}.{left}"))
    if not rest:
        return first
    operation, right = rest
    second = _number(metadata.get(f"{name}.{right}"))
    if not isinstance(first, int) or not isinstance(second, int):
        return None
    if operation == "-":
        return first - second
    return first // second if second and first % second == 0 else None


def _number(value: Any) -> int | float | bool | None:
    """A value, or what all entries of a list of one a layer agree on."""
    if isinstance(value, tuple) and value and all(entry == value[0] for entry in value):
        value = value[0]
    return value if isinstance(value, int | float) else None


def _rotated_share(name: str, metadata: Mapping[str, Any]) -> float | None:
    """How much of a head is rotated, where the file says both lengths."""
    rotated = _number(metadata.get(f"{name}.rope.dimension_count"))
    length = _number(metadata.get(f"{name}.attention.key_length"))
    if length is None:
        length = _computed("embedding_length / attention.head_count", name, metadata)
    return rotated / length if rotated and length and rotated <= length else None
