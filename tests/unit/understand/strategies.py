"""Profiles of any kind, most of it unknown: what importers, predictions and broken measurements may give."""

from hypothesis import strategies as st

from inferometer.core.graph import KINDS
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Provenance,
    Verification,
)
from inferometer.core.workload import Parallel, Precision, Workload

BOUNDS = ("compute", "memory", "link", "overhead", "storage")
NAMES = ("layers.0.attn.q", "layers.3.experts.1.up", "layers.3.experts.2.up", "conv1", "Memcpy HtoD", "", "µ.7/x")
PHASES = ("load", "compile", "first_run", "tokenise", "prefill", "decode", "detokenise", "forward", "run", "encode")


def seconds(least=0.0):
    """None, or what a clock or a prediction can tell: picoseconds at least."""
    some = st.floats(max(least, 1e-12), 1e4)
    return some if least else st.just(0.0) | some


def maybe(strategy):
    return st.none() | strategy


def ops():
    return st.builds(
        OpTime,
        name=st.sampled_from(NAMES),
        kind=st.sampled_from(sorted(KINDS)),
        time_s=seconds(),
        block=maybe(st.just("decoder")),
        count=st.integers(1, 64),
        unit=maybe(st.sampled_from(("cpu", "gpu", "npu", "gpu:1"))),
        flops=maybe(st.floats(0, 1e15, allow_subnormal=False)),
        bytes=maybe(st.floats(0, 1e12, allow_subnormal=False)),
        bound=maybe(st.sampled_from(BOUNDS)),
        floor_s=maybe(seconds()),
        predicted_s=maybe(seconds()),
        device_s=maybe(seconds()),
    )


@st.composite
def phases(draw):
    samples = draw(maybe(st.lists(seconds(1e-9), max_size=16).map(tuple)))
    context = draw(maybe(st.lists(st.integers(0, 4096), max_size=16).map(tuple)))
    return Phase(
        name=draw(st.sampled_from(PHASES)),
        time_s=draw(seconds()),
        low_s=draw(maybe(seconds())),
        high_s=draw(maybe(seconds())),
        floor_s=draw(maybe(seconds())),
        bound=draw(maybe(st.sampled_from(BOUNDS))),
        flops=draw(maybe(st.floats(0, 1e15, allow_subnormal=False))),
        bytes=draw(maybe(st.floats(0, 1e12, allow_subnormal=False))),
        ops=tuple(draw(st.lists(ops(), max_size=4))),
        samples_s=samples,
        context=context,
        predicted_s=draw(maybe(seconds())),
        parts=draw(st.dictionaries(st.sampled_from(("write", "run", "read", "device")), seconds(), max_size=4)),
    )


def workloads():
    return st.builds(
        Workload,
        batch=st.integers(1, 512),
        prompt=maybe(st.integers(1, 10_000)),
        generate=maybe(st.integers(0, 1000)),
        context=maybe(st.integers(0, 100_000)),
        precision=st.builds(
            Precision, weights=maybe(st.just("q4_0")), activations=maybe(st.sampled_from(("f16", "bf16", "f32")))
        ),
        parallel=st.builds(Parallel, tp=st.integers(1, 8)),
    )


def environments():
    host = st.fixed_dictionaries(
        {},
        optional={
            "usable_cpus": st.sampled_from((0, 1, 8, 2.5, "many", None)),
            "padding": st.sampled_from(({"tokens": 5, "padded_tokens": 9}, {"tokens": 0}, "yes", {})),
            "placed": st.just({"CPUExecutionProvider": 4}),
        },
    )
    return st.builds(
        Environment,
        threads=maybe(st.integers(0, 128)),
        disturbed=maybe(st.booleans()),
        reasons=st.just(()) | st.just(("during the runs: the clock fell (cpu-throttled).",)),
        load_before=maybe(st.floats(0, 100)),
        host=host,
    )


@st.composite
def profiles(draw):
    """Each phase at most once, as everywhere."""
    found = draw(st.lists(phases(), max_size=3, unique_by=lambda phase: phase.name))
    return Profile(
        kind=draw(st.sampled_from(("measured", "predicted"))),
        model=draw(st.builds(
            ModelFacts, name=st.just("m"), parameters=maybe(st.integers(0, 10**12)),
            weight_bytes=maybe(st.integers(0, 10**12)), kv_bytes_per_token=maybe(st.integers(0, 10**6)),
        )),
        device=DeviceFacts(name="d", count=draw(st.integers(1, 8))),
        workload=draw(workloads()),
        phases=tuple(found),
        summary=draw(st.builds(
            Headline, latency_s=maybe(seconds()), ttft_s=maybe(seconds()), tpot_s=maybe(seconds()),
            e2e_s=maybe(seconds()), peak_memory_bytes=maybe(st.integers(0, 10**12)), fits=maybe(st.booleans()),
            top_unit=maybe(st.sampled_from(("cpu", "gpu"))),
        )),
        runtime=draw(maybe(st.sampled_from(("llamacpp", "onnxruntime", "torch-eager", "nobody knows")))),
        environment=draw(maybe(environments())),
        provenance=draw(maybe(st.builds(
            Provenance, tool=st.just("t"), version=st.just("1"), created=st.just("2026"),
            command=maybe(st.sampled_from(("inferometer profile m --unit gpu", "a 'b", "--unit", "x --unit=npu:1"))),
        ))),
        verification=draw(maybe(st.builds(Verification, status=st.sampled_from(("verified", "failed", "unchecked"))))),
    )  # fmt: skip
