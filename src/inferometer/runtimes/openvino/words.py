"""The engine's messages, shortened to what they say."""

from __future__ import annotations

import re

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


def op_named(words: str) -> str | None:
    for pattern in _OPS:
        found = pattern.search(words)
        if found:
            parts = found.groupdict()
            return f"{parts['op']} (node {parts['node']!r})" if parts.get("node") else parts["op"]
    return None
