"""Ops that give a tensor another shape or move its elements: reshape, transpose, concat, slice, pad, expand."""

from math import prod

from inferometer.core.dims import Dim
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.content import Content, Item, broadcast_map, concat, full, take, transposed, vector
from inferometer.formats.onnx.faults import MAX_RANK, Fault, UnknownShapeError
from inferometer.formats.onnx.rules.common import as_dim, broadcast_dims, sizes, static
from inferometer.formats.onnx.value import Call, Loose, Out, Shape

_TO_THE_END = 1 << 24  # writers say "to the end" with a number beyond all sizes, often the largest of 32 or 64 bits


def identity(call: Call) -> list[Out]:
    value = call.value(0)
    return [Out(value.shape, value.dtype, call.content(0), value.group, value.length)]


def reshape(call: Call) -> list[Out]:
    """0 keeps a size (unless allowzero), -1 takes what is left."""
    items: tuple[Item, ...] | None = call.integers("shape") if call.has_attribute("shape") else call.items(1)
    dtype = call.dtype(0)
    if items is None:
        rank = call.shape(1)[0] if call.has(1) and len(call.shape(1)) == 1 else None
        return [Out((None,) * rank if isinstance(rank, int) and rank <= MAX_RANK else None, dtype)]
    if len(items) > MAX_RANK:
        raise Fault(f"a tensor of more than {MAX_RANK} dimensions")
    shape = _reshaped(call, sizes(items))
    whole, content = static(shape), call.content(0)
    return [Out(shape, dtype, None if content is None or whole is None else content.reshaped(whole))]


def _reshaped(call: Call, asked: Loose) -> Loose:
    source = call.value(0).shape
    keeps_zero = bool(call.integer("allowzero"))
    target: list[Dim | None] = []
    for axis, dim in enumerate(asked):
        if dim == 0 and not keeps_zero:
            if source is not None and axis >= len(source):
                raise Fault(f"reshape keeps size {axis} of a tensor of {len(source)} dimensions")
            target.append(None if source is None else source[axis])
        else:
            target.append(dim)
    left_open = [axis for axis, dim in enumerate(target) if dim is None or dim == -1]
    inferred = [axis for axis in left_open if target[axis] == -1]
    if len(inferred) > 1:
        raise Fault("reshape leaves two sizes open")
    if source is None:
        return tuple(None if axis in left_open else dim for axis, dim in enumerate(target))
    if len(left_open) == 1:  # what the others leave
        target[left_open[0]] = _left_over(source, target, left_open[0])
    elif not left_open:
        before, after = static(source), static(tuple(dim for dim in target if dim is not None))
        if before is not None and after is not None and prod(before) != prod(after):
            raise Fault(f"{prod(before)} elements reshaped to {list(after)}")
    return tuple(None if dim == -1 else dim for dim in target)


def _left_over(source: Shape, target: list[Dim | None], axis: int) -> Dim | None:
    others = algebra.product(tuple(dim for i, dim in enumerate(target) if i != axis and dim is not None))
    total = algebra.product(source)
    if others == 0:
        return None if total != 0 else 0
    if isinstance(total, int) and isinstance(others, int) and total % others:
        raise Fault(f"{total} elements do not fill rows of {others}")
    return algebra.floordiv(total, others)


def flatten(call: Call) -> list[Out]:
    shape = call.shape(0)
    axis = call.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise Fault(f"axis {axis} of a tensor of {len(shape)} dimensions")
    return [Out((algebra.product(shape[:axis]), algebra.product(shape[axis:])), call.dtype(0))]


def squeeze(call: Call) -> list[Out]:
    shape, axes = call.shape(0), call.listed("axes", 1)
    if axes is None:
        if static(shape) is None:
            call.assume("sizes the file does not tell are not 1")
        gone = {axis for axis, dim in enumerate(shape) if dim == 1}
    else:
        gone = {call.axis(axis, len(shape)) for axis in axes}
        if any(isinstance(shape[axis], int) and shape[axis] != 1 for axis in gone):
            raise Fault(f"squeezes sizes that are not 1 out of {list(map(str, shape))}")
    kept = tuple(dim for axis, dim in enumerate(shape) if axis not in gone)
    return [_with_content(call, kept)]


