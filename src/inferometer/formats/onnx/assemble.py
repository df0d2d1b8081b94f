"""From bytes to a Graph, step by step: messages, sizes, nodes, ops; and what is worth knowing about the file."""

import mmap
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferometer.core.graph import Block, Graph, Op, Role
from inferometer.formats.onnx.content import Contents, ExternalFiles
from inferometer.formats.onnx.faults import Fault, UncoveredError, UnknownShapeError
from inferometer.formats.onnx.messages import OnnxModel, TypeDef, Wire, is_float
from inferometer.formats.onnx.parse import parse_model
from inferometer.formats.onnx.step import Maker, OnnxStep, Scope
from inferometer.formats.onnx.symbols import Symbols, read_symbols
from inferometer.formats.onnx.value import Shape, Value
from inferometer.formats.onnx.walk import Walk

# What tensors are for: which stored ones are parameters, which activations address, which are caches or states.
#
# A stored tensor is a parameter where it stands in a weight's place: of a product, a convolution, a norm, a lookup, a
# recurrent layer. Exporters also write biases, scales and position tables as plain additions and products; those are
# parameters too, unless their name says they are constants of the exporter's own making.

_SHIFTS = frozenset({"Add", "Sub", "Mul", "Div", "Sum"})
_TABLES = frozenset({"Add", "Mul", "Sum", "Concat", "Expand", "Tile"})
# What exporters call constants of their own making: PyTorch, Paddle, TensorFlow.
_MADE_UP = re.compile(r"(^|/)Constant|helper\.constant|^onnx::|(^|/)Const(_\d+)?(:\d+)?$")
_CACHE = re.compile(r"(past|present|cache)([._]|$)", re.IGNORECASE)
_FOLDED = re.compile(r"const", re.IGNORECASE)  # a vector may be a parameter that was folded; a table is taken as none


def every_step(steps: Iterable[OnnxStep]) -> Iterator[OnnxStep]:
    """All steps, those of bodies too, outer ones first."""
    pending = list(reversed(list(steps)))
    while pending:
        step = pending.pop()
        yield step
        for body in reversed(step.bodies):
            pending.extend(reversed(body))


def parameters(steps: Iterable[OnnxStep]) -> frozenset[str]:
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


def _is_weight(step: OnnxStep, value: Value) -> bool:
    """Rows of numbers that are looked up are a table of parameters; a list of indices is none."""
    if step.row.kind == "gather":
        return is_float(value.dtype) and value.shape is not None and len(value.shape) > 1
    return True


def _is_learned(step: OnnxStep, value: Value) -> bool:
    """A bias, scale or table that is added, multiplied or put in front as if it were an activation."""
    op_type = step.call.node.op_type
    if step.call.node.domain or not step.outs or not is_float(value.dtype) or op_type not in _SHIFTS | _TABLES:
        return False
    stored, shape, result = value.stored[0], value.shape, step.outs[0].shape
    if shape is None or result is None or _MADE_UP.search(stored.name):
        return False
    sides = [dim for dim in shape if dim != 1]
    if len(sides) == 1 and op_type in _SHIFTS:
        # Whether a vector lies along the last axis, or along the second of an image.
        place = next(axis for axis, dim in enumerate(shape) if dim != 1) - len(shape)
        return place == -1 or (len(result) > 2 and place == 1 - len(result))
    # A vector put before a sequence, as a class token is.
    if op_type in {"Concat", "Expand"} and len(shape) == 3 and shape[:2] == (1, 1):
        return True
    return len(sides) > 1 and op_type in _TABLES and stored.table and not _FOLDED.search(stored.name)


def _is_cache(value: Value) -> bool:
    """Keys and values as exporters name them where attention is written out: `past_key_values.3.key`."""
    has_heads = value.shape is not None and len(value.shape) > 3
    return has_heads and not value.constant and is_float(value.dtype) and _CACHE.match(value.name) is not None


def activation_roles(steps: Iterable[OnnxStep], edges: Iterable[Value]) -> dict[str, Role]:
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


