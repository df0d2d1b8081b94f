"""A scripted server with known latencies: every figure of a load test is right within 1 %. Time is virtual here."""

import pytest

from fakes.scripted_server import HEAD, Close, Reset, Send, Wait, chunk, ending, event, plain, speak, whole
from fakes.virtual_time import VirtualPool, virtually
from inferometer.core.served import parse_objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Sharing, closed_demand, open_demand
from inferometer.core.traffic.figures import figures_of
from inferometer.core.traffic.lengths import Lengths
from inferometer.serving.load.apis import Endpoint, parse_address
from inferometer.serving.load.local import Here
from inferometer.serving.load.play import RoundPlan
from inferometer.serving.load.prompts import PromptMaker
from inferometer.serving.load.run import level_of

FIRST_S, STEP_S, TOKENS = 0.2, 0.02, 11
E2E_S = FIRST_S + (TOKENS - 1) * STEP_S


def fixed(tokens):
    return Lengths(kind="fixed", mean=tokens)


def steady(asked):
    return speak(asked, first_s=FIRST_S, step_s=STEP_S)


def played(script, demand, *, stream=True, api="chat", rounds=1, template=None, connect_s=0.0, **plan):
    """The level that came of it, and the server's own record."""

    async def run():
        endpoint = Endpoint(
            address=parse_address("http://scripted/infer" if template else "http://scripted"),
            api=api, model="m", stream=stream, template=template,
        )  # fmt: skip
        pool = VirtualPool(script, connect_s=connect_s)
        here = Here(endpoint=endpoint, maker=PromptMaker(added=3), pool=pool)
        rows = [await here.play(RoundPlan(demand=demand, **plan)) for _ in range(rounds)]
        places = plan.get("concurrency")
        rate = None if places else 1.0
        return level_of("level", rows, concurrency=places, rate_per_s=rate), pool.asked

    return virtually(run())


def near(value):
    return pytest.approx(value, rel=0.01)


def test_a_closed_loop_reports_what_the_server_did():
    level, asked = played(steady, closed_demand(fixed(100), fixed(TOKENS), count=120), concurrency=4)
    figures = figures_of(level, [parse_objective("ttft<=250ms"), parse_objective("tpot_p95<=10ms")])
    assert figures.ttft_s.mean == figures.ttft_s.p50 == near(FIRST_S)
    assert figures.ttft_s.p95 == near(FIRST_S)
    assert figures.ttft_s.p99 is None  # 100 requests do not support it
    assert figures.tpot_s.mean == figures.itl_s.mean == figures.itl_s.p50 == near(STEP_S)
    assert figures.itl_s.p99 == near(STEP_S)
    assert figures.e2e_s.p95 == near(E2E_S)
    assert figures.requests_per_s == near(4 / E2E_S)
    assert figures.output_tokens_per_s == near(4 * TOKENS / E2E_S)
    assert figures.input_tokens_per_s == near(4 * 100 / E2E_S)
    assert figures.in_flight == near(4)
    assert figures.little == near(4)
    assert figures.input_tokens == 100  # token-exact: the server's own count
    assert figures.output_tokens == TOKENS
    assert figures.goodput_per_s == 0
    assert figures.objectives == {"ttft<=250ms": True, "tpot_p95<=10ms": False}
    assert figures.spread["ttft_s"] < 0.01
    assert level.server.usage_output_tokens == 120 * TOKENS
    assert len(asked) == 120
    assert level.client.connections == 0  # those that stood ready were enough
    assert level.counting == "one an event"


def test_an_open_loop_keeps_its_schedule_whatever_the_server_does():
    demand = open_demand(Arrivals(rate_per_s=20), fixed(30), fixed(6), count=500)
    level, asked = played(steady, demand)
    figures = figures_of(level)
    assert [one.at - asked[0].at for one in asked] == pytest.approx(list(demand.due_s - demand.due_s[0]))
    assert level.client.send_delay_max_s < 1e-9
    assert figures.requests_per_s == near(figures.offered_per_s)
    assert figures.in_flight == pytest.approx(figures.little, rel=0.05)
    assert figures.ttft_s.p99 == near(FIRST_S)
    assert not figures.growing


def test_waiting_in_the_client_is_in_the_latency():
    """No coordinated omission: where a connection takes 50 ms to open, every latency has them."""
    demand = open_demand(Arrivals(rate_per_s=200, process="constant"), fixed(30), fixed(2), count=100)
    level, _ = played(steady, demand, connect_s=0.05)
    late = [sent - due for due, sent in zip(level.requests.due_s, level.requests.sent_s, strict=True)]
    assert max(late) == near(0.05)
    ttft = [first - due for due, first in zip(level.requests.due_s, level.requests.first_s, strict=True)]
    assert max(ttft) == near(FIRST_S + 0.05)


