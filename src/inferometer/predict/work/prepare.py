"""A graph made ready to be priced many times: its distinct ops, and their work as polynomials in the sizes.

A row's quantities are polynomials in batch, query, context and logits where its rule is one; the others are counted
with numbers each time. What it buys: the work of a workload, or of a million, is one matrix product instead of a run of
every rule. tests/property/test_price.py holds both together. Nothing here knows a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.binding import Binding
from inferometer.core.dtypes import dtype
from inferometer.core.engine import RuntimeEffects
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op
from inferometer.core.kept import Kept
from inferometer.core.workload import Precision
from inferometer.predict.work.classes import FREE, MATRIX, is_padded
from inferometer.predict.work.collect import CollectedRows, Entry, OpRow, collect
from inferometer.predict.work.count import unknown_sizes
from inferometer.predict.work.polynomial import (
    NAMES,
    SYMBOLIC,
    Memo,
    MemoBinding,
    NotPolynomialError,
    Polynomial,
    SymbolicBinding,
    coefficients,
    formats_that_matter,
    larger,
    monomials_of,
    remembered,
    smaller,
    spread_monomials,
)
from inferometer.predict.work.rules import work_of
from inferometer.predict.work.rules.attention import attention_pairs, sequences
from inferometer.predict.work.rules.indexing import lookup
from inferometer.predict.work.rules.linear import recurrent_products

if TYPE_CHECKING:
    from inferometer.core.work import Work
    from inferometer.predict.parallel import Placed

PARTS = ("weights", "activations", "kv", "link", "extra_bytes", "extra_flops", "unpack", "flops", "bytes")
_UNPACKED = frozenset({"linear", "experts"})
# Rows that reading a cell's matrices takes as long as: 2 by an LSTM on a Xeon (see cpu-recurrent in priors.toml), 0.8
# to 1.8 by LSTMs of 64 to 256 units on another x86 core, and 8 where matrices of 512 units leave its nearer caches.
_STATE_ROWS = 2
_MOVE_THEIR_OWN = frozenset({"control", "moe_router", "moe_experts"})
_FLOATS = dtype("f32")  # what bytes are turned to where an engine has no products of bytes


@frozen
class Terms:
    """On what terms a graph is run: formats, runtime, pipeline stages.

    `offloaded` are the places (block, op) whose weights lie elsewhere.
    """

    precision: Precision
    effects: RuntimeEffects
    stages: int = 1
    offloaded: frozenset[tuple[int, int]] = frozenset()
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)  # shared by all terms for a graph

    def symbolic(self) -> Binding:
        """A binding in which the sizes that change are names."""
        return SymbolicBinding(sizes=NAMES, precision=self.precision, memo=self.memo)


@frozen
class Quantities:
    """Of each row, for one device: arrays [rows, n] for n workloads (sizes that are arrays, flattened).

    `flops_by` has the operations by arithmetic format. `activations` are what fusion leaves of them. The extras are
    what the runtime does on top: they take time, and are no part of the floor. `unpack` are the operations of one row
    with all weights that are read, which engines spend on widening them, too. `flops` and `bytes` are the op's own,
    whatever runs it: the sum over all devices.
    """

    flops_by: Mapping[str, Any]
    weights: Any
    activations: Any
    kv: Any
    link: Any
    extra_bytes: Any
    extra_flops: Any
    unpack: Any
    flops: Any
    bytes: Any


@frozen
class AlikeRows:
    """Rows that are computed alike: the same kind of op, weights stored alike, work counted in the format `key`."""

    op: Op
    key: str
    rows: list[int]


@frozen
class PreparedWork:
    graph: Graph
    collected: CollectedRows
    terms: Terms
    keys: tuple[str, ...]
    arithmetic: tuple[AlikeRows, ...]
    monomials: tuple[tuple[str, ...], ...]
    matrix: Any  # [quantities · rows, monomials]
    loose: Mapping[int, str]  # rows that are no polynomials, each with the first format its work is counted in
    tables: Mapping[int, float]  # rows that look up: the bytes of their tables, of which they read no more than all

    @property
    def rows(self) -> tuple[OpRow, ...]:
        return self.collected.rows

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.collected.entries

    def binding(self, sizes: Mapping[str, Any]) -> Binding:
        return Binding(sizes=sizes, precision=self.terms.precision)

    @property
    def effects(self) -> RuntimeEffects:
        return self.terms.effects

    def counts(self, *, once: bool) -> Any:
        """How often each row runs in a step; rows that run once a request are counted apart."""
        return self.collected.repeats[once]

    def names_of(self, number: int) -> frozenset[str]:
        """The sizes that a row's work depends on, as far as it is polynomials of them."""
        used = self.by_row()[:, number].any(axis=0)
        return frozenset(
            name for monomial, is_used in zip(self.monomials, used, strict=True) if is_used for name in monomial
        )

    def only(self, numbers: Sequence[int]) -> PreparedWork:
        """Some of the rows, to be counted and priced; what they are called is left out."""
        index = {number: index for index, number in enumerate(numbers)}
        collected = CollectedRows(
            rows=tuple(self.rows[number] for number in numbers),
            entries=(),
            repeats=(self.collected.repeats[0][numbers], self.collected.repeats[1][numbers]),
        )
        return replace(
            self,
            collected=collected,
            matrix=self.by_row()[:, numbers].reshape(-1, len(self.monomials)),
            loose={index[number]: key for number, key in self.loose.items() if number in index},
            tables={index[number]: most for number, most in self.tables.items() if number in index},
        )

    def by_row(self) -> Any:
        """The matrix as [quantities, rows, monomials]."""
        return self.matrix.reshape(-1, len(self.rows), len(self.monomials))

    def quantities(self, sizes: Mapping[str, Any]) -> Quantities:
        """Every row's work at these sizes: one matrix product, and the loose rows one by one."""
        known = {name: sizes[name] for name in SYMBOLIC if name in sizes}
        shapes = [value.shape for value in sizes.values() if isinstance(value, np.ndarray)]
        shape = np.broadcast_shapes(*shapes) if shapes else ()
        # One product for all rows and sizes: run rule by rule, a sweep would spend most of its time in Python.
        values = self.matrix @ spread_monomials(self.monomials, known, shape)
        table = values.reshape(len(self.keys) + len(PARTS), len(self.rows), -1)
        if self.loose:
            for number, counted in zip(self.loose, self.loose_work(sizes), strict=True):
                for index, name in enumerate((*self.keys, *PARTS)):
                    if name in counted:
                        table[index, number] = np.ravel(np.broadcast_to(counted[name], shape))
        parts = dict(zip((*self.keys, *PARTS), table, strict=True))
        for number, most in self.tables.items():
            # A batch that looks up more rows than the table has reads the table once, as the rule counts it with
            # numbers.
            over = parts["weights"][number] - most
            if (over[0] if len(over) == 1 else over.max()) > 0:
                over = np.maximum(0.0, over)
                parts["weights"][number] -= over
                parts["bytes"][number] -= over
        flops_by = {key.removeprefix("flops:"): parts.pop(key) for key in self.keys}
        return Quantities(flops_by=flops_by, **parts)

    def loose_work(self, sizes: Mapping[str, Any], memo: Memo | None = None) -> list[dict[str, Any]]:
        """The quantities by name of each of the loose rows; `memo` has what was counted at the same sizes before."""
        precision = self.terms.precision
        binding = self.binding(sizes) if memo is None else MemoBinding(sizes=sizes, precision=precision, memo=memo)
        return [
            _in_one(quantities_of(self.rows[number], binding, self.effects), key) for number, key in self.loose.items()
        ]


