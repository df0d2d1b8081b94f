"""MLPerf Inference, LoadGen summaries by submitter and system.

Offline gives samples or tokens a second of a full queue, Server the rate it sustained, SingleStream one query's mean
latency, MultiStream that of a query of several samples. `-99` and `-99.9` often share one log: the second is the same
figure. A system without an accelerator is its CPUs.
"""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.form import CsvLine, LineError, published, published_form, settings
from inferometer.known.atlas.measurement import PublishedMeasurement, unit_named

_ENGINES = (
    ("tensorrt", "tensorrt"), ("vllm", "vllm"), ("qualcomm", "qualcomm-cloud-ai"), ("onnxruntime", "onnxruntime"),
    ("openvino", "openvino"), ("deepsparse", "deepsparse"), ("pytorch", "torch-eager"),
)  # fmt: skip
_DATES = {"v4.0": "2024-03", "v4.1": "2024-08", "v5.0": "2025-04", "v5.1": "2025-09"}  # of publication
_UNITS = (("tpu", "tpu"), ("gaudi", "npu"), ("cloud ai", "npu"))  # accelerators that are no GPU
_MULTI = 8  # samples of a MultiStream query, where the log does not say


@published_form(
    "mlperf", "MLPerf Inference", "round", "division", "submitter", "accelerator", "model", "scenario", "samples_per_s"
)
def mlperf(line: CsvLine) -> Iterator[PublishedMeasurement]:
    if (line.text("result_valid") or "VALID") != "VALID":
        raise LineError("its log says that the result is not valid.")
    name, scenario = line.required("model"), line.required("scenario").casefold()
    facts = _facts(line, name, scenario)
    rows = tuple(_rows(line, scenario, facts))
    if not rows:
        raise LineError(f"{scenario} without a rate or a latency.")
    yield from rows


def _facts(line: CsvLine, name: str, scenario: str) -> dict[str, Any]:
    accelerator, software = line.text("accelerator"), line.text("framework") or ""
    model, _, accuracy = name.replace("3_1", "3.1").partition("-99")
    accuracy = f"99{accuracy}" if model != name.replace("3_1", "3.1") else ""
    many = line.whole("accelerators_per_node" if accelerator else "host_cpus_per_node") or 1
    device = accelerator or line.required("host_cpu")
    version = re.search(r"(?i)(?:tensorrt|vllm|onnxruntime|pytorch)[ -]?v?([\d.]+\d)", software)
    return {
        "dataset": "mlperf",
        "place": line.text("round"),
        "date": _DATES.get(line.text("round") or ""),
        "device_published": device,
        "device_spelling": device.replace("Virtualized ", ""),
        "unit": next((unit for words, unit in _UNITS if words in device.casefold()), "gpu") if accelerator else "cpu",
        "count": many * (line.whole("nodes") or 1),
        "model_published": model,
        "precision_published": f"{accuracy} % of the reference's accuracy" if accuracy else None,
        "engine_published": software or None,
        "engine": next((engine for word, engine in _ENGINES if word in software.casefold()), None),
        "version": version[1] if version else None,
        "settings": settings(
            scenario=scenario, division=line.text("division"), submitter=line.text("submitter"),
            system=line.text("platform"), host=line.text("host_cpu") if accelerator else None,
        ),
    }  # fmt: skip


def _rows(line: CsvLine, scenario: str, facts: dict[str, Any]) -> Iterator[PublishedMeasurement]:
    tokens, samples = line.value("tokens_per_s"), line.value("samples_per_s")
    sustained = line.value("scheduled_samples_per_s") or samples
    if scenario == "singlestream":
        yield _latency(line, 1, facts)
    elif scenario == "multistream":
        yield _latency(line, line.whole("samples_per_query") or _MULTI, facts)
    elif tokens:
        yield published(line, quantity="tokens", figure=tokens, figure_unit="tokens/s", **facts)
    elif sustained:
        yield published(line, quantity="stream", figure=sustained, figure_unit="inputs/s", **facts)
    if scenario in {"server", "interactive"}:
        for quantity in ("ttft", "tpot"):
            mean = line.value(f"{quantity}_mean_ns")
            if mean:
                yield published(line, quantity=quantity, figure=mean, figure_unit="ns", **facts)


