"""Operators whose arguments say how much they compute: norms, pools, reductions, sorts and some functions."""

import re

from inferometer.formats.torch.program import ProgramCall
from inferometer.formats.torch.scope import ProgramScope
from inferometer.formats.torch.table import AtenRow, base_name

_SPATIAL = re.compile(r"([123])d")


def _overload(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """`max` of two tensors compares them number by number; of one tensor it is a reduction."""
    name = base_name(call.target)
    if call.target.endswith(".other"):
        scope.plain(call, row)
    else:
        _reduce(scope, call, row.but("reduce", function=name))


def _gelu(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    function = "gelu_tanh" if call.arguments.get("approximate") == "tanh" else "gelu"
    scope.plain(call, row.but(function=function))


def _glu(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """One half times the sigmoid of the other: a sigmoid's four operations and a product."""
    scope.plain(call, row.but(flops_per_element=5))


def _reduce(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    axes = call.arguments.get("dim")
    scope.plain(call, row.but(axes=axes if isinstance(axes, tuple) else (axes,) if isinstance(axes, int) else None))


def _sort(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    axis, kept = call.arguments.get("dim"), call.arguments.get("k")
    x = scope.value(call.refs[0], call)
    if not x.shape:  # one number is sorted as it is
        scope.plain(call, row.but("copy"))
        return
    index = axis if isinstance(axis, int) and -len(x.shape) <= axis < len(x.shape) else -1
    kept = None if isinstance(kept, float | bool) else kept
    scope.plain(call, row.but(axis=index, k=kept))


def _pool(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    rank = _rank(call)
    given = call.arguments.get("kernel_size")
    sides = given if isinstance(given, tuple) else (given,)
    kernel = tuple(sides) * rank if len(sides) == 1 else tuple(sides)
    scope.plain(call, row.but(kernel=None if None in kernel else kernel))


def _adaptive_pool(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """Windows as large as they must be for the output's size; one window is a global pool."""
    rank = _rank(call)
    before = scope.value(call.refs[0], call).shape[-rank:]
    after = scope.value(call.outputs[0], call).shape[-rank:]
    if all(size == 1 for size in after) or 0 in after:
        scope.plain(call, row.but(function="global", pooling=row.attributes["function"]))
        return
    kernel = tuple(into if out == 1 else -(-into // out) for into, out in zip(before, after, strict=True))
    scope.plain(call, row.but(kernel=kernel))


def _rank(call: ProgramCall) -> int:
    match = _SPATIAL.search(base_name(call.target))
    return int(match[1]) if match else 2


FORMS = {
    "overload": _overload,
    "gelu": _gelu,
    "glu": _glu,
    "reduce": _reduce,
    "sort": _sort,
    "pool": _pool,
    "adaptive_pool": _adaptive_pool,
}
