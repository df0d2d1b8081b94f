"""aiconfigurator itself beside us, on the same published rows in the same run.

Where the package `aiconfigurator` (and not only `aiconfigurator-core`) is installed:
python benchmarks/serving_peer.py [--most N]
Each of N random rows of its silicon samples is asked of both, with the plan that was run, the stated lengths, and each
tool's own tables. Its estimate takes seconds a row, so a share of them is taken, the same one every time.
"""

from __future__ import annotations

import argparse
import logging
import random
import time
from importlib.util import find_spec
from typing import Any

import numpy as np

from inferometer.accuracy.served_rows import predict_served, served_case
from inferometer.atlas.shipped import load
from inferometer.errors import InferometerError

_SYSTEMS = {
    "nvidia-h100-sxm": "h100_sxm", "nvidia-h200": "h200_sxm", "nvidia-b200": "b200_sxm", "nvidia-gb200": "gb200",
}  # fmt: skip
_NAMES = {  # as its package has their configurations: nothing is downloaded
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
}
_QUANTISED = {"f8e4m3": ("fp8", "fp8_block"), "nvfp4": ("nvfp4", "nvfp4"), "i4": ("int4_wo", "int4_wo")}


def their_figures(row: Any) -> tuple[float, float] | None:
    """TTFT and TPOT in seconds by aiconfigurator, with what the row states."""
    from aiconfigurator.cli.api import cli_estimate  # noqa: PLC0415 - a peer that is mostly not installed

    stated = {name: int(row.settings.get(name, 1)) for name in ("tp", "dp", "moe_tp", "ep")}
    devices = stated["tp"] * stated["dp"]
    gemm, experts = _QUANTISED.get(row.weights or "", (None, None))
    found = cli_estimate(
        _NAMES.get(row.model_published, row.model_published), _SYSTEMS[row.device], backend_name=row.engine,
        isl=row.prompt, osl=row.generate,
        batch_size=row.batch or 1, tp_size=stated["tp"], attention_dp_size=stated["dp"],
        moe_tp_size=devices // stated["ep"], moe_ep_size=stated["ep"], gemm_quant_mode=gemm, moe_quant_mode=experts,
    )  # fmt: skip
    return float(found.ttft) / 1e3, float(found.tpot) / 1e3


def rows_of(most: int) -> list[tuple[Any, Any]]:
    """Pairs of a TTFT and a TPOT row of one configuration."""
    table = load(("aiconfigurator",))
    rows = [table.row(place) for place in range(len(table))]
    by_line: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row.settings.get("mode") == "agg" and row.device in _SYSTEMS:
            by_line.setdefault(row.line, {})[row.quantity] = row
    pairs = [(found["ttft"], found["tpot"]) for found in by_line.values() if len(found) == 2]
    random.Random(11).shuffle(pairs)  # noqa: S311 - the same share every time, nothing secret
    return pairs[:most]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=60)
    asked = parser.parse_args()
    if find_spec("aiconfigurator") is None:
        print("aiconfigurator is not installed here: pip install aiconfigurator (its tables alone are not the tool)")
        return
    logging.disable(logging.CRITICAL)
    ours: dict[str, list[float]] = {"ttft": [], "tpot": []}
    theirs: dict[str, list[float]] = {"ttft": [], "tpot": []}
    refused, spent = 0, [0.0, 0.0]
    for first, each in rows_of(asked.most):
        try:
            start = time.perf_counter()
            own = [predict_served(case).seconds for row in (first, each) if (case := served_case(row)) is not None]
            spent[0] += time.perf_counter() - start
            start = time.perf_counter()
            other = their_figures(each)
            spent[1] += time.perf_counter() - start
        except InferometerError:
            continue
        except Exception as error:  # noqa: BLE001 - whatever the other tool cannot answer
            refused += 1
            print(f"   refused: {each.model_published} {each.device} {each.engine}: {str(error)[:90]}")
            continue
        if len(own) < 2 or other is None:
            continue
        for name, mine, their, row in zip(("ttft", "tpot"), own, other, (first, each), strict=True):
            ours[name].append(mine / row.seconds - 1)
            theirs[name].append(their / row.seconds - 1)
    for name in ("tpot", "ttft"):
        for who, found in (("inferometer", ours), ("aiconfigurator", theirs)):
            errors = np.array(found[name])
            print(
                f"{name} {who:16}{len(errors):>4} rows  median {np.median(np.abs(errors)):6.1%}  "
                f"p90 {np.quantile(np.abs(errors), 0.9):6.1%}  bias {np.median(errors):+6.1%}"
            )
    print(f"refused by aiconfigurator: {refused}")
    print(f"seconds a row: {spent[0] / asked.most:.2f} and {spent[1] / asked.most:.2f}")


if __name__ == "__main__":
    main()
