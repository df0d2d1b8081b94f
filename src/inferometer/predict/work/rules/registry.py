"""Where the rules stand: one function for each op kind, found by the kind's name."""

from collections.abc import Callable
from typing import TypeVar

from inferometer.core.binding import Binding
from inferometer.core.errors import FormatError, UnknownNameError
from inferometer.core.graph import KINDS, Op
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
