"""From a TFLite model to a graph: its operators in the order of execution, control flow with its bodies inside."""

from collections import Counter
from collections.abc import Callable, Iterable
from math import ceil, log2, prod
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError
from inferometer.core.graph import Block, Graph, Op
from inferometer.formats.tflite.model import OperatorInfo, TfliteModel, TfliteTensor
from inferometer.formats.tflite.schema import PADDINGS
from inferometer.formats.tflite.scope import LAYERS, OperatorSite, TfliteNames, TfliteScope

if TYPE_CHECKING:
    from inferometer.formats.tflite.shapes import Shape


# From a TFLite operator to ops: what its options and small inputs say about the work.


def converted(site: OperatorSite) -> list[Op]:
    """The ops of one operator; usually one. Ops with bodies are made where the bodies are known."""
    form = site.info.operator.form
    if form in LAYERS:
        return LAYERS[form](site)
    return [_OTHERS.get(form, _plain)(site)]


def _plain(site: OperatorSite) -> Op:
    inputs, weights = site.split()
    return site.op(inputs, weights)


def _pool(site: OperatorSite) -> Op:
    options = site.options
    return site.op(
        (0,),
        kernel=(options.get("filter_h", 1), options.get("filter_w", 1)),
        strides=(options.get("stride_h", 1), options.get("stride_w", 1)),
        padding=PADDINGS.get(options.get("padding", 0), "same"),
    )


def _window(site: OperatorSite) -> Op:
    """The window's sides stand in the options (StableHLO) or in the third input."""
    sides = site.options.get("window") or site.numbers(2)
    if not sides:
        return site.uncovered("the window's size is not in the file")
    return site.op(site.split()[0], kernel=tuple(sides))


def _reduce(site: OperatorSite) -> Op:
    axes = site.options.get("axes") or site.numbers(1) or ()
    inputs, weights = site.split()
    return site.op(inputs, weights, axes=tuple(axes))


def _dequantize(site: OperatorSite) -> Op:
    """From f16 there is no scale: only the format changes."""
    plain = site.scope.info(site.info.inputs[0]).dtype in {"f16", "bf16"}
    return site.op((0,), kind="cast" if plain else "")


def _lrn(site: OperatorSite) -> Op:
    return site.op((0,), size=2 * site.options.get("radius", 0) + 1)


def _topk(site: OperatorSite) -> Op:
    kept = site.numbers(1)
    return site.op((0, 1), k=kept[0] if kept else None)


def _axis(site: OperatorSite) -> Op:
    return site.op((0,), axis=site.options.get("axis", -1))


def _scatter(site: OperatorSite) -> Op:
    """Inputs are indices, updates, shape; the work rule wants the updates last."""
    return site.op((2, 0, 1))


def _update_slice(site: OperatorSite) -> Op:
    """Inputs are data, update, start; the work rule wants the updates last."""
    return site.op((0, *range(2, len(site.info.inputs)), 1))


def _fft(site: OperatorSite) -> Op:
    """A transform of n real numbers takes 2.5·n·log₂ n operations and gives n/2 + 1 complex ones: 5·log₂ n each."""
    length = site.numbers(1)
    if not length or prod(length) < 1:
        return site.uncovered("the transform's length is not in the file")
    return site.op((0, 1), flops_per_element=5 * max(1, ceil(log2(prod(length)))))


def _bucketize(site: OperatorSite) -> Op:
    """A binary search among the boundaries."""
    return site.op((0,), flops_per_element=max(1, len(site.options.get("boundaries", ())).bit_length()))


def _gelu(site: OperatorSite) -> Op:
    return site.op((0,), function="gelu_tanh" if site.options.get("approximate") else "gelu")


def _read_variable(site: OperatorSite) -> Op:
    """What is read is the memory itself."""
    state = site.scope.variable(site.info.inputs[0], site.info.outputs[0])
    return Op(
        name=site.name, kind="view", inputs=(state,), outputs=site.outputs(), attributes=site.shared(),
        source_type="READ_VARIABLE",
    )  # fmt: skip


def _assign_variable(site: OperatorSite) -> Op:
    handle, value = site.info.inputs[0], site.info.inputs[1]
    return Op(
        name=site.name, kind="copy", inputs=(site.scope.tensor(value),),
        outputs=(site.scope.variable(handle, value),), source_type="ASSIGN_VARIABLE",
        attributes={**site.info.operator.attributes, **site.shared()},
    )  # fmt: skip


