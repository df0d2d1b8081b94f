"""Raw journals of kernels and probe models → the calibrations that the package ships for a device.

    python -m workshop.calibrations.gpu workshop/recorded/nvidia-h200-journals-2026-11-16.tar.gz

The archive has a folder for each runtime and format, `torch-graph-bf16`, with the points and steps that
workshop/calibrations/journal.py measured. Of a kernel only its name and its seconds count: its class, shape and floor
are counted anew, so a journal outlives changes of the cost model. Matrix products are the same kernels in every
runtime, and eager modules run all kernels that a captured graph has, but for attention: they have those of torch-graph.

    … --products workshop/recorded/nvidia-h200-products-2026-11-18.jsonl.gz

takes the tables of matrix products from the lattice of workshop/calibrations/products.py instead. Its products were
timed where models have theirs, so whole steps move all other classes and not these.

With --keep-tables the tables of the calibrations that are there stay as they are, and only the whole steps are fitted
anew: seconds in place of minutes, after a change of how steps are fitted.

    python -m workshop.calibrations.gpu --forwards workshop/recorded/nvidia-h200-forwards-2026-11-17.jsonl.gz \\
        --profiles workshop/recorded/nvidia-h200-pairs-unseen-2026-11-17.jsonl.gz …

fits one thing alone: what compiled networks take that are replayed from a graph (workshop/calibrations/compiled.py).
The probes of the archive were launched kernel by kernel, so their forwards say what a host takes.

    python -m workshop.calibrations.gpu --paths workshop/recorded/nvidia-h200-paths-2026-11-17.jsonl.gz

corrects two classes by whole steps of workshop/calibrations/paths.py: attention of compiled decode steps by the cache
and its length (a kernel that is timed alone finds its cache where it left it), and attention of texts with a mask.
Compiled calibrations are given the speed of the host that their launches were timed on.

    python -m workshop.calibrations.gpu --mixtures workshop/recorded/nvidia-h200-pairs-judged-*.jsonl.gz

tells experts of prompts in graphs from profiles of mixtures. Before those of 19 November all tokens of random weights
chose few experts, so older ones and the probes of paths say less than a prompt of a trained model takes.

    python -m workshop.calibrations.gpu --tokens --profiles workshop/recorded/nvidia-h200-pairs-*.jsonl.gz --mixtures …

tells what a kernel of a decode step in graphs takes. Probes alone say a tenth too little: they have few layers, and
nothing beside them. --mixtures names those profiles whose experts count.

    python -m workshop.calibrations.gpu --profiles workshop/recorded/nvidia-h200-pairs-*.jsonl.gz

holds what compiled prompts and tokens are said to be off by to what they were off by in profiles of models that no
journal has. Profiles of forwards were fitted to.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import tarfile
import tempfile
from collections import Counter
from dataclasses import replace
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch  # noqa: TID251 - names the formats of the kernels

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Sourced
from inferometer.core.frozen import frozen
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting import single as ops
from inferometer.measure.calibrate.fitting.assemble import assemble_calibration, whole_steps
from inferometer.measure.calibrate.fitting.base import bounded, factors_of, steps_of_phase, unbounded
from inferometer.measure.calibrate.fitting.fit import residual_spread
from inferometer.measure.calibrate.fitting.points import (
    OpPoint,
    StepPoint,
    device_rates,
    measured_point,
    middle_steps,
    read_points,
    read_steps,
)
from inferometer.measure.calibrate.fitting.steps import (
    FREEDOM,
    StepBase,
    alone_note,
    whole_fit,
)
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, graph_of_step, plan_of
from inferometer.measure.calibrate.torch.kernels import Kernels
from inferometer.measure.calibrate.torch.timing import Clock
from inferometer.predict.ask import ask
from inferometer.predict.basis.files import SHIPPED, read_calibration, sealed, write_calibration
from inferometer.predict.price.rates import shape_in
from inferometer.predict.price.utilisation import interpolate
from inferometer.predict.request import step_sizes
from inferometer.predict.work.classes import BIASED
from inferometer.predict.work.rules.attention import SOFTMAX_FLOPS
from workshop.calibrations import captured, compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from inferometer.core.device import Device

PRODUCTS = ("linear", "experts")
BESIDE = ("overhead", "reading")  # what is no op
IN_A_MODEL = 0.1  # products of traced steps over the same on the lattice: 0.88 to 1.09
HELD, NO_FACTOR = 1e-3, 5e-3  # the freedom of a factor that stays at 1, and how far from it one is none
# What a profile reads of its host where it launches compiled prompts as fast as bare loops of the journals did. Hosts
# that nobody shares are read as 0.73 to 0.79 µs: there a kernel of the prompts of six models took 18 to 22 µs, of the
# journals 15. A call of a whole model also looks at what its compiler assumed of every module.
QUIET_HOST_S = 0.465e-6
STATED_HOST_S = 0.75e-6  # of the hosts that what is stated of a launch of eager modules was seen on: 0.72 to 0.83 µs
# What a kernel of an eager prompt takes the host over one of a token: a cache is made anew, masks are written, and the
# processor has run other code since the last prompt. Pairs of sixteen decoders: 1.0 to 1.5 times, ten of 1.1 to 1.2.
PROMPT_HOST = 1.13
PROMPT_HOST_NOTE = "1.13 times that of a token, by prompts of sixteen decoders"
LAUNCHED_NOTE = "by prompts of six models on hosts of 0.73 to 1.94 µs a call, 18 to 21 µs a kernel on the fastest"
ENOUGH = 10  # profiles of a phase, before what they are off by is believed
REPEATED = 1.2  # query heads a key head, from which keys are repeated: between none and the fewest, 1.5
REPEATED_S = 12e-6  # of a layer beside those bytes: probes alone say 17 to 24, models of one sequence 5 to 10
IN_CACHE = (12.5e6, 50e6)  # bytes that stay in an H200's last cache of 50 MB between two kernels: all of them, and none
PADDED, DECODE, MUTUAL = "attention.padded", "attention.decode", "attention.mutual"
# What a score takes by the width of its head, over one of 64: attention without a mask in the journal of products,
# of 128 and 512 tokens, 0.8 to 1.1 and 1.3 to 1.8.
SCORED = {32: 0.9, 64: 1.0, 128: 1.5}
SERIAL_WIDTHS, MULTIPROCESSORS = (64.0, 128.0, 256.0), 132
MASK_S = 32e-6  # eighteen kernels make a mask of a tokeniser's flags, once a step: traces of the same journal


def renewed(points: tuple[OpPoint, ...], kernels: Kernels) -> list[OpPoint]:
    """The points as today's cost model sees their ops; those of shapes that are measured no more are left out."""
    works = {}
    for candidate in kernels.candidates():
        case = kernels.case(candidate)
        work = ops.work_of_single(case.single, kernels.device, runtime=kernels.runtime, dtype=kernels.dtype)
        works[candidate.key] = (work, case.probe)
    fresh = [point for point in points if point.classes[0] in BESIDE]
    for point in points:
        if point.op in works:
            work, probe = works[point.op]
            again = measured_point(work, point.seconds, dtype=kernels.dtype, probe=probe)
            fresh.append(replace(again, rates=point.rates))
    return fresh


