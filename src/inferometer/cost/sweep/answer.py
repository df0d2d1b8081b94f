"""Rows of one combination, kept as small tables instead of row by row.

Reading a prompt depends on batch and prompt, a decode step on batch and context: the tables have a length of 1 along
every axis they do not depend on, and a column is put together from them when it is asked for. A thousand prompts by a
thousand contexts are two thousand numbers until somebody looks at the million rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from inferometer.cost.sweep.columns import COLUMNS, INPUTS
from inferometer.cost.sweep.table import is_none

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Arrays have the axes batch, prompt, generate, context; NaN stands for what is not there.

    `first` is what comes before and with the first token (all of it, in a model with one phase), `step` one decode
    step. `room_bytes` is a device's memory without the runtime's reserve. `usd_rate` is the price of a million tokens
    at one token a second. `reasons` are texts, or None where there is nothing against a row; the first one counts.
    """

    shape: tuple[int, ...]
    constants: Mapping[str, Any]
    batch: Any
    prompt: Any
    generate: Any
    context: Any
    first_s: Any
    step_s: Any
    first_j: Any
    step_j: Any
    first_bytes: Any
    step_bytes: Any
    first_unattributed_s: float = 0.0
    step_unattributed_s: float = 0.0
    room_bytes: float | None = None
    usd_rate: float | None = None
    grams_per_j: float | None = None
    single: bool = False  # a model with one phase
    unit: str | None = None
    reasons: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return prod(self.shape)

    def column(self, name: str) -> Any:
        """A column as an array that broadcasts to `shape`; texts and flags are objects, the rest numbers or NaN."""
        if name in self.constants:
            return _constant(self.constants[name])
        if name == "reason":
            return self.reason()
        if name in INPUTS:
            return np.asarray(getattr(self, name), dtype=float)
        values = _SUMMARY[name](self)
        if not self.reasons:
            return values
        absent = None if COLUMNS[name].kind in {"flag", "text"} else np.nan
        return np.where(is_none(self.reason()), values, absent)

    def reason(self) -> Any:
        found: Any = np.array(None, dtype=object)
        for reason in self.reasons:
            found = np.where(is_none(found), reason, found)
        return found


def _constant(value: Any) -> Any:
    if isinstance(value, str) or value is None:
        return np.array(value, dtype=object)
    return np.array(float(value))


def _absent(_: Answer) -> Any:
    return np.array(np.nan)


def _latency(answer: Answer) -> Any:
    return answer.first_s if answer.single else _absent(answer)


def _ttft(answer: Answer) -> Any:
    return _absent(answer) if answer.single else answer.first_s


def _e2e(answer: Answer) -> Any:
    """The first token and a step for every other."""
    if answer.single or np.isnan(answer.generate).all():
        return _absent(answer)
    whole = answer.first_s + (answer.generate - 1) * np.nan_to_num(answer.step_s)
    return np.where(answer.generate > 0, whole, np.nan)


def _speed(answer: Answer) -> Any:
    return answer.batch / answer.step_s


def _rate(answer: Answer) -> Any:
    """Output tokens a second of the whole request, prompt included, where there is one; else of the steps."""
    whole = _e2e(answer)
    if np.isnan(whole).all():
        return _speed(answer)
    return np.where(whole > 0, answer.batch * answer.generate / whole, _speed(answer))


def _grows(answer: Answer) -> Any:
    """Where the last token is another step than reading the prompt."""
    prompt = np.where(np.isnan(answer.prompt), 1.0, answer.prompt)
    later = np.nan_to_num(answer.generate) - 1 > 0
    return np.where(np.isnan(answer.context), later, answer.context + 1 > prompt)


def _memory(answer: Answer) -> Any:
    """The larger of reading the prompt and writing the last token. Rounding first keeps it: it is the same order."""
    first = np.rint(answer.first_bytes)
    if answer.single:
        return first
    last = np.where(_grows(answer), np.rint(answer.step_bytes), 0.0)
    return np.maximum(first, last)


def _fits(answer: Answer) -> Any:
    if answer.room_bytes is None:
        return np.array(None, dtype=object)
    first = answer.first_bytes <= answer.room_bytes
    if answer.single:
        return first
    return first & (~_grows(answer) | (answer.step_bytes <= answer.room_bytes))


def _energy(answer: Answer) -> Any:
    """Reading the prompt and every step after the first token; a lone step runs once."""
    if answer.single:
        return answer.first_j
    read = np.where(np.isnan(answer.first_s), 0.0, answer.first_j)
    step = np.where(np.isnan(answer.step_s), 0.0, answer.step_j)
    writes = np.nan_to_num(answer.generate) > 0
    if writes.any():
        step = np.where(writes & ~np.isnan(answer.first_s), answer.generate - 1, 1.0) * step
    return read + step


def _usd(answer: Answer) -> Any:
    if answer.single or answer.usd_rate is None:
        return _absent(answer)
    return answer.usd_rate / _rate(answer)


def _carbon(answer: Answer) -> Any:
    return _absent(answer) if answer.grams_per_j is None else answer.grams_per_j * _energy(answer)


def _unattributed(answer: Answer) -> Any:
    return _where_known(answer.first_s, answer.first_unattributed_s) + _where_known(
        answer.step_s, answer.step_unattributed_s
    )


def _where_known(times: Any, value: float) -> Any:
    """A number where there is a time, else 0; one number where it is the same everywhere."""
    missing = np.isnan(times)
    return np.array(value) if not missing.any() else np.where(missing, 0.0, value)


_SUMMARY: dict[str, Callable[[Answer], Any]] = {
    "latency_s": _latency,
    "ttft_s": _ttft,
    "tpot_s": lambda answer: answer.step_s,
    "e2e_s": _e2e,
    "tokens_per_s": _speed,
    "peak_memory_bytes": _memory,
    "fits": _fits,
    "energy_j": _energy,
    "usd_per_million_tokens": _usd,
    "co2e_g": _carbon,
    "unattributed_s": _unattributed,
    "top_unit": lambda answer: _constant(answer.unit),
    "top_unit_by_count": lambda answer: _constant(answer.unit),
}
