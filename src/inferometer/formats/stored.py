"""Weights as a file holds them: put onto a graph's weights, or made into a graph where no architecture is known."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import Any

from inferometer.core.dims import Dim, Symbol
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Role, Tensor

_BATCH, _QUERY = Symbol("batch"), Symbol("query")
_SHOWN = 5  # examples in a note


@frozen
class Companion:
    """What is stored beside a quantised weight and is no parameter: scales, zero points.

    Its name is the weight's without `.weight`, and `suffix`.
    """

    suffix: str
    shape: tuple[int, ...]
    dtype: str | None
    nbytes: int


@frozen
class Stored:
    """One weight's format and exact bytes in a file. `names` are the file's tensors it is made of.

    `dtype` is None where the format has no row in `core.dtype`; the bytes are exact all the same.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str | None
    nbytes: int
    companions: tuple[Companion, ...] = ()

    @property
    def elements(self) -> int:
        return prod(self.shape)


def joined(parts: Sequence[Stored]) -> Stored:
    """Several of a file's tensors as one weight. Its format is the one most of its numbers have."""
    if len(parts) == 1:
        return parts[0]
    share: dict[str | None, int] = defaultdict(int)
    for part in parts:
        share[part.dtype] += part.elements
    return Stored(
        names=tuple(name for part in parts for name in part.names),
        shape=(sum(part.elements for part in parts),),
        dtype=max(share, key=lambda name: share[name]),
        nbytes=sum(part.nbytes for part in parts),
        companions=tuple(companion for part in parts for companion in part.companions),
    )


def all_stacked(parts: Sequence[Stored | None]) -> Stored | None:
    """The stack of all experts, or None where one of them is missing."""
    present = [part for part in parts if part is not None]
    return stacked(present) if present and len(present) == len(parts) else None


def stacked(parts: Sequence[Stored]) -> Stored:
    """Equal tensors, one an expert, as the stack that a graph has of them."""
    whole, first = joined(parts), parts[0]
    if any(part.shape != first.shape for part in parts):
        return whole
    companions = tuple(
        replace(companion, shape=(len(parts), *companion.shape), nbytes=len(parts) * companion.nbytes)
        for companion in first.companions
    )
    return replace(whole, shape=(len(parts), *first.shape), companions=companions)


def with_stored(graph: Graph, stored: Mapping[str, Stored]) -> Graph:
    """The graph with formats and bytes as stored, by each weight's full name (`model.layers.3.mlp.up_proj.weight`).

    A block whose layers are not all stored alike becomes one block for each run of layers that are: a file of mixed
    quantisation keeps more bits for some layers. Weights that `stored` does not name stay as they are.
    """
    return replace(graph, blocks=tuple(run for block in graph.blocks for run in _runs(block, stored)))


def _runs(block: Block, stored: Mapping[str, Stored]) -> Iterator[Block]:
    names = list(dict.fromkeys(weight.name for op in block.ops for weight in op.weights))

    def forms(repetition: int) -> dict[str, Stored]:
        entries = {name: stored.get(block.full_name(name, repetition)) for name in names}
        return {name: replace(entry, names=()) for name, entry in entries.items() if entry is not None}

    first = block.first
    for form, run in groupby(range(block.count), key=forms):
        count = len(list(run))
        ops = tuple(_op_with(op, form) for op in block.ops)
        yield replace(block, ops=ops, count=count, first=first)
        first += count


def _op_with(op: Op, form: Mapping[str, Stored]) -> Op:
    if not any(weight.name in form for weight in op.weights):
        return op
    weights = [_tensor_with(weight, form.get(weight.name)) for weight in op.weights]
    for weight in op.weights:
        if entry := form.get(weight.name):
            weights += [_companion(weight.name, companion) for companion in entry.companions]
    return replace(op, weights=tuple(weights))


def _tensor_with(tensor: Tensor, entry: Stored | None) -> Tensor:
    return tensor if entry is None else replace(tensor, dtype=entry.dtype, stored_bytes=entry.nbytes)


def _companion(weight: str, companion: Companion) -> Tensor:
    return Tensor(
        name=weight.removesuffix(".weight") + companion.suffix,
        shape=companion.shape,
        dtype=companion.dtype,
        role="constant",
        stored_bytes=companion.nbytes,
    )


