"""The few numbers of stored tensors that shapes depend on."""

from math import prod
from typing import Any

from inferometer.readers.onnx.content import Content, bounded, known
from inferometer.readers.onnx.elements import ELEMENTS, element_bytes
from inferometer.readers.onnx.external import ExternalFiles
from inferometer.readers.onnx.limits import MAX_ITEMS
from inferometer.readers.onnx.messages import TensorDef
from inferometer.readers.onnx.wire import Wire, signed

__all__ = ["Contents"]

_MAX_FLOATS = 64  # scales and limits; longer runs of floats are weights


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
            return tensor.loose if tensor.loose_count == count and layout not in {"e", None} else None
        form, start, end = tensor.payload
        if form == "raw":
            return None if layout is None else self._wire.unpack(layout, start, end)
        if form in {"f32", "f64"}:
            return self._wire.unpack("f" if form == "f32" else "d", start, end)
        if layout in {"e", None}:
            return None  # half-precision numbers as bit patterns
        return tuple(signed(value) for value in self._wire.varints(start, end))
