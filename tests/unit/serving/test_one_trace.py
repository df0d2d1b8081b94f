"""One trace through both verbs: `load` against a scripted server and `simulate` ask for the same, in the same order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.scripted_server import Send, plain, speak
from fakes.virtual_time import VirtualPool, virtually
from inferometer.core.errors import DomainError
from inferometer.core.traffic.demand import Agents, made_up, trace_demand
from inferometer.core.traffic.trace_forms import TraceLine
from inferometer.core.traffic.traces import trace_of
from inferometer.known.engines import scheduler_of
from inferometer.serving.load.apis import Endpoint, parse_address
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.load.play import Player, RoundPlan
from inferometer.serving.load.prompts import PromptMaker
from inferometer.serving.load.rounds import rows_of
from inferometer.serving.simulate import run as running
from inferometer.serving.simulate.replica import EngineLimits
from inferometer.serving.simulate.service import ReplicaPool, Service
from inferometer.serving.simulate.sinks import Columns
from inferometer.serving.simulate.source import Kinds

STEP_S = 0.01


class EvenSteps:
    def decode(self, _sequences, _context):
        return STEP_S

    def mixed(self, _chunks, _sequences, _context):
        return STEP_S


class Alike:
    kinds = Kinds()


def simulated(demand, *, concurrency=None, blocks=100_000):
    sink = Columns()
    limits = EngineLimits(tokens=8192, sequences=64, blocks=blocks, block_tokens=16)
    service = Service(pool=ReplicaPool(times=EvenSteps(), rules=scheduler_of("vllm"), limits=limits))
    running._run(Alike(), service, [demand], sink.ended, sink.refused, concurrency)
    found = sink.columns()
    columns = zip(found.session, found.due_s, found.last_s, found.input_tokens, found.output_tokens, found.outcome,
                  strict=True)  # fmt: skip
    return {number: row for number, *row in columns}


def loaded(demand, *, script=None, **plan):
    """The answers by their place in the demand, and the rows that are kept."""

    async def run():
        endpoint = Endpoint(address=parse_address("http://scripted"), api="chat", model="m", stream=True)
        pool = VirtualPool(script or (lambda asked: speak(asked, first_s=0.02, step_s=STEP_S)))
        player = Player(endpoint, PromptMaker(), pool, RoundPlan(demand=demand, **plan))
        player.prepare()
        found = await player.play()
        return found, rows_of(found, demand, streamed=True), pool.asked

    return virtually(run())


@st.composite
def traces(draw):
    """Sessions of some turns, some of which wait for requests of others that stand before them in the file."""
    lines, names = [], []
    for session in range(draw(st.integers(1, 5))):
        for turn in range(draw(st.integers(1, 4))):
            others = draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []
            own = [f"{session}/{turn - 1}"] if turn else []
            timed = not (own or others) or draw(st.booleans())
            lines.append(
                TraceLine(
                    session=session, turn=turn, at_s=draw(st.floats(0, 5)) if timed else None,
                    after=tuple(own + others), wait_s=draw(st.sampled_from([0.0, 0.5, 2.0])),
                    input_tokens=draw(st.integers(1, 300)), output_tokens=draw(st.integers(1, 9)),
                )
            )  # fmt: skip
            names.append(f"{session}/{turn}")
    return trace_of("drawn", "ours", lines)


@settings(max_examples=40, deadline=None)
@given(traces(), st.sampled_from([None, 1, 3]))
def test_both_send_every_request_once_and_none_before_what_it_waits_for(trace, places):
    demand = trace_demand(trace, timed=places is None)
    found, rows, _ = loaded(demand, concurrency=places)
    answers = {answer.index: answer for answer in found.answers}
    simulation = simulated(demand, concurrency=places)
    assert sorted(answers) == sorted(simulation) == list(range(len(trace)))
    assert len(found.answers) == len(rows.rows) == len(trace)
    whole = demand.prompt_tokens().tolist()
    for index in range(len(trace)):
        due, _, prompt, output, outcome = simulation[index]
        assert (prompt, output, outcome) == (whole[index], trace.output_tokens[index], "ok")
        assert answers[index].output_tokens == trace.output_tokens[index]
        floor = 0.0 if places or np.isnan(trace.arrival_s[index]) else trace.arrival_s[index]
        ends = [simulation[other][1] for other in trace.after[index]] if trace.after else []
        wait = trace.wait_s[index] if ends else 0.0
        expected = max([floor, *(end + wait for end in ends)])
        assert due == pytest.approx(expected) if ends or not places else due >= 0.0
        sent = answers[index].due - found.start_s
        ended = [answers[other].last - found.start_s for other in trace.after[index]] if trace.after else []
        expected = max([floor, *(end + wait for end in ended)])
        assert sent == pytest.approx(expected, abs=1e-6) if ended or not places else sent >= 0.0


@settings(max_examples=25, deadline=None)
@given(traces(), st.integers(0, 7))
def test_what_follows_a_failure_is_counted_and_not_sent(trace, failing):
    demand = trace_demand(trace)

    def script(asked):
        if asked.index == failing:
            return iter([(Send, plain(500, b"{}"))])
        return speak(asked, first_s=0.02, step_s=STEP_S)

    found, rows, asked = loaded(demand, script=script)
    assert sorted([answer.index for answer in found.answers] + found.broken) == list(range(len(trace)))
    assert len(asked) == len(found.answers)
    failed = {answer.index for answer in found.answers if answer.outcome != "ok"} | set(found.broken)
    for index in range(len(trace)):
        before = trace.after[index] if trace.after else ()
        assert (index in found.broken) == bool(failed & set(before))
    assert len(rows.rows) == len(trace)


@settings(max_examples=25, deadline=None)
@given(traces(), st.sampled_from([None, 2]))
def test_a_simulation_counts_what_follows_a_refusal_too(trace, places):
    demand = trace_demand(trace, timed=places is None)
    found = simulated(demand, concurrency=places, blocks=12)  # of 16 tokens: longer requests never fit
    assert sorted(found) == list(range(len(trace)))
    whole = demand.prompt_tokens()
    for index, (_, _, _, _, outcome) in found.items():
        before = [found[other][4] for other in trace.after[index]] if trace.after else []
        is_broken = any(other != "ok" for other in before)
        is_long = whole[index] + trace.output_tokens[index] > 12 * 16
        assert outcome == ("broken_off" if is_broken else "too_long" if is_long else "ok")


@settings(max_examples=40, deadline=None)
@given(traces(), st.integers(1, 4))
def test_processes_share_a_trace_without_cutting_what_waits(trace, processes):
    demand = trace_demand(trace)
    parts = [demand.part(number, processes) for number in range(processes)]
    assert sum(map(len, parts)) == len(demand)
    assert sum(len(before) for part in parts for before in part.after) == sum(map(len, demand.after))
    prompts = np.concatenate([part.prompt_tokens() for part in parts])
    assert sorted(prompts.tolist()) == sorted(demand.prompt_tokens().tolist())


def test_a_talk_that_goes_on_holds_the_answers_and_begins_as_before():
    lines = [TraceLine(session="a", turn=turn, input_tokens=10 + 15 * turn, output_tokens=5) for turn in range(3)]
    demand = trace_demand(trace_of("talk", "ours", lines), timed=False)
    _, _, asked = loaded(demand, concurrency=1)
    talks = [request.body["messages"] for request in asked]
    assert [len(talk) for talk in talks] == [1, 3, 5]
    assert talks[2][:3] == talks[1]
    assert [message["role"] for message in talks[2]] == ["user", "assistant"] * 2 + ["user"]


def test_messages_are_sent_as_they_stand():
    said = ({"role": "system", "content": "be brief"}, {"role": "user", "content": "why?"})
    line = TraceLine(session="a", at_s=0.0, input_tokens=4, output_tokens=2, messages=said)
    _, _, asked = loaded(trace_demand(trace_of("one", "ours", [line])))
    assert asked[0].body["messages"] == list(said)


def test_agents_of_one_seed_are_the_same_for_both():
    demand = trace_demand(made_up(Agents(sessions=6, rate_per_s=1.0, delegated=0.3, seed=5)))
    found, _, _ = loaded(demand)
    simulation = simulated(demand)
    assert sorted(answer.index for answer in found.answers) == sorted(simulation)
    assert {row[4] for row in simulation.values()} == {"ok"}


def test_a_trace_without_times_needs_a_rate_or_places():
    trace = trace_of("talks", "ours", [TraceLine(session="a", input_tokens=4, output_tokens=2)])
    with pytest.raises(DomainError, match="does not say when"):
        LoadPlan(url="x", trace=trace, steps=(LoadStep(),))
    plan = LoadPlan(url="x", trace=trace, steps=(LoadStep(concurrency=2),))
    assert (plan.loop, "each place plays a session" in plan.arrivals) == ("closed", True)
