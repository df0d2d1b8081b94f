"""A request to a model: filled in where it is left open, refused where the model cannot do it, and cut into steps.

A decoder that reads the prompt itself has it in its own cache. Where an encoder reads it, the prompt lies in the cache
of cross-attention, which every step reads and none makes longer; the decoder's own cache begins with a start token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.dims import evaluate
from inferometer.core.errors import DomainError
from inferometer.core.graph import Graph, is_generative, takes_prompt
from inferometer.core.sizes import PROMPT, default_prompt, require_sizes
from inferometer.known.engines import known_engine, require_effects

if TYPE_CHECKING:
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.workload import Workload
    from inferometer.predict.options import Options

GENERATE = 128  # where nothing is asked for: the default of llama-bench
STRETCHED = 4  # windows that a serving engine may be told to go on for, as YaRN stretches them


def encodes_prompt(graph: Graph) -> bool:
    """Whether an encoder reads the prompt, and the decoder starts with nothing of its own (T5, not Whisper)."""
    return "encoder" in graph.metadata.get("default_sizes", {}) and is_generative(graph)


def goes_beyond(runtime: RuntimeEffects | str) -> bool:
    """Whether an engine answers beyond a model's window, with a warning: serving engines have an option for it."""
    engine = known_engine(require_effects(runtime).name)
    return engine is not None and engine.serving is not None


