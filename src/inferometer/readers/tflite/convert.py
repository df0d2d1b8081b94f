"""From a TFLite operator to ops: which of its tensors are weights, and what its options say about the work.

Layouts are TFLite's: activations are [batch, height, width, channels]; a convolution's filters are [out, height, width,
in], a depthwise one's [1, height, width, out], a dense layer's weights [out, in].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, log2, prod
from typing import TYPE_CHECKING, Any

from inferometer.core.graph import Op, Tensor
from inferometer.readers.tflite.schema import ACTIVATIONS, PADDINGS

if TYPE_CHECKING:
    from inferometer.readers.tflite.model import OperatorInfo, Quantization
    from inferometer.readers.tflite.scope import Scope

__all__ = ["converted"]

_NARROW = frozenset({"i8", "i4", "i2", "u8", "u4"})


def converted(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """The ops of one operator; usually one. Ops with bodies are made where the bodies are known."""
    form = _FORMS.get(info.operator.form)
    return _plain(info, scope, name) if form is None else form(info, scope, name)


def _op(
    info: OperatorInfo,
    scope: Scope,
    name: str,
    *,
    inputs: tuple[int, ...] = (),
    weights: tuple[int, ...] = (),
    kind: str | None = None,
    **attributes: Any,
) -> Op:
    """Inputs in the order given, then the constants that are no parameters, which every op may have."""
    operator = info.operator
    given = [place for place in inputs if place >= 0]
    stored = [place for place in weights if place >= 0]
    merged: dict[str, Any] = {**operator.attributes, **_shared(info, scope), **attributes}
    return Op(
        name=name,
        kind=kind or operator.kind,
        inputs=tuple(scope.tensor(place) for place in given),
        outputs=tuple(scope.tensor(place) for place in info.outputs if place >= 0),
        weights=tuple(scope.weight(place) for place in stored),
        attributes=merged,
        source_type=operator.name,
    )


def _shared(info: OperatorInfo, scope: Scope) -> dict[str, Any]:
    """What any operator may have: its place, a fused activation, quantised or sparse tensors."""
    found: dict[str, Any] = {"index": info.index}
    if fused := ACTIVATIONS.get(info.options.get("fused", 0)):
        found["fused_activation"] = fused
    infos = [scope.info(place) for place in (*info.inputs, *info.outputs) if place >= 0]
    quantised = {entry.name: _as_attributes(entry.quantization) for entry in infos if entry.quantization}
    if quantised:
        found["quantization"] = quantised
    if sparse := tuple(entry.name for entry in infos if entry.sparse):
        found["sparse"] = sparse
    return found


def _as_attributes(found: Quantization) -> dict[str, Any]:
    entries = {
        "scales": found.scales, "zero_points": found.zero_points, "axis": found.axis, "details": found.details,
        "block": found.block,
    }  # fmt: skip
    return {key: value for key, value in entries.items() if value is not None}


def _sorted_inputs(info: OperatorInfo, scope: Scope) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Activations first, then constants that shape the op; and apart from them the parameters."""
    places = [place for place in info.inputs if place >= 0]
    roles = {place: scope.tensor(place).role for place in places}
    flowing = [place for place in places if roles[place] not in {"weight", "constant"}]
    shaping = [place for place in places if roles[place] == "constant"]
    weights = [place for place in places if roles[place] == "weight"]
    if not flowing:  # a constant that is worked on: it is what comes in
        return (*weights, *shaping), ()
    return (*flowing, *shaping), tuple(weights)


