"""The engine's exceptions in our sentences, shortened to what they say."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from inferometer.core.errors import EngineError
from inferometer.engines.faults import guard, op_named

if TYPE_CHECKING:
    from pathlib import Path

_NOISE = re.compile(r"^(Exception from |Check '.*' failed at |FrontEnd API failed with |Summary:|Model wasn't fully)")
_OPS = (
    re.compile(r"No conversion rule found for operations: (?P<op>[\w.:-]+)"),
    re.compile(r"ONNX node '<Node\((?P<op>\w+)\): (?P<node>[^>]*)>'"),
    re.compile(r"Conversion is failed for: (?P<op>[\w.]+)"),
    re.compile(r"operation of type (?P<op>\w+) name (?P<node>\S+)"),
    re.compile(r"node '?(?P<op>opset\d+::\w+) (?P<node>[^ ']+)"),
)


def engine_words(text: str) -> str:
    """Without the engine's own file names, on one line."""
    lines = (line.strip().removeprefix("-- ") for line in text.splitlines())
    kept = [line for line in lines if line and not _NOISE.match(line)]
    return " ".join(kept) or " ".join(text.split()) or "no reason given"


def fault_of(path: Path, doing: str, error: Exception) -> EngineError:
    words = engine_words(str(error))
    op = op_named(words, _OPS, which=0)  # it lists all that went wrong
    about = f" at {op}" if op else ""
    return EngineError(
        f"OpenVINO {doing} {str(path)!r}{about}: {words.rstrip('.')}.",
        remedy="Check that the file is whole and its operators are among those OpenVINO supports.",
    )


guarded = partial(guard, fault_of)
