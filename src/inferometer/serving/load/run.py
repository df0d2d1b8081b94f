"""A load test from its plan to its profile: ask the server what it is, warm up, play every level, keep each at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from secrets import randbits
from typing import TYPE_CHECKING, Self

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.served import OK, Level, ServerReadings, Window
from inferometer.core.traffic.figures import figures_of, median_of
from inferometer.core.traffic.requests import Requests, closed_window, open_window
from inferometer.core.traffic.spreads import spread_of
from inferometer.core.units import counted as number_of
from inferometer.serving.load.apis import Endpoint, parse_address, proxied
from inferometer.serving.load.health import readings, saves_power
from inferometer.serving.load.local import Here
from inferometer.serving.load.loops import new_loop
from inferometer.serving.load.plan import LoadPlan, LoadStep, demand_of, step_of
from inferometer.serving.load.play import RoundPlan
from inferometer.serving.load.pool import Pool, Security
from inferometer.serving.load.processes import Several
from inferometer.serving.load.profile import Facts, profile_of
from inferometer.serving.load.rounds import RequestRow, RoundRows, columns_of, counting_words, joined
from inferometer.serving.load.saturate import next_step, next_within, within_words
from inferometer.serving.load.server import (
    COUNTERS,
    COUNTING,
    DCGM,
    GAUGES,
    ServerFacts,
    facts_of,
    metrics_of,
    prompt_maker,
    telemetry_of,
)
from inferometer.serving.load.worker import Setup

if TYPE_CHECKING:
    from inferometer.core.profile import Profile


# The rounds of one load become a level: one axis of time, windows, gaps, and what both sides say of themselves.


def level_of(  # noqa: PLR0913 - the load, its rounds, and what both sides say
    name: str,
    rounds: Sequence[RoundRows],
    *,
    rate_per_s: float | None = None,
    rate_to_per_s: float | None = None,
    concurrency: int | None = None,
    until_s: float | None = None,
    server: ServerReadings | None = None,
) -> Level:
    """`until_s` is when the arrivals of each round end, where that is given and not the last arrival."""
    rows: list[RequestRow] = []
    windows: list[Window] = []
    offset = 0.0
    for played in rounds:
        shifted = [_shifted(row, offset) for row in played.rows]
        windows.append(_window(shifted, concurrency, None if until_s is None else offset + until_s))
        rows += shifted
        offset += played.seconds
    whole = joined(rounds)
    ok_first = [row.first - row.due for row in rows if row.outcome == OK and row.first is not None]
    delays = [row.sent - row.due for row in rows if row.sent is not None]
    tokens = sum(row.output_tokens or 0 for row in rows if row.outcome == OK)
    client = readings(whole.health, delays, float(np.median(ok_first)) if ok_first else None, shed=whole.shed)
    if not any(row.outcome == OK for row in rows):
        client = replace(client, bottleneck=False, reasons=())  # nothing was measured that it could have slowed down
    return Level(
        name=name,
        rate_per_s=rate_per_s,
        rate_to_per_s=rate_to_per_s,
        concurrency=concurrency,
        seconds=offset,
        requests=columns_of(rows),
        windows=tuple(windows),
        gaps=spread_of(_gaps(rows, windows)),
        counting=counting_words(Counter(whole.counted_by)),
        tokens_per_chunk=tokens / whole.arrivals if whole.arrivals and tokens else None,
        client=client,
        server=_server(server, whole),
        interrupted=whole.interrupted,
        messages=whole.messages,
        notes=tuple(_notes(whole, server)),
    )


def _shifted(row: RequestRow, offset: float) -> RequestRow:
    if not offset:
        return row

    def moved(at: float | None) -> float | None:
        return None if at is None else at + offset

    return replace(row, due=row.due + offset, sent=moved(row.sent), first=moved(row.first), last=moved(row.last))


def _window(rows: Sequence[RequestRow], concurrency: int | None, until_s: float | None) -> Window:
    requests = Requests.of(columns_of(rows))
    if not len(requests):
        return Window(start_s=0.0, end_s=0.0, why="nothing was sent")
    return closed_window(requests, concurrency) if concurrency is not None else open_window(requests, until_s)


def _gaps(rows: Sequence[RequestRow], windows: Sequence[Window]) -> np.ndarray:
    kept = [
        row.gaps
        for row in rows
        if row.outcome == OK and any(window.start_s <= row.due <= window.end_s for window in windows)
    ]
    return np.concatenate(kept) if kept else np.empty(0)


def _server(server: ServerReadings | None, whole: RoundRows) -> ServerReadings | None:
    if not whole.usage_requests:
        return server
    return replace(
        server or ServerReadings(),
        usage_input_tokens=whole.usage_input,
        usage_output_tokens=whole.usage_output,
        usage_requests=whole.usage_requests,
    )


def _notes(whole: RoundRows, server: ServerReadings | None = None) -> list[str]:
    notes = []
    unsent = sum(row.outcome == "not_sent" for row in whole.rows)
    failed = sum(row.outcome not in {OK, "not_sent", "broken_off", "cancelled"} for row in whole.rows)
    if unsent:
        notes.append(
            f"Stopped after {number_of(failed, 'request')} failed and none succeeded; {unsent:,} were not sent."
        )
    answered = sum(row.outcome == OK for row in whole.rows)
    if whole.beyond:
        notes.append(
            f"{whole.beyond:,} of {number_of(answered, 'answer')} have more tokens, by the server's usage, than were "
            "asked for: tokens a second and the time of a token are its word."
        )
    if whole.ended_early:
        notes.append(f"{whole.ended_early:,} of {number_of(answered, 'answer')} ended before the length asked for.")
    letters = sum(whole.shown)
    if letters and sum(whole.shown[1:]):
        _, thought, called = (count / letters for count in whole.shown)
        notes.append(f"{thought:.0%} of what was written was reasoning, {called:.0%} calls of tools (by letters).")
    if answered and server is not None and (joules := server.counters.get("gpu_joules")):
        notes.append(f"{joules / answered:,.4g} J a request that was answered, by the counters of the server's GPUs.")
    if server is not None and server.counters.get("drafts"):
        notes.append(_drafted(server.counters))
    taken_back = sum(row.outcome == "cancelled" for row in whole.rows)
    if taken_back and not whole.interrupted:
        notes.append(f"{taken_back:,} requests were taken back before their end, as asked.")
    if whole.retry_after is not None:
        notes.append(f"The server asked to wait up to {whole.retry_after:g} s (Retry-After); no request was repeated.")
    made = sum(row.output_tokens or 0 for row in whole.rows if row.outcome == OK)
    if letters and made and whole.seconds:
        written = f"{letters / whole.seconds:,.4g} characters/s were written over the whole run"
        notes.append(f"{written}, {letters / made:.3g} a token.")
    return notes


def _drafted(counters: Mapping[str, float]) -> str:
    """How much of what was drafted was kept, and the chance of a token by itself that `plan` and `simulate` ask for.

    A draft of n tokens keeps a + a² + … + aⁿ of them, where each is kept with the chance a and only after the others.
    """
    length = round(counters["drafted_tokens"] / counters["drafts"])
    kept, low, high = counters["accepted_tokens"] / counters["drafts"], 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**at for at in range(1, length + 1)) < kept else (low, middle)
    share = counters["accepted_tokens"] / counters["drafted_tokens"]
    return f"{share:.0%} of the drafted tokens were kept, {length} at a time: as --acceptance {low:.2f}."


_WARM = 8  # requests of a warm-up, at most, where nobody said how many
_WARM_UP = 1_000_002  # its number among the rounds: the last that a seed has
_SCRAPE_S = 1.0
_ANSWERS, _MOST_ADDED = 10, 100_000  # answer times that an added level lasts; its requests at most
_STEPPED_S = 0.1  # a difference between the wall clock and the monotonic one that is worth a word


@frozen
class LoadProgress:
    level: str
    round: int
    rounds: int
    done: int
    count: int


Progress = Callable[[LoadProgress], None]
Keep = Callable[["Profile"], None]


def load(plan: LoadPlan, *, progress: Progress | None = None, keep: Keep | None = None) -> Profile:
    """Run the whole test. `keep` gets the profile so far after every level, so that nothing measured is lost.

    Ctrl-C during a level ends the test: the profile has what was measured, and its last level is marked interrupted.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_Test(plan, progress, keep).run())