def profiled_texts(args: argparse.Namespace, runtime: str, dtype: str) -> Iterator[StepPoint]:
    """Prompts and tokens that were profiled in graphs, as the device ran them.

    Other engines have none: there a step waits for its host. Left out are phases of which the device ran little (their
    graph was not captured) and, but for `mixtures`, experts: older profiles chose few of them.
    """
    form = {"f16": "bf16"}  # products of both take alike
    if require_effects(runtime).execution != "captured":
        return
    for path in (*args.profiles, *args.mixtures):
        for row in compiled.profiles(path):
            if row.get("engine") != runtime or not {"phases", "prompt", "generate"} <= row.keys():
                continue
            weights = row["precision"]["weights"]
            if form.get(weights, weights) != dtype:
                continue
            for phase in row["phases"]:
                ran = sum(part["time_s"] for part in phase["parts"] if part["name"] == "run")
                if phase["name"] not in {"prefill", "decode"} or ran < phase["time_s"] / 2:
                    continue
                query, context = row["prompt"], 0
                if phase["name"] == "decode":
                    query, context = 1, row["prompt"] + row["generate"] // 2
                step = StepPoint(model=row["model"], phase=phase["name"], seconds=ran, dtype=dtype,
                                 batch=row.get("batch", 1), query=query, context=context)  # fmt: skip
                graph = graph_of_step(step)
                if path in args.mixtures or graph.active_parameters == graph.parameters:
                    yield step


def journal_points(folder: Path, runtime: str, dtype: str) -> tuple[OpPoint, ...]:
    points = read_points(folder / f"{runtime}-{dtype}" / "points.jsonl")
    other = folder / f"torch-graph-{dtype}" / "points.jsonl"
    if runtime == "torch-graph" or not other.exists():
        return points
    taken = [point for point in read_points(other) if _shared(point, runtime)]
    classes = {point.classes[-1] for point in taken}
    return (*(point for point in points if point.classes[-1] not in classes), *taken)


def _shared(point: OpPoint, runtime: str) -> bool:
    """A captured graph replays the kernels of eager modules, but for attention; a compiler writes all but products."""
    if require_effects(runtime).execution == "launched":
        return point.classes[-1] not in {"attention", *BESIDE}
    return point.classes[-1] in PRODUCTS


def with_steps(
    subject: CalibrationSubject, there: Calibration, steps: tuple[StepPoint, ...], replayed: Calibration | None = None
) -> Calibration:
    """A calibration with its tables as they are, and everything that comes from whole steps fitted anew.

    A host that launches kernel by kernel hides what they take together. They take it in a graph too: `replayed` is the
    calibration of those, and the fit starts from its factors, but for attention's, which runs other kernels there.
    """
    alone = {
        name.removeprefix("alone."): value.value for name, value in there.overheads.items() if name.startswith("alone.")
    }
    kept = {name: value for name, value in there.residuals.items() if not name.startswith("step") and name != "host"}
    said = {alone_note(phase) for phase in ("prefill", "decode", "forward")}
    notes = tuple(note for note in there.notes if note not in said)
    bare = unbounded(replace(there, steps=0, fitted_on=(), notes=notes))
    bare = replace(bare, residuals={name: kept[name] for name in kept if bare.table(name) is not None})
    base = None
    if replayed is not None:
        found = {name: value for name, value in factors_of(replayed).items() if not name.startswith("attention")}
        whole = {name: value for name, value in replayed.residuals.items() if name.startswith("step")}
        base = StepBase(factors=found, residuals=whole, steps=steps_of_phase(replayed), alone=alone)
    fitted = whole_fit(whole_steps(subject, bare, middle_steps(steps)), alone, base)
    if base is not None:
        fitted = replace(fitted, left=())  # they are predicted from what they take in a graph
    moved = {name: factor for name, factor in fitted.factors.items() if abs(log(factor)) > NO_FACTOR}
    applied = replace(fitted, factors=moved).applied_to(bare, source=subject.source, date=subject.created[:10])
    return sealed(bounded(applied))


