"""The fit: points → utilisation tables, overheads, residuals. Values in, values out; numpy only.

Each class of op gets a table over one to three axes of its shape (`AXES_OF`), logarithmic in all of them. A grid point
is a locally weighted straight line through the measured points around it, clipped to their least and greatest values,
so that it never overshoots and never exceeds 1. The residual is found by leaving out one probe after the other, a whole
probe at a time, because the points of a probe err together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.calibration import Utilisation
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.predict.price.utilisation import interpolate
from inferometer.predict.work.classes import BIASED, FUSED, PLAIN

if TYPE_CHECKING:
    from inferometer.measure.calibrate.fitting.points import OpPoint

# The axes that a class's table may have, by its name or the first part of it. The set that predicts left-out probes
# best is taken; of two that do equally well, the one that stands first.
AXES_OF: dict[str, tuple[tuple[str, ...], ...]] = {
    "linear": (("rows", "weight_bytes"), ("rows", "in_features", "out_features")),
    "matmul": (("flops",), ("flops", "rows")),
    "experts": (("rows", "weight_bytes"),),
    "attention": (("flops",), ("flops", "query"), ("bytes", "flops"), ("flops", "query", "head_dim")),
    # Heads that share keys and values read them once, or each its own copy: then operations count, not bytes.
    "attention.decode": (("kv_bytes",), ("kv_bytes", "sequences"), ("kv_bytes", "keys"), ("kv_bytes", "flops")),
    "convolution": (
        ("flops",), ("flops", "channels"), ("flops", "in_features"), ("flops", "weight_bytes"),
        ("flops", "bytes", "weight_bytes"), ("flops", "bytes", "weight_bytes", "aligned"),
        ("flops", "bytes", "weight_bytes", "filled"),
    ),
    # What it moves and what it computes both count, whoever of few probes is left out: engines that unroll the windows
    # pay for every one of their elements, and strides read more than they compute.
    "depthwise": (("bytes", "flops"), ("bytes", "flops", "channels")),
    "vector": (("elements",), ("bytes",), ("elements", "bytes"), ("bytes", "plane")),
    "indexing": (("bytes",),),
    "scan": (("flops",),),
    "recurrent": (("flops",),),
}  # fmt: skip
RISING = frozenset({"vector", "indexing"})  # of these, a larger op is never further from the peak
LEAST_RESIDUAL = 0.02  # repeated measurements of one kernel differ by this much
_NODES = {1: 24, 2: 12, 3: 8, 4: 6}  # most grid points per axis, by the number of axes
_FORMS = {  # of a class, that run other kernels: how many points a table of their own takes
    BIASED: 60,
    "convolution.first": 8, "convolution.pointwise": 60, "convolution.strided": 60, "convolution.window": 60,
    "convolution.window.strided": 20, "convolution.window.large": 4, "convolution.grouped": 8,
    "depthwise.strided": 8, "depthwise.three": 8,
    "vector.batch": 10, "vector.layer": 10, "vector.activation": 10, "vector.activation.curved": 10,
    "vector.elementwise": 10, "vector.pool": 10, "vector.copy": 10, "vector.softmax": 10, "vector.reduce": 10,
}  # fmt: skip
_FINE = {
    "vector": 24,
    "convolution": 10,
}  # … of classes whose kinds differ in how many bytes an element takes, by little
_FEW_AXES = 3  # with more, a finer grid would have more nodes than there are points
_LEFT_OUT = 300  # points at most
_AT_ONCE = 64  # places, so that the arrays of one turn stay small
_RIDGE = 1e-6  # of the weights, against slopes that nothing tells
_AROUND = 0.02  # of the largest weight: whose points bound a value
_WIDTHS = (0.35, 0.7, 1.4, 2.8)  # of the neighbourhood, in log-shape: the best for left-out probes is kept


@frozen
class Fitted:
    """The table of a class and how well it fits. `residual` is the standard deviation of log(measured / predicted)."""

    table: Utilisation
    residual: float
    bias: float  # mean logarithm of measured over predicted, each probe left out in turn
    points: int
    probes: int
    valid: Mapping[str, tuple[float, float]]


def fit_points(points: Iterable[OpPoint], *, kernel_s: float = 0.0, stream: str = "floor") -> tuple[Fitted, ...]:
    """A table for every class of the points, and for every form of one that has enough of them, the narrowest first.

    Points without a floor (nothing was computed) are left out.
    """
    working = [point for point in points if point.floor_s > 0]
    counts = Counter(name for point in working for name in point.classes if name in _FORMS)
    forms = {name for name, count in counts.items() if count >= _FORMS[name]}
    plain = {class_for(point.classes) for point in working if BIASED not in point.classes}
    groups: dict[str, list[OpPoint]] = defaultdict(list)
    for point in working:
        if BIASED not in point.classes or class_for(point.classes) not in plain:
            groups[class_for(point.classes)].append(point)
        if (form := next((name for name in point.classes if name in forms), None)) is not None:
            groups[form].append(point)
    return tuple(fit_class(name, group, kernel_s=kernel_s, stream=stream) for name, group in sorted(groups.items()))


def class_for(classes: tuple[str, ...]) -> str:
    """Of an op's classes, the one whose table its point goes into.

    Attention has a table for each phase and path, small ops one for fused and one for plain ones.
    """
    name = classes[-1]
    if FUSED in classes:
        return PLAIN if PLAIN in classes else FUSED
    if name != "attention":
        return name
    return next((path for path in classes if path.endswith(("prefill", "decode", "masked", "padded"))), name)


def fit_class(
    name: str, points: Sequence[OpPoint], *, kernel_s: float = 0.0, stream: str = "floor", axes: tuple[str, ...] = ()
) -> Fitted:
    """The table of one class, over `axes` if given, otherwise over the best of `AXES_OF`."""
    if not points:
        raise DomainError(f"There is no point of {name} to fit a table to.")
    known = KnownPoints(points=points, kernel_s=kernel_s)
    chosen, shapes, width, errors = _best_axes(_axes_for(name, points, axes), known)
    most = _NODES[len(chosen)] if len(chosen) > _FEW_AXES else _FINE.get(name.partition(".")[0], _NODES[len(chosen)])
    grid = tuple(_nodes(column, most) for column in shapes.T)
    mesh = np.stack([axis.ravel() for axis in np.meshgrid(*(np.log(nodes) for nodes in grid), indexing="ij")], axis=1)
    values = _near(mesh, shapes, known, width)
    if name.partition(".")[0] in RISING and len(grid) == 1:
        values = _rising(values)
    values = tuple(float(value) for value in np.clip(np.exp(values), 1e-9, 1.0))
    residual = residual_spread(errors)
    return Fitted(
        table=Utilisation(op_class=name, stream=stream, axes=chosen, grid=grid, values=values, residual=residual),
        residual=residual,
        bias=float(np.mean(errors)) if len(errors) else 0.0,
        points=len(points),
        probes=len(set(known.probes)),
        valid=_range(points),
    )


class KnownPoints:
    """Points as columns. A point whose time is mostly launch says little about its share, and weighs little."""

    def __init__(self, *, points: Sequence[OpPoint], kernel_s: float) -> None:
        self.points, self.kernel_s = points, kernel_s
        self.probes = np.array([point.probe for point in points])
        self.shares = np.log(np.array([point.share(kernel_s) for point in points]))
        self.seconds = np.array([point.seconds for point in points])
        self.floors = np.array([point.floor_s for point in points])
        self.launched = np.array([kernel_s * point.launches for point in points])
        working = np.clip(1 - self.launched / self.seconds, 0.0, 1.0)
        # by the share that is work: a point that is all launch says nothing of it, but no weight is 0
        self.weights = np.maximum(working**2, 1e-4)

    def only(self, chosen: Any) -> KnownPoints:
        """The points where a mask is true."""
        return KnownPoints(
            points=[point for point, is_chosen in zip(self.points, chosen, strict=True) if is_chosen],
            kernel_s=self.kernel_s,
        )

    def errors(self, shares: Any, places: Any) -> Any:
        """log(measured / predicted) in time, for predicted shares of some of the points."""
        predicted = self.floors[places] / np.exp(shares) + self.launched[places]
        return np.log(self.seconds[places] / predicted)


def _axes_for(name: str, points: Sequence[OpPoint], wanted: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The sets of axes to try. An axis counts only if every point has it."""
    sets = (wanted,) if wanted else AXES_OF.get(name) or AXES_OF[name.partition(".")[0]]
    had = [axes for axes in sets if all(point.axes.get(axis, 0) > 0 for point in points for axis in axes)]
    return had or [("bytes",)]


