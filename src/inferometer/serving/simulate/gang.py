"""Ranks that step together: each with a queue, limits and a cache of its own, all with one clock.

vLLM's data-parallel ranks of a mixture of experts exchange tokens in every layer, so a step of one is a step of all:
it takes as long as the heaviest makes it, and a rank without work computes along for the others' sake (a dummy batch).
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from inferometer.serving.simulate.replica import MOST_STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.serving.simulate.replica import Replica
    from inferometer.serving.simulate.request import Request
    from inferometer.serving.simulate.times import GangTimes, RankLoad


def advance_together(ranks: Sequence[Replica], times: GangTimes, until: float) -> None:
    """Take every step that begins before `until`. Where one comes back after an end (`pause`), all do."""
    while busy := [rank for rank in ranks if not rank.is_idle]:
        now = max(rank.now for rank in busy)
        for rank in ranks:
            rank.now = max(rank.now, now)  # one that had no work computed along
        if now >= until:
            return
        if _step(ranks, times, until) and any(rank.pause for rank in ranks):
            return


def _step(ranks: Sequence[Replica], times: GangTimes, until: float) -> bool:
    """One step of all, or a run of steps in which all that work only decode; whether a request has ended."""
    is_any = any([rank.drop_impatient() for rank in ranks])  # noqa: C419 - of every one of them
    planned = [[] if rank.is_idle else rank.plan_step() for rank in ranks]
    loads = [_load(rank, chunks) for rank, chunks in zip(ranks, planned, strict=True)]
    if not any(tokens or sequences for tokens, sequences, _ in loads):
        return is_any  # all that worked were preempted or left: they are planned again
    seconds, steps = times.step(loads), 1
    if not any(planned):
        steps = _steps(ranks, until, seconds)
        if steps > 1:
            middle = [(chunks, sequences, context + (steps - 1) / 2) for chunks, sequences, context in loads]
            seconds = times.step(middle)
    for rank, chunks in zip(ranks, planned, strict=True):
        if chunks:
            is_any |= rank.do_step(chunks, seconds)
        elif rank.decoding:
            is_any |= rank.do_run(steps, seconds)
        else:
            rank.now += steps * seconds
    return is_any


def _load(rank: Replica, chunks: Sequence[tuple[Request, int]]) -> RankLoad:
    sizes = [(size, request.done) for request, size in chunks]
    return sizes, rank.decoding, rank.context if rank.decoding else 0.0


def _steps(ranks: Sequence[Replica], until: float, seconds: float) -> int:
    """Steps of decoding before one ends, somebody comes, or a cache has no block for the next one."""
    working = [rank for rank in ranks if rank.decoding]
    most = min(MOST_STEPS, *(rank.until_next_end for rank in working))
    if most * seconds > until - working[0].now:
        most = max(1, ceil((until - working[0].now) / seconds))
    if any(rank.waiting for rank in ranks):
        return 1
    return most if all(rank.has_blocks(most) for rank in working) else 1
