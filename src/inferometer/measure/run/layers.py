"""Which layers of the model a kernel computes.

Engines name kernels after the file's nodes (ONNX, TFLite), modules (PyTorch) or tensors (GGUF). All three lead to an op
of the graph: by its own name, or by the name of a weight without its ending. A kernel without a weight belongs to the
op of its kind in the same part of the model.

A library may call a module otherwise than the graph does: the graph says so of its ops (`modules` in its metadata), and
an engine of its own names (`Opened.stored_names`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from typing import TypeVar

from inferometer.core.binding import Binding
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.engines.results.words import kind_of
from inferometer.predict.work.count import known_part, op_works, unknown_sizes

T = TypeVar("T")
_TIED = "output"  # llama.cpp's name for the head, even if it shares the embedding's weights
_BRANCH = re.compile("/(then|else)/")
_RESIDUAL = ".residual"  # how the sums around the parts of a layer are called
_SUM = "residual"
_SAME: Mapping[str, str] = {}
_ENDINGS = (".weight", ".bias", "_weight", "_bias")


@frozen
class GraphLayer:
    """An op of the graph in one repetition of its block, with its work."""

    name: str
    kind: str
    block: str
    place: int  # in the order of execution
    flops: float
    bytes: float
    counted: bool = True  # its work is known; else both are 0


@frozen
class Layers:
    by_name: Mapping[str, GraphLayer] = field(default_factory=dict)
    by_weight: Mapping[str, GraphLayer] = field(default_factory=dict)
    # by the part of the model in a weight's name, then by kind
    parts: Mapping[str, Mapping[str, GraphLayer]] = field(default_factory=dict)
    # by the module around several parts: the sums that it adds to what goes past them
    residuals: Mapping[str, tuple[GraphLayer, ...]] = field(default_factory=dict)
    # by the part of the model in a weight's name: its sums around attention and around the rest, in their order
    sums: Mapping[str, tuple[GraphLayer, ...]] = field(default_factory=dict)

    def find(self, names: Iterable[str], kind: str) -> tuple[GraphLayer, ...]:
        """The layers of a kernel with these names, in the order of the names."""
        layers: dict[str, GraphLayer] = {}
        for name in names:
            layer = self.by_name.get(name) or self.by_weight.get(stem(name))
            if layer is None and kind == "elementwise" and name in self.residuals:
                layers |= {sum_.name: sum_ for sum_ in self.residuals[name]}
                continue
            layer = layer or self._within(name, kind)
            if layer is not None:
                layers[layer.name] = layer
        return tuple(layers.values())

    def _within(self, name: str, kind: str) -> GraphLayer | None:
        """The layer around a node: `layer/Node` in our own files, `loop/body/Node` in a loop that we read as one op.

        Of a branch that is known to be taken, our names leave out which one it is, and its ops stand in place of the
        `If`: that belongs to the first of them. Otherwise the op of that kind in the same part of the model, or the
        part as a whole.
        """
        outer = taken = _BRANCH.sub("/", name)
        if (layer := self.by_name.get(taken)) is not None:
            return layer
        if kind == "control" and (first := self._first_inside(taken)) is not None:
            return first
        while (outer := outer.rpartition("/")[0]) != "":
            if (layer := self.by_name.get(outer)) is not None:
                return layer
        part, _, last = name.rpartition(".")
        if last.endswith(_SUM) and self.sums.get(part):  # `blk.3.attn_residual`, as llama.cpp's nodes are called
            return self.sums[part][0 if last.startswith("attn") else -1]
        known = next((near for near in (name, part) if near in self.parts), None)
        if not known:
            return None
        return self.parts[known].get(kind) or _whole(known, self.parts[known], kind)

    def _first_inside(self, name: str) -> GraphLayer | None:
        inside = (layer for full, layer in self.by_name.items() if full.startswith(f"{name}/"))
        return min(inside, key=lambda layer: layer.place, default=None)


def _whole(name: str, inside: Mapping[str, GraphLayer], kind: str) -> GraphLayer | None:
    """A module's time outside its ops: a layer of its own in the module's block, without work."""
    first = min(inside.values(), key=lambda layer: layer.place, default=None)
    if first is None:
        return None
    part = first.name.rpartition(".")[0] or name
    return GraphLayer(name=part, kind=kind, block=first.block, place=first.place, flops=0.0, bytes=0.0)


def graph_layers(
    graph: Graph, binding: Binding, stored_names: Mapping[str, str] = _SAME, *, once: bool | None = None
) -> Layers:
    """The layers of a graph. `stored_names` are the graph's names of what an engine calls otherwise.

    `once`: of the ops that run once a request, such as an encoder's; False: of the others.
    """
    by_name: dict[str, GraphLayer] = {}
    by_weight: dict[str, GraphLayer] = {}
    families: dict[str, set[str]] = {}
    stored_as: dict[str, set[str]] = {}
    for name, weight in graph.metadata.get("stored_as", {}).items():
        stored_as.setdefault(weight, set()).add(name)
    modules: Mapping[str, str] = graph.metadata.get("modules", {})
    unknown = unknown_sizes(graph, binding)
    for (block, op, work), (start, place) in zip(op_works(graph, binding), _places(graph), strict=True):
        if once is not None and bool(op.get("once")) != once:
            continue
        counted = known_part(op, unknown) is not None
        for repetition in range(block.count):
            name = block.full_name(op.name, repetition)
            by_name[name] = GraphLayer(
                name=name,
                kind=op.kind,
                block=block.name,
                place=start + repetition * len(block.ops) + place,
                flops=float(sum(work.flops.values())),
                bytes=float(work.bytes),
                counted=counted,
            )
            for tensor in op.weights:
                full = block.full_name(tensor.name, repetition)
                for known in {full, *stored_as.get(full, ())}:
                    weight = stem(known)
                    tied = weight in by_weight and op.kind == "linear"
                    by_weight.setdefault(_TIED if tied else weight, by_name[name])
                    families.setdefault(weight.rpartition(".")[0], set()).add(name.rpartition(".")[0])
            if (module := modules.get(op.name)) is not None:
                known = block.full_name(module, repetition)
                by_weight.setdefault(known, by_name[name])
                families.setdefault(known.rpartition(".")[0], set()).add(name.rpartition(".")[0])
    residuals = _residuals(by_name, families)
    parts = _parts(by_name, families, apart={sum_.name for sums in residuals.values() for sum_ in sums})
    layers = Layers(
        by_name=by_name, by_weight=by_weight, parts=parts, residuals=residuals, sums=_sums(by_name, families)
    )
    return _called_otherwise(layers, stored_names)


def _called_otherwise(layers: Layers, stored_names: Mapping[str, str]) -> Layers:
    """The layers under an engine's names as well; a name that the graph has itself keeps its meaning."""

    def with_others(known: Mapping[str, T]) -> dict[str, T]:
        return {name: known[stored] for name, stored in stored_names.items() if stored in known} | dict(known)

    if not stored_names:
        return layers
    return replace(
        layers,
        by_weight=with_others({**layers.by_name, **layers.by_weight}),
        parts=with_others(layers.parts),
        residuals=with_others(layers.residuals),
    )


