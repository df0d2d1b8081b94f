"""Operators that rename, move, address or convert numbers."""

from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim, evaluate, product, symbols_in
from inferometer.core.errors import DomainError
from inferometer.core.graph import Tensor
from inferometer.formats.torch.program import AtenRow, ProgramCall, ProgramValue, Ref, base_name
from inferometer.formats.torch.scope import Bound, ProgramScope, is_in_place

_SMALL, _FLOATS = frozenset({"i8", "u8", "i4", "u4"}), frozenset({"f32", "f16", "bf16"})
_WIDENING = frozenset({"expand", "expand_as", "broadcast_to"})


def plain(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """An operator whose tensors say it all."""
    scope.plain(call, row)


def seen(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """A view. One of all of a weight is the weight; one of a cache reads from the cache."""
    refs = call.refs
    if not refs or len(call.outputs) != 1:
        scope.plain(call, row.but("view"))
        return
    source, name = scope.of(refs[0], call), call.outputs[0]
    shape, before = scope.value(name, call).shape, scope.value(refs[0], call).shape
    if source.stored and (base_name(call.target) in _WIDENING or product(shape) == product(before)):
        scope.bound[name] = source
    elif source.tensor.role == "kv":
        scope.bound[name] = replace(source, tensor=replace(source.tensor, shape=shape, stored_bytes=None))
    else:
        flowing, stored = scope.operands(refs[0], call)
        scope.emit(call, row.but("view"), flowing, stored)
        scope.bound[name] = replace(scope.bound[name], base=source.base)


def moved(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """A copy. In place, the first argument is only written to."""
    if is_in_place(call) and base_name(call.target) == "copy":
        written(scope, call, row)
    else:
        scope.plain(call, row)


def written(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """A write into a buffer, or into a part of any tensor: only the new numbers move."""
    refs = call.refs
    target = scope.of(refs[0], call)
    flowing, stored = scope.operands(refs[1:], call)
    if target.base is None:
        scope.emit(call, row.but("copy"), flowing, stored)
        return
    buffer = target.base
    scope.emit(call, row.but("scatter", in_place=True), [buffer, *flowing], stored, outputs=(buffer,))
    for name in call.outputs:
        scope.bound[name] = target if is_in_place(call) else Bound(tensor=buffer, base=buffer)


def _split(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """Pieces of a tensor. A weight that is used in pieces only is as many weights."""
    refs = call.refs
    source = scope.of(refs[0], call) if refs else None
    if source is None or not source.stored or refs[0].name not in scope.once:
        scope.plain(call, row)
        return
    whole = source.tensor
    pieces = tuple(
        replace(whole, name=f"{whole.name}[{index}]", shape=scope.value(name, call).shape, stored_bytes=None)
        for index, name in enumerate(call.outputs)
    )
    if sum(piece.elements for piece in pieces if isinstance(piece.elements, int)) != whole.elements:
        scope.plain(call, row)
        return
    scope.parts[whole.name] = pieces
    scope.bound |= {name: Bound(tensor=piece) for name, piece in zip(call.outputs, pieces, strict=True)}


def _dropout(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """Nothing, except in training, which multiplies by a mask and a scale."""
    if call.arguments.get("train"):
        scope.plain(call, row.but("elementwise", function="dropout", flops_per_element=2))
    else:
        seen(scope, call, row)


def _reshape(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """A view where the numbers lie as the new shape wants them, else a copy. Unknown strides are taken as regular."""
    refs = call.refs
    before = scope.value(refs[0], call)
    after = scope.value(call.outputs[0], call)
    moves = is_contiguous(before) is False if base_name(call.target) == "contiguous" else _reshape_moves(before, after)
    if not moves or scope.of(refs[0], call).stored:
        seen(scope, call, row)
        return
    flowing, stored = scope.operands(refs[0], call)
    scope.emit(call, row.but("copy", function=base_name(call.target)), flowing, stored)


def _cast(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """To another format, or to the same one: then it is a view, or a copy where the operator says so.

    A matrix of small integers that becomes floats is a quantised weight, which is widened to be multiplied.
    """
    refs = call.refs
    source = scope.value(refs[0], call)
    before, after = source.dtype, scope.value(call.outputs[0], call).dtype
    if before in _SMALL and after in _FLOATS and len(source.shape) > 1 and scope.of(refs[0], call).stored:
        scope.bound[call.outputs[0]] = scope.of(refs[0], call)
    elif before != after:
        flowing, stored = scope.operands(refs[0], call)
        scope.emit(call, row.but(to=after), flowing, stored)
    elif base_name(call.target) == "_to_copy":
        scope.plain(call, row.but("copy"))
    else:
        seen(scope, call, row)


def _create(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """New numbers: nothing is read, whatever the operator takes its shape from."""
    refs = call.refs
    if is_in_place(call) and refs and scope.of(refs[0], call).base is not None:
        written(scope, call, row)
    else:
        scope.emit(call, row)


def _index(tensor: Tensor) -> Tensor:
    return replace(tensor, role="index") if tensor.role == "activation" else tensor


def _embedding(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    table, ids = call.arguments.get("weight"), call.arguments.get("indices")
    if not isinstance(table, Ref) or not isinstance(ids, Ref) or not scope.of(table, call).stored:
        _gather(scope, call, row.but("gather"))
        return
    bound = scope.of(table, call)
    scope.emit(call, row, [_index(scope.of(ids, call).tensor)], [bound.tensor, *bound.beside])


def _gather(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    refs = call.refs
    flowing, stored = scope.operands(refs[:1], call)
    indices, constants = scope.operands(refs[1:], call)
    inputs = [*flowing, *(_index(tensor) for tensor in (*indices, *constants))]
    scope.emit(call, row.but(**_axis(call)), inputs, stored)


def _scatter(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    refs = call.refs
    if refs and scope.of(refs[0], call).base is not None:
        written(scope, call, row)
        return
    flowing, stored = scope.operands(refs, call)
    row = row.but(in_place=True) if is_in_place(call) and flowing else row
    scope.emit(call, row.but(**_axis(call)), flowing or stored[:1], stored)


def _axis(call: ProgramCall) -> dict[str, Any]:
    axis = call.arguments.get("dim")
    return {"axis": axis} if isinstance(axis, int) else {}


def _dequantize(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """A stored weight stays as it is stored, with its scales beside it: engines widen it as they multiply."""
    refs = call.refs
    bound = scope.of(refs[0], call)
    if not bound.stored:
        scope.plain(call, row)
        return
    scales = tuple(
        replace(scope.of(ref, call).tensor, role="constant") for ref in refs[1:] if scope.of(ref, call).stored
    )
    scope.bound[call.outputs[0]] = replace(bound, beside=(*bound.beside, *scales))


FORMS = {
    "split": _split,
    "dropout": _dropout,
    "reshape": _reshape,
    "cast": _cast,
    "create": _create,
    "embedding": _embedding,
    "gather": _gather,
    "scatter": _scatter,
    "dequantize": _dequantize,
}


# Open sizes are tried at numbers that most others divide and that no two symbols share.
_TRIED = 5040
_APART = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43)


def is_contiguous(value: ProgramValue) -> bool | None:
    """Whether the last axis lies densest and each other as close as it can; None where that is unknown."""
    strides = value.strides
    numbers = None if strides is None else _numbers((*value.shape, *strides))
    if numbers is None:
        return None
    rank = len(value.shape)
    expected = 1
    for size, stride in zip(reversed(numbers[:rank]), reversed(numbers[rank:]), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _reshape_moves(before: ProgramValue, after: ProgramValue) -> bool | None:
    """Whether reshaping must copy: the new axes have to fall together with axes that lie evenly in memory.

    Axes (from the last) that follow each other without a gap are one run of numbers. A new shape that cuts the runs
    into pieces needs no copy; one with an axis across two runs does. None where strides are not known.
    """
    strides = before.strides
    numbers = None if strides is None else _numbers((*before.shape, *strides, *after.shape))
    if numbers is None:
        return None
    rank = len(before.shape)
    sizes, steps, wanted = numbers[:rank], numbers[rank : 2 * rank], numbers[2 * rank :]
    if 0 in sizes:
        return False
    runs = _runs(sizes, steps)
    for size in reversed(wanted):
        if size == 1:
            continue
        if not runs or runs[-1] % size:
            return True
        runs[-1] //= size
        if runs[-1] == 1:
            runs.pop()
    return False


def _runs(sizes: list[int], steps: list[int]) -> list[int]:
    """How many numbers each run has, the innermost last."""
    runs: list[int] = []
    reach = None
    for size, step in zip(reversed(sizes), reversed(steps), strict=True):
        if size == 1:
            continue
        if reach is not None and step == reach:
            runs[0] *= size
        else:
            runs.insert(0, size)
        reach = step * size
    return runs


def _numbers(dims: tuple[Dim, ...]) -> list[int] | None:
    """The dims with numbers for the symbols in them."""
    symbols = sorted(frozenset().union(*(symbols_in(dim) for dim in dims)))
    tried = {name: _TRIED * _APART[index % len(_APART)] for index, name in enumerate(symbols)}
    try:
        return [int(evaluate(dim, tried)) for dim in dims]
    except (DomainError, ZeroDivisionError):
        return None
