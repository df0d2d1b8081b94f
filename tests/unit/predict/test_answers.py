"""What is predicted of a set of questions that no two parts of the cost model answer alike, number by number.

Sizes divide nothing, batches and devices are several, and every option is asked about once. `answers.json` has the
answers: `python tests/unit/predict/test_answers.py` writes them anew (with src and tests on the path). A change of a
rule shows there as the numbers it changes: read them before committing them.
"""

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from math import fsum
from pathlib import Path

import pytest

from inferometer.core import Device, Memory
from inferometer.core.calibration import Calibration, KernelForm, KernelForms, Utilisation
from inferometer.core.codec import document
from inferometer.core.device import DeviceShares
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.formats.huggingface import graph_from_config
from inferometer.known.engines import runtime_effects
from inferometer.predict.answer import predict_graph
from inferometer.predict.options import Battery, EnergyCosts, HostCosts, Hosting, Offload, Options, Speculative
from inferometer.predict.price import deviations
from inferometer.predict.price.deviations import PARAMETERS
from unit.predict.machines import WIRE, machine, stated, without_fit  # noqa: F401 - `without_fit` is used by being here

TOLD = Path(__file__).parent / "answers.json"
CONFIGS = Path(__file__).parents[2] / "data" / "huggingface"
LEFT_OUT = ("provenance", "judged_by", "environment", "schema", "verification")

GPU = machine(
    peaks={"bf16": stated(2e10), "f32": stated(1e10), "i8": stated(4e10)}, idle_w=stated(7.0), launch_s=stated(1e-6),
    memories=(
        Memory(level="dram", capacity_bytes=stated(16e9), bandwidth_bytes_per_s=stated(2e9)),
        Memory(level="l2", capacity_bytes=stated(2e4), bandwidth_bytes_per_s=stated(18e9)),
    ),
)  # fmt: skip
SMALL = replace(GPU, memories=(replace(GPU.memories[0], capacity_bytes=stated(1.8e5)), GPU.memories[1]))
CPU = Device(
    name="cpu", title="A CPU", vendor="nobody", unit="cpu", kind="desktop", power_w=stated(65.0), cores=stated(6),
    peaks={"f32": stated(3e9), "i8": stated(6e9)},
    memories=(Memory(level="dram", capacity_bytes=stated(32e9), bandwidth_bytes_per_s=stated(1e9)),),
)  # fmt: skip
NPU = Device(
    name="npu", title="An NPU", vendor="nobody", unit="npu", kind="phone", power_w=stated(4.0),
    peaks={"i8": stated(1e11), "f16": stated(5e10)},
    memories=(Memory(level="dram", capacity_bytes=stated(8e9), bandwidth_bytes_per_s=stated(2e9)),),
)  # fmt: skip
TWO_CACHES = replace(GPU, name="two caches", memories=(
    *GPU.memories, Memory(level="l1", capacity_bytes=stated(3e3), bandwidth_bytes_per_s=stated(90e9)),
))  # fmt: skip
SLOW_WIRE = replace(WIRE, name="slow wire", bandwidth_bytes_per_s=stated(3e8), latency_s=stated(4e-5))
WIDENING = replace(runtime_effects("torch-eager"), name="widening", expanded=frozenset({"q8_0"}),
                   instead={"q8_0": ("bf16",)})  # fmt: skip
BF16 = Precision(weights="bf16", activations="bf16", kv="bf16")
F32 = Precision(weights="f32", activations="f32")


def table(name, axes, grid, values):
    return Utilisation(op_class=name, stream="floor", axes=axes, grid=grid, values=values, residual=0.07)


