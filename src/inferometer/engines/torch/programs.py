"""Exported programs from a file: the operators that a quantiser put into one are made known before it is loaded."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError
from inferometer.formats.trust.door import require_data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# How operators of a library begin in a program, the module whose import makes them known, and how to get it.
_LIBRARIES = (
    (b"torch.ops.quantized_decomposed.", "torch.ao.quantization.fx._decomposed", "torch"),
    (b"torch.ops.torchao.", "torchao.quantization.quant_primitives", "torchao"),
)


def load_program(torch: Any, path: Path, *, trusted: bool = False) -> Any:
    """torch.export's ExportedProgram. Unless its owner trusts it, it is looked through, and holds tensors alone."""
    require_data(path, "pt2", trusted=trusted)
    _make_known(path)
    try:
        if trusted:
            return torch.export.load(str(path))
        with _only_tensors(torch):
            return torch.export.load(str(path))
    except Exception as error:  # a zip that is none, a newer schema, an op that is not there
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise FormatError(
            f"torch.export cannot load {str(path)!r}: {lines[0]}",
            remedy="Give a .pt2 file written by torch.export, with the PyTorch that is installed here or an older one.",
        ) from error


@contextmanager
def _only_tensors(torch: Any) -> Iterator[None]:
    """While a program is loaded, nothing but tensors is unpickled: PyTorch itself would fall back to everything."""
    load = torch.load
    torch.load = partial(_load_tensors, load)
    try:
        yield
    finally:
        torch.load = load


def _load_tensors(load: Any, *given: Any, **named: Any) -> Any:
    return load(*given, **{**named, "weights_only": True})


def _make_known(path: Path) -> None:
    programs = b""
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if "models/" in name and name.endswith(".json")]
        programs = b"".join(archive.read(name) for name in names)
    for start, module, package in _LIBRARIES:
        if start not in programs:
            continue
        try:
            import_module(module)
        except ImportError as error:
            raise FormatError(
                f"{str(path)!r} has operators of {package}, which cannot be imported: {error}.",
                remedy=f"pip install {package}.",
            ) from None
