"""From a `Program` to a `Graph`."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError
from inferometer.core.graph import Block, Graph, Op, Role, Tensor
from inferometer.formats.torch import control, moves, products, reductions
from inferometer.formats.torch.folding import fold
from inferometer.formats.torch.naming import with_module_names
from inferometer.formats.torch.program import Body, Call, Program, Ref
from inferometer.formats.torch.scope import Bound, Scope, UnreadableError, is_in_place
from inferometer.formats.torch.table import AtenRow, row_of

Form = Callable[[Scope, Call, AtenRow], None]

_HOST = frozenset({"_operator", "math", "builtins", "torch", "aten"})  # without a tensor they compute sizes
_BROKEN = (IndexError, KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError)
_WHOLE = frozenset({"i32", "i64"})


def program_graph(program: Program, *, architecture: str | None = None, context_limit: int | None = None) -> Graph:
    """The graph of a program: every call under its module's name, equal layers folded into blocks."""
    scope = _opened(program)
    walk(scope, program.body)
    outputs = [scope.of(Ref(name), _ends(program)).tensor for name in dict.fromkeys(program.body.outputs)]
    inputs = [scope.bound[name].tensor for name in program.body.inputs]
    named = with_module_names(scope.placed, inputs, outputs)
    folded = fold(named.placed, outputs=named.outputs)
    unused = _unused(program, scope)
    return Graph(
        name=program.name,
        blocks=(*folded.blocks, *((Block(name="stored", ops=unused),) if unused else ())),
        inputs=tuple(map(_as_input, named.inputs)),
        outputs=folded.outputs,
        architecture=architecture,
        precision=_precision(scope),
        context_limit=context_limit,
        metadata=dict(program.metadata),
    )


def _opened(program: Program) -> Scope:
    """The scope at the start: what the caller gives, and what the module holds."""
    body = program.body
    uses = Counter(ref.name for call in body.calls for ref in call.refs)
    scope = Scope(values=body.values, once=frozenset(name for name, count in uses.items() if count == 1))
    start = Call(name=program.name, target="program", arguments={}, outputs=())
    roles = _changing(program)
    for name, held in program.held.items():
        scope.whole(name, held, start, roles.get(name, held.role))
    for name in body.inputs:
        if name not in scope.bound:
            scope.make(name, start)
    return scope


def _ends(program: Program) -> Call:
    return Call(name="output", target="return", arguments={}, outputs=program.body.outputs)


def _changing(program: Program) -> dict[str, Role]:
    """Buffers that the program writes to: `kv` where attention or a product reads them, else `state`."""
    buffers = {name for name, held in program.held.items() if held.role == "constant"}
    origin = {name: name for name in buffers}
    changed = {name for name in buffers if program.held[name].name in program.mutated}
    attended: set[str] = set()
    for call in program.body.calls:
        refs = call.refs
        if not refs:
            continue
        row = row_of(call.target)
        source = origin.get(refs[0].name)
        if source is not None and (row.kind in {"view", "scatter"} or is_in_place(call)):
            origin |= dict.fromkeys(call.outputs, source)
        if source is not None and is_in_place(call):
            changed.add(source)
        if row.kind in {"attention", "matmul"}:
            attended |= {origin[ref.name] for ref in refs[:3] if ref.name in origin}
    return {name: "kv" if name in attended else "state" for name in changed}


def walk(scope: Scope, body: Body) -> None:
    for call in body.calls:
        row = row_of(call.target)
        if row.kind == "none" or (not call.outputs and call.target.partition(".")[0] in _HOST):
            continue
        try:
            _form(row)(scope, call, row)
        except UnreadableError as reason:
            scope.plain(call, AtenRow(kind="custom", attributes={"reason": f"{call.target}: {reason}"}))
        except _BROKEN as error:
            raise FormatError(
                f"The call {call.name!r} ({call.target}) has arguments that do not fit it: {error}.",
                remedy="The file is damaged, or a newer torch wrote it; export it again, or upgrade inferometer.",
            ) from error


def _form(row: AtenRow) -> Form:
    if row.form is not None:
        return _FORMS.get(row.form, _unknown)
    return {"view": moves.seen, "copy": moves.moved, "elementwise": _pointwise}.get(row.kind, moves.plain)


def _unknown(_scope: Scope, _call: Call, _row: AtenRow) -> None:
    raise UnreadableError("not a known operator")


def _pointwise(scope: Scope, call: Call, row: AtenRow) -> None:
    """In place on a buffer of the module, the buffer is what comes out."""
    refs = call.refs
    buffer = scope.of(refs[0], call).base if refs and is_in_place(call) else None
    if buffer is None:
        scope.plain(call, row)
        return
    flowing, stored = scope.operands(refs[1:], call)
    scope.emit(call, row, [buffer, *flowing], stored, outputs=(buffer,))
    scope.bound |= dict.fromkeys(call.outputs, Bound(tensor=buffer, base=buffer))


def _as_input(tensor: Tensor) -> Tensor:
    """Whole numbers that a caller gives address something: token ids, positions."""
    return replace(tensor, role="index") if tensor.dtype in _WHOLE else tensor


def _unused(program: Program, scope: Scope) -> tuple[Op, ...]:
    """Tensors that are held and that no op has: they take room and no time."""
    placed = scope.placed
    counted = {tensor.name for entry in placed for tensor in entry.op.weights}
    flowing = (tensor for entry in placed for tensor in (*entry.op.inputs, *entry.op.outputs))
    counted |= {tensor.name for tensor in flowing if tensor.role != "weight"}
    ops: dict[str, Op] = {}
    for name in program.held:
        whole = scope.bound[name].tensor
        for tensor in scope.parts.get(whole.name, (whole,)):
            if tensor.name not in counted:
                ops[tensor.name] = Op(name=tensor.name, kind="view", weights=(tensor,), source_type="stored")
    return tuple(ops.values())


def _precision(scope: Scope) -> str | None:
    """The format that most of the stored numbers have."""
    shares: Counter[str] = Counter()
    for bound in scope.bound.values():
        tensor = bound.tensor
        if tensor.role == "weight" and tensor.dtype and isinstance(tensor.elements, int):
            shares[dtype(tensor.dtype).name] += tensor.elements
    return shares.most_common(1)[0][0] if shares else None


_FORMS: dict[str, Form] = {
    **moves.FORMS,
    **products.FORMS,
    **reductions.FORMS,
    **control.forms(walk),
}
