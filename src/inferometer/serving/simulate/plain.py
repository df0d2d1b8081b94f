"""The usual course of a replica: requests come by the clock, are read, decode and end.

The state is the replica's, and so are the rules. A request's steps are written out here a second time, because calls
and attributes took two thirds of the time: `_worked` is the loop over steps, with local names, in which requests come
and end; `_planned` says which prompts a step reads, `_begin` lets those decode whose prompt is whole. Each block says
which method of `Replica` it copies: change both. How long a run of decoding is, and the blocks that it takes, are the
replica's own. Everything unusual (the cache is full and a request gives way, or comes back) is left to the replica
for a step. A test holds the two to the same times.
"""

# ruff: noqa: PLR1730 - a call of min() takes five times as long as a comparison

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from inferometer.serving.simulate.replica import GAPS, MOST_STEPS, Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.serving.simulate.request import SimulatedRequest


def play(replica: Replica, coming: Iterator[SimulatedRequest], refuses: Callable[[SimulatedRequest], bool]) -> None:
    """Hand over the requests when they come, and work until all have ended; `refuses` tells what never fits."""
    request = next(coming, None)
    while request is not None or not replica.is_idle:
        if replica.is_plain:
            request = _worked(replica, coming, request, refuses)
        while request is not None and (request.sent <= replica.now or replica.is_idle):
            if not refuses(request):
                replica.submit(request)
            request = next(coming, None)
        if not replica.is_idle:
            replica.take(inf if request is None else request.sent)


def _worked(  # noqa: PLR0912, PLR0915 - one loop is what makes it quick
    replica: Replica,
    coming: Iterator[SimulatedRequest],
    request: SimulatedRequest | None,
    refuses: Callable[[SimulatedRequest], bool],
) -> SimulatedRequest | None:
    """Until all have ended, or something happens that is left to the replica: the request that comes next."""
    limits, pool, ahead, reserves = replica.limits, replica.pool, replica.rules.ahead, replica.reserves
    decode, mixed, on_end, steps_until = replica.times.decode, replica.times.mixed, replica.on_end, replica.steps_until
    most, block, unseen = limits.sequences, limits.block_tokens, 1.0 - (limits.seen if ahead else 0.0)
    waiting, reading, ends, turns = replica.waiting, replica.reading, replica.ends, replica.turns
    running, blocks_of, gap_s, gap_tokens = replica.running, replica.paces[0].need, replica.gap_s, replica.gap_tokens
    now, tick, base, count = replica.now, replica.tick, replica.base, replica.decoding
    seen_s, is_late, is_blocked = replica.seen_s, replica.is_late, replica.is_blocked
    free, blocks, alone, capacity = pool.free, pool.blocks, 0, min(pool.blocks * block, limits.longest or 1 << 62)
    sequence_s = block_s = idle_s = 0.0
    least_free, most_running, most_waiting = free, 0, 0
    due = inf if request is None else request.sent
    while True:
        # Replica.submit, of all that have come: an engine without work goes on from when the next one does.
        while due <= now or not (running or waiting):
            if request is None:
                break
            if request.input_tokens + request.output_tokens <= capacity or not refuses(request):
                if now < due:
                    idle_s += due - now
                    now = seen_s = due
                waiting.append(request)
                if len(waiting) == 1:
                    is_blocked = False
                if len(waiting) > most_waiting:
                    most_waiting = len(waiting)
            request = next(coming, None)
            due = inf if request is None else request.sent
        held = len(running)
        if not held and not waiting:
            break
        # Replica.take: does this step read prompts, or is it one of a run that only decodes, and until when?
        until, limit, was_late, was_blocked = due, MOST_STEPS, is_late, is_blocked
        heads: list[SimulatedRequest] = []
        if not count or reading or (waiting and not is_blocked and held < most):
            sizes: list[tuple[int, int]] = []
            seen = -inf if is_late else seen_s if ahead and count else inf
            spare = _planned(replica, heads, sizes, count, tick, free, seen)
            if spare < 0:
                break
            if not heads:  # Replica._is_unseen, and the end of Replica._planned where no prompt is read
                if waiting and ahead and count and waiting[0].sent > seen_s:
                    is_late = True
                is_blocked = bool(waiting) and not is_late
                if not count:
                    if not is_late:
                        break
                    is_late = False
                    continue
                if is_late:
                    limit = 1
        elif waiting or held >= most:
            until = inf  # a request that comes meanwhile waits behind others until one ends
        # How long, and which blocks: of a step with prompts as in Replica._step, of a run of decoding as Replica._run.
        if heads:
            free, steps, held = spare, 1, len(running)
            if held > most_running:
                most_running = held
            seconds = mixed(sizes, count, base / count + tick if count else 0.0)
        else:
            while ends[0][2].end != ends[0][0]:  # it was preempted meanwhile
                heappop(ends)
            steps = ends[0][0] - tick
            if steps > limit:
                steps = limit
            context = base / count + tick
            seconds = decode(count, context + (steps - 1) / 2)
            if steps * seconds > until - now:
                steps, seconds = steps_until(until - now, steps, seconds, (count, context, 1.0))
            need = 0 if reserves else blocks_of(tick, steps)
            if need > free:
                is_late, is_blocked = was_late, was_blocked
                break
            free -= need
        # Replica._pass, and Replica._read_alone where nobody decodes: then ticks stand still.
        passed, is_late = steps * seconds, False
        seen_s = now + passed - unseen * seconds
        now += passed
        sequence_s += held * passed
        block_s += (blocks - free) * passed
        if free < least_free:
            least_free = free
        if count:
            tick += steps
            gap_s.append(seconds)  # Replica._note_gap
            gap_tokens.append(count * steps)
        else:
            alone += 1
        if heads:
            more, further = _begin(replica, heads, now, tick)
            count += more
            base += further
        # Replica._finish, Replica._stop_decoding, Replica._release and Replica._end.
        while ends and ends[0][0] <= tick:
            end, _, head = heappop(ends)
            if head.end != end:
                continue
            count -= 1
            base -= head.base
            free += head.blocks
            if not reserves:
                turn = head.turn
                turns[turn] -= 1
                free -= (-tick - turn) // block
            if is_blocked or held >= most:
                is_late = ahead  # the next step is planned already, without what becomes free now
            held -= 1
            is_blocked = False
            del running[head]
            head.end = 0  # it may stand in the heap twice, if it was preempted and came back at once
            head.last = now
            on_end(head)
    # Local names that changed are written back to the replica.
    replica.busy_s += now - replica.now - idle_s
    replica.steps += tick - replica.tick + alone
    replica.now, replica.tick, replica.base, replica.decoding, replica.rate = now, tick, base, count, float(count)
    replica.seen_s, replica.is_late, replica.is_blocked = seen_s, is_late, is_blocked
    replica.sequence_s, replica.block_s = replica.sequence_s + sequence_s, replica.block_s + block_s
    replica.most_blocks = max(replica.most_blocks, blocks - least_free)
    replica.most_running = max(replica.most_running, most_running)
    replica.most_waiting = max(replica.most_waiting, most_waiting)
    pool.refill(free)
    return request


