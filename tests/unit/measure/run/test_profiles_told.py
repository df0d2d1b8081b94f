"""Whole profiles from readings, number by number, and outputs that are compared.

Timers cost, kernels are fused or unnamed, a device has its own clock, generations have parts and a prediction beside.
`profiles_told.json` has them: `python tests/unit/measure/run/test_profiles_told.py` writes it anew (with src and tests
on the path). A rule that changed shows there as the numbers it changed: read them before committing them.
"""

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from inferometer.core.codec import document
from inferometer.core.profile import EnergyFacts, Environment, ModelFacts
from inferometer.core.sizes import bind
from inferometer.core.workload import Precision, Workload
from inferometer.engines.base import Event, Kernel, Opened, Stage
from inferometer.formats.huggingface import graph_from_config
from inferometer.known import device
from inferometer.measure.bench.loop import LoopSamples
from inferometer.measure.run.assemble import MeasuredSubject, assemble_profile
from inferometer.measure.run.beside import remarks, with_prediction
from inferometer.measure.run.energy import CaseEnergy, with_energy
from inferometer.measure.run.order import TextOrder
from inferometer.measure.run.raw import Generation, MemoryReadings, Raw, Resident, Shape
from inferometer.measure.run.tolerance import Formats, Noise, Tolerance, noise_between, rounding
from inferometer.measure.run.verify import compare_arrays, compare_text
from inferometer.predict.answer import predict_graph

TOLD = Path(__file__).parent / "profiles_told.json"
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 192,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96,
    "max_position_embeddings": 256, "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "float32",
}  # fmt: skip
OPENED = Opened(
    stages=(Stage(name="load", seconds=1.5), Stage(name="compile", seconds=0.5)), versions={"e": "1"}, threads=2,
    unit="cpu", placed={"cpu": 3}, notes=("a note",),
)  # fmt: skip
SEEN = Environment(versions={"numpy": "2"}, host={"cpu": "A CPU", "gpus": ["A GPU"]}, threads=9)
NOW = datetime(2026, 11, 15, tzinfo=UTC)


@cache
def graph():
    return graph_from_config(CONFIG, name="tiny")


def subject(**lengths):
    workload = Workload(**lengths, precision=Precision(weights="f32", activations="f32"))
    return MeasuredSubject(
        graph=graph(), workload=workload, runtime="torch-eager", sizes=bind(graph(), workload, {}).sizes,
        facts=ModelFacts(name="tiny"), notes=("made up",),
    )  # fmt: skip


def names(*ends):
    return [block.full_name(op.name, n) for block, op in graph().ops() for n in range(block.count)
            if op.name.endswith(ends)]  # fmt: skip


def kernels(steps, scale=1.0, device=False):
    """One kernel a product; one of three fused layers; the engine's own; some without a layer."""
    found = []
    for number, name in enumerate(names("q_proj", "o_proj", "down_proj", "lm_head")):
        taken = tuple(scale * 1e-3 * (1 + number) * (1 + 0.1 * (step % 3)) for step in range(steps))
        found.append(Kernel(name=f"gemm{number}", kind="MatMul", samples_s=taken, layers=(name,)))
    fused = tuple(names("input_layernorm", "k_proj", "v_proj")[:3])
    found.append(Kernel(name="fused", kind="Fused", samples_s=(2e-3 * scale,) * steps, layers=fused, bytes=5.0))
    found.append(Kernel(name="reorder", kind="Reorder", samples_s=(1e-3 * scale,) * steps, layers=fused[:1], own=True))
    found.append(Kernel(name="loose", kind="Add", samples_s=(5e-4 * scale,) * (steps - 1), bytes=7.0))
    found.append(Kernel(name="late", kind="Add", samples_s=(4e-4 * scale,) * steps, provider="p"))
    if device:
        own = [
            replace(
                each,
                unit="gpu:0",
                device_s=tuple(0.8 * s for s in each.samples_s),
                waited_s=tuple(0.3 * s for s in each.samples_s),
            )
            for each in found
            if each.name != "loose"
        ]
        return (*own, Kernel(name="sync", kind="wait", samples_s=(3e-3,) * steps))  # fmt: skip
    return tuple(found)


def clean(*seconds):
    return LoopSamples(
        name="it", samples_s=seconds, warmup_s=(), failures=(), runs=len(seconds), discarded=0, settled=True,
        complete=True, calls=1, peak_memory_bytes=None, disturbances=(),
    )  # fmt: skip


STEPS = tuple(0.030 + 0.001 * (n % 4) for n in range(9))
MEMORY = MemoryReadings(before_bytes=100, opened_bytes=250, peak_bytes=400)