@dataclass(slots=True)
class _Test:
    plan: LoadPlan
    progress: Progress | None
    keep: Keep | None
    levels: list[Level] = field(default_factory=list)
    tried: list[tuple[LoadStep, Level]] = field(default_factory=list)

    async def run(self) -> Profile:
        plan = self.plan
        address = proxied(parse_address(plan.url), plan.proxy)
        endpoint = Endpoint(
            address=address, api=plan.api, model=plan.model or "", stream=plan.stream and plan.api in _STREAMED,
            headers=plan.headers, extra=plan.extra, ignore_eos=plan.ignore_eos, template=plan.template,
            method=plan.method, mix=plan.mix, images=plan.images, audio=plan.audio,
        )  # fmt: skip
        pool = Pool(address, plan.security)
        server = await facts_of(pool, endpoint)
        endpoint = replace(endpoint, model=_model(plan, server), extra=_extra(endpoint, server))
        words = randbits(32) if plan.words is None else plan.words
        endpoint = replace(endpoint, noise=words)
        maker = await prompt_maker(pool, endpoint, server, words, plan.timeout_s, tokenizer=plan.tokenizer)
        facts = Facts(endpoint=endpoint, server=server, maker=maker, clock_s=time.time() - time.perf_counter())
        several = Several(Setup(endpoint=endpoint, maker=maker, security=plan.security), plan.processes)
        players: Here | Several = Here(endpoint=endpoint, maker=maker, pool=pool)
        if plan.processes > 1:
            await several.start()
            players = several
        try:
            await self._play_all(players, facts, pool)
        finally:
            await several.close()
            pool.close()
        return self._profile(facts)

    def _profile(self, facts: Facts) -> Profile:
        stepped = time.time() - time.perf_counter() - facts.clock_s
        notes = []
        if self.plan.mix:
            shares = ", ".join(f"{name} ({share:.0%})" for name, share in self.plan.mix)
            notes.append(f"Requests ask for {shares}.")
        if facts.endpoint.address.proxy is not None:
            notes.append(f"Requests pass the proxy {facts.endpoint.address.proxy.shown}: its time is in every figure.")
        if saves_power():
            notes.append("This machine's CPUs are in powersave: the load generator wakes late, and reads later tokens.")
        if abs(stepped) > _STEPPED_S:
            notes.append(f"The machine's clock was set by {stepped:+.3g} s meanwhile; times here do not depend on it.")
        if self.plan.within:
            tried = [(step, figures_of(level, self.plan.objectives)) for step, level in self.tried]
            notes.append(within_words(tried, self.plan.objectives))
        return profile_of(self.plan, facts, tuple(self.levels), notes=tuple(notes))

    async def _play_all(self, players: Here | Several, facts: Facts, pool: Pool) -> None:
        if facts.server.fault is None:
            await self._warm_up(players)
        self.levels = list(self.plan.done)
        self.tried = [(step_of(level, self.plan), level) for level in self.plan.done]
        done = {level.name for level in self.plan.done}
        waiting = [step for step in self.plan.steps if step.name not in done] or self._next_steps()
        while waiting:
            step = waiting.pop(0)
            level = await self._level(players, facts, pool, step)
            self.levels.append(level)
            self.tried.append((step, level))
            if self.keep is not None:
                self.keep(self._profile(facts))
            if level.interrupted or _is_hopeless(level):
                break
            waiting = waiting or self._next_steps()
        self.levels.sort(key=_by_load)

    def _next_steps(self) -> list[LoadStep]:
        """The load to try after the given ones, if one is searched for."""
        if not self.plan.saturate and not self.plan.within:
            return []
        tried = [(step, figures_of(level, self.plan.objectives)) for step, level in self.tried]
        found = next_within(tried, self.plan.objectives) if self.plan.within else next_step(tried)
        return [] if found is None else [found]

    async def _warm_up(self, players: Here | Several) -> None:
        """Requests that are not counted: the first ones load code and fill caches, on both sides."""
        step = self.plan.steps[0]
        count = self.plan.warmup
        if count is None:
            count = min(_WARM, max(2, step.concurrency or 2))
        if count:
            few = replace(self.plan, requests=count, duration_s=None, trace=None, sharing=self.plan.sharing)
            demand = demand_of(few, LoadStep(concurrency=1), number=_WARM_UP)
            places = min(count, step.concurrency or 2)
            await players.play(RoundPlan(demand=demand, concurrency=places, timeout_s=self.plan.timeout_s))

    def _numbered(self, round_: int) -> int:
        """A round's number. The first round of a level has the requests that `simulate` has of the same plan.

        What is resumed has others, for the server's cache may know those of the level that was interrupted.
        """
        return len(self.tried) + 1000 * (round_ - 1) + (500 if self.plan.done else 0)

    async def _level(self, players: Here | Several, facts: Facts, pool: Pool, step: LoadStep) -> Level:
        rounds: list[RoundRows] = []
        scraping = _Scraping(pool, facts.endpoint, on=facts.server.has_metrics, gpus=self._gpus())
        async with scraping as scraped:
            for number in range(1, self.plan.rounds + 1):
                demand = demand_of(self._sized(step), step, number=self._numbered(number))
                asked = RoundPlan(
                    demand=demand,
                    concurrency=step.concurrency,
                    duration_s=self.plan.duration_s,
                    timeout_s=self.plan.timeout_s,
                    cancels=self.plan.cancels,
                )
                rounds.append(await players.play(asked, progress=self._told(step, number)))
                if rounds[-1].interrupted:
                    break
        is_timed = self.plan.duration_s is not None and step.concurrency is None and self.plan.trace is None
        rate = step.arrivals.rate_per_s if step.arrivals is not None else None
        ramp = step.arrivals.to_per_s if step.arrivals is not None else None
        if self.plan.loop == "trace" and self.plan.trace is not None:
            rate = len(self.plan.trace) / max(self.plan.trace.seconds, 1e-9)
        return level_of(
            step.name, rounds, rate_per_s=rate, rate_to_per_s=ramp, concurrency=step.concurrency,
            until_s=self.plan.duration_s if is_timed and not self.plan.requests else None, server=scraped.readings,
        )  # fmt: skip

    def _gpus(self) -> Endpoint | None:
        """The page with the figures of the server's GPUs."""
        where = self.plan.telemetry
        if where is None:
            return None
        return Endpoint(address=proxied(parse_address(where), self.plan.proxy), api="template", model="")

    def _sized(self, step: LoadStep) -> LoadPlan:
        """The plan with enough requests for a level that `saturate` adds: a round must outlast many answers."""
        is_added = self.tried and (self.plan.saturate or self.plan.within)
        if not is_added or self.plan.duration_s is not None:
            return self.plan
        answer_s = median_of(figures_of(self.tried[-1][1]).e2e_s) or 0.0
        least = _ANSWERS * (step.concurrency or math.ceil(step.load * answer_s))
        return replace(self.plan, requests=min(max(self.plan.requests or 0, least), _MOST_ADDED))

    def _told(self, step: LoadStep, number: int) -> Callable[[int, int], None] | None:
        tell = self.progress
        if tell is None:
            return None
        rounds = self.plan.rounds
        return lambda done, count: tell(
            LoadProgress(level=step.name, round=number, rounds=rounds, done=done, count=count)
        )


