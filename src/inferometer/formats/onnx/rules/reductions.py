"""Ops that make one number out of many: sums, means, extremes, where they stand, losses."""

from inferometer.formats.onnx.content import Content, Item, reduced
from inferometer.formats.onnx.faults import UnknownShapeError
from inferometer.formats.onnx.rules.items import BINARY
from inferometer.formats.onnx.value import Call, Out, Shape

_FOLDS = {"ReduceSum": "Add", "ReduceProd": "Mul", "ReduceMax": "Max", "ReduceMin": "Min"}


def reduce_axes(call: Call, rank: int) -> tuple[int, ...] | None:
    """The axes that are reduced; None where they are unknown. No axes means all, or nothing if an attribute says so."""
    try:
        axes = call.listed("axes", 1)
    except UnknownShapeError:
        return None
    if not axes:
        return () if call.integer("noop_with_empty_axes") else tuple(range(rank))
    return tuple(call.axis(axis, rank) for axis in axes)


def reduce(call: Call) -> list[Out]:
    shape = call.shape(0)
    keep = bool(call.integer("keepdims", 1))
    axes = reduce_axes(call, len(shape))
    dtype = call.dtype(0)
    if axes is None:
        return [Out((None,) * len(shape) if keep else None, dtype)]
    kept = tuple(1 if axis in axes else dim for axis, dim in enumerate(shape) if keep or axis not in axes)
    return [Out(kept, dtype, _folded(call, axes, keep=keep))]


def _folded(call: Call, axes: tuple[int, ...], *, keep: bool) -> Content | None:
    content, fold = call.content(0), _FOLDS.get(call.node.op_type)
    if content is None or fold is None:
        return None
    function = BINARY[fold]

    def join(items: list[Item]) -> Item:
        total: Item = items[0] if items else None
        for item in items[1:]:
            total = function(total, item)
        return total

    return reduced(join, content, axes, keep=keep)


def arg_reduce(call: Call) -> list[Out]:
    shape = call.shape(0)
    axis = call.axis(call.integer("axis"), len(shape))
    one: Shape = (1,) if call.integer("keepdims", 1) else ()
    return [Out((*shape[:axis], *one, *shape[axis + 1 :]), "i64")]


def loss(call: Call) -> list[Out]:
    """One number, or one for each label; and the logarithm of the probabilities, where an op gives that too."""
    labels = call.shape(1) if call.text("reduction", "mean") == "none" else ()
    return [Out(labels, call.dtype(0)), Out(call.shape(0), call.dtype(0))]
