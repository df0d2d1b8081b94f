"""Rows of a graph priced by measured kernels: the points nearest to a row's fixed sizes, interpolated over the others.

A row's widths, heads and formats are fixed; its tokens, sequences and cached tokens change from step to step. Of a
family's points those with the row's own fixed sizes are taken, or the nearest, and become a curve over what changes.
Shares are interpolated on logarithmic axes, and constant beyond the measured range. Three numbers replace the points of
a family if only its form is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import log, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.calibration import Calibration, FormRates, KernelForm, KernelForms, KernelRates, KernelShares
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.core.statistics import median
from inferometer.predict.price import kernel_floors as floors
from inferometer.predict.price.kernel_floors import Ideals, PeakRates
from inferometer.predict.work.polynomial import smaller
from inferometer.predict.work.rules.attention import cached_bytes_per_token, sequences

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.graph import Op
    from inferometer.predict.work.collect import OpRow

_LEAST = 1e-9  # a size of nothing has no logarithm
_FEW_ROWS = 256  # rows up to which engines replay a step as a captured graph
_WIDENED = frozenset({"i4", "mxfp4", "nvfp4"})  # unpacked to 16 bits where the GPU has no arithmetic of such weights

# The format that a table calls its own by ours, the nearest first: what stands in where an engine has no such points.
FORMATS: Mapping[str, tuple[str, ...]] = {
    "bf16": ("bfloat16",),
    "f16": ("bfloat16",),
    "f8e4m3": ("fp8", "fp8_block", "bfloat16"),
    "f8e4m3.block": ("fp8_block", "fp8", "bfloat16"),
    "i8": ("int8", "fp8", "fp8_block", "bfloat16"),
    "i4": ("int4_wo", "bfloat16"),
    "nvfp4": ("nvfp4", "fp8_block", "fp8", "bfloat16"),
    "mxfp4": ("w4a8_mxfp4_mxfp8", "w4a16_mxfp4", "int4_wo", "nvfp4", "bfloat16"),
}
_UNKNOWN = ("bfloat16", "fp8")  # products of every system have the first, those of all but the A100 the second
_CACHES = {1: ("fp8", "bfloat16"), 2: ("bfloat16", "fp8")}  # by bytes a number, the nearest first


@frozen
class KernelCurve:
    """Seconds of a row over the sizes that change, on any device: the floor over `share(sizes)`.

    `cached_s` is added for each token that a sequence attends to: the engine's own cost beside the kernel's.
    """

    family: str
    axes: tuple[str, ...]
    grids: tuple[Any, ...]  # logarithms of the points of each axis
    log_shares: Any  # one dimension an axis
    ideals: Callable[[PeakRates, Mapping[str, Any]], Ideals]
    fixed: Mapping[str, float]
    residual: float
    exact: bool  # whether points with the row's own fixed sizes and format were measured
    cached_s: float = 0.0

    def seconds(self, rates: PeakRates, sizes: Mapping[str, Any]) -> Any:
        known = {**self.fixed, **sizes}
        logs = [np.log(np.maximum(np.asarray(sizes[axis], float), _LEAST)) for axis in self.axes]
        share = np.exp(_interpolated(self.log_shares, self.grids, logs))
        return floors.floor_of(self.ideals(rates, known)) / share + _cached_seconds(self.cached_s, known)


@frozen
class FormCurve:
    """Seconds of a row by the form of its family; `cached_s` as of `KernelCurve`."""

    family: str
    form: KernelForm
    ideals: Callable[[PeakRates, Mapping[str, Any]], Ideals]
    fixed: Mapping[str, float]
    cached_s: float = 0.0

    @property
    def residual(self) -> float:
        return self.form.residual

    def seconds(self, rates: PeakRates, sizes: Mapping[str, Any]) -> Any:
        known = {**self.fixed, **sizes}
        seconds = self.form.seconds(*floors.form_terms(self.family, self.ideals(rates, known), known))
        return seconds + _cached_seconds(self.cached_s, known)


def _cached_seconds(cached_s: float, sizes: Mapping[str, Any]) -> Any:
    if not cached_s:
        return 0.0
    return cached_s * sizes["batch"] * smaller(sizes["context"], sizes.get("window") or np.inf)


Curve = KernelCurve | FormCurve
Tables = Mapping[str, "KernelShares | KernelForms"]


def _interpolated(values: Any, grids: tuple[Any, ...], logs: list[Any]) -> Any:
    """Linear along each axis; the first axes are folded by their cells, the last by `np.interp`'s rule."""
    if len(grids) == 1:
        return np.interp(logs[0], grids[0], values)
    place = np.interp(logs[0], grids[0], np.arange(len(grids[0]), dtype=float))
    lower = np.minimum(place.astype(int), max(0, len(grids[0]) - 2))
    share = place - lower
    upper = np.minimum(lower + 1, len(grids[0]) - 1)
    return (1 - share) * _in_rows(values, lower, grids[1], logs[1]) + share * _in_rows(values, upper, grids[1], logs[1])


