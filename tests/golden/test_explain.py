"""Each finding is found where it must be and not where it nearly is; the field's own tables of symptoms are there."""

import pytest

import inferometer as im
from fakes.every import every
from inferometer.core.finding import CODES, SEVERITIES
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.understand.findings import FINDERS, PARTS, finding_page, findings_of, pages
from unit.understand.explain_cases import PAIRS, case_of, explain, told_padding


def codes_of(profile, on):
    return {finding.code for finding in findings_of(case_of(profile, on))}


def test_every_code_has_a_finder_a_page_and_a_pair_of_profiles():
    assert set(FINDERS) == set(CODES) == set(pages()) == set(PAIRS)


@every(sorted(PAIRS))
def test_it_is_found_where_it_must_be(code):
    fires, _, on = PAIRS[code]
    finding = FINDERS[code](case_of(fires, on))
    assert finding is not None
    assert finding.code == code
    assert finding.severity in SEVERITIES
    assert finding.title
    assert finding.advice.endswith(".")
    assert finding.evidence
    assert code in codes_of(fires, on)


@every(sorted(PAIRS))
def test_it_is_not_found_where_it_nearly_is(code):
    _, near, on = PAIRS[code]
    assert FINDERS[code](case_of(near, on)) is None


@every(sorted(CODES))
def test_a_page_says_all_of_it(code):
    found = finding_page(code)
    for part in ("what", *PARTS):
        words = getattr(found, part)
        assert words.endswith("."), f"{code}: {part}"
        assert words[0].isupper() or words[0].isdigit()


# Seed 004, "Bottleneck Identification": symptom, our code, and the word of its optimisation that the advice must have.
SYMPTOMS = (
    ("Throughput scales linearly with batch size", "memory.bound", ("Quantise the weights", "bandwidth")),
    ("Throughput plateaus with larger batch", "compute.bound", ("BLAS", "vectorised")),
    ("P99 >> P50", "latency.tail", ("garbage collection", "threads")),
    ("Memory grows linearly with sequence length", "memory.kv-cache", ("sliding window", "8 bits")),
    ("First-token latency >> per-token latency", "latency.first-token", ("chunks", "prefix caching")),
)


@pytest.mark.parametrize(("symptom", "code", "words"), SYMPTOMS)
def test_the_symptoms_of_the_profiling_guide_are_there(symptom, code, words):
    fires, _, on = PAIRS[code]
    advice = FINDERS[code](case_of(fires, on)).advice
    for word in words:
        assert word in advice, symptom


# Seed 003, compute-bound against memory-bound: the indicator, our evidence, and how the two must stand to each other.
INDICATORS = (
    ("SM utilization: high / low", "compute_utilisation", lambda compute, memory: compute > memory),
    ("Memory BW utilization: low / high", "bandwidth_utilisation", lambda compute, memory: compute < memory),
    ("Arithmetic Intensity: high / low", "intensity_flop_per_byte", lambda compute, memory: compute > memory),
)


@pytest.mark.parametrize(("indicator", "key", "ordered"), INDICATORS)
def test_the_indicators_of_compute_and_memory_bound_are_the_evidence(indicator, key, ordered):
    numbers = []
    for code in ("compute.bound", "memory.bound"):
        fires, _, on = PAIRS[code]
        numbers.append(FINDERS[code](case_of(fires, on)).evidence[key])
    assert ordered(*numbers), indicator


def test_the_fix_strategies_of_compute_and_memory_bound_are_the_advice():
    """Seed 003's last row: reduce FLOPs and lower precision; improve data reuse and fuse kernels."""
    compute, memory = (
        FINDERS[code](case_of(PAIRS[code][0], PAIRS[code][2])) for code in ("compute.bound", "memory.bound")
    )
    assert "arithmetic" in compute.advice
    assert "lower precision" in compute.advice
    assert "Reuse data" in memory.advice
    assert "fuse" in memory.advice


def test_padding_that_was_counted_is_believed():
    finder = FINDERS["padding.waste"]
    assert finder(case_of(told_padding(600, 1000))).evidence["waste"] == pytest.approx(0.4)
    assert finder(case_of(told_padding(950, 1000))) is None


@pytest.fixture(scope="module")
def llama():
    graph, on = read("llama-3.1-8b"), device("nvidia-h200")
    return explain(im.predict(graph, on=on, prompt=512, generate=128), on, graph=graph)


def test_the_first_thing_to_change_of_an_8b_model_at_batch_1_is_the_bytes_it_reads(llama):
    first = next(finding for finding in llama.findings if finding.changes)
    assert first.code == "memory.bound"
    assert first.phase == "decode"
    assert first.changes[0] == "weights=i4"
    # A quarter of the bytes can be at most four times as fast, and must be well above no gain at all.
    assert 1.3 < first.gain < 4.0
    assert first.gain_low < first.gain < first.gain_high


def test_its_ridge_is_peak_over_bandwidth(llama):
    """NVIDIA H200 SXM: 989.5 TFLOP/s bf16 dense over 4.8 TB/s (datasheet) is 206 FLOP a byte."""
    assert llama.roof.ridge == pytest.approx(989.5e12 / 4.8e12, rel=1e-3)
    decode = llama.roof.phase("decode").point
    assert decode.intensity == pytest.approx(1.0, abs=0.1)  # two FLOP for a weight of two bytes
    assert decode.regime == "memory"
    assert llama.roof.phase("prefill").point.regime == "compute"


def test_batching_it_gains_throughput_and_not_latency(llama):
    small = next(finding for finding in llama.findings if finding.code == "batch.small")
    assert small.gain_of == "throughput"
    assert small.gain > 4
    assert small.evidence["batch_at_ridge"] == pytest.approx(206 / 1.0145, rel=0.1)


def test_too_large_a_model_is_said_before_all_else():
    graph, on = read("llama-3.1-8b"), device("raspberry-pi-5")
    found = explain(im.predict(graph, on=on, prompt=64, generate=16), on, graph=graph)
    assert found.findings[0].code == "memory.does-not-fit"
    assert found.findings[0].severity == "critical"


def test_a_long_context_makes_attention_and_the_cache_stand_out():
    graph, on = read("llama-3.1-8b"), device("nvidia-h200")
    found = explain(im.predict(graph, on=on, batch=32, context=100_000), on, graph=graph)
    by_code = {finding.code: finding for finding in found.findings}
    assert {"attention.grows", "memory.kv-cache"} <= by_code.keys()
    assert by_code["memory.kv-cache"].gain > 1.1  # attention over a cache of 8 bits is no twice as fast on this device
    assert by_code["attention.grows"].evidence["attention_share"] > 0.5


def test_a_convolutional_network_on_a_cpu_is_bound_by_arithmetic():
    graph, on = read("resnet50"), device("raspberry-pi-5")
    found = explain(im.predict(graph, on=on), on, graph=graph)
    assert found.findings[0].code == "compute.bound"