def _latency(line: CsvLine, batch: int, facts: dict[str, Any]) -> PublishedMeasurement:
    mean = line.value("lat_mean_ns") or line.positive("lat_p50_ns")
    language = re.search(r"(?i)llama|gpt|mixtral|deepseek|whisper|diffusion", facts["model_published"])
    quantity = "request" if language else "forward"
    ends = (line.value("lat_p50_ns"), line.value("lat_p99_ns"))
    spread: dict[str, Any] = {"low": ends[0], "high": ends[1], "spread": "p50 to p99"} if all(ends) else {}
    return published(line, quantity=quantity, figure=mean, figure_unit="ns", batch=batch, **spread, **facts)


# MLPerf Mobile: one query's mean and 90th percentile, or the offline rate, of a phone's own stack.

# The submissions' short names of chips.
_CHIPS = {
    "SD8G2": "Snapdragon 8 Gen 2", "SD8G3": "Snapdragon 8 Gen 3", "SD8SG3": "Snapdragon 8s Gen 3",
    "SDX_Elite": "Snapdragon X Elite", "SD8E": "Snapdragon 8 Elite", "D9300": "Dimensity 9300",
}  # fmt: skip


@published_form(
    "mlperf-mobile", "MLPerf Mobile", "round", "submitter", "device", "model", "scenario", "p90_ns", "mean_ns"
)
def mlperf_mobile(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, scenario = line.required("device"), line.required("scenario").casefold()
    facts: dict[str, Any] = {
        "dataset": "mlperf-mobile",
        "place": line.text("round"),
        "date": "2024-09" if line.text("round") == "v4.1" else None,
        "device_published": device,
        "device_spelling": _CHIPS.get(device, device),
        "unit": "npu",
        "model_published": line.required("model"),
        "settings": settings(scenario=scenario, submitter=line.text("submitter")),
    }
    if scenario == "offline":
        rate = line.positive("samples_per_s")
        yield published(line, quantity="stream", figure=rate, figure_unit="inputs/s", **facts)
        return
    quantity = "request" if "diffusion" in facts["model_published"] else "forward"
    mean = line.positive("mean_ns")
    yield published(line, quantity=quantity, figure=mean, figure_unit="ns", batch=1, **facts)


# MLPerf Tiny: inferences a second of microcontrollers, and the energy of one.

_MODELS = {"ad": "autoencoder-ad", "ic": "resnet8", "kws": "ds-cnn", "vww": "mobilenet-v1-0.25-96"}


@published_form("mlperf-tiny", "MLPerf Tiny", "BoardName", "SystemDesc", "MlperfModel", "Result", "ResultUnit")
def mlperf_tiny(line: CsvLine) -> Iterator[PublishedMeasurement]:
    system, framework = line.required("SystemDesc"), line.text("InferenceFramework")
    energy = line.value("Power") if (line.text("HasPower") or "").casefold() == "true" else None
    if energy and (line.text("PowerUnit") or "") != "uJ/inf.":
        raise LineError(f"its energy is in {line.text('PowerUnit')!r}, and not in uJ/inf.")
    short = line.required("MlperfModel")
    quantised = "int8" in system
    yield published(
        line,
        dataset="mlperf-tiny",
        date="2024-04",
        device_published=line.required("BoardName"),
        unit="npu" if line.text("AcceleratorModelName") else "cpu",
        model_published=short,
        model_spelling=_MODELS.get(short, short),
        engine_published=framework,
        engine="x-cube-ai" if "X-CUBE-AI" in (framework or "") else None,
        settings=settings(
            system=system, organization=line.text("Organization"), clock=line.text("HostProcessorFrequency"),
            processor=line.text("HostProcessorModelName"),
        ),
        weights="i8" if quantised else "f32" if "float" in system else None,
        activations="i8" if quantised else "f32" if "float" in system else None,
        batch=1,
        quantity="forward",
        figure=line.positive("Result"),
        figure_unit=unit_named(line.required("ResultUnit")),
        energy_j=energy * 1e-6 if energy else None,
    )  # fmt: skip


FORMS = (mlperf, mlperf_mobile, mlperf_tiny)
