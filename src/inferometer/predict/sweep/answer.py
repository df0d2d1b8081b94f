"""Rows of some combinations of one model, kept as small tables instead of row by row.

Reading a prompt depends on batch and prompt, a decode step on batch and context: the tables have a length of 1 along
every axis they do not depend on, and a column is put together from them when it is asked for. A thousand prompts by a
thousand contexts are two thousand numbers until somebody looks at the million rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from math import prod
from typing import Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.predict.sweep.columns import INPUTS, LOADING, RUNNING, SweepColumn, column_named, columns_with
from inferometer.predict.sweep.stage import SweepStage
from inferometer.predict.sweep.table import is_none

_PIECE_ROWS = 1 << 14  # a column of it stays in a core's own cache, beside what it is worked out from
_CUT = ("batch", "prompt", "generate", "context", "first", "step", "room_bytes", "usd_rate")


@frozen
class SweepAnswer:
    """`first` is all of a request up to its first token, or all of it in a model with one phase; `step` a decode step.

    The axes are combination, batch, prompt, generate, context. `constants` have a value for each combination, and the
    two numbers a vector of them, NaN where one is not known. `room_bytes` is a device's memory without the runtime's
    reserve, `usd_rate` the price of a million tokens at one token a second. `reasons` are texts, or None where there is
    nothing against a row; the first one counts.
    """

    shape: tuple[int, ...]
    constants: Mapping[str, Sequence[Any]]
    batch: Any
    prompt: Any
    generate: Any
    context: Any
    first: SweepStage
    step: SweepStage
    room_bytes: Any
    usd_rate: Any
    loading: Mapping[str, Any] = field(default_factory=dict)  # seconds by stream, with details
    frame_rate: float | None = None
    windows_per_s: float | None = None  # of a model of speech
    grams_per_j: float | None = None
    single: bool = False  # a model with one phase
    reasons: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return prod(self.shape)

    @property
    def columns(self) -> Mapping[str, SweepColumn]:
        return columns_with(details=self.first.bound is not None)

    def pieces(self) -> Iterator[SweepAnswer]:
        """Runs of its rows, in their order: what a column is worked out from then stays in a core's own cache."""
        if len(self) <= _PIECE_ROWS:
            yield self
            return
        combinations, batches, *inner = self.shape
        height = max(1, _PIECE_ROWS // prod(inner))
        width = max(1, height // batches)
        for first in range(0, combinations, width):
            for top in range(0, batches, height):
                yield self._part(slice(first, first + width), slice(top, top + height))

    def _part(self, combinations: slice, batches: slice) -> SweepAnswer:
        def cut(value: Any) -> Any:
            if isinstance(value, SweepStage):
                return value.each(cut)
            # batches are the fourth axis from the end, combinations the fifth
            where = [slice(None)] * np.ndim(value)
            for axis, part in ((-5, combinations), (-4, batches)):
                if len(where) >= -axis and value.shape[axis] > 1:
                    where[axis] = part
            return value[tuple(where)] if where else value

        shape = self.shape
        count, height = (
            len(range(*part.indices(size))) for part, size in zip((combinations, batches), shape[:2], strict=True)
        )
        return replace(
            self,
            shape=(count, height, *shape[2:]),
            constants={name: values[combinations] for name, values in self.constants.items()},
            loading={name: cut(values) for name, values in self.loading.items()},
            reasons=tuple(map(cut, self.reasons)),
            **{name: cut(getattr(self, name)) for name in _CUT},
        )

    def column(self, name: str) -> Any:
        """A column as an array that broadcasts to `shape`; texts and flags are objects, the rest numbers or NaN."""
        if name in INPUTS and name in self.constants:
            return self.constant(name)
        if name == "reason":
            return self.reason()
        if name in INPUTS:
            return np.asarray(getattr(self, name), dtype=float)
        values = _COLUMNS[name](self)
        if not self.reasons:
            return values
        absent = None if column_named(name).kind in {"flag", "text"} else np.nan
        return np.where(is_none(self.reason()), values, absent)

    def constant(self, name: str) -> Any:
        kind = object if column_named(name).kind == "text" else float
        return np.array(self.constants[name], dtype=kind).reshape(-1, 1, 1, 1, 1)

    def reason(self) -> Any:
        found: Any = np.array(None, dtype=object)
        for reason in self.reasons:
            found = np.where(is_none(found), reason, found)
        return found


def joined(answers: Sequence[SweepAnswer]) -> SweepAnswer:
    """Answers for one prompt each as one for all of them, in their order."""
    first, *others = answers
    if not others:
        return first

    def along(values: Sequence[Any]) -> Any:
        # prompts are the third axis from the end
        return None if values[0] is None else np.concatenate(np.broadcast_arrays(*values), axis=-3)

    def stages(each: Sequence[SweepStage]) -> SweepStage:
        return SweepStage(
            **{entry.name: along([getattr(stage, entry.name) for stage in each]) for entry in fields(SweepStage)}
        )

    inputs = {name: along([getattr(each, name) for each in answers]) for name in ("prompt", "generate", "context")}
    told = along([np.reshape(each.reason(), np.shape(each.reason()) or (1, 1, 1, 1, 1)) for each in answers])
    return replace(
        first,
        **inputs,
        shape=(*first.shape[:2], len(answers), *first.shape[3:]),
        first=stages([each.first for each in answers]),
        step=stages([each.step for each in answers]),
        reasons=() if is_none(told).all() else (told,),
    )


_NOWHERE, _NO_TEXT = np.array(np.nan), np.array(None, dtype=object)
_Times = tuple[Any, Any]  # of the first token and of a step: expected, at the low end, or at the high end


def _e2e(answer: SweepAnswer, times: _Times) -> Any:
    """The first token and a step for every other."""
    if answer.single or np.isnan(answer.generate).all():
        return _NOWHERE
    first, step = times
    # The first token comes with the prompt; a request of one token has no step, whose time is then NaN.
    whole = first + (answer.generate - 1) * np.nan_to_num(step)
    return np.where(answer.generate > 0, whole, np.nan)


def _expected(answer: SweepAnswer) -> _Times:
    return answer.first.time_s, answer.step.time_s


def _low(answer: SweepAnswer) -> _Times:
    return answer.first.low_s, answer.step.low_s


def _high(answer: SweepAnswer) -> _Times:
    return answer.first.high_s, answer.step.high_s


def _times(of: Callable[[SweepAnswer], _Times], ending: str) -> dict[str, Callable[[SweepAnswer], Any]]:
    """The four times of a row, from one kind of numbers."""
    return {
        f"latency{ending}": lambda answer: _bounded(of(answer)[0]) if answer.single else _NOWHERE,
        f"ttft{ending}": lambda answer: _NOWHERE if answer.single else _bounded(of(answer)[0]),
        f"tpot{ending}": lambda answer: _bounded(of(answer)[1]),
        f"e2e{ending}": lambda answer: _bounded(_e2e(answer, of(answer))),
    }


def _bounded(seconds: Any) -> Any:
    """An end that nobody knows is absent: where an op's work is not known, a time has no high end."""
    # files and data frames know no infinity that means "nobody knows"
    return np.where(np.isinf(seconds), np.nan, seconds)


def _speed(answer: SweepAnswer) -> Any:
    return answer.batch / answer.step.time_s


def _rate(answer: SweepAnswer) -> Any:
    """Output tokens a second of the whole request, prompt included, where there is one; else of the steps."""
    whole = _e2e(answer, _expected(answer))
    if np.isnan(whole).all():
        return _speed(answer)
    return np.where(whole > 0, answer.batch * answer.generate / whole, _speed(answer))


def _where(known: Any, values: Any, otherwise: Any) -> Any:
    """`np.where`, which takes as long as some arithmetic, only where there is something to choose."""
    return values if known.all() else np.where(known, values, otherwise)


def _writes(answer: SweepAnswer) -> Any:
    """Where tokens are written after the first: at a context that was asked for, or some steps."""
    return ~np.isnan(answer.context) | (np.nan_to_num(answer.generate) > 1)


def _memory(answer: SweepAnswer) -> Any:
    """The larger of reading the prompt and writing the last token. Rounding first keeps it: it is the same order."""
    first = np.rint(answer.first.bytes)
    if answer.single:
        return first
    read = _where(~np.isnan(answer.prompt), first, 0.0)
    return np.maximum(read, _where(_writes(answer), np.rint(answer.step.bytes), 0.0))


def _fits(answer: SweepAnswer) -> Any:
    # Three answers: where a device's memory is not known, a model neither fits nor does not.
    unknown = np.isnan(answer.room_bytes)
    if unknown.all():
        return _NO_TEXT
    fits = answer.first.bytes <= answer.room_bytes
    if not answer.single:
        last = answer.step.bytes <= answer.room_bytes
        fits = (fits | np.isnan(answer.prompt)) & (last | ~_writes(answer))
    return np.where(unknown, None, fits) if unknown.any() else fits


def _energy(answer: SweepAnswer) -> Any:
    """Reading the prompt and every step after the first token; a lone step runs once."""
    first, step = answer.first, answer.step
    if answer.single:
        return first.energy_j
    reads = ~np.isnan(first.time_s)
    read = _where(reads, first.energy_j, 0.0)
    each = _where(~np.isnan(step.time_s), step.energy_j, 0.0)
    writes = np.nan_to_num(answer.generate) > 0
    if writes.any():
        # A step at a context that was asked for runs once, whatever is to be written.
        each = np.where(writes & reads, answer.generate - 1, 1.0) * each
    return read + each


def _usd(answer: SweepAnswer) -> Any:
    if answer.single:
        return _NOWHERE
    return answer.usd_rate / _rate(answer)


def _usd_inferences(answer: SweepAnswer) -> Any:
    return answer.usd_rate * answer.first.time_s / answer.batch if answer.single else _NOWHERE


def _frame_budget(answer: SweepAnswer) -> Any:
    return answer.batch / answer.frame_rate if answer.single and answer.frame_rate is not None else _NOWHERE


def _frame_headroom(answer: SweepAnswer) -> Any:
    return 1 - answer.first.time_s / _frame_budget(answer)


def _real_time(answer: SweepAnswer) -> Any:
    return _NOWHERE if answer.windows_per_s is None else answer.windows_per_s * _e2e(answer, _expected(answer))


def _carbon(answer: SweepAnswer) -> Any:
    return _NOWHERE if answer.grams_per_j is None else answer.grams_per_j * _energy(answer)


def _unattributed(answer: SweepAnswer) -> Any:
    stages = [(~np.isnan(stage.time_s), stage.outside_s) for stage in (answer.first, answer.step)]
    return sum(seconds if where.all() else np.where(where, seconds, 0.0) for where, seconds in stages) + np.zeros(())


def _first_bound(answer: SweepAnswer, *, single: bool) -> Any:
    return answer.first.bound if answer.single == single else _NO_TEXT


def _stream(phase: str, index: int) -> Callable[[SweepAnswer], Any]:
    """What one resource takes of a phase."""

    def seconds(answer: SweepAnswer) -> Any:
        stage = answer.step if phase == "decode" else answer.first
        return _NOWHERE if answer.single != (phase == "forward") else stage.streams[index]

    return seconds


def _loading(stream: str) -> Callable[[SweepAnswer], Any]:
    return lambda answer: answer.loading[stream]


_COLUMNS: dict[str, Callable[[SweepAnswer], Any]] = {
    **_times(_expected, "_s"),
    **_times(_low, "_low_s"),
    **_times(_high, "_high_s"),
    "tokens_per_s": _speed,
    "tokens_per_s_per_user": lambda answer: _speed(answer) / answer.batch,
    "inputs_per_s": lambda answer: answer.batch / answer.first.time_s if answer.single else _NOWHERE,
    "real_time_factor": _real_time,
    "peak_memory_bytes": _memory,
    "fits": _fits,
    "energy_j": _energy,
    "usd_per_million_tokens": _usd,
    "usd_per_million_inferences": _usd_inferences,
    "co2e_g": _carbon,
    "sustained_s": lambda _: _NOWHERE,  # rows of a cooling and of a battery are predicted one by one
    "battery_s": lambda _: _NOWHERE,
    "inferences_per_charge": lambda _: _NOWHERE,
    "frame_budget_s": _frame_budget,
    "frame_headroom": _frame_headroom,
    "unattributed_s": _unattributed,
    "top_unit": lambda answer: answer.constant("top_unit"),
    "top_unit_by_count": lambda answer: answer.constant("top_unit"),
    "forward_bound": lambda answer: _first_bound(answer, single=True),
    "prefill_bound": lambda answer: _first_bound(answer, single=False),
    "decode_bound": lambda answer: answer.step.bound,
    **{f"load_{stream}_s": _loading(stream) for stream in LOADING},
    **{
        f"{phase}_{stream}_s": _stream(phase, place)
        for phase in ("forward", "prefill", "decode")
        for place, stream in enumerate(RUNNING)
    },
}
