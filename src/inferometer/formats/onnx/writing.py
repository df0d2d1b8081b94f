"""A layer of another format, written as nodes of ONNX: what the readers of such formats share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inferometer.formats.onnx.messages import Attribute, Node

_MOST = 16  # nodes of one layer: their places in the file lie between its own and the next one's


@dataclass(slots=True)
class NodeWriter:
    """Where a layer stands: its name, type, inputs and outputs in its own format, and its number in the file."""

    name: str
    type: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    number: int
    made: int = 0

    def node(
        self, op_type: str, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None, *,
        part: str = "", domain: str = "", **attributes: Any,
    ) -> Node:  # fmt: skip
        """A node of this layer. Attributes that are None are left out; a `part` is one of several nodes."""
        self.made += 1
        return Node(
            op_type=op_type,
            domain=domain,
            name=f"{self.name}/{part}" if part else self.name,
            inputs=tuple(self.inputs if inputs is None else inputs),
            outputs=tuple(self.outputs if outputs is None else outputs),
            attributes={
                key: Attribute(name=key, value=value, count=len(value) if isinstance(value, tuple) else 1)
                for key, value in attributes.items()
                if value is not None
            },
            start=self.number * _MOST + self.made,
            source=self.type,
        )
