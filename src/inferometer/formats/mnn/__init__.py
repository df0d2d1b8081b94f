"""MNN's files (.mnn): a flatbuffer with the operators, their parameters and their weights.

Opening an MNN file. Its weights are counted where they lie and never read.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

from inferometer.formats.onnx.faults import reading
from inferometer.formats.onnx.messages import GraphDef, OnnxModel, TensorDef, TypeDef, ValueInfo, Wire

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.core.graph import Graph
    from inferometer.formats.base import Peek
    from inferometer.formats.mnn.layers import MnnNet, MnnOp

_AGAIN = "Convert the model again, with MNNConvert or `inferometer prepare MODEL --for mnn`."
_OPSET = 20  # of the operators that MNN's are written as
_LEAST, _FIELDS = 8, 32  # fields of the outermost table: it has 8 to 15
_OPERATORS, _TENSORS = 3, 7  # two that every network has
_TYPES = {1: "f32", 3: "i32", 4: "u8", 6: "i8", 9: "i64", 19: "f16"}


class MnnReader:
    name = "mnn"
    formats = frozenset({"mnn"})

    def match(self, peek: Peek) -> float:
        """The files have no mark: a flatbuffer without an identifier whose outermost table may be a network."""
        if peek.is_folder or not _may_be_a_network(peek.head):
            return 0.0
        return 0.8 if peek.path.suffix == ".mnn" else 0.6

    def read(self, path: Path) -> Graph:
        from inferometer.formats.mnn.layers import parse_net  # noqa: PLC0415 - matching a file needs none of it
        from inferometer.formats.onnx.assemble import assemble_model  # noqa: PLC0415 - as above

        with reading(path, "an MNN file", remedy=_AGAIN, by_byte=False):
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                model = _model(parse_net(data, path), path)
            return assemble_model(path, model, Wire(b""))


def _may_be_a_network(head: bytes) -> bool:
    """Whether the outermost table and its vtable are sound, and it has operators and the names of tensors."""
    try:
        (root,) = struct.unpack_from("<I", head)
        vtable = root - struct.unpack_from("<i", head, root)[0]
        if vtable < 4 or head[4:8].isalnum():  # an identifier is another format's
            return False
        size, inline = struct.unpack_from("<HH", head, vtable)
        fields = struct.unpack_from(f"<{(size - 4) // 2}H", head, vtable + 4) if size % 2 == 0 else ()
    except struct.error:
        return False
    sound = _LEAST <= len(fields) <= _FIELDS and all(index <= inline - 1 for index in fields)
    return sound and bool(fields[_OPERATORS] and fields[_TENSORS])


def _model(net: MnnNet, path: Path) -> OnnxModel:
    from inferometer.formats.mnn.layers import DOMAIN, MnnSite, nodes_of  # noqa: PLC0415 - as above

    stored: dict[str, TensorDef] = {}
    numbers: dict[str, tuple[int, ...]] = {}
    nodes = []
    for number, op in enumerate(net.ops):
        if op.type != "Input":
            site = MnnSite(op=op, number=number, file=path.name, stored=stored, numbers=numbers)
            nodes += nodes_of(site)
    inputs = tuple(_input(op) for op in net.ops if op.type == "Input" and op.outputs)
    read = {name for op in net.ops for name in op.inputs}
    made = [name for op in net.ops if op.type not in {"Input", "Const"} for name in op.outputs]
    ends = tuple(name for name in net.outputs if name in made) or tuple(name for name in made if name not in read)
    graph = GraphDef(
        name=path.name.removesuffix(".mnn"), nodes=tuple(nodes), inputs=inputs,
        outputs=tuple(ValueInfo(name=name) for name in ends), initializers=tuple(stored.values()),
    )  # fmt: skip
    return OnnxModel(graph=graph, opsets={"": _OPSET, DOMAIN: 1}, producer="MNN")


def _input(op: MnnOp) -> ValueInfo:
    """A size of −1 is left open."""
    dims = op.wholes(0, "the sizes of an input")
    axes = tuple(size if size > 0 else None for size in dims)
    kind = _TYPES.get(op.whole(1, 1), "f32")
    return ValueInfo(name=op.outputs[0], type=TypeDef(group="tensor", dtype=kind, axes=axes))


reader = MnnReader()

__all__ = ["MnnReader", "reader"]