def _best_axes(sets: list[tuple[str, ...]], known: KnownPoints) -> tuple[tuple[str, ...], Any, float, Any]:
    best: tuple[float, tuple[str, ...], Any, float, Any] | None = None
    for axes in sets:
        # An axis that a point does not have counts as 1, which is 0 as a logarithm; a size of 0 has none, so it is a
        # billionth.
        logs = [[max(point.axes.get(axis, 1.0), 1e-9) for axis in axes] for point in known.points]
        shapes = np.log(np.array(logs))
        # The width that predicts left-out probes best, and its errors on them.
        tried = [(width, _left_out(shapes, known, width)) for width in _WIDTHS]
        width, errors = min(tried, key=lambda pair: float(np.mean(np.abs(pair[1]))) if len(pair[1]) else 0.0)
        loss = float(np.mean(np.abs(errors))) if len(errors) else 0.0
        if best is None or loss < 0.95 * best[0]:  # one more axis has to pay
            best = (loss, axes, shapes, width, errors)
    if best is None:
        raise DomainError("There are no axes to fit a table over.")
    return best[1:]


def _range(points: Sequence[OpPoint]) -> dict[str, tuple[float, float]]:
    ranges: dict[str, tuple[float, float]] = {}
    for axis in sorted({axis for point in points for axis in point.axes}):
        values = [point.axes[axis] for point in points if point.axes.get(axis, 0) > 0]
        if values:
            ranges[axis] = (min(values), max(values))
    return ranges


