"""Which node a name stands for that the engine made up while it ran.

A function of the file (HardSwish) is replaced by nodes without names. The engine's profile prints such a node as its
kind and a number (`Mul_571`) that stands nowhere else; but both lists keep the order of execution.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.runtimes.onnx_nodes import Topology
    from inferometer.runtimes.onnxruntime.events import NodeTime

_NUMBERED = re.compile(r"(?P<kind>.+)_\d+")


def printed_names(optimised: Topology, ran: Sequence[NodeTime]) -> dict[str, str]:
    """By the name that is printed of a nameless node, the one it has in the topology. `ran` is one run in order."""
    place = {node.engine_name: number for number, node in enumerate(optimised.nodes) if not node.nameless}
    nameless = [(number, node) for number, node in enumerate(optimised.nodes) if node.nameless]
    names: dict[str, str] = {}
    reached = -1  # the last node that is known to have run: what comes next lies behind it
    for row in ran:
        match = _NUMBERED.fullmatch(row.name)
        if row.name in place:
            reached = place[row.name]
        elif match is not None and match["kind"] == row.kind:
            fitting = ((number, node) for number, node in nameless if number > reached and node.kind == row.kind)
            number, node = next(fitting, (reached, None))
            if node is not None:
                names[row.name], reached = node.engine_name, number
    return names
