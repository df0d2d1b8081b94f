"""A graph on several devices: which share of each op a device does, and what the devices send each other.

Tensor parallelism follows the data, as Megatron does by hand: a product of whole inputs is split by its outputs, what
reads a split tensor stays split, and a product of split inputs ends in a sum over the devices (all-reduce). Experts are
spread over `ep` devices, to which their rows travel and back (all-to-all). Pipeline stages hand the stream of
activations on. Data-parallel replicas share the batch and send each other nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.workload import Parallel, Workload
from inferometer.predict.work.classes import class_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_SHARED_AT_LEAST = 0.25  # of a model's weights, for tensor parallelism to be an answer


@frozen
class Scale:
    """The share of an op's work that the busiest device does. `batch`: replicas whose rows meet in the op."""

    flops: float = 1.0
    weights: float = 1.0
    reads: float = 1.0
    writes: float = 1.0
    kv: float = 1.0
    batch: int = 1


WHOLE = Scale()


@frozen
class Message:
    """What devices send each other after an op. `count` is per step where it differs from the op's own."""

    function: str
    tensor: Tensor
    devices: int
    count: int | None = None
    share: float = 1.0  # of the tensor's bytes, where a message is a multiple of them


@frozen
class Placed:
    op: Op
    scale: Scale = WHOLE
    messages: tuple[Message, ...] = ()


