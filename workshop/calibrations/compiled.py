"""Whole forwards of compiled networks → tables of what a compiler writes: few numbers for each kind of kernel.

Ops of a compiled network cannot be timed one by one: a compiler gives a network its own layout (channels last), writes
a chain of element-wise ops as one kernel, and what is compiled alone copies its image there and back. So each kind of
kernel follows a form with a few numbers. They begin near what kernels of six traces take, and are drawn by whole steps:

    a convolution      a + b·taps + operations / rate · (tiles it lacks to fill the GPU)^c, and its weights' copy
    depthwise          a + b·taps + max(bytes / rate, operations / rate)
    a chain's first op a + bytes / rate, or its numbers that go through a series; the others of it bytes / rate
    a norm, a pool     a + bytes / rate

Products, grouped convolutions, patches and attention have the tables of captured graphs, times a factor. Networks with
a mask of texts are left to `gpu.py --paths`, and tokens stay as they are. The residual is of families left out.
"""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting import single as ops
from inferometer.measure.calibrate.fitting.base import unbounded
from inferometer.measure.calibrate.fitting.fit import residual_spread
from inferometer.measure.calibrate.fitting.points import StepPoint, device_rates
from inferometer.measure.calibrate.fitting.steps import alone_note
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, plan_of
from inferometer.predict.basis.files import read_calibration, sealed, write_calibration
from inferometer.predict.price.rates import shape_in
from inferometer.predict.price.utilisation import interpolate
from inferometer.predict.request import step_sizes
from inferometer.predict.work.classes import FUSED, class_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from inferometer.core.device import Device

RUNTIME = "torch-compile"
FAMILIES = ("shufflenet", "resnext", "resnet", "efficientnet", "mobilenet", "swin", "convnext", "squeezenet", "vgg")
IN_A_MODEL = 0.1  # what a kind of kernel is off by beside others, where whole steps do not say
SIZES = {"bf16": 2.0, "f32": 4.0}
ARITHMETIC = {"bf16": "bf16", "f32": "tf32"}  # of convolutions
TILES = 132 * 64 * 64  # numbers of a result that fill every multiprocessor of an H200 with a small tile
EVEN = 8  # channels that kernels of 16-bit numbers read at once; cuDNN pads what is not in eights
PATCH = 512  # taps of an image's patches: networks of little else than products stay in the layout that they are in
HALF_MORE = 3e5  # numbers of a result from which on a product takes half of what a large one takes more
LEAST_PADDED = 512  # positions: means of planes run as products of matrices, and are not padded

