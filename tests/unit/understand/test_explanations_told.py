"""Whole explanations, number by number: several phases, units, clocks and machines at once, as real profiles have them.

`explanations_told.json` has them: `python tests/unit/understand/test_explanations_told.py` writes it anew (with src and
tests on the path). Read the difference: a rule that changed shows there as the numbers it changed. Words are left out.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from inferometer.core.profile import DeviceFacts, Environment, Headline, ModelFacts, Phase, Provenance, Verification
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.understand import explanation
from inferometer.understand.findings import findings_of
from inferometer.understand.residual import explain_residual
from unit.understand.explain_cases import (
    CPU,
    GPU,
    case_of,
    computing,
    drifting,
    forward,
    judged_on,
    moving,
    op,
    profile,
    steady,
    told,
)
from unit.understand.test_finding_edges import flat, numbers, priced

TOLD = Path(__file__).parent / "explanations_told.json"
F32 = Precision(weights="f32", activations="f32")


def written():
    """A request of a language model on a GPU: host ops that start kernels, copies, a cast, and a loop around them."""
    prefill = (
        op("layers.0.attn", "attention", 0.020, unit="gpu:0", device_s=0.018, flops=6e12, bytes=3e10, count=2,
           predicted_s=0.015, floor_s=0.012, block="layers"),
        op("layers.1.mlp.up", "linear", 0.050, unit="gpu:0", device_s=0.055, flops=4e13, bytes=2e9, predicted_s=0.045,
           floor_s=0.04, block="layers"),
        op("memcpy h2d", "copy", 0.006, unit="cpu", bytes=1e8),
        op("sort", "sort", 0.004, unit="cpu"),
    )  # fmt: skip
    decode = (
        op("layers.0.attn", "attention", 0.0011, unit="gpu:0", device_s=0.0009, flops=1e9, bytes=3e9, count=2,
           predicted_s=0.0008, floor_s=0.0007),
        op("layers.1.mlp.up", "linear", 0.0016, unit="gpu:0", device_s=0.0016, flops=2e9, bytes=5e9, predicted_s=0.0012,
           floor_s=0.00125),
        *(op(f"layers.{n}.add", "elementwise", 9e-6, unit="gpu:0", flops=10.0, bytes=90.0, predicted_s=2e-6,
             floor_s=1e-9) for n in range(30)),
        op("dq", "dequantize", 0.0002, unit="gpu:0", flops=1e6, bytes=1e8),
    )  # fmt: skip
    return profile(
        Phase(name="load", time_s=9.0, bytes=10e9),
        Phase(name="tokenise", time_s=0.002),
        Phase(name="prefill", time_s=0.095, ops=prefill, predicted_s=0.07, floor_s=0.055),
        Phase(name="decode", time_s=0.0045, ops=decode, predicted_s=0.0026, floor_s=0.002,
              samples_s=tuple(0.004 + 1e-5 * n for n in range(40)), context=tuple(range(100, 140)),
              parts={"write": 0.0003, "run": 0.0038, "read": 0.0004}, clocks={"host": 0.002}),
        Phase(name="sampling", time_s=0.0001),
        summary=Headline(ttft_s=0.097, tpot_s=0.0045, e2e_s=0.28, tokens_per_s=444.0, top_unit="gpu",
                         peak_memory_bytes=75_000_000_000),
        workload=Workload(batch=2, prompt=65, generate=41, precision=Precision(weights="bf16", activations="bf16")),
        model=ModelFacts(name="m", parameters=5_000_000_000, weight_bytes=10_000_000_000, kv_bytes_per_token=200_000),
        environment=Environment(threads=3, host={"usable_cpus": 8}, disturbed=False, load_before=0.5),
        runtime="torch-eager",
    )  # fmt: skip


def shared():
    """A prediction for four devices that talk, of which the link and the memory bound most."""
    ops = (
        op("blocks.0.fc", "linear", 0.3, bound="memory", flops=1e9, bytes=5e9, floor_s=0.25, count=3, block="blocks"),
        op("blocks.0.sum", "collective", 0.2, bound="link", bytes=1e6, floor_s=0.1, block="blocks"),
        op("head", "linear", 0.15, bound="compute", flops=2e10, bytes=1e7, floor_s=0.1),
        op("norm", "norm", 0.05, bound="overhead", flops=1.0, bytes=1.0, floor_s=0.0),
        op("view", "view", 0.0),
    )
    found = profile(
        Phase(name="load", time_s=4.0, bound="storage", bytes=8e9),
        Phase(name="first_run", time_s=2.5),
        forward(*ops, seconds=0.75, floor_s=0.45, low_s=0.6, high_s=0.9),
        kind="predicted",
        summary=Headline(latency_s=0.75, fits=True, peak_memory_bytes=12_000_000_000),
        workload=Workload(batch=3, parallel=Parallel(tp=4), precision=F32),
    )
    return replace(found, device=DeviceFacts(name="test-cpu", title="Test CPU", count=4))  # fmt: skip


def fallen():
    """A run on an NPU of which some ops fell back to two other units, disturbed, and wrong."""
    ops = (
        op("conv1", "convolution", 0.04, unit="npu", flops=1e9, bytes=1e7, floor_s=0.02, predicted_s=0.02),
        op("conv2", "convolution", 0.03, unit="npu:1", flops=1e9, bytes=1e7, floor_s=0.015, predicted_s=0.02),
        op("nms", "sort", 0.02, unit="cpu", predicted_s=0.001, floor_s=0.0001),
        op("resize", "resize", 0.01, unit="gpu", bytes=1e6, predicted_s=0.001),
        op("pad", "copy", 0.012, unit="npu", bytes=1e6),
    )
    return profile(
        forward(*ops, seconds=0.13, predicted_s=0.05, floor_s=0.04, samples_s=tuple(13 * each for each in steady(40))),
        summary=Headline(latency_s=0.13, top_unit="npu"),
        environment=Environment(threads=4, host={"logical_cores": 6}, disturbed=True,
                                reasons=("during the runs: clock throttled (cpu-throttled). Cool it.",)),
        verification=Verification(status="failed", reference="torch", max_abs=0.2, cosine=0.9),
        workload=Workload(batch=2, image=64, precision=Precision(weights="i8", activations="i8")),
        model=ModelFacts(name="seen", parameters=1_000_000, weight_bytes=1_100_000, source="/models/seen.tflite"),
        runtime="litert",
    )  # fmt: skip


def uneven():
    ops = (
        *(moving(0.01 * (1 + n), f"layers.0.experts.{n}.up", predicted_s=0.02) for n in range(4)),
        *(moving(0.02, f"layers.1.experts.{n}.up", predicted_s=0.02) for n in range(2)),
        computing(0.05, "layers.1.fc", predicted_s=0.05, floor_s=0.03),
    )
    return profile(forward(*ops, seconds=0.21, predicted_s=0.2))


CASES = {
    "written": (written(), GPU),
    "shared": (shared(), CPU),
    "fallen": (fallen(), None),
    "fallen, judged": (fallen(), replace(CPU, unit="npu", peaks={"i8": told(4e11)})),
    "uneven": (uneven(), CPU),
    "drifting": (replace(drifting(0.2), provenance=Provenance(tool="other", version="1", created="2026")), CPU),
}  # fmt: skip


def told_of(name):
    found, device = CASES[name]
    case = case_of(found, device, price=priced)
    findings = findings_of(case)
    judged = replace(judged_on(found, device), findings=findings)
    document = explanation.explanation_document(explanation.explain(judged, notes=("a note",), name="my run"))
    document["findings"] = {finding.code: numbers(finding) for finding in findings}
    document["attribution"] = {f"{table['phase']} by {table['by']}": table for table in document["attribution"]}
    if any(phase.predicted_s and phase.ops for phase in found.phases):
        document["residual"] = [asdict(story) for story in explain_residual(found)]
    return json.loads(json.dumps(document), parse_float=lambda text: float(f"{float(text):.9g}"))


def listed(document):
    """Lists as numbered entries, so that a difference names its place."""
    if isinstance(document, list):
        document = dict(enumerate(document))
    return {str(key): listed(inner) for key, inner in document.items()} if isinstance(document, dict) else document


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_explanation_is_as_it_was(name):
    wanted, found = flat(listed(json.loads(TOLD.read_text())[name])), flat(listed(told_of(name)))
    assert found.keys() == wanted.keys()
    off = {
        at: (value, wanted[at])
        for at, value in found.items()
        if value != wanted[at] and not (isinstance(value, float) and value == pytest.approx(wanted[at], rel=1e-6))
    }
    assert off == {}


if __name__ == "__main__":
    TOLD.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(told_of(k))}" for k in sorted(CASES)) + "\n}\n")
