"""Small arrays whose elements are known at read time: shapes, axes, scales. Elements are numbers, sizes, or unknown.

A model computes many of its shapes itself (`Shape → Gather → Concat → Reshape`). Shapes are
inferred by following those few numbers; nothing larger than MAX_ITEMS is ever followed.
"""

import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product as cartesian
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from inferometer.core.dims import Dim
from inferometer.formats.onnx.faults import MAX_ITEMS, MAX_NUMBER, Fault
from inferometer.formats.onnx.messages import ELEMENTS, TensorDef, Wire, element_bytes, signed


@dataclass(frozen=True, slots=True)
class SizeRatio:
    """A size divided by a number and not rounded yet: `Cast → Mul(0.5) → Floor` makes and resolves them."""

    top: Dim
    bottom: int


Item = Dim | float | SizeRatio | None


@dataclass(frozen=True, slots=True)
class Content:
    shape: tuple[int, ...]
    items: tuple[Item, ...]

    def reshaped(self, shape: tuple[int, ...]) -> "Content | None":
        return known(shape, self.items) if prod(shape) == len(self.items) else None


def known(shape: tuple[int, ...], items: tuple[Item, ...]) -> Content | None:
    """A content, where it is one worth following.

    Nothing is followed through an empty array of several dimensions, whose other sizes may be of any length.
    """
    return Content(shape, items) if len(items) <= MAX_ITEMS and (items or shape == (0,)) else None


def vector(items: Iterable[Item]) -> Content:
    listed = tuple(items)
    return Content((len(listed),), listed)


def full(shape: tuple[int, ...], item: Item) -> Content | None:
    count = prod(shape)
    return known(shape, (item,) * count) if count <= MAX_ITEMS else None


def bounded(item: Item) -> Item:
    """Numbers beyond 64 bits, infinities and NaN are called unknown: no shape needs them, and some grow without end."""
    return None if isinstance(item, int | float) and not abs(item) <= MAX_NUMBER else item


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def _spread(shape: tuple[int, ...], target: tuple[int, ...]) -> list[int]:
    """Where each element of `target` lies in an array of `shape` that is broadcast to it."""
    padded = (1,) * (len(target) - len(shape)) + shape
    steps = [0 if size == 1 else stride for size, stride in zip(padded, _strides(padded), strict=True)]
    offsets = [0]
    for size, step in zip(target, steps, strict=True):
        offsets = [offset + index * step for offset in offsets for index in range(size)]
    return offsets


def broadcast_map(function: Callable[..., Item], *contents: Content) -> Content | None:
    """Element by element, shapes broadcast; None where they do not fit or the result is too large."""
    rank = max(len(content.shape) for content in contents)
    target: list[int] = []
    for axis in range(-rank, 0):
        sizes = {content.shape[axis] for content in contents if len(content.shape) >= -axis} - {1}
        if len(sizes) > 1:
            return None
        target.append(sizes.pop() if sizes else 1)
    if prod(target) > MAX_ITEMS:
        return None
    shape = tuple(target)
    columns = [[content.items[i] for i in _spread(content.shape, shape)] for content in contents]
    return known(shape, tuple(bounded(function(*row)) for row in zip(*columns, strict=True)))


def take(content: Content, indices: Content, axis: int) -> Content | None:
    """Gather: the entries of one axis that the indices name. An unknown index gives unknown elements."""
    before, size, after = content.shape[:axis], content.shape[axis], content.shape[axis + 1 :]
    shape = (*before, *indices.shape, *after)
    if prod(shape) > MAX_ITEMS:
        return None
    inner = prod(after)
    items: list[Item] = []
    for outer in range(prod(before)):
        for index in indices.items:
            if not isinstance(index, int) or not -size <= index < size:
                items += [None] * inner
                continue
            start = (outer * size + index % size) * inner
            items += content.items[start : start + inner]
    return known(shape, tuple(items))


def concat(contents: tuple[Content, ...], axis: int) -> Content | None:
    first = contents[0].shape
    if any(len(c.shape) != len(first) for c in contents) or sum(len(c.items) for c in contents) > MAX_ITEMS:
        return None
    shape = (*first[:axis], sum(c.shape[axis] for c in contents), *first[axis + 1 :])
    items: list[Item] = []
    for outer in range(prod(first[:axis])):
        for content in contents:
            run = prod(content.shape[axis:])
            items += content.items[outer * run : (outer + 1) * run]
    return known(shape, tuple(items)) if len(items) == prod(shape) else None


def transposed(content: Content, order: tuple[int, ...]) -> Content:
    strides = _strides(content.shape)
    shape = tuple(content.shape[axis] for axis in order)
    offsets = [0]
    for size, axis in zip(shape, order, strict=True):
        offsets = [offset + index * strides[axis] for offset in offsets for index in range(size)]
    return Content(shape, tuple(content.items[offset] for offset in offsets))


