"""A network of IR layers as a model in ONNX's terms, which the ONNX reader's rules then count.

Every value has the name of the layer that makes it, as OpenVINO's own reports have it; inputs go by their tensors'
names. Sizes that the file declares are passed on, so a layer that no rule knows still has its shape.
"""

import re
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

from inferometer.core.dtypes import dtype
from inferometer.core.errors import InferometerError
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.core.json_text import parse_json
from inferometer.formats import stored
from inferometer.formats.onnx.faults import MAX_ITEMS, Fault
from inferometer.formats.onnx.messages import (
    ELEMENTS,
    Attribute,
    External,
    GraphDef,
    Node,
    OnnxModel,
    TensorDef,
    TypeDef,
    ValueInfo,
)
from inferometer.formats.openvino.layers import DOMAIN, LayerSite, nodes_of
from inferometer.formats.openvino.net import IrLayer, Net
from inferometer.formats.stored import Companion, Stored

# The folder of a language model: OpenVINO's network with its config beside it.
#
# The network keeps its cache as a state, of which the file does not say how it grows. So the graph is the config's, as
# a checkpoint's is, with the formats and bytes that the network has for each weight; where their names do not show
# which is which, with the format that most of them have. Without a config it is the network's own, and the cache is
# not counted.

FORMAT = "openvino-genai"
_BEFORE = re.compile(r"^(self\.)?(model\.)*")  # modules that stand before a checkpoint's names
_NO_CACHE = "What is read of the cache is not counted: the file does not say how it grows"


def folder_graph(network: Graph, folder: Path) -> Graph:
    graph, why = _by_config(network, folder)
    if graph is None:
        sizes = {**network.metadata.get("default_sizes", {}), "beam_idx.0": 1}
        notes = (*network.metadata.get("notes", ()), f"{why}. {_NO_CACHE}.")
        graph = replace(network, metadata={**network.metadata, "default_sizes": sizes, "notes": notes})
    return replace(graph, name=folder.resolve().name, metadata={**graph.metadata, "format": FORMAT})


def _by_config(network: Graph, folder: Path) -> tuple[Graph | None, str]:
    from inferometer.formats.huggingface.graph import graph_from_config  # noqa: PLC0415 - quick to import this module

    try:
        config: dict[str, Any] = parse_json((folder / "config.json").read_text(encoding="utf-8"))
        graph = graph_from_config(config, name=folder.name)
    except (OSError, ValueError, InferometerError) as error:
        return None, f"There is no config.json that says the architecture ({error})"
    held, problems = stored.fit(graph, _locator(network))
    if not problems:
        # What is not quantised: f16 where most of the weights are so stored, else f32.
        formats = [entry.dtype for entry in held.values()]
        precision = "f16" if "f16" in formats else "f32"
        return replace(stored.with_stored(graph, held), precision=precision), ""
    usual = _usual(network)
    held, _ = stored.fit(graph, lambda _name, weight: _counted_as(weight, usual))
    note = f"The network's names do not show which weight is which: all are counted as {usual}, as most of them are."
    notes = (*graph.metadata.get("notes", ()), note)
    alike = replace(stored.with_stored(graph, held), precision="f16" if usual == "f16" else "f32")
    return replace(alike, metadata={**alike.metadata, "notes": notes}), ""


def _counted_as(weight: Tensor, usual: str) -> Stored:
    """A matrix in the usual format; vectors stay as they are."""
    shape = _numbers(weight)
    name = usual if len(shape) > 1 else "f32"
    return Stored(names=(), shape=shape, dtype=name, nbytes=ceil(prod(shape) * dtype(name).bits / 8))


def _usual(network: Graph) -> str:
    """The format that most numbers of its weights have."""
    numbers: Counter[str] = Counter()
    for weight, _ in network.weights():
        if weight.role == "weight" and weight.dtype is not None:
            numbers[weight.dtype] += prod(_numbers(weight))
    return numbers.most_common(1)[0][0] if numbers else "f32"


