"""Two networks and a small Llama prepared for engines in three formats each, and one network's layers in every engine.

    python benchmarks/prepared.py                       # benchmarks/recorded/prepared-DATE.jsonl, then both tables
    python benchmarks/prepared.py --out FILE.jsonl --show
    python benchmarks/prepared.py --foretold --runs 5   # thirty small cases: is the sign of each gain right?

A line is added for each case as it is done, and the same command goes on where it stopped. Weights are random. Gains
are over what went into the step that converts or quantises: for a converter that is the original in the engine that
opens it. `within` says whether the measured gain lies in the predicted interval. A gain within a twentieth of 1 has no
sign: the prediction is right about it if its interval has 1 in it. It needs a quiet machine, and some twenty minutes;
with --foretold some eight.

Layers are the network's own. Converters rename them: there they are matched in order, by their operations.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import inferometer as im
from inferometer.core.errors import InferometerError
from inferometer.core.settings import cache_folder
from inferometer.formats.synth import synthesise
from inferometer.measure.bench.plan import Plan
from inferometer.measure.prepare.run import Prepared, StepResult
from inferometer.measure.prepare.steps import step_named

RECORDED = Path(__file__).with_name("recorded")
NETWORK, LLAMA_NAME = "resnet50", "small-llama"
TOKENS = {"prompt": 32, "generate": 16}  # of the Llama, whose original runs in PyTorch
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1408,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 8000,
    "max_position_embeddings": 2048, "tie_word_embeddings": False, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "torch_dtype": "float32",
}  # fmt: skip
FORMATS: dict[str, dict[str, tuple[str | None, ...]]] = {
    NETWORK: {
        "onnxruntime": (None, "i8-dynamic", "i8"),
        "openvino": (None, "i8-weights", "i8"),
        "litert": (None, "f16", "i8"),
        "ncnn": (None, "f16"),
        "mnn": (None, "f16", "i8-weights", "i8"),
        "executorch": (None, "i8"),
    },
    "mobilenet-v2": {
        "onnxruntime": ("i8-dynamic", "i8"),
        "openvino": ("i8-weights", "i8"),
        "litert": ("i8-dynamic", "i8"),
        "mnn": ("i8",),
        "executorch": ("i8",),
    },
    LLAMA_NAME: {
        "llamacpp": ("f16", "q8_0", "q4_0"),
        "openvino-genai": (None, "i8-weights", "i4-weights"),
        "onnxruntime-genai": (None, "i8-weights", "i4-weights"),
        "ctranslate2": (None, "bf16", "i8-dynamic"),
    },
}
FORETOLD: dict[str, dict[str, tuple[str | None, ...]]] = {  # small, and of every kind that may be slower
    "squeezenet1.1": {"onnxruntime": ("i8", "i8-dynamic"), "litert": ("i8", "i8-dynamic"), "openvino": ("f16", "i8")},
    "mobilenet-v2": {
        "onnxruntime": ("i8", "i8-dynamic"), "openvino": ("f16", "i8"), "litert": ("i8", "f16"), "mnn": ("i8", "f16"),
        "ncnn": ("f16",), "torch-eager": ("i8", "i8-weights"),
    },
    "resnet18": {"onnxruntime": ("i8", "i8-dynamic"), "torch-eager": ("i8", "i8-dynamic"), "openvino": ("i8-weights",)},
    LLAMA_NAME: {
        "llamacpp": ("f16", "bf16", "q8_0", "q4_0"), "torch-eager": ("i8-weights", "i8-dynamic"),
        "ctranslate2": ("bf16", "i8-dynamic"),
    },
}  # fmt: skip
NO_SIGN = 0.05  # of a gain: what differs less from 1 is neither faster nor slower
ENGINES = ("onnxruntime", "openvino", "litert", "torch-eager", "torch-compile", "ncnn", "mnn", "executorch")
CONVERTED = {"ncnn": ".param", "mnn": ".mnn", "executorch": ".pte"}
PRODUCTS = frozenset({"convolution", "linear"})
FUSED = 0.06  # of a product's operations: what sums, norms and activations that ran inside it may add


def source_of(model: str) -> str:
    if model != LLAMA_NAME:
        return model
    folder = cache_folder() / "models" / model
    if not (folder / "config.json").exists():
        synthesise(LLAMA, folder, format="safetensors", weights="f32", seed=0, sizes={})
    return str(folder)


def main_step(prepared: Prepared) -> StepResult | None:
    """The step that was asked for: the last that is no mere help."""
    needed = [row for row in prepared.steps if not step_named(row.name).optional]
    return (needed or [*prepared.steps])[-1] if prepared.steps else None


def case(model: str, runtime: str, asked: str | None, options: argparse.Namespace) -> dict[str, Any]:
    key = {"what": "prepared", "model": model, "runtime": runtime, "quantise": asked}
    try:
        made = im.prepare(
            source_of(model), runtime=runtime, quantise=asked, runs=options.runs, threads=options.threads,
            **(TOKENS if model == LLAMA_NAME else {}),
        )  # fmt: skip
    except InferometerError as error:
        return {**key, "reason": str(error)}
    row = main_step(made)
    if row is None:
        return {**key, "reason": "the engine opens the file as it is, and no step would help it"}
    low, high, gain = row.predicted_low, row.predicted_high, row.measured_gain
    within = None
    if low is not None and high is not None and gain is not None and low < high:  # equal: nothing is changed
        within = low <= gain <= high
    return {
        **key, "step": row.name, "tool": row.tool, "original_bytes": made.original_bytes, "bytes": row.bytes,
        "drift": row.drift, "predicted": [row.predicted_gain, low, high],
        "measured": [gain, row.measured_low, row.measured_high], "verdict": row.verdict, "within": within,
    }  # fmt: skip


def layers(runtime: str, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of each convolution and product of the network in one engine."""
    key = {"what": "layers", "model": NETWORK, "runtime": runtime}
    try:
        path = _opened_by(runtime, options)
        plan = Plan(runs=options.runs, warmup=3, seconds=0.0, seconds_at_most=60.0)
        profile = im.profile(path, runtime=runtime, plan=plan, threads=options.threads, predict=False)
    except InferometerError as error:
        return {**key, "reason": str(error)}
    steady = profile.steady
    if steady is None:
        return {**key, "reason": "no step was measured"}
    rows = [
        {"name": layer, "flops": (op.flops or 0.0) / op.count, "ms": 1e3 * op.time_s / op.count}
        for op in steady.ops
        if op.kind in PRODUCTS
        for layer in (op.layers or (op.name,))[:1]
    ]
    return {**key, "step_ms": 1e3 * (steady.clean_s or steady.time_s), "layers": rows}


