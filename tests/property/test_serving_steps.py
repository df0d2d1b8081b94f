"""The simulated engine against one that takes every step by itself, with lists and loops: the same times and counts.

Nothing here is coalesced, and no count is kept where it can be counted anew. Steps cost by what they hold; where
requests come by the clock they do not grow with the context, so that a run of them is exact.
"""

from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
import pytest

from inferometer.core.engine import SchedulerRules
from inferometer.core.traffic.demand import class_of
from inferometer.serving.simulate.replica import EngineLimits
from inferometer.serving.simulate.request import SimulatedRequest
from inferometer.serving.simulate.service import Cluster, ReplicaPool

BLOCK = 4
DECODE = SchedulerRules(
    engine="none", since="0", title="decoding first", order="decode", admission="chunk", victim="last",
    prefix_cache=False,
)  # fmt: skip
PROMPTS = replace(
    DECODE,
    order="prompts",
    admission="estimate",
    victim="shortest",
    waits_after_preemption=False,
    estimate_start=0.7137,
    estimate_least=0.1011,
    estimate_steps=37,
)  # fmt: skip - odd numbers, so that no product is a whole number of blocks but for rounding


@dataclass
class Steps:
    """A step costs by its sequences, by what they have cached, and by the tokens of prompts that it reads."""

    per_cached: float = 0.0
    seen: list = field(default_factory=list)

    def decode(self, sequences, context):
        return 0.01 + 0.0013 * sequences + self.per_cached * sequences * context

    def mixed(self, chunks, sequences, context):
        self.seen.append((sorted(chunks), sequences, pytest.approx(context)))
        reading = sum(1e-4 * size + 1e-6 * before for size, before in chunks)
        return reading + (self.decode(sequences, context) if sequences else 0.008)


@dataclass(eq=False)
class One:
    """A request of the engine that is played by hand. It decodes when all of its `target` is read."""

    number: int
    due: float
    input: int
    output: int
    priority: int
    made: int = 0
    cached: int = 0
    blocks: int = 0
    swapped: bool = False
    first: float = -1.0
    last: float = -1.0

    def __post_init__(self):
        self.target = self.input

    @property
    def decodes(self):
        return self.cached >= self.target and self.made > 0


