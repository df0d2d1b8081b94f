"""The engine's exceptions in our sentences."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from inferometer.core.errors import EngineError
from inferometer.engines.base import guard, op_named

if TYPE_CHECKING:
    from pathlib import Path

_OPS = (
    re.compile(r"implementation for (?P<op>[\w.:]+)\(\d+\) node with name '(?P<node>[^']*)'"),
    re.compile(r"Fatal error: (?P<op>[\w.:]+)\(-?\d+\) is not a registered"),
    re.compile(r"running (?P<op>\w+) node\. Name:'(?P<node>[^']*)'"),
    re.compile(r"No Op registered for (?P<op>\w+)"),
    re.compile(r"Node \((?P<node>[^)]*)\) Op \((?P<op>\w+)\)"),
)
_HEAD = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LOAD = re.compile(r"^(Load model from .*? failed:)+")
_WHERE = re.compile(r"\S*/onnxruntime_src/\S+ .*?\) (?=[A-Z])")  # the engine's own file, line and function


def engine_words(error: BaseException) -> str:
    """The message without the engine's own file names and repetitions, on one line."""
    text = _HEAD.sub("", str(error).strip())
    text = _WHERE.sub("", _LOAD.sub("", text))
    return " ".join(text.split()) or type(error).__name__


def fault_of(path: Path, doing: str, error: Exception) -> Exception:
    """What an exception means, in a sentence; for a loop that cannot afford `guarded`, too."""
    words = engine_words(error)
    if "Failed to allocate memory" in words or "bad_alloc" in words:
        return MemoryError(words)
    op = op_named(words, _OPS, which=-1)  # the innermost, where one is within another
    about = f" at {op}" if op else ""
    return EngineError(f"ONNX Runtime {doing} {str(path)!r}{about}: {words.rstrip('.')}.", remedy=_remedy(words))


guarded = partial(guard, fault_of)


def _remedy(words: str) -> str:
    if "Protobuf parsing failed" in words:
        return "The file is damaged or no ONNX model."
    if "File doesn't exist" in words:
        return "Check the path."
    if "external" in words.casefold():
        return "Files with the weights belong beside the model, under the names it gives."
    if "opset" in words.casefold() or "not a registered" in words or "implementation for" in words:
        return "Export it with an operator set and types that this version runs, or upgrade onnxruntime."
    return "Check the model with `onnx.checker`, and that its inputs have the sizes it was exported for."
