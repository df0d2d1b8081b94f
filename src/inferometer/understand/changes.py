"""What changed between two profiles of a phase, and why: pieces of the model, matched by their place in its graph.

Engines fuse and name kernels each in their own way. So kernels are not compared with kernels: what two profiles ran is
cut into the smallest pieces that both have whole. Where one fuses a convolution with its activation and the other runs
two kernels, the piece is both layers, with one time on each side.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.structure import merged_layers
from inferometer.core.units import counted, format_quantity

BETWEEN = "between the layers"
_MATRICES = frozenset({"linear", "matmul", "convolution", "attention", "moe_experts", "recurrent"})
_NUMBER = re.compile(r"(?:^|(?<=[./_]))\d+(?=[./])")  # of a block; a number at the end (`Conv_12`) tells layers apart
_MOVED = 0.01  # of the whole: a piece that changed by less is not worth a line
_MOST_MOVED = 12  # lines; what is below them is summed
_LIKE = 0.02  # a ratio of work nearer to 1 than this is the same work
_SHARED_NAMES = 0.5  # of the layers: with fewer names in common, layers are matched by their order


@frozen
class Piece:
    """Layers that run in both profiles, alike ones together: `count` times what `name` says, with `*` for a number.

    `why` is what differs in how it was run; empty where nothing is known to.
    """

    name: str
    a_s: float
    b_s: float
    count: int = 1
    why: tuple[str, ...] = ()

    @property
    def change_s(self) -> float:
        return self.b_s - self.a_s


@frozen
class Changes:
    """`moved` are the pieces that changed, the largest first; `rest` what the `others` changed together, in seconds."""

    phase: str
    a_s: float
    b_s: float
    moved: tuple[Piece, ...] = ()
    others: int = 0
    rest_s: float = 0.0

    @property
    def change_s(self) -> float:
        return self.b_s - self.a_s


@dataclass(slots=True)
class _Side:
    """The ops of one profile in a piece, as they are found."""

    ops: list[OpTime] = field(default_factory=list)

    @property
    def time_s(self) -> float:
        return fsum(op.time_s for op in self.ops)

    def names(self, what: str) -> list[str]:
        return sorted({str(name) for op in self.ops if (name := getattr(op, what)) is not None})

    def total(self, what: str) -> float | None:
        known = [getattr(op, what) for op in self.ops]
        return None if not known or None in known else fsum(known)


def changes_between(a: Profile, b: Profile, phase: str) -> Changes | None:
    """What moved in a phase from A to B; None where one of them has no layers in it."""
    first, second = a.phase(phase), b.phase(phase)
    if first is None or second is None or not first.ops or not second.ops:
        return None
    # A prediction has one row for all repetitions of a block: then the repetitions are one piece on both sides.
    together = any(op.count > 1 and _pattern(op.name) != op.name for op in (*first.ops, *second.ops))
    renamed = _renamed(a, b, first, second)
    known = _layers(a, first) | {renamed.get(name, name) for name in _layers(b, second)}
    sides = _sides(first, second, known, renamed, together=together)
    pieces = [_piece(key, *pair) for key, pair in _alike(sides).items()]
    rests = [side.time_s - fsum(op.time_s for op in side.ops) for side in (first, second)]
    pieces.append(Piece(name=BETWEEN, a_s=rests[0], b_s=rests[1]))
    pieces.sort(key=lambda piece: -abs(piece.change_s))
    least = _MOVED * max(first.time_s, second.time_s)
    moved = tuple(piece for piece in pieces if abs(piece.change_s) >= least)[:_MOST_MOVED]
    rest = pieces[len(moved) :]
    # Without the error of adding floating-point numbers.
    seconds = fsum(piece.change_s for piece in rest)
    rounded = seconds if abs(seconds) > 1e-9 * first.time_s else 0.0
    return Changes(
        phase=phase, a_s=first.time_s, b_s=second.time_s, moved=moved, others=sum(piece.count for piece in rest),
        rest_s=rounded,
    )  # fmt: skip


def _layers(profile: Profile, phase: Phase) -> set[str]:
    """The names of the model's layers, as far as the profile knows them."""
    if profile.structure is not None:
        return set(profile.structure.names)
    return {name for op in phase.ops for name in (op.layers or merged_layers(op.name))}


