"""Properties that every answer must have, tried on questions drawn from the whole catalog: `make sanity`.

A question is a model, a device of some kind and an engine that takes both. What a property finds is a *violation*: the
kind of it, the question as a command, and what was seen. The same seed draws the same questions.

    python -m workshop.sanity --questions 300 --seed 1

With `--page` the published figures are asked about too: `workshop/known_misses.py`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

import inferometer as im
from inferometer.cli.commands.predict import command as predict_command
from inferometer.core.errors import InferometerError
from inferometer.core.graph import is_generative, takes_prompt
from inferometer.formats.networks.shipped import network_records
from inferometer.known import devices, models
from inferometer.known.engines import default_runtime, engine, engines
from inferometer.predict.applicable import takes_image
from inferometer.predict.ask import ask, model_graph
from workshop.known_misses import known_misses_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Graph
    from inferometer.core.profile import OpTime, Profile

FLOORS = 20.0  # times its floor that an op may take before somebody has to say why
COUNTS = 0.05  # of its phase that an op takes before it is worth a look
STARTING_S = 150e-6  # what a kernel takes beside its work in the slowest of the fits: no op is held to less
SLACK = 1.1  # f32 convolutions save products by Winograd's transform, which 8 bits do without
AGAIN = 1.05  # what a batch may take over its inputs one by one: on a CPU their activations leave its cache
ROUNDING = 1e-6
TIMES = ("latency_s", "ttft_s", "tpot_s", "e2e_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question by its names, as a person would type it."""

    model: str
    device: str
    runtime: str
    sizes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        sizes = " ".join(f"--{name} {value}" for name, value in self.sizes.items())
        return f"predict {self.model} --on {self.device} --runtime {self.runtime} {sizes}".rstrip()

    def answer(self, **changed: Any) -> Profile:
        found: Profile = im.predict(self.model, on=self.device, runtime=self.runtime, **{**self.sizes, **changed})
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    kind: str
    asked: Asked
    seen: str


def draw(count: int, seed: int) -> Iterator[Asked]:
    """Questions that are answered. Each kind of device is as likely as any other, however many rows it has."""
    chance = random.Random(seed)  # noqa: S311 - a sample, no secret
    kinds = _kinds_of_device()
    names = [*models(), *_networks()]
    drawn = 0
    while drawn < count:
        device = chance.choice(kinds[chance.choice(sorted(kinds))])
        model = chance.choice(names)
        graph = model_graph(model)
        runtimes = [name for name, each in engines().items() if name != "ideal" and each.runs_on(device)]
        asked = Asked(
            model=model,
            device=device.name,
            runtime=chance.choice([default_runtime(device, graph), chance.choice(runtimes)]),
            sizes=_sizes(graph, chance),
        )
        try:
            asked.answer()
        except InferometerError:
            continue  # refused with a reason, which other tests read
        drawn += 1
        yield asked


def _kinds_of_device() -> dict[tuple[str, str, str], list[Device]]:
    kinds: dict[tuple[str, str, str], list[Device]] = defaultdict(list)
    for device in devices().values():
        kinds[device.unit, device.vendor, device.kind or ""].append(device)
    return kinds


