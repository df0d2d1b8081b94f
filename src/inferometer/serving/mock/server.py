"""OpenAI's interface over a `MockEngine`: chat, completions, embeddings, rerank, models, health, vLLM's metrics."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from contextlib import suppress
from math import hypot
from random import Random
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from inferometer.serving.load.prompts import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.serving.mock.engine import Answering, MockEngine
    from inferometer.serving.simulate.cache import Piece

_MOST_BYTES = 64_000_000  # of a request's body
_SOUND = 25  # tokens of a second that is heard: 40 ms a token, as Qwen2-Audio has it (arXiv:2407.10759)
_MOST_SOUND_S = 7200  # a header may claim one byte a second
_SPOKEN = 3  # words of a second that are written down: speech has two to three
_WORDS = 16  # of a piece of a prompt, whose words are tokens: vLLM's blocks have as many
_MOST_TOKENS = 1 << 20  # of an answer: as many as the longest contexts have
_MOST_ANSWERS = 128  # to one prompt
_USUAL_TOKENS = 16  # of an answer whose length nobody said, as OpenAI's completions have it
_END = b"\r\n\r\n"  # of a request's head
_POOLED = {"/v1/embeddings", "/v1/rerank", "/v2/rerank", "/rerank"}
_WIDTH, _MOST_WIDTH, _MOST_TEXTS = 1024, 65_536, 2048  # of an embedding; texts of a request, as OpenAI takes
_MOST_NUMBERS = 1 << 22  # of an answer's embeddings: a hundred megabytes as text
_STATUS = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable", 504: "Gateway Timeout"}
_REFUSALS = {"too_long": 400, "queue_full": 503, "timeout": 504}


class MockServer:
    """Serves one model. A word counts as a token, so that usage and prompts of `inferometer load` agree.

    The next turn of a chat finds the answer of the last one in the cache, if it sends back what it was told. Adapters
    are models of their own, lora-0 and so on. A `priority` goes before higher ones, where there are priorities.
    """

    def __init__(self, engine: MockEngine, model: str, adapters: int = 0) -> None:
        self._engine, self._model = engine, model
        self._adapters = {f"lora-{number}": number for number in range(adapters)}

    async def serve(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._connected, host, port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                head: bytes | None = await reader.readuntil(_END)
                while head is not None:
                    head = await self._one(head, reader, writer)
            except ValueError as error:  # a first line or a length that HTTP does not have
                await _plain(writer, 400, _error(f"The request cannot be read: {error}."))
        writer.close()

    async def _one(self, begin: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """Answer one request; the head of the next one, where the connection is kept.

        The next one is listened for meanwhile: whoever asked may go away, and then nothing is made for nobody.
        """
        head = begin.decode("latin-1").split("\r\n")
        method, path, *_ = head[0].split(" ")
        path = urlsplit(path).path  # without what is asked, and without the host that a proxy leaves in
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        length = int(headers.get("content-length") or 0)
        if length > _MOST_BYTES:
            await _plain(writer, 400, _error(f"The request has {length:,} bytes; {_MOST_BYTES:,} are taken."))
            return None
        body = await reader.readexactly(length) if length else b""
        answer = asyncio.create_task(self._answered(writer, method, path, headers, body))
        following = asyncio.create_task(reader.readuntil(_END))
        try:
            await asyncio.wait({answer, following}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and following.exception() is not None:
                raise ConnectionResetError
            await answer
            return await following if headers.get("connection", "").lower() != "close" else None
        finally:
            for task in (answer, following):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _answered(
        self, writer: asyncio.StreamWriter, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        if method == "POST" and path in {"/v1/chat/completions", "/v1/completions"}:
            await self._complete(writer, body, is_chat="chat" in path)
        elif method == "POST" and path in _POOLED:
            await self._pooled(writer, body, is_rerank="rerank" in path)
        elif method == "POST" and path == "/v1/audio/transcriptions":
            await self._transcribe(writer, body, headers.get("content-type", ""))
        elif path == "/v1/models":
            entry = {"id": self._model, "object": "model", "owned_by": "inferometer"}
            adapters = [{**entry, "id": name, "parent": self._model} for name in self._adapters]
            await _plain(writer, 200, {"object": "list", "data": [entry, *adapters]})
        elif path in {"/health", "/ping"}:
            await _plain(writer, 200, {})
        elif path == "/metrics":
            lines = "".join(
                f'{name}{{model_name="{self._model}"}} {value}\n' for name, value in self._engine.metrics().items()
            )
            await _plain(writer, 200, lines, kind="text/plain; version=0.0.4")
        else:
            await _plain(writer, 404, _error(f"There is no {method} {path}."))

    async def _complete(self, writer: asyncio.StreamWriter, body: bytes, *, is_chat: bool) -> None:
        try:
            asked = json.loads(body)
            said = _said(asked, is_chat=is_chat)
            output = _asked_tokens(asked)
            answers = _answers(asked, output)
            priority = self._priority(asked)
            images = _images(asked) if is_chat and self._engine.limits.encoder is not None else ()
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error) as error:
            await _plain(writer, 400, _error(f"The request cannot be read: {error}."))
            return
        model = asked.get("model")
        if model not in (None, self._model, *self._adapters):  # a list is no key of a set
            known = ", ".join((self._model, *self._adapters))
            await _plain(writer, 404, _error(f"The model {model!r} does not exist; there is {known}."))
            return
        pieces = (*self._seen(images), *_pieces(said))
        if model in self._adapters:  # what one adapter has made of a prompt is no other's
            pieces = tuple(((model, name), size) for name, size in pieces)
        answerings = [
            self._engine.ask(
                max(1, sum(size for _, size in pieces)), output, pieces, images=images, priority=priority,
                adapter=self._adapters.get(model, -1),
            )
            for _ in range(answers)
        ]  # fmt: skip
        if is_chat and not images and model not in self._adapters:
            for answering in answerings:  # the next turn has it between two messages; a prompt of one text goes on in
                told = _words(answering, 0, answering.output_tokens)  # the middle of a piece
                answering.request.answer = _pieces([*said, ("assistant", told)])[len(pieces) :]
        await self._answer(writer, answerings, asked, is_chat=is_chat)

    def _priority(self, asked: Mapping[str, Any]) -> int:
        priority = int(asked.get("priority") or 0)
        if priority and not self._engine.limits.by_priority:
            raise ValueError("it has a priority, and the server was started without --priorities")
        return priority

    def _seen(self, images: tuple[int, ...]) -> tuple[Piece, ...]:
        """What the encoder makes of images. They stand before the words, wherever a message has them."""
        encoder = self._engine.limits.encoder
        return () if encoder is None else tuple((("image", one), encoder.image_tokens) for one in images)

    async def _pooled(self, writer: asyncio.StreamWriter, body: bytes, *, is_rerank: bool) -> None:
        """Embeddings, or how far documents answer a query: each text is read, and nothing is written."""
        try:
            asked = json.loads(body)
            texts = _documents(asked) if is_rerank else _inputs(asked["input"])
            width = int(asked.get("dimensions") or _WIDTH)
            _require_sizes(width, len(texts))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            await _plain(writer, 400, _error(f"The request cannot be read: {error}."))
            return
        if asked.get("model") not in (None, self._model):
            await _plain(writer, 404, _error(f"The model {asked['model']!r} does not exist; there is {self._model}."))
            return
        query = [("query", str(asked["query"]))] if is_rerank else []
        answerings = []
        for text in texts:
            pieces = _pieces([*query, ("text", text)])
            answerings.append(self._engine.ask(max(1, sum(size for _, size in pieces)), 1, pieces))
            answerings[-1].written = 0
        try:
            for answering in answerings:
                async for _ in answering.tokens():
                    pass
        finally:
            for answering in answerings:
                self._engine.drop(answering)
        refused = next((one.refused for one in answerings if one.refused is not None), None)
        if refused is not None:
            await _plain(writer, _REFUSALS.get(refused, 503), _error(f"The request was refused: {refused}."))
            return
        read = sum(one.request.input_tokens for one in answerings)
        usage = {"prompt_tokens": read, "total_tokens": read}
        if is_rerank:
            ranked = _ranked(str(asked["query"]), texts)[: asked.get("top_n") or None]
            await _plain(writer, 200, {"id": "mock", "model": self._model, "usage": usage, "results": ranked})
            return
        is_packed = asked.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": index, "embedding": _embedding(text, width, is_packed=is_packed)}
            for index, text in enumerate(texts)
        ]
        await _plain(writer, 200, {"object": "list", "data": data, "model": self._model, "usage": usage})

    async def _transcribe(self, writer: asyncio.StreamWriter, body: bytes, kind: str) -> None:
        """What is said in a file, as vLLM answers: a stream of chunks with choices, or a text."""
        try:
            fields = _form_fields(body, kind)
            seconds = _wav_seconds(fields["file"])
            asked = {"stream": fields.get("stream") == b"true", "transcribed": True}
            model = fields["model"].decode()
        except (ValueError, KeyError, struct.error) as error:
            await _plain(writer, 400, _error(f"The request cannot be read: {error}."))
            return
        if model != self._model:
            await _plain(writer, 404, _error(f"The model {model!r} does not exist; {self._model} does."))
            return
        answering = self._engine.ask(max(1, round(_SOUND * seconds)), max(1, round(_SPOKEN * seconds)))
        await self._answer(writer, [answering], asked, is_chat=True)

    async def _answer(
        self, writer: asyncio.StreamWriter, answerings: list[Answering], asked: Mapping[str, Any], *, is_chat: bool
    ) -> None:
        """The tokens as they come, in a stream; or all of them at once, when the last is there."""
        options, is_streamed = asked.get("stream_options") or {}, bool(asked.get("stream"))
        words: list[list[str]] = [[] for _ in answerings]
        made = [0] * len(answerings)

        async def tell(index: int, answering: Answering) -> None:
            async for more in answering.tokens():
                if is_streamed and not any(made):
                    writer.write(_HEAD)
                words[index].append(_words(answering, made[index], more))
                made[index] += more
                if is_streamed:
                    usage = _usage(answering, made[index]) if options.get("continuous_usage_stats") else None
                    writer.write(_event(self._piece(words[index][-1], None, usage, index, is_chat=is_chat)))
                    await writer.drain()
                    if writer.is_closing():
                        raise ConnectionResetError
            if is_streamed and any(made):
                writer.write(_event(self._piece("", _finish(answering), None, index, is_chat=is_chat)))

        try:
            async with asyncio.TaskGroup() as tasks:
                for index, answering in enumerate(answerings):
                    tasks.create_task(tell(index, answering))
        except* ConnectionError:
            raise ConnectionResetError from None
        finally:
            for answering in answerings:
                self._engine.drop(answering)  # where whoever asked has gone: what has ended is known no more
        refused = next((one.refused for one in answerings if one.refused is not None), None)
        usage = _usage(answerings[0], sum(made))
        if refused is not None and not any(made):
            await _plain(writer, _REFUSALS.get(refused, 503), _error(f"The request was refused: {refused}."))
        elif is_streamed:
            if options.get("include_usage"):
                writer.write(_event({**self._piece("", None, usage, 0, is_chat=is_chat), "choices": []}))
            writer.write(_chunk(b"data: [DONE]\n\n") + _chunk(b""))
            await writer.drain()
        elif asked.get("transcribed"):
            await _plain(writer, 200, {"text": "".join(words[0]).strip(), "usage": usage})
        else:
            choices = [
                {"index": index, "finish_reason": _finish(answering), **_whole("".join(words[index]), is_chat=is_chat)}
                for index, answering in enumerate(answerings)
            ]
            await _plain(writer, 200, {**self._named(is_chat=is_chat), "choices": choices, "usage": usage})

    def _piece(self, text: str, finish: str | None, usage: object, index: int, *, is_chat: bool) -> dict[str, Any]:
        what = {"delta": {"content": text} if text else {}} if is_chat else {"text": text}
        told = {} if usage is None else {"usage": usage}
        named = self._named(is_chat=is_chat)
        if is_chat:
            named["object"] = "chat.completion.chunk"  # by which clients tell a piece of a stream from a whole answer
        return {**named, "choices": [{"index": index, "finish_reason": finish, **what}], **told}

    def _named(self, *, is_chat: bool) -> dict[str, Any]:
        kind = "chat.completion" if is_chat else "text_completion"
        return {"id": "mock", "object": kind, "created": int(time()), "model": self._model}


def _finish(answering: Answering) -> str:
    """Why an answer ends, as vLLM says it; what was dropped on the way is no whole answer."""
    return "length" if answering.refused is None else "abort"


def _whole(text: str, *, is_chat: bool) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}


def _answers(asked: Mapping[str, Any], tokens: int) -> int:
    """Answers to one prompt; together they have no more tokens than one may have."""
    answers, most = int(asked.get("n") or 1), min(_MOST_ANSWERS, _MOST_TOKENS // tokens)
    if not 1 <= answers <= most:
        raise ValueError(f"n is 1 to {most} with {tokens:,} tokens each")
    return answers


def _images(asked: Mapping[str, Any]) -> tuple[int, ...]:
    """The images of a chat, each by its address or its bytes."""
    contents = [one.get("content") for one in asked["messages"]]
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    return tuple(hash(json.dumps(part.get("image_url"))) for part in parts if part.get("type") == "image_url")


def _asked_tokens(asked: Mapping[str, Any]) -> int:
    """Tokens of the answer. Its words are made before they are sent, so there is a most."""
    given = (asked.get("max_tokens"), asked.get("max_completion_tokens"), _USUAL_TOKENS)
    tokens = int(next(value for value in given if value is not None))
    if not 1 <= tokens <= _MOST_TOKENS:
        raise ValueError(f"max_tokens is 1 to {_MOST_TOKENS:,}")
    return tokens


def _said(asked: Mapping[str, Any], *, is_chat: bool) -> list[tuple[str, str]]:
    """Who said what, in order. Sound counts by its length, as words of a name that its bytes have."""
    if is_chat:
        return [(str(one["role"]), _text(one.get("content"))) for one in asked["messages"]]
    prompt = asked["prompt"]
    return [("prompt", prompt if isinstance(prompt, str) else " ".join(map(str, prompt)))]


def _require_sizes(width: int, texts: int) -> None:
    if not 1 <= width <= _MOST_WIDTH or not 1 <= texts <= _MOST_TEXTS or texts * width > _MOST_NUMBERS:
        raise ValueError(
            f"dimensions are 1 to {_MOST_WIDTH:,}, texts 1 to {_MOST_TEXTS:,}, and {_MOST_NUMBERS:,} numbers together"
        )


def _inputs(given: Any) -> list[str]:
    """The texts of an embeddings request: one or several, as words or as the numbers of tokens."""
    if isinstance(given, str):
        return [given]
    if given and isinstance(given[0], int):
        given = [given]
    return [one if isinstance(one, str) else " ".join(map(str, one)) for one in given]


def _documents(asked: Mapping[str, Any]) -> list[str]:
    if not isinstance(asked["query"], str):
        raise TypeError("the query is no text")
    return [str(one["text"] if isinstance(one, dict) else one) for one in asked["documents"]]


def _ranked(query: str, texts: list[str]) -> list[dict[str, Any]]:
    """By the share of the query's words that a document has."""
    words = set(query.split())
    scores = [len(words & set(text.split())) / max(1, len(words)) for text in texts]
    order = sorted(range(len(texts)), key=lambda index: -scores[index])
    return [{"index": at, "document": {"text": texts[at]}, "relevance_score": scores[at]} for at in order]


