"""Valid names of projects, runs, tags, parameters and files; and text from elsewhere, cleaned for storing."""

import unicodedata
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
