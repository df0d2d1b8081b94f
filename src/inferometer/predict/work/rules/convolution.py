from math import prod

from inferometer.core.binding import Binding
from inferometer.core.graph import Op
from inferometer.core.work import Work
from inferometer.predict.work.rules.registry import rule
from inferometer.predict.work.rules.streams import moving


@rule("convolution")
def convolution(op: Op, binding: Binding) -> Work:
    """Each output is a dot product over a window of the kernel's size in in_channels / groups channels.

    2·elements(y)·(in_channels / groups)·∏kernel, in one, two or three dimensions alike; depthwise is groups =
    in_channels. Strides and padding are already in the output's shape, and dilation spreads the window without adding
    to it. Multiplications with padding are counted, as engines do them.

    Transposed, each *input* is spread over a window in out_channels / groups channels: 2·elements(x)·(out_channels /
    groups)·∏kernel. A bias adds one operation for each output.
    """
    x, y = op.inputs[0], op.outputs[0]
    groups, window = op.get("groups", 1), prod(op["kernel"])
    if op.get("transposed"):
        products = binding.elements(x) * (op["out_channels"] // groups) * window
    else:
        products = binding.elements(y) * (op["in_channels"] // groups) * window
    biases = sum(1 for weight in op.weights[1:] if weight.role == "weight")
    return moving(op, binding, 2 * products + biases * binding.elements(y))
