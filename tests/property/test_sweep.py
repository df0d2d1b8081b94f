"""A row of a sweep is the prediction of that configuration: the same question has the same answer."""

from dataclasses import asdict, fields, replace
from functools import cache
from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from inferometer.api import ask
from inferometer.core.errors import DomainError
from inferometer.core.profile import Headline
from inferometer.formats.resolve import read
from inferometer.known import device as device_named
from inferometer.known.files import rows_of
from inferometer.predict.applicable import SIZES, meaningful
from inferometer.predict.options import Battery, EnergyCosts, HostCosts, Hosting, Offload, Options, Speculative
from inferometer.predict.sweep import COLUMNS, DETAILS, run_study, study_of

# Dense, gated and windowed decoders, experts, a latent cache, states, encoders, an encoder–decoder, CNNs, diffusion.
MODELS = (
    "llama-3.2-1b", "gpt2", "gemma-3-1b", "qwen3-30b-a3b", "deepseek-v2-lite", "mamba-130m", "bert-base", "t5-small",
    "whisper-tiny", "resnet50", "mobilenet-v2", "vit-b-16", "sd-1.5-unet",
)  # fmt: skip
# Those of the first line have calibrations in the package.
DEVICES = (
    "nvidia-h200", "intel-emerald-rapids-1-vcpu",
    "nvidia-l4", "nvidia-t4", "amd-mi300x", "raspberry-pi-5", "apple-m4-ane", "google-tpu-v5e",
)  # fmt: skip
SUMMARY = [entry.name for entry in fields(Headline) if entry.name in COLUMNS]
RUNTIMES = (
    None, "ideal", "torch-compile", "torch-graph", "torch-eager", "onnxruntime", "openvino", "llamacpp", "vllm",
)  # fmt: skip


@cache
def graph(name):
    return read(name)


def lists(values, most=2):
    return some.lists(some.sampled_from(values), min_size=1, max_size=most, unique=True)


ORDER = ("models", "devices", "runtimes", "weights", "activations", "tp", "pp", "dp", "batch", "prompt", "generate",
         "context")  # fmt: skip
