"""The rules of a load test one by one: addresses, bodies, answers, faults, prompts, rounds and what is made of them."""

import asyncio
import base64
import errno
import io
import json
import socket
import ssl
import struct
import wave
import zlib
from array import array
from collections import Counter
from dataclasses import replace
from email.parser import BytesParser
from types import SimpleNamespace

import msgspec
import pytest

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.served import (
    Distribution,
    Level,
    LevelFigures,
    RequestColumns,
    ServerReadings,
    Window,
    parse_objective,
)
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Sharing, closed_demand
from inferometer.core.traffic.lengths import Lengths
from inferometer.serving.load import processes, run, server
from inferometer.serving.load.answers import (
    CALLED,
    SPOKEN,
    THOUGHT,
    Answer,
    SseReader,
    _Delta,
    _refusal,
    _seconds,
    _shares,
    text_of,
)
from inferometer.serving.load.apis import (
    AudioAsked,
    Endpoint,
    parse_address,
    parse_audio,
    parse_header,
    parse_images,
    parse_mix,
    plain_request,
)
from inferometer.serving.load.faults import Fault, fault_of
from inferometer.serving.load.health import saves_power
from inferometer.serving.load.plan import LoadPlan, LoadStep, demand_of
from inferometer.serving.load.play import RoundPlan
from inferometer.serving.load.processes import _share
from inferometer.serving.load.profile import Facts, _environment, _model_name, phases_of, summary_of, workload_of
from inferometer.serving.load.prompts import WORDS, PromptMaker
from inferometer.serving.load.rounds import RequestRow, RoundRows, joined, rows_of, token_gaps
from inferometer.serving.load.run import _drafted, level_of
from inferometer.serving.load.server import ServerFacts, parse_metrics, telemetry_of


def fixed(tokens):
    return Lengths(kind="fixed", mean=tokens)


@pytest.mark.parametrize(
    ("url", "shown", "base", "path"),
    [
        ("localhost:8000", "http://localhost:8000", "", None),
        ("http://h", "http://h:80", "", None),
        ("https://h/", "https://h:443", "", None),
        ("http://h:1/v1", "http://h:1", "", None),
        ("http://h:1/v1/", "http://h:1", "", None),
        ("http://h:1/some/v1", "http://h:1/some", "/some", None),
        ("http://h:1/v1beta", "http://h:1/v1beta", "/v1beta", "/v1beta"),
        ("http://h:1/v1/x", "http://h:1/v1/x", "/v1/x", "/v1/x"),
        ("http://h:1/a/v1/completions", "http://h:1/a/v1/completions", "/a", "/a/v1/completions"),
        ("http://h:1/infer?x=1", "http://h:1/infer?x=1", "/infer", "/infer?x=1"),
        ("http://[::1]:9", "http://[::1]:9", "", None),
    ],
)
def test_an_address_is_a_server_or_one_of_its_endpoints(url, shown, base, path):
    address = parse_address(url)
    assert (address.shown, address.base, address.path) == (shown, base, path)


def test_a_password_goes_into_a_header_and_is_never_shown():
    address = parse_address("https://me:a%3Ab@h")
    assert address.authorization == "Basic bWU6YTpi"  # me:a:b
    assert "me" not in address.shown
    assert b"authorization: Basic bWU6YTpi\r\n" in plain_request(address, "GET", "/")
    for wrong in ("ftp://h", "http://", "http://h:x"):
        with pytest.raises(DomainError):
            parse_address(wrong)


def endpoint(**more):
    return Endpoint(**{"address": parse_address("http://h:1/base"), "api": "chat", "model": "m", **more})


def body(output=5, **more):
    return json.loads(endpoint(**more).body("hi", output=output, input_tokens=1, index=0))


def test_bodies_ask_for_what_their_endpoint_knows():
    asked = {"model": "m", "max_tokens": 5, "temperature": 0, "stream": True, "ignore_eos": True,
             "stream_options": {"include_usage": True}}  # fmt: skip
    assert body() == {**asked, "messages": [{"role": "user", "content": "hi"}]}
    assert body(api="completions", extra={"temperature": 1}) == {**asked, "prompt": "hi", "temperature": 1}
    plain = {"model": "m", "max_tokens": 1, "temperature": 0, "stream": False, "messages": body()["messages"]}
    assert body(0, stream=False, ignore_eos=False) == plain
    assert body(api="embeddings") == {"model": "m", "input": "hi"}
    filled = endpoint(api="template", template='"{prompt}" {model} {input_tokens} {output_tokens} {index}')
    assert filled.body('a"b', output=7, input_tokens=8, index=9) == b'"a\\"b" m 8 7 9'


