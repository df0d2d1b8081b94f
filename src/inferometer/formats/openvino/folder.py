"""The folder of a language model: OpenVINO's network with its config beside it.

The network keeps its cache as a state, of which the file does not say how it grows. So the graph is the config's, as a
checkpoint's is, with the formats and bytes that the network has for each weight; where their names do not show which is
which, with the format that most of them have. Without a config it is the network's own, and the cache is not counted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from inferometer.core.dtypes import dtype
from inferometer.core.errors import InferometerError
from inferometer.core.json_text import parse_json
from inferometer.formats import stored
from inferometer.formats.stored import Companion, Stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from inferometer.core.graph import Graph, Op, Tensor

FORMAT = "openvino-genai"
_BEFORE = re.compile(r"^(self\.)?(model\.)*")  # modules that stand before a checkpoint's names
_NO_CACHE = "What is read of the cache is not counted: the file does not say how it grows"


def folder_graph(network: Graph, folder: Path) -> Graph:
    graph, why = _by_config(network, folder)
    if graph is None:
        sizes = {**network.metadata.get("default_sizes", {}), "beam_idx.0": 1}
        notes = (*network.metadata.get("notes", ()), f"{why}. {_NO_CACHE}.")
        graph = replace(network, metadata={**network.metadata, "default_sizes": sizes, "notes": notes})
    return replace(graph, name=folder.resolve().name, metadata={**graph.metadata, "format": FORMAT})


def _by_config(network: Graph, folder: Path) -> tuple[Graph | None, str]:
    from inferometer.formats.huggingface.graph import graph_from_config  # noqa: PLC0415 - quick to import this module

    try:
        config: dict[str, Any] = parse_json((folder / "config.json").read_text(encoding="utf-8"))
        graph = graph_from_config(config, name=folder.name)
    except (OSError, ValueError, InferometerError) as error:
        return None, f"There is no config.json that says the architecture ({error})"
    held, problems = stored.fit(graph, _locator(network))
    if not problems:
        # What is not quantised: f16 where most of the weights are so stored, else f32.
        formats = [entry.dtype for entry in held.values()]
        precision = "f16" if "f16" in formats else "f32"
        return replace(stored.with_stored(graph, held), precision=precision), ""
    usual = _usual(network)
    held, _ = stored.fit(graph, lambda _name, weight: _counted_as(weight, usual))
    note = f"The network's names do not show which weight is which: all are counted as {usual}, as most of them are."
    notes = (*graph.metadata.get("notes", ()), note)
    alike = replace(stored.with_stored(graph, held), precision="f16" if usual == "f16" else "f32")
    return replace(alike, metadata={**alike.metadata, "notes": notes}), ""


def _counted_as(weight: Tensor, usual: str) -> Stored:
    """A matrix in the usual format; vectors stay as they are."""
    shape = _numbers(weight)
    name = usual if len(shape) > 1 else "f32"
    return Stored(names=(), shape=shape, dtype=name, nbytes=ceil(prod(shape) * dtype(name).bits / 8))


def _usual(network: Graph) -> str:
    """The format that most numbers of its weights have."""
    numbers: Counter[str] = Counter()
    for weight, _ in network.weights():
        if weight.role == "weight" and weight.dtype is not None:
            numbers[weight.dtype] += prod(_numbers(weight))
    return numbers.most_common(1)[0][0] if numbers else "f32"


def _locator(network: Graph) -> Callable[[str, Tensor], Stored | None]:
    weights = {
        _plain(weight.name): _stored(op, weight)
        for _, op in network.ops()
        for weight in op.weights
        if weight.role == "weight"
    }

    def locate(name: str, weight: Tensor) -> Stored | None:
        found = weights.get(_plain(name))
        if found is None and len(weight.shape) == 1 and isinstance(weight.shape[0], int):
            # A vector of ones is left out by the converter: nothing is multiplied.
            return Stored(names=(), shape=(weight.shape[0],), dtype="f32", nbytes=0)
        return found

    return locate


def _plain(name: str) -> str:
    return _BEFORE.sub("", name)


def _stored(op: Op, weight: Tensor) -> Stored:
    """With the scales that the file has for it."""
    scales = [other for other in op.weights if other.name.startswith(f"{weight.name}/")]
    return Stored(
        names=(weight.name,),
        shape=_numbers(weight),
        dtype=weight.dtype,
        nbytes=int(weight.stored_bytes or 0),
        companions=tuple(
            Companion(
                suffix=f".{other.name.rpartition('/')[2]}", shape=_numbers(other), dtype=other.dtype,
                nbytes=int(other.stored_bytes or 0),
            )
            for other in scales
        ),
    )  # fmt: skip


def _numbers(tensor: Tensor) -> tuple[int, ...]:
    return tuple(size for size in tensor.shape if isinstance(size, int))
