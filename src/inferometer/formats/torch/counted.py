"""Graphs of `torch.save` files and TorchScript archives: one op for each weight, since their network is code."""

from __future__ import annotations

import io
import pickletools
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.formats.stored import Stored, tensors_graph, tensors_only
from inferometer.formats.torch.reader import LEGACY_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from inferometer.core.graph import Graph
    from inferometer.formats.trust.archive import Archive


# What tensors a pickle of PyTorch holds, without running it.
#
# A pickle is a program for a small stack machine: it names classes, calls them, and puts the results together. Here the
# program is gone through with nothing behind the names: a class is its name, a call is a record of what was called with
# what. Tensors show in calls of torch's own functions, which say each one's storage, shape and type; their numbers lie
# elsewhere in the file and are not read. Nothing is imported and nothing is executed.

_MOST_OPCODES = 20_000_000
_DEEP = 200  # modules within modules
_STORAGES = {
    "FloatStorage": "f32", "HalfStorage": "f16", "BFloat16Storage": "bf16", "DoubleStorage": "f64",
    "LongStorage": "i64", "IntStorage": "i32", "ShortStorage": "i16", "CharStorage": "i8", "ByteStorage": "u8",
    "BoolStorage": "bool", "QInt8Storage": "i8", "QUInt8Storage": "u8", "QInt32Storage": "i32",
    "ComplexFloatStorage": "c64", "Float8_e4m3fnStorage": "f8e4m3", "Float8_e5m2Storage": "f8e5m2",
}  # fmt: skip
_TYPES = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "position_ids", "anchors", "stride", "_buffer")
_INNER = frozenset({"_modules", "_parameters", "_buffers", "_orig_mod"})
# Parts of a checkpoint that are the model, and parts that are about training it.
_MODELS = ("state_dict", "model_state_dict", "model", "ema", "net", "network", "generator", "weights", "params")
_TRAINING = frozenset({"optimizer", "optimizer_state_dict", "optimizers", "scheduler", "lr_scheduler", "scaler"})


@frozen
class PickledTensor:
    """A tensor: its type in our words (None: not known), its shape, and where its numbers lie."""

    dtype: str | None
    shape: tuple[int, ...]
    storage: str
    offset: int = 0
    parameter: bool = False


@dataclass(slots=True, eq=False)
class _Name:
    module: str
    name: str


@dataclass(slots=True, eq=False)
class _Made:
    """What a call gave: what was called, with what, and the state that was put into it."""

    called: Any
    arguments: Any
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    listed: list[Any] = field(default_factory=list)


class _Mark:
    pass


def tensors_in(stream: io.BufferedIOBase | io.BytesIO, label: str) -> dict[str, PickledTensor]:
    """The tensors of the pickle that starts here, by their names in the model; the stream stands behind it then."""
    try:
        root = _Machine().run(stream)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, EOFError, OverflowError) as error:
        raise FormatError(
            f"The pickle in {label} cannot be followed: {error}.", remedy="The file is damaged; copy or save it again."
        ) from None
    found: dict[str, PickledTensor] = {}
    seen: set[int] = set()
    for name, tensor in _walk(_model_of(root), "", seen, 0):
        found.setdefault(name or "tensor", tensor)
    return found


def _model_of(root: Any) -> Any:
    """The part of a checkpoint that is the model; everything but what belongs to training where none is named."""
    items = _items(root)
    keys = {key: value for key, value in items.items() if isinstance(key, str)}
    if not keys or any(isinstance(value, PickledTensor) for value in keys.values()):
        return root
    for name in _MODELS:
        if name in keys and next(_walk(keys[name], "", set(), 0), None) is not None:
            return keys[name]
    return {key: value for key, value in items.items() if key not in _TRAINING}