def test_a_request_says_where_it_goes_and_what_it_takes():
    head, _, sent = endpoint(headers=(("X-A", "1"), ("Accept", "b"))).request(b"{}").partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert (lines[0], sent) == ("POST /base/v1/chat/completions HTTP/1.1", b"{}")
    assert {"host: h:1", "accept: b", "accept-encoding: identity", "content-length: 2", "x-a: 1"} <= set(lines)
    assert b"accept: text/event-stream" in endpoint().request(b"")
    assert b"accept: application/json" in endpoint(stream=False).request(b"")
    for url, host in (("https://[::1]:443", b"[::1]"), ("http://h:443", b"h:443"), ("http://h", b"h")):
        assert b"host: %b\r\n" % host in plain_request(parse_address(url), "GET", "/")
    assert endpoint(api="template").path == "/base"
    assert endpoint(api="template", address=parse_address("http://h")).path == "/"
    assert parse_header(" Name : a: b ") == ("Name", "a: b")
    for wrong in ("no colon", ": value", "a: b\r\nc: d"):
        with pytest.raises(DomainError):
            parse_header(wrong)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Fault("empty", "x"), "empty"),
        (ssl.SSLError(1, "bad"), "tls"),
        (socket.gaierror(1, "no name"), "dns"),
        (TimeoutError(), "connect_timeout"),
        (ConnectionRefusedError(), "refused"),
        (ConnectionResetError(), "reset"),
        (BrokenPipeError(), "reset"),
        (ConnectionAbortedError(), "reset"),
        (OSError(errno.EMFILE, "files"), "no_descriptors"),
        (OSError(errno.ENFILE, "files"), "no_descriptors"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1)"), "refused"),
        (OSError(errno.EHOSTUNREACH, "far"), "unreachable"),
        (OSError(errno.ENETUNREACH, "far"), "unreachable"),
        (OSError(errno.EADDRNOTAVAIL, "far"), "unreachable"),
        (OSError(errno.EIO, "other"), "reset"),
        (ValueError("odd"), "malformed"),
    ],
)
def test_every_error_of_the_system_has_its_kind(error, kind):
    assert fault_of(error).kind == kind


def choice(**more):
    return SimpleNamespace(**{"text": None, "message": None, "delta": None, **more})


def test_thoughts_and_calls_of_tools_are_text_too():
    def delta(**more):
        return choice(delta=_Delta(**more))

    assert text_of(choice(text="")) == ("", SPOKEN)
    assert text_of(choice(text="a", message=_Delta(content="b"))) == ("a", SPOKEN)
    assert text_of(choice(message=_Delta())) == text_of(choice()) == ("", SPOKEN)
    assert text_of(delta(content="a", reasoning="b")) == ("a", SPOKEN)
    assert text_of(delta(reasoning_content="c")) == text_of(choice(message=_Delta(reasoning="c"))) == ("c", THOUGHT)
    assert text_of(delta(tool_calls=msgspec.Raw(b'[{"a"}]'))) == ('[{"a"}]', CALLED)
    assert [text_of(delta(tool_calls=msgspec.Raw(raw)))[0] for raw in (b"[]", b"null", b"")] == ["", "", ""]


def streamed(*pieces, **more):
    """An answer that got these bytes at 1, 2, 3, … seconds, and ended a second after the last."""
    answer = Answer(0, 0.5, stream=True, asked_output=4, **more)
    over = []
    answer.over = over.append
    answer.on_head(200, {b"content-type": b"text/event-stream; charset=utf-8"}, 0.9)
    now = 0.0
    for piece in pieces:
        now += 1.0
        answer.on_body(piece, now)
    answer.on_end(now + 1.0)
    assert over == [answer]
    return answer


def told(text=None, *, usage=None, timings=None, done=False):
    choices = [] if text is None else [{"delta": {"content": text}, "finish_reason": "stop" if done else None}]
    event = {"choices": choices, "usage": usage, "timings": timings}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def used(prompt, completion):
    return {"prompt_tokens": prompt, "completion_tokens": completion}


@pytest.mark.parametrize(
    ("pieces", "counts", "total", "way"),
    [
        # one an event, by the total; two events of one read are one arrival
        ([told("ab"), told("c") + told("d"), told(usage=used(3, 3)) + b"data: [DONE]\n\n"], [1, 2], 3, 1),
        ([told("ab"), told("cdef", done=True), told(usage=used(3, 6))], [2, 4], 6, 2),  # by the length of the text
        ([told("a"), told("b", done=True)], [1, 1], 2, 3),  # nobody counted
        ([told("a", usage=used(3, 2)), told("b", usage=used(3, 5), done=True)], [2, 3], 5, 0),  # a running count
        ([told("a", timings={"predicted_n": 1}), told("b", timings={"predicted_n": 4}, done=True)], [1, 3], 4, 0),
        # of two counts in one event the one of the interface that all engines speak
        (
            [
                told("a", usage=used(3, 2), timings={"predicted_n": 1}),
                told("b", usage=used(3, 5), timings={"predicted_n": 9}, done=True),
            ],
            [2, 3],
            5,
            0,
        ),
        # a count that begins in the middle is a total
        ([told("a"), told("bbb", usage=used(3, 8), done=True)], [2, 6], 8, 2),
    ],
)
def test_the_tokens_of_an_arrival_are_counted_the_best_way_there_is(pieces, counts, total, way):
    answer = streamed(*pieces)
    assert (answer.outcome, answer.tokens, answer.output_tokens) == ("ok", way, total)
    assert list(answer.counts) == counts
    assert list(answer.times) == [1.0, 2.0]
    assert (answer.first, answer.last) == (1.0, 2.0)


def test_a_stream_may_end_without_its_last_empty_line():
    assert streamed(told("a"), b"data: [DONE]").outcome == "ok"
    assert streamed(told("a"), b"data: [DON").outcome == "closed_early"
    assert streamed(told("a")).outcome == "closed_early"
    reader = SseReader()
    assert (reader.feed(b"data:a\ndata: b\ndata:c"), reader.rest()) == ([], b"a\nb\nc")


def test_the_text_is_kept_where_somebody_wants_it():
    assert streamed(told("a"), told("b", done=True), wants_text=True).text == "ab"
    assert not streamed(told("a"), told("b", done=True)).text


def test_an_answer_is_over_once():
    answer = streamed(told("a", done=True))
    answer.on_fault(Fault("timeout", "late"), 9.0)
    assert answer.outcome == "ok"


