"""From a `Program` to a `Graph`."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Role, Tensor
from inferometer.formats.torch import moves, products
from inferometer.formats.torch.program import AtenRow, Program, ProgramBody, ProgramCall, Ref, base_name, row_of
from inferometer.formats.torch.scope import (
    Bound,
    PlacedOp,
    ProgramScope,
    UnreadableCallError,
    is_in_place,
    rewritten,
    with_module_names,
)

# Operators whose arguments say how much they compute: norms, pools, reductions, sorts and some functions.

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


# Equal layers as one block.
#
# Layers are modules whose names differ in an index (`model.layers.0`, `model.layers.1`). A run of them is one block
# when their ops are equal but for that index, and when what each takes from the one before has the same place in all.
# What is handed on keeps the name it has where it enters the run; every repetition writes it again. What a layer makes
# for others (a skip, a cache) has the index in its name.

_NUMBER = re.compile(r"(?:^|\.)(\d{1,9})(?=\.|$)")
_PREVIOUS = "\0"  # before a name: the tensor of that name in the layer before
_FLOWING = frozenset({"activation", "index"})
_TRIES = 3  # the first layers of a run may be given something else than the others


@frozen
class Folded:
    blocks: tuple[Block, ...]
    outputs: tuple[Tensor, ...]


@frozen
class _Layer:
    """Consecutive ops of one indexed module. `place` is the number of the first of them in the graph.

    `template` are its ops with `{}` for its index and a mark on what comes from the layer before.
    """

    prefix: str
    index: int
    place: int
    entries: tuple[PlacedOp, ...]
    template: tuple[Op, ...]

    @property
    def name(self) -> str:
        return _indexed(self.prefix, str(self.index))


@dataclass(slots=True, kw_only=True)
class _Names:
    """The last op that reads each tensor, by number; and what tensors are called after folding."""

    last_read: dict[str, int]
    renamed: dict[str, str] = field(default_factory=dict)

    def final(self, tensor: Tensor) -> Tensor:
        name = tensor.name
        while name in self.renamed:
            name = self.renamed[name]
        return tensor if name == tensor.name else replace(tensor, name=name)


def fold(placed: Sequence[PlacedOp], *, outputs: Sequence[Tensor]) -> Folded:
    """Blocks in the order of execution. `outputs` are the graph's own."""
    last_read = {tensor.name: index for index, entry in enumerate(placed) for tensor in _read(entry.op)}
    last_read |= {tensor.name: len(placed) for tensor in outputs}
    names = _Names(last_read=last_read)
    blocks = _joined(_folded(placed, 0, 0, names, "main"))
    return Folded(
        blocks=tuple(replace(block, ops=tuple(rewritten(op, names.final) for op in block.ops)) for block in blocks),
        outputs=tuple(names.final(tensor) for tensor in outputs),
    )


def _joined(blocks: list[Block]) -> Iterator[Block]:
    """Neighbours of one name that are not repeated are one block."""
    for (name, count), same in groupby(blocks, key=lambda block: (block.name, block.count)):
        members = list(same)
        if count == 1:
            yield Block(name=name, ops=tuple(op for block in members for op in block.ops))
        else:
            yield from members


def _read(op: Op) -> Iterator[Tensor]:
    """Tensors that flow into an op or into ops inside it."""
    yield from (tensor for tensor in op.inputs if tensor.role in _FLOWING)
    for body in op.get("bodies", ()):
        for inner in body:
            yield from _read(inner)


def _folded(placed: Sequence[PlacedOp], place: int, depth: int, names: _Names, name: str) -> list[Block]:
    """Fold at the `depth`-th index of module names, and within what is not folded at the next."""
    blocks: list[Block] = []
    run: list[_Layer] = []
    for key, members in groupby(placed, key=lambda entry: _layer_of(entry.path, depth)):
        entries = tuple(members)
        if run and (key is None or (run[-1].prefix, run[-1].index + 1) != key):
            blocks += _run_blocks(run, depth, names, name)
            run = []
        if key is None:
            blocks.append(Block(name=name, ops=tuple(entry.op for entry in entries)))
        else:
            template = _template(*key, entries)
            run.append(_Layer(prefix=key[0], index=key[1], place=place, entries=entries, template=template))
        place += len(entries)
    return [*blocks, *_run_blocks(run, depth, names, name)]