def _plain(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    inputs, weights = _sorted_inputs(info, scope)
    return [_op(info, scope, name, inputs=inputs, weights=weights)]


def _place(info: OperatorInfo, number: int) -> int:
    return info.inputs[number] if number < len(info.inputs) else -1


def _whole(size: Any) -> int:
    return size if isinstance(size, int) else 1


def _hybrid(scope: Scope, x: int, weights: int) -> dict[str, str]:
    """f32 activations with narrow weights: the kernels quantise the activations on the way in and multiply in i8."""
    stored = scope.info(weights)
    hybrid = scope.info(x).dtype == "f32" and stored.dtype in _NARROW and stored.quantization is not None
    return {"compute": "i8"} if hybrid and not scope.is_widened(weights) else {}


# Layers with weights -------------------------------------------------------------------------------------------------


def _convolved(
    info: OperatorInfo,
    scope: Scope,
    name: str,
    places: tuple[int, int, int],
    *,
    kernel: tuple[int, ...],
    channels: tuple[int, int],
    groups: int = 1,
    transposed: bool = False,
    **extra: Any,
) -> list[Op]:
    """`places` are x, filters and bias; filters that are no constant are one more input."""
    x, filters, bias = places
    options = info.options
    sides = ("d", "h", "w") if len(kernel) == 3 else ("h", "w")
    stored = scope.is_constant(filters)
    attributes = {
        "in_channels": channels[0], "out_channels": channels[1], "groups": groups, "kernel": kernel,
        "strides": tuple(options.get(f"stride_{side}", 1) for side in sides),
        "dilations": tuple(options.get(f"dilation_{side}", 1) for side in sides),
        "padding": PADDINGS.get(options.get("padding", 0), "same"), "transposed": transposed,
        **(_hybrid(scope, x, filters) if stored else {}), **extra,
    }  # fmt: skip
    inputs = (x,) if stored else (x, filters)
    return [_op(info, scope, name, inputs=inputs, weights=(filters, bias) if stored else (bias,), **attributes)]


def _sizes(scope: Scope, place: int, rank: int) -> tuple[int, ...]:
    shape = scope.shape(place)
    if len(shape) != rank:
        raise IndexError(f"filters of {len(shape)} axes")
    return tuple(_whole(size) for size in shape)


def _convolution(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    x, filters = info.inputs[0], info.inputs[1]
    out, height, width, depth = _sizes(scope, filters, 4)
    channels = _whole(scope.shape(x)[-1])
    groups = max(1, channels // depth) if depth else 1
    return _convolved(
        info, scope, name, (x, filters, _place(info, 2)),
        kernel=(height, width), channels=(channels, out), groups=groups,
    )  # fmt: skip


def _depthwise(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    x, filters = info.inputs[0], info.inputs[1]
    _, height, width, out = _sizes(scope, filters, 4)
    channels = _whole(scope.shape(x)[-1])
    return _convolved(
        info, scope, name, (x, filters, _place(info, 2)),
        kernel=(height, width), channels=(channels, out), groups=max(1, channels),
    )  # fmt: skip


def _transpose_conv(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """Inputs are the output's shape, the filters, x, and a bias."""
    filters, x = info.inputs[1], info.inputs[2]
    out, height, width, depth = _sizes(scope, filters, 4)
    return _convolved(
        info, scope, name, (x, filters, _place(info, 3)), kernel=(height, width), channels=(depth, out), transposed=True
    )


def _transpose_conv_bias(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """MediaPipe's: x, filters, bias."""
    out, height, width, depth = _sizes(scope, info.inputs[1], 4)
    return _convolved(
        info, scope, name, (info.inputs[0], info.inputs[1], _place(info, 2)),
        kernel=(height, width), channels=(depth, out), transposed=True,
    )  # fmt: skip


def _convolution_3d(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """Filters are [depth, height, width, in / groups, out]."""
    x, filters = info.inputs[0], info.inputs[1]
    *kernel, depth, out = _sizes(scope, filters, 5)
    channels = _whole(scope.shape(x)[-1])
    groups = max(1, channels // depth) if depth else 1
    return _convolved(
        info, scope, name, (x, filters, _place(info, 2)),
        kernel=tuple(kernel), channels=(channels, out), groups=groups,
    )  # fmt: skip


def _transpose_conv_3d(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """Inputs are the output's shape, the filters [depth, height, width, out, in], x, and a bias."""
    filters, x = info.inputs[1], info.inputs[2]
    *kernel, out, depth = _sizes(scope, filters, 5)
    return _convolved(
        info, scope, name, (x, filters, _place(info, 3)), kernel=tuple(kernel), channels=(depth, out), transposed=True
    )


def _general_convolution(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """StableHLO's: any layout, told by the options. A dilated input is a transposed convolution."""
    x, filters = info.inputs[0], info.inputs[1]
    options, shape = info.options, scope.shape(filters)
    kernel = tuple(_whole(shape[axis]) for axis in options["kernel_spatial"])
    groups = max(1, options["groups"])
    channels = (_whole(shape[options["kernel_input"]]) * groups, _whole(shape[options["kernel_output"]]))
    transposed = any(step > 1 for step in options["lhs_dilation"])
    found = {"strides": tuple(options["strides"]), "dilations": tuple(options["dilations"]), "padding": "explicit"}
    return _convolved(
        info, scope, name, (x, filters, -1), kernel=kernel, channels=channels, groups=groups, transposed=transposed,
        **found,
    )  # fmt: skip


def _fully_connected(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """x is seen as rows of the weights' width, whatever its own shape. Weights that flow make it a plain product."""
    x, weights, bias = info.inputs[0], info.inputs[1], _place(info, 2)
    units, width = _sizes(scope, weights, 2)
    if not scope.is_constant(weights):
        inputs = (x, weights, *((bias,) if bias >= 0 else ()))
        return [_op(info, scope, name, kind="matmul", inputs=inputs, contracted=width)]
    attributes = {"in_features": width, "out_features": units, "contracted": width, **_hybrid(scope, x, weights)}
    return [_op(info, scope, name, inputs=(x,), weights=(weights, bias), **attributes)]


def _batch_matmul(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    a, b = info.inputs[0], info.inputs[1]
    contracted = scope.shape(a)[-2 if info.options.get("adjoint_a") else -1]
    if scope.is_constant(b) and len(scope.shape(b)) == 2:
        return [
            _op(info, scope, name, kind="linear", inputs=(a,), weights=(b,), contracted=contracted)
        ]  # the same matrix for every row: a dense layer
    return [_op(info, scope, name, inputs=(a, b), contracted=contracted)]


def _dot_general(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    a, b = info.inputs[0], info.inputs[1]
    contracted: Any = 1
    for axis in info.options["contracting"]:
        contracted = contracted * scope.shape(a)[axis]
    if scope.is_constant(b):
        return [_op(info, scope, name, kind="linear", inputs=(a,), weights=(b,), contracted=contracted)]
    return [_op(info, scope, name, inputs=(a, b), contracted=contracted)]


def _embedding(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """Inputs are ids and the table; the sparse form has ids, their indices, the shape, the weights, the table."""
    table = info.inputs[-1]
    return [_op(info, scope, name, inputs=info.inputs[:-1], weights=(table,))]


def _gather(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """Rows of a stored table are an embedding."""
    data, ids = info.inputs[0], info.inputs[1]
    stored = scope.tensor(data).role == "weight"
    if stored and not scope.is_constant(ids) and info.options.get("axis", 0) == 0:
        return [_op(info, scope, name, kind="embedding", inputs=(ids,), weights=(data,))]
    if stored:
        return [_op(info, scope, name, inputs=(ids,), weights=(data,))]
    return [_op(info, scope, name, inputs=(data, ids), axis=info.options.get("axis", 0))]


# Recurrent layers ----------------------------------------------------------------------------------------------------


def _recurrent(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """The recurrent weights are [hidden, hidden]; their place among the inputs differs by operator."""
    place = _HIDDEN_AT[info.operator.name]
    units = [_whole(size) for size in scope.shape(info.inputs[place])]
    both = info.operator.name.startswith("BIDIRECTIONAL")
    basic = info.operator.name == "LSTM" and info.options.get("kernel_type") == 1
    hidden = units[0] // 4 if basic else units[0]  # the basic kernel has all four gates in one matrix
    x, *others = (place for place in info.inputs if place >= 0)
    states = [place for place in others if not scope.is_constant(place)]
    weights = tuple(place for place in others if scope.is_constant(place))
    found: dict[str, Any] = {"hidden": hidden, "directions": 2 if both else 1, "time_major": _time_major(info)}
    if _SEQUENCE in info.operator.name:
        found["steps"] = scope.shape(x)[0 if found["time_major"] else 1]
    return [_op(info, scope, name, inputs=(x, *states), weights=weights, **found)]


_SEQUENCE = "SEQUENCE"
_HIDDEN_AT = {
    "LSTM": 2, "RNN": 2, "UNIDIRECTIONAL_SEQUENCE_RNN": 2, "BIDIRECTIONAL_SEQUENCE_RNN": 2,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 6, "BIDIRECTIONAL_SEQUENCE_LSTM": 6,
}  # fmt: skip


def _time_major(info: OperatorInfo) -> bool:
    return bool(info.options.get("time_major", False))


def _svdf(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """A dense layer to `filters` features, then each feature's recent values against its own weights in time."""
    x, features, time, bias = info.inputs[0], info.inputs[1], info.inputs[2], _place(info, 3)
    filters, width = _sizes(scope, features, 2)
    memory = _whole(scope.shape(time)[1])
    batch = scope.shape(x)[0]
    middle = Tensor(name=f"{name}.features", shape=(batch, filters), dtype=scope.info(x).dtype)
    dense = Op(
        name=f"{name}.features", kind="linear", inputs=(scope.tensor(x),), outputs=(middle,),
        weights=(scope.weight(features),), source_type=info.operator.name,
        attributes={"in_features": width, "out_features": filters, "contracted": width, "index": info.index},
    )  # fmt: skip
    states = tuple(scope.tensor(place, "state") for place in info.inputs[4:] if place >= 0)
    filtered = Op(
        name=name, kind="convolution", inputs=(middle, *states), weights=(scope.weight(time),),
        outputs=(Tensor(name=f"{name}.time", shape=(batch, filters), dtype=middle.dtype),), source_type="SVDF",
        attributes={"in_channels": filters, "out_channels": filters, "groups": filters, "kernel": (memory,),
                    "strides": (1,), "dilations": (1,), "transposed": False, "index": info.index},
    )  # fmt: skip
    summed = Op(
        name=f"{name}.sum", kind="reduce", inputs=filtered.outputs, source_type="SVDF",
        outputs=tuple(scope.tensor(place) for place in info.outputs if place >= 0),
        weights=(scope.weight(bias),) if bias >= 0 else (),
        attributes={**_shared(info, scope), "function": "sum"},
    )  # fmt: skip
    return [dense, filtered, summed]


# Everything else -----------------------------------------------------------------------------------------------------


def _pool(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    options = info.options
    attributes = {
        "kernel": (options.get("filter_h", 1), options.get("filter_w", 1)),
        "strides": (options.get("stride_h", 1), options.get("stride_w", 1)),
        "padding": PADDINGS.get(options.get("padding", 0), "same"),
    }
    return [_op(info, scope, name, inputs=info.inputs, **attributes)]


def _window(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """The window's sides stand in the options (StableHLO) or in the third input."""
    sides = info.options.get("window") or (scope.numbers(_place(info, 2)) if _place(info, 2) >= 0 else None)
    if not sides:
        return _unknown(info, scope, name, "the window's size is not in the file")
    return [_op(info, scope, name, inputs=_sorted_inputs(info, scope)[0], kernel=tuple(sides))]


def _unknown(info: OperatorInfo, scope: Scope, name: str, reason: str) -> list[Op]:
    inputs, weights = _sorted_inputs(info, scope)
    return [_op(info, scope, name, kind="custom", inputs=inputs, weights=weights, reason=reason)]


def _reduce(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    axes = info.options.get("axes") or (scope.numbers(_place(info, 1)) if _place(info, 1) >= 0 else None)
    inputs, weights = _sorted_inputs(info, scope)
    return [_op(info, scope, name, inputs=inputs, weights=weights, axes=tuple(axes or ()))]


def _dequantize(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """From f16 there is no scale: only the format changes."""
    kind = "cast" if scope.info(info.inputs[0]).dtype in {"f16", "bf16"} else None
    return [_op(info, scope, name, kind=kind, inputs=info.inputs)]


def _lrn(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    return [_op(info, scope, name, inputs=info.inputs, size=2 * info.options.get("radius", 0) + 1)]


def _topk(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    kept = scope.values(_place(info, 1)) if _place(info, 1) >= 0 else None
    return [_op(info, scope, name, inputs=info.inputs, k=kept[0] if kept else None)]


def _axis(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    return [_op(info, scope, name, inputs=info.inputs, axis=info.options.get("axis", -1))]


def _scatter(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """Inputs are indices, updates, shape; the work rule wants the updates last."""
    return [_op(info, scope, name, inputs=(_place(info, 2), info.inputs[0], info.inputs[1]))]


def _update_slice(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """Inputs are data, update, start; the work rule wants the updates last."""
    return [_op(info, scope, name, inputs=(info.inputs[0], *info.inputs[2:], info.inputs[1]))]


def _fft(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """n real numbers take 2.5·n·log₂ n operations and give n/2 + 1 complex ones: 5·log₂ n for each."""
    length = scope.numbers(_place(info, 1)) if _place(info, 1) >= 0 else None
    if not length or prod(length) < 1:
        return _unknown(info, scope, name, "the transform's length is not in the file")
    return [_op(info, scope, name, inputs=info.inputs, flops_per_element=5 * max(1, ceil(log2(prod(length)))))]


def _bucketize(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """A binary search among the boundaries."""
    steps = max(1, len(info.options.get("boundaries", ())).bit_length())
    return [_op(info, scope, name, inputs=info.inputs, flops_per_element=steps)]


def _gelu(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    function = "gelu_tanh" if info.options.get("approximate") else "gelu"
    return [_op(info, scope, name, inputs=info.inputs, function=function)]


def _read_variable(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    """What is read is the memory itself."""
    y = scope.tensor(info.outputs[0])
    state = scope.variable(info.inputs[0], info.outputs[0])
    attributes = {**info.operator.attributes, **_shared(info, scope)}
    return [
        Op(name=name, kind="view", inputs=(state,), outputs=(y,), attributes=attributes, source_type="READ_VARIABLE")
    ]


def _assign_variable(info: OperatorInfo, scope: Scope, name: str) -> list[Op]:
    handle, value = info.inputs[0], info.inputs[1]
    attributes = {**info.operator.attributes, **_shared(info, scope)}
    return [
        Op(
            name=name, kind="copy", inputs=(scope.tensor(value),), outputs=(scope.variable(handle, value),),
            attributes=attributes, source_type="ASSIGN_VARIABLE",
        )
    ]  # fmt: skip


_FORMS: Mapping[str, Callable[[OperatorInfo, Scope, str], list[Op]]] = {
    "convolution": _convolution, "depthwise": _depthwise, "transpose_conv": _transpose_conv,
    "transpose_conv_bias": _transpose_conv_bias, "convolution_3d": _convolution_3d,
    "transpose_conv_3d": _transpose_conv_3d, "general_convolution": _general_convolution,
    "fully_connected": _fully_connected, "batch_matmul": _batch_matmul, "dot_general": _dot_general,
    "embedding": _embedding, "gather": _gather, "recurrent": _recurrent, "svdf": _svdf, "pool": _pool,
    "window": _window, "reduce": _reduce, "dequantize": _dequantize, "lrn": _lrn, "topk": _topk, "axis": _axis,
    "scatter": _scatter, "update_slice": _update_slice, "fft": _fft, "bucketize": _bucketize, "gelu": _gelu,
    "read_variable": _read_variable, "assign_variable": _assign_variable,
}  # fmt: skip
