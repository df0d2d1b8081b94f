"""A load test between two moments, in virtual time: what is sent when, and once or again; what a server says."""

import asyncio

import pytest

from fakes.scripted_server import HEAD, Close, Reset, Send, Wait, chunk, ending, event, plain, speak, whole
from fakes.virtual_time import VirtualPool, virtually
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Sharing, closed_demand, open_demand
from inferometer.core.traffic.lengths import Lengths
from inferometer.serving.load import server
from inferometer.serving.load.apis import Endpoint, Proxy, parse_address
from inferometer.serving.load.faults import Fault
from inferometer.serving.load.play import Player, RoundPlan
from inferometer.serving.load.pool import _Tunnel
from inferometer.serving.load.prompts import WORDS, PromptMaker
from inferometer.serving.load.server import Fetched, ServerFacts, facts_of, fetch, prompt_maker, single_tokens
from inferometer.serving.load.wire import Connection, parse_head


def fixed(tokens):
    return Lengths(kind="fixed", mean=tokens)


def played(script, demand, *, stop_s=None, stream=True, **plan):
    """What was played, what the server was asked, and when each request came after the start."""

    async def run():
        endpoint = Endpoint(address=parse_address("http://scripted"), api="chat", model="m", stream=stream)
        pool = VirtualPool(script)
        player = Player(endpoint, PromptMaker(), pool, RoundPlan(demand=demand, **plan))
        player.prepare()
        if stop_s is not None:
            asyncio.get_running_loop().call_later(stop_s, player.stop)
        found = await player.play()
        return found, pool.asked, [round(asked.at - found.start_s, 6) for asked in pool.asked]

    return virtually(run())


def steady(asked):
    return speak(asked, first_s=0.2, step_s=0.1)  # with three tokens: 0.4 s


def closed(count, **more):
    return closed_demand(fixed(10), fixed(3), count=count, **more)


def test_a_place_sends_again_at_the_moment_of_its_answer_until_the_time_is_up():
    found, _, at = played(steady, closed(100), concurrency=2, duration_s=1.1)
    assert at == [0.0, 0.0, 0.4, 0.4, 0.8, 0.8]  # at 1.2 the time is over
    assert found.end_s - found.start_s == pytest.approx(1.2)
    assert (found.unsent, found.interrupted) == ([], False)


def test_an_open_loop_sends_by_its_schedule_and_ends_with_the_last_answer():
    demand = open_demand(Arrivals(rate_per_s=10, process="constant"), fixed(10), fixed(3), count=4)
    found, _, at = played(steady, demand)
    assert at == pytest.approx(list(demand.due_s))
    assert found.end_s - found.start_s == pytest.approx(demand.due_s[-1] + 0.4)
    assert [answer.due - found.start_s for answer in found.answers] == pytest.approx(list(demand.due_s))


def test_one_who_stops_it_keeps_what_there_is():
    found, asked, _ = played(steady, closed(100), concurrency=2, stop_s=0.5)
    assert sorted(answer.outcome for answer in found.answers) == ["cancelled", "cancelled", "ok", "ok"]
    assert (found.interrupted, found.unsent, len(asked)) == (True, [], 4)
    assert found.end_s - found.start_s == pytest.approx(0.5)


def test_a_share_of_the_requests_is_taken_back_and_the_others_are_answered():
    """Answers take 0.4 s: who is taken back after 0.2 frees the connection, and no test ends as hopeless for it."""
    found, asked, _ = played(steady, closed(60), concurrency=4, cancels=(0.25, 0.2))
    outcomes = [answer.outcome for answer in found.answers]
    assert (outcomes.count("cancelled"), outcomes.count("ok"), len(asked)) == (16, 44, 60)
    gone = [answer for answer in found.answers if answer.outcome == "cancelled"]
    assert all(0.2 <= answer.last - answer.sent <= 0.2 + 0.051 for answer in gone)  # swept every 50 ms
    everyone, asked, _ = played(steady, closed(60), concurrency=4, cancels=(1.0, 0.2))
    assert ({answer.outcome for answer in everyone.answers}, len(asked), everyone.unsent) == ({"cancelled"}, 60, [])


