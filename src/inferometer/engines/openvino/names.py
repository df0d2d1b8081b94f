"""From the names that OpenVINO gives to its operations back to the nodes of the file.

Where a node becomes several operations, the last has the node's name and those before it have made-up ones: so an
operation with a made-up name belongs to the first named one after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.engines.onnx_nodes import Topology


def known_names(original: Topology) -> dict[str, str]:
    """Names that stand for a node: its own, those of its results, and those with the number of a result."""
    known: dict[str, str] = {}
    for node in original.nodes:
        for index, name in enumerate(node.outputs):
            known.setdefault(name, node.name)
            known.setdefault(f"{node.engine_name}.{index}", node.name)
        known[node.engine_name] = node.name
    return known


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
    """The nodes in `originalLayersNames`, each once."""
    return tuple(dict.fromkeys(own[name] for name in _listed(listed, own) if name in own))


def ends_made_up(listed: str, own: Mapping[str, str]) -> bool:
    """Whether the last name listed stands for no node: something was fused behind the nodes."""
    names = _listed(listed, own)
    return bool(names) and names[-1] not in own


def _listed(listed: str, own: Mapping[str, str]) -> list[str]:
    """`originalLayersNames` is a list with commas; a name may hold commas too, and the longest known one is taken."""
    pieces = listed.split(",") if listed else []
    names: list[str] = []
    start = 0
    while start < len(pieces):
        ends = range(min(len(pieces), start + 8), start, -1)
        end = next((end for end in ends if ",".join(pieces[start:end]) in own), start + 1)
        names.append(",".join(pieces[start:end]))
        start = end
    return names
