"""Whole layers as one op: normalisations, recurrent cells, quantisation."""

from collections.abc import Callable

from inferometer.core.dims import Dim
from inferometer.formats.onnx.faults import Fault
from inferometer.formats.onnx.value import Call, Loose, Out


def batch_norm(call: Call) -> list[Out]:
    """The outputs after the first are statistics: running ones, or those of old operator sets."""
    outs = [Out(call.shape(0), call.dtype(0))]
    statistics = (3, 4, 3, 4)
    for index in range(1, len(call.node.outputs)):
        source = statistics[(index - 1) % 4]
        outs.append(Out(call.shape(source), call.dtype(source)))
    return outs


def layer_norm(call: Call) -> list[Out]:
    """Mean and 1/σ, where asked for, have one number for each row."""
    shape = call.shape(0)
    axis = call.axis(call.integer("axis", -1), len(shape)) if shape else 0
    rows: tuple[Dim, ...] = (*shape[:axis], *((1,) * (len(shape) - axis)))
    return [Out(shape, call.dtype(0)), Out(rows, "f32"), Out(rows, "f32")]


def recurrent(call: Call) -> list[Out]:
    """X is [steps, batch, input], or [batch, steps, input] with layout 1."""
    x = call.shape(0)
    if len(x) != 3:
        raise Fault(f"a recurrent layer over {len(x)} dimensions")
    hidden, directions = hidden_size(call), directions_of(call)
    dtype = call.dtype(0)
    every: Loose = (x[0], directions, x[1], hidden)
    last: Loose = (directions, x[1], hidden)
    if call.integer("layout"):
        every, last = (x[0], x[1], directions, hidden), (x[0], directions, hidden)
    return [Out(every, dtype), Out(last, dtype), Out(last, dtype)]


def directions_of(call: Call) -> int:
    return 2 if call.text("direction", "forward") == "bidirectional" else 1


def hidden_size(call: Call) -> Dim | None:
    if call.has_attribute("hidden_size"):
        return call.integer("hidden_size")
    weights = call.value(2).shape
    return None if not weights else weights[-1]


def quantize(call: Call) -> list[Out]:
    return [Out(call.shape(0), call.element("output_dtype", call.dtype(2) or "u8"))]


def dequantize(call: Call) -> list[Out]:
    return [Out(call.shape(0), call.element("output_dtype", call.dtype(1)))]


def dynamic_quantize(call: Call) -> list[Out]:
    return [Out(call.shape(0), "u8"), Out((), "f32"), Out((), "u8")]


def shaped_like(index: int, dtype: str | None = None) -> Callable[[Call], list[Out]]:
    """One output with the shape of that input, and its format or a fixed one."""

    def infer(call: Call) -> list[Out]:
        return [Out(call.shape(index), dtype or call.dtype(index)) for _ in call.node.outputs]

    return infer