def _planned(  # noqa: PLR0913, PLR0917 - what the loop has under local names
    replica: Replica, heads: list[SimulatedRequest], sizes: list[tuple[int, int]], count: int, tick: int, free: int,
    seen_s: float,
) -> int:  # fmt: skip
    """`Replica._planned`: whose prompts are read (tokens, those read before), and the blocks that are then left.

    Below 0: somebody would have to give way (`Replica._preempt`), or comes back (`Replica._admit_ready`).
    """
    limits, waiting, running, reserves = replica.limits, replica.waiting, replica.running, replica.reserves
    block, most = limits.block_tokens, limits.sequences
    if count:
        free -= replica.turns[-tick % block]  # decoding requests take their blocks first
    if waiting and (waiting[0].made or waiting[0].ready):
        return -1
    budget = left = limits.tokens - count
    # Replica._read_on and Replica._has_room, of the one prompt that was begun before.
    for head in replica.reading if left > 0 else ():
        before, size = head.done, head.target - head.done
        if size > left:
            size = left
        more = -(-(before + size) // block) - head.blocks
        if more > free:
            return -1
        if more > 0:
            head.blocks += more
            free -= more
        heads.append(head)
        sizes.append((size, before))
        head.done = before + size
        left -= size
    # Replica._chunks, Replica._admit and Replica._asked, of waiting requests: none has anything in the cache.
    while left > 0 and waiting and len(running) < most:
        head = waiting[0]
        size = tokens = head.input_tokens
        if size > left:
            size = left
        if reserves:
            tokens += head.output_tokens
        elif replica.rules.admission != "prompt":
            tokens = size
        if head.sent > seen_s or -(-tokens // block) > free:
            break
        running[waiting.popleft()] = None
        head.blocks = taken = -(-(tokens if reserves else size) // block)
        free -= taken
        heads.append(head)
        sizes.append((size, 0))
        head.done = size
        left -= size
    replica.read_tokens += budget - left
    return free


def _begin(replica: Replica, heads: list[SimulatedRequest], now: float, tick: int) -> tuple[int, int]:
    """`Replica._read`, and `Replica._start_decoding` of those whose prompt is whole: how many, and their base.

    One with a single token decodes too, and ends with this step.
    """
    reading, block, count, base = replica.reading, replica.limits.block_tokens, 0, 0
    if len(replica.gap_s) > GAPS:
        replica.fold_gaps()
    for head in heads:
        done = head.done
        if done < head.target:
            reading[head] = None
            continue
        if reading:
            reading.pop(head, None)
        head.made = made = head.made + 1
        if made == 1:
            head.first = now
        else:
            replica.gap_s.append(now - head.left_at)
            replica.gap_tokens.append(1)
        head.base = done - tick
        base += done - tick
        count += 1
        if not replica.reserves:
            head.turn = turn = -(tick + head.blocks * block - done) % block
            replica.turns[turn] += 1
            head.blocks += (-tick - turn) // block
        head.end = end = tick + head.output_tokens - made
        heappush(replica.ends, (end, head.number, head))
    return count, base
