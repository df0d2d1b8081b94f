"""Every error the user can do something about.

InferometerError                 the root: a sentence, and what to do
├── UnknownNameError             a device, model, dtype, formula … that is not known
├── UnitError                    text that is not a quantity, or of the wrong dimension
├── DomainError                  a number outside what a formula or a value accepts
├── CatalogError                 a catalog row that does not hold: which file, which key
├── FormatError                  a model or result file that cannot be read: where and why
├── TrustError                   a file, or a job, that would bring code along: what it would run
├── SchemaError                  a document of another schema, or of a newer version
├── PluginError                  a plug-in that cannot be loaded: which one, from which package
├── MissingDependencyError       an optional package is not installed
├── PlaceError                   a place that cannot be reached, or cannot run a job: a host, a phone, a hub
├── EngineError                  an engine refused a model, failed in a step, crashed or hung: its own words
└── GateError                    a gate the user set did not hold (exit code 1, not 2)

A message says what was asked and what was found; `remedy` says what to do. The command line prints both in one place.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

__all__ = [
    "CatalogError",
    "DomainError",
    "EngineError",
    "FormatError",
    "GateError",
    "InferometerError",
    "MissingDependencyError",
    "PlaceError",
    "PluginError",
    "SchemaError",
    "TrustError",
    "UnitError",
    "UnknownNameError",
]


_SUGGESTED, _WORDS_PER_NAME = 3, 4  # names in a message; words that a catalog row may be known by
_LEAST = 0.6  # likeness of a name that is suggested


class InferometerError(Exception):
    """The root. `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return self.message if self.remedy is None else f"{self.message} {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it says, and not as what it was made of: errors cross from a worker to whoever asked."""
        return _as_it_was, (type(self), self.args), self.__dict__


def _as_it_was(kind: type[InferometerError], args: tuple[Any, ...]) -> InferometerError:
    return kind.__new__(kind, *args)


class UnknownNameError(InferometerError):
    """A name that is not known; it suggests the nearest known ones and never picks one."""

    def __init__(
        self,
        kind: str,
        asked: str,
        known: Iterable[str],
        *,
        listing: str | None = None,
        words: Mapping[str, str] | None = None,
    ) -> None:
        """`words` maps what a name is also known by, such as its title, to the name that is suggested."""
        self.kind, self.asked = kind, asked
        self.suggestions = (
            nearest(asked, known) if words is None else _suggested(asked, {**words, **{n: n for n in known}})
        )
        remedy = f"Did you mean {_or(self.suggestions)}?" if self.suggestions else None
        if listing:
            remedy = f"{remedy} {listing}" if remedy else listing
        super().__init__(f"There is no {kind} named {asked!r}.", remedy=remedy)


class UnitError(InferometerError):
    pass


class DomainError(InferometerError):
    pass


class CatalogError(InferometerError):
    pass


class FormatError(InferometerError):
    pass


class TrustError(InferometerError):
    pass


class SchemaError(InferometerError):
    pass


class PluginError(InferometerError):
    pass


class MissingDependencyError(InferometerError):
    pass


class PlaceError(InferometerError):
    pass


class EngineError(InferometerError):
    pass


class GateError(InferometerError):
    exit_code = 1


def nearest(asked: str, known: Iterable[str], *, count: int = _SUGGESTED) -> tuple[str, ...]:
    """Known names that look or sound like the one asked for: similar spelling, or the same words in another order."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - only a miss pays for it

    asked = asked[:100]  # comparing takes as long as both are, times each other
    words, folded = _words(asked), asked.casefold()
    letters = {letter: folded.count(letter) for letter in folded}

    def most_of(name: str) -> tuple[float, float, str]:
        """What the likeness cannot be above, less than 0 to come first, and what the words alone make it."""
        other, shared = name.casefold(), words & _words(name)
        told = 1.0 if words and shared == words else 0.6 + 0.1 * len(shared) if shared else 0.0  # all that was asked
        # Of two spellings no more is alike than the letters that both have.
        both = sum(min(count, other.count(letter)) for letter, count in letters.items())
        length = len(folded) + len(other)
        return -_likeness(2 * both / length if length else 1.0, told), told, name

    # Spellings are compared where a name could still be among the first: that takes longer than all else together.
    ranked: list[tuple[float, str]] = []
    for most, told, name in sorted(most_of(name) for name in set(known)):
        if -most < _LEAST or (len(ranked) == count and -most < -ranked[-1][0]):
            break
        spelling = SequenceMatcher(None, folded, name.casefold()).ratio()
        ranked = sorted([*ranked, (-_likeness(spelling, told), name)])[:count]
    return tuple(name for score, name in ranked if -score >= _LEAST)


def _likeness(spelling: float, told: float) -> float:
    return max(spelling, told) + 0.05 * spelling


def _suggested(asked: str, words: Mapping[str, str]) -> tuple[str, ...]:
    """The nearest names, each once, by whatever word for them is nearest."""
    names = dict.fromkeys(words[word] for word in nearest(asked, words, count=_WORDS_PER_NAME * _SUGGESTED))
    return tuple(names)[:_SUGGESTED]


def same_but_for_case(asked: str, known: Iterable[str]) -> str | None:
    """The one known name that the asked one is, whatever the case of its letters; None if there is none, or two."""
    folded = asked.casefold()
    names = [name for name in known if name.casefold() == folded]
    return asked if asked in names else names[0] if len(names) == 1 else None


def _words(name: str) -> frozenset[str]:
    """The parts of a name that tell it from others: words with a digit, or longer than three letters."""
    parts = name.casefold().replace("_", "-").replace(" ", "-").split("-")
    return frozenset(part for part in parts if len(part) > 3 or any(c.isdigit() for c in part))


def _or(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
