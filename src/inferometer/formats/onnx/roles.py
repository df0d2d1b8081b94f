"""What tensors are for: which stored ones are parameters, which activations address, which are caches or states.

A stored tensor is a parameter where it stands in a weight's place: of a product, a convolution, a norm, a lookup, a
recurrent layer. Exporters also write biases, scales and position tables as plain additions and products; those are
parameters too, unless their name says they are constants of the exporter's own making.
"""

import re
from collections.abc import Iterable, Iterator

from inferometer.core.dims import Dim
from inferometer.core.graph import Role
from inferometer.formats.onnx.elements import is_float
from inferometer.formats.onnx.step import Step
from inferometer.formats.onnx.value import Shape, Value

_SHIFTS = frozenset({"Add", "Sub", "Mul", "Div", "Sum"})
_TABLES = frozenset({"Add", "Mul", "Sum", "Concat", "Expand", "Tile"})
# What exporters call constants of their own making: PyTorch, Paddle, TensorFlow.
_MADE_UP = re.compile(r"(^|/)Constant|helper\.constant|^onnx::|(^|/)Const(_\d+)?(:\d+)?$")
_CACHE = re.compile(r"(past|present|cache)([._]|$)", re.IGNORECASE)
_FOLDED = re.compile(r"const", re.IGNORECASE)  # a vector may be a parameter that was folded; a table is taken as none


def every_step(steps: Iterable[Step]) -> Iterator[Step]:
    """All steps, those of bodies too, outer ones first."""
    pending = list(reversed(list(steps)))
    while pending:
        step = pending.pop()
        yield step
        for body in reversed(step.bodies):
            pending.extend(reversed(body))


def parameters(steps: Iterable[Step]) -> frozenset[str]:
    """Names of the stored tensors that are learned."""
    learned: set[str] = set()
    for step in every_step(steps):
        inputs = step.call.inputs
        for place in step.row.weights:
            value = inputs[place] if place < len(inputs) else None
            if value is not None and value.constant and _is_weight(step, value):
                learned.add(value.stored[0].name)
        for value in inputs:
            if value is not None and value.constant and _is_learned(step, value):
                learned.add(value.stored[0].name)
    return frozenset(learned)


def _is_weight(step: Step, value: Value) -> bool:
    """Rows of numbers that are looked up are a table of parameters; a list of indices is none."""
    if step.row.kind == "gather":
        return is_float(value.dtype) and value.shape is not None and len(value.shape) > 1
    return True


def _is_learned(step: Step, value: Value) -> bool:
    """A bias, scale or table that is added, multiplied or put in front as if it were an activation."""
    op_type = step.call.node.op_type
    if step.call.node.domain or not step.outs or not is_float(value.dtype) or op_type not in _SHIFTS | _TABLES:
        return False
    stored, shape, result = value.stored[0], value.shape, step.outs[0].shape
    if shape is None or result is None or _MADE_UP.search(stored.name):
        return False
    sides = [dim for dim in shape if dim != 1]
    if len(sides) == 1 and op_type in _SHIFTS:
        return _along_channels(shape, result)
    if _is_token(shape, op_type):
        return True
    return len(sides) > 1 and op_type in _TABLES and stored.table and not _FOLDED.search(stored.name)


def _along_channels(shape: Shape, result: Shape) -> bool:
    """Whether a vector lies along the last axis, or along the second of an image."""
    place = next(axis for axis, dim in enumerate(shape) if dim != 1) - len(shape)
    return place == -1 or (len(result) > 2 and place == 1 - len(result))


def _is_token(shape: tuple[Dim, ...], op_type: str) -> bool:
    """A vector put before a sequence, as a class token is."""
    return op_type in {"Concat", "Expand"} and len(shape) == 3 and shape[:2] == (1, 1)


def _is_cache(value: Value) -> bool:
    """Keys and values as exporters name them where attention is written out: `past_key_values.3.key`."""
    has_heads = value.shape is not None and len(value.shape) > 3
    return has_heads and not value.constant and is_float(value.dtype) and _CACHE.match(value.name) is not None


def activation_roles(steps: Iterable[Step], edges: Iterable[Value]) -> dict[str, Role]:
    """Roles other than "activation". `edges` go in or come out of the graph: states, and caches by their names."""
    roles: dict[str, Role] = {value.name: "kv" for value in edges if _is_cache(value)}
    names = {value.name for value in edges}
    for step in every_step(steps):
        row, inputs = step.row, step.call.inputs
        for place in row.indices:
            value = inputs[place] if place < len(inputs) else None
            if value is not None and not value.constant:
                roles.setdefault(value.name, "index")
        for role, (ins, outs) in (("state", row.states), ("kv", row.caches)):
            values = [inputs[i] for i in ins if i < len(inputs)] + [step.outs[i] for i in outs if i < len(step.outs)]
            for value in values:
                if value is not None and not value.constant and (role == "kv" or value.name in names):
                    roles[value.name] = "state" if role == "state" else "kv"
    return roles
