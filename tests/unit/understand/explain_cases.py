"""Profiles by hand: for each code one for which it must be found, and a near one for which it must not."""

import random
from dataclasses import replace

from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    JudgedBy,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Provenance,
    Verification,
)
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.understand import case, explanation, roofline
from inferometer.understand.judging import judge_profile


def told(value):
    return Sourced(value=value, origin="datasheet", source="a test", date="2026-01-01")


CPU = Device(
    name="test-cpu", title="Test CPU", vendor="nobody", unit="cpu", kind="desktop",
    peaks={"f32": told(100e9)}, cores=told(8),
    memories=(
        Memory(level="dram", capacity_bytes=told(16e9), bandwidth_bytes_per_s=told(20e9)),
        Memory(level="l2", bandwidth_bytes_per_s=told(200e9)),
    ),
)  # fmt: skip
GPU = Device(
    name="test-gpu", title="Test GPU", vendor="nobody", unit="gpu", kind="server",
    peaks={"bf16": told(1000e12), "i8": told(2000e12)}, launch_s=told(5e-6),
    memories=(Memory(level="hbm", capacity_bytes=told(80e9), bandwidth_bytes_per_s=told(4e12)),),
)  # fmt: skip


def judged_on(profile, device, **more):
    """As if it had been judged by the device's own figures."""
    return replace(profile, judged_by=None if device is None else JudgedBy(device=device, **more))


def case_of(profile, device=None, **more):
    return case.case_of(judged_on(profile, device), **more)


def roofline_of(profile, device, **more):
    return roofline.roofline_of(judged_on(profile, device, **more))


def explain(profile, device, *, graph=None, name=None):
    """Judged on the device and explained: what the command does with `--on`."""
    judged, notes = judge_profile(profile, device, graph=graph)
    return explanation.explain(judged, notes=notes, name=name)


def op(name, kind, seconds, **more):
    return OpTime(name=name, kind=kind, time_s=seconds, **{"unit": "cpu", **more})


def computing(seconds, name="fc", kind="linear", **more):
    """100 FLOP a byte, at half of the CPU's peak."""
    work = seconds * 50e9
    return op(name, kind, seconds, flops=work, bytes=work / 100, **more)


def moving(seconds, name="fc", kind="linear", **more):
    """One FLOP a byte, at half of the CPU's bandwidth."""
    moved = seconds * 10e9
    return op(name, kind, seconds, flops=moved, bytes=moved, **more)


def forward(*ops, seconds=1.0, **more):
    return Phase(name="forward", time_s=seconds, ops=ops, **more)


def profile(*phases, kind="measured", summary=None, workload=None, model=None, **more):
    head = summary or Headline(
        latency_s=next((phase.time_s for phase in phases if phase.name == "forward"), None), top_unit="cpu"
    )
    return Profile(
        kind=kind,
        model=model or ModelFacts(name="m", parameters=2_500_000_000, weight_bytes=10_000_000_000),
        device=DeviceFacts(name="test"),
        workload=workload or Workload(precision=Precision(weights="f32", activations="f32")),
        phases=phases,
        summary=head,
        provenance=Provenance(tool="inferometer profile", version="1", created="2026-01-01"),
        **more,
    )


def text(prefill_s, step_s, generate=16, prompt=64, ops=(), **more):
    whole = prefill_s + (generate - 1) * step_s
    head = Headline(ttft_s=prefill_s, tpot_s=step_s, e2e_s=whole, tokens_per_s=1 / step_s, top_unit="cpu")
    lengths = Workload(
        prompt=prompt, generate=generate, precision=Precision(weights="f32", activations="f32"),
        batch=more.pop("batch", 1),
    )  # fmt: skip
    return profile(
        Phase(name="prefill", time_s=prefill_s),
        Phase(name="decode", time_s=step_s, ops=ops),
        summary=more.pop("summary", head),
        workload=more.pop("workload", lengths),
        **more,
    )


