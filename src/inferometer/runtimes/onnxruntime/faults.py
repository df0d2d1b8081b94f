"""The engine's exceptions in our sentences."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inferometer.errors import EngineError, InferometerError

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """What the engine said, without its own file names and repetitions, on one line."""
    text = _HEAD.sub("", str(error).strip())
    text = _WHERE.sub("", _LOAD.sub("", text))
    return " ".join(text.split()) or type(error).__name__


def op_named(words: str) -> str | None:
    """The operator, and the node, that the message speaks of: the innermost, where one is within another."""
    for pattern in _OPS:
        found = list(pattern.finditer(words))
        if found:
            parts = found[-1].groupdict()
            return f"{parts['op']} (node {parts['node']!r})" if parts.get("node") else parts["op"]
    return None


@contextmanager
def guarded(path: Path, doing: str) -> Iterator[None]:
    """An engine's exception becomes an EngineError; ours and the interpreter's pass."""
    try:
        yield
    except (InferometerError, MemoryError):
        raise
    except Exception as error:  # the engine's own exceptions have no common root but this
        raise fault_of(path, doing, error) from error


def fault_of(path: Path, doing: str, error: Exception) -> Exception:
    """The same for a loop that cannot afford a context manager."""
    words = engine_words(error)
    if "Failed to allocate memory" in words or "bad_alloc" in words:
        return MemoryError(words)
    op = op_named(words)
    about = f" at {op}" if op else ""
    return EngineError(f"ONNX Runtime {doing} {str(path)!r}{about}: {words.rstrip('.')}.", remedy=_remedy(words))


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