def fit(graph: Graph, locate: Callable[[str, Tensor], Stored | None]) -> tuple[dict[str, Stored], list[str]]:
    """What the file holds for each of the graph's weights, and what does not agree.

    `locate` is given a weight's full name and its tensor.
    """
    held: dict[str, Stored] = {}
    problems: list[str] = []
    for name, weight in _full_weights(graph):
        entry = locate(name, weight)
        if entry is None:
            problems.append(f"{name} is not in the file")
        elif entry.elements != weight.elements:
            problems.append(f"{name} has {entry.elements:,} numbers where the architecture has {weight.elements}")
        else:
            held[name] = entry
    return held, problems


def _full_weights(graph: Graph) -> Iterator[tuple[str, Tensor]]:
    seen: set[str] = set()
    for block, op in graph.ops():
        for weight in op.weights:
            for repetition in range(block.count if "{}" in weight.name else 1):
                name = block.full_name(weight.name, repetition)
                if name not in seen:
                    seen.add(name)
                    yield name, weight


Test = Callable[[Stored], bool]


def with_others(
    graph: Graph, tensors: Mapping[str, Stored], used: Mapping[str, Stored], buffer: Test, copy: Test = lambda _: False
) -> tuple[Graph, list[str]]:
    """The graph with what the file holds beyond its weights, which takes room and no time.

    Whatever is no `buffer` is noted. A `copy` of a weight is noted too, though it is no parameter of its own.
    """
    names = {name for entry in used.values() for name in entry.names}
    others = [entry for name, entry in tensors.items() if name not in names]
    if not others:
        return graph, []
    ops = tuple(_stored_op(entry, "constant" if copy(entry) or buffer(entry) else "weight") for entry in others)
    weights = [entry.names[0] for entry in others if copy(entry) or not buffer(entry)]
    notes = [f"Tensors that no op uses: {listed(weights)}."] if weights else []
    return replace(graph, blocks=(*graph.blocks, Block(name="stored", ops=ops))), notes


def _stored_op(entry: Stored, role: Role) -> Op:
    return Op(name=entry.names[0], kind="view", weights=(_as_tensor(entry, role=role),), source_type="stored")


def tensors_only(problem: str) -> str:
    """The note on a graph that `tensors_graph` made, and why."""
    return (
        f"{problem}: the graph is one op for each stored weight, and what has no weights (attention, activations) is "
        "not counted."
    )


def listed(entries: Sequence[str]) -> str:
    """The first few entries, and how many more there are."""
    more = len(entries) - _SHOWN
    return "; ".join(entries[:_SHOWN]) + (f"; and {more:,} more" if more > 0 else "")


def _as_tensor(entry: Stored, *, role: Role = "weight", name: str | None = None) -> Tensor:
    return Tensor(
        name=name or entry.names[0], shape=entry.shape, dtype=entry.dtype, role=role, stored_bytes=entry.nbytes
    )


# A graph of tensors whose architecture is not known ------------------------------------------------------------------

_LAYER = re.compile(r"^(.*?)\.(\d+)\.(.+)$")
_EXPERT = re.compile(r"^(.*\bexperts)\.\d+\.(.+)$")
_TABLE = re.compile(r"(embd|embed|wte|wpe|token_types|position_ids_embedding)", re.IGNORECASE)
_WHOLE = re.compile(r"^(i|u)\d+$|^bool$")


def tensors_graph(name: str, tensors: Sequence[Stored], *, norm: str = "layer") -> Graph:
    """One op for each weight, by its shape: a matrix is multiplied with every token, a vector scales it.

    What has no weights (attention's products, activations) is not known and not there; the order is the names'. Layers
    whose weights are alike are one block.
    """
    loose: list[Stored] = []
    layers: dict[str, dict[int, list[tuple[str, Stored]]]] = defaultdict(lambda: defaultdict(list))
    for entry in _experts_stacked(tensors):
        if found := _LAYER.match(entry.names[0]):
            layers[found[1]][int(found[2])].append((found[3], entry))
        else:
            loose.append(entry)
    tables = [entry for entry in loose if _is_table(entry)]
    others = [entry for entry in loose if not _is_table(entry)]
    blocks = [
        *([Block(name="embeddings", ops=_ops([(e.names[0], e) for e in tables], norm))] if tables else []),
        *(block for prefix, found in layers.items() for block in _layer_blocks(prefix, found, norm)),
        *([Block(name="others", ops=_ops([(e.names[0], e) for e in others], norm))] if others else []),
    ]
    ids = Tensor(name="ids", shape=(_BATCH, _QUERY), role="index")
    return Graph(name=name, blocks=tuple(blocks), inputs=(ids,), metadata={"coverage": _coverage(blocks)})


