"""Traces of real services: when each request came, and how long it was.

Known by content: Mooncake's JSON lines (`timestamp` in ms, `input_length`, `output_length`, `hash_ids` of 512-token
blocks), Azure's CSV (`TIMESTAMP,ContextTokens,GeneratedTokens`), BurstGPT's CSV (`Timestamp` in s, `Request tokens`,
`Response tokens`), and our own (`arrival_s,input_tokens,output_tokens`). Any of them may be packed with gzip.
"""

import csv
import io
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np

from inferometer.core.errors import DomainError, FormatError
from inferometer.core.frozen import frozen
from inferometer.core.traffic.arrivals import Times
from inferometer.core.traffic.lengths import Tokens, read_text

BLOCK_TOKENS = 512  # of Mooncake's hash_ids
_KNOWN = "Known: Mooncake (JSON lines), Azure, BurstGPT, or a CSV with arrival_s,input_tokens,output_tokens."


@frozen
class RequestTrace:
    """Requests in the order of their arrival. `blocks` names the equal pieces of prompts, where the trace has them."""

    name: str
    form: str
    arrival_s: Times
    input_tokens: Tokens
    output_tokens: Tokens
    blocks: tuple[tuple[int, ...], ...] = ()
    skipped: int = 0  # rows without tokens: requests that failed when the trace was taken

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def between_steps(self) -> bool:
        """Whether an engine took the times down, which looks for new requests between two of its steps only.

        Those that came during one step then stand together, microseconds apart, and nothing comes shortly after them.
        """
        gaps = np.diff(np.sort(self.arrival_s))
        together = int(np.sum(gaps < _TOGETHER_S))
        apart = int(np.sum(gaps < _APART_S)) - together
        return self.form == "requests" and together > _MANY * len(gaps) and 4 * apart < together


_TOGETHER_S, _APART_S = 1e-3, 8e-3  # within one look of an engine, and less than a step of it
_MANY = 0.05  # of the requests


@frozen
class _Columns:
    arrival: str
    input: str
    output: str
    form: str


_CSV = (
    _Columns(arrival="TIMESTAMP", input="ContextTokens", output="GeneratedTokens", form="Azure"),
    _Columns(arrival="Timestamp", input="Request tokens", output="Response tokens", form="BurstGPT"),
    _Columns(arrival="arrival_s", input="input_tokens", output="output_tokens", form="requests"),
)


class _Mooncake(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = msgspec.field(default_factory=list)


def read_trace(path: Path) -> RequestTrace:
    text = read_text(path)
    return _mooncake(path, text) if text.lstrip()[:1] == "{" else _table(path, text)


def part_of(
    trace: RequestTrace,
    *,
    speed: float = 1.0,
    start_s: float = 0.0,
    duration_s: float | None = None,
    count: int | None = None,
) -> RequestTrace:
    """A stretch of a trace from `start_s` on, replayed `speed` times as fast; `duration_s` is of the replay."""
    if not speed > 0:
        raise DomainError(f"The speed of a replay must be greater than 0, and is {speed!r}.")
    due = (trace.arrival_s - start_s) / speed
    kept = (due >= 0) & (due < (np.inf if duration_s is None else duration_s))
    indices = np.flatnonzero(kept)[:count]
    if len(indices) == 0:
        raise DomainError(
            f"{trace.name} has no request in the part that was asked for.",
            remedy=f"It has {len(trace):,} in {trace.arrival_s[-1]:,.0f} s.",
        )
    blocks = tuple(trace.blocks[index] for index in indices) if trace.blocks else ()
    return RequestTrace(
        name=trace.name,
        form=trace.form,
        arrival_s=due[indices],
        input_tokens=trace.input_tokens[indices],
        output_tokens=trace.output_tokens[indices],
        blocks=blocks,
        skipped=trace.skipped,
    )


def _mooncake(path: Path, text: str) -> RequestTrace:
    decoder = msgspec.json.Decoder(_Mooncake)
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                rows.append(decoder.decode(line))
            except msgspec.DecodeError as error:
                raise FormatError(f"{path}, line {number}: {error}.", remedy=_KNOWN) from None
    return _trace(
        path,
        "Mooncake",
        [row.timestamp / 1e3 for row in rows],
        [row.input_length for row in rows],
        [row.output_length for row in rows],
        [tuple(row.hash_ids) for row in rows],
    )


def _table(path: Path, text: str) -> RequestTrace:
    reader = csv.DictReader(io.StringIO(text))
    names = set(reader.fieldnames or ())
    form = next((each for each in _CSV if {each.arrival, each.input, each.output} <= names), None)
    if form is None:
        shown = ", ".join(sorted(names))[:80] or "nothing"
        raise FormatError(f"{path} is not a trace that is known: its columns are {shown}.", remedy=_KNOWN)
    arrival, inputs, outputs = [], [], []
    for number, row in enumerate(reader, start=2):
        try:
            arrival.append(_moment(row[form.arrival]))
            inputs.append(int(row[form.input] or 0))
            outputs.append(int(row[form.output] or 0))
        except (ValueError, TypeError):
            raise FormatError(f"{path}, line {number}: it is not a time and two numbers of tokens.") from None
    return _trace(path, form.form, arrival, inputs, outputs, [])


def _moment(text: str) -> float:
    """Seconds, of a number of them or of a date with a time."""
    try:
        return float(text)
    except ValueError:
        head, _, fraction = text.strip().removesuffix("+00:00").partition(".")
        return datetime.fromisoformat(head).timestamp() + float(f"0.{fraction or 0}")


def _trace(  # noqa: PLR0913, PLR0917 - the columns, in one order everywhere
    path: Path,
    form: str,
    arrival: Sequence[float],
    inputs: Sequence[int],
    outputs: Sequence[int],
    blocks: Sequence[tuple[int, ...]],
) -> RequestTrace:
    times, into, out = np.asarray(arrival, float), np.asarray(inputs, np.int64), np.asarray(outputs, np.int64)
    if not np.all(np.isfinite(times)):
        raise FormatError(f"{path} holds a time that is not a number.")
    usable = np.flatnonzero((into > 0) & (out > 0))
    if len(usable) == 0:
        raise FormatError(f"{path} holds no request with tokens.", remedy=_KNOWN)
    order = usable[np.argsort(times[usable], kind="stable")]
    return RequestTrace(
        name=path.name,
        form=form,
        arrival_s=times[order] - times[order[0]],
        input_tokens=into[order],
        output_tokens=out[order],
        blocks=tuple(blocks[index] for index in order) if any(blocks) else (),
        skipped=len(times) - len(usable),
    )