def refusing(status, headers=""):
    return lambda _asked: iter([(Send, plain(status, b"{}", headers=headers))])


@pytest.mark.parametrize(("places", "sent"), [(1, 20), (10, 20), (11, 22), (30, 60)])
def test_a_test_is_hopeless_after_twenty_failures_or_two_of_every_place(places, sent):
    found, asked, _ = played(refusing(500), closed(100), concurrency=places)
    assert len(asked) == sent
    assert found.unsent == list(range(sent, 100))


def test_one_answer_is_hope_enough_however_many_fail_after_it():
    begun = []

    def first_alone(asked):
        begun.append(asked)
        return steady(asked) if len(begun) == 1 else refusing(500)(asked)

    found, asked, _ = played(first_alone, closed(60), concurrency=1)
    assert (len(asked), found.unsent) == (60, [])


@pytest.mark.parametrize(
    ("headers", "pause_s"), [("", 0.05), ("retry-after: 7\r\n", 7.0), ("retry-after: 99\r\n", 30.0)]
)
def test_a_place_that_was_refused_waits_before_it_tries_again(headers, pause_s):
    _, _, at = played(refusing(429, headers), closed(3), concurrency=1)
    assert at == pytest.approx([0.0, pause_s, 2 * pause_s])


def test_an_answer_that_takes_too_long_is_cut_off():
    def stuck(asked):
        return iter([(Send, HEAD), (Wait, 1e6)]) if asked.index == 0 else steady(asked)

    found, _, at = played(stuck, closed(2), concurrency=1, timeout_s=2.0)
    assert [answer.outcome for answer in found.answers] == ["timeout", "ok"]
    assert 2.0 <= found.answers[0].last - found.start_s <= 2.0 + 0.1  # looked at every 50 ms
    assert at[1] == pytest.approx(found.answers[0].last - found.start_s + 0.05)


def test_a_request_goes_out_once_more_only_where_a_kept_connection_was_closed_before_it_was_seen():
    def first_closes(asked):
        return iter([(Close, None)]) if asked.index == 0 else whole(asked, seconds=0.1)

    found, asked, _ = played(first_closes, closed(2), concurrency=1, stream=False)
    assert [answer.outcome for answer in found.answers] == ["closed_early", "ok"]  # it was new: the server means it
    assert len(asked) == 2

    def closes_twice(asked):
        return iter([(Reset, None)]) if asked.index in {1, 2} else whole(asked, seconds=0.1)

    found, asked, _ = played(closes_twice, closed(3), concurrency=1, stream=False)
    assert [answer.outcome for answer in found.answers] == ["ok", "reset", "ok"]  # again once, and not for ever
    assert len(asked) == 4

    def half(asked):
        if asked.index != 1:
            return whole(asked, seconds=0.1)
        return iter([(Send, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), (Reset, None)])

    found, asked, _ = played(half, closed(3), concurrency=1, stream=False)
    assert [answer.outcome for answer in found.answers] == ["ok", "reset", "ok"]  # it had begun to answer
    assert len(asked) == 3


def test_a_talk_goes_on_after_a_time_to_think_and_breaks_off_with_a_failure():
    def second_fails(asked):
        if len(asked.body["messages"]) == 3 and asked.index == 1:
            return iter([(Send, plain(500, b"{}"))])
        return steady(asked)

    demand = closed(6, sharing=Sharing(turns=3, think_s=1.0))
    found, asked, at = played(second_fails, demand, concurrency=1)
    assert [len(one.body["messages"]) for one in asked] == [1, 3, 1, 3, 5]
    assert at == pytest.approx([0.0, 1.4, 1.45, 2.85, 4.25])
    assert [answer.index for answer in found.answers] == [0, 1, 3, 4, 5]
    said = [message["content"] for message in asked[4].body["messages"]]
    assert said[1] == said[3] == "ttt"
    assert said[0] != said[2]


