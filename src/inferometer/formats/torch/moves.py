"""Operators that rename, move, address or convert numbers, and those that are given functions: branches and loops."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim, evaluate, product, symbols_in
from inferometer.core.errors import DomainError, FormatError
from inferometer.core.graph import Op, Tensor
from inferometer.formats.torch.products import FORMS as PRODUCTS
from inferometer.formats.torch.program import (
    Argument,
    AtenRow,
    ProgramBody,
    ProgramCall,
    ProgramValue,
    Ref,
    base_name,
    refs_in,
)
from inferometer.formats.torch.scope import Bound, ProgramScope, UnreadableCallError, is_in_place

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
    "split": _split, "dropout": _dropout, "reshape": _reshape, "cast": _cast, "create": _create,
    "embedding": _embedding, "gather": _gather, "scatter": _scatter, "dequantize": _dequantize,
}  # fmt: skip


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


_MAX_NESTING = 48


def forms(
    walk: Callable[[ProgramScope, ProgramBody], None],
) -> dict[str, Callable[[ProgramScope, ProgramCall, AtenRow], None]]:
    """Converters of the higher-order operators. `walk` converts a body in a scope."""

    def cond(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
        """One of two branches."""
        bodies, operands = _parts(call)
        _controlled(scope, call, row, [_inside(scope, call, body, operands) for body in bodies])

    def while_loop(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
        """Condition and body, as often as the data says: the number of rounds is not known."""
        bodies, operands = _parts(call)
        ops = tuple(op for body in bodies for op in _inside(scope, call, body, operands))
        _controlled(scope, call, row, [ops])

    def scan(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
        """A body for each entry of the tensors that are scanned, along their first axis."""
        bodies, operands = _parts(call)
        # `scan` is given a body, what is carried and what is scanned; `map` a body and what is mapped over
        after: list[Argument] = []
        for argument in call.arguments.values():
            after = [] if isinstance(argument, ProgramBody) else [*after, argument]
        index = 1 if call.target.endswith(".scan") else 0
        scanned = next(iter(refs_in(after[index])), None) if len(after) > index else None
        trips = scope.value(scanned, call).shape[:1] if scanned else ()
        if not trips:
            raise UnreadableCallError("nothing that is scanned")
        _controlled(scope, call, row, [_inside(scope, call, body, operands) for body in bodies], trips[0])

    def inlined(scope: ProgramScope, call: ProgramCall, _row: AtenRow) -> None:
        """A region that changes no numbers (no gradients, another autocast): its calls stand where it stands."""
        bodies, operands = _parts(call)
        if len(bodies) != 1:
            raise UnreadableCallError("not one body")
        inner = _enter(scope, call, bodies[0], operands)
        walk(inner, _placed_in(bodies[0], call.path))
        scope.placed += inner.placed
        for name, made in zip(call.outputs, bodies[0].outputs, strict=False):
            scope.bound[name] = inner.of(Ref(made), call)

    def flex(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
        """Attention with a score function; the pairs that its block mask leaves out are not known, so all count."""
        refs = call.refs
        named = dict(zip(("query", "key", "value"), refs[:3], strict=True))
        PRODUCTS["attention"](scope, replace(call, arguments=named), row.but("attention"))

    def _inside(scope: ProgramScope, call: ProgramCall, body: ProgramBody, operands: tuple[Ref, ...]) -> tuple[Op, ...]:
        inner = _enter(scope, call, body, operands)
        walk(inner, _placed_in(body, call.path))
        return tuple(placed.op for placed in inner.placed)

    wrappers = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph", "hints_wrapper", "wrap",
                "tag_activation_checkpoint", "wrap_activation_checkpoint", "strict_mode")  # fmt: skip
    return {
        "higher_order.cond": cond,
        "higher_order.while_loop": while_loop,
        "higher_order.scan": scan,
        "higher_order.map_impl": scan,
        "higher_order.map": scan,
        "higher_order.flex_attention": flex,
        **{f"higher_order.{name}": inlined for name in wrappers},
    }


def _parts(call: ProgramCall) -> tuple[list[ProgramBody], tuple[Ref, ...]]:
    """The functions an operator is given, and the tensors after them, which they are called with."""
    arguments = list(call.arguments.values())
    indices = [index for index, argument in enumerate(arguments) if isinstance(argument, ProgramBody)]
    after = tuple(arguments[indices[-1] + 1 :]) if indices else ()
    return [arguments[index] for index in indices], refs_in(after)


def _enter(scope: ProgramScope, call: ProgramCall, body: ProgramBody, operands: tuple[Ref, ...]) -> ProgramScope:
    if scope.depth >= _MAX_NESTING:
        raise FormatError(f"The call {call.name!r} stands more than {_MAX_NESTING} functions deep.")
    inner = scope.inside(body.values, call.name)
    if len(body.inputs) > len(operands):
        raise FormatError(
            f"The call {call.name!r} ({call.target}) has a function of {len(body.inputs)} tensors and gives "
            f"{len(operands)}.",
            remedy="The file is damaged; save it again.",
        )
    for name, ref in zip(body.inputs, operands, strict=False):
        given, shape = scope.of(ref, call), inner.value(name, call).shape
        outer = scope.value(ref, call).shape
        if shape == outer:
            inner.bound[name] = given
        else:  # one entry of what is scanned
            dtype = inner.value(name, call).dtype
            inner.bound[name] = Bound(tensor=Tensor(name=inner.prefix + name, shape=shape, dtype=dtype))
    return inner


def _placed_in(body: ProgramBody, path: str) -> ProgramBody:
    """Calls that name no module stand in the one their operator stands in."""
    return replace(body, calls=tuple(call if call.path else replace(call, path=path) for call in body.calls))


def _controlled(
    scope: ProgramScope, call: ProgramCall, row: AtenRow, bodies: list[tuple[Op, ...]], trips: Dim | None = None
) -> None:
    if not bodies:
        raise UnreadableCallError("no body")
    flowing, stored = scope.operands(call.refs, call)
    within = [weight for body in bodies for op in body for weight in op.weights]
    weights = list({weight.name: weight for weight in (*stored, *within)}.values())
    scope.emit(call, row.but("control", bodies=tuple(bodies), trips=trips), flowing, weights)
