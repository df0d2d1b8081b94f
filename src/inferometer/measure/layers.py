"""Which layers of the model a kernel stands for.

An engine names what it ran by the file's nodes (ONNX, TFLite), by modules (PyTorch) or by tensors (GGUF). All three
lead to an op of the graph: by its own name, or by the name of a weight without its ending. A kernel that touches no
weight belongs to the op of its kind in the same part of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inferometer.cost.work.count import op_works
from inferometer.importers.words import kind_of as engine_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from inferometer.core.binding import Binding
    from inferometer.core.graph import Graph

_TIED = "output"  # llama.cpp's name for the head, also where it has the embedding's weights
_ENDINGS = (".weight", ".bias", "_weight", "_bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """An op of the graph in one repetition of its block, with its work."""

    name: str
    kind: str
    block: str
    place: int  # in the order of execution
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    by_name: Mapping[str, Layer] = field(default_factory=dict)
    by_weight: Mapping[str, Layer] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, Layer]] = field(default_factory=dict)  # by a weight's part of the model, by kind

    def find(self, names: Iterable[str], kind: str) -> tuple[Layer, ...]:
        """The layers that a kernel with these names stands for, in the order of execution."""
        found: dict[str, Layer] = {}
        for name in names:
            layer = self.by_name.get(name) or self.by_weight.get(stem(name)) or self._within(name, kind)
            if layer is not None:
                found[layer.name] = layer
        return tuple(sorted(found.values(), key=lambda layer: layer.place))

    def _within(self, name: str, kind: str) -> Layer | None:
        """What the node lies in: `layer/Node` in our own files, `node/else/Node` in a branch that is one op to us.

        Else the op of that kind in the same part of the model, or the part as a whole.
        """
        outer = name
        while (outer := outer.rpartition("/")[0]) != "":
            if (layer := self.by_name.get(outer)) is not None:
                return layer
        part = name.rpartition(".")[0]
        inside = self.parts.get(name) or (self.parts.get(part) if part else None) or {}
        return inside.get(kind) or (_whole(name, self.parts[name], kind) if name in self.parts else None)


def _whole(name: str, inside: Mapping[str, Layer], kind: str) -> Layer | None:
    """A module's own time, in none of its ops: a row of its own, in the module's block, with no work of its own."""
    first = min(inside.values(), key=lambda layer: layer.place, default=None)
    if first is None:
        return None
    part = first.name.rpartition(".")[0] or name
    return Layer(name=part, kind=kind, block=first.block, place=first.place, flops=0.0, bytes=0.0)


def layers_of(graph: Graph, binding: Binding) -> Layers:
    by_name: dict[str, Layer] = {}
    by_weight: dict[str, Layer] = {}
    families: dict[str, set[str]] = {}
    stored_as: dict[str, set[str]] = {}
    for name, weight in graph.metadata.get("stored_as", {}).items():
        stored_as.setdefault(weight, set()).add(name)
    for (block, op, work), (start, place) in zip(op_works(graph, binding), _places(graph), strict=True):
        for repetition in range(block.count):
            name = block.full_name(op.name, repetition)
            by_name[name] = Layer(
                name=name,
                kind=op.kind,
                block=block.name,
                place=start + repetition * len(block.ops) + place,
                flops=float(sum(work.flops.values())),
                bytes=float(work.bytes),
            )
            for tensor in op.weights:
                full = block.full_name(tensor.name, repetition)
                for known in {full, *stored_as.get(full, ())}:
                    weight = stem(known)
                    tied = weight in by_weight and op.kind == "linear"
                    by_weight.setdefault(_TIED if tied else weight, by_name[name])
                    families.setdefault(weight.rpartition(".")[0], set()).add(name.rpartition(".")[0])
    return Layers(by_name=by_name, by_weight=by_weight, parts=_parts(by_name, families))


def _parts(by_name: Mapping[str, Layer], families: Mapping[str, set[str]]) -> dict[str, dict[str, Layer]]:
    """For each part of the model that weights name, the first op of each kind in the ops' parts that belong to it."""
    of_part: dict[str, dict[str, Layer]] = {}
    for name, layer in by_name.items():
        of_part.setdefault(name.rpartition(".")[0], {}).setdefault(layer.kind, layer)
    return {
        weight_part: {kind: layer for part in sorted(parts) for kind, layer in of_part.get(part, {}).items()}
        for weight_part, parts in families.items()
    }


def _places(graph: Graph) -> list[tuple[int, int]]:
    """For each op where its block begins in the order of execution, and its place within a repetition."""
    found: list[tuple[int, int]] = []
    start = 0
    for block in graph.blocks:
        found += [(start, place) for place in range(len(block.ops))]
        start += block.count * len(block.ops)
    return found


def stem(name: str) -> str:
    """A weight's name without what says which of a layer's weights it is."""
    for ending in _ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def kind_of(engine_kind: str, layers: Sequence[Layer] = ()) -> str:
    """The kind of the layer that does most of the work, or else what the engine's word for the kernel says."""
    if layers:
        return main_layer(layers).kind
    return engine_word(engine_kind)


def main_layer(layers: Sequence[Layer]) -> Layer:
    return max(layers, key=lambda layer: (layer.flops, layer.bytes))
