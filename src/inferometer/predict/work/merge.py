"""A graph with some sizes put in, and as an engine loads it: products joined, what it never quantises, or widens.

Serving engines store the query, key and value projections as one matrix, and so the gate and the up projection: one
kernel reads the input once. The parts of its output are views. Quantised checkpoints leave some weights as they were,
and files of GGUF keep the matrix that gives the logits in more bits than the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import is_
from typing import TYPE_CHECKING, Any

from inferometer.core.dims import Expression, Symbol, evaluate, symbols_in
from inferometer.core.dtypes import dtype, is_gguf_block
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.core.kept import Kept
from inferometer.predict.precision import UNSTATED, widened_by

if TYPE_CHECKING:
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.workload import Precision

# A graph with some of its sizes put in: an image's, an encoder's.
#
# What it buys: ops that differ in the expression of a size and not in its value become one row, and models of images
# are prepared in half the time. tests/property/test_work_rules.py holds that their work stays the same.


def with_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with numbers for these sizes; the other sizes keep their names. One that has none of them stays."""
    if graph.symbols.isdisjoint(sizes):
        return graph
    names = _Names(sizes=sizes)
    blocks = tuple(replace(block, ops=tuple(names.op(op) for op in block.ops)) for block in graph.blocks)
    return replace(
        graph,
        blocks=blocks,
        inputs=tuple(names.tensor(tensor) for tensor in graph.inputs),
        outputs=tuple(names.tensor(tensor) for tensor in graph.outputs),
    )