def assemble(path: Path, data: bytes | mmap.mmap) -> Graph:
    """Parse the messages, name the sizes, walk the nodes, lower them."""
    wire = Wire(data)
    return assemble_model(path, parse_model(wire), wire)


def assemble_model(path: Path, model: OnnxModel, wire: Wire) -> Graph:
    """The graph of a model in ONNX's terms, whatever format it was written in; `wire` has the bytes of its tensors."""
    files = ExternalFiles(path.parent)
    # The inputs a caller gives. Old files list stored tensors among them.
    stored = {tensor.name for tensor in model.graph.initializers}
    given = [
        (info.name, info.type or TypeDef(group="opaque")) for info in model.graph.inputs if info.name not in stored
    ]
    symbols = read_symbols([(name, kind) for name, kind in given if kind.group == "tensor"])
    walk = Walk(model, symbols, Contents(wire, files), files)
    scope = Scope(opsets=model.opsets)
    inputs = tuple(_input(name, kind, symbols) for name, kind in given)
    for value in inputs:
        if value.name in scope.values:
            raise Fault(f"two inputs named {value.name!r}")
        scope.values[value.name] = value
    steps = walk.graph(model.graph, scope)
    return _built(path, walk, steps, scope, inputs)


def _input(name: str, kind: TypeDef, symbols: Symbols) -> Value:
    group, inner = kind.group, kind
    while inner.inner is not None:  # nesting is bounded by the parser
        inner = inner.inner
    shape: Shape | None = None
    if inner.axes is not None:
        shape = tuple(symbols.input_dim(name, index, axis) for index, axis in enumerate(inner.axes))
    return Value(name=name, shape=shape, dtype=inner.dtype, group="tensor" if group == "sparse" else group)


def _built(path: Path, walk: Walk, steps: tuple[OnnxStep, ...], scope: Scope, inputs: tuple[Value, ...]) -> Graph:
    model = walk.model
    outputs = tuple(_output(scope, info.name) for info in model.graph.outputs)
    maker = Maker(roles=activation_roles(steps, (*inputs, *outputs)), parameters=parameters(steps))
    ops = _lowered(steps, maker)
    unused = _unused(walk, scope, {value.name for value in outputs})
    blocks = [Block(name="graph", ops=tuple(ops))]
    if unused:
        blocks.append(Block(name="stored", ops=unused))
    # The floating-point format that most results have.
    formats = Counter(tensor.dtype for op in ops for tensor in op.outputs if is_float(tensor.dtype))
    precision = formats.most_common(1)[0][0] if formats else None
    return Graph(
        name=path.stem,
        blocks=tuple(blocks),
        inputs=tuple(maker.tensor(value) for value in inputs),
        outputs=tuple(maker.tensor(value, "constant" if value.constant else None) for value in outputs),
        precision=precision,
        metadata=_metadata(model, walk, steps, ops),
    )


def _output(scope: Scope, name: str) -> Value:
    value = scope.find(name)
    if value is None:
        raise Fault(f"the graph's output {name!r} is made by nothing")
    return value


def _lowered(steps: Iterable[OnnxStep], maker: Maker) -> list[Op]:
    ops: list[Op] = []
    for step in steps:
        try:
            ops += [_control(step, maker)] if step.bodies else step.row.lower(step, maker)
        except UncoveredError as reason:
            ops += maker.custom(step, str(reason))
        except UnknownShapeError:
            ops += maker.custom(step, "the shapes of its inputs are not known")
        except (IndexError, ValueError):  # a rule reached for a dimension that is not there
            ops += maker.custom(step, "its inputs have fewer or more dimensions than it takes")
        except Fault as fault:
            raise fault.at(f"node {step.name!r} ({step.op_type})") from None
    return ops


def _control(step: OnnxStep, maker: Maker) -> Op:
    """A loop or a branch. What its bodies store is named on it too, so that it counts as the model's."""
    bodies = tuple(tuple(_lowered(body, maker)) for body in step.bodies)
    weights = dict.fromkeys(weight for body in bodies for op in body for weight in op.weights)
    op = maker.op(step, function=step.call.node.op_type.casefold(), bodies=bodies, trips=step.trips)
    return replace(op, weights=tuple(weights))