def _renamed(a: Profile, b: Profile, first: Phase, second: Phase) -> Mapping[str, str]:
    """B's layers by A's names for them, where the two files name them each in their own way.

    Layers of matrices are the same in every export of a model, and in the same order; what lies between them is not.
    """
    mine, theirs = _layers(a, first), _layers(b, second)
    if len(mine & theirs) >= _SHARED_NAMES * min(len(mine), len(theirs)):
        return {}
    ours, others = _matrix_layers(a, first), _matrix_layers(b, second)
    if [kind for _, kind in ours] != [kind for _, kind in others]:
        return {}
    return {name: own for (own, _), (name, _) in zip(ours, others, strict=True)}


def _matrix_layers(profile: Profile, phase: Phase) -> list[tuple[str, str]]:
    if profile.structure is not None:
        rows: Iterable[tuple[str, str]] = zip(profile.structure.names, profile.structure.kinds, strict=True)
    else:
        rows = ((op.name, op.kind) for op in phase.ops)
    return [(name, "linear" if kind == "matmul" else kind) for name, kind in rows if kind in _MATRICES]


def _sides(
    first: Phase, second: Phase, known: set[str], renamed: Mapping[str, str], *, together: bool
) -> list[tuple[str, int, _Side, _Side]]:
    """Name, number of layers, and both sides of each piece: layers that some op of either side runs as one."""
    covers = [
        [_covered(op, known, renamed, together=together) for op in first.ops],
        [_covered(op, known, renamed, together=together) for op in second.ops],
    ]
    joined = _joined(names for side in covers for names in side)
    pieces: dict[str, tuple[_Side, _Side]] = defaultdict(lambda: (_Side(), _Side()))
    for number, phase in enumerate((first, second)):
        for op, names in zip(phase.ops, covers[number], strict=True):
            pieces[joined[names[0]]][number].ops.append(op)
    sizes: dict[str, int] = defaultdict(int)
    for root in joined.values():
        sizes[root] += 1
    return [(root, sizes[root], *pair) for root, pair in pieces.items()]


def _covered(op: OpTime, known: set[str], renamed: Mapping[str, str], *, together: bool) -> list[str]:
    """The layers that an op runs. An engine's own work for a layer is called after it; what is for none is by kind."""
    named = [renamed.get(name, name) for name in (op.layers or merged_layers(op.name))]
    layers = [name for name in named if name in known]
    if not layers:
        outer = renamed.get(op.name.rpartition("/")[0], op.name.rpartition("/")[0])
        layers = [outer] if outer in known else [f"the engine's own {op.kind}"]
    return [_pattern(name) for name in layers] if together else layers


