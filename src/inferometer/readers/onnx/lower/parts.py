"""Nodes that stand for several ops."""

from typing import Any, NamedTuple

from inferometer.core.graph import Op, Tensor
from inferometer.readers.onnx.step import Step

__all__ = ["Wires", "part_op"]


class Wires(NamedTuple):
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...] = ()


def part_op(step: Step, suffix: str, kind: str, wires: Wires, **attributes: Any) -> Op:
    """One op of several that a node stands for; its name is the node's and what part it is."""
    return Op(
        name=f"{step.name}/{suffix}",
        kind=kind,
        inputs=wires.inputs,
        outputs=wires.outputs,
        weights=wires.weights,
        attributes=attributes,
        source_type=step.op_type,
    )