def _in_one(quantities: dict[str, Any], key: str) -> dict[str, Any]:
    """All operations of a loose row under one format."""
    counted = [name for name in quantities if name.startswith("flops:")]
    total = sum(quantities.pop(name) for name in counted)
    return {**quantities, f"flops:{key}": total}


_of_alike = Kept(20_000)  # by formats: what rows of different graphs have in common; some 2 kB each


def prepare(
    graph: Graph, placed: list[list[Placed]], terms: Terms, *, collected: CollectedRows | None = None
) -> PreparedWork:
    """`collected` are the graph's distinct ops for this runtime and plan, where they were found before."""
    binding = terms.symbolic()
    if collected is None:
        unknown = unknown_sizes(graph, binding)
        collected = collect(graph, placed, terms.effects, unknown=unknown, offloaded=terms.offloaded)
    by_row: list[dict[str, Any]] = []
    formats: list[tuple[str, ...]] = []
    loose, tables = {}, {}
    for number, row in enumerate(collected.rows):
        make = partial(_polynomials, row, binding, terms.effects)
        if row.alike is None:
            quantities = remembered("quantities", row, row.op, binding, make)
        else:
            asked = formats_that_matter(row.op, binding)
            quantities = _of_alike.get_or_make(asked, (row.alike, terms.effects), make)
        counted = [name.removeprefix("flops:") for name in quantities or () if name.startswith("flops:")]
        formats.append(tuple(counted) or (binding.arithmetic(row.op),))
        if quantities is None:
            # What is no polynomial is counted with numbers each time, and must then not change its format with them.
            loose[number] = formats[-1][0]
        elif row.op.kind == "embedding":
            tables[number] = row.scale.weights * sum(float(binding.nbytes(weight)) for weight in row.op.weights)
        by_row.append(quantities or {})
    keys = tuple(dict.fromkeys(f"flops:{name}" for names in formats for name in names))
    ordered = [of_row.get(name, 0) for name in (*keys, *PARTS) for of_row in by_row]
    monomials = monomials_of(ordered)
    return PreparedWork(
        graph=graph,
        collected=collected,
        terms=terms,
        keys=keys,
        arithmetic=_counted(collected.rows, formats, binding),
        monomials=monomials,
        matrix=coefficients(ordered, monomials),
        loose=loose,
        tables=tables,
    )


