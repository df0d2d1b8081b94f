"""Points: single ops that were measured, with what the cost model knows about them. A fit sees nothing else.

A point has an op's class and shape in the cost model's terms (`predict.work.classes`), the seconds it took, and its
floor: the work over the device's peaks, with everything the runtime does to it (fusion, masks, repeated caches). So `u
= floor / (seconds − launches · kernel)` is the utilisation for its table. `works_of` gives the class, shape and floor
of every op of a graph as it would be priced; `measured_point` adds the seconds, whether they are of a kernel run alone
or of a model's layer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from math import log, sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from inferometer.core.errors import DomainError, FormatError
from inferometer.core.frozen import frozen
from inferometer.predict.price.rates import shape_in
from inferometer.predict.request import passes
from inferometer.predict.work.classes import FREE, attention_path, class_path

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects
    from inferometer.predict.price.plan import PricePlan

T = TypeVar("T")
_REPEATED = 4  # steps that must have been measured again before a drift is stated


@frozen
class OpWork:
    """One op of a graph as the cost model sees it. `count` equal ops are one entry, with the numbers of one of them."""

    name: str
    kind: str
    count: int
    classes: tuple[str, ...]  # names of its table, the most specific first
    axes: Mapping[str, float]
    floor_s: float
    launches: int
    compute_s: float = 0.0  # its operations and its bytes at the peaks: the floor is the longer of them
    memory_s: float = 0.0


@frozen
class OpPoint:
    """One measured op. `probe` names what is left out together: a probe model, or the kernels of one weight.

    `dtype` is the format of the activations. `rates` are the rates that the op reached: operations per second by
    arithmetic format, bytes per second by memory level, for devices whose row states no peaks.
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
        """Its utilisation, in (0, 1]; 0 if its floor is 0, which says nothing."""
        # launches may have taken all of it: what is left is no less than the floor
        working = max(self.seconds - kernel_s * self.launches, self.floor_s, 1e-12)
        return min(1.0, self.floor_s / working)


@frozen
class StepPoint:
    """A measured step of a whole model: one forward pass, one prompt, or one decode step.

    `config` is the model's in Hugging Face's form, or empty if `model` is a catalog name. Each sequence has `context`
    tokens in its cache and gets `query` new ones; `image` is an image's side in pixels.
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
        """The same for the same step of another round."""
        return self.model, self.phase, self.dtype, self.batch, self.query, self.context, self.image

    def passes(self, effects: RuntimeEffects) -> list[tuple[int, int]]:
        """(query, context) of each pass through the model in which a runtime makes this step."""
        prompt = self.phase == "prefill"
        return passes(self.query, self.context, effects) if prompt else [(self.query, self.context)]


def overhead(name: str, seconds: float, *, dtype: str, probe: str) -> OpPoint:
    """A reading of an overhead, which is no op's work: `kernel`, `host` or `step`, in seconds each."""
    return OpPoint(classes=("overhead",), axes={}, seconds=seconds, floor_s=0.0, dtype=dtype, probe=probe, op=name)


def works_of(plan: PricePlan, sizes: Mapping[str, Any], phase: str) -> tuple[OpWork, ...]:
    """Every op of a step in the order of execution, as the plan would price it. Ops that cost nothing are left out."""
    prepared, path = plan.prepared, plan.prepared.effects.attention
    quantities = prepared.quantities(sizes)
    binding = prepared.binding(sizes)
    compute, memory = plan.ideals(quantities, sizes.get("batch", 1))
    works: list[OpWork] = []
    for entry in prepared.entries:
        row = prepared.rows[entry.row]
        headless = not sizes.get("logits", 1) and "logits" in row.op.symbols
        if row.op_class in FREE | {"collective"} or row.once or headless:
            continue
        shape = shape_in(row, binding, quantities, entry.row)
        computing, moving = float(compute[entry.row].item()), float(memory[entry.row].item())
        works.append(
            OpWork(
                name=entry.name,
                kind=entry.kind,
                count=entry.count,
                classes=class_path(row.op, phase, attention_path(row.op, path), fused=row.fused.launches == 0),
                axes={axis: float(value) for axis, value in shape.items()},
                floor_s=max(computing, moving),
                launches=row.fused.launches,
                compute_s=computing,
                memory_s=moving,
            )
        )
    return tuple(works)


