"""Planes: convolutions, pools, and what moves numbers from one shape to another."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.formats.synth.weights import Array, Weight
from inferometer.formats.tflite.write.lowering import Tail, TfliteForm, TfliteLowering, TfliteStep, rule

SAME, VALID = 0, 1
_LOWEST = float(np.finfo(np.float32).min)
_NORM_EPSILON = 1e-5  # of a batch norm


def scale_and_shift(lowering: TfliteLowering, norm: TfliteStep) -> tuple[Array, Array]:
    """What a batch norm does to each channel."""
    scale, bias, mean, variance = (lowering.numbers(weight) for weight in norm.weights)
    factor: Array = scale / np.sqrt(variance + np.float32(_NORM_EPSILON))
    return factor, bias - mean * factor


def vector(lowering: TfliteLowering, weight: Weight) -> int:
    """A weight that has one number a channel, whatever axes of one stand beside it."""
    return lowering.network.weight(weight.name, (weight.elements,), lambda: lowering.numbers(weight).reshape(-1))


@frozen
class _Window:
    """How a window moves over a plane, per axis: height, width."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    @property
    def spans(self) -> tuple[int, int]:
        """Pixels from a window's first to its last, inclusive."""
        high, wide = ((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True))
        return high, wide

    def margins(self, sides: tuple[int, ...], targets: tuple[int, ...]) -> list[tuple[int, int]]:
        """Pixels beyond the plane that windows reach: before it and after it."""
        axes = zip(sides, targets, self.spans, self.strides, self.padding, strict=True)
        return [(pad, max(0, (to - 1) * step + span - side - pad)) for side, to, span, step, pad in axes]

    def same(self, sides: tuple[int, ...], targets: tuple[int, ...]) -> list[tuple[int, int]] | None:
        """The margins of TFLite's padding SAME; None where that gives another size."""
        margins = []
        for side, to, span, step in zip(sides, targets, self.spans, self.strides, strict=True):
            if -(-side // step) != to:
                return None
            total = max(0, (to - 1) * step + span - side)
            margins.append((total // 2, total - total // 2))
        return margins

    @property
    def options(self) -> dict[str, int]:
        return {"stride_h": self.strides[0], "stride_w": self.strides[1]}


@rule("convolution")
def convolution(lowering: TfliteLowering, step: TfliteStep) -> None:
    op, form, value = step.op, lowering.form(step.inputs[0]), step.inputs[0]
    if op.get("causal") or op.get("transposed") or len(op["kernel"]) != 2 or not form.moved:
        raise step.refuse("only plain convolutions of planes are")
    window = _Window(
        kernel=tuple(op["kernel"]),
        strides=tuple(op.get("strides") or (1, 1)),
        dilations=tuple(op.get("dilations") or (1, 1)),
        padding=tuple(op.get("padding") or (0, 0)),
    )
    tail = lowering.tail(step, norm=True)
    filters, depthwise = _filters(lowering, step, tail, value.shape[1])
    bias = _bias(lowering, step, tail)
    x, padding = _padded(lowering, step, window, form, value_of_pad=0.0, may_be_same=True)
    options: dict[str, Any] = {**window.options, "padding": padding, "fused": tail.clamp}
    if window.dilations != (1, 1):
        options |= {"dilation_h": window.dilations[0], "dilation_w": window.dilations[1]}
    if depthwise:
        options["multiplier"] = step.result.shape[1] // value.shape[1]
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    made = lowering.add(
        step, kind, (x, filters, bias), _stored(step.result.shape), name=";".join(tail.names), **options
    )
    lowering.give(tail, made, moved=True)


def _filters(lowering: TfliteLowering, step: TfliteStep, tail: Tail, channels: int) -> tuple[int, bool]:
    """Filters as [out, height, width, in], a depthwise convolution's as [1, height, width, out]."""
    weight, out = step.weights[0], step.weights[0].shape[0]
    depthwise = step.op.get("groups", 1) == channels and weight.shape[1] == 1 and channels > 1
    order = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)

    def make() -> Array:
        filters = lowering.numbers(weight)
        if tail.norm is not None:
            filters = filters * scale_and_shift(lowering, tail.norm)[0].reshape(out, 1, 1, 1)
        return filters.transpose(order)

    shape = tuple(weight.shape[axis] for axis in order)
    folded = "" if tail.norm is None else tail.norm.name
    return lowering.network.weight(weight.name, shape, make, folded=folded), depthwise


def _bias(lowering: TfliteLowering, step: TfliteStep, tail: Tail) -> int:
    """The bias with what a norm makes of it; zeros where there is neither, since TFLite asks for one."""
    biases, norm = step.weights[1:], tail.norm
    if norm is None:
        return vector(lowering, biases[0]) if biases else lowering.network.zeros(step.weights[0].shape[0])

    def make() -> Array:
        scale, shift = scale_and_shift(lowering, norm)
        return shift + scale * lowering.numbers(biases[0]) if biases else shift

    return lowering.network.weight(norm.weights[1].name, norm.weights[1].shape, make, folded=step.name)


def _padded(  # noqa: PLR0913 - a window over a plane, and what lies beyond it
    lowering: TfliteLowering,
    step: TfliteStep,
    window: _Window,
    form: TfliteForm,
    *,
    value_of_pad: float,
    may_be_same: bool,
) -> tuple[int, int]:
    """The plane a window moves over, and which of TFLite's two paddings it then has.

    TFLite pads evenly or not at all; anything else is an operator before it.
    """
    sides, targets = step.inputs[0].shape[2:], step.result.shape[2:]
    margins = window.margins(sides, targets)
    if not any(before or after for before, after in margins):
        return form.tensor, VALID
    if may_be_same and margins == window.same(sides, targets):
        return form.tensor, SAME
    pads = [(pad, max(pad, after)) for pad, (_, after) in zip(window.padding, margins, strict=True)]
    batch, channels = step.inputs[0].shape[:2]
    shape = (batch, *(side + before + after for side, (before, after) in zip(sides, pads, strict=True)), channels)
    given = lowering.network.wholes([(0, 0), *pads, (0, 0)])
    if value_of_pad == 0.0:
        return lowering.add(step, "PAD", (form.tensor, given), shape), VALID
    number = lowering.network.number(value_of_pad)
    return lowering.add(step, "PADV2", (form.tensor, given, number), shape), VALID


@rule("pool")
def pool(lowering: TfliteLowering, step: TfliteStep) -> None:
    op, form = step.op, lowering.form(step.inputs[0])
    if not form.moved:
        raise step.refuse("only pools of planes are")
    if op["function"] == "global" or not op.get("kernel"):
        _global_pool(lowering, step, form)
        return
    kernel = tuple(op["kernel"])
    window = _Window(
        kernel=kernel, strides=tuple(op.get("strides") or kernel), padding=tuple(op.get("padding") or (0, 0))
    )
    largest = op["function"] == "max"
    # Zeros are below nothing where no number is negative, and XNNPACK pads with zeros only.
    beyond = _LOWEST if largest and not form.positive else 0.0
    x, padding = _padded(lowering, step, window, form, value_of_pad=beyond, may_be_same=largest)
    _pooled(lowering, step, replace(form, tensor=x), window, padding=padding, largest=largest)


def _pooled(  # noqa: PLR0913 - a window over a plane
    lowering: TfliteLowering, step: TfliteStep, form: TfliteForm, window: _Window, *, padding: int, largest: bool
) -> None:
    options = {**window.options, "filter_h": window.kernel[0], "filter_w": window.kernel[1], "padding": padding}
    kind = "MAX_POOL_2D" if largest else "AVERAGE_POOL_2D"
    made = lowering.add(step, kind, (form.tensor,), _stored(step.result.shape), name=step.name, **options)
    lowering.forms[step.result] = TfliteForm(tensor=made, moved=True, positive=form.positive)


def _global_pool(lowering: TfliteLowering, step: TfliteStep, form: TfliteForm) -> None:
    """One value a channel, with or without axes of one after it; or a plane of a given size (adaptive)."""
    have, want = step.inputs[0].shape, step.result.shape
    if len(want) == len(have) and want[2:] != (1, 1):
        if any(a % b for a, b in zip(have[2:], want[2:], strict=True)):
            raise step.refuse(f"a plane of {list(have[2:])} has no equal parts of {list(want[2:])}")
        if have == want:
            lowering.forms[step.result] = form
            return
        high, wide = (a // b for a, b in zip(have[2:], want[2:], strict=True))
        window = _Window(kernel=(high, wide), strides=(high, wide))
        _pooled(lowering, step, form, window, padding=VALID, largest=False)
        return
    keeps = len(want) == len(have)
    shape = _stored(want) if keeps else want
    axes = lowering.network.wholes([1, 2])
    made = lowering.add(step, "MEAN", (form.tensor, axes), shape, name=step.name, keep_dims=keeps)
    lowering.forms[step.result] = TfliteForm(tensor=made, moved=keeps, positive=form.positive)


@rule("view")
def view(lowering: TfliteLowering, step: TfliteStep) -> None:
    """The same numbers in another shape: a plane in a row, or one value a channel as a plane."""
    form, have = lowering.form(step.inputs[0]), step.inputs[0].shape
    if len(step.outputs) != 1 or prod(have) != prod(step.result.shape):
        raise step.refuse("it takes a part of what it looks at")
    want = step.result.shape
    if have == want:
        lowering.forms[step.result] = form
        return
    if len(have) == 4 and want == (have[0], prod(have[1:])) and form.moved:
        flat = None if have[2:] == (1, 1) else (have[1], have[2], have[3])
        _reshaped(lowering, step, want, TfliteForm(tensor=form.tensor, flat=flat, positive=form.positive))
        return
    if len(have) == 2 and want == (*have, 1, 1) and form.flat is None:
        _reshaped(lowering, step, _stored(want), TfliteForm(tensor=form.tensor, moved=True, positive=form.positive))
        return
    raise step.refuse(f"{list(have)} as {list(want)} has no rule")


def _reshaped(lowering: TfliteLowering, step: TfliteStep, shape: tuple[int, ...], form: TfliteForm) -> None:
    target = (-1, *shape[1:]) if step.result.open else shape
    given = lowering.network.wholes(target)
    made = lowering.add(step, "RESHAPE", (form.tensor, given), shape, name=step.name, new_shape=target)
    lowering.forms[step.result] = TfliteForm(tensor=made, moved=form.moved, flat=form.flat, positive=form.positive)


@rule("copy")
def copy(lowering: TfliteLowering, step: TfliteStep) -> None:
    match step.op.get("function"):
        case "concat" if not step.weights:
            _concatenated(lowering, step)
        case "transpose":
            # Channels to the end, or back: they are there already.
            form, have, want = lowering.form(step.inputs[0]), step.inputs[0].shape, step.result.shape
            target = (have[0], *have[2:], have[1]) if form.moved else (have[0], have[-1], *have[1:-1])
            if len(have) != 4 or want != target:
                raise step.refuse(f"{list(have)} as {list(want)} has no rule")
            lowering.forms[step.result] = TfliteForm(tensor=form.tensor, moved=not form.moved, positive=form.positive)
        case other:
            raise step.refuse(f"how it moves numbers ({other}) has no rule")


def _concatenated(lowering: TfliteLowering, step: TfliteStep) -> None:
    """Planes one behind the other, along their channels."""
    forms, want = [lowering.form(value) for value in step.inputs], step.result.shape
    joined = [(*value.shape[:1], want[1], *value.shape[2:]) for value in step.inputs]
    channels = sum(value.shape[1] for value in step.inputs)
    if not all(form.moved for form in forms) or channels != want[1] or any(shape != want for shape in joined):
        raise step.refuse("only planes are joined, along their channels")
    tensors = tuple(form.tensor for form in forms)
    made = lowering.add(step, "CONCATENATION", tensors, _stored(want), name=step.name, axis=3)
    lowering.forms[step.result] = TfliteForm(tensor=made, moved=True, positive=all(form.positive for form in forms))


def _stored(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], *shape[2:], shape[1])


# What works number by number or row by row: linear, norms, activations, sums and products.

_ONE_OPERATOR = {
    "relu": "RELU", "relu6": "RELU6", "hardswish": "HARD_SWISH", "hard_swish": "HARD_SWISH", "sigmoid": "LOGISTIC",
    "tanh": "TANH", "gelu": "GELU", "gelu_tanh": "GELU",
}  # fmt: skip
_HARD_SIGMOID = frozenset({"hardsigmoid", "hard_sigmoid"})
_BINARY = {"add": "ADD", "multiply": "MUL", "subtract": "SUB"}
_POSITIVE = frozenset({"relu", "relu6", "sigmoid", *_HARD_SIGMOID})


@rule("linear")
def linear(lowering: TfliteLowering, step: TfliteStep) -> None:
    """Rows of any number of axes, the last of which is multiplied."""
    form, (weight, *biases) = lowering.form(step.inputs[0]), step.weights
    if form.moved:
        raise step.refuse("a plane is no rows")
    tail = lowering.tail(step)
    swapped = step.op.get("layout") == "in_out"  # the checkpoint itself holds [in, out]
    rows, width = weight.shape[::-1] if swapped else weight.shape

    def make() -> Array:
        """Where a plane comes in as a row, the weights' columns stand as its numbers do."""
        numbers = lowering.numbers(weight)
        numbers = numbers.T if swapped else numbers
        return numbers if form.flat is None else numbers.reshape(rows, *form.flat).transpose(0, 2, 3, 1)

    matrix = lowering.network.weight(weight.name, (rows, width), make)
    bias = [vector(lowering, each) for each in biases[:1]]
    keeps = len(step.result.shape) > 2
    made = lowering.add(
        step, "FULLY_CONNECTED", (form.tensor, matrix, *bias), step.result.shape, name=";".join(tail.names),
        fused=tail.clamp, keep_dims=keeps,
    )  # fmt: skip
    lowering.give(tail, made)


@rule("activation")
def activation(lowering: TfliteLowering, step: TfliteStep) -> None:
    form, shape, function = lowering.form(step.inputs[0]), _shape(lowering, step), step.function
    x = form.tensor
    if function in _ONE_OPERATOR:
        kind = _ONE_OPERATOR[function]
        options = {"approximate": function == "gelu_tanh"} if kind == "GELU" else {}
        made = lowering.add(step, kind, (x,), shape, name=step.name, **options)
    elif function in {"silu", "swish"}:
        gate = lowering.add(step, "LOGISTIC", (x,), shape)
        made = lowering.add(step, "MUL", (x, gate), shape, name=step.name, fused=None)
    elif function in _HARD_SIGMOID:
        network = lowering.network
        clamped = lowering.add(step, "ADD", (x, network.number(3.0)), shape, fused="relu6")
        made = lowering.add(step, "MUL", (clamped, network.number(1 / 6)), shape, name=step.name, fused=None)
    else:
        raise step.refuse(f"the activation {function!r} has no rule")
    positive = function in _POSITIVE
    lowering.forms[step.result] = TfliteForm(tensor=made, moved=form.moved, flat=form.flat, positive=positive)


@rule("elementwise")
def elementwise(lowering: TfliteLowering, step: TfliteStep) -> None:
    kind = _BINARY.get(step.function)
    if kind is None:
        activation(lowering, step)
        return
    forms = [lowering.form(value) for value in step.inputs]
    if len({(form.moved, form.flat, len(value.shape)) for form, value in zip(forms, step.inputs, strict=True)}) != 1:
        raise step.refuse("what it takes lies in different ways")
    tensors = [form.tensor for form in forms]
    for weight in step.weights:
        if weight.elements != step.result.shape[1 if forms[0].moved else -1]:
            raise step.refuse(f"{weight.name!r} is {list(weight.shape)}")
        tensors.append(vector(lowering, weight))
    if len(tensors) < 2:
        raise step.refuse("the number it takes is not known")
    tail = lowering.tail(step)
    shape, made = _shape(lowering, step), tensors[0]
    for other in tensors[1:-1]:
        made = lowering.add(step, kind, (made, other), shape, fused=None)
    made = lowering.add(step, kind, (made, tensors[-1]), shape, name=";".join(tail.names), fused=tail.clamp)
    lowering.give(tail, made, moved=forms[0].moved, flat=forms[0].flat)


@rule("norm")
def norm(lowering: TfliteLowering, step: TfliteStep) -> None:
    form = lowering.form(step.inputs[0])
    channels = step.result.shape[1 if form.moved else -1]
    if form.flat is not None or channels != step.op.get("features", channels):
        raise step.refuse("it is over something else than the channels")
    tail = lowering.tail(step)
    if step.function == "batch" and form.moved:
        # One that no convolution takes in: a factor and a summand a channel.
        x = form.tensor
        scale, shift = (_folded(lowering, step, place) for place in (0, 1))
        shape = _shape(lowering, step)
        scaled = lowering.add(step, "MUL", (x, scale), shape, fused=None)
        made = lowering.add(step, "ADD", (scaled, shift), shape, name=";".join(tail.names), fused=tail.clamp)
    elif step.function == "layer":
        made = _layer_norm(lowering, step, form.tensor, tail)
    else:
        raise step.refuse(f"the norm {step.function!r} has no rule")
    lowering.give(tail, made, moved=form.moved)


def _folded(lowering: TfliteLowering, step: TfliteStep, index: int) -> int:
    weight = step.weights[index]
    return lowering.network.weight(weight.name, weight.shape, lambda: scale_and_shift(lowering, step)[index])


def _layer_norm(lowering: TfliteLowering, step: TfliteStep, x: int, tail: Tail) -> int:
    """Over the last axis, in the operators TFLite has for it."""
    network, shape, weights = lowering.network, _shape(lowering, step), [vector(lowering, w) for w in step.weights]
    single, last = (*shape[:-1], 1), lowering.network.wholes([len(shape) - 1])
    mean = lowering.add(step, "MEAN", (x, last), single, keep_dims=True)
    squares = lowering.add(step, "SQUARED_DIFFERENCE", (x, mean), shape)
    variance = lowering.add(step, "MEAN", (squares, last), single, keep_dims=True)
    small = network.number(float(np.float32(lowering.epsilon)))
    root = lowering.add(step, "RSQRT", (lowering.add(step, "ADD", (variance, small), single, fused=None),), single)
    centred = lowering.add(step, "SUB", (x, mean), shape, fused=None)
    named = {"name": ";".join(tail.names), "fused": tail.clamp}
    plain = {"fused": None}
    made = lowering.add(step, "MUL", (centred, root), shape, **(plain if weights else named))
    for index, (kind, weight) in enumerate(zip(("MUL", "ADD"), weights, strict=False)):
        last_one = index == len(weights) - 1
        made = lowering.add(step, kind, (made, weight), shape, **(named if last_one else plain))
    return made


@rule("softmax")
def softmax(lowering: TfliteLowering, step: TfliteStep) -> None:
    form, shape = lowering.form(step.inputs[0]), step.result.shape
    if form.moved or form.flat is not None or step.op.get("axis", -1) not in {-1, len(shape) - 1}:
        raise step.refuse("it is over another axis than the last")
    made = lowering.add(step, "SOFTMAX", (form.tensor,), shape, name=step.name, beta=1.0)
    lowering.forms[step.result] = TfliteForm(tensor=made, positive=True)


@rule("cast")
def cast(lowering: TfliteLowering, step: TfliteStep) -> None:
    """Everything has one format here, so a cast is nothing."""
    lowering.forms[step.result] = lowering.form(step.inputs[0])


def _shape(lowering: TfliteLowering, step: TfliteStep) -> tuple[int, ...]:
    """The result's shape as it is stored."""
    shape = step.result.shape
    return (shape[0], *shape[2:], shape[1]) if lowering.form(step.inputs[0]).moved else shape