def _residuals(
    by_name: Mapping[str, GraphLayer], families: Mapping[str, set[str]]
) -> dict[str, tuple[GraphLayer, ...]]:
    """The sums of each module that has the modules of several parts in it: it adds what they give, not they."""
    sums = {name.removesuffix(_RESIDUAL): layer for name, layer in by_name.items() if name.endswith(_RESIDUAL)}
    inside: dict[str, set[str]] = {}
    for family, parts in families.items():
        outer = family
        while outer := outer.rpartition(".")[0]:
            inside.setdefault(outer, set()).update(parts)
    found: dict[str, tuple[GraphLayer, ...]] = {}
    for family, parts in families.items():
        mine = [sums[part] for part in parts & inside.get(family, set()) if part in sums]
        if mine:
            found[family] = tuple(sorted(mine, key=lambda layer: layer.place))
    return found


def _sums(by_name: Mapping[str, GraphLayer], families: Mapping[str, set[str]]) -> dict[str, tuple[GraphLayer, ...]]:
    """The sums of each part of the model in the order of execution: two of a layer, or one around the whole of it."""
    found: dict[str, tuple[GraphLayer, ...]] = {}
    for family, parts in families.items():
        names = {f"{around}{_RESIDUAL}" for part in parts for around in (part, part.rpartition(".")[0])}
        found[family] = tuple(sorted((by_name[n] for n in names & by_name.keys()), key=lambda layer: layer.place))
    return found


def _parts(
    by_name: Mapping[str, GraphLayer], families: Mapping[str, set[str]], *, apart: AbstractSet[str]
) -> dict[str, dict[str, GraphLayer]]:
    """For each part that weights' names have, the first op of each kind in the parts of the ops with those weights.

    What stands `apart` is done by the module around. The products and sums of a rotary embedding are those of a part
    that has one and no others.
    """
    of_part: dict[str, dict[str, GraphLayer]] = {}
    for name, layer in by_name.items():
        if name not in apart:
            of_part.setdefault(name.rpartition(".")[0], {}).setdefault(layer.kind, layer)
    for kinds in of_part.values():
        if "rotary" in kinds:
            kinds.setdefault("elementwise", kinds["rotary"])
    return {
        weight_part: {kind: layer for part in sorted(parts) for kind, layer in of_part.get(part, {}).items()}
        for weight_part, parts in families.items()
    }


def _places(graph: Graph) -> list[tuple[int, int]]:
    """For each op: where its block begins in the order of execution, and its place within a repetition."""
    places: list[tuple[int, int]] = []
    start = 0
    for block in graph.blocks:
        places += [(start, index) for index in range(len(block.ops))]
        start += block.count * len(block.ops)
    return places


def stem(name: str) -> str:
    """A weight's name without its ending: the layer's name."""
    for ending in _ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def layer_kind(engine_kind: str, layers: Sequence[GraphLayer] = ()) -> str:
    """The kind of the layer with the most work; without layers, what the engine's word for the kernel means."""
    if layers:
        return main_layer(layers).kind
    return kind_of(engine_kind)


def main_layer(layers: Sequence[GraphLayer]) -> GraphLayer:
    return max(layers, key=lambda layer: (layer.flops, layer.bytes))
