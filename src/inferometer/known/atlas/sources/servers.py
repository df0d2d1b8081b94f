"""Tables of language models on servers, most of them of many requests at once, by who published them."""

import re
from collections.abc import Iterator
from math import prod
from typing import Any

from inferometer.known.atlas.form import CsvLine, LineError, format_named, published, published_form, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

# Argonne's LLM-Inference-Bench: whole requests, `batch` at once, with as many tokens out as in.
#
# The throughput counts tokens in and out. In the rows of llama.cpp it is that of one sequence, whatever the batch size:
# there it is the engine's `--batch-size`, so many tokens of the prompt are read at once, and one request ran. Weights
# are as the models are published, in 16 bits. vLLM's rows of one `Intel PVC GPU` hold the first run of a process: some
# 17 s at every length and batch, which the rows of the same card as `Intel Max 1550` do not have. One `AMD MI250 GPU`
# is what a process sees, one of the module's two dies, as the catalog's row is.

_ARGONNE_ENGINES = {
    "vllm": "vllm", "llama.cpp": "llamacpp", "tensorrt-llm": "trtllm", "deepspeed": "deepspeed-mii",
    "deepspeed-mii": "deepspeed-mii", "sambaflow": "sambaflow", "sglang": "sglang",
}  # fmt: skip
_DEVICES = {
    "Nvidia A100 GPU": "NVIDIA A100 40GB", "Nvidia H100 GPU": "NVIDIA H100 SXM", "Nvidia GH200 GPU": "NVIDIA GH200",
    "Intel PVC GPU": "Intel Data Center GPU Max 1550", "Intel Max 1550": "Intel Data Center GPU Max 1550",
    "Habana Gaudi2": "Intel Gaudi 2", "Habana Gaudi3": "Intel Gaudi 3", "AMD MI250 GPU": "AMD MI250",
    "AMD MI300X GPU": "AMD MI300X",
}  # fmt: skip
_FIRST_RUNS = ("Intel PVC GPU", "vLLM")
_APART = 0.05


@published_form(
    "argonne", "Argonne, LLM-Inference-Bench", "Hardware", "Num of Hardware", "Framework", "Model", "Batch Size",
    "Latency", "Throughput"
)  # fmt: skip
def argonne(line: CsvLine) -> Iterator[PublishedMeasurement]:
    hardware, framework = line.required("Hardware"), line.required("Framework")
    latency, throughput = line.positive("Latency"), line.positive("Throughput")
    length, batch = line.whole("Input Output Length") or 0, line.whole("Batch Size") or 1
    devices = line.whole("Num of Hardware") or 1
    several = throughput * latency / (2 * length) if length else 0.0  # requests that ran at once
    if not length or min(abs(several / batch - 1), abs(several - 1)) > _APART:
        raise LineError(f"{throughput:g} tokens/s and {latency:g} s do not go together at batch {batch}.")
    one = framework.casefold() == "llama.cpp" or (batch > 1 and abs(several - 1) <= _APART)
    yield published(
        line,
        dataset="argonne",
        date="2024",
        device_published=hardware,
        device_spelling=_DEVICES.get(hardware, hardware),
        unit="npu" if "SambaNova" in hardware or "Gaudi" in hardware else "gpu",
        count=devices,
        model_published=line.required("Model"),
        engine_published=framework,
        engine=_ARGONNE_ENGINES.get(framework.casefold(), framework.casefold()),
        settings=settings(
            chunk=batch if one else None, cold=1 if (hardware, framework) == _FIRST_RUNS and devices == 1 else None
        ),
        weights="f16",
        batch=1 if one else batch,
        prompt=length,
        generate=length,
        quantity="request",
        figure=latency,
        figure_unit="s",
    )


# TensorRT-LLM's performance overview: output tokens a second of a full server, or the first token's time.
#
# `TP4`, `DEP8` (data and expert parallel) and `TP2,PP4 x8 GPUs` say how many GPUs share the model.

_TRTLLM_FORMATS = {"FP4": "nvfp4", "FP8": "f8e4m3", "FP16": "f16", "BF16": "bf16"}


@published_form(
    "trtllm", "TensorRT-LLM, performance overview", "model", "gpu", "precision", "parallel", "isl", "osl", "metric",
    "value"
)  # fmt: skip
def trtllm(line: CsvLine) -> Iterator[PublishedMeasurement]:
    metric, parallel = line.required("metric"), line.required("parallel")
    plan = {name.casefold(): int(size) for name, size in re.findall(r"(TP|PP|DEP|EP|DP)(\d+)", parallel)}
    stated = re.search(r"x(\d+) GPU", parallel)
    precision = line.text("precision")
    first = "first token" in metric
    if not first and "tok/s" not in metric:
        raise LineError(f"{metric!r} is neither a rate of tokens nor a time to the first one.")
    per_device = "/GPU" in metric
    yield published(
        line,
        dataset="trtllm",
        date=line.text("date"),
        device_published=line.required("gpu"),
        device_spelling=f"NVIDIA {line.required('gpu')}",
        unit="gpu",
        count=int(stated[1]) if stated else prod(plan.values()),
        model_published=line.required("model"),
        engine_published="TensorRT-LLM",
        engine="trtllm",
        settings=settings(**plan),
        precision_published=precision,
        weights=_TRTLLM_FORMATS.get(precision or "") or format_named(precision),
        batch=line.whole("batch"),
        prompt=line.whole("isl"),
        generate=line.whole("osl"),
        quantity="ttft" if first else "tokens",
        figure=line.positive("value"),
        figure_unit="ms" if first else "tokens/s/device" if per_device else "tokens/s",
    )


