"""What the rules share: the bytes an op moves when it touches each of its tensors once."""

from collections.abc import Iterable
from typing import Any

from inferometer.core.binding import Binding
from inferometer.core.dims import product
from inferometer.core.graph import Op, Tensor
from inferometer.core.work import Work

_STORED = ("weight", "constant")


def streams(op: Op, binding: Binding) -> dict[str, Any]:
    """Bytes by stream: every input and weight read once, every output written once.

    An input that is named twice (x · x) is read once. A state is updated in place: where only one side of the op names
    it, the same bytes move on the other side too.
    """

    def bytes_of(tensors: Iterable[Tensor], *roles: str) -> Any:
        return sum(binding.nbytes(tensor) for tensor in dict.fromkeys(tensors) if tensor.role in roles)

    state_in, state_out = bytes_of(op.inputs, "state"), bytes_of(op.outputs, "state")
    names_in, names_out = (any(t.role == "state" for t in side) for side in (op.inputs, op.outputs))
    return {
        "weights": bytes_of((*op.weights, *op.inputs), *_STORED),
        "reads": bytes_of(op.inputs, "activation", "index") + (state_in if names_in else state_out),
        "writes": bytes_of(op.outputs, "activation", "index") + (state_out if names_out else state_in),
        "kv_reads": bytes_of(op.inputs, "kv"),
        "kv_writes": bytes_of(op.outputs, "kv"),
    }


def moving(op: Op, binding: Binding, flops: Any) -> Work:
    """Work of an op that touches each of its tensors once and computes `flops` on the way."""
    return Work(flops={binding.arithmetic(op): flops}, **streams(op, binding))


def rows(tensor: Tensor, binding: Binding) -> Any:
    """How many vectors a tensor [..., k] holds."""
    return binding.size(product(tensor.shape[:-1]))


def activations(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor.role == "activation")