def steady(count, slow=0, factor=3.0):
    """Times around 10 ms with one per cent of noise, the last `slow` of them `factor` times as long, spread evenly."""
    noise = random.Random(7)  # noqa: S311 - the same each time, not secret
    times = [0.01 * (1 + 0.01 * noise.random()) for _ in range(count)]
    for index in range(slow):
        times[index * count // slow] *= factor
    return tuple(times)


def sampled(samples, **more):
    return profile(Phase(name="forward", time_s=0.01, samples_s=samples), **more)


def on_gpu(kind, flops_a_byte, batch=1, prompt=256, share=0.6):
    """A phase on the GPU at `share` of what is attainable at an intensity."""
    rate = share * min(1000e12, flops_a_byte * 4e12)
    name = "decode" if kind == "memory" else "prefill"
    work = rate * 0.01
    one = op("fc", "linear", 0.01, flops=work, bytes=work / flops_a_byte, unit="gpu")
    return profile(
        Phase(name=name, time_s=0.01, ops=(one,)),
        summary=Headline(tpot_s=0.01, top_unit="gpu"),
        workload=Workload(batch=batch, prompt=prompt, precision=Precision(weights="bf16", activations="bf16")),
    )


def parallel(share):
    ops = (computing(1 - share), op("sum", "collective", share, bound="link"))
    shared = Workload(parallel=Parallel(tp=4), precision=Precision(activations="f32"))
    return profile(forward(*ops), workload=shared)


def drifting(share):
    noise = random.Random(3)  # noqa: S311 - as above
    return sampled(tuple(0.01 * (1 + share * n / 40 + 0.005 * noise.random()) for n in range(40)))


def experts(*seconds):
    ops = tuple(moving(each, f"layers.0.experts.{n}.up") for n, each in enumerate(seconds))
    return profile(forward(*ops, seconds=sum(seconds)))


def small_ops(count, seconds):
    """Ops of 10 µs with a microsecond's hundredth of work, beside one that does some."""
    tiny = tuple(op(f"add{n}", "elementwise", 10e-6, flops=10.0, bytes=20.0) for n in range(count))
    return profile(forward(computing(seconds), *tiny, seconds=seconds + count * 10e-6))


def one_time(seconds, **load):
    return profile(Phase(name="load", time_s=seconds, **load), forward(computing(0.5), seconds=0.5))


def in_memory(used, fits=None):
    return profile(forward(computing(1.0)), summary=Headline(latency_s=1.0, peak_memory_bytes=int(used), fits=fits))


def cached(tokens):
    model = ModelFacts(name="m", parameters=1000, weight_bytes=1_000_000, kv_bytes_per_token=1000)
    lengths = Workload(prompt=tokens, generate=16, precision=Precision(activations="f32"))
    return text(0.1, 0.01, model=model, workload=lengths)


def threads(count, cpus=8):
    told_of = Environment(threads=count, host={"usable_cpus": cpus}, disturbed=False)
    return profile(forward(computing(1.0)), environment=told_of)


def checked(status):
    return profile(forward(computing(1.0)), verification=Verification(status=status, reference="torch", max_rel=0.5))


def noisy(*, disturbed, samples=None):
    reasons = ("before the runs: other programs use the CPU (cpu-busy)",) if disturbed else ()
    return sampled(samples or steady(40), environment=Environment(disturbed=disturbed, reasons=reasons))


def units(cpu_s):
    ops = (op("conv", "convolution", 1 - cpu_s, unit="npu"), op("topk", "sort", cpu_s))
    return profile(forward(*ops), summary=Headline(latency_s=1.0, top_unit="npu"))


def beside(times_predicted):
    phase = forward(computing(1.0), predicted_s=1 / times_predicted, floor_s=0.1)
    return profile(phase)


# Code: the profile in which it must be found, a near one in which it must not, and the device of both.
def commanded(options):
    """A measured run with these options on its command line."""
    line = f"inferometer profile m.onnx {options}"
    plain = profile(forward(moving(1.0)))
    return replace(plain, provenance=replace(plain.provenance, command=line))


PAIRS = {
    "attention.grows": (
        text(0.1, 0.01, ops=(moving(0.006), moving(0.004, kind="attention"))),
        text(0.1, 0.01, ops=(moving(0.008), moving(0.002, kind="attention"))),
        CPU,
    ),
    "batch.small": (on_gpu("memory", 1), on_gpu("memory", 150), GPU),
    "communication.bound": (parallel(0.2), parallel(0.1), CPU),
    "compute.bound": (profile(forward(computing(1.0))), profile(forward(moving(1.0))), CPU),
    "environment.noisy": (noisy(disturbed=True), noisy(disturbed=False), CPU),
    "experts.imbalance": (experts(0.4, 0.1, 0.1, 0.1), experts(0.12, 0.1, 0.1, 0.1), CPU),
    "host.copies": (
        profile(forward(parts={"write": 0.15, "run": 0.8, "read": 0.05})),
        profile(forward(parts={"write": 0.03, "run": 0.95, "read": 0.02})),
        GPU,
    ),
    "host.gap": (profile(forward(computing(0.8))), profile(forward(computing(0.9))), CPU),
    "latency.drift": (drifting(0.2), drifting(0.01), CPU),
    "latency.first-token": (text(1.0, 0.05), text(0.2, 0.05), CPU),
    "latency.tail": (sampled(steady(400, slow=20)), sampled(steady(400)), CPU),
    "launch.bound": (small_ops(100, 1e-3), small_ops(10, 1e-3), CPU),
    "layout.moves": (
        profile(forward(computing(0.85), op("t", "copy", 0.15))),
        profile(forward(computing(0.95), op("t", "copy", 0.05))),
        CPU,
    ),
    "load.dominates": (one_time(10.0), one_time(2.0), CPU),
    "load.storage-bound": (one_time(2.0, bound="storage"), one_time(2.0, bound="link"), CPU),
    "memory.bound": (profile(forward(moving(1.0))), profile(forward(computing(1.0))), CPU),
    "memory.does-not-fit": (in_memory(17e9), in_memory(15e9), CPU),
    "memory.kv-cache": (cached(2000), cached(500), CPU),
    "memory.nearly-full": (in_memory(15e9), in_memory(12e9), CPU),
    "op.dominates": (
        profile(
            forward(computing(0.5, name="conv1", floor_s=0.1), *(computing(0.125, name=f"c{n}") for n in range(4)))
        ),
        profile(forward(*(computing(0.25, name=f"c{n}", floor_s=0.1) for n in range(4)))),
        CPU,
    ),
    "optimisation.off": (commanded("--optimisation none"), commanded("--optimisation all"), CPU),
    "outputs.wrong": (checked("failed"), checked("verified"), CPU),
    "padding.waste": (on_gpu("compute", 500, prompt=129), on_gpu("compute", 500, prompt=256), GPU),
    "placement.fallback": (units(0.3), units(0.01), None),
    "quantisation.overhead": (
        profile(forward(computing(0.9), op("dq", "dequantize", 0.1))),
        profile(forward(computing(0.98), op("dq", "dequantize", 0.02))),
        CPU,
    ),
    "threads.too-few": (threads(2), threads(6), CPU),
    "threads.too-many": (threads(16), threads(8), CPU),
    "utilisation.low": (beside(4.0), beside(1.2), CPU),
}


def told_padding(tokens, padded):
    found = profile(
        forward(computing(1.0)), environment=Environment(host={"padding": {"tokens": tokens, "padded_tokens": padded}})
    )
    return replace(found, device=DeviceFacts(name="x"))
