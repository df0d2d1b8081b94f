"""Serving engines against what others published: the table of aims, set by set.

Run it with the extra `engines` installed: python benchmarks/serving_accuracy.py [--most N] [--set NAME] [--json FILE]
`--most` takes a random share of each set (the same one every time), for a machine that is busy. `--slices` shows parts
of the sets in which steps were wrong once: a model, an engine on a device, a batch, a plan. The fit has seen these
rows; how it does on models and devices that it has not seen is in the table of workshop/serving/fit.py, and
aiconfigurator's own figures on the same rows are in that of benchmarks/serving_peer.py.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np

from inferometer.core.errors import InferometerError
from inferometer.known.atlas.shipped import load
from inferometer.understand.accuracy.atlas_file import of_a_start, predict_served, served_case

SETS = {
    "aiconfigurator, tpot": ("aiconfigurator", "tpot", 0.08, None),
    "aiconfigurator, ttft": ("aiconfigurator", "ttft", 0.20, None),
    "trtllm, saturated": ("trtllm", "tokens", 0.15, None),
    "argonne, H100 and A100": ("argonne", "request", 0.12, ("nvidia",)),
    "argonne, MI300X, Gaudi 2, PVC": ("argonne", "request", 0.20, ("amd", "intel")),
    "rocm-vllm": ("rocm-vllm", None, 0.15, None),
    "mlperf, offline": ("mlperf", "tokens", 0.20, None),
}
H100_VLLM = {"engine": "vllm", "device": "nvidia-h100-sxm"}
# A part of a set by what its rows say; a pair is from one number to another, `tp` is that of the plan.
SLICES: dict[str, tuple[str, float, dict[str, object]]] = {
    "deepseek-v3, tpot": ("aiconfigurator, tpot", 0.12, {"model": "deepseek-v3"}),
    "deepseek-v3, ttft": ("aiconfigurator, ttft", 0.25, {"model": "deepseek-v3"}),
    "more than 256 users, tpot": ("aiconfigurator, tpot", 0.12, {"concurrency": (257, 1e9)}),
    "more than 256 users, ttft": ("aiconfigurator, ttft", 0.25, {"concurrency": (257, 1e9)}),
    "TensorRT-LLM on B200, tpot": ("aiconfigurator, tpot", 0.12, {"engine": "trtllm", "device": "nvidia-b200"}),
    "TensorRT-LLM on B200, ttft": ("aiconfigurator, ttft", 0.25, {"engine": "trtllm", "device": "nvidia-b200"}),
    "gpt-oss-120b, saturated": ("trtllm, saturated", 0.12, {"model": "gpt-oss-120b"}),
    "llama-4-maverick, saturated": ("trtllm, saturated", 0.25, {"model": "llama-4-maverick"}),
    "RTX PRO 6000, saturated": ("trtllm, saturated", 0.12, {"device": "nvidia-rtx-pro-6000-server"}),
    **{
        f"vLLM on H100, batch {batch}": ("argonne, H100 and A100", 0.10, {**H100_VLLM, "batch": (batch, batch)})
        for batch in (1, 16, 32, 64)
    },
    **{f"vLLM on H100, TP {tp}": ("argonne, H100 and A100", 0.10, {**H100_VLLM, "tp": (tp, tp)}) for tp in (1, 2, 4)},
}


def is_of(slice_of: dict[str, object], row: object, tp: int) -> bool:
    for name, wanted in slice_of.items():
        value = tp if name == "tp" else getattr(row, name)
        if isinstance(wanted, tuple):
            if value is None or not wanted[0] <= value <= wanted[1]:
                return False
        elif value != wanted:
            return False
    return True


def judge(name: str, most: int) -> dict[str, object]:
    sliced = SLICES.get(name)
    dataset, quantity, aim, vendors = SETS[sliced[0] if sliced else name]
    table = load((dataset,))
    rows = [table.row(place) for place in range(len(table))]
    starting = of_a_start(rows)
    rows = [row for place, row in enumerate(rows) if place not in starting]
    rows = [row for row in rows if quantity in {None, row.quantity}]
    if vendors:
        rows = [row for row in rows if (row.device or "").startswith(vendors)]
    random.Random(7).shuffle(rows)  # noqa: S311 - the same share every time, nothing secret
    ratios, inside, widths, groups = [], [], [], []
    refused: Counter[str] = Counter()
    for row in rows:
        if most and len(ratios) >= most:
            break
        try:
            case = served_case(row)
            if case is None or (sliced and not is_of(sliced[2], row, case.question.workload.parallel.tp)):
                continue
            figure = predict_served(case)
        except InferometerError as error:
            refused[str(error)[:70]] += 1
            continue
        ratios.append(figure.seconds / row.seconds)
        inside.append(figure.low_s <= row.seconds <= figure.high_s)
        widths.append(figure.high_s / figure.seconds - 1)
        groups.append((row.device, row.engine, row.model))
    ratio = np.array(ratios)
    errors = np.abs(ratio - 1)
    by: dict[str, list[float]] = {}
    for group, value in zip(groups, ratios, strict=True):
        by.setdefault(" ".join(map(str, group)), []).append(value)
    return {
        "name": name,
        "n": len(ratio),
        "aim": sliced[1] if sliced else aim,
        "median_error": float(np.median(errors)) if len(ratio) else None,
        "p90_error": float(np.quantile(errors, 0.9)) if len(ratio) else None,
        "bias": float(np.median(ratio) - 1) if len(ratio) else None,
        "covers": float(np.mean(inside)) if len(ratio) else None,
        "width": float(np.median(widths)) if len(ratio) else None,
        "refused": dict(refused.most_common(3)),
        "by": {group: [len(values), round(float(np.median(values)), 3)] for group, values in sorted(by.items())},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--set", action="append")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--by", action="store_true")
    parser.add_argument("--slices", action="store_true")
    asked = parser.parse_args()
    results = []
    print(f"{'set':32}{'rows':>6}{'aim':>7}{'median':>8}{'p90':>8}{'bias':>8}{'covers':>8}{'width':>8}")
    for name in SLICES if asked.slices else SETS:
        if asked.set and not any(part in name for part in asked.set):
            continue
        found = judge(name, asked.most)
        results.append(found)
        shares = [found["aim"], found["median_error"], found["p90_error"], found["bias"], found["covers"],
                  found["width"]]  # fmt: skip
        cells = "".join(f"{'–' if share is None else f'{share:.1%}':>8}" for share in shares)
        print(f"{name:32}{found['n']:>6}{cells}", flush=True)
        if found["refused"]:
            print("   refused:", found["refused"])
        if asked.by:
            for group, (count, middle) in found["by"].items():
                print(f"   {middle:7.3f} {count:5d}  {group}")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
