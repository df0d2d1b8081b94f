"""From the operations that OpenVINO makes of a TFLite file back to the file's operators.

Its front end gives operations names of its own (`Convolution_113`, `161`). What an operator gives keeps the file's name
for it, unless it was laid out anew. Most others are found by their order: the front end reads operators as the file
lists them, and numbers operations as it makes them. So both lists are laid side by side, and as many as possible get an
operator of a fitting type and size. Those that were renamed since come after, in the order in which they will run.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferometer.engines.alignment import longest_pairing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from inferometer.engines.base import FileNode

# Operations that an operator becomes one of, and which operators those are.
_FITTING = {
    "Convolution": frozenset({"CONV_2D", "CONV_3D", "FULLY_CONNECTED"}),
    "GroupConvolution": frozenset({"DEPTHWISE_CONV_2D", "CONV_2D"}),
    "ConvolutionBackpropData": frozenset({"TRANSPOSE_CONV", "Convolution2DTransposeBias"}),
    "MatMul": frozenset({"FULLY_CONNECTED", "BATCH_MATMUL"}),
    "MaxPool": frozenset({"MAX_POOL_2D"}),
    "AvgPool": frozenset({"AVERAGE_POOL_2D"}),
    "ReduceMean": frozenset({"MEAN"}),
    "Interpolate": frozenset({"RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"}),
    "Pad": frozenset({"PAD", "PADV2", "MIRROR_PAD"}),
    "Concat": frozenset({"CONCATENATION"}),
}
_ONE_OPERATION = frozenset().union(*_FITTING.values())
_PASSING_ON = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Convert", "Result"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of the model as it was read. Sizes that are open then are None."""

    name: str
    type: str
    results: tuple[str, ...] = ()  # names of the tensors that it gives
    shape: tuple[int | None, ...] = ()


def known_operators(nodes: Sequence[FileNode], operations: Sequence[Operation]) -> dict[str, str]:
    """By operation, the operator that it stands for, where that is certain."""
    known = _known_by_result(nodes, operations)
    numbered = sorted((each for each in operations if _number(each) is not None), key=lambda each: _number(each) or 0)
    for ordered in (numbered, operations):
        # Again for what a change of order left over, until nothing fits any more.
        while pairs := _paired(nodes, [each for each in ordered if each.name not in known], set(known.values())):
            known |= pairs
    return known


def _paired(nodes: Sequence[FileNode], operations: Sequence[Operation], taken: AbstractSet[str]) -> dict[str, str]:
    free = [node for node in nodes if node.name not in taken and node.kind in _ONE_OPERATION]
    pairs = longest_pairing([each for each in operations if each.type in _FITTING], free, _fits)
    return {operation.name: node.name for operation, node in pairs}


def _known_by_result(nodes: Sequence[FileNode], operations: Sequence[Operation]) -> dict[str, str]:
    """What lays a result out anew or gives it to the caller has its name, too, and is not what made it."""
    makers = {name: node for node in nodes for name in node.outputs}
    known: dict[str, str] = {}
    for operation in operations:
        node = next((makers[name] for name in operation.results if name in makers), None)
        if node is not None and not (operation.type in _PASSING_ON and node.kind in _ONE_OPERATION):
            known[operation.name] = node.name
    return known


def _number(operation: Operation) -> int | None:
    """The place in the order of making, of an operation that kept the name it was made with."""
    match = re.fullmatch(rf"{operation.type}_(\d+)", operation.name)
    return int(match[1]) if match else None


def _fits(operation: Operation, node: FileNode) -> bool:
    return node.kind in _FITTING.get(operation.type, ()) and _same_size(operation.shape, node.shape)


def _same_size(shape: Sequence[int | None], other: Sequence[int] | None) -> bool:
    """Whether both may be the same sizes in another order. An open size may be any."""
    if other is None:
        return True
    left, right = (Counter(size for size in each if size is not None and size != 1) for each in (shape, other))
    return left <= right if None in shape else left == right
