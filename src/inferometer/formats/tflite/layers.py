"""Operators with weights: convolutions, dense layers, tables, recurrent layers.

Layouts are TFLite's: activations are [batch, height, width, channels]; a convolution's filters are [out, height, width,
in], a depthwise one's [1, height, width, out], a dense layer's weights [out, in].
"""

from collections.abc import Callable
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Tensor
from inferometer.formats.tflite.schema import PADDINGS
from inferometer.formats.tflite.scope import OperatorSite


@frozen
class _Filters:
    """What a convolution's weights say, and at which inputs x, they and the bias stand."""

    kernel: tuple[int, ...]
    channels: int
    out: int
    groups: int = 1
    transposed: bool = False
    x: int = 0
    weights: int = 1
    bias: int = 2


def _convolved(site: OperatorSite, filters: _Filters, **extra: Any) -> list[Op]:
    """Filters that are no constant are one more input."""
    options = site.options
    sides = ("d", "h", "w") if len(filters.kernel) == 3 else ("h", "w")
    stored = site.is_stored(filters.weights)
    attributes = {
        "in_channels": filters.channels, "out_channels": filters.out, "groups": filters.groups,
        "kernel": filters.kernel, "strides": tuple(options.get(f"stride_{side}", 1) for side in sides),
        "dilations": tuple(options.get(f"dilation_{side}", 1) for side in sides),
        "padding": PADDINGS.get(options.get("padding", 0), "same"), "transposed": filters.transposed,
        **(site.arithmetic(filters.x, filters.weights) if stored else {}), **extra,
    }  # fmt: skip
    inputs = (filters.x,) if stored else (filters.x, filters.weights)
    weights = (filters.weights, filters.bias) if stored else (filters.bias,)
    return [site.op(inputs, weights, **attributes)]


def _convolution(site: OperatorSite) -> list[Op]:
    out, *kernel, depth = site.sizes(1, 4)
    channels = site.width(0)
    groups = max(1, channels // max(1, depth))
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=channels, out=out, groups=groups))


def _depthwise(site: OperatorSite) -> list[Op]:
    _, *kernel, out = site.sizes(1, 4)
    channels = site.width(0)
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=channels, out=out, groups=max(1, channels)))


def _transpose_conv(site: OperatorSite) -> list[Op]:
    """Inputs are the output's shape, the filters, x, and a bias."""
    out, *kernel, depth = site.sizes(1, 4)
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=depth, out=out, transposed=True, x=2, bias=3))


def _transpose_conv_bias(site: OperatorSite) -> list[Op]:
    """MediaPipe's: x, filters, bias."""
    out, *kernel, depth = site.sizes(1, 4)
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=depth, out=out, transposed=True))


def _convolution_3d(site: OperatorSite) -> list[Op]:
    """Filters are [depth, height, width, in / groups, out]."""
    *kernel, depth, out = site.sizes(1, 5)
    channels = site.width(0)
    groups = max(1, channels // max(1, depth))
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=channels, out=out, groups=groups))


def _transpose_conv_3d(site: OperatorSite) -> list[Op]:
    """Inputs are the output's shape, the filters [depth, height, width, out, in], x, and a bias."""
    *kernel, out, depth = site.sizes(1, 5)
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=depth, out=out, transposed=True, x=2, bias=3))


def _general_convolution(site: OperatorSite) -> list[Op]:
    """StableHLO's: any layout, given by the options. A dilated input is a transposed convolution."""
    options = site.options
    shape = site.sizes(1, len(site.shape(1)))
    groups = max(1, options["groups"])
    filters = _Filters(
        kernel=tuple(shape[axis] for axis in options["kernel_spatial"]),
        channels=shape[options["kernel_input"]] * groups,
        out=shape[options["kernel_output"]],
        groups=groups,
        transposed=any(step > 1 for step in options["lhs_dilation"]),
    )
    steps: dict[str, Any] = {
        "strides": tuple(options["strides"]),
        "dilations": tuple(options["dilations"]),
        "padding": "explicit",
    }
    return _convolved(site, filters, **steps)


def _fully_connected(site: OperatorSite) -> list[Op]:
    """What comes in is seen as rows of the weights' width, whatever its shape. Weights that flow: a plain product."""
    units, width = site.sizes(1, 2)
    if not site.is_stored(1):
        return [site.op((0, 1, 2), kind="matmul", contracted=width)]
    sizes: dict[str, Any] = {"in_features": width, "out_features": units, "contracted": width}
    return [site.op((0,), (1, 2), **sizes, **site.arithmetic(0, 1))]


def _batch_matmul(site: OperatorSite) -> list[Op]:
    """A stored matrix that every row meets makes a dense layer."""
    contracted = site.shape(0)[-2 if site.options.get("adjoint_a") else -1]
    if site.is_stored(1) and len(site.shape(1)) == 2:
        return [site.op((0,), (1,), kind="linear", contracted=contracted)]
    return [site.op((0, 1), contracted=contracted)]


