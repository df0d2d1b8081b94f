"""The NPU2 profile of Llama-3.2-1B, its tables fed as spans: the sums that the field notes found right.

Source: the AMD NPU2 (Strix) profile of Llama-3.2-1B, seq_len 2048, instruct model, 30 decode tokens: its tables of XRT
calls, host operations and layer walls. Prefill: 16 × (7.3 + 21.6 + 41.0) + 13.6 = 1132.0 ms on the NPU, 36.5 ms on the
host, of 1280 ms. Decode: 16 × 4.95 + 0.07 + 13.6 = 92.87 ms a token.
"""

import re
import xml.etree.ElementTree as ET

import pytest

from inferometer import predict
from inferometer.core.trace import Segment, Span, Trace
from inferometer.measure.spans import Profiler
from inferometer.understand.view.dataflow import dataflow
from unit.measure.spans.clocks import Manual

PARTS = ("BO write", "NPU run", "BO read")
# name, unit, ms a call, (write, run, read) ms; None is time between calls
PREFILL_LAYER = (
    ("rms_gemms_rope", "npu", 7.3, (0.5, 6.5, 0.1)),
    ("flash_attn", "npu", 21.6, (1.3, 20.1, 0.1)),
    ("o_ffn", "npu", 41.0, (1.0, 39.8, 0.1)),
    ("kv_cache_extract", "cpu", 1.1, ()),
    (None, None, 6.9, ()),
)
DECODE_LAYER = (
    ("rms_gemv_rope", "npu", 0.9, (0.02, 0.83, 0.01)),
    ("decode_attention_cpu", "cpu", 0.28, ()),
    ("o_gemv_ffn", "npu", 3.7, (0.02, 3.64, 0.01)),
    (None, None, 0.07, ()),
)
PREFILL = (
    ("tokenize", "cpu", 10.0, ()),
    ("eos_pad", "cpu", 0.0, ()),
    ("embed_lookup", "cpu", 5.8, ()),
    ("layers", None, PREFILL_LAYER, ()),
    ("final_rms_norm", "cpu", 3.1, ()),
    ("lm_head_gemv", "npu", 13.6, (0.0, 13.5, 0.0)),
    (None, None, 1.1, ()),
)
DECODE = (
    ("embed_lookup", "cpu", 0.0, ()),
    ("layers", None, DECODE_LAYER, ()),
    ("final_rms_norm", "cpu", 0.07, ()),
    ("lm_head_gemv", "npu", 13.6, (0.01, 13.5, 0.03)),
)
TOKENS, LAYERS = 30, 16


class Tables:
    """Writes the tables down as a Trace: spans one after another, to the nanosecond."""

    def __init__(self):
        self.now, self.spans = 0, []

    def open(self, name, parent, **facts):
        self.spans.append((name, self.now, parent, facts))
        return len(self.spans) - 1

    def close(self, index, segments=()):
        name, start, parent, facts = self.spans[index]
        self.spans[index] = Span(
            name=name, start_ns=start, end_ns=self.now, parent=parent, segments=tuple(segments), **facts
        )

    def call(self, row, parent):
        name, unit, milliseconds, parts = row
        if name is None:
            self.now += round(milliseconds * 1e6)
        elif name == "layers":
            for layer in range(LAYERS):
                index = self.open("decoder layer", parent, layer=layer)
                for inner in milliseconds:
                    self.call(inner, index)
                self.close(index)
        else:
            index, at, segments = self.open(name, parent, unit=unit), self.now, []
            for part, spent in zip(PARTS, parts, strict=False):
                segments.append(Segment(name=part, start_ns=at, end_ns=at + round(spent * 1e6)))
                at = segments[-1].end_ns
            self.now += round(milliseconds * 1e6)
            self.close(index, segments)

    def phase(self, name, rows, **facts):
        index = self.open(name, None, phase=facts.pop("phase"), **facts)
        for row in rows:
            self.call(row, index)
        self.close(index)


@pytest.fixture(scope="module")
def flow():
    tables = Tables()
    tables.phase("prefill", PREFILL, phase="prefill", tokens=2048)
    for token in range(TOKENS):
        tables.phase("token", DECODE, phase="decode", token=token, tokens=1)
    return dataflow(Trace(spans=tuple(tables.spans)))


@pytest.fixture(scope="module")
def prefill(flow):
    return flow.flow.phases[0]


@pytest.fixture(scope="module")
def decode(flow):
    return flow.flow.phases[1]


def ms(seconds):
    return round(seconds * 1e3, 6)


def test_the_prefill_closes(prefill):
    units = {unit: ms(time_s) for unit, time_s in prefill.attribution.units}
    assert units == {"npu": 1132.0, "cpu": 36.5}
    assert ms(prefill.wall_s) == 1280.0
    assert ms(prefill.attribution.unattributed_s) == 111.5


def test_a_decode_token_takes_92_87_ms(decode):
    assert ms(decode.wall_s) == 92.87
    assert decode.runs == TOKENS
    units = {unit: ms(time_s) for unit, time_s in decode.attribution.units}
    assert units == {"npu": 87.2, "cpu": 4.55}