def test_progress_tells_every_answer():
    async def run():
        endpoint = Endpoint(address=parse_address("http://scripted"), api="chat", model="m")
        player = Player(endpoint, PromptMaker(), VirtualPool(steady), RoundPlan(demand=closed(3), concurrency=2))
        told = []
        player.progress = lambda done, count: told.append((done, count))
        await player.play()
        return told

    assert virtually(run()) == [(1, 3), (2, 3), (3, 3)]


# What a server says of itself


class Pages:
    """Stands for `fetch`: answers by path, and keeps how it was asked."""

    def __init__(self, pages):
        self.pages, self.asked = pages, []

    async def __call__(self, _pool, address, method, path, *, body=None, headers=(), timeout_s=10.0):
        self.asked.append((method, path, headers, timeout_s))
        assert address.host == "h"
        found = self.pages.get(path)
        if found is None:
            raise Fault("refused", "no")
        status, data = found(body) if callable(found) else found
        return Fetched(status=status, server="uvicorn llama.cpp" if path == "/v1/models" else None, body=data)


KEY = (("authorization", "Bearer x"),)
ENDPOINT = Endpoint(address=parse_address("http://h"), api="chat", model="m", headers=KEY)


def asked_of(monkeypatch, pages, ask):
    found = Pages(pages)
    monkeypatch.setattr(server, "fetch", found)
    answer = asyncio.run(ask)
    assert all(headers == KEY for _, _, headers, _ in found.asked)  # whatever is asked, with the key
    return answer, found.asked


def test_a_server_is_known_by_what_it_lists(monkeypatch):
    pages = {
        "/v1/models": (200, b'{"data": [{"id": "a", "owned_by": "VLLM"}, {"owned_by": "x"}, 3, {"id": "b"}]}'),
        "/version": (200, b'{"version": "0.9"}'), "/metrics": (200, b""),
    }  # fmt: skip
    facts, asked = asked_of(monkeypatch, pages, facts_of(None, ENDPOINT))
    assert facts == ServerFacts(engine="vllm", version="0.9", models=("a", "b"), has_metrics=True)
    assert [path for _, path, _, _ in asked] == ["/v1/models", "/metrics", "/version"]
    other, _ = asked_of(monkeypatch, {"/v1/models": (404, b"{}"), "/props": (200, b'{"build_info": 7}')},
                        facts_of(None, ENDPOINT))  # fmt: skip
    assert other == ServerFacts(engine="llamacpp")  # by the name of its program; a version is a text
    silent, _ = asked_of(monkeypatch, {}, facts_of(None, ENDPOINT))
    assert silent == ServerFacts(fault="refused: no")


def tokenizer(per_word):
    def count(body):
        text = body["content"] if "content" in body else body["prompt"]
        words = [word for word in text.split() for _ in range(per_word.get(word, 1))]
        return 200, b'{"tokens": [%b]}' % b",".join(b"1" for _ in words)

    return count


def test_words_of_one_token_are_asked_of_the_tokenizer(monkeypatch):
    several = dict.fromkeys(WORDS[:5], 2)
    words, asked = asked_of(monkeypatch, {"/tokenize": tokenizer(several)}, single_tokens(None, ENDPOINT, "vllm"))
    assert words == WORDS[5:53]
    assert len(asked) == 53
    none, _ = asked_of(monkeypatch, {"/tokenize": (500, b"{}")}, single_tokens(None, ENDPOINT, "vllm"))
    few, _ = asked_of(monkeypatch, {"/tokenize": tokenizer(dict.fromkeys(WORDS[7:], 2))},
                      single_tokens(None, ENDPOINT, "vllm"))  # fmt: skip
    some, _ = asked_of(monkeypatch, {"/tokenize": tokenizer(dict.fromkeys(WORDS[8:], 2))},
                       single_tokens(None, ENDPOINT, None))  # fmt: skip
    assert (none, few, some) == ((), (), WORDS[:8])