def _in_rows(values: Any, rows: Any, grid: Any, logs: Any) -> Any:
    place = np.interp(logs, grid, np.arange(len(grid), dtype=float))
    lower = np.minimum(place.astype(int), max(0, len(grid) - 2))
    upper = np.minimum(lower + 1, len(grid) - 1)
    share = place - lower
    return (1 - share) * values[rows, lower] + share * values[rows, upper]


def kernel_tables(calibration: Calibration | None) -> Tables:
    """An engine's kernels by family: single timings, or the forms that they follow; empty if neither is known."""
    match None if calibration is None else calibration.rates:
        case KernelRates(kernels=kernels):
            return kernels
        case FormRates(forms=forms):
            return forms
    return {}


def kernel_curve(row: OpRow, phase: str, kernels: Tables, binding: Binding, *, byte_experts: str = "") -> Curve | None:
    """The curve for a row in a phase; None if the engine's tables lack its family.

    `byte_experts` is the table's format of experts in 8 bits whose scales are not known.
    """
    op = row.op
    if row.op_class == "collective":
        return _message_curve(op, kernels)
    if row.part is None or row.offloaded:
        return None
    if op.kind in {"linear", "moe_router"} and op.inputs and op.outputs:
        return _gemm_curve(row, kernels, binding)
    if op.kind == "moe_experts":
        return _experts_curve(row, kernels, binding, byte_experts)
    if op.kind == "attention" and op.get("cached"):
        return _attention_curve(row, phase, kernels, binding)
    return None


# products


def stored_format(op: Op, binding: Binding) -> str:
    """The format of an op's weights, `.block` where they have scales for blocks and not for whole rows."""
    if not op.weights:
        return "bf16"
    name = binding.format(op.weights[0]).name
    blocks = any(tensor.dtype == "f32" and len(tensor.shape) >= 2 for tensor in op.weights[1:])
    return f"{name}.block" if name == "f8e4m3" and blocks else name


def _arithmetic(name: str, rows: str | None) -> str:
    """What a product with such weights is computed in: 8 bits and nvfp4 as they are, 4-bit weights widened to bf16."""
    base = name.removesuffix(".block")
    if base == "mxfp4":
        return "bf16" if rows in {None, "w4a16_mxfp4", "int4_wo", "bfloat16"} else "mxfp4"
    return base if base in {"bf16", "f16", "f8e4m3", "nvfp4", "i8"} else "bf16"