_OTHERS: dict[str, Callable[[OperatorSite], Op]] = {
    "pool": _pool, "window": _window, "reduce": _reduce, "dequantize": _dequantize, "lrn": _lrn, "topk": _topk,
    "axis": _axis, "scatter": _scatter, "update_slice": _update_slice, "fft": _fft, "bucketize": _bucketize,
    "gelu": _gelu, "read_variable": _read_variable, "assign_variable": _assign_variable,
}  # fmt: skip


_MANY_OPS = 250_000  # with the bodies of control flow written out wherever they are called
_DEEP = 48
_UNPACKING = frozenset({"DEQUANTIZE", "DENSIFY"})
_WITHOUT_RESULT = frozenset({"control", "custom", "view", "copy"})


def tflite_graph(model: TfliteModel, *, name: str, label: str, signature: str | None = None, prefix: str = "") -> Graph:
    """The graph of one entry point: the first subgraph, or the one a signature names."""
    builder = _Builder(model, label, TfliteNames(prefix=prefix))
    start = builder.start(signature)
    subgraph = model.subgraphs[start]
    scope = TfliteScope(subgraph, start, builder.names)
    ops = builder.ops(start, scope, ())
    # The format most activations have.
    flowing = Counter(t.dtype for t in subgraph.tensors if t.nbytes is None and t.dtype is not None)
    usual = flowing.most_common(1)
    precision = usual[0][0] or "f32" if usual else "f32"
    return Graph(
        name=name,
        blocks=(Block(name=prefix.rstrip("/") or subgraph.name.replace("{}", "{ }"), ops=ops),),
        inputs=tuple(scope.tensor(place) for place in subgraph.inputs if place >= 0),
        outputs=tuple(scope.tensor(place) for place in subgraph.outputs if place >= 0),
        precision=precision,
        metadata={**_metadata(model, builder, start), "coverage": _coverage(ops, sum(builder.folded.values()))},
    )


def merged(graphs: Iterable[Graph], *, name: str) -> Graph:
    """The models of a bundle as one graph that runs each of them once."""
    parts = tuple(graphs)
    return Graph(
        name=name,
        blocks=tuple(block for part in parts for block in part.blocks),
        inputs=tuple(tensor for part in parts for tensor in part.inputs),
        outputs=tuple(tensor for part in parts for tensor in part.outputs),
        precision=parts[0].precision,
        metadata={
            "format": "tflite",
            "members": {part.name: dict(part.metadata) for part in parts},
            "notes": ("A bundle of models; the graph runs each of them once.",),
        },
    )