def _counted(rows: tuple[OpRow, ...], formats: list[tuple[str, ...]], binding: Binding) -> tuple[AlikeRows, ...]:
    """The rows grouped by what decides their arithmetic; rows that compute nothing are left out."""
    alike: dict[tuple[Any, ...], AlikeRows] = {}
    for number, (row, names) in enumerate(zip(rows, formats, strict=True)):
        # They take no arithmetic of the device: with them a peak of a format that nothing computes in would be asked
        # for.
        if row.op_class in FREE or row.op_class == "collective":
            continue
        stored = binding.format(row.op.weights[0]).name if row.op.weights else None
        for key in names:
            signature = (row.op.kind, row.op_class in MATRIX, stored, key)
            alike.setdefault(signature, AlikeRows(op=row.op, key=key, rows=[])).rows.append(number)
    return tuple(alike.values())


def _polynomials(row: OpRow, binding: Binding, effects: RuntimeEffects) -> dict[str, Any] | None:
    """The row's quantities with names for sizes; None where they are no polynomials, or the size is not bound yet."""
    try:
        return quantities_of(row, binding, effects)
    except (NotPolynomialError, TypeError):
        return None


def quantities_of(row: OpRow, binding: Binding, effects: RuntimeEffects) -> dict[str, Any]:
    """A row's quantities by name, with `flops:FORMAT` for each format: plain arithmetic, as in the rules."""
    if row.part is None:
        return {}
    part = row.part
    undivided = remembered("work", part, part, binding, lambda: _work(part, binding))
    if row.op.kind == "collective":
        message = row.op.get("share", 1) * binding.nbytes(row.op.inputs[0])
        return {"link": message}
    work = undivided
    if row.scale.batch != 1:  # experts see the tokens of all replicas that share them
        sizes = {**binding.sizes, "batch": row.scale.batch * binding.sizes["batch"]}
        work = work_of(row.part, Binding(sizes=sizes, precision=binding.precision))
    # Activations that move: all but the ones inside the op's group.
    kept_in = sum(binding.nbytes(tensor) for tensor in dict.fromkeys(row.fused.reads) if tensor.role == "activation")
    kept_out = sum(binding.nbytes(tensor) for tensor in row.fused.writes if tensor.role == "activation")
    reads = row.scale.reads * (work.reads - kept_in)
    writes = row.scale.writes * (work.writes - kept_out)
    moved = reads + writes
    # A group may keep more than the rule counts, as it does for a tensor that is read twice; a polynomial has no sign
    # yet.
    activations = moved if isinstance(moved, Polynomial) else larger(0, moved)
    # Each kernel beyond the first reads what the one before it has written; a loop's kernels each move their own, and
    # ops that choose and sort for experts move indices.
    again = 0 if row.op.kind in _MOVE_THEIR_OWN else max(0, row.fused.launches - 1)
    passed = again * activations * _floats_for_bytes(row.op, binding, effects)
    extra_bytes = _extra_bytes(row, work, binding, effects) + passed
    flops = {f"flops:{name}": row.scale.flops * count for name, count in work.flops.items()}
    return {
        **flops,
        "weights": row.scale.weights * work.weights,
        "activations": activations,
        "kv": row.scale.kv * (work.kv_reads + work.kv_writes),
        "link": row.scale.weights * work.weights if row.offloaded else 0,
        "extra_bytes": extra_bytes,
        "extra_flops": _extra_flops(row, binding, effects),
        "unpack": _unpack(row, binding) * work.weights,
        "flops": undivided.total_flops,
        "bytes": undivided.bytes,
    }