def unsqueeze(call: Call) -> list[Out]:
    shape, axes = call.shape(0), call.listed("axes", 1)
    if axes is None:
        raise Fault("an unsqueeze that names no axes")
    rank = len(shape) + len(axes)
    if rank > MAX_RANK:
        raise Fault(f"a tensor of more than {MAX_RANK} dimensions")
    added = {call.axis(axis, rank) for axis in axes}
    if len(added) != len(axes):
        raise Fault("an unsqueeze that names an axis twice")
    rest = iter(shape)
    return [_with_content(call, tuple(1 if axis in added else next(rest) for axis in range(rank)))]


def _with_content(call: Call, shape: Shape) -> Out:
    content, whole = call.content(0), static(shape)
    return Out(shape, call.dtype(0), None if content is None or whole is None else content.reshaped(whole))


def permute(call: Call) -> list[Out]:
    shape = call.shape(0)
    order = call.integers("perm") or tuple(reversed(range(len(shape))))
    if sorted(order) != list(range(len(shape))):
        raise Fault(f"a transpose of {len(shape)} dimensions to the order {list(order)}")
    content = call.content(0)
    moved = None if content is None else transposed(content, order)
    return [Out(tuple(shape[axis] for axis in order), call.dtype(0), moved)]


def concatenate(call: Call) -> list[Out]:
    indices = [i for i in range(len(call.inputs)) if call.has(i)]
    if not indices:
        raise Fault("a concat without inputs")
    shapes = [call.shape(i) for i in indices]
    rank = len(shapes[0])
    if any(len(shape) != rank for shape in shapes):
        raise Fault(f"a concat of tensors of {sorted({len(shape) for shape in shapes})} dimensions")
    axis = call.axis(call.integer("axis", 1), rank)
    result: list[Dim] = list(shapes[0])
    for shape in shapes[1:]:
        for i in range(rank):
            result[i] = algebra.add(result[i], shape[i]) if i == axis else _same(call, result[i], shape[i])
    contents = [call.content(i) for i in indices]
    known = tuple(content for content in contents if content is not None)
    folded = concat(known, axis) if len(known) == len(contents) else _partly(call, indices, contents)
    return [Out(tuple(result), call.dtype(indices[0]), folded)]


def _same(call: Call, one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int) and one != other:
        raise Fault(f"sizes {one} and {other} do not fit each other")
    if one == 1 or other == 1:
        return one if one == 1 else other
    return broadcast_dims(call, one, other)


def _partly(call: Call, indices: list[int], contents: list[Content | None]) -> Content | None:
    """A concat with some unknown vectors keeps the known ones: most target shapes are built like this."""
    parts: list[Content] = []
    for index, content in zip(indices, contents, strict=True):
        whole = static(call.shape(index))
        if content is None and (whole is None or len(whole) != 1):
            return None
        filled = content if content is not None else full(whole or (0,), None)
        if filled is None:
            return None
        parts.append(filled)
    return concat(tuple(parts), 0) if any(content is not None for content in contents) else None


def slice_(call: Call) -> list[Out]:
    shape = call.shape(0)
    if call.has_attribute("starts"):
        starts: tuple[Item, ...] | None = call.integers("starts")
        ends: tuple[Item, ...] | None = call.integers("ends")
        axes, steps = call.integers("axes"), None
    else:
        starts, ends = call.items(1), call.items(2)
        axes, steps = call.listed("axes", 3), call.listed("steps", 4)
    count = _slice_count(call, starts, ends)
    axes = axes if axes is not None else tuple(range(count))
    if len(axes) != count or (steps is not None and len(steps) != count):
        raise Fault("a slice whose starts, ends, axes and steps are not as many")
    content = call.content(0)
    result: list[Dim | None] = list(shape)
    for i, named in enumerate(axes):
        axis = call.axis(named, len(shape))
        start, end = (as_dim(bound[i]) if bound is not None else None for bound in (starts, ends))
        step = 1 if steps is None else steps[i]
        result[axis] = _slice_length(call, shape[axis], start, end, step)
        content = _sliced(content, axis, start, end, step)
    return [Out(tuple(result), call.dtype(0), content)]


