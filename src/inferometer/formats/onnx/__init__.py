"""ONNX: models as ONNX files hold them, read by their headers alone. Files are mapped, never loaded."""

import mmap
from pathlib import Path

from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.onnx.faults import Fault, reading
from inferometer.formats.onnx.messages import BYTES, VARINT, Wire

# Whether bytes look like an ONNX model. Protobuf has no magic number: the fields must make sense.

# ModelProto's and GraphProto's fields, and the wire type each has.
_MODEL = {1: VARINT, 2: BYTES, 3: BYTES, 4: BYTES, 5: VARINT, 6: BYTES, 7: BYTES, 8: BYTES, 14: BYTES, 20: BYTES,
          25: BYTES, 26: BYTES}  # fmt: skip
_GRAPH = {1: BYTES, 2: BYTES, 5: BYTES, 10: BYTES, 11: BYTES, 12: BYTES, 13: BYTES, 14: BYTES, 15: BYTES, 16: BYTES}
_NODE = {1: BYTES, 2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES, 6: BYTES, 7: BYTES, 8: BYTES, 9: BYTES, 10: BYTES}
_DAMAGED = "The file may be cut short, damaged or of another format; `onnx.checker` may tell more."
_MAX_IR = 64
_ANY_SIZE = 1 << 62
_ENOUGH = 64  # fields looked at in one message


def confidence(head: bytes, size: int) -> float:
    """0.95 where a graph is seen inside a model, 0.9 where operator sets are, 0.3 where only the first fields fit.

    A model that was cut short is known as one, at 0.6: reading it says what is wrong.
    """
    seen: set[int] = set()
    score = 0.0
    for number, kind, a, b in _visible(head, 0, _ANY_SIZE):
        if _MODEL.get(number) != kind or (number == 1 and not 0 < a <= _MAX_IR):
            return 0.0
        seen.add(number)
        if number == 7:
            if not _is_graph(head, a, b):
                return 0.0
            score = 0.95
        elif number == 8:
            score = max(score, 0.9 if _fits(head, a, b, {1: BYTES, 2: VARINT}) else 0.0)
        if kind == BYTES and b > size:
            return min(score, 0.6)
    return score or (0.3 if {1, 2} <= seen else 0.0)


def _is_graph(head: bytes, start: int, end: int) -> bool:
    fields = [field for field, _ in zip(_visible(head, start, end), range(_ENOUGH), strict=False)]
    if not fields or any(_GRAPH.get(number) != kind for number, kind, _, _ in fields):
        return False
    nodes = [(a, b) for number, _, a, b in fields if number == 1]
    return not nodes or _fits(head, *nodes[0], _NODE)


def _fits(head: bytes, start: int, end: int, fields: dict[int, int]) -> bool:
    seen = [field for field, _ in zip(_visible(head, start, end), range(_ENOUGH), strict=False)]
    return bool(seen) and all(fields.get(number) == kind for number, kind, _, _ in seen)


def _visible(head: bytes, start: int, end: int) -> list[tuple[int, int, int, int]]:
    """Fields whose beginning lies in the head. A message may go on beyond it; what is broken ends the list."""
    wire = Wire(head)
    fields: list[tuple[int, int, int, int]] = []
    position = start
    while position < min(end, len(head)) and len(fields) < _ENOUGH:
        try:
            number, kind, a, b = wire.first(position, len(head), end)
        except Fault:
            if position == start or len(head) - position > 20:  # a tag and a length fit into 20 bytes
                return [*fields, (0, -1, 0, 0)]
            return fields
        fields.append((number, kind, a, b))
        position = b
    return fields


class OnnxReader:
    """ONNX models, read without the `onnx` package and without their weights."""

    name = "onnx"
    formats = frozenset({"onnx"})

    def match(self, peek: Peek) -> float:
        return 0.0 if peek.is_folder else confidence(peek.head, peek.size)

    def read(self, path: Path) -> Graph:
        path = Path(path)
        with reading(path, "ONNX", remedy=_DAMAGED), path.open("rb") as file:
            if file.seek(0, 2) == 0:
                return read_bytes(path, b"")  # nothing to map, and nothing to read
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return read_bytes(path, data)


def read_bytes(path: Path, data: bytes | mmap.mmap) -> Graph:
    """The graph of a file's bytes; `path` says where external data would lie."""
    from inferometer.formats.onnx.assemble import assemble  # noqa: PLC0415 - matching a file needs none of it

    return assemble(path, data)


__all__ = ["OnnxReader", "reader"]

reader = OnnxReader()
