"""Small tables of language models on phones, boards and desktop systems."""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.form import CsvLine, LineError, published, published_form, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

# Small tables of language models on phones and Macs: LiteRT-LM, ExecuTorch, mlx-lm.
#
# The source's name holds the sizes: `pp1024/tg256`; ExecuTorch's are those of Meta's model cards, a prompt of 64
# tokens. A line whose rates are no numbers is a row of another table.

_SOURCES = {
    "LiteRT-LM": ("litert-lm", "litert-lm"),
    "executorch": ("executorch", "executorch"),
    "mlx-lm": ("mlx-lm", "mlx"),
}
_SIZES = {"executorch": (64, 64)}
_WEIGHTS = {
    "bf16": "bf16", "f16": "f16", "q8": "i8", "q6": "i6", "q5": "i5", "q4": "i4", "spinquant": "i4", "qat+lora": "i4",
}  # fmt: skip


@published_form(
    "phones", "language models on phones", "source", "model", "device", "backend", "prefill_tok_s", "decode_tok_s"
)
def phones(line: CsvLine) -> Iterator[PublishedMeasurement]:
    told, name, backend = line.required("source"), line.required("model"), line.required("backend")
    source, engine = _SOURCES.get(told.split()[0], (told.split()[0], None))
    device = line.required("device")
    sizes = re.search(r"pp(\d+)/tg(\d+)", told)
    prompt, generate = (int(sizes[1]), int(sizes[2])) if sizes else _SIZES.get(source, (None, None))
    words = name.casefold().split()
    facts: dict[str, Any] = {
        "dataset": "phones",
        "source": source,
        "device_published": device,
        "device_spelling": re.sub(r"\s*\(see README\)$", "", device),
        "unit": "gpu"
        if "MLX" in backend
        else next((unit for unit in ("cpu", "gpu", "npu") if unit.upper() in backend), None),
        "model_published": name,
        "model_spelling": re.sub(r"(?i)\s+(?:bf16|f16|q\d|spinquant|qat\+lora)(?:\s+g\d+)?$", "", name),
        "engine_published": f"{told.split()[0]} {backend}",
        "engine": engine,
        "weights": next(
            (_WEIGHTS[word] for word in words if word in _WEIGHTS), "i4" if source == "litert-lm" else None
        ),
        "precision_published": " ".join(words[1:]) or None,
        "batch": 1,
    }
    yield published(
        line, quantity="prefill", figure=line.positive("prefill_tok_s"), figure_unit="tokens/s", prompt=prompt,
        context=0, **facts,
    )  # fmt: skip
    yield published(
        line, quantity="decode", figure=line.positive("decode_tok_s"), figure_unit="tokens/s", context=prompt,
        generate=generate, **facts,
    )  # fmt: skip


# NVIDIA's Jetson AI Lab: output tokens a second with one request or several under way.
#
# Measured with vLLM, 2,048 tokens in and 128 out; on Orin weights of 4 bits with activations in f16 (W4A16), on Thor
# NVFP4.

_DEVICES = {"orin": "NVIDIA Jetson AGX Orin 64GB", "thor": "NVIDIA Jetson AGX Thor"}


@published_form("jetson", "Jetson AI Lab", "model", "device", "concurrency", "tokens_per_s")
def jetson(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device = line.required("device")
    yield published(
        line,
        dataset="jetson",
        device_published=device,
        device_spelling=_DEVICES.get(device, device),
        unit="gpu",
        engine_published="vLLM",
        engine="vllm",
        weights="nvfp4" if "thor" in device.casefold() else "i4",
        activations="f16",
        prompt=2048,
        generate=128,
        model_published=line.required("model"),
        concurrency=line.whole("concurrency"),
        quantity="tokens",
        figure=line.positive("tokens_per_s"),
        figure_unit="tokens/s",
    )


# Jeff Geerling's benchmarks: tokens a second and peak watts of whole systems, mostly with Ollama.
#
# `Pi 5 - 8GB (AMD RX 7600)` on its GPU is that card, `Cluster (10x 16GB)` ten of them. The format of the weights is not
# stated: Ollama's own for these models is Q4_K_M, and MXFP4 for gpt-oss.


@published_form("geerling", "Geerling, AI benchmarks", "model", "system", "unit", "eval_rate")
def geerling(line: CsvLine) -> Iterator[PublishedMeasurement]:
    system, unit = line.required("system"), line.required("unit").casefold()
    rate = re.match(r"([\d.]+)\s*Tokens/s", line.required("eval_rate"))
    if rate is None:
        raise LineError(f"eval_rate is {line.text('eval_rate')!r}, and should be a number of Tokens/s.")
    power = re.match(r"([\d.]+)\s*W", line.text("power_peak") or "")
    card = re.search(r"\((?:(?:\d+)x )?(.+)\)$", system)
    inner = card[1] if card and unit == "gpu" and re.search(r"(?i)nvidia|amd|rtx|rx |intel arc", card[1]) else None
    yield published(
        line,
        dataset="geerling",
        device_published=system,
        device_spelling=_card(inner) if inner else system,
        unit=unit,
        count=_count(system),
        model_published=line.required("model"),
        model_spelling=line.required("model").replace(":", "-"),
        engine_published="Ollama or llama.cpp",
        engine="llamacpp",
        settings=settings(host=re.sub(r"\s*\(.*\)$", "", system) if inner else None),
        weights="mxfp4" if re.search(r"(?i)gpt-?oss", line.required("model")) else "q4_k",
        batch=1,
        quantity="decode",
        figure=float(rate[1]),
        figure_unit="tokens/s",
        power_w=float(power[1]) if power else None,
    )


def _count(system: str) -> int:
    """`Raspberry Pi CM5 Cluster (10x 16GB)` → 10."""
    several = re.search(r"(?i)cluster \((\d+)x ", system)
    return int(several[1]) if several else 1


def _card(name: str) -> str:
    """`Nvidia 4070 Ti` → `Nvidia RTX 4070 Ti`."""
    return re.sub(r"(?i)^nvidia (?=[2345]0\d0)", "NVIDIA RTX ", name)


FORMS = (phones, jetson, geerling)
