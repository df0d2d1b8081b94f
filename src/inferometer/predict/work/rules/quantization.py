"""Ops between number formats that carry a scale."""

from inferometer.core.binding import Binding
from inferometer.core.graph import Op
from inferometer.core.work import Work
from inferometer.predict.work.rules.registry import rule
from inferometer.predict.work.rules.streams import moving


@rule("quantize")
def quantize(op: Op, binding: Binding) -> Work:
    """Divide by the scale, round, add the zero point, clamp at both ends: 5 a number.

    `dynamic` first compares each number for the smallest and the largest: 2 more.
    """
    each = 7 if op.get("dynamic") else 5
    return moving(op, binding, each * binding.elements(op.outputs[0]))


@rule("dequantize")
def dequantize(op: Op, binding: Binding) -> Work:
    """Subtract the zero point, multiply by the scale: 2 a number. Stored numbers come from the weights' stream."""
    return moving(op, binding, 2 * binding.elements(op.outputs[0]))