def forward(**shape):
    made = Shape(**{"phase": "forward", "kernels": kernels(9), "walls_s": tuple(0.004 + s for s in STEPS)} | shape)
    raw = Raw(
        ended="done", opened=OPENED, first_s=0.2, clean=clean(*STEPS), shapes=(made,), memory=MEMORY, environment=SEEN,
        resident=Resident(at_s=(0.0, 1.0), nbytes=(50, 300)),
    )  # fmt: skip
    return assemble_profile(subject(batch=2, prompt=8), raw, now=NOW)


def event(kind, start_ms, end_ms, context, tokens=1, **parts):
    return Event(kind=kind, start_ns=round(start_ms * 1e6), end_ns=round(end_ms * 1e6), tokens=tokens, context=context,
                 parts=parts)  # fmt: skip


def generation(order, pace, *, parts=True, **more):
    run = {"write": 1e-3, "run": 0.018 * pace, "sample": 5e-4} if parts else {}
    step = {"write": 2e-4, "run": 0.014 * pace, "sample": 4e-4, "host": 0.01} if parts else {}
    events, at = [event("prefill", 0, 22 * pace, 0, tokens=order.prompt, **run)], 22 * pace
    for number in range(order.generate - 2):
        end = at + (17 + number) * pace
        events.append(event("token", at + 0.5, end, order.prompt + number, **step))
        at = end
    events.append(event("token", at, at + 40 * pace, order.prompt + order.generate - 2, tokens=2, **step))
    return Generation(order=order, events=tuple(events), tokenise_s=1e-4 * pace, detokenise_s=2e-4 * pace, **more)


def generated(count=3, *, parts=True, device=False):
    order, other = TextOrder(prompt=8, generate=6), TextOrder(prompt=4, generate=3)
    paces = (1.0, 1.2, 1.1, 1.3)[:count]
    shapes = (
        Shape(phase="prefill", kernels=kernels(1, 0.8, device), walls_s=(0.02,), paired_s=(0.019, 0.018), order=order),
        Shape(phase="decode", kernels=kernels(4, 0.5, device), walls_s=(0.016, 0.017, 0.015, 0.016), cost_s=2e-5,
              context=(8, 9, 10, 11), paired_s=(0.014, 0.015, 0.013, 0.0145), order=order),
        Shape(phase="decode", kernels=kernels(2), walls_s=(0.1, 0.1), order=other),
    )  # fmt: skip
    raw = Raw(
        ended="done", opened=replace(OPENED, unit="gpu:0") if device else OPENED, environment=SEEN, shapes=shapes,
        memory=replace(MEMORY, device_peak_bytes=77 if device else None),
        generations=(
            generation(order, 3.0, parts=parts, first=True),
            *(generation(order, pace, parts=parts) for pace in paces),
            generation(other, 9.0, parts=parts),
        ),
    )  # fmt: skip
    profile = assemble_profile(subject(batch=2, prompt=8, generate=6), raw, case=order, now=NOW)
    energies = [CaseEnergy(joules={"prefill": 3.0, "decode": 0.5}, facts=EnergyFacts(idle_w=1.0), order=each)
                for each in (other, order)]  # fmt: skip
    return with_energy(profile, energies, order)


def beside():
    profile = generated()
    asked = profile.workload
    predicted = predict_graph(graph(), device("nvidia-l4"), workload=asked, runtime="torch-eager")
    judged = with_prediction(profile, predicted, graph())
    slowed = replace(judged, phases=tuple(
        replace(phase, ops=tuple(replace(op, floor_s=2 * op.time_s if n % 3 else op.floor_s)
                                 for n, op in enumerate(phase.ops))) for phase in judged.phases
    ))  # fmt: skip
    return {**document(judged), "remarks": [*remarks(slowed, cores=8), *remarks(judged, cores=2)]}


def ended():
    raw = Raw(ended="crashed", error="it broke", opened=OPENED, clean=clean(0.1, 0.2), memory=MEMORY)
    return document(assemble_profile(subject(prompt=8), raw, now=NOW))


