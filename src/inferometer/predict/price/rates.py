"""How near each row of a graph comes to its peaks in a phase, as columns that a whole step is priced with at once.

The rungs of `ladder` decide which source answers; their answers are kept here, and tables are read at each size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.device import DeviceShares, Origin
from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.predict.price.deviations import FittedPrior, Standing
from inferometer.predict.price.kernels import Curve, sizes_key
from inferometer.predict.price.ladder import (
    NUMBERS,
    UNPRICED,
    AskedRow,
    PublishedTimes,
    RowRates,
    RungSources,
    climb,
    ladder_of,
)
from inferometer.predict.price.utilisation import (
    TableReader,
    factor_for,
    is_compute,
    reader_of,
    require_shape,
    step_residual,
)
from inferometer.predict.work.classes import BIASED, FREE, WRITTEN_OUT, attention_path, class_path, dims_of, forms_of
from inferometer.predict.work.rules.experts import routed_bytes

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.calibration import Calibration, Utilisation
    from inferometer.core.engine import RuntimeEffects
    from inferometer.predict.work.collect import CollectedRows, OpRow
    from inferometer.predict.work.prepare import Quantities

# Standard deviation of the logarithm of a host's time to start kernels, where a calibration has none of its own: what
# hosts take differs by as much from run to run.
_HOST_RESIDUAL = 0.3


@frozen
class Covered:
    """A row that a table of the calibration is about.

    `factor` is its time inside a model over its time alone, `stream` the one of (compute, memory) whose share the table
    holds. `axes` are the row's sizes on the table's axes: numbers, places among the `dims` of all rows, or names of
    what is counted from its work.
    """

    number: int
    table: TableReader
    stream: slice | int
    factor: float
    axes: tuple[float | int | str, ...]
    doubted: bool  # the first of a row's tables says how far outside it lies


@frozen
class Rates:
    """Numbers of each row in one phase, [rows, 1] each.

    `spread` is the standard deviation of the logarithm of the time; rows of one of the `groups` (its members are 1) err
    together. Those whose class was in the whole steps that were measured are `in_steps`. Rows that the calibration has
    tables of are `covered`; `dims` are their sizes that vary, each with the share of it that one device has, and
    `moved` what is counted from their work. Rows with one of the `curves` take the measured time of a kernel.
    `launches` are the kernels of a row, `kernels` the ones whose seconds are not in its ramp, `calls` the ones that
    the row's host time starts, and `a_token` the ones that a loop over tokens adds to both for each token.
    `routed` are the bytes that pass beside a row's work for each token of all sequences. A device's stated utilisation
    does not apply to `tabled` rows: they were measured, or they cost nothing. `prior` prices the `fitted` rows.
    """

    compute_share: Any
    compute_ramp_s: Any
    memory_share: Any
    memory_ramp_s: Any
    spread: Any
    launches: Any
    kernels: Any
    calls: Any
    a_token: Any
    routed: Any
    fitted: Any
    unpacks: Any
    prior: FittedPrior | None
    step_spread: float | None
    host_spread: float
    groups: Mapping[str, Any]
    in_steps: Any
    tabled: Any
    origins: tuple[Origin, ...]
    rungs: tuple[str, ...]  # the name of the source that answered for each row
    covered: tuple[Covered, ...]
    dims: tuple[tuple[Dim, float], ...]
    moved: frozenset[str]
    curves: Mapping[int, Curve]  # rows whose seconds are those of a measured kernel
    timed: Mapping[int, int]  # those of them that are no messages, each with the first of the same sizes

    def slower(self, binding: Binding, q: Quantities, *, doubt: bool = True) -> tuple[Any, Any]:
        """The tables' factors for the compute and the memory time of each row, [2, rows, n].

        A stream without a table counts at its peak. With `doubt` also how far each row lies outside of its
        table, as a logarithm, [rows, n].
        """
        outside = np.zeros_like(q.bytes)
        slower = np.ones((2, *outside.shape))
        sizes = [binding.size(dim) * share for dim, share in self.dims]
        moved = {name: _moved(q, name) for name in self.moved}
        points = [tuple([_size(axis, row.number, sizes, moved) for axis in row.axes]) for row in self.covered]
        shares = _shares(self.covered, points, outside.shape[1])
        for row, point, share in zip(self.covered, points, shares, strict=True):
            slower[row.stream, row.number] = row.factor / share
            if doubt and row.doubted:
                outside[row.number] = row.table.beyond(point)
        return slower, outside


def _shares(covered: Sequence[Covered], points: Sequence[tuple[Any, ...]], columns: int) -> Any:
    """The share of each row at its point. Many columns are looked up as logarithms, and turned back at once."""
    if columns == 1:  # a lone shape is remembered by its table, and mostly came before
        return [row.table.share(point) for row, point in zip(covered, points, strict=True)]
    logs, known = np.empty((len(covered), columns)), dict[int, Any]()
    for index, (row, point) in enumerate(zip(covered, points, strict=True)):
        logs[index] = row.table.log_shares(point, known)
    return np.minimum(1.0, np.exp(logs))


_rates = Kept(1024)  # a sweep of 40 devices in 4 formats has two phases of each: a model's stay while it is swept


def rates_of(  # noqa: PLR0913, PLR0917 - what rates depend on
    collected: CollectedRows,
    effects: RuntimeEffects,
    standing: Standing,
    phase: str,
    calibration: Calibration | None,
    binding: Binding,
    *,
    stated: DeviceShares | None = None,
) -> Rates:
    """The same for every graph that shares its ops and stands alike; `binding` has the formats of its kernels."""
    key = (standing, phase, binding.precision, stated)

    def make() -> Rates:
        sources = RungSources(standing=standing, phase=phase, binding=binding, calibration=calibration, stated=stated)
        return _made(collected.rows, effects, sources)

    return _rates.get_or_make(key, (collected, calibration), make)


def _made(rows: tuple[OpRow, ...], effects: RuntimeEffects, sources: RungSources) -> Rates:
    """Every row climbs the ladder; what the rungs said is then set side by side, a column a name."""
    calibration, phase, rungs = sources.calibration, sources.phase, ladder_of(sources)
    asked = [_asked(row, effects, sources) for row in rows]
    answers = [climb(rungs, entry) for entry in asked]
    numbers = np.array([rates[: len(NUMBERS)] for _, rates in answers], dtype=float).reshape(-1, len(NUMBERS))
    column = dict(zip(NUMBERS, np.ascontiguousarray(numbers.T)[:, :, None], strict=True))
    groups = [rates.group for _, rates in answers]
    dims: dict[tuple[Dim, float], int] = {}
    covered: list[Covered] = []
    for number, (entry, (_, rates)) in enumerate(zip(asked, answers, strict=True)):  # shares to be read at each size
        covered += _covered(number, entry, rates.tables, dims, sources.binding) if rates.tables else ()
    # There is one fit in a ladder at most: that of the device's own published times, else the shipped one.
    fits = [rung.prior for rung in rungs if isinstance(rung, PublishedTimes)] if column["fitted"].any() else []
    residuals = {} if calibration is None else calibration.residuals
    mixed = any(row.op_class == "experts" for row in rows)
    return Rates(
        compute_share=column["compute_share"],
        compute_ramp_s=column["compute_ramp_s"] * column["compute_ramps"],
        memory_share=column["memory_share"],
        memory_ramp_s=column["memory_ramp_s"] * column["memory_ramps"],
        spread=column["spread"],
        launches=column["launches"],
        kernels=column["kernels"] + np.array([_beyond(row, effects, sources) for row in rows])[:, None],
        calls=np.array([0.0 if row.op_class in UNPRICED else row.fused.calls for row in rows])[:, None],
        a_token=np.array([effects.a_token(row.op) for row in rows])[:, None],
        routed=np.array([_routed(row, effects, sources) for row in rows])[:, None],
        fitted=column["fitted"],
        unpacks=column["unpacks"],
        prior=fits[0] if fits else None,
        step_spread=None if calibration is None else step_residual(calibration, phase, experts=mixed),
        host_spread=residuals.get("host", _HOST_RESIDUAL),
        groups={group: np.array([float(name == group) for name in groups]) for group in dict.fromkeys(groups)},
        in_steps=np.array([_in_steps(entry, rates) for entry, (_, rates) in zip(asked, answers, strict=True)])[:, None],
        tabled=np.array(
            [rung.measured or row.op_class == "collective" for row, (rung, _) in zip(rows, answers, strict=True)]
        )[:, None],
        origins=tuple([rung.origin for rung, _ in answers]),
        rungs=tuple([rung.name_of(rates) for rung, rates in answers]),
        covered=tuple(covered),
        dims=tuple(dims),
        moved=frozenset(axis for row in covered for axis in row.axes if isinstance(axis, str)),
        curves={number: rates.curve for number, (_, rates) in enumerate(answers) if rates.curve is not None},
        timed=_timed(rows, [number for number, (_, rates) in enumerate(answers) if rates.curve is not None]),
    )


def _timed(rows: tuple[OpRow, ...], numbers: Iterable[int]) -> dict[int, int]:
    """The rows of kernels that compute, each with the first that is read at the same sizes."""
    first: dict[Any, int] = {}
    return {
        number: first.setdefault(sizes_key(rows[number]), number)
        for number in numbers
        if rows[number].op_class != "collective"
    }


def _asked(row: OpRow, effects: RuntimeEffects, sources: RungSources) -> AskedRow:
    path = WRITTEN_OUT if effects.scored(row.op) else attention_path(row.op, effects.attention)
    classes = class_path(row.op, sources.phase, path, fused=row.fused.launches == 0)
    if row.fused.after and sources.binding.format(row.op.outputs[0]).name in effects.unbiased:
        classes = tuple(name for name in classes if name != BIASED)
    launches = 0 if row.op_class in UNPRICED else row.fused.launches
    return AskedRow(row, classes, path, factor_for(sources.calibration, classes), launches)


def _in_steps(asked: AskedRow, rates: RowRates) -> bool:
    """Whether the error of whole steps includes the row's doubt: steps with such ops gave its class a factor.

    Measured models have few of the shapes that ops of a form come in, and mixtures of probes the shapes of the kernels
    beside them: the error of such tables for kernels that were left out stays in doubt.
    """
    row = asked.row
    if rates.in_steps or row.op_class in FREE:
        return True
    return asked.factor is not None and row.op_class != "experts" and rates.group not in forms_of(row.op)


def _covered(
    number: int, asked: AskedRow, tables: tuple[Utilisation, ...], known: dict[tuple[Dim, float], int], binding: Binding
) -> Iterator[Covered]:
    """`known` are the dimensions of the rows before, to which those of this one are added.

    A batch norm in a neighbour's kernel adds a factor and a sum to numbers at hand, and moves less than any timed op:
    it gets the share of an op of its size that reads and writes them.
    """
    dims, factor = _dims_on_device(asked.row), 1.0 if asked.factor is None else asked.factor
    fused = asked.row.fused
    inside = asked.row.op.get("norm") == "batch" and bool(fused.reads or fused.writes or not fused.launches)
    for index, table in enumerate(tables):
        require_shape(table, {*dims, *_MOVED})
        sized = dims
        if inside and {"elements", "bytes"} <= {*table.axes}:
            (elements, share), written = dims["elements"], binding.format(asked.row.op.outputs[0])
            sized = {**dims, "bytes": (elements, share * 2 * float(written.bits) / 8)}
        axes = tuple(_axis(name, sized, known) for name in table.axes)
        stream = slice(None) if table.stream == "floor" else 0 if is_compute(table) else 1
        yield Covered(
            number=number, table=reader_of(table), stream=stream, factor=factor, axes=axes, doubted=index == 0
        )


def _axis(name: str, dims: Mapping[str, tuple[Dim, float]], known: dict[tuple[Dim, float], int]) -> float | int | str:
    if name not in dims:
        return name
    dim, share = dims[name]
    return float(dim * share) if isinstance(dim, int) else known.setdefault((dim, share), len(known))


def _size(axis: Any, number: int, sizes: Sequence[Any], moved: Mapping[str, Any]) -> Any:
    if isinstance(axis, float):
        return axis
    return moved[axis][number] if isinstance(axis, str) else sizes[axis]


def _beyond(row: OpRow, effects: RuntimeEffects, sources: RungSources) -> float:
    """Kernels that an op takes beyond its own: its groups one by one, where inputs are gathered for each of them."""
    groups = row.op.get("groups", 1) - 1 if effects.gathered is not None and row.op.get("gathered") else 0
    # A CPU copies one tensor after the other, and a row with all of its threads.
    return groups + (effects.beyond(row.op, sources.phase) if sources.standing.unit == "gpu" else 0.0)


def _routed(row: OpRow, effects: RuntimeEffects, sources: RungSources) -> float:
    if effects.routed is None or row.op.kind != "moe_experts" or sources.standing.unit != "gpu":
        return 0.0
    return effects.routed.value * row.scale.flops * float(routed_bytes(row.op, sources.binding))


def shape_in(row: OpRow, binding: Binding, q: Quantities, number: int) -> dict[str, Any]:
    """A row's whole shape on one device: every axis that a table may have."""
    shape = {name: binding.size(dim) * share for name, (dim, share) in _dims_on_device(row).items()}
    return shape | {name: _moved(q, name)[number] for name in _MOVED}


def _dims_on_device(row: OpRow) -> dict[str, tuple[Dim, float]]:
    """The axes that the op itself gives, each with the share of it that one device has."""
    # Tensor parallelism gives each device a part of the heads, and of one of a product's two widths: where the results
    # are cut it is the outer one, where they are summed over devices the inner.
    shares = {"heads": row.scale.flops, "kv_heads": row.scale.kv}
    if row.op_class == "linear" and row.scale.flops < 1:
        shares["out_features" if row.scale.writes < 1 else "in_features"] = row.scale.flops
    return {name: (dim, shares.get(name, 1)) for name, dim in dims_of(row.op).items()}


_MOVED: dict[str, Callable[[Quantities], Any]] = {
    "flops": lambda q: sum(q.flops_by.values()),
    "bytes": lambda q: q.weights + q.activations + q.kv,
    "weight_bytes": lambda q: q.weights,
    "kv_bytes": lambda q: q.kv,
}


def _moved(q: Quantities, axis: str) -> Any:
    """The amount that each row moves or computes: a number, or an array where there are several columns."""
    values = _MOVED[axis](q)
    return values if values.shape[1] > 1 else values[:, 0].tolist()