def completed(graph: Graph, workload: Workload, options: Options, *, beyond: bool = False) -> Workload:
    """The workload with what it leaves open filled in, refused where the model cannot do it.

    With `beyond` some times more tokens than the model's window are let through: a serving engine may be told to go on,
    and `window_notes` says what that means. The last token that is written takes no room: nothing reads it.
    """
    limit = graph.context_limit
    _require_batch(graph, workload.batch)
    if not is_generative(graph):
        if takes_prompt(graph) and workload.prompt is None and "query" not in options.sizes:
            workload = replace(workload, prompt=default_prompt(graph))
            if workload.prompt is None:
                require_sizes(graph, graph.symbols - {"query"})
        _require_window(graph, workload.prompt or 0, "the prompt")
        return workload
    if workload.context is None and workload.prompt is None:
        listens = "frames" in graph.metadata.get("default_sizes", {})
        words = min(PROMPT, max(1, (limit or 2 * PROMPT) // 2))
        seen = image_tokens(graph, workload.image)
        workload = replace(workload, prompt=1 if listens else words if seen < words else seen + words)
    _require_room_for_image(graph, workload)
    own = 0 if encodes_prompt(graph) else workload.prompt or 0
    if workload.context is None and workload.generate is None:
        room = GENERATE if limit is None else limit - own
        workload = replace(workload, generate=max(1, min(GENERATE, room)))
    times = STRETCHED if beyond else 1
    if workload.context is not None:
        _require_window(graph, workload.context, "the context", times)
    if own:
        _require_window(graph, own + max(0, (workload.generate or 0) - 1), "prompt and generation", times)
        if options.cached_prefix >= own:
            raise DomainError(
                f"{options.cached_prefix} cached tokens leave nothing of a prompt of {own} to read.",
                remedy="At least the last token of a prompt is read.",
            )
    _require_tokens(workload, options)
    return workload


def _require_batch(graph: Graph, batch: int) -> None:
    """A graph that was traced with a batch has no other: more of them would be answered as one."""
    if batch == 1 or "batch" in graph.symbols:
        return
    if batch != fixed_batch(graph):
        raise DomainError(
            f"The batch of {graph.name} is fixed, so a batch of {batch} would be answered as the one it was made with.",
            remedy="Leave --batch out, and count its passes one after the other.",
        )


def fixed_batch(graph: Graph) -> int:
    """The batch of a graph in which it is no size that could be set: the first side of its inputs."""
    sides = [tensor.shape[0] for tensor in graph.inputs if tensor.shape and isinstance(tensor.shape[0], int)]
    return max(sides, default=1)


def _require_tokens(workload: Workload, options: Options) -> None:
    """Options for reading a prompt need one, those for writing tokens some of them."""
    reads = options.chunk or options.cached_prefix or options.host.tokenise_s_per_token
    if reads and workload.prompt is None:
        raise DomainError(
            "A chunk, a cached prefix and tokenising are of a prompt, and none is read.", remedy="Give --prompt."
        )
    if workload.context is not None or workload.generate is None:
        return
    if options.host.detokenise_s_per_token and not workload.generate:
        raise DomainError("Nothing is detokenised where no token is written.", remedy="Ask for some with --generate.")
    if options.speculative is not None and workload.generate < 2:
        raise DomainError(
            "Nothing is drafted where fewer than two tokens are written.", remedy="Ask for more with --generate."
        )


def image_tokens(graph: Graph, image: int | None) -> int:
    """Tokens of a prompt that an image takes; none of a model that sees nothing."""
    if "vision" not in graph.metadata:
        return 0
    side = image or graph.metadata["default_sizes"].get("image")
    placed = (op.inputs[1].shape[1] for block in graph.blocks for op in block.ops if op.name == "embed.images")
    return sum(int(evaluate(tokens, {"image": side, "batch": 1})) for tokens in placed)


def _require_room_for_image(graph: Graph, workload: Workload) -> None:
    """A prompt counts its image's tokens. Where no image is asked for, it may be one of words alone."""
    if workload.image is None or workload.prompt is None or workload.context is not None:
        return
    seen = image_tokens(graph, workload.image)
    if workload.prompt < seen:
        raise DomainError(
            f"An image of {workload.image} pixels is {seen} tokens of a prompt, and {workload.prompt} are asked for.",
            remedy=f"Use --prompt {seen + PROMPT}, which leaves {PROMPT} for words, or a smaller --image.",
        )


def image_notes(graph: Graph, workload: Workload) -> tuple[str, ...]:
    seen = image_tokens(graph, workload.image)
    if not seen or workload.prompt is None or workload.context is not None:
        return ()
    if seen > workload.prompt:
        return (f"The prompt has no room for the image's {seen} tokens: it is of words alone, beside an image.",)
    return (f"Of the prompt's {workload.prompt} tokens {seen} are the image's.",)


def window_notes(graph: Graph, workload: Workload) -> tuple[str, ...]:
    """The note on a workload with more tokens than the model's window."""
    limit = graph.context_limit
    own = 0 if encodes_prompt(graph) else workload.prompt or 0
    tokens = workload.context if workload.context is not None else own + max(0, (workload.generate or 0) - 1)
    if limit is None or tokens <= limit:
        return ()
    return (f"{graph.name} has a window of {limit} tokens, and {tokens} were asked for: its answers may be worthless.",)


def _require_window(graph: Graph, tokens: int, what: str, times: int = 1) -> None:
    if graph.context_limit is not None and tokens > times * graph.context_limit:
        stretched = f", which an engine may stretch to {times * graph.context_limit}" if times > 1 else ""
        raise DomainError(
            f"{graph.name} has a window of {graph.context_limit} tokens{stretched}; {what} would be {tokens}.",
            remedy="Ask for fewer tokens, or for a model with a longer window.",
        )


def start_tokens(graph: Graph, workload: Workload) -> int:
    """Tokens in the decoder's own cache once the prompt is read."""
    return 1 if encodes_prompt(graph) else workload.prompt or 1


def decode_context(graph: Graph, workload: Workload) -> float:
    """Tokens in the decoder's own cache at the step that stands for all of a generation: those of its middle."""
    if workload.context is not None:
        return workload.context
    return start_tokens(graph, workload) + max(0, (workload.generate or 1) - 2) / 2


def last_tokens(graph: Graph, workload: Workload) -> int:
    """Tokens in the decoder's own cache at the end."""
    if workload.context is not None:
        return workload.context + 1
    return start_tokens(graph, workload) + max(0, (workload.generate or 0) - 1)


def prefill_steps(
    graph: Graph, workload: Workload, options: Options, effects: RuntimeEffects, *, encodes: bool
) -> list[tuple[int, int]]:
    """(query, context) of each step in which the prompt is read: one, or as many as there are chunks.

    `encodes`: part of the graph runs once a request, with all of the prompt; then nothing is cut, and nothing cached.
    """
    total = start_tokens(graph, workload)
    if encodes:
        return [(total, 0)]
    done, chunk = min(options.cached_prefix, total - 1), options.chunk or total
    *others, last = [(min(chunk, total - start), start) for start in range(done, total, chunk)]
    if effects.reads:
        return [step for each in (*others, last) for step in passes(*each, effects)]
    return [*others, *passes(*last, effects)]


def passes(query: int, context: int, effects: RuntimeEffects) -> list[tuple[int, int]]:
    """(query, context) of each pass in which a runtime reads `query` tokens behind a context."""
    if effects.reads:
        return [(effects.reads, context + done) for done in range(0, query, effects.reads)]
    if effects.prompt == "whole" or query == 1:
        return [(query, context)]
    return [(query - 1, context), (1, context + query - 1)]


def step_sizes(steps: list[tuple[int, int]], batch: int) -> dict[str, Any]:
    """The sizes of the steps in which a prompt is read: one column a step, logits with the last."""
    if len(steps) == 1:
        return {"batch": batch, "query": steps[0][0], "context": steps[0][1], "logits": 1}
    query, context = np.array(steps).T
    return {"batch": batch, "query": query, "context": context, "logits": np.eye(len(steps))[-1]}
