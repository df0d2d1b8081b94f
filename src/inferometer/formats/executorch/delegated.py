"""What was lowered to a backend, as ops. Of XNNPACK's nodes the work is known; any other backend's data are its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferometer.core.graph import Op, Tensor
from inferometer.formats.executorch.xnnpack import XnnGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inferometer.formats.executorch.program import Delegate
    from inferometer.formats.executorch.xnnpack import XnnNode

_TRANSPOSED = "XNNConvTranspose2d"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")  # where a word begins within a name


def opaque_op(delegate: Delegate, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Op:
    blob = Tensor(name=f"{name}.data", shape=(delegate.size,), dtype="u8", role="constant", stored_bytes=delegate.size)
    reason = f"what {delegate.backend} was given is in a form of its own: its work is not known"
    return Op(
        name=name, kind="custom", inputs=tuple(inputs), outputs=tuple(outputs), weights=(blob,),
        attributes={"reason": reason}, source_type=delegate.backend,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class XnnSite:
    """A delegate call: its nodes are called by the instruction's number, and its arguments are the program's values."""

    graph: XnnGraph
    instruction: int
    arguments: tuple[Tensor | None, ...]

    def name_of(self, place: int) -> str:
        word = self.graph.nodes[place].kind.name.removeprefix("XNN").removeprefix("Static")
        return f"{_WORD.sub('_', word).lower()}_{self.instruction}.{place}"

    def tensor(self, number: int, name: str, word: str = "") -> Tensor:
        value = self.graph.values[number]
        place = value.external
        given = self.arguments[place] if place is not None and place < len(self.arguments) else None
        if given is not None:
            return given
        if value.stored_bytes is not None:
            return Tensor(
                name=f"{name}.{word or 'constant'}", shape=value.shape, dtype=value.dtype, role="weight",
                stored_bytes=value.stored_bytes,
            )  # fmt: skip
        return Tensor(name=f"value_{self.instruction}.{number}", shape=value.shape, dtype=value.dtype)


def xnnpack_ops(site: XnnSite) -> list[Op]:
    return [_op(site, node, index) for index, node in enumerate(site.graph.nodes)]


def _op(site: XnnSite, node: XnnNode, place: int) -> Op:
    name, values = site.name_of(place), site.graph.values
    words = ("", "weight", "bias") if node.kind.kind in {"linear", "convolution"} else ()
    named = zip(node.inputs, (*words, *("",) * len(node.inputs)), strict=False)
    tensors = [(values[number].stored_bytes is not None, site.tensor(number, name, word)) for number, word in named]
    flowing = tuple(tensor for stored, tensor in tensors if not stored)
    held = tuple(tensor for stored, tensor in tensors if stored)
    kind, attributes = _meaning(site, node, [tensor for _, tensor in tensors])
    activation = node.activation
    if activation is not None and node.kind.kind == "activation":
        attributes["function"] = activation
    elif activation is not None:
        attributes["fused_activation"] = activation
    return Op(
        name=name,
        kind=kind if flowing or kind != "linear" else "matmul",
        inputs=flowing or held[:1],
        outputs=tuple(site.tensor(number, name) for number in node.outputs),
        weights=held,
        attributes=attributes,
        source_type=node.kind.name,
    )


def _meaning(site: XnnSite, node: XnnNode, given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    """The kind of op, and what its fields say about the work."""
    kind = node.kind.kind
    reading = _READING.get(kind)
    if reading is not None:
        return reading(site, node, given)
    return kind, {"function": node.kind.function}


def _convolution(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    groups, inside, out = (max(1, node.whole(field)) for field in (12, 10, 11))
    return "convolution", {
        "in_channels": inside * groups, "out_channels": out * groups, "groups": groups,
        "kernel": (node.whole(4), node.whole(5)), "strides": (node.whole(6) or 1, node.whole(7) or 1),
        "dilations": (node.whole(8) or 1, node.whole(9) or 1), "transposed": node.kind.name == _TRANSPOSED,
    }  # fmt: skip


def _linear(_site: XnnSite, _node: XnnNode, given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    out, width = given[1].shape[-2:]
    stored = given[1].role == "weight"
    return "linear" if stored else "matmul", {"in_features": width, "out_features": out, "contracted": width}


def _matmul(_site: XnnSite, _node: XnnNode, given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    return "matmul", {"contracted": given[0].shape[-1]}


def _pool(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    steps = (node.whole(6) or 1, node.whole(7) or 1) if node.kind.outputs == (11,) else (node.whole(4), node.whole(5))
    return "pool", {"function": node.kind.function, "kernel": (node.whole(4), node.whole(5)), "strides": steps}


def _reduce(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    return "reduce", {"function": node.kind.function, "axes": (1, 2)}


def _resize(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    return "resize", {"mode": node.kind.function}


def _convert(site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    before, after = (site.graph.values[number].quantised for number in (node.inputs[0], node.outputs[0]))
    return "cast" if before == after else "quantize" if after else "dequantize", {}


def _custom(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    return "custom", {"reason": f"the work of {node.kind.name} is not counted"}


_READING: dict[str, Callable[[XnnSite, XnnNode, list[Tensor]], tuple[str, dict[str, Any]]]] = {
    "convolution": _convolution, "linear": _linear, "matmul": _matmul, "pool": _pool, "reduce": _reduce,
    "resize": _resize, "cast": _convert, "custom": _custom,
}  # fmt: skip