@pytest.mark.parametrize(
    ("sent", "outcome", "tokens"),
    [
        ({"choices": [{"message": {"content": "x"}}], "usage": used(7, 3)}, "ok", (7, 3)),
        ({"choices": [{"message": {"content": ""}}], "usage": used(7, 3)}, "ok", (7, 3)),
        ({"choices": [{"message": {"content": ""}}]}, "empty", (None, None)),
        ({"choices": []}, "ok", (None, None)),
        ({"error": {"message": "no"}}, "server_error", (None, None)),
        ({"error": None, "choices": []}, "ok", (None, None)),
    ],
)
def test_an_answer_in_one_piece_is_read_at_its_end(sent, outcome, tokens):
    answer = Answer(0, 0.0, stream=False, asked_output=3)
    answer.on_head(200, {}, 1.0)
    data = json.dumps(sent).encode()
    answer.on_body(data[:5], 1.0)
    answer.on_body(data[5:], 2.0)
    answer.on_end(2.5)
    assert (answer.outcome, answer.input_tokens, answer.output_tokens) == (outcome, *tokens)
    assert (answer.first, answer.last) == (None, 2.5)


@pytest.mark.parametrize(
    ("status", "text", "kind", "message"),
    [
        (404, b'{"error": {"message": "The model x does not exist"}}', "unknown_model", "The model x does not exist"),
        (400, b"unknown model", "unknown_model", "unknown model"),
        (500, b"unknown model", "http_500", "unknown model"),
        (404, b"not found", "http_404", "not found"),
        (400, b"model too large", "http_400", "model too large"),
        (503, b"", "http_503", "HTTP 503"),
        (503, b'{"detail": "busy"}', "http_503", "busy"),
    ],
)
def test_a_refusal_says_why(status, text, kind, message):
    fault = _refusal(status, text)
    assert (fault.kind, fault.message) == (kind, message)


def test_a_wait_that_a_server_asks_for_is_in_seconds():
    assert [_seconds(value) for value in (None, b"2.5", b"-1", b"Wed, 21 Oct")] == [None, 2.5, 0.0, None]


def test_shares_add_up_and_none_is_more_than_one_off():
    for weights, total in (([1, 1, 1], 10), ([5, 1, 3, 9], 7), ([2, 2], 0)):
        shares = _shares(weights, total)
        assert sum(shares) == total
        assert all(abs(share - total * w / sum(weights)) < 1 for share, w in zip(shares, weights, strict=True))


def gaps(times, counts):
    return token_gaps(SimpleNamespace(times=array("d", times), counts=array("q", counts)))


def test_tokens_that_came_together_share_the_wait_before_them():
    found, longest = gaps([1.0, 1.4, 1.5, 2.5], [3, 2, 0, 4])
    assert found == pytest.approx([0.2, 0.2] + [1.1 / 4] * 4)  # an arrival without a token is none
    assert longest == pytest.approx(1.1)
    assert gaps([1.0], [3])[1] is None


# Prompts


def test_a_prompt_has_its_tokens_less_those_around_it_and_shares_only_its_prefix():
    maker = PromptMaker(added=3, seed=5)
    assert len(maker.prompt(20, 1).split()) == 17
    assert len(maker.prompt(2, 1).split()) == 1
    shared = [maker.prompt(20, key, prefix_tokens=6, group=2).split() for key in (1, 2)]
    assert shared[0][:6] == shared[1][:6] == maker.text(6, 1, 2).split()
    assert shared[0][6:] != shared[1][6:]
    assert maker.prompt(5, 1, prefix_tokens=6, group=2).split() == shared[0][:2]
    assert len(PromptMaker(per_word=2.5).text(20).split()) == 8
    assert maker.text(9, 1) != PromptMaker(seed=6).text(9, 1)
    assert set(maker.text(500, 1).split()) <= set(WORDS)


def test_prompts_of_the_same_blocks_begin_alike():
    maker = PromptMaker(added=2)
    one, other = (maker.from_pieces(27, [(name, 10) for name in names]).split() for names in ((1, 2, 3), (1, 2, 4)))
    assert len(one) == len(other) == 25
    assert one[:20] == other[:20]
    assert one[20:] != other[20:]
    assert one[:10] == maker.text(10, 2, 1).split()
    longer = [maker.from_pieces(40, ((1, 10), (2, 10)), key).split() for key in (1, 2)]  # than its pieces
    assert [len(words) for words in longer] == [38, 38]
    assert longer[0][:20] == longer[1][:20]
    assert longer[0][20:] != longer[1][20:]
    assert len(maker.from_pieces(12, ((1, 10), (2, 10))).split()) == 10  # shorter


# What is asked for


@pytest.mark.parametrize(
    ("plan", "places", "count"),
    [
        ({}, 1, 100),
        ({}, 11, 110),
        ({"requests": 7}, 11, 7),
        ({"duration_s": 5.0}, 11, 200_000),
        ({}, None, 100),
        ({"requests": 7}, None, 7),
    ],
)
def test_how_many_requests_a_round_has(plan, places, count):
    step = LoadStep(concurrency=places) if places else LoadStep(arrivals=Arrivals(rate_per_s=10))
    assert len(demand_of(LoadPlan(url="", **plan), step, number=0)) == count


def test_rounds_have_prompts_of_their_own():
    seeds = {demand_of(LoadPlan(url="", seed=seed), LoadStep(concurrency=1), number=number).seed
             for seed in (0, 1) for number in (0, 1, 2)}  # fmt: skip
    assert len(seeds) == 6


@pytest.mark.parametrize("wrong", [{"requests": 0}, {"rounds": 0}, {"processes": 0}, {"warmup": -1}, {"duration_s": 0}])
def test_a_plan_has_bounds(wrong):
    LoadPlan(url="", requests=1, rounds=1, processes=1, warmup=0, duration_s=0.1)
    with pytest.raises(DomainError):
        LoadPlan(url="", **wrong)