@dataclass(slots=True)
class _Names:
    """Each dimension and tensor is replaced once: graphs pass the same values from op to op.

    Values are recognised by their identity, and kept, so that no other value gets the same one.
    """

    sizes: Mapping[str, int]
    seen: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def dim(self, dim: Any) -> Any:
        if not isinstance(dim, Symbol | Expression):
            return dim
        if id(dim) not in self.seen:
            names = {name: self.sizes.get(name, Symbol(name)) for name in symbols_in(dim)}
            self.seen[id(dim)] = (dim, evaluate(dim, names))
        return self.seen[id(dim)][1]

    def tensor(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self.seen:
            shape = tuple(self.dim(dim) for dim in tensor.shape)
            changed = any(new is not old for new, old in zip(shape, tensor.shape, strict=True))
            self.seen[id(tensor)] = (tensor, replace(tensor, shape=shape) if changed else tensor)
        sized: Tensor = self.seen[id(tensor)][1]
        return sized

    def op(self, op: Op) -> Op:
        return replace(
            op,
            inputs=tuple(self.tensor(tensor) for tensor in op.inputs),
            outputs=tuple(self.tensor(tensor) for tensor in op.outputs),
            weights=tuple(self.tensor(tensor) for tensor in op.weights),
            attributes={key: self._value(value) for key, value in op.attributes.items()},
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, Op):
            return self.op(value)
        if isinstance(value, tuple):
            return tuple(self._value(part) for part in value)
        return self.dim(value)


# By engine and formats: rates and layouts are kept by the graph's identity, so a graph made anew would be priced anew.
_graphs = Kept(512)
_HEAD_FORMAT = "q6_k"  # llama-quantize's choice for the matrix that makes the logits


def as_loaded(graph: Graph, effects: RuntimeEffects, precision: Precision) -> Graph:
    """The same graph for an engine that changes nothing; the same value for the same arguments."""
    graph = _with_wide_head(graph, precision.weights)
    widened = widened_by(graph, precision, effects)
    if not effects.merged and not effects.unquantised and not widened:
        return graph
    weights = precision.weights or (None if effects.held else graph.precision or UNSTATED)
    key = (effects.merged, effects.unquantised, tuple(widened.items()), weights)
    return _graphs.get_or_make(key, (graph,), lambda: _loaded(graph, effects, widened, weights))


def _loaded(graph: Graph, effects: RuntimeEffects, widened: Mapping[str, str], weights: str | None) -> Graph:
    native = graph.precision or "bf16"  # as most language models are published
    blocks = []
    for block in graph.blocks:
        ops = tuple(_kept_wide(op, effects.unquantised, native) for op in block.ops)
        if widened:
            ops = tuple(_widened(op, widened, weights, tables=bool(effects.held)) for op in ops)
        for group in effects.merged:
            ops = _merged(ops, group)
        blocks.append(replace(block, ops=ops))
    same = all(
        len(loaded.ops) == len(block.ops) and all(map(is_, loaded.ops, block.ops))
        for loaded, block in zip(blocks, graph.blocks, strict=True)
    )
    return graph if same else replace(graph, blocks=tuple(blocks))


def folded(graph: Graph, effects: RuntimeEffects) -> Graph:
    """Without what is computed in f64 of nothing but constants, such as sines of places: a compiler does that itself.

    Few devices have arithmetic for it, and none of what a model is given is in f64.
    """
    if effects.fusion == "none":
        return graph
    return _graphs.get_or_make("folded", (graph,), lambda: _without_constants(graph))


def _without_constants(graph: Graph) -> Graph:
    blocks = []
    for block in graph.blocks:
        known: set[str] = set()  # tensors that no input had a part in
        kept = []
        for op in block.ops:
            constant = not op.weights and all(tensor.name in known for tensor in op.inputs)
            if constant:
                known |= {tensor.name for tensor in op.outputs}
            if not (constant and any(tensor.dtype == "f64" for tensor in (*op.inputs, *op.outputs))):
                kept.append(op)
        blocks.append(block if len(kept) == len(block.ops) else replace(block, ops=tuple(kept)))
    same = all(map(is_, blocks, graph.blocks))
    return graph if same else replace(graph, blocks=tuple(blocks))


def _with_wide_head(graph: Graph, weights: str | None) -> Graph:
    """llama-quantize stores the output matrix (or the embedding that serves as one) in Q6_K, below that format."""
    if weights is None or not is_gguf_block(weights) or dtype(weights).bits >= dtype(_HEAD_FORMAT).bits:
        return graph
    return _graphs.get_or_make(("head",), (graph,), lambda: _headed(graph))


def _headed(graph: Graph) -> Graph:
    heads = {op.weights[0].name for _, op in graph.ops() if op.name == "lm_head" and op.weights}
    blocks = []
    for block in graph.blocks:
        held = [any(tensor.name in heads for tensor in op.weights) for op in block.ops]
        ops = (_kept_wide(op, ("*",), _HEAD_FORMAT) if wide else op for op, wide in zip(block.ops, held, strict=True))
        blocks.append(replace(block, ops=tuple(ops)) if any(held) else block)
    return replace(graph, blocks=tuple(blocks)) if heads else graph


def _kept_wide(op: Op, patterns: Iterable[str], native: str) -> Op:
    if not op.weights or not any(fnmatchcase(op.name, pattern) for pattern in patterns):
        return op
    return replace(
        op,
        weights=tuple(
            replace(tensor, dtype=native) if tensor.dtype is None and tensor.role == "weight" else tensor
            for tensor in op.weights
        ),
    )


def _widened(op: Op, widened: Mapping[str, str], weights: str | None, *, tables: bool) -> Op:
    """Weights in the format that they are kept in.

    Most engines read `tables` that are looked up a row at a time, and vectors, as they are.
    """
    stored = [tensor.dtype or weights or "" for tensor in op.weights]
    if (op.kind == "embedding" and not tables) or not any(name in widened for name in stored):
        return op
    return replace(
        op,
        weights=tuple(
            replace(tensor, dtype=widened[name], stored_bytes=None)  # the file's bytes are of the narrow format
            if name in widened and tensor.role == "weight" and (tables or len(tensor.shape) > 1)
            else tensor
            for tensor, name in zip(op.weights, stored, strict=True)
        ),
    )


def _merged(ops: tuple[Op, ...], group: tuple[str, ...]) -> tuple[Op, ...]:
    """Join linear ops whose last names are the group's and that read one tensor, at the place of the first."""
    members: dict[tuple[str, str], list[Op]] = {}
    for op in ops:
        last = op.name.rpartition(".")[2]
        # By the last part of the name (q_proj, gate_proj), and under one parent: a group is of one layer.
        if op.kind == "linear" and last in group and len(op.inputs) == 1 and len(op.outputs) == 1:
            members.setdefault((op.name.rpartition(".")[0], op.inputs[0].name), []).append(op)
    joined = {id(found[0]): found for found in members.values() if len(found) > 1 and _alike(found)}
    gone = {id(op) for found in joined.values() for op in found[1:]}
    result: list[Op] = []
    for op in ops:
        if id(op) in joined:
            result += _joined(joined[id(op)])
        elif id(op) not in gone:
            result.append(op)
    return tuple(result)


def _alike(found: list[Op]) -> bool:
    return len({(len(op.weights), *(tensor.dtype for tensor in op.weights)) for op in found}) == 1


def _joined(found: list[Op]) -> tuple[Op, Op]:
    """One product, and the views of its parts under the names they had."""
    first = found[0]
    wide = sum(op.outputs[0].shape[-1] for op in found)
    home, _, _ = first.name.rpartition(".")
    last = "+".join(op.name.rpartition(".")[2] for op in found)
    name = f"{home}.{last}" if home else last
    output = replace(first.outputs[0], name=f"{first.outputs[0].name}+", shape=(*first.outputs[0].shape[:-1], wide))
    weights = tuple(_stacked([op.weights[index] for op in found]) for index in range(len(first.weights)))
    product = replace(
        first,
        name=name,
        outputs=(output,),
        weights=weights,
        attributes={**first.attributes, "out_features": wide},
    )
    view = Op(name=f"{name}.parts", kind="view", inputs=(output,), outputs=tuple(op.outputs[0] for op in found))
    return product, view


def _stacked(tensors: list[Tensor]) -> Tensor:
    """Tensors one above the other: the first dimension adds up, and so do the bytes that files stated."""
    stored = [tensor.stored_bytes for tensor in tensors]
    rows = sum(tensor.shape[0] for tensor in tensors)
    # One that is not stated leaves the sum to the shape and the format.
    nbytes = None if any(each is None for each in stored) else sum(each for each in stored if each is not None)
    return replace(tensors[0], shape=(rows, *tensors[0].shape[1:]), stored_bytes=nbytes)
