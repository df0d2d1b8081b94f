"""What a template gives: the blocks of a model, or of one part of it."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn

# What configs call an activation → what the work rules do.
_FUNCTIONS = {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python": "gelu",
    "gelu_10": "gelu",
    "relu_squared": "relu2",
    "sqrelu": "relu2",
    "swish": "silu",
    "hard_swish": "hardswish",
}


@frozen
class Body:
    """`metadata` holds sizes by name; `default_sizes` in it are those of symbols that the model itself suggests."""

    blocks: tuple[Block, ...]
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    context_limit: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def function_of(name: str) -> str:
    return _FUNCTIONS.get(name, name)


def ending_in(ops: list[Op], name: str) -> tuple[Op, ...]:
    """The ops with the last one's output under that name: what the next block reads."""
    last = replace(ops[-1], outputs=(nn.tensor(name, *nn.output(ops).shape), *ops[-1].outputs[1:]))
    return (*ops[:-1], last)


def once_only(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Blocks that run once a request."""
    return tuple(replace(block, ops=nn.once(block.ops)) for block in blocks)


def labels_of(config: Any) -> int:
    """How many classes a classifier has; two, as the library takes it, where the config does not say."""
    labels = config.get("id2label")
    count: int = config.whole("num_labels", len(labels) if isinstance(labels, Mapping) and labels else 2)
    return count


@frozen
class NamePrefixes:
    """Where a part of a model stands: what goes before the names of its weights and of its ops."""

    body: str = ""  # before the body's weights: `model.`
    head: str = ""  # before its heads' weights
    at: str = ""  # before the names of ops, where the part is one of several
