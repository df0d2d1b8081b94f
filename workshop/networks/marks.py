"""Open sizes by marking them: a network is traced once with fixed sizes that nothing else has, then read back.

torch.export with open sizes takes four times as long as with fixed ones, and some networks fix them anyway. The batch
is traced at a prime; a side of the image at `step` times another prime, so that a plane at stride `step` has it as its
side. A size that one of them divides is that many of it; a side that a pool without padding cut is a little less, and
one that was padded before its convolution a little more. Where the image's usual side is no multiple of the deepest
stride, that plane has half of the prime, rounded up.
"""

from dataclasses import replace

from inferometer.core.dims import Symbol
from inferometer.core.graph import Graph, Op, Tensor

BATCH, CELLS = 10_007, 1_009
_HALF = (CELLS + 1) // 2
_CUT, _PADDED = 2, 8  # what a window without padding takes from a side, and what padding adds to it, at most
_NEAR = (0, *range(-1, -_CUT - 1, -1), *range(1, _PADDED + 1))


class Opening:
    """Ops and tensors with the marks taken for what they mark, and the network's own number format for none."""

    def __init__(self, precision, step):
        self.precision = precision
        self.cells = Symbol("image") // step if step else None
        self.step = step

    def graph(self, graph: Graph) -> Graph:
        blocks = []
        for block in graph.blocks:
            ops = tuple(self.op(op) for op in block.ops if op.outputs or op.source_type != "stored")
            if ops:
                blocks.append(replace(block, ops=ops))
        return replace(
            graph,
            blocks=tuple(blocks),
            inputs=tuple(map(self.tensor, graph.inputs)),
            outputs=tuple(map(self.tensor, graph.outputs)),
            metadata={},
        )

    def op(self, op: Op) -> Op:
        return replace(
            op,
            inputs=tuple(map(self.tensor, op.inputs)),
            outputs=tuple(map(self.tensor, op.outputs)),
            weights=tuple(map(self.tensor, op.weights)),
            attributes={key: self.value(value) for key, value in op.attributes.items()},
        )

    def tensor(self, tensor: Tensor) -> Tensor:
        kept = None if tensor.dtype == self.precision else tensor.dtype
        return replace(tensor, shape=tuple(map(self.size, tensor.shape)), dtype=kept)

    def value(self, value):
        if isinstance(value, bool) or not isinstance(value, int | tuple | Op):
            return value
        if isinstance(value, Op):
            return self.op(value)
        return tuple(map(self.value, value)) if isinstance(value, tuple) else self.size(value)

    def size(self, size):
        if not isinstance(size, int) or size < _HALF:
            return size
        total, rest = 1, size
        while rest % BATCH == 0:
            total, rest = total * Symbol("batch"), rest // BATCH
        if self.cells is not None and rest in (_HALF, _HALF * _HALF):
            half = (self.cells + 1) // 2
            return total * half if rest == _HALF else total * half * half
        if self.cells is None or rest < CELLS - _CUT:
            return total * rest
        # Planes that were joined in a row, the deepest of half the side among them.
        whole, beside = divmod(rest - _HALF * _HALF, CELLS * CELLS)
        if whole > 0 and beside == 0:
            half = (self.cells + 1) // 2
            return total * (whole * self.cells * self.cells + half * half)
        more = next((more for more in _NEAR if (rest - more) % CELLS == 0), 0)
        rest -= more
        while rest % CELLS == 0:
            if rest // CELLS % self.step == 0:
                total, rest = total * Symbol("image"), rest // CELLS // self.step
            else:
                total, rest = total * self.cells, rest // CELLS
        return total * rest + more
