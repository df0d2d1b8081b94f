"""Sizes as torch writes them, and names for those that it leaves open.

They are sympy's text, plain (`2*s77 + 1`) or as a tree (`Mul(Integer(2), Symbol('s77'))`).
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from inferometer.core.dims import Dim, Expression, Symbol
from inferometer.formats.torch.program import ProgramValue

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
    "Add": operator.add,
    "Mul": operator.mul,
    "FloorDiv": _divided,
    "CleanDiv": _divided,
    "IntTrueDiv": _divided,
    "Mod": _remainder,
    "PythonMod": _remainder,
}


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
