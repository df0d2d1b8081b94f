"""The data of stored tensors: whether what lies outside the file is there and as long as the file claims.

The contents are never read, but for the few numbers that shapes depend on.
"""

import stat
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from inferometer.formats.onnx.content import Content, bounded, known
from inferometer.formats.onnx.elements import ELEMENTS, element_bytes
from inferometer.formats.onnx.faults import MAX_ITEMS, Fault
from inferometer.formats.onnx.messages import TensorDef
from inferometer.formats.onnx.wire import Wire, signed

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
