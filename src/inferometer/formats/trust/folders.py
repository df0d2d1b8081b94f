"""Configs in a model's folder: whether one names code, or a file elsewhere, that a library would load for it."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from inferometer.core.json_text import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_BYTES = 64 << 20
_LARGE = frozenset({"tokenizer.json", "vocab.json", "vocabulary.json"})  # words, in which nothing is named
_LIBRARIES = frozenset({"custom_ops_library", "library_path"})
_FILES = ("_file", "filename", "file_name")


def faults(path: Path) -> Iterator[str]:
    """Of the configs of a folder, or of a file and those that lie beside it."""
    folder = path if path.is_dir() else path.parent
    for file in sorted({*folder.glob("*.json"), *([path] if path.suffix == ".json" else ())}):
        if file.name in _LARGE or not file.is_file() or file.stat().st_size > _MOST_BYTES:
            continue
        try:
            document = parse_json(file.read_bytes())
        except (OSError, ValueError):
            continue  # what needs it says so
        yield from (f"{fault} in {file.name}" for fault in _faults(document, ""))


def _faults(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        for inner, part in value.items():
            name = key if key == "weight_map" else str(inner)
            yield from _faults(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from _faults(part, key)
    elif isinstance(value, str) and value:
        if key in _LIBRARIES:
            yield f"names the library {value[:80]!r}"
        elif key.endswith("attn_implementation") and "/" in value:
            yield f"names kernels to be fetched and run, {value[:80]!r},"
        elif (key.endswith(_FILES) or key == "weight_map") and leaves(value):
            yield f"names a file outside its folder, {value[:80]!r},"


def leaves(name: str) -> bool:
    """Whether a relative name leads out of the folder that it is in, on any system."""
    parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
    return name.startswith("/") or bool(PureWindowsPath(name).anchor) or ".." in parts or "\0" in name
