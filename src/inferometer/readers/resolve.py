"""From what a user calls a model to its graph: a catalog name, a file, a folder with a config, or a live module."""

from pathlib import Path
from typing import Any

from inferometer.catalog.files import row_named, rows_of
from inferometer.catalog.zoo import model
from inferometer.core.graph import Graph
from inferometer.errors import FormatError, UnknownNameError

_SUFFIXES = frozenset(
    {".onnx", ".gguf", ".tflite", ".safetensors", ".pt2", ".xml", ".ort", ".task", ".pt", ".pth", ".jit"}
)


def read(source: Any, example_inputs: tuple[Any, ...] | None = None) -> Graph:
    """The graph of a model, without loading its weights.

    `source` is a catalog name (`"llama-3.2-1b"`), a path, or a `torch.nn.Module` with inputs to trace it with.
    """
    if not isinstance(source, str | Path):
        return _read_module(source, example_inputs)
    if isinstance(source, str) and row_named("models", source) is not None:
        return _read_row(source)
    path = Path(source)
    if path.exists():
        from inferometer.readers.detect import read_graph  # noqa: PLC0415 - catalog names need no readers of files

        return read_graph(path)
    raise _unknown(str(source))


def published_parameters(source: str) -> int | None:
    """What was published of a catalog model; None for a file."""
    if row_named("models", source) is None:
        return None
    published = model(source).parameters
    return None if published is None else int(published.value)


def _read_row(name: str) -> Graph:
    from inferometer.readers.huggingface.graph import graph_from_config  # noqa: PLC0415 - only catalog names need templates

    row = model(name)
    return graph_from_config(row.config, name=row.name)


def _read_module(module: Any, example_inputs: tuple[Any, ...] | None) -> Graph:
    if example_inputs is None:
        raise FormatError(
            "A live module is read by tracing it, and no inputs were given.",
            remedy="Say read(module, (tensor, …)) with inputs of the shapes it takes.",
        )
    from inferometer.readers.torch import read_module  # noqa: PLC0415 - brings torch

    return read_module(module, example_inputs)


def _unknown(source: str) -> Exception:
    """A path that is not there, or a name that is not known: which was meant shows in how it is written."""
    if "/" in source or "\\" in source or Path(source).suffix in _SUFFIXES:
        return FormatError(f"There is no file or folder {source!r}.", remedy="Check the path.")
    rows = rows_of("models")
    listing = "`inferometer models` lists them; a file or folder may be given by its path."
    return UnknownNameError("model", source, rows.by_name, listing=listing, words=rows.words())
