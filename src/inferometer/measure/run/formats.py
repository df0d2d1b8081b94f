"""The formats in which a file stores its weights. A quantised file mixes several: norms in f32, a wider head."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from inferometer.core.dims import product

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.graph import Graph

_MULTIPLIED = frozenset({"linear", "matmul", "convolution", "moe_experts", "recurrent"})
_INDICES = frozenset({"i64", "i32", "bool"})  # tables of positions, as a windowed transformer keeps: no weights' format
_FEW = 0.01  # of the parameters: norms and biases in another format do not count as a mixture


def main_format(graph: Graph) -> str | None:
    """The format of most weights in matrix products; None if the file does not say."""
    counts = _elements(graph, _MULTIPLIED) or _elements(graph)
    return max(counts, key=counts.__getitem__) if counts else None


def mixture_note(graph: Graph) -> Iterable[str]:
    """The share of each format, if there is more than one."""
    counts = _elements(graph)
    shares = [(name, count / sum(counts.values())) for name, count in counts.most_common()]
    shown = [f"{name} {share:.0%}" for name, share in shares if share >= _FEW]
    if len(shown) > 1:
        yield f"The weights are stored as {', '.join(shown)} (of the parameters)."


def _elements(graph: Graph, kinds: frozenset[str] | None = None) -> Counter[str]:
    """Parameters by format. A weight counts once, however many ops use it."""
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for block, op in graph.ops():
        for tensor in op.weights if kinds is None or op.kind in kinds else ():
            size, name = product(tensor.shape), block.full_name(tensor.name)  # blocks may share their template names
            if tensor.dtype not in {None, *_INDICES} and isinstance(size, int) and name not in seen:
                seen.add(name)
                counts[str(tensor.dtype)] += size * (block.count if "{}" in tensor.name else 1)
    return counts
