"""The XML of an IR as plain values: layers with their ports, and edges between ports.

Documents with a DOCTYPE are refused before anything in them is expanded; no IR has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from inferometer.core.frozen import frozen
from inferometer.formats.onnx.faults import MAX_NESTING, MAX_NODES, MAX_RANK, MAX_TEXT, Fault

_MOST_ELEMENTS = 20_000_000
_SKIPPED = frozenset({"rt_info", "meta_data", "statistics"})  # words for tools; some are longer than the network


@dataclass(slots=True)
class _Element:
    tag: str
    attributes: dict[str, str]
    children: "list[_Element]" = field(default_factory=list)
    text: str = ""

    def find(self, tag: str) -> "_Element | None":
        return next((child for child in self.children if child.tag == tag), None)

    def every(self, tag: str) -> "list[_Element]":
        return [child for child in self.children if child.tag == tag]


@frozen
class IrPort:
    """`dims` has None for a size that is open; `names` are the tensor's own, which inputs and outputs go by."""

    id: int
    precision: str = ""
    dims: tuple[int | None, ...] = ()
    names: tuple[str, ...] = ()


@frozen
class IrLayer:
    id: int
    name: str
    type: str
    data: Mapping[str, str]
    inputs: tuple[IrPort, ...] = ()
    outputs: tuple[IrPort, ...] = ()
    bodies: Mapping[str, "Net"] = field(default_factory=dict)
    # External port and layer of the body, by the kind of map: ("body", "input"), ("then_port_map", "output") …
    ports: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = field(default_factory=dict)


@frozen
class Net:
    name: str
    version: int
    layers: tuple[IrLayer, ...]
    edges: Mapping[tuple[int, int], tuple[int, int]]  # (layer, port) that reads → (layer, port) that is read


def parse_net(data: bytes) -> Net:
    return _net(_tree(data), depth=0)


def _tree(data: bytes) -> _Element:
    parser = expat.ParserCreate()
    root = _Element("", {})
    open_elements, left, skipped = [root], _MOST_ELEMENTS, 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal left, skipped
        left -= 1
        if left < 0 or len(open_elements) > 8 * MAX_NESTING:
            raise Fault("more elements than any network has", offset=parser.CurrentByteIndex)
        if skipped or tag in _SKIPPED:
            skipped += 1
            return
        element = _Element(tag, attributes)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        nonlocal skipped
        if skipped:
            skipped -= 1
        else:
            open_elements.pop()

    def text(words: str) -> None:
        if not skipped and open_elements[-1].tag == "dim" and len(open_elements[-1].text) < MAX_TEXT:
            open_elements[-1].text += words

    def refuse(*_: Any) -> None:
        raise Fault("a DOCTYPE, which no IR has", offset=parser.CurrentByteIndex)

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)  # noqa: FBT003 - expat takes it by place: this is all of it
    except expat.ExpatError as error:
        raise Fault(f"no sound XML: {error}") from None
    net = root.find("net")
    if net is None:
        raise Fault("no <net> in it")
    return net


def _net(element: _Element, *, depth: int) -> Net:
    if depth > MAX_NESTING:
        raise Fault(f"networks nested more than {MAX_NESTING} deep")
    layers, edges = element.find("layers"), element.find("edges")
    found = layers.every("layer") if layers else []
    if not found:
        raise Fault("a network without layers")
    if len(found) > MAX_NODES:
        raise Fault(f"a network of more than {MAX_NODES:,} layers")
    wired = {
        (_whole(edge, "to-layer"), _whole(edge, "to-port")): (_whole(edge, "from-layer"), _whole(edge, "from-port"))
        for edge in (edges.every("edge") if edges else [])
    }
    version = element.attributes.get("version", "")
    return Net(
        name=element.attributes.get("name", "")[:MAX_TEXT],
        version=int(version) if version.isdecimal() and len(version) < 9 else 0,
        layers=tuple(_layer(layer, depth) for layer in found),
        edges=wired,
    )


def _layer(element: _Element, depth: int) -> IrLayer:
    name, data = element.attributes.get("name", ""), element.find("data")
    if len(name) > MAX_TEXT:
        raise Fault(f"a name of {len(name):,} characters")
    sides = [element.find(side) for side in ("input", "output")]
    inputs, outputs = (tuple(_port(port) for port in side.every("port")) if side else () for side in sides)
    bodies = {tag: body for tag in ("body", "then_body", "else_body") if (body := element.find(tag)) is not None}
    ports: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}
    for tag in ("port_map", "then_port_map", "else_port_map"):
        found = element.find(tag)
        for side in ("input", "output") if found else ():
            ports[tag, side] = tuple(
                (_whole(entry, "external_port_id", -1), _whole(entry, "internal_layer_id"))
                for entry in (found.every(side) if found else [])
            )
    return IrLayer(
        id=_whole(element, "id"),
        name=name,
        type=element.attributes.get("type", ""),
        data=dict(data.attributes) if data else {},
        inputs=inputs,
        outputs=outputs,
        bodies={tag: _net(body, depth=depth + 1) for tag, body in bodies.items()},
        ports=ports,
    )


def _port(element: _Element) -> IrPort:
    dims = [child.text.strip() for child in element.every("dim")]
    if len(dims) > MAX_RANK:
        raise Fault(f"a tensor of more than {MAX_RANK} dimensions")
    names = element.attributes.get("names", "").replace("\\,", "\0").split(",")
    return IrPort(
        id=_whole(element, "id"),
        precision=element.attributes.get("precision", ""),
        dims=tuple(int(dim) if dim.isdecimal() and len(dim) < 19 else None for dim in dims),
        names=tuple(name.replace("\0", ",") for name in names if name),
    )


def _whole(element: _Element, key: str, default: int | None = None) -> int:
    text = element.attributes.get(key, "")
    if text.removeprefix("-").isdecimal() and len(text) < 19:
        return int(text)
    if default is not None:
        return default
    raise Fault(f"<{element.tag}> with {text[:40]!r} as its {key}")