def _dot_general(site: OperatorSite) -> list[Op]:
    contracted: Any = 1
    for axis in site.options["contracting"]:
        contracted = contracted * site.shape(0)[axis]
    if site.is_stored(1):
        return [site.op((0,), (1,), kind="linear", contracted=contracted)]
    return [site.op((0, 1), contracted=contracted)]


def _embedding(site: OperatorSite) -> list[Op]:
    """Inputs are ids and the table; the sparse form has ids, their indices, the shape, the weights, the table."""
    last = len(site.info.inputs) - 1
    if last < 1 or not site.is_stored(last):
        return [site.op(range(last + 1), kind="gather")]
    return [site.op(range(last), (last,))]


def _gather(site: OperatorSite) -> list[Op]:
    """Rows of a stored table are an embedding."""
    axis = site.options.get("axis", 0)
    if site.role(0) != "weight":
        return [site.op((0, 1), axis=axis)]
    rows = axis == 0 and not site.is_stored(1)
    return [site.op((1,), (0,), kind="embedding" if rows else "gather")]


_HIDDEN_AT = {
    "LSTM": 2, "RNN": 2, "UNIDIRECTIONAL_SEQUENCE_RNN": 2, "BIDIRECTIONAL_SEQUENCE_RNN": 2,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 6, "BIDIRECTIONAL_SEQUENCE_LSTM": 6,
}  # fmt: skip


def _recurrent(site: OperatorSite) -> list[Op]:
    """The recurrent weights are [hidden, outputs]; at which input they stand differs by operator.

    The basic LSTM kernel holds all four gates in one matrix [4·hidden, input + hidden].
    """
    called = site.info.operator.name
    basic = called == "LSTM" and site.options.get("kernel_type") == 1
    units = site.sizes(_HIDDEN_AT[called], 2)[0]
    major = bool(site.options.get("time_major", False))
    attributes: dict[str, Any] = {
        "hidden": units // 4 if basic else units,
        "directions": 2 if called.startswith("BIDIRECTIONAL") else 1,
        "time_major": major,
    }
    if "SEQUENCE" in called:
        attributes["steps"] = site.shape(0)[0 if major else 1]
    others = [number for number, place in enumerate(site.info.inputs) if number and place >= 0]
    states = [number for number in others if not site.is_stored(number)]
    return [site.op((0, *states), [number for number in others if site.is_stored(number)], **attributes)]


def _svdf(site: OperatorSite) -> list[Op]:
    """A dense layer to `filters` features, then each feature's recent values against its own weights in time."""
    filters, width = site.sizes(1, 2)
    _, memory = site.sizes(2, 2)
    scope, name, inputs = site.scope, site.name, site.info.inputs
    x, shared = scope.tensor(inputs[0]), {"index": site.info.index}
    features = Tensor(name=f"{name}.features", shape=(x.shape[0], filters), dtype=x.dtype)
    timed = Tensor(name=f"{name}.time", shape=(x.shape[0], filters), dtype=x.dtype)
    states = tuple(scope.tensor(place, "state") for place in inputs[4:] if place >= 0)
    dense = Op(
        name=f"{name}.features", kind="linear", inputs=(x,), outputs=(features,), weights=(scope.weight(inputs[1]),),
        attributes={"in_features": width, "out_features": filters, "contracted": width, **shared}, source_type="SVDF",
    )  # fmt: skip
    depthwise = {"in_channels": filters, "out_channels": filters, "groups": max(1, filters), "kernel": (memory,)}
    filtered = Op(
        name=f"{name}.time", kind="convolution", inputs=(features, *states), outputs=(timed,),
        weights=(scope.weight(inputs[2]),), attributes={**depthwise, **shared}, source_type="SVDF",
    )  # fmt: skip
    bias = site.given(3)
    summed = Op(
        name=name, kind="reduce", inputs=(timed,), outputs=site.outputs(), source_type="SVDF",
        weights=(scope.weight(bias),) if bias >= 0 else (), attributes={**site.shared(), "function": "sum"},
    )  # fmt: skip
    return [dense, filtered, summed]


LAYERS: dict[str, Callable[[OperatorSite], list[Op]]] = {
    "convolution": _convolution, "depthwise": _depthwise, "transpose_conv": _transpose_conv,
    "transpose_conv_bias": _transpose_conv_bias, "convolution_3d": _convolution_3d,
    "transpose_conv_3d": _transpose_conv_3d, "general_convolution": _general_convolution,
    "fully_connected": _fully_connected, "batch_matmul": _batch_matmul, "dot_general": _dot_general,
    "embedding": _embedding, "gather": _gather, "recurrent": _recurrent, "svdf": _svdf,
}  # fmt: skip