def _opened_by(runtime: str, options: argparse.Namespace) -> str:
    """The network in a format that the engine opens: its name where weights can be made for it, else converted."""
    if runtime not in CONVERTED:
        return NETWORK
    out = cache_folder() / "models" / f"{NETWORK}{CONVERTED[runtime]}"
    if not out.exists():
        im.prepare(NETWORK, runtime=runtime, out=out, measure=False, threads=options.threads)
    return str(out)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def record(options: argparse.Namespace) -> None:
    done = {(row["what"], row["model"], row["runtime"], row.get("quantise")) for row in lines_of(options.out)}
    wanted = [
        ("prepared", model, runtime, asked)
        for model, engines in (FORETOLD if options.foretold else FORMATS).items()
        for runtime, formats in engines.items()
        for asked in formats
    ] + [("layers", NETWORK, runtime, None) for runtime in ENGINES if not options.foretold]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for what, model, runtime, asked in wanted:
        if (what, model, runtime, asked) in done:
            continue
        before = os.getloadavg()[0]
        row = case(model, runtime, asked, options) if what == "prepared" else layers(runtime, options)
        row |= {"load": round(before, 2), "date": datetime.now(UTC).isoformat(timespec="seconds")}
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def prepared_table(rows: list[dict[str, Any]]) -> list[str]:
    def gain(three: list[float | None]) -> str:
        first, low, high = three
        interval = f" ({low:.2g} to {high:.2g})" if low is not None and high is not None else ""
        return "–" if first is None else f"{first:.2f} ×{interval}"

    lines = ["| model | engine | format | size | drift | predicted gain | measured gain | within |", "|" + "---|" * 8]
    for row in rows:
        start = f"| {row['model']} | {row['runtime']} | {row['quantise'] or 'as it is'} | "
        if "reason" in row:
            lines.append(f"{start}{row['reason']} | | | | |")
            continue
        size = "–" if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f} of {row['original_bytes'] / 1e6:.1f} MB"
        drift = "–" if row["drift"] is None else f"{row['drift']:.2g}"
        within = {True: "yes", False: "no", None: "–"}[row["within"]]
        lines.append(f"{start}{size} | {drift} | {gain(row['predicted'])} | {gain(row['measured'])} | {within} |")
    return lines


