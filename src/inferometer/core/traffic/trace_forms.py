"""The forms in which traces of requests come, each known by its content and never by its name.

Ours (`traces`); Mooncake's and Alibaba's JSON lines, which vLLM replays as timed traces (`timestamp`, `input_length`,
`output_length`, `hash_ids`, and Alibaba's `chat_id` and `parent_chat_id`); AIPerf's (the same with `session_id` and
`delay` in ms, or a session a line with `turns`); Weka's and OpenTelemetry's, which inference-perf replays; ShareGPT and
any JSON lines with `messages`, a `prompt` or a `question` and its answer; Azure's, BurstGPT's and our CSV. Any of them
may be packed with gzip. Rows of a Hugging Face dataset are such entries too.
"""

import csv
import io
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen

BLOCK_TOKENS = 512  # of Mooncake's hash_ids
_ALIBABA_TOKENS = 16  # of Alibaba's
_LETTERS = 4  # a token of English has about so many
KNOWN = (
    "Known: our JSON lines, Mooncake, Alibaba, AIPerf, Weka, OpenTelemetry, ShareGPT, JSON lines of messages; Azure, "
    "BurstGPT, or a CSV with arrival_s,input_tokens,output_tokens."
)

Fields = dict[str, Any]
TokenCount = Callable[[str], int]
_count: ContextVar[TokenCount | None] = ContextVar("_count", default=None)  # of texts, while a file is read
Lines = Iterator["TraceLine"]
Block = tuple[Hashable, int]


@frozen
class TraceLine:
    """A request as a file has it. `after` None: after the turn before it; `blocks` are (name, tokens) of its prompt."""

    session: Hashable
    turn: int = 0
    id: str | None = None
    at_s: float | None = None
    after: tuple[str, ...] | None = None
    wait_s: float = 0.0
    input_tokens: int
    output_tokens: int
    blocks: tuple[Block, ...] = ()
    messages: tuple[Fields, ...] = ()
    estimated: bool = False


@frozen
class _Columns:
    arrival: str
    input: str
    output: str
    form: str


_CSV = (
    _Columns(arrival="TIMESTAMP", input="ContextTokens", output="GeneratedTokens", form="Azure"),
    _Columns(arrival="Timestamp", input="Request tokens", output="Response tokens", form="BurstGPT"),
    _Columns(arrival="arrival_s", input="input_tokens", output="output_tokens", form="requests"),
)


def lines_of(path: Path, text: str, count: TokenCount | None = None) -> tuple[str, Lines]:
    """The form's name, and the requests in the order of the file. `count` counts the tokens of texts.

    A request is made when it is taken: a million of them are never there at once.
    """
    if text.lstrip()[:1] not in {"{", "["}:
        return _table(path, text)
    return lines_from(path, _objects(path, text), count)


