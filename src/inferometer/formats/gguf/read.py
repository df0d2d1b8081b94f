"""Opening GGUF files, and the parts of those that are split."""

import re
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.gguf.graph import gguf_graph
from inferometer.formats.gguf.header import MAGIC, GgufHeader, read_header

_PART = re.compile(r"^(.+)-(\d{5})-of-(\d{5})\.gguf$")
_MANY_PARTS = 1000
_MANY_TENSORS = 1 << 18  # in all parts together


class GgufReader:
    name = "gguf"
    formats = frozenset({"gguf"})

    def match(self, peek: Peek) -> float:
        return 1.0 if peek.head[:4] == MAGIC else 0.0

    def read(self, path: Path) -> Graph:
        return gguf_graph(read_headers(Path(path)))


def read_headers(path: Path) -> tuple[GgufHeader, ...]:
    """The header of a file, or of all parts of the model that the file is a part of, in order."""
    asked = read_header(path)
    count = asked.metadata.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return (asked,)
    numbered = _PART.match(path.name)
    if numbered is None or int(numbered[3]) != count or count > _MANY_PARTS:
        raise FormatError(
            f"{str(path)!r} is one of {count:,} parts, and its name does not say where the others are.",
            remedy="Parts are named NAME-00001-of-00003.gguf, and lie in one folder.",
        )
    paths = [path.with_name(f"{numbered[1]}-{part:05}-of-{numbered[3]}.gguf") for part in range(1, count + 1)]
    headers = tuple(asked if other == path else _part(other, path, count) for other in paths)
    _require_whole(headers, path)
    return headers


def _part(path: Path, asked: Path, count: int) -> GgufHeader:
    if not path.is_file():
        raise FormatError(
            f"{str(asked)!r} is one of {count} parts, and the part {path.name!r} is missing.",
            remedy="Put all parts into one folder.",
        )
    return read_header(path)


def _require_whole(headers: tuple[GgufHeader, ...], path: Path) -> None:
    """The parts must be each other's: no tensor twice, and as many as the first part says."""
    names = [tensor.name for header in headers for tensor in header.tensors]
    if len(names) > _MANY_TENSORS or len(set(names)) != len(names):
        raise FormatError(f"The parts of {str(path)!r} do not belong together: they hold tensors of the same name.")
    announced = headers[0].metadata.get("split.tensors.count")
    if isinstance(announced, int) and announced != len(names):
        raise FormatError(f"The parts of {str(path)!r} hold {len(names):,} tensors where {announced:,} are announced.")
