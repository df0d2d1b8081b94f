"""Numbers and lists as kernels, sysctl and CIM write them.

Text that does not fit is None or empty, never an exception: a file may be missing, cut short or garbage.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from inferometer.core.json_text import parse_json

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}(?![0-9.])")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}(?![0-9a-fA-F])")
_SIZE = re.compile(r"([0-9]{1,15})\s*([KMGT]?)i?B?", re.IGNORECASE)
_BINARY = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_CPUS_AT_MOST = 2**16  # a range beyond any machine is garbage, and would fill the memory


def stripped(text: str | None) -> str | None:
    """Without blanks and the NUL that ends device-tree strings. Empty is None."""
    kept = text.strip(" \t\r\n\f\v\0") if text else ""
    return kept or None


def word(row: Mapping[str, Any], key: str) -> str | None:
    """What a row of a tool's JSON says under a key, as far as it is text."""
    value = row.get(key)
    return stripped(value) if isinstance(value, str) else None


def whole(text: str | None) -> int | None:
    """The whole number the text begins with, decimal or 0x."""
    kept = (text or "").strip(" \t\r\n\0")
    if match := _HEX.match(kept):
        return int(match[0], 16)
    return int(match[0]) if (match := _WHOLE.match(kept)) else None


def number(text: str | None) -> float | None:
    """The text as a finite number, or None."""
    kept = stripped(text)
    if kept is None or len(kept) > 40 or not kept.isascii() or "_" in kept:
        return None
    try:
        value = float(kept)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def scaled(text: str | None, factor: float) -> float | None:
    """A number in the kernel's unit as one in ours: `scaled("2400000", 1e3)` is 2.4 GHz in Hz."""
    value = number(text)
    return None if value is None else value * factor


def kib(text: str | None) -> int | None:
    """`"24682740 kB"` as bytes; the kernel's kB is 1024."""
    value = whole(text)
    return None if value is None or value < 0 else value * 1024


def size_bytes(text: str | None) -> int | None:
    """`"2048K"`, `"16 GB"` as bytes, with binary prefixes: sizes of memories are written so."""
    match = _SIZE.fullmatch(stripped(text) or "")
    return int(match[1]) * _BINARY[match[2].upper()] if match else None


def cpu_list(text: str | None) -> tuple[int, ...]:
    """`"0-3,8"` → (0, 1, 2, 3, 8)."""
    cpus: set[int] = set()
    for part in (stripped(text) or "").split(","):
        first, dash, last = part.partition("-")
        low = whole(first)
        high = whole(last) if dash else low
        if low is None or high is None or not 0 <= low <= high < _CPUS_AT_MOST:
            continue
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def lines_of(text: str | None) -> list[str]:
    return (text or "").splitlines()


def pairs(text: str | None, separator: str = ":") -> dict[str, str]:
    """`key: value` lines; the first of a repeated key counts."""
    values: dict[str, str] = {}
    for line in lines_of(text):
        key, mark, value = line.partition(separator)
        if mark and key.strip():
            values.setdefault(key.strip(), value.strip())
    return values


def blocks(text: str | None) -> list[dict[str, str]]:
    """Paragraphs of `key : value` lines, as /proc/cpuinfo is made of."""
    paragraphs = re.split(r"\n[ \t]*\n", text or "")
    return [block for paragraph in paragraphs if (block := pairs(paragraph))]


def decoded(text: str | None) -> Any:
    """JSON as values, or None."""
    try:
        return parse_json(text) if text else None
    except ValueError:
        return None


def table(value: Any) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[Mapping[str, Any]]:
    """A JSON list of objects; PowerShell writes a list of one as the object itself."""
    if isinstance(value, dict):
        return [value]
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
