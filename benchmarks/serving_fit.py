"""Fit what the kernels do not say of serving engines: a step's own time by engine and era, and devices by stand-ins.

Published TTFT, TPOT, saturated throughput and whole batches of the shipped atlas are the data; the numbers printed here
stand in catalog/data/engines/*.toml and asking/engine_tables/systems.toml. Each group is fitted by least absolute
deviation of logarithms, and left out in turn, by model and by device, to say how far the fit carries over.

python benchmarks/serving_fit.py [--features FILE.npz] — the features take minutes, the fits seconds.
"""

from __future__ import annotations

import argparse
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from inferometer.accuracy.served_rows import ServedCase, served_case
from inferometer.asking.served import served
from inferometer.atlas.shipped import load
from inferometer.catalog.engines import version_numbers
from inferometer.core.device import Sourced
from inferometer.core.engine import StepCosts
from inferometer.cost.serving.steady import _held
from inferometer.errors import InferometerError

NAMES = ("kernels", "kernels_prompt", "step_ms", "sequence_us", "prompt_ms", "together")


def _plain(value: float) -> Sourced:
    return Sourced(value=value, origin="prior", source="fit", date="2026")


BARE = StepCosts(
    since="0", devices=(), step_s=_plain(0.0), sequence_s=_plain(0.0), prompt_s=_plain(0.0), kernels=_plain(1.0),
    kernels_prompt=_plain(1.0), together=_plain(0.0), ttft_spread=_plain(0.1), tpot_spread=_plain(0.1),
    batch_spread=_plain(0.1),
)  # fmt: skip


