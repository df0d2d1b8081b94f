"""Memory as a serving engine uses it: its share of what the driver shows, less weights, a full step and its own.

What is left is the cache, in blocks. An engine measures the same when it starts: it runs one step at its limits and
takes the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from inferometer.core.engine import MemoryRules, ServingRules, is_like
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.predict.parallel import layer_count, stage_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.core.binding import Binding
    from inferometer.core.device import Device
    from inferometer.core.graph import Op
    from inferometer.predict.memory.residency import MemoryUse
    from inferometer.predict.ready import ReadyGraph

_FOUR_BITS = frozenset({"mxfp4", "nvfp4"})
_USUAL = 1024  # tokens of a sequence, where the whole cache is told in tokens and layers have windows


@frozen
class StepLimits:
    """Tokens and sequences that one step may have, and steps that a prompt is held back for to be read with others.

    With `reserves` a request waits until its prompt and its whole answer have room: its scheduler evicts nobody.
    """

    tokens: int
    sequences: int
    waits: float = 0.0
    reserves: bool = False


def limits_on(rules: ServingRules, device: Device) -> StepLimits:
    """An engine's own defaults on a device: smaller ones where its memory is small."""
    room = device.memory.room if device.memory else None
    if room is not None and float(room) < rules.large_bytes.value:
        return StepLimits(tokens=rules.small_step_tokens, sequences=rules.small_sequences)
    return StepLimits(tokens=rules.step_tokens, sequences=rules.most_sequences)


@frozen
class StepPeak:
    """What a step takes beside the weights and the cache, by its limits.

    Layers take `token_bytes` for each token of the step: attention makes its scores tile by tile, so that nothing grows
    faster. The sampler comes after them, when `kept_bytes` of a token are still there, and takes `sequence_bytes` for
    each sequence. `graph_bytes` are those of one captured graph, `captured_up_to` the most sequences that have one.
    """

    token_bytes: float
    kept_bytes: float
    sequence_bytes: float
    graph_bytes: float
    captured_up_to: int

    def bytes_at(self, limits: StepLimits) -> float:
        layers = limits.tokens * self.token_bytes
        return max(layers, limits.tokens * self.kept_bytes + limits.sequences * self.sequence_bytes)

    def graphs_at(self, limits: StepLimits) -> float:
        """Graphs of whole steps up to the sequences, and of the parts between attention up to twice as many tokens."""
        most = self.captured_up_to
        graphs = _sizes(min(most, limits.sequences)) + _sizes(min(most, 2 * limits.sequences))
        return self.graph_bytes * graphs


def _sizes(largest: int) -> int:
    """How many sizes up to this one are captured: 1, 2, 4, every eighth up to 256, and every sixteenth beyond."""
    return min(3, largest) + min(largest, 256) // 8 + max(0, largest - 256) // 16


