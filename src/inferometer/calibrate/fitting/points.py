"""Points: single ops that were measured, beside what the cost model knows of them. They are all that a fit sees.

A point holds an op's class and shape in the words of the cost model (`cost.classes`), the seconds it took, and its
floor: the work over the device's peaks, with everything the runtime does to it (fusion, masks, repeated caches). So
`u = floor / (seconds − launches · kernel)` is the utilisation that a table is to hold. Where they come from does not
matter: `works_of` gives the class, shape and floor of every op of a graph as it would be priced, and `measured` joins
them with seconds, be it from a kernel that was run alone or from the layers of a model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log, sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from inferometer.cost.price.rates import shape_in
from inferometer.cost.work.classes import FREE, attention_path, class_path
from inferometer.errors import DomainError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from inferometer.cost.price.plan import Plan

T = TypeVar("T")
_TOLD = 4  # steps that were measured again, before anything is said of drift


@dataclass(frozen=True, slots=True, kw_only=True)
class OpWork:
    """What one op of a graph is to the cost model. `count` equal ones are one entry; the numbers are of one of them."""

    name: str
    kind: str
    count: int
    classes: tuple[str, ...]  # the names its table is looked for under, the most telling first
    axes: Mapping[str, float]
    floor_s: float
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured op. `probe` names what must be left out together: a probe model, or a kernel of one weight.

    `dtype` is the format of the activations. `rates` are what the op reached: operations per second by arithmetic
    format, bytes per second by memory level, for devices whose peaks nobody states.
    """

    classes: tuple[str, ...]
    axes: Mapping[str, float]
    seconds: float
    floor_s: float
    dtype: str
    probe: str
    launches: int = 1
    workload: str = ""
    op: str = ""
    rates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise DomainError(f"The point {self.probe} {self.op} took {self.seconds!r} s, which nothing can take.")

    def share(self, kernel_s: float = 0.0) -> float:
        """Its utilisation, in (0, 1]; 0 where the floor is 0, which says nothing."""
        working = max(self.seconds - kernel_s * self.launches, self.floor_s, 1e-12)
        return min(1.0, self.floor_s / working)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """A whole step of a model that was measured: one forward pass, one prompt, or one step of decoding.

    `config` is the model's as Hugging Face writes it, or empty where `model` is a name of the catalog. `query` new
    tokens come to each sequence after `context` that stand in its cache; an image's side stands in `image`.
    """

    model: str
    phase: str
    seconds: float
    dtype: str
    config: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1
    query: int = 1
    context: int = 0
    image: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise DomainError(f"A step of {self.model} took {self.seconds!r} s, which nothing can take.")

    @property
    def key(self) -> tuple[Any, ...]:
        """What a step of another round has in common with it."""
        return self.model, self.phase, self.dtype, self.batch, self.query, self.context, self.image

    @property
    def sizes(self) -> dict[str, int]:
        return {"batch": self.batch, "query": self.query, "context": self.context, "logits": 1}


def overhead(name: str, seconds: float, *, dtype: str, probe: str) -> Point:
    """A reading of something that is no op's work: `kernel`, `host` or `step`, in seconds each."""
    return Point(classes=("overhead",), axes={}, seconds=seconds, floor_s=0.0, dtype=dtype, probe=probe, op=name)


def works_of(plan: Plan, sizes: Mapping[str, Any], phase: str) -> tuple[OpWork, ...]:
    """Every op of a step in the order of execution, as the plan would price it. Ops that cost nothing are left out."""
    prepared, path = plan.prepared, plan.prepared.effects.attention
    quantities = prepared.quantities(sizes)
    binding = prepared.binding(sizes)
    compute, memory = plan.ideals(quantities)
    found: list[OpWork] = []
    for entry in prepared.entries:
        row = prepared.rows[entry.row]
        if row.op_class in FREE | {"collective"} or row.once:
            continue
        shape = shape_in(row, binding, quantities, entry.row)
        found.append(
            OpWork(
                name=entry.name,
                kind=entry.kind,
                count=entry.count,
                classes=class_path(row.op, phase, attention_path(row.op, path), fused=row.fused.launches == 0),
                axes={axis: float(value) for axis, value in shape.items()},
                floor_s=float(max(compute[entry.row].item(), memory[entry.row].item())),
                launches=row.fused.launches,
            )
        )
    return tuple(found)


