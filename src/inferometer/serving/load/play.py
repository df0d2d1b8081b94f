"""Play a demand against a server: each request leaves when it is due, and nothing that comes back delays another.

In an open loop requests are due by the schedule, whatever the server does; a request that finds no free connection
opens one. In a closed loop a place sends its next request when its last was answered, so the server sets the pace.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen
from inferometer.core.served import OK
from inferometer.core.traffic.demand import Demand, is_taken_back
from inferometer.serving.load.answers import Answer
from inferometer.serving.load.faults import Fault
from inferometer.serving.load.health import ProcessHealth, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.traffic.traces import Message
    from inferometer.serving.load.apis import Endpoint
    from inferometer.serving.load.pool import Pool
    from inferometer.serving.load.prompts import PromptMaker
    from inferometer.serving.load.wire import Connection

_AHEAD_BYTES = 256_000_000  # of requests that are written out before the clock starts
_AHEAD = 20_000
_AHEAD_S = 2.0  # of CPU
_HOPELESS = 20  # failures, and no success, after which the others are not sent
_PAUSE_S = 0.05  # before a place tries again after a failure
_LONGEST_PAUSE_S = 30.0  # that a place waits because a server said Retry-After
_SWEEP_S = 0.05
_SPENT = frozenset({"closed_early", "reset"})  # how a kept connection ends that the server closed in the meantime


@frozen
class RoundPlan:
    """`concurrency` is None in an open loop. `start_s` is when the clock starts, None for now."""

    demand: Demand
    concurrency: int | None = None
    duration_s: float | None = None
    timeout_s: float = 600.0
    cancels: tuple[float, float] | None = None  # a share of the requests, and seconds after which these are taken back
    start_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Played:
    """What came of a round, with times on the machine's monotonic clock."""

    start_s: float
    end_s: float
    answers: list[Answer]
    health: ProcessHealth
    unsent: list[int] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)  # requests that wait for an answer that failed
    interrupted: bool = False
    shed: int = 0