def replica_batch(batch: int, parallel: Parallel) -> int:
    """Sequences of the busiest replica."""
    if batch < parallel.dp:
        raise DomainError(
            f"A batch of {batch} cannot be shared by dp={parallel.dp} replicas.", remedy="Use a larger batch or fewer."
        )
    return -(-batch // parallel.dp)  # rounded up: the others wait for the busiest


def of_draft(workload: Workload) -> Workload:
    """What a draft model is asked: it shares its layers as the model does, and has no experts of the model's to spread.

    vLLM takes no other tensor parallelism for it than the model's (docs.vllm.ai, v1.spec_decode.draft_model:
    _raise_if_draft_tp_mismatch). Each copy of attention has a draft of its own.
    """
    return replace(workload, parallel=replace(workload.parallel, ep=1))


def require_plan(graph: Graph, parallel: Parallel) -> None:
    """Refuse plans that are impossible: heads, experts or layers that do not divide."""
    for _, op in graph.ops():
        if op.kind == "attention" and parallel.tp > 1:
            _require_heads(op, parallel.tp)
        if op.kind == "moe_experts" and op["experts"] % parallel.ep:
            raise DomainError(
                f"ep={parallel.ep} does not divide the {op['experts']} experts of {graph.name}.",
                remedy=f"Use one of {_divisors(op['experts'])}.",
            )
    if parallel.ep > 1 and not any(op.kind == "moe_experts" for _, op in graph.ops()):
        raise DomainError(f"{graph.name} has no experts to spread over ep={parallel.ep} devices.")
    if parallel.ep > 1 and (parallel.tp * parallel.dp) % parallel.ep:
        raise DomainError(
            f"ep={parallel.ep} does not divide the tp·dp = {parallel.tp * parallel.dp} devices that hold a layer.",
            remedy="Experts are spread over the tensor- and data-parallel devices.",
        )
    layers = layer_count(graph)
    if parallel.pp > layers:
        raise DomainError(f"pp={parallel.pp} is more stages than the {layers} layers of {graph.name}.")


def is_layer(block: Block) -> bool:
    """Whether a block is layers of a stack: its ops have the repetition's index in their names."""
    return any("{}" in op.name for op in block.ops)


def layer_count(graph: Graph) -> int:
    """Layers that stages can be cut between; each block once where none is a stack of layers."""
    return sum(block.count for block in graph.blocks if is_layer(block)) or sum(block.count for block in graph.blocks)


def stage_share(graph: Graph, stages: int) -> float:
    """The share of the layers that the longest of some pipeline stages has."""
    layers = layer_count(graph)
    # A pipeline is as slow as its longest stage: 33 layers in 4 stages take as long as 36.
    return -(-layers // stages) / layers if layers else 1.0


def _require_heads(op: Op, tp: int) -> None:
    heads, kv_heads = op["heads"], op.get("kv_heads", op["heads"])
    if heads % tp:
        raise DomainError(f"tp={tp} does not divide the {heads} attention heads.", remedy=f"Use {_divisors(heads)}.")
    # Fewer key-value heads than devices are copied, so either may be the multiple of the other.
    if kv_heads % tp and tp % kv_heads:
        raise DomainError(f"tp={tp} and the {kv_heads} key-value heads do not divide each other.")


def _divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)


def place(graph: Graph, parallel: Parallel, *, sequence: bool = False, imbalance: float = 1.0) -> list[list[Placed]]:
    """Each block's ops with the share a device does of them and the messages after them.

    `sequence` splits what is otherwise done whole on every device (norms, residuals) along the sequence; the sum then
    travels as reduce-scatter and all-gather, the same bytes. `imbalance` is the busiest expert device's rows over the
    mean.
    """
    if parallel.tp == parallel.pp == parallel.ep == parallel.dp == 1:
        return [[Placed(op=op) for op in block.ops] for block in graph.blocks]
    if imbalance < 1:
        raise DomainError(f"The imbalance of experts is the busiest over the mean: 1 or more, and not {imbalance!r}.")
    require_plan(graph, parallel)
    split = _Split(parallel=parallel, sequence=sequence, imbalance=imbalance, states={})
    placed = [list(split.block(block)) for block in graph.blocks]
    if parallel.tp > 1:
        _require_shared(graph, placed, parallel.tp)
        placed = [_summed_once(ops) for ops in placed]
    _gather_outputs(graph, placed, split)
    _hand_on(graph, placed, parallel)
    return placed


def _summed_once(placed: list[Placed]) -> list[Placed]:
    """Two partial sums that are added to each other travel once: shared experts beside routed ones."""
    owners = {
        entry.op.outputs[0].name: number
        for number, entry in enumerate(placed)
        if entry.op.outputs and any(message.function == "all_reduce" for message in entry.messages)
    }
    for entry in placed:
        sums = [owners[tensor.name] for tensor in entry.op.inputs if tensor.name in owners]
        if entry.op.get("function") != "add" or len(sums) < 2:
            continue
        # The last of them carries the sum, as it is the last to be there.
        for number in sums[:-1]:
            kept = tuple(message for message in placed[number].messages if message.function != "all_reduce")
            placed[number] = replace(placed[number], messages=kept)
    return placed


def _require_shared(graph: Graph, placed: list[list[Placed]], tp: int) -> None:
    """Refuse a model whose weights would mostly be on every device: convolutions are not split here."""
    whole = shared = 0.0
    for block, ops in zip(graph.blocks, placed, strict=True):
        for entry in ops:
            count = block.count * sum(_elements(tensor) for tensor in entry.op.weights)
            whole, shared = whole + count, shared + (count if entry.scale.weights < 1 else 0.0)
    split = any(entry.scale.flops < 1 for ops in placed for entry in ops)
    if not split or (whole and shared < _SHARED_AT_LEAST * whole):
        much = (
            f"only {shared / whole:.0%} of its weights are in products that can be split"
            if split
            else "it has no product"
        )
        raise DomainError(
            f"{graph.name} cannot be shared by tp={tp} devices: {much}.",
            remedy="Use --dp, which gives each device a part of the batch, or --pp.",
        )


def _elements(tensor: Tensor) -> float:
    """The numbers of a weight; a size that is open counts as one."""
    return math.prod(float(dim) if isinstance(dim, int) else 1.0 for dim in tensor.shape)


@dataclass(slots=True)
class _Split:
    """A walk over the ops that remembers which tensors are split."""

    parallel: Parallel
    sequence: bool
    imbalance: float
    states: dict[str, bool]

    def block(self, block: Block) -> Iterator[Placed]:
        normed = _normed_names(block)
        for op in block.ops:
            placed, is_split = self._placed(op, normed)
            self.states |= {tensor.name: is_split for tensor in op.outputs}
            yield placed

    def _placed(self, op: Op, normed: frozenset[str]) -> tuple[Placed, bool]:
        tp = self.parallel.tp
        inputs_split = any(self.states.get(tensor.name, False) for tensor in op.inputs)
        if op.kind == "moe_experts":
            return self._experts(op), False
        if tp == 1:
            return Placed(op=op), False
        if op.kind in {"linear", "matmul"}:
            return self._product(op, normed, inputs_split=inputs_split)
        if op.kind == "embedding":
            # A table is cut by its entries: a device has a token's row or zeros, and summing them is what brings it to
            # all.
            scale = Scale(flops=1 / tp, weights=1 / tp)
            return Placed(op=op, scale=scale, messages=(self._sum(op),)), False
        if inputs_split:
            # A latent is shared by all heads and stands whole on each device; a key-value head is never cut.
            kv = 1.0 if op.get("kv_latent") else 1 / min(tp, op.get("kv_heads", op.get("heads", tp)))
            share = 1 / tp
            scale = Scale(flops=share, weights=share, reads=share, writes=share, kv=kv)
            return Placed(op=op, scale=scale, messages=self._squares(op)), True
        share = 1 / tp if self.sequence and class_of(op) == "vector" else 1.0
        return Placed(op=op, scale=replace(WHOLE, flops=share, reads=share, writes=share)), False

    def _product(self, op: Op, normed: frozenset[str], *, inputs_split: bool) -> tuple[Placed, bool]:
        share = 1 / self.parallel.tp
        if inputs_split and op.kind == "matmul":
            return Placed(op=op, scale=Scale(flops=share, reads=share, writes=share)), True
        if inputs_split:
            scale = Scale(flops=share, weights=share, reads=share)
            return Placed(op=op, scale=scale, messages=(self._sum(op),)), False
        if op.kind == "matmul" or op.outputs[0].name in normed:
            return Placed(op=op), False
        return Placed(op=op, scale=Scale(flops=share, weights=share, writes=share)), True

    def _experts(self, op: Op) -> Placed:
        """Experts spread over `ep` devices; the remaining tp · dp ÷ ep devices share each expert.

        Where attention is shared by all devices (dp = 1) each has every token: it computes its own experts, and the
        results are summed. Where attention is copied, tokens travel to their experts and back: among few copies all
        tokens are gathered everywhere and the sums scattered, as engines do, and among many each goes where it must.
        """
        tp, ep, dp = self.parallel.tp, self.parallel.ep, self.parallel.dp
        if ep == 1:
            share = 1 / tp
            messages = (self._sum(op),) if tp > 1 else ()
            return Placed(op=op, scale=Scale(flops=share, weights=share), messages=messages)
        each = max(1, tp * dp // ep)  # devices that share an expert
        busy = self.imbalance / ep
        scale = Scale(flops=busy / each, weights=1 / ep / each, reads=busy, writes=busy, batch=dp)
        if dp == 1:
            return Placed(op=op, scale=scale, messages=(self._sum(op),))
        # Gathering sends each token to dp − 1 others, an all_to_all to at most top_k: which sends less turns there.
        if dp <= op["top_k"] + 1:
            way = Message(function="all_gather", tensor=op.inputs[0], devices=ep, share=dp)
            back = replace(way, function="reduce_scatter", tensor=op.outputs[0])
            return Placed(op=op, scale=scale, messages=(way, back))
        visited = ep * (1 - (1 - 1 / ep) ** op["top_k"])  # devices: a token travels once to all its experts on one
        way = Message(function="all_to_all", tensor=op.inputs[0], devices=ep, share=dp * visited * self.imbalance)
        return Placed(op=op, scale=scale, messages=(way, replace(way, tensor=op.outputs[0])))

    def _squares(self, op: Op) -> tuple[Message, ...]:
        """A norm over all heads: each device has some of them, and the sums of their squares are added up."""
        if op.kind != "norm" or op.get("features") != op.inputs[0].shape[-1]:
            return ()
        way = Message(function="all_reduce", tensor=op.inputs[0], devices=self.parallel.tp, share=1 / op["features"])
        return (way,)

    def _sum(self, op: Op) -> Message:
        return Message(function="all_reduce", tensor=op.outputs[0], devices=self.parallel.tp)


def _normed_names(block: Block) -> frozenset[str]:
    """Outputs that a norm over their whole width reads, as they are or through views: they are kept whole.

    Not so where no product reads the norm: queries and keys of all heads go to attention, which is split.
    """
    source: dict[str, str] = {}
    names: set[str] = set()
    multiplied = {tensor.name for op in block.ops if op.kind in {"linear", "matmul"} for tensor in op.inputs}
    for op in block.ops:
        if op.kind == "view" and op.inputs:
            root = source.get(op.inputs[0].name, op.inputs[0].name)
            source |= {tensor.name: root for tensor in op.outputs}
        if op.kind == "norm" and op.inputs and op.get("features") == op.inputs[0].shape[-1]:
            if not any(tensor.name in multiplied for tensor in op.outputs):
                continue
            names.add(source.get(op.inputs[0].name, op.inputs[0].name))
    return frozenset(names)


def _gather_outputs(graph: Graph, placed: list[list[Placed]], split: _Split) -> None:
    """Logits that are split by the vocabulary are brought together at the end."""
    names = {tensor.name for tensor in graph.outputs if split.states.get(tensor.name)}
    for ops in placed:
        for number, entry in enumerate(ops):
            output = next((tensor for tensor in entry.op.outputs if tensor.name in names), None)
            if output is not None:
                message = Message(function="all_gather", tensor=output, devices=split.parallel.tp)
                ops[number] = replace(entry, messages=(*entry.messages, message))
                names.discard(output.name)


def _hand_on(graph: Graph, placed: list[list[Placed]], parallel: Parallel) -> None:
    """Between stages the output of a layer travels: once for each stage but the last."""
    if parallel.pp == 1 or not graph.blocks:
        return
    # Stages are cut between layers, and the longest stack of them is what is cut.
    longest = max(range(len(graph.blocks)), key=lambda number: graph.blocks[number].count)
    last = placed[longest][-1]
    stream = last.op.outputs[0]
    message = Message(function="send", tensor=stream, devices=2, count=parallel.pp - 1)
    placed[longest][-1] = replace(last, messages=(*last.messages, message))


def message_op(op: Op, message: Message) -> Op:
    """A message as an op of the graph, named after the op it follows."""
    attributes: Mapping[str, object] = {
        "function": message.function, "devices": message.devices, "share": message.share, "follows": op.kind,
        **({"once": True} if op.get("once") else {}),
    }  # fmt: skip
    name = f"{op.name}.{message.function}"
    return Op(name=name, kind="collective", inputs=(message.tensor,), outputs=(message.tensor,), attributes=attributes)