def test_the_walk_is_the_one_of_the_source(prefill, decode):
    assert [row.name for row in prefill.rows] == [
        "tokenize", "eos_pad", "embed_lookup", "decoder layer", "final_rms_norm", "lm_head_gemv",
    ]  # fmt: skip
    layer = prefill.rows[3]
    assert (layer.count, ms(layer.time_s), ms(layer.total_s), ms(layer.rest_s)) == (16, 77.9, 1246.4, 6.9)
    assert [row.name for row in layer.rows] == ["rms_gemms_rope", "flash_attn", "o_ffn", "kv_cache_extract"]
    assert [(row.name, row.count) for row in decode.rows] == [
        ("embed_lookup", 1), ("decoder layer", 16), ("final_rms_norm", 1), ("lm_head_gemv", 1),
    ]  # fmt: skip


def test_calls_are_counted_as_in_the_source(prefill):
    npu = [call for call in prefill.calls if call.unit == "npu"]
    host = [call for call in prefill.calls if call.unit == "cpu"]
    assert sum(call.count for call in npu) == 49  # 16 layer invocations × 3 kernels + 1 LM head
    assert sum(call.count for call in host) == 20
    assert {call.name: ms(call.total_s) for call in host}["kv_cache_extract"] == 17.6


def test_the_biggest_decode_item_is_the_ffn_and_not_the_lm_head(decode):
    biggest = decode.calls[0]
    assert biggest.name == "o_gemv_ffn"
    assert biggest.total_s / TOKENS / decode.wall_s == pytest.approx(0.6375, abs=1e-3)


def test_write_run_and_read_sum_as_their_table_does(prefill, decode):
    """The source rounds to 46 / 1062 / 5 ms and 0.6 / 86 / 0.3 ms; these are its own rows added up."""

    def sums(phase):
        found = dict.fromkeys(PARTS, 0.0)
        for call in phase.calls:
            for part in call.parts:
                found[part.name] += part.time_s * call.count / phase.runs
        return {name: ms(time_s) for name, time_s in found.items()}

    assert sums(prefill) == {"BO write": 44.8, "NPU run": 1075.9, "BO read": 4.8}
    assert sums(decode) == {"BO write": 0.65, "NPU run": 85.02, "BO read": 0.35}


def test_every_layer_and_token_is_there_and_nothing_drifts(prefill, decode):
    assert [ms(layer.mean_s) for layer in prefill.layers] == [77.9] * LAYERS
    assert [ms(layer.mean_s) for layer in decode.layers] == [4.95] * LAYERS
    assert decode.trend.count == TOKENS
    assert decode.trend.drift == 0


def test_the_text_says_it(flow):
    text = flow.text()
    assert text.startswith("END-TO-END DATAFLOW")
    for expected in (
        r"prefill: 1\.28 s",
        r"decoder layer × 16 +77\.9 ms each, 1\.246 s",
        r"\[NPU\]  flash_attn +21\.6 ms  \(BO write 1\.3 ms / NPU run 20\.1 ms / BO read 100 µs\)",
        r"NPU 1\.132 s \(88\.4 %\) · CPU 36\.5 ms \(2\.9 %\) · unattributed 111\.5 ms \(8\.7 %\)",
        r"decode \(token\): 92\.87 ms, mean of 30 runs",
        r"30 tokens; first → last \+0\.00%",
    ):
        assert re.search(expected, text), expected


def test_the_drawing_says_it(flow):
    root = ET.fromstring(flow.svg())  # noqa: S314 - our own drawing
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"1.132 s", "36.5 ms", "111.5 ms", "decoder layer × 16", "77.9 ms each · 1.246 s"} <= words
    assert "92.87 ms · mean of 30 runs" in words


def test_the_same_spans_recorded_by_a_profiler_say_the_same(prefill):
    """With a clock that needs a nanosecond to be read: a few hundred of them in 1.28 s."""
    clock = Manual()
    profiler = Profiler(enabled=True, clock=clock)

    def call(row):
        name, unit, milliseconds, _ = row
        if name is None:
            clock.pass_ms(milliseconds)
        elif name == "layers":
            for layer in range(LAYERS):
                with profiler.span("decoder layer", layer=layer):
                    for inner in milliseconds:
                        call(inner)
        else:
            with profiler.span(name, unit=unit):
                clock.pass_ms(milliseconds)

    with profiler.span("prefill", phase="prefill"):
        for row in PREFILL:
            call(row)
    (found,) = profiler.dataflow().flow.phases
    assert dict(found.attribution.units) == pytest.approx(dict(prefill.attribution.units), abs=1e-6)
    assert [row.name for row in found.rows] == [row.name for row in prefill.rows]


def test_its_own_case_is_predicted_in_bf16():
    """Llama-3.2-1B, 2048 tokens read and 30 written: TTFT 1.28 s, TPOT 92.87 ms. The priors come from this profile."""
    found = predict("llama-3.2-1b", on="npu2", prompt=2048, generate=30)
    assert found.arithmetic == ("bf16",)
    for time, measured_s in (("ttft", 1.28), ("tpot", 0.09287)):
        low, high = found.summary.interval(time)
        assert low < measured_s < high
        assert getattr(found.summary, f"{time}_s") == pytest.approx(measured_s, rel=0.2)
    assert any("bf16 peak" in note and "estimate" in note for note in found.provenance.notes)
