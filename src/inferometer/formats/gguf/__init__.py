"""GGUF files (llama.cpp): header only, mixed quantisation as stored.

Opening GGUF files, and the parts of a split one.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.graph import Graph, Tensor
from inferometer.formats import stored
from inferometer.formats.base import Peek
from inferometer.formats.gguf.architecture import Architecture, architecture_of, config_of, layer_template
from inferometer.formats.gguf.header import MAGIC, CountedValue, GgufHeader, read_header
from inferometer.formats.stored import Stored

# From GGUF headers to a graph: the architecture's, with the formats and bytes of the file; else one of its tensors.

_SCALES = (".scale", ".input_scale")  # one number a tensor, stored beside it


def gguf_graph(headers: Sequence[GgufHeader]) -> Graph:
    """`headers` are the parts of one model, in order. The first has the metadata."""
    first = headers[0]
    metadata = first.metadata
    tensors = {
        tensor.name: Stored(names=(tensor.name,), shape=tensor.shape, dtype=tensor.dtype, nbytes=tensor.nbytes)
        for header in headers
        for tensor in header.tensors
    }
    architecture_name, named = metadata.get("general.architecture"), metadata.get("general.name")
    name = named if isinstance(named, str) and named else first.path.stem
    architecture = architecture_name if isinstance(architecture_name, str) else None
    graph, notes = _by_architecture(name, architecture, metadata, tensors)
    if not tensors:
        # What a file is that has a header only, as `ggml-vocab-*.gguf` of llama.cpp's tests have.
        tokens = metadata.get("tokenizer.ggml.tokens")
        count = tokens.count if isinstance(tokens, CountedValue) else len(tokens) if isinstance(tokens, Sequence) else 0
        what = f"the vocabulary of a model ({count:,} tokens)" if count else "the metadata of a model"
        kind = f" of the architecture {architecture!r}" if architecture else ""
        notes = [f"The file holds no weights: it is {what}{kind}."]
    if graph is None:
        limit = metadata.get(f"{architecture}.context_length")
        rms = f"{architecture}.attention.layer_norm_rms_epsilon" in metadata
        graph = stored.tensors_graph(name, list(tensors.values()), norm="rms" if rms else "layer")
        context = limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None
        graph = replace(graph, architecture=architecture, context_limit=context)
    # llama.cpp keeps the cache, and what it does not keep in f32, in f16 unless it is told otherwise
    facts = {**graph.metadata, **_facts(headers, tensors), "notes": tuple(notes)}
    return replace(graph, precision="f16", metadata=facts)


def _by_architecture(
    name: str, architecture: str | None, metadata: Mapping[str, Any], tensors: Mapping[str, Stored]
) -> tuple[Graph | None, list[str]]:
    """The architecture's graph where it fits the file to the last number, and what there is to say about it."""
    from inferometer.formats.huggingface.graph import graph_from_config  # noqa: PLC0415 - quick to import this module

    if architecture is None:
        return None, [stored.tensors_only("The file names no architecture")]
    templates = {layer_template(entry) for entry in tensors}
    row = architecture_of(architecture, metadata, templates)
    if row is None:
        return None, [stored.tensors_only(f"The architecture {architecture[:80]!r} is not known")]
    table = tensors.get("token_embd.weight")
    vocabulary = table.shape[0] if table and table.shape else None
    config = config_of(row, metadata, vocabulary=vocabulary, tied="output.weight" not in templates)
    locator = _Locator(row, tensors)
    problems: list[str] = []
    for settings in row.tries:
        try:
            graph = graph_from_config({**config, **settings}, name=name)
        except InferometerError as error:
            problems = problems or [error.message]
            continue
        held, misfits = stored.fit(graph, locator.locate)
        if not misfits:
            whole = _with_names(stored.with_stored(graph, held), held)
            return stored.with_others(whole, tensors, held, partial(_is_apart, row=row))
        problems = problems or misfits
    return None, [
        stored.tensors_only(f"The file does not fit the architecture {architecture!r} ({stored.listed(problems)})")
    ]


class _Locator:
    """Finds what the file holds for a weight of the graph."""

    def __init__(self, row: Architecture, tensors: Mapping[str, Stored]) -> None:
        self._row, self._tensors = row, tensors

    def locate(self, name: str, weight: Tensor) -> Stored | None:
        for place in self._row.places(weight.name):
            parts = [self._one(part, _index(name, weight.name), weight) for part in place]
            if all(part is not None for part in parts):
                return stored.joined([part for part in parts if part is not None])
        return None

    def _one(self, place: str, index: str, weight: Tensor) -> Stored | None:
        full = place.replace("{}", index)
        if "*" not in full:
            return self._tensors.get(full)
        experts = weight.shape[0] if isinstance(weight.shape[0], int) else 0
        return stored.all_stacked([self._tensors.get(full.replace("*", str(expert))) for expert in range(experts)])


