"""From a program to a graph: its instructions in order, those of ATen by the rows that exported programs are read by.

A node is called by its operator and the number of its instruction (`convolution_4`), one of a delegate also by its
place there (`conv2d_0.3`): the file has no names, and an engine that runs it tells these numbers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from inferometer.core.graph import Block, Graph, Tensor
from inferometer.formats.executorch.delegated import XnnSite, opaque_op, xnnpack_ops
from inferometer.formats.executorch.program import PteTensor, TensorList
from inferometer.formats.executorch.xnnpack import BACKEND, parse_xnnpack
from inferometer.formats.torch.convert import walk
from inferometer.formats.torch.program import Body, Call, Held, Ref, Value, named_arguments
from inferometer.formats.torch.scope import Bound, Placed, Scope

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.core.graph import Role
    from inferometer.formats.executorch.program import Instruction, PteProgram

# The names of arguments that say something about the work; a program gives them by their places.
_NAMES = {
    "convolution": ("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding",
                    "groups"),
    "linear": ("input", "weight", "bias"),
    "max_pool2d_with_indices": ("self", "kernel_size", "stride"),
    "max_pool2d": ("self", "kernel_size", "stride"),
    "avg_pool2d": ("self", "kernel_size", "stride"),
    "embedding": ("weight", "indices"),
    "topk": ("self", "k", "dim"),
    "gelu": ("self", "approximate"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
}  # fmt: skip
_USUAL = ("self", "dim")
# Operators that name the order of axes in memory, as those that leave it to strides.
_ALIKE = {
    "dim_order_ops::_to_dim_order_copy": "aten::_to_copy",
    "dim_order_ops::_clone_dim_order": "aten::clone",
    "dim_order_ops::_empty_dim_order": "aten::empty",
    "executorch_prim::et_view": "aten::view",
}
_WHOLE = frozenset({"u8", "u16", "u32", "u64", "i16", "i32", "i64", "bool"})


def pte_graph(program: PteProgram, data: Any, path: Path) -> Graph:
    scope = _opened(program)
    for number, instruction in enumerate(program.instructions):
        if instruction.operator is not None:
            walk(scope, Body(inputs=(), outputs=(), calls=(_call(program, instruction, number),), values=scope.values))
        elif instruction.delegate is not None:
            _delegate(scope, program, number, data, path)
        elif len(instruction.args) == 2:  # a value moved to another's place
            source, target = (f"value_{place}" for place in instruction.args)
            if source in scope.bound:
                scope.bound[target] = scope.bound[source]
    ops = tuple(placed.op for placed in scope.placed)
    return Graph(
        name=path.stem,
        blocks=(Block(name=program.method, ops=ops),),
        inputs=tuple(_bound(scope, place) for place in program.inputs if _is_tensor(program, place)),
        outputs=tuple(_bound(scope, place) for place in program.outputs if _is_tensor(program, place)),
        precision=_precision(program),
        metadata={"format": "pte", "methods": program.methods, "backends": _backends(program),
                  "notes": _notes(program)},
    )  # fmt: skip


def _opened(program: PteProgram) -> Scope:
    tensors = {place: value for place, value in program.values.items() if isinstance(value, PteTensor)}
    values = {f"value_{place}": Value(shape=value.shape, dtype=value.dtype) for place, value in tensors.items()}
    scope = Scope(values=values)
    start = Call(name=program.method, target="program", arguments={}, outputs=())
    for place, value in tensors.items():
        if value.stored or value.changing:
            role: Role = "state" if value.changing else "constant" if value.dtype in _WHOLE else "weight"
            scope.whole(f"value_{place}", Held(name=value.name or f"stored_{place}", role=role), start, role)
    for number, place in enumerate(program.inputs):
        if place in tensors:
            tensor = Tensor(name=f"input_{number}", shape=tensors[place].shape, dtype=tensors[place].dtype)
            scope.bound[f"value_{place}"] = Bound(tensor=tensor)
    return scope


def _is_tensor(program: PteProgram, place: int) -> bool:
    return isinstance(program.values[place], PteTensor)


def _bound(scope: Scope, place: int) -> Tensor:
    """The tensor behind a value. One that nothing was seen to write is what its place says."""
    name = f"value_{place}"
    if name not in scope.bound:
        scope.make(name, Call(name="program", target="program", arguments={}, outputs=()))
    return scope.bound[name].tensor


def _call(program: PteProgram, instruction: Instruction, number: int) -> Call:
    """Kernels write where they are told: what they write to, and what they return, stand after their arguments."""
    operator = str(instruction.operator)
    namespace, _, full = _ALIKE.get(operator.partition(".")[0], operator).partition("::")
    base, _, overload = full.partition(".")
    given, made = instruction.args[:-1], _tensors(program, instruction.args[-1:])
    if given and made and _tensors(program, given[-1:]) == made:  # one result, or a list of them
        given = given[:-1]
    elif made and given[-len(made) :] == made:  # each result by itself
        given = given[: -len(made)]
    arguments = [_argument(program, place) for place in given]
    names = [*_NAMES.get(base, _USUAL), *("",) * len(arguments)][: len(arguments)]
    return Call(
        name=f"{base.strip('_')}_{number}",
        target=f"{namespace}.{base}.{overload or 'default'}",
        arguments=named_arguments(names, arguments),
        outputs=tuple(f"value_{place}" for place in made),
    )


def _tensors(program: PteProgram, places: tuple[int, ...]) -> tuple[int, ...]:
    """The tensors that values are, or list."""
    values = ((place, program.values[place]) for place in places)
    listed = (item for place, value in values for item in (value.items if isinstance(value, TensorList) else (place,)))
    return tuple(place for place in listed if place in program.values and _is_tensor(program, place))


def _argument(program: PteProgram, place: int) -> Any:
    value = program.values[place]
    if isinstance(value, TensorList):
        return tuple(Ref(f"value_{item}") for item in value.items if item >= 0)
    return Ref(f"value_{place}") if isinstance(value, PteTensor) else value


def _delegate(scope: Scope, program: PteProgram, number: int, data: Any, path: Path) -> None:
    instruction = program.instructions[number]
    delegate = instruction.delegate
    assert delegate is not None  # noqa: S101 - the caller has looked
    blob = bytes(data[delegate.start : delegate.start + delegate.size]) if delegate.backend == BACKEND else b""
    graph = parse_xnnpack(blob, path)
    known = [place for place in instruction.args if _is_tensor(program, place)]
    if graph is None:
        given = [place for place in known if f"value_{place}" in scope.bound]
        made = [place for place in known if place not in given]
        name = f"{delegate.backend.lower()}_{number}"
        inputs, outputs = ([_bound(scope, place) for place in places] for places in (given, made))
        ops = [opaque_op(delegate, name, inputs, outputs)]
    else:
        arguments = tuple(
            _bound(scope, place) if _is_tensor(program, place) else None for place in instruction.args
        )  # fmt: skip
        ops = xnnpack_ops(XnnSite(graph=graph, instruction=number, arguments=arguments))
    scope.placed += [Placed(op=op, path="", label=op.name) for op in ops]


def _precision(program: PteProgram) -> str | None:
    usual = Counter(value.dtype for value in program.values.values() if isinstance(value, PteTensor) and value.shape)
    return usual.most_common(1)[0][0] if usual else None


def _backends(program: PteProgram) -> dict[str, int]:
    return dict(Counter(step.delegate.backend for step in program.instructions if step.delegate is not None))


def _notes(program: PteProgram) -> tuple[str, ...]:
    notes = []
    others = [name for name in program.methods if name != program.method]
    if others:
        notes.append(f"The graph is that of the method {program.method}; it also has {', '.join(others)}.")
    if any(isinstance(value, PteTensor) and value.open for value in program.values.values()):
        notes.append("Some sizes are open; the graph has the largest that the program takes.")
    if any(step.jumps for step in program.instructions):
        notes.append("It has branches or loops; each instruction is counted once.")
    return tuple(notes)