def _slice_count(call: Call, starts: tuple[Item, ...] | None, ends: tuple[Item, ...] | None) -> int:
    counts = {len(bound) for bound in (starts, ends) if bound is not None}
    if len(counts) > 1:
        raise Fault("a slice with other than one end for each start")
    if counts:
        return counts.pop()
    length = call.shape(1)[0] if call.has(1) and len(call.shape(1)) == 1 else None
    if not isinstance(length, int) or length > MAX_RANK:
        raise UnknownShapeError
    return length


def _sliced(content: Content | None, axis: int, start: Dim | None, end: Dim | None, step: int) -> Content | None:
    if content is None or not isinstance(start, int) or not isinstance(end, int):
        return None
    chosen = _positions(content.shape[axis], start, end, step)
    return take(content, vector(chosen), axis)


def _positions(size: int, start: int, end: int, step: int) -> range:
    """What is kept of `size` elements; out-of-range bounds are moved to the ends."""
    if step == 0:
        raise Fault("a slice with a step of 0")
    first, last = (0, size) if step > 0 else (-1, size - 1)
    start = min(max(start + size if start < 0 else start, 0 if step > 0 else -1), last if step < 0 else size)
    end = min(max(end + size if end < 0 else end, first), size if step > 0 else last)
    return range(start, end, step)


def _slice_length(call: Call, size: Dim, start: Dim | None, end: Dim | None, step: int) -> Dim | None:
    """Symbolic bounds are assumed to lie within the tensor; None where the length cannot be inferred."""
    if step == 0:
        raise Fault("a slice with a step of 0")
    if start is None or end is None:
        return None
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(_positions(size, start, end, step))
    if step < 0:
        return _backwards(call, size, start, end, step)
    low, high = _bound(size, start), _bound(size, end)
    if low == 0 and high == size:
        return algebra.ceildiv(size, step)
    if high != size and not (isinstance(end, int) and end < 0):
        call.assume(f"a slice that ends at {high} lies within {size}")
    length = algebra.ceildiv(algebra.sub(high, low), step)
    return max(length, 0) if isinstance(length, int) else length


def _bound(size: Dim, bound: Dim) -> Dim:
    """A bound counted from the front."""
    if isinstance(bound, int):
        if bound >= _TO_THE_END:
            return size
        if bound <= -_TO_THE_END:
            return 0
        return bound if bound >= 0 else algebra.add(size, bound)
    return algebra.add(size, bound) if algebra.is_negative(bound) else bound


def _backwards(call: Call, size: Dim, start: Dim, end: Dim, step: int) -> Dim | None:
    """Backward slices that models take of sizes that vary: a reversal of the whole axis, or of its beginning."""
    from_last = start == -1 or (isinstance(start, int) and start >= _TO_THE_END) or start == algebra.sub(size, 1)
    to_first = isinstance(end, int) and end <= -_TO_THE_END
    if from_last and to_first:
        return algebra.ceildiv(size, -step)
    if not isinstance(start, int) or start < 0 or not (to_first or (isinstance(end, int) and 0 <= end <= start)):
        return None
    call.assume(f"a slice that starts at {start} lies within {size}")
    return algebra.ceildiv(start + 1 if to_first or not isinstance(end, int) else start - end, -step)


def split(call: Call) -> list[Out]:
    shape = call.shape(0)
    axis = call.axis(call.integer("axis"), len(shape))
    count = len(call.node.outputs)
    try:
        parts: Loose | None = call.listed("split", 1)
    except UnknownShapeError:
        items = call.items(1)
        parts = (None,) * count if items is None else sizes(items)
    if parts is None:
        parts = _even_parts(shape[axis], call.integer("num_outputs", count))
    if len(parts) < count:
        raise Fault(f"a split into {len(parts)} parts with {count} outputs")
    parts = _with_rest(parts, shape[axis])
    outs: list[Out] = []
    content, start = call.content(0), 0
    for part in parts[:count]:
        cut = _sliced(content, axis, start, start + part, 1) if isinstance(part, int) else None
        start += part if isinstance(part, int) else 0
        outs.append(Out((*shape[:axis], part, *shape[axis + 1 :]), call.dtype(0), cut))
    return outs


def _with_rest(parts: Loose, size: Dim) -> Loose:
    """OpenVINO writes −1 for what the other parts leave."""
    others = [part for part in parts if part != -1]
    if len(others) != len(parts) - 1 or None in others:
        return parts
    rest = size
    for part in others:
        rest = algebra.sub(rest, part) if part is not None else rest
    return tuple(rest if part == -1 else part for part in parts)