def with_products(there: Calibration, gpu: Device, journal: Path) -> Calibration:
    """A calibration whose tables of products are the lattice of a journal, and no factor of these."""
    lines = [json.loads(line) for line in gzip.decompress(journal.read_bytes()).splitlines()[1:]]
    lattices = {
        name: lattice(name, there.dtype, gpu, there.overheads["alone.kernel"].value, [
            line for line in lines
            if line["op"] == "linear" and line["dtype"] == there.dtype and line["bias"] == (name == BIASED)
        ])
        for name in ("linear", BIASED)
    }  # fmt: skip
    old = {name for name in (*there.residuals, *there.valid, *there.factors) if name.partition(".")[0] == "linear"}

    def others(named: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in named.items() if name not in old}

    ranges = {name: dict(zip(each.axes, ((points[0], points[-1]) for points in each.grid), strict=True))
              for name, each in lattices.items()}  # fmt: skip
    return replace(
        there,
        tables=(*(each for each in there.tables if each.op_class.partition(".")[0] != "linear"), *lattices.values()),
        residuals={**others(there.residuals), **{name: each.residual for name, each in lattices.items()}},
        valid={**others(there.valid), **ranges},
        factors=others(there.factors),
        points=there.points + sum(len(each.values) for each in lattices.values()),
    )


def lattice(name: str, dtype: str, gpu: Device, kernel_s: float, lines: list[dict[str, Any]]) -> Utilisation:
    """Shares of the floor over rows, inputs and outputs; products too long to be timed are as near to it as the next.

    The residual is what a product is off by that lies between two widths: each inner one is left out in turn. Beside
    other kernels none is as near to itself as that.
    """
    rows = sorted({count for line in lines for count in line["rows"]})
    wide, out = (sorted({line[side] for line in lines}) for side in ("in", "out"))
    logs = np.full((len(rows), len(wide), len(out)), np.nan)
    peak, size = float(gpu.peaks[dtype]), np.dtype({"bf16": "f2"}.get(dtype, "f4")).itemsize
    bandwidth = device_rates(gpu, {dtype})["bandwidth:hbm"]
    for line in lines:
        inputs, outputs = line["in"], line["out"]
        for count, seconds in zip(line["rows"], line["seconds"], strict=True):
            if seconds is not None:
                moved = size * (inputs * outputs + count * (inputs + outputs))
                floor_s = max(2.0 * count * inputs * outputs / peak, moved / bandwidth)
                share = floor_s / max(seconds - kernel_s, floor_s)
                logs[rows.index(count), wide.index(inputs), out.index(outputs)] = log(share)
    for axis in (0, 1, 2):  # what is missing is long: more rows or wider than a reading takes, or a head for many rows
        logs = np.moveaxis(logs, axis, 0)
        for index in range(1, len(logs)):
            logs[index] = np.where(np.isnan(logs[index]), logs[index - 1], logs[index])
        for index in range(len(logs) - 2, -1, -1):
            logs[index] = np.where(np.isnan(logs[index]), logs[index + 1], logs[index])
        logs = np.moveaxis(logs, 0, axis)
    errors = [between(logs, np.log(points), axis) for axis, points in ((1, wide), (2, out))]
    return Utilisation(
        op_class=name,
        stream="floor",
        axes=("rows", "in_features", "out_features"),
        grid=(tuple(map(float, rows)), tuple(map(float, wide)), tuple(map(float, out))),
        values=tuple(float(f"{share:.3g}") for share in np.exp(logs).ravel()),
        residual=max(IN_A_MODEL, float(f"{residual_spread(np.concatenate(errors)):.3g}")),
    )


def between(logs: Any, points: Any, axis: int) -> Any:
    """How far each inner width is from the line between its neighbours."""
    moved = np.moveaxis(logs, axis, 0)
    share = ((points[1:-1] - points[:-2]) / (points[2:] - points[:-2])).reshape(-1, 1, 1)
    return (moved[1:-1] - (1 - share) * moved[:-2] - share * moved[2:]).ravel()


def with_stated_host(calibration: Calibration, stated: Sourced | None) -> Calibration:
    """The calibration with what the engine's own row says of a launch, in place of what it took in whole steps.

    The host of these journals was shared: a launch of the same layers took 15 to 31 µs, by the minute, and 20 % more in
    f32 than in bf16, which no host tells apart.
    """
    if stated is None:
        return calibration
    prompt = replace(stated, value=PROMPT_HOST * stated.value, note=PROMPT_HOST_NOTE)
    return sealed(replace(calibration, overheads={**calibration.overheads, "host": stated, "host.prefill": prompt}))


@frozen
class Inside:
    """A step's seconds as it was measured, of one class as it is priced, and of all else."""

    step: StepPoint
    class_s: float
    others_s: float
    places: tuple[float, ...] = ()  # logarithms of the sizes that the class is told by

    @property
    def times(self) -> float:
        """What the class took over its price; no less than a fifth, where all else is nearly the whole step."""
        return max((self.step.seconds - self.others_s) / self.class_s, 0.2)

    def off(self, times: float) -> float:
        return log(self.step.seconds / (self.others_s + times * self.class_s))


def inside(
    subject: CalibrationSubject, calibration: Calibration, step: StepPoint, op_class: str, axes: tuple[str, ...] = ()
) -> Inside:
    """A step that is replayed from a graph, with one class apart."""
    unhosted = {**calibration.overheads, "host": subject.sourced(1e-12)}
    plan = plan_of(subject, step, replace(calibration, overheads=unhosted))
    sizes = step_sizes(step.passes(plan.prepared.effects), step.batch)
    priced = plan.step(sizes, step.phase)
    quantities, binding = plan.prepared.quantities(sizes), plan.prepared.binding(sizes)
    rows = [number for number, row in enumerate(plan.prepared.rows) if row.op_class == op_class]
    own = sum(float(priced.counts[number] * priced.priced.time_s[number].sum()) for number in rows)
    shape = shape_in(plan.prepared.rows[rows[0]], binding, quantities, rows[0])
    places = tuple(log(float(np.ravel(shape[axis])[0])) for axis in axes)
    return Inside(step=step, class_s=own, others_s=float(priced.total("time_s").sum()) - own, places=places)


