"""aiconfigurator itself beside us, on the same published rows in the same run.

Where the package `aiconfigurator` (and not only `aiconfigurator-core`) is installed:
python benchmarks/serving_peer.py [--most N] [--record FILE] [--seconds S]
Each of N random rows of its silicon samples is asked of both, with the plan that was run, the stated lengths, and each
tool's own tables. Its estimate takes seconds a row, so a share of them is taken, the same one every time. What it said
is kept in FILE (benchmarks/recorded/serving-peer.jsonl), one line a row: a run that was stopped, or that has used its
seconds, is taken up where it ended. Ours is asked anew each time, and both stand in one table.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.errors import InferometerError
from inferometer.known.atlas.shipped import load
from inferometer.understand.accuracy.atlas_file import predict_served, served_case

RECORD = Path(__file__).parent / "recorded" / "serving-peer.jsonl"
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


def ask_them(pairs: list[tuple[Any, Any]], record: Path, seconds: float) -> None:
    """Ask about the rows that are not in the record yet; those of one system together, whose tables it reads once."""
    known, start = recorded(record), time.monotonic()
    left = [each for _, each in pairs if each.line not in known]
    for row in sorted(left, key=lambda each: (str(each.device), str(each.engine), each.line)):
        if time.monotonic() - start > seconds:
            break
        began = time.monotonic()
        try:
            ttft, tpot = their_figures(row) or (None, None)
            said: dict[str, Any] = {"ttft_s": ttft, "tpot_s": tpot, "took_s": round(time.monotonic() - began, 3)}
        except Exception as error:  # noqa: BLE001 - whatever the other tool cannot answer
            words = re.sub(r"( at)? /\S*", "", str(error).partition("\n")[0])  # no folder of the machine it was made on
            said = {"refused": words[:120]}
        told = {"line": row.line, "model": row.model_published, "device": row.device, "engine": row.engine, **said}
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def recorded(record: Path) -> dict[int, dict[str, Any]]:
    if not record.is_file():
        return {}
    lines = record.read_text(encoding="utf-8").splitlines()
    return {told["line"]: told for told in map(json.loads, lines)}


def compared(pairs: list[tuple[Any, Any]], theirs: dict[int, dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """By quantity the errors of both on the rows that both answer."""
    errors: dict[str, list[tuple[float, float]]] = {"tpot": [], "ttft": []}
    for rows in pairs:
        said = theirs.get(rows[0].line, {})
        if said.get("tpot_s") is None:
            continue
        for row in rows:
            try:
                case = served_case(row)
            except InferometerError:
                case = None
            if case is not None:
                mine = predict_served(case).seconds / row.seconds - 1
                errors[row.quantity].append((mine, said[f"{row.quantity}_s"] / row.seconds - 1))
    return errors


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long to ask the other tool at most")
    asked = parser.parse_args()
    pairs = rows_of(asked.most)
    if find_spec("aiconfigurator") is not None:
        logging.disable(logging.CRITICAL)
        ask_them(pairs, asked.record, asked.seconds)
    theirs = recorded(asked.record)
    if not theirs:
        print("aiconfigurator is not installed here: pip install aiconfigurator (its tables alone are not the tool)")
        return
    for name, both in compared(pairs, theirs).items():
        for place, who in enumerate(("inferometer", "aiconfigurator")):
            errors = np.array([pair[place] for pair in both])
            print(
                f"{name} {who:16}{len(errors):>4} rows  median {np.median(np.abs(errors)):6.1%}  "
                f"p90 {np.quantile(np.abs(errors), 0.9):6.1%}  bias {np.median(errors):+6.1%}"
            )
    mine = [theirs[each.line] for _, each in pairs if each.line in theirs]
    print(f"of {len(pairs)} rows asked of aiconfigurator: {len(mine)}, refused by it: "
          f"{sum('refused' in told for told in mine)}")  # fmt: skip


if __name__ == "__main__":
    main()