def test_an_overloaded_server_is_seen_to_fall_behind():
    """One request at a time, a second each, and two arrive every second."""
    free_at = 0.0

    def single(asked):
        nonlocal free_at
        begin = max(free_at, asked.at)
        free_at = begin + 1.0
        yield Wait, begin - asked.at + 1.0
        yield Send, HEAD + chunk(event("t")) + chunk(ending(5, 1)) + b"0\r\n\r\n"

    demand = open_demand(Arrivals(rate_per_s=2, process="constant"), fixed(30), fixed(1), count=120)
    figures = figures_of(played(single, demand)[0])
    assert figures.growing
    assert figures.growth_per_s == near(1.0)
    assert figures.requests_per_s == pytest.approx(1.0, rel=0.02)  # what it can do, and not what was offered


@pytest.mark.parametrize("per_chunk", [2, 5, 10])
def test_tokens_that_come_together_share_the_wait(per_chunk):
    def grouped(asked):
        return speak(asked, first_s=FIRST_S, step_s=STEP_S * per_chunk, per_chunk=per_chunk)

    figures = figures_of(played(grouped, closed_demand(fixed(30), fixed(TOKENS), count=50), concurrency=1)[0])
    assert figures.itl_s.mean == figures.itl_s.p50 == near(STEP_S)
    assert figures.itl_s.count == figures.counted * (TOKENS - 1)
    assert figures.tpot_s.mean == near(STEP_S)


def test_a_running_count_in_every_event_is_believed():
    """vLLM's continuous usage and llama.cpp's timings; the text of an event says nothing of its tokens."""
    held = (1, 3, 1, 5)

    def counted(asked):
        yield Send, HEAD
        so_far = 0
        for tokens in held:
            so_far += tokens
            yield Wait, 0.1
            yield Send, chunk(event("x", usage={"prompt_tokens": 9, "completion_tokens": so_far}))
        yield Send, chunk(ending(9, so_far)) + b"0\r\n\r\n"

    level, _ = played(counted, closed_demand(fixed(30), fixed(10), count=12), concurrency=1)
    assert level.counting == "counted in every event"
    assert level.requests.output_tokens[-1] == 10
    assert figures_of(level).itl_s.min == near(0.1 / 5)
    assert figures_of(level).itl_s.count == figures_of(level).counted * 9


def test_a_role_is_no_token_and_events_may_be_cut_anywhere():
    def cut(asked):
        answer = b"".join(step for what, step in speak(asked, first_s=0, step_s=0) if what == Send)
        yield Wait, 0.3
        for at in range(0, len(answer), 7):
            yield Send, answer[at : at + 7]
            yield Wait, 0.001

    level, _ = played(cut, closed_demand(fixed(30), fixed(5), count=3), concurrency=1)
    assert level.requests.output_tokens == (5, 5, 5)
    first = level.requests.first_s[0] - level.requests.due_s[0]
    assert first > 0.32  # the event that says who speaks came before


def test_an_answer_in_one_piece_has_no_first_token():
    level, _ = played(
        lambda asked: whole(asked, seconds=0.5),
        closed_demand(fixed(30), fixed(20), count=40),
        stream=False,
        concurrency=4,
    )
    figures = figures_of(level)
    assert (figures.ttft_s, figures.tpot_s, figures.itl_s) == (None, None, None)
    assert figures.e2e_s.p50 == near(0.5)
    assert figures.output_tokens_per_s == near(4 * 20 / 0.5)


def test_embeddings_and_templates_have_a_latency():
    level, asked = played(
        lambda asked: whole(asked, seconds=0.1), closed_demand(fixed(30), fixed(0), count=20), stream=False,
        api="embeddings", concurrency=2,
    )  # fmt: skip
    assert figures_of(level).e2e_s.p50 == near(0.1)
    assert "input" in asked[0].body
    level, asked = played(
        lambda asked: whole(asked, seconds=0.1), closed_demand(fixed(30), fixed(7), count=20), stream=False,
        api="template", template='{"text": "{prompt}", "n": {output_tokens}}', concurrency=2,
    )  # fmt: skip
    assert asked[0].path == "/infer"
    assert asked[0].body["n"] == 7
    assert len(asked[0].body["text"].split()) == 27
    assert figures_of(level).completed == 20


def test_turns_follow_each_other_and_carry_the_talk():
    demand = closed_demand(fixed(20), fixed(3), count=12, sharing=Sharing(turns=3, think_s=2.0))
    level, asked = played(steady, demand, concurrency=2)
    assert [len(one.body["messages"]) for one in asked[::2]] == [1, 3, 5, 1, 3, 5]
    assert asked[2].body["messages"][1] == {"role": "assistant", "content": "ttt"}
    assert asked[2].at - asked[0].at == near(FIRST_S + 2 * STEP_S + 2.0)
    assert figures_of(level).completed == 12