def _index(name: str, template: str) -> str:
    """What stands for `{}` in a full name."""
    before, mark, after = template.partition("{}")
    return name[len(before) : len(name) - len(after)] if mark else ""


def _with_names(graph: Graph, held: Mapping[str, Stored]) -> Graph:
    """Remember what the file calls each weight: engines speak of the file's tensors."""
    named = {name: weight for weight, entry in held.items() for name in entry.names}
    return replace(graph, metadata={**graph.metadata, "stored_as": named})


def _is_apart(entry: Stored, row: Architecture) -> bool:
    name = entry.names[0]
    return layer_template(name) in row.apart or name.endswith(_SCALES)


def _facts(headers: Sequence[GgufHeader], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """What the file says of itself, and how its bytes add up: header + tensors + padding = file."""
    first, metadata = headers[0], headers[0].metadata
    sizes: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for entry in tensors.values():
        sizes[str(entry.dtype)] += entry.nbytes
        numbers[str(entry.dtype)] += entry.elements
    return {
        "format": "gguf",
        "version": first.version,
        "byte_order": first.byte_order,
        "alignment": first.alignment,
        "files": [header.path.name for header in headers],
        "file_bytes": sum(header.file_bytes for header in headers),
        "header_bytes": sum(header.data_offset for header in headers),
        "tensor_bytes": sum(header.tensor_bytes for header in headers),
        "padding_bytes": sum(header.padding_bytes for header in headers),
        "tensors": len(tensors),
        "bytes_by_format": dict(sizes),
        "elements_by_format": dict(numbers),
        **_grouped(metadata),
    }


def _grouped(metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Metadata by what it is about; `hyperparameters` are the architecture's own, without its name before them."""
    sections = {
        "general": "general",
        "tokenizer": "tokenizer",
        str(metadata.get("general.architecture")): "hyperparameters",
    }
    groups: dict[str, dict[str, Any]] = {"general": {}, "tokenizer": {}, "hyperparameters": {}, "others": {}}
    for key, value in metadata.items():
        section, _, rest = key.partition(".")
        if section in sections and rest:
            groups[sections[section]][rest] = _plain(value)
        else:
            groups["others"][key] = _plain(value)
    return groups


def _plain(value: Any) -> Any:
    if isinstance(value, CountedValue):
        return {"type": value.type, "count": value.count}
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


_PART = re.compile(r"^(.+)-(\d{5})-of-(\d{5})\.gguf$")
_MANY_PARTS = 1000
_MANY_TENSORS = 1 << 18  # in all parts together


class GgufReader:
    name = "gguf"
    formats = frozenset({"gguf"})

    def match(self, peek: Peek) -> float:
        return 1.0 if peek.head[:4] == MAGIC else 0.0

    def read(self, path: Path) -> Graph:
        return gguf_graph(read_headers(Path(path)))


def read_headers(path: Path) -> tuple[GgufHeader, ...]:
    """The header of a file, or of all parts of the model that the file is a part of, in order."""
    asked = read_header(path)
    count = asked.metadata.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return (asked,)
    numbered = _PART.match(path.name)
    if numbered is None or int(numbered[3]) != count or count > _MANY_PARTS:
        raise FormatError(
            f"{str(path)!r} is one of {count:,} parts, and its name does not say where the others are.",
            remedy="Parts are named NAME-00001-of-00003.gguf, and lie in one folder.",
        )
    paths = [path.with_name(f"{numbered[1]}-{part:05}-of-{numbered[3]}.gguf") for part in range(1, count + 1)]
    headers = tuple(asked if other == path else _part(other, path, count) for other in paths)
    # The parts must be each other's: no tensor twice, and as many as the first part says.
    names = [tensor.name for header in headers for tensor in header.tensors]
    if len(names) > _MANY_TENSORS or len(set(names)) != len(names):
        raise FormatError(f"The parts of {str(path)!r} do not belong together: they hold tensors of the same name.")
    announced = headers[0].metadata.get("split.tensors.count")
    if isinstance(announced, int) and announced != len(names):
        raise FormatError(f"The parts of {str(path)!r} hold {len(names):,} tensors where {announced:,} are announced.")
    return headers


def _part(path: Path, asked: Path, count: int) -> GgufHeader:
    if not path.is_file():
        raise FormatError(
            f"{str(asked)!r} is one of {count} parts, and the part {path.name!r} is missing.",
            remedy="Put all parts into one folder.",
        )
    return read_header(path)


__all__ = ["GgufReader", "read_headers", "reader"]

reader = GgufReader()
