"""Output for every place it may go: terminals and files that are not UTF-8, closed pipes, full disks.

What an encoding lacks is written with signs it has. Output that cannot be written stops no command: a run that was
measured is stored whoever reads its page.
"""

from __future__ import annotations

import codecs
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_NAME = "inferometer.readable"
# Signs that tables, units, formulas and sentences use, where decomposing them (² is 2) does not help.
_INSTEAD = {
    "×": "x", "÷": "/", "·": "*", "∘": " o ", "−": "-", "–": "-", "—": "-", "±": "+-", "½": "1/2", "⅔": "2/3",
    "√": "sqrt", "µ": "u", "μ": "u", "°": "deg", "′": "'", "…": "...", "≤": "<=", "≥": ">=", "≈": "~", "∝": "~",
    "∞": "inf", "¬": "not", "→": "->", "←": "<-", "↔": "<->", "─": "-", "│": "|", "├": "+", "└": "+", "█": "#",
    "✓": "+", "✗": "x", "⌊": "floor(", "⌋": ")", "⌈": "ceil(", "⌉": ")", "∏": "prod", "∫": "integral", "“": '"',
    "”": '"', "’": "'", "‘": "'", "🟢": "(+)", "🟡": "(!)", "🔴": "(x)", "⚪": "( )",
}  # fmt: skip
_ASCII = "inferometer-ascii"  # click writes UTF-8 to a stream that says ASCII; it takes this one at its word


def print_readably() -> None:
    """Let stdout and stderr print every text, whatever their encoding. Where it can be written, nothing changes."""
    codecs.register_error(_NAME, _replacement)
    codecs.register(lambda name: _ascii_codec() if name.replace("_", "-") == _ASCII else None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            ascii_only = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_ASCII if ascii_only else None, errors=_NAME)


def open_closed_streams() -> None:
    """Let streams that were closed (`>&-`) lead nowhere; else the next file that is opened would get their number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free, which is this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


_unwritten: list[OSError] = []


def write_out(text: str) -> None:
    """Write to stdout. Who closed it (`| head`) wants no more; any other failure is told by `output_failure`."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        lead_nowhere(sys.stdout)
    except OSError as error:
        _unwritten.append(error)
        lead_nowhere(sys.stdout)


def output_failure() -> str | None:
    """Why output was lost since the last call, if any was."""
    reason = f"{_unwritten[0].strerror or _unwritten[0]}" if _unwritten else None
    _unwritten.clear()
    return reason


def write_message(text: str) -> None:
    """Write to stderr; where even that fails, nobody can be told."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        lead_nowhere(sys.stderr)


def lead_nowhere(stream: TextIO) -> None:
    """What is still in its buffer, and what comes later, goes to no file: Python would fail on it again at the end."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # not a file, as in tests
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _ascii_codec() -> codecs.CodecInfo:
    plain = codecs.lookup("ascii")
    return codecs.CodecInfo(
        plain.encode, plain.decode, plain.streamreader, plain.streamwriter, plain.incrementalencoder,
        plain.incrementaldecoder, name=_ASCII,
    )  # fmt: skip


def is_unicode(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "ascii").name.startswith("utf")
    except LookupError:
        return False


def _replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_readable, error.object[error.start : error.end])), error.end


def _readable(sign: str) -> str:
    """In ASCII, which every encoding has."""
    if sign in _INSTEAD:
        return _INSTEAD[sign]
    import unicodedata

    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    name = unicodedata.name(sign, "").split()
    return plain or (name[3].lower() if name[:1] == ["GREEK"] and name[2:3] == ["LETTER"] else "?")
