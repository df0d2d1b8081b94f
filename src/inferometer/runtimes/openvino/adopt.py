"""Nodes of the file that no kernel lists.

A kernel lists what it was fused from, and leaves out nodes whose names were lost on the way: the convolution whose norm
was multiplied into its weights, the pieces of a norm or an activation that became one. A fused kernel keeps the names
of the last nodes in it, so a node left out belongs to the first kernel that needs its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.runtimes.onnxruntime.fusion import constant_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from inferometer.runtimes.onnx_nodes import Topology

_SHAPES = frozenset({"Shape", "Size"})
_NO_WORK = frozenset({"Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})


def adopt(original: Topology, listed: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The layers of each kernel in the file's order. `listed` are the kernels as they run, with the nodes they list.

    A node in none of them was computed when the model was loaded, or is gone.
    """
    kernel_of: dict[str, str] = {}
    for kernel, names in listed.items():
        for name in names:
            kernel_of.setdefault(name, kernel)
    folded = _known_at_load(original) - kernel_of.keys()
    _give(original, listed, kernel_of, folded)
    layers: dict[str, list[str]] = {kernel: [] for kernel in listed}
    for node in original.nodes:
        if node.name in kernel_of:
            layers[kernel_of[node.name]].append(node.name)
    return {kernel: tuple(names) for kernel, names in layers.items()}


def _give(original: Topology, listed: Iterable[str], kernel_of: dict[str, str], folded: set[str]) -> None:
    """Each node left over to the first kernel after it; where none is, to the last before it."""
    order = {kernel: place for place, kernel in enumerate(listed)}
    makers = {name: node.name for node in original.nodes for name in node.outputs}
    users = original.users()
    free = [node for node in original.nodes if node.name not in folded and node.kind not in _NO_WORK]
    for node in reversed(free):
        after = {
            kernel_of[user.name] for name in node.outputs for user in users.get(name, ()) if user.name in kernel_of
        }
        if after and node.name not in kernel_of:
            kernel_of[node.name] = min(after, key=order.__getitem__)
    for node in free:
        before = {kernel_of[makers[name]] for name in node.inputs if makers.get(name) in kernel_of}
        if before and node.name not in kernel_of:
            kernel_of[node.name] = max(before, key=order.__getitem__)
    for node in original.nodes:
        if node.inside in kernel_of:  # the engine reports a branch or a loop as a whole
            kernel_of.setdefault(node.name, kernel_of[node.inside])


def _known_at_load(original: Topology) -> set[str]:
    """Nodes that need only what is stored, and the shapes of tensors: these are known once the sizes are."""
    known = set(constant_nodes(original))
    fixed = set(original.stored) | {name for node in original.nodes if node.name in known for name in node.outputs}
    for node in original.nodes:
        if node.kind in _SHAPES or (node.inputs and not node.results and all(name in fixed for name in node.inputs)):
            known.add(node.name)
            fixed.update(node.outputs)
    return known
