"""No prediction beats physics: every kind of model, device, runtime, plan and option, calibrated or not."""

from functools import cache

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some

from inferometer.core import Calibration, Parallel, Precision, Utilisation, Workload
from inferometer.core.errors import DomainError
from inferometer.formats.resolve import read
from inferometer.known import device as device_named
from inferometer.known.engines import runtime_effects
from inferometer.predict.answer import predict_graph
from inferometer.predict.applicable import SIZES
from inferometer.predict.options import Offload, Options
from inferometer.predict.sweep import run_study, study_of

# Dense and windowed decoders, experts, a latent cache, states, an encoder, encoder–decoders, a CNN, diffusion, vision.
MODELS = (
    "llama-3.2-1b", "gemma-3-1b", "qwen3-30b-a3b", "deepseek-v2-lite", "mamba-130m", "bert-base", "t5-small",
    "whisper-tiny", "resnet50", "sd-1.5-unet", "llava-1.5-7b",
)  # fmt: skip
DEVICES = ("nvidia-h200", "nvidia-t4", "raspberry-pi-5", "apple-m1-ane", "apple-m2-ultra-gpu", "google-tpu-v5e")
RUNTIMES = ("ideal", "torch-eager", "torch-compile", "onnxruntime", "openvino", "litert", "llamacpp")
CLASSES = ("linear", "attention.decode", "attention", "convolution", "vector", "experts")
SHARES = some.floats(1e-3, 1.0)


@cache
def graph(name):
    return read(name)


WORKLOADS = some.builds(
    Workload,
    batch=some.sampled_from((2, 7, 64)),
    prompt=some.sampled_from((None, 1, 17, 400)),
    generate=some.sampled_from((None, 0, 1, 20)),
    context=some.sampled_from((None, 0, 1, 300)),
    precision=some.builds(Precision, weights=some.sampled_from((None, "q4_0", "i8", "f16"))),
    parallel=some.sampled_from((Parallel(), Parallel(), Parallel(tp=2), Parallel(pp=2), Parallel(dp=2))),
)
OPTIONS = some.builds(
    Options,
    chunk=some.sampled_from((None, 1, 100)),
    micro_batches=some.sampled_from((1, 3)),
    overlap=some.floats(0, 1),
    offload=some.sampled_from((None, None, Offload(layers=1))),
)


@some.composite
def calibrations(draw, device, runtime):
    """Tables of some classes, for either stream, over one axis that all ops have."""
    tables = []
    for name in draw(some.lists(some.sampled_from(CLASSES), max_size=3, unique=True)):
        for stream in draw(some.sampled_from((("compute",), ("dram",), ("compute", "dram")))):
            values = tuple(draw(some.tuples(SHARES, SHARES)))
            tables.append(
                Utilisation(
                    op_class=name, stream=stream, axes=("bytes",), grid=((1e3, 1e9),), values=values,
                    residual=draw(some.floats(0, 0.5)),
                )
            )  # fmt: skip
    return Calibration(device=device, runtime=runtime, dtype="bf16", created="2026", tables=tuple(tables))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=some.data(), model=some.sampled_from(MODELS), device=some.sampled_from(DEVICES), workload=WORKLOADS)
def test_time_is_never_below_the_floor(data, model, device, workload):
    runtime, options = data.draw(some.sampled_from(RUNTIMES)), data.draw(OPTIONS)
    calibration = data.draw(some.none() | calibrations(device, runtime))
    try:
        profile = predict_graph(
            graph(model), device_named(device), runtime=runtime, workload=workload, calibration=calibration,
            options=options,
        )  # fmt: skip
    except DomainError:
        assume(False)  # noqa: FBT003 - what cannot be has no time
    for phase in profile.phases:
        assert (
            0 <= phase.floor_s <= phase.low_s * (1 + 1e-12) <= phase.time_s * (1 + 2e-12) <= phase.high_s * (1 + 3e-12)
        )
        for op in phase.ops:
            assert 0 <= op.floor_s <= op.low_s * (1 + 1e-12) <= op.time_s * (1 + 2e-12) <= op.high_s * (1 + 3e-12)


@settings(max_examples=30)
@given(
    model=some.sampled_from(MODELS),
    device=some.sampled_from(DEVICES),
    runtime=some.sampled_from(RUNTIMES),
    batch=some.lists(some.integers(1, 200), min_size=1, max_size=3),
    context=some.lists(some.none() | some.integers(0, 400), min_size=1, max_size=3),
)
def test_rows_lie_within_their_own_intervals(model, device, runtime, batch, context):
    sizes = {"prompt": 30, "context": context}
    meant = {name: size for name, size in sizes.items() if SIZES[name](graph(model))}
    axes = {"models": graph(model), "devices": device_named(device), "runtimes": runtime, "batch": batch}
    rows = run_study(study_of({**axes, **meant}, details=True))
    effects = runtime_effects(runtime)
    for row in rows.records():
        for name in ("latency", "ttft", "tpot", "e2e"):
            if row[f"{name}_s"] is not None:
                assert 0 < row[f"{name}_low_s"] <= row[f"{name}_s"] <= row[f"{name}_high_s"]
        if row["reason"] is None and not effects.overheads:
            assert {row["prefill_bound"], row["forward_bound"]} & {"compute", "memory"}
