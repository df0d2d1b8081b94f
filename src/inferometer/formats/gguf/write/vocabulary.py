"""A vocabulary that works: byte-level pairs, every token reachable, exactly as many as the model has.

The first 256 tokens are the bytes, written as GPT-2 writes them. Then come pairs of letters, and pairs of pairs, each
with the merge that makes it; the last four are the marks llama.cpp looks for by name. Any text can be tokenised and
every token can be printed; what it says is noise, as the weights are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

from inferometer.core.errors import InferometerError

_LETTERS = "etaoinshrdlcumwfgypbvkjxqz"
_SPECIAL = ("<unk>", "<s>", "</s>", "<|endoftext|>")
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5  # GGUF's token types
LEAST = 256 + len(_SPECIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    types: tuple[int, ...]
    begin: int
    end: int


def vocabulary(size: int) -> Vocabulary:
    if size < LEAST:
        raise InferometerError(
            f"A vocabulary of {size} tokens cannot work: with all bytes and four marks it has at least {LEAST}.",
            remedy=f"Give a config whose vocab_size is {LEAST} or more.",
        )
    made = tuple(islice(_merges(), size - LEAST))
    tokens = (*_byte_letters(), *(left + right for left, right in made))
    unused = tuple(f"<|unused{index}|>" for index in range(size - LEAST - len(made)))
    return Vocabulary(
        tokens=(*tokens, *unused, *_SPECIAL),
        merges=tuple(f"{left} {right}" for left, right in made),
        types=(_NORMAL,) * len(tokens) + (_UNUSED,) * len(unused) + (_CONTROL,) * len(_SPECIAL),
        begin=size - 3,
        end=size - 2,
    )


def _merges() -> Iterator[tuple[str, str]]:
    """A space before each letter, all pairs of letters, all pairs of those: 457,678 tokens."""
    yield from (("Ġ", letter) for letter in _LETTERS)
    yield from product(_LETTERS, repeat=2)
    pairs = [left + right for left, right in product(_LETTERS, repeat=2)]
    yield from product(pairs, repeat=2)


def _byte_letters() -> tuple[str, ...]:
    """GPT-2's letter for each byte: itself where it can be seen, the letters from U+0100 on for the others."""
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(0x100, 0x200))
    return tuple(chr(byte) if byte in seen else chr(next(hidden)) for byte in range(256))
