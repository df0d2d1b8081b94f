"""What works number by number or row by row: linear, norms, activations, sums and products."""

import numpy as np

from inferometer.formats.synth.weights import Array
from inferometer.formats.tflite.write.lowering import Tail, TfliteForm, TfliteLowering, rule
from inferometer.formats.tflite.write.planes import scale_and_shift, vector
from inferometer.formats.tflite.write.steps import TfliteStep

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
