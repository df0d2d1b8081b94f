"""A replica on the usual way, in one loop: requests that come by the clock, are read, decode and end.

The state is the replica's, and so are the rules. What happens with every request (it comes, is admitted, begins to
decode, ends) stands in one function with local names, because calls and attributes took two thirds of the time; each
such block says which method of `Replica` it copies: change both. How long a run of decoding is, and the blocks that it
takes, are the replica's own. Whatever is not usual (the cache is full and somebody gives way, or comes back) is left
to the replica for a step. A test holds the two to the same times.
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
            request = _played(replica, coming, request, refuses)
        while request is not None and (request.sent <= replica.now or replica.is_idle):
            if not refuses(request):
                replica.submit(request)
            request = next(coming, None)
        if not replica.is_idle:
            replica.take(inf if request is None else request.sent)


def _played(  # noqa: PLR0912, PLR0915 - one loop is what makes it quick
    replica: Replica,
    coming: Iterator[SimulatedRequest],
    request: SimulatedRequest | None,
    refuses: Callable[[SimulatedRequest], bool],
) -> SimulatedRequest | None:
    """Until all have ended, or something happens that is left to the replica: the request that comes next."""
    rules, limits, pool = replica.rules, replica.limits, replica.pool
    decode, mixed, on_end = replica.times.decode, replica.times.mixed, replica.on_end
    most, most_tokens, block = limits.sequences, limits.tokens, limits.block_tokens
    reserves, ahead, seen = replica.reserves, rules.ahead, limits.seen if rules.ahead else 0.0
    asks_whole, asks_prompt = reserves, rules.admission == "prompt"
    waiting, reading, ends, turns = replica.waiting, replica.reading, replica.ends, replica.turns
    steps_until, blocks_of = replica.steps_until, replica.paces[0].need
    joined, most_joined = list(replica.running), 2 * most + 1024  # by admission; ended ones are dropped now and then
    gap_s, gap_tokens = replica.gap_s, replica.gap_tokens
    now, tick, base, count = replica.now, replica.tick, replica.base, replica.decoding
    seen_s, is_late, is_blocked = replica.seen_s, replica.is_late, replica.is_blocked
    free, blocks, alone, capacity = pool.free, pool.blocks, 0, min(pool.blocks * block, limits.longest or 1 << 62)
    sequence_s = block_s = idle_s = 0.0
    least_free, most_running, most_waiting, read_tokens = free, 0, 0, 0
    due = inf if request is None else request.sent
    while True:
        # Replica.submit, of all that have come: an engine without work goes on from when the next one does.
        while due <= now or not (count or waiting or reading):
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
        held = count + len(reading)
        if not held and not waiting:
            break
        # Replica.take: does this step read prompts, or is it one of a run that only decodes, and until when?
        until, limit, is_open = due, MOST_STEPS, held < most
        was_late, was_blocked = is_late, is_blocked
        chunks: list[tuple[SimulatedRequest, int, int]] = []
        if not count or reading or (waiting and not is_blocked and is_open):
            # Replica._planned, its begin: blocks of those that decode come first. Who would have to give way
            # (Replica._preempt), or comes back (Replica._admit_ready), is left to the replica.
            need = turns[-tick % block] if count else 0
            if need > free or (waiting and (waiting[0].made or waiting[0].ready)):
                break
            left, spare = most_tokens - count, free - need
            sizes: list[tuple[int, int]] = []
            # Replica._chunks and Replica._has_room, of the one prompt that was begun before.
            if reading:
                (head,) = reading
                size = head.target - head.done
                if size > left:
                    size = left
                more = -(-(head.done + size) // block) - head.blocks
                if more > spare:
                    break
                if size > 0:
                    if more > 0:
                        head.blocks += more
                        spare -= more
                    chunks.append((head, size, head.done))
                    sizes.append((size, head.done))
                    left -= size
            # Replica._chunks, Replica._admit and Replica._asked, of those that wait: nothing of theirs is in the cache.
            if not is_late:
                while left > 0 and waiting and held < most:
                    head = waiting[0]
                    if ahead and count and head.sent > seen_s:
                        break
                    size = tokens = head.input_tokens
                    if size > left:
                        size = left
                    if asks_whole:
                        tokens += head.output_tokens
                    elif not asks_prompt:
                        tokens = size
                    if -(-tokens // block) > spare:
                        break
                    waiting.popleft()
                    joined.append(head)
                    held += 1
                    head.blocks = taken = -(-(tokens if asks_whole else size) // block)
                    spare -= taken
                    chunks.append((head, size, 0))
                    sizes.append((size, 0))
                    left -= size
            # Replica._is_unseen, and the end of Replica._planned where no prompt is read.
            if waiting and ahead and count and waiting[0].sent > seen_s:
                is_late = True
            if not chunks:
                is_blocked = bool(waiting) and not is_late
                if not count:
                    if not is_late:
                        break
                    is_late = False
                    continue
                if is_late:
                    limit = 1
        elif not is_open or waiting:
            until = inf  # whoever comes meanwhile waits behind others until one ends
        # How long, and which blocks: of a step with prompts as in Replica._step, of a run of decoding as Replica._run.
        if chunks:
            free, steps = spare, 1
            if held > most_running:
                most_running = held
            if len(joined) > most_joined:
                joined = [head for head in joined if head.last != head.last]
                if len(gap_s) > GAPS:
                    replica.fold_gaps()
            seconds = mixed(sizes, count, base / count + tick if count else 0.0)
        else:
            soonest = ends[0]
            while soonest[2].end != soonest[0]:  # it was preempted meanwhile
                heappop(ends)
                soonest = ends[0]
            steps = soonest[0] - tick
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
        seen_s = now + passed - (1.0 - seen) * seconds
        now += passed
        sequence_s += held * passed
        block_s += (blocks - free) * passed
        if free < least_free:
            least_free = free
        if count:
            tick += steps
            gap_s.append(seconds)  # Replica._note_gap
            gap_tokens.append(count * steps)
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
                head.end = 0  # it may stand in the heap twice, if it was preempted and came back at once
                head.last = now
                on_end(head)
        else:
            alone += 1
        if not chunks:
            continue
        # Replica._read; Replica._start_decoding of those whose prompt is whole; Replica._end of those with one token.
        for head, size, before in chunks:
            read_tokens += size
            head.done = done = before + size
            if done < head.target:
                reading[head] = None
                continue
            if reading:
                reading.pop(head, None)
            head.made += 1
            if head.made == 1:
                head.first = now
            else:
                gap_s.append(now - head.left_at)
                gap_tokens.append(1)
            left = head.output_tokens - head.made
            if left > 0:
                end = head.end = tick + left
                head.base = done - tick
                base += done - tick
                count += 1
                if not reserves:
                    head.turn = turn = -(tick + head.blocks * block - done) % block
                    turns[turn] += 1
                    head.blocks += (-tick - turn) // block
                heappush(ends, (end, head.number, head))
                continue
            if is_blocked or held >= most:
                is_late = ahead
            held -= 1
            is_blocked = False
            free += head.blocks
            head.last = now
            on_end(head)
    # What has changed goes back to the replica.
    replica.busy_s += now - replica.now - idle_s
    replica.steps += tick - replica.tick + alone
    replica.now, replica.tick, replica.base, replica.decoding = now, tick, base, count
    replica.rate = float(count)
    replica.seen_s, replica.is_late, replica.is_blocked = seen_s, is_late, is_blocked
    replica.sequence_s += sequence_s
    replica.block_s += block_s
    replica.read_tokens += read_tokens
    replica.most_blocks = max(replica.most_blocks, blocks - least_free)
    replica.most_running = max(replica.most_running, most_running)
    replica.most_waiting = max(replica.most_waiting, most_waiting)
    replica.running = dict.fromkeys(head for head in joined if head.last != head.last)
    pool.refill(free)
    return request