class _Builder:
    """Writes subgraphs out as ops. It counts what it writes, so that bodies called from bodies come to an end."""

    def __init__(self, model: TfliteModel, label: str, names: TfliteNames) -> None:
        self.names = names
        self.folded: Counter[str] = Counter()
        self.reached: set[int] = set()
        self._model, self._label = model, label
        self._written = 0
        self._beginnings: dict[int, Counter[str]] = {}
        self._bodies: dict[tuple[Any, ...], tuple[tuple[Op, ...], int]] = {}

    def fault(self, problem: str) -> FormatError:
        return FormatError(f"{self._label!r} is not a sound TFLite file: {problem}.")

    def start(self, signature: str | None) -> int:
        if signature is None:
            return 0
        if signature not in self._model.signatures:
            known = ", ".join(self._model.signatures) or "none"
            raise FormatError(f"{self._label!r} has no signature {signature!r}.", remedy=f"It has: {known}.")
        return self._checked(self._model.signatures[signature], "a signature")

    def ops(self, index: int, scope: TfliteScope, callers: tuple[int, ...]) -> tuple[Op, ...]:
        """The ops of a subgraph. `callers` are the subgraphs it is being written out for."""
        if index in callers:
            raise self.fault(f"subgraph {index} calls itself")
        if len(callers) > _DEEP:
            raise self.fault(f"subgraphs call each other more than {_DEEP} deep")
        self.reached.add(index)
        subgraph = self._model.subgraphs[index]
        ops: list[Op] = []
        for info in subgraph.operators:
            scope.follow(info)
            if not self._unpacks(info, scope):
                ops += self._converted(info, scope, (*callers, index))
        self._count(len(ops))
        return tuple(ops)

    def _count(self, written: int) -> None:
        self._written += written
        if self._written > _MANY_OPS:
            raise self.fault(f"it comes to more than {_MANY_OPS:,} ops")

    def _unpacks(self, info: OperatorInfo, scope: TfliteScope) -> bool:
        """A constant that is stored narrower than it is used: engines widen it once, when they load the model."""
        if info.operator.name not in _UNPACKING or len(info.inputs) != 1 or len(info.outputs) != 1:
            return False
        if min(*info.inputs, *info.outputs) < 0 or not scope.is_constant(info.inputs[0]):
            return False
        scope.alias(info.outputs[0], info.inputs[0])
        self.folded[info.operator.name] += 1
        return True

    def _converted(self, info: OperatorInfo, scope: TfliteScope, callers: tuple[int, ...]) -> list[Op]:
        what = f"operator {info.index} ({info.operator.name}) of subgraph {callers[-1]}"
        name = self._op_name(info, scope, callers[-1])
        if info.operator.kind == "control":
            return [self._control(info, scope, name, callers)]
        if info.operator.name == "VAR_HANDLE" and info.outputs:
            scope.name_variable(info.outputs[0], info.options.get("shared_name", ""))
        try:
            ops = converted(OperatorSite(info=info, scope=scope, name=name))
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
            raise self.fault(f"{what} lacks tensors or options it needs, or they do not fit it") from None
        if any(not op.outputs and op.kind not in _WITHOUT_RESULT for op in ops):
            raise self.fault(f"{what} has no output")
        return ops

    def _op_name(self, info: OperatorInfo, scope: TfliteScope, index: int) -> str:
        """An operator has no name of its own: its first output's, up to the names that were fused into it.

        Where several begin with the same, it is the whole; engines that run the file are asked by the same rule.
        """
        made = next((place for place in info.outputs if place >= 0), None)
        if made is None:
            return f"{self.names.prefix}{info.operator.name.lower()}_{info.index}"
        name, head = scope.tensor(made).name, scope.info(made).name.partition(";")[0]
        # How many operators of a subgraph have results whose names begin with each name.
        if index not in self._beginnings:
            subgraph = self._model.subgraphs[index]
            makers = (info for info in subgraph.operators if info.operator.name not in _UNPACKING)
            first = (next((place for place in info.outputs if place >= 0), None) for info in makers)
            names = (subgraph.tensors[place].name.partition(";")[0] for place in first if place is not None)
            self._beginnings[index] = Counter(names)
        if self._beginnings[index][head] == 1 or info.operator.name in _UNPACKING:
            name = name.partition(";")[0]
        return name or f"{info.operator.name.lower()}_{info.index}"

    def _control(self, info: OperatorInfo, scope: TfliteScope, name: str, callers: tuple[int, ...]) -> Op:
        """A branch has a body each way; a loop's condition and body run together, how often is not in the file."""
        function = info.operator.attributes["function"]
        if function == "case":
            branches = list(info.options.get("branches", ()))
        elif function in {"if", "while"}:
            branches = [info.options.get("first", 0), info.options.get("second", 0)]
        else:
            branches = [info.options.get("first", 0)]
        called = [self._checked(index, f"operator {info.index} ({info.operator.name})") for index in branches]
        passed = [place for place in (info.inputs[1:] if function in {"if", "case"} else info.inputs) if place >= 0]
        stays = self._unchanged(called[-1]) if function == "while" else None
        bodies = [self._body(index, scope, passed, callers, stays) for index in called]
        if function == "while":
            bodies = [tuple(op for body in bodies for op in body)]
        trips = {"call": 1, "composite": 1, "call_once": 0}.get(function)
        attributes: dict[str, Any] = {
            "function": function,
            "bodies": tuple(bodies),
            "trips": trips,
            "index": info.index,
        }
        if composite := info.options.get("name"):
            attributes["composite"] = composite
        # What the bodies hold, on the op itself: weights are counted where they can be seen.
        return Op(
            name=name,
            kind="control",
            inputs=tuple(scope.tensor(place) for place in info.inputs if place >= 0),
            outputs=tuple(scope.tensor(place) for place in info.outputs if place >= 0),
            weights=tuple(dict.fromkeys(weight for body in bodies for op in body for weight in op.weights)),
            attributes=attributes,
            source_type=info.operator.name,
        )

    def _checked(self, index: int, what: str) -> int:
        if not 0 <= index < len(self._model.subgraphs):
            raise self.fault(f"{what} names subgraph {index:,} of {len(self._model.subgraphs):,}")
        return index

    def _unchanged(self, index: int) -> frozenset[int]:
        """The places of a loop's values that its body gives back as they came: weights pass through loops like that."""
        subgraph = self._model.subgraphs[index]
        pairs = zip(subgraph.inputs, subgraph.outputs, strict=False)
        return frozenset(index for index, (given, back) in enumerate(pairs) if given == back)

    def _body(
        self, index: int, scope: TfliteScope, passed: list[int], callers: tuple[int, ...], stays: frozenset[int] | None
    ) -> tuple[Op, ...]:
        """A subgraph written out for what is passed to it. Called again alike, it is the same ops, counted again.

        A constant of the caller is one inside too, in a loop where it `stays` what it is.
        """
        subgraph = self._model.subgraphs[index]
        ranked: dict[int, Shape] = {}
        constants: dict[int, TfliteTensor] = {}
        for number, (place, outer) in enumerate(zip(subgraph.inputs, passed, strict=False)):
            shape = scope.shape(outer)
            if place < 0 or len(shape) != len(subgraph.tensors[place].shape):
                continue
            ranked[place] = shape
            if scope.is_constant(outer) and (stays is None or number in stays):
                constants[place] = scope.info(outer)
        key = (index, *ranked.items(), *((place, stored.buffer, stored.name) for place, stored in constants.items()))
        if key in self._bodies and index not in callers:
            ops, written = self._bodies[key]
            self._count(written)
            return ops
        before = self._written
        ops = self.ops(index, TfliteScope(subgraph, index, self.names, inputs=ranked, constants=constants), callers)
        self._bodies[key] = (ops, self._written - before)
        return ops