def _embedding(text: str, width: int, *, is_packed: bool) -> list[float] | str:
    """Numbers without meaning, of length 1: equal texts have equal ones."""
    drawn = Random(text)  # noqa: S311 - no secret
    values = [drawn.gauss(0, 1) for _ in range(width)]
    length = hypot(*values)
    values = [value / length for value in values]
    return base64.b64encode(struct.pack(f"<{width}f", *values)).decode() if is_packed else values


def _text(content: object) -> str:
    if isinstance(content, list):
        return " ".join(_sound(part) or str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _sound(part: Mapping[str, Any]) -> str:
    if part.get("type") != "input_audio":
        return ""
    data = base64.b64decode(part["input_audio"]["data"])
    return " ".join([f"sound-{hash(data)}"] * max(1, round(_SOUND * _wav_seconds(data))))


def _wav_seconds(data: bytes) -> float:
    """Of a WAV file, by its header; of anything else by 128 kbit/s. Each second becomes words, so there is a most."""
    size, rate = len(data), 128e3 / 8
    if data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt ":
        size, rate = max(0, size - 44), float(struct.unpack_from("<I", data, 28)[0])
    if size > _MOST_SOUND_S * rate:
        raise ValueError(f"more than {_MOST_SOUND_S} s of sound")
    return size / rate if rate else 0.0


def _form_fields(body: bytes, kind: str) -> dict[str, bytes]:
    """The parts of a form, by their names."""
    boundary = kind.partition("boundary=")[2].strip('"').encode()
    if not boundary:
        raise ValueError("a form without a boundary")
    fields = {}
    for part in body.split(b"--" + boundary)[1:-1]:
        head, _, value = part.partition(b"\r\n\r\n")
        name = head.partition(b'name="')[2].partition(b'"')[0]
        fields[name.decode()] = value.removesuffix(b"\r\n")
    return fields


def _pieces(said: list[tuple[str, str]]) -> tuple[Piece, ...]:
    """A few words each, named by all that was said up to their end: prompts that begin alike share those, not more."""
    pieces, before = [], 0
    for role, text in said:
        words, before = text.split() or [""], hash((before, role))
        for at in range(0, len(words), _WORDS):
            piece = words[at : at + _WORDS]
            before = hash((before, *piece))
            pieces.append((before, len(piece)))
    return tuple(pieces)


def _words(answering: Answering, begin: int, count: int) -> str:
    """Words of an answer, each of them a token: another request's begin elsewhere."""
    first = answering.request.number + begin
    return "".join(f" {WORDS[at % len(WORDS)]}" for at in range(first, first + count))


def _usage(answering: Answering, made: int) -> dict[str, Any]:
    prompt, found = answering.request.input_tokens, getattr(answering.request, "found", 0)
    counted = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
    # As vLLM with --enable-prompt-tokens-details, which says nothing of prompts that were not cached.
    return {**counted, "prompt_tokens_details": {"cached_tokens": found}} if found else counted


_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def _event(document: Mapping[str, Any]) -> bytes:
    return _chunk(b"data: " + json.dumps(document).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


async def _plain(
    writer: asyncio.StreamWriter, status: int, document: object, *, kind: str = "application/json"
) -> None:
    body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
    head = f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
