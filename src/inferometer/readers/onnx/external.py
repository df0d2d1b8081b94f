"""Data outside the file: where it may lie, whether it is there, and whether it is as long as the file claims.

The contents are never read, but for the few numbers that shapes depend on.
"""

import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

from inferometer.readers.onnx.elements import element_bytes
from inferometer.readers.onnx.faults import Fault
from inferometer.readers.onnx.messages import TensorDef

__all__ = ["ExternalFiles"]


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
            _require_beside(location, where)
            try:
                found = (self._folder / location).stat()
            except (OSError, ValueError):
                self._sizes[location] = None
            else:
                if not stat.S_ISREG(found.st_mode):
                    raise Fault(f"external data in {location!r}, which is not a file", where=where)
                self._sizes[location] = found.st_size
        return self._sizes[location]


def _require_beside(location: str, where: str) -> None:
    """Whatever system wrote the path, it must stay within the model's folder on this one."""
    parts = (*PurePosixPath(location).parts, *PureWindowsPath(location).parts)
    absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor
    if not location or absolute or ".." in parts or "\0" in location:
        raise Fault(f"external data in {location[:200]!r}, which is not within the model's folder", where=where)