def _nodes(column: Any, most: int) -> tuple[float, ...]:
    """Grid points of one axis: the measured values themselves if they are few, otherwise evenly spread."""
    distinct = sorted({round(float(value), 9) for value in column})  # logarithms of one size, computed in two ways
    if len(distinct) > most:
        distinct = [float(value) for value in np.linspace(distinct[0], distinct[-1], most)]
    nodes = [float(np.exp(value)) for value in distinct]
    # Two nodes that are one but for rounding would make a cell without width, in which every slope is infinite.
    return tuple(value for index, value in enumerate(nodes) if index == 0 or value > nodes[index - 1] * (1 + 1e-9))


def _near(places: Any, shapes: Any, known: KnownPoints, width: float, counted: Any = None) -> Any:
    """Values of locally weighted lines at places, clipped to their neighbours' range.

    `counted` has a row for each place, with the points that count there; without it all do.
    """
    if counted is None:
        counted = np.ones((len(places), len(shapes)), dtype=bool)
    parts = [slice(begin, begin + _AT_ONCE) for begin in range(0, len(places), _AT_ONCE)]
    return np.concatenate([_lines(places[part], shapes, known, width, counted[part]) for part in parts])


def _lines(places: Any, shapes: Any, known: KnownPoints, width: float, counted: Any) -> Any:
    offsets = shapes[None] - places[:, None]
    distance = np.where(counted, np.sqrt(((offsets / width) ** 2).sum(axis=2)), np.inf)
    enough = np.minimum(counted.sum(axis=1) - 1, shapes.shape[1] + 1)
    nearest = np.take_along_axis(np.sort(distance, axis=1), enough[:, None], axis=1)
    # A bell whose width grows until a line through the place has points enough on both sides.
    weights = known.weights * np.exp(-0.5 * (distance / np.maximum(1.0, nearest)) ** 2)
    columns = np.concatenate([np.ones((*offsets.shape[:2], 1)), offsets], axis=2)
    weighted = (columns * weights[..., None]).transpose(0, 2, 1)
    squares = weighted @ columns
    slopes = np.arange(1, columns.shape[2])
    squares[:, slopes, slopes] += _RIDGE * weights.sum(axis=1)[:, None]
    lines = np.linalg.solve(squares, (weighted @ known.shares)[..., None])[:, 0, 0]
    around = weights > _AROUND * weights.max(axis=1, keepdims=True)
    least = np.where(around, known.shares, np.inf).min(axis=1)
    most = np.where(around, known.shares, -np.inf).max(axis=1)
    return np.minimum(np.maximum(lines, least), np.minimum(0.0, most))


def _rising(values: Any) -> Any:
    """The nearest sequence that never falls: neighbours that would fall are pooled at their mean."""
    pools: list[list[float]] = []
    for value in values:
        pools.append([float(value), 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (above, many), (below, more) = pools[-1], pools[-2]
            pools[-2:] = [[(above * many + below * more) / (many + more), many + more]]
    return np.concatenate([np.full(int(many), value) for value, many in pools])


def _left_out(shapes: Any, known: KnownPoints, width: float) -> Any:
    """log(measured / predicted) of points, from the other probes; with one probe, from its other points.

    Of many points every second, third … is enough.
    """
    alone = len(set(known.probes)) == 1
    places = np.arange(len(known.probes))[:: 1 + len(known.probes) // _LEFT_OUT]
    others = np.arange(len(known.probes)) != places[:, None] if alone else known.probes != known.probes[places, None]
    told = others.any(axis=1)
    if not told.any():
        return np.array([])
    places = places[told]
    return known.errors(_near(shapes[places], shapes, known, width, others[told]), places)


def residual_spread(errors: Any) -> float:
    """The standard deviation whose 80 % interval contains 80 % of the errors (logarithms of ratios)."""
    if len(errors) == 0:
        return log(2.0)  # one point: nothing shows how far off another may be
    wide = float(np.quantile(np.abs(errors), 0.8)) / EIGHT_IN_TEN
    few = 1 + 2 / len(errors)  # few errors understate their spread
    return max(LEAST_RESIDUAL, wide * few)


def doubts(fitted: Fitted | None, shapes: Sequence[Mapping[str, float]], points: Sequence[OpPoint]) -> Any:
    """How uncertain the table is at each shape: the residual, growing with the distance to the nearest point.

    A class without a table is uncertain everywhere: 1.
    """
    if fitted is None or not points:
        return np.ones(len(shapes))
    axes = fitted.table.axes
    wanted, known = (
        np.log(np.array([[max(shape.get(axis, 1.0), 1e-9) for axis in axes] for shape in group]))
        for group in (shapes, [point.axes for point in points])
    )
    nearest = np.abs(wanted[:, None, :] - known[None, :, :]).sum(axis=2).min(axis=1)
    return fitted.residual * (0.2 + nearest)  # a measured shape is not certain either: a fifth of the residual stays


def predicted_seconds(fitted: Fitted, point: OpPoint, kernel_s: float) -> float:
    """The table's prediction for a point."""
    share = interpolate(fitted.table, point.axes)
    return float(point.floor_s / share + kernel_s * point.launches)
