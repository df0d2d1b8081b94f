"""The time of one step of a serving engine, for any mixture of prompts' chunks and decoding sequences.

What a step does is a sum of three: products and messages, which depend on how many tokens are in the step; attention of
the decoding sequences, which depends on how many they are and on what they have cached; attention of each chunk. All
are priced once, by the same rows and the same prices as a prediction's phases, and then read from grids.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field, replace
from math import exp, inf, log
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.engine import StepCosts
from inferometer.core.frozen import frozen
from inferometer.predict.parallel import layer_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.predict.ready import ReadyGraph
    from inferometer.predict.work.collect import OpRow

# Sizes at which step times are tabled, to be interpolated. Dense in tokens, because kernels change with a tile of rows;
# sparse in context, which attention reads in proportion; batches as engines capture graphs for, and their doubles.
_TOKENS = np.unique(np.rint(np.geomspace(1, 65536, 97)).astype(int))
_BATCHES = np.array([1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096])
_CONTEXTS = np.unique(np.rint(np.geomspace(16, 262144, 29)).astype(int))  # two a doubling, to the longest window
_CHUNKS = np.unique(np.rint(np.geomspace(1, 65536, 33)).astype(int))  # up to as many as _TOKENS, two a doubling
_WIDE = 2  # bytes of an activation
# What a chunk finds in the cache: attention to it grows in proportion, so doublings are enough; 1 stands for nothing.
_BEFORE = np.array([1, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144])


@frozen
class PromptChunk:
    """Tokens of a prompt that one step reads, after those it has read before."""

    tokens: int
    context: int = 0


@frozen
class EngineStep:
    """Seconds of steps. Grids are logarithms of sizes, values logarithms of seconds; between points both are linear."""

    costs: StepCosts
    dense: SecondsGrid
    logits: SecondsGrid
    decode: Grid2
    prompt: Grid2
    launches: int  # kernels of a step
    spread: float  # standard deviation of the logarithm of a step's time
    layers: int = 1  # that the stages of a pipeline share
    windows: tuple[tuple[float, float], ...] = ()  # of layers that attend: how many, and to how many tokens at most

    def seconds(self, chunks: Iterable[PromptChunk] = (), sequences: int = 0, context: float = 0.0) -> float:
        """One step: the chunks of prompts, and `sequences` that decode with `context` cached tokens on average."""
        tokens, reading, prompts, added_s = sequences, 0.0, 0, 0.0
        # Prompts of a step share one call of attention: what the smallest takes is paid once, and not for each.
        least = self.prompt.at(1.0, 1.0)
        for chunk in chunks:
            reading += self.prompt.at(float(chunk.tokens), float(chunk.context)) - (least if prompts else 0.0)
            tokens, prompts = tokens + chunk.tokens, prompts + 1
        if not tokens:
            return 0.0
        costs, alone = self.costs, 0.0
        if sequences:
            attention = self.decode.at(float(sequences), max(1.0, context))
            added_s = float(self.context_seconds(sequences, context))
            alone = self.dense.at(float(sequences)) + self.logits.at(float(sequences)) + attention
        own = costs.step_s.value + (sequences + prompts) * costs.sequence_s.value
        if not prompts:
            return costs.kernels.value * alone + added_s + own
        kernels = self.dense.at(float(tokens)) + self.logits.at(float(sequences + prompts)) + reading
        if sequences:
            kernels += attention
        # Two factors: what an engine takes over its kernels alone differs between decoding and what prompts add.
        added_s += costs.kernels_prompt.value * max(0.0, kernels - alone)
        return max(costs.kernels.value * alone + added_s, self.eager_s) + own

    @property
    def eager_s(self) -> float:
        """What the host takes to launch a step that reads prompts and is not replayed from a graph."""
        return self.launches * self.costs.launch_s.value

    def layer(self) -> EngineStep:
        """One layer and the head of the model, without what the engine's host takes: what drafts as EAGLE or MTP do."""
        share = 1 / self.layers
        nothing = {name: replace(getattr(self.costs, name), value=0.0) for name in ("step_s", "sequence_s", "launch_s")}
        return replace(
            self,
            costs=replace(self.costs, **nothing),
            dense=SecondsGrid(sizes=self.dense.sizes, seconds=np.asarray(self.dense.seconds) * share),
            decode=replace(self.decode, seconds=np.asarray(self.decode.seconds) * share),
            prompt=replace(self.prompt, seconds=np.asarray(self.prompt.seconds) * share),
            layers=1,
            windows=tuple((count * share, most) for count, most in self.windows),
        )

    def cached(self, sequences: Any, context: Any) -> Any:
        """Tokens that the sequences of a decoding step attend to, in all layers together."""
        return sum(count * np.minimum(context, most) for count, most in self.windows) * sequences

    def context_seconds(self, sequences: Any, context: Any) -> Any:
        """What attention to them takes beyond its kernels."""
        return self.costs.context_s.value * self.cached(sequences, context)

    def decode_kernels(self, sequences: Any, context: Any, *, verified: int = 1) -> Any:
        """The kernels of steps that decode only, each as it was measured alone; `verified` tokens a sequence.

        Tokens that are verified together read the cache once.
        """
        n, cached = np.asarray(sequences, float), np.maximum(1.0, np.asarray(context, float))
        return self.dense(n * verified) + self.logits(n * verified) + self.decode(n, cached)

    def behind_kernels(self, sequences: int, context: float, *, verified: int, stages: int, flowing: int) -> float:
        """What such a step waits for others in a pipeline, `flowing` of which go around its stages at once.

        All of them pass the slowest stage, one after the other: the one with most layers, or the last, which has the
        logits beside its layers.
        """
        head = self.logits.at(sequences * verified)
        whole = float(self.decode_kernels(sequences, context, verified=verified))
        # as `stage_share`; the last has the fewest
        most, least = -(-self.layers // stages) / self.layers, self.layers // stages / self.layers
        slowest = max(most * (whole - head), least * (whole - head) + head)
        return max(0.0, flowing * slowest - whole)

    def mixed_kernels(  # noqa: PLR0913 - chunks, and who decodes beside them
        self, tokens: Any, before: Any, sequences: Any, context: Any, *, chunks: Any = 1.0, verified: int = 1
    ) -> Any:
        """As `mixed_seconds`, the kernels alone; `verified` tokens of each sequence that decodes."""
        q, n, many = np.asarray(tokens, float), np.asarray(sequences, float), np.asarray(chunks, float)
        cached = np.maximum(1.0, np.asarray(context, float))
        kernels = self.dense(q * many + n * verified) + self.logits(n * verified + many)
        kernels = kernels + self.prompt(q, np.asarray(before, float)) * many
        return kernels + np.where(n > 0, self.decode(np.maximum(n, 1.0), cached), 0.0)

    def decode_seconds(self, sequences: Any, context: Any) -> Any:
        """Steps that decode only; sizes may be arrays."""
        n, costs = np.asarray(sequences, float), self.costs
        own = costs.step_s.value + n * costs.sequence_s.value
        return costs.kernels.value * self.decode_kernels(n, context) + self.context_seconds(n, context) + own

    def mixed_seconds(self, tokens: Any, before: Any, sequences: Any, context: Any, *, chunks: Any = 1.0) -> Any:
        """Steps with `chunks` chunks of `tokens` tokens each after `before`, and sequences that decode beside them."""
        n, costs = np.asarray(sequences, float), self.costs
        kernels = self.mixed_kernels(tokens, before, n, context, chunks=chunks)
        alone = np.where(n > 0, self.decode_kernels(np.maximum(n, 1.0), context), 0.0)
        own = costs.step_s.value + (n + np.asarray(chunks, float)) * costs.sequence_s.value
        added = costs.kernels_prompt.value * np.maximum(0.0, kernels - alone) + self.context_seconds(n, context)
        return np.maximum(costs.kernels.value * alone + added, self.eager_s) + own


@frozen
class SecondsGrid:
    """Seconds over one size."""

    sizes: Any
    seconds: Any
    logs: Any = field(init=False)
    values: Any = field(init=False)
    points: list[float] = field(init=False)
    plain: list[float] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "logs", np.log(np.asarray(self.sizes, float)))
        # a step that takes nothing (a model without such ops) has a logarithm, too
        object.__setattr__(self, "values", np.log(np.maximum(np.asarray(self.seconds, float), 1e-12)))
        object.__setattr__(self, "points", self.logs.tolist())
        object.__setattr__(self, "plain", self.values.tolist())

    def __call__(self, size: Any) -> Any:
        # No size is that small: it keeps the logarithm of 0 finite.
        logs = np.log(np.maximum(size, 1e-9))
        return np.exp(np.interp(logs, self.logs, self.values) + np.maximum(0.0, logs - self.logs[-1]))

    def at(self, size: float) -> float:
        """As a call, for one number and without numpy. Beyond the last point seconds grow with the size."""
        x, points, plain = log(max(size, 1e-9)), self.points, self.plain
        if x >= points[-1]:
            return exp(plain[-1] + x - points[-1])
        if x <= points[0]:
            return exp(plain[0])
        upper = bisect_right(points, x)
        share = (x - points[upper - 1]) / (points[upper] - points[upper - 1])
        return exp(plain[upper - 1] + share * (plain[upper] - plain[upper - 1]))


