"""How long requests are: fixed, normal, lognormal, uniform, or drawn from a file of real lengths."""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inferometer.core.errors import DomainError, FormatError
from inferometer.core.frozen import frozen
from inferometer.core.units import format_quantity

Kind = Literal["fixed", "normal", "lognormal", "uniform", "file"]
Tokens = NDArray[np.int64]
_MOST = 10_000_000
_FORMS = "Write 512, normal:512,128 (mean, deviation), lognormal:512,400, uniform:128-1024, or file:LENGTHS.csv."


@frozen
class Lengths:
    """Tokens a request. `mean` and `deviation` are those of the lengths themselves, of a lognormal too."""

    kind: Kind
    mean: float
    deviation: float = 0.0
    low: int = 1
    high: int = _MOST
    values: tuple[int, ...] = ()
    source: str | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.mean <= _MOST and 0 <= self.deviation <= _MOST and self.low <= self.high):
            raise DomainError(f"Lengths of {self.mean:g} ± {self.deviation:g} tokens cannot be.", remedy=_FORMS)

    def __str__(self) -> str:
        match self.kind:
            case "fixed":
                return f"{self.mean:g}"
            case "uniform":
                return f"uniform {self.low} to {self.high}"
            case "file":
                return f"from {self.source}, mean {self.mean:.4g}"
        return f"{self.kind} {self.mean:g} ± {self.deviation:g}"


def draw(lengths: Lengths, count: int, rng: np.random.Generator) -> Tokens:
    """So many lengths; none below 1 where the mean is not 0, so a wide normal has a mean above the one asked for."""
    match lengths.kind:
        case "fixed":
            return np.full(count, round(lengths.mean), np.int64)
        case "uniform":
            return rng.integers(lengths.low, lengths.high + 1, count)
        case "file":
            return rng.choice(np.asarray(lengths.values, np.int64), count)
        case "normal":
            drawn = rng.normal(lengths.mean, lengths.deviation, count)
        case "lognormal":
            # Mean m and deviation s of the lengths give σ² = ln(1 + s²/m²) and μ = ln m − σ²/2 of their logarithms.
            variance = math.log1p((lengths.deviation / lengths.mean) ** 2)
            drawn = rng.lognormal(math.log(lengths.mean) - variance / 2, math.sqrt(variance), count)
    return np.clip(np.rint(drawn), lengths.low, lengths.high).astype(np.int64)


def parse_lengths(text: str, *, column: str) -> Lengths:
    """The lengths that a user writes; `column` is the one to read of a file: `input_tokens` or `output_tokens`."""
    kind, _, rest = text.strip().partition(":")
    try:
        if not rest:
            return Lengths(kind="fixed", mean=_tokens(kind))
        if kind == "file":
            return _from_file(Path(rest), column)
        if kind == "uniform":
            low, high = (_tokens(end) for end in rest.split("-"))
            return Lengths(kind="uniform", mean=(low + high) / 2, low=low, high=high)
        if kind in {"normal", "lognormal"}:
            mean, deviation = (float(part) for part in rest.split(","))
            if mean > 0:
                return Lengths(kind="normal" if kind == "normal" else "lognormal", mean=mean, deviation=deviation)
    except ValueError:
        pass
    raise DomainError(f"{text!r} is not a length.", remedy=_FORMS)


def _tokens(text: str) -> int:
    count = int(text)
    if not 0 <= count <= _MOST:
        raise ValueError(text)
    return count


_COLUMNS = {
    "input_tokens": ("input_tokens", "input_length", "ContextTokens", "Request tokens", "prompt"),
    "output_tokens": ("output_tokens", "output_length", "GeneratedTokens", "Response tokens", "generate"),
}


_PIECE = 1 << 20
_MOST_BYTES = 1 << 30  # of a trace: some ten million requests


def _from_file(path: Path, column: str) -> Lengths:
    """A column of a CSV, by the names that traces use, or a plain list of numbers, one a line."""
    try:
        rows = [row for row in csv.reader(io.StringIO(read_text(path))) if row]
    except csv.Error as error:
        raise FormatError(f"{path}: {error}.") from None
    names = rows[0] if rows else []
    known = [names.index(name) for name in _COLUMNS[column] if name in names]
    at = known[0] if known else 0 if len(names) == 1 else None
    if at is None:
        raise FormatError(
            f"{path}: there is no column of lengths among {', '.join(names) or 'nothing'}.",
            remedy=f"Name it {column}, or give a file with one number a line.",
        )
    body = rows if not known and names[0].strip().isdecimal() else rows[1:]
    values = []
    for number, row in enumerate(body, start=len(rows) - len(body) + 1):
        try:
            values.append(_tokens(row[at].strip()))
        except (ValueError, IndexError):
            raise FormatError(f"{path}, line {number}: {','.join(row)[:40]!r} holds no number of tokens.") from None
    if not values:
        raise FormatError(f"{path} holds no lengths.")
    return listed_lengths(values, path.name)


def listed_lengths(values: Sequence[int] | Tokens, source: str) -> Lengths:
    """Lengths that are drawn from these."""
    return Lengths(kind="file", mean=float(np.mean(values)), values=tuple(map(int, values)), source=source)


def read_text(path: Path) -> str:
    """A text file, packed with gzip or not; a device or a packed file without end is not read to its end."""
    try:
        with path.open("rb") as file:
            begin = file.peek(2)
            is_packed = begin[:2] == b"\x1f\x8b"
            with gzip.GzipFile(fileobj=file) if is_packed else nullcontext(file) as text:
                data = bytearray()  # piece by piece: to read "at most a gigabyte" takes a gigabyte
                # The begin tells a device of zeros, before much of it is held.
                while len(data) <= _MOST_BYTES and b"\0" not in data[:2] and (piece := text.read(_PIECE)):
                    data += piece
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if len(data) > _MOST_BYTES:
        raise FormatError(f"{path} has more than {format_quantity(_MOST_BYTES, 'B')}.", remedy="Give a part of it.")
    if b"\0" in data:
        raise FormatError(f"{path} is no text in UTF-8.", remedy="Save it as one, or name another file.")
    return data.decode("utf-8-sig", errors="replace")