def sign_is_right(row: dict[str, Any]) -> bool | None:
    """None where nothing was predicted or measured, or where nothing was to change."""
    (predicted, low, high), (measured, *_) = row.get("predicted", (None,) * 3), row.get("measured", (None,))
    if predicted is None or measured is None or low is None or low == high:
        return None
    if abs(measured - 1) <= NO_SIGN:
        return bool(low <= 1 <= high)
    return bool((predicted > 1) == (measured > 1))


def matched(names: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, float]:
    """Milliseconds by our names: those of the same name, otherwise the next of as many operations."""
    known = {row["name"].partition("/")[0]: row["ms"] for row in found}
    if sum(row["name"] in known for row in names) > len(names) // 2:
        return known
    left, by_name = list(found), {}
    for row in names:
        same = next((other for other in left if abs(other["flops"] / row["flops"] - 1) < FUSED), None)
        if same is not None:
            left.remove(same)
            by_name[row["name"]] = same["ms"]
    return by_name


def layer_table(rows: list[dict[str, Any]]) -> list[str]:
    told = [row for row in rows if "layers" in row]
    if not told:
        return []
    names = [{**row, "name": row["name"].partition("/")[0]} for row in told[0]["layers"]]
    columns = {row["runtime"]: matched(names, row["layers"]) for row in told}
    lines = [f"| layer, ms | {' | '.join(columns)} |", "|" + "---|" * (1 + len(columns))]
    for row in names:
        cells = (f"{column[row['name']]:.3f}" if row["name"] in column else "–" for column in columns.values())
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    whole = (f"{row['step_ms']:.2f}" for row in told)
    return [*lines, f"| the whole step | {' | '.join(whole)} |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    today = datetime.now(UTC).date().isoformat()
    parser.add_argument("--out", type=Path, default=RECORDED / f"prepared-{today}.jsonl")
    parser.add_argument("--show", action="store_true", help="measure nothing, only print the tables of the file")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--foretold", action="store_true", help="the thirty small cases, for the sign of their gains")
    options = parser.parse_args()
    if options.foretold and options.out == parser.get_default("out"):
        options.out = RECORDED / f"foretold-{today}.jsonl"
    if not options.show:
        record(options)
    rows = lines_of(options.out)
    for what, table in (("prepared", prepared_table), ("layers", layer_table)):
        print("\n".join(table([row for row in rows if row["what"] == what])), end="\n\n")
    judged = [row["within"] for row in rows if row.get("within") is not None]
    print(f"Within the predicted interval: {sum(judged)} of {len(judged)}.")
    signs = [(row, right) for row in rows if (right := sign_is_right(row)) is not None]
    wrong = ", ".join(f"{row['model']} {row['quantise']} in {row['runtime']}" for row, right in signs if not right)
    print(
        f"Sign of the gain right: {sum(right for _, right in signs)} of {len(signs)}{f'; not: {wrong}' * bool(wrong)}."
    )


if __name__ == "__main__":
    main()