# Seconds, seconds a number, and rates; beside each how far from it whole steps may draw it (a logarithm's deviation).
# Where nothing else is said they are read from the traces of nvidia-h200-kernels-2026-11-18.jsonl.gz.
BOTH = {
    "chain_s": (0.75e-6, 0.15), "chain_more_s": (0.5e-6, 0.3), "chain_rate": (3.9e12, 0.15),
    "inner_rate": (3.9e12, 0.15), "series_s": (1.45e-12, 0.2), "norm_s": (1.6e-6, 0.3), "norm_rate": (3.3e12, 0.3),
    "window_s": (4e-6, 0.3), "window_tap_s": (0.5e-9, 0.6), "window_rate": (600e12, 0.25), "lacking": (0.8, 0.15),
    "narrow": (32.0, 1.0), "point_s": (1.6e-6, 0.25), "point_more_s": (1.2e-6, 0.3), "point_tap_s": (0.6e-9, 0.6),
    "point_rate": (550e12, 0.3), "point_bytes": (3.3e12, 0.3), "strided_s": (2.5e-6, 0.4), "padded_s": (6e-6, 0.4),
    "copy_s": (1e-6, 0.3), "copy_rate": (3e12, 0.3), "first_s": (12e-6, 0.5), "first_each_s": (0.18e-9, 0.3),
    "first_rate": (32e12, 0.3), "depthwise_s": (1.8e-6, 0.3), "depthwise_tap_s": (0.1e-6, 0.5),
    "depthwise_bytes": (3.2e12, 0.2), "depthwise_rate": (9.5e12, 0.2), "around_s": (1e-6, 0.7),
    "around_rate": (8e12, 0.7), "pool_s": (2e-6, 0.3), "pool_rate": (3.1e12, 0.3), "mean_s": (2.5e-6, 0.3),
    "mean_rate": (1.5e12, 0.4), "reduce": (1.0, 0.4), "linear": (1.0, 0.01), "mutual": (1.0, 0.3),
    "prefill": (1.0, 0.3), "matmul": (1.0, 0.5),
}  # fmt: skip
NUMBERS = {
    "bf16": BOTH,
    # Half the rate of products, and no trace has a window: theirs are guessed from bf16.
    "f32": BOTH | {
        "window_s": (4.5e-6, 0.4), "window_tap_s": (2e-9, 0.6), "window_rate": (300e12, 0.3),
        "point_more_s": (4e-6, 0.5), "point_tap_s": (2e-9, 0.6), "point_rate": (280e12, 0.3),
        "point_bytes": (3.4e12, 0.25),
        "linear": (1.0, 0.02), "first_each_s": (0.13e-9, 0.3), "first_rate": (60e12, 0.6),
        "depthwise_rate": (12e12, 0.4),
    },
}  # fmt: skip
# Single convolutions of the traces, without what copies their weights: form, positions, taps, channels, microseconds.
TIMED = {
    "bf16": (
        ("window", 12544, 1152, 128, 12.4), ("window", 3136, 2304, 256, 11.1), ("window", 784, 4608, 512, 13.2),
        ("window", 6272, 512, 256, 8.9), ("window", 1568, 1024, 512, 9.0), ("window", 392, 2048, 1024, 10.1),
        ("point", 12544, 64, 128, 3.6), ("point", 12544, 128, 256, 5.1), ("point", 12544, 64, 256, 4.1),
        ("point", 12544, 256, 128, 5.0), ("point", 12544, 256, 256, 5.7), ("point", 3136, 256, 512, 4.5),
        ("point", 3136, 512, 256, 4.4), ("point", 3136, 512, 512, 5.1), ("point", 784, 512, 1024, 4.35),
        ("point", 784, 1024, 512, 4.9), ("point", 784, 1024, 1024, 5.4), ("strided", 3136, 256, 512, 6.7),
        ("strided", 784, 512, 1024, 7.3), ("strided", 196, 1024, 2048, 7.5),
    ),
    "f32": (
        ("point", 50176, 24, 88, 11.7), ("point", 200704, 24, 88, 31.3), ("point", 50176, 88, 88, 17.6),
        ("point", 12544, 176, 176, 10.75), ("point", 50176, 176, 176, 28.1), ("point", 3136, 352, 352, 11.6),
        ("point", 12544, 352, 352, 19.4), ("point", 3136, 704, 1024, 19.6),
    ),
}  # fmt: skip
# Microseconds of all kernels of a kind in a traced network: what the compiler wrote, depthwise, and products.
TRACED = {
    ("torchvision:convnext_base", "bf16", 8, 1): {"written": 457, "depthwise": 564},
    ("torchvision:wide_resnet101_2", "bf16", 4, 1): {"written": 407},
    ("torchvision:shufflenet_v2_x1_5", "f32", 64, 1): {"written": 696, "depthwise": 185},
    ("torchvision:vit_b_32", "f32", 2, 1): {"written": 134},
    ("bert-base", "bf16", 128, 64): {"written": 680, "linear": 2114},
}
WRITTEN = ("chain", "inner", "norm", "pool", "mean", "reduce")
UNMEASURED = 0.3  # what steps are off by that nobody measured: as wide as predictions from published figures are
OFF_STEP, OFF_KERNEL, OFF_TRACE = 0.06, 0.15, 0.12  # what each kind of datum is believed to
FACTORS = {"grouped": "convolution.grouped", "reduce": "vector.reduce", "linear": "linear.forward",
           "prefill": "attention.prefill", "matmul": "matmul.forward"}  # fmt: skip