def _layer_of(path: str, depth: int) -> tuple[str, int] | None:
    """The module down to its `depth`-th index: `layers.3.mlp.experts.7` is (`layers`, 3), then (`…experts`, 7)."""
    indices = list(_NUMBER.finditer(path))
    return (path[: indices[depth].start()], int(indices[depth][1])) if len(indices) > depth else None


def _run_blocks(run: list[_Layer], depth: int, names: _Names, name: str) -> Iterator[Block]:
    """Layers whose indices count up: equal ones as one block, the others as they are."""
    start = end = 0
    tries = 0
    while start < len(run):
        if end < start + 2:
            end, tries = start + 2, 0
            while end < len(run) and run[end].template == run[end - 1].template:
                end += 1
        block = _block(run[start:end], names) if tries < _TRIES else None
        tries += 1
        if block is None:
            yield from _single(run[start], depth, names, name)
            start += 1
        else:
            yield block
            start = end


def _single(layer: _Layer, depth: int, names: _Names, name: str) -> list[Block]:
    """A layer that is not folded. One without modules of its own (a Sequential's ReLU) belongs to what is around it."""
    if all(entry.path == layer.name for entry in layer.entries):
        return [Block(name=name, ops=tuple(entry.op for entry in layer.entries))]
    return _folded(layer.entries, layer.place, depth + 1, names, layer.name)


def _indexed(prefix: str, index: str) -> str:
    return f"{prefix}.{index}" if prefix else index


def _template(prefix: str, index: int, entries: Sequence[PlacedOp]) -> tuple[Op, ...]:
    mine, before = _indexed(prefix, str(index)), _indexed(prefix, str(index - 1))
    stem = _indexed(prefix, "{}")

    def name_of(name: str) -> str:
        rest = _under(mine, name)
        return name if rest is None else stem + rest

    def tensor(found: Tensor) -> Tensor:
        rest = _under(before, found.name)
        return replace(found, name=name_of(found.name) if rest is None else _PREVIOUS + rest)

    return tuple(
        rewritten(replace(entry.op, name=name_of(entry.op.name)), tensor, name_of=name_of) for entry in entries
    )


def _under(module: str, name: str) -> str | None:
    """What follows a module's name in a name under it."""
    if name == module:
        return ""
    return name[len(module) :] if name.startswith((f"{module}.", f"{module}[")) else None


def _block(run: list[_Layer], names: _Names) -> Block | None:
    """The layers as one block; None where they are not equal, or hand on what others read too."""
    if len(run) < 2:
        return None
    first, last = run[0], run[-1]
    entering = _entering(first, run[1])
    if entering is None or not all(_carried(run, rest, initial, names) for rest, initial in entering.items()):
        return None
    stem, before = _indexed(first.prefix, "{}"), _indexed(first.prefix, str(first.index - 1))
    local = {stem + rest: initial for rest, initial in entering.items()}
    names.renamed |= {last.name + rest: initial for rest, initial in entering.items()}

    def tensor(found: Tensor) -> Tensor:
        name = local.get(found.name, _absolute(found.name, before))
        return found if name == found.name else replace(found, name=name)

    ops = tuple(rewritten(op, tensor) for op in first.template)
    return Block(name=first.prefix or "layers", ops=ops, count=len(run), first=first.index)


def _absolute(name: str, before: str) -> str:
    """A marked name in full, given the module before."""
    return before + name.removeprefix(_PREVIOUS) if name.startswith(_PREVIOUS) else name


def _entering(first: _Layer, second: _Layer) -> dict[str, str] | None:
    """What the first layer is given where the second has the first's tensors; None where they are not equal."""
    ops = list(zip(first.template, second.template, strict=False))
    alike = len(first.template) == len(second.template) and all(_alike(one, other) for one, other in ops)
    if not alike:
        return None
    before = _indexed(first.prefix, str(first.index - 1))
    entering: dict[str, str] = {}
    for mine, theirs in (pair for one, other in ops for pair in zip(one.inputs, other.inputs, strict=True)):
        initial = _absolute(mine.name, before)
        if not theirs.name.startswith(_PREVIOUS):
            same = initial == theirs.name
        else:
            same = entering.setdefault(theirs.name.removeprefix(_PREVIOUS), initial) == initial
        if not same:
            return None
    return entering if len(set(entering.values())) == len(entering) else None