def test_shared_prefixes_are_shared_and_nothing_else_is():
    demand = closed_demand(fixed(43), fixed(2), count=40, sharing=Sharing(prefix_tokens=16, groups=2))
    _, asked = played(steady, demand, concurrency=1)
    prompts = [one.body["messages"][0]["content"].split() for one in asked]
    assert {len(words) for words in prompts} == {40}
    assert len({tuple(words[:16]) for words in prompts}) == 2
    assert len({tuple(words[16:]) for words in prompts}) == 40


def test_rounds_stand_on_one_axis_and_show_their_spread():
    speeds = iter([FIRST_S] * 60 + [1.1 * FIRST_S] * 60)

    def drifting(asked):
        return speak(asked, first_s=next(speeds), step_s=STEP_S)

    level, _ = played(drifting, closed_demand(fixed(30), fixed(2), count=60), concurrency=2, rounds=2)
    figures = figures_of(level)
    assert len(level.windows) == 2
    assert level.windows[1].start_s > level.windows[0].end_s
    assert figures.rounds == "2 equal rounds"
    assert figures.spread["ttft_s"] == near(0.1 / 1.05)


def test_a_time_limit_ends_a_closed_loop():
    level, _ = played(steady, closed_demand(fixed(30), fixed(6), count=2000), concurrency=4, duration_s=12)
    assert figures_of(level).completed == pytest.approx(4 * 12 / (FIRST_S + 5 * STEP_S), abs=8)
    assert set(level.requests.outcome) == {"ok"}


# Faults


def after(good, fault):
    """The first few requests are answered, the others get the fault."""

    def script(asked):
        return steady(asked) if asked.index < good else fault(asked)

    return script


def answers(*steps):
    """A script that says the same to everybody."""
    return lambda _asked: iter(steps)


def stream_then(*steps):
    return answers((Send, HEAD + chunk(event("t"))), (Wait, 0.1), *steps)


def says(status, body=b"{}", headers=""):
    return answers((Send, plain(status, body, headers=headers)))


FAULTS = {
    "reset": stream_then((Reset, None)),
    "closed_early": stream_then((Close, None)),
    "malformed": stream_then((Send, chunk(b"data: {oops\n\n"))),
    "server_error": stream_then((Send, chunk(b'data: {"error": {"message": "out of memory"}}\n\n'))),
    "empty": answers((Send, HEAD + chunk(ending(5, 0)) + b"0\r\n\r\n")),
    "http_429": says(429, b'{"error": "slow down"}', "retry-after: 1\r\n"),
    "http_503": says(503, b"busy", "retry-after: soon\r\n"),
    "http_500": says(500),
    "redirect": says(307, headers="location: http://elsewhere/\r\n"),
    "encoding": says(200, b"\x1f\x8b", "content-encoding: gzip\r\n"),
    "not_streamed": whole,
    "unknown_model": says(404, b'{"error": {"message": "The model `m` does not exist."}}'),
    "timeout": answers((Send, HEAD), (Wait, 1e6)),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_counted_and_is_in_no_time(kind):
    level, _ = played(
        after(20, FAULTS[kind]), closed_demand(fixed(30), fixed(TOKENS), count=40), concurrency=2, timeout_s=5.0
    )
    figures = figures_of(level)
    assert figures.errors == {kind: 20}
    assert figures.completed == 20
    assert figures.ttft_s.max == near(FIRST_S)
    assert figures.e2e_s.max == near(E2E_S)
    assert level.messages[kind]


def test_a_server_that_says_wait_is_not_asked_again_before_that():
    level, asked = played(after(20, FAULTS["http_429"]), closed_demand(fixed(30), fixed(5), count=24), concurrency=1)
    assert asked[-1].at - asked[-2].at == near(1.0)
    assert "Retry-After" in level.notes[0]


def test_a_test_without_hope_is_cut_short():
    level, asked = played(FAULTS["http_500"], closed_demand(fixed(30), fixed(5), count=500), concurrency=1)
    assert len(asked) == 20
    assert figures_of(level).errors == {"not_sent": 480, "http_500": 20}
    assert "none succeeded" in level.notes[0]


def test_a_kept_connection_that_the_server_closed_is_replaced():
    def once(asked):
        yield from whole(asked, seconds=0.1)

    def closing(asked):
        if asked.index % 3 == 1 and asked.index < 10:
            return iter([(Close, None)])  # as if it had been closed while idle
        return once(asked)

    level, asked = played(closing, closed_demand(fixed(30), fixed(5), count=9), stream=False, concurrency=1)
    assert figures_of(level).errors == {}
    assert len(asked) > 9