class ByHand:
    def __init__(self, rules, limits, times):
        self.rules, self.limits, self.times = rules, limits, times
        self.free, self.now, self.waiting, self.running = limits.blocks, 0.0, [], []
        self.is_blocked, self.ratio, self.extra_s = False, rules.estimate_start, 0.0
        self.counts = dict.fromkeys(("steps", "preempted", "read_tokens", "most_running", "most_waiting"), 0)
        self.busy_s = self.sequence_s = 0.0

    def play(self, requests):
        coming = sorted(requests, key=lambda one: (one.due, one.number))
        while coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now = max(self.now, coming[0].due)
            while coming and coming[0].due <= self.now:
                self.submit(coming.pop(0))
            self.step()
        return {one.number: (one.first, one.last) for one in requests}

    def submit(self, one):
        place = len(self.waiting)
        if self.limits.by_priority:
            while place and self.waiting[place - 1].priority > one.priority:
                place -= 1
        self.waiting.insert(place, one)
        if self.limits.by_priority or len(self.waiting) == 1:
            self.is_blocked = False
        self.counts["most_waiting"] = max(self.counts["most_waiting"], len(self.waiting))

    @property
    def reserves(self):
        return self.rules.admission in {"whole", "slot"}

    def decoding(self):
        return [one for one in self.running if one.decodes]

    def full(self):
        """Blocks that those who decode need for the token that they store now."""
        return sum(not self.reserves and one.cached == one.blocks * BLOCK for one in self.decoding())

    def preempt(self):
        if self.rules.victim == "shortest":
            victim = min((one for one in self.running if one.decodes), key=lambda one: one.made)
        elif self.limits.by_priority:
            victim = max(reversed(self.running), key=lambda one: one.priority)
        else:
            victim = self.running[-1]
        self.running.remove(victim)
        self.counts["preempted"] += 1
        self.free += victim.blocks
        victim.swapped = self.limits.swap_s_per_block is not None and victim.made > 0
        if victim.swapped:
            self.extra_s += victim.blocks * self.limits.swap_s_per_block
            victim.stored = victim.cached if victim.decodes else 0
        victim.target, victim.cached, victim.blocks = victim.input + victim.made, 0, 0
        self.waiting.insert(0, victim)
        return victim

    def take(self, one, blocks):
        self.free -= blocks
        one.blocks += blocks

    def chunks(self, *, beside, can_admit):
        """(request, tokens) of the prompts in this step; `beside` says whether those who decode are in it too."""
        left, found = self.limits.tokens - (len(self.decoding()) if beside else 0), []
        for one in [one for one in self.running if not one.decodes]:
            size = min(left, one.target - one.cached)
            if size <= 0 or one not in self.running:
                continue
            need = max(0, ceil((one.cached + size) / BLOCK) - one.blocks)
            while need > self.free - (self.full() if beside else 0):
                if self.rules.victim == "none" or self.preempt() is one:
                    break
            else:
                self.take(one, need)
                found.append((one, size))
                left -= size
        found = [(one, size) for one, size in found if one in self.running]
        while can_admit and left > 0 and self.waiting and len(self.running) < self.limits.sequences:
            one, kept = self.waiting[0], self.full() if beside else 0
            if one.swapped:
                if ceil(one.stored / BLOCK) + 1 > self.free - kept:
                    break
                self.take(self.waiting.pop(0), ceil(one.stored / BLOCK))
                self.extra_s += one.blocks * self.limits.swap_s_per_block
                one.cached = one.target = one.stored
                one.swapped = False
                self.running.append(one)
                continue
            size = min(left, one.target)
            asked = {
                "chunk": size, "prompt": one.target, "whole": one.input + one.output, "slot": one.input + one.output,
                "estimate": one.target + one.output - one.made,
            }[self.rules.admission]  # fmt: skip
            if ceil(asked / BLOCK) > self.free - kept - self.promised():
                break
            self.take(self.waiting.pop(0), ceil((asked if self.reserves else size) / BLOCK))
            self.running.append(one)
            found.append((one, size))
            left -= size
        return found

    def promised(self):
        left = sum(one.output - one.made for one in self.decoding())
        return ceil(self.ratio * left / BLOCK) if self.rules.estimate_steps else 0

    def step(self):
        beside, before = self.rules.order == "decode", self.counts["preempted"]
        while beside and self.full() > self.free:
            self.preempt()
        has_preempted = self.counts["preempted"] > before
        is_stopped = self.rules.waits_after_preemption and has_preempted
        looks = has_preempted or not self.decoding() or any(not one.decodes for one in self.running)
        is_open = self.waiting and not self.is_blocked and len(self.running) < self.limits.sequences
        found = self.chunks(beside=beside, can_admit=not is_stopped) if looks or is_open else []
        if not found and (looks or is_open):
            self.is_blocked = bool(self.waiting) and not is_stopped
        decoding = self.decoding() if beside or not found else []
        if decoding and not found and self.full() > self.free:
            self.preempt()  # of prompts first: what became free may be enough for one
        elif decoding or found:
            self.passes(found, decoding)

    def passes(self, found, decoding):
        for one in decoding:
            if not self.reserves and one.cached == one.blocks * BLOCK:
                self.take(one, 1)
        context = sum(one.cached for one in decoding) / len(decoding) if decoding else 0.0
        if found:
            seconds = self.times.mixed([(size, one.cached) for one, size in found], len(decoding), context)
            seconds, self.extra_s = seconds + self.extra_s, 0.0
        else:
            seconds = self.times.decode(len(decoding), context)
        self.now += seconds
        self.busy_s += seconds
        self.sequence_s += len(self.running) * seconds
        self.counts["steps"] += 1
        self.counts["most_running"] = max(self.counts["most_running"], len(self.running))
        if decoding and self.rules.estimate_steps:
            fall = (self.rules.estimate_start - self.rules.estimate_least) / self.rules.estimate_steps
            self.ratio = max(self.rules.estimate_least, self.ratio - fall)
        for one in decoding:
            one.cached += 1
            one.made += 1
        for one, size in found:
            one.cached += size
            self.counts["read_tokens"] += size
            if one.cached >= one.target:
                one.made += 1
                one.first = self.now if one.made == 1 else one.first
        for one in [one for one in self.running if one.made >= one.output]:
            one.last = self.now
            self.running.remove(one)
            self.free += one.blocks
            self.is_blocked = False


CASES = {
    "chunks": (DECODE, {}),
    "whole prompts": (replace(DECODE, admission="prompt"), {}),
    "admitting after a preemption": (replace(DECODE, waits_after_preemption=False), {}),
    "whole answers": (replace(DECODE, admission="whole", victim="none"), {}),
    "the shortest gives way": (replace(DECODE, victim="shortest", admission="whole"), {}),
    "by priority": (DECODE, {"by_priority": True}),
    "swapping": (DECODE, {"swap_s_per_block": 0.003}),
    "prompts first": (PROMPTS, {}),
}


