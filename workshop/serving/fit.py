"""Fit what the kernels do not say of serving engines: a step's own time, a sequence's, a prompt's, by engine and era.

Published TTFT, TPOT, saturated throughput and whole batches of the shipped atlas are the data. The numbers go to
src/inferometer/known/data/serving_costs.json, which the product reads; the closed form is the product's own
(`predict.served.steady`). An era of an engine, and a class of devices in it, is drawn towards what it belongs to: all
engines together, then the engine's era. Every model and every device is left out in turn, and the intervals are as wide
as eight in ten of the figures need that the fit had not seen.

python -m workshop.serving.fit [--features FILE] [--write] — the features take minutes, the fits less.
"""

from __future__ import annotations

import argparse
import json
import pickle
from collections import Counter
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from inferometer.core.device import Sourced
from inferometer.core.engine import StepCosts
from inferometer.core.errors import InferometerError
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.known.atlas.shipped import load
from inferometer.known.engines import version_numbers
from inferometer.known.serving_costs import FILE, NUMBERS
from inferometer.predict.served.steady import KernelParts, request_seconds, steady_times, token_seconds
from inferometer.understand.accuracy.atlas_file import of_a_start, parts_of, served_case

DATASETS = ("aiconfigurator", "trtllm", "argonne", "rocm-vllm", "mlperf")
NAMES = ("kernels", "kernels_prompt", "step_s", "sequence_s", "prompt_s", "launch_s", "later", "together", "context_s")
START = (1.05, 1.1, 1e-3, 10e-6, 30e-3, 20e-6, 1.0, 0.1, 1e-9)
# What attention to a context takes is one era's kernels' and no other's, so an era is drawn less, and begins with
# START's: from nearly nothing no small step helps. A class of devices is drawn towards its era's as with the others.
LOOSE = {"context_s": 0.3}
# An era without first tokens hardly tells the time of prompts from that of sequences: a factor of 2.9 on the kernels of
# vLLM's prompts before 0.8 came out, with a sequence's host at nothing.
HELD = {"kernels_prompt": 5.0}
KEPT = 0.6  # of drafts, before the fit
COLD = {"cold_s": 0.0}  # seconds of a process's first run
FRONT: dict[str, float] = {}  # seconds of the front before an engine, in a source's own harness
ROUNDS = 5  # in which the fronts and the engines' numbers settle
LINE = 3  # points that a line needs
# Engine, since which version, before which, devices; a class of devices comes after the era that it belongs to.
GROUPS = (
    ("vllm", "0", "0.8", ("nvidia-*",)),
    ("vllm", "0.8", "99", ("nvidia-*",)),
    ("sglang", "0", "99", ("nvidia-*",)),
    ("trtllm", "0", "1.0", ("nvidia-*",)),
    ("trtllm", "1.0", "1.1", ("nvidia-*",)),
    ("trtllm", "1.1", "99", ("nvidia-*",)),
    ("vllm", "0", "0.6.5", ("amd-*",)),
    ("vllm", "0.6.5", "99", ("amd-*",)),
    ("vllm", "0", "99", ("intel-*",)),
)
USUAL = tuple(group for group in GROUPS if group[3] == ("nvidia-*",))  # that all engines together are
WEIGHTS = {"ttft": 0.5, "tpot": 1.0, "tokens": 1.0, "request": 1.0}
# How much a logarithm's distance from what a group belongs to counts, in residuals; less for other vendors' devices,
# whose kernels and libraries are others: with models left out 0.5 is better than 2 (Intel 7 % and 32 %).
DRAWN, DRAWN_ABROAD = 2.0, 0.5
SCALE = 0.05  # residuals beyond which a row counts by its size and not by its square: drafts and caches nobody states
SPREADS = {"ttft": "ttft_spread", "tpot": "tpot_spread", "tokens": "batch_spread", "request": "batch_spread"}
LEAST = 1e-9
PART, MANY = 0.3, 50  # of the rows that may be left out; rows that say how far they spread
COMMON: dict[str, Any] = {}  # the numbers of all engines together in the latest fit


