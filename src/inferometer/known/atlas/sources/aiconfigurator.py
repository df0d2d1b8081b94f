"""NVIDIA's aiconfigurator, silicon samples: TTFT and TPOT of servers by parallel plan and concurrency.

`agg` has one pool of workers, `disagg` one that reads prompts and one that makes tokens. Rows that say when they were
measured are InferenceMAX's, by its client (github.com/InferenceMAX/InferenceMAX): prompts and answers of 80 to 100 % of
the stated lengths, ten requests for each user, all users at once at the start.
"""

import re
from collections.abc import Iterator
from math import prod
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, format_named, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

_ENGINES = {"trtllm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
_FORMATS = {"fp4": "nvfp4", "nvfp4": "nvfp4", "fp8": "f8e4m3", "fp8_block": "f8e4m3", "int4_wo": "i4", "int4": "i4"}
_DEVICES_IN_ID = re.compile(r"_tp(\d+)(?:_0)?_ep(\d+)(?:_0)?_")
# Images that InferenceMAX ran DeepSeek-R1 in with drafts of the model's own prediction head, and no others without:
# its TensorRT-LLM configurations "used different .postN variants" until 2026-02 (SemiAnalysisAI/InferenceX).
_DRAFTED = (("1.2.0rc6.post3", "2026-02"), ("1.1.0rc2.post2", "2026-01"))
_PLAN = {"tp_size": "tp", "pp_size": "pp", "attention_dp_size": "dp", "moe_tp_size": "moe_tp", "moe_ep_size": "ep"}


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
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
        "engine": _ENGINES.get(backend, backend),
        "version": line.text("backend_version"),
        "precision_published": line.text("precision"),
        "weights": _FORMATS.get(stored or "") or format_named(stored),
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


FORM = Form(
    name="aiconfigurator",
    title="NVIDIA aiconfigurator, silicon samples",
    columns=frozenset({"backend", "model_path", "system", "isl", "osl", "silicon_ttft_ms", "silicon_tpot_ms"}),
    read=read,
)