def _work(op: Op, binding: Binding) -> Work:
    """As the rules count it, but for a table's limit, which no polynomial can say: `PreparedWork.tables` has it."""
    if op.kind == "embedding" and isinstance(binding, SymbolicBinding):
        return lookup(op, binding, lambda ids, _entries: ids)
    return work_of(op, binding)


def _extra_bytes(row: OpRow, work: Work, binding: Binding, effects: RuntimeEffects) -> Any:
    """Bytes that the runtime moves beyond the op's own: an expanded cache, masks and scores, widened weights."""
    op = row.op
    if op.kind == "attention":
        # Written out, keys of one head serve all queries as they are, and no mask is beside the scores of every head.
        if passes := effects.scored(op):
            pairs = sequences(op, binding) * op["heads"] * _rectangle(op, binding)
            return row.scale.reads * passes * _FLOATS.nbytes(pairs)
        times = 0.0 if effects.cache_moves is None else effects.cache_moves.value - 1
        shared = op["heads"] // op.get("kv_heads", op["heads"])
        if effects.cache == "repeated" and shared > 1:
            # written once for each head that shares it, and read
            times = times + shared * (2 if effects.repeat_moves is None else effects.repeat_moves.value)
        return row.scale.kv * times * work.kv_reads + row.scale.reads * _score_bytes(op, binding, effects)
    if op.kind == "ssm_scan" and (passes := effects.scored(op)):
        counted = _chunk_products if "chunk" in op.attributes else _states
        return row.scale.reads * passes * _FLOATS.nbytes(counted(op, binding))
    if op.weights and effects.expanded and op.kind != "embedding":
        stored, wide = binding.format(op.weights[0]), binding.format(op.inputs[0]) if op.inputs else None
        if _floats_for_bytes(op, binding, effects) > 1:
            wide = _FLOATS
        elif wide is None or wide.bits <= stored.bits or not effects.expands(op, stored.name):
            return 0
        return row.scale.weights * 2 * wide.nbytes(binding.elements(op.weights[0]))  # written wide, and read again
    return 0