def gather() -> list[dict[str, Any]]:
    """The kernels' seconds of every row that can be asked about."""
    found = []
    for dataset in DATASETS:
        table = load((dataset,))
        published = [table.row(index) for index in range(len(table))]
        starting = of_a_start(published)
        for index, row in enumerate(published):
            if index in starting:
                continue
            try:
                case = served_case(row)
                parts = None if case is None else parts_of(case)
            except InferometerError:
                continue
            if case is None or parts is None:
                continue
            drafts, parallel = case.traffic.drafts, case.question.workload.parallel
            found.append({
                **asdict(parts), "drafted": drafts.length if drafts else 0, "dataset": dataset,
                "quantity": row.quantity, "seconds": row.seconds, "model": row.model, "device": row.device,
                "engine": case.question.runtime_name, "tp": parallel.tp, "dp": parallel.dp, "ep": parallel.ep,
                "version": case.question.options.engine_version or "98", "weights": row.weights or "",
                "prompt": case.traffic.prompt, "published": row.model_published, "date": row.date or "",
                "client": row.settings.get("client", ""), "cold": float(case.cold), "fronted": float(case.fronted),
            })  # fmt: skip
    return found


def columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0] if not name.startswith("log")}


def costs_from(values: Any) -> StepCosts:
    numbers = dict(zip(NAMES, np.asarray(values, float).tolist(), strict=True))
    plain = {name: Sourced(value=number, origin="prior", source="fit", date="2026") for name, number in numbers.items()}
    none = Sourced(value=0.0, origin="prior", source="fit", date="2026")
    return StepCosts(since="0", devices=(), ttft_spread=none, tpot_spread=none, batch_spread=none, **plain)


def predicted(values: Any, data: dict[str, Any], kept: float) -> Any:
    gained = np.sum([np.where(data["drafted"] >= index, kept**index, 0.0) for index in range(4)], axis=0)
    names = [name for name in KernelParts.__dataclass_fields__ if name != "gained" and name in data]
    parts, costs = KernelParts(gained=gained, **{name: data[name] for name in names}), costs_from(values)
    times, quantity = steady_times(parts, costs), data["quantity"]
    each = token_seconds(parts, costs) / data["dp"]
    return np.select(
        [quantity == "ttft", quantity == "tpot", quantity == "tokens"],
        [times.ttft + data["fronted"] * front_seconds(data["engine"]), times.tpot, each],
        request_seconds(parts, costs) + COLD["cold_s"] * data["cold"],
    )


def front_seconds(engines: Any) -> Any:
    return np.array([FRONT.get(engine, 0.0) for engine in engines])


def front_of(bare: Any, seen: Any, start: float) -> float:
    """What is to be added to the predicted seconds."""

    def off(front: Any) -> Any:
        return np.log((bare + front[0]) / seen)

    return float(least_squares(off, start, bounds=(0, np.inf), loss="soft_l1", f_scale=SCALE).x[0])


def settle_fronts(rows: list[dict[str, Any]]) -> dict[Any, Any]:
    """Fit the seconds of the fronts beside the engines' own numbers, which the other rows hold in place."""
    near: dict[Any, Any] = {}
    for _ in range(ROUNDS):
        fit, kept = all_fitted(rows, near or None)
        near = {**fit, **COMMON}
        errors_of(fit, kept, rows)
        for engine in sorted({row["engine"] for row in rows if row["fronted"]}):
            own = [row for row in rows if row["fronted"] and row["engine"] == engine]
            seen = np.array([row["seconds"] for row in own])
            bare = seen * np.exp([row["log"] for row in own]) - FRONT.get(engine, 0.0)
            FRONT[engine] = front_of(bare, seen, FRONT.get(engine, 0.03))
    return near


def cold_seconds(rows: list[dict[str, Any]]) -> float:
    """What the first run of a process takes, by rows that hold it: where a line through their times over the lengths
    begins, of one sequence at a time, whose steps grow little with the context."""
    first = [row for row in rows if row["cold"] and row["sequences"] == 1]
    begins = []
    for model in sorted({row["model"] for row in first}):
        own = [row for row in first if row["model"] == model]
        if len(own) >= LINE:
            begins.append(np.polyfit([row["generate"] for row in own], [row["seconds"] for row in own], 1)[1])
    return float(np.median(begins)) if begins else 0.0


def residuals(values: Any, data: dict[str, Any], kept: float) -> Any:
    return np.log(np.maximum(predicted(values, data, kept), LEAST) / data["seconds"])


