"""Whole forwards of networks in CUDA graphs → tables of their convolutions and batch norms, and factors of the rest.

cuDNN computes with channels last, and planes come with them first: a window is copied there, its weights too, and its
results back. A product over planes runs as it lies where their numbers come in eights, on older kernels where in
fours, and is copied like a window where they are odd. Alone, with nothing of it in the cache, an op takes another time
than behind the one that wrote what it reads; so few numbers a kind are drawn by the kernels of traces and by steps:

    a copy             a + b·bytes, of weights more
    a product          a + b·taps + operations / rate · (tiles it lacks to fill the GPU)^c + bytes / rate
    a batch norm       a + bytes / rate

All other classes keep what their kernels take alone, times a factor. The residual is of families left out.
"""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.fit import residual_spread
from inferometer.measure.calibrate.fitting.points import StepPoint, device_rates
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, plan_of
from inferometer.predict.basis.files import read_calibration, sealed, write_calibration
from inferometer.predict.price.rates import shape_in
from inferometer.predict.price.utilisation import interpolate
from inferometer.predict.request import step_sizes
from inferometer.predict.work.classes import class_path
from workshop.calibrations.compiled import (
    ARITHMETIC,
    OFF_STEP,
    PATCH,
    SIZES,
    TILES,
    family,
    forward_steps,
    is_of_images,
    profiled_steps,
    table_of,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from inferometer.core.calibration import Calibration, Utilisation
    from inferometer.core.device import Device

RUNTIME, LAUNCHED = "torch-graph", "torch-eager"
FORMS = ("first", "grouped", "window.strided", "window", "pointwise", "strided")
# Numbers that are read for each result of a tap, over the taps: a window of three reads each nine times.
READ = {"window": 1 / 9, "window.strided": 4 / 9, "pointwise": 1.0, "strided": 4.0}
FACTORED = ("vector.batch", "vector.layer", "vector.copy", "vector.elementwise", "vector.activation", "vector.pool",
            "vector.softmax", "matmul.forward", "depthwise.forward", "linear.forward", "attention.mutual")  # fmt: skip
# What has a table of its own, and the factor that it begins with.
FACTOR_OF = {"vector.elementwise.spread": "vector.elementwise", "depthwise.wide": "depthwise.forward"}
OFF_KERNEL = 0.2  # of hundreds of shapes, most of them of a few networks
KERNELS = 2  # of a convolution, as the engine's row has it, each of which moves what it reads and writes
GAP_S = 0.3e-6  # between two kernels of a graph: steps of eight traced networks over the sum of their kernels
# Seconds, and rates; beside each how far from it the data may draw it (a logarithm's deviation). Read from the traces
# of nvidia-h200-kernels-2026-11-18.jsonl.gz.
BOTH = {
    "copy_s": (1.8e-6, 0.2), "copy_rate": (2.6e12, 0.3), "weights_rate": (0.75e12, 0.3), "main_s": (5e-6, 0.3),
    "main_tap_s": (1e-9, 0.7), "main_rate": (550e12, 0.3), "lacking": (0.8, 0.3), "narrow": (32.0, 1.0),
    "product_s": (2.5e-6, 0.3), "product_tap_s": (1e-9, 0.7), "product_rate": (500e12, 0.3),
    "product_bytes": (4e12, 0.3), "odd_s": (4e-6, 0.4), "odd_tap_s": (8e-9, 0.5), "odd_rate": (180e12, 0.4),
    "first_s": (5e-6, 0.5), "first_each_s": (1.5e-12, 0.5), "first_rate": (20e12, 0.4), "patch_tap_s": (45e-9, 0.3),
    "patch_rate": (200e12, 0.5), "grouped_s": (8e-6, 0.4),
    "grouped_each_s": (3e-12, 0.5), "grouped_rate": (200e12, 0.6), "batch_s": (2.2e-6, 0.3),
    "wide_s": (9e-6, 0.3), "wide_rate": (9.5e12, 0.3), "spread_s": (1e-6, 0.3), "spread_rate": (2e12, 0.4),
    **dict.fromkeys(FACTORED, (1.0, 0.15)), "matmul.forward": (1.5, 0.3), "linear.forward": (1.0, 0.05),
}  # fmt: skip
NUMBERS = {
    "bf16": BOTH,
    "f32": BOTH | {
        "main_rate": (420e12, 0.3), "product_rate": (400e12, 0.3), "patch_rate": (30e12, 0.3),
        "odd_s": (6e-6, 0.4), "odd_rate": (150e12, 0.5),
        "batch_s": (0.1e-6, 0.3),
    },
}  # fmt: skip
TAPS = np.array([4, 9, 16, 27, 48, 75, 147, 288, PATCH, PATCH + 1, 1152, 2304, 4608, 9216, 18432.0])


@frozen
class Kind:
    """The ops of a network of one kind, an array each: how often, their kernels, seconds alone, and their shape."""

    counts: Any
    launches: Any
    alone_s: Any
    moved: Any
    operations: Any
    positions: Any
    taps: Any
    channels: Any
    aligned: Any


@frozen
class Network:
    step: StepPoint
    kernel_s: float
    step_s: float
    kinds: Mapping[str, Kind]

    def seconds(self, n: Mapping[str, float]) -> float:
        """Forms are of all kernels of an op; what is priced by a factor has its launches beside it."""
        return self.step_s + sum(
            float((kind.counts * seconds_of(name, kind, n, self.kernel_s, SIZES[self.step.dtype])).sum())
            for name, kind in self.kinds.items()
        )


def seconds_of(name: str, kind: Kind, n: Mapping[str, float], kernel_s: float, size: float) -> Any:
    if name in FORMS:
        return convolution_s(name, kind.positions, kind.taps, kind.channels, kind.aligned, n, size)
    launched_s = kernel_s * kind.launches
    if name == "depthwise.wide" and size < SIZES["f32"]:
        return launched_s + wide_s(kind.moved, kind.operations, n)
    bare_s = n.get(FACTOR_OF.get(name, name), 1.0) * (kind.alone_s - launched_s)
    return launched_s + bare_s + added_s(name, kind.moved, n)


def added_s(name: str, moved: Any, n: Mapping[str, float]) -> Any:
    """In bf16 a batch norm turns its numbers to f32 first; one number for a plane keeps vectors from being read."""
    if name == "vector.batch":
        return n["batch_s"]
    return n["spread_s"] + moved / n["spread_rate"] if name == "vector.elementwise.spread" else 0.0


def wide_s(moved: Any, operations: Any, n: Mapping[str, float]) -> Any:
    """Windows of seven are of networks whose channels come last, as their norms leave them: bf16 has a kernel."""
    return n["wide_s"] + np.maximum(moved / n["copy_rate"], operations / n["wide_rate"])


def convolution_s(  # noqa: PLR0913, PLR0917 - a shape
    form: str, positions: Any, taps: Any, channels: Any, aligned: Any, n: Mapping[str, float], size: float
) -> Any:
    operations, results, weights = 2.0 * positions * taps * channels, positions * channels, taps * channels
    if form == "first":
        first_s = n["first_s"] + n["first_each_s"] * results + operations / n["first_rate"]
        patches_s = n["product_s"] + n["patch_tap_s"] * taps + operations / n["patch_rate"]
        return np.where(taps > PATCH, patches_s, first_s)
    weights_s = n["copy_s"] + 2 * size * weights / n["weights_rate"]
    if form == "grouped":
        grouped_s = n["grouped_s"] + n["grouped_each_s"] * results + operations / n["grouped_rate"]
        return grouped_s + 2 * n["copy_s"] + 4 * size * results / n["copy_rate"] + weights_s
    waiting = (1 + n["narrow"] / channels) * np.maximum(1.0, TILES / results) ** n["lacking"]
    copies_s = 2 * n["copy_s"] + 2 * size * (READ[form] * positions * taps + results) / n["copy_rate"]
    main_s = n["main_s"] + n["main_tap_s"] * taps + operations / n["main_rate"] * waiting
    if form != "pointwise":
        return copies_s + main_s + (0.0 if form == "strided" else weights_s)
    moved = size * (positions * taps + results + weights)
    product_s = n["product_s"] + n["product_tap_s"] * taps + operations / n["product_rate"] * waiting
    odd_s = n["odd_s"] + n["odd_tap_s"] * taps + operations / n["odd_rate"] * waiting
    vector = 16 / size  # numbers that a kernel reads at once
    unaligned_s = copies_s + main_s if size < SIZES["f32"] else odd_s
    return np.where(aligned >= vector, product_s + moved / n["product_bytes"],
                    np.where(aligned > 1, odd_s, unaligned_s))  # fmt: skip


def kind_of(classes: tuple[str, ...]) -> str:
    names = {name.removeprefix("convolution.") for name in classes}
    form = next((name for name in FORMS if classes[-1] == "convolution" and name in names), None)
    return form or next((name for name in (*FACTOR_OF, *FACTORED) if name in classes), "other")


def rows_of(subject: CalibrationSubject, there: Calibration, step: StepPoint) -> Iterator[tuple[Any, str, list[float]]]:
    """Each distinct op of a network with its kind and the columns of one."""
    plan = plan_of(subject, step, there)
    sizes = step_sizes(step.passes(plan.prepared.effects), step.batch)
    priced, q = plan.step(sizes, "forward"), plan.prepared.quantities(sizes)
    binding, rates = plan.prepared.binding(sizes), plan.rates_in("forward")
    for number, row in enumerate(plan.prepared.rows):
        classes = class_path(row.op, "forward", plan.prepared.effects.attention)
        if row.op_class == "attention":
            classes = (next(name for name, members in rates.groups.items() if members[number]), "attention")
        shape = {name: float(np.ravel(size)[0]) for name, size in shape_in(row, binding, q, number).items()}
        yield row.op, kind_of(classes), [
            float(priced.counts[number]), float(np.ravel(rates.kernels)[number]),
            float(np.ravel(priced.priced.time_s[number])[0]), shape["bytes"],
            *(shape.get(name, 0.0) for name in ("flops", "positions", "taps", "channels", "aligned")),
        ]  # fmt: skip


def network_of(subject: CalibrationSubject, there: Calibration, step: StepPoint) -> Network:
    columns: dict[str, list[list[float]]] = {}
    for _, name, row in rows_of(subject, there, step):
        columns.setdefault(name, []).append(row)
    kinds = {name: Kind(**dict(zip(Kind.__annotations__, np.array(rows).T, strict=True)))
             for name, rows in columns.items()}  # fmt: skip
    overheads = there.overheads
    return Network(step=step, kernel_s=overheads["kernel"].value, step_s=overheads["step"].value, kinds=kinds)


def traced_kernels(
    subjects: Mapping[str, CalibrationSubject], calibrations: Mapping[str, Calibration], journal: Path
) -> dict[Any, float]:
    """Convolutions and batch norms of traced networks with the seconds of their kernels, which come in the ops' order.

    A convolution runs from one op of another kind to the next: networks in which nothing stands between two of them
    are left out, as is whatever does not come in the number of its ops.
    """
    found: dict[Any, list[float]] = {}
    for row in map(json.loads, gzip.decompress(journal.read_bytes()).splitlines()):
        if row.get("engine") != RUNTIME or "forward" not in row["trace"]["phases"]:
            continue
        dtype, names = row["precision"]["weights"], row["trace"]["names"]
        step = StepPoint(model=row["model"], phase="forward", dtype=dtype, batch=row["batch"], query=1, image=224,
                         seconds=1.0)  # fmt: skip
        if not is_of_images(step):
            continue
        ops = ordered(subjects[dtype], calibrations[dtype], step)
        runs: dict[str, list[float]] = {"product": [], "batch": []}
        last = None
        for index, microseconds in row["trace"]["phases"]["forward"]["kernels"]:
            kind = kernel_kind(names[index])
            if kind == "cast":  # of a batch norm's numbers, which stand before it
                runs["batch"].append(1e-6 * microseconds + GAP_S)
            elif kind is not None and (kind == last or (kind == "batch" and last == "cast")):
                runs[kind][-1] += 1e-6 * microseconds + GAP_S
            elif kind is not None:
                runs[kind].append(1e-6 * microseconds + GAP_S)
            last = kind
        for kind, taken in runs.items():
            members = [(name, columns) for base, name, columns in ops if base == kind]
            if len(members) != len(taken):
                print(f"{step.model} x {step.batch} {dtype}: {len(taken)} runs for {len(members)} of {kind}.")
                continue
            for (name, columns), seconds in zip(members, taken, strict=True):
                if name in FORMS or name == "vector.batch":
                    found.setdefault((dtype, name, *columns[1:]), []).append(seconds)
    return {shape: float(np.mean(seconds)) for shape, seconds in found.items()}


def ordered(
    subject: CalibrationSubject, there: Calibration, step: StepPoint
) -> list[tuple[str | None, str, list[float]]]:
    """The ops of a network in the order of execution: a product or a batch norm, its kind, the columns of one."""
    rows = list(rows_of(subject, there, step))
    entries = plan_of(subject, step, there).prepared.collected.entries
    ops = []
    for _, block in itertools.groupby(entries, key=lambda entry: entry.block):
        members = list(block)
        ops += members[0].count * [rows[entry.row] for entry in members]
    products = ("convolution", "linear", "matmul")
    return [("product" if op.kind in products else "batch" if name == "vector.batch" else None, name, columns)
            for op, name, columns in ops]  # fmt: skip


def kernel_kind(name: str) -> str | None:
    """What a kernel is of: a product with its copies, a batch norm, or none of both."""
    if "batch_norm" in name or "bn_fw" in name:
        return "batch"
    if "unrolled_elementwise_kernel<at::native::direct_copy" in name:
        return "cast"
    others = ("at::native", "softmax", "fmha", "Memcpy")
    return None if any(other in name for other in others) and "depthwise" not in name else "product"


def fitted_numbers(
    networks: Iterable[Network], kernels: Mapping[Any, float], dtype: str, near: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The numbers that steps and kernels draw the first ones to; `near` is where looking begins."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - only a fit needs it

    names, networks, size = list(NUMBERS[dtype]), list(networks), SIZES[dtype]
    kernel_s = networks[0].kernel_s
    begun = np.log([NUMBERS[dtype][name][0] for name in names])
    freedom = np.array([NUMBERS[dtype][name][1] for name in names])
    shapes: dict[str, list[Any]] = {}
    for (form, name, *shape), seconds in kernels.items():
        if form == dtype:
            shapes.setdefault(name, []).append((*shape, seconds))
    timed = {}
    for name, rows in shapes.items():
        *columns, seconds = np.array(rows).T
        timed[name] = Kind(**dict(zip(Kind.__annotations__, (np.ones(len(rows)), *columns), strict=True))), seconds

    def off(logs: Any) -> Any:
        n = dict(zip(names, np.exp(logs).tolist(), strict=True))
        errors = [np.log([each.seconds(n) / each.step.seconds for each in networks]) / OFF_STEP]
        for name, (kind, seconds) in timed.items():
            errors.append(np.log(seconds_of(name, kind, n, kernel_s, size) / seconds) / OFF_KERNEL)
        return np.concatenate([*errors, (logs - begun) / freedom])

    looked = begun if near is None else np.log([near[name] for name in names])
    found = least_squares(off, looked, ftol=1e-5, xtol=1e-5, max_nfev=40).x
    return dict(zip(names, np.exp(found).tolist(), strict=True))


def with_forwards(
    there: Calibration, gpu: Device, networks: list[Network], kernels: Mapping[Any, float]
) -> Calibration:
    """A calibration with its forwards fitted to these networks, and their residual from leaving each family out."""
    dtype, errors = there.dtype, []
    numbers = fitted_numbers(networks, kernels, dtype)
    for name in dict.fromkeys(family(each.step.model) for each in networks):
        rest = [each for each in networks if family(each.step.model) != name]
        others = fitted_numbers(rest, kernels, dtype, numbers)
        for each in (each for each in networks if family(each.step.model) == name):
            errors.append(np.log(each.step.seconds / each.seconds(others)))
            print(f"{each.step.model} x {each.step.batch}: {np.exp(-errors[-1]) - 1:+.1%}", flush=True)
    print(dtype, {name: float(f"{value:.3g}") for name, value in numbers.items()}, flush=True)
    made = tables(numbers, there, gpu)
    named = {each.op_class for each in made}
    before = there.factors.get("vector.forward", 1.0)
    factors = {name: numbers[name] * (before if name.startswith("vector") else 1.0) for name in FACTORED}
    models = {each.step.model for each in networks}
    return sealed(replace(
        there,
        tables=(*(each for each in there.tables if each.op_class not in named), *made),
        factors={**there.factors, **factors} | {"convolution.forward": 1.0} | dict.fromkeys(named, 1.0),
        valid={name: ranges for name, ranges in there.valid.items() if name not in named},
        residuals={
            **there.residuals, **{each.op_class: each.residual for each in made},
            "step.forward": residual_spread(np.array(errors)),
        },
        steps=there.steps + len(models.difference(there.fitted_on)),
        fitted_on=tuple(sorted(models.union(there.fitted_on))),
    ))  # fmt: skip


def tables(n: Mapping[str, float], there: Calibration, gpu: Device) -> list[Utilisation]:
    """The forms over grids of shapes, as shares of what a peak gives, beside the launches that a step counts."""
    dtype, kernel_s = there.dtype, there.overheads["kernel"].value
    floats, bandwidth = float(gpu.peaks[ARITHMETIC[dtype]]), device_rates(gpu, {dtype})["bandwidth:hbm"]
    made = []
    for form in FORMS:
        axes = {"positions": 4.0 ** np.arange(13), "taps": TAPS, "channels": 2.0 ** np.arange(2, 13)}
        axes |= {"aligned": np.array([1.0, 2.0, 4.0, 8.0])} if form == "pointwise" else {}
        positions, taps, channels, *last = np.meshgrid(*axes.values(), indexing="ij")
        floor_s = 2 * positions * taps * channels / floats
        taken_s = convolution_s(form, positions, taps, channels, last[0] if last else 0.0, n, SIZES[dtype])
        launched_s = kernel_s * (1 if form == "pointwise" else KERNELS)
        shares = floor_s / np.maximum(taken_s - launched_s, floor_s)
        made.append(table_of(f"convolution.{form}", ARITHMETIC[dtype], axes, shares))
    moved = np.geomspace(1e2, 1e11, 37)
    before = there.factors.get("vector.forward", 1.0)
    batch, elementwise = there.table("vector.batch"), there.table("vector.elementwise")
    if batch is not None:
        axes = dict(zip(batch.axes, map(np.array, batch.grid), strict=True))
        floor_s = np.meshgrid(*axes.values(), indexing="ij")[0] / bandwidth
        bare_s = floor_s / np.array(batch.values).reshape(floor_s.shape)
        taken_s = n["vector.batch"] * before * bare_s + n["batch_s"]
        made.append(table_of("vector.batch", "floor", axes, floor_s / taken_s))
    if elementwise is not None:
        shares = interpolate(elementwise, {"elements": moved / (2 * SIZES[dtype])})
        taken_s = n["vector.elementwise"] * before * moved / bandwidth / shares
        taken_s += added_s("vector.elementwise.spread", moved, n)
        made.append(table_of("vector.elementwise.spread", "floor", {"bytes": moved}, moved / bandwidth / taken_s))
    if dtype != "f32":
        operations = np.geomspace(1e3, 1e14, 34)
        floor_s = np.maximum(KERNELS * moved[:, None] / bandwidth, operations / floats)
        axes = {"bytes": moved, "flops": operations}
        made.append(table_of("depthwise.wide", "floor", axes, floor_s / wide_s(moved[:, None], operations, n)))
    return made


def with_forwards_of(eager: Calibration, before: Calibration, after: Calibration) -> Calibration:
    """Eager modules start the kernels that a graph replays, but for attention: what forwards in graphs told holds."""
    old = {each.op_class: each for each in before.tables}
    told = [each for each in after.tables if old.get(each.op_class) != each]
    named = {each.op_class for each in told}
    factors = {name: factor for name, factor in after.factors.items()
               if before.factors.get(name) != factor and not name.startswith("attention")}  # fmt: skip
    return sealed(replace(
        eager,
        tables=(*(each for each in eager.tables if each.op_class not in named), *told),
        factors={**eager.factors, **factors},
        valid={name: ranges for name, ranges in eager.valid.items() if name not in named},
        residuals={
            **eager.residuals, **{each.op_class: each.residual for each in told},
            "step.forward": after.residuals["step.forward"],
        },
    ))  # fmt: skip


def refit(args: argparse.Namespace) -> None:
    """The calibrations of captured graphs, as the journals of single kernels made them."""
    gpu, effects = device(args.device), require_effects(RUNTIME)
    before = {dtype: next(args.out.glob(f"{args.device}-{RUNTIME}-{dtype}-*.json")) for dtype in SIZES}
    calibrations = {dtype: read_calibration(path) for dtype, path in before.items()}
    subjects = {dtype: CalibrationSubject(device=gpu, runtime=effects, dtype=dtype, created=there.created)
                for dtype, there in calibrations.items()}  # fmt: skip
    kernels = traced_kernels(subjects, calibrations, args.kernels)
    for dtype, there in calibrations.items():
        steps = [*forward_steps(args.forwards, dtype, "graph"), *profiled_steps(args, dtype, RUNTIME)]
        networks = [network_of(subjects[dtype], there, step) for step in steps if is_of_images(step)]
        calibration = with_forwards(there, gpu, networks, kernels)
        launched = next(args.out.glob(f"{args.device}-{LAUNCHED}-{dtype}-*.json"))
        eager = with_forwards_of(read_calibration(launched), there, calibration)
        for path, made in ((before[dtype], calibration), (launched, eager)):
            path.unlink()
            write_calibration(made, args.out)
        print(f"{RUNTIME} {dtype}: forwards are off by {calibration.residuals['step.forward']:.3f}", flush=True)