def surface(steps: list[Inside]) -> Callable[[Any, Any], Any]:
    """What a class takes over its price, as a logarithm: quadratic in two places, held outside of what was measured.

    It is never below its price: probes take less of many short contexts, and real models do not.
    """
    places = np.array([step.places for step in steps])
    low, high = places.min(axis=0), places.max(axis=0)

    def columns(*given: Any) -> Any:
        x, y = (np.clip(each, low[at], high[at]) - (low[at] + high[at]) / 2 for at, each in enumerate(given))
        return np.stack([np.ones_like(x), x / 3, y / 3, x * y / 9, x * x / 9, y * y / 9], axis=-1)

    weights = np.array([step.class_s / (step.class_s + step.others_s) for step in steps])
    wanted = np.log([step.times for step in steps])
    left = columns(places[:, 0], places[:, 1]) * weights[:, None]
    drawn = 0.1 * np.eye(left.shape[1])  # to no correction, as if a step of little attention had shown none
    right = np.concatenate([wanted * weights, np.zeros(len(drawn))])
    found = np.linalg.lstsq(np.vstack([left, drawn]), right, rcond=None)[0]
    return lambda x, y: np.maximum(0.0, columns(x, y) @ found)


def with_decode_steps(subject: CalibrationSubject, there: Calibration, steps: list[StepPoint]) -> Calibration:
    """Attention's table of decode steps, corrected by whole steps; the residual with each model left out."""
    table = there.table(DECODE)
    if table is None:
        raise SystemExit(f"{there.runtime} {there.dtype} has no table of {DECODE}.")
    told = [inside(subject, there, step, "attention", table.axes) for step in steps]
    errors = []
    for model in dict.fromkeys(step.model for step in steps):
        others = surface([each for each in told if each.step.model != model])
        errors += [each.off(float(np.exp(others(*each.places)))) for each in told if each.step.model == model]
    before = [each.off(1.0) for each in told]
    print(f"{there.runtime} decode: off by {residual_spread(np.array(before)):.3f} before, "
          f"{residual_spread(np.array(errors)):.3f} now, left out", flush=True)  # fmt: skip
    x, y = np.meshgrid(*(np.log(points) for points in table.grid), indexing="ij")
    shares = np.array(table.values).reshape(x.shape) / np.exp(surface(told)(x, y))
    renewed_table = replace(table, values=tuple(np.minimum(1.0, shares).ravel().tolist()))
    return replace(
        there,
        tables=tuple(renewed_table if each is table else each for each in there.tables),
        residuals={**there.residuals, "step.decode": residual_spread(np.array(errors))},
        steps=there.steps + len(steps),
    )


def with_repeated_decode(subject: CalibrationSubject, there: Calibration, steps: list[StepPoint]) -> Calibration:
    """Attention's table of decode steps in graphs where keys are repeated, from whole steps; by itself it stays.

    A static cache is written once for each query head, and read there: so much for each byte of it, whatever number of
    heads shares one. As a share of reads of the cache it was 15 % too little for six and 30 % too much for two. What
    stays in the last cache until it is read keeps its table, which real models of short contexts agree with.
    """
    table, moves = there.table(DECODE), subject.runtime.repeat_moves
    if table is None or moves is None:
        raise SystemExit(f"{there.runtime} {there.dtype} has no table of {DECODE}, or repeats no keys.")
    bandwidth, factor = device_rates(subject.device, {there.dtype})["bandwidth:hbm"], there.factors.get(DECODE, 1.0)

    def floor_s(kv_bytes: Any, heads: Any) -> Any:
        return kv_bytes * (1 + moves.value * heads) / bandwidth

    told = [inside(subject, there, step, "attention", table.axes) for step in steps]
    layers = np.array([step.config["num_hidden_layers"] for step in steps])
    kv_bytes, flops = np.exp(np.array([each.places for each in told])).T
    shared, seconds = flops / kv_bytes, np.array([step.seconds for step in steps])
    shares = interpolate(table, dict(zip(table.axes, (kv_bytes, flops), strict=True)))
    whole = np.array([each.others_s + each.class_s for each in told])
    beside = whole - layers * (factor * floor_s(kv_bytes, shared) / shares - REPEATED_S)
    copied = layers * kv_bytes * shared
    repeated = (shared > REPEATED) & (kv_bytes * shared > IN_CACHE[1])

    def byte_s(known: Any) -> float:
        return float(np.median(((seconds - beside) / copied)[known]))

    models, errors = np.array([step.model for step in steps]), []
    for model in dict.fromkeys(models[repeated]):
        own, found = repeated & (models == model), byte_s(repeated & (models != model))
        errors += list(np.log(seconds / (beside + found * copied))[own])
    before = [each.off(1.0) for each, one in zip(told, repeated, strict=True) if one]
    found, spread = byte_s(repeated), residual_spread(np.array(errors))
    print(f"{there.runtime} decode, repeated keys: {found:.3g} s a byte, off by "
          f"{residual_spread(np.array(before)):.3f} before, {spread:.3f} now, left out", flush=True)  # fmt: skip
    grid = (np.geomspace(2.0**14, 2.0**34, 41), np.geomspace(2.0**14, 2.0**39, 51))
    x, y = np.meshgrid(*grid, indexing="ij")
    heads = np.maximum(1.0, y / x)
    kept = interpolate(table, {"kv_bytes": x.ravel(), "flops": y.ravel()}).reshape(x.shape)
    made = factor * floor_s(x, heads) / (REPEATED_S + found * x * heads)
    low, high = np.log(IN_CACHE)
    away = np.where(heads > REPEATED, np.clip((np.log(x * heads) - low) / (high - low), 0.0, 1.0), 0.0)
    values = np.exp(away * np.log(np.minimum(1.0, made)) + (1 - away) * np.log(kept))
    renewed_table = replace(
        table, grid=tuple(tuple(map(float, points)) for points in grid), residual=max(spread, IN_A_MODEL),
        values=tuple(float(f"{share:.4g}") for share in values.ravel()),
    )  # fmt: skip
    return replace(
        there,
        tables=tuple(renewed_table if each is table else each for each in there.tables),
        residuals={**there.residuals, DECODE: renewed_table.residual},
    )