def _locator(network: Graph) -> Callable[[str, Tensor], Stored | None]:
    weights = {
        _plain(weight.name): _stored(op, weight)
        for _, op in network.ops()
        for weight in op.weights
        if weight.role == "weight"
    }

    def locate(name: str, weight: Tensor) -> Stored | None:
        found = weights.get(_plain(name))
        if found is None and len(weight.shape) == 1 and isinstance(weight.shape[0], int):
            # A vector of ones is left out by the converter: nothing is multiplied.
            return Stored(names=(), shape=(weight.shape[0],), dtype="f32", nbytes=0)
        return found

    return locate


def _plain(name: str) -> str:
    return _BEFORE.sub("", name)


def _stored(op: Op, weight: Tensor) -> Stored:
    """With the scales that the file has for it."""
    scales = [other for other in op.weights if other.name.startswith(f"{weight.name}/")]
    return Stored(
        names=(weight.name,),
        shape=_numbers(weight),
        dtype=weight.dtype,
        nbytes=int(weight.stored_bytes or 0),
        companions=tuple(
            Companion(
                suffix=f".{other.name.rpartition('/')[2]}", shape=_numbers(other), dtype=other.dtype,
                nbytes=int(other.stored_bytes or 0),
            )
            for other in scales
        ),
    )  # fmt: skip


def _numbers(tensor: Tensor) -> tuple[int, ...]:
    return tuple(size for size in tensor.shape if isinstance(size, int))


_OPSET = 18  # of the operators that layers are written as
# element_type and precision, as IR spells them, → the number of ONNX's type that is stored alike.
_ELEMENTS = {
    "f32": 1, "fp32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "string": 8, "boolean": 9, "bool": 9,
    "f16": 10, "fp16": 10, "f64": 11, "fp64": 11, "u32": 12, "u64": 13, "bf16": 16, "f8e4m3": 17, "f8e5m2": 19,
    "u4": 21, "i4": 22, "nf4": 21, "f4e2m1": 23, "f8e8m0": 24, "u2": 25, "u1": 25,
}  # fmt: skip
_NARROW = frozenset({2, 3, 21, 22, 17, 19, 23, 25})
_UNNAMED = re.compile(r"Constant(_\d+)*(_compressed)?$")  # what OpenVINO calls constants that have no name
_ENDS = frozenset({"Parameter", "Const", "Constant", "Result"})
_LOOPS = frozenset({"TensorIterator", "Loop"})


def as_onnx(net: Net, path: Path) -> OnnxModel:
    numbers = _Numbers(path.with_suffix(".bin"))
    graph = _Converter(net, numbers, prefix="").graph()
    return OnnxModel(
        graph=graph, opsets={"": _OPSET, DOMAIN: 1}, ir_version=net.version, producer=f"OpenVINO IR {net.version}"
    )


@dataclass(slots=True)
class _Numbers:
    """The file of constants: where each lies, and the few whole numbers that are read."""

    path: Path
    tensors: int = 0

    def next_place(self) -> int:
        """What stands for a tensor's place in the XML: another for each, and no offset of a file."""
        self.tensors += 1
        return -self.tensors

    def read(self, tensor: TensorDef) -> tuple[int, ...] | None:
        element, count, external = ELEMENTS[tensor.data_type], prod(tensor.dims), tensor.external
        if not element.integer or element.layout is None or count > MAX_ITEMS or external is None:
            return None
        layout = struct.Struct(f"<{count}{element.layout}")
        try:
            with self.path.open("rb") as file:
                file.seek(external.offset)
                data = file.read(layout.size)
        except (OSError, ValueError):
            return None
        return layout.unpack(data) if len(data) == layout.size else None


