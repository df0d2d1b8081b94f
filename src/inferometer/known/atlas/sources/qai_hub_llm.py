"""Qualcomm AI Hub's language models: prefill and decode rates, and the shortest and longest time to a first token.

The NPU reads a prompt in chunks of 128 tokens, and the shortest TTFT is one chunk's. GenieX measures a prompt of all
but one chunk of the window: its rate is 128 tokens a chunk. Genie measures a short prompt, which takes a whole chunk;
there the chunk's time is the figure, not the rate. Models with `SSD` in their name draft several tokens and check them
together (self-speculative decoding): their decoding rate is that of the tokens that were kept.
"""

from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, format_named, published, quantised, settings
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.sources.qai_hub import RUNTIMES, device_facts, version_of

_CHUNK = 128


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
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


FORM = Form(
    name="qai-hub-llm",
    title="Qualcomm AI Hub, language models",
    columns=frozenset({"model", "component", "precision", "device", "runtime", "compute_unit", "decode_tok_s"}),
    read=read,
)
