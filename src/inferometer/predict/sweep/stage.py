"""A stage of a request at all its sizes: up to the first token, or one decode step."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.predict.phases import LOOSE
from inferometer.predict.sweep.columns import RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOOSELY = np.array([1.0, 1 / LOOSE, LOOSE])  # a constant as expected, at its low and at its high end


@frozen
class SweepStage:
    """Arrays have the axes combination, batch, prompt, generate, context; NaN stands for what is not there.

    `seconds` has an axis before those: the expected time, and with details also the low and the high end. `bound` is
    what most of the time is bound by, `streams` (with an axis before, in the order of RUNNING) what each resource takes
    of one pass by itself; both are None without details. `outside_s` are the seconds of one pass on no op.
    """

    seconds: Any
    energy_j: Any
    bytes: Any
    outside_s: Any
    bound: Any = None
    streams: Any = None

    @property
    def time_s(self) -> Any:
        return self.seconds[0]

    @property
    def low_s(self) -> Any:
        return self.seconds[1]

    @property
    def high_s(self) -> Any:
        return self.seconds[2]

    def each(self, change: Callable[[Any], Any]) -> SweepStage:
        """With every array changed."""
        found = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return SweepStage(**{name: None if value is None else change(value) for name, value in found.items()})

    def where(self, chosen: Any, other: SweepStage) -> SweepStage:
        """Its own numbers where chosen, else the other's, which are written into its own where those have room."""

        def put(own: Any, its: Any) -> Any:
            if np.broadcast_shapes(own.shape, its.shape, chosen.shape) != own.shape:
                return np.where(chosen, own, its)
            np.copyto(own, its, where=~chosen)
            return own

        found = {entry.name: (getattr(self, entry.name), getattr(other, entry.name)) for entry in fields(self)}
        return SweepStage(**{name: None if own is None else put(own, its) for name, (own, its) in found.items()})

    def scaled(self, times: float) -> SweepStage:
        return replace(self, seconds=times * self.seconds, energy_j=times * self.energy_j)

    def after(self, other: SweepStage) -> SweepStage:
        """Both, the other one first; what bounds this one stays, and what it keeps busy."""
        return replace(self, seconds=other.seconds + self.seconds, energy_j=other.energy_j + self.energy_j)

    def with_host(self, constant_s: Any) -> SweepStage:
        """With what the host does around it: a constant, known less well."""
        ends = LOOSELY[: len(self.seconds)].reshape(-1, 1, 1, 1, 1, 1)
        return replace(self, seconds=self.seconds + ends * constant_s)

    def only(self, known: Any) -> SweepStage:
        """Nothing where the stage is not asked for."""
        if known.all():
            return self
        bound = None if self.bound is None else np.where(known, self.bound, None)
        streams = None if self.streams is None else np.where(known, self.streams, np.nan)
        return replace(self, seconds=np.where(known, self.seconds, np.nan), bound=bound, streams=streams)


def absent_stage(*, details: bool) -> SweepStage:
    # With details the time and both ends of its interval, without them the time alone.
    nothing = np.full((3 if details else 1, 1, 1, 1, 1, 1), np.nan)
    bound = np.full((1, 1, 1, 1, 1), None, dtype=object) if details else None
    streams = np.full((len(RUNNING), 1, 1, 1, 1, 1), np.nan) if details else None
    return SweepStage(
        seconds=nothing, energy_j=nothing[0], bytes=nothing[0], outside_s=nothing[0], bound=bound, streams=streams
    )


def spread_stages(stages: Sequence[tuple[Sequence[int], SweepStage]], combinations: int) -> SweepStage:
    """Stages of some combinations each, at the places given, as one of all combinations."""
    if len(stages) == 1 and len(stages[0][0]) == combinations:
        return stages[0][1]

    def whole(name: str) -> Any:
        parts = [(list(places), getattr(stage, name)) for places, stage in stages]
        first = parts[0][1]
        if first is None:
            return None
        sizes = np.broadcast_shapes(*(values.shape[-4:] for _, values in parts))  # batch, prompt, generate, context
        found = np.full((*first.shape[:-5], combinations, *sizes), None if name == "bound" else np.nan, first.dtype)
        for places, values in parts:
            found[..., places, :, :, :, :] = values
        return found

    return SweepStage(**{entry.name: whole(entry.name) for entry in fields(SweepStage)})
