"""Ops that work element by element, and casts."""

from collections.abc import Callable

from inferometer.formats.onnx.content import Content, Item, broadcast_map, reduced
from inferometer.formats.onnx.faults import Fault, UnknownShapeError
from inferometer.formats.onnx.messages import ELEMENTS, is_integer
from inferometer.formats.onnx.rules.common import broadcast, without_axes
from inferometer.formats.onnx.rules.items import BINARY, UNARY, divide_floats, divide_integers, sign, to_integer
from inferometer.formats.onnx.value import Call, Out, Shape

# Cast's `to` as text, in operator sets before 6.
_NAMES = {"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "STRING": 8, "BOOL": 9,
          "FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13}  # fmt: skip


def unary(call: Call) -> list[Out]:
    content, function = call.content(0), UNARY.get(call.node.op_type)
    result = broadcast_map(function, content) if content is not None and function is not None else None
    return [Out(call.shape(0), call.dtype(0), result)]


def unary_bool(call: Call) -> list[Out]:
    return [out._replace(dtype="bool") for out in unary(call)]


def pointwise(call: Call) -> list[Out]:
    """Two inputs or more, shapes broadcast."""
    values = [value for value in call.inputs if value is not None]
    if not values:
        raise Fault(f"{call.node.op_type} has no inputs")
    shape = broadcast(call, *(call.shape(i) for i in range(len(call.inputs)) if call.has(i)))
    return [Out(shape, values[0].dtype, _folded(call))]


def comparison(call: Call) -> list[Out]:
    return [out._replace(dtype="bool") for out in pointwise(call)]


def _folded(call: Call) -> Content | None:
    op_type = call.node.op_type
    function = BINARY.get(op_type)
    if op_type == "Div":
        function = divide_integers if is_integer(call.dtype(0)) else divide_floats
    if function is None:
        return None
    result = call.content(0)
    for index in range(1, len(call.inputs)):
        other = call.content(index)
        if result is None or other is None:
            return None
        result = broadcast_map(function, result, other)
    return result


def where(call: Call) -> list[Out]:
    shape = broadcast(call, call.shape(0), call.shape(1), call.shape(2))
    contents = [call.content(i) for i in range(3)]
    known = [content for content in contents if content is not None]
    folded = broadcast_map(_choose, *known) if len(known) == 3 else None
    return [Out(shape, call.dtype(1), folded)]


def _choose(condition: Item, one: Item, other: Item) -> Item:
    certain = sign(condition)
    if certain is None:
        return one if one == other else None
    return one if certain else other


def cast(call: Call) -> list[Out]:
    if "to" not in call.node.attributes:
        raise Fault("a cast that does not say to what")
    target = call.node.attributes["to"].value
    number = _NAMES.get(target.upper()) if isinstance(target, str) else target
    if not isinstance(number, int) or number not in ELEMENTS:
        raise Fault(f"a cast to element type {target!r}, which is not known")
    return [_cast_to(call, ELEMENTS[number].name)]


def cast_like(call: Call) -> list[Out]:
    return [_cast_to(call, call.dtype(1))]


def bit_cast(call: Call) -> list[Out]:
    return [out._replace(content=None) for out in cast(call)]


def _cast_to(call: Call, dtype: str | None) -> Out:
    content = call.content(0)
    if content is not None and dtype == "bool":
        content = broadcast_map(lambda item: None if sign(item) is None else abs(sign(item) or 0), content)
    elif content is not None and is_integer(dtype):
        content = broadcast_map(to_integer, content)
    return Out(call.shape(0), dtype, content)


def dropout(call: Call) -> list[Out]:
    """As a model is run, not trained: the input, and a mask of ones."""
    mask = "bool" if call.opset >= 10 else call.dtype(0)
    return [Out(call.shape(0), call.dtype(0), call.content(0)), Out(call.shape(0), mask)]


def retyped(call: Call) -> list[Out]:
    """The first input's shape, in the format that `dtype` names or else in its own."""
    return [Out(call.shape(0), call.element("dtype", call.dtype(0)))]


def broadcast_of(*places: int, dtype: int | None = None) -> Callable[[Call], list[Out]]:
    """One result, with the inputs at these places broadcast to each other."""

    def infer(call: Call) -> list[Out]:
        shape = broadcast(call, *(call.shape(place) for place in places if call.has(place)))
        return [Out(shape, call.dtype(places[0] if dtype is None else dtype)) for _ in call.node.outputs]

    return infer


# Ops that make one number out of many: sums, means, extremes, where they stand, losses.

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
    return [Out(without_axes(shape, axes, keep=keep), dtype, _reduced_content(call, axes, keep=keep))]


def _reduced_content(call: Call, axes: tuple[int, ...], *, keep: bool) -> Content | None:
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
