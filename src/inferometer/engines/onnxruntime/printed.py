"""Which node a name stands for that the engine prints.

A function of the file (HardSwish) is replaced by nodes without names. The engine's profile prints such a node as its
kind and a number (`Mul_571`) that stands nowhere else; but both lists keep the order of execution. And in a file of the
engine's own format, branches and loops may hold nodes of the same name: those are told apart by the node around them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.engines.onnx_nodes import Topology
    from inferometer.engines.onnxruntime.events import NodeTime

_NUMBERED = re.compile(r"(?P<kind>.+)_\d+")


def printed_names(optimised: Topology, ran: Sequence[NodeTime]) -> dict[tuple[str | None, str], str]:
    """By what is printed of a node and of the one around it, its name in the topology. `ran` is one run in order."""
    around = {node.name: node.printed or node.engine_name for node in optimised.nodes}
    place: dict[tuple[str | None, str], int] = {}
    for number, node in enumerate(optimised.nodes):
        if node.printed:
            place.setdefault((None if node.inside is None else around[node.inside], node.printed), number)
    names: dict[tuple[str | None, str], str] = {}
    reached = -1  # the last node that is known to have run: what comes next lies behind it
    for row in ran:
        key = (row.inside, row.name)
        match = _NUMBERED.fullmatch(row.name)
        if key in place:
            reached = place[key]
            names[key] = optimised.nodes[reached].engine_name
        elif match is not None and match["kind"] == row.kind:
            later = range(reached + 1, len(optimised.nodes))
            fitting = (n for n in later if not optimised.nodes[n].printed and optimised.nodes[n].kind == row.kind)
            reached = next(fitting, reached)
            if not optimised.nodes[reached].printed:
                names[key] = optimised.nodes[reached].engine_name
    return names