def _unused(walk: Walk, scope: Scope, outputs: set[str]) -> tuple[Op, ...]:
    """Tensors that the file holds and no node reads: they take room and no time."""
    names = (tensor.name for tensor in walk.model.graph.initializers)
    unread = (scope.values[name].stored[0] for name in names if name not in walk.used and name not in outputs)
    maker = Maker(roles={}, parameters=frozenset())
    return tuple(
        Op(name=stored.name, kind="view", weights=(maker.stored(stored, "constant"),), source_type="stored")
        for stored in unread
    )


def _metadata(model: OnnxModel, walk: Walk, steps: tuple[OnnxStep, ...], ops: list[Op]) -> dict[str, Any]:
    notes = walk.notes
    facts: dict[str, Any] = {
        "format": "onnx",
        "ir_version": model.ir_version,
        "opsets": {domain or "ai.onnx": version for domain, version in model.opsets.items()},
        "producer": " ".join(part for part in (model.producer, model.producer_version) if part),
        "graph": model.graph.name,
        "coverage": _coverage(walk, steps, ops),
        "symbols": dict(walk.symbols.explained),
        "size_names": walk.symbols.file_names,
    }
    if model.properties:
        facts["properties"] = dict(model.properties)
    if quantisation := _quantisation(steps):
        facts["quantisation"] = quantisation
    if walk.files.locations:
        facts["external_data"] = {
            "files": list(walk.files.locations),
            "bytes": walk.files.bytes,
            "missing": {name: len(tensors) for name, tensors in walk.files.missing.items()},
        }
    # Each kind of remark: how many, and the first of them.
    return facts | {
        kind.replace(" ", "_"): {"count": notes.counts[kind], "first": dict(examples)}
        for kind, examples in notes.examples.items()
    }


def _coverage(walk: Walk, steps: tuple[OnnxStep, ...], ops: list[Op]) -> dict[str, Any]:
    """Of all nodes: those with a kind that work rules know, and those computed once when the model is loaded."""
    total = len(walk.folded) + sum(1 for _ in every_step(steps))
    uncovered: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for op in _every_op(ops):
        reason = _why_uncovered(op)
        if reason:
            uncovered[op.source_type or op.kind] += 1
            reasons.setdefault(op.source_type or op.kind, reason)
    covered = total - sum(uncovered.values())
    return {
        "nodes": total,
        "covered": covered,
        "share": covered / total if total else 1.0,
        "folded": len(walk.folded),
        "uncovered": {name: {"count": count, "reason": reasons[name]} for name, count in uncovered.items()},
    }


def _every_op(ops: Iterable[Op]) -> Iterable[Op]:
    pending = list(ops)
    while pending:
        op = pending.pop()
        yield op
        pending += [inner for body in op.get("bodies", ()) for inner in body]


def _why_uncovered(op: Op) -> str | None:
    if op.kind == "custom":
        return str(op.get("reason"))
    if op.kind == "control" and len(op["bodies"]) == 1 and op["trips"] is None:
        return "how often it runs is not known before it runs"
    return None


def _quantisation(steps: tuple[OnnxStep, ...]) -> list[str]:
    """How the graph is quantised, by the operators that show it."""
    marks = {
        "QuantizeLinear": "QDQ", "DequantizeLinear": "QDQ", "QLinearConv": "QOperator", "QLinearMatMul": "QOperator",
        "QGemm": "QOperator", "ConvInteger": "dynamic", "MatMulInteger": "dynamic",
        "DynamicQuantizeMatMul": "dynamic", "MatMulIntegerToFloat": "dynamic", "DynamicQuantizeLSTM": "dynamic",
        "MatMulNBits": "MatMulNBits", "QMoE": "MatMulNBits", "GatherBlockQuantized": "MatMulNBits",
    }  # fmt: skip
    schemes = {marks[step.call.node.op_type] for step in every_step(steps) if step.call.node.op_type in marks}
    if any(value and len(value.stored) > 1 for step in every_step(steps) for value in step.call.inputs):
        schemes.add("QDQ")  # the weights' own DequantizeLinear nodes are folded
    return sorted(schemes)
