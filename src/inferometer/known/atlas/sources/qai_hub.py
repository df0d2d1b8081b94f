"""Qualcomm AI Hub's `perf.yaml` files: one inference on a phone, a board or a laptop, by runtime and unit.

One job appears under several device names; the file has it once, with the others in `device_aliases`. `float` models
are f32, which the NPU and the GPU compute in f16.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from inferometer.known.atlas.form import CsvLine, format_named, published, published_form, quantised, settings
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.names import DATA

# What each of its runtimes is: the engine, what of the file it is made from, and which tool's version counts.
RUNTIMES: Mapping[str, tuple[str, dict[str, str], str]] = {
    "qnn_dlc": ("qnn", {"form": "dlc"}, "qairt"),
    "qnn_context_binary": ("qnn", {"form": "context-binary"}, "qairt"),
    "precompiled_qnn_onnx": ("onnxruntime", {"provider": "qnn", "form": "precompiled"}, "onnx_runtime"),
    "onnx": ("onnxruntime", {"provider": "qnn"}, "onnx_runtime"),
    "tflite": ("litert", {"delegate": "qnn"}, "litert"),
    "voice_ai": ("qnn", {"form": "voice-ai"}, "qairt"),
    "genie": ("genie", {}, "qairt"),
    "geniex_qairt": ("genie", {"form": "geniex"}, "geniex"),
    "geniex_llamacpp": ("llamacpp", {"form": "geniex"}, "geniex"),
}


@published_form(
    "qai-hub", "Qualcomm AI Hub, perf.yaml", "model", "component", "precision", "device", "runtime", "compute_unit",
    "latency_ms"
)  # fmt: skip
def qai_hub(line: CsvLine) -> Iterator[PublishedMeasurement]:
    model, component = line.required("model"), line.required("component")
    unit = line.required("compute_unit").casefold()
    precision, runtime = line.required("precision"), line.required("runtime")
    weights, activations = formats_of(precision, unit)
    engine, form, _ = RUNTIMES.get(runtime, (runtime, {}, ""))
    peak_mb = line.value("peak_mem_max_mb")
    layers = {name: line.whole(f"layers_{name}") for name in ("cpu", "gpu", "npu")}
    image, shape = input_of(model)
    # The share of layers that ran on another unit than the one asked for, where there are some
    total = sum(count or 0 for count in layers.values())
    away = total - (layers.get(unit) or 0)
    yield published(
        line,
        dataset="qai-hub",
        place=model,
        date=line.text("date") or "2026-10",
        **device_facts(line),
        unit=unit,
        model_published=model,
        part=component if is_part(model, component) else None,
        engine_published=runtime,
        engine=engine,
        version=version_of(line, runtime),
        settings=settings(
            **(form if unit == "npu" or engine == "qnn" else {key: form[key] for key in form if key == "form"}),
            **{"elsewhere": f"{away}/{total}"} if total and away else {},
            qairt=_short(_tools(line).get("qairt")) if engine != "qnn" else None,
        ),
        precision_published=precision,
        weights=weights,
        activations=activations,
        batch=1,
        image=image,
        input=shape,
        quantity="forward",
        figure=line.positive("latency_ms"),
        figure_unit="ms",
        memory_bytes=peak_mb * 1e6 if peak_mb else None,
    )


def device_facts(line: CsvLine) -> dict[str, str]:
    """The device, and every name that shares the job: one job is one measurement."""
    device = line.required("device")
    aliases = [alias for alias in (line.text("device_aliases") or "").split("|") if alias]
    return {"device_published": device, "device_spelling": "|".join((device, *aliases))}


def formats_of(precision: str, unit: str) -> tuple[str | None, str | None]:
    if precision == "float":
        return ("f32", "f32") if unit == "cpu" else ("f16", "f16")
    if "mixed" in precision and not re.match(r"w\d+a\d+", precision):
        return None, None
    return quantised(precision)


def is_part(model: str, component: str) -> bool:
    """A model in one piece is published under its title, a piece under its own name: `encoder`."""
    return component == "Vision-Encoder" or (component != model and re.fullmatch(r"[a-z0-9_]+", component) is not None)


def version_of(line: CsvLine, runtime: str) -> str | None:
    tools = _tools(line)
    wanted = RUNTIMES.get(runtime, ("", {}, ""))[2]
    return _short(tools.get(wanted))


def _tools(line: CsvLine) -> dict[str, str]:
    parts = (part.partition("=") for part in (line.text("tool_versions") or "").split(";") if part)
    return {name: version for name, _, version in parts}


def _short(version: str | None) -> str | None:
    """`2.50.0.260828221209` → `2.50.0`."""
    return ".".join(version.removeprefix("v").split(".")[:3]) if version else None


def input_of(model: str) -> tuple[int | None, str | None]:
    """The side of a model's square image, else the shape of its input, as AI Hub's list of models has them."""
    stated = _inputs().get(model)
    if stated is None:
        return None, None
    sides = re.search(r"(\d+) ?x ?(\d+)(?:\)|$)", stated)
    square = (
        sides is not None and sides[1] == sides[2] and re.match(r"(?:1 ?x ?3 ?x ?)?\d+ ?x|\d+p", stated) is not None
    )
    return (int(sides[1]), None) if sides and square else (None, stated)


@cache
def _inputs() -> Mapping[str, str]:
    inputs: dict[str, str] = json.loads((DATA / "qai_hub_inputs.json").read_text(encoding="utf-8"))
    return inputs


# Qualcomm AI Hub's language models: prefill and decode rates, and the shortest and longest time to a first token.
#
# The NPU reads a prompt in chunks of 128 tokens, and the shortest TTFT is one chunk's. GenieX measures a prompt of all
# but one chunk of the window: its rate is 128 tokens a chunk. Genie measures a short prompt, which takes a whole chunk;
# there the chunk's time is the figure, not the rate. Models with `SSD` in their name draft several tokens and check
# them together (self-speculative decoding): their decoding rate is that of the tokens that were kept.

_CHUNK = 128


@published_form(
    "qai-hub-llm", "Qualcomm AI Hub, language models", "model", "component", "precision", "device", "runtime",
    "compute_unit", "decode_tok_s"
)  # fmt: skip
def qai_hub_llm(line: CsvLine) -> Iterator[PublishedMeasurement]:
    runtime, precision = line.required("runtime"), line.required("precision")
    engine, form, _ = RUNTIMES.get(runtime, (runtime, {}, ""))
    weights, activations = quantised(precision)
    window = line.whole("context_length")
    facts: dict[str, Any] = {
        "dataset": "qai-hub-llm",
        "place": line.required("model"),
        "date": "2026-10",
        **device_facts(line),
        "unit": line.required("compute_unit").casefold(),
        "model_published": line.required("component"),
        "engine_published": runtime,
        "engine": engine,
        "version": version_of(line, runtime),
        "settings": settings(**form, window=window),
        "precision_published": precision,
        "weights": weights,
        # a GGUF format says how weights are stored, not what is computed in; w4 alone leaves activations in f16
        "activations": None if format_named(precision) else activations or "f16",
        "batch": 1,
    }
    yield from _rows(line, facts, window or 0)


def _rows(line: CsvLine, facts: dict[str, Any], window: int) -> Iterator[PublishedMeasurement]:
    """A rate of 0 stands for one that was not measured."""
    chunk_ms, prefill, decode = line.value("ttft_min_ms"), line.value("prefill_tok_s"), line.value("decode_tok_s")
    steady = prefill and chunk_ms and abs(prefill * chunk_ms / 1e3 / _CHUNK - 1) < 0.02 and window > _CHUNK
    prompt = window - _CHUNK
    if steady and prefill:
        yield published(
            line, quantity="prefill", figure=prefill, figure_unit="tokens/s", prompt=prompt, context=0, **facts
        )
    elif chunk_ms:
        yield published(line, quantity="prefill", figure=chunk_ms, figure_unit="ms", prompt=_CHUNK, context=0, **facts)
    if decode:
        sizes: dict[str, Any] = {"context": prompt, "generate": _CHUNK} if steady else {}
        if facts["model_published"].endswith("-SSD"):
            facts = {**facts, "settings": {**facts["settings"], "decoding": "self-speculative"}}
        yield published(line, quantity="decode", figure=decode, figure_unit="tokens/s", **sizes, **facts)


FORMS = (qai_hub, qai_hub_llm)