def arrays():
    random = np.random.default_rng(5)
    one, two = random.normal(size=(3, 40)), random.normal(size=7)
    near, far = one + 1e-4 * random.normal(size=one.shape), one + 0.3 * random.normal(size=one.shape)
    rough = Noise(rms=0.05, why="rough")
    logits = random.normal(size=(9, 20)) * 3
    close, off = logits + 0.05 * random.normal(size=logits.shape), logits[:, ::-1]
    ids = np.arange(9)

    def text(made=(1, 2, 3, 4), scores=None):
        return {"ids": ids, "made": np.array(made), **({} if scores is None else {"logits": scores})}

    compared = {
        "near": compare_arrays({"a": near, "b": two}, {"a": one, "b": two}, against="r"),
        "far": compare_arrays({"a": far}, {"a": one}, against="r"),
        "rough": compare_arrays({"a": far, "b": two}, {"a": one, "b": two}, against="r", noise=rough),
        "renamed": compare_arrays({"x": two, "y": near}, {"a": one, "b": two}, against="r"),
        "given": compare_arrays({"a": far}, {"a": one}, against="r", tolerance=Tolerance(relative=2.0, cosine=0.5)),
        "zeros": compare_arrays({"a": np.zeros(3)}, {"a": np.zeros(3)}, against="r"),
        "other shapes": compare_arrays({"a": two}, {"a": one}, against="r"),
        "not finite": compare_arrays({"a": np.array([1.0, np.nan])}, {"a": np.array([1.0, 2.0])}, against="r"),
        "the reference's": compare_arrays({"a": np.array([1.0, 2.0])}, {"a": np.array([1.0, np.inf])}, against="r"),
        "masked": compare_arrays({"a": np.array([1.0, -np.inf])}, {"a": np.array([1.0, -np.inf])}, against="r"),
        "nothing finite": compare_arrays({"a": np.array([np.inf])}, {"a": np.array([np.inf])}, against="r"),
        "close logits": compare_text(text(scores=close), text(scores=logits), against="r", noise=rough),
        "other logits": compare_text(text(scores=off), text(scores=logits), against="r"),
        "strict logits": compare_text(text(scores=close), text(scores=logits), against="r",
                                      tolerance=Tolerance(top_1=1.0, nll=1e-9)),
        "tokens": compare_text(text((1, 2, 3, 9, 5)), text((1, 2, 3, 4)), against="r", tolerance=Tolerance(top_1=0.7)),
        "other tokens": compare_text(text((1, 9, 3)), text(), against="r"),
        "no tokens": compare_text(text(()), text(), against="r"),
    }  # fmt: skip
    noise = noise_between(Formats(weights="q4_0", activations="q8_0"), Formats(), products=9)
    same = noise_between(
        Formats(weights="f16", activations="bf16"), Formats(weights="f16"), products=4, same_weights=True
    )
    limits = ("rms", "why", "bits", "of_arrays", "of_text", "cosine", "nll")
    return {
        **{name: asdict(found) for name, found in compared.items()},
        "noise": {name: getattr(noise, name) for name in limits},
        "same weights": {name: getattr(same, name) for name in limits},
        "rounding": {name: rounding(name) for name in ("f32", "bf16", "i8", "q8_0", "q4_0", "iq2_xs", "i4", "f8e4m3")},
    }  # fmt: skip


def plain(profile):
    return document(profile)


TOLD_OF = {
    "timers": lambda: plain(forward()),
    "timers, paired": lambda: plain(forward(paired_s=tuple(0.9 * s for s in STEPS), cost_s=3e-4)),
    "timers that cost much": lambda: plain(
        forward(paired_s=STEPS, walls_s=tuple(2 * s for s in STEPS), cost_s=2e-3, kernels=kernels(9, 2.0))
    ),
    "nothing between kernels": lambda: plain(forward(paired_s=STEPS, cost_s=1e-4, idle_s=0.004)),
    "a device's clock": lambda: plain(forward(kernels=kernels(9, device=True))),
    "a request": lambda: plain(generated()),
    "an even number, without parts": lambda: plain(generated(4, parts=False)),
    "a request on a device": lambda: plain(generated(2, device=True)),
    "beside a prediction": beside,
    "ended early": ended,
    "compared": arrays,
}  # fmt: skip
LEFT_OUT = {"schema", "environment", "version", "structure"}  # the last is held by tests/unit/core/test_structure.py


def told_of(name):
    made = {key: value for key, value in TOLD_OF[name]().items() if key not in LEFT_OUT}
    if "provenance" in made:
        made["notes"] = made.pop("provenance")["notes"]
    return json.loads(json.dumps(made), parse_float=lambda text: float(f"{float(text):.7g}"))


def flat(value, path=()):
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    return {at: leaf for key, inner in value.items() for at, leaf in flat(inner, (*path, str(key))).items()}


@pytest.mark.parametrize("name", sorted(TOLD_OF))
def test_the_profile_is_as_it_was(name):
    wanted, found = flat(json.loads(TOLD.read_text())[name]), flat(told_of(name))
    assert found.keys() == wanted.keys()
    off = {
        at: (value, wanted[at])
        for at, value in found.items()
        if value != wanted[at] and not (isinstance(value, float) and value == pytest.approx(wanted[at], rel=1e-5))
    }
    assert off == {}


if __name__ == "__main__":
    rows = (f" {json.dumps(name)}: {json.dumps(told_of(name))}" for name in sorted(TOLD_OF))
    TOLD.write_text("{\n" + ",\n".join(rows) + "\n}\n")
