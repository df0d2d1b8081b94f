"""Whole fits, number by number: points of several classes and probes, steps of two models and rounds, and a base.

`fits_told.json` has what they give: `python tests/unit/measure/calibrate/test_fits_told.py` writes it anew (with src
and tests on the path). A rule of the fit that changed shows there as the numbers it changed: read them before
committing them.
"""

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from inferometer.core.codec import document
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.assemble import assemble_calibration
from inferometer.measure.calibrate.fitting.fit import doubts, fit_points, predicted_seconds
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint, drifts, measured_point, middle_of, overhead
from inferometer.measure.calibrate.fitting.single import (
    attention,
    convolution,
    embedding,
    linear,
    vector,
    work_of_single,
)
from inferometer.measure.calibrate.fitting.steps import WholeStep, whole_fit
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.measure.calibrate.run import CalibrationJournal, CandidateResult, ProbeCandidate, calibrate_with

TOLD = Path(__file__).parent / "fits_told.json"
H200 = device("nvidia-h200")
EAGER = require_effects("torch-eager")
SUBJECT = CalibrationSubject(
    device=H200, runtime=EAGER, dtype="bf16", created="2026-11-16T10:00:00", versions={"torch": "2"}, threads=3
)
SINGLES = [
    *(linear(rows, size, 3 * size // 2) for rows in (1, 20, 300) for size in (500, 1500)),
    *(vector("elementwise", 2**power, inputs=2) for power in (12, 17, 22, 26)),
    *(vector("norm", 2**power, features=700) for power in (14, 20)),
    *(attention(batch, (8, 2), 64, query=1, context=context) for batch in (1, 6) for context in (100, 3000)),
    *(attention(2, (8, 2), 64, query=query) for query in (30, 900)),
    *(attention(3, (4, 4), 32, query=query, cached=False) for query in (50, 400)),
    *(convolution(2, (16, channels), 28, kernel=3, stride=2) for channels in (32, 96)),
    *(convolution(2, (channels, channels), 28, kernel=3, groups=channels) for channels in (32, 96)),
    *(embedding(rows, 5000, 600) for rows in (7, 900)),
]  # fmt: skip


def config(hidden, layers):
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "vocab_size": 4096,
        "intermediate_size": 3 * hidden, "num_hidden_layers": layers, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 4096, "tie_word_embeddings": False,
        "hidden_act": "silu", "torch_dtype": "bfloat16",
    }  # fmt: skip


MODELS = {"small": config(512, 3), "large": config(1024, 5)}


@cache
def works():
    return [work_of_single(single, H200, runtime=EAGER, dtype="bf16") for single in SINGLES]


def points(seed, slower=1.0):
    """Two rounds of each op, two probes a class, overheads, rates, and a point of another format."""
    random = np.random.default_rng(seed)
    found = [overhead(name, value, dtype="bf16", probe="o") for name, value in
             (("kernel", 2e-6), ("kernel", 2.4e-6), ("kernel", 3e-6), ("host", 8e-6), ("step", 5e-5))]  # fmt: skip
    for number, work in enumerate(works()):
        for _ in range(2):
            share = 0.1 + 0.7 * work.floor_s / (work.floor_s + 1e-5)
            seconds = work.launches * 2e-6 + slower * work.floor_s / share * np.exp(random.normal(0, 0.1))
            point = measured_point(work, float(seconds), dtype="bf16", probe=f"p{number % 2}", workload=f"w{number}")
            found.append(replace(point, rates={"peak:bf16": 1e14 + number, "bandwidth:hbm": 2e12 - number,
                                               "sustained:bf16": 0.9, "power:w": 500.0}))  # fmt: skip
    other = OpPoint(classes=("linear",), axes={"rows": 1.0}, seconds=1.0, floor_s=0.5, dtype="f32", probe="x")
    return [*found, other]


def steps(seed, slower=1.0):
    random = np.random.default_rng(seed)
    found = []
    for name, given in MODELS.items():
        size = given["hidden_size"] / 512
        for phase, batch, query, context in (("prefill", 2, 300, 0), ("prefill", 1, 3000, 0), ("decode", 1, 1, 500),
                                             ("decode", 40, 1, 900), ("decode", 300, 1, 2000)):  # fmt: skip
            for _ in range(2):
                seconds = slower * (8e-4 * size + 4e-7 * size * batch * query + 2e-9 * batch * context)
                seconds *= float(np.exp(random.normal(0, 0.05)))
                found.append(StepPoint(model=name, phase=phase, config=given, dtype="bf16", batch=batch, query=query,
                                       context=context, seconds=seconds))  # fmt: skip
    return [*found, replace(found[0], dtype="f32", seconds=9.0)]


@cache
def alone():
    return assemble_calibration(SUBJECT, points(1), steps(1))


def queued():
    """Steps that wait for their host, and some that do not."""
    return [
        WholeStep(model=f"m{n % 3}", phase="decode" if n % 2 else "prefill", seconds=1e-3 * (1 + 0.07 * (n * n % 5)),
                  parts={"linear.decode": 2e-4 * (1 + n), "vector.decode": 1e-5 * n, "attention.decode": 3e-5},
                  launches=40.0 + n, queued=40.0 + n if n < 5 else 0.0, least={"vector.decode": 2e-5})
        for n in range(9)
    ]  # fmt: skip


class Measured:
    """A provider with a clock: what it measures takes as long as it says."""

    def __init__(self):
        self.now, self.order = 0.0, []
        self.all = [ProbeCandidate(key="kernel", op_class="overhead", first=True, seconds=0.5)]
        for number, work in enumerate(works()):
            self.all.append(ProbeCandidate(key=f"{number} {work.name}", op_class=work.classes[-1], axes=work.axes,
                                      seconds=0.2 + 0.1 * (number % 3), floor_s=work.floor_s, probe=f"p{number % 2}",
                                      weight=1 + number % 2))  # fmt: skip
        self.all += [ProbeCandidate(key=f"step {n}", op_class=f"step.{phase}", seconds=0.6, probe=f"m{n}")
                     for n, phase in enumerate(("decode", "prefill", "decode"))]  # fmt: skip

    def candidates(self):
        return self.all

    def measure(self, candidate):
        self.order.append(candidate.key)
        self.now += candidate.seconds
        number = candidate.key.partition(" ")[0]
        if candidate.op_class.startswith("step."):
            return CandidateResult(steps=(steps(1)[int(candidate.key[-1])],))
        if candidate.first:
            return CandidateResult(points=(overhead("kernel", 2e-6, dtype="bf16", probe="o"),))
        work = works()[int(number)]
        seconds = 2e-6 + work.floor_s / (0.2 + 0.03 * int(number))
        return CandidateResult(points=(measured_point(work, seconds, dtype="bf16", probe=candidate.probe),))


def order(budget_s, rounds):
    provider = Measured()
    with TemporaryDirectory() as folder:
        journal = CalibrationJournal(folder=Path(folder))
        done = calibrate_with(provider, journal, budget_s=budget_s, rounds=rounds, clock=lambda: provider.now)
    return {"order": provider.order, "done": done.done, "left": done.left, "points": len(done.points)}


def tables():
    fitted = fit_points(middle_of(points(3)), kernel_s=2.4e-6)
    at = [work.axes for work in works()]
    linear_points = [point for point in points(3) if point.classes[-1] == "linear"]
    return {
        fit.table.op_class: {
            **{name: getattr(fit, name) for name in ("residual", "bias", "points", "probes")},
            "valid": dict(fit.valid), "axes": fit.table.axes, "grid": fit.table.grid, "values": fit.table.values,
        }
        for fit in fitted
    } | {
        "doubts": doubts(next(fit for fit in fitted if fit.table.op_class == "linear"), at[:8], linear_points).tolist(),
        "predicted": [predicted_seconds(next(f for f in fitted if f.table.op_class == "linear"), point, 2.4e-6)
                      for point in linear_points[:4]],
        "drifts": drifts(steps(2)),
    }  # fmt: skip


def following():
    """Steps that follow from their parts: a tenth slower in one class, and a host that some wait for."""
    found = []
    for step in queued():
        device = 1.15 * step.parts["linear.decode"] + step.parts["vector.decode"] + step.parts["attention.decode"]
        seconds = max(device + 2e-6 * step.launches, 1.2e-5 * step.queued) + 3e-5
        found.append(replace(step, seconds=seconds, workload="w"))
    return found


def stepped(steps_of):
    fit = whole_fit(steps_of, {"kernel": 2e-6, "host": 1e-5, "step": 3e-5})
    plain = asdict(fit)
    plain["errors"] = [error for _, error in fit.errors]
    return plain


FITS = {
    "tables": tables,
    "steps that make no sense": lambda: stepped(queued()),
    "steps": lambda: stepped(following()),
    "alone": lambda: document(alone()),
    "on a base that agrees": lambda: document(assemble_calibration(SUBJECT, points(2), steps(2), alone())),
    "on a base, much slower": lambda: document(
        assemble_calibration(SUBJECT, points(2, slower=2.5)[:20], steps(2, slower=2.0)[:12], alone())
    ),
    "ops only, on a base": lambda: document(assemble_calibration(SUBJECT, points(4, slower=1.6), (), alone())),
    "order in little time": lambda: order(6.0, 1),
    "order in two rounds": lambda: order(40.0, 2),
}  # fmt: skip


def told_of(name):
    made = {key: value for key, value in FITS[name]().items() if key not in {"schema", "content_hash"}}
    made.pop("environment", None) if "started_from" in made.get("environment", {}) else None
    return json.loads(json.dumps(made), parse_float=lambda text: float(f"{float(text):.7g}"))


def flat(value, path=()):
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    return {at: leaf for key, inner in value.items() for at, leaf in flat(inner, (*path, str(key))).items()}


@pytest.mark.parametrize("name", sorted(FITS))
def test_the_fit_is_as_it_was(name):
    wanted, found = flat(json.loads(TOLD.read_text())[name]), flat(told_of(name))
    assert found.keys() == wanted.keys()
    off = {
        at: (value, wanted[at])
        for at, value in found.items()
        if value != wanted[at] and not (isinstance(value, float) and value == pytest.approx(wanted[at], rel=1e-4))
    }
    assert off == {}


if __name__ == "__main__":
    TOLD.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(told_of(k))}" for k in sorted(FITS)) + "\n}\n")