@frozen
class Grid2:
    """Seconds over two sizes."""

    rows: Any
    columns: Any
    seconds: Any
    row_logs: list[float] = field(init=False)
    column_logs: list[float] = field(init=False)
    plain: list[list[float]] = field(init=False)
    values: Any = field(init=False)

    def __post_init__(self) -> None:
        values = np.log(np.maximum(np.asarray(self.seconds, float), 1e-12))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "plain", values.tolist())
        object.__setattr__(self, "row_logs", np.log(np.asarray(self.rows, float)).tolist())
        object.__setattr__(self, "column_logs", np.log(np.asarray(self.columns, float)).tolist())

    def at(self, row: float, column: float) -> float:
        i, a, over = _cell(self.row_logs, row)
        j, b, beyond = _cell(self.column_logs, column)
        low, high = self.plain[i], self.plain[i + 1]
        first = low[j] + b * (low[j + 1] - low[j])
        second = high[j] + b * (high[j + 1] - high[j])
        return exp(first + a * (second - first) + over + beyond)

    def __call__(self, row: Any, column: Any) -> Any:
        i, a, over = _cells(np.asarray(self.row_logs), row)
        j, b, beyond = _cells(np.asarray(self.column_logs), column)
        values = self.values
        first = values[i, j] + b * (values[i, j + 1] - values[i, j])
        second = values[i + 1, j] + b * (values[i + 1, j + 1] - values[i + 1, j])
        return np.exp(first + a * (second - first) + over + beyond)


