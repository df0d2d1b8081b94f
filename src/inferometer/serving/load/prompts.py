"""Synthetic prompts of a given number of tokens.

They are made of words that are one token each, so that as many words are as many tokens. Which words those are is asked
of the server's own tokenizer where it has one, or of one on this machine that was named; how many tokens the server
adds around a prompt (a template, a begin) is read from the usage of a probe. Its usage then says of every request how
long its prompt really was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import FormatError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.traffic.trace_forms import TokenCount

# Short and frequent, with a space before them one token in most vocabularies.
_TEXT = (
    "the of and to in is was for that on as with by at from are this be an or which but not have has had were they his "
    "her she you can all will one more about time some would people into first other could new only also its than then "
    "two may these after over years most many such made where between being under through during each before very how "
    "world life part place work great little own long day house water name line found still since found right side "
    "number good while last small high end both group later left example given power set hand near city form land "
    "point against much war school used"
)
WORDS = tuple(dict.fromkeys(_TEXT.split()))


@dataclass(frozen=True, kw_only=True)
class PromptMaker:
    """`added` tokens stand around every prompt; `per_word` tokens are in a word, 1 where the vocabulary allows it."""

    words: tuple[str, ...] = WORDS
    added: int = 0
    per_word: float = 1.0
    how: str = "not verified: one token a word assumed"
    exact: bool = False
    seed: int = 0
    tokenizer: str | None = None  # on this machine, which counts what the server does not
    _vocabulary: np.ndarray = field(init=False, repr=False, compare=False, default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        object.__setattr__(self, "_vocabulary", np.array(self.words, dtype=object))

    def text(self, tokens: int, *key: int) -> str:
        """A text of a number of tokens, the same for the same key; a template's words around it are not counted."""
        count = max(1, round(tokens / self.per_word))
        rng = np.random.default_rng((self.seed, *key))
        return " ".join(self._vocabulary[rng.integers(0, len(self.words), count)])

    def prompt(self, tokens: int, *key: int, prefix_tokens: int = 0, group: int = 0) -> str:
        """A whole prompt: what its group shares, and then its own words."""
        room = max(1, tokens - self.added)
        if not prefix_tokens:
            return self.text(room, 0, *key)
        shared = min(prefix_tokens, room)
        own = room - shared
        return self.text(shared, 1, group) + (f" {self.text(own, 0, *key)}" if own else "")

    def from_pieces(self, tokens: int, pieces: Sequence[tuple[int, int]], *key: int) -> str:
        """A prompt of named pieces (names, tokens) and then its own words: what begins alike has the same words."""
        left, texts = max(1, tokens - self.added), []
        for name, size in pieces:
            if left <= 0:
                break
            texts.append(_piece(self, name, min(size, left)))
            left -= size
        if left > 0:
            texts.append(self.text(left, 3, *key))
        return " ".join(texts)


@lru_cache(maxsize=4096)
def _piece(maker: PromptMaker, name: int, size: int) -> str:
    return maker.text(size, 2, name)


@cache
def local_tokenizer(where: str) -> TokenCount:
    """What counts the tokens of a text on this machine: by a tokenizer.json, its folder, or a name of the hub's."""
    file = Path(where) / "tokenizer.json" if Path(where).is_dir() else Path(where)
    try:
        if find_spec("tokenizers") is not None and (file.is_file() or not Path(where).exists()):
            from tokenizers import Tokenizer  # noqa: PLC0415 - an optional package, for this alone

            quick: Any = Tokenizer.from_file(str(file)) if file.is_file() else Tokenizer.from_pretrained(where)
            return lambda text: len(quick.encode(text, add_special_tokens=False).ids)
        if find_spec("transformers") is not None:
            from transformers import AutoTokenizer  # noqa: PLC0415 - as above

            slow: Any = AutoTokenizer.from_pretrained(where)
            return lambda text: len(slow.encode(text, add_special_tokens=False))
    except Exception as error:  # noqa: BLE001 - both raise what they like
        said = (str(error).splitlines() or [""])[0][:200]
        raise FormatError(
            f"{where} is no tokenizer that can be read ({said or type(error).__name__}).",
            remedy="Name a tokenizer.json, a folder with one, or a model of the hub's.",
        ) from None
    raise MissingDependencyError(
        "A tokenizer on this machine is read by tokenizers or transformers.",
        remedy="Install one: pip install tokenizers.",
    )
