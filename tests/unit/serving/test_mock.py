"""The mock server: the simulator's tokens at the simulator's times, spoken as OpenAI's interface does."""

import asyncio
import base64
import json
import struct
from dataclasses import replace

import pytest

from fakes.virtual_time import virtually
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import open_demand
from inferometer.core.traffic.lengths import Lengths
from inferometer.known.engines import scheduler_of
from inferometer.serving.load.apis import AudioAsked, Endpoint, noise_wav, parse_address
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.load.run import _Test
from inferometer.serving.mock import server
from inferometer.serving.mock.engine import MockEngine
from inferometer.serving.mock.server import MockServer
from inferometer.serving.simulate.replica import Encoder, EngineLimits
from inferometer.serving.simulate.service import Cluster, ReplicaPool, Scaling, Service, TwoPools
from inferometer.serving.simulate.sinks import Columns
from inferometer.serving.simulate.source import RequestSource

STEP_S = 0.01


class Steps:
    """A step takes longer with more sequences, and with prompts."""

    def decode(self, sequences, _context):
        return STEP_S * (1 + 0.1 * sequences)

    def mixed(self, chunks, sequences, context):
        return self.decode(sequences, context) + 1e-4 * sum(size for size, _ in chunks)


def service(*, engine="vllm", replicas=1, **more):
    limits = EngineLimits(**{"tokens": 256, "sequences": 4, "blocks": 400, "block_tokens": 16, **more})
    pool = ReplicaPool(times=Steps(), rules=scheduler_of(engine), limits=limits, replicas=replicas)
    return Service(pool=pool, routing="round-robin")


async def run(engine, *asking):
    """The results of what asks, while the engine works."""
    task = asyncio.get_running_loop().create_task(engine.run())
    results = await asyncio.gather(*asking)
    task.cancel()
    return results


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_tokens_come_when_the_simulator_says_and_every_one_of_them(engine):
    lengths = Lengths(kind="uniform", mean=90, low=10, high=170), Lengths(kind="uniform", mean=8, low=1, high=15)
    demand = open_demand(Arrivals(rate_per_s=20), *lengths, count=40, seed=4)
    sink = Columns()
    Cluster(service(engine=engine).pool, sink.ended, sink.refused).run(RequestSource([demand]))
    rows = sink.columns()
    expected = dict(zip(rows.session, zip(rows.first_s, rows.last_s, strict=True), strict=True))

    async def play():
        loop = asyncio.get_running_loop()
        mock, start = MockEngine(service(engine=engine), loop.time), loop.time()

        async def one(index):
            await asyncio.sleep(float(demand.due_s[index]))
            asked = mock.ask(int(demand.input_tokens[index]), int(demand.output_tokens[index]))
            times = [(loop.time() - start, more) async for more in asked.tokens()]
            return times[0][0], times[-1][0], sum(more for _, more in times)

        return await run(mock, *(one(index) for index in range(40)))

    for index, (first, last, tokens) in enumerate(virtually(play())):
        assert tokens == demand.output_tokens[index]
        assert (first, last) == pytest.approx(expected[index], abs=2 * STEP_S)


def test_what_is_dropped_or_refused_leaves_the_engine_empty():
    async def play():
        mock = MockEngine(service(queue=1, longest=100), asyncio.get_running_loop().time)
        long = mock.ask(90, 20)
        kept, full, dropped = mock.ask(50, 5), mock.ask(10, 1), []

        async def leave():
            asked = mock.ask(40, 40)
            dropped.append(asked.refused)
            await asyncio.sleep(0.03)
            mock.drop(asked)

        async def read(asked):
            return sum([more async for more in asked.tokens()])

        counts = await run(mock, read(kept), read(long), leave())
        replica = mock.cluster.replicas[0]
        return (long.refused, full.refused), counts[:2], dropped, replica.is_idle, replica.pool.free, mock.metrics()

    refused, counts, dropped, idle, free, metrics = virtually(play())
    assert refused == ("too_long", "queue_full")
    assert (counts, dropped) == ([5, 0], [None])  # the third was taken, and then given up
    assert (idle, free, metrics["vllm:generation_tokens_total"]) == (True, 400, 5)


async def asked(address, method, path, body=None, *, read=-1):
    reader, writer = await asyncio.open_connection(*address)
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    text = (await reader.read(read)).decode()
    writer.close()
    return int(text.split(" ")[1]), text.partition("\r\n\r\n")[2]


