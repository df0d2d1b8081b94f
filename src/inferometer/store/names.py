"""Valid names of projects, runs, tags, parameters and files; ids of runs; text from elsewhere, cleaned for storing."""

import secrets
import unicodedata
from collections.abc import Callable
from typing import Literal

from inferometer.core.errors import DomainError

Kind = Literal["project", "run", "tag", "parameter", "metric", "file", "kind", "user", "token"]

_MOST = {"project": 100, "tag": 100, "kind": 50, "user": 100, "token": 100}  # characters; of the others:
_MOST_OTHERS = 200
# A project's name stands in addresses and folders, a file's becomes that of a file on somebody's disk.
_WITHOUT = {"project": "/\\", "tag": ",", "file": "\\:"}
_MOST_TEXT = 100_000
MOST_NOTE = 4000


def valid_name(kind: Kind, text: str) -> str:
    """The name without blanks around it; one that cannot be used is an error that says why."""
    name, most = text.strip(), _MOST.get(kind, _MOST_OTHERS)
    if not name or len(name) > most:
        raise DomainError(f"A {kind}'s name has 1 to {most} characters; {text[:50]!r} has {len(name)}.")
    without = _WITHOUT.get(kind, "")
    bad = next((letter for letter in name if letter in without or unicodedata.category(letter)[0] == "C"), None)
    if bad is not None:
        raise DomainError(f"{text[:50]!r} cannot name a {kind}: it holds {bad!r}.", remedy="Use letters and digits.")
    # `runs tag RUN +a -b` adds and removes: a tag begins with neither sign.
    if kind == "tag" and (name[0] in "+-~" or any(letter.isspace() for letter in name)):
        raise DomainError(f"{text!r} cannot be a tag.", remedy="A tag is one word that begins with no sign.")
    if kind == "project" and not name.strip("."):  # browsers take these for a way up
        raise DomainError(f"{text!r} cannot name a project.", remedy="Use letters and digits.")
    # No way up, no way out of the folder that an archive is unpacked into.
    if kind == "file" and any(part in {"", ".", ".."} for part in name.split("/")):
        raise DomainError(f"{text!r} cannot be the name of a run's file.", remedy="Give a name such as trace.json.")
    return name


def clean(text: str | None, *, most: int = _MOST_TEXT) -> str | None:
    """Text that came from a file or an error: without what a database refuses or a terminal would obey."""
    if text is None:
        return None
    kept = "".join(letter for letter in text if letter in "\n\t" or unicodedata.category(letter)[0] != "C")
    return kept[:most]


# Ids of runs: twelve letters and digits. Eight encode the time, so that ids sort as runs began; four are random.
#
# Crockford's base 32 in small letters: no i, l, o or u, so that what is read aloud or copied by hand comes back the
# same.

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME, _DRAWN = 8, 4
ID_LENGTH = _TIME + _DRAWN
_PER_S = 100  # hundredths of a second fill eight digits until the year 2318
_ALIKE = str.maketrans("ilo", "110")


def new_id(now_s: float, draw: Callable[[int], int] = secrets.randbelow) -> str:
    return _digits(int(now_s * _PER_S), _TIME) + _digits(draw(32**_DRAWN), _DRAWN)


def normal_id(text: str) -> str | None:
    """What was typed, as an id or a part of one would be written; None where it cannot be one."""
    typed = text.strip().lower().replace("-", "").translate(_ALIKE)
    return typed if typed and len(typed) <= ID_LENGTH and all(letter in _DIGITS for letter in typed) else None


def _digits(number: int, count: int) -> str:
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(count)))
