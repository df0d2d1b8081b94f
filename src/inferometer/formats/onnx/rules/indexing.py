"""Ops that address elements, and ops that make tensors out of numbers."""

import math

from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.content import Content, Item, full, take, vector
from inferometer.formats.onnx.faults import MAX_ITEMS, MAX_RANK, Fault, UnknownShapeError
from inferometer.formats.onnx.messages import TensorDef
from inferometer.formats.onnx.rules.common import as_dim, first_size, scalar, sizes, static
from inferometer.formats.onnx.rules.items import add, mul
from inferometer.formats.onnx.value import Call, Loose, Out


def gather(call: Call) -> list[Out]:
    data, indices = call.shape(0), call.shape(1)
    axis = call.axis(call.integer("axis"), len(data))
    shape = (*data[:axis], *indices, *data[axis + 1 :])
    if len(shape) > MAX_RANK:
        raise Fault(f"a tensor of more than {MAX_RANK} dimensions")
    values, chosen = call.content(0), call.content(1)
    folded = take(values, chosen, axis) if values is not None and chosen is not None else None
    return [Out(shape, call.dtype(0), folded)]


def gather_elements(call: Call) -> list[Out]:
    return [Out(call.shape(1), call.dtype(0))]


def gather_nd(call: Call) -> list[Out]:
    data, indices = call.shape(0), call.shape(1)
    batch, depth = call.integer("batch_dims"), indices[-1] if indices else None
    if not isinstance(depth, int):
        raise UnknownShapeError
    if depth + batch > len(data) or batch < 0 or depth < 0:
        raise Fault(f"indices of {depth} numbers into {len(data)} dimensions")
    return [Out((*indices[:-1], *data[batch + depth :]), call.dtype(0))]


def scatter(call: Call) -> list[Out]:
    """The elements are followed where both the data and the update are vectors, as shapes are."""
    data, indices, updates = (call.content(i) for i in range(3))
    folded = None
    if data is not None and indices is not None and updates is not None and len(data.shape) == 1:
        folded = _overwritten(data, indices.items, updates.items)
    return [Out(call.shape(0), call.dtype(0), folded)]


def _overwritten(data: Content, places: tuple[Item, ...], items: tuple[Item, ...]) -> Content | None:
    if len(places) != len(items):
        return None
    result = list(data.items)
    for place, item in zip(places, items, strict=True):
        if not isinstance(place, int) or not -len(result) <= place < len(result):
            return None
        result[place] = item
    return Content(data.shape, tuple(result))


def one_hot(call: Call) -> list[Out]:
    indices = call.shape(0)
    axis = call.axis(call.integer("axis", -1), len(indices) + 1)
    return [Out((*indices[:axis], first_size(call, 1), *indices[axis:]), call.dtype(2))]


def top_k(call: Call) -> list[Out]:
    shape = call.shape(0)
    axis = call.axis(call.integer("axis", -1), len(shape))
    kept = call.integer("k") if call.has_attribute("k") else first_size(call, 1)
    result = (*shape[:axis], kept, *shape[axis + 1 :])
    return [Out(result, call.dtype(0)), Out(result, "i64")]


def non_zero(call: Call) -> list[Out]:
    """One column for each element that is not zero: as many as the data has."""
    shape, content = call.shape(0), call.content(0)
    rank = max(1, len(shape))
    if content is not None and len(content.shape) == 1 and all(isinstance(i, int | float) for i in content.items):
        places = tuple(index for index, item in enumerate(content.items) if item != 0)
        return [Out((1, len(places)), "i64", Content((1, len(places)), places) if places else None)]
    return [Out((rank, None), "i64")]


def unique(call: Call) -> list[Out]:
    shape = call.shape(0)
    if call.has_attribute("axis"):
        axis = call.axis(call.integer("axis"), len(shape))
        kept: Loose = (*shape[:axis], None, *shape[axis + 1 :])
        counted = shape[axis]
    else:
        kept, counted = (None,), algebra.product(shape)
    return [Out(kept, call.dtype(0)), Out((None,), "i64"), Out((counted,), "i64"), Out((None,), "i64")]