def served(*requests, adapters=0, **limits):
    """What a server on a free port answers to (method, path, body) of each."""

    async def play():
        engine = MockEngine(service(**limits), asyncio.get_running_loop().time, speed=20.0)
        listening = await MockServer(engine, "tiny", adapters).serve("127.0.0.1", 0)
        address = listening.sockets[0].getsockname()[:2]
        async with listening:
            return await run(engine, *(asked(address, *request) for request in requests))

    return asyncio.run(play())


CHAT = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 4}


def test_a_chat_is_streamed_token_by_token_with_its_usage():
    ((status, text),) = served(
        ("POST", "/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}})
    )
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert {json.loads(each)["object"] for each in events[:-1]} == {"chat.completion.chunk"}  # AIPerf needs it
    assert (status, events[-1]) == (200, "[DONE]")
    documents = [json.loads(event) for event in events[:-1]]
    words = "".join(one["choices"][0]["delta"].get("content", "") for one in documents if one["choices"])
    assert len(words.split()) == 4
    assert documents[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert [one["choices"][0]["finish_reason"] for one in documents if one["choices"]][-1] == "length"


@pytest.mark.parametrize(
    ("path", "stream", "kind"),
    [
        ("chat/completions", False, "chat.completion"),
        ("chat/completions", True, "chat.completion.chunk"),
        ("completions", False, "text_completion"),
        ("completions", True, "text_completion"),
    ],
)
def test_every_answer_says_what_it_is_as_the_openai_api_names_it_and_counts_the_same_words(path, stream, kind):
    said = {**CHAT, "prompt": "one two three", "stream": stream, "stream_options": {"include_usage": True}}
    ((_, text),) = served(("POST", f"/v1/{path}", said))
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    told = [json.loads(event) for event in (events if stream else [text])]
    assert {each["object"] for each in told} == {kind}
    assert told[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert ("content" in str(told[0])) == path.startswith("chat")


def test_what_is_not_streamed_comes_whole_and_pages_are_there():
    answers = served(
        ("POST", "/v1/chat/completions", CHAT), ("POST", "/v1/completions", {"prompt": "a b", "max_tokens": 2}),
        ("GET", "/v1/models"), ("GET", "/health"), ("GET", "/metrics"), ("GET", "/nothing"),
    )  # fmt: skip
    assert [status for status, _ in answers] == [200, 200, 200, 200, 200, 404]
    chat, completion, models = (json.loads(text) for _, text in answers[:3])
    assert len(chat["choices"][0]["message"]["content"].split()) == 4
    assert completion["usage"]["prompt_tokens"] == 2
    assert models["data"][0]["id"] == "tiny"
    assert "vllm:num_requests_running" in answers[4][1]
    assert answers[4][1].startswith(("#", "vllm:"))  # lines, and no document of one string


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"{", 400, "cannot be read"),
        ({"max_tokens": 3}, 400, "messages"),
        ({**CHAT, "model": "other"}, 404, "does not exist"),
        ({**CHAT, "model": ["other"]}, 404, "does not exist"),
        ({**CHAT, "max_tokens": 1 << 19, "n": 3}, 400, "n is 1 to 2 with 524,288 tokens each"),
        ({**CHAT, "max_tokens": 9000}, 400, "too_long"),
        ({**CHAT, "max_tokens": 0}, 400, "max_tokens is 1 to"),
        ({**CHAT, "max_tokens": -1}, 400, "max_tokens is 1 to"),
        ({**CHAT, "max_tokens": 1e300}, 400, "max_tokens is 1 to"),  # its words took all memory
        (b'{"messages": [], "max_tokens": 1e999}', 400, "cannot be read"),
        (b"[" * 100_000, 400, "cannot be read"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_words(body, status, why):
    ((found, text),) = served(("POST", "/v1/chat/completions", body))
    assert found == status
    assert why in json.loads(text)["error"]["message"]


@pytest.mark.parametrize(("beyond", "status"), [(0, 200), (1, 400)])
def test_a_request_of_as_many_bytes_as_are_taken_is_taken(beyond, status, monkeypatch):
    body = json.dumps(CHAT).encode()
    monkeypatch.setattr(server, "_MOST_BYTES", len(body) - beyond)
    ((found, _),) = served(("POST", "/v1/chat/completions", body))
    assert found == status


def transcribed(stream, *, seconds=2.0, form=None):
    endpoint = Endpoint(
        address=parse_address("h"), api="transcriptions", model="tiny", stream=stream, audio=AudioAsked(seconds=seconds)
    )
    body = endpoint.body("", output=1, input_tokens=1, index=0) if form is None else form

    async def play():
        engine = MockEngine(service(), asyncio.get_running_loop().time, speed=20.0)
        server = await MockServer(engine, "tiny").serve("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])

        async def ask():
            writer.write(endpoint.request(body).replace(b"host:", b"connection: close\r\nhost:", 1))
            return await reader.read()

        async with server:
            (answer,) = await run(engine, ask())
            writer.close()
            return answer

    head, _, rest = asyncio.run(play()).decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), rest


def test_sound_is_written_down_as_long_as_it_is():
    status, text = transcribed(stream=False)
    assert (status, len(json.loads(text)["text"].split())) == (200, 6)  # two seconds of three words
    assert json.loads(text)["usage"] == {"prompt_tokens": 50, "completion_tokens": 6, "total_tokens": 56}
    status, text = transcribed(stream=True)
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert (status, events[-1]) == (200, "[DONE]")
    words = "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert len(words.split()) == 6
    status, text = transcribed(stream=False, form=b"no form")
    assert (status, "cannot be read" in text) == (400, True)


def test_sound_in_a_chat_counts_by_its_length():
    data = base64.b64encode(noise_wav(2.0, 1)).decode()
    parts = [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}, {"type": "text", "text": "a b"}]
    chat = {"messages": [{"role": "user", "content": parts}], "max_tokens": 2}
    ((status, text),) = served(("POST", "/v1/chat/completions", chat))
    assert (status, json.loads(text)["usage"]["prompt_tokens"]) == (200, 52)


def test_what_is_no_part_of_a_chat_is_not_read():
    parts = ["w x y z", None, {"type": "text", "text": "a b"}, {"type": "image_url"}]
    chat = {"messages": [{"role": "user", "content": parts}], "max_tokens": 2}
    plain = {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 2}
    answers = served(("POST", "/v1/chat/completions", chat), ("POST", "/v1/chat/completions", plain))
    assert [status for status, _ in answers] == [200, 200]
    assert len({json.loads(text)["usage"]["prompt_tokens"] for _, text in answers}) == 1


@pytest.mark.parametrize("rate", [0, 1])
def test_a_header_that_claims_a_day_of_sound_is_refused(rate):
    """Each second is counted as words: a byte a second would make gigabytes of them."""
    sound = bytearray(noise_wav(4.0, 1))
    sound[28:32] = rate.to_bytes(4, "little")
    part = {"type": "input_audio", "input_audio": {"data": base64.b64encode(sound).decode(), "format": "wav"}}
    chat = {"messages": [{"role": "user", "content": [part]}], "max_tokens": 2}
    ((status, text),) = served(("POST", "/v1/chat/completions", chat))
    assert (status, "s of sound" in text) == (400, True)


@pytest.mark.parametrize("same", [False, True])
def test_a_load_test_finds_nothing_of_the_one_before_in_the_cache_unless_it_asks_for_that(same):
    async def play():
        engine = MockEngine(service(blocks=4000, tokens=2048), asyncio.get_running_loop().time, speed=100.0)
        listening = await MockServer(engine, "tiny").serve("127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()[:2]
        plan = LoadPlan(
            url=f"http://{host}:{port}", steps=(LoadStep(concurrency=2),), requests=6, words=5 if same else None,
            prompt=Lengths(kind="fixed", mean=200), generate=Lengths(kind="fixed", mean=2),
        )  # fmt: skip
        hits, asked = [], []
        async with listening:
            task = asyncio.get_running_loop().create_task(engine.run())
            for _ in range(2):
                await _Test(plan, None, None).run()
                metrics = engine.metrics()
                hits.append(metrics["vllm:prefix_cache_hits_total"])
                asked.append(metrics["vllm:prefix_cache_queries_total"])
            task.cancel()
            await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=5)  # connections that end
        return hits[0] / asked[0], (hits[1] - hits[0]) / (asked[1] - asked[0])

    first, second = asyncio.run(play())
    assert first < 0.1
    assert (second > 0.5) == same
    assert second < 0.1 or same


def test_no_image_or_sound_of_a_test_is_one_of_another_test():
    bodies = {
        endpoint.body("x", output=1, input_tokens=1, index=index)
        for endpoint in (
            Endpoint(address=parse_address("http://h"), api="chat", model="m", noise=noise, images=(1, 4, 4),
                     audio=AudioAsked(seconds=0.01))
            for noise in (0, 1)
        )
        for index in range(3)
    }  # fmt: skip
    assert len(bodies) == 6


@pytest.mark.parametrize(("shared", "found"), [(0, 0), (15, 0), (16, 16), (100, 96), (200, 192)])
def test_prompts_that_begin_alike_share_what_is_alike_also_within_a_message(shared, found):
    """A talk whose second prompt is one message more is found up to there; so is the begin of one long message."""
    words = [f"w{at}" for at in range(200)]
    prompts = [" ".join(words), " ".join([*words[:shared], *(f"other{at}" for at in range(200 - shared)), "end"])]

    async def play():
        engine = MockEngine(service(blocks=4000, tokens=2048), asyncio.get_running_loop().time, speed=100.0)
        for prompt in prompts:
            asked = engine.ask(len(prompt.split()), 1, server._pieces([("user", prompt)]))
            await run(engine, anext(asked.tokens()))
        return engine.metrics()["vllm:prefix_cache_hits_total"]

    assert virtually(play()) == found
    talk = [("user", "a b c"), ("assistant", "d e"), ("user", "f")]
    assert server._pieces(talk)[:2] == server._pieces(talk[:2])
    assert server._pieces(talk) != server._pieces([("user", "a b c"), ("user", "d e"), ("user", "f")])


@pytest.mark.parametrize(("told", "found"), [(True, 64 + 48), (False, 64)])
def test_the_next_turn_finds_what_was_answered_if_it_sends_that_back(told, found):
    """64 words, of which whole blocks of 16 are found, and an answer of 50 behind them."""
    first = [{"role": "user", "content": " ".join(f"w{at}" for at in range(64))}]

    async def play():
        engine = MockEngine(service(blocks=4000, tokens=2048), asyncio.get_running_loop().time, speed=100.0)
        listening = await MockServer(engine, "tiny").serve("127.0.0.1", 0)
        address = listening.sockets[0].getsockname()[:2]

        async def talk():
            path, turn = "/v1/chat/completions", {"max_tokens": 50}
            _, text = await asked(address, "POST", path, {**turn, "messages": first})
            answer = json.loads(text)["choices"][0]["message"] if told else {"role": "assistant", "content": "no " * 50}
            again = [*first, answer, {"role": "user", "content": "and now"}]
            await asked(address, "POST", path, {**turn, "messages": again})
            return engine.metrics()["vllm:prefix_cache_hits_total"]

        async with listening:
            return (await run(engine, talk()))[0]

    assert asyncio.run(play()) == found


def asking(text="a b c", tokens=4, **more):
    return (
        "POST",
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, **more},
    )


def test_several_answers_to_a_prompt_are_choices_of_one_answer():
    (whole, streamed, many) = served(
        asking(n=3), asking(n=2, stream=True, stream_options={"include_usage": True}), asking(n=1000)
    )
    document = json.loads(whole[1])
    assert [choice["index"] for choice in document["choices"]] == [0, 1, 2]
    assert {len(choice["message"]["content"].split()) for choice in document["choices"]} == {4}
    assert document["usage"] == {"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15}
    events = [json.loads(part.partition("\r\n")[0]) for part in streamed[1].split("data: ")[1:-1]]
    pieces = [choice for event in events for choice in event["choices"]]
    told = {index: [one for one in pieces if one["index"] == index] for index in (0, 1)}
    assert {len("".join(one["delta"].get("content", "") for one in each).split()) for each in told.values()} == {4}
    assert all([one["finish_reason"] for one in each][-1] == "length" for each in told.values())
    assert events[-1]["usage"]["completion_tokens"] == 8
    assert (many[0], "n is 1 to 128" in many[1]) == (400, True)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_dropped_on_the_way_is_not_said_to_be_whole(stream):
    ((status, text),) = served(asking(tokens=60, stream=stream), patience_s=0.3)
    assert (status, '"abort"' in text, '"length"' in text) == (200, True, False)


def test_adapters_are_models_and_wait_for_a_slot():
    models, one, other, unknown = served(
        ("GET", "/v1/models", None), asking(model="lora-1"), asking(model="tiny"), asking(model="lora-2"), adapters=2
    )
    assert [(row["id"], row.get("parent")) for row in json.loads(models[1])["data"]] == [
        ("tiny", None), ("lora-0", "tiny"), ("lora-1", "tiny"),
    ]  # fmt: skip
    assert [one[0], other[0], unknown[0], "tiny, lora-0, lora-1" in unknown[1]] == [200, 200, 404, True]


def test_images_count_as_the_encoder_makes_of_them_and_a_priority_needs_priorities():
    picture = [{"type": "image_url", "image_url": {"url": "http://x/1.png"}}, {"type": "text", "text": "a b"}]
    encoder = Encoder(image_s=0.01, image_tokens=30, cache_tokens=100)
    (seen, refused) = served(asking(picture), asking(priority=1), encoder=encoder)
    assert json.loads(seen[1])["usage"]["prompt_tokens"] == 32
    assert (refused[0], "--priorities" in refused[1]) == (400, True)
    assert served(asking(priority=1), by_priority=True)[0][0] == 200


def test_the_usage_says_how_much_of_a_prompt_was_cached():
    talk = " ".join(f"w{at}" for at in range(100))
    first, again = (json.loads(text)["usage"] for _, text in served(asking(talk), asking(talk)))
    assert "prompt_tokens_details" not in first
    assert again["prompt_tokens_details"] == {"cached_tokens": 96}


@pytest.mark.parametrize("stream", [False, True])
def test_whoever_leaves_before_the_answer_takes_no_more_blocks(stream):
    """A client that closes its connection: nothing is sent to it before the end, where nobody would notice."""

    async def play():
        engine = MockEngine(service(blocks=4000, tokens=2048), asyncio.get_running_loop().time, speed=1.0)
        listening = await MockServer(engine, "tiny").serve("127.0.0.1", 0)
        (replica,) = engine.replicas
        async with listening:
            task = asyncio.create_task(engine.run())
            _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname()[:2])
            body = json.dumps({"prompt": "one two three", "max_tokens": 5000, "stream": stream}).encode()
            writer.write(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            for _ in range(300):
                if replica.running:
                    break
                await asyncio.sleep(0.01)
            taken = replica.pool.blocks - replica.pool.free
            writer.close()
            for _ in range(300):
                if replica.is_idle:
                    break
                await asyncio.sleep(0.01)
            task.cancel()
            return taken, replica.is_idle, replica.pool.free == replica.pool.blocks, engine._under_way

    assert asyncio.run(play()) == (1, True, True, {})


def test_requests_that_follow_each_other_at_once_on_one_connection_are_all_answered():
    async def play():
        engine = MockEngine(service(), asyncio.get_running_loop().time, speed=50.0)
        listening = await MockServer(engine, "tiny").serve("127.0.0.1", 0)
        async with listening:
            task = asyncio.create_task(engine.run())
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname()[:2])
            for number in range(1, 4):
                body = json.dumps({"prompt": "one " * number, "max_tokens": number}).encode()
                close = b"Connection: close\r\n" if number == 3 else b""
                head = b"POST /v1/completions HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (close, len(body))
                writer.write(head + body)
            text = (await reader.read()).decode()
            writer.close()
            task.cancel()
            return text

    text = asyncio.run(play())
    assert [part.partition(",")[0] for part in text.split('"completion_tokens": ')[1:]] == ["1", "2", "3"]


def test_texts_are_embedded_in_one_step_that_reads_them():
    ((status, text), (_, packed), (_, tokens), (_, metrics)) = served(
        ("POST", "/v1/embeddings", {"input": ["one two", "three", "one two"], "dimensions": 8}),
        ("POST", "/v1/embeddings", {"input": "one two", "dimensions": 8, "encoding_format": "base64"}),
        ("POST", "/v1/embeddings", {"input": [[5, 6, 7], [8]]}), ("GET", "/metrics"),
    )  # fmt: skip
    found = json.loads(text)
    vectors = [one["embedding"] for one in found["data"]]
    assert (status, found["usage"]) == (200, {"prompt_tokens": 5, "total_tokens": 5})
    assert vectors[0] == vectors[2] != vectors[1]
    assert sum(value**2 for value in vectors[0]) == pytest.approx(1)
    data = json.loads(packed)["data"][0]["embedding"]
    assert struct.unpack("<8f", base64.b64decode(data)) == pytest.approx(vectors[0], rel=1e-6)
    assert [len(one["embedding"]) for one in json.loads(tokens)["data"]] == [1024, 1024]
    assert 'vllm:generation_tokens_total{model_name="tiny"} 0' in metrics


def test_documents_are_ranked_by_what_they_have_of_the_query():
    asked = {"query": "red green", "documents": ["blue", {"text": "green red"}, "red"], "top_n": 2}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank?of=two", "http://localhost:80/v1/rerank"):
        ((status, text),) = served(("POST", path, asked))
        found = json.loads(text)
        assert (status, [one["index"] for one in found["results"]]) == (200, [1, 2])
        assert found["usage"]["prompt_tokens"] == 3 + 4 + 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {}), ("/v1/embeddings", {"input": []}), ("/v1/embeddings", {"input": 5}),
        ("/v1/embeddings", {"input": "a", "dimensions": 10**9}), ("/v1/embeddings", []),
        ("/v1/embeddings", {"input": ["a"] * 2048, "dimensions": 65_536}),  # three gigabytes of numbers
        ("/v1/rerank", {"query": "a"}), ("/v1/rerank", {"query": ["a"], "documents": ["b"]}),
        ("/v1/rerank", {"query": "a", "documents": [{"words": 1}]}),
    ],
)  # fmt: skip
def test_what_cannot_be_embedded_or_ranked_is_refused(path, body):
    ((status, text),) = served(("POST", path, body))
    assert (status, "cannot be read" in text) == (400, True)


