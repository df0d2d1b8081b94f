"""What is asked of a combination as arrays, with what was left open filled in: the vector twin of `completed`.

The axes are batch, prompt, generate, context; an array has a length of 1 along those it does not depend on, and NaN
where there is nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative, takes_prompt
from inferometer.core.sizes import PROMPT, default_prompt
from inferometer.core.workload import Parallel, Workload
from inferometer.predict.parallel import replica_batch
from inferometer.predict.request import GENERATE, STRETCHED, completed, encodes_prompt, fixed_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inferometer.predict.options import Options
    from inferometer.predict.sweep.grid import Sizes


@frozen
class AskedWorkloads:
    """`start` are the tokens in the decoder's own cache once the prompt is read: see `request`.

    `reasons` are arrays of texts, or of None where a row can be.
    """

    shape: tuple[int, int, int, int]
    batch: Any
    prompt: Any
    generate: Any
    context: Any
    start: Any
    reasons: tuple[Any, ...]

    @property
    def known_prompt(self) -> Any:
        """With 1 where no prompt is asked for."""
        return _filled(self.prompt, np.isnan(self.prompt), 1.0)

    @property
    def step_context(self) -> Any:
        """Tokens in the cache at the step that stands for all: the one asked for, or that of the middle."""
        # The first token comes with the prompt, so steps find start … start + generate − 2 tokens: half way is the
        # mean, as a step's time grows evenly with them.
        return self._or_asked(self.start + np.maximum(0.0, np.nan_to_num(self.generate, nan=1.0) - 2) / 2)

    @property
    def last_context(self) -> Any:
        """Tokens in the cache when the last token is written."""
        return self._or_asked(self.start + np.maximum(0.0, np.nan_to_num(self.generate) - 1) - 1)

    def _or_asked(self, otherwise: Any) -> Any:
        return _filled(self.context, np.isnan(self.context), otherwise)


@frozen
class Shares:
    """`replica_batch` is a replica's share of the batch, `device_batch` what a device works on at once."""

    replica_batch: Any
    device_batch: Any
    reasons: tuple[Any, ...]


def asked_of(graph: Graph, sizes: Sizes, options: Options, *, beyond: bool = False) -> AskedWorkloads:
    """`beyond`: more tokens than the model's window are let through, as `completed` does."""
    batch = np.array(sizes.batch, dtype=float).reshape(-1, 1, 1, 1)
    prompt, generate, context = (
        _axis(values, index) for index, values in enumerate((sizes.prompt, sizes.generate, sizes.context), start=1)
    )
    prompt, generate = _completed(graph, prompt, generate, context)
    return AskedWorkloads(
        shape=sizes.shape,
        batch=batch,
        prompt=prompt,
        generate=generate,
        context=context,
        start=np.ones_like(prompt) if encodes_prompt(graph) else _filled(prompt, np.isnan(prompt), 1.0),
        reasons=(
            *_of_batches(graph, batch, options),
            *_reasons(graph, (prompt, generate, context), options, beyond=beyond),
        ),
    )


def shares_of(batch: Any, parallel: Parallel, options: Options) -> Shares:
    """As `replica_batch` and a pipeline's micro-batches share out one batch."""
    share = np.ceil(batch / parallel.dp)
    few = batch < parallel.dp
    return Shares(
        replica_batch=share,
        device_batch=share if options.micro_batches == 1 else np.ceil(share / options.micro_batches),
        reasons=(_texts(few, lambda value: replica_batch(value, parallel), [batch]),) if few.any() else (),
    )


def _axis(values: Sequence[int | None], index: int) -> Any:
    shape = [1, 1, 1, 1]
    shape[index] = -1
    return np.array([np.nan if value is None else value for value in values], dtype=float).reshape(shape)


def _filled(values: Any, where: Any, otherwise: Any) -> Any:
    """Other values where it holds; the same array, and no larger one, where it never does."""
    return np.where(where, otherwise, values) if np.any(where) else values


