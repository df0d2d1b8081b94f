"""One request and what came back: the moments its tokens arrived, its usage, or how it failed.

**Tokens in a chunk.** A server may put several tokens into one event, and one read may bring several events: what came
at the same moment is one arrival. How many tokens it held is known, best first, from a running count in every event
(vLLM's continuous usage, llama.cpp's timings), from the total where it equals the number of events, or by sharing the
total out by the length of the text; without any total, one an event is assumed, or a tokenizer on this machine counts
the text. Which it was is kept.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import msgspec

from inferometer.core.served import OK
from inferometer.serving.load.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.traffic.trace_forms import TokenCount
    from inferometer.serving.load.wire import Headers

_MOST_MESSAGE = 4_096
_SHOWN = 200

COUNTED_BY = (
    "counted in every event", "one an event", "shared out by the length of the text", "assumed one an event",
    "counted by a tokenizer on this machine",
)  # fmt: skip
_RUNNING, _ONE_EACH, _BY_TEXT, _ASSUMED, _HERE = range(5)


class SseReader:
    """Server-sent events, as they arrive in pieces of any size. Linear in their bytes, however small the pieces are.

    `feed` gives the data of every event that the new bytes complete.
    """

    __slots__ = ("_data", "_tail")

    def __init__(self) -> None:
        self._tail: list[bytes] = []  # of a line that has not ended: joined once, when it does
        self._data: list[bytes] = []  # the data lines of an event that has not ended

    def feed(self, piece: bytes) -> list[bytes]:
        if b"\n" not in piece:
            self._tail.append(piece)
            return []
        if self._tail:
            self._tail.append(piece)
            piece = b"".join(self._tail)
            self._tail.clear()
        lines = piece.split(b"\n")
        if rest := lines.pop():
            self._tail.append(rest)
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif data and (not line or line == b"\r"):
                events.append((data[0] if len(data) == 1 else b"\n".join(data)).rstrip(b"\r"))
                data.clear()
            # Comments (": ping") and the fields event, id and retry carry no tokens; unknown fields are to be ignored.
        return events

    def rest(self) -> bytes:
        """The rest at the end of a stream: an event without its blank line."""
        if self._tail:
            line = b"".join(self._tail)
            if line[:5] == b"data:":
                self._data.append(line[5:].strip())
        return b"\n".join(self._data).rstrip(b"\r")


_NOTHING = msgspec.Raw(b"null")
_ABSENT = frozenset({b"", b"null", b"[]"})


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw = _NOTHING


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Timings(msgspec.Struct):
    predicted_n: int | None = None


class Event(msgspec.Struct):
    choices: list[_Choice] = msgspec.field(default_factory=list)
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: msgspec.Raw = _NOTHING
    type: Any = None
    delta: Any = None  # of a transcription, as OpenAI streams it: a text
    text: Any = None  # … and as one answer


_DECODER = msgspec.json.Decoder(Event)


SPOKEN, THOUGHT, CALLED = range(3)


def text_of(choice: _Choice) -> tuple[str, int]:
    """What an event brings, and what of it that is; thoughts and calls of tools are tokens too."""
    if choice.text is not None:
        return choice.text, SPOKEN
    said = choice.message or choice.delta
    if said is None:
        return "", SPOKEN
    if said.content:
        return said.content, SPOKEN
    if thought := said.reasoning_content or said.reasoning:
        return thought, THOUGHT
    calls = b"" if said.tool_calls is _NOTHING else bytes(said.tool_calls)
    return ("", SPOKEN) if calls in _ABSENT else (calls.decode(errors="replace"), CALLED)


class Answer:
    """An exchange that fills in one row of the result. `over` is called once, when it is done or has failed."""

    __slots__ = (
        "_body",
        "_each",
        "_is_opaque",
        "_sse",
        "_status",
        "_stream",
        "asked_output",
        "counts",
        "due",
        "events",
        "finished",
        "first",
        "index",
        "input_tokens",
        "last",
        "message",
        "outcome",
        "output_tokens",
        "over",
        "retry_after",
        "running",
        "sent",
        "shown",
        "text",
        "times",
        "tokens",
        "wants_text",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - what it is to be read as
        self,
        index: int,
        due: float,
        *,
        stream: bool,
        asked_output: int,
        wants_text: bool = False,
        is_opaque: bool = False,
    ) -> None:
        self.index, self.due, self._stream, self.asked_output = index, due, stream, asked_output
        self._is_opaque = is_opaque  # the answer of an endpoint that nothing is known of: its end is all that counts
        self.wants_text, self.text = wants_text, ""
        self.shown = [0, 0, 0]  # letters of the answer itself, of thoughts, of calls of tools
        self.sent: float | None = None
        self.first: float | None = None
        self.last: float | None = None
        self.outcome: str | None = None
        self.message: str | None = None
        self.retry_after: float | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.events = 0
        self.running = 0  # the server's own count of tokens so far
        self.finished = False
        self.times = array("d")  # when something arrived
        self.counts = array("q")  # … and how many tokens, or characters, that was
        self._each = array("q")  # … in how many events
        self.tokens: int | None = None  # which way of counting it was: an index of COUNTED_BY
        self.over: Callable[[Answer], None] | None = None
        self._sse = SseReader()
        self._body: list[bytes] = []
        self._status = 0

    @property
    def has_begun(self) -> bool:
        """Whether anything of it has arrived."""
        return self._status > 0

    # The exchange

    def on_head(self, status: int, headers: Headers, now: float) -> None:  # noqa: ARG002 - the exchange's signature
        self._status = status
        if headers.get(b"content-encoding", b"identity") not in {b"identity", b""}:
            raise Fault("encoding", f"the answer came as {headers[b'content-encoding'].decode(errors='replace')}")
        if 300 <= status < 400:
            where = headers.get(b"location", b"elsewhere").decode(errors="replace")
            raise Fault("redirect", f"HTTP {status} to {where[:_SHOWN]}")
        self.retry_after = _seconds(headers.get(b"retry-after"))
        streamed = headers.get(b"content-type", b"").partition(b";")[0].strip() == b"text/event-stream"
        if self._stream and status < 300 and not streamed:
            raise Fault("not_streamed", "a stream was asked for, and the answer is no text/event-stream")

    def on_body(self, data: bytes, now: float) -> None:
        if not self._stream or self._status >= 300:
            if self.first is None:
                self.first = now
            self._body.append(data)
            return
        held, events = 0, self.events
        for event in self._sse.feed(data):
            if event == b"[DONE]":
                self.finished = True
            else:
                held += self._event(event)
        if held:
            if self.first is None:
                self.first = now
            self.last = now
            self.times.append(now)
            self.counts.append(held)
            self._each.append(self.events - events)

    def _event(self, data: bytes) -> int:
        """How much it brought: tokens where the server counts them in every event, else characters of text."""
        try:
            event = _DECODER.decode(data)
        except msgspec.DecodeError as error:
            raise Fault("malformed", f"an event that is no JSON of an answer ({error}): {data[:60]!r}") from None
        _require_no_error(event)
        held = 0
        for choice in event.choices:
            if choice.finish_reason is not None:
                self.finished = True
            text, kind = text_of(choice)
            if text:
                held += len(text)
                self.shown[kind] += len(text)
                if self.wants_text:
                    self.text += text
        if isinstance(event.delta, str) and not event.choices:
            held = len(event.delta)
            self.shown[SPOKEN] += held
            if self.wants_text:
                self.text += event.delta
        if event.type == "transcript.text.done":
            self.finished = True
        self.events += held > 0
        return self._counted(event, held)

    def _counted(self, event: Event, held: int) -> int:
        usage = event.usage
        if usage is not None and usage.prompt_tokens is not None:
            self.input_tokens = usage.prompt_tokens
            self.output_tokens = usage.completion_tokens
        count = usage.completion_tokens if usage is not None else None
        if count is None and event.timings is not None:
            count = event.timings.predicted_n
        if count is None or (not event.choices and self.tokens is None):
            return held  # a total at the end, when no event before it had one, is a total only
        if self.tokens is None and self.times:
            return held  # it began to count in the middle: not a running count
        self.tokens = _RUNNING
        new, self.running = count - self.running, max(count, self.running)
        return max(new, 0)

    def on_end(self, now: float) -> None:
        try:
            self._end(now)
        except Fault as fault:
            self.on_fault(fault, now)
        else:
            self._over(OK)

    def _end(self, now: float) -> None:
        if self._status >= 300:
            raise _refusal(self._status, b"".join(self._body)[:_MOST_MESSAGE])
        if not self._stream:
            self._whole(b"".join(self._body), now)
            return
        rest = self._sse.rest()
        if rest == b"[DONE]":
            self.finished = True
        if not self.finished:
            raise Fault("closed_early", "the stream ended without [DONE] or a reason to finish")
        self._share_out()

    def _whole(self, body: bytes, now: float) -> None:
        """An answer in one piece: its tokens arrive with its end, and a first token is not known."""
        self.first, self.last = None, now
        if self._is_opaque:
            return
        try:
            event = _DECODER.decode(body)
        except msgspec.DecodeError as error:
            raise Fault("malformed", f"an answer that is no JSON ({error}): {body[:60]!r}") from None
        _require_no_error(event)
        if event.usage is not None:
            self.input_tokens, self.output_tokens = event.usage.prompt_tokens, event.usage.completion_tokens
        said = event.text if isinstance(event.text, str) else ""  # a transcription, which has no choices
        self.text, kind = text_of(event.choices[0]) if event.choices else (said, SPOKEN)
        self.shown[kind] += len(self.text)
        if self.asked_output and event.choices and not self.text and not self.output_tokens:
            raise Fault("empty", "the answer held no token")

    def _share_out(self) -> None:
        """Make every count one of tokens, and know their total."""
        if not self.times:
            raise Fault("empty", "the stream held no token")
        if self.tokens == _RUNNING:
            self.output_tokens = self.output_tokens or self.running
            return
        total = self.output_tokens
        if total is None or total == self.events:
            self.tokens = _ASSUMED if total is None else _ONE_EACH
            self.output_tokens, self.counts = self.events, self._each
        else:
            self.tokens = _BY_TEXT
            self.counts = array("q", _shares(self.counts, total))

    def count_here(self, count: TokenCount) -> None:
        """Count the tokens of its text, where the server did not."""
        if self.text and (self.tokens == _ASSUMED or self.output_tokens is None):
            self.output_tokens, self.tokens = max(1, count(self.text)), _HERE
            self.counts = array("q", _shares(self.counts, self.output_tokens))

    def on_fault(self, fault: Fault, now: float) -> None:
        self.message, self.last = fault.message, now
        self._over(fault.kind)

    def _over(self, outcome: str) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self._body = []
            if self.over is not None:
                self.over(self)


def _require_no_error(event: Event) -> None:
    if event.error is not _NOTHING and bytes(event.error) not in _ABSENT:
        raise Fault("server_error", _sentence(bytes(event.error)))


def _shares(weights: Any, total: int) -> list[int]:
    """A total split in proportion to weights, in whole numbers that add up to it."""
    whole, reached, shares, given = sum(weights), 0, [], 0
    for weight in weights:
        reached += weight
        until = round(total * reached / whole)
        shares.append(until - given)
        given = until
    return shares


def _seconds(value: bytes | None) -> float | None:
    """Retry-After in seconds; a date there says less than a client can use and is left out."""
    try:
        return None if value is None else max(0.0, float(value))
    except ValueError:
        return None


def _refusal(status: int, body: bytes) -> Fault:
    message = _sentence(body)
    is_model = "model" in message.lower() and any(
        word in message.lower()
        for word in ("does not exist", "not found", "unknown", "not served", "no such", "invalid model")
    )
    if status in {400, 404} and is_model:
        return Fault("unknown_model", message)
    return Fault(f"http_{status}", message or f"HTTP {status}")


def _sentence(data: bytes) -> str:
    """The message in an error's JSON, or its text."""
    try:
        plain: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        plain = data.decode(errors="replace")
    while isinstance(plain, dict):
        plain = next((plain[key] for key in ("error", "message", "detail") if key in plain), str(plain))
    return str(plain).strip()[:_SHOWN]
