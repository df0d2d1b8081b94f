"""Output for terminals and files that are not UTF-8: what their encoding lacks is written with signs it has."""

import codecs
import io
import sys

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
