"""From a graph document to a `Body`: its calls, their arguments and the shapes of every tensor."""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

from inferometer.core.dims import Dim, Expression, Symbol, product
from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.formats.torch.program import (
    SCALAR_TYPES,
    Argument,
    ArgumentDoc,
    GraphDoc,
    NodeDoc,
    ProgramBody,
    ProgramCall,
    ProgramValue,
    Ref,
    SizeDoc,
    SymbolicDoc,
    TensorDoc,
    named_arguments,
)

# Sizes as torch writes them, and names for the open ones.
#
# They are sympy's text, plain (`2*s77 + 1`) or as a tree (`Mul(Integer(2), Symbol('s77'))`).

MAX_SIZE = (1 << 63) - 1
_MAX_TEXT = 2000  # longer expressions are called unknown
_MAX_PARTS = 200  # so that the size can be evaluated, which is recursive
_MAX_POWER = 8


class _UnknownError(Exception):
    """Something in the text that is no size arithmetic."""


def _divided(left: Dim, right: Dim) -> Dim:
    if right == 0:
        raise _UnknownError
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    return left if right == 1 else Expression("//", left, right)


def _remainder(left: Dim, right: Dim) -> Dim:
    if right == 0:
        raise _UnknownError
    return left % right if isinstance(left, int) and isinstance(right, int) else Expression("%", left, right)


_BINARY: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: _divided,
    ast.Div: _divided,  # sizes divide evenly where torch writes a true division
    ast.Mod: _remainder,
}
_FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "Add": operator.add, "Mul": operator.mul, "FloorDiv": _divided, "CleanDiv": _divided, "IntTrueDiv": _divided,
    "Mod": _remainder, "PythonMod": _remainder,
}  # fmt: skip


def parse_size(text: str, names: Mapping[str, Dim]) -> Dim:
    """The size an expression gives, with the file's symbols under the names we give them.

    What size arithmetic cannot express (a maximum, a ceiling) becomes a symbol of its own, named by its text: it
    stays unknown, and is reported as such. The text is only parsed, never evaluated.
    """
    try:
        size = _size(_tree(text), names)
    except (_UnknownError, SyntaxError, ValueError, RecursionError, MemoryError):
        return Symbol(text[:80].replace("{}", "{ }"))
    return size if not isinstance(size, int) or abs(size) <= MAX_SIZE else Symbol(text[:80])


def _tree(text: str) -> ast.expr:
    tree = ast.parse(text.strip(), mode="eval") if len(text) <= _MAX_TEXT else None
    if tree is None or sum(1 for _ in ast.walk(tree)) > _MAX_PARTS * 3:  # a part is written as up to three nodes
        raise _UnknownError
    return tree.body


def _size(node: ast.expr, names: Mapping[str, Dim]) -> Dim:
    match node:
        case ast.Constant(value=bool()):
            raise _UnknownError
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return names.get(name, Symbol(name))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -1 * _size(operand, names)
        case ast.BinOp(op=ast.Pow(), left=base, right=power):
            return _power(base, power, names)
        case ast.BinOp(op=operation, left=left, right=right) if type(operation) in _BINARY:
            return _BINARY[type(operation)](_size(left, names), _size(right, names))
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return _called(function, arguments, names)
        case _:
            raise _UnknownError


def _called(function: str, arguments: list[ast.expr], names: Mapping[str, Dim]) -> Dim:
    match function, arguments:
        case "Symbol", [ast.Constant(value=str() as name), *_]:
            return names.get(name, Symbol(name))
        case "Integer", [ast.Constant(value=int() as number)]:
            return number
        case "Integer", [ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number))]:
            return -number
        case "Pow", [base, power]:
            return _power(base, power, names)
        case _, [_, _, *_] if function in _FUNCTIONS:
            return reduce(_FUNCTIONS[function], (_size(argument, names) for argument in arguments))
        case _:
            raise _UnknownError


def _power(base: ast.expr, power: ast.expr, names: Mapping[str, Dim]) -> Dim:
    """Of a symbol only: powers of powers would grow beyond all bounds."""
    times, root = _size(power, names), _size(base, names)
    if not isinstance(times, int) or not 1 <= times <= _MAX_POWER or not isinstance(root, Symbol):
        raise _UnknownError
    return reduce(operator.mul, [root] * times, 1)


# Names for the sizes that a program leaves open. Torch numbers them (`s77`); a workload binds names.
#
# A name that the caller gave stays. Without one, custom decides by where the size first stands: the batch comes first,
# token ids are [batch, query], an image's sides are height and width. What custom does not cover is called by its
# place: `x.1` is axis 1 of the input x. Sizes that only running the model tells (`u0`) keep torch's name.

_CHANNELS = frozenset({1, 3, 4})
_WHOLE = frozenset({"i32", "i64"})


def name_symbols(
    inputs: Sequence[tuple[str, ProgramValue]], given: Mapping[tuple[str, int], str] | None = None
) -> tuple[dict[str, Dim], dict[str, str]]:
    """Our symbol for each of torch's, and for each of ours where it stands. `given` names axes of inputs."""
    ours: dict[str, Dim] = {}
    explained: dict[str, str] = {}
    given = given or {}
    indices = [(name, axis, value) for name, value in inputs for axis in range(len(value.shape))]
    indices.sort(key=lambda index: (index[0], index[1]) not in given)
    for name, axis, value in indices:
        size = value.shape[axis]
        if not isinstance(size, Symbol) or size.name in ours:
            continue
        usual = given.get((name, axis)) or _usual_at(value, axis)
        chosen = usual if usual is not None and usual not in explained else f"{name}.{axis}"
        ours[size.name] = Symbol(chosen)
        explained[chosen] = f"axis {axis} of input {name!r}, {size.name} in the program"
    return ours, explained


def _usual_at(value: ProgramValue, axis: int) -> str | None:
    shape, rank = value.shape, len(value.shape)
    if axis == 0:
        return "batch" if rank > 1 else None
    if rank == 4 and value.dtype not in _WHOLE and axis in {2, 3} and shape[1] in _CHANNELS:
        return "height" if axis == 2 else "width"
    return "query" if rank == 2 and value.dtype in _WHOLE else None


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