def fitted(
    rows: list[dict[str, Any]], parent: Any, kept: float | None = None, near: Any = None, drawn: float = DRAWN
) -> tuple[Any, float]:
    """The numbers of some rows, drawn towards their parent's; with `kept` None that is fitted as well.

    `near` are numbers to begin with that few steps lead away from: those of a fit to nearly the same rows.
    """
    data = columns(rows)
    weight = np.array([WEIGHTS[quantity] for quantity in data["quantity"]])
    centre = np.log(np.asarray(parent, float))
    changed = LOOSE | ({} if (data["quantity"] == "ttft").any() else HELD) if drawn == DRAWN else {}
    free = np.array([changed.get(name, 1.0) for name in NAMES])

    def loss(logs: Any) -> Any:
        share = 1 / (1 + np.exp(-logs[-1])) if kept is None else kept
        own = weight * residuals(np.exp(logs[: len(NAMES)]), data, share)
        return np.concatenate([own, drawn * free * (logs[: len(NAMES)] - centre)])

    start = np.where(free < 1, np.log(START), centre) if near is None else np.log(np.asarray(near, float))
    start = np.append(start, np.log(KEPT / (1 - KEPT))) if kept is None else start
    steps = 60 if near is None else 15
    found = least_squares(loss, start, loss="soft_l1", f_scale=SCALE, max_nfev=steps).x
    return np.exp(found[: len(NAMES)]), float(1 / (1 + np.exp(-found[-1]))) if kept is None else kept


def members(rows: list[dict[str, Any]], group: tuple[Any, ...]) -> list[dict[str, Any]]:
    engine, since, before, devices = group
    return [
        row
        for row in rows
        if row["engine"] == engine
        and version_numbers(since) <= version_numbers(row["version"]) < version_numbers(before)
        and any(fnmatchcase(row["device"], pattern) for pattern in devices)
    ]


def all_fitted(rows: list[dict[str, Any]], near: dict[Any, Any] | None = None) -> tuple[dict[Any, Any], float]:
    """Every group's numbers: engines' eras towards all of them, classes of devices towards their engine's."""
    everything = [row for group in USUAL for row in members(rows, group)]
    known = near or {}
    common, kept = fitted(everything, START, near=known.get("common"))
    found: dict[Any, Any] = {}
    for group in GROUPS:
        own = members(rows, group)
        engine, since = group[0], version_numbers(group[1])
        elders = [each for each in found if each[0] == engine and each[3] == ("nvidia-*",)]
        parent, drawn = common, DRAWN if group[3] == ("nvidia-*",) else DRAWN_ABROAD
        if group[3] != ("nvidia-*",) and elders:
            older = [each for each in elders if version_numbers(each[1]) <= since]
            parent = found[older[-1] if older else elders[0]]
        found[group] = fitted(own, parent, kept, near=known.get(group), drawn=drawn)[0] if own else parent
    COMMON["common"] = common
    return found, kept


def errors_of(fit: dict[Any, Any], kept: float, rows: list[dict[str, Any]]) -> None:
    """Put each row's residual under each group's numbers into the row, as `log`."""
    for group, values in fit.items():
        own = members(rows, group)
        if own:
            for row, value in zip(own, residuals(values, columns(own), kept), strict=True):
                row["log"] = float(value)


def leave_out(rows: list[dict[str, Any]], key: str, near: dict[Any, Any]) -> None:
    """Each row's residual under a fit that had no row of its model (or device), as `log_without_KEY`."""
    for name in sorted({row[key] for row in rows}):
        mine = [row for row in rows if row[key] == name]
        fit, kept = all_fitted([row for row in rows if row[key] != name], near)
        before = [row["log"] for row in mine]
        errors_of(fit, kept, mine)
        for row, value in zip(mine, before, strict=True):
            row[f"log_without_{key}"], row["log"] = row["log"], value


def width(logs: Any) -> float:
    """The standard deviation whose eight in ten hold so many: of figures that the fit had not seen, and of all."""
    return max(0.05, float(np.quantile(np.abs(logs), 0.82)) / EIGHT_IN_TEN)


def spreads(rows: list[dict[str, Any]], everything: list[dict[str, Any]]) -> dict[str, float]:
    """By quantity. A model or device counts as left out where most of the others are left to learn from; of few rows
    all engines' are taken."""
    found: dict[str, float] = {}
    for name in ("ttft_spread", "tpot_spread", "batch_spread"):
        own = [row for row in rows if SPREADS[row["quantity"]] == name]
        chosen = own if len(own) >= MANY else [row for row in everything if SPREADS[row["quantity"]] == name]
        logs = [row["log"] for row in chosen]
        for key in ("model", "device"):
            counts = Counter(row[key] for row in chosen)
            logs += [row[f"log_without_{key}"] for row in chosen if counts[row[key]] < len(chosen) * PART]
        found[name] = width(np.array(logs))
    return found