# ROCm's vLLM on MI300X: the time of `batch` requests, and tokens a second of many.
#
# Some rows name the 70B's id under the title of the 405B. Their times are the 405B's, so the title counts.


@published_form(
    "rocm-vllm", "ROCm, vLLM on MI300X", "gpu", "model", "precision", "tp", "batch", "isl", "osl", "metric", "value"
)
def rocm_vllm(line: CsvLine) -> Iterator[PublishedMeasurement]:
    name, metric = line.required("model"), line.required("metric")
    together = line.whole("tp") or 1
    yield published(
        line,
        dataset="rocm-vllm",
        date=line.text("date"),
        device_published=line.required("gpu"),
        unit="gpu",
        count=together,
        model_published=name,
        model_spelling=re.sub(r"\s*\(.*\)$", "", name),
        engine_published="vLLM",
        engine="vllm",
        version=line.text("vllm"),
        settings=settings(tp=together, prompts=line.whole("num_prompts")),
        precision_published=line.text("precision"),
        weights=format_named(line.text("precision")),
        activations=format_named(line.text("precision")),
        prompt=line.whole("isl"),
        generate=line.whole("osl"),
        **_figure(metric, line),
    )


def _figure(metric: str, line: CsvLine) -> dict[str, Any]:
    value = line.positive("value")
    if "tokens/s" in metric:
        return {"quantity": "tokens", "figure": value, "figure_unit": "tokens/s"}
    unit = "ms" if "(ms)" in metric else "s" if "(sec)" in metric else None
    if unit is None:
        raise LineError(f"{metric!r} has no known unit.")
    return {"quantity": "request", "figure": value, "figure_unit": unit, "batch": line.whole("batch")}


# NVIDIA's aiconfigurator, silicon samples: TTFT and TPOT of servers by parallel plan and concurrency.
#
# `agg` has one pool of workers, `disagg` one that reads prompts and one that makes tokens. Rows that say when they were
# measured are InferenceMAX's, by its client (github.com/InferenceMAX/InferenceMAX): prompts and answers of 80 to 100 %
# of the stated lengths, ten requests for each user, all users at once at the start.