def _chunk_products(op: Op, binding: Binding) -> Any:
    """Numbers that Mamba-2's scan in chunks writes out as broadcast products, to sum them in a kernel of their own.

    In each head, for each token of a chunk and each other: C · B along the state and, so weighted, x along the head;
    for each token, B · x into the chunk's state and C · state out of it. A prompt is padded to whole chunks; a step of
    one token updates the state as it is. Left out are the passes over one number a pair of tokens, 3 % beside these.
    """
    batch, tokens, chunk = binding.size(op.inputs[0].shape[0]), binding.size(op.inputs[0].shape[1]), op["chunk"]
    padded = (tokens + chunk - 1) // chunk * chunk
    head_dim, state = op["inner"] // op["heads"], op["state"]
    each = op["heads"] * (chunk * (state + head_dim) + 2 * state * head_dim)
    return batch * np.where(tokens > 1, padded, 0) * each


def _states(op: Op, binding: Binding) -> Any:
    """Numbers of the state of each token, which Mamba-1's scan writes out for a whole prompt before it goes over it."""
    return binding.elements(op.inputs[0]) * op["state"]


def _floats_for_bytes(op: Op, binding: Binding, effects: RuntimeEffects) -> float:
    """How many times an op's activations a pass beside it moves: floats, where an engine turns bytes to them."""
    if not effects.expanded or not op.weights or not op.inputs:
        return 1
    stored, read = binding.format(op.weights[0]), binding.format(op.inputs[0])
    is_both = read.bits < _FLOATS.bits and effects.expands(op, f"{stored.name}/{read.name}")
    return float(_FLOATS.bits / read.bits) if is_both else 1


def _score_bytes(op: Op, binding: Binding, effects: RuntimeEffects) -> Any:
    """Masked attention reads a mask; materialised attention also moves its scores, before and after the softmax.

    What masks nothing has no mask: an image's patches.
    """
    if effects.attention == "flash" or not (op.get("cached") or op.get("window") or is_padded(op)):
        return 0
    width = binding.format(op.inputs[0]).block_bytes
    pairs = sequences(op, binding) * _rectangle(op, binding) * width
    # Per head the scores are written, read by the softmax, written by it and read by the product with the values: four
    # times.
    return pairs if effects.attention == "masked" else pairs * (1 + 4 * op["heads"])


def _rectangle(op: Op, binding: Binding) -> Any:
    """(query, key) pairs without leaving any out. A cache keeps no more than a window, and a prompt is met whole."""
    query, context = binding.size(op["query"]), binding.size(op.get("context", 0))
    if op.get("cross"):
        return query * context
    window = op.get("window") if op.get("cached") else None
    return query * (context + query if window is None else smaller(context + query, larger(window, query)))


def _unpack(row: OpRow, binding: Binding) -> float:
    """Operations a byte of weights: a multiply and an add with each number that is stored there."""
    if row.op_class not in _UNPACKED or not row.op.weights:
        return 0.0
    # Two operations for each of the 8 / bits numbers in a byte.
    return row.scale.weights * 16 / float(binding.format(row.op.weights[0]).bits)


def _extra_flops(row: OpRow, binding: Binding, effects: RuntimeEffects) -> Any:
    """What a path with a mask computes for pairs that the mask then drops, and what reading takes as long as.

    A recurrent cell reads its matrices anew at every step, whatever the batch: as long as some rows more would take.

    Gathered are the windows of each output, K numbers a group, for its M filters: as many products as R filters more.
    """
    op = row.op
    rows = effects.gathering(op)
    if rows and op.outputs:
        filters = op["out_channels"] // op.get("groups", 1)
        outputs = binding.elements(op.outputs[0])
        products = outputs * (op["in_channels"] // op.get("groups", 1)) * prod(op["kernel"])
        return row.scale.flops * 2 * rows / filters * products
    if op.kind == "recurrent":
        return row.scale.flops * _STATE_ROWS * recurrent_products(op, binding)
    if op.kind != "attention" or effects.attention == "flash" or not (op.get("cached") or op.get("window")):
        return 0
    width = op["head_dim"] + op.get("value_dim", op["head_dim"])
    dropped = _rectangle(op, binding) - attention_pairs(op, binding)
    return row.scale.flops * 2 * width * op["heads"] * sequences(op, binding) * dropped
