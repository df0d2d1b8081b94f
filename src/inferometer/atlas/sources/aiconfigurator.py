"""NVIDIA's aiconfigurator, silicon samples: TTFT and TPOT of servers by parallel plan and concurrency.

`agg` has one pool of workers, `disagg` one that reads prompts and one that makes tokens.
"""

import re
from collections.abc import Iterator
from math import prod
from typing import Any

from inferometer.atlas.csv_lines import CsvLine
from inferometer.atlas.form import Form, format_named, published, settings
from inferometer.atlas.measurement import PublishedMeasurement

_ENGINES = {"trtllm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
_FORMATS = {"fp4": "nvfp4", "nvfp4": "nvfp4", "fp8": "f8e4m3", "fp8_block": "f8e4m3", "int4_wo": "i4", "int4": "i4"}
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
    for quantity in ("ttft", "tpot"):
        value = line.value(f"silicon_{quantity}_ms")
        if value:
            yield published(line, quantity=quantity, figure=value, figure_unit="ms", **facts)


def _plan(line: CsvLine) -> dict[str, Any]:
    """How many devices, and how they share the model; each rank's batch where one pool serves."""
    mode = line.required("mode")
    if mode == "agg":
        sizes = _sizes(line, "")
        batch = line.whole("batch_size")
        return {"count": _devices(sizes), "batch": batch, "settings": settings(mode=mode, **sizes)}
    pools = {pool: _sizes(line, f"{pool}_") for pool in ("prefill", "decode")}
    workers = {pool: line.whole(f"{pool}_num_workers") or 1 for pool in pools}
    told: dict[str, Any] = {f"{pool}_{name}": size for pool, sizes in pools.items() for name, size in sizes.items()}
    told |= {f"{pool}_workers": count for pool, count in workers.items()}
    told |= {f"{pool}_batch": line.whole(f"{pool}_batch_size") for pool in pools}
    count = sum(workers[pool] * _devices(sizes) for pool, sizes in pools.items())
    return {"count": count, "settings": settings(mode=mode, **told)}


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