def features(case: ServedCase) -> dict[str, float] | None:
    """The kernels' seconds of what a row is about, each with nothing added."""
    what = served(case.question)
    step, traffic, limits = replace(what.step, costs=BARE), case.traffic, what.limits
    held = limits.sequences if what.memory is None else min(limits.sequences, _held(what.memory, traffic))
    n = (
        held
        if case.quantity == "tokens"
        else min(case.users or 1, held)
        if case.quantity != "request"
        else case.users or 1
    )
    context = traffic.prompt + traffic.generate / 2
    mixed = what.rules.mixed
    decode = float(step.decode_seconds(n, context))
    own = alone = 0.0
    steps = done = 0
    while done < traffic.prompt:
        tokens = min(limits.tokens, traffic.prompt - done)
        own += float(step.mixed_seconds(tokens, 1 + done, n - 1 if mixed else 0, context))
        alone += float(step.mixed_seconds(tokens, 1 + done, 0, 1.0))
        done, steps = done + tokens, steps + 1
    packed, tokens = max(1, limits.tokens // traffic.prompt), min(traffic.prompt, limits.tokens)
    middle = 1.0 + (traffic.prompt / 2 if traffic.prompt > limits.tokens else 0.0)
    return {
        "n": n, "users": case.users or n, "prompt": traffic.prompt, "generate": traffic.generate, "decode": decode,
        "own": own, "alone": alone, "steps": steps, "packed": packed, "mixed": float(mixed), "replicas": what.replicas,
        "full": float(step.mixed_seconds(tokens, middle, n - 1 if mixed else 0, context, chunks=packed)),
        "empty": float(step.mixed_seconds(tokens, middle, 0, 1.0, chunks=packed)),
    }  # fmt: skip


def gather() -> list[dict[str, Any]]:
    found = []
    for dataset in ("aiconfigurator", "trtllm", "argonne", "rocm-vllm", "mlperf"):
        table = load((dataset,))
        for place in range(len(table)):
            row = table.row(place)
            try:
                case = served_case(row)
                values = None if case is None else features(case)
            except InferometerError:
                continue
            if case is None or values is None:
                continue
            found.append({
                **values, "dataset": dataset, "quantity": row.quantity, "seconds": row.seconds, "model": row.model,
                "device": row.device, "engine": case.question.runtime_name, "tp": case.question.workload.parallel.tp,
                "version": case.question.options.engine_version or "", "weights": row.weights or "",
            })  # fmt: skip
    return found


def predicted(p: Any, d: dict[str, Any]) -> Any:
    """The closed form of `cost.serving.steady` over features; `p` in the order of NAMES."""
    f, f2, step, sequence, prompt, together = p[0], p[1], p[2] * 1e-3, p[3] * 1e-6, p[4] * 1e-3, p[5]
    n = d["n"]
    decode = f * d["decode"] + step + n * sequence
    riding = np.where(d["mixed"] > 0, n, 1)
    own = f2 * d["own"] + d["steps"] * (step + riding * sequence)
    alone = f2 * d["alone"] + d["steps"] * (step + sequence)
    full = f2 * d["full"] + step + (n - 1 + d["packed"]) * sequence
    empty = f2 * d["empty"] + step + d["packed"] * sequence
    share = np.where(d["steps"] > 1, alone, empty / d["packed"])
    extra = np.where(d["mixed"] > 0, np.maximum(0.0, own - d["steps"] * decode), alone)
    spread = decode + n * extra / d["generate"]
    tpot = np.where(d["mixed"] > 0, np.minimum(spread, np.maximum(full, decode)), spread)
    first = own + decode + prompt
    late = np.maximum(0.0, n * share - d["generate"] * tpot)
    queued = np.maximum(0.0, d["users"] - n) / n * (first + d["generate"] * tpot)
    ttft = first + together * (n - 1) / 2 * share + late + queued
    saving = np.where(d["mixed"] > 0, np.minimum(share, extra), share)
    token = (d["generate"] * decode + n * saving) / (n * d["generate"]) / d["replicas"]
    request = prompt + np.ceil(n / d["packed"]) * np.where(d["packed"] > n, alone, empty) + (d["generate"] - 1) * decode
    return np.select(
        [d["quantity"] == "ttft", d["quantity"] == "tpot", d["quantity"] == "tokens"], [ttft, tpot, token], request
    )


def columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def fitted(rows: list[dict[str, Any]], start: Any, free: tuple[int, ...], *, most: float = 1.0) -> Any:
    """`most` is what a row counts at most: rows that nothing explains (hidden drafts, cached prompts) do not pull."""
    d = columns(rows)
    start = np.array(start, float)

    def loss(values: Any) -> float:
        p = start.copy()
        p[list(free)] = np.abs(values)
        return float(np.mean(np.minimum(most, np.abs(np.log(np.maximum(predicted(p, d), 1e-9) / d["seconds"])))))

    best = min(
        (
            minimize(loss, start[list(free)] * scale, method="Nelder-Mead", options={"maxiter": 600})
            for scale in (1.0, 0.7)
        ),
        key=lambda found: found.fun,
    )
    start[list(free)] = np.abs(best.x)
    return start


def in_stages(rows: list[dict[str, Any]], start: Any, free: tuple[int, ...]) -> Any:
    """What a step costs from the times of tokens and of batches; then what only a first token waits for."""
    steps = [row for row in rows if row["quantity"] == "tpot"] or [row for row in rows if row["quantity"] != "ttft"]
    p, costs = start, tuple(place for place in free if place < 4)
    for most in (1.0, 0.3) if steps else ():
        p = fitted(steps, p, costs, most=most)
    first = [row for row in rows if row["quantity"] == "ttft"]
    return fitted(first, p, tuple(place for place in free if place >= 4)) if first else p


def errors(p: Any, rows: list[dict[str, Any]]) -> Any:
    d = columns(rows)
    return np.abs(predicted(p, d) / d["seconds"] - 1)


def report(name: str, rows: list[dict[str, Any]], start: Any, free: tuple[int, ...]) -> Any:
    p = in_stages(rows, start, free)
    d = columns(rows)
    logs = np.log(predicted(p, d) / d["seconds"])
    print(
        f"\n{name}: {len(rows)} rows; " + ", ".join(f"{key} {value:.3g}" for key, value in zip(NAMES, p, strict=True))
    )
    for quantity in np.unique(d["quantity"]):
        of = logs[d["quantity"] == quantity]
        wide = float(np.quantile(np.abs(of), 0.82)) / 1.2816
        middle, bias = np.median(np.abs(np.expm1(of))), np.median(np.expm1(of))
        print(f"   {quantity:8} {len(of):5} median {middle:.3f} bias {bias:+.3f} spread {wide:.3f}")
    for key in ("model", "device"):
        groups = sorted({row[key] for row in rows})
        left = {}
        for group in groups if 1 < len(groups) <= 8 else ():
            others = [row for row in rows if row[key] != group]
            mine = [row for row in rows if row[key] == group]
            left[group] = round(float(np.median(errors(in_stages(others, p, free), mine))), 3)
        print(f"   left out by {key}: {left}")
    return p


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--features", type=Path)
    asked = parser.parse_args()
    if asked.features is not None and asked.features.exists():
        rows = pickle.loads(asked.features.read_bytes())  # noqa: S301 - what this script wrote itself
    else:
        rows = gather()
        if asked.features is not None:
            asked.features.write_bytes(pickle.dumps(rows))
    print(len(rows), "rows")
    start = (0.95, 0.9, 0.5, 8.0, 30.0, 0.12)
    everything = (0, 1, 2, 3, 4, 5)

    def part(*, engine: str, since: str = "0", before: str = "99", device: str = "nvidia") -> list[Any]:
        return [
            row
            for row in rows
            if row["engine"] == engine
            and row["device"].startswith(device)
            and version_numbers(since) <= version_numbers(row["version"] or "98") < version_numbers(before)
            and row["tp"] <= 16
            and row["dataset"] != "mlperf"
        ]

    report("vllm since 0.8", part(engine="vllm", since="0.8"), start, everything)
    report("vllm before 0.8", part(engine="vllm", before="0.8"), start, everything)
    report("sglang", part(engine="sglang"), start, everything)
    report("trtllm since 1.0", part(engine="trtllm", since="1.0"), start, everything)
    report("trtllm before 1.0", part(engine="trtllm", before="1.0"), start, everything)
    for device in ("amd-mi3", "intel-max", "intel-gaudi"):
        for since, before in (("0", "0.6.5"), ("0.6.5", "99")):
            if chosen := part(engine="vllm", since=since, before=before, device=device):
                report(f"vllm on {device} from {since} to {before}", chosen, start, everything)


if __name__ == "__main__":
    main()