def _objects(path: Path, text: str) -> Iterator[Any]:
    """The objects of JSON lines, or of one JSON document: a list, or one object."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        for number, line in enumerate(io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"), start=1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise FormatError(f"{path}, line {number}: {error}.", remedy=KNOWN) from None
    else:
        yield from whole if isinstance(whole, list) else [whole]


def lines_from(path: Path | str, objects: Iterable[Any], count: TokenCount | None = None) -> tuple[str, Lines]:
    """The same of entries that were read from somewhere."""
    entries = iter(objects)
    first = next(entries, None)
    if first is None:
        raise FormatError(f"{path} holds no request.", remedy=KNOWN)
    _require_entry(path, first)
    form, read = next(((form, read) for form, keys, read in _JSON if keys <= first.keys()), (None, None))
    if form is None or read is None:
        shown = ", ".join(sorted(first))[:80] or "nothing"
        raise FormatError(f"{path} is not a trace that is known: its first entry has {shown}.", remedy=KNOWN)
    return form, _lines(path, form, read, chain((first,), entries), count)


def _lines(
    path: Path | str,
    form: str,
    read: Callable[[Fields, int], Lines],
    entries: Iterable[Any],
    count: TokenCount | None,
) -> Lines:
    token = _count.set(count)
    try:
        for number, entry in enumerate(entries, start=1):
            _require_entry(path, entry)
            try:
                for line in read(entry, number):
                    hash(line.session)  # a list is no name
                    yield line
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                why = f"it has no {error}" if isinstance(error, KeyError) else error
                raise FormatError(f"{path}, entry {number} is not one of {form}: {why}.", remedy=KNOWN) from None
    finally:
        _count.reset(token)


def _require_entry(path: Path | str, entry: object) -> None:
    if not isinstance(entry, dict):
        raise FormatError(f"{path} holds something that is no request.", remedy=KNOWN)


# Our own, and those with a request a line


def _own(entry: Fields, number: int) -> Lines:
    messages = tuple(entry.get("messages") or ())
    counted = entry.get("input_tokens")
    if counted is None and not messages:
        raise KeyError("input_tokens")
    size = int(entry.get("block_tokens") or BLOCK_TOKENS)
    blocks = tuple((one[0], int(one[1])) if isinstance(one, list) else (one, size) for one in entry.get("blocks") or ())
    after = entry.get("after")
    if isinstance(after, str | int):
        after = [after]
    yield TraceLine(
        session=entry.get("session", f"line {number}"),
        turn=int(entry.get("turn") or 0),
        id=None if entry.get("id") is None else str(entry["id"]),
        at_s=None if entry.get("at_s") is None else float(entry["at_s"]),
        after=None if after is None else tuple(str(one) for one in after),
        wait_s=float(entry.get("wait_s") or 0.0),
        input_tokens=int(_prompt_tokens(messages) if counted is None else counted),
        output_tokens=int(entry["output_tokens"]),
        blocks=blocks or _message_blocks(messages),
        messages=messages,
        estimated=counted is None,
    )


def _mooncake(entry: Fields, number: int) -> Lines:
    """AIPerf adds `session_id`, and `delay` in ms after the answer to the turn before; its turns follow each other."""
    session = entry.get("session_id")
    messages = tuple(entry.get("messages") or ())
    text = entry.get("text_input")
    if text and not messages:
        messages = ({"role": "user", "content": text},)
    delay, has_length = entry.get("delay"), entry.get("input_length") is not None
    yield TraceLine(
        session=f"line {number}" if session is None else str(session),
        turn=number,  # what counts is the order
        at_s=None if entry.get("timestamp") is None else float(entry["timestamp"]) / 1e3,
        wait_s=0.0 if delay is None else float(delay) / 1e3,
        input_tokens=_prompt_tokens(messages) if messages and not has_length else int(entry["input_length"]),
        output_tokens=int(entry["output_length"]),
        blocks=_sized(entry.get("hash_ids") or (), BLOCK_TOKENS) or _message_blocks(messages),
        messages=messages,
        estimated=not has_length,
    )


def _alibaba(entry: Fields, _number: int) -> Lines:
    parent = entry["parent_chat_id"]
    yield TraceLine(
        session=entry["chat_id"],
        id=f"chat {entry['chat_id']}",
        at_s=float(entry["timestamp"]),
        after=() if parent in {-1, None, ""} else (f"chat {parent}",),
        input_tokens=int(entry["input_length"]),
        output_tokens=int(entry["output_length"]),
        blocks=_sized(entry.get("hash_ids") or (), _ALIBABA_TOKENS),
    )


# Those with a session a line


def _aiperf(entry: Fields, number: int) -> Lines:
    """AIPerf's multi-turn sessions: each turn has its own text, and the talk before it is the server's to hold."""
    session, said = str(entry.get("session_id", number)), list[Fields]()
    for turn, each in enumerate(entry["turns"]):
        text = each.get("text") or " ".join(each.get("texts") or ())
        said = [*said, {"role": each.get("role", "user"), "content": text}]
        yield TraceLine(
            session=session,
            turn=turn,
            at_s=None if each.get("timestamp") is None else float(each["timestamp"]) / 1e3,
            wait_s=float(each.get("delay") or 0.0) / 1e3,
            input_tokens=_prompt_tokens(said),
            output_tokens=int(each.get("output_length") or each["max_tokens"]),
            blocks=_message_blocks(said),
            messages=tuple(said),
            estimated=True,
        )


def _weka(entry: Fields, _number: int) -> Lines:
    """A session a line: its requests one after the other, and sub-agents, whose end the next request waits for."""
    session, size = str(entry["id"]), int(entry["block_size"])
    waits: list[str] = []
    last_s, turn = 0.0, 0
    for index, one in enumerate(entry["requests"]):
        if one["type"] == "subagent":
            name, begun = f"{session}#{index}", [f"{session}/{turn - 1}"] if turn else []
            for step, asked in enumerate(one["requests"]):
                yield _weka_line(asked, name, step, session, size, after=begun if not step else None)
            if one["requests"]:
                waits.append(f"{name}/{len(one['requests']) - 1}")
            continue
        line = _weka_line(one, session, turn, session, size, after=None)
        if turn:
            gap = float(one["t"]) - last_s if one.get("think_time") is None else float(one["think_time"])
            line = replace(line, after=(f"{session}/{turn - 1}", *waits), wait_s=max(0.0, gap))
        waits = []
        last_s = float(one["t"]) + float(one.get("api_time") or 0.0)
        turn += 1
        yield line


def _weka_line(  # noqa: PLR0913, PLR0917 - where it stands
    one: Fields, session: str, turn: int, owner: str, size: int, after: Sequence[str] | None
) -> TraceLine:
    return TraceLine(
        session=session,
        turn=turn,
        at_s=float(one["t"]) if not turn and session == owner else None,
        after=None if after is None else tuple(after),
        wait_s=float(one.get("think_time") or 0.0),
        input_tokens=int(one["in"]),
        output_tokens=int(one["out"]),
        blocks=_sized(((owner, name) for name in one.get("hash_ids") or ()), size),
    )


def _sized(names: Iterable[Hashable], tokens: int) -> tuple[Block, ...]:
    return tuple((name, tokens) for name in names)


def _otel(entry: Fields, number: int) -> Lines:
    """OpenTelemetry: the calls of a model in a trace. Each waits for the calls that had ended when it began."""
    spans = [
        (_attributes(span), span)
        for resource in entry.get("resourceSpans", [{"scopeSpans": [{"spans": entry.get("spans", [])}]}])
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    calls = sorted(
        ((float(span["startTimeUnixNano"]) / 1e9, float(span["endTimeUnixNano"]) / 1e9, known, span["traceId"])
         for known, span in spans if "gen_ai.usage.input_tokens" in known),
        key=lambda call: call[:2],
    )  # fmt: skip
    ended: dict[str, list[tuple[float, str]]] = {}
    for index, (start, end, known, session) in enumerate(calls):
        name = f"{number}:{index}"
        before = max((one for one in ended.get(session, []) if one[0] <= start), default=None)
        ended.setdefault(session, []).append((end, name))
        yield TraceLine(
            session=session,
            turn=index,
            id=name,
            at_s=start if before is None else None,
            after=() if before is None else (before[1],),
            wait_s=0.0 if before is None else start - before[0],
            input_tokens=int(known["gen_ai.usage.input_tokens"]),
            output_tokens=int(known["gen_ai.usage.output_tokens"]),
        )


def _attributes(span: Fields) -> Fields:
    given = span.get("attributes") or {}
    if isinstance(given, dict):
        return given
    return {one["key"]: next(iter(one["value"].values()), None) for one in given}


# Those with text


def _conversation(entry: Fields, number: int) -> Lines:
    """A whole talk: every answer in it is a request, with all that was said before."""
    said = entry.get("conversations") or entry.get("conversation") or entry["messages"]
    messages = [
        {"role": _ROLES.get(one["from"], one["from"]), "content": one["value"]} if "from" in one else one
        for one in said
    ]
    if "messages" in entry and messages and messages[-1].get("role") != "assistant":
        yield from _prompt(entry, number)  # it ends with what is asked: its answer is not there
        return
    turn = 0
    for index, one in enumerate(messages):
        if one.get("role") == "assistant" and index:
            yield TraceLine(
                session=str(entry.get("id", number)) + f" ({number})",
                turn=turn,
                input_tokens=_prompt_tokens(messages[:index]),
                output_tokens=_message_tokens(one),
                blocks=_message_blocks(messages[:index]),
                messages=tuple(messages[:index]),
                estimated=True,
            )
            turn += 1


_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bard": "assistant", "system": "system"}


def _prompt(entry: Fields, number: int) -> Lines:
    """A prompt of its own: `messages`, `prompt` and the like, with how long its answer is to be, or with the answer."""
    asked = entry.get("body") or entry  # of a batch file
    text = next((asked[name] for name in _ASKED if asked.get(name)), None)
    if text and asked.get("input") and "instruction" in asked:
        text = f"{text}\n\n{asked['input']}"
    messages = tuple(asked.get("messages") or ({"role": "user", "content": text},))
    names = ("output_tokens", "max_tokens", "max_completion_tokens", "output_length", "expected_output_len")
    output = next((entry.get(name) or asked.get(name) for name in names if entry.get(name) or asked.get(name)), None)
    answer = next((entry[name] for name in _ANSWERED if isinstance(entry.get(name), str)), None)
    if output is None and answer is None:
        raise ValueError("nothing says how long its answer is; add output_tokens")
    yield TraceLine(
        session=f"line {number}",
        at_s=None if entry.get("timestamp") is None else float(entry["timestamp"]) / 1e3,
        input_tokens=_prompt_tokens(messages),
        output_tokens=_tokens(answer or "") if output is None else int(output),
        blocks=_message_blocks(messages),
        messages=messages,
        estimated=True,
    )


_ASKED = ("prompt", "text", "question", "instruction")
_ANSWERED = ("response", "answer", "output", "completion")


def _text(message: Fields) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    calls = message.get("tool_calls")
    return (content or "") + (json.dumps(calls) if calls else "")


def _tokens(text: str) -> int:
    count = _count.get()
    return max(1, -(-len(text) // _LETTERS) if count is None else count(text))


def _message_tokens(message: Fields) -> int:
    return _tokens(_text(message))


def _prompt_tokens(messages: Sequence[Fields]) -> int:
    return sum(map(_message_tokens, messages))


def _message_blocks(messages: Sequence[Fields]) -> tuple[Block, ...]:
    """A piece a message, named by all that was said up to its end: so far two prompts are the same, or not."""
    said, blocks = 0, []
    for message in messages:
        said = hash((said, message.get("role"), _text(message)))
        blocks.append((said, _message_tokens(message)))
    return tuple(blocks)


_JSON = (
    ("Alibaba", {"chat_id", "parent_chat_id", "input_length"}, _alibaba),
    ("Weka", {"requests", "block_size"}, _weka),
    ("OpenTelemetry", {"resourceSpans"}, _otel),
    ("OpenTelemetry", {"spans"}, _otel),
    ("Mooncake", {"output_length", "timestamp"}, _mooncake),
    ("AIPerf", {"output_length", "session_id"}, _mooncake),
    ("AIPerf sessions", {"turns"}, _aiperf),
    ("ours", {"session", "output_tokens"}, _own),
    ("ours", {"at_s", "output_tokens"}, _own),
    ("ours", {"input_tokens", "output_tokens"}, _own),
    ("ShareGPT", {"conversations"}, _conversation),
    ("messages", {"messages"}, _conversation),
    ("messages", {"conversation"}, _conversation),
    ("prompts", {"body"}, _prompt),
    ("prompts", {"prompt"}, _prompt),
    ("prompts", {"text"}, _prompt),
    ("prompts", {"question"}, _prompt),
    ("prompts", {"instruction"}, _prompt),
)


# Tables


def _table(path: Path, text: str) -> tuple[str, Lines]:
    reader = _table_rows(path, text)
    names = next(reader, [])
    form = next((each for each in _CSV if {each.arrival, each.input, each.output} <= set(names)), None)
    if form is None and not text.strip():
        raise FormatError(f"{path} is empty.", remedy=KNOWN)
    if form is None:
        shown = ", ".join(sorted(names))[:80]
        shown = "".join(letter if letter.isprintable() else "?" for letter in shown)  # a terminal would obey it
        raise FormatError(f"{path} is not a trace that is known: its columns are {shown}.", remedy=KNOWN)
    return form.form, _rows(path, reader, [names.index(name) for name in (form.arrival, form.input, form.output)])


def _table_rows(path: Path, text: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8", newline=""))
    except csv.Error as error:
        raise FormatError(f"{path}: {error}.", remedy=KNOWN) from None


def _rows(path: Path, reader: Iterator[list[str]], columns: list[int]) -> Lines:
    arrival, inputs, outputs = columns
    for number, row in enumerate(filter(None, reader), start=2):
        try:
            line = TraceLine(
                session=number, at_s=_moment(row[arrival]), input_tokens=int(row[inputs] or 0),
                output_tokens=int(row[outputs] or 0),
            )  # fmt: skip
        except (ValueError, IndexError, OverflowError):
            raise FormatError(f"{path}, line {number}: it is not a time and two numbers of tokens.") from None
        yield line


def _moment(text: str) -> float:
    """Seconds, of a number of them or of a date with a time."""
    try:
        return float(text)
    except ValueError:
        head, _, fraction = text.strip().removesuffix("+00:00").partition(".")
        return datetime.fromisoformat(head).timestamp() + float(f"0.{fraction or 0}")
