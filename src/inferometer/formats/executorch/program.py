"""A .pte file as values: the instructions of one method, what they work on, and where delegates' own data lie.

Fields are numbered in the order of their table; a union takes two. Source: schema/program.fbs of pytorch/executorch.
The weights are measured and never read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.formats.flatbuffer import Buffer, FlatTable

IDENTIFIER = b"ET12"
_METHOD = "forward"
_MOST = 1 << 20  # values, instructions, segments
_AXES = 64
_HEADER, _WITH_BASE, _WITH_SIZE = b"eh", 24, 32  # the longer header, and its length with where segments begin and end
# The kinds of values, in the order of the union KernelTypes.
_NULL, _TENSOR, _STRING, _INTS, _TENSORS = 1, 5, 6, 7, (10, 11)
_PLAIN = {2: ("q", 0), 3: ("?", False), 4: ("d", 0.0)}  # how a number lies in the file, and what it is by default
_LISTS = {_INTS: "q", 8: "d", 9: "?"}
_CALL, _DELEGATE, _MOVE, _JUMP = 1, 2, 3, 4
_EXTERNAL = 1
# The numbers of types: schema/scalar_type.fbs.
TYPES = {
    0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 11: "bool", 12: "i8", 13: "u8",
    14: "i32", 15: "bf16", 23: "f8e5m2", 24: "f8e4m3", 25: "f8e5m2", 26: "f8e4m3", 27: "u16", 28: "u32", 29: "u64",
}  # fmt: skip


@frozen
class PteTensor:
    """`stored` has numbers in the file (or beside it), `changing` too but is written to. Open sizes are the largest."""

    shape: tuple[int, ...]
    dtype: str
    stored: bool = False
    changing: bool = False
    open: bool = False
    name: str | None = None


@dataclass(frozen=True, slots=True)
class TensorList:
    """The numbers of values that are tensors; one that is left out is negative."""

    items: tuple[int, ...]


@frozen
class Delegate:
    """What a backend was given: where its data lie in the file."""

    backend: str
    start: int
    size: int


@frozen
class Instruction:
    """`operator` is `aten::convolution.out` for a kernel call; a delegate call has its delegate; a move neither."""

    args: tuple[int, ...]
    operator: str | None = None
    delegate: Delegate | None = None
    jumps: bool = False


@frozen
class PteProgram:
    """`values` are tensors, lists of them, or plain numbers and texts, by the numbers that instructions have."""

    method: str
    methods: tuple[str, ...]
    values: Mapping[int, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]


def parse_program(data: Any, path: Path) -> PteProgram:
    buffer = Buffer(data, path, kind="ExecuTorch")
    if bytes(data[4:8]) != IDENTIFIER:
        raise buffer.fault(f"the identifier {IDENTIFIER.decode()} is missing", 4)
    # The longer header says where the segments begin and how long they are: a file that was cut has fewer bytes.
    if bytes(buffer.data[8:10]) == _HEADER and buffer.number("I", 12, "the header's length") >= _WITH_SIZE:
        start, size = (buffer.number("Q", at, "the header") for at in (24, 32))
        if start + size > buffer.size:
            raise buffer.fault(f"its header speaks of {start + size:,} bytes, and it has {buffer.size:,}")
    root = buffer.root()
    plans = {plan.text(0, "a method's name") or "": plan for plan in root.tables(1, "method", most=_MOST)}
    if not plans:
        raise buffer.fault("it has no method")
    name = _METHOD if _METHOD in plans else next(iter(plans))
    plan = plans[name]
    values = _values(plan)
    delegates = [_delegate(entry, root, buffer) for entry in plan.tables(7, "delegate", most=_MOST)]
    operators = [_operator(entry) for entry in plan.tables(6, "operator", most=_MOST)]
    chains = plan.tables(5, "chain", most=_MOST)
    instructions = tuple(
        _instruction(entry, operators, delegates) for chain in chains for entry in chain.tables(2, "step", most=_MOST)
    )
    program = PteProgram(
        method=name,
        methods=tuple(plans),
        values=values,
        inputs=plan.numbers(3, "i", "the inputs", most=_MOST),
        outputs=plan.numbers(4, "i", "the outputs", most=_MOST),
        instructions=instructions,
    )
    named = [*program.inputs, *program.outputs, *(index for step in instructions for index in step.args)]
    wrong = next((index for index in named if index not in values), None)
    if wrong is not None:
        raise buffer.fault(f"an instruction speaks of value {wrong}; there are {len(values)}")
    return program


def _operator(entry: FlatTable) -> str:
    overload = entry.text(1, "an operator's overload")
    return (entry.text(0, "an operator's name") or "") + (f".{overload}" if overload else "")


def _values(plan: FlatTable) -> dict[int, Any]:
    """Lists of whole numbers hold the numbers of values, so they are resolved once all values are there."""
    raw = [(entry.number(0, "B"), entry.table(1, "a value")) for entry in plan.tables(2, "value", most=_MOST)]
    values = {number: _value(kind, table) for number, (kind, table) in enumerate(raw)}
    for number, (kind, _) in enumerate(raw):
        if kind == _INTS:
            found = (values.get(index) for index in values[number])
            values[number] = tuple(item if isinstance(item, int) else None for item in found)
    return values


def _value(kind: int, table: FlatTable | None) -> Any:
    if table is None or kind == _NULL:
        return None
    if kind in _PLAIN:
        return table.number(0, *_PLAIN[kind])
    if kind in _LISTS:
        return table.numbers(0, _LISTS[kind], "a list", most=_MOST)
    if kind == _TENSOR:
        return _tensor(table)
    if kind == _STRING:
        return table.text(0, "a text")
    if kind in _TENSORS:
        return TensorList(table.numbers(0, "i", "a list of tensors", most=_MOST))
    raise table.fault(f"has the kind {kind}, which is not known")


def _tensor(table: FlatTable) -> PteTensor:
    number = table.number(0, "b")
    if number not in TYPES:
        raise table.fault(f"has numbers of type {number}, which is not known")
    shape = table.numbers(2, "i", "a shape", most=_AXES)
    if any(size < 0 for size in shape):
        raise table.fault(f"has a size of {min(shape)}")
    extra = table.table(9, "a tensor's further facts")
    away = extra is not None and extra.number(2, "b") == _EXTERNAL
    held, planned = bool(table.number(5, "I")) or away, table.table(6, "a tensor's memory") is not None
    return PteTensor(
        shape=shape,
        dtype=TYPES[number],
        stored=held and not planned,
        changing=held and planned,
        open=bool(table.number(8, "b")),
        name=extra.text(1, "a tensor's name") if extra is not None else None,
    )


def _delegate(entry: FlatTable, root: FlatTable, buffer: Buffer) -> Delegate:
    backend = entry.text(0, "a backend's name") or "a backend"
    reference = entry.table(1, f"the data of {backend}")
    if reference is None:
        raise entry.fault("has no data")
    number = reference.number(1, "I")
    if reference.number(0, "b"):
        segments = [(part.number(0, "Q"), part.number(1, "Q")) for part in root.tables(4, "segment", most=_MOST)]
        spans = [(_segment_base(buffer) + start, size) for start, size in segments]
    else:
        inline = root.tables(3, "a delegate's data", most=_MOST)
        spans = [part.span(0, 1, "a delegate's data") or (0, 0) for part in inline]
    if number >= len(spans):
        raise entry.fault(f"has its data in part {number} of {len(spans)}")
    start, size = spans[number]
    if start + size > buffer.size:
        raise buffer.fault(f"the data of {backend} end at byte {start + size:,} of {buffer.size:,}")
    return Delegate(backend=backend, start=start, size=size)


def _segment_base(buffer: Buffer) -> int:
    if bytes(buffer.data[8:10]) != _HEADER or buffer.number("I", 12, "the header's length") < _WITH_BASE:
        raise buffer.fault("the header that says where segments begin is missing", 8)
    return int(buffer.number("Q", 24, "the header"))


def _instruction(entry: FlatTable, operators: list[str], delegates: list[Delegate]) -> Instruction:
    kind, table = entry.number(0, "B"), entry.table(1, "an instruction")
    if table is None:
        raise entry.fault("is empty")
    number = table.number(0, "i")
    if kind in {_CALL, _DELEGATE}:
        args = table.numbers(1, "i", "the arguments of an instruction", most=_MOST)
        known: list[Any] = operators if kind == _CALL else delegates
        if not 0 <= number < len(known):
            raise table.fault(f"calls number {number} of {len(known)}")
        if kind == _CALL:
            return Instruction(args=args, operator=operators[number])
        return Instruction(args=args, delegate=delegates[number])
    if kind == _MOVE:
        return Instruction(args=(number, table.number(1, "i")))
    return Instruction(args=(), jumps=kind == _JUMP)
