"""The load generator on one core: streamed requests a second, tokens a second, and how late requests leave.

A server in processes of its own sends every event of a stream in a write of its own, as real ones do. Figures are per
second of the client's CPU time (a core that is fully its own), since the server shares the machine. The same requests
are sent through aiohttp and httpx where they are installed, with the same work done for each event: the clock read, the
event's JSON decoded, its text counted. `--peer-python VENV/bin/python` adds GuideLLM and AIPerf, where they are
installed beside that interpreter (`load_peers.py`).
"""

import argparse
import asyncio
import importlib.util
import multiprocessing
import os
import socket
import statistics
import time
from contextlib import contextmanager

import load_peers
import msgspec
from figure import Figure

from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import closed_demand, open_demand
from inferometer.core.traffic.lengths import Lengths
from inferometer.serving.load.apis import Endpoint, parse_address
from inferometer.serving.load.local import Here
from inferometer.serving.load.loops import new_loop
from inferometer.serving.load.play import RoundPlan
from inferometer.serving.load.pool import Pool, Security
from inferometer.serving.load.prompts import PromptMaker
from inferometer.serving.load.run import level_of

TICK_S = 0.002  # a step of the scripted server: every stream gets a token in each
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1760000000,"model":"scripted",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}\n\n'
)
LAST = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":32,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
)


_LISTED = b'{"object":"list","data":[{"id":"scripted","object":"model"}]}'
MODELS = b"content-length: %d\r\n\r\n%b" % (len(_LISTED), _LISTED)


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Stream(asyncio.Protocol):
    """Answers every request with as many tokens as it asks for, one a tick."""

    streams: set = set()  # noqa: RUF012 - of the whole process: one timer serves them all

    def connection_made(self, transport):
        self.transport, self.buffer, self.left = transport, b"", 0

    def data_received(self, data):
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        if not head.startswith(b"POST"):  # what is served, and whether it is well
            self.buffer = b""
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + MODELS)
            return
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < size:
            return
        self.buffer = b""
        asked = msgspec.json.decode(body)
        self.total = self.left = asked.get("max_tokens") or asked.get("max_completion_tokens") or 16
        self.transport.write(HEAD + chunk(EVENT))
        self.left -= 1
        _Stream.streams.add(self)

    def connection_lost(self, error):  # noqa: ARG002 - asyncio's signature
        _Stream.streams.discard(self)

    def tick(self, event):
        if self.left > 0:
            self.transport.write(event)
            self.left -= 1
            return
        _Stream.streams.discard(self)
        self.transport.write(chunk(LAST % self.total) + b"0\r\n\r\n")


def serve(port, ready):
    async def run():
        loop = asyncio.get_running_loop()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        await loop.create_server(_Stream, sock=listener, backlog=4096)
        ready.set()
        event, due = chunk(EVENT), loop.time()
        while True:
            due = max(due + TICK_S, loop.time())
            await asyncio.sleep(due - loop.time())
            for stream in list(_Stream.streams):
                stream.tick(event)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


@contextmanager
def served(processes):
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    context = multiprocessing.get_context("spawn")
    events = [context.Event() for _ in range(processes)]
    servers = [context.Process(target=serve, args=(port, event), daemon=True) for event in events]
    for server in servers:
        server.start()
    for event in events:
        event.wait(30)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        for server in servers:
            server.terminate()
            server.join()


def fixed(tokens):
    return Lengths(kind="fixed", mean=tokens)


def ours(url, *, places, requests, tokens):
    async def run():
        endpoint = Endpoint(address=parse_address(url), api="chat", model="scripted")
        here = Here(endpoint=endpoint, maker=PromptMaker(), pool=Pool(endpoint.address, Security()))
        await here.play(RoundPlan(demand=closed_demand(fixed(32), fixed(4), count=places), concurrency=places))
        demand = closed_demand(fixed(32), fixed(tokens), count=requests, seed=1)
        cpu, wall = time.process_time(), time.perf_counter()
        rows = await here.play(RoundPlan(demand=demand, concurrency=places))
        if any(row.outcome != "ok" for row in rows.rows):
            raise RuntimeError("a request failed")
        return time.process_time() - cpu, time.perf_counter() - wall, requests * tokens / rows.arrivals

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


def delays(url, *, rate, seconds):
    """Send delays of Poisson arrivals, in seconds."""

    async def run():
        endpoint = Endpoint(address=parse_address(url), api="chat", model="scripted")
        here = Here(endpoint=endpoint, maker=PromptMaker(), pool=Pool(endpoint.address, Security()))
        await here.play(RoundPlan(demand=closed_demand(fixed(32), fixed(16), count=200), concurrency=50))
        demand = open_demand(Arrivals(rate_per_s=rate), fixed(32), fixed(16), duration_s=seconds, seed=2)
        return level_of("rate", [await here.play(RoundPlan(demand=demand))], rate_per_s=rate).client

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


