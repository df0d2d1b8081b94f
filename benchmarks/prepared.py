"""Two networks and a small Llama prepared for engines in three formats each, and one network's layers in every engine.

    python benchmarks/prepared.py                       # benchmarks/recorded/prepared-DATE.jsonl, then both tables
    python benchmarks/prepared.py --out FILE.jsonl --show
    python benchmarks/prepared.py --foretold --threads 1   # is the sign of each gain right that `--dry` foretells?

A line is added for each case as it is done, and the same command goes on where it stopped. Weights are random. Gains
are over what went into the step that converts or quantises: for a converter that is the original in the engine that
opens it. With --foretold they are over the plain file in the same engine, which is what `--dry` speaks of: small
networks, and files that lie in packages (tests/models.txt). `within` says whether the measured gain lies in the
predicted interval. A gain within a twentieth of 1, or whose own interval has 1 in it, has no sign: it is counted apart,
and the prediction is right about it if its interval has 1 in it. It needs a quiet machine, and some twenty minutes.

Layers are the network's own. Converters rename them: there they are matched in order, by their operations.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from math import exp, log, sqrt
from pathlib import Path
from statistics import median
from typing import Any

from real_files import sizes_of

import inferometer as im
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.plugins import load_all
from inferometer.core.settings import cache_folder
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.engines.base import Target
from inferometer.formats.resolve import read
from inferometer.formats.synth import synthesise
from inferometer.known.engines import engine
from inferometer.known.machine.detect.identity import this_machine
from inferometer.measure.bench.plan import Plan
from inferometer.measure.prepare.artifact import source_of as engine_source
from inferometer.measure.prepare.foretell import foretell
from inferometer.measure.prepare.proof import ProvedFile, Proving, measured_gain
from inferometer.measure.prepare.run import Prepared, PrepareRequest, StepResult, carry_out_request
from inferometer.measure.prepare.steps import step_named
from inferometer.measure.run.inputs import input_shapes, make_inputs

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
IN_PACKAGES: dict[str, tuple[str, dict[str, list[int]]]] = {  # files that nobody here made; shapes that they leave open
    "rapidocr cls": ("rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": [1, 3, 48, 192]}),
    "rapidocr rec": ("rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", {"x": [1, 3, 48, 320]}),
    "rapidocr det": ("rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", {"x": [1, 3, 320, 320]}),
    "nudenet 320n": ("nudenet/320n.onnx", {"images": [1, 3, 320, 320]}),
}
FORETOLD: dict[str, dict[str, tuple[str, ...]]] = {  # of every kind that may be slower
    "squeezenet1.1": {
        "onnxruntime": ("i8", "i8-dynamic"), "litert": ("i8", "i8-dynamic"), "openvino": ("f16", "i8"), "mnn": ("i8",),
    },
    "mobilenet-v2": {
        "onnxruntime": ("i8", "i8-dynamic"), "openvino": ("f16", "i8", "i8-weights"),
        "litert": ("i8", "f16", "i8-dynamic"), "mnn": ("i8", "f16", "i8-weights"), "ncnn": ("f16",),
        "torch-eager": ("i8",),
    },
    "resnet18": {
        "onnxruntime": ("i8", "i8-dynamic"), "openvino": ("i8", "i8-weights"), "mnn": ("i8",),
        "torch-eager": ("i8", "i8-dynamic"),
    },
    "rapidocr cls": {"onnxruntime": ("i8", "i8-dynamic"), "openvino": ("f16", "i8"), "mnn": ("i8", "f16")},
    "rapidocr rec": {"onnxruntime": ("i8", "i8-dynamic"), "openvino": ("i8",)},
    "rapidocr det": {"onnxruntime": ("i8", "i8-dynamic"), "openvino": ("f16", "i8"), "mnn": ("i8",)},
    "nudenet 320n": {"onnxruntime": ("i8", "i8-dynamic"), "openvino": ("i8", "i8-weights"), "mnn": ("i8", "f16")},
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
    if model in IN_PACKAGES:
        package, _, path = IN_PACKAGES[model][0].partition("/")
        found = find_spec(package)
        if found is None or found.origin is None:
            raise DomainError(f"The package {package} is not installed.", remedy="tests/models.txt has its version.")
        return str(Path(found.origin).parent / path)
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


def foretold_case(model: str, runtime: str, asked: str, options: argparse.Namespace) -> dict[str, Any]:
    """What `prepare --dry` says of a format, and what the engine then makes of its file beside the plain one."""
    key = {"what": "prepared", "model": model, "runtime": runtime, "quantise": asked}
    try:
        sizes = sizes_of(read(source_of(model)), IN_PACKAGES[model][1]) if model in IN_PACKAGES else {}
        request = PrepareRequest(
            model=source_of(model), runtime=runtime, quantise=asked, measure=False, sizes=sizes, force=True,
            threads=options.threads, workload=Workload(**(TOKENS if model == LLAMA_NAME else {})),
        )  # fmt: skip
        (told,) = foretell(request)
        made = carry_out_request(request)
        plain = carry_out_request(replace(request, quantise="f32" if runtime == "llamacpp" else None))
    except InferometerError as error:
        return {**key, "reason": str(error)}
    if told.gain is None or made.artifact is None:
        return {**key, "reason": told.reason or "nothing was made"}
    paths = [plain.artifact or engine_source(request.model, engine(runtime)), made.artifact]
    before, after = (
        ProvedFile(path=path, runtime=runtime, sizes={name: sizes[name] for name in sizes if _leaves_open(path, name)})
        for path in paths
    )
    try:
        in_text = model == LLAMA_NAME
        measured = in_turns(before, after, request, options) if in_text else in_cpu_time(before, after, options)
    except InferometerError as error:
        return {**key, "reason": str(error)}
    row, gain = main_step(made), told.gain
    return {
        **key, "step": row and row.name, "tool": row and row.tool, "original_bytes": made.original_bytes,
        "bytes": made.bytes, "drift": made.drift, "predicted": [gain.gain, gain.low, gain.high], "why": told.why,
        "measured": measured, "within": gain.low <= measured[0] <= gain.high, "threads": options.threads,
        "clock": "wall" if model == LLAMA_NAME else "CPU",
    }  # fmt: skip


def in_turns(
    before: ProvedFile, after: ProvedFile, request: PrepareRequest, options: argparse.Namespace
) -> list[float | None]:
    proving = Proving(
        original=before, graph=read(str(before.path)), device="local", here=True, workload=request.workload,
        threads=options.threads, plan=Plan(runs=options.runs, warmup=3, seconds=0.0, seconds_at_most=120.0),
    )  # fmt: skip
    measured = measured_gain(proving, before, after)
    if isinstance(measured, str):
        raise DomainError(measured)
    return [measured.gain, measured.low, measured.high]


def in_cpu_time(before: ProvedFile, after: ProvedFile, options: argparse.Namespace) -> list[float]:
    """The median gain of pairs in this process, by CPU time, and the order statistics that hold it nineteen in twenty.

    What others do on a busy machine takes the clock's time, and little of a thread's.
    """
    runtime = load_all("inferometer.runtimes")[0][before.runtime]
    sessions = []
    for file in (before, after):
        graph = read(str(file.path))
        shapes = input_shapes(graph, bind(graph, Workload(), file.sizes))
        target = Target(
            path=file.path, format=graph.metadata["format"], threads=options.threads, shapes=shapes,
            trusted=True,
        )  # fmt: skip
        session = runtime.open(target)
        session.feed(make_inputs(session.opened.inputs, sizes={}, shapes=shapes))
        sessions.append(session)
    logs, pairs = [], max(options.runs, 15)
    for number in range(-2, pairs):
        taken = []
        for session in sessions:
            start = time.process_time()
            session.step()
            taken.append(time.process_time() - start)
        if number >= 0:
            logs.append(log(taken[0] / taken[1]))
    for session in sessions:
        session.close()
    logs.sort()
    low = max(0, int(pairs / 2 - 0.98 * sqrt(pairs)) - 1)
    return [exp(value) for value in (median(logs), logs[low], logs[-1 - low])]


def _leaves_open(path: Path, name: str) -> bool:
    """Whether the file still has that size open: tools fix some."""
    return name in read(str(path)).symbols


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
        judged = foretold_case if options.foretold else case
        row = judged(model, runtime, asked, options) if what == "prepared" else layers(runtime, options)
        row |= {
            "cpu": this_machine().cpu,
            "load": round(before, 2),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
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


def sign_is_right(row: dict[str, Any]) -> tuple[bool, bool] | None:
    """Whether the measured gain has a sign, and whether the prediction is right about it.

    None where nothing was predicted or measured, or where nothing was to change.
    """
    (predicted, low, high), measured = row.get("predicted", (None,) * 3), row.get("measured", (None,) * 3)
    if predicted is None or measured[0] is None or low is None or low == high:
        return None
    if abs(measured[0] - 1) <= NO_SIGN or (None not in measured and measured[1] <= 1 <= measured[2]):
        return False, bool(low <= 1 <= high)
    return True, bool((predicted > 1) == (measured[0] > 1))


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
    parser.add_argument("--foretold", action="store_true", help="the small cases, for the sign of their gains")
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
    for signed, words in ((True, "Sign of the gain right"), (False, "Without a sign, and 1 within the interval")):
        signs = [(row, found[1]) for row in rows if (found := sign_is_right(row)) is not None and found[0] is signed]
        wrong = ", ".join(f"{row['model']} {row['quantise']} in {row['runtime']}" for row, right in signs if not right)
        print(f"{words}: {sum(right for _, right in signs)} of {len(signs)}{f'; not: {wrong}' * bool(wrong)}.")


if __name__ == "__main__":
    main()