# Classes of forwards that keep the tables of captured graphs, which replay the same kernels.
CAPTURED = ("convolution.grouped", "vector.reduce", "attention.prefill")
FORM = {"convolution.first": "first", "convolution.window": "window", "convolution.pointwise": "point",
        "convolution.strided": "strided"}  # fmt: skip


@frozen
class Kind:
    """The ops of a network of one kind, an array each: how often they run, what they move and compute, their shape."""

    counts: Any
    launches: Any
    moved: Any
    operations: Any
    captured_s: Any  # in a captured graph, launches and all
    positions: Any
    taps: Any
    channels: Any
    uneven: Any
    series: Any  # numbers that go through a function that takes a series


@frozen
class Network:
    step: StepPoint
    kernel_s: float
    step_s: float
    kinds: Mapping[str, Kind]

    def times(self, numbers: Mapping[str, float]) -> dict[str, Any]:
        bare = {name: device_s(name, kind, numbers, self.kernel_s, self.step) for name, kind in self.kinds.items()}
        return {
            name: self.kinds[name].counts * (self.kernel_s * self.kinds[name].launches + bare[name]) for name in bare
        }

    def seconds(self, numbers: Mapping[str, float]) -> float:
        return self.step_s + sum(float(times.sum()) for times in self.times(numbers).values())


def kind_of(op: Any, classes: tuple[str, ...], *, launches: int) -> str | None:
    """What a row is priced as here; None for what is nothing, or as in a graph."""
    base = classes[-1]
    if base == "vector":
        named = {"pool": "pool", "reduce": "reduce"}.get(op.kind, "chain")
        return "inner" if not launches else "norm" if op.get("norm") in {"layer", "rms"} else named
    if base == "attention":
        way = classes[0].split(".")[1]
        return way if way in {"mutual", "prefill"} else None
    if base == "convolution":
        return next((FORM[name] for name in classes if name in FORM), None)
    return base if base in {"linear", "depthwise", "matmul"} else None


def device_s(name: str, kind: Kind, numbers: Mapping[str, float], kernel_s: float, step: StepPoint) -> Any:
    """Seconds of the ops of a kind beside their launches."""
    if name in {"window", "point", "strided", "first"}:
        taken = convolution_s(name, kind.positions, kind.taps, kind.channels, numbers, SIZES[step.dtype])
        taken += weights_copy_s(kind.taps * kind.channels, numbers, kernel_s, step.dtype) if name == "window" else 0.0
        return taken + padding_s(kind.uneven * (kind.positions > LEAST_PADDED), numbers, kernel_s, name, step.dtype)
    if name == "depthwise":
        return depthwise_s(kind.moved, kind.operations, numbers, SIZES[step.dtype])
    if name in {"chain", "norm", "inner", "pool", "mean"}:
        return vector_s(name, kind.moved, kind.series, numbers)
    bare_s = kind.captured_s - kernel_s * kind.launches
    if name == "mutual":
        return mutual_s(bare_s, kind.moved, numbers)
    return bare_s * numbers.get(name, 1.0)


def convolution_s(  # noqa: PLR0913, PLR0917 - a shape
    form: str, positions: Any, taps: Any, channels: Any, n: Mapping[str, float], size: float
) -> Any:
    """A product of [positions, taps] and [taps, channels]; narrow results and a lack of tiles leave units idle."""
    operations, results = 2.0 * positions * taps * channels, positions * channels
    if form == "first":  # few channels are padded to as many as are read at once
        first_s = n["first_s"] + n["first_each_s"] * positions + n["window_tap_s"] * taps
        return first_s + operations / n["first_rate"]
    kind = "window" if form == "window" else "point"
    waiting = (1 + n["narrow"] / channels) * np.maximum(1.0, TILES / results) ** n["lacking"]
    taken = n[f"{kind}_s"] + n[f"{kind}_tap_s"] * taps + operations / n[f"{kind}_rate"] * waiting
    if kind == "window":
        return taken
    moved = size * (positions * taps + results + taps * channels)
    more = n["point_more_s"] * results / (results + HALF_MORE) + moved / n["point_bytes"]
    return taken + more + (n["strided_s"] if form == "strided" else 0.0)