def _gemm_curve(row: OpRow, kernels: Tables, binding: Binding) -> Curve | None:
    table = kernels.get("gemm")
    op, scale = row.op, row.scale
    n, k = op.outputs[0].shape[-1], op.inputs[0].shape[-1]
    if op.kind == "moe_router":
        n = op["experts"]
    if table is None or not (isinstance(n, int) and isinstance(k, int)):
        return None
    stored = stored_format(op, binding)
    if op.kind == "moe_router":
        stored = "bf16"
    named = _named_format(table, stored)
    if not named:
        return None
    wide, deep = (n * scale.flops, float(k)) if scale.writes < 1 else (float(n), k * scale.flops)
    weight_bytes = float(binding.format(op.weights[0]).bits) / 8 if op.weights else 2.0
    ideals = partial(floors.gemm_ideals, arithmetic=_arithmetic(stored, named), weight_bytes=weight_bytes)
    fixed = {"out_features": wide, "in_features": deep}
    if isinstance(table, KernelForms):
        return FormCurve(family="gemm", form=table.by_format[named], ideals=ideals, fixed=fixed)
    grid, cube = _cube(table, named)
    if named == "fp8_block" and (table.texts["format"] == "fp8").any():
        cube = _without_launches(table, grid, cube)
    curve = _fold(_fold(cube, grid[2], deep, axis=2), grid[1], wide, axis=1)
    return KernelCurve(
        family="gemm",
        axes=("rows",),
        grids=(np.log(grid[0]),),
        log_shares=curve,
        ideals=ideals,
        fixed=fixed,
        residual=table.residual,
        exact=named == FORMATS.get(stored, _UNKNOWN)[0],
    )


def _without_launches(table: KernelShares, grid: tuple[Any, ...], blocks: Any) -> Any:
    """Shares of products with scales for blocks, for few rows no less than with one scale.

    Some of these kernels were measured outside of a CUDA graph, so their times include the launch by the host (57 µs
    at any shape), which a replayed step does not pay.
    """
    others, plain = _cube(table, "fp8")
    if [len(points) for points in others] != [len(points) for points in grid]:
        return blocks
    few = (grid[0] <= _FEW_ROWS)[:, None, None]
    return np.where(few, np.maximum(blocks, plain), blocks)


_cubes = Kept(512)  # one a format of a table: those of all systems and engines stay


def _cube(table: KernelShares, named: str) -> tuple[tuple[Any, ...], Any]:
    """Logarithms of one format's shares over [rows, out_features, in_features]; holes take their neighbours'."""

    def make() -> tuple[tuple[Any, ...], Any]:
        chosen = table.texts["format"] == named
        axes = [table.sizes[axis][chosen] for axis in ("rows", "out_features", "in_features")]
        grid = tuple(distinct_of(axis).astype(float) for axis in axes)
        cube = np.full([len(points) for points in grid], np.nan)
        cube[tuple(np.searchsorted(points, axis) for points, axis in zip(grid, axes, strict=True))] = np.log(
            table.shares[chosen]
        )
        for axis in (0, 1, 2):
            cube = _filled(cube, axis)
        return grid, cube

    return _cubes.get_or_make(named, (table,), make)


def distinct_of(values: Any) -> Any:
    """Each value once, in rising order. numpy's own imports masked arrays, which takes longer than all else here."""
    rising = np.sort(values)
    return rising[np.concatenate(([True], rising[1:] != rising[:-1]))] if len(rising) else rising


def _fold(values: Any, grid: Any, size: float, *, axis: int) -> Any:
    """The values at one size of an axis."""
    place = float(np.interp(log(max(size, _LEAST)), np.log(grid), np.arange(len(grid), dtype=float)))
    lower = min(int(place), max(0, len(grid) - 2))
    upper = min(lower + 1, len(grid) - 1)
    share = place - lower
    return (1 - share) * values.take(lower, axis=axis) + share * values.take(upper, axis=axis)


def _filled(values: Any, axis: int) -> Any:
    """Holes take the value before them along an axis, those at the start the one after: shares level off."""
    moved = np.moveaxis(values, axis, 0).copy()
    for index in range(1, len(moved)):
        moved[index] = np.where(np.isnan(moved[index]), moved[index - 1], moved[index])
    for index in range(len(moved) - 2, -1, -1):
        moved[index] = np.where(np.isnan(moved[index]), moved[index + 1], moved[index])
    return np.moveaxis(moved, 0, axis)