_AICONFIGURATOR_ENGINES = {"trtllm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
_AICONFIGURATOR_FORMATS = {
    "fp4": "nvfp4", "nvfp4": "nvfp4", "fp8": "f8e4m3", "fp8_block": "f8e4m3", "int4_wo": "i4", "int4": "i4",
}  # fmt: skip
_DEVICES_IN_ID = re.compile(r"_tp(\d+)(?:_0)?_ep(\d+)(?:_0)?_")
# Images that InferenceMAX ran DeepSeek-R1 in with drafts of the model's own prediction head, and no others without:
# its TensorRT-LLM configurations "used different .postN variants" until 2026-02 (SemiAnalysisAI/InferenceX).
_DRAFTED = (("1.2.0rc6.post3", "2026-02"), ("1.1.0rc2.post2", "2026-01"))
_PLAN = {"tp_size": "tp", "pp_size": "pp", "attention_dp_size": "dp", "moe_tp_size": "moe_tp", "moe_ep_size": "ep"}


@published_form(
    "aiconfigurator", "NVIDIA aiconfigurator, silicon samples", "backend", "model_path", "system", "isl", "osl",
    "silicon_ttft_ms", "silicon_tpot_ms"
)  # fmt: skip
def aiconfigurator(line: CsvLine) -> Iterator[PublishedMeasurement]:
    backend, told = line.required("backend"), line.text("silicon_data_source") or ""
    concurrency = re.search(r"silicon_concurrency=(\d+)", told)
    measured = re.search(r"measured=(\d{4}-\d\d-\d\d)", told)
    stored = line.text("gemm_quant_mode") or line.text("precision")
    facts: dict[str, Any] = {
        "dataset": "aiconfigurator",
        "date": measured[1] if measured else "2026-08",
        "device_published": line.required("system"),
        "device_spelling": f"NVIDIA {line.required('system').replace('_', ' ')}",
        "unit": "gpu",
        "model_published": line.required("model_path"),
        "engine_published": backend,
        "engine": _AICONFIGURATOR_ENGINES.get(backend, backend),
        "version": line.text("backend_version"),
        "precision_published": line.text("precision"),
        "weights": _AICONFIGURATOR_FORMATS.get(stored or "") or format_named(stored),
        "prompt": line.whole("isl"),
        "generate": line.whole("osl"),
        "concurrency": int(concurrency[1]) if concurrency else None,
        **_plan(line),
    }
    if measured:
        drafts = {"drafts": "mtp"} if _is_drafted(line, measured[1]) else {}
        facts["settings"] = {**facts["settings"], "client": "inferencemax", **drafts}
    for quantity in ("ttft", "tpot"):
        value = line.value(f"silicon_{quantity}_ms")
        if value:
            yield published(line, quantity=quantity, figure=value, figure_unit="ms", **facts)


def _plan(line: CsvLine) -> dict[str, Any]:
    """How many devices, and how they share the model; each rank's batch where one pool serves."""
    mode = line.required("mode")
    if mode == "agg":
        sizes, batch = _as_named(line, _sizes(line, ""), line.whole("batch_size"))
        return {"count": _devices(sizes), "batch": batch, "settings": settings(mode=mode, **sizes)}
    pools = {pool: _sizes(line, f"{pool}_") for pool in ("prefill", "decode")}
    workers = {pool: line.whole(f"{pool}_num_workers") or 1 for pool in pools}
    told: dict[str, Any] = {f"{pool}_{name}": size for pool, sizes in pools.items() for name, size in sizes.items()}
    told |= {f"{pool}_workers": count for pool, count in workers.items()}
    told |= {f"{pool}_batch": line.whole(f"{pool}_batch_size") for pool in pools}
    count = sum(workers[pool] * _devices(sizes) for pool, sizes in pools.items())
    return {"count": count, "settings": settings(mode=mode, **told)}


def _is_drafted(line: CsvLine, measured: str) -> bool:
    image = line.text("backend_version") or ""
    return "DeepSeek-R1" in line.required("model_path") and any(
        image == version and measured >= since for version, since in _DRAFTED
    )


def _as_named(line: CsvLine, sizes: dict[str, int], batch: int | None) -> tuple[dict[str, int], int | None]:
    """The plan as it was run.

    Rows of one file state tensor (or data) parallelism as its product with expert parallelism, 64 devices where the
    row's id has `tp8_ep8`: the same figures stand in another file with 8. Where attention is copied on each device
    (`dp`), some rows state the devices twice, as tensor and as data parallelism, and their product as experts'.
    """
    tp, dp, ep = (sizes.get(name, 1) for name in ("tp", "dp", "ep"))
    if tp == dp > 1 and ep == tp * dp:
        return {"dp": dp, "ep": dp}, batch
    named = _DEVICES_IN_ID.search(line.text("id") or "")
    if named is None or int(named[2]) == 1 or max(tp, dp) != int(named[1]) * int(named[2]):
        return sizes, batch
    devices, experts = int(named[1]), int(named[2])
    if dp > 1:
        return {"dp": devices, "ep": experts}, batch * experts if batch else batch
    return {"tp": devices, "ep": experts}, batch


def _sizes(line: CsvLine, prefix: str) -> dict[str, int]:
    sizes = {short: line.whole(f"{prefix}{name}") for name, short in _PLAN.items()}
    return {name: size for name, size in sizes.items() if size and size > 1}


def _devices(sizes: dict[str, int]) -> int:
    return prod(sizes.get(name, 1) for name in ("tp", "pp", "dp"))


# Requests of a vLLM server one by one, with their queueing: TTFT, TPOT and the whole of each.

_QUANTITIES = {"ttft": "ttft_ms", "tpot": "tpot_ms", "request": "e2e_ms"}


@published_form(
    "vllm-requests", "requests of vLLM", "device", "model", "request_id", "arrival_s", "input_tokens", "ttft_ms",
    "tpot_ms", "e2e_ms"
)  # fmt: skip
def vllm_requests(line: CsvLine) -> Iterator[PublishedMeasurement]:
    facts: dict[str, Any] = {
        "dataset": "vllm-requests",
        "date": "2026-08",
        "device_published": line.required("device"),
        "unit": "gpu",
        "count": (line.whole("tp") or 1) * (line.whole("dp") or 1),
        "model_published": line.required("model"),
        "engine_published": "vLLM",
        "engine": "vllm",
        "version": line.text("vllm"),
        "settings": settings(
            tp=line.whole("tp"), sequences=line.whole("max_num_seqs"),
            token_budget=line.whole("max_num_batched_tokens"), kv_blocks=line.whole("num_gpu_blocks"),
            block=line.whole("block_size"), arrival_s=line.value("arrival_s"), queue_ms=line.value("queue_ms"),
        ),
        "batch": 1,
        "prompt": line.whole("input_tokens"),
        "generate": line.whole("output_tokens"),
    }  # fmt: skip
    for quantity, column in _QUANTITIES.items():
        yield published(line, quantity=quantity, figure=line.positive(column), figure_unit="ms", **facts)


FORMS = (argonne, trtllm, rocm_vllm, aiconfigurator, vllm_requests)
