"""From a graph document to a `Body`: its calls, their arguments and the shapes of every tensor."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from inferometer.core.dims import Dim, product
from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.formats.torch.expressions import MAX_SIZE, parse_size
from inferometer.formats.torch.program import (
    SCALAR_TYPES,
    Argument,
    ProgramBody,
    ProgramCall,
    ProgramValue,
    Ref,
    named_arguments,
)
from inferometer.formats.torch.wire import ArgumentDoc, GraphDoc, NodeDoc, SizeDoc, SymbolicDoc, TensorDoc

_MAX_CALLS = 2_000_000
_MAX_RANK = 64
_MAX_NAME = 4096
_MAX_NESTING = 48  # branches within branches
_REPEATED = re.compile(r"@\d+")
_INDEXED = re.compile(r"\[['\"]?([^\[\]'\"]*)['\"]?\]")
_MAX_MODULES = 64  # one within another


@frozen
class BodyNames:
    """What a document is called in errors, and what its symbols are called in sizes."""

    where: str
    sizes: Mapping[str, Dim]
    integers: Mapping[str, Dim] | None = None  # sizes that a graph names
    depth: int = 0
    parsed: dict[str, Dim] = field(default_factory=dict)  # few expressions stand in many shapes

    def size(self, document: SizeDoc, *, negative: bool = False) -> Dim:
        if document.as_int is not None:
            if not (-MAX_SIZE if negative else 0) <= document.as_int <= MAX_SIZE:
                raise FormatError(f"{self.where} has a tensor with a size of {document.as_int}.")
            return document.as_int
        if document.as_expr is None:
            raise FormatError(f"{self.where} has a size that is neither a number nor an expression.")
        text = document.as_expr.expr_str
        if text not in self.parsed:
            self.parsed[text] = parse_size(text, self.sizes)
        return self.parsed[text]

    def nbytes(self, tensor: TensorDoc) -> int | None:
        value = value_of(tensor, self)
        elements = product(value.shape)
        if value.dtype is None or not isinstance(elements, int):
            return None
        size: int = dtype(value.dtype).nbytes(elements)
        return size

    def checked(self, name: str) -> str:
        """A name from a file. `{}` has a meaning in graphs, so it is taken apart."""
        if len(name) > _MAX_NAME:
            raise FormatError(f"{self.where} has a name of {len(name):,} characters; at most {_MAX_NAME:,} are read.")
        return name.replace("{}", "{ }")


def value_of(tensor: TensorDoc, names: BodyNames) -> ProgramValue:
    if len(tensor.sizes) > _MAX_RANK:
        raise FormatError(
            f"{names.where} has a tensor of {len(tensor.sizes)} dimensions; at most {_MAX_RANK} are read."
        )
    if tensor.dtype not in SCALAR_TYPES:
        raise FormatError(
            f"{names.where} has a tensor of number format {tensor.dtype}, which is not known.",
            remedy="Upgrade inferometer if a newer torch wrote the file.",
        )
    strides = tensor.strides
    same_rank = strides is not None and len(strides) == len(tensor.sizes)
    return ProgramValue(
        shape=tuple(names.size(size) for size in tensor.sizes),
        dtype=SCALAR_TYPES[tensor.dtype],
        strides=tuple(names.size(s, negative=True) for s in strides) if strides is not None and same_rank else None,
    )


def tensor_names(argument: ArgumentDoc) -> list[str]:
    """The tensors an argument names, in order."""
    if argument.as_tensor:
        return [argument.as_tensor.name]
    if argument.as_tensors:
        return [tensor.name for tensor in argument.as_tensors]
    if argument.as_optional_tensor and argument.as_optional_tensor.as_tensor:
        return [argument.as_optional_tensor.as_tensor.name]
    if argument.as_optional_tensors:
        return [tensor.as_tensor.name for tensor in argument.as_optional_tensors if tensor.as_tensor]
    if argument.as_nested_tensors:
        return [tensor.name for tensors in argument.as_nested_tensors for tensor in tensors]
    return []


def parse_body(
    graph: GraphDoc, names: BodyNames, *, users: Sequence[str] | None = None, outputs: Sequence[str] | None = None
) -> ProgramBody:
    """`users` and `outputs` are what the program's signature says is the caller's; a branch has all it names."""
    if names.depth > _MAX_NESTING:
        raise FormatError(f"{names.where} has branches more than {_MAX_NESTING} deep.")
    if len(graph.nodes) > _MAX_CALLS:
        raise FormatError(f"{names.where} has {len(graph.nodes):,} nodes; at most {_MAX_CALLS:,} are read.")
    own = {name: names.size(size, negative=True) for name, size in graph.sym_int_values.items()}
    inner = replace(names, integers=own, depth=names.depth + 1)
    given = [name for argument in graph.inputs for name in tensor_names(argument)]
    made = [name for argument in graph.outputs for name in tensor_names(argument)]
    return ProgramBody(
        inputs=tuple(users if users is not None else given),
        outputs=tuple(outputs if outputs is not None else made),
        calls=tuple(_call(node, inner, index) for index, node in enumerate(graph.nodes)),
        values={name: value_of(tensor, names) for name, tensor in graph.tensor_values.items()},
    )


def _call(node: NodeDoc, names: BodyNames, index: int) -> ProgramCall:
    outputs = [name for argument in node.outputs for name in tensor_names(argument)]
    return ProgramCall(
        name=names.checked(node.name or (outputs[0] if outputs else f"node_{index}")),
        target=names.checked(node.target.removeprefix("torch.ops.")),
        arguments=named_arguments(
            [named.name for named in node.inputs], [_argument(named.arg, names) for named in node.inputs]
        ),
        outputs=tuple(outputs),
        path=names.checked(module_path(node.metadata.nn_module_stack)),
    )


def module_path(stack: str | None) -> str:
    """The innermost module of a stack written as `key,path,type;key,path,type`.

    A module that is called again has `@1` in its path; programs traced by dynamo write `L['self'].layers[0]`.
    """
    if not stack:
        return ""
    parts = stack.rsplit(";", 1)[-1].split(",", 2)
    path = parts[1] if len(parts) == 3 else ""
    path = _INDEXED.sub(r".\1", _REPEATED.sub("", path[:_MAX_NAME])).removeprefix("L.self").removeprefix(".")
    return ".".join(path.replace(" ", "").split(".")[:_MAX_MODULES])


def _argument(argument: ArgumentDoc, names: BodyNames) -> Argument:
    match argument:
        case _ if argument.as_graph is not None:
            return parse_body(argument.as_graph.graph, names)
        case _ if argument.as_tensor is not None:
            return Ref(argument.as_tensor.name)
        case _ if argument.as_optional_tensors is not None:
            return tuple(Ref(t.as_tensor.name) if t.as_tensor else None for t in argument.as_optional_tensors)
        case _ if argument.as_tensors is not None or argument.as_nested_tensors is not None:
            return tuple(Ref(name) for name in tensor_names(argument))
        case _ if argument.as_optional_tensor is not None:
            return next((Ref(name) for name in tensor_names(argument)), None)
        case _:
            return _plain(argument, names)


def _plain(argument: ArgumentDoc, names: BodyNames) -> Argument:
    """Arguments that name no tensor."""
    if argument.as_scalar_type is not None:
        return SCALAR_TYPES.get(argument.as_scalar_type)
    if argument.as_sym_ints is not None:
        return tuple(_symbolic(item, names) for item in argument.as_sym_ints)
    if argument.as_int_lists is not None:
        return tuple(tuple(items) for items in argument.as_int_lists)
    for symbolic in (argument.as_sym_int, argument.as_sym_float, argument.as_sym_bool):
        if symbolic is not None:
            return _symbolic(symbolic, names)
    for items in (argument.as_ints, argument.as_floats, argument.as_bools, argument.as_strings):
        if items is not None:
            return tuple(items)
    single = (argument.as_int, argument.as_float, argument.as_bool, argument.as_string, argument.as_operator)
    return next((item for item in single if item is not None), None)


def _symbolic(symbolic: SymbolicDoc, names: BodyNames) -> Argument:
    if symbolic.as_name is not None:
        return (names.integers or {}).get(symbolic.as_name)
    return next((item for item in (symbolic.as_int, symbolic.as_float, symbolic.as_bool) if item is not None), None)