def _alike(one: Op, other: Op) -> bool:
    """Whether two ops are equal but for the names of what flows in."""
    anonymous = [tuple(replace(tensor, name="") for tensor in op.inputs) for op in (one, other)]
    same = replace(one, inputs=()) == replace(other, inputs=()) and anonymous[0] == anonymous[1]
    return same and not _reaches_back(one) and not _reaches_back(other)


def _reaches_back(op: Op) -> bool:
    """Whether ops inside an op read from the layer before; such layers are not folded."""
    inner = (tensor for body in op.get("bodies", ()) for within in body for tensor in _read(within))
    return any(tensor.name.startswith(_PREVIOUS) for tensor in inner)


def _carried(run: list[_Layer], rest: str, initial: str, names: _Names) -> bool:
    """Whether nobody reads what is handed on once the next layer has written its own."""
    stem = _indexed(run[0].prefix, "{}") + rest
    maker = next((n for n, op in enumerate(run[0].template) if any(t.name == stem for t in op.outputs)), None)
    if maker is None:
        return False
    handed = [initial, *(layer.name + rest for layer in run[:-1])]
    return all(names.last_read.get(name, 0) <= layer.place + maker for name, layer in zip(handed, run, strict=True))


Form = Callable[[ProgramScope, ProgramCall, AtenRow], None]

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
    # The format that most of the stored numbers have.
    shares: Counter[str] = Counter()
    for bound in scope.bound.values():
        tensor = bound.tensor
        if tensor.role == "weight" and tensor.dtype and isinstance(tensor.elements, int):
            shares[dtype(tensor.dtype).name] += tensor.elements
    precision = shares.most_common(1)[0][0] if shares else None
    return Graph(
        name=program.name,
        blocks=(*folded.blocks, *((Block(name="stored", ops=unused),) if unused else ())),
        inputs=tuple(map(_as_input, named.inputs)),
        outputs=folded.outputs,
        architecture=architecture,
        precision=precision,
        context_limit=context_limit,
        metadata=dict(program.metadata),
    )


def _opened(program: Program) -> ProgramScope:
    """The scope at the start: what the caller gives, and what the module holds."""
    body = program.body
    uses = Counter(ref.name for call in body.calls for ref in call.refs)
    scope = ProgramScope(values=body.values, once=frozenset(name for name, count in uses.items() if count == 1))
    start = ProgramCall(name=program.name, target="program", arguments={}, outputs=())
    roles = _changing(program)
    for name, held in program.held.items():
        scope.whole(name, held, start, roles.get(name, held.role))
    for name in body.inputs:
        if name not in scope.bound:
            scope.make(name, start)
    return scope


def _ends(program: Program) -> ProgramCall:
    return ProgramCall(name="output", target="return", arguments={}, outputs=program.body.outputs)


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


def walk(scope: ProgramScope, body: ProgramBody) -> None:
    for call in body.calls:
        row = row_of(call.target)
        if row.kind == "none" or (not call.outputs and call.target.partition(".")[0] in _HOST):
            continue
        try:
            _form(row)(scope, call, row)
        except UnreadableCallError as reason:
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


def _unknown(_scope: ProgramScope, _call: ProgramCall, _row: AtenRow) -> None:
    raise UnreadableCallError("not a known operator")


def _pointwise(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
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


def _unused(program: Program, scope: ProgramScope) -> tuple[Op, ...]:
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


_FORMS: dict[str, Form] = {
    **moves.FORMS, **products.FORMS, "overload": _overload, "gelu": _gelu, "glu": _glu, "reduce": _reduce,
    "sort": _sort, "pool": _pool, "adaptive_pool": _adaptive_pool, **moves.forms(walk),
}  # fmt: skip
