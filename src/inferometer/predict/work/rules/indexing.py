"""Ops that address: they read or write the places that indices name."""

from collections.abc import Callable
from typing import Any

from inferometer.core.binding import Binding
from inferometer.core.dims import product
from inferometer.core.graph import Op
from inferometer.core.work import Work
from inferometer.predict.work.polynomial import ceil_log2, larger, smaller
from inferometer.predict.work.rules.attention import SOFTMAX_FLOPS
from inferometer.predict.work.rules.registry import moving, rule, streams


@rule("embedding")
def embedding(op: Op, binding: Binding) -> Work:
    """One row of the table is read for each id, and none is computed on.

    ids · bytes of a row, from the weights' stream, and never more than the whole table: a row that is asked for twice
    is read once when all are. Scales stored beside the table are read by the same rows. Without an input (positions
    that count up) the outputs say how many rows there are.
    """
    return lookup(op, binding, smaller)


def lookup(op: Op, binding: Binding, at_most: Callable[[Any, Any], Any]) -> Work:
    """An embedding's work. `at_most` bounds the rows read from a table, by the tokens looked up and its entries."""
    table = op.weights[0]
    if op.inputs:
        ids = binding.elements(op.inputs[0])
    else:
        ids = binding.elements(op.outputs[0]) // binding.size(product(table.shape[1:]))
    gathered: Any = 0
    for weight in op.weights:
        entries = binding.size(weight.shape[0])
        # Rounded up: rows of packed formats begin at a whole byte.
        gathered = gathered + -(-binding.nbytes(weight) // entries) * at_most(ids, entries)
    return Work(**streams(op, binding) | {"weights": gathered})


@rule("gather")
def gather(op: Op, binding: Binding) -> Work:
    """The indices and what they name are read, and as many bytes are written.

    What they name has the outputs' size, and is never more than there is: the first input, or the weights where the
    data is stored in the model.
    """
    moved = streams(op, binding)
    named = sum(binding.nbytes(tensor) for tensor in op.outputs)
    if op.weights:
        return Work(**moved | {"weights": smaller(moved["weights"], named)})
    data = binding.nbytes(op.inputs[0])
    # What beams copy of the cache counts as the cache's stream, as attention's reads of it do.
    stream = "kv_reads" if op.inputs[0].role == "kv" else "reads"
    return Work(**moved | {stream: moved[stream] - data + smaller(data, named)})


@rule("scatter")
def scatter(op: Op, binding: Binding) -> Work:
    """Inputs are data, indices, updates. A new tensor is made: all three are read and all of it is written.

    `in_place` reads indices and updates only, and writes the updates. A `reduction` other than none computes one
    operation for each update.
    """
    moved = streams(op, binding)
    updates = op.inputs[-1]
    if op.get("in_place"):
        read = sum(binding.nbytes(tensor) for tensor in op.inputs[1:])
        # The data are touched only where the updates go, which stand in `writes` already.
        moved |= {"reads": read, "writes": binding.nbytes(updates), "kv_reads": 0, "kv_writes": 0}
    reduced = op.get("reduction") not in {None, "none"}
    flops = {binding.arithmetic(op): binding.elements(updates)} if reduced else {}
    return Work(flops=flops, **moved)


@rule("sort")
def sort(op: Op, binding: Binding) -> Work:
    """Sorting n numbers takes n·log₂ n comparisons; keeping the best k takes n·log₂ k (a heap of k), at least n.

    n is the length of the `axis` (the last one where not given); logarithms are rounded up.
    """
    x = op.inputs[0]
    length = binding.size(x.shape[op.get("axis", -1)])
    kept = binding.size(op["k"]) if op.get("k") is not None else length
    return moving(op, binding, binding.elements(x) * selection_flops(smaller(kept, length)))


def selection_flops(kept: Any) -> Any:
    """Comparisons a candidate when the best `kept` are wanted."""
    # Keeping one takes a comparison for each candidate, though the logarithm of 1 is 0.
    return larger(1, ceil_log2(larger(1, kept)))


@rule("sampling")
def sampling(op: Op, binding: Binding) -> Work:
    """From logits to a token: a softmax (5 a candidate) and, where asked, the best `top_k` (log₂ k comparisons each).

    `function` greedy only compares.
    """
    candidates = binding.elements(op.inputs[0])
    if op.get("function") == "greedy":
        return moving(op, binding, candidates)
    chosen = selection_flops(op["top_k"]) if op.get("top_k") else 0
    return moving(op, binding, candidates * (SOFTMAX_FLOPS + chosen))