def _named_format(table: KernelShares | KernelForms, stored: str, *, first: str = "") -> str:
    """The table's own name for the format or for its substitute; empty if the table has neither."""
    names = (first, *FORMATS.get(stored, ()), *_UNKNOWN)
    if isinstance(table, KernelForms):
        return next((name for name in names if name in table.by_format), "")
    return next((name for name in names if (table.texts["format"] == name).any()), "")


# experts


def _experts_curve(row: OpRow, kernels: Tables, binding: Binding, byte_experts: str) -> Curve | None:
    table = kernels.get("experts")
    if table is None:
        return None
    op, scale = row.op, row.scale
    stored = stored_format(op, binding)
    named = _named_format(table, stored, first=byte_experts if stored == "f8e4m3" else "")
    if not named:
        return None
    if stored == "mxfp4" and not isinstance(table, KernelForms):
        # Engines with both on a GPU were measured with the one that they choose for the model.
        own = (table.sizes["hidden"] == op["hidden"]) & (table.sizes["experts"] == op["experts"])
        named = next((name for name in FORMATS[stored][:2] if (own & (table.texts["format"] == name)).any()), named)
    tp = max(1, round(scale.reads / scale.flops))  # devices that share an expert compute parts of the same rows
    ep = max(1, round(1 / scale.weights / tp))
    wanted = {
        "hidden": float(op["hidden"]), "intermediate": float(op["intermediate"]), "top_k": float(op["top_k"]),
        "experts": float(op["experts"]), "tp": float(tp), "ep": float(ep),
    }  # fmt: skip
    fixed = {**wanted, "matrices": 3.0 if op.get("gated") else 2.0}
    weight_bytes = float(binding.format(op.weights[0]).bits) / 8
    if stored in _WIDENED and named == "bfloat16":
        # Where both were measured, experts of 4 bits that are widened in registers are no faster than those of 16.
        weight_bytes = 2.0
    ideals = partial(floors.experts_ideals, arithmetic=_arithmetic(stored, named), weight_bytes=weight_bytes)
    if isinstance(table, KernelForms):
        return FormCurve(family="experts", form=table.by_format[named], ideals=ideals, fixed=fixed)
    chosen, exact = _nearest(table, table.texts["format"] == named, wanted, {})
    rows, shares = _line(table.sizes["rows"][chosen], table.shares[chosen], best=True)
    measured = float(table.sizes["tp"][chosen[0]]), float(table.sizes["ep"][chosen[0]])
    return KernelCurve(
        family="experts",
        axes=("rows",),
        grids=(np.log(rows),),
        log_shares=np.log(shares) + _split_further(table, measured, (float(tp), float(ep)), np.log(rows)),
        ideals=ideals,
        fixed=fixed,
        residual=table.residual,
        exact=exact and named == FORMATS.get(stored, _UNKNOWN)[0],
    )


def _split_further(table: KernelShares, measured: tuple[float, float], wanted: tuple[float, float], rows: Any) -> Any:
    """The change of logarithms of shares if experts are split (tp, ep) otherwise than they were measured.

    Parts of a call do not shrink with an expert: eight devices take half of one's time for one token, not an eighth.
    The change is the median over the table's mixtures that were measured with both splits, at equal rows.
    """
    if measured == wanted:
        return 0.0
    sizes = [table.sizes[name].tolist() for name in ("hidden", "intermediate", "top_k", "experts", "rows", "tp", "ep")]
    shares: dict[tuple[Any, ...], float] = {}
    for *sized, share in zip(table.texts["format"].tolist(), *sizes, table.shares.tolist(), strict=True):
        key = tuple(sized)
        if key[-2:] in {measured, wanted}:
            shares[key] = max(share, shares.get(key, 0.0))  # of several kernels the fastest
    changes: dict[float, list[float]] = {}
    for key, share in shares.items():
        other = shares.get((*key[:-2], *wanted)) if key[-2:] == measured else None
        if other is not None:
            changes.setdefault(key[-3], []).append(log(other / share))
    if not changes:
        return 0.0
    points = sorted(changes)
    return np.interp(rows, np.log(points), [median(changes[point]) for point in points])


