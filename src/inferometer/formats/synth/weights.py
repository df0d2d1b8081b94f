"""Random weights: the same seed and name give the same numbers, in every format and in pieces of any size.

A weight's numbers are centre + spread · u with u uniform in [−1, 1). What is multiplied has a variance of one over the
length of its dot products, so that activations stay of the size they come in with; norms are 1, biases small. As the
range is known before a number is drawn, a quantised format needs no search for its scales.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Tensor

CHUNK = 1 << 20  # numbers in one piece: 4 MB as f32
_BIAS = 0.02
_FULL = 32768  # one is 2¹⁵ of an int16
Array = np.ndarray[Any, Any]


@frozen
class Weight:
    """A tensor to be made. `parameter` is False for what a file stores but nobody trains: running statistics."""

    name: str
    shape: tuple[int, ...]
    centre: float = 0.0
    spread: float = 0.0
    parameter: bool = True

    @property
    def index(self) -> bool:
        """Whether it holds whole numbers that follow from its shape: Swin's table of which pair is how far apart."""
        return self.name.endswith("relative_position_index")

    @property
    def elements(self) -> int:
        return prod(self.shape)


def units(weight: Weight, seed: int, *, chunk: int = CHUNK) -> Iterator[Array]:
    """The weight's u as int16, 2¹⁵ being one: pieces of `chunk` numbers (a multiple of 4), the last one shorter.

    They are the raw words of a bit generator, whose stream numpy keeps the same from version to version.
    """
    source = np.random.PCG64(_key(weight.name, seed))
    for start in range(0, weight.elements, chunk):
        count = min(chunk, weight.elements - start)
        words = source.random_raw(-(-count // 4))
        yield words.astype("<u8", copy=False).view("<i2")[:count]


def numbers(weight: Weight, seed: int, *, chunk: int = CHUNK) -> Iterator[Array]:
    """The weight's numbers in row-major order, as f32."""
    if not weight.spread:
        for start in range(0, weight.elements, chunk):
            yield np.full(min(chunk, weight.elements - start), weight.centre, np.float32)
        return
    for piece in units(weight, seed, chunk=chunk):
        values = piece.astype(np.float32)
        values *= np.float32(weight.spread / _FULL)
        if weight.centre:
            values += np.float32(weight.centre)
        yield values


def relative_index(window: int) -> Array:
    """For each pair of places in a window, the row of the bias table for their distance: [window², window²]."""
    rows, columns = np.divmod(np.arange(window * window), window)
    down = rows[:, None] - rows[None, :] + window - 1
    right = columns[:, None] - columns[None, :] + window - 1
    index: Array = (down * (2 * window - 1) + right).astype("<i8")
    return index


def whole(weight: Weight, seed: int) -> Array:
    """The weight as one array, for what fits in memory."""
    pieces = list(numbers(weight, seed))
    return (np.concatenate(pieces) if pieces else np.empty(0, np.float32)).reshape(weight.shape)


def _key(name: str, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=16).digest(), "little")


def planned(graph: Graph) -> tuple[Weight, ...]:
    """Every weight of the graph once, in the order of execution, under its full name.

    A stack of experts whose name has a `*` is one tensor an expert, as checkpoints hold it.
    """
    weights: dict[str, Weight] = {}
    for block, repetition, op in executed(graph):
        for weight in planned_op(block, op, repetition):
            weights.setdefault(weight.name, weight)
    return tuple(weights.values())


def executed(graph: Graph) -> Iterator[tuple[Block, int, Op]]:
    """Every op as often as it runs, with its block and the repetition of it."""
    for block in graph.blocks:
        for repetition in range(block.count):
            for op in block.ops:
                yield block, repetition, op


def planned_op(block: Block, op: Op, repetition: int = 0) -> tuple[Weight, ...]:
    """The weights of one op in one repetition of its block."""
    gain = _gain(block, op) if op.kind == "convolution" else 1.0
    stacks = (
        _weight(op, index, tensor, block.full_name(tensor.name, repetition), gain)
        for index, tensor in enumerate(op.weights)
    )
    return tuple(weight for stack in stacks for weight in _unstacked(stack))


# What an activation leaves of the mean square of a unit normal number, one over it; a branch that is added to its
# input is made small, so that sums of many do not grow.
_GAINS = {"relu": 2.0, "relu6": 2.0, "gelu": 2.35, "gelu_tanh": 2.35, "silu": 2.8, "hardswish": 2.8, "add": 0.1}


def _gain(block: Block, op: Op) -> float:
    """How much of the variance a convolution must make up for, by what follows it in its block."""
    name = op.outputs[0].name
    for later in block.ops[block.ops.index(op) + 1 :]:
        if all(tensor.name != name for tensor in later.inputs):
            continue
        if later.kind != "norm":
            return _GAINS.get(str(later.get("function")), 1.0)
        name = later.outputs[0].name
    return 1.0


def _weight(op: Op, index: int, tensor: Tensor, name: str, gain: float) -> Weight:
    shape = tuple(_whole(size, name) for size in tensor.shape)
    centre, spread = _range(op, index, tensor, shape)
    if len(shape) > 1:
        spread *= sqrt(gain)
    return Weight(name=name, shape=shape, centre=centre, spread=spread, parameter=tensor.role == "weight")


def _unstacked(weight: Weight) -> Iterator[Weight]:
    if "*" not in weight.name:
        yield weight
        return
    for index in range(weight.shape[0]):
        yield replace(weight, name=weight.name.replace("*", str(index)), shape=weight.shape[1:])


def _range(op: Op, index: int, tensor: Tensor, shape: tuple[int, ...]) -> tuple[float, float]:
    """Centre and spread. A uniform number within ±s has variance s²/3."""
    if op.kind == "norm":
        return (1.0, 0.0) if index == 0 or tensor.name.endswith("running_var") else (0.0, 0.0)
    if op.kind in {"linear", "embedding", "moe_router"} and len(shape) == 2:
        fan_in = shape[0] if op.get("layout") == "in_out" else shape[1]
        return 0.0, sqrt(3 / fan_in)
    if op.kind == "convolution" and len(shape) > 2:
        fan_in = shape[0] * prod(shape[2:]) if op.get("transposed") else prod(shape[1:])
        return 0.0, sqrt(3 / fan_in)
    if op.kind == "moe_experts" and len(shape) == 3:
        last = max(index for index, other in enumerate(op.weights) if len(other.shape) == 3)
        return 0.0, sqrt(3 / (op["intermediate"] if index == last else op["hidden"]))
    if op.kind == "elementwise" and op.get("function") == "multiply":
        return 1.0, 0.0  # a layer scale
    return 0.0, _BIAS


def _whole(size: object, name: str) -> int:
    if not isinstance(size, int):
        raise TypeError(f"The weight {name} has a size that is no number: {size}.")
    return size
