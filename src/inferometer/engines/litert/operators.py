"""The file's operators, as the interpreter lists them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from inferometer.engines.litert.mapping import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_DELEGATE = "DELEGATE"
# They unpack a constant, or are computed when the model is loaded: engines do them once.
_ONCE = frozenset({"DENSIFY"})
_UNPACKING = frozenset({"DEQUANTIZE", "DENSIFY"})


def operators_of(details: Sequence[Mapping[str, Any]], tensors: Mapping[int, str]) -> tuple[Operator, ...]:
    """Those of the file, under the names its reader gives them; what a delegate put beside them is left out."""
    mine = [detail for detail in details if detail["op_name"] not in {_DELEGATE, *_ONCE}]
    firsts = [next((tensors.get(int(place), "") for place in each["outputs"] if int(place) >= 0), "") for each in mine]
    makers = (first for first, detail in zip(firsts, mine, strict=True) if detail["op_name"] not in _UNPACKING)
    heads = Counter(first.partition(";")[0] for first in makers)
    return tuple(_operator(detail, first, heads) for detail, first in zip(mine, firsts, strict=True))


def _operator(detail: Mapping[str, Any], first: str, heads: Mapping[str, int]) -> Operator:
    """An operator has no name of its own: its first output's, which lists what was fused into it after semicolons.

    Where the names of several operators begin with the same, each has its whole.
    """
    name, *fused = first.split(";")
    if heads.get(name, 0) > 1 and detail["op_name"] not in _UNPACKING:
        name, fused = first, []
    return Operator(
        index=int(detail["index"]),
        name=name or f"{str(detail['op_name']).lower()}_{detail['index']}",
        type=str(detail["op_name"]),
        fused=tuple(fused),
        inputs=tuple(int(place) for place in detail["inputs"]),
        outputs=tuple(int(place) for place in detail["outputs"]),
    )


def placed(
    operators: Sequence[Operator], details: Sequence[Mapping[str, Any]], has_memory: Callable[[int], bool]
) -> dict[str, int]:
    """How many operators XNNPACK took, and how many the interpreter runs itself.

    What lies between two operators of a delegate has no memory in the interpreter; what a delegate hands over is among
    its outputs.
    """
    handed = {int(place) for detail in details if detail["op_name"] == _DELEGATE for place in detail["outputs"]}
    taken = sum(
        bool(handed) and any(place in handed or not has_memory(place) for place in operator.outputs if place >= 0)
        for operator in operators
    )
    counts = {"XNNPACK": taken, "builtin": len(operators) - taken}
    return {name: count for name, count in counts.items() if count}


def partitions_of(details: Sequence[Mapping[str, Any]], operators: Sequence[Operator]) -> tuple[tuple[int, ...], ...]:
    """The operators of each delegate, in order: from what it hands over back to what it is given."""
    made_by = {place: operator for operator in operators for place in operator.outputs}
    partitions = []
    for detail in details:
        if detail["op_name"] == _DELEGATE:
            given = {int(place) for place in detail["inputs"]}
            inside: set[int] = set()
            ahead = [int(place) for place in detail["outputs"]]
            while ahead:
                operator = made_by.get(ahead.pop())
                if operator is not None and operator.index not in inside:
                    inside.add(operator.index)
                    ahead += [place for place in operator.inputs if place not in given]
            partitions.append(tuple(sorted(inside)))
    return tuple(partitions)
