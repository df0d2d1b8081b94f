"""The door: what a file passes before an engine or a tool opens it."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from inferometer.core.errors import TrustError
from inferometer.formats.trust import folders, programs
from inferometer.formats.trust.made_here import is_made_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


def require_data(path: Path, format: str, *, trusted: bool = False) -> None:  # noqa: A002 - the word of every loader
    """Refuse a model that could run code of its own, unless its owner trusts it (`--trust`).

    A file that is not there passes: whoever opens it says so.
    """
    look = _LOOKS.get(format)
    if trusted or look is None or not path.exists():
        return
    fault = next(look(path), None)
    if fault is not None:
        raise TrustError(
            f"{str(path)!r} could run code of its own when it is opened: it {fault}.",
            remedy=f"If you trust who made it, say so: --trust {path}",
        )


def _package_faults(path: Path) -> Iterator[str]:
    if not is_made_here(path):
        yield "is a compiled library, and was not made by `inferometer prepare` on this machine"


def _onnx_faults(path: Path) -> Iterator[str]:
    """Parts that were compiled for one provider: what they do cannot be read from them."""
    files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
    for file in files:
        if not file.is_file() or file.stat().st_size == 0:
            continue
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(b"EPContext") >= 0:
                yield "has parts that were compiled for one provider (EPContext)"


def _genai_faults(path: Path) -> Iterator[str]:
    yield from folders.faults(path)
    yield from _onnx_faults(path)


_LOOKS: Mapping[str, Callable[[Path], Iterator[str]]] = {
    "pt2": programs.faults,
    "aoti": _package_faults,
    "onnx": _onnx_faults,
    "ort": _onnx_faults,
    "config": folders.faults,
    "safetensors": folders.faults,
    "onnxruntime-genai": _genai_faults,
    "openvino-genai": folders.faults,
    "ctranslate2": folders.faults,
}