def weights_copy_s(weights: Any, n: Mapping[str, float], kernel_s: float, dtype: str) -> Any:
    """Weights of a window are written with their channels last at every step, in a kernel of their own."""
    return kernel_s + n["copy_s"] + 2 * SIZES[dtype] * weights / n["copy_rate"]


def padding_s(uneven: Any, n: Mapping[str, float], kernel_s: float, form: str, dtype: str) -> Any:
    """Two copies and two fills, of what is read and of the weights."""
    return uneven * (4 * kernel_s + n["padded_s"]) if dtype == "bf16" and form in {"point", "strided"} else 0.0


def depthwise_s(moved: Any, operations: Any, n: Mapping[str, float], size: float) -> Any:
    taps = size * operations / moved  # each number is read and written, two operations a tap
    streamed_s = np.maximum(moved / n["depthwise_bytes"], operations / n["depthwise_rate"])
    return n["depthwise_s"] + n["depthwise_tap_s"] * taps + streamed_s


def vector_s(kind: str, moved: Any, series: Any, n: Mapping[str, float]) -> Any:
    if kind == "inner":
        return moved / n["inner_rate"]
    if kind in {"norm", "pool", "mean"}:
        return n[f"{kind}_s"] + moved / n[f"{kind}_rate"]
    short_s = n["chain_s"] + n["chain_more_s"] * moved / (moved + 1e6)
    return short_s + np.maximum(moved / n["chain_rate"], series * n["series_s"])


def mutual_s(bare_s: Any, moved: Any, n: Mapping[str, float]) -> Any:
    """Kernels around it take queries, keys and values apart, and put the heads together."""
    return n["mutual"] * bare_s + n["around_s"] + moved / n["around_rate"]


def network_of(subject: CalibrationSubject, there: Calibration, captured: Calibration, step: StepPoint) -> Network:
    plan = plan_of(subject, step, captured)
    sizes = step_sizes(step.passes(plan.prepared.effects), step.batch)
    priced, q = plan.step(sizes, "forward"), plan.prepared.quantities(sizes)
    binding, rates = plan.prepared.binding(sizes), plan.rates_in("forward")
    columns: dict[str, list[list[float]]] = {}
    for number, row in enumerate(plan.prepared.rows):
        op, launches = row.op, float(np.ravel(rates.kernels)[number])  # those of joined tensors among them
        classes = class_path(op, "forward", plan.prepared.effects.attention, fused=row.fused.launches == 0)
        if row.op_class == "attention":
            classes = (next(name for name, members in rates.groups.items() if members[number]), "attention")
        shape = {name: float(np.ravel(size)[0]) for name, size in shape_in(row, binding, q, number).items()}
        name = kind_of(op, classes, launches=row.fused.launches) or "other"
        if name == "pool" and shape["out_features"] == 1:
            name = "mean"
        if name == "first" and shape["taps"] > PATCH:
            name = "patches"
        series = shape.get("elements", 0.0) * any("curved" in each for each in classes)
        uneven = float(shape.get("even", EVEN) < EVEN)
        columns.setdefault(name, []).append([
            float(priced.counts[number]), launches, shape["bytes"], shape["flops"],
            float(np.ravel(priced.priced.time_s[number])[0]), shape.get("positions", 0.0), shape.get("taps", 0.0),
            shape.get("channels", 0.0), uneven, series,
        ])  # fmt: skip
    kinds = {name: Kind(**dict(zip(Kind.__annotations__, np.array(rows).T, strict=True)))
             for name, rows in columns.items()}  # fmt: skip
    overheads = there.overheads
    return Network(step=step, kernel_s=overheads["kernel"].value, step_s=overheads["step"].value, kinds=kinds)