def usage(per_word, around):
    def answer(body):
        words = len(body.split(b'"content": "')[1].split(b'"')[0].split())
        return 200, b'{"usage": {"prompt_tokens": %d}}' % round(words * per_word + around)

    return answer


@pytest.mark.parametrize(
    ("per_word", "around", "expected"),
    [(1, 5, (1.0, 5, True)), (1.5, 4, (1.5, 4, False)), (1, 0, (1.0, 0, True)), (0.1, 9, (1.0, 0, False)),
     (25, 0, (1.0, 0, False))],
)  # fmt: skip
def test_the_tokens_of_a_word_and_those_around_a_prompt_are_read_from_two_probes(
    monkeypatch, per_word, around, expected
):
    pages = {"/v1/chat/completions": usage(per_word, around)}
    maker, asked = asked_of(monkeypatch, pages, prompt_maker(None, ENDPOINT, ServerFacts(engine="trtllm"), 3, 7.0))
    assert (maker.per_word, maker.added, maker.exact, maker.seed) == (*expected, 3)
    assert [limit for method, path, _, limit in asked if path == "/v1/chat/completions"] == [7.0, 7.0]
    assert maker.how.startswith("by the server's usage" if 0.2 < per_word < 20 else "not verified")


def test_a_probe_that_is_not_answered_is_not_repeated(monkeypatch):
    refused = b'{"usage": {"prompt_tokens": 9}}'  # of a refusal nothing counts
    for answer in ((500, b"{}"), (429, refused), (200, b"{}"), (200, b'{"usage": {"prompt_tokens": 0}}')):
        maker, asked = asked_of(monkeypatch, {"/v1/chat/completions": answer, "/tokenize": tokenizer({})},
                                prompt_maker(None, ENDPOINT, ServerFacts(engine="vllm"), 3, 99.0))  # fmt: skip
        probes = [limit for _, path, _, limit in asked if path == "/v1/chat/completions"]
        assert probes == [60.0]  # and no longer than a minute
        assert maker.how.startswith("words of one token each")
    plain_maker, asked = asked_of(monkeypatch, {}, prompt_maker(None, ENDPOINT, ServerFacts(fault="gone"), 4))
    assert (asked, plain_maker.seed) == ([], 4)


# The wire


TUNNELS = [  # what a proxy answers; whether it lets through; a word of why it does not
    (b"HTTP/1.1 200 Connection established\r\n\r\n", True, ""),
    (b"HTTP/1.0 204 x\r\nvia: y\r\n\r\n", True, ""),
    (b"HTTP/1.1 407 who\r\n\r\n", False, "407"),
    (b"HTTP/1.1 302 x\r\nlocation: y\r\n\r\n", False, "302"),
    (b"SSH-2.0-x\r\n\r\n", False, ""),
    (b"HTTP/1.1 200 x\r\n" + b"a: b\r\n" * 20_000, False, "no end"),
    (b"", False, "closed"),
    (b"HTTP/1.1 2", False, "closed"),
]