def _nearest(
    table: KernelShares, chosen: Any, wanted: Mapping[str, float], weight: Mapping[str, float]
) -> tuple[Any, bool]:
    """Of the chosen points those whose fixed sizes are nearest to the wanted ones, in logarithms."""
    index = np.flatnonzero(chosen)
    distance = np.zeros(len(index))
    for name, size in wanted.items():
        points = np.maximum(np.asarray(table.sizes[name], float)[index], _LEAST)
        distance = distance + weight.get(name, 1.0) * np.abs(np.log(points / max(size, _LEAST)))
    least = float(distance.min())
    # Sums of logarithms differ in their last digits: points as near as the nearest are one choice, and below a
    # millionth the sizes are the wanted ones.
    return index[distance <= least + 1e-9], least < 1e-6


def _line(sizes: Any, shares: Any, *, best: bool = False) -> tuple[Any, Any]:
    """Points in rising order. Where several kernels were measured at one size: the fastest, which engines choose."""
    points = distinct_of(sizes)
    one = np.max if best else np.median
    return points.astype(float), np.array([one(shares[sizes == point]) for point in points])


# attention


def _attention_curve(row: OpRow, phase: str, kernels: Tables, binding: Binding) -> Curve | None:
    op, scale = row.op, row.scale
    way = "decode" if phase == "decode" else "prefill"
    if op.get("index"):  # nobody measured an index's scores by themselves
        return None
    latent = bool(op.get("kv_latent"))
    table = kernels.get(f"{'mla' if latent else 'attention'}.{way}")
    if table is None:
        return None
    heads = max(1.0, op["heads"] * scale.flops)
    elements = (
        op["kv_latent"]
        if latent
        else op.get("kv_heads", op["heads"]) * (op["head_dim"] + op.get("value_dim", op["head_dim"]))
    )
    cache_bytes = cached_bytes_per_token(op, binding) / elements
    wanted: dict[str, float] = {"heads": float(heads)}
    if not latent:
        kv_heads = max(1.0, op.get("kv_heads", op["heads"]) * scale.kv)
        wanted |= {"kv_heads": kv_heads, "head_dim": float(op["head_dim"]), "window": float(op.get("window") or 0)}
    ideals = partial(
        getattr(floors, f"{'mla' if latent else 'attention'}_{way}_ideals"), arithmetic="bf16", kv_bytes=cache_bytes
    )
    if isinstance(table, KernelForms):
        named = next(name for name in (*_caches(cache_bytes), *table.by_format) if name in table.by_format)
        return FormCurve(family=table.family, form=table.by_format[named], ideals=ideals, fixed=wanted)
    chosen, points = _of_cache(table, cache_bytes, way), wanted
    if not latent:
        chosen, points = _of_window(table, chosen, wanted)
    # A kernel is written for one width of head, and how many heads share a cache decides what it reads: both count
    # more than the number of heads, which only makes it longer.
    chosen, exact = _nearest(table, chosen, points, {"head_dim": 4.0, "kv_heads": 2.0})
    length = "keys" if way == "decode" else "query"
    grids, logs = _plane(table, chosen, length)
    axis = "keys" if way == "decode" else "length"
    return KernelCurve(
        family=table.family,
        axes=("batch", axis),
        grids=grids,
        log_shares=logs,
        ideals=ideals,
        fixed=wanted,
        residual=table.residual,
        exact=exact,
    )


def _caches(cache_bytes: float) -> tuple[str, ...]:
    return _CACHES[1 if cache_bytes < 1.5 else 2]  # half-way between fp8 and bf16


def _of_cache(table: KernelShares, cache_bytes: float, way: str) -> Any:
    """Points whose cache has numbers of `cache_bytes`; queries of a prompt are in bf16 where both were measured."""
    chosen = np.ones(len(table), bool)
    for kind in _caches(cache_bytes):
        if (table.texts["kv"] == kind).any():
            chosen = table.texts["kv"] == kind
            break
    if way == "prefill" and "format" in table.texts and ((table.texts["format"] == "bfloat16") & chosen).any():
        chosen = chosen & (table.texts["format"] == "bfloat16")
    return chosen