CALIBRATION = Calibration(
    device="machine", runtime="torch-graph", dtype="bf16", created="2026-11-15", unit="gpu",
    tables=(
        table("linear", ("rows", "weight_bytes"), ((1.0, 64.0), (1e3, 1e5)), (0.1, 0.5, 0.3, 0.8)),
        table("vector", ("bytes",), ((1e2, 1e6),), (0.05, 0.6)),
        table("attention.decode", ("kv_bytes",), ((1e3, 1e6),), (0.1, 0.7)),
        table("attention.prefill", ("flops",), ((1e3, 1e9),), (0.02, 0.5)),
        table("indexing", ("bytes",), ((1e2, 1e6),), (0.05, 0.4)),
    ),
    overheads={"kernel": stated(2e-6), "step": stated(1e-5)},
    factors={"linear.decode": 1.2, "vector.prefill": 0.9},
    residuals={"linear": 0.07, "vector": 0.1, "attention.decode": 0.2, "step.decode": 0.05},
)  # fmt: skip

NARROW = replace(CALIBRATION, tables=(
    Utilisation(op_class="linear", stream="bf16", axes=("rows",), grid=((1.0, 8.0, 16.0),), values=(0.01, 0.1, 0.2),
                residual=0.06),
    Utilisation(op_class="linear", stream="dram", axes=("weight_bytes",), grid=((1e3, 2e3),), values=(0.2, 0.3),
                residual=0.09),
    table("vector", ("elements",), ((64.0, 128.0),), (0.05, 0.1)),
    table("attention", ("sequences", "keys"), ((2.0, 4.0), (4.0, 16.0)), (0.02, 0.03, 0.05, 0.08)),
), residuals={"linear": 0.08, "step": 0.04, "host": 0.2})  # fmt: skip


PUBLISHED = Calibration(
    device="machine", runtime="torch-graph", dtype="bf16", created="2026-11-16", unit="gpu", steps=12,
    fitted_on=("one", "another"),
    parameters=dict.fromkeys(PARAMETERS, 0.4), residuals={"step": 0.15},
)  # fmt: skip
# Of an engine's kernels, which differ from family to family: what each takes is told apart.
FORMS = Calibration(
    device="machine", runtime="vllm", dtype="bf16", created="2026-11-17", unit="gpu",
    forms={
        name: KernelForms(family=name, by_format={at: KernelForm(
            compute_share=0.3 + 0.05 * number, memory_share=0.7 - 0.05 * number, ramp_s=(number + 1) * 1e-6,
            each_s=number * 1e-12, uneven=0.1 * number, residual=0.05 + 0.01 * number,
        )})
        for number, (name, at) in enumerate((
            ("gemm", "bfloat16"), ("attention.prefill", "bfloat16"), ("attention.decode", "bfloat16"),
            ("experts", "bfloat16"), ("all_reduce", "2"), ("all_gather", "2"),
        ))
    },
    factors={"kernels.decode": 1.3, "kernels.prefill": 1.1}, overheads={"context": stated(3e-9)},
    residuals={"step.decode": 0.08},
)  # fmt: skip
WARM = replace(GPU, name="warm", cooling_w=stated(30.0), warms_s=stated(90.0), chip="a chip of two units")
THRIFTY = replace(GPU, name="thrifty", power_w=None, idle_w=None, joules_per_flop=stated(2e-12),
                  joules_per_byte=stated(4e-11), battery_j=stated(3e4))  # fmt: skip
RATED = replace(GPU, name="rated", storage_bytes_per_s=stated(3e9), shares=DeviceShares(
    compute=stated(0.45), memory=stated(0.65), storage=stated(0.8), host=stated(0.7), network=stated(0.6),
))  # fmt: skip
PADDED = replace(runtime_effects("torch-eager"), name="padded", reads=16, first_run=stated(12.0))
APART = replace(runtime_effects("torch-eager"), name="apart", prompt="apart", logits="chunk")


RESNET = {
    "model_type": "resnet", "architectures": ["ResNetForImageClassification"], "embedding_size": 8,
    "hidden_sizes": [8, 12], "depths": [1, 2], "layer_type": "bottleneck", "hidden_act": "relu", "num_labels": 5,
    "image_size": 50,
}  # fmt: skip