def test_two_pools_answer_as_their_simulation_does():
    lengths = Lengths(kind="uniform", mean=90, low=10, high=170), Lengths(kind="uniform", mean=8, low=1, high=15)
    demand = open_demand(Arrivals(rate_per_s=20), *lengths, count=30, seed=6)
    apart = replace(service(), reading=service(replicas=2).pool, handover_s=1e-4)
    sink = Columns()
    TwoPools(apart, sink.ended, sink.refused).run(RequestSource([demand]))
    rows = sink.columns()
    expected = dict(zip(rows.session, zip(rows.first_s, rows.last_s, strict=True), strict=True))

    async def play():
        loop = asyncio.get_running_loop()
        mock, start = MockEngine(apart, loop.time), loop.time()

        async def one(index):
            await asyncio.sleep(float(demand.due_s[index]))
            asked = mock.ask(int(demand.input_tokens[index]), int(demand.output_tokens[index]))
            times = [(loop.time() - start, more) async for more in asked.tokens()]
            return times[0][0], times[-1][0], sum(more for _, more in times)

        found = await run(mock, *(one(index) for index in range(30)))
        dropped = mock.ask(100, 400)
        mock._pools.advance(RequestSource([]), mock.now + 0.05)
        mock.drop(dropped)
        return found, [(one.is_idle, one.held, one.pool.free == one.pool.blocks) for one in mock.replicas]

    found, ends = virtually(play())
    assert ends == [(True, {}, True)] * 3
    for index, (first, last, tokens) in enumerate(found):
        assert tokens == demand.output_tokens[index]
        assert (first, last) == pytest.approx(expected[index], abs=2 * STEP_S)


def test_replicas_come_with_the_load_and_go_with_it():
    scaling = Scaling(least=1, most=3, target=2, cold_start_s=0.2, interval_s=0.1, idle_s=0.2)

    async def play():
        mock = MockEngine(replace(service(), scaling=scaling), asyncio.get_running_loop().time)

        async def one():
            return sum([more async for more in mock.ask(20, 60).tokens()])

        told = await run(mock, *(one() for _ in range(8)))
        came, begun = len(mock.replicas), mock.now
        later = await run(mock, one(), asyncio.sleep(3))
        again = mock.now
        await run(mock, one())
        assert mock.now - again < 60 * 1.2 * STEP_S < 3 <= again - begun  # nobody waits for the next look at the signal
        return (
            told,
            came,
            later[0],
            sum(replica.until_s > mock.now for replica in mock.replicas),
            mock.cluster.under_way,
        )

    assert virtually(play()) == ([60] * 8, 3, 60, 1, 0)
