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
from inferometer.measure.calibrate.fitting.base import unbounded
from inferometer.measure.calibrate.fitting.fit import residual_spread
from inferometer.measure.calibrate.fitting.points import StepPoint, device_rates
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, plan_of
from inferometer.predict.basis.files import read_calibration, sealed, write_calibration
from inferometer.predict.price.rates import shape_in
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

RUNTIME = "torch-graph"
FORMS = ("first", "grouped", "window.strided", "window", "pointwise", "strided")
# Numbers that are read for each result of a tap, over the taps: a window of three reads each nine times.
READ = {"window": 1 / 9, "window.strided": 4 / 9, "pointwise": 1.0, "strided": 4.0}
FACTORED = ("vector.layer", "vector.copy", "vector.elementwise", "vector.activation", "vector.pool", "vector.softmax",
            "matmul.forward", "depthwise.forward", "linear.forward", "attention.mutual")  # fmt: skip
OFF_KERNEL = 0.2  # of hundreds of shapes, most of them of a few networks
GAP_S = 0.3e-6  # between two kernels of a graph: steps of eight traced networks over the sum of their kernels
# Seconds, and rates; beside each how far from it the data may draw it (a logarithm's deviation). Read from the traces
# of nvidia-h200-kernels-2026-11-18.jsonl.gz.
BOTH = {
    "copy_s": (1.8e-6, 0.2), "copy_rate": (2.6e12, 0.3), "weights_rate": (0.75e12, 0.3), "main_s": (5e-6, 0.3),
    "main_tap_s": (1e-9, 0.7), "main_rate": (550e12, 0.3), "lacking": (0.8, 0.3), "narrow": (32.0, 1.0),
    "product_s": (2.5e-6, 0.3), "product_tap_s": (1e-9, 0.7), "product_rate": (500e12, 0.3),
    "product_bytes": (4e12, 0.3), "odd_s": (4e-6, 0.4), "odd_tap_s": (8e-9, 0.5), "odd_rate": (180e12, 0.4),
    "first_s": (15e-6, 0.5), "first_each_s": (0.8e-9, 0.4), "first_rate": (60e12, 0.6), "patch_tap_s": (40e-9, 0.5),
    "patch_rate": (35e12, 0.5), "grouped_s": (8e-6, 0.4),
    "grouped_each_s": (3e-12, 0.5), "grouped_rate": (200e12, 0.6), "batch_s": (7e-6, 0.3), "batch_rate": (3e12, 0.3),
    **dict.fromkeys(FACTORED, (1.0, 0.15)), "matmul.forward": (1.5, 0.5), "linear.forward": (1.0, 0.05),
}  # fmt: skip
NUMBERS = {
    "bf16": BOTH,
    "f32": BOTH | {
        "main_rate": (280e12, 0.3), "product_rate": (250e12, 0.3), "odd_s": (6e-6, 0.4), "odd_rate": (150e12, 0.5),
        "batch_s": (1.8e-6, 0.3),
    },
}  # fmt: skip
IN_A_MODEL = 0.1


@frozen
class Kind:
    """The ops of a network of one kind, an array each: how often, their kernels, seconds alone, and their shape."""

    counts: Any
    launches: Any
    alone_s: Any
    moved: Any
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
    if name == "batch":
        return n["batch_s"] + kind.moved / n["batch_rate"]
    return kernel_s * kind.launches + n.get(name, 1.0) * (kind.alone_s - kernel_s * kind.launches)


def convolution_s(  # noqa: PLR0913, PLR0917 - a shape
    form: str, positions: Any, taps: Any, channels: Any, aligned: Any, n: Mapping[str, float], size: float
) -> Any:
    operations, results, weights = 2.0 * positions * taps * channels, positions * channels, taps * channels
    if form == "first":
        first_s = n["first_s"] + n["first_each_s"] * positions + operations / n["first_rate"]
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
    if form or "vector.batch" in classes:
        return form or "batch"
    return next((name for name in FACTORED if name in classes), "other")


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
            *(shape.get(name, 0.0) for name in ("positions", "taps", "channels", "aligned")),
        ]  # fmt: skip


def network_of(subject: CalibrationSubject, there: Calibration, step: StepPoint) -> Network:
    columns: dict[str, list[list[float]]] = {}
    for _, name, row in rows_of(subject, there, step):
        columns.setdefault(name, []).append(row)
    kinds = {name: Kind(**dict(zip(Kind.__annotations__, np.array(rows).T, strict=True)))
             for name, rows in columns.items()}  # fmt: skip
    overheads = there.overheads
    return Network(step=step, kernel_s=overheads["kernel"].value, step_s=overheads["step"].value, kinds=kinds)


def traced_kernels(subjects: Mapping[str, CalibrationSubject], calibrations: Mapping[str, Calibration], journal: Path):
    """Convolutions and batch norms of traced networks, and the seconds of their kernels: kernels come in the ops' order.

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
            elif kind is not None and kind == last or kind == "batch" and last == "cast":
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
                if name in FORMS or name == "batch":
                    found.setdefault((dtype, name, *columns[3:]), []).append(seconds)
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
    return [("product" if op.kind in products else "batch" if name == "batch" else None, name, columns)
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
    begun = np.log([NUMBERS[dtype][name][0] for name in names])
    freedom = np.array([NUMBERS[dtype][name][1] for name in names])
    shapes: dict[str, list[Any]] = {}
    for (form, name, *shape), seconds in kernels.items():
        if form == dtype:
            shapes.setdefault(name, []).append((*shape, seconds))
    columns = {name: np.array(rows).T for name, rows in shapes.items()}

    def off(logs: Any) -> Any:
        n = dict(zip(names, np.exp(logs).tolist(), strict=True))
        errors = [np.log([each.seconds(n) / each.step.seconds for each in networks]) / OFF_STEP]
        for name, (moved, *shape, seconds) in columns.items():
            told = n["batch_s"] + moved / n["batch_rate"] if name == "batch" else convolution_s(name, *shape, n, size)
            errors.append(np.log(told / seconds) / OFF_KERNEL)
        return np.concatenate([*errors, (logs - begun) / freedom])

    looked = begun if near is None else np.log([near[name] for name in names])
    found = least_squares(off, looked, ftol=1e-5, xtol=1e-5, max_nfev=40).x
    return dict(zip(names, np.exp(found).tolist(), strict=True))