BY_FEATURES = replace(CALIBRATION, tables=(
    table("linear", ("rows", "in_features", "out_features"), ((1.0, 64.0), (8.0, 128.0), (8.0, 128.0)),
          (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)),
    *CALIBRATION.tables[1:],
))  # fmt: skip


@cache
def graph_of(case):
    config = RESNET if case == "resnet" else json.loads((CONFIGS / f"{case}.json").read_text())["config"]
    return graph_from_config(config, name=case)


def lengths(**more):
    return Workload(**{"batch": 3, "prompt": 37, "generate": 11, "precision": BF16} | more)


PASS = {"workload": Workload(batch=3, precision=F32)}
QUESTIONS = {  # name: graph, device, and what else is asked
    "plain": ("llama", GPU, {"workload": lengths()}),
    "eager": ("llama", GPU, {"workload": lengths(), "runtime": "torch-eager"}),
    "graph": ("llama", GPU, {"workload": lengths(), "runtime": "torch-graph"}),
    "compiled": ("llama", GPU, {"workload": lengths(), "runtime": "torch-compile"}),
    "calibrated": ("llama", GPU, {"workload": lengths(), "runtime": "torch-graph", "calibration": CALIBRATION}),
    "calibrated apart": ("llama", GPU, {
        "workload": lengths(parallel=Parallel(tp=2)), "runtime": "torch-graph", "calibration": BY_FEATURES,
    }),
    "quantised": ("llama", CPU, {
        "workload": lengths(context=70, precision=Precision(weights="q4_0", activations="f32", kv="f16")),
        "runtime": "llamacpp",
    }),
    "a decode step": ("gemma3_text", GPU, {"workload": Workload(context=90, batch=5, precision=BF16)}),
    "tensor parallel": ("llama", GPU, {
        "workload": lengths(parallel=Parallel(tp=2)), "options": Options(overlap=0.3, sequence_parallel=True),
    }),
    "pipeline": ("llama", GPU, {
        "workload": lengths(parallel=Parallel(pp=3, dp=2), batch=6), "options": Options(micro_batches=4),
    }),
    "experts": ("qwen2_moe", GPU, {"workload": lengths(batch=9)}),
    "experts apart": ("qwen2_moe", GPU, {
        "workload": lengths(parallel=Parallel(dp=2, ep=2), batch=8), "options": Options(imbalance=1.4),
    }),
    "latent": ("deepseek_v2", GPU, {"workload": lengths(context=50)}),
    "speculative": ("llama", GPU, {
        "workload": lengths(),
        "options": Options(speculative=Speculative(draft=graph_of("llama_tied"), length=3, acceptance=0.7)),
    }),
    "chunks and a prefix": ("llama", GPU, {"workload": lengths(), "options": Options(chunk=8, cached_prefix=5)}),
    "host and place": ("llama", GPU, {
        "workload": lengths(),
        "options": Options(
            host=HostCosts(tokenise_s_per_token=1e-6, sampling_s=2e-5, detokenise_s_per_token=3e-6),
            place=Hosting(usd_per_hour=2.5), battery=Battery(capacity_j=2e5, per_s=3.0, efficiency=0.8),
            storage_bytes_per_s=2e9,
        ),
    }),
    "energy by work": ("llama", GPU, {
        "workload": lengths(), "options": Options(energy=EnergyCosts(joules_per_flop=1e-12, joules_per_byte=5e-11)),
    }),
    "offloaded": ("llama", GPU, {"workload": lengths(), "options": Options(offload=Offload(layers=2))}),
    "experts in the host": ("qwen2_moe", GPU, {"workload": lengths(),
        "options": Options(offload=Offload(experts=True))}),
    "too large": ("llama", SMALL, {"workload": lengths(context=100)}),
    "an image": ("swin", NPU, {"workload": Workload(batch=2, image=72, precision=Precision(
        weights="i8", activations="i8")), "runtime": "litert"}),
    "a plane": ("vit", CPU, PASS | {"runtime": "onnxruntime"}),
    "a network": ("resnet", CPU, PASS | {"runtime": "openvino"}),
    "an encoder": ("bert_mlm", CPU, {"workload": Workload(batch=3, prompt=37, precision=F32)}),
    "speech": ("whisper", GPU, {"workload": Workload(batch=2, prompt=4, generate=9, precision=BF16)}),
    "seeing": ("llava", GPU, {"workload": lengths(image=32)}),
    "a state": ("mamba", GPU, {"workload": lengths()}),
    "mixed states": ("jamba", GPU, {"workload": lengths()}),
    "diffusion": ("unet_sd15", GPU, {
        "workload": Workload(batch=2, image=128, precision=BF16), "options": Options(steps=7),
    }),
    "chunks, each with its logits": ("gemma2", GPU, {
        "workload": lengths(batch=2), "options": Options(chunk=9, cached_prefix=2), "runtime": "torch-eager",
    }),
    "padded": ("bert_mlm", GPU, {"workload": Workload(batch=3, prompt=37, precision=BF16), "runtime": "torch-compile"}),
    "read and written": ("t5", GPU, {"workload": lengths(), "runtime": "torch-eager", "options": Options(
        host=HostCosts(sampling_s=2e-5), place=Hosting(usd_per_hour=3.0, grid="eu", pue="google"),
    )}),
    "widened": ("gpt_oss", GPU, {"workload": lengths(precision=Precision(weights="q8_0", activations="bf16")),
        "runtime": WIDENING, "options": Options(overrides={"*lm_head*": "bf16"})}),
    "drafted steps alone": ("llama", GPU, {
        "workload": Workload(context=60, batch=2, precision=BF16),
        "options": Options(
            speculative=Speculative(draft=graph_of("llama_tied"), length=2, acceptance=0.6),
            host=HostCosts(sampling_s=2e-5, detokenise_s_per_token=1e-6),
        ),
    }),
    "calibrated, beyond its tables": ("llama", TWO_CACHES, {
        "workload": lengths(batch=50), "runtime": "torch-graph", "calibration": NARROW,
        "options": Options(chunk=10),
    }),
    "all at once": ("qwen2_moe", TWO_CACHES, {
        "workload": lengths(parallel=Parallel(tp=2, dp=2, ep=4, pp=2), batch=7),
        "options": Options(micro_batches=2, overlap=0.2, imbalance=1.2, sequence_parallel=True, link=SLOW_WIRE,
                           energy=EnergyCosts(joules_per_flop=1e-12, joules_per_byte=5e-11)),
    }),
    "offloaded by two": ("llama", GPU, {
        "workload": lengths(parallel=Parallel(tp=2)), "options": Options(offload=Offload(layers=1)),
        "runtime": "torch-graph",
    }),
    "windows": ("mistral", GPU, {"workload": lengths(prompt=61), "runtime": "torch-compile"}),
    "rotated and gated": ("phi3", CPU, {"workload": lengths(precision=F32), "runtime": "onnxruntime"}),
    "latent by two": ("deepseek_v3", GPU, {"workload": lengths(parallel=Parallel(tp=2)), "runtime": "torch-eager"}),
    "seen and told": ("qwen2_vl", GPU, {"workload": lengths(image=56), "runtime": "torch-graph"}),
    "second states": ("mamba2", TWO_CACHES, {"workload": lengths(), "runtime": "torch-eager"}),
    "on two machines": ("llama", replace(GPU, peer_link=replace(WIRE, devices=2)), {
        "workload": lengths(parallel=Parallel(tp=2, pp=3)),
    }),
    "over a link that is named": ("llama", replace(GPU, peer_link=replace(WIRE, devices=2)), {
        "workload": lengths(parallel=Parallel(tp=2, pp=3)), "options": Options(link=SLOW_WIRE),
    }),
    "over the bus": ("llama", replace(GPU, peer_link=None), {"workload": lengths(parallel=Parallel(tp=2))}),
    "over a link of unknown latency": ("llama", replace(GPU, peer_link=replace(WIRE, latency_s=None)), {
        "workload": lengths(parallel=Parallel(tp=2, dp=3), batch=4),
    }),
    "cooled": ("llama", WARM, {"workload": lengths()}),
    "cooled enough": ("resnet", WARM, {"workload": Workload(batch=3, precision=BF16), "options": Options(
        cooling_w=99.0, frame_rate=30.0)}),
    "a burning network": ("resnet", WARM, {"workload": Workload(batch=3, precision=BF16), "options": Options(
        cooling_w=9.0, frame_rate=2e4, place=Hosting(usd_per_hour=2.5, grid="eu", pue=1.3))}),
    "energy by its row": ("llama", THRIFTY, {"workload": lengths(parallel=Parallel(tp=2))}),
    "cooled, of unknown power": ("llama", THRIFTY, {"workload": lengths(), "options": Options(cooling_w=5.0)}),
    "as its row states": ("llama", RATED, {"workload": lengths(parallel=Parallel(tp=2))}),
    "published": ("llama", GPU, {"workload": lengths(), "runtime": "torch-graph", "calibration": PUBLISHED}),
    "forms of kernels": ("qwen2_moe", GPU, {
        "workload": lengths(parallel=Parallel(tp=2)), "runtime": "vllm", "calibration": FORMS,
        "options": Options(overlap=0.25),
    }),
    "padded to what was compiled": ("llama", GPU, {"workload": lengths(), "runtime": PADDED}),
    "as long as what was compiled": ("llama", GPU, {"workload": lengths(prompt=32), "runtime": PADDED}),
    "the last token apart": ("llama", GPU, {"workload": lengths(), "runtime": APART}),
    "a recording": ("whisper", GPU, {
        "workload": Workload(batch=1, prompt=4, generate=9, precision=BF16), "options": Options(audio_s=75.0),
    }),
    "transformer of noise": ("flux", GPU, {
        "workload": Workload(image=96, precision=BF16), "options": Options(steps=3),
    }),
}  # fmt: skip