def _cell(points: list[float], size: float) -> tuple[int, float, float]:
    """The point below, the share of the way to the next, and how far beyond the last point it lies."""
    x = log(max(size, 1e-9))
    if x >= points[-1]:
        return len(points) - 2, 1.0, x - points[-1]
    if x <= points[0]:
        return 0, 0.0, 0.0
    upper = bisect_right(points, x)
    return upper - 1, (x - points[upper - 1]) / (points[upper] - points[upper - 1]), 0.0


def _cells(points: Any, size: Any) -> tuple[Any, Any, Any]:
    x = np.log(np.maximum(np.asarray(size, float), 1e-9))
    place = np.interp(x, points, np.arange(len(points), dtype=float))
    lower = np.minimum(place.astype(int), len(points) - 2)
    return lower, place - lower, np.maximum(0.0, x - points[-1])


def engine_step(ready: ReadyGraph, costs: StepCosts, spread: float) -> EngineStep:
    """Price the grids of a model on a device once: a few hundred workloads, some tens of milliseconds."""
    rows = ready.plan.prepared.rows
    attends = np.array([row.op.kind == "attention" for row in rows])
    heads = np.array(["logits" in row.op.symbols for row in rows])
    tokens = _seconds(ready, {"batch": _TOKENS, "query": 1, "context": 1, "logits": 1}, "decode")
    grid = np.meshgrid(_BATCHES, _CONTEXTS, indexing="ij")
    decode = _seconds(ready, {"batch": grid[0].ravel(), "query": 1, "context": grid[1].ravel(), "logits": 1}, "decode")
    chunks = np.meshgrid(_CHUNKS, _BEFORE, indexing="ij")
    # the grid's 1 is a prompt that begins
    sizes = {"batch": 1, "query": chunks[0].ravel(), "context": chunks[1].ravel() - 1, "logits": 1}
    prompt = _seconds(ready, sizes, "prefill")
    return EngineStep(
        costs=costs,
        dense=SecondsGrid(sizes=_TOKENS, seconds=tokens[~attends & ~heads].sum(axis=0)),
        logits=SecondsGrid(sizes=_TOKENS, seconds=tokens[heads].sum(axis=0)),
        decode=Grid2(rows=_BATCHES, columns=_CONTEXTS, seconds=decode[attends].sum(axis=0).reshape(grid[0].shape)),
        prompt=Grid2(rows=_CHUNKS, columns=_BEFORE, seconds=prompt[attends].sum(axis=0).reshape(chunks[0].shape)),
        launches=round(
            sum(count * _kernels(row) for count, row in zip(ready.plan.prepared.counts(once=False), rows, strict=True))
        ),
        spread=spread,
        layers=layer_count(ready.graph),
        windows=tuple(
            (count, float(row.op.get("window") or inf))
            for count, row in zip(ready.plan.prepared.counts(once=False), rows, strict=True)
            if row.op.kind == "attention"
        ),
    )


