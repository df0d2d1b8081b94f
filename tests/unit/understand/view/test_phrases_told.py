"""The words of reports where parts are missing, equal or at a limit; charts of readings with some far off."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.errors import DomainError
from inferometer.core.finding import Finding
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import (
    DeviceFacts,
    EnergyFacts,
    EnergySensor,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Provenance,
)
from inferometer.core.statistics import Interval, Summary
from inferometer.core.workload import Precision, Workload
from inferometer.understand.view import measured, phrases, predictions
from inferometer.understand.view.charts import samples
from inferometer.understand.view.terminal import draw_table


def profile(**more):
    plain = {"kind": "measured", "model": ModelFacts(name="m"), "device": DeviceFacts(name="d"), "phases": (),
             "workload": Workload(), "summary": Headline()}  # fmt: skip
    return Profile(**{**plain, **more})


@pytest.mark.parametrize(
    ("stored", "precision", "computed", "words"),
    [
        ({}, ("f16", "f16", "f16"), ("f16",), "f16"),
        ({}, ("f16", "f16", "f8e4m3"), ("f16",), "f16 weights, f8e4m3 cache"),
        ({}, ("f16", "f16", None), ("f32",), "f16 weights, computed in f32"),
        ({}, ("i8", None, None), (), "i8 weights"),
        ({}, ("i4", "f16", "f16"), ("f16", "f32"), "i4 weights, f16 activations, computed in f16/f32"),
        ({}, (None, "f16", None), (), "f16 activations"),
        ({}, (None, None, None), (), ""),
        ({"q4_k": 0.9, "q6_k": 0.05, "f32": 0.049}, (None, "f32", None), ("i8",),
         "q4_k+q6_k weights, f32 activations, computed in i8"),
    ],
)  # fmt: skip
def test_formats_are_named_once_where_they_are_the_same(stored, precision, computed, words):
    weights, activations, kv = precision
    made = profile(
        model=ModelFacts(name="m", weight_formats=stored),
        workload=Workload(precision=Precision(weights=weights, activations=activations, kv=kv)), arithmetic=computed,
    )  # fmt: skip
    assert phrases.formats_of(made) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(7199.0, "7199 s"), (7200.0, "2 h"), (172_799.0, "48 h"), (172_800.0, "2 days"), (86_400.0 * 999, "999 days"),
     (86_400.0 * 1234.4, "1,234 days")],
)  # fmt: skip
def test_long_times_are_hours_and_days(seconds, text):
    assert phrases.duration_text(seconds) == text


def test_a_place_is_its_machine_or_so_many_devices():
    assert phrases.place_of(profile(device=DeviceFacts(name="d", title="D", count=4))) == "4 × D"
    assert phrases.profile_title(profile()) == "m on d"
    facts = MachineFacts(
        id="abc", name="n", board="B", memory_bytes=2**34, gpus=("G",), accelerators=("A",), system="S", container="C",
        virtualised=True, hypervisor="K",
    )  # fmt: skip
    assert [*phrases.machine_facts_text(facts)] == [
        "id abc", "B", "16 GiB", "G", "A", "S", "C", "virtual machine (K)"
    ]  # fmt: skip
    assert [*phrases.machine_facts_text(MachineFacts(id="abc", virtualised=False))] == ["id abc"]
    assert [*phrases.machine_facts_text(MachineFacts(id="abc", virtualised=True))] == ["id abc", "virtual machine"]


def environment(**more):
    return Environment(**more)


def test_warnings_come_first_and_then_what_was_noted_and_not_measured():
    findings = (
        Finding(code="a.b", severity="critical", title="Bad", evidence={}, advice="do"),
        Finding(code="a.c", severity="info", title="Fine", evidence={}, advice="do"),
    )
    energy = EnergyFacts(sensors=(), reason="no sensor")
    made = profile(
        findings=findings, provenance=Provenance(tool="t", version="1", created="2026", notes=("noted",)),
        environment=environment(energy=energy, host={"counters": "no kernel"}),
    )  # fmt: skip
    assert phrases.profile_notes(made) == (
        "! Bad: do", "noted", "Energy is not measured: no sensor.",
        "Cycles, instructions and misses are not measurable here: no kernel.",
    )  # fmt: skip
    assert phrases.profile_notes(profile()) == ()


def sensor(name, covers):
    return EnergySensor(name=name, covers=covers, update_s=0.1)


def test_energy_says_of_what_and_for_how_long():
    facts = EnergyFacts(sensors=(sensor("a", "the CPU"), sensor("b", "the CPU"), sensor("c", "the GPU")))
    words = "Energy is of the CPU, the GPU (a, b, c) and includes the draw at rest"
    assert [*phrases.energy_notes(environment(energy=facts))] == [f"{words}."]
    longer = EnergyFacts(sensors=facts.sensors, window_s={"prefill": 2.0, "decode": 0.5}, reason="no DRAM")
    assert [*phrases.energy_notes(environment(energy=longer))] == [
        f"{words}; measured over 2 s of prefill and 500 ms of decode.",
        "Energy is not measured of everything: no DRAM.",
    ]
    assert [*phrases.energy_notes(None)] == [*phrases.energy_notes(environment())] == []


@pytest.mark.parametrize(
    ("joules", "token", "idle", "fact"),
    [
        (3.0, None, None, ("energy", "3 J", "a run")),
        (3.0, 0.5, 7.0, ("energy", "3 J", "a request, 500 mJ a token, 7 W at rest")),
        (None, 0.5, None, ("energy", "500 mJ a token", "")),
        (None, 0.5, 0.0, ("energy", "500 mJ a token", "0 W at rest")),
        (None, None, 7.0, None),
    ],
)  # fmt: skip
def test_energy_is_of_a_run_or_of_a_request_and_its_tokens(joules, token, idle, fact):
    decode = () if token is None else (Phase(name="decode", time_s=1.0, energy_j=token),)
    made = profile(
        phases=decode, summary=Headline(energy_j=joules), environment=environment(energy=EnergyFacts(idle_w=idle))
    )
    assert [*phrases.energy_fact(made)] == ([] if fact is None else [fact])


def test_energy_that_nothing_measured_is_told_as_a_prediction():
    facts = EnergyFacts(reason="no sensor", predicted_j={"forward": 0.5})
    made = profile(phases=(Phase(name="forward", time_s=1.0),), environment=environment(energy=facts))
    assert [*phrases.energy_fact(made)] == [("energy", "500 mJ", "an input, predicted and not measured")]


def test_instructions_a_cycle_come_with_what_missed():
    counts = {"instructions": 3e9, "cycles": 2e9, "cache_references": 100.0, "cache_misses": 25.0}
    phase = Phase(name="forward", time_s=1.0, counters=counts)
    assert [*phrases.counter_fact(phase)] == [("IPC", "1.50", "3,000 million instructions, 25.0% cache misses")]
    assert [*phrases.counter_fact(None)] == [*phrases.counter_fact(Phase(name="x", time_s=1.0))] == []


def test_what_stands_beside_a_time_is_of_the_phase_only_where_it_is_all_of_it():
    phase = Phase(name="prefill", time_s=2.0, low_s=1.0, high_s=4.0, predicted_s=3.0, floor_s=1.0, bound="memory")
    whole = profile(phases=(phase,), summary=Headline(ttft_s=2.0))
    assert phrases.time_remarks(whole, "ttft", phase) == [
        "1 s to 4 s", "predicted 3 s", "2 × its floor", "bound by memory"
    ]  # fmt: skip
    assert phrases.time_interval(whole, "ttft", phase) == (1.0, 4.0)
    more = profile(phases=(phase,), summary=Headline(ttft_s=2.1))
    assert phrases.time_remarks(more, "ttft", phase) == []
    assert phrases.time_interval(more, "ttft", phase) is None
    own = profile(phases=(phase,), summary=Headline(ttft_s=2.1, ttft_low_s=1.5, ttft_high_s=3.0))
    assert phrases.time_remarks(own, "ttft", phase) == ["1.5 s to 3 s"]
    assert phrases.time_interval(own, "ttft", None) == (1.5, 3.0)


def test_far_above_its_floor_and_uncounted_work_are_told_otherwise():
    def remarks(**more):
        return phrases.phase_remarks(Phase(name="x", **{"time_s": 1.0, "bound": "memory", **more}))

    assert remarks(floor_s=0.01) == ["100 × its floor", "bound by memory"]
    assert remarks(floor_s=0.0101) == ["99 × its floor", "bound by memory"]
    ops = (OpTime(name="a", kind="x", time_s=1.0, flops=1.0), OpTime(name="b", kind="x", time_s=3.0, count=4))
    assert remarks(ops=ops, statistic="median") == ["75% of the time is in ops whose work is not known"]
    assert remarks(ops=ops) == ["80% of the ops are ones whose work is not known"]
    assert remarks(low_s=0.5) == ["at least 500 ms", "bound by memory"]


def test_shares_of_nothing_are_none():
    assert (phrases.percent(1.0, 8.0), phrases.percent(1.0, 0.0)) == ("12.5 %", None)
    assert (phrases.fraction(1.0, 8.0), phrases.fraction(1.0, 0.0)) == (0.125, None)
    assert (phrases.percent_number(1.0, 3.0), phrases.percent_number(1.0, 0.0)) == (33.33, None)
    sizes = profile(workload=Workload(batch=2, prompt=3), sizes={"prompt": 4, "height": 5})
    assert phrases.sizes_of(sizes) == "batch 2, prompt 4, height 5"


# One measurement.


def summary(**more):
    plain = {"name": "x", "unit": "s", "total": 15.0, "count": 5, "min": 1.0, "max": 9.0, "mean": 3.0, "median": 2.0}
    return Summary(**{**plain, **more})


def facts(**more):
    return {label: (value, remark) for label, value, remark in measured._statistics(summary(**more))}


def test_what_a_few_runs_do_not_tell_is_left_out_and_said():
    assert facts() == {
        "time": ("2 s", "median"), "mean": ("3 s", "mean"), "range": ("1 s to 9 s", "fastest and slowest run"),
    }  # fmt: skip
    tail = facts(p90=4.0, p95=5.0)["tail"]
    assert tail == ("p90 4 s, p95 5 s", "too few runs for p99, p99.9; --percentile shows how far they are known")
    assert facts(p90=4.0, p95=5.0, p99=6.0, p999=7.0)["tail"] == ("p90 4 s, p95 5 s, p99 6 s, p99.9 7 s", "")
    assert facts(std=0.5, cv=0.25)["spread"] == ("25.0%", "standard deviation 500 ms")
    assert facts(std=0.5, cv=0.25, mad=0.125)["spread"][1].endswith(", median absolute deviation 125 ms")
    assert "spread" not in facts(std=0.5)
    between = Interval(low=1.5, high=2.5, confidence=0.95)
    assert facts(median_interval=between)["time"][1] == "median, 95% between 1.5 s and 2.5 s"
    assert facts(outliers=2, per_s=0.5, steady_from=3)["settling"][0] == "until run 3"
    assert "drift" in facts(drift_share=0.1, drift_p_value=0.0099)
    assert "drift" not in facts(drift_share=0.1, drift_p_value=0.01)
    assert facts(drift_share=-0.125, drift_p_value=0.001)["drift"] == (
        "-12.5%", "from the first run to the last, p = 0.001"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "found", "value", "remark"),
    [((1.0, 3.0), 2.0, "2 s", "95% between 1 s and 3 s"),
     ((1.0, None), None, "≥ 1 s", "97.5% sure, of 4 runs; about 59 would close the interval"),
     ((1.0, None), 2.0, "2 s", "open on one side: ≥ 1 s, 97.5% sure, of 4 runs; about 59 would close the interval"),
     ((None, 3.0), None, "≤ 3 s", "97.5% sure, of 4 runs; about 59 would close the interval"),
     ((None, None), None, "–", "of 4 runs; about 59 would close the interval")],
)  # fmt: skip
def test_a_percentile_is_as_far_known_as_readings_bound_it(monkeypatch, ends, found, value, remark):
    known = SimpleNamespace(value=found, low=ends[0], high=ends[1], confidence=0.95, count=4, needed=59)
    monkeypatch.setattr(measured, "percentile_between", lambda _, share: known if share == 0.99 else None)
    assert measured.percentile_fact([], 99.0) == ("p99", value, remark)
    assert measured.percentile_fact([], 99.0, "decode")[0] == "p99 decode"


@pytest.mark.parametrize(
    ("verdict", "ratio", "words"),
    [("faster", 0.5, "b is faster than a by 50.0% (each token): why."),
     ("slower", 1.999, "b is slower than a by 99.9% (each token): why."),
     ("slower", 2.0, "b is slower than a by 2 × (each token): why."),
     ("same", 1.0, "b is as fast as a (each token): why."),
     ("undecided", 0.5, "No difference is shown between b and a (each token): why."),
     ("faster", None, "b is faster than a (each token): why.")],
)  # fmt: skip
def test_a_comparison_in_one_line(verdict, ratio, words):
    main = SimpleNamespace(verdict=verdict, ratio=ratio, name="decode", reason="why")
    assert measured.headline(SimpleNamespace(main=main, a="a", b="b")) == words


def test_a_ratio_has_its_interval_where_it_has_both_ends():
    def text(ratio, low=None, high=None):
        return measured._ratio(SimpleNamespace(ratio=ratio, low=low, high=high))

    assert (text(None), text(1.5), text(1.5, 1.0), text(1.5, 1.0, 2.0)) == (None, "1.5", "1.5", "1.5 (1 – 2)")


def test_what_only_one_of_two_runs_has_changed_by_all_of_it():
    ops = [SimpleNamespace(name=name, a=a, b=b) for name, a, b in (
        ("little", 1.0, 1.5), ("gone", 3.0, None), ("new", None, 2.0), ("neither", None, None))]  # fmt: skip
    found = measured._largest_changes(SimpleNamespace(ops=ops))
    assert [op.name for op in found] == ["gone", "new", "little", "neither"]


# Readings.


def test_readings_far_off_are_counted_and_neither_drawn_nor_marked():
    times = [1.0 + place / 100 for place in range(95)] + [100.0] * 5
    made = samples.times_histogram("decode", times, "median: 1 s")
    assert made["title"]["text"] == "decode: 100 readings"
    assert " · 5 beyond " in made["title"]["subtitle"]
    bars, lines = made["layer"]
    marks = lines["data"]["values"]
    assert [mark["text"].split()[0] for mark in marks] == ["p50", "p90"], "p95 and above lie beyond"
    counts = [row["count"] for row in bars["data"]["values"]]
    assert (sum(counts), len(counts)) == (95, 19)
    assert bars["encoding"]["y"]["scale"]["domain"] == [0, max(counts) * (1 + 0.12 * 2)]
    assert [layer["encoding"]["y"]["value"] for layer in lines["layer"][1:]] == [8, 23]
    near = samples.times_histogram("x", [1.0, 2.0, 3.0], "s", noun="request")
    assert near["title"] == {"text": "x: 3 requests", "subtitle": "s"}


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60))
def test_every_reading_is_in_the_one_bin_that_holds_it(values):
    bins = samples._bins(values)
    assert sum(row["count"] for row in bins) == len(values)
    assert len(bins) == max(8, min(40, round(2 * len(values) ** 0.5)))
    assert bins[0]["low"] == min(values)
    if max(values) > min(values) * (1 + 1e-9):
        assert bins[-1]["high"] == pytest.approx(max(values))
        for row in bins[:-1]:
            inside = [value for value in values if row["low"] * (1 + 1e-12) < value < row["high"] * (1 - 1e-12)]
            assert row["count"] >= len(inside)


def test_a_trend_is_the_median_of_each_place_and_a_share_the_part_up_to_it():
    decode = Phase(name="decode", time_s=1.0, context=(5, 6, 5, 6, 5), samples_s=(1.0, 2.0, 3.0, 4.0, 9.0))
    made = samples.token_trend(profile(phases=(decode,)))
    points, line = made["layer"]
    assert [(row["context"], row["s"]) for row in line["data"]["values"]] == [(5, 3.0), (6, 3.0)]
    assert len(points["data"]["values"]) == 5
    assert made["title"]["subtitle"] == "2 steps · the line is the median of 2.5 generations"
    for phases in ((), (Phase(name="decode", time_s=1.0, samples_s=(1.0,)),)):
        with pytest.raises(DomainError, match="token by token"):
            samples.token_trend(profile(phases=phases))


def test_the_phase_that_is_drawn_is_the_one_named_or_the_first_with_readings():
    phases = (Phase(name="prefill", time_s=1.0, samples_s=(1.0,)), Phase(name="decode", time_s=2.0, samples_s=(2.0,)),
              Phase(name="forward", time_s=3.0))  # fmt: skip
    made = profile(phases=phases)
    assert (samples._sampled(made, None).name, samples._sampled(made, "prefill").name) == ("decode", "prefill")
    with pytest.raises(DomainError, match="no raw readings of forward"):
        samples._sampled(made, "forward")
    assert samples.percentiles([float(n) for n in range(1, 12)]) == {"min": 1.0, "p50": 6.0, "max": 11.0}


# Facts of a prediction.


@pytest.mark.parametrize(
    ("left", "ends", "batch", "fact"),
    [
        (0.25, None, 1, ("frame budget", "40 ms", "holds: 25.0 % of it left")),
        (0.25, (0.02, 0.04), 1, ("frame budget", "40 ms", "holds: 25.0 % of it left")),
        (0.25, (0.02, 0.0401), 1, ("frame budget", "40 ms", "holds, but not at the high end: 25.0 % of it left")),
        (0.0, None, 2, ("budget of 2 frames", "40 ms", "holds: 0.0 % of it left")),
        (-0.5, None, 1, ("frame budget", "40 ms", "does not hold: 50.0 % over it")),
        (-0.5, (0.0401, 0.1), 1, ("frame budget", "40 ms", "does not hold: 50.0 % over it")),
        (-0.5, (0.04, 0.1), 1, ("frame budget", "40 ms",
                                "does not hold, though it may at the low end: 50.0 % over it")),
    ],
)  # fmt: skip
def test_a_frame_is_answered_in_time_surely_or_perhaps(left, ends, batch, fact):
    low, high = ends or (None, None)
    summary = Headline(latency_s=0.03, latency_low_s=low, latency_high_s=high, frame_budget_s=0.04, frame_headroom=left)
    assert predictions._frame_fact(profile(summary=summary, workload=Workload(batch=batch))) == fact


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"usd_per_million_tokens": 6.0, "tpot_s": 2.0, "tpot_low_s": 1.0, "tpot_high_s": 4.0},
         ("price", "6 USD per million tokens", "3 to 12")),
        ({"usd_per_million_tokens": 6.0, "tpot_s": 2.0, "tpot_low_s": 1.0, "tpot_high_s": 4.0, "e2e_s": 3.0,
          "e2e_low_s": 1.5, "e2e_high_s": 6.0}, ("price", "6 USD per million tokens", "3 to 12")),
        ({"usd_per_million_tokens": 6.0, "e2e_s": 3.0, "tpot_s": 2.0, "tpot_low_s": 1.0, "tpot_high_s": 4.0},
         ("price", "6 USD per million tokens", "")),
        ({"usd_per_million_inferences": 6.0, "latency_s": 2.0, "latency_low_s": 0.5, "latency_high_s": 3.0},
         ("price", "6 USD per million inferences", "1.5 to 9")),
    ],
)  # fmt: skip
def test_a_price_goes_with_the_time_that_is_paid_for(given, fact):
    assert predictions._price_fact(profile(summary=Headline(**given))) == fact


def test_tokens_a_second_turn_the_ends_of_a_token_round():
    summary = Headline(tokens_per_s=40.0, tpot_s=0.1, tpot_low_s=0.05, tpot_high_s=0.2)
    made = profile(summary=summary, workload=Workload(batch=4))
    assert predictions._speed_fact(made) == ("tokens/s", "40", "20 to 80, of all sequences together")
    bare = profile(summary=Headline(tokens_per_s=40.0))
    assert predictions._speed_fact(bare) == ("tokens/s", "40", "of all sequences together")


@pytest.mark.parametrize(("fits", "words"), [(True, "fits"), (False, "does not fit"), (None, "capacity unknown")])
def test_memory_fits_or_not_or_nobody_knows(fits, words):
    made = profile(summary=Headline(peak_memory_bytes=2**34, fits=fits))
    assert predictions._memory_facts(made) == [("memory", "16 GiB", words)]
    assert predictions._memory_facts(profile()) == []


def test_a_battery_lasts_for_so_many_answers():
    long = Headline(battery_s=7200.0, inferences_per_charge=12345.6, latency_s=1.0)
    assert predictions._battery_fact(profile(summary=long)) == ("battery", "2 h", "12,346 inferences a charge")
    tokens = Headline(battery_s=60.0, inferences_per_charge=3.0)
    assert predictions._battery_fact(profile(summary=tokens)) == ("battery", "60 s", "3 sequences a charge")
    assert predictions._battery_fact(profile(summary=Headline(battery_s=60.0)))[2] == ""


def test_the_longest_ops_of_the_last_phase_are_listed_and_the_others_counted():
    ops = tuple(OpTime(name=f"o{place}", kind="x", time_s=float(place), count=2) for place in range(1, 15))
    made = profile(phases=(Phase(name="decode", time_s=105.0, ops=ops), Phase(name="load", time_s=9.0)))
    table = predictions.op_table(made.phases[0])
    assert [row["name"] for row in table.rows] == [f"o{place}" for place in range(14, 2, -1)]
    assert table.rows[0]["share"] == pytest.approx(14 / 105)
    assert (table.title, table.left) == ("Where decode goes", "2 more ops")
    assert draw_table(table).endswith("\n2 more ops: --format json lists all of them.")
    assert predictions.op_table(made.phases[0], most=None).left is None
    assert predictions.op_table(None).rows == ()
    assert predictions.prediction_view(made).tables[-1] == table
    streams = profile(phases=(Phase(name="a", time_s=1.0, streams={"compute": 1.0, "network": 0.0}),
                              Phase(name="b", time_s=1.0)))  # fmt: skip
    shown = predictions.stream_table(streams)
    assert ([column.key for column in shown.columns], len(shown.rows)) == (["name", "compute"], 1)
    assert predictions.stream_table(profile()).note is None


def test_a_prediction_in_rows_has_ends_where_they_are_known():
    first = OpTime(name="a", kind="x", time_s=1.0, flops=2.0, bytes=3.0, energy_j=4.0)
    ops = (first, OpTime(name="b", kind="x", time_s=3.0))
    phase = Phase(name="decode", time_s=5.0, low_s=4.0, high_s=6.0, floor_s=2.0, bound="memory", flops=7.0, bytes=8.0)
    summary = Headline(tpot_s=5.0, e2e_s=9.0, e2e_low_s=8.0, e2e_high_s=10.0, peak_memory_bytes=64, energy_j=2.0)
    table = predictions.prediction_rows(profile(phases=(replace(phase, ops=ops),), summary=summary))
    assert [(row["name"], row["value"], row["unit"], row["low"], row["high"]) for row in table.rows[:4]] == [
        ("tpot_s", 5.0, "s", None, None), ("e2e_s", 9.0, "s", 8.0, 10.0), ("peak_memory_bytes", 64, "B", None, None),
        ("energy_j", 2.0, "J", None, None),
    ]  # fmt: skip
    whole, longest, other = table.rows[4:]
    assert (whole["part"], whole["value"], whole["low"], whole["high"], whole["floor_s"], whole["flops"]) == (
        "phase", 5.0, 4.0, 6.0, 2.0, 7.0,
    )  # fmt: skip
    assert [(row["name"], row["value"], row["share"], row["flops"]) for row in (longest, other)] == [
        ("b", 3.0, 0.6, None), ("a", 1.0, 0.2, 2.0),
    ]  # fmt: skip


def test_what_disturbed_a_machine_is_one_text_though_a_reason_ends_with_advice():
    reasons = ("before the runs: 100% of all CPUs in use. Stop them.", "during the runs, 6 times: 86%.", "after")
    told = "before the runs: 100% of all CPUs in use. Stop them; during the runs, 6 times: 86%; after"
    assert Environment(disturbed=True, reasons=reasons).disturbance == told
    assert not Environment().disturbance