@frozen
class ServingMemory:
    """Bytes on one device. `kv_tokens` are those of all sequences of a replica together; 0: nothing is left.

    `kv_bytes_per_token` is what a token takes in all layers. `windows` are layers that keep no more than the last
    tokens of a sequence: how many those are, and what a token takes in them. `state_bytes` are those that a sequence
    takes however long it is, in layers without a cache (Mamba's).
    """

    visible_bytes: float
    usable_bytes: float
    weights_bytes: float
    activations_bytes: float  # the most that a step at its limits needs beside the weights and the cache
    reserve_bytes: float  # the process's own, and its captured graphs
    kv_bytes_per_token: float
    block_tokens: int
    windows: tuple[tuple[int, float], ...] = ()
    state_bytes: float = 0.0
    share: float = 1.0  # of what is free beside all that is taken, where an engine counts its share so
    peak: StepPeak | None = None  # where an engine measures a step at its limits

    @property
    def kv_bytes(self) -> float:
        taken = self.weights_bytes + self.activations_bytes + self.reserve_bytes
        return max(0.0, self.share * (self.usable_bytes - taken))

    def with_share(self, share: float) -> ServingMemory:
        """The same with another share of the memory for the engine (gpu_memory_utilization)."""
        if self.share < 1:
            return replace(self, share=share)
        return replace(self, usable_bytes=share * self.visible_bytes)

    def limited(self, before: StepLimits, after: StepLimits) -> ServingMemory:
        """The same where a step may have other numbers of tokens and sequences."""
        if self.peak is None or before == after:
            return self
        grown = self.peak.bytes_at(after) - self.peak.bytes_at(before)
        graphs = self.peak.graphs_at(after) - self.peak.graphs_at(before)
        return replace(
            self, activations_bytes=self.activations_bytes + grown, reserve_bytes=self.reserve_bytes + graphs
        )

    @property
    def fits(self) -> bool:
        return self.kv_bytes > 0

    @property
    def kv_blocks(self) -> int:
        return self.kv_tokens // self.block_tokens

    @property
    def kv_tokens(self) -> int:
        return self.tokens_of(_USUAL)

    def tokens_of(self, tokens: int) -> int:
        """Tokens that the cache holds in whole blocks, if every sequence is `tokens` long."""
        a_block = self.block_tokens * self.sequence_bytes(tokens) / self.padded(tokens)
        return int(self.kv_bytes / a_block) * self.block_tokens if a_block > 0 else 0

    def sequence_bytes(self, tokens: int) -> float:
        """The cache of one sequence, in whole blocks, and its states.

        Layers with a window give back the blocks before it. One block more than the window is held, because a window
        seldom begins where a block does.
        """
        held = self.padded(tokens)
        given_back = sum(each * max(0, held - self.padded(window) - self.block_tokens) for window, each in self.windows)
        return self.kv_bytes_per_token * held - given_back + self.state_bytes

    def sequences_of(self, tokens: int) -> int:
        """How many sequences of this length the cache holds at once."""
        size = self.sequence_bytes(tokens)
        return int(self.kv_bytes / size) if size > 0 else 0

    def padded(self, tokens: int) -> int:
        """Tokens rounded up to whole blocks."""
        return -(-max(1, tokens) // self.block_tokens) * self.block_tokens


def serving_memory(  # noqa: PLR0913 - a model on a device, and an engine's rules and limits
    ready: ReadyGraph, device: Device, rules: ServingRules, taken: MemoryRules, limits: StepLimits, *, split: bool
) -> ServingMemory:
    """`split` says whether the tensors of a layer lie on several devices, which then hold buffers of messages."""
    memory = device.memory
    room = memory.room if memory else None
    if room is None:
        raise DomainError(
            f"The memory of {device.name} is not known, so nothing can be said of what fits.",
            remedy="Give its capacity in a device file of your own.",
        )
    full = ready.residency.use({"batch": 1, "query": limits.tokens, "context": 0, "logits": 1}, first=True)
    growing, windows = ready.residency.cache_of_a_token()
    share = taken.share.value
    peak = _step_peak(ready, rules, taken, limits, full) if taken.profiles else None
    return ServingMemory(
        visible_bytes=float(room),
        usable_bytes=float(room) * (1.0 if taken.of_free else share),
        share=share if taken.of_free else 1.0,
        weights_bytes=float(ready.residency.weights_bytes) + _padding(ready, device, taken),
        activations_bytes=peak.bytes_at(limits) if peak else 0.0,
        reserve_bytes=taken.own_bytes.value
        + (_messages(device, taken) if split else 0.0)
        + (peak.graphs_at(limits) if peak else 0.0),
        kv_bytes_per_token=growing + sum(windows.values()),
        block_tokens=rules.block_tokens,
        windows=tuple(windows.items()) if rules.frees_windows else (),
        state_bytes=float(full.state_bytes),
        peak=peak,
    )


def _messages(device: Device, taken: MemoryRules) -> float:
    link = device.peer_link
    is_switched = link is not None and any(is_like(link.name, pattern) for pattern in taken.switched)
    return taken.split_bytes.value + (taken.switched_bytes.value if is_switched else 0.0)


def _step_peak(
    ready: ReadyGraph, rules: ServingRules, taken: MemoryRules, limits: StepLimits, full: MemoryUse
) -> StepPeak:
    binding, inside = ready.layout.prepared.binding({}), float(full.workspace_bytes) / limits.tokens
    heads = [row.op for row in ready.layout.prepared.rows if "logits" in row.op.symbols and row.op.weights]
    # what the layers hand to the head: one row a token
    stream = heads[0].inputs[0] if heads else None
    kept = 0.0 if stream is None else float(binding.format(stream).nbytes(1)) * heads[0]["in_features"]
    # Kernels for experts of 4 bits ask for their buffers in each call and give them back.
    if taken.keeps_experts and not any(_is_four_bit(op, binding) for _, op, _ in _experts(ready)):
        kept += inside
    return StepPeak(
        token_bytes=float(full.activations_bytes) / limits.tokens + inside,
        kept_bytes=kept,
        sequence_bytes=ready.graph.metadata.get("vocab_size", 0) * taken.logit_bytes.value,
        graph_bytes=layer_count(ready.graph) * taken.layer_bytes.value,
        captured_up_to=rules.captured_up_to,
    )


def _experts(ready: ReadyGraph) -> Iterator[tuple[float, Op, float]]:
    """How often each op of experts runs on the fullest device, and its share of the weights."""
    prepared = ready.layout.prepared
    stage = stage_share(ready.graph, prepared.terms.stages)
    for count, row in zip(prepared.counts(once=False), prepared.rows, strict=True):
        if row.op.kind == "moe_experts":
            yield float(count) * stage, row.op, row.scale.weights


def _is_four_bit(op: Op, binding: Binding) -> bool:
    return any(binding.format(weight).name in _FOUR_BITS for weight in op.weights)


def _padding(ready: ReadyGraph, device: Device, taken: MemoryRules) -> float:
    """Bytes by which experts in MXFP4 grow where the engine's kernels want widths in multiples, to widen them.

    gpt-oss: 2,880 wide, stored as 3,072.
    """
    if not _FOUR_BITS.isdisjoint(device.peaks):
        return 0.0
    binding, padded = ready.layout.prepared.binding({}), 0.0
    for count, op, share in _experts(ready):
        factor = 1.0
        for width, multiple in zip((op["hidden"], op["intermediate"]), taken.padded_to, strict=True):
            factor *= -(-width // multiple) * multiple / width
        held = sum(binding.nbytes(weight) for weight in op.weights if binding.format(weight).name == "mxfp4")
        padded += count * share * held * (factor - 1)
    return padded