class Player:
    def __init__(self, endpoint: Endpoint, maker: PromptMaker, pool: Pool, plan: RoundPlan) -> None:
        self._endpoint, self._maker, self._pool, self._plan = endpoint, maker, pool, plan
        self._loop = asyncio.get_running_loop()
        self._demand, self._clock = plan.demand, pool.clock
        self._requests: dict[int, bytes] = {}
        self._talks: dict[int, list[Message]] = {}  # by request: its prompt and, once it is there, its answer
        self._flying: dict[Answer, Connection | None] = {}
        self._again: set[int] = set()
        self._done: list[Answer] = []
        self._next, self._waiting, self._succeeded, self._failed = 0, 0, 0, 0
        self._first = self._demand.first  # requests that wait for nobody, in their order
        self._followers: dict[int, list[int]] = {}
        for index, before in enumerate(self._demand.after):
            for other in before:
                self._followers.setdefault(other, []).append(index)
        self._left = [len(before) for before in self._demand.after]  # answers that each waits for
        self._soonest: dict[int, float] = {}  # when one that waits may come, by the answers that are there
        self._broken: list[int] = []
        self._continued = set(self._demand.continues.tolist())
        self._strands = self._demand.strands().tolist() if self._demand.after else []
        self._under_way = Counter(self._strands)  # by strand, which has one place: its requests that are not over
        self._over = asyncio.Event()
        self._stopping = self._interrupted = False
        self._sweeping: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._start = 0.0
        self.progress: Callable[[int, int], None] | None = None

    def prepare(self) -> None:
        """Write requests out before the clock starts: as many as memory may hold and a moment allows.

        The others are written when they are sent.
        """
        written, until = 0, time.process_time() + _AHEAD_S
        for index in range(min(len(self._demand), _AHEAD)):
            if len(self._demand.continues) and self._demand.continues[index] >= 0:
                continue  # it holds an answer that is not there yet
            self._requests[index] = self._written(index)
            written += len(self._requests[index])
            if written > _AHEAD_BYTES or time.process_time() > until:
                return

    async def play(self, start_s: float | None = None) -> Played:
        watch = Watch(self._loop)
        self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)
        made = self._pool.made
        now = self._clock()
        self._start = now if start_s is None else start_s
        if self._start > now:
            await asyncio.sleep(self._start - now)
        watch.start()
        if self._plan.concurrency is None:
            self._send_due()
        else:
            for _ in range(self._plan.concurrency):
                self._next_session()
        self._check_over()
        await self._over.wait()
        cpu = watch.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in self._tasks:
            task.cancel()
        return Played(
            start_s=self._start,
            end_s=self._clock(),
            answers=self._done,
            health=ProcessHealth(lags=watch.lags, cpu_share=cpu, connections=self._pool.made - made),
            unsent=self._unsent(),
            broken=self._broken,
            interrupted=self._interrupted,
            shed=sum(answer.outcome == "no_descriptors" for answer in self._done),
        )

    def _unsent(self) -> list[int]:
        """Requests that a hopeless test did not send. One that ran for a given time sent what there was time for."""
        if self._interrupted or not self._stopping:
            return []
        known = {answer.index for answer in self._done} | set(self._broken)
        return [index for index in range(len(self._demand)) if index not in known]

    def stop(self) -> None:
        """End now and keep what there is: requests on their way are cut off."""
        self._stopping = self._interrupted = True
        self._cut("cancelled", "the test was stopped")
        self._over.set()

    # Sending

    def _send_due(self) -> None:
        """Send everything that is due, and come back when the next is."""
        due, first = self._demand.due_s, self._first
        while self._next < len(first) and not self._stopping:
            index = first[self._next]
            at = self._start + float(due[index])
            wait = at - self._clock()
            if wait > 0:
                self._loop.call_later(wait, self._send_due)
                return
            self._next += 1
            self._begin(index, at)
        self._check_over()

    def _next_session(self, due: float | None = None) -> None:
        now = self._clock() if due is None else due
        limit = self._plan.duration_s
        ended = limit is not None and now - self._start >= limit
        if self._stopping or ended or self._next >= len(self._first):
            self._check_over()
            return
        strand = self._strands[self._first[self._next]] if self._strands else None
        while self._next < len(self._first):
            index = self._first[self._next]
            if strand is not None and self._strands[index] != strand:
                return
            self._next += 1
            self._begin(index, now)
            if strand is None:
                return

    def _begin(self, index: int, due: float) -> None:
        answer = Answer(
            index,
            due,
            stream=self._endpoint.stream,
            asked_output=int(self._demand.output_tokens[index]),
            wants_text=index in self._continued or self._maker.tokenizer is not None,
            is_opaque=self._endpoint.api == "template",
        )
        answer.over = self._answered
        self._flying[answer] = None
        self._dispatch(answer, self._pool.take())

    def _dispatch(self, answer: Answer, connection: Connection | None) -> None:
        if connection is not None:
            self._send(answer, connection)
            return
        task = self._loop.create_task(self._connect(answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, answer: Answer) -> None:
        try:
            connection = await self._pool.connect()
        except Fault as fault:
            answer.on_fault(fault, self._clock())
            return
        if answer.outcome is None:
            self._send(answer, connection)

    def _send(self, answer: Answer, connection: Connection) -> None:
        request = self._requests.pop(answer.index, None) or self._written(answer.index)
        self._flying[answer] = connection
        if answer.index not in self._again and not self._demand.after and connection.answered:
            self._requests[answer.index] = request  # to be sent once more where the kept connection turns out closed
        answer.sent = self._clock()
        if self._plan.concurrency is not None:
            answer.due = answer.sent  # a place has no schedule that could be missed
        connection.send(request, answer)

    def _written(self, index: int) -> bytes:
        demand, endpoint = self._demand, self._endpoint
        tokens, output = int(demand.input_tokens[index]), int(demand.output_tokens[index])
        prompt = self._prompt(index, tokens)
        return endpoint.request(endpoint.body(prompt, output=output, input_tokens=tokens, index=index))

    def _prompt(self, index: int, tokens: int) -> str | list[Message]:
        """The prompt in words, or the messages of a talk that goes on."""
        demand, maker = self._demand, self._maker
        if demand.messages:
            return _asked(list(demand.messages[index]), self._endpoint.api)
        key = demand.seed, int(demand.session[index]), int(demand.turn[index])
        if demand.pieces:
            return maker.from_pieces(tokens, demand.pieces[index], *key)
        earlier = int(demand.continues[index]) if len(demand.continues) else -1
        if earlier >= 0:
            words = maker.text(tokens, 0, *key)
        else:
            words = maker.prompt(
                tokens, *key, prefix_tokens=demand.sharing.prefix_tokens, group=int(demand.group[index])
            )
        if not len(demand.continues):
            return words
        talk = [*self._talks.get(earlier, ()), {"role": "user", "content": words}]
        if index in self._continued:
            self._talks[index] = talk
        return _asked(talk, self._endpoint.api)

    # Ending

    def _answered(self, answer: Answer) -> None:
        connection = self._flying.pop(answer, None)
        if self._is_spent(answer, connection):
            self._again.add(answer.index)
            answer.outcome = answer.message = answer.last = answer.sent = None
            self._flying[answer] = None
            self._dispatch(answer, None)
            return
        self._requests.pop(answer.index, None)
        self._done.append(answer)
        is_ok = answer.outcome == OK
        self._succeeded += is_ok
        self._failed += not is_ok and answer.outcome != "cancelled"
        if self.progress is not None:
            self.progress(len(self._done), len(self._demand))
        hopeless = max(_HOPELESS, 2 * (self._plan.concurrency or 0))
        if not self._succeeded and self._failed >= hopeless and not self._stopping:
            self._stopping = True
        self._go_on(answer, is_ok=is_ok)

    @staticmethod
    def _is_spent(answer: Answer, connection: Connection | None) -> bool:
        """A kept connection that the server closed before it saw the request: the request goes out on a new one."""
        return answer.outcome in _SPENT and connection is not None and connection.answered > 0 and not answer.has_begun

    def _go_on(self, answer: Answer, *, is_ok: bool) -> None:
        """Those that waited for this answer come nearer. Where none of a strand is left, its place is free."""
        index, now = answer.index, self._clock()  # the end of the stream: a client that waits for it sends no sooner
        if is_ok and index in self._talks:
            self._talks[index].append({"role": "assistant", "content": answer.text})
        for other in self._followers.get(index, ()):
            self._left[other] -= 1
            if not is_ok:
                self._break_off(other)
            elif self._left[other] >= 0:
                self._soonest[other] = max(self._soonest.get(other, 0.0), now + float(self._demand.wait_s[other]))
                if not self._left[other] and not self._stopping:
                    self._begin_later(other)
        is_free = not self._strands
        if self._strands:
            self._under_way[self._strands[index]] -= 1
            is_free = not self._under_way[self._strands[index]]
        if self._plan.concurrency is None or not is_free:
            self._check_over()
        elif is_ok:
            self._next_session(now)
        else:
            self._later(min(answer.retry_after or _PAUSE_S, _LONGEST_PAUSE_S), self._next_session)

    def _begin_later(self, index: int) -> None:
        due = self._soonest.pop(index)
        if self._demand.is_open:
            due = max(due, self._start + float(self._demand.due_s[index]))
        self._later(max(0.0, due - self._clock()), lambda: self._begin(index, due))

    def _break_off(self, index: int) -> None:
        """A talk whose answer failed is not continued."""
        if self._left[index] < -1:
            return  # broken off already: it waited for several
        self._left[index] = -len(self._demand)
        self._broken.append(index)
        self._under_way[self._strands[index]] -= 1
        for other in self._followers.get(index, ()):
            self._break_off(other)

    def _later(self, wait_s: float, then: Callable[[], None]) -> None:
        self._waiting += 1

        def call() -> None:
            self._waiting -= 1
            then() if not self._stopping else self._check_over()

        self._loop.call_later(wait_s, call)

    def _check_over(self) -> None:
        """Over when nothing flies, nothing waits, and nothing more is to be sent."""
        if self._flying or (self._waiting and not self._stopping):
            return
        limit = self._plan.duration_s
        timed_out = limit is not None and self._clock() - self._start >= limit
        if self._next >= len(self._first) or self._stopping or (timed_out and self._plan.concurrency is not None):
            self._over.set()

    def _sweep(self) -> None:
        """Cut off what takes too long; one timer for all requests costs less than one each."""
        oldest = self._clock() - self._plan.timeout_s
        late = [answer for answer in self._flying if (answer.sent or answer.due) < oldest]
        if late:
            self._cut("timeout", f"no complete answer in {self._plan.timeout_s:g} s", late)
        if self._plan.cancels is not None:
            share, after_s = self._plan.cancels
            oldest = self._clock() - after_s
            late = [one for one in self._flying if (one.sent or one.due) < oldest and is_taken_back(one.index, share)]
            self._cut("cancelled", f"taken back after {after_s:g} s, as asked", late)
        if self._stopping:
            self._check_over()
        if not self._over.is_set():
            self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)

    def _cut(self, kind: str, message: str, answers: list[Answer] | None = None) -> None:
        for answer in list(self._flying) if answers is None else answers:
            connection = self._flying.get(answer)
            if connection is not None:
                connection.abort()
            answer.on_fault(Fault(kind, message), self._clock())


def _asked(talk: list[Message], api: str) -> str | list[Message]:
    """A talk as messages where the endpoint takes them, and otherwise as their text."""
    if api == "chat":
        return talk
    return "\n".join(str(message.get("content") or "") for message in talk)
