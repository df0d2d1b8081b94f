"""From the names that OpenVINO gives to its operations back to the nodes of the file.

Where a node becomes several operations, the last has the node's name and those before it have made-up ones: so an
operation with a made-up name belongs to the first named one after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def own_names(consumers: Mapping[str, Sequence[str]], known: Mapping[str, str], *, at_most: int = 64) -> dict[str, str]:
    """By operation, the file's node. `consumers` in topological order; `known` are names that stand for a node."""
    nodes: dict[str, str] = {}
    steps: dict[str, int] = {}
    for name in reversed(list(consumers)):
        if name in known:
            nodes[name], steps[name] = known[name], 0
            continue
        after = [each for each in consumers[name] if each in nodes]
        nearest = min(after, key=steps.__getitem__, default=None)
        if nearest is not None and steps[nearest] < at_most:
            nodes[name], steps[name] = nodes[nearest], steps[nearest] + 1
    return nodes


def listed_layers(listed: str, own: Mapping[str, str]) -> tuple[str, ...]:
    """`originalLayersNames` is a list with commas; a name may hold commas too, and the longest known one is taken."""
    pieces = listed.split(",") if listed else []
    layers: dict[str, None] = {}
    start = 0
    while start < len(pieces):
        for end in range(min(len(pieces), start + 8), start, -1):
            name = ",".join(pieces[start:end])
            if name in own or end == start + 1:
                if name in own:
                    layers[own[name]] = None
                start = end
                break
    return tuple(layers)