BODY = {
    "model": "scripted", "messages": [{"role": "user", "content": "word " * 32}], "stream": True,
    "stream_options": {"include_usage": True},
}  # fmt: skip


async def _places(places, requests, one):
    queue = iter(range(requests))

    async def place():
        for _ in queue:
            await one()

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(place() for _ in range(places)))
    return time.process_time() - cpu, time.perf_counter() - wall


def _line(line, times):
    if line.startswith("data: {"):
        event = msgspec.json.decode(line[6:])
        if event["choices"] and event["choices"][0]["delta"].get("content"):
            times.append(time.perf_counter())


def with_httpx(url, *, places, requests, tokens):
    import httpx  # noqa: PLC0415 - a peer, where it is installed

    async def run():
        limits = httpx.Limits(max_connections=places, max_keepalive_connections=places)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:

            async def one():
                times = []
                async with client.stream(
                    "POST", f"{url}/v1/chat/completions", json={**BODY, "max_tokens": tokens}
                ) as answer:
                    async for line in answer.aiter_lines():
                        _line(line, times)
                if len(times) != tokens:
                    raise RuntimeError(f"{len(times)} tokens")

            return await _places(places, requests, one)

    return asyncio.run(run())


def with_aiohttp(url, *, places, requests, tokens):
    import aiohttp  # noqa: PLC0415 - as above

    async def run():
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=places)) as client:

            async def one():
                times = []
                async with client.post(f"{url}/v1/chat/completions", json={**BODY, "max_tokens": tokens}) as answer:
                    async for line in answer.content:
                        _line(line.decode(), times)
                if len(times) != tokens:
                    raise RuntimeError(f"{len(times)} tokens")

            return await _places(places, requests, one)

    return asyncio.run(run())


PEERS = {"httpx": with_httpx, "aiohttp": with_aiohttp}


def figures(peers=()):
    cores = os.cpu_count() or 2
    with served(max(1, min(6, cores - 1))) as url:
        short = {"places": 64, "requests": 3000, "tokens": 16}
        cpu, wall, held = ours(url, **short)
        rate, each = short["requests"] / cpu, f"{held:.2f} tokens a read"
        yield Figure(
            name="load: streamed requests of 16 tokens", value=rate, unit="requests/s of one core", target="≥ 1500",
            met=rate >= 1500, note=f"{short['requests'] / wall:.4g}/s of wall, {each}",
        )  # fmt: skip
        streams = {"places": 200, "requests": 1000, "tokens": 500}
        spent, lasted, held = ours(url, **streams)
        count = streams["requests"] * streams["tokens"]
        yield Figure(
            name="load: tokens of 200 streams", value=count / spent, unit="tokens/s of one core", target="≥ 100000",
            met=count / spent >= 100_000, note=f"{count / lasted:.4g}/s of wall, {held:.2f} tokens a read",
        )  # fmt: skip
        for name, client in PEERS.items():
            if importlib.util.find_spec(name) is not None:
                theirs = statistics.median(client(url, **{**short, "requests": 600})[0] for _ in range(3)) * 5
                yield Figure(
                    name=f"load: CPU of a request against {name}", value=cpu / theirs, unit="×", target="< 1",
                    met=cpu < theirs, note=f"{name}: {short['requests'] / theirs:.4g} requests/s of one core",
                )  # fmt: skip
        for python in peers:
            same = load_peers.CLOSED
            spent_s, wall_s, _ = ours(url, **same)
            yield Figure(
                name=f"load: ours, {same['places']} places", value=same["requests"] / wall_s, unit="requests/s of wall",
                target="", met=True,
                note=f"{same['requests'] * same['tokens'] / wall_s:.4g} tokens/s; {spent_s:.3g} s of CPU",
            )  # fmt: skip
            yield from load_peers.peer_figures(python, url, ours_per_s=same["requests"] / wall_s)
        for rate in (50, 500):
            client = delays(url, rate=rate, seconds=5)
            yield Figure(
                name=f"load: send delay p99 at {rate} requests/s", value=1e3 * client.send_delay_p99_s, unit="ms",
                target="≤ 1", met=client.send_delay_p99_s <= 1e-3, note=f"loop lag p99 {1e3 * client.lag_p99_s:.3g} ms",
            )  # fmt: skip


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--peer-python", action="append", default=[], metavar="VENV/bin/python")
    for figure in figures(options.parse_args().peer_python):
        print(figure, flush=True)
