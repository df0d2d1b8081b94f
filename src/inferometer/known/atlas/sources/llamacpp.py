"""Tables of llama-bench: `pp512` reads 512 tokens, `tg128` makes 128, `@ d4096` with 4,096 in the cache already.

`tg64@pp512` (ik_llama.cpp's way) makes 64 tokens after a prompt of 512.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from inferometer.known import device as device_named
from inferometer.known.atlas.form import (
    CsvLine,
    LineError,
    catalog_device,
    format_named,
    published,
    published_form,
    settings,
)
from inferometer.known.atlas.measurement import PublishedMeasurement

_TEST = re.compile(r"(pp|tg)(\d+)(?:\s*@\s*(?:d|pp)(\d+))?$")
_WEIGHTS = re.compile(r"(?i)(?<![a-z0-9])(i?q\d_(?:k|0|1|nl|xxs|xs|s|m)|tq\d_0|bf16|f16|f32|mxfp4|nvfp4)(?![0-9a-z])")
_SOURCES = {
    "llama.cpp": "llama.cpp", "ik_llama.cpp": "ik_llama.cpp", "lhl": "lhl-strix-halo", "kyuz0": "kyuz0-strix-halo",
}  # fmt: skip
_CARD = re.compile(r"(?i)\brtx\b|geforce|tesla|quadro|radeon (?:rx|pro)")
_UNKNOWN_CARD_GIB = 100  # the largest card that anybody has
_CPU_ONLY = frozenset({"CPU", "BLAS"})


@published_form(
    "llamacpp", "llama-bench tables", "device", "backend", "model", "size_gib", "params_b", "test", "tokens_per_s"
)
def llamacpp(line: CsvLine) -> Iterator[PublishedMeasurement]:
    name, backend = line.required("model"), line.text("backend")
    source = line.text("source") or ""
    owner = source.partition("/")[0]
    size, parameters = line.value("size_gib"), line.value("params_b")
    rate, deviation = line.positive("tokens_per_s"), line.value("stddev")
    flash, build = line.text("fa"), re.search(r"build=([^;]+)", line.text("extra") or "")
    power = re.search(r"avg_power_w=([\d.]+)", line.text("extra") or "")
    device = line.required("device")
    yield published(
        line,
        dataset="llamacpp",
        source=_SOURCES.get(owner, owner or "llama.cpp"),
        place=_place(source),
        device_published=device,
        unit=_unit(line, device, size),
        model_published=name,
        model_spelling=_spelling(name, parameters),
        engine_published=owner if owner == "ik_llama.cpp" else "llama.cpp",
        engine="llamacpp",
        settings=settings(
            backend=backend,
            threads=line.whole("threads"),
            layers_on_gpu=line.whole("ngl"),
            flash_attention=None if flash is None else int(flash.casefold() in {"1", "true"}),
            build=build[1] if build else None,
            fork="ik_llama.cpp" if owner == "ik_llama.cpp" else None,
        ),
        precision_published=_quantisation(name),
        weights=weights_of(name),
        batch=1,
        **_sizes(line.required("test")),
        figure=rate,
        figure_unit="tokens/s",
        low=rate - deviation if deviation and deviation < rate else None,
        high=rate + deviation if deviation and deviation < rate else None,
        spread="standard deviation" if deviation else None,
        power_w=float(power[1]) if power else None,
        parameters=parameters * 1e9 if parameters and parameters < 5000 else None,
        weight_bytes=size * 2**30 if size else None,
    )


def _unit(line: CsvLine, device: str, size_gib: float | None) -> str:
    """Where it ran. A model that no such card can hold has most of its layers, or its experts, on the CPU."""
    backend = line.text("backend")
    if backend in _CPU_ONLY or (backend is None and line.whole("ngl") in {None, 0}):
        return "cpu"
    return "cpu+gpu" if _CARD.search(device) and (size_gib or 0) > card_gib(device) else "gpu"


@cache
def card_gib(name: str) -> float:
    """What a card of that name holds."""
    row = catalog_device(name, "gpu")
    memory = None if row is None else device_named(row).memory
    return _UNKNOWN_CARD_GIB if memory is None or memory.room is None else float(memory.room) / 2**30


def _sizes(test: str) -> dict[str, Any]:
    parsed = _TEST.match(test.strip())
    if parsed is None or int(parsed[2]) == 0:
        raise LineError(f"the test {test!r} is neither ppN nor tgN.")
    before, tokens = int(parsed[3] or 0), int(parsed[2])
    if parsed[1] == "pp":
        return {"quantity": "prefill", "prompt": tokens, "context": before}
    return {"quantity": "decode", "generate": tokens, "context": before}


def _place(source: str) -> str | None:
    """The file in its repository: `lhl/strix-halo-testing llm-bench/x` → `llm-bench/x`."""
    owner, _, rest = source.partition("/")
    return (rest.partition(" ")[2] or rest if owner in {"lhl", "kyuz0"} else rest) or None


def weights_of(name: str) -> str | None:
    """The format of most weights. gpt-oss ships its experts in MXFP4, whatever the file is called.

    A repository of GGUF files that names no format gives its Q4_K_M (`llama-server -hf`); Google trained Gemma 3's
    for Q4_0, and says so with QAT.
    """
    if re.search(r"(?i)gpt-?oss", name):
        return "mxfp4"
    stated = _quantisation(name)
    if stated is None and re.search(r"(?i)-gguf$", name):
        return "q4_0" if re.search(r"(?i)-qat-", name) else "q4_k"
    return format_named(stated.casefold()) if stated else None


def _quantisation(name: str) -> str | None:
    stated = _WEIGHTS.search(name.replace("-", " ").replace(".", " ").replace(" K ", "_K "))
    return stated[1] if stated else None


def _spelling(name: str, parameters: float | None) -> str:
    """llama-bench prints `llama 70B` for Llama 2's and Llama 3's: the count of parameters tells them apart."""
    if re.match(r"(?i)llama 70B", name):
        return "llama-3-70b" if (parameters or 0) > 70 else "llama-2-70b"
    moe = re.match(r"(?i)qwen3moe \?B", name)
    return "qwen3-235b-a22b" if moe and 230 < (parameters or 0) < 240 else name


# llama-batched-bench: `batch` sequences read `pp` tokens each at once, then make `tg` tokens each.


@published_form("llamacpp-batched", "llama-batched-bench", "device", "model", "pp", "tg", "batch", "s_pp", "s_tg")
def llamacpp_batched(line: CsvLine) -> Iterator[PublishedMeasurement]:
    name, prompt = line.required("model"), line.whole("pp")
    facts: dict[str, Any] = {
        "dataset": "llamacpp-batched",
        "device_published": line.required("device"),
        "unit": "gpu",
        "model_published": name,
        "engine_published": "llama.cpp",
        "engine": "llamacpp",
        "weights": weights_of(name),
        "batch": line.whole("batch"),
    }
    yield published(
        line, quantity="prefill", figure=line.positive("s_pp"), figure_unit="tokens/s", prompt=prompt, context=0,
        **facts,
    )  # fmt: skip
    yield published(
        line, quantity="decode", figure=line.positive("s_tg"), figure_unit="tokens/s", context=prompt,
        generate=line.whole("tg"), **facts,
    )  # fmt: skip


# XiongjieDai's list of GPUs: llama.cpp with Llama 3, `4090 24GB * 2` for two cards that share the layers.


@published_form("llamacpp-gpus", "GPU benchmarks on LLM inference", "device", "model", "test", "tokens_per_s")
def llamacpp_gpus(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, name = line.required("device"), line.required("model")
    several = re.match(r"(.+?)\s*\*\s*(\d+)$", device)
    test = re.match(r"(pp|tg)\s*(\d+)$", line.required("test"))
    if test is None:
        raise LineError(f"the test {line.text('test')!r} is neither ppN nor tgN.")
    reads, tokens = test[1] == "pp", int(test[2])
    one = several[1] if several else device
    yield published(
        line,
        dataset="llamacpp-gpus",
        device_published=device,
        device_spelling=f"RTX {one}" if re.match(r"[2345]0[5-9]0", one) else one.replace("\u2011", "-"),
        unit="gpu",
        count=int(several[2]) if several else 1,
        model_published=name,
        engine_published="llama.cpp",
        engine="llamacpp",
        weights=weights_of(name),
        batch=1,
        quantity="prefill" if reads else "decode",
        prompt=tokens if reads else None,
        generate=None if reads else tokens,
        context=0,
        figure=line.positive("tokens_per_s"),
        figure_unit="tokens/s",
    )


FORMS = (llamacpp, llamacpp_batched, llamacpp_gpus)