def _of_window(table: KernelShares, chosen: Any, wanted: dict[str, float]) -> tuple[Any, dict[str, float]]:
    """Points without a window where the row has none, with the nearest one where it has."""
    windows = np.asarray(table.sizes["window"])
    with_window = wanted["window"] > 0 and bool((chosen & (windows > 0)).any())
    chosen = chosen & ((windows > 0) if with_window else (windows == 0))
    return chosen, {name: size for name, size in wanted.items() if name != "window" or with_window}


def _plane(table: KernelShares, chosen: Any, length: str) -> tuple[tuple[Any, Any], Any]:
    """Logarithms of the shares over [batch, length].

    A point too large to measure takes the share of as many shorter sequences, or of fewer sequences of this length:
    the larger one, since more work reaches no less. Of a thousand sequences a hundred tokens each were measured at
    most, which is all starting and no reading; with a window, length adds no work, and sequences do.
    """
    batches, lengths = (np.asarray(table.sizes[name])[chosen] for name in ("batch", length))
    rows, columns = distinct_of(batches), distinct_of(lengths)
    plane = np.full((len(rows), len(columns)), np.nan)
    plane[np.searchsorted(rows, batches), np.searchsorted(columns, lengths)] = np.log(table.shares[chosen])
    larger = np.fmax(_filled(plane, 0), _filled(plane, 1))
    plane = _filled(_filled(np.where(np.isnan(plane), larger, plane), 0), 1)
    return (np.log(rows.astype(float)), np.log(columns.astype(float))), plane


# messages


def _message_curve(op: Op, kernels: Tables) -> Curve | None:
    function, devices = op["function"], op["devices"]
    table = kernels.get(function)
    if table is None or devices < 2:
        return None
    ideals, fixed = partial(floors.message_bytes_ideals, function=function), {"devices": float(devices)}
    if isinstance(table, KernelForms):
        named = min(table.by_format, key=lambda name: abs(log(float(name) / devices)))
        return FormCurve(family=function, form=table.by_format[named], ideals=ideals, fixed=fixed)
    known = np.asarray(table.sizes["devices"], float)
    nearest = known[np.argmin(np.abs(np.log(known / devices)))]
    chosen = known == nearest
    points, shares = _line(np.asarray(table.sizes["bytes"], float)[chosen], table.shares[chosen])
    return KernelCurve(
        family=function,
        axes=("bytes",),
        grids=(np.log(points),),
        log_shares=np.log(shares),
        ideals=ideals,
        fixed=fixed,
        residual=table.residual,
        exact=nearest == devices,
    )


# what changes from step to step


def sizes_key(row: OpRow) -> Any:
    """The same for rows whose `kernel_sizes` are."""
    return id(row) if row.op.kind == "attention" else (row.scale.batch, row.op.inputs[0].shape[:-1])


def kernel_sizes(row: OpRow, binding: Binding) -> dict[str, Any]:
    """The sizes that a row's curve is read at, in one step: rows of a product, sequences and tokens of attention."""
    op = row.op
    if op.kind != "attention":
        return {"rows": row.scale.batch * prod([binding.size(dim) for dim in op.inputs[0].shape[:-1]])}
    query, context = binding.size(op["query"]), binding.size(op.get("context", 0))
    if op.get("top_k"):  # a step meets as many keys as were chosen; a prompt beyond them is still priced as a whole
        context = smaller(context, op["top_k"])
    # A chunk after a context has as much to do for each of its tokens as a longer prompt without one.
    new = floors.floats(query)
    length = np.sqrt(new * new + 2.0 * new * context)
    sizes = {"query": query, "context": context, "keys": context + query, "length": length}
    return {"batch": sequences(op, binding), **sizes}
