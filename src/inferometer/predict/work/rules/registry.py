"""Where the rules stand: one function for each op kind, found by the kind's name; and what they share."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from inferometer.core.binding import Binding
from inferometer.core.dims import product
from inferometer.core.errors import FormatError, UnknownNameError
from inferometer.core.graph import KINDS, Op, Tensor
from inferometer.core.work import Work

Rule = Callable[[Op, Binding], Work]
R = TypeVar("R", bound=Rule)

RULES: dict[str, Rule] = {}


def rule(*kinds: str) -> Callable[[R], R]:
    """Register a function as the work rule of one kind, or of several that work alike."""

    def register(function: R) -> R:
        for kind in kinds:
            if kind not in KINDS:
                raise UnknownNameError("op kind", kind, KINDS)
            RULES[kind] = function
        return function

    return register


def covered(op: Op) -> bool:
    """Whether the op's work can be counted: its kind has a rule, and a loop says how often it runs."""
    # Of two bodies one runs, so a branch needs no count; a loop without one could run for ever.
    if op.kind == "control" and len(op.get("bodies", ())) < 2 and op.get("trips") is None:
        return False
    return op.kind in RULES


def work_of(op: Op, binding: Binding) -> Work:
    """The work of running an op once. An op that is not `covered` has none that could be stated: zero."""
    if not covered(op):
        return Work()
    try:
        return RULES[op.kind](op, binding)
    except KeyError as missing:
        raise _incomplete(op, f"attribute {missing.args[0]!r}") from missing
    except IndexError as missing:
        raise _incomplete(op, "tensor or dimension its rule needs") from missing


def _incomplete(op: Op, lacking: str) -> FormatError:
    return FormatError(
        f"The {op.kind} op {op.name!r} has no {lacking}.",
        remedy="The reader that made this graph must give it, or call the op `custom`.",
    )


# What the rules share: the bytes an op moves when it touches each of its tensors once.

_STREAMS = {
    "weight": "weights", "constant": "weights", "activation": "moved", "index": "moved", "kv": "kv", "state": "state",
}  # fmt: skip


def streams(op: Op, binding: Binding) -> dict[str, Any]:
    """Bytes by stream: every input and weight read once, every output written once.

    An input that is named twice (x · x) is read once. A state is updated in place: where only one side of the op names
    it, the same bytes move on the other side too.
    """

    def bytes_of(tensors: tuple[Tensor, ...]) -> dict[str, Any]:
        """By stream; a tensor that is named twice counts once."""
        total: dict[str, Any] = {}
        for tensor in dict.fromkeys(tensors) if len(tensors) > 1 else tensors:
            stream = _STREAMS[tensor.role]
            total[stream] = total.get(stream, 0) + binding.nbytes(tensor)
        return total

    ins, outs = bytes_of(op.inputs), bytes_of(op.outputs)
    stored = bytes_of((*op.weights, *op.inputs)) if op.weights else ins
    state = {"reads": ins.get("state", outs.get("state", 0)), "writes": outs.get("state", ins.get("state", 0))}
    return {
        "weights": stored.get("weights", 0),
        "reads": ins.get("moved", 0) + state["reads"],
        "writes": outs.get("moved", 0) + state["writes"],
        "kv_reads": ins.get("kv", 0),
        "kv_writes": outs.get("kv", 0),
    }


def moving(op: Op, binding: Binding, flops: Any) -> Work:
    """Work of an op that touches each of its tensors once and computes `flops` on the way."""
    return Work(flops={binding.arithmetic(op): flops}, **streams(op, binding))


def rows(tensor: Tensor, binding: Binding) -> Any:
    """How many vectors a tensor [..., k] holds."""
    return binding.size(product(tensor.shape[:-1]))


def activations(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor.role == "activation")