def test_a_load_is_named_by_its_places_or_its_rate():
    steps = [LoadStep(concurrency=8), LoadStep(arrivals=Arrivals(rate_per_s=2.5)),
             LoadStep(arrivals=Arrivals(rate_per_s=1, to_per_s=4)), LoadStep()]  # fmt: skip
    assert [step.name for step in steps] == ["8 at once", "2.5/s", "1 to 4/s", "replay"]
    assert [step.load for step in steps] == [8.0, 2.5, 1.0, 0.0]
    assert [LoadPlan(url="", steps=(step,)).loop for step in steps[:2]] == ["closed", "open"]
    shared = LoadPlan(url="", sharing=Sharing(prefix_tokens=9, groups=2, turns=3, think_s=1.5)).lengths
    assert shared.endswith("; the first 9 shared in 2 groups; 3 turns a session, 1.5 s between them")


def test_processes_share_places_and_sessions_without_loss():
    demand = closed_demand(fixed(8), fixed(2), count=10)
    shares = [_share(RoundPlan(demand=demand, concurrency=5), number, 3) for number in range(3)]
    assert [share.concurrency for share in shares] == [2, 2, 1]
    assert sorted(int(session) for share in shares for session in share.demand.session) == list(range(10))
    assert _share(RoundPlan(demand=demand, concurrency=2), 2, 3) is None
    assert _share(RoundPlan(demand=closed_demand(fixed(8), fixed(2), count=1)), 1, 2) is None


def test_a_process_without_a_share_is_told_nothing_and_heard_of_no_more(monkeypatch):
    """Of three processes two have something to do: the third would wait for ever, and the round with it."""
    told = []

    async def tell(worker, message):
        told.append((worker, getattr(message, "concurrency", "start")))

    async def hear(worker):
        return worker

    monkeypatch.setattr(processes, "_tell", tell)
    monkeypatch.setattr(processes, "_hear", hear)
    monkeypatch.setattr(processes, "joined", list)
    several = processes.Several(None, 3)
    several._workers = ["a", "b", "c"]
    demand = closed_demand(fixed(8), fixed(2), count=9)
    assert asyncio.run(several.play(RoundPlan(demand=demand, concurrency=2))) == ["a", "b"]
    assert told == [("a", 1), ("b", 1), ("a", "start"), ("b", "start")]


# What is made of it


def answered(due, sent, first, last, **more):
    given = {
        "index": 0, "outcome": "ok", "message": None, "retry_after": None, "input_tokens": 9, "output_tokens": 3,
        "tokens": 1, "times": array("d", [first, last]), "counts": array("q", [1, 2]), "shown": [4, 2, 0],
    }  # fmt: skip
    return SimpleNamespace(due=due, sent=sent, first=first, last=last, **{**given, **more})


def test_a_round_is_kept_from_its_start_on():
    failed = answered(12.0, 12.1, 12.2, 12.3, index=1, outcome="reset", message="gone", retry_after=2.0,
                      input_tokens=None)  # fmt: skip
    played = SimpleNamespace(
        start_s=10.0, end_s=15.0, answers=[failed, answered(11.0, 11.5, 12.0, 14.0)], unsent=[2], broken=[],
        interrupted=True, shed=1, health="well",
    )  # fmt: skip
    demand = closed_demand(fixed(8), fixed(2), count=3)
    found = rows_of(played, demand, streamed=True)
    assert [(row.due, row.sent, row.first, row.last) for row in found.rows] == [
        (1.0, 1.5, 2.0, 4.0), (2.0, pytest.approx(2.1), pytest.approx(2.2), pytest.approx(2.3)),
        (5.0, None, None, None),
    ]  # fmt: skip
    assert [row.outcome for row in found.rows] == ["ok", "reset", "not_sent"]
    assert [(row.input_tokens, row.output_tokens) for row in found.rows] == [(9, 3), (8, None), (None, None)]
    assert (found.rows[0].gap, list(found.rows[0].gaps), found.rows[1].gap) == (2.0, [1.0, 1.0], None)
    assert (found.seconds, found.arrivals, found.messages) == (5.0, 2, {"reset": "gone"})
    assert (found.usage_input, found.usage_output, found.usage_requests) == (9, 3, 1)
    assert (found.retry_after, found.interrupted, found.shed, found.counted_by) == (2.0, True, 1, Counter({1: 1}))
    assert found.shown == (4, 2, 0)
    assert (found.beyond, found.ended_early) == (1, 0)  # three tokens where two were asked for
    untold = answered(11.0, 11.5, 12.0, 14.0, input_tokens=None, output_tokens=7)  # what no server counted is no usage
    played.answers.append(untold)
    more = rows_of(played, demand, streamed=True)
    assert (more.usage_input, more.usage_output, more.usage_requests, more.arrivals) == (9, 3, 1, 4)
    played.answers.remove(untold)
    whole = rows_of(played, demand, streamed=False)
    assert (whole.rows[0].first, whole.rows[0].gap, len(whole.rows[0].gaps)) == (None, None, 0)


def test_thoughts_calls_and_joules_are_told_apart_from_the_answers():
    rows = [{"due": 1.0, "sent": 1.0, "first": 1.5, "last": 2.0, "output_tokens": 9}] * 4
    gone = {"due": 1.0, "sent": 1.0, "last": 2.0, "outcome": "cancelled"}
    readings = ServerReadings(counters={"gpu_joules": 50.0})
    notes = level_of("x", [played(*rows, gone, shown=(20, 70, 10))], server=readings).notes
    assert notes == (
        "70% of what was written was reasoning, 10% calls of tools (by letters).",
        "12.5 J a request that was answered, by the counters of the server's GPUs.",
        "1 requests were taken back before their end, as asked.",
        "10 characters/s were written over the whole run, 2.78 a token.",
    )
    assert level_of("x", [played(*rows, shown=(20, 0, 0))]).notes == (
        "2 characters/s were written over the whole run, 0.556 a token.",
    )
    assert joined([played(shown=(1, 2, 3)), played(shown=(10, 20, 30))]).shown == (11, 22, 33)


