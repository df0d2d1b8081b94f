"""The server's stream of chunks as events. A chunk may hold several tokens; the engine's own timings say how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError
from inferometer.engines.base import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """`made` tokens so far, in `made_s` since the first of them by the engine's clock; `read` of the prompt."""

    at_ns: int
    text: str = ""
    read: int = 0
    cached: int = 0
    read_s: float = 0.0
    made: int = 0
    made_s: float = 0.0
    error: str | None = None


def read_chunk(document: Mapping[str, Any], at_ns: int) -> Chunk:
    if "error" in document:
        error = document["error"]
        return Chunk(at_ns=at_ns, error=str(error.get("message", error) if isinstance(error, dict) else error))
    timings = document.get("timings") or {}
    choices = document.get("choices") or [{}]
    return Chunk(
        at_ns=at_ns,
        text=choices[0].get("text") or "",
        read=int(timings.get("prompt_n", 0)),
        cached=max(0, int(timings.get("cache_n", 0))),
        read_s=float(timings.get("prompt_ms", 0.0)) * 1e-3,
        made=int(timings.get("predicted_n", 0)),
        made_s=float(timings.get("predicted_ms", 0.0)) * 1e-3,
    )


def events_of(chunks: Iterable[Chunk], *, start_ns: int, prompt: int, depth: int) -> Iterator[Event]:
    """A prefill that ends with the first chunk, and a step for each further one that holds tokens.

    Where the first chunk holds more than one token, because a character takes several, the prefill ends with them all.
    """
    before: Chunk | None = None
    context, start = depth, start_ns
    for chunk in chunks:
        if before is None:
            if chunk.read != prompt or chunk.cached != depth:
                raise EngineError(
                    f"llama.cpp was to read {prompt} tokens with {depth} in the cache; it read {chunk.read} with "
                    f"{chunk.cached}.",
                    remedy="The model cannot keep a part of its cache: use a depth of 0, or the option api=direct.",
                )
            kind, tokens, engine_s = "prefill", prompt, chunk.read_s
        else:
            kind, tokens, engine_s = "token", chunk.made - before.made, chunk.made_s - before.made_s
        if tokens > 0:
            # the engine's clock and the arrival of chunks are not in step to the microsecond
            run_s = max(0.0, min(engine_s, (chunk.at_ns - start) * 1e-9))
            yield Event(
                kind="token" if kind == "token" else "prefill",
                start_ns=start,
                end_ns=chunk.at_ns,
                tokens=tokens,
                context=context,
                text=chunk.text,
                parts={"run": run_s},
            )
            context, start = context + tokens, chunk.at_ns
        before = chunk