def with_serial_decode(there: Calibration, gpu: Device, points: list[OpPoint]) -> Calibration:
    """Attention's tables of decode steps in f32, for which no flash kernel splits the keys of a head.

    One block of threads reads them one after the other, 0.12 µs each, beside those of the other heads on 132
    multiprocessors; keys that are repeated are copied first, at a share of the bandwidth. As a table over bytes and
    operations it was off by half in the middle: heads of 64 a third too fast, of 256 twice too slow.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415 - only a fit needs it

    told = [point for point in points if DECODE in point.classes]
    names = ("keys", "head_dim", "sequences", "heads", "kv_heads", "kv_bytes")
    keys, widths, sequences, heads, kv_heads, kv_bytes = np.array([[p.axes[name] for name in names] for p in told]).T
    measured, probes = np.array([point.seconds for point in told]), np.array([point.probe for point in told])
    moves = require_effects(there.runtime).repeat_moves
    bandwidth = device_rates(gpu, {there.dtype})["bandwidth:hbm"]
    shared = np.where(heads > kv_heads, 1 + (moves.value if moves else 0.0) * heads / kv_heads, 1.0)

    def taken(logs: Any, chosen: Any) -> Any:
        base_s, *key_s, share = np.exp(logs)
        serial = serial_s(keys, widths, sequences * heads, base_s, key_s)
        return np.log(np.maximum(serial, base_s + kv_bytes * shared / bandwidth / share) / measured)[chosen]

    begun = np.log([20e-6, *(0.12e-6 for _ in SERIAL_WIDTHS), 0.5])
    found, errors = least_squares(taken, begun, loss="soft_l1", f_scale=0.1, args=(measured > 0,)).x, []
    for probe in dict.fromkeys(probes):
        others = least_squares(taken, begun, loss="soft_l1", f_scale=0.1, args=(probes != probe,)).x
        errors += taken(others, probes == probe).tolist()
    spread = residual_spread(np.array(errors))
    base_s, *key_s, share = np.exp(found).tolist()
    print(f"{DECODE}: {base_s:.3g} s, a key {key_s}, copies at {share:.2f}, left out {spread:.3f}", flush=True)
    launched_s = there.overheads["kernel"].value * told[0].launches
    grid = (np.geomspace(16, 65536, 25), np.array(SERIAL_WIDTHS), np.geomspace(1e4, 1e12, 33))
    x, d, flops = np.meshgrid(*grid, indexing="ij")
    seconds = serial_s(x, d, np.maximum(1.0, flops / (x * (4 * d + SOFTMAX_FLOPS))), base_s, key_s) - launched_s
    values = np.minimum(1.0, flops / float(gpu.peaks[there.dtype]) / np.maximum(seconds, 1e-6))
    made = (
        Utilisation(op_class=DECODE, stream=there.dtype, axes=("keys", "head_dim", "flops"), residual=spread,
                    grid=tuple(tuple(map(float, nodes)) for nodes in grid),
                    values=tuple(float(f"{value:.4g}") for value in values.ravel())),
        Utilisation(op_class=DECODE, stream="hbm", axes=("kv_bytes",), grid=((1e3, 1e12),), values=(share, share),
                    residual=spread),
    )  # fmt: skip
    return replace(
        there,
        tables=(*(table for table in there.tables if table.op_class != DECODE), *made),
        residuals={**there.residuals, DECODE: spread},
    )


def serial_s(keys: Any, widths: Any, heads: Any, base_s: float, key_s: list[float]) -> Any:
    each = np.exp(np.interp(np.log(widths), np.log(SERIAL_WIDTHS), np.log(key_s)))
    return base_s + keys * each * np.maximum(1.0, heads / MULTIPROCESSORS)


def refit_mixtures(args: argparse.Namespace) -> None:
    """Experts of prompts in graphs: one factor, which leaves whole prompts off by the least, a model as much as others.

    Each model is told once more by what the others say, which is how far off a mixture is that was not measured.
    """
    before = next(args.out.glob(f"{args.device}-torch-graph-bf16-*.json"))
    there, told = read_calibration(before), [*mixed_prompts(args)]
    models = dict.fromkeys(each.step.model for each in told)
    off = [each.off(fitting_times([other for other in told if other.step.model != model]))
           for model in models for each in told if each.step.model == model]  # fmt: skip
    times, spread = fitting_times(told), residual_spread(np.array(off))
    print(f"experts.prefill: {times:.3f} times its price, {len(told)} prompts left out off by {spread:.3f}", flush=True)
    factors = {**there.factors, "experts.prefill": times * there.factors.get("experts.prefill", 1.0)}
    residuals = {**there.residuals, "step.prefill.experts": spread}
    before.unlink()
    write_calibration(sealed(replace(there, factors=factors, residuals=residuals)), args.out)


def mixed_prompts(args: argparse.Namespace) -> Iterator[Inside]:
    for row, answer in profiles_of(args.mixtures, args.device, "torch-graph"):
        priced = answer.phase("prefill")
        measured = next((each["time_s"] for each in row["phases"] if each["name"] == "prefill"), None)
        own = 0.0 if priced is None else sum(op.time_s for op in priced.ops if op.kind == "moe_experts")
        if own and measured and row["precision"]["weights"] == "bf16":
            step = StepPoint(model=row["model"], phase="prefill", dtype="bf16", seconds=measured, query=row["prompt"])
            yield Inside(step=step, class_s=own, others_s=priced.time_s - own)


def fitting_times(told: list[Inside], power: int = 2) -> float:
    count = Counter(each.step.model for each in told)
    tried = np.exp(np.linspace(log(0.2), log(5.0), 600))
    squares = [sum(abs(each.off(times)) ** power / count[each.step.model] for each in told) for times in tried]
    return float(tried[int(np.argmin(squares))])


def refit_tokens(args: argparse.Namespace) -> None:
    """What a kernel takes in decode steps in graphs: one number, that halves them: few models are far off.

    The same kernel's time in prompts and forwards stays: those were fitted beside it.
    """
    before = next(args.out.glob(f"{args.device}-torch-graph-bf16-*.json"))
    there = read_calibration(before)
    subject = CalibrationSubject(
        device=device(args.device), runtime=require_effects(there.runtime), dtype="bf16", created=there.created
    )
    told = [kernels_inside(subject, there, step) for step in profiled_texts(args, there.runtime, "bf16")
            if step.phase == "decode"]  # fmt: skip
    off: dict[tuple[Any, ...], float] = {}
    for model in dict.fromkeys(each.step.model for each in told):
        others = fitting_times([each for each in told if each.step.model != model], power=1)
        off |= {each.step.key: each.off(others) for each in told if each.step.model == model}
    times, kernel = fitting_times(told, power=1), there.overheads["kernel"]
    spread = residual_spread(np.array(list(off.values())))
    print(f"kernel.decode: {times:.3f} times {kernel.value:.3g} s, {len(told)} steps left out off by {spread:.3f}")
    overheads = {**there.overheads, "kernel.decode": replace(kernel, value=times * kernel.value)}
    before.unlink()
    write_calibration(sealed(replace(there, overheads=overheads)), args.out)


def kernels_inside(subject: CalibrationSubject, there: Calibration, step: StepPoint) -> Inside:
    """A step as the device runs it, without the loop around it, with what its kernels take apart."""
    plan = plan_of(subject, step, there)
    priced = plan.step(step_sizes(step.passes(plan.prepared.effects), step.batch), step.phase)
    launches = float((priced.counts * priced.rates.kernels[:, 0]).sum())
    own, loop_s = plan.overheads.kernel_in(step.phase), plan.pace(step.phase).step_s - there.overheads["step"].value
    kernels_s = launches * (0.0 if own is None else own.value)
    return Inside(step=step, class_s=kernels_s, others_s=float(priced.total("time_s").sum()) - loop_s - kernels_s)


def with_texts(subject: CalibrationSubject, there: Calibration, steps: list[StepPoint]) -> Calibration:
    """Attention with a mask over texts, from whole steps of encoders: a table of what their other ops leave of them.

    A layer's takes what its kernels take at any size, what each number of queries, keys, values and results takes, and
    what each score takes.
    """
    told = [inside(subject, there, step, "attention") for step in steps]
    if subject.runtime.execution == "captured":  # probes have four layers: what is done once is not a layer's
        told = [replace(each, others_s=each.others_s + MASK_S) for each in told]
    errors = []
    for model in dict.fromkeys(step.model for step in steps):
        found = text_terms([each for each in told if each.step.model != model])
        errors += [log(each.step.seconds / (each.others_s + float(text_columns(each.step) @ found)))
                   for each in told if each.step.model == model]  # fmt: skip
    off, terms = residual_spread(np.array(errors)), text_terms(told)
    print(f"{there.runtime} {there.dtype} {PADDED}: {terms} s, left out off by {off:.3f}", flush=True)
    kernel_s, lengths = there.overheads["kernel"].value, (32, 64, 128, 256, 512, 1024, 2048, 4096)
    flops, values = np.geomspace(1e5, 1e13, 25), []  # three a factor of ten, from a head of a short text
    for length in lengths:
        for head_dim, times in SCORED.items():
            single = ops.padded(1, 1, head_dim, query=length)
            work = ops.work_of_single(single, subject.device, runtime=there.runtime, dtype=there.dtype)
            heads = flops / work.axes["flops"]
            taken = terms[0] + heads * length * (terms[1] * head_dim + times * terms[2] * length)
            floor_s = heads * work.floor_s
            values += [
                float(f"{share:.3g}") for share in floor_s / np.maximum(taken - kernel_s * work.launches, floor_s)
            ]
    table = Utilisation(
        op_class=PADDED,
        stream="floor",
        axes=("query", "head_dim", "flops"),
        grid=(tuple(map(float, lengths)), tuple(map(float, SCORED)), tuple(flops.tolist())),
        values=tuple(values),
        residual=max(IN_A_MODEL, off),
    )
    valid = {"query": (64.0, 512.0), "head_dim": (32.0, 128.0), "flops": (float(flops[0]), float(flops[-1]))}
    return replace(
        there,
        tables=(*there.tables, table),
        residuals={**there.residuals, PADDED: table.residual},
        valid={**there.valid, PADDED: valid},
    )


def text_columns(step: StepPoint) -> Any:
    """What the attention of all layers of a step takes, by term: each layer, a number of each head, a score of each."""
    config: Any = step.config
    layers, tokens = config["num_hidden_layers"], step.batch * step.query
    return layers * np.array([1.0, tokens * config["hidden_size"], tokens * step.query * config["num_attention_heads"]])


def text_terms(told: list[Inside]) -> Any:
    """Seconds of each term, none below 0, that leave whole steps off by the least share of themselves."""
    columns = np.array([text_columns(each.step) / each.step.seconds for each in told])
    wanted = np.array([1 - each.others_s / each.step.seconds for each in told])
    best, least = np.zeros(3), np.inf
    for chosen in ([0, 1, 2], [0, 1], [0, 2], [1, 2], [0], [1], [2]):
        found = np.zeros(3)
        found[chosen] = np.linalg.lstsq(columns[:, chosen], wanted, rcond=None)[0]
        left = float(((columns @ found - wanted) ** 2).sum())
        if (found >= 0).all() and left < least:
            best, least = found, left
    return best


def with_mutual(there: Calibration, gpu: Device, journal: Path) -> Calibration:
    """Attention in which all meet all, as the journal of products has it: by length, width of a head and operations.

    Between numbers of heads the logarithm of the time is a line; fewer take no less, and more take their share more.
    """
    seconds: dict[tuple[int, int], dict[int, float]] = {}
    for line in gzip.decompress(journal.read_bytes()).splitlines():
        row = json.loads(line)
        if row.get("op") == "attention" and row["dtype"] == there.dtype:
            heads = row["batch"] * row["heads"]
            seconds.setdefault((row["length"], row["head_dim"]), {})[heads] = row["seconds"]
    lengths, widths = sorted({length for length, _ in seconds}), sorted({width for _, width in seconds})
    flops, values = np.geomspace(1e6, 1e13, 22), []
    for length, width in itertools.product(lengths, widths):
        work = ops.work_of_single(ops.padded(1, 1, width, query=length), gpu, runtime=there.runtime, dtype=there.dtype)
        heads, (counts, times) = flops / work.axes["flops"], zip(*sorted(seconds[length, width].items()), strict=True)
        taken = np.exp(np.interp(np.log(heads), np.log(counts), np.log(times))) * np.maximum(1.0, heads / counts[-1])
        values += [float(f"{share:.3g}") for share in np.minimum(1.0, heads * work.floor_s / taken)]
    grid = (tuple(map(float, lengths)), tuple(map(float, widths)), tuple(flops.tolist()))
    axes = ("query", "head_dim", "flops")
    table = Utilisation(
        op_class=MUTUAL, stream="floor", axes=axes, grid=grid, values=tuple(values), residual=IN_A_MODEL
    )
    return replace(there, tables=(*(old for old in there.tables if old.op_class != MUTUAL), table),
                   residuals={**there.residuals, MUTUAL: table.residual})  # fmt: skip


def path_steps(journal: Path, **wanted: str) -> list[StepPoint]:
    rows = (json.loads(line) for line in gzip.decompress(journal.read_bytes()).splitlines())
    named = ("model", "phase", "dtype", "batch", "query", "context", "seconds", "config")
    return [
        StepPoint(**{name: row[name] for name in named})
        for row in rows
        if "seconds" in row and all(row[name] == value for name, value in wanted.items())
    ]


def refit_paths(args: argparse.Namespace) -> None:
    """The calibrations of graphs and of compiled models.

    Attention of decode steps in graphs stays as it is: real models of up to 8,192 tokens are within 7 % of it, and what
    probes say would take them further off.
    """
    for runtime, way in (("torch-graph", "graph"), ("torch-compile", "compile-graph")):
        for dtype in ("bf16", "f32"):
            before = next(args.out.glob(f"{args.device}-{runtime}-{dtype}-*.json"))
            there = read_calibration(before)
            effects = require_effects(runtime)
            subject = CalibrationSubject(
                device=device(args.device), runtime=effects, dtype=dtype, created=there.created
            )
            # It was timed with a mask that no fused kernel takes, which nobody gives: a tokeniser's has a flag a key.
            # Nor was it where other GPUs' times come from, so it is told by whole steps.
            kept = tuple(table for table in there.tables if table.op_class != PADDED)
            there = replace(
                there,
                tables=kept,
                factors={name: factor for name, factor in there.factors.items() if name != PADDED},
                residuals={name: spread for name, spread in there.residuals.items() if name != PADDED},
                valid={name: ranges for name, ranges in there.valid.items() if name != PADDED},
            )
            texts = path_steps(args.paths, way=way, dtype=dtype, phase="forward", mask="ones")
            there = with_texts(subject, there, texts)
            if runtime == "torch-graph" and dtype == "bf16":
                there = with_repeated_decode(subject, there, path_steps(args.paths, way=way, phase="decode"))
            if runtime == "torch-compile":
                there = replace(there, host_call_s=QUIET_HOST_S)
            if runtime == "torch-compile" and dtype == "bf16":
                there = with_decode_steps(subject, there, path_steps(args.paths, way=way, phase="decode"))
            before.unlink()
            write_calibration(sealed(there), args.out)


def profiles_of(journals: list[Path], on: str, runtime: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """Rows of profiles with an engine, each with its prediction beside a host as theirs."""
    for row in (json.loads(line) for path in journals for line in gzip.decompress(path.read_bytes()).splitlines()):
        if row.get("engine") == runtime and "phases" in row and not row["model"].startswith("torchvision:"):
            sizes = {name: row[name] for name in ("batch", "prompt", "generate", "image") if name in row}
            asked = ask(row["model"], on=on, runtime=runtime, weights=row["precision"]["weights"], **sizes)
            host = row["environment"]["host"]
            yield row, replace(asked, host_call_s=host.get("call_s"), host_module_s=host.get("module_s")).answer()


def refit_residuals(args: argparse.Namespace) -> None:
    """The compiled calibrations: no step is in more doubt than profiles were off by, where there are enough of a phase.

    Probes that are left out are fewer and less like models than models are like each other.
    """
    runtime = "torch-compile"
    off: dict[tuple[str, str], list[float]] = {}
    for row, answer in profiles_of(args.profiles, args.device, runtime):
        form = row["precision"]["weights"]
        for measured in row["phases"]:
            phase = answer.phase(measured["name"])
            if measured["name"] in {"prefill", "decode"} and phase is not None and phase.time_s:
                key = ("bf16" if form in {"bf16", "f16"} else "f32", f"step.{measured['name']}")
                off.setdefault(key, []).append(log(measured["time_s"] / phase.time_s))
    for dtype in ("bf16", "f32"):
        before = next(args.out.glob(f"{args.device}-{runtime}-{dtype}-*.json"))
        there = read_calibration(before)
        told = {name: residual_spread(np.array(errors)) for (form, name), errors in off.items()
                if form == dtype and len(errors) >= ENOUGH}  # fmt: skip
        residuals = {name: min(value, told.get(name, value)) for name, value in there.residuals.items()}
        print(f"{runtime} {dtype}: {told}, said before {[there.residuals[name] for name in told]}", flush=True)
        before.unlink()
        write_calibration(sealed(replace(there, residuals=residuals)), args.out)


def fit(folder: Path, journal: Path, args: argparse.Namespace) -> None:
    runtime, _, dtype = journal.name.rpartition("-")
    gpu, effects = device(args.device), require_effects(runtime)
    steps = read_steps(journal / "steps.jsonl") if (journal / "steps.jsonl").exists() else ()
    subject = CalibrationSubject(
        device=gpu, runtime=effects, dtype=dtype, created=args.created,
        versions={"torch": args.torch, "cuda": args.cuda},
        environment={},
    )  # fmt: skip
    if effects.execution == "captured":  # encoders ran with a mask that no fused kernel takes, which nobody gives
        steps = tuple(step for step in steps if step.phase != "forward" or step.image is not None)
    before = list(args.out.glob(f"{args.device}-{runtime}-{dtype}-*.json"))
    if args.keep_tables:
        calibration = read_calibration(before[-1])
    else:
        kernels = Kernels(Clock(torch=torch, place="cuda"), gpu, effects, dtype)
        points = renewed(journal_points(folder, runtime, dtype), kernels)
        calibration = assemble_calibration(subject, points, steps)
        if dtype == "f32" and effects.execution != "launched":
            calibration = with_serial_decode(calibration, gpu, points)
    if args.products:
        calibration = with_mutual(with_products(calibration, gpu, args.products), gpu, args.products)
    replayed = None
    if effects.execution == "launched":
        replayed = read_calibration(next(args.out.glob(f"{args.device}-torch-graph-{dtype}-*.json")))
    if args.products or args.keep_tables or replayed:
        calibration = with_steps(subject, calibration, steps, replayed)
    if replayed:
        calibration = with_stated_host(replace(calibration, host_call_s=STATED_HOST_S), effects.on(gpu.unit).host_s)
    for path in before:
        path.unlink()
    write_calibration(calibration, args.out)
    shown = {name: round(value, 3) for name, value in calibration.residuals.items()}
    print(f"{runtime} {dtype}: {calibration.points} points, {calibration.steps} steps, residuals {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, nargs="?")
    parser.add_argument("--forwards", type=Path, help="a journal of workshop.calibrations.forwards: fit only those")
    parser.add_argument("--device", default="nvidia-h200")
    parser.add_argument("--created", default="2026-11-16T02:54:00+00:00", help="when the journals ended")
    parser.add_argument("--torch", default="2.11.0+cu130")
    parser.add_argument("--cuda", default="13.0")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--keep-tables", action="store_true", help="fit whole steps anew, and nothing else")
    parser.add_argument("--products", type=Path, help="a journal of workshop.calibrations.products: tables of these")
    parser.add_argument("--paths", type=Path, help="a journal of workshop.calibrations.paths: correct by those alone")
    parser.add_argument("--mixtures", type=Path, nargs="+", default=[],
                        help="rows of benchmarks/pairs.py: experts of prompts in graphs by those")  # fmt: skip
    parser.add_argument("--profiles", type=Path, nargs="+", default=[],
                        help="rows of benchmarks/pairs.py: hold residuals to those")  # fmt: skip
    parser.add_argument("--tokens", action="store_true", help="what a kernel of a decode step in graphs takes")
    parser.add_argument("--halves", type=Path, nargs="+", default=[],
                        help="such rows: even cases are fitted to, odd ones kept aside")  # fmt: skip
    parser.add_argument("--kernels", type=Path, help="a journal of workshop.calibrations.traced --trace")
    args = parser.parse_args()
    if args.archive:
        fit_archive(args)
    elif args.tokens:
        refit_tokens(args)
    elif args.forwards:
        captured.refit(args)
        compiled.refit(args)
    elif args.mixtures:
        refit_mixtures(args)
    elif args.profiles:
        refit_residuals(args)
    elif args.paths:
        refit_paths(args)


def fit_archive(args: argparse.Namespace) -> None:
    if args.products:
        FREEDOM["linear"] = HELD
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(args.archive) as archive:
            archive.extractall(scratch, filter="data")
        folder = next(Path(scratch).iterdir())
        journals = sorted(path for path in folder.iterdir() if path.is_dir())
        for journal in sorted(journals, key=lambda path: "graph" not in path.name):  # what eager modules start from
            fit(folder, journal, args)


if __name__ == "__main__":
    main()