_COUNTED = frozenset({"chat", "completions"})
_STREAMED = _COUNTED | {"transcriptions"}


def _is_hopeless(level: Level) -> bool:
    """Whether nothing came back at all: a higher load would not change that."""
    return level.requests is not None and OK not in level.requests.outcome


def _by_load(level: Level) -> float:
    return float(level.concurrency) if level.concurrency is not None else level.rate_per_s or 0.0


def _model(plan: LoadPlan, server: ServerFacts) -> str:
    """The model that was asked for, or the only one that the server has."""
    if plan.mix:
        return max(plan.mix, key=lambda pair: pair[1])[0]
    if plan.model is not None or plan.api == "template":
        return plan.model or "unnamed"
    if len(server.models) == 1:
        return server.models[0]
    if server.models:
        raise DomainError(
            f"The server has {len(server.models)} models: {', '.join(server.models[:8])}.",
            remedy="Choose: --model NAME.",
        )
    if server.fault is not None:
        return "unnamed"  # it will be seen in every request
    raise DomainError("The server does not say which models it has.", remedy="Name one: --model NAME.")


def _extra(endpoint: Endpoint, server: ServerFacts) -> dict[str, object]:
    counting = COUNTING.get(server.engine or "", {}) if endpoint.stream and endpoint.api in _COUNTED else {}
    return {**counting, **(endpoint.extra or {})}