def reduced(
    function: Callable[[list[Item]], Item], content: Content, axes: tuple[int, ...], *, keep: bool
) -> Content | None:
    """One element for each combination of the axes that stay, from all positions along the axes that go."""
    strides = _strides(content.shape)
    stay = [axis for axis in range(len(content.shape)) if axis not in axes]
    runs = [range(content.shape[axis]) for axis in axes]
    within = [sum(i * strides[a] for i, a in zip(index, axes, strict=True)) for index in cartesian(*runs)]
    items: list[Item] = []
    for index in cartesian(*(range(content.shape[axis]) for axis in stay)):
        base = sum(i * strides[a] for i, a in zip(index, stay, strict=True))
        items.append(bounded(function([content.items[base + offset] for offset in within])))
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(content.shape) if keep or axis not in axes)
    return known(shape, tuple(items))


# The data of stored tensors: whether what lies outside the file is there and as long as the file claims.
#
# The contents are never read, but for the few numbers that shapes depend on.

_MAX_FLOATS = 64  # scales and limits; longer runs of floats are weights


class ExternalFiles:
    """The files beside one model. Each is looked at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[str, int | None] = {}
        self.missing: dict[str, list[str]] = {}
        self.bytes = 0

    @property
    def locations(self) -> tuple[str, ...]:
        return tuple(self._sizes)

    def check(self, tensor: TensorDef, count: int) -> None:
        """Refuse data outside the model's folder, or past the end of a file; note a file that is not there."""
        external = tensor.external
        if external is None:
            return
        where = f"tensor {tensor.name!r}"
        size = self._size(external.location, where)
        length = external.length if external.length is not None else element_bytes(tensor.dtype, count) or 0
        self.bytes += length
        if size is None:
            self.missing.setdefault(external.location, []).append(tensor.name)
        elif external.offset + length > size:
            message = (
                f"external data up to byte {external.offset + length:,} of {external.location!r}, which has {size:,}"
            )
            raise Fault(message, offset=tensor.start, where=where)

    def read(self, tensor: TensorDef, size: int) -> bytes | None:
        """The bytes of a small tensor, or None where the file is missing."""
        external = tensor.external
        if external is None or self._sizes.get(external.location) is None:
            return None
        with (self._folder / external.location).open("rb") as file:
            file.seek(external.offset)
            data = file.read(size)
        return data if len(data) == size else None

    def _size(self, location: str, where: str) -> int | None:
        if location not in self._sizes:
            # Whatever system wrote the path, it must stay within the model's folder on this one.
            parts = (*PurePosixPath(location).parts, *PureWindowsPath(location).parts)
            absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor
            if not location or absolute or ".." in parts or "\0" in location:
                raise Fault(f"external data in {location[:200]!r}, which is not within the model's folder", where=where)
            try:
                status = (self._folder / location).stat()
            except (OSError, ValueError):
                self._sizes[location] = None
            else:
                if not stat.S_ISREG(status.st_mode):
                    raise Fault(f"external data in {location!r}, which is not a file", where=where)
                self._sizes[location] = status.st_size
        return self._sizes[location]


class Contents:
    """Reads small tensors, each once."""

    def __init__(self, wire: Wire, files: ExternalFiles) -> None:
        self._wire = wire
        self._files = files
        self._known: dict[int, Content | None] = {}

    def read(self, tensor: TensorDef) -> Content | None:
        if tensor.start not in self._known:
            self._known[tensor.start] = self._decode(tensor)
        return self._known[tensor.start]

    def _decode(self, tensor: TensorDef) -> Content | None:
        count, element = prod(tensor.dims), ELEMENTS[tensor.data_type]
        if count > (MAX_ITEMS if element.integer else _MAX_FLOATS) or tensor.sparse is not None:
            return None
        if count == 0:
            return known(tensor.dims, ())
        numbers = self._numbers(tensor, count)
        if numbers is None or len(numbers) != count:
            return None
        if element.integer:
            return known(tensor.dims, tuple(int(number) for number in numbers))
        return known(tensor.dims, tuple(bounded(float(number)) for number in numbers))

    def _numbers(self, tensor: TensorDef, count: int) -> tuple[Any, ...] | None:
        layout = ELEMENTS[tensor.data_type].layout
        if tensor.external is not None:
            size = element_bytes(tensor.dtype, count)
            data = None if size is None or layout is None else self._files.read(tensor, size)
            return None if data is None or layout is None else Wire(data).unpack(layout, 0, len(data))
        if tensor.payload is None:
            whole = tensor.loose_count == count and None not in tensor.loose  # else some are texts
            return tensor.loose if whole and layout not in {"e", None} else None
        form, start, end = tensor.payload
        if form == "raw":
            return None if layout is None else self._wire.unpack(layout, start, end)
        if form in {"f32", "f64"}:
            return self._wire.unpack("f" if form == "f32" else "d", start, end)
        if layout in {"e", None}:
            return None  # half-precision numbers as bit patterns
        return tuple(signed(value) for value in self._wire.varints(start, end))