def test_a_mix_of_models_asks_for_each_by_its_share():
    endpoint = Endpoint(address=parse_address("h"), api="chat", model="base", mix=parse_mix("base=4,org/a:b=1"))
    assert endpoint.mix == (("base", 0.8), ("org/a:b", 0.2))
    asked = Counter(json.loads(endpoint.body("x", output=1, input_tokens=1, index=i))["model"] for i in range(1000))
    assert asked["org/a:b"] == pytest.approx(200, abs=2)
    for wrong in ("a=", "=1", "a=x", "a=0", "a=-1,b=2", "a=nan", "a=inf", "a=1e308,b=1e308"):
        with pytest.raises(DomainError):
            parse_mix(wrong)


OTHER = {
    "stream": False, "headers": (("x", "y"),), "extra": {"top_k": 3}, "ignore_eos": False, "template": "{prompt}",
    "method": "PUT", "mix": (("a", 1.0),), "images": (1, 2, 3), "audio": AudioAsked(seconds=2.0),
    "api": "completions", "model": "m",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*LoadPlan.__annotations__} & {*Endpoint.__annotations__}))
def test_what_a_plan_says_of_its_requests_is_what_the_server_is_asked(name, monkeypatch):
    """A field that both have is carried over as it is, and the others stay as they were."""
    asked = []

    async def known(_pool, endpoint):
        asked.append(endpoint)
        raise DomainError("as far as this")

    monkeypatch.setattr(run, "facts_of", known)
    plan = LoadPlan(url="http://h:1", model="o")
    for each in (plan, replace(plan, **{name: OTHER[name]})):
        with pytest.raises(DomainError, match="as far"):
            run.load(each)
    assert asked[1] == replace(asked[0], **{name: OTHER[name]})


def test_what_failed_counts_among_the_requests_and_in_no_figure_of_the_answers():
    """However much of it came before it broke off."""
    ok = {"due": 1.0, "sent": 1.0, "first": 1.5, "last": 2.0, "output_tokens": 9, "gap": 0.5, "gaps": array("d", [0.1])}
    broken = {**ok, "outcome": "reset", "first": 99.0, "last": 100.0, "output_tokens": 1000}
    alone, beside = (level_of("x", [played(*rows, arrivals=18)]) for rows in ([ok, ok], [ok, broken, ok]))
    assert alone.tokens_per_chunk == 1.0
    for name in ("tokens_per_chunk", "gaps", "counting"):
        assert getattr(beside, name) == getattr(alone, name), name
    assert [len(each.requests.outcome) for each in (alone, beside)] == [2, 3]