def fitted_numbers(
    networks: Iterable[Network], traced: Iterable[Network], dtype: str, near: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The numbers that steps, single kernels and traces draw the first ones to; `near` is where looking begins."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - only a fit needs it

    names, networks, traced = list(NUMBERS[dtype]), list(networks), list(traced)
    begun = np.log([NUMBERS[dtype][name][0] for name in names])
    freedom = np.array([NUMBERS[dtype][name][1] for name in names])

    def off(logs: Any) -> Any:
        numbers = dict(zip(names, np.exp(logs).tolist(), strict=True))
        errors = [np.log(each.seconds(numbers) / each.step.seconds) / OFF_STEP for each in networks]
        for form, positions, taps, channels, microseconds in TIMED[dtype]:
            found = convolution_s(form, float(positions), float(taps), float(channels), numbers, SIZES[dtype])
            errors.append(np.log(found / (1e-6 * microseconds)) / OFF_KERNEL)
        for each in traced:
            told = traced_s(each, numbers)
            errors += [np.log(told[name] / (1e-6 * microseconds)) / OFF_TRACE
                       for name, microseconds in TRACED[_case(each.step)].items()]  # fmt: skip
        return np.concatenate([errors, (logs - begun) / freedom])

    looked = begun if near is None else np.log([near[name] for name in names])
    found = least_squares(off, looked, ftol=1e-5, xtol=1e-5, max_nfev=40).x
    return dict(zip(names, np.exp(found).tolist(), strict=True))


def _case(step: StepPoint) -> tuple[str, str, int, int]:
    return step.model, step.dtype, step.batch, step.query


def traced_s(network: Network, numbers: Mapping[str, float]) -> dict[str, float]:
    """Seconds of the kernels of each kind that a trace tells apart, without their launches."""
    bare = {
        name: float((times - network.kernel_s * network.kinds[name].launches * network.kinds[name].counts).sum())
        for name, times in network.times(numbers).items()
    }
    written = sum(bare.get(name, 0.0) for name in WRITTEN)
    if "window" in network.kinds:
        windows = network.kinds["window"]
        copied_s = weights_copy_s(windows.taps * windows.channels, numbers, 0.0, network.step.dtype)
        written += float((copied_s * windows.counts).sum())
    return {**bare, "written": written}


def with_forwards(
    there: Calibration, captured: Calibration, gpu: Device, networks: list[Network], traced: list[Network]
) -> Calibration:
    """A calibration with its forwards fitted to these networks, and their residual from leaving each family out."""
    dtype, errors = there.dtype, []
    numbers = fitted_numbers(networks, traced, dtype)
    for name in dict.fromkeys(family(each.step.model) for each in networks):
        others = fitted_numbers([each for each in networks if family(each.step.model) != name], traced, dtype, numbers)
        for each in (each for each in networks if family(each.step.model) == name):
            errors.append(np.log(each.step.seconds / each.seconds(others)))
            print(f"{each.step.model} x {each.step.batch}: {np.exp(-errors[-1]) - 1:+.1%}", flush=True)
    print(dtype, {name: float(f"{value:.3g}") for name, value in numbers.items()}, flush=True)
    numbers["grouped"] = windows_over_captured(networks, numbers)
    bare = [each for each in there.tables if not _of_forwards(each.op_class)]
    kept = [each for each in captured.tables if each.op_class in CAPTURED]
    made = [*tables(numbers, there, captured, gpu), *kept]
    named = {each.op_class for each in made}
    factors = {name: value for name, value in there.factors.items() if not _of_forwards(name)}
    factors |= {name: numbers[kind] for kind, name in FACTORS.items()}
    factors |= {"convolution.forward": 1.0, "depthwise.forward": 1.0, "vector.forward": 1.0, "attention.mutual": 1.0}
    models = {each.step.model for each in networks}
    return sealed(replace(
        there,
        tables=(*(each for each in bare if each.op_class not in named), *made),
        factors=factors,
        valid={name: ranges for name, ranges in there.valid.items() if not _of_forwards(name)},
        residuals={
            **{name: value for name, value in there.residuals.items() if not _of_forwards(name)},
            **{each.op_class: each.residual for each in made},
            "step.forward": residual_spread(np.array(errors)),
        },
        steps=there.steps + len(models.difference(there.fitted_on)),
        fitted_on=tuple(sorted(models.union(there.fitted_on))),
    ))  # fmt: skip


def windows_over_captured(networks: Iterable[Network], numbers: Mapping[str, float]) -> float:
    """What windows take over the same in a captured graph: no network that was fitted to has grouped ones."""
    shares = []
    for each in networks:
        if "window" in each.kinds:
            kind = each.kinds["window"]
            shares.append(each.times(numbers)["window"].sum() / (kind.counts * kind.captured_s).sum())
    return float(np.median(shares))


def _of_forwards(name: str) -> bool:
    """Convolutions and forms of element-wise ops are of no prompt and no token."""
    base, _, form = name.partition(".")
    forwards = base in {"convolution", "depthwise"} or form in {"forward", "fused.forward"}
    return forwards or name == "attention.prefill" or (base == "vector" and form not in {"", "prefill", "decode"})


def family(model: str) -> str:
    return next((name for name in FAMILIES if name in model), model)


def tables(n: Mapping[str, float], there: Calibration, captured: Calibration, gpu: Device) -> list[Utilisation]:
    """The forms over grids of shapes, as shares of what a peak gives."""
    dtype, kernel_s = there.dtype, there.overheads["kernel"].value
    bandwidth = device_rates(gpu, {dtype})["bandwidth:hbm"]
    moved = np.geomspace(1e2, 1e11, 37)
    floats = float(gpu.peaks[ARITHMETIC[dtype]])
    patches = captured.table("convolution.first")
    made = [convolution_table(name, form, n, kernel_s, dtype, floats, patches)
            for name, form in FORM.items()]  # fmt: skip
    operations = np.geomspace(1e3, 1e14, 34)
    floor_s = np.maximum(moved[:, None] / bandwidth, operations / floats)
    taken = depthwise_s(moved[:, None], operations, n, SIZES[dtype])
    made.append(table_of("depthwise", "floor", {"bytes": moved, "flops": operations}, floor_s / taken))
    for name, kind in (("vector.forward", "chain"), (f"{FUSED}.forward", "inner"), ("vector.layer", "norm"),
                       ("vector.rms", "norm")):  # fmt: skip
        made.append(table_of(name, "hbm", {"bytes": moved}, moved / bandwidth / vector_s(kind, moved, 0.0, n)))
    pools = np.stack([vector_s(kind, moved, 0.0, n) for kind in ("mean", "pool", "pool")])  # of a whole plane, or less
    pooled = {"out_features": np.array([1, 2, 4096]), "bytes": moved}
    made.append(table_of("vector.pool", "hbm", pooled, moved / bandwidth / pools))
    elements = np.geomspace(1e2, 1e11, 37)
    curved = moved / bandwidth / vector_s("chain", moved, elements[:, None], n)
    made.append(table_of("vector.activation.curved", "hbm", {"elements": elements, "bytes": moved}, curved))
    mutual = captured.table("attention.mutual")
    if mutual is not None:
        made.append(mutual_table(mutual, n, there, gpu))
    for name in ("indexing", "matmul"):
        table = captured.table(name)
        made += [replace(table, op_class=f"{name}.forward")] if table is not None else []
    return made


def convolution_table(  # noqa: PLR0913, PLR0917 - as above
    name: str,
    form: str,
    n: Mapping[str, float],
    kernel_s: float,
    dtype: str,
    peak: float,
    patches: Utilisation | None,
) -> Utilisation:
    axes = {"positions": 4.0 ** np.arange(13), "taps": np.geomspace(4, 18432, 14), "channels": 2.0 ** np.arange(2, 13)}
    positions, taps, channels = np.meshgrid(*axes.values(), indexing="ij")
    taken = convolution_s(form, positions, taps, channels, n, SIZES[dtype])
    taken += weights_copy_s(taps * channels, n, kernel_s, dtype) if form == "window" else 0.0
    if form == "first" and patches is not None:
        taken = np.where(taps > PATCH, patches_s(patches, positions, taps, channels, peak), taken)
    if dtype == "bf16" and form in {"point", "strided"}:
        axes["even"] = np.array([EVEN / 2, EVEN])
        padded = taken + padding_s(positions > LEAST_PADDED, n, kernel_s, form, dtype)
        taken = np.stack([padded, taken], axis=-1)
        positions, taps, channels = (each[..., None] for each in (positions, taps, channels))
    return table_of(name, ARITHMETIC[dtype], axes, 2 * positions * taps * channels / peak / taken)


def patches_s(table: Utilisation, positions: Any, taps: Any, channels: Any, peak: float) -> Any:
    """Seconds in a captured graph, which replays the same kernel."""
    shape = {"positions": positions, "taps": taps, "channels": channels}
    flat = {name: np.ravel(values) for name, values in shape.items()}
    return 2 * positions * taps * channels / peak / interpolate(table, flat).reshape(positions.shape)


def mutual_table(mutual: Utilisation, n: Mapping[str, float], there: Calibration, gpu: Device) -> Utilisation:
    """Attention in which all meet all, with what runs around it."""
    floors = np.empty((*(len(points) for points in mutual.grid[:2]), 1))
    for at, (length, width) in enumerate(itertools.product(*mutual.grid[:2])):
        single = ops.padded(1, 1, int(width), query=int(length))
        work = ops.work_of_single(single, gpu, runtime=there.runtime, dtype=there.dtype)
        floors.ravel()[at] = work.floor_s / work.axes["flops"]
    query, _, flops = (np.array(each) for each in np.meshgrid(*mutual.grid, indexing="ij"))
    moved = SIZES[there.dtype] * flops / query  # four operations a number, and four numbers, of each score
    floor_s = flops * floors
    bare_s = floor_s / np.array(mutual.values).reshape(flops.shape)
    shares = np.minimum(1.0, floor_s / mutual_s(bare_s, moved, n))
    return replace(mutual, values=tuple(float(f"{share:.3g}") for share in shares.ravel()))


def table_of(name: str, stream: str, axes: Mapping[str, Any], shares: Any) -> Utilisation:
    return Utilisation(
        op_class=name, stream=stream, axes=tuple(axes),
        grid=tuple(tuple(map(float, points)) for points in axes.values()),
        values=tuple(float(f"{share:.4g}") for share in np.minimum(1.0, shares).ravel()), residual=IN_A_MODEL,
    )  # fmt: skip


def forward_steps(journal: Path, dtype: str, way: str = "compile-graph") -> list[StepPoint]:
    """Forwards that were replayed from graphs; networks whose graphs are not shipped are left out."""
    steps = []
    for row in map(json.loads, gzip.decompress(journal.read_bytes()).splitlines()):
        if (row.get("way"), row.get("phase"), row.get("dtype")) != (way, "forward", dtype):
            continue
        for name in (f"torchvision:{row['model']}", row["model"].replace("_", "-")):  # a transformer's is another there
            try:
                read(name)
            except InferometerError:
                continue
            sizes = {"batch": row["batch"], "query": row["query"], "image": row["image"]}
            steps.append(StepPoint(model=name, phase="forward", seconds=row["seconds"], dtype=dtype, **sizes))
            break
        else:
            print(f"{row['model']}: no graph of it is shipped.", flush=True)
    return steps


def profiled_steps(args: argparse.Namespace, dtype: str, runtime: str = RUNTIME) -> list[StepPoint]:
    """Forwards of images that were profiled, from rows of benchmarks/pairs.py: all of `profiles`, half of `halves`."""
    rows = [row for path in args.profiles for row in profiles(path)]
    rows += [row for path in args.halves for row in profiles(path) if row["case"] % 2 == 0]
    steps = []
    for row in rows:
        if row.get("engine") != runtime or "phases" not in row or "generate" in row or "prompt" in row:
            continue
        form = row["precision"]["weights"].replace("i64", "f32")  # a graph's own indices were named its weights
        if form == dtype:
            (taken,) = (phase["time_s"] for phase in row["phases"] if phase["name"] == "forward")
            steps.append(StepPoint(
                model=row["model"], phase="forward", dtype=dtype, batch=row.get("batch", 1), query=1,
                image=row.get("image", 224), seconds=taken,
            ))  # fmt: skip
    return steps


def profiles(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def is_of_images(step: StepPoint) -> bool:
    """Networks of which no graph is shipped, or none of that size, are told and left out."""
    try:
        graph = read(step.model, image=step.image) if step.image else None
    except InferometerError as error:
        print(f"left out: {error}", flush=True)
        return False
    return graph is not None and "query" not in graph.symbols


def captured_instead(graph: Calibration, timed: Calibration) -> Calibration:
    """What stands for a compiler whose kernels were not timed in this format: those that a captured graph replays.

    A kernel and a step take what they take in the format that was timed.
    """
    graph = unbounded(graph)
    residuals = {name: value for name, value in graph.residuals.items() if graph.table(name) is not None}
    residuals |= {"step.prefill": UNMEASURED, "step.decode": UNMEASURED}
    note = f"Ops in {graph.dtype} were timed in captured graphs; compiled networks say by how much they differ."
    return replace(
        graph, runtime=timed.runtime, overheads=timed.overheads, residuals=residuals, steps=0, fitted_on=(),
        notes=(*(said for said in graph.notes if said != alone_note("forward")), note),
    )  # fmt: skip


def refit(args: argparse.Namespace) -> None:
    """The compiled calibrations, each with the forwards of its format."""
    gpu, effects = device(args.device), require_effects(RUNTIME)
    for dtype in SIZES:
        before = list(args.out.glob(f"{args.device}-{RUNTIME}-{dtype}-*.json"))
        graph = read_calibration(next(args.out.glob(f"{args.device}-torch-graph-{dtype}-*.json")))
        timed = next(args.out.glob(f"{args.device}-{RUNTIME}-bf16-*.json"))  # no journal has another format
        there = read_calibration(before[-1]) if before else captured_instead(graph, read_calibration(timed))
        captured = replace(unbounded(graph), runtime=RUNTIME, overheads=there.overheads)
        subject = CalibrationSubject(device=gpu, runtime=effects, dtype=dtype, created=there.created)
        steps = [*forward_steps(args.forwards, dtype), *profiled_steps(args, dtype)]
        networks = [network_of(subject, there, captured, step) for step in steps if is_of_images(step)]
        cases = [case for case in TRACED if case[1] == dtype]
        traced = [network_of(subject, there, captured, StepPoint(
            model=model, phase="forward", dtype=dtype, batch=batch, query=query, image=224 if query == 1 else None,
            seconds=1.0,
        )) for model, _, batch, query in cases]  # fmt: skip
        calibration = with_forwards(there, captured, gpu, networks, traced)
        for path in before:
            path.unlink()
        write_calibration(calibration, args.out)
        print(f"{dtype}: forwards are off by {calibration.residuals['step.forward']:.3f}", flush=True)
