"""Memory as a serving engine uses it: its share of what the driver shows, less weights, a full step and its own.

What is left is the cache, in blocks. An engine measures the same when it starts: it runs one step at its limits and
takes the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.engine import ServingRules
    from inferometer.predict.ready import ReadyGraph

_SAMPLED_BYTES = 8  # a logit and its probability, both in single precision
_USUAL = 1024  # tokens of a sequence, where the whole cache is told in tokens and layers have windows


@frozen
class StepLimits:
    """Tokens and sequences that one step may have, and steps that a prompt is held back for to be read with others."""

    tokens: int
    sequences: int
    waits: float = 0.0


def limits_on(rules: ServingRules, device: Device) -> StepLimits:
    """An engine's own defaults on a device: smaller ones where its memory is small."""
    room = device.memory.room if device.memory else None
    if room is not None and float(room) < rules.large_bytes.value:
        return StepLimits(tokens=rules.small_step_tokens, sequences=rules.small_sequences)
    return StepLimits(tokens=rules.step_tokens, sequences=rules.most_sequences)


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

    @property
    def kv_bytes(self) -> float:
        taken = self.weights_bytes + self.activations_bytes + self.reserve_bytes
        return max(0.0, self.usable_bytes - taken)

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


def serving_memory(ready: ReadyGraph, device: Device, rules: ServingRules, limits: StepLimits) -> ServingMemory:
    memory = device.memory
    room = memory.room if memory else None
    if room is None:
        raise DomainError(
            f"The memory of {device.name} is not known, so nothing can be said of what fits.",
            remedy="Give its capacity in a device file of your own.",
        )
    full = ready.residency.use({"batch": 1, "query": limits.tokens, "context": 0, "logits": 1}, first=True)
    growing, windows = ready.residency.cache_of_a_token()
    vocabulary = ready.graph.metadata.get("vocab_size", 0)
    sampled = float(limits.sequences * vocabulary * _SAMPLED_BYTES)
    return ServingMemory(
        visible_bytes=float(room),
        usable_bytes=float(room) * rules.memory_share.value,
        weights_bytes=float(ready.residency.weights_bytes),
        activations_bytes=float(full.activations_bytes + full.workspace_bytes) + sampled,
        reserve_bytes=rules.context_bytes.value + rules.graph_bytes.value,
        kv_bytes_per_token=growing + sum(windows.values()),
        block_tokens=rules.block_tokens,
        windows=tuple(windows.items()) if rules.frees_windows else (),
        state_bytes=float(full.state_bytes),
    )