def _even_parts(size: Dim, count: int) -> Loose:
    """Equal parts; the last is smaller where they do not come out even."""
    if not 0 < count <= 65_536:
        raise Fault(f"a split into {count} parts")
    part = algebra.ceildiv(size, count) if isinstance(size, int) else algebra.floordiv(size, count)
    return (*((part,) * (count - 1)), algebra.sub(size, algebra.mul(part, count - 1)))


def pad(call: Call) -> list[Out]:
    shape = call.shape(0)
    name = "paddings" if call.has_attribute("paddings") else "pads"
    items: tuple[Item, ...] | None = call.integers(name) if call.has_attribute(name) else call.items(1)
    if items is None:
        return [Out((None,) * len(shape), call.dtype(0))]
    axes = call.whole(3) if call.has(3) else tuple(range(len(shape)))
    if axes is None:
        return [Out((None,) * len(shape), call.dtype(0))]
    if len(items) != 2 * len(axes):
        raise Fault(f"{len(items)} paddings for {len(axes)} axes")
    result: list[Dim | None] = list(shape)
    for i, named in enumerate(axes):
        axis = call.axis(named, len(shape))
        before, after = as_dim(items[i]), as_dim(items[i + len(axes)])
        known = before is not None and after is not None
        result[axis] = algebra.add(algebra.add(shape[axis], before or 0), after or 0) if known else None
    return [Out(tuple(result), call.dtype(0))]


def expand(call: Call) -> list[Out]:
    shape, items = call.value(0).shape, call.items(1)
    if shape is None or items is None:
        length = call.shape(1)[0] if len(call.shape(1)) == 1 else None
        if shape is None or not isinstance(length, int) or length > MAX_RANK:
            raise UnknownShapeError
        return [Out((None,) * max(length, len(shape)), call.dtype(0))]
    asked = sizes(items)
    if len(asked) > MAX_RANK:
        raise Fault(f"a tensor of more than {MAX_RANK} dimensions")
    rank = max(len(shape), len(asked))
    padded: Loose = (1,) * (rank - len(asked)) + asked
    own: Shape = (1,) * (rank - len(shape)) + shape
    target = tuple(
        (None if mine == 1 else mine) if dim is None else broadcast_dims(call, mine, dim)
        for mine, dim in zip(own, padded, strict=True)
    )
    whole, content = static(target), call.content(0)
    filled = full(whole, None) if whole is not None and content is not None else None
    spread = None if filled is None or content is None else broadcast_map(lambda item, _: item, content, filled)
    return [Out(target, call.dtype(0), spread)]


def tile(call: Call) -> list[Out]:
    shape, items = call.shape(0), call.items(1)
    if items is None:
        return [Out((None,) * len(shape), call.dtype(0))]
    if len(items) != len(shape):
        raise Fault(f"{len(items)} repeats for {len(shape)} dimensions")
    repeats = sizes(items)
    result = tuple(None if n is None else algebra.mul(dim, n) for dim, n in zip(shape, repeats, strict=True))
    content, times = call.content(0), static(repeats)
    if content is None or times is None or prod(times) * len(content.items) > 4096:
        return [Out(result, call.dtype(0))]
    for axis, n in enumerate(times):
        content = concat((content,) * n, axis) if content is not None and n > 0 else None
    return [Out(result, call.dtype(0), content)]


def depth_to_space(call: Call) -> list[Out]:
    n, c, h, w = _image(call)
    block = _block(call)
    channels = algebra.floordiv(c, block * block)
    return [Out((n, channels, algebra.mul(h, block), algebra.mul(w, block)), call.dtype(0))]


def space_to_depth(call: Call) -> list[Out]:
    n, c, h, w = _image(call)
    block = _block(call)
    shape = (n, algebra.mul(c, block * block), algebra.floordiv(h, block), algebra.floordiv(w, block))
    return [Out(shape, call.dtype(0))]


def _image(call: Call) -> tuple[Dim, Dim, Dim, Dim]:
    shape = call.shape(0)
    if len(shape) != 4:
        raise Fault(f"an image of {len(shape)} dimensions")
    return shape[0], shape[1], shape[2], shape[3]


def _block(call: Call) -> int:
    block = call.integer("blocksize")
    if block < 1:
        raise Fault(f"blocks of {block}")
    return block
