"""Choosing the reader of a file by its content."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.core.plugins import load_all
from inferometer.formats.base import GROUP, Peek, Reader, look
from inferometer.formats.foreign import foreign_content, foreign_format

_LEAST = 0.1  # less confidence than this is no match
_SURE = 0.5  # a reader that is less sure gives way to a format that nothing here reads, if the content shows it


def read_graph(path: Path | str, *, readers: Iterable[Reader] | None = None) -> Graph:
    """The graph of a model file or folder, with its format, by the reader that is most confident of the content."""
    peek = look(Path(path))
    reader = choose_reader(peek, readers=readers)
    graph = reader.read(peek.path)
    return replace(graph, metadata={**graph.metadata, "format": _format_of(peek, reader, graph)})


def _format_of(peek: Peek, reader: Reader, graph: Graph) -> str:
    """The name that runtimes know the format by."""
    if peek.is_folder and any(name.endswith(".safetensors") for name in peek.names):
        return "safetensors"
    stated = graph.metadata.get("format")
    if peek.is_folder or peek.path.suffix == ".json":
        return stated if stated in reader.formats and stated != "safetensors" else "config"
    if "task" in reader.formats:  # an archive with a network in it, or the network itself
        return "task" if peek.head.startswith(b"PK") else "tflite"
    return stated if stated in reader.formats else min(reader.formats)


def choose_reader(peek: Peek, *, readers: Iterable[Reader] | None = None) -> Reader:
    """The most confident reader; the name decides a tie, so that the choice does not depend on the order of loading."""
    candidates, broken = _installed() if readers is None else (tuple(readers), ())
    ranked = sorted(((reader.match(peek), reader) for reader in candidates), key=lambda pair: (-pair[0], pair[1].name))
    if not ranked or ranked[0][0] < _LEAST or (ranked[0][0] < _SURE and foreign_content(peek) is not None):
        raise _unmatched(peek, candidates, broken)
    return ranked[0][1]


def _installed() -> tuple[tuple[Reader, ...], tuple[str, ...]]:
    """The readers that load, and the error messages of those that do not."""
    loaded, errors = load_all(GROUP)
    return tuple(loaded.values()), tuple(error.message for error in errors)


def _unmatched(peek: Peek, readers: tuple[Reader, ...], broken: tuple[str, ...]) -> FormatError:
    foreign = foreign_format(peek) if peek.is_folder or peek.head else None
    if foreign is not None:
        return FormatError(f"{str(peek.path)!r} seems to be {foreign.title}, which is not read.", remedy=foreign.remedy)
    known = ", ".join(sorted({name for reader in readers for name in reader.formats})) or "none"
    remedy = " ".join((f"Formats that are known: {known}.", *broken))
    return FormatError(f"No reader knows {str(peek.path)!r}: {_seen(peek)}.", remedy=remedy)


def _seen(peek: Peek) -> str:
    if peek.is_folder:
        shown = ", ".join(peek.names[:8]) + (", …" if len(peek.names) > 8 else "")
        return f"a folder with {shown}" if peek.names else "an empty folder"
    if not peek.head:
        return "an empty file"
    return f"{peek.size} bytes that start with {peek.head[:16]!r}"