def expert_seconds(ready: ReadyGraph) -> tuple[SecondsGrid, SecondsGrid]:
    """Seconds of the experts of a step over its tokens, and of the messages of ranks that share them.

    The tokens of all ranks are gathered before each layer's experts, and the sums scattered after them (vLLM's
    `allgather_reducescatter`, its default with and without expert parallelism).
    """
    rows, counts = ready.plan.prepared.rows, ready.plan.prepared.counts(once=False)
    tokens = _seconds(ready, {"batch": _TOKENS, "query": 1, "context": 1, "logits": 1}, "decode")
    experts = np.array([row.op.kind == "moe_experts" for row in rows])
    messages = np.zeros(len(_TOKENS))
    summed = next((row for row in rows if row.op.get("function") == "all_reduce"), None)
    for count, row in zip(counts, rows, strict=True):
        if summed is not None and row.op.kind == "moe_experts":
            nbytes = _WIDE * row.op.inputs[0].shape[-1] * _TOKENS
            messages += count * sum(ready.plan.message(summed, way, nbytes) for way in ("all_gather", "reduce_scatter"))
    return SecondsGrid(sizes=_TOKENS, seconds=tokens[experts].sum(axis=0)), SecondsGrid(sizes=_TOKENS, seconds=messages)


def _kernels(row: OpRow) -> int:
    return 0 if row.op_class == "free" else 1 if row.op_class == "collective" else row.fused.launches


def _seconds(ready: ReadyGraph, sizes: dict[str, Any], phase: str) -> Any:
    """Seconds of each row in a step, all its repetitions together, [rows, n]."""
    step = ready.plan.step(sizes, phase, doubt=False)
    return step.priced.time_s * step.counts[:, None]