class _Scraping:
    """The server's own counters before and after, and its gauges every second in between; and those of its GPUs."""

    def __init__(self, pool: Pool, endpoint: Endpoint, *, on: bool, gpus: Endpoint | None = None) -> None:
        self._pool, self._endpoint, self._on = pool, endpoint, on
        self._samples: list[dict[str, float]] = []
        self._task: asyncio.Task[None] | None = None
        self.readings: ServerReadings | None = None
        self._gpus = gpus
        if gpus is not None:
            self._gpu_pool = Pool(gpus.address, Security())

    async def _sample(self) -> None:
        found = await metrics_of(self._pool, self._endpoint) if self._on else {}
        if self._gpus is not None:
            found |= await telemetry_of(self._gpu_pool, self._gpus)
        self._samples.append(found)

    async def __aenter__(self) -> Self:
        if self._on or self._gpus is not None:
            await self._sample()
            self._task = asyncio.get_running_loop().create_task(self._repeat())
        return self

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(_SCRAPE_S)
            await self._sample()

    async def __aexit__(self, *_: object) -> None:
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._sample()
        if self._gpus is not None:
            self._gpu_pool.close()
        self.readings = _readings(self._samples)


def _readings(samples: Sequence[dict[str, float]]) -> ServerReadings:
    first, last = samples[0], samples[-1]
    gauges = {}
    for name in (*GAUGES, *DCGM):
        seen = [sample[name] for sample in samples[1:-1] or samples if name in sample]
        if seen:
            gauges[name] = (sum(seen) / len(seen), max(seen))
    counters = {name: last[name] - first[name] for name in (*COUNTERS, "gpu_joules") if name in first and name in last}
    return ServerReadings(counters=counters, gauges=gauges)
