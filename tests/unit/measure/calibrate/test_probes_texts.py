"""Decoders as probes: what is asked of them, and how their events are timed."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING, Any

import pytest

from inferometer.core.device import Device
from inferometer.core.errors import DomainError
from inferometer.engines.base import Event, Kernel, Request
from inferometer.measure.calibrate.probes.decoders import DecoderProvider, generation_kernels, run_texts, text_runs
from inferometer.measure.calibrate.probes.models import ProbeRun
from inferometer.measure.calibrate.probes.pace import Flood, MachinePace
from inferometer.measure.run.order import TextOrder

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clocks:
    def __init__(self) -> None:
        self.now = 1000.0

    def pace(self) -> MachinePace:
        def piece(rounds: int) -> None:
            self.now += 1e-4 * rounds / 40

        def read() -> float:
            return self.now

        return MachinePace(piece=piece, clock=read, own=read, thread=read)


class FakeText:
    """A prompt takes 10 ms a token, a step 4 ms; filling the cache takes a second and is in no event."""

    vocabulary = 1000

    def __init__(self, clocks: Clocks) -> None:
        self.clocks, self.asked = clocks, []

    def generate(self, request: Request) -> Iterator[Event]:
        self.asked.append(request)
        self.clocks.now += 1.0 if request.depth else 0.0
        context = request.depth
        yield self._event("prefill", 0.010 * len(request.prompt), len(request.prompt), context)
        for number in range(request.generate - 1):
            yield self._event("token", 0.004, 1, context + len(request.prompt) + number)

    def _event(self, kind: Any, seconds: float, tokens: int, context: int) -> Event:
        start = self.clocks.now
        self.clocks.now += seconds
        return Event(
            kind=kind, start_ns=round(start * 1e9), end_ns=round(self.clocks.now * 1e9), tokens=tokens, context=context
        )

    def kernels(self) -> dict[str, tuple[Kernel, ...]]:
        return {"decode": (Kernel(name="k", kind="MUL_MAT", samples_s=(0.004,)),)}


def test_a_prompt_and_its_steps_are_timed_apart():
    clocks = Clocks()
    prefill, decode = run_texts(
        FakeText(clocks), TextOrder(prompt=8, generate=5), clocks.pace(), limit_s=0.01, threads=1
    )  # fmt: skip
    assert (prefill.phase, prefill.query, prefill.context) == ("prefill", 8, 0)
    assert isclose(prefill.seconds, 0.080, rel_tol=1e-6)
    assert (decode.phase, decode.query) == ("decode", 1)
    assert isclose(decode.seconds, 0.004, rel_tol=1e-6)
    assert 8 <= decode.context <= 12


def test_filling_the_cache_is_in_no_step_and_done_once():
    clocks = Clocks()
    session = FakeText(clocks)
    found = run_texts(session, TextOrder(prompt=1, generate=4, depth=500), clocks.pace(), limit_s=0.01, threads=1)
    assert len(session.asked) == 1
    decode = next(each for each in found if each.phase == "decode")
    assert isclose(decode.seconds, 0.004, rel_tol=1e-6)
    assert decode.context > 500


def test_the_flood_comes_between_events():
    clocks, floods = Clocks(), []
    run_texts(
        FakeText(clocks), TextOrder(prompt=2, generate=3), clocks.pace(), limit_s=0.0, threads=1,
        flood=lambda: floods.append(clocks.now),
    )  # fmt: skip
    assert len(floods) > 4
    generation_kernels(FakeText(clocks), TextOrder(prompt=2, generate=3), lambda: floods.append(clocks.now))
    assert Flood()() is None


def test_a_run_with_a_context_asks_for_steps_after_it():
    first, second = text_runs(ProbeRun(prompt=96, context=600))
    assert (first.prompt, first.depth) == (96, 0)
    assert second.depth == 600
    assert text_runs(ProbeRun(prompt=96)) == (first,)


def test_a_short_run_reads_prompts_of_a_few_tokens_too():
    """As many rows as a few sequences that decode together: between 1 and 16 rows nothing else was measured."""
    _, _, *few = text_runs(ProbeRun(prompt=24, context=64))
    assert [(run.prompt, run.generate, run.depth) for run in few] == [(2, 1, 0), (3, 1, 0), (4, 1, 0), (6, 1, 0)]
    assert [run.prompt for run in text_runs(ProbeRun(prompt=4, context=8))] == [4, 1, 2, 3]


class FakeTold(FakeText):
    """A generation is one call: its events are told when it has ended, and the process's clock stands still then."""

    def generate(self, request: Request) -> Iterator[Event]:
        yield from list(super().generate(request))


def test_the_events_of_a_generation_that_is_one_call_have_their_own_times():
    clocks = Clocks()
    prefill, decode = run_texts(
        FakeTold(clocks), TextOrder(prompt=8, generate=5), clocks.pace(), limit_s=0.01, threads=1
    )  # fmt: skip
    assert isclose(prefill.seconds, 0.080, rel_tol=1e-6)
    assert isclose(decode.seconds, 0.004, rel_tol=1e-6)
    assert decode.steady == decode.runs


def test_interruptions_of_a_generation_that_is_one_call_are_left_out_of_each_event():
    clocks = Clocks()
    pace = clocks.pace()
    pace.own = lambda: 0.8 * clocks.now  # a fifth of the time another program ran
    prefill, decode = run_texts(FakeTold(clocks), TextOrder(prompt=8, generate=5), pace, limit_s=0.01, threads=1)
    assert isclose(prefill.seconds, 0.064, rel_tol=1e-6)
    assert isclose(decode.seconds, 0.0032, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("opens", "weights", "said", "remedy"),
    [
        ("onnx", "q4_0", "no tool makes decoders so", None),
        ("ctranslate2", "q4_0", "cannot be made with weights in q4_0", "Give --dtype f32 or f16 or bf16 or i8."),
    ],
)
def test_what_no_tool_makes_is_refused(tmp_path, opens, weights, said, remedy):
    class Other:
        title, formats = "Another engine", frozenset({opens})

    device = Device(name="here", title="Here", vendor="x", unit="cpu")
    with pytest.raises(DomainError, match=said) as refused:
        DecoderProvider(
            runtime=Other(), device=device, weights=weights, folder=tmp_path, threads=1, pace=Clocks().pace()
        )  # fmt: skip
    assert refused.value.remedy == remedy
