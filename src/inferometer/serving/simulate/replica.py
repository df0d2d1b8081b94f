"""One simulated engine: which requests are in a step, by its scheduler's rules, and how long the step takes.

Time moves from one step's end to the next. What is coalesced: steps that only decode, between two events (a request
comes, one ends, the cache is full). Such a run is counted at once, with every step as long as the one in its middle:
a step's time grows evenly with what is cached. Steps that read prompts are taken one by one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heappop, heappush
from math import ceil, inf
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from inferometer.core.errors import EngineError
from inferometer.core.frozen import frozen
from inferometer.core.traffic.demand import is_taken_back
from inferometer.core.traffic.spreads import merged, weighted_spread
from inferometer.serving.simulate.cache import BlockPool, Piece, Tier
from inferometer.serving.simulate.slots import Slots
from inferometer.serving.simulate.times import Times, TimesApart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inferometer.core.engine import SchedulerRules
    from inferometer.core.served import Spread
    from inferometer.serving.simulate.request import SimulatedRequest

MOST_STEPS = 4096  # of a run
GAPS = 65_536  # of which are kept before they are folded
# Preemptions and empty plans one after the other in which no token is made and no request ends. A long prompt among
# many that give way to it has thousands; more than these never end (and take a second or two).
_MOST_IN_VAIN = 50_000
_CLIP = 4096  # tokens of an answer that an estimate counts at most, as SGLang does


@frozen
class Adapters:
    """Low-rank adapters beside the weights: a step holds at most `slots`, each moved in before its first request.

    A request that needs one more waits, and others go past it (vLLM's `max_loras`). The last used one stays longest.
    """

    slots: int
    load_s: float


@frozen
class Encoder:
    """The encoder of images, which runs before a prompt is read; it keeps its last results."""

    image_s: float
    image_tokens: int
    cache_tokens: int


@frozen
class DraftLevel:
    """What is drafted where at most so many sequences decode: `paces` and `per_sequence` as in `EngineLimits`."""

    most: float
    paces: tuple[float, ...] = (1.0,)
    per_sequence: int = 1


@frozen
class EngineLimits:
    """The limits of a replica: tokens and sequences a step, blocks of the cache, how preempted requests come back."""

    tokens: int
    sequences: int
    blocks: int
    block_tokens: int
    kept: float = 1.0  # tokens that a sequence makes in a step: more than 1 with speculation
    per_sequence: int = 1  # tokens that it takes of a step's
    prefix_cache: bool = True
    swap_s_per_block: float | None = None  # preemption moves blocks to the host and back; None: they are computed anew
    by_priority: bool = False
    chunk: int | None = None  # tokens of one prompt in a step at most; None: all of the step's
    seen: float = 0.0  # share of a step: what comes in it is in the next plan, where plans are made one step ahead
    longest: int | None = None  # tokens of a prompt and its answer at most (max_model_len)
    queue: int | None = None  # requests that may wait; one more is refused
    away_tokens: float = inf  # of prompts that slots have given up, in the host's memory
    tiers: tuple[Tier, ...] = ()  # where the cache moves what it has no room for
    patience_s: float = inf  # after which whoever asked goes away: a request is then dropped wherever it is
    cancels: tuple[float, float] | None = None  # a share of the requests, and seconds after which these are taken back
    paces: tuple[float, ...] = ()  # tokens a step of requests that a draft suits more and less, in equal shares
    levels: tuple[DraftLevel, ...] = ()  # instead of these, where drafts depend on the load; the last is of any
    adapters: Adapters | None = None
    encoder: Encoder | None = None

    @property
    def is_left(self) -> bool:
        """Whether somebody may go away before the answer is there."""
        return self.patience_s != inf or self.cancels is not None

    def until(self, request: SimulatedRequest) -> float:
        """When whoever asked goes away."""
        left_s = self.patience_s
        if self.cancels is not None and is_taken_back(request.number, self.cancels[0]):
            left_s = min(left_s, self.cancels[1])
        return request.sent + left_s


class _Pace:
    """Sequences of one number of tokens a step, which take a block in every `period`-th step: how many at each turn."""

    __slots__ = ("kept", "period", "turns")

    def __init__(self, kept: float, block_tokens: int) -> None:
        self.kept, self.period = kept, max(1, round(block_tokens / kept))
        self.turns = [0] * self.period

    def need(self, tick: int, steps: int) -> int:
        """Blocks that they take in so many steps."""
        period, turns = self.period, self.turns
        if steps == 1:
            return turns[-tick % period]
        whole, rest = divmod(steps, period)
        first = -(tick + rest - 1) % period  # the turns of the rest stand side by side, but for where they wrap round
        some = sum(turns[first : first + rest])
        wrapped = sum(turns[: first + rest - period]) if first + rest > period else 0
        return whole * sum(turns) + some + wrapped if whole else some + wrapped


class Replica:
    """`submit` hands a request over, `advance` lets it work; `on_end` is called with every request that ends."""

    def __init__(
        self,
        times: Times,
        rules: SchedulerRules,
        limits: EngineLimits,
        on_end: Callable[[SimulatedRequest], None],
        on_dropped: Callable[[SimulatedRequest], None] | None = None,
    ) -> None:
        self.rules, self.limits, self.times, self.on_end = rules, limits, times, on_end
        self._on_dropped = on_dropped
        self._leaving: list[tuple[float, int, SimulatedRequest]] = []  # by when whoever asked goes away
        self._can_leave = limits.is_left
        self.holds = False  # whether the blocks of a request that has ended stay, until they are let go
        self.held: dict[SimulatedRequest, tuple[int, Sequence[Piece]]] = {}
        self.on_room: Callable[[SimulatedRequest], None] | None = (
            None  # hears of those that bring their cache and have room
        )
        self._moved_in: OrderedDict[int, None] = OrderedDict()  # adapters, the last used one last
        self._encoded: OrderedDict[int, None] = OrderedDict()  # images, in the order of their last use
        self.adapter_loads = self.images_encoded = self.images_found = 0
        # Later requests may go past waiting ones.
        self._passes = limits.by_priority or limits.adapters is not None
        self.pool = BlockPool(limits.blocks, limits.block_tokens, limits.tiers)
        self.now = 0.0
        self.waiting: deque[SimulatedRequest] = deque()
        self.running: dict[SimulatedRequest, None] = {}  # in the order in which they were admitted
        self.reading: dict[SimulatedRequest, None] = {}  # those whose prompt is not read yet
        self.preempted = self.hit_tokens = self.read_tokens = self.steps = 0
        self.busy_s = self.sequence_s = self.block_s = 0.0
        self.most_blocks = self.most_running = self.most_waiting = 0
        self.gap_s: list[float] = []  # seconds between tokens
        self.gap_tokens: list[int] = []  # and between how many
        self.folded: Spread | None = None
        self.most_steps = MOST_STEPS
        self.pause = False  # whether `advance` comes back after every end
        self.from_s, self.until_s = 0.0, inf  # when it can be given requests
        self.ends: list[tuple[int, int, SimulatedRequest]] = []
        self.tick, self.base, self._end_sum, self.decoding = 0, 0.0, 0, 0
        # Ticks in which a sequence needs one more block come every so many: how many sequences at each turn. Where a
        # draft suits some requests better than others, each pace has its own.
        whole = DraftLevel(most=inf, paces=limits.paces or (limits.kept,), per_sequence=limits.per_sequence)
        self._levels = limits.levels or (whole,)
        self._level = self._levels[0]
        self.paces = [_Pace(kept, limits.block_tokens) for kept in self._level.paces]
        self.turns = self.paces[0].turns
        self.rate = 0.0  # tokens that all decoding requests make in a step
        self.is_blocked = False
        # Whether a prompt has given way to blocks that stay held: it would be begun, and give way, again and again.
        self._is_stuck = False
        self._in_vain, self._vain_tick = 0, 0  # preemptions and empty plans, and the tick in which they stand
        # Where steps are planned one ahead, a plan knows what came, and who ended, before the last step began.
        self.seen_s, self.is_late = inf, False
        self.reserves = rules.admission in {"whole", "slot"}
        self.slots = Slots(limits.sequences, limits.away_tokens) if rules.admission == "slot" else None
        if self.slots is not None and isinstance(times, TimesApart):
            self.times = times.following(self.slots)
        self._chunk = limits.chunk or limits.tokens
        self._seen = limits.seen if rules.ahead else 0.0
        self._taken: int | None = None  # blocks that the planned step has taken for decoding requests
        self._extra_s = self._delay_s = 0.0  # of moving blocks, for the next step; of prompts read while others waited
        self._ratio = rules.estimate_start
        self._fall = (
            (rules.estimate_start - rules.estimate_least) / rules.estimate_steps if rules.estimate_steps else 0.0
        )

    @property
    def load(self) -> int:
        """As vLLM's balancer counts it: a request that waits counts as much as four that run."""
        return 4 * len(self.waiting) + len(self.running)

    @property
    def is_plain(self) -> bool:
        """Whether its next steps are as usual: nobody has given way to others and nothing is shared (`plain.py`)."""
        limits = self.limits
        is_usual = limits.kept == limits.per_sequence == 1 and limits.chunk is None and not limits.by_priority
        is_usual = is_usual and limits.swap_s_per_block is None and self.rules.order == "decode" and not self._fall
        is_usual = is_usual and not limits.is_left and limits.adapters is None and limits.encoder is None
        is_usual = is_usual and self.slots is None and not limits.levels
        return is_usual and not self.holds and self.pool.is_plain and len(self.reading) <= 1

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting

    def submit(self, request: SimulatedRequest) -> None:
        if self.now < request.sent and not self.running and (not self.waiting or self.is_stalled):
            self.now = self.seen_s = request.sent
        if not self.limits.prefix_cache:
            request.pieces = ()
        if self.slots is not None:
            self.slots.note(request)
        if self._can_leave:
            if not request.ready:  # one that comes from another pool is waited for since it came there
                request.until = self.limits.until(request)
            heappush(self._leaving, (request.until, request.number, request))
        if self.limits.by_priority:
            self._insert(request)
        else:
            self.waiting.append(request)
        waiting = len(self.waiting)
        if self._passes or waiting == 1:
            self.is_blocked = False
        self.most_waiting = max(self.most_waiting, waiting)

    def _insert(self, request: SimulatedRequest) -> None:
        waiting, priority = self.waiting, request.priority
        place = len(waiting)
        while place and waiting[place - 1].priority > priority:
            place -= 1
        waiting.insert(place, request)

    def advance(self, until: float = inf) -> None:
        """Take every step that begins before `until`. With `pause`, come back when a request has ended."""
        while self.now < until and (self.running or self.waiting):
            soon = until
            if self._leaving:
                if self.drop_impatient() and self.pause:
                    return
                if self.is_idle:
                    continue
                soon = min(until, self._leaving[0][0]) if self._leaving else until
            if self.take(soon) and self.pause:
                return
            if self.held and self.is_stalled:
                return

    @property
    def is_stalled(self) -> bool:
        """Whether it can begin nothing before somebody takes away what it holds."""
        return self.is_blocked and bool(self.held) and not self.running

    def let_go(self, request: SimulatedRequest, now: float) -> None:
        """The blocks of a request that has ended are needed no longer."""
        if self.is_stalled:
            self.now = max(self.now, now)
        self._give_back(*self.held.pop(request))
        self.is_blocked = self._is_stuck = False

    def drop_impatient(self) -> bool:
        """Drop requests that nobody waits for any more, at the end of a step; whether there was any."""
        is_any = False
        while self._leaving and self._leaving[0][0] <= self.now:
            request = heappop(self._leaving)[2]
            if self.drop(request):  # it was not answered in time
                is_any = True
                if self._on_dropped is not None:
                    self._on_dropped(request)
        return is_any

    def drop(self, request: SimulatedRequest) -> bool:
        """Forget a request, wherever it is; whether it was here."""
        if request in self.running:
            del self.running[request]
            self.reading.pop(request, None)
            if request.end:
                self._stop_decoding(request)
            self._release(request, ("own", request.number) if self.limits.prefix_cache else None)
        elif request in self.waiting:
            self.waiting.remove(request)
        else:
            return False
        if self.slots is not None:
            self.slots.leave(request)
        self.is_blocked = False
        return True

    def made_of(self, request: SimulatedRequest) -> int:
        """Tokens that a running request has made: all but the last, which its last step makes."""
        if not request.end:
            return request.made
        a_step = self._pace(request).kept
        began = request.end - _steps_of(request, a_step)
        return min(request.output_tokens - 1, int(request.made + (self.tick - began) * a_step))

    def _pace(self, request: SimulatedRequest) -> _Pace:
        paces = self.paces
        return paces[0] if len(paces) == 1 else paces[request.number % len(paces)]

    def take(self, until: float) -> bool:
        """Take the next step, or run of steps that only decode; whether a request has ended with it."""
        waiting = self.waiting
        self._follow_load()
        if not self.decoding or self.reading:
            return self._step(until)
        if len(self.running) >= self.limits.sequences or (waiting and self.is_blocked and not self._passes):
            # Whoever comes meanwhile waits behind others until one ends, or goes away, or lets go.
            return self._run(until if self._leaving or self.held else inf)
        if waiting and not self.is_blocked:
            return self._step(until)
        return self._run(until)

    def _follow_load(self) -> None:
        """Draft what is drafted with so many sequences that decode: all of them go on at another pace."""
        if len(self._levels) == 1 or not self.decoding:
            return
        level = next(level for level in self._levels if self.decoding <= level.most)
        if level is self._level:
            return
        going = [request for request in self.running if request.end]
        for request in going:
            pace = self._pace(request).kept
            # What a step makes is an average, so what is made by now may be no whole number of tokens.
            made = request.made + (self.tick - request.end + _steps_of(request, pace)) * pace
            self._stop_decoding(request)
            request.made, request.done = made, request.input_tokens + made - 1  # type: ignore[assignment] # an average
        self._level = level
        self.paces = [_Pace(kept, self.limits.block_tokens) for kept in level.paces]
        self.ends.clear()
        for request in going:
            self._start_decoding(request)

    # steps that only decode

    def _run(self, until: float, most: int | None = None) -> bool:
        """As many steps of decoding as there are before something else happens."""
        ends, tick, count = self.ends, self.tick, self.decoding
        kept, context = self.rate / count, self.context
        while ends[0][2].end != ends[0][0]:  # it was preempted meanwhile
            heappop(ends)
        steps = ends[0][0] - tick
        steps = min(steps, self.most_steps if most is None else most)
        seconds = self.times.decode(count, context + kept * (steps - 1) / 2)
        if steps * seconds > until - self.now:
            steps, seconds = self.steps_until(until - self.now, steps, seconds, (count, context, kept))
        need = 0 if self.reserves else self._need(steps)
        if need:
            if need > self.pool.free:
                steps, need = self._held_steps(steps)
                if not steps and self.rules.order == "decode":
                    return self._step(until)  # which makes room, and then may admit nobody
                if not steps:
                    # The step is taken before anybody is admitted, as SGLang does (update_running_batch): whoever has
                    # given way would take the room again, and no token would be made.
                    while self.decoding and self._need(1) > self.pool.free:
                        self._preempt()
                    return self._run(until, 1) if self.decoding else False
                seconds = self.times.decode(count, context + kept * (steps - 1) / 2)
            self.pool.take(need)
        self._pass(steps, seconds)
        return self._finish() if ends[0][0] <= self.tick else False

    def steps_until(
        self, left_s: float, steps: int, seconds: float, load: tuple[int, float, float]
    ) -> tuple[int, float]:
        """The steps that begin within a time, for a `load`: sequences, their context, tokens of a step.

        They grow longer on the way, so look again from the middle of them.
        """
        count, context, kept = load
        for _ in range(2):
            begun = max(1, ceil(left_s / seconds)) if not self._seen else ceil(max(left_s / seconds - self._seen, 0))
            fewer = begun + self.rules.ahead  # the last was planned before anybody came
            if fewer >= steps:
                break
            steps = fewer
            seconds = self.times.decode(count, context + kept * (steps - 1) / 2)
        return steps, seconds

    def _need(self, steps: int) -> int:
        """Blocks that the sequences take in so many steps."""
        if len(self.paces) == 1:
            return self.paces[0].need(self.tick, steps)
        return sum(pace.need(self.tick, steps) for pace in self.paces)

    def _held_steps(self, steps: int) -> tuple[int, int]:
        """How many steps the free blocks last, and how many they take."""
        need = 0
        for step in range(steps):
            more = sum(pace.turns[-(self.tick + step) % pace.period] for pace in self.paces)
            if need + more > self.pool.free:
                return step, need
            need += more
        return steps, need

    def _pass(self, steps: int, seconds: float) -> None:
        """Let the time of some equal steps pass."""
        whole, pool, running = steps * seconds, self.pool, len(self.running)
        self.seen_s, self.is_late = self.now + whole - (1 - self._seen) * seconds, False
        self.now += whole
        self.steps += steps
        self.tick += steps
        self.busy_s += whole
        used = pool.blocks - pool.free
        self.sequence_s += running * whole
        self.block_s += used * whole
        self.most_blocks = max(self.most_blocks, used)
        self.most_running = max(self.most_running, running)
        if count := self.decoding:
            if self._fall:
                self._ratio = max(self.rules.estimate_least, self._ratio - steps * self._fall)
            if self._delay_s:
                self._note_gap(seconds + self._delay_s, count)
                self._delay_s, steps = 0.0, steps - 1
            self.gap_s.append(seconds)
            self.gap_tokens.append(count * steps)
            if len(self.gap_s) > GAPS:
                self.fold_gaps()

    def _note_gap(self, seconds: float, tokens: int) -> None:
        self.gap_s.append(seconds)
        self.gap_tokens.append(tokens)

    def fold_gaps(self) -> None:
        """Waits between tokens as a spread, so that they take the same memory however many there are."""
        part = weighted_spread(np.array(self.gap_s), np.array(self.gap_tokens, np.int64))
        self.gap_s.clear()
        self.gap_tokens.clear()
        self.folded = merged(spread for spread in (self.folded, part) if spread is not None)

    def _finish(self) -> bool:
        """End the requests whose last token this tick has made."""
        ends, tick, is_any = self.ends, self.tick, False
        while ends and ends[0][0] <= tick:
            end, _, request = heappop(ends)
            if request.end == end:
                self._stop_decoding(request)
                self._end(request)
                is_any = True
        return is_any

    def _end(self, request: SimulatedRequest) -> None:
        if self.rules.ahead and (self.is_blocked or len(self.running) >= self.limits.sequences):
            self.is_late = True  # the next step is planned already, without what becomes free now
        del self.running[request]
        if self.holds:
            self.held[request] = request.blocks - request.shared, request.pieces
            request.blocks = request.shared = 0
        else:
            self._release(request, None)
        if self.slots is not None:
            self.slots.leave(request)
        request.last = self.now
        self.is_blocked = False
        self._in_vain = 0
        self.on_end(request)

    def _start_decoding(self, request: SimulatedRequest) -> None:
        """Its prompt is read: from the next step on it makes tokens."""
        pace, tick = self._pace(request), self.tick
        kept = pace.kept
        request.end = tick + _steps_of(request, kept)
        request.base = request.done - kept * tick
        self.base += request.base
        self.rate += kept
        self._end_sum += request.end
        self.decoding += 1
        if not self.reserves:
            room = request.blocks * self.limits.block_tokens - request.done  # tokens until its last block is full
            period = pace.period
            request.turn = turn = -(tick + max(0, round(room / kept))) % period
            pace.turns[turn] += 1
            request.blocks += (-tick - turn) // period
        heappush(self.ends, (request.end, request.number, request))
        if self.slots is not None:
            self.slots.decoding.add(self.slots.taken[request])

    def _stop_decoding(self, request: SimulatedRequest) -> None:
        pace = self._pace(request)
        self.base -= request.base
        self.rate -= pace.kept
        self._end_sum -= request.end
        self.decoding -= 1
        if not self.reserves:
            pace.turns[request.turn] -= 1
            request.blocks -= (-self.tick - request.turn) // pace.period
        request.end = 0

    def _release(self, request: SimulatedRequest, name: object) -> None:
        """Give its blocks back; with a name, what it computed can be found again."""
        own = request.blocks - request.shared
        if request.answer and name is None and self.limits.prefix_cache and not request.ready:
            computed = request.input_tokens + request.output_tokens - 1  # the last token was made and not read
            own -= self.pool.remember(request.input_tokens, request.answer, computed, own)
        self._give_back(own, request.pieces, name)
        request.blocks = request.shared = 0

    def _give_back(self, own: int, pieces: Sequence[Piece], name: object = None) -> None:
        self.pool.give(own, name)
        if pieces:
            self.pool.leave(pieces)

    def _preempt(self) -> SimulatedRequest:
        """Make room: one request goes back to the front of the queue."""
        self._count_in_vain()
        victim = self._victim()
        del self.running[victim]
        self.reading.pop(victim, None)
        self.preempted += 1
        if victim.end:
            if self._taken is not None and self._is_full(victim):
                self.pool.give(1)
                self._taken -= 1
            victim.made = self.made_of(victim)
            self._stop_decoding(victim)
            victim.done = victim.input_tokens + victim.made - 1
            victim.left_at = self.now
        victim.target = victim.input_tokens + victim.made
        swap_s = self.limits.swap_s_per_block
        # One alone would come back to the same room, that a draft has overdrawn by a block: it reads on instead.
        if swap_s is not None and victim.made and self.running:
            victim.ready = True  # with all of its blocks, those that others had too
            self._extra_s += victim.blocks * swap_s
        else:
            victim.done = 0
        can_find = self.limits.prefix_cache and not victim.ready
        self._release(victim, ("own", victim.number) if can_find else None)
        if victim.ready:
            victim.pieces = ()
        self.waiting.appendleft(victim)
        return victim

    def _count_in_vain(self) -> None:
        """End a simulation that makes no progress with an error; it would never end otherwise."""
        if self.tick != self._vain_tick:
            self._in_vain, self._vain_tick = 0, self.tick
        self._in_vain += 1
        if self._in_vain > _MOST_IN_VAIN:
            self.fail("preempts and plans without making a token")

    def fail(self, fault: str) -> NoReturn:
        """A fault of the simulator itself: the state, so that the reader of a report can look for the cause."""
        raise EngineError(
            f"The simulation stands still: an engine as {self.rules.title} {fault} ({len(self.running)} run, "
            f"{len(self.waiting)} wait, {self.pool.free} of {self.pool.blocks} blocks are free).",
            remedy="That is a fault of the simulator: please report the command. More --kv-blocks may go past it.",
        )

    def _is_full(self, request: SimulatedRequest) -> bool:
        """Whether one that decodes needs another block in this tick."""
        return not self.reserves and (self.tick + request.turn) % self._pace(request).period == 0

    def _victim(self) -> SimulatedRequest:
        if self.rules.victim == "shortest":
            return min(self.running, key=lambda request: self.tick - request.end + request.output_tokens)
        if self.limits.by_priority:
            return max(reversed(self.running), key=lambda request: request.priority)
        return next(reversed(self.running))

    # steps that read prompts

    def _step(self, until: float) -> bool:
        """One step with the prompts that its tokens and the cache have room for; without any, a run of decoding."""
        chunks, is_short = self._planned()
        if not chunks:
            return self._run(until, 1 if is_short else None) if self.decoding else False
        sizes = [(size, request.done) for request, size in chunks]
        if self.rules.order == "decode" and self.decoding:
            return self.do_step(chunks, self.times.mixed(sizes, self.decoding, self.context))
        return self.do_step(chunks, self.times.mixed(sizes, 0, 0.0))

    def _planned(self) -> tuple[list[tuple[SimulatedRequest, int]], bool]:
        """The prompts of the next step; and without any, whether only one step of decoding is sure to be next."""
        decodes = self.rules.order == "decode"
        preempted = self.preempted
        if decodes:
            while (need := self._need(1)) > self.pool.free:
                self._preempt()
                self._follow_load()
            if need:
                self.pool.take(need)
            self._taken = need
        is_stopped = self.rules.waits_after_preemption and self.preempted > preempted
        chunks = self._chunks(
            self.limits.tokens - (self.decoding * self._level.per_sequence if decodes else 0),
            can_admit=not (is_stopped or self.is_late),
        )
        taken, self._taken = self._taken, None
        is_late, self.is_late = self.is_late or self._is_unseen(), False
        if not chunks:
            if taken:
                self.pool.give(taken)  # the run below counts it itself
            self.is_blocked = bool(self.waiting) and (self._is_stuck or not (is_late or is_stopped))
            if not self.decoding:
                if not is_late and self.preempted == preempted and not self.held:
                    self.fail("can begin none of its requests")
                self._count_in_vain()
        return chunks, is_late or is_stopped

    def do_step(self, chunks: list[tuple[SimulatedRequest, int]], seconds: float) -> bool:
        """Apply a step with these prompts and its time; whether a request has ended with it."""
        if self.rules.order == "decode" and self.decoding:
            self._pass(1, seconds + self._spent())
        else:
            self._read_alone(seconds + self._spent())
        ended = self._finish()
        return self._read(chunks) or ended

    # for ranks that step together (`gang`)

    @property
    def context(self) -> float:
        """Cached tokens of the decoding requests, on average."""
        return (self.base + self.rate * self.tick) / self.decoding

    @property
    def until_next_end(self) -> int:
        while self.ends[0][2].end != self.ends[0][0]:  # it was preempted meanwhile
            heappop(self.ends)
        return self.ends[0][0] - self.tick

    def has_blocks(self, steps: int) -> bool:
        return self.reserves or self._need(steps) <= self.pool.free

    def plan_step(self) -> list[tuple[SimulatedRequest, int]]:
        """The prompts that the next step reads, after requests have given way to the decoding ones."""
        self._follow_load()
        chunks = self._planned()[0]
        while not chunks and self._need(1) > self.pool.free:
            self._preempt()  # where prompts go before decoding, nobody has given way yet
        return chunks

    def do_run(self, steps: int, seconds: float) -> bool:
        """Apply a run of equal decoding steps; whether a request has ended."""
        if not self.reserves and (need := self._need(steps)):
            self.pool.take(need)
        self._pass(steps, seconds)
        return self._finish()

    def _is_unseen(self) -> bool:
        """Whether the next request came too late for this step's plan; an engine without work takes it at once."""
        return self.rules.ahead and bool(self.waiting) and bool(self.decoding) and self.waiting[0].sent > self.seen_s

    def _spent(self) -> float:
        extra, self._extra_s = self._extra_s, 0.0
        return extra

    def _read_alone(self, seconds: float) -> None:
        """A step of prompts alone: the decoding requests wait for it."""
        decoding, self.decoding = self.decoding, 0
        tick = self.tick
        self._pass(1, seconds)
        self.decoding, self.tick = decoding, tick
        if decoding:
            self._delay_s += seconds

    def _chunks(self, budget: int, *, can_admit: bool) -> list[tuple[SimulatedRequest, int]]:
        """What the step reads: prompts that were begun before, then new ones while tokens and blocks are left."""
        chunks, budget = self._read_on(budget) if self.reading else ([], budget)
        running, waiting, most = self.running, self.waiting, self.limits.sequences
        passed: list[SimulatedRequest] = []  # whose adapter has no slot: others go before them
        can_admit = can_admit and not self._is_stuck
        while can_admit and budget > 0 and waiting and len(running) < most:
            request = waiting[0]
            if self.rules.ahead and self.decoding and request.sent > self.seen_s:
                break
            if self.limits.adapters is not None and not self._has_slot(request, self.limits.adapters):
                passed.append(waiting.popleft())
                continue
            if request.ready:
                if not self._admit_ready(request):
                    break
                continue
            size = self._admit(request, budget)
            if not size:
                break
            waiting.popleft()
            running[request] = None
            self.reading[request] = None
            chunks.append((request, size))
            budget -= size
            if request.pieces:
                self.pool.fill(request.pieces, request.done + size)
            if self.limits.encoder is not None:
                self._encode(request, self.limits.encoder)
        waiting.extendleft(reversed(passed))
        return chunks

    def _read_on(self, budget: int) -> tuple[list[tuple[SimulatedRequest, int]], int]:
        """Of prompts that were begun before, and the tokens that are left of the step."""
        chunks = []
        for request in list(self.reading):
            if budget <= 0:
                break
            size = min(budget, request.target - request.done, self._chunk)
            if request in self.running and self._has_room(request, size):
                chunks.append((request, size))
                budget -= size
                if request.pieces:
                    self.pool.fill(request.pieces, request.done + size)
        return [chunk for chunk in chunks if chunk[0] in self.running], budget

    def _has_slot(self, request: SimulatedRequest, adapters: Adapters) -> bool:
        """Whether a request's adapter is in use, or has room beside the ones in use."""
        used = {other.adapter for other in self.running if other.adapter >= 0}
        return request.adapter < 0 or request.adapter in used or len(used) < adapters.slots

    def _move_in(self, request: SimulatedRequest, adapters: Adapters) -> None:
        """Its adapter is there when the step begins; one that nobody uses makes room."""
        if request.adapter in self._moved_in:
            self._moved_in.move_to_end(request.adapter)
            return
        if len(self._moved_in) >= adapters.slots:
            used = {other.adapter for other in self.running}
            del self._moved_in[next(other for other in self._moved_in if other not in used)]
        self._moved_in[request.adapter] = None
        self.adapter_loads += 1
        self._extra_s += adapters.load_s

    def _encode(self, request: SimulatedRequest, encoder: Encoder) -> None:
        """Its images become tokens in the step that begins its prompt, but for those whose result is kept."""
        for image in request.images:
            if image in self._encoded:
                self._encoded.move_to_end(image)
                self.images_found += 1
                continue
            self._extra_s += encoder.image_s
            self.images_encoded += 1
            self._encoded[image] = None
            while len(self._encoded) > max(1, encoder.cache_tokens // encoder.image_tokens):
                self._encoded.popitem(last=False)

    def _has_room(self, request: SimulatedRequest, size: int) -> bool:
        """Blocks for the next chunk of a prompt that was begun; others give way for it, or it gives way itself."""
        need = -(-(request.done + size) // self.limits.block_tokens) - request.blocks
        while need > self.pool.free:
            if self.rules.victim == "none":
                return False
            if self._preempt() is request:
                self._is_stuck = bool(self.held) and not self.running
                return False
        if need > 0:
            self.pool.take(need)
            request.blocks += need
        return True

    def _admit(self, request: SimulatedRequest, budget: int) -> int:
        """How many tokens of its prompt the step reads; 0: the cache has no room for it yet."""
        pool, block = self.pool, self.limits.block_tokens
        own = ("own", request.number)
        held = pool.kept.get(own, 0) if request.made else 0
        finds = self.limits.prefix_cache and bool(request.pieces)
        hit, missing, shared = pool.sought(request.pieces) if finds else (0, 0, 0)
        # At least one token is computed; what is found ends with a whole block.
        done = min(hit + (held if hit == shared else 0), (request.target - 1) // block) * block
        size = min(budget, request.target - done, self._chunk)
        need = max(-(-self._asked(request, done + size) // block) - shared, 0) + missing
        if need > pool.free - (self._promised() if self._fall else 0):
            return 0
        if finds:
            before_s = pool.loading_s
            pool.use(request.pieces)
            self._extra_s += pool.loading_s - before_s
        if held:
            pool.free -= pool.kept.pop(own)
        if self.slots is not None:
            in_slot = self.slots.take(request)
            done = min(in_slot, request.target - 1) if self.limits.prefix_cache else 0
            size = min(budget, request.target - done, self._chunk)
        reached = request.input_tokens + request.output_tokens if self.reserves else done + size
        blocks = max(-(-reached // block), shared + held)
        if blocks > shared + held:
            pool.take(blocks - shared - held)
        if self.limits.adapters is not None and request.adapter >= 0:
            self._move_in(request, self.limits.adapters)
        request.blocks, request.shared, request.done, request.found = blocks, shared, done, done
        self.hit_tokens += done
        return size

    def _asked(self, request: SimulatedRequest, reached: int) -> int:
        """Tokens that must have room in the cache before a request is admitted, by the engine's rule."""
        match self.rules.admission:
            case "prompt":
                return request.target
            case "whole" | "slot":
                return request.input_tokens + request.output_tokens
            case "estimate":
                return request.target + min(_CLIP, request.output_tokens - request.made)
        return reached

    def _promised(self) -> int:
        """Blocks that an estimate keeps for the answers under way."""
        if not self.decoding:
            return 0
        left = min(self._end_sum - self.decoding * self.tick, _CLIP * self.decoding) * self.rate / self.decoding
        return ceil(self._ratio * left / self.limits.block_tokens)

    def _admit_ready(self, request: SimulatedRequest) -> bool:
        """One that brings its cache along: it needs the room, and decodes from this step on."""
        block = self.limits.block_tokens
        reached = request.input_tokens + request.output_tokens if self.reserves else request.done
        need = -(-reached // block)
        # One block more for its next token; not where that is reserved, and one alone has room for all of its answer.
        if need + (bool(self.running) and not self.reserves) > self.pool.free:
            return False
        self.waiting.popleft()
        self.pool.take(need)
        request.blocks = need
        if self.limits.swap_s_per_block is not None and request.left_at == request.left_at:
            self._extra_s += need * self.limits.swap_s_per_block
        request.ready = False
        if self.limits.adapters is not None and request.adapter >= 0:
            self._move_in(request, self.limits.adapters)
        if self.on_room is not None:
            self.on_room(request)
        self.running[request] = None
        self._start_decoding(request)
        if self._taken is not None and self._is_full(request):
            self.pool.take(1)
            self._taken += 1
        return True

    def _read(self, chunks: list[tuple[SimulatedRequest, int]]) -> bool:
        """The step is over: chunks are read, and whose prompt is whole has made a token."""
        is_any = False
        for request, size in chunks:
            request.done += size
            self.read_tokens += size
            if request.done < request.target:
                continue
            del self.reading[request]
            request.made += 1
            if request.made == 1:
                request.first = self.now
            else:
                self._note_gap(self.now - request.left_at, 1)
            if request.made >= request.output_tokens:
                self._end(request)
                is_any = True
            else:
                self._start_decoding(request)
        return is_any


def _steps_of(request: SimulatedRequest, kept: float) -> int:
    """The steps in which a request that begins to decode makes the rest of its answer."""
    return max(1, ceil((request.output_tokens - request.made) / kept - 1e-9))