def play_both(rules, more, seed, *, at_once):
    rng = np.random.default_rng(seed)
    count = 24
    due = np.zeros(count) if at_once else np.cumsum(rng.exponential(0.02, count))
    inputs, outputs = rng.integers(1, 40, count), rng.integers(1, 30, count)
    limits = EngineLimits(
        tokens=int(rng.integers(12, 60)), sequences=int(rng.integers(2, 12)), blocks=int(rng.integers(18, 60)),
        block_tokens=BLOCK, prefix_cache=False, **more,
    )  # fmt: skip
    shares = (0.3, 0.7) if limits.by_priority else (1.0,)
    rows = [
        (number, float(due[number]), int(inputs[number]), int(outputs[number]), class_of(shares, number))
        for number in range(count)
    ]
    per_cached = 1e-5 if at_once else 0.0
    hand = ByHand(rules, limits, Steps(per_cached))
    return limits, rows, hand, hand.play([One(*row) for row in rows]), Steps(per_cached)


class Coming:
    follows = False

    def __init__(self, rows):
        self._rows = []
        for *row, priority in rows:
            self._rows.append(SimulatedRequest(*row))
            self._rows[-1].priority = priority

    @property
    def next_s(self):
        return self._rows[0].sent if self._rows else float("inf")

    def take(self):
        return self._rows.pop(0)

    def plain(self):
        return None


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("case", CASES)
def test_every_request_has_the_times_of_an_engine_that_takes_each_step_by_itself(case, seed, at_once):
    rules, more = CASES[case]
    limits, rows, hand, expected, times = play_both(rules, more, seed, at_once=at_once)
    ended = []
    cluster = Cluster(ReplicaPool(times=times, rules=rules, limits=limits), ended.append, print)
    cluster.run(Coming(rows))
    assert {one.number: (pytest.approx(one.first), pytest.approx(one.last)) for one in ended} == expected
    (replica,) = cluster.replicas
    assert {name: getattr(replica, name) for name in hand.counts} == hand.counts
    assert (replica.busy_s, replica.sequence_s) == (pytest.approx(hand.busy_s), pytest.approx(hand.sequence_s))
    assert times.seen == hand.times.seen


class Times:
    """Steps of powers of two, so that requests come at the very moment when one ends."""

    def decode(self, sequences, _context):
        return 2.0**-7 + 2.0**-10 * (sequences // 3)

    def mixed(self, chunks, sequences, context):
        return self.decode(sequences, context) + 2.0**-9 * len(chunks)


class ByTheClock(Coming):
    """The same requests for the loop that takes all of them at once."""

    def plain(self):
        return iter(self._rows)


SCHEDULERS = {
    "none ahead": DECODE,
    "ahead": replace(DECODE, ahead=True),
    "ahead, whole prompts": replace(DECODE, ahead=True, admission="prompt"),
    "whole answers": replace(DECODE, admission="whole", victim="none"),
}


@pytest.mark.parametrize("seen", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_loop_is_the_replica_also_where_requests_come_when_a_step_ends(name, seed, seen):
    rng = np.random.default_rng(seed)
    count = 40
    due = np.cumsum(rng.integers(0, 8 if seed % 2 else 40, count)) * 2.0**-9
    rows = [
        (number, float(due[number]), int(rng.integers(1, 40)), int(rng.integers(1, 24)), 0) for number in range(count)
    ]
    limits = EngineLimits(
        tokens=int(rng.integers(8, 60)), sequences=int(rng.integers(1, 8)), blocks=int(rng.integers(16, 80)),
        block_tokens=BLOCK, prefix_cache=False, seen=seen,
    )  # fmt: skip
    found = []
    for source in (ByTheClock(rows), Coming(rows)):
        ended = []
        cluster = Cluster(ReplicaPool(times=Times(), rules=SCHEDULERS[name], limits=limits), ended.append, print)
        cluster.run(source)
        (replica,) = cluster.replicas
        found.append((
            sorted((one.number, one.first, one.last) for one in ended),
            {count: getattr(replica, count) for count in (
                "steps", "preempted", "read_tokens", "most_running", "most_waiting", "most_blocks", "busy_s",
                "sequence_s", "block_s", "now",
            )},
            sorted(replica.gap_s) if not replica.preempted else None,
        ))  # fmt: skip
    assert found[0] == found[1]