def _coverage(blocks: Sequence[Block]) -> dict[str, Any]:
    """How many of the stored weights' ops have known work. Ops without weights are in neither number."""
    total, unknown = 0, dict[str, dict[str, Any]]()
    for block in blocks:
        total += block.count * len(block.ops)
        for op in block.ops:
            if op.kind == "custom":
                entry = unknown.setdefault(op.name, {"count": 0, "reason": op["reason"]})
                entry["count"] += block.count
    covered = total - sum(entry["count"] for entry in unknown.values())
    return {"nodes": total, "covered": covered, "share": covered / total if total else 1.0, "uncovered": unknown}


def _experts_stacked(tensors: Sequence[Stored]) -> Iterator[Stored]:
    """`experts.0.up.weight`, `experts.1.up.weight` … as one stack under the name `experts.*.up.weight`."""
    groups: dict[str, list[Stored]] = defaultdict(list)
    for entry in tensors:
        groups[_EXPERT.sub(r"\1.*.\2", entry.names[0])].append(entry)
    for name, parts in groups.items():
        yield replace(stacked(parts) if len(parts) > 1 else parts[0], names=(name.replace("{}", "{ }"),))


def _layer_blocks(prefix: str, layers: Mapping[int, list[tuple[str, Stored]]], norm: str) -> Iterator[Block]:
    """Runs of consecutive layers that hold the same tensors in the same formats."""
    ordered = sorted(layers)

    def alike(place: int) -> tuple[int, dict[str, tuple[tuple[int, ...], str | None, int]]]:
        """Where numbers are missing a new run starts: index − place is constant only while they follow on."""
        index = ordered[place]
        return index - place, {rest: (entry.shape, entry.dtype, entry.nbytes) for rest, entry in layers[index]}

    for _, run in groupby(range(len(ordered)), key=alike):
        places = list(run)
        first = ordered[places[0]]
        members = [(f"{prefix}.{{}}.{rest}", entry) for rest, entry in layers[first]]
        yield Block(name=prefix, ops=_ops(members, norm), count=len(places), first=first)


def _ops(members: list[tuple[str, Stored]], norm: str) -> tuple[Op, ...]:
    """A bias goes to the weight of the same module."""
    by_name = dict(members)
    ops = []
    for name, entry in members:
        stem, _, last = name.rpartition(".")
        if last == "bias" and f"{stem}.weight" in by_name:
            continue
        bias = by_name.get(f"{stem}.bias") if last == "weight" else None
        weights = [_as_tensor(entry, name=name)]
        if bias is not None:
            weights.append(_as_tensor(bias, name=f"{stem}.bias"))
        ops.append(_op(stem if last == "weight" else name, entry, tuple(weights), norm))
    return tuple(ops)


def _op(name: str, entry: Stored, weights: tuple[Tensor, ...], norm: str) -> Op:
    shape = entry.shape
    if entry.dtype is not None and _WHOLE.match(entry.dtype) and len(shape) != 2:
        return Op(name=name, kind="view", weights=tuple(replace(w, role="constant") for w in weights))
    if len(shape) == 2 and _is_table(entry):
        ids = Tensor(name="ids", shape=(_BATCH, _QUERY), role="index")
        return Op(name=name, kind="embedding", inputs=(ids,), outputs=(_rows(name, shape[1]),), weights=weights)
    if len(shape) == 2:
        return Op(
            name=name, kind="linear", inputs=(_rows(f"{name}.in", shape[1]),), outputs=(_rows(name, shape[0]),),
            weights=weights, attributes={"in_features": shape[1], "out_features": shape[0]},
        )  # fmt: skip
    if len(shape) == 1:
        return Op(
            name=name, kind="norm", inputs=(_rows(f"{name}.in", shape[0]),), outputs=(_rows(name, shape[0]),),
            weights=weights, attributes={"norm": norm, "features": shape[0]},
        )  # fmt: skip
    reason = f"a tensor with {len(shape)} axes, of an architecture that is not known"
    return Op(name=name, kind="custom", weights=weights, attributes={"reason": reason})


def _rows(name: str, features: Dim) -> Tensor:
    return Tensor(name=name, shape=(_BATCH, _QUERY, features))


def _is_table(entry: Stored) -> bool:
    return len(entry.shape) == 2 and bool(_TABLE.search(entry.names[0]))