def compress(call: Call) -> list[Out]:
    shape, condition = call.shape(0), call.whole(1)
    kept = None if condition is None else sum(1 for item in condition if item)
    if not call.has_attribute("axis"):
        return [Out((kept,), call.dtype(0))]
    axis = call.axis(call.integer("axis"), len(shape))
    return [Out((*shape[:axis], kept, *shape[axis + 1 :]), call.dtype(0))]


def non_max_suppression(_call: Call) -> list[Out]:
    return [Out((None, 3), "i64")]


def shape_of(call: Call) -> list[Out]:
    """The whole shape or, from operator set 15, a part of it."""
    shape = call.shape(0)
    start, end = call.integer("start"), call.integer("end", len(shape))
    part = shape[slice(max(start, -len(shape)), end)]
    return [Out((len(part),), "i64", vector(part))]


def size_of(call: Call) -> list[Out]:
    return [scalar("i64", algebra.product(call.shape(0)))]


def range_(call: Call) -> list[Out]:
    bounds = [items[0] if (items := call.items(i)) else None for i in range(3)]
    start, limit, step = bounds
    if len(call.inputs) < 3 or call.inputs[2] is None:
        step = 1
    dtype = call.dtype(0)
    if isinstance(start, int | float) and isinstance(limit, int | float) and isinstance(step, int | float):
        count = _steps(start, limit, step)
        numbers = tuple(start + i * step for i in range(count)) if 0 < count <= MAX_ITEMS else None
        return [Out((count,), dtype, None if numbers is None else vector(numbers))]
    if step == 1 and start is not None and limit is not None:
        return [Out((as_dim(add(limit, mul(start, -1))),), dtype)]
    if (
        isinstance(step, int)
        and step > 0
        and (low := as_dim(start)) is not None
        and (high := as_dim(limit)) is not None
    ):
        return [Out((algebra.ceildiv(algebra.sub(high, low), step),), dtype)]
    return [Out((None,), dtype)]


def _steps(start: float, limit: float, step: float) -> int:
    if step == 0:
        raise Fault("a range with a step of 0")
    if isinstance(start, int) and isinstance(limit, int) and isinstance(step, int):
        return max(0, -(-(limit - start) // step))
    count = (limit - start) / step
    if not math.isfinite(count):
        raise Fault("a range without end")
    return max(0, math.ceil(count))


def constant_of_shape(call: Call) -> list[Out]:
    value = call.tensor("value")
    dtype = "f32" if value is None else value.dtype
    items = call.items(0)
    if items is None:
        rank = call.shape(0)[0] if call.shape(0) else 0
        return [Out((None,) * rank if isinstance(rank, int) and rank <= MAX_RANK else None, dtype)]
    shape = sizes(items)
    if len(shape) > MAX_RANK:
        raise Fault(f"a tensor of more than {MAX_RANK} dimensions")
    if any(isinstance(dim, int) and dim < 0 for dim in shape):
        raise Fault(f"a tensor of the sizes {list(map(str, shape))}")
    whole = static(shape)
    return [Out(shape, dtype, None if whole is None else full(whole, _fill(call, value)))]


def _fill(call: Call, value: TensorDef | None) -> Item:
    if value is None:
        return 0.0
    content = call.read(value)
    return content.items[0] if content is not None and content.items else None


def random_of_shape(call: Call) -> list[Out]:
    shape = call.integers("shape")
    if shape is None or len(shape) > MAX_RANK or any(dim < 0 for dim in shape):
        raise Fault("random numbers of no shape")
    return [Out(shape, call.element("dtype", "f32"))]


def multinomial(call: Call) -> list[Out]:
    return [Out((call.shape(0)[0], call.integer("sample_size", 1)), call.element("dtype", "i32"))]
