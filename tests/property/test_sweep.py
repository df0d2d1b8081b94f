"""A row of a sweep is the prediction of that configuration."""

from dataclasses import fields
from functools import cache
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from inferometer.catalog import device as device_named
from inferometer.catalog.engines import default_runtime
from inferometer.core.profile import Headline
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.cost.headline import request_times
from inferometer.cost.options import HostCosts, Offload, Options, Place, Speculative
from inferometer.cost.predict import predict_graph
from inferometer.errors import DomainError
from inferometer.readers.resolve import read
from inferometer.sweep import DETAILS, run_study, study_of

# Dense, gated and windowed decoders, experts, a latent cache, states, encoders, an encoder–decoder, CNNs, diffusion.
MODELS = (
    "llama-3.2-1b", "gpt2", "gemma-3-1b", "qwen3-30b-a3b", "deepseek-v2-lite", "mamba-130m", "bert-base", "t5-small",
    "whisper-tiny", "resnet50", "vit-b-16", "sd-1.5-unet",
)  # fmt: skip
DEVICES = ("nvidia-h200", "nvidia-l4", "nvidia-t4", "amd-mi300x", "raspberry-pi-5", "apple-m4-ane", "google-tpu-v5e")
RUNTIMES = (None, "ideal", "torch-eager", "onnxruntime", "llamacpp")


@cache
def graph(name):
    return read(name)


def lists(values, most=2):
    return some.lists(some.sampled_from(values), min_size=1, max_size=most, unique=True)


ORDER = ("runtimes", "weights", "tp", "pp", "dp", "batch", "prompt", "generate", "context")
AXES = some.fixed_dictionaries(
    {
        "runtimes": lists(RUNTIMES, most=1),
        "weights": lists((None, "q4_0", "i8", "f32"), most=1),
        "tp": lists((1, 1, 2, 3), most=1),
        "pp": lists((1, 1, 2), most=1),
        "dp": lists((1, 1, 2), most=1),
        "batch": lists((1, 2, 7, 64)),
        "prompt": lists((None, 1, 17, 512, 10**6)),
        "generate": lists((None, 0, 1, 2, 128)),
        "context": lists((None, 0, 1, 700, 10**7)),
    }
)
OPTIONS = some.builds(
    Options,
    cached_prefix=some.sampled_from((0, 0, 16)),
    micro_batches=some.sampled_from((1, 1, 2)),
    chunk=some.sampled_from((None, None, None, 100)),
    steps=some.sampled_from((None, 20)),
    overlap=some.sampled_from((0.0, 0.5)),
    host=some.sampled_from(
        (HostCosts(), HostCosts(tokenise_s_per_token=1e-6, sampling_s=1e-4, detokenise_s_per_token=2e-6))
    ),
    place=some.sampled_from((Place(), Place(usd_per_hour=3.0, grid="world"))),
    offload=some.sampled_from((None, None, None, Offload(layers=1))),
)


def predictions(model, device, axes, options):
    """Each configuration by itself: its workload and summary, or the error."""
    for runtime, weights, tp, pp, dp, batch, prompt, generate, context in product(*(axes[name] for name in ORDER)):
        workload = Workload(
            batch=batch, prompt=prompt, generate=generate, context=context,
            precision=Precision(weights=weights), parallel=Parallel(tp=tp, pp=pp, dp=dp),
        )  # fmt: skip
        chosen = runtime or default_runtime(device, model)
        try:
            yield predict_graph(model, device, runtime=chosen, workload=workload, options=options)
        except DomainError as error:
            yield error


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=some.sampled_from(MODELS),
    device=some.sampled_from(DEVICES),
    axes=AXES,
    options=OPTIONS,
    how=some.fixed_dictionaries({"chunk_rows": some.sampled_from((1, 7, 1 << 16)), "details": some.booleans()}),
)
def test_a_row_is_the_summary_of_its_prediction(model, device, axes, options, how):
    model, device = graph(model), device_named(device)
    asked = {"models": model, "devices": device, **axes}
    study = study_of(asked, options=options, **how)
    rows = run_study(study)
    assert len(rows) == len(study)
    for row, found in zip(rows.records(), predictions(model, device, axes, options), strict=True):
        if isinstance(found, DomainError):
            assert row["reason"]
            assert all(row[entry.name] is None for entry in fields(Headline))
            assert not how["details"] or all(row[name] is None for name in DETAILS)
            continue
        assert row["reason"] is None
        for name in ("batch", "prompt", "generate", "context"):
            assert row[name] == getattr(found.workload, name)
        for entry in fields(Headline):
            expected = getattr(found.summary, entry.name)
            if isinstance(expected, float):
                assert row[entry.name] == pytest.approx(expected, rel=1e-9, abs=0), entry.name
            elif entry.name == "peak_memory_bytes":
                assert abs(row[entry.name] - expected) <= 1, entry.name  # half a byte rounds either way
            else:
                assert row[entry.name] == expected, entry.name
        if how["details"]:
            for name, expected in told(found, options).items():
                near = pytest.approx(expected, rel=1e-9, abs=0) if isinstance(expected, float) else expected
                assert row[name] == near, name


def told(profile, options):
    """What the details of a row should be, from the phases of its prediction."""
    found = dict.fromkeys(DETAILS) | {f"{phase.name}_bound": phase.bound for phase in profile.phases}
    for end in ("low", "high"):
        times = request_times(profile.phases, profile.workload, options, f"{end}_s")
        found |= {f"{name}_{end}_s": seconds for name, seconds in times.items()}
    return {name: found[name] for name in DETAILS}


def test_a_draft_counts_as_in_a_prediction():
    options = Options(speculative=Speculative(draft=graph("llama-3.2-1b"), length=4, acceptance=0.7))
    axes = {"context": [100, 200], "batch": [1, 2]}
    study = study_of({"models": graph("llama-3.1-8b"), "devices": device_named("nvidia-h200"), **axes}, options=options)
    found = run_study(study)["tpot_s"]
    expected = [
        predict_graph(
            graph("llama-3.1-8b"), device_named("nvidia-h200"), runtime="torch-compile",
            workload=Workload(batch=batch, context=context), options=options,
        ).summary.tpot_s
        for batch in (1, 2)
        for context in (100, 200)
    ]  # fmt: skip
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
