"""In which formats a file stores its weights. A quantised file mixes several: norms in f32, the head in more bits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from inferometer.core.dims import product

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.graph import Graph

_MULTIPLIED = frozenset({"linear", "matmul", "convolution", "moe_experts", "recurrent"})
_FEW = 0.01  # of the parameters: norms and biases in another format are no mixture


def main_format(graph: Graph) -> str | None:
    """The format of most weights that are multiplied with; None where the file does not say."""
    found = _elements(graph, _MULTIPLIED) or _elements(graph)
    return max(found, key=found.__getitem__) if found else None


def mixture_note(graph: Graph) -> Iterable[str]:
    """The shares, where more than one format has some."""
    found = _elements(graph)
    shares = [(name, count / sum(found.values())) for name, count in found.most_common()]
    told = [f"{name} {share:.0%}" for name, share in shares if share >= _FEW]
    if len(told) > 1:
        yield f"The weights are stored as {', '.join(told)} (of the parameters)."


def _elements(graph: Graph, kinds: frozenset[str] | None = None) -> Counter[str]:
    """Parameters by format, each weight once however many ops use it."""
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for block, op in graph.ops():
        for tensor in op.weights if kinds is None or op.kind in kinds else ():
            size = product(tensor.shape)
            if tensor.dtype is not None and isinstance(size, int) and tensor.name not in seen:
                seen.add(tensor.name)
                counts[tensor.dtype] += size * block.count
    return counts
