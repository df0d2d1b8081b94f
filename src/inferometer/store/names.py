"""What a project, a run, a tag, a parameter or a file may be called; and text from elsewhere, made fit to keep."""

import unicodedata

from inferometer.errors import DomainError

__all__ = ["artifact_name", "clean", "parameter_name", "project_name", "run_name", "tag_name"]

_MOST = 200
_MOST_TEXT = 100_000


def project_name(text: str) -> str:
    """It stands in addresses and folders: no slash."""
    return _named("project", text, most=100, without="/\\")


def run_name(text: str) -> str:
    return _named("run", text)


def tag_name(text: str) -> str:
    """`runs tag RUN +a -b` adds and removes: a tag begins with neither sign."""
    name = _named("tag", text, most=100, without=",")
    if name[0] in "+-~" or any(letter.isspace() for letter in name):
        raise DomainError(f"{text!r} cannot be a tag.", remedy="A tag is one word that begins with no sign.")
    return name


def parameter_name(text: str) -> str:
    return _named("parameter", text)


def metric_name(text: str) -> str:
    return _named("metric", text)


def artifact_name(text: str) -> str:
    """It becomes the name of a file on somebody's disk: no way up, no way out."""
    name = _named("file", text, without="\\:")
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise DomainError(f"{text!r} cannot be the name of a run's file.", remedy="Give a name such as trace.json.")
    return name


def _named(kind: str, text: str, *, most: int = _MOST, without: str = "") -> str:
    name = text.strip()
    if not name or len(name) > most:
        raise DomainError(f"A {kind}'s name has 1 to {most} characters; {text[:50]!r} has {len(name)}.")
    bad = next((letter for letter in name if letter in without or unicodedata.category(letter)[0] == "C"), None)
    if bad is not None:
        raise DomainError(f"{text[:50]!r} cannot name a {kind}: it holds {bad!r}.", remedy="Use letters and digits.")
    return name


def clean(text: str | None, *, most: int = _MOST_TEXT) -> str | None:
    """Text that came from a file or an error: without what a database refuses or a terminal would obey."""
    if text is None:
        return None
    kept = "".join(letter for letter in text if letter in "\n\t" or unicodedata.category(letter)[0] != "C")
    return kept[:most]


def kind_name(text: str) -> str:
    return _named("kind", text, most=50)


def user_name(text: str) -> str:
    return _named("user", text, most=100)


def token_name(text: str) -> str:
    return _named("token", text, most=100)