def told(profile):
    """The profile as a document, with the ops of each phase summed by kind."""
    plain = {name: value for name, value in document(profile).items() if name not in LEFT_OUT}
    for made, phase in zip(plain["phases"], profile.phases, strict=True):
        made.pop("ops", None)
        made["by kind"] = {kind: summed([op for op in phase.ops if op.kind == kind]) for kind in kinds(phase)}
    plain["notes"] = [*profile.provenance.notes]
    return rounded(plain)


def kinds(phase):
    return dict.fromkeys(op.kind for op in phase.ops)


def summed(ops):
    sums = {name: fsum(getattr(op, name) or 0.0 for op in ops) for name in ("time_s", "floor_s", "flops", "bytes",
                                                                            "low_s", "high_s")}  # fmt: skip
    return {**sums, "count": sum(op.count for op in ops), "bounds": Counter(op.bound or "none" for op in ops)}


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def flat(value, path=()):
    if isinstance(value, dict):
        return {at: leaf for key, inner in value.items() for at, leaf in flat(inner, (*path, key)).items()}
    if isinstance(value, list):
        return {at: leaf for key, inner in enumerate(value) for at, leaf in flat(inner, (*path, key)).items()}
    return {path: value}


def answer(name):
    case, device, more = QUESTIONS[name]
    return told(predict_graph(graph_of(case), device, **more))


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_the_answer_is_as_it_was(name):
    wanted, found = flat(json.loads(TOLD.read_text())[name]), flat(answer(name))
    assert found.keys() == wanted.keys()
    off = {
        at: (value, wanted[at])
        for at, value in found.items()
        if not (value == wanted[at] or (isinstance(value, float) and value == pytest.approx(wanted[at], rel=1e-6)))
    }
    assert off == {}


if __name__ == "__main__":
    nothing = deviations.Deviations(made="", base={}, covered={}, levels={}, variances={})
    deviations.known_deviations = lambda **_: nothing
    answers = {name: answer(name) for name in sorted(QUESTIONS)}
    TOLD.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in answers.items()) + "\n}\n")
