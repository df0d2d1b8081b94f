"""Measure the cases that predictions for a CPU are tried on, with the product's own sessions and its steady statistic.

    python -m workshop.accuracy.measure --runtime onnxruntime --device NAME --threads 1 --minutes 10 --out cases.jsonl

Every case is tried when the machine is quiet (`bench.guard`), again where it was disturbed meanwhile, until all are
undisturbed or the time is spent. A case that stays disturbed is kept and marked. Lines are cases as
`inferometer accuracy` reads them, with the date, versions, processor and load beside.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inferometer.core.errors import InferometerError
from inferometer.core.settings import cache_folder
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.engines.base import Target
from inferometer.formats.resolve import read
from inferometer.known.engines import engine
from inferometer.known.zoo import model
from inferometer.measure.bench.guard import Guard
from inferometer.measure.calibrate.probes.converted import converted_probe, converter_to
from inferometer.measure.calibrate.probes.decoders import run_texts
from inferometer.measure.calibrate.probes.models import (
    READS,
    SEES,
    WRITES,
    Probe,
    ProbeRun,
    converted_checkpoint,
    steps_to,
)
from inferometer.measure.calibrate.probes.pace import MachinePace
from inferometer.measure.calibrate.probes.points import fed, order_of, run_in_turns
from inferometer.measure.calibrate.probes.workshop import Workshop
from inferometer.measure.run.child import runtime_named
from inferometer.measure.run.inputs import input_shapes
from inferometer.measure.run.model_file import PreparedModel, SyntheticWeights, prepare_model
from inferometer.measure.run.order import TextOrder

# [batch, image] of networks that see, [batch, tokens] of encoders.
IMAGES = {
    "resnet18": [(1, 224), (4, 224), (1, 160)],
    "resnet34": [(1, 224), (2, 192)],
    "resnet50": [(1, 224), (1, 320), (4, 224)],
    "resnet101": [(1, 224)],
    "mobilenet-v2": [(1, 224), (8, 224), (1, 160)],
    "mobilenet-v3-large": [(1, 224), (4, 224), (1, 320)],
    "efficientnet-b0": [(1, 224), (4, 224), (1, 320)],
    "vgg16": [(1, 224), (2, 224)],
    "alexnet": [(1, 224), (8, 224)],
    "densenet121": [(1, 224), (2, 160)],
    "squeezenet1.1": [(1, 224), (4, 224)],
    "convnext-tiny": [(1, 224), (1, 288), (2, 224)],
    "yolov8n": [(1, 320), (1, 640)],
    "vit-b-16": [(1, 224), (2, 224)],
    "swin-t": [(1, 224)],
}
TEXTS = {
    "bert-base": [(1, 16), (1, 64), (1, 128), (1, 384), (4, 64)],
    "bert-large": [(1, 32), (1, 128)],
    "distilbert-base": [(1, 32), (1, 128), (8, 32), (1, 512)],
    "roberta-base": [(1, 96), (2, 256)],
    "all-minilm-l6-v2": [(1, 16), (1, 128), (1, 256), (16, 64)],
    "modernbert-base": [(1, 128), (1, 512)],
}
# [prompt, generated tokens, tokens in the cache before]: two cases each, the prompt read and a step of decoding.
DECODERS = {
    "smollm2-135m": [(32, 16, 0), (128, 16, 0), (400, 8, 0), (64, 16, 768)],
    "smollm2-360m": [(64, 16, 0), (192, 8, 300)],
    "qwen2.5-0.5b": [(48, 16, 0), (128, 8, 256)],
}
WEIGHTS = {"llamacpp": ("q4_0", "q8_0", "f16")}  # … of others: the format that is calibrated by default


# Where no step counted as steady, the quarter beside which the machine was fastest stands for them.
STATISTICS = {True: "first decile of steady steps", False: "first decile of the quarter at the fastest pace"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    model: str
    batch: int = 1
    image: int | None = None
    prompt: int | None = None
    generate: int | None = None
    depth: int = 0
    weights: str | None = None


def wanted_for(runtime: str) -> list[Wanted]:
    if engine(runtime).by_weights is not None:
        return [
            Wanted(model=model, prompt=prompt, generate=made, depth=depth, weights=weights)
            for weights in WEIGHTS.get(runtime) or (engine(runtime).calibrated_in or "f32",)
            for model, lengths in DECODERS.items()
            for prompt, made, depth in lengths
        ]
    seen = [Wanted(model=model, batch=b, image=side) for model, runs in IMAGES.items() for b, side in runs]
    return seen + [Wanted(model=model, batch=b, prompt=n) for model, runs in TEXTS.items() for b, n in runs]


def measured(want: Wanted, options: argparse.Namespace, pace: MachinePace, guard: Guard) -> list[dict[str, Any]]:
    """The lines of one case: one a phase."""
    mark, before, look = guard.mark(), os.getloadavg()[0], guard.before()
    runtime = runtime_named(options.runtime)
    sizes = {} if want.image is None else {"image": want.image}
    making = SyntheticWeights(folder=options.models, weights=want.weights, sizes=sizes)
    prepared = converted(want, options) or prepare_model(want.model, runtime, making)
    if want.generate is None:
        found, versions = forward(want, options, pace, prepared)
    else:
        found, versions = generation(want, options, pace, prepared)
    said = (*look.disturbances, *guard.since(mark))
    common = {
        "model": want.model, "device": options.device, "runtime": options.runtime, "dtype": "f32",
        "batch": want.batch, "image": want.image, "weights": want.weights, "threads": options.threads,
        "source": "workshop/accuracy/measure.py", "role": "test",
        "disturbed": bool(said), "reasons": sorted({each.code for each in said}), "versions": versions,
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "processor": guard.host.cpu.model,
        "load": [round(before, 2), round(os.getloadavg()[0], 2)],
    }  # fmt: skip
    return [{**common, "statistic": STATISTICS[line["steady"] > 0], **line} for line in found]


def converted(want: Wanted, options: argparse.Namespace) -> PreparedModel | None:
    """The model for an engine that opens a format of its own, by the way that probes for it are made."""
    runtime = runtime_named(options.runtime)
    if not runtime.formats.isdisjoint({"onnx", "tflite", "gguf", "config"}):
        return None
    options.models.mkdir(parents=True, exist_ok=True)
    if want.generate is not None:
        return converted_decoder(want, options)
    step = converter_to(runtime.formats)
    if step is None or (want.batch > 1 and not runtime.capabilities.batches):
        raise InferometerError(f"{runtime.title} cannot run {want.model} with a batch of {want.batch}.")
    run = ProbeRun(batch=want.batch, image=want.image, prompt=want.prompt)
    kind = READS if want.image is None else SEES
    probe = Probe(name=want.model, kind=kind, config=model(want.model).config, runs=(run,))
    with closing(Workshop()) as tools:
        made = converted_probe(step, probe, run, weights="f32", folder=options.models, tools=tools)
    return PreparedModel(path=made.path, format=step.gives, graph=made.graph, text=False)


def converted_decoder(want: Wanted, options: argparse.Namespace) -> PreparedModel:
    run = ProbeRun(prompt=want.prompt)
    probe = Probe(name=want.model, kind=WRITES, config=model(want.model).config, runs=(run,))
    step = steps_to(runtime_named(options.runtime).formats)[want.weights or "f32"]
    with closing(Workshop()) as tools:
        path = converted_checkpoint(step, probe, run, folder=options.models, tools=tools)
    return PreparedModel(path=path, format=step.gives, graph=read(str(path)), text=True)


def forward(want: Wanted, options: argparse.Namespace, pace: MachinePace, prepared: PreparedModel) -> tuple[Any, Any]:
    runtime = runtime_named(options.runtime)
    workload = Workload(batch=want.batch, prompt=want.prompt, image=want.image)
    target = Target(path=prepared.path, format=prepared.format, threads=options.threads, batch=want.batch)
    if prepared.format not in {"onnx", "tflite", "config"}:  # its sizes are not in the file
        target = replace(target, shapes=input_shapes(prepared.graph, bind(prepared.graph, workload)))
    with closing(runtime.open(target)) as session:
        ran = run_in_turns(
            fed(order_of(runtime, target, prepared.graph, workload), session), None, pace,
            limit_s=options.seconds, threads=options.threads,
        )  # fmt: skip
    line = {
        "phase": "forward",
        "seconds": ran.clean_s,
        "prompt": want.prompt,
        "samples": ran.runs,
        "steady": ran.steady,
    }
    return [line], dict(ran.versions)


def generation(
    want: Wanted, options: argparse.Namespace, pace: MachinePace, prepared: PreparedModel
) -> tuple[Any, Any]:
    runtime = runtime_named(options.runtime)
    held = (want.prompt or 1) + (want.generate or 0) + want.depth + 8
    target = Target(path=prepared.path, format=prepared.format, text=True, threads=options.threads, context=held)
    with closing(runtime.open(target)) as session:
        run = TextOrder(prompt=want.prompt or 1, generate=want.generate or 0, depth=want.depth)
        ran = run_texts(session, run, pace, limit_s=options.seconds, threads=options.threads)
    lines = [
        {
            "phase": each.phase, "seconds": each.seconds, "prompt": want.prompt if each.phase == "prefill" else None,
            "context": each.context or None, "samples": each.runs, "steady": each.steady,
        }
        for each in ran
        if each.phase == "decode" or not want.depth  # that prompt's clock includes filling the cache
    ]  # fmt: skip
    return lines, {name: str(value) for name, value in session.opened.versions.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=cache_folder() / "models")
    parser.add_argument("--seconds", type=float, default=1.0, help="of steps, a case")
    parser.add_argument("--only", default="", help="part of a model's name")
    options = parser.parse_args()
    kept: dict[Wanted, list[dict[str, Any]]] = {}
    waiting = [want for want in wanted_for(options.runtime) if options.only in want.model]
    known = _known(options.out, waiting)
    kept.update(known)
    end = time.monotonic() + 60 * options.minutes
    guard, pace = Guard(), MachinePace()
    pace.learn(2.0)
    while time.monotonic() < end:
        left = [want for want in waiting if want not in kept or any(line["disturbed"] for line in kept[want])]
        left.sort(key=kept.__contains__)  # those that have no number yet come first
        if not left:
            break
        for want in left:
            if time.monotonic() > end:
                break
            _wait(guard, end)
            try:
                found = measured(want, options, pace, guard)
            except InferometerError as error:
                print(f"{want}: {error}", file=sys.stderr)
                waiting.remove(want)
                continue
            if want not in kept or _better(found, kept[want]):
                kept[want] = found
            _write(options.out, kept)
            words = "disturbed" if any(line["disturbed"] for line in found) else "quiet"
            print(want.model, want.batch, want.image or want.prompt, want.weights or "", words, *(
                f"{line['phase']} {line['seconds'] * 1e3:.2f} ms" for line in found), flush=True)  # fmt: skip


def _wait(guard: Guard, end: float) -> None:
    """Until nothing disturbs, for a few seconds at most: the measurement itself says whether it was."""
    until = min(end, time.monotonic() + 2.0)
    while time.monotonic() < until and guard.before().disturbances:
        time.sleep(0.5)


def _better(new: list[dict[str, Any]], old: list[dict[str, Any]]) -> bool:
    if not new:
        return False
    was, now = (any(line["disturbed"] for line in lines) for lines in (old, new))
    return was and (not now or sum(x["seconds"] for x in new) < sum(x["seconds"] for x in old))


def _known(path: Path, waiting: list[Wanted]) -> dict[Wanted, list[dict[str, Any]]]:
    """Cases of an earlier run of this script, by the place they have in its list."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    found: dict[Wanted, list[dict[str, Any]]] = {}
    for want in waiting:
        mine = [line for line in lines if line.get("asked") == _asked(want)]
        if mine:
            found[want] = mine
    return found


def _asked(want: Wanted) -> list[Any]:
    return [want.model, want.batch, want.image, want.prompt, want.generate, want.depth, want.weights]


def _write(path: Path, kept: dict[Wanted, list[dict[str, Any]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{**line, "asked": _asked(want)} for want, lines in kept.items() for line in lines]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