ONE = {name: [None] for name in ORDER} | {name: [1] for name in ("tp", "pp", "dp", "batch")}
AXES = some.fixed_dictionaries(
    {
        "models": lists(MODELS),
        "devices": some.one_of(lists(DEVICES, most=3), some.just(["nvidia-h200"])),
        "runtimes": lists(RUNTIMES),
        "weights": lists((None, "q4_0", "q8_0", "i8", "f32")),
        "activations": lists((None, None, "bf16", "f32"), most=1),
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
    chunk=some.sampled_from((None, None, None, None, None, 100)),
    steps=some.sampled_from((None, 20)),
    overlap=some.sampled_from((0.0, 0.5)),
    host=some.sampled_from(
        (HostCosts(), HostCosts(tokenise_s_per_token=1e-6, sampling_s=1e-4, detokenise_s_per_token=2e-6))
    ),
    frame_rate=some.sampled_from((None, 30.0)),
    place=some.sampled_from(
        (Hosting(), Hosting(usd_per_hour=3.0, grid="world"), Hosting(instance="aws-p5en.48xlarge"))
    ),
    offload=some.sampled_from((None, None, None, Offload(layers=1))),
)
HOW = some.fixed_dictionaries({"chunk_rows": some.sampled_from((1, 7, 1 << 16)), "details": some.booleans()})


def predictions(axes, options, *, calibrated):
    """Each configuration by itself: its profile, or the error. An option that it does not use is not refused here."""
    for model, device, runtime, weights, activations, tp, pp, dp, *sizes in product(*(axes[name] for name in ORDER)):
        batch, prompt, generate, context = sizes
        try:
            asked = ask(
                graph(model), on=device_named(device), runtime=runtime, weights=weights, activations=activations,
                batch=batch, prompt=prompt, generate=generate, context=context, tp=tp, pp=pp, dp=dp,
                calibrated=calibrated,
            )  # fmt: skip
            meant = meaningful(asked.workload, asked.graph)  # several models have the same sizes
            yield replace(asked, options=options, workload=meant).answer()
        except DomainError as error:
            yield error


def swept(axes, **how):
    values = {"models": [graph(name) for name in axes["models"]], "devices": [*map(device_named, axes["devices"])]}
    # Rows are compared whether or not all options and sizes are used.
    with patch("inferometer.predict.sweep.grid._require_used"), patch("inferometer.predict.sweep.grid._require_meant"):
        study = study_of({**axes, **values}, **how)
    rows = run_study(study)
    assert len(rows) == len(study)
    return rows


def require_same(row, found, *, details):
    """A row against the prediction: every number of the summary, or the reason that there is none."""
    if isinstance(found, DomainError):
        assert row["reason"] == str(found)
        assert all(row[name] is None for name in (*SUMMARY, *(DETAILS if details else ())))
        return
    assert row["reason"] is None
    assert (row["model"], row["device"], row["runtime"]) == (found.model.name, found.device.name, found.runtime)
    for name in ("weights", "activations", "kv"):
        assert row[name] == getattr(found.workload.precision, name)
    for name in ("batch", "prompt", "generate", "context"):
        asked = getattr(found.workload, name)
        assert row[name] == asked or asked is None  # a row has the sizes of all models, also those of others
    expected = {name: getattr(found.summary, name) for name in SUMMARY}
    for name, value in (expected | told(found) if details else expected).items():
        if isinstance(value, float):
            assert row[name] == pytest.approx(value, rel=1e-9, abs=0), name
        elif name == "peak_memory_bytes":
            assert abs(row[name] - value) <= 1, name  # half a byte rounds either way
        else:
            assert row[name] == value, name


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(axes=AXES, options=OPTIONS, how=HOW, calibrated=some.booleans())
def test_a_row_is_the_summary_of_its_prediction(axes, options, how, calibrated):
    rows = swept(axes, options=options, calibrated=calibrated, **how)
    found = predictions(axes, options, calibrated=calibrated)
    for row, prediction in zip(rows.records(), found, strict=True):
        require_same(row, prediction, details=how["details"])


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=some.sampled_from(MODELS),
    devices=some.lists(some.sampled_from([*rows_of("devices").by_name]), min_size=3, max_size=6, unique=True),
    runtimes=lists((None, None, "torch-compile", "llamacpp", "onnxruntime")),
    weights=some.lists(some.sampled_from(("bf16", "q4_0", "i8", "f32", "f16")), min_size=2, max_size=4, unique=True),
    how=some.fixed_dictionaries({"calibrated": some.booleans(), "details": some.booleans()}),
)
def test_a_row_of_a_mixed_sweep_is_the_summary_of_its_prediction(model, devices, runtimes, weights, how):
    """One size, and many devices and formats that are priced together, those with calibrations among them."""
    axes = ONE | {"models": [model], "devices": ["nvidia-h200", *devices], "runtimes": runtimes, "weights": weights}
    rows = swept(axes, **how)
    for row, found in zip(rows.records(), predictions(axes, Options(), calibrated=how["calibrated"]), strict=True):
        require_same(row, found, details=how["details"])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=some.sampled_from(("llama-3.2-1b", "gemma-3-1b", "qwen3-30b-a3b", "bert-base", "resnet50")),
    device=some.sampled_from(("nvidia-h200", "nvidia-h200", "intel-emerald-rapids-1-vcpu", "nvidia-l4", "amd-mi300x")),
    weights=some.sampled_from((None, "q4_0")),
    tp=some.sampled_from((1, 1, 2)),
    calibrated=some.booleans(),
    details=some.booleans(),
    places=some.lists(some.integers(0, 40 * 21 - 1), min_size=6, max_size=6),
)
def test_a_row_of_a_dense_grid_is_the_summary_of_its_prediction(  # noqa: PLR0917 - a parameter for each choice
    model, device, weights, tp, calibrated, details, places
):
    """More rows of a combination than are computed together with other combinations: the closed forms, and tables."""
    asked = {"batch": [1, 2, 3, *range(4, 75, 2), 1000], "context": [0, *range(1, 2000, 100)]}
    meant = {name: sizes if name == "batch" or SIZES[name](graph(model)) else [None] for name, sizes in asked.items()}
    prompt = [100] if SIZES["prompt"](graph(model)) else [None]
    axes = ONE | {"models": [model], "devices": [device], "tp": [tp], "weights": [weights], "prompt": prompt, **meant}
    rows = swept(axes, calibrated=calibrated, details=details)
    for place in places:
        at = divmod(place, 21) if len(meant["context"]) > 1 else (place // 21, 0)
        batch, context = (meant[name][each] for name, each in zip(meant, at, strict=True))
        (found,) = predictions(axes | {"batch": [batch], "context": [context]}, Options(), calibrated=calibrated)
        row = at[0] * len(meant["context"]) + at[1]
        require_same(next(rows.take([row]).records()), found, details=details)


def told(profile):
    """What the details of a row should be: the ends of the times, what bounds the phases, and what each keeps busy."""
    found = asdict(profile.summary) | {f"{phase.name}_bound": phase.bound for phase in profile.phases}
    found |= {f"{phase.name}_{name}_s": s for phase in profile.phases for name, s in phase.streams.items()}
    return {name: found.get(name) for name in DETAILS}


def test_a_draft_counts_as_in_a_prediction():
    options = Options(speculative=Speculative(draft=graph("llama-3.2-1b"), length=4, acceptance=0.7))
    axes = ONE | {"models": ["llama-3.1-8b"], "devices": ["nvidia-h200"], "batch": [1, 2], "context": [100, 200]}
    rows = swept(axes, options=options)
    for row, found in zip(rows.records(), predictions(axes, options, calibrated=True), strict=True):
        require_same(row, found, details=False)


HOST = HostCosts(tokenise_s_per_token=1e-6, sampling_s=1e-4, detokenise_s_per_token=2e-6)
GRID = Hosting(usd_per_hour=3.0, grid="world")
# Corners that a random draw seldom meets, one of each: models × devices with sizes, options, and formats.
CORNERS = {
    "frames": ({"models": ["resnet50"], "batch": [1, 8]}, Options(frame_rate=30.0, place=GRID)),
    "audio": ({"models": ["whisper-base"], "batch": [1, 3]}, Options(audio_s=95.0)),
    "denoising steps": ({"models": ["sd-1.5-unet"], "batch": [1, 2]}, Options(steps=20, place=GRID)),
    "a whole pipeline": ({"models": ["sd-1.5"], "batch": [1, 2]}, Options(place=GRID)),
    "a model of both kinds": ({"models": ["resnet50", "llama-3.2-1b"], "generate": [4]}, Options(place=GRID)),
    "prompts of an encoder": ({"models": ["bert-base"], "prompt": [None, 17, 10**6]}, Options(place=GRID)),
    "host, every size": (
        {"batch": [1, 7], "prompt": [17, 300], "generate": [1, 2, 128], "context": [None, 700]}, Options(host=HOST),
    ),
    "tokens without a prompt": (
        {"prompt": [None, 9], "generate": [None, 0, 1, 2], "context": [None, 0, 700, 10**7]}, Options(place=GRID),
    ),
    "replicas": ({"dp": [1, 4], "batch": [1, 3, 4, 9], "context": [100]}, Options(place=GRID)),
    "a pipeline": ({"pp": [2], "dp": [2], "batch": [4, 7], "generate": [8]}, Options(micro_batches=2, place=GRID)),
    "shared layers": ({"tp": [1, 2, 3], "batch": [1, 9], "generate": [8]}, Options(overlap=0.5)),
    "sequence parallel": ({"tp": [4], "prompt": [512]}, Options(sequence_parallel=True, imbalance=1.3)),
    "layers elsewhere": (
        {"devices": ["nvidia-h200", "nvidia-l4"], "batch": [1, 2], "context": [64]}, Options(offload=Offload(layers=3)),
    ),
    "experts elsewhere": (
        {"models": ["qwen3-30b-a3b"], "devices": ["nvidia-l4"], "context": [64]},
        Options(offload=Offload(experts=True)),
    ),
    "a prefix": ({"prompt": [16, 17, 512], "generate": [4], "context": [None, 99]}, Options(cached_prefix=16)),
    "two parts": ({"models": ["t5-small"], "prompt": [8, 64], "generate": [1, 9], "context": [None, 7]},
                  Options(host=HOST, place=GRID)),
    "what is heard": ({"models": ["whisper-tiny"], "generate": [None, 3], "batch": [1, 2]}, Options()),
    "states": ({"models": ["mamba-130m"], "prompt": [None, 5000], "generate": [3]}, Options(place=GRID)),
    "a battery": ({"devices": ["raspberry-pi-5"], "context": [10, 20]}, Options(battery=Battery(capacity_j=5000.0))),
    "energy of a chip": (
        {"context": [10]}, Options(energy=EnergyCosts(joules_per_flop=1e-12, joules_per_byte=1e-11)),
    ),
    "no power known": ({"devices": ["apple-m4-ane", "nvidia-h200"], "models": ["resnet50"]}, Options(place=GRID)),
    "a spot price": ({"devices": ["nvidia-l4", "nvidia-h200"], "context": [10]}, Options(place=Hosting(spot=True))),
    "sequences that cost the host": (
        {"runtimes": ["vllm", "sglang"], "devices": ["nvidia-h100-sxm", "nvidia-l4"], "batch": [1, 64], "tp": [1, 2],
         "dp": [1, 2], "generate": [8]}, Options(place=GRID),
    ),
    "the same with details": (
        {"runtimes": ["trtllm"], "devices": ["nvidia-h200", "nvidia-l4"], "batch": [2, 64], "pp": [1, 2],
         "generate": [8]}, Options(micro_batches=2, engine_version="0.9"),
    ),
    "threads and formats": (
        {"devices": ["intel-emerald-rapids-1-vcpu"], "weights": [None, "q4_0"], "activations": ["f32"], "context": [9]},
        Options(host_speed=2.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("corner", "details"), [(name, bool(place % 2)) for place, name in enumerate(CORNERS)])
def test_a_row_of_a_corner_is_the_summary_of_its_prediction(corner, details):
    axes, options = CORNERS[corner]
    axes = ONE | {"models": ["llama-3.2-1b"], "devices": ["nvidia-h200"]} | axes
    rows = swept(axes, options=options, details=details, chunk_rows=5 if details else 1 << 16)
    for row, found in zip(rows.records(), predictions(axes, options, calibrated=True), strict=True):
        require_same(row, found, details=details)