def table(rows: list[dict[str, Any]], widths: dict[Any, dict[str, float]]) -> None:
    print(f"{'set':38}{'rows':>6}{'median':>8}{'p90':>8}{'bias':>8}{'covers':>8}{'width':>8}", end="")
    print(f"{'no model':>10}{'covers':>8}{'no device':>11}{'covers':>8}")
    sets: dict[tuple[str, str, str], list[Any]] = {}
    for group, found in widths.items():
        for row in members(rows, group):
            vendor = row["device"].split("-")[0] if row["dataset"] == "argonne" else ""
            half = EIGHT_IN_TEN * found[SPREADS[row["quantity"]]]
            name = (row["dataset"], row["quantity"] if row["dataset"] == "aiconfigurator" else "", vendor)
            sets.setdefault(name, []).append((row, half))
    for name, pairs in sorted(sets.items()):
        halves = np.array([wide for _, wide in pairs])
        cells = f"{' '.join(filter(None, name)):38}{len(pairs):>6}"
        for key in ("log", "log_without_model", "log_without_device"):
            logs = np.array([row[key] for row, _ in pairs])
            error, inside = np.abs(np.expm1(logs)), np.mean(np.abs(logs) <= halves)
            if key == "log":
                cells += f"{np.median(error):>8.1%}{np.quantile(error, 0.9):>8.1%}{np.median(np.expm1(logs)):>+8.1%}"
                cells += f"{inside:>8.1%}{np.median(np.exp(halves) - 1):>8.0%}"
            else:
                cells += f"{np.median(error):>10.1%}{inside:>8.1%}" + ("" if key.endswith("model") else " ")
        print(cells)


def document(
    fit: dict[Any, Any], kept: float, widths: dict[Any, dict[str, float]], figures: list[dict[str, Any]]
) -> dict[str, Any]:
    rows = []
    for (engine, since, _, devices), values in fit.items():
        group = next(each for each in fit if each[:2] == (engine, since) and each[3] == devices)
        numbers = dict(zip(NAMES, values, strict=True)) | widths[group]
        named = [] if devices == ("nvidia-*",) else list(devices)  # NVIDIA's stand for every device without its own
        rows.append({"engine": engine, "since": since, "devices": named}
                    | {name: float(f"{numbers[name]:.4g}") for name in NUMBERS})  # fmt: skip
    source = (
        "Fitted by workshop/serving/fit.py to published TTFT, TPOT, throughput and latency (aiconfigurator's silicon "
        "samples, TensorRT-LLM's performance overview, Argonne's LLM-Inference-Bench, ROCm's vLLM pages, MLPerf)"
    )
    return {
        "source": source, "date": "2026-11",
        "numbers": {"drafts_kept": float(f"{kept:.3g}"), "cold_s": float(f"{COLD['cold_s']:.3g}")}
        | {f"front_s.{engine}": float(f"{seconds:.3g}") for engine, seconds in FRONT.items()},
        "fitted_on": fitted_on(figures), "costs": rows,
    }  # fmt: skip


def fitted_on(figures: list[dict[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """By engine the devices and models of the rows: what a figure of any other is told apart by."""
    return {
        engine: {
            f"{key}s": sorted({row[key] for row in figures if row["engine"] == engine}) for key in ("device", "model")
        }
        for engine in sorted({row["engine"] for row in figures})
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--features", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="leave nothing out")
    asked = parser.parse_args()
    if asked.features is not None and asked.features.exists():
        rows = pickle.loads(asked.features.read_bytes())  # noqa: S301 - what this script wrote itself
    else:
        rows = gather()
        if asked.features is not None:
            asked.features.write_bytes(pickle.dumps(rows))
    rows = [row for group in GROUPS for row in members(rows, group)]
    COLD["cold_s"] = cold_seconds(rows)
    fit, kept = all_fitted(rows, settle_fronts(rows))
    errors_of(fit, kept, rows)
    near = {**fit, **COMMON}
    for key in ("model", "device"):
        if asked.quick:
            for row in rows:
                row[f"log_without_{key}"] = row["log"]
        else:
            leave_out(rows, key, near)
    usual = [row for group in USUAL for row in members(rows, group)]
    widths = {group: spreads(members(rows, group), usual) for group in fit}
    for group, values in fit.items():
        print(*group[:3], group[3][0], len(members(rows, group)), "rows:", end=" ")
        print(", ".join(f"{name} {value:.3g}" for name, value in zip(NAMES, values, strict=True)), widths[group])
    print(f"drafts kept {kept:.2f}")
    table(rows, widths)
    if asked.write:
        FILE.write_text(json.dumps(document(fit, kept, widths, rows), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