@dataclass(slots=True)
class _Converter:
    net: Net
    numbers: _Numbers
    prefix: str
    outer: dict[int, str] = field(default_factory=dict)  # Parameter of a body → the name of what is passed to it
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    stored: dict[str, TensorDef] = field(default_factory=dict)
    narrow: dict[str, str] = field(default_factory=dict)  # a widened value → the stored one of few bits it is made from

    def graph(self) -> GraphDef:
        self.name_values()
        nodes: list[Node] = []
        for layer in self.net.layers:
            if layer.type not in _ENDS:
                nodes += self._nodes(layer)
        parameters = [layer for layer in self.net.layers if layer.type == "Parameter" and layer.id not in self.outer]
        results = [layer for layer in self.net.layers if layer.type == "Result"]
        outputs = [self.source_of(layer, layer.inputs[0].id) for layer in results if layer.inputs]
        return GraphDef(
            name=self.net.name,
            nodes=tuple(nodes),
            initializers=tuple(self.stored.values()),
            inputs=tuple(self._info(layer, 0) for layer in parameters),
            outputs=tuple(ValueInfo(name=name) for name in dict.fromkeys(outputs)),
            infos=tuple(
                self._info(layer, index)
                for layer in self.net.layers
                if layer.type not in _ENDS
                for index in range(len(layer.outputs))
            ),
        )

    def name_values(self) -> None:
        """A name for what each port gives; and each constant."""
        taken: set[str] = set()
        for layer in self.net.layers:
            for index, port in enumerate(layer.outputs):
                name = layer.name if len(layer.outputs) == 1 else f"{layer.name}.{index}"
                if layer.type == "Parameter" and port.names:
                    name = min(port.names)
                elif layer.type in {"Const", "Constant"} and _UNNAMED.match(name):
                    name = f"stored.{layer.id}"  # vectors of this kind are parameters that were folded
                name = self.outer.get(layer.id) or self.prefix + name
                if layer.id not in self.outer and name in taken:
                    name = f"{name}#{layer.id}"
                taken.add(name)
                self.names[layer.id, port.id] = name
            if layer.type in {"Const", "Constant"} and layer.outputs:
                name = self.names[layer.id, layer.outputs[0].id]
                self.stored[name] = self._constant(layer, name)

    def _constant(self, layer: IrLayer, name: str) -> TensorDef:
        kind = _ELEMENTS.get(layer.data.get("element_type", "").casefold())
        where = f"layer {layer.name!r}"
        if kind is None:
            raise Fault(f"the element type {layer.data.get('element_type', '')[:40]!r} is not known", where=where)
        dims = [part.strip() for part in layer.data.get("shape", "").split(",") if part.strip()]
        place = [layer.data.get(key, "") for key in ("offset", "size")]
        if not all(text.isdecimal() and len(text) < 19 for text in (*dims, *place)):
            raise Fault("a constant without its shape, offset and size", where=where)
        offset, length = map(int, place)
        away = External(location=self.numbers.path.name, offset=offset, length=length)
        return TensorDef(
            name=name, dims=tuple(map(int, dims)), dtype=ELEMENTS[kind].name, start=self.numbers.next_place(),
            data_type=kind, external=away,
        )  # fmt: skip

    def _store(self, numbers: Sequence[int]) -> str:
        """A list of whole numbers that IR has elsewhere, as the stored tensor that ONNX reads."""
        place = self.numbers.next_place()
        name = f"{self.prefix}list.{-place}"
        self.stored[name] = TensorDef(
            name=name, dims=(len(numbers),), dtype="i64", start=place, data_type=7,
            loose=tuple(numbers), loose_count=len(numbers),
        )  # fmt: skip
        return name

    def source_of(self, layer: IrLayer, port: int) -> str:
        source = self.net.edges.get((layer.id, port))
        if source is None or source not in self.names:
            raise Fault(f"its input {port} comes from nothing", where=f"layer {layer.name!r} ({layer.type})")
        return self.names[source]

    def _info(self, layer: IrLayer, index: int) -> ValueInfo:
        port = layer.outputs[index]
        element = ELEMENTS.get(_ELEMENTS.get(port.precision.casefold(), 0))
        kind = TypeDef(group="tensor", dtype=None if element is None else element.name, axes=port.dims)
        return ValueInfo(name=self.names[layer.id, port.id], type=kind)

    def _nodes(self, layer: IrLayer) -> list[Node]:
        inputs = tuple(self.source_of(layer, port.id) for port in layer.inputs)
        outputs = tuple(self.names[layer.id, port.id] for port in layer.outputs)
        site = LayerSite(
            layer=layer,
            inputs=inputs,
            outputs=outputs or (f"{self.prefix}{layer.name}",),
            numbers=lambda place: self._known(inputs, place),
            store=self._store,
        )
        if layer.type == "Convert":
            return [self._convert(layer, site)]
        if layer.type in {"Subtract", "Multiply"} and inputs and inputs[0] in self.narrow:
            return [self._widen(layer, site)]
        if layer.type == "If" and {"then_body", "else_body"} <= layer.bodies.keys():
            return [self._branch(layer, site)]
        if layer.type in _LOOPS and "body" in layer.bodies:
            # A loop, named and not counted; what its body stores is the model's all the same.
            body = _Converter(layer.bodies["body"], self.numbers, prefix=f"{layer.name}/body/")
            body.name_values()
            self.stored |= body.stored
            loop = site.node(layer.type, (*site.inputs, *body.stored), domain=DOMAIN)
            return [loop]
        return nodes_of(site)

    def _known(self, inputs: tuple[str, ...], index: int) -> tuple[int, ...] | None:
        tensor = self.stored.get(inputs[index]) if index < len(inputs) else None
        return None if tensor is None else self.numbers.read(tensor)

    def _convert(self, layer: IrLayer, site: LayerSite) -> Node:
        """Another format. A stored weight of few bits keeps them until it is scaled: see `_widen`."""
        source = self.stored.get(site.inputs[0])
        kind = _ELEMENTS.get(layer.data.get("destination_type", "").casefold(), 1)
        if source is not None and source.data_type in _NARROW and kind in {1, 10, 16}:
            self.narrow[site.outputs[0]] = site.inputs[0]
            return site.node("Identity")
        return site.node("Cast", to=kind)

    def _widen(self, layer: IrLayer, site: LayerSite) -> Node:
        """Weights of few bits: a zero point is subtracted, a scale multiplied, when the model is loaded."""
        if layer.type == "Subtract":
            self.narrow[site.outputs[0]] = self.narrow[site.inputs[0]]
            return site.node("Identity", site.inputs[:1])
        return site.node("DequantizeLinear", site.inputs[:2])

    def _branch(self, layer: IrLayer, site: LayerSite) -> Node:
        graphs = {
            name: self._body(layer, body, ports, site)
            for name, body, ports in (
                ("then_branch", "then_body", "then_port_map"), ("else_branch", "else_body", "else_port_map")
            )
        }  # fmt: skip
        node = site.node("If", site.inputs[:1])
        attributes = {name: Attribute(name=name, value=graph) for name, graph in graphs.items()}
        return Node(
            op_type=node.op_type, domain="", name=node.name, inputs=node.inputs, outputs=node.outputs,
            attributes=attributes, start=node.start, source=layer.type,
        )  # fmt: skip

    def _body(self, layer: IrLayer, body: str, ports: str, site: LayerSite) -> GraphDef:
        """A branch, which reads what is passed to it by the outer names, with its results in the outer order."""
        by_port = dict(zip((port.id for port in layer.inputs), site.inputs, strict=True))
        passed = {inner: by_port[port] for port, inner in layer.ports.get((ports, "input"), ()) if port in by_port}
        made = _Converter(layer.bodies[body], self.numbers, prefix=f"{layer.name}/{body}/", outer=passed)
        graph = made.graph()
        results = {inner: port for port, inner in layer.ports.get((ports, "output"), ())}
        order = [port.id for port in layer.outputs]
        ends = sorted(
            (end for end in layer.bodies[body].layers if end.type == "Result" and end.inputs and end.id in results),
            key=lambda end: order.index(results[end.id]) if results[end.id] in order else len(order),
        )
        outputs = tuple(ValueInfo(name=made.source_of(end, end.inputs[0].id)) for end in ends)
        return GraphDef(
            name=graph.name, nodes=graph.nodes, initializers=graph.initializers, outputs=outputs, infos=graph.infos
        )