@cache
def _networks() -> tuple[str, ...]:
    """Half as many networks of packages as the catalog has models: they differ less."""
    names = sorted(record["name"] for record in network_records())
    return tuple(random.Random(0).sample(names, len(models()) // 2))  # noqa: S311 - as above


def _sizes(graph: Graph, chance: random.Random) -> dict[str, Any]:
    sizes: dict[str, Any] = {"batch": chance.choice((1, 1, 4, 16))}
    if is_generative(graph):
        return {**sizes, "prompt": chance.choice((64, 512, 2048)), "generate": chance.choice((16, 128))}
    return {**sizes, "prompt": chance.choice((64, 256))} if takes_prompt(graph) else sizes


# Why ops of a unit take more than 20 × their floor, by unit, kind and a pattern of their rung.
EXPLAINED = {
    ("npu", "attention", "*"): "0.85 TFLOP/s of 25 were measured on an AMD Strix NPU: npu-attention in priors.toml",
    ("npu", "convolution", "published *"): "a stem reads 3 channels where the unit multiplies 16 to 64",
    ("tpu", "convolution", "published *"): "as on an NPU",
    (
        "npu",
        "matmul",
        "published *",
    ): "products of two activations leave the NPU in some toolkits: whole models show it",
    (
        "gpu",
        "linear",
        "published * other GPUs with llamacpp",
    ): "llama.cpp was published on GPUs with matrix units: what "
    "one row reaches of their peaks says little of GPUs without, so answers for those are likely too slow",
    ("gpu", "moe_experts", "published * other GPUs with llamacpp"): "as products",
    ("gpu", "attention", "published * other GPUs with llamacpp"): "as products",
    ("gpu", "linear", "published * other GPUs with whispercpp"): "as with llama.cpp, whose kernels it has",
    ("gpu", "linear", "published * other GPUs with onnxruntime"): "ten figures of five GPUs stand behind it, which is "
    "too few: answers with many small products are likely too slow",
    (
        "cpu",
        "convolution",
        "published * other CPUs with litert",
    ): "eight figures of small CPUs stand behind it, which is "
    "too few: two machines that were calibrated here are three to five times as fast",
    ("cpu", "linear", "published * other CPUs with litert"): "as convolutions",
    ("cpu", "convolution", "published * other CPUs with opencv-dnn"): "a depthwise one reaches a fiftieth of a peak "
    "that is of products, without a kernel of its own",
    ("cpu", "convolution", "published * other CPUs with paddle"): "as with opencv-dnn",
    (
        "npu",
        "linear",
        "published * NPUs with genie",
    ): "prompts are read 128 rows at a time, of which narrow products fill little of the unit: whole models show it",
    ("npu", "moe_experts", "published * NPUs with *"): "no model with experts was published there, so answers are "
    "likely too slow",
    ("npu", "copy", "published *"): "a transpose turns tiles over, which some toolkits leave to the host",
    (
        "gpu",
        "attention",
        "published * other GPUs with ncnn",
    ): "ncnn was published with convolutions: what it reaches of "
    "large GPUs there says little of attention, so answers are likely too slow",
}


def floors(asked: Asked) -> Iterator[str]:
    """No op beyond 20 × its floor. Overheads have no floor, and a kernel that was timed takes what it took."""
    device = devices()[asked.device]
    unit, effects = device.unit, engine(asked.runtime).effects.at(device)
    for phase in asked.answer().phases:
        for op in phase.ops:
            if not op.floor_s or op.time_s <= max(FLOORS * op.floor_s, COUNTS * phase.time_s, STARTING_S * op.count):
                continue
            if not (op.bound == "overhead" or _is_told(op, unit, effects)):
                times = f"{op.time_s / op.floor_s:.0f} × its floor"
                yield f"{phase.name} {op.name} ({op.kind}, {op.bound}) {op.time_s / op.count:.2g} s, {times}: {op.rung}"


def _is_told(op: OpTime, unit: str, effects: RuntimeEffects) -> bool:
    """Whether somebody says why: a timing, whole models of this very device, or an engine whose row says what it moves.

    It copies its cache at every step, repeats it for each head, writes out all scores, or fuses nothing and runs the op
    as several kernels, where a floor has what elements move stay on the chip.
    """
    rung = op.rung or ""
    if op.origin in {"calibrated", "measured"} or rung.startswith("published times of this"):
        return True
    moves = effects.cache != "direct" or effects.cache_moves is not None or effects.attention == "materialised"
    if (op.kind == "attention" and moves) or (op.kind in effects.passes and effects.fusion == "none"):
        return True
    return any((unit, op.kind) == (of, kind) and fnmatchcase(rung, pattern) for of, kind, pattern in EXPLAINED)


def intervals(asked: Asked) -> Iterator[str]:
    """Every phase lies within its interval, and neither is below the floor."""
    for phase in asked.answer().phases:
        if phase.low_s is not None and not phase.low_s <= phase.time_s * (1 + ROUNDING):
            yield f"{phase.name} {phase.time_s:.3g} s is below its interval, from {phase.low_s:.3g}"
        if phase.high_s is not None and not phase.time_s <= phase.high_s * (1 + ROUNDING):
            yield f"{phase.name} {phase.time_s:.3g} s is above its interval, to {phase.high_s:.3g}"
        if phase.floor_s is not None and phase.time_s < phase.floor_s * (1 - ROUNDING):
            yield f"{phase.name} {phase.time_s:.3g} s beats its floor of {phase.floor_s:.3g}"


def growth(asked: Asked) -> Iterator[str]:
    """More work takes no less time: a larger batch, a longer prompt, a longer context, a larger image."""
    graph = model_graph(asked.model)
    changes: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "batch": ({}, {"batch": 4 * asked.sizes["batch"]}),
    }
    if takes_prompt(graph):
        changes["prompt"] = ({}, {"prompt": 2 * asked.sizes["prompt"]})
    if is_generative(graph):
        changes["context"] = ({"context": 256, "prompt": None, "generate": None},
                              {"context": 1024, "prompt": None, "generate": None})  # fmt: skip
    if takes_image(graph) and (side := graph.metadata.get("default_sizes", {}).get("image")):
        changes["image"] = ({"image": side}, {"image": 2 * side})
    for name, (before, after) in changes.items():
        try:
            small, large = asked.answer(**before), asked.answer(**after)
        except InferometerError:
            continue  # the larger one is refused: a window, a memory, a fixed size
        for phase in small.phases:
            other = large.phase(phase.name)
            if not phase.once and other is not None and other.time_s < phase.time_s * (1 - ROUNDING):
                yield f"{phase.name} falls from {phase.time_s:.4g} to {other.time_s:.4g} s with {name}"


def batches(asked: Asked) -> Iterator[str]:
    """Four times as many inputs take four times as long at most: an engine may run them one after the other."""
    try:
        small, large = asked.answer(), asked.answer(batch=4 * asked.sizes["batch"])
    except InferometerError:
        return  # the larger one is refused: a memory, a fixed batch
    for phase in small.phases:
        other = large.phase(phase.name)
        if not phase.once and other is not None and other.time_s > AGAIN * 4 * phase.time_s:
            yield f"{phase.name} of {4 * asked.sizes['batch']} takes {other.time_s / phase.time_s:.3g} times as long"


def memory(asked: Asked) -> Iterator[str]:
    """The parts of the memory add up, and the two doors to it agree."""
    question = ask(asked.model, on=asked.device, runtime=asked.runtime, **asked.sizes)
    found, peak = question.fit(), question.answer().summary.peak_memory_bytes or 0
    parts = (found.weights_bytes, found.kv_bytes, found.state_bytes, found.activations_bytes, found.workspace_bytes)
    whole = found.total_bytes - sum(parts)
    if found.reserve_bytes is not None and abs(sum(parts) - peak) > 8:
        yield f"the parts are {sum(parts)} B, and the summary says {peak}"
    if found.reserve_bytes is not None and whole < -8:
        yield f"the whole, {found.total_bytes} B, is less than its parts"
    if min(parts) < 0:
        yield f"a part is negative: {parts}"


def eight_bits(asked: Asked) -> Iterator[str]:
    """8-bit integers are not slower than f32 where the device computes them faster, unless the engine's row says so."""
    device, known = devices()[asked.device], engine(asked.runtime)
    peaks, byte = device.peaks, known.small.byte
    if is_generative(model_graph(asked.model)) and {byte, f"linear:{byte}"} & known.effects.expanded:
        return  # it writes such weights out as floats at every step
    if "i8" not in peaks or "f32" not in peaks or float(peaks["i8"]) <= float(peaks["f32"]):
        return
    try:
        wide = asked.answer(weights="f32", activations="f32")
        narrow = asked.answer(weights=byte, activations=None if is_generative(model_graph(asked.model)) else "i8")
    except InferometerError:
        return
    if any(profile.judged_by and profile.judged_by.calibration for profile in (wide, narrow)):
        return  # it was measured there
    for phase in narrow.phases:
        other = wide.phase(phase.name)
        if phase.once or other is None:
            continue
        if phase.time_s > SLACK * other.time_s and (phase.low_s or 0) > other.time_s:
            yield f"{phase.name} {phase.time_s:.4g} s in {byte}, {other.time_s:.4g} in f32"


def doors(asked: Asked) -> Iterator[str]:
    """Python, a sweep and the command give one answer."""
    times = [getattr(asked.answer().summary, name) for name in TIMES]
    axes = {**asked.sizes, "models": asked.model, "devices": asked.device, "runtimes": asked.runtime}
    row = next(iter(im.sweep(**axes).records()))
    options = [text for name, value in asked.sizes.items() for text in (f"--{name}", str(value))]
    line = [asked.model, "--on", asked.device, "--runtime", asked.runtime, *options, "--format", "json"]
    ran = CliRunner().invoke(predict_command, line)
    told = json.loads(ran.stdout)["summary"] if ran.exit_code == 0 else {}
    for door, found in (("a sweep", row), ("the command", told)):
        other = [found.get(name) for name in TIMES]
        if not all(_same(one, two) for one, two in zip(times, other, strict=True)):
            yield f"{door} says {other}, Python {times}"


def _same(one: float | None, other: float | None) -> bool:
    return one is other or (one is not None and other is not None and abs(one - other) <= 1e-9 * abs(one))


def default_engine(asked: Asked) -> Iterator[str]:
    """What answers where no engine is named is one that can be had, and made for the device."""
    device = devices()[asked.device]
    graph = model_graph(asked.model)
    usual = default_runtime(device, graph)
    if usual == "ideal":
        question = ask(asked.model, on=asked.device)
        if not any("No engine" in note for note in question.basis().notes):
            yield f"{device.unit} of {device.vendor} is answered by ideal, which nobody can install"
    elif not engine(usual).runs_on(device):
        yield f"{usual} does not run there"
    elif graph.architecture in engine(usual).lacks or ("frames" in graph.symbols and engine(usual).takes == "tokens"):
        yield f"{usual} does not run such a model"


PROPERTIES: dict[str, Callable[[Asked], Iterator[str]]] = {
    "floor": floors, "interval": intervals, "growth": growth, "batch": batches, "memory": memory, "int8": eight_bits,
    "doors": doors, "default engine": default_engine,
}  # fmt: skip


def violations(asked: Asked) -> Iterator[Violation]:
    for kind, holds in PROPERTIES.items():
        try:
            found = list(holds(asked))
        except InferometerError as error:  # the question was answered: another door to it must not refuse
            found = [f"refused: {error}"]
        for seen in found:
            yield Violation(kind=kind, asked=asked, seen=seen)


def main() -> int:
    parser = argparse.ArgumentParser(description="Properties that every answer must have.")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, help="ask every published figure too, and write what is missed there")
    options = parser.parse_args()
    found = [violation for asked in draw(options.questions, options.seed) for violation in violations(asked)]
    for violation in found:
        print(f"{violation.kind}: {violation.seen}\n    {violation.asked}")
    counts = Counter(violation.kind for violation in found)
    print(f"{options.questions} questions: {dict(counts) or 'every property holds'}")
    if options.page is not None:
        options.page.write_text(known_misses_page(options.questions, counts, EXPLAINED), encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