@pytest.mark.parametrize(("answer", "passes", "why"), TUNNELS)
@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_a_tunnel_is_there_or_the_proxy_says_why_not(answer, passes, why, size):
    """However its answer is cut into pieces, and before the connection ends where the answer has an end."""
    proxy, size = Proxy(host="gate", port=8080), max(size, len(answer) // 50)

    async def opened():
        waits = asyncio.get_running_loop().create_future()
        tunnel = _Tunnel(parse_address("https://h"), proxy, waits)
        for start in range(0, len(answer), size):
            tunnel.data_received(answer[start : start + size])
            if waits.done():
                break
        assert waits.done() == (why != "closed")
        tunnel.connection_lost(None)  # once it is there, that is not the tunnel's to tell
        await waits

    if passes:
        asyncio.run(opened())
        return
    with pytest.raises(Fault, match=f"gate:8080: .*{why}") as fault:
        asyncio.run(opened())
    assert fault.value.kind == "proxy"


class Silent(asyncio.Transport):
    def __init__(self):
        self.written, self.shut = [], False

    def write(self, data):
        self.written.append(data)

    def is_closing(self):
        return self.shut

    def close(self):
        self.shut = True

    abort = close


class Sink:
    def __init__(self):
        self.calls = []

    def on_head(self, status, headers, now):
        self.calls.append(("head", status, dict(headers), now))

    def on_body(self, data, now):
        self.calls.append(("body", data, now))

    def on_end(self, now):
        self.calls.append(("end", now))

    def on_fault(self, fault, now):
        self.calls.append((fault.kind, fault.message, now))


def received(*pieces, lost=...):
    """The exchange's calls, with the number of the piece as the time, and whether the connection is free again."""
    clock, sink, kept = iter(range(1, 99)), Sink(), []
    connection = Connection(lambda: next(clock))
    connection.connection_made(Silent())
    connection.released = lambda _, usable: kept.append(usable)
    connection.send(b"asked", sink)
    assert connection.transport.written == [b"asked"]
    for piece in pieces:
        connection.data_received(piece)
    if lost is not ...:
        connection.connection_lost(lost)
    return sink.calls, kept, connection


OK = b"HTTP/1.1 200 OK\r\n"


def test_the_bodies_of_chunks_that_came_together_go_on_together():
    calls, kept, _ = received(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n", b"1\r\nf\r\n0\r\n\r\n")
    assert [call for call in calls if call[0] == "body"] == [("body", b"abcde", 1), ("body", b"f", 2)]
    assert (calls[-1], kept) == (("end", 2), [True])


def test_bytes_that_nobody_asked_for_end_the_connection():
    _, kept, connection = received(OK + b"Content-Length: 2\r\n\r\nabc")
    assert (kept, connection.answered, connection.transport.shut) == ([False], 1, True)
    _, kept, connection = received(OK + b"Content-Length: 2\r\n\r\nab", b"more")
    assert (kept, connection.closed) == ([True], True)
    _, kept, _ = received(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nx")
    assert kept == [False]


def test_a_body_until_the_end_of_the_connection_is_whole_where_that_ends_well():
    calls, kept, _ = received(OK + b"\r\nab", b"cd", lost=None)
    assert calls[1:] == [("body", b"ab", 1), ("body", b"cd", 2), ("end", 3)]
    assert kept == [False]
    calls, _, _ = received(OK + b"\r\nab", lost=ConnectionResetError())
    assert calls[-1][0] == "reset"


@pytest.mark.parametrize(
    ("pieces", "kind", "words"),
    [((), "closed_early", "before any answer"), ((b"HTTP",), "closed_early", "in the middle"),
     ((OK + b"Content-Length: 9\r\n\r\na",), "closed_early", "in the middle")],
)  # fmt: skip
def test_a_connection_that_is_lost_says_when(pieces, kind, words):
    calls, kept, connection = received(*pieces, lost=None)
    assert calls[-1][0] == kind
    assert words in calls[-1][1]
    assert (kept, connection.closed) == ([False], True)


def test_an_answer_without_a_body_and_hints_before_it():
    calls, kept, _ = received(b"HTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n")
    assert [call[0] for call in calls] == ["head", "end"]
    assert kept == [True]
    for status in (b"204", b"304"):
        calls, kept, _ = received(b"HTTP/1.1 %b X\r\n\r\n" % status)
        assert ([call[0] for call in calls], kept) == (["head", "end"], [True])


@pytest.mark.parametrize(
    ("head", "keeps"),
    [(b"HTTP/1.1 200 OK\r\n", True), (b"HTTP/1.1 200 OK\r\nConnection: Close\r\n", False),
     (b"HTTP/1.0 200 OK\r\n", False), (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", True)],
)  # fmt: skip
def test_a_connection_is_kept_as_its_version_says(head, keeps):
    assert received(head + b"Content-Length: 1\r\n\r\na")[1] == [keeps]


def test_a_head_has_a_status_of_three_digits_and_names_in_small_letters():
    assert parse_head(b"HTTP/1.1 207 Multi Status\r\nA-B : c : d") == (207, b"HTTP/1.1", {b"a-b": b"c : d"})
    assert parse_head(b"HTTP/1.0 200")[0] == 200
    for wrong in (b"HTTP/1.1", b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 abc", b"HTTP/2 200"):
        with pytest.raises(Fault):
            parse_head(wrong)


@pytest.mark.parametrize(
    ("body", "is_whole"),
    [(b"4\r\nabcd\r\n0\r\n\r\n", True), (b"04\r\nabcd\r\n00\r\n\r\n", True),
     (b"A;x\r\n0123456789\r\n0\r\nT: x\r\n\r\n", True),
     (b"4_0\r\n", False), (b"+4\r\nabcd\r\n", False), (b"\r\n", False), (b"4\r\nabcdX\r\n", False)],
)  # fmt: skip
def test_chunks_have_a_size_in_hexadecimal(body, is_whole):
    calls, _, _ = received(OK + b"Transfer-Encoding: gzip, Chunked\r\n\r\n" + body)
    assert (calls[-1][0] == "end") is is_whole
    assert is_whole or calls[-1][0] == "malformed"


def test_a_page_that_a_kept_connection_lost_is_asked_for_once_more():
    def script(asked):
        return iter([(Reset, None)]) if asked.index == 1 else iter([(Send, plain(200, b'{"a": 1}'))])

    async def run():
        pool = VirtualPool(script)
        address = parse_address("http://scripted")
        pages = [await fetch(pool, address, "GET", "/x") for _ in range(2)]
        return [page.json for page in pages], len(pool.asked)

    assert virtually(run()) == ([{"a": 1}, {"a": 1}], 3)


def test_a_page_that_takes_too_long_is_given_up():
    async def run():
        pool = VirtualPool(lambda _asked: iter([(Wait, 99.0), (Send, plain(200, b"{}"))]))
        with pytest.raises(Fault) as caught:
            await fetch(pool, parse_address("http://scripted"), "GET", "/x", timeout_s=3.0)
        return caught.value.kind, pool.take()

    assert virtually(run()) == ("timeout", None)


def test_a_stream_counts_what_the_server_says_at_its_end():
    def script(_asked):
        yield Send, HEAD + chunk(event("a")) + chunk(event("bb")) + chunk(ending(9, 6)) + b"0\r\n\r\n"

    found, _, _ = played(script, closed(1), concurrency=1)
    (answer,) = found.answers
    assert (answer.input_tokens, answer.output_tokens, list(answer.counts)) == (9, 6, [6])


def test_a_place_sends_again_when_the_stream_has_ended_and_a_first_token_counts_from_the_send():
    """A server that makes a token after 50 ms and says its usage 23 ms after the last one."""

    def late(_asked):
        yield Wait, 0.05
        yield Send, HEAD + chunk(event("t"))
        yield Wait, 0.023
        yield Send, chunk(ending(10, 1)) + chunk(b"")

    found, _, at = played(late, closed_demand(fixed(10), fixed(1), count=3), concurrency=1)
    assert at == pytest.approx([0.0, 0.073, 0.146])
    assert [answer.first - answer.due for answer in found.answers] == pytest.approx([0.05] * 3)
    assert [answer.sent - answer.due for answer in found.answers] == [0.0] * 3  # no delay of the client's