def _items(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    return value.items if isinstance(value, _Made) and value.items else {}


def _walk(value: Any, name: str, seen: set[int], depth: int) -> Iterator[tuple[str, PickledTensor]]:
    if isinstance(value, PickledTensor):
        yield name, value
        return
    if depth > _DEEP or not isinstance(value, dict | list | tuple | _Made) or id(value) in seen:
        return
    seen.add(id(value))
    for key, part in _parts(value):
        inner = name if key in _INNER else f"{name}.{key}" if name else str(key)
        yield from _walk(part, inner, seen, depth + 1)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    else:
        yield from value.items.items()
        yield from enumerate(value.listed)
        if value.state is not None:
            yield from _parts(value.state) if isinstance(value.state, dict) else enumerate((value.state,))


def is_buffer(name: str) -> bool:
    """Whether a tensor is what a layer remembers, and not learned: TorchScript does not say."""
    return name.endswith(_BUFFERS)


class _Machine:
    """The stack, the memo, and for each opcode what it does to them."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, stream: Any) -> Any:
        left = _MOST_OPCODES
        for opcode, argument, _ in pickletools.genops(stream):
            left -= 1
            if left < 0:
                raise ValueError(f"more than {_MOST_OPCODES:,} steps")
            if opcode.name == "STOP":
                return self.stack.pop()
            self._step(opcode.name, argument)
        raise ValueError("it has no end")

    def _step(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _PUSHED:
            self.stack.append(argument)
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in {"PROTO", "FRAME"}:
            raise ValueError(f"the opcode {name} is none that torch writes")

    def marked(self) -> list[Any]:
        place = next(index for index in range(len(self.stack) - 1, -1, -1) if isinstance(self.stack[index], _Mark))
        taken = self.stack[place + 1 :]
        del self.stack[place:]
        return taken

    def take(self, count: int) -> tuple[Any, ...]:
        taken = tuple(self.stack[-count:])
        if len(taken) != count:
            raise ValueError("it takes more than it made")
        del self.stack[-count:]
        return taken

    def memoise(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def reduce(self, _: Any) -> None:
        called, arguments = self.take(2)
        self.stack.append(_called(called, arguments))

    def stack_global(self, _: Any) -> None:
        module, name = self.take(2)
        self.stack.append(_Name(str(module), str(name)))

    def make_global(self, argument: Any) -> None:
        module, _, name = str(argument).partition(" ")
        self.stack.append(_Name(module, name))

    def build(self, _: Any) -> None:
        (state,) = self.take(1)
        if isinstance(self.stack[-1], _Made):
            self.stack[-1].state = state

    def set_items(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        items = target if isinstance(target, dict) else target.items
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if isinstance(key, str | int | float | bool):
                items[key] = value

    def append_all(self, values: list[Any]) -> None:
        target = self.stack[-1]
        (target if isinstance(target, list) else target.listed).extend(values)

    def persistent(self, _: Any) -> None:
        """A storage: ("storage", its class, its key, where it lay, how many numbers)."""
        (reference,) = self.take(1)
        parts = reference if isinstance(reference, tuple) else (reference,)
        self.stack.append(_Made(called="storage", arguments=parts))


def _called(called: Any, arguments: Any) -> Any:
    name = called.name if isinstance(called, _Name) else ""
    given = arguments if isinstance(arguments, tuple) else ()
    if name in {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor"} and len(given) > 2:
        return _tensor(given)
    if name.startswith("_rebuild_parameter") and given and isinstance(given[0], PickledTensor):
        first = given[0]
        return PickledTensor(
            dtype=first.dtype, shape=first.shape, storage=first.storage, offset=first.offset, parameter=True
        )
    if name == "OrderedDict" and given and isinstance(given[0], list):  # as Python 2 writes it: a list of pairs
        pairs = (pair for pair in given[0] if isinstance(pair, list | tuple) and len(pair) == 2)
        return _Made(called=called, arguments=(), items={k: v for k, v in pairs if isinstance(k, str | int)})
    if name in {"_rebuild_device_tensor_from_numpy", "_rebuild_from_type_v2"}:
        inner = next((part for part in given if isinstance(part, PickledTensor)), None)
        if inner is not None:
            return inner
    return _Made(called=called, arguments=arguments)


def _tensor(given: tuple[Any, ...]) -> Any:
    storage, offset, shape = given[:3]
    parts = storage.arguments if isinstance(storage, _Made) and isinstance(storage.arguments, tuple) else ()
    if len(parts) < 3 or not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("a tensor without its storage or shape")
    kind = parts[1].name if isinstance(parts[1], _Name) else str(parts[1])
    stated = [part.name for part in given[3:] if isinstance(part, _Name)]
    dtype = next((_TYPES[name] for name in stated if name in _TYPES), _STORAGES.get(kind))
    if prod(shape) > 1 << 62:
        raise ValueError(f"a tensor of the shape {list(shape)}")
    return PickledTensor(dtype=dtype, shape=shape, storage=str(parts[2]), offset=offset if type(offset) is int else 0)


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_DICT": dict, "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple, "EMPTY_SET": list, "MARK": _Mark,
}  # fmt: skip
_PUSHED = frozenset({
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINSTRING", "SHORT_BINSTRING", "STRING", "BINBYTES",
    "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
})  # fmt: skip
_STEPS: dict[str, Callable[[_Machine, Any], object]] = {
    "GLOBAL": _Machine.make_global,
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.reduce,
    "NEWOBJ_EX": lambda m, _: m.stack.append(_Made(called=(three := m.take(3))[0], arguments=three[1])),
    "OBJ": lambda m, _: m.stack.append(_Made(called=(parts := m.marked())[0], arguments=tuple(parts[1:]))),
    "INST": lambda m, argument: m.stack.append(_Made(called=argument, arguments=tuple(m.marked()))),
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.persistent,
    "PERSID": lambda m, argument: m.stack.append(_Made(called="storage", arguments=(argument,))),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.marked())),
    "TUPLE1": lambda m, _: m.stack.append(m.take(1)),
    "TUPLE2": lambda m, _: m.stack.append(m.take(2)),
    "TUPLE3": lambda m, _: m.stack.append(m.take(3)),
    "LIST": lambda m, _: m.stack.append(m.marked()),
    "DICT": lambda m, _: m.stack.append(dict(zip((parts := m.marked())[::2], parts[1::2], strict=True))),
    "FROZENSET": lambda m, _: m.stack.append(m.marked()),
    "APPEND": lambda m, _: m.append_all(list(m.take(1))),
    "APPENDS": lambda m, _: m.append_all(m.marked()),
    "ADDITEMS": lambda m, _: m.append_all(m.marked()),
    "SETITEM": lambda m, _: m.set_items(list(m.take(2))),
    "SETITEMS": lambda m, _: m.set_items(m.marked()),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.marked(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "BINPUT": _Machine.memoise,
    "LONG_BINPUT": _Machine.memoise,
    "PUT": _Machine.memoise,
    "MEMOIZE": lambda m, _: m.memoise(len(m.memo)),
    "BINGET": lambda m, place: m.stack.append(m.memo[place]),
    "LONG_BINGET": lambda m, place: m.stack.append(m.memo[place]),
    "GET": lambda m, place: m.stack.append(m.memo[place]),
}


_LARGEST_PICKLE = 256 << 20  # bytes of structure; weights lie outside of it
_LENGTH = 8  # bytes before the numbers of a storage
_LEGACY_PICKLES = 3  # a magic number, a version and the writer's types, before the object itself


def archive_graph(archive: Archive) -> Graph:
    """A zip file with `data.pkl`: what torch.save and torch.jit.save write."""
    if min(member.header_offset for member in archive.members.values()) > 0:
        raise FormatError(  # what is left of a larger file ends with the directory of an archive that lay in it
            f"{str(archive.path)!r} is damaged: its zip directory is that of another file inside it.",
            remedy="Copy or save it again.",
        )
    scripted = any(name.startswith("code/") for name in archive.members)
    member = next(name for name in archive.members if name.endswith("data.pkl"))
    data = archive.read(member, limit=_LARGEST_PICKLE)
    tensors = tensors_in(io.BytesIO(data), f"{member!r} of {str(archive.path)!r}")
    return _graph(archive.path, tensors, "torchscript" if scripted else "torch.save")


def legacy_graph(path: Path) -> Graph:
    """A file of torch.save before 1.6, or a plain pickle: pickles one after the other, and then the numbers."""
    with path.open("rb") as file:
        stream = io.BytesIO(file.read(_LARGEST_PICKLE))
    tensors: dict[str, PickledTensor] = {}
    for _ in range(_LEGACY_PICKLES + 1):
        tensors = tensors_in(stream, repr(str(path)))
        if tensors or stream.tell() == len(stream.getbuffer()):
            break
    if stream.getbuffer()[: len(LEGACY_MAGIC)] == LEGACY_MAGIC:  # a plain pickle has its numbers inside
        tensors_in(stream, repr(str(path)))  # the names of the storages
        # After the pickles come the storages: a length each, and as many numbers as the tensors in it reach.
        left = path.stat().st_size - stream.tell()
        storages: dict[str, int] = {}
        for tensor in tensors.values():
            if tensor.dtype is not None:
                reached = int(dtype(tensor.dtype).nbytes(tensor.offset + prod(tensor.shape)))
                storages[tensor.storage] = max(storages.get(tensor.storage, 0), reached)
        needed = sum(_LENGTH + size for size in storages.values())
        if left < needed:
            raise FormatError(
                f"{str(path)!r} is cut short: {left:,} bytes are left for tensors of {needed:,}.",
                remedy="Copy or save it again.",
            )
    return _graph(path, tensors, "torch.save")


def _graph(path: Path, tensors: Mapping[str, PickledTensor], form: str) -> Graph:
    if not tensors:
        raise FormatError(
            f"{str(path)!r} is a pickle without tensors: there is nothing to count in it.",
            remedy="Save the model with torch.export.save, or its weights with safetensors.",
        )
    unique: dict[tuple[str, int, tuple[int, ...]], str] = {}
    for name, tensor in tensors.items():
        unique.setdefault((tensor.storage, tensor.offset, tensor.shape), name)
    kept = [(name, tensors[name]) for name in unique.values()]
    learned = [_stored(name, tensor) for name, tensor in kept if not is_buffer(name)]
    what = "TorchScript archive" if form == "torchscript" else "torch.save file"
    note = tensors_only(f"A {what} is a pickle, whose code is not run")
    graph = tensors_graph(path.stem, learned, norm="layer")
    return replace(graph, metadata={**graph.metadata, "format": form, "notes": (note, _CONVERT)})


def _stored(name: str, tensor: PickledTensor) -> Stored:
    nbytes = 0 if tensor.dtype is None else int(dtype(tensor.dtype).nbytes(prod(tensor.shape)))
    return Stored(names=(name,), shape=tensor.shape, dtype=tensor.dtype, nbytes=nbytes)


_CONVERT = (
    "To predict or measure it, export the network: torch.export.save(torch.export.export(module, inputs), 'm.pt2'), or "
    "torch.onnx.export."
)
