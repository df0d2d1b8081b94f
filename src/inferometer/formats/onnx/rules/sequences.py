"""Sequences of tensors, and optional tensors. What is known of a sequence is one element's shape, and how many."""

from inferometer.core.dims import Dim
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.content import Item
from inferometer.formats.onnx.faults import UnknownShapeError
from inferometer.formats.onnx.rules.common import agreed, as_dim, first_is_whole, scalar
from inferometer.formats.onnx.rules.items import add
from inferometer.formats.onnx.value import Call, Out


def sequence_construct(call: Call) -> list[Out]:
    values = [value for value in call.inputs if value is not None]
    dtype = values[0].dtype if values else None
    return [Out(agreed(value.shape for value in values), dtype, None, "sequence", len(values))]


def sequence_empty(call: Call) -> list[Out]:
    return [Out(None, call.element("dtype", "f32"), None, "sequence", 0)]


def sequence_insert(call: Call) -> list[Out]:
    sequence, tensor = call.value(0), call.value(1)
    shape = tensor.shape if sequence.length == 0 else agreed((sequence.shape, tensor.shape))
    return [Out(shape, sequence.dtype or tensor.dtype, None, "sequence", add(sequence.length, 1))]


def sequence_erase(call: Call) -> list[Out]:
    sequence = call.value(0)
    return [Out(sequence.shape, sequence.dtype, None, "sequence", add(sequence.length, -1))]


def sequence_at(call: Call) -> list[Out]:
    sequence = call.value(0)
    return [Out(sequence.shape, sequence.dtype)]


def sequence_length(call: Call) -> list[Out]:
    return [scalar("i64", call.value(0).length)]


def concat_from_sequence(call: Call) -> list[Out]:
    sequence = call.value(0)
    shape, count = sequence.shape, as_dim(sequence.length)
    if shape is None:
        raise UnknownShapeError
    if call.integer("new_axis"):
        axis = call.axis(call.integer("axis"), len(shape) + 1)
        return [Out((*shape[:axis], count, *shape[axis:]), sequence.dtype)]
    axis = call.axis(call.integer("axis"), len(shape))
    whole = None if count is None or not isinstance(shape[axis], int) else algebra.mul(shape[axis], count)
    return [Out((*shape[:axis], whole, *shape[axis + 1 :]), sequence.dtype)]


def split_to_sequence(call: Call) -> list[Out]:
    shape = call.shape(0)
    axis = call.axis(call.integer("axis"), len(shape))
    rest = (shape[:axis], shape[axis + 1 :])
    if not call.has(1):
        one: tuple[Dim, ...] = (1,) if call.integer("keepdims", 1) else ()
        return [Out((*rest[0], *one, *rest[1]), call.dtype(0), None, "sequence", shape[axis])]
    part, count = _parts(call, shape[axis])
    return [Out((*rest[0], part, *rest[1]), call.dtype(0), None, "sequence", count)]


def _parts(call: Call, size: Dim) -> tuple[Dim | None, Item]:
    """How large each part is, where all are alike, and how many there are."""
    split = call.whole(1)
    if len(call.shape(1)) == 0:
        part = first_is_whole(call, 1)
        if part is None or part < 1:
            return None, None
        even = isinstance(size, int) and size % part == 0
        return part if even else None, algebra.ceildiv(size, part)
    if split is None:
        return None, call.shape(1)[0]
    return split[0] if len(set(split)) == 1 else None, len(split)


def optional(call: Call) -> list[Out]:
    if not call.inputs or call.inputs[0] is None:
        return [Out(None, None, None, "optional")]
    value = call.value(0)
    return [Out(value.shape, value.dtype, None, "optional", value.length)]


def optional_element(call: Call) -> list[Out]:
    value = call.value(0)
    group = "sequence" if value.length is not None else "tensor"
    return [Out(value.shape, value.dtype, None, group, value.length)]


def optional_has_element(call: Call) -> list[Out]:
    has = bool(call.inputs) and call.inputs[0] is not None
    return [scalar("bool", None if has else 0)]