def measured_point(work: OpWork, seconds: float, *, dtype: str, probe: str, workload: str = "") -> OpPoint:
    """The op with the seconds that one of them took."""
    return OpPoint(
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


def device_rates(device: Device, formats: Collection[str]) -> dict[str, float]:
    """The peaks that floors are computed from, for every point: the calibration adopts them."""
    memory = device.memory
    rates = {f"peak:{name}": float(peak) for name, peak in device.peaks.items() if name in formats}
    if memory is not None and memory.bandwidth_bytes_per_s is not None:
        rates[f"bandwidth:{memory.level}"] = float(memory.bandwidth_bytes_per_s)
    return rates


def middle_of(points: Iterable[OpPoint]) -> list[OpPoint]:
    """For each workload of a probe that was measured in several rounds, the middle round, scaled to the median time.

    A machine's pace drifts from minute to minute, and the long steps of real models meet all of it: the fastest round
    of a short probe would promise what no long step keeps. All overheads and readings are kept.
    """
    kept: list[OpPoint] = []
    rounds: dict[tuple[str, str, str], list[list[OpPoint]]] = defaultdict(list)
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
    for of_run in rounds.values():
        complete = [round_points for round_points in of_run if len(round_points) == len(of_run[0])]
        totals = [sum(point.seconds for point in round_points) for round_points in complete]
        _, place = sorted((total, index) for index, total in enumerate(totals))[len(complete) // 2]
        scale = median(totals) / totals[place]
        kept += [replace(point, seconds=scale * point.seconds) for point in complete[place]]
    return kept


def middle_steps(steps: Iterable[StepPoint]) -> list[StepPoint]:
    """The same for whole steps."""
    rounds: dict[tuple[Any, ...], list[StepPoint]] = defaultdict(list)
    for step in steps:
        rounds[step.key].append(step)
    return [replace(same[0], seconds=median(step.seconds for step in same)) for same in rounds.values()]


def drifts(steps: Iterable[StepPoint]) -> dict[str, float]:
    """By phase, how much a step varies from one time to another: the standard deviation of the log of its seconds.

    Only steps measured in several rounds count; with few of them, nothing is stated.
    """
    rounds: dict[str, dict[tuple[Any, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for step in steps:
        rounds[step.phase][step.key].append(log(step.seconds))
    by_phase = {}
    for phase, of_phase in rounds.items():
        repeated = [logs for logs in of_phase.values() if len(logs) > 1]
        if len(repeated) >= _REPEATED:
            squares = sum((value - fmean(logs)) ** 2 for logs in repeated for value in logs)
            by_phase[phase] = sqrt(squares / sum(len(logs) - 1 for logs in repeated))
    return by_phase


def append_points(path: Path, points: Iterable[OpPoint | StepPoint]) -> None:
    """Add points to a journal, one JSON object per line: what is written survives whatever happens next.

    A last line that was cut off goes first: what is added to it would be no line of its own.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(max(0, file.tell() - 1))
        if file.read() not in {b"", b"\n"}:
            file.truncate(path.read_bytes().rfind(b"\n") + 1)
        for point in points:
            file.write(msgspec.json.encode(point) + b"\n")


def read_points(path: Path) -> tuple[OpPoint, ...]:
    """The points of a journal. A last line that was cut off is skipped; any other bad line is an error."""
    return _read(path, OpPoint)


def read_steps(path: Path) -> tuple[StepPoint, ...]:
    """The same for whole steps, which have a file of their own."""
    return _read(path, StepPoint)


def _read(path: Path, kind: type[T]) -> tuple[T, ...]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}.") from None
    rows: list[T] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(msgspec.json.decode(line, type=kind))
        except (msgspec.DecodeError, DomainError) as error:
            if number == len(lines):
                break
            raise FormatError(
                f"Line {number} of {path} is not a measured point: {error}.",
                remedy="Start again with --fresh, or delete the line.",
            ) from None
    return tuple(rows)
