"""The time of a step, for the simulator: an `EngineStep` unrolled into lists, so that one lookup costs little.

Everything that can be tabulated is: products by the tokens of a step, logits by its sequences, and whole steps of
decoding by their sequences over a row of contexts. Reading a chunk in the middle of a prompt is looked up in the grid.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING, Protocol

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.predict.options import DraftSchedule, drafted_at
from inferometer.predict.served.step import EngineStep, SecondsGrid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.predict.served.adapters import AdapterSeconds
    from inferometer.serving.simulate.slots import Slots

_EVERY = 64  # tokens of context between two entries of a row
_ENTRIES = 513  # beyond the last one the grids themselves are asked
_LATER = 1 << 16  # of chunks in the middle of a prompt, by their tokens and those before: some 10 MB at most


@frozen
class Speculation:
    """A draft of `length` tokens a step, or of as many as `up_to` has for a load. What drafts reads the prompts too."""

    length: int
    draft: EngineStep | None = None  # none: the draft costs nothing, as tokens looked up in the prompt
    up_to: DraftSchedule = ()


class Times(Protocol):
    """What a simulated engine asks of the cost model."""

    def decode(self, sequences: int, context: float) -> float:
        """Seconds of one step that decodes `sequences` with `context` cached tokens on average."""
        ...

    def mixed(self, chunks: Sequence[tuple[int, int]], sequences: int, context: float) -> float:
        """Seconds of one step that reads chunks (tokens, tokens read before) and decodes beside them."""
        ...


class StepTimes:
    """`Times` of an engine's step on its device."""

    def __init__(
        self,
        step: EngineStep,
        tokens: int,
        sequences: int,
        speculation: Speculation | None = None,
        adapters: AdapterSeconds | None = None,
    ) -> None:
        self._step, self._speculation = step, speculation
        # By the sequences that decode: tokens of each in the step, drafted ones included.
        self.per = [1] * (sequences + 1)
        if speculation is not None:
            self.per = [1 + drafted_at(speculation.up_to, speculation.length, n) for n in range(sequences + 1)]
        per = max(self.per)
        self._dense: list[float] = np.append(0.0, step.dense(np.arange(1, tokens + per * sequences + 2))).tolist()
        self._logits: list[float] = np.append(
            0.0, step.logits(np.arange(1, (per + 1) * sequences + tokens // 8 + 2))
        ).tolist()
        # Prompts with the same beginning cached are looked up again and again.
        self._later = lru_cache(_LATER)(step.prompt.at)
        self._first: list[float] = np.append(0.0, step.prompt(np.arange(1.0, tokens + 2), 1.0)).tolist()
        self._rows: list[list[float] | None] = [None] * (sequences + 1)
        costs = step.costs
        self._adapters = adapters
        self.kernels: float = costs.kernels.value
        self.kernels_prompt: float = costs.kernels_prompt.value
        self._step_s, self._sequence_s, self._eager_s = costs.step_s.value, costs.sequence_s.value, step.eager_s

    def decode(self, sequences: int, context: float) -> float:
        row = self._rows[sequences] or self._row(sequences)
        position = context / _EVERY
        index = int(position)
        try:
            low = row[index]
            return low + (position - index) * (row[index + 1] - low)
        except IndexError:  # beyond the last entry
            return self._whole(sequences, context)

    def mixed(self, chunks: Sequence[tuple[int, int]], sequences: int, context: float) -> float:
        first, reading, tokens = self._first, 0.0, 0
        for size, before in chunks:
            reading += self._later(float(size), before + 1.0) if before else first[size]
            tokens += size
        count = len(chunks)
        if count > 1:
            reading -= (count - 1) * first[1]  # what one call costs at least is paid once: engines batch the chunks
        if self._speculation is not None and self._speculation.draft is not None:
            draft = self._speculation.draft
            reading += draft.dense.at(tokens) + sum(draft.prompt.at(size, before + 1.0) for size, before in chunks)
        dense, logits, decoding = self._dense, self._logits, sequences * self.per[sequences]
        added = dense[tokens + decoding] - dense[decoding] + logits[decoding + count] - logits[decoding] + reading
        if self._adapters is not None:
            added += self._adapters.at(tokens + decoding, sequences + count) - self._adapters.at(decoding, sequences)
        seconds = self.decode(sequences, context) if sequences else self._step_s
        if added > 0.0:
            seconds += self.kernels_prompt * added
        if self._eager_s:
            drafting = self._drafting(sequences, context) if sequences and self._speculation is not None else 0.0
            seconds = max(seconds, self._eager_s + self._step_s + sequences * self._sequence_s + drafting)
        return seconds + count * self._sequence_s

    def _row(self, sequences: int) -> list[float]:
        """Whole steps of decoding over the contexts of a row."""
        contexts = np.maximum(1.0, np.arange(_ENTRIES) * float(_EVERY))
        attention = self._step.decode(float(sequences), contexts)
        products = self._products(sequences)
        row = self.kernels * (products + attention) + self._step_s + sequences * self._sequence_s
        row = row + self._step.context_seconds(sequences, contexts)
        if self._speculation is not None:
            row = row + self._drafting(sequences, contexts)
        listed: list[float] = row.tolist()
        self._rows[sequences] = listed
        return listed

    def _products(self, sequences: int) -> float:
        tokens = sequences * self.per[sequences]
        beside = 0.0 if self._adapters is None else self._adapters.at(tokens, sequences)
        return self._dense[tokens] + self._logits[tokens] + beside

    def _whole(self, sequences: int, context: float) -> float:
        kernels = self._products(sequences) + self._step.decode.at(float(sequences), context)
        seconds = self.kernels * kernels + self._step_s + sequences * self._sequence_s
        seconds += float(self._step.context_seconds(sequences, context))
        return seconds + (float(self._drafting(sequences, context)) if self._speculation is not None else 0.0)

    def _drafting(self, sequences: int, context: object) -> float:
        speculation = self._speculation
        if speculation is None or speculation.draft is None:
            return 0.0
        return (self.per[sequences] - 1) * speculation.draft.decode_seconds(sequences, context)  # type: ignore[no-any-return] # one number or an array


class TimesApart:
    """Steps of several passes over the weights: one for each row of neighbouring slots that decode, and the prompts'.

    If it is not known which of the `slots` are busy (`following`), each choice counts alike.
    """

    def __init__(self, times: StepTimes, slots: int) -> None:
        self._times, self._slots = times, slots
        self._followed: Slots | None = None
        self._passes = [
            [(many, _rows_of(many, busy, slots)) for many in range(1, busy + 1)] for busy in range(slots + 1)
        ]

    def following(self, slots: Slots) -> TimesApart:
        """The same for an engine whose slots are known."""
        other = TimesApart(self._times, self._slots)
        other._followed = slots
        return other

    def decode(self, sequences: int, context: float) -> float:
        if self._followed is not None:
            return sum(self._times.decode(many, context) for many in self._followed.rows())
        return sum(count * self._times.decode(many, context) for many, count in self._passes[sequences] if count)

    def mixed(self, chunks: Sequence[tuple[int, int]], sequences: int, context: float) -> float:
        decoding = self.decode(sequences, context) if sequences else 0.0
        return decoding + self._times.mixed(chunks, 0, 0.0)


def _rows_of(many: int, busy: int, slots: int) -> float:
    """How many rows of exactly `many` neighbours there are on average, where `busy` of `slots` in a line are chosen."""
    left, free = busy - many, slots - many
    if not free:
        return 1.0
    at_an_end, between = 2 * comb(free - 1, left), max(0, free - 1) * comb(max(0, free - 2), left)
    return (at_an_end + between) / comb(slots, busy)


RankLoad = tuple[
    list[tuple[int, int]], int, float
]  # chunks (tokens, read before), sequences that decode, their context


class GangTimes:
    """Ranks that step together, as vLLM's data-parallel ranks of a mixture of experts.

    Each attends to its own sequences, and all of them share the experts of every layer, whose weights are split over
    the ranks. `own` are a rank's times with all experts by itself (`alone`); instead of those, each rank computes its
    part of the experts for the tokens of all ranks, which are gathered before and scattered after (`together`: the
    experts' seconds, the messages'). The rank with the most tokens sets the time; in steps that are replayed as graphs,
    up to `padded_up_to` tokens, the others are filled up to as many (vLLM, v1/worker/dp_utils.py). With drafts a
    sequence brings `per_sequence` tokens to be verified (or by the load, `up_to`), which the experts compute as any
    others.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        own: StepTimes,
        ranks: int,
        *,
        alone: SecondsGrid,
        together: tuple[SecondsGrid, SecondsGrid],
        most: int,
        padded_up_to: int,
        per_sequence: int = 1,
        up_to: DraftSchedule = (),
    ) -> None:
        self._own, self._ranks, self._padded_up_to = own, ranks, padded_up_to
        self._drafted, self._up_to = per_sequence - 1, up_to
        sizes = np.arange(1, ranks * most + 2)
        experts, messages = together
        self._alone: list[float] = np.append(0.0, alone(sizes)).tolist()
        self._together: list[float] = np.append(0.0, experts(sizes) + messages(sizes)).tolist()

    def step(self, loads: Sequence[RankLoad]) -> float:
        """Seconds of one step in which each rank reads its chunks and decodes its sequences."""
        tokens = [
            _tokens(chunks) + sequences * (1 + drafted_at(self._up_to, self._drafted, sequences))
            for chunks, sequences, _ in loads
        ]
        whole = self._together[self._computed(max(tokens), sum(tokens))]
        return max(self._of_rank(load, own, whole) for load, own in zip(loads, tokens, strict=True) if own)

    def _of_rank(self, load: RankLoad, tokens: int, experts_s: float) -> float:
        chunks, sequences, context = load
        instead = experts_s - self._alone[tokens]
        if chunks:
            return self._own.mixed(chunks, sequences, context) + self._own.kernels_prompt * instead
        return self._own.decode(sequences, context) + self._own.kernels * instead

    def _computed(self, heaviest: int, whole: int) -> int:
        """Tokens that the experts compute: of all ranks, padding included."""
        return self._ranks * heaviest if heaviest <= self._padded_up_to else whole


def _tokens(chunks: Sequence[tuple[int, int]]) -> int:
    return sum(size for size, _ in chunks)