def _joined(groups: Iterable[Sequence[str]]) -> dict[str, str]:
    """For each name the first name of its group."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for group in groups:
        first = root(group[0])
        for name in group[1:]:
            parent[root(name)] = first
    return {name: root(name) for name in parent}


def _pattern(name: str) -> str:
    """`layers.*.up_proj` of `layers.3.up_proj`: what the same layer of every block is called."""
    return _NUMBER.sub("*", name, count=1)


def _alike(sides: Iterable[tuple[str, int, _Side, _Side]]) -> dict[tuple[str, int], tuple[int, _Side, _Side]]:
    """Pieces of the same pattern as one, with how many there are."""
    groups: dict[tuple[str, int], list[tuple[str, _Side, _Side]]] = defaultdict(list)
    for name, size, a, b in sides:
        groups[_pattern(name), size].append((name, a, b))
    merged: dict[tuple[str, int], tuple[int, _Side, _Side]] = {}
    for (pattern, size), members in groups.items():
        ordered = sorted(members, key=lambda member: -abs(member[2].time_s - member[1].time_s))
        moved_s = [abs(b.time_s - a.time_s) for _, a, b in ordered]
        # One that moved by more than all of its kind together stands for itself.
        alone = ordered[:1] if len(members) == 1 or (len(members) > 2 and moved_s[0] > fsum(moved_s[1:])) else []
        merged |= {(name, size): (1, a, b) for name, a, b in alone}
        if rest := ordered[len(alone) :]:
            ops = [[op for _, *pair in rest for op in pair[number].ops] for number in (0, 1)]
            merged[pattern if len(rest) > 1 else rest[0][0], size] = (len(rest), _Side(ops=ops[0]), _Side(ops=ops[1]))
    return merged


def _piece(key: tuple[str, int], count: int, a: _Side, b: _Side) -> Piece:
    name, size = key
    more = f" and {counted(size - 1, 'layer')} with it" if size > 1 else ""
    if count == 1 and "*" in name:  # a row for all repetitions
        count = max(sum(op.count for op in side.ops) for side in (a, b))
    return Piece(name=f"{name}{more}", a_s=a.time_s, b_s=b.time_s, count=count, why=tuple(_reasons(a, b)))


def _reasons(a: _Side, b: _Side) -> Iterable[str]:
    """The differences in how a piece was run on both sides."""
    if not a.ops or not b.ops:
        yield "only in the other" if a.ops else "new"
        return
    for what, words in (("unit", "moved from {} to {}"), ("kernel", "{} became {}")):
        before, after = a.names(what), b.names(what)
        if before and after and before != after:
            yield words.format(_short(before), _short(after))
    runs = [sum(op.count for op in side.ops) for side in (a, b)]
    if runs[0] != runs[1]:
        yield f"{counted(runs[0], 'kernel')} became {runs[1]}"
    for what, unit in (("flops", "work"), ("bytes", "bytes")):
        before_it, after_it = a.total(what), b.total(what)
        if before_it and after_it and abs(after_it / before_it - 1) > _LIKE:
            yield f"{after_it / before_it:.3g} times the {unit}"


def _short(names: Sequence[str]) -> str:
    first = names[0] if len(names[0]) <= 48 else f"{names[0][:45]}…"
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def sentence_of(changes: Changes, a: str, b: str, differing: Sequence[tuple[str, str, str]] = ()) -> str:
    """What changed and where, as one would tell it. `differing` are facts with their values on both sides."""
    whole = changes.change_s
    share = abs(whole) / changes.a_s
    before, after = (format_quantity(time_s, "s", digits=3) for time_s in (changes.a_s, changes.b_s))
    step, more = _STEP.get(changes.phase, changes.phase), "more" if whole > 0 else "less"
    text = f"{b} takes {after} a {step} where {a} takes {before}: {100 * share:.3g} % {more}."
    # What went the other way is in the table; the sentence says where the difference comes from.
    same_way = [piece for piece in changes.moved if piece.change_s * whole > 0][:2]
    if same_way and share >= _MOVED:
        text += f" {_located(same_way, whole)}."
    elif share >= _MOVED:
        text += f" It is spread over many layers: none changed by as much as {100 * _MOVED:.3g} % of the whole."
    if differing:
        text += f" The two differ in {'; '.join(f'{name} ({one} → {other})' for name, one, other in differing)}."
    return text


_STEP = {"forward": "pass", "decode": "token", "prefill": "prompt", "run": "run"}


def _located(pieces: Sequence[Piece], whole: float) -> str:
    parts = []
    for piece in pieces:
        told = ", ".join((*([f"{piece.count} of them"] if piece.count > 1 else []), *piece.why[:1]))
        place = piece.name if piece.name == BETWEEN else f"in {piece.name}"
        amount = format_quantity(abs(piece.change_s), "s", digits=3)
        parts.append(f"{amount} {'more' if whole > 0 else 'less'} {place}" + (f" ({told})" if told else ""))
    most = 2 * sum(abs(piece.change_s) for piece in pieces) >= abs(whole)
    return ("Mostly " if most else "It is spread over many layers, with ") + "; and ".join(parts)