def measured(work: OpWork, seconds: float, *, dtype: str, probe: str, workload: str = "") -> Point:
    """The op with the seconds that one of it took."""
    return Point(
        classes=work.classes,
        axes=work.axes,
        seconds=seconds,
        floor_s=work.floor_s,
        dtype=dtype,
        probe=probe,
        launches=work.launches,
        workload=workload,
        op=work.name,
    )


def middle_of(points: Iterable[Point]) -> list[Point]:
    """Of a probe's workload that was measured in several rounds the middle one, as a whole, at the middle of the times.

    The pace of a machine drifts from minute to minute, and long steps of real models meet all of it: the fastest round
    of a short probe would promise what no long step holds. Overheads and readings are all kept.
    """
    kept: list[Point] = []
    rounds: dict[tuple[str, str, str], list[list[Point]]] = defaultdict(list)
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for point in points:
        if not point.workload:
            kept.append(point)
            continue
        run = (point.dtype, point.probe, point.workload)
        number = seen[*run, point.op]
        seen[*run, point.op] += 1
        while len(rounds[run]) <= number:
            rounds[run].append([])
        rounds[run][number].append(point)
    for those in rounds.values():
        whole = [each for each in those if len(each) == len(those[0])]
        totals = [sum(point.seconds for point in each) for each in whole]
        _, place = sorted((total, place) for place, total in enumerate(totals))[len(whole) // 2]
        scale = median(totals) / totals[place]
        kept += [replace(point, seconds=scale * point.seconds) for point in whole[place]]
    return kept


def middle_steps(steps: Iterable[StepPoint]) -> list[StepPoint]:
    """The same of whole steps."""
    rounds: dict[tuple[Any, ...], list[StepPoint]] = defaultdict(list)
    for step in steps:
        rounds[step.key].append(step)
    return [replace(those[0], seconds=median(step.seconds for step in those)) for those in rounds.values()]


def drifts(steps: Iterable[StepPoint]) -> dict[str, float]:
    """By phase, how far a step is from itself at another time: the standard deviation of the logarithm of its seconds.

    Only steps that were measured in several rounds tell; of few nothing is said.
    """
    rounds: dict[str, dict[tuple[Any, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for step in steps:
        rounds[step.phase][step.key].append(log(step.seconds))
    found = {}
    for phase, those in rounds.items():
        again = [logs for logs in those.values() if len(logs) > 1]
        if len(again) >= _TOLD:
            squares = sum((value - fmean(logs)) ** 2 for logs in again for value in logs)
            found[phase] = sqrt(squares / sum(len(logs) - 1 for logs in again))
    return found


def append_points(path: Path, points: Iterable[Point | StepPoint]) -> None:
    """Add points to a journal, one JSON object a line: what stands there survives whatever comes next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for point in points:
            file.write(msgspec.json.encode(point) + b"\n")


def read_points(path: Path) -> tuple[Point, ...]:
    """The points of a journal. A last line that was cut off is left out; any other that is no point is an error."""
    return _read(path, Point)


def read_steps(path: Path) -> tuple[StepPoint, ...]:
    """The same of whole steps, which have a journal of their own."""
    return _read(path, StepPoint)


def _read(path: Path, kind: type[T]) -> tuple[T, ...]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}.") from None
    found: list[T] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, DomainError) as error:
            if number == len(lines):
                break
            raise FormatError(
                f"Line {number} of {path} is no measured point: {error}.",
                remedy="Start again with --fresh, or delete the line.",
            ) from None
    return tuple(found)
