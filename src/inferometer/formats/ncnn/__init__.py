"""ncnn's files: a text of layers (.param), and their weights in a .bin file beside it.

Opening an ncnn network by its .param file. Of the .bin file only the size is looked at: it says how numbers lie.
"""

from math import prod
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.ncnn.param import NcnnLayer, input_shape, parse_param
from inferometer.formats.onnx.faults import reading
from inferometer.formats.onnx.messages import GraphDef, Node, OnnxModel, TensorDef, TypeDef, ValueInfo, Wire

_AGAIN = "Convert the model again, with pnnx or `inferometer prepare MODEL --for ncnn`."
_LARGEST = 1 << 28
_OPSET = 23  # of the operators that layers are written as
_HEAD = b"7767517"
_FLOAT32, _FLOAT16, _INT8 = 1, 10, 3  # ONNX's numbers of types


class NcnnReader:
    name = "ncnn"
    formats = frozenset({"ncnn"})

    def match(self, peek: Peek) -> float:
        return 1.0 if peek.head.startswith((_HEAD + b"\n", _HEAD + b"\r")) else 0.0

    def read(self, path: Path) -> Graph:
        from inferometer.formats.onnx.assemble import assemble_model  # noqa: PLC0415 - matching a file needs none of it

        with reading(path, "an ncnn network", remedy=_AGAIN, by_byte=False):
            if path.stat().st_size > _LARGEST:
                raise FormatError(f"{str(path)!r} is larger than a text of layers may be ({_LARGEST:,} bytes).")
            layers = parse_param(path.read_text(encoding="utf-8", errors="replace"))
            return assemble_model(path, _model(layers, path), Wire(b""))


def _model(layers: tuple[NcnnLayer, ...], path: Path) -> OnnxModel:
    from inferometer.formats.ncnn.layers import DOMAIN  # noqa: PLC0415 - as above

    weights = path.with_suffix(".bin")
    nodes, stored = _nodes(layers, weights.name, _FLOAT32)
    count = sum(prod(tensor.dims) for tensor in stored.values() if tensor.external is not None)
    if weights.is_file() and count:
        # How the weights lie in the file, by its size: four bytes each, two, or one with a scale here and there.
        bytes_each = weights.stat().st_size / count
        nodes, stored = _nodes(
            layers, weights.name, _FLOAT32 if bytes_each > 3 else _FLOAT16 if bytes_each > 1.5 else _INT8
        )
    read = {name for layer in layers for name in layer.bottoms}
    given = [name for layer in layers if layer.type == "Input" for name in layer.tops]
    inputs = tuple(
        ValueInfo(name=name, type=TypeDef(group="tensor", dtype="f32", axes=input_shape(layers, name)))
        for name in given
    )
    ends = tuple(ValueInfo(name=name) for layer in layers for name in layer.tops if name not in read)
    graph = GraphDef(
        name=path.name.removesuffix(".param").removesuffix(".ncnn"), nodes=nodes, inputs=inputs, outputs=ends,
        initializers=tuple(stored.values()),
    )  # fmt: skip
    return OnnxModel(graph=graph, opsets={"": _OPSET, DOMAIN: 1}, producer="ncnn")


def _nodes(layers: tuple[NcnnLayer, ...], weights: str, element: int) -> tuple[tuple[Node, ...], dict[str, TensorDef]]:
    from inferometer.formats.ncnn.layers import NcnnSite, nodes_of  # noqa: PLC0415 - as above
    from inferometer.formats.ncnn.sizes import blob_sizes  # noqa: PLC0415 - as above

    stored: dict[str, TensorDef] = {}
    nodes: list[Node] = []
    sizes = blob_sizes(layers)
    for number, layer in enumerate(layers):
        if layer.type == "Input":
            continue
        nodes += nodes_of(NcnnSite(
            layer=layer, number=number, weights_file=weights, element=element, stored=stored, sizes=sizes
        ))  # fmt: skip
    return tuple(nodes), stored


reader = NcnnReader()

__all__ = ["NcnnReader", "reader"]
