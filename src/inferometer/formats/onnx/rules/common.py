"""What the shape rules share."""

from collections.abc import Collection, Iterable

from inferometer.core.dims import Dim, symbols_in
from inferometer.formats.onnx.content import Content, Item
from inferometer.formats.onnx.faults import MAX_RANK, Fault
from inferometer.formats.onnx.value import Call, Loose, Out, Shape


def unknown(dtype: str | None = None) -> Out:
    return Out(None, dtype)


def nothing_known(call: Call) -> list[Out]:
    """Outputs of an operator whose shapes no rule infers."""
    return [unknown() for _ in call.node.outputs]


def same_as_first(call: Call) -> list[Out]:
    """Every output has the first input's shape and format."""
    return [Out(call.shape(0), call.dtype(0)) for _ in call.node.outputs]


def scalar(dtype: str | None, item: Item = None) -> Out:
    return Out((), dtype, None if item is None else Content((), (item,)))


def broadcast(call: Call, *shapes: Shape) -> Shape:
    """Numpy's rule: sizes are aligned from the last; 1 gives way."""
    rank = max((len(shape) for shape in shapes), default=0)
    if rank > MAX_RANK:
        raise Fault(f"a tensor of more than {MAX_RANK} dimensions")
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, start=rank - len(shape)):
            if dim != result[axis]:
                result[axis] = broadcast_dims(call, result[axis], dim)
    return tuple(result)


def broadcast_dims(call: Call, one: Dim, other: Dim) -> Dim:
    if other in {one, 1}:
        return one
    if one == 1:
        return other
    if isinstance(one, int) and isinstance(other, int):
        raise Fault(f"sizes {one} and {other} do not fit each other")
    call.assume(f"{one} = {other}")
    if isinstance(one, int) or isinstance(other, int):
        return one if isinstance(one, int) else other
    guessed = call.notes.invented.keys()
    return other if symbols_in(one) & guessed and not symbols_in(other) & guessed else one


def agreed(shapes: Iterable[Shape | None]) -> Loose | None:
    """The sizes that several possible shapes have in common."""
    every = list(shapes)
    known = [shape for shape in every if shape is not None]
    if not known or len(known) < len(every) or len({len(shape) for shape in known}) > 1:
        return None
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*known, strict=True))


def static(shape: Loose | None) -> tuple[int, ...] | None:
    """The shape, where all its sizes are numbers."""
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    return tuple(dim for dim in shape if isinstance(dim, int))


def as_dim(item: Item) -> Dim | None:
    """An element as a size: a whole number or an expression, else None."""
    if item is None or isinstance(item, float):
        return int(item) if isinstance(item, float) and item.is_integer() else None
    return item if not hasattr(item, "bottom") else None


def sizes(items: tuple[Item, ...]) -> Loose:
    return tuple(as_dim(item) for item in items)


def first_size(call: Call, index: int) -> Dim | None:
    """A scalar input's value as a size, where it is known."""
    items = call.items(index)
    return as_dim(items[0]) if items else None


def first_is_whole(call: Call, index: int) -> int | None:
    """A scalar input's value, where it is a known whole number."""
    items = call.whole(index)
    return items[0] if items else None


def without_axes(shape: Shape, axes: Collection[int], *, keep: bool) -> Shape:
    """The shape without these axes, or with a 1 in the place of each."""
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape) if keep or axis not in axes)