def _metadata(model: TfliteModel, builder: _Builder, start: int) -> dict[str, Any]:
    tensors = [t for index in sorted(builder.reached) for t in model.subgraphs[index].tensors]
    facts: dict[str, Any] = {
        "format": "tflite",
        "version": model.version,
        "description": model.description,
        "file_bytes": model.file_bytes,
        "buffer_bytes": model.buffer_bytes,
        "subgraphs": len(model.subgraphs),
        "signatures": dict(model.signatures),
        "stored_metadata": model.metadata,
        "quantization": dict(Counter(_scheme(t.quantization) for t in tensors if t.quantization)),
        "sparse_tensors": sum(1 for t in tensors if t.sparse),
        "unpacked_constants": dict(builder.folded),
    }
    notes = []
    others = len(model.subgraphs) - len(builder.reached)
    if others:
        entry = next((key for key, index in model.signatures.items() if index == start), model.subgraphs[start].name)
        notes.append(f"{others} subgraphs that {entry!r} does not reach are not in the graph.")
    if any(t.external for t in tensors):
        notes.append("Weights lie in another file; their bytes are counted from their shapes.")
    return {**facts, "notes": tuple(notes)}


def _coverage(ops: tuple[Op, ...], unpacked: int) -> dict[str, Any]:
    """How many operators have known work, with operators in bodies and operators that only unpack a constant."""
    total, unknown = unpacked, dict[str, dict[str, Any]]()
    pending = list(ops)
    while pending:
        op = pending.pop()
        total += 1
        pending += [inner for body in op.get("bodies", ()) for inner in body]
        loop = op.kind == "control" and len(op["bodies"]) < 2 and op["trips"] is None
        if op.kind == "custom" or loop:
            reason = "unknown number of trips" if loop else op["reason"]
            entry = unknown.setdefault(str(op.source_type), {"count": 0, "reason": reason})
            entry["count"] += 1
    covered = total - sum(entry["count"] for entry in unknown.values())
    return {"nodes": total, "covered": covered, "share": covered / total if total else 1.0, "uncovered": unknown}


def _scheme(quantization: Any) -> str:
    if quantization.details is not None:
        return str(quantization.details)
    return "per_tensor" if quantization.axis is None else "per_axis"
