"""The model as a graph with the times of a run: what a page needs to draw it.

Equal parts that follow one another are folded: 32 decoder layers are one box, with the times of all of them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import groupby
from string import digits
from typing import Any

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Profile
from inferometer.core.request import distinct_ops
from inferometer.core.structure import Structure, StructureBlock, merged_layers, structure_of

# The part of the model that a layer is in, by its name: `layers.3` of `layers.3.mlp.up_proj`, `/encoder/layer.0` of
# `/encoder/layer.0/attention/MatMul`. A number at the end of a name (`Conv_12`) is no part.
_PART = re.compile(r"^(?:.*?[./_])?(\d+)(?=[./])")
_UNKNOWN = "The model's own graph is not stored with this run: its layers stand in the order of execution."


@frozen
class _Part:
    """Layers that follow one another and belong together; `like` is equal for parts that repeat one another."""

    title: str
    start: int
    length: int
    like: Any = field(default=None)


def model_graph(profile: Profile) -> dict[str, Any]:
    """The layers by columns, the edges, the folds, and which rows of the layer table each layer's time is in.

    `links` are (layer, row, share of the row's time): a fused row stands at the layer it is named after, and the others
    that ran in it have a share of 0; a row of `count` equal layers is shared by them.
    """
    structure, note = _structure(profile)
    ops = tuple(distinct_ops(profile.phases).values())
    folds = [*_folds(structure)]
    fold, place = [-1] * len(structure.names), [0] * len(structure.names)
    for number, parts in enumerate(folds):
        for part in parts:
            for offset in range(part.length):
                fold[part.start + offset], place[part.start + offset] = number, offset
    links, left = _links(structure, ops)
    return {
        "name": structure.names,
        "kind": structure.kinds,
        "fold": fold,
        "place": place,
        "folds": [
            {"title": _title(parts[0].title, parts[-1].title), "count": len(parts), "size": parts[0].length}
            for parts in folds
        ],
        "edges": structure.edges,
        "links": links,
        "note": note,
        "left": left,
    }


def _structure(profile: Profile) -> tuple[Structure, str | None]:
    """The one stored with the run, the catalog's, or the rows of the profile one after the other."""
    if profile.structure is not None:
        return profile.structure, None
    from inferometer.core.sizes import bind  # noqa: PLC0415 - only runs of before, and predictions
    from inferometer.understand.judging import graph_behind  # noqa: PLC0415 - as above

    try:
        graph, _ = graph_behind(profile, files=False)
        if graph is not None:
            return structure_of(graph, bind(graph, profile.workload, profile.sizes, complete=False)), None
    except InferometerError:
        pass  # the catalog's model of that name is another one: it cannot be bound to these sizes
    ops = tuple(distinct_ops(profile.phases).values())
    blocks = [StructureBlock(name=name or "", ops=len([*mine])) for name, mine in groupby(op.block for op in ops)]
    in_order = tuple((number, number + 1, None) for number in range(len(ops) - 1))
    names, kinds = tuple(op.name for op in ops), tuple(op.kind for op in ops)
    return Structure(names=names, kinds=kinds, blocks=tuple(blocks), edges=in_order), _UNKNOWN


def _parts(structure: Structure) -> Iterator[_Part]:
    """The repetitions of each block; a block that runs once is cut by the names of its layers."""
    start = 0
    for number, block in enumerate(structure.blocks):
        if block.count > 1:
            for _ in range(block.count):
                yield _Part(title=block.name, start=start, length=block.ops, like=number)
                start += block.ops
            continue
        for title, places in groupby(range(start, start + block.ops), key=lambda at: _part_of(structure.names[at])):
            mine = [*places]
            if title is not None and len(mine) > 1:
                rest = tuple(structure.names[at].removeprefix(title) for at in mine)
                yield _Part(title=title, start=mine[0], length=len(mine), like=(title.rstrip(digits), rest))
        start += block.ops


def _folds(structure: Structure) -> Iterator[Sequence[_Part]]:
    """Parts that follow one another without a layer between them and are alike, together."""
    fold: list[_Part] = []
    for part in _parts(structure):
        follows = bool(fold) and fold[-1].like == part.like and fold[-1].start + fold[-1].length == part.start
        if not follows and fold:
            yield fold
            fold = []
        fold.append(part)
    if fold:
        yield fold


def _part_of(name: str) -> str | None:
    found = _PART.match(name)
    return None if found is None else found.group(0)


def _title(first: str, last: str) -> str:
    """`features.4 – 6` of the parts from `features.4` to `features.6`; the repetitions of a block have one name."""
    first, last = first.lstrip("/"), last.lstrip("/")
    return first if first == last else f"{first} – {last.removeprefix(first.rstrip(digits))}"


def _links(structure: Structure, ops: Sequence[OpTime]) -> tuple[list[tuple[int, int, float]], int]:
    """The links, and how many rows belong to no layer: copies and launches of the engine's own."""
    places: dict[str, int] = {}
    for index, name in enumerate(structure.names):
        places.setdefault(name, index)
    # For each layer of a block's first repetition, the same layer in the others: a prediction has one row for all.
    equal: dict[int, tuple[int, ...]] = {}
    start = 0
    for block in structure.blocks:
        for offset in range(block.ops if block.count > 1 else 0):
            first = start + offset
            equal[first] = tuple(first + repetition * block.ops for repetition in range(1, block.count))
        start += block.ops * block.count
    named = {op.name for op in ops}
    links: list[tuple[int, int, float]] = []
    left = 0
    for row, op in enumerate(ops):
        fused = [places[name] for name in (op.layers or merged_layers(op.name)) if name in places]
        # An engine's own work for a layer is called after it: `conv1/ReorderInput`.
        main = next((places[name] for name in (op.name, op.name.rpartition("/")[0]) if name in places), None)
        if main is None and fused:
            main = fused[0]
        if main is None:
            left += 1
            continue
        others = [at for at in equal.get(main, ()) if structure.names[at] not in named] if op.count > 1 else []
        mine = [main, *others]
        links += [(at, row, 1 / len(mine)) for at in mine]
        inside = [copy for at in fused if at != main for copy in (at, *(equal.get(at, ()) if others else ()))]
        links += [(at, row, 0.0) for at in inside]
    return links, left