def png_chunks(data):
    """Chunks by name, each with the checksum that it states."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, found = 8, {}
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        found[name] = data[at + 8 : at + 8 + size]
        assert data[at + 8 + size : at + 12 + size] == struct.pack(">I", zlib.crc32(name + found[name]))
        at += 12 + size
    assert [*found] == [b"IHDR", b"IDAT", b"IEND"]
    return found


def test_images_stand_before_the_text_of_the_last_message_and_no_two_are_alike():
    endpoint = Endpoint(address=parse_address("h"), api="chat", model="m", images=parse_images("2:5x3"))
    bodies = [json.loads(endpoint.body("words", output=1, input_tokens=1, index=index)) for index in (0, 1, 0)]
    (message,) = bodies[0]["messages"]
    assert [part["type"] for part in message["content"]] == ["image_url", "image_url", "text"]
    assert message["content"][2]["text"] == "words"
    urls = [part["image_url"]["url"] for body in bodies for part in body["messages"][0]["content"][:2]]
    assert (len(set(urls)), bodies[0]) == (4, bodies[2])
    data = base64.b64decode(urls[0].removeprefix("data:image/png;base64,"))
    chunks = png_chunks(data)
    assert chunks[b"IHDR"] == struct.pack(">II", 5, 3) + bytes((8, 0, 0, 0, 0))  # eight bits of grey
    assert zlib.decompress(chunks[b"IDAT"])[::6] == bytes(3)  # each row begins with its filter: none
    assert len(zlib.decompress(chunks[b"IDAT"])) == 3 * (1 + 5)
    for wrong in ("2", "2:5", "0:5x3", "1:0x3", "1:99999x99999", "x:1x1", "1:1x1:1"):
        with pytest.raises(DomainError):
            parse_images(wrong)
    with pytest.raises(DomainError, match="go with messages"):
        LoadPlan(url="", api="completions", images=(1, 2, 2))


def test_audio_is_a_wav_of_noise_or_a_file_in_a_message_or_a_form(tmp_path):
    endpoint = Endpoint(address=parse_address("h"), api="chat", model="m", audio=parse_audio("250ms"))
    bodies = [json.loads(endpoint.body("words", output=1, input_tokens=1, index=index)) for index in (0, 1, 0)]
    sound, text = bodies[0]["messages"][0]["content"]
    assert (sound["type"], sound["input_audio"]["format"], text) == (
        "input_audio",
        "wav",
        {"type": "text", "text": "words"},
    )
    assert (bodies[0] == bodies[2], bodies[0] != bodies[1]) == (True, True)
    with wave.open(io.BytesIO(base64.b64decode(sound["input_audio"]["data"]))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes()) == (1, 2, 16000, 4000)
    (tmp_path / "a.mp3").write_bytes(b"one")
    (tmp_path / "b.flac").write_bytes(b"two")
    (tmp_path / "notes.txt").write_bytes(b"three")
    said = Endpoint(
        address=parse_address("h"), api="transcriptions", model="m", audio=parse_audio(str(tmp_path)),
        extra={"language": "en"},
    )  # fmt: skip
    request = said.request(said.body("", output=1, input_tokens=1, index=3))
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/audio/transcriptions HTTP/1.1")
    form = BytesParser().parsebytes(
        b"\r\n".join(line for line in head.split(b"\r\n") if b"content-type" in line) + b"\r\n\r\n" + body
    )
    parts = {part.get_param("name", header="content-disposition"): part for part in form.get_payload()}
    assert {name: part.get_payload() for name, part in parts.items() if name != "file"} == {
        "model": "m", "response_format": "json", "language": "en", "stream": "true",
    }  # fmt: skip
    assert (parts["file"].get_filename(), parts["file"].get_payload(decode=True)) == ("3.flac", b"two")
    for wrong in ("noise", "0s", "2h", str(tmp_path / "notes.txt")):
        with pytest.raises(InferometerError):
            parse_audio(wrong)
    with pytest.raises(DomainError, match="goes with messages"):
        LoadPlan(url="", api="completions", audio=parse_audio("1s"))


def test_documents_are_ranked_by_a_question_and_no_two_are_alike():
    endpoint = Endpoint(address=parse_address("h"), api="rerank", model="m", stream=False)
    body = json.loads(endpoint.body("a b c d e f g h i j", output=3, input_tokens=10, index=0))
    assert (endpoint.path, body.keys()) == ("/v1/rerank", {"model", "query", "documents"})
    assert body["query"] == "a b c d e f g h"
    assert body["documents"] == ["a b c d e f g h i j", "b c d e f g h i j a", "c d e f g h i j a b"]


def test_a_page_of_dcgm_gives_power_together_and_other_figures_on_average(monkeypatch):
    page = (
        'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 300\nDCGM_FI_DEV_POWER_USAGE{gpu="1"} 500\n'
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 50\nDCGM_FI_DEV_GPU_UTIL{gpu="1"} 100\nDCGM_FI_DEV_GPU_TEMP{gpu="0"} x\n'
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"} 2000\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1"} 3000\n'
    )
    seen = []

    async def answer(_pool, _endpoint, path):
        seen.append(path)
        return page.encode()

    monkeypatch.setattr(server, "_page", answer)
    endpoint = Endpoint(address=parse_address("h:9400/metrics"), api="template", model="")
    found = asyncio.run(telemetry_of(None, endpoint))
    assert found == {"gpu_power_w": 800.0, "gpu_busy": 0.75, "gpu_joules": 5.0}
    assert seen == ["/metrics"]


def test_the_gpus_of_a_level_are_read_before_and_after_it():
    joules = iter((1_000, 61_000))

    async def page(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = f"DCGM_FI_DEV_POWER_USAGE 250\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION {next(joules)}\n"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async def level():
        exporter = await asyncio.start_server(page, "127.0.0.1", 0)
        host, port = exporter.sockets[0].getsockname()
        gpus = Endpoint(address=parse_address(f"http://{host}:{port}/metrics"), api="template", model="")
        async with exporter, run._Scraping(None, None, on=False, gpus=gpus) as scraped:
            pass
        return scraped.readings

    readings = asyncio.run(level())
    assert (readings.counters, readings.gauges) == ({"gpu_joules": 60.0}, {"gpu_power_w": (250.0, 250.0)})


@pytest.mark.parametrize(
    ("governors", "saves"), [((), False), (("performance",), False), (("schedutil", "powersave"), True)]
)
def test_a_client_in_powersave_is_known(tmp_path, governors, saves):
    for number, governor in enumerate(governors):
        folder = tmp_path / f"devices/system/cpu/cpu{number}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
    assert saves_power(tmp_path) is saves


def played(*rows, seconds=10.0, **more):
    return RoundRows(rows=[RequestRow(**row) for row in rows], seconds=seconds, health=[], **more)


def test_parts_of_a_round_are_added_and_rounds_follow_each_other():
    one = played({"due": 2.0, "sent": 2.5, "first": 3.0, "last": 4.0, "output_tokens": 6}, arrivals=2, usage_input=1,
                 usage_output=2, usage_requests=3, shed=4, messages={"a": "x"}, counted_by=Counter({1: 1}))  # fmt: skip
    two = played({"due": 1.0, "outcome": "reset"}, seconds=12.0, arrivals=1, usage_input=10, usage_output=20,
                 usage_requests=30, shed=40, messages={"a": "y", "b": "z"}, counted_by=Counter({1: 1, 0: 5}),
                 retry_after=3.0, interrupted=True)  # fmt: skip
    both = joined([one, two])
    assert [row.due for row in both.rows] == [1.0, 2.0]
    assert (both.seconds, both.arrivals, both.shed, both.messages) == (12.0, 3, 44, {"a": "x", "b": "z"})
    assert (both.usage_input, both.usage_output, both.usage_requests) == (11, 22, 33)
    assert (both.retry_after, both.interrupted, both.counted_by) == (3.0, True, Counter({0: 5, 1: 2}))
    level = level_of("l", [one, two], rate_per_s=1.0)
    assert level.requests.due_s == (2.0, 11.0)  # the second round begins when the first is over
    assert (level.requests.sent_s, level.requests.first_s, level.requests.last_s) == (
        (2.5, None),
        (3.0, None),
        (4.0, None),
    )
    assert (level.seconds, level.tokens_per_chunk) == (22.0, 2.0)
    assert level.counting == "counted in every event, one an event"
    assert level.server.usage_output_tokens == 22
    assert level.client.send_delay_max_s == 0.5


def test_counters_are_differences_and_gauges_means_of_what_was_seen_between():
    samples = [{"prompt_tokens": 5.0, "running": 9.0}, {"prompt_tokens": 6.0, "running": 1.0}, {"running": 4.0},
               {"prompt_tokens": 12.0, "running": 8.0, "preemptions": 1.0}]  # fmt: skip
    found = run._readings(samples)
    assert (found.counters, found.gauges) == ({"prompt_tokens": 7.0}, {"running": (2.5, 4.0)})
    assert run._readings(samples[:1]).gauges == {"running": (9.0, 9.0)}


def test_metrics_are_summed_over_labels_and_named_by_us():
    text = (
        '# HELP x\nvllm:prompt_tokens_total{e="0"} 5\nvllm:prompt_tokens_total{e="1"} 7.5\n'
        "vllm:gpu_cache_usage_perc 0.25\nvllm:num_requests_waiting NaN\nsglang:num_running_reqs oops\n"
    )
    assert parse_metrics(text) == {"prompt_tokens": 12.5, "kv_used": 0.25}


def test_a_level_s_first_round_has_the_requests_that_simulate_has():
    """So a simulation is held against the very requests; later rounds, warm-ups and what is resumed have others."""
    plan = LoadPlan(url="", steps=(LoadStep(concurrency=1), LoadStep(concurrency=2)))
    tests = [run._Test(plan, None, None, tried=[(step, None) for step in plan.steps[:count]]) for count in (0, 1)]
    assert [test._numbered(1) for test in tests] == [0, 1]  # as serving.simulate.run numbers its levels
    resumed = run._Test(replace(plan, done=(SimpleNamespace(),)), None, None, tried=[(plan.steps[0], None)])
    later = [test._numbered(round_) for test in (*tests, resumed) for round_ in (1, 2, 3)]
    assert len({*later, run._WARM_UP}) == len(later) + 1


def test_a_level_that_saturate_adds_outlasts_many_answers(monkeypatch):
    monkeypatch.setattr(run, "figures_of", lambda _level: LevelFigures(requests=1, completed=1))
    monkeypatch.setattr(run, "median_of", lambda _of: 2.5)

    def sized(step, **plan):
        tried = [] if plan.pop("is_first", False) else [(step, None)]
        test = run._Test(LoadPlan(url="", **{"saturate": True, **plan}), None, None, tried=tried)
        return test._sized(step).requests

    places, rate = LoadStep(concurrency=8), LoadStep(arrivals=Arrivals(rate_per_s=4.1))
    assert sized(places) == run._ANSWERS * 8
    assert sized(rate) == run._ANSWERS * 11  # 10.25 are under way
    assert sized(places, requests=5000) == 5000
    assert sized(LoadStep(concurrency=4096), requests=5) == min(run._MOST_ADDED, run._ANSWERS * 4096)
    assert [sized(places, **more) for more in ({"saturate": False}, {"duration_s": 3.0}, {"is_first": True})] == [
        None
    ] * 3


@pytest.mark.parametrize(
    ("warmup", "step", "wanted"),
    [
        (None, LoadStep(concurrency=1), (2, 1)), (None, LoadStep(concurrency=8), (8, 8)),
        (None, LoadStep(concurrency=10_000), (run._WARM, run._WARM)),
        (None, LoadStep(arrivals=Arrivals(rate_per_s=50.0)), (2, 2)),
        (5, LoadStep(concurrency=3), (5, 3)), (5, LoadStep(arrivals=Arrivals(rate_per_s=50.0)), (5, 2)),
        (1, LoadStep(concurrency=3), (1, 1)), (0, LoadStep(concurrency=3), None),
    ],
)  # fmt: skip
def test_a_server_is_warmed_up_by_as_many_at_once_as_the_first_load_has_or_two_where_it_is_a_rate(warmup, step, wanted):
    played = []

    class Players:
        async def play(self, plan):
            played.append((len(plan.demand), plan.concurrency))

    plan = LoadPlan(url="", steps=(step,), warmup=warmup, requests=700)
    asyncio.run(run._Test(plan, None, None)._warm_up(Players()))
    assert played == ([] if wanted is None else [wanted])


@pytest.mark.parametrize("ends", ["interrupted", "hopeless", None])
def test_no_load_is_tried_after_one_that_was_interrupted_or_brought_nothing(ends, monkeypatch):
    """Of three; whoever keeps the levels has each as soon as it is over."""
    steps = tuple(LoadStep(concurrency=many) for many in (1, 2, 4))
    test, kept = run._Test(LoadPlan(url="", steps=steps), None, None), []

    async def level(_test, _players, _facts, _pool, step):
        stops = step.concurrency == 2
        monkeypatch.setattr(run, "_is_hopeless", lambda _level: stops and ends == "hopeless")
        return SimpleNamespace(concurrency=step.concurrency, interrupted=stops and ends == "interrupted")

    monkeypatch.setattr(run._Test, "_level", level)
    monkeypatch.setattr(run._Test, "_profile", lambda test, _facts: [level.concurrency for level in test.levels])
    test.keep = kept.append
    asyncio.run(test._play_all(None, SimpleNamespace(server=SimpleNamespace(fault="none answers")), None))
    assert kept == [[1], [1, 2], [1, 2, 4]][: 3 if ends is None else 2]


@pytest.mark.parametrize(("saturate", "within"), [(False, False), (True, False), (False, True)])
def test_loads_are_added_where_one_is_searched_for(saturate, within, monkeypatch):
    """By the search that was asked for, from all that was tried."""
    step = LoadStep(concurrency=2)
    monkeypatch.setattr(run, "figures_of", lambda level, goals: (level, goals))
    monkeypatch.setattr(run, "next_step", lambda tried: ("doubled", tried))
    monkeypatch.setattr(run, "next_within", lambda tried, goals: ("halved", tried, goals))
    goals = (parse_objective("ttft_p95<=1s"),)
    plan = LoadPlan(url="", steps=(step,), saturate=saturate, within=within, objectives=goals)
    found = run._Test(plan, None, None, tried=[(step, "level")])._next_steps()
    tried = [(step, ("level", goals))]
    assert found == [("doubled", tried)] * saturate + [("halved", tried, goals)] * within


def test_the_only_model_of_a_server_is_meant():
    def model(plan, *models, fault=None):
        return run._model(LoadPlan(url="", **plan), ServerFacts(models=models, fault=fault))

    assert model({}, "a") == "a"
    assert model({"model": "b"}, "a", "c") == "b"
    assert (model({"api": "template"}), model({}, fault="gone")) == ("unnamed", "unnamed")
    for models in ((), ("a", "b")):
        with pytest.raises(DomainError, match="--model NAME"):
            model({}, *models)


def test_what_is_counted_in_every_event_is_asked_of_engines_that_can():
    def extra(engine, **more):
        return run._extra(endpoint(**more), ServerFacts(engine=engine))

    assert extra("llamacpp") == {"timings_per_token": True}
    assert extra("llamacpp", extra={"timings_per_token": False, "x": 1}) == {"timings_per_token": False, "x": 1}
    assert extra("llamacpp", stream=False) == extra("llamacpp", api="embeddings") == extra(None) == {}


def test_the_headline_of_a_load_test():
    figures = LevelFigures(requests=9, completed=9, input_tokens=10.6, output_tokens=3.4)
    found = workload_of(LoadPlan(url="", steps=(LoadStep(arrivals=Arrivals(rate_per_s=2.0)),)), figures)
    assert (found.prompt, found.generate, found.arrival_per_s) == (11, 3, 2.0)
    several = LoadPlan(url="", steps=(LoadStep(arrivals=Arrivals(rate_per_s=2.0)),) * 2)
    saturating = LoadPlan(url="", steps=several.steps[:1], saturate=True)
    assert [workload_of(plan, figures).arrival_per_s for plan in (several, saturating)] == [None, None]
    assert workload_of(several, LevelFigures(requests=0, completed=0, input_tokens=0.5)).prompt is None
    assert summary_of(figures).latency_s is None
    assert (_model_name("/models/a.b.gguf"), _model_name("org/a.b")) == ("a.b", "org/a.b")


def test_a_bottleneck_in_the_client_disturbs_the_measurement():
    facts = Facts(endpoint=endpoint(), server=ServerFacts(engine="vllm", version="1"), maker=PromptMaker())
    slow, fine = (SimpleNamespace(name="8/s", client=SimpleNamespace(bottleneck=is_slow, reasons=("a", "b")))
                  for is_slow in (True, False))  # fmt: skip
    found = _environment(facts, (slow, fine, SimpleNamespace(client=None)))
    assert (found.disturbed, found.versions["vllm"]) == (True, "1")
    assert found.reasons == ("at 8/s: the load generator was the bottleneck, since a and b",)
    assert not _environment(facts, (fine,)).disturbed


def test_phases_are_the_medians_a_client_sees():
    def phases(first):
        columns = RequestColumns(
            due_s=(0.0, 1.0, 2.0), sent_s=(0.0, 1.0, 2.0), first_s=first, last_s=(1.0, 3.0, 5.0),
            input_tokens=(1, 1, 1), output_tokens=(3, 3, 3), outcome=("ok",) * 3,
        )  # fmt: skip
        window = Window(start_s=0.0, end_s=9.0, why="all")
        level = Level(name="l", seconds=9.0, requests=columns, windows=(window,))
        return {phase.name: (phase.time_s, phase.samples_s) for phase in phases_of(level)}

    assert phases((0.5, 1.25, 2.75)) == {
        "prefill": (0.5, (0.5, 0.25, 0.75)), "decode": (0.875, (0.25, 0.875, 1.125)),
    }  # fmt: skip
    assert phases((None, None, None)) == {"request": (2.0, (1.0, 2.0, 3.0))}


@pytest.mark.parametrize(("length", "acceptance"), [(1, 0.85), (3, 0.6), (5, 0.3)])
def test_what_a_server_kept_of_its_drafts_is_said_as_the_chance_of_a_token(length, acceptance):
    """The share of all drafted tokens is less: one that was not kept takes those after it along."""
    kept = sum(acceptance**at for at in range(1, length + 1))
    counters = {"drafts": 1000.0, "drafted_tokens": 1000.0 * length, "accepted_tokens": 1000 * kept}
    assert f"--acceptance {acceptance:.2f}" in _drafted(counters)
    read = parse_metrics('vllm:spec_decode_num_drafts_total{a="b"} 3\nvllm:spec_decode_num_draft_tokens_total 9\n')
    assert read == {"drafts": 3.0, "drafted_tokens": 9.0}


@pytest.mark.parametrize("streamed", [False, True])
def test_the_headline_of_a_load_is_the_whole_answer_only_where_nothing_came_before_it(streamed):
    half, whole = (Distribution(count=3, mean=s, min=s, max=s) for s in (0.5, 2.0))
    figures = LevelFigures(requests=3, completed=3, ttft_s=half if streamed else None, e2e_s=whole)
    found = summary_of(figures)
    assert (found.latency_s, found.ttft_s, found.e2e_s) == ((None, 0.5, 2.0) if streamed else (2.0, None, 2.0))