def _completed(graph: Graph, prompt: Any, generate: Any, context: Any) -> tuple[Any, Any]:
    """As `completed` does for one workload."""
    limit = graph.context_limit
    if not is_generative(graph):
        missing = np.isnan(prompt) if takes_prompt(graph) else np.zeros_like(prompt, dtype=bool)
        default = default_prompt(graph)
        return _filled(prompt, missing, np.nan if default is None else default), generate
    listens = "frames" in graph.metadata.get("default_sizes", {})
    open_ended = np.isnan(context)
    # A model with a short window reads half of it, so that there is room for an answer.
    half = max(1, (limit or 2 * PROMPT) // 2)
    prompt = _filled(prompt, open_ended & np.isnan(prompt), 1 if listens else min(PROMPT, half))
    room = GENERATE if limit is None else limit - (0 if encodes_prompt(graph) else prompt)
    generate = _filled(generate, open_ended & np.isnan(generate), np.maximum(1.0, np.minimum(GENERATE, room)))
    return prompt, generate


def _of_batches(graph: Graph, batch: Any, options: Options) -> list[Any]:
    if "batch" in graph.symbols:
        return []
    bad = (batch != 1) & (batch != fixed_batch(graph))

    def complete(value: int) -> None:
        completed(graph, Workload(batch=value), options)

    return [_texts(bad, complete, [batch])] if bad.any() else []


def _reasons(graph: Graph, sizes: tuple[Any, Any, Any], options: Options, *, beyond: bool) -> list[Any]:
    """What speaks against rows: tokens that do not fit into the window, and options for tokens that are not there."""
    prompt, generate, context = sizes
    # as far as engines stretch a window with a scaled rotation
    times = STRETCHED if beyond and is_generative(graph) else 1
    limit = np.inf if graph.context_limit is None else times * graph.context_limit
    found = []

    def told(bad: Any, ask: Callable[..., Any], *arrays: Any) -> None:
        if np.any(bad):
            found.append(_texts(bad, ask, np.broadcast_arrays(bad, *arrays)[1:]))

    def complete(prompt: int | None = None, generate: int | None = None, context: int | None = None) -> None:
        completed(graph, Workload(prompt=prompt, generate=generate, context=context), options, beyond=beyond)

    if is_generative(graph):
        told(context > limit, lambda value: complete(context=value), context)
        if not encodes_prompt(graph):
            kept = prompt + np.maximum(0.0, np.nan_to_num(generate) - 1)  # nothing reads the last token
            bad = (kept > limit) | (options.cached_prefix >= prompt)
            told(bad, complete, prompt, generate, _whether(context))
        if options.cached_prefix or options.host.tokenise_s_per_token:
            told(np.isnan(prompt), complete, prompt, generate, _whether(context))
        if options.host.detokenise_s_per_token:
            told((generate == 0) & np.isnan(context), complete, prompt, generate, _whether(context))
    else:
        told(prompt > limit, complete, prompt)
        if takes_prompt(graph) and "query" not in options.sizes:
            told(np.isnan(prompt), complete, prompt)
    return found


def _whether(context: Any) -> Any:
    """0 where a context is given; one number where all or none are."""
    given = np.where(np.isnan(context), np.nan, 0.0)
    return given[..., :1] if len({*np.isnan(context).ravel().tolist()}) == 1 else given


def _texts(bad: Any, ask: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """The words of the error that the scalar functions give where it is bad: they are the ones who say it."""
    # Only bad points are asked one by one; where a whole sweep is bad that is slow, and nobody waits for numbers.
    texts = np.full(np.shape(arrays[0]), None, dtype=object)
    for place in zip(*np.nonzero(np.broadcast_to(bad, texts.shape)), strict=True):
        try:
            ask(*(None if np.isnan(array[place]) else int(array[place]) for array in arrays))
        except DomainError as error:
            texts[place] = str(error)
    return texts
