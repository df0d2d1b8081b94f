"""Which nodes of the file the kernels stand for.

An operator call says the number of its instruction, which is in the name of the file's node (`convolution_4`).
XNNPACK has names of its own for what it runs and keeps the order of its nodes (`conv2d_0.3` is the fourth node of the
delegate that instruction 0 calls), so kernels and nodes are laid side by side. A limit on a node's results (a ReLU) may
be a kernel of its own, right after the node's.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from inferometer.engines.alignment import longest_pairing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.engines.base import FileNode
    from inferometer.engines.executorch.dump import RanKernel

_PLACE = re.compile(r"_(\d+)(?:\.(\d+))?$")
_TYPES = re.compile(r"\s*(?:\(|#\d)")  # where the types and the number of a kernel's name begin
_LIMIT, _VIEWS = "Clamp", ("Static Reshape", "Copy", "Transpose")
# XNNPACK's names of kernels → nodes of the file that they can be, where the names themselves do not agree.
FITTING = {
    "Convolution": ("Conv2d", "DepthwiseConv2d"),
    "Depthwise Convolution": ("DepthwiseConv2d",),
    "Deconvolution": ("ConvTranspose2d",),
    "Fully Connected": ("FullyConnected", "Conv2d"),  # a window of one place is a product of matrices
    "Dynamic Fully Connected": ("FullyConnected",),
    "Divide": ("Div",),
    "Average Pooling": ("AvgPooling2d", "GlobalAvgPooling2d"),
    "Global Average Pooling": ("GlobalAvgPooling2d",),
    "Mean": ("GlobalAvgPooling2d",),
    "Max Pooling": ("MaxPooling2d",),
    "ArgMax Pooling": ("ArgMaxPooling2d",),
    "Resize Bilinear": ("StaticResizeBilinear2D",),
    "Constant Pad": ("StaticConstantPad",),
    "Transpose": ("StaticTranspose",),
    "Slice": ("StaticSlice",),
    "Copy": ("Copy", "StaticReshape", "Concatenate", "StaticSlice"),
    "Concatenate": ("Concatenate",),
    "Leaky ReLU": ("LeakyReLU",),
    "Dynamic Batch Matrix Multiply": ("BatchMatrixMultiply",),
}


def layers_of(kernels: Sequence[RanKernel], nodes: Sequence[FileNode]) -> tuple[tuple[str, ...], ...]:
    """For each kernel the names of the nodes it stands for; none where the file's reader gave no such names."""
    operators, delegates = _placed(nodes)
    layers: list[tuple[str, ...]] = [() for _ in kernels]
    for instruction in dict.fromkeys(kernel.instruction for kernel in kernels):
        rows = [row for row, kernel in enumerate(kernels) if kernel.instruction == instruction and not kernel.rest]
        inside = delegates.get(instruction, [])
        if rows and not kernels[rows[0]].delegated:
            layers[rows[0]] = operators.get(instruction, ())
        elif len(rows) == 1 and len(inside) != 1:  # a delegate that tells nothing of its kernels
            layers[rows[0]] = tuple(node.name for node in inside) or operators.get(instruction, ())
        else:
            _lay_side_by_side(kernels, rows, inside, layers)
    return tuple(layers)


def _placed(nodes: Sequence[FileNode]) -> tuple[dict[int, tuple[str, ...]], dict[int, list[FileNode]]]:
    """The nodes of operator calls, and those of delegates in their order, by the number of the instruction."""
    operators: dict[int, tuple[str, ...]] = {}
    delegates: dict[int, list[FileNode]] = {}
    for node in nodes:
        found = _PLACE.search(node.name)
        if found is None:
            continue
        instruction = int(found[1])
        if found[2] is None:
            operators[instruction] = (*operators.get(instruction, ()), node.name)
        else:
            delegates.setdefault(instruction, []).append(node)
    return operators, delegates


def _lay_side_by_side(
    kernels: Sequence[RanKernel], rows: list[int], nodes: list[FileNode], layers: list[tuple[str, ...]]
) -> None:
    for row, node in longest_pairing(rows, nodes, lambda row, node: _fits(kernels[row].kind, node.kind)):
        layers[row] = (node.name,)
    for before, row in pairwise(rows):
        if not layers[row] and kernels[row].kind.startswith(_LIMIT):
            layers[row] = layers[before]
    for row, after in reversed(list(pairwise(rows))):
        if not layers[row] and kernels[row].kind.startswith(_VIEWS):  # lays out what the next kernel reads
            layers[row] = layers[after]


def _fits(kernel: str, node: str) -> bool:
    name = _TYPES.split(kernel, maxsplit=1)[0]
    kind = node.removeprefix("XNN").rstrip("2345") if node.startswith("XNNConcat") else node.removeprefix("XNN")
    return kind in FITTING.get(name, (name.replace(" ", ""),)) or kind.casefold() == name.replace(" ", "").casefold()
