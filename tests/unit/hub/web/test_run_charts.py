"""The charts of the run page: what stands in them."""

from dataclasses import replace

import pytest

from inferometer.core import statistics
from inferometer.core.errors import DomainError
from inferometer.core.profile import JudgedBy, Phase
from inferometer.core.request import op_count, request_s
from inferometer.hub.web.guard.catalog_names import roofs_of
from inferometer.known import device
from inferometer.measure.bench.compare import compare
from inferometer.store.values import RunRow
from inferometer.understand.view.charts.layers import kind_chart, layer_chart, memory_chart, memory_parts, unit_chart
from inferometer.understand.view.charts.roofline import roofline
from inferometer.understand.view.charts.samples import (
    difference_chart,
    histogram,
    percentiles,
    run_trend,
    times_histogram,
    token_trend,
)
from inferometer.understand.view.drawing import layers_svg
from inferometer.understand.view.page import page_of
from unit.hub.web.samples import decoder, network


def values(spec):
    return spec["data"]["values"]


def test_layers_stand_in_the_order_of_execution_with_their_prediction_and_floor():
    rows = values(layer_chart(network(9)))
    assert [row["place"] for row in rows] == list(range(1, 10))
    assert [row["name"] for row in rows] == [op.name for op in network(9).phase("forward").ops]
    assert {row["predicted_s"] for row in rows} == {4e-4}
    assert len(layer_chart(network(9))["layer"]) == 3
    assert len(layer_chart(decoder())["layer"]) == 1


@pytest.mark.parametrize("profile", [network(10), decoder()], ids=["forward", "request"])
def test_kinds_and_units_sum_to_the_whole_in_both_modes(profile):
    for chart in (kind_chart, unit_chart):
        assert sum(row["value"] for row in values(chart(profile))) == pytest.approx(request_s(profile))
        assert sum(row["value"] for row in values(chart(profile, "count"))) == op_count(profile)
    order = [row["value"] for row in values(kind_chart(profile))]
    assert order == sorted(order, reverse=True)


def test_a_profile_without_layers_says_so():
    with pytest.raises(DomainError, match="no layers"):
        layer_chart(replace(network(), phases=()))


def test_every_reading_is_in_a_bin_but_those_far_out_which_are_counted():
    profile = network(samples=100)
    forward = profile.phase("forward")
    spec = histogram(profile)
    assert sum(row["count"] for row in spec["layer"][0]["data"]["values"]) == 100
    wild = replace(forward, samples_s=(*forward.samples_s, 100 * forward.time_s))
    spec = histogram(replace(profile, phases=(wild,)))
    assert sum(row["count"] for row in spec["layer"][0]["data"]["values"]) == 100
    assert "1 beyond" in spec["title"]["subtitle"]


@pytest.mark.parametrize(
    ("times", "wide"), [((3.0,), 0.03), ((5.0,) * 9, 0.05), ((0.0, 0.0), 1e-9), ([*range(50)], 49 / 14)]
)
def test_bars_stand_edge_to_edge_from_the_least_and_each_counts_what_lies_in_it(times, wide):
    bars = times_histogram("t", times, "")["layer"][0]["data"]["values"]
    lows, highs = ([bar[end] for bar in bars] for end in ("low", "high"))
    assert [high - low for low, high in zip(lows, highs, strict=True)] == pytest.approx([wide] * len(bars))
    assert (lows[0], lows[1:]) == (min(times), highs[:-1])
    within = [sum(low <= time < high for time in times) for low, high in zip(lows, highs, strict=True)]
    within[-1] += sum(time >= highs[-1] for time in times)
    assert [bar["count"] for bar in bars] == within


def test_equal_readings_and_a_single_one_can_be_drawn():
    profile = network()
    for samples in ((0.5,) * 20, (0.5,)):
        phase = replace(profile.phase("forward"), samples_s=samples)
        drawn = histogram(replace(profile, phases=(phase,)))["layer"][0]["data"]["values"]
        assert sum(row["count"] for row in drawn) == len(samples)


def test_only_percentiles_that_the_sample_can_tell_are_drawn():
    assert set(percentiles([1.0] * 5)) == {"min", "max"}
    found = percentiles([float(n) for n in range(100)])
    assert set(found) == {"min", "p50", "p90", "p95", "max"}
    assert found["p50"] == statistics.median([float(n) for n in range(100)])


def test_tokens_are_in_order_with_the_median_of_the_generations():
    line = token_trend(decoder())["layer"][1]["data"]["values"]
    assert [row["context"] for row in line] == list(range(32, 48))
    assert line[0]["s"] == pytest.approx(0.0031 - 2e-6 * 7.5)
    with pytest.raises(DomainError):
        token_trend(network())


def test_memory_parts_sum_to_the_peak_and_never_go_below_nothing():
    assert memory_parts(decoder()) == {"weights": 1_000_000, "KV cache": 1024 * 49, "activations and the rest": 949_824}
    small = replace(decoder(), summary=replace(decoder().summary, peak_memory_bytes=500))
    assert memory_parts(small) == {"peak": 500}
    assert sum(row["bytes"] for row in values(memory_chart(decoder()))) == 2_000_000
    with pytest.raises(DomainError):
        memory_chart(replace(network(), summary=replace(network().summary, peak_memory_bytes=None)))


def test_a_device_s_memory_has_a_cache_for_each_of_the_batch_and_its_share_of_all():
    one = decoder()
    for batch, count in ((3, 1), (1, 2), (4, 8)):
        shared = replace(one, workload=replace(one.workload, batch=batch), device=replace(one.device, count=count))
        weights, cache = 1_000_000 // count, 1024 * 49 * batch // count
        rest = 2_000_000 - weights - cache
        assert memory_parts(shared) == {"weights": weights, "KV cache": cache, "activations and the rest": rest}


def test_no_line_of_a_trend_joins_two_machines():
    """Two machines of one name stay apart; runs that do not say where they were made go by their device."""

    def row(run, machine, machine_id, device="local"):
        told = {"machine": machine, "machine_id": machine_id, "device": device, "latency_s": 1.0}
        return RunRow(id=run, project="p", status="finished", kind="k", created=1.0, model="m", **told)

    rows = [row("a", "pi", "11112222"), row("b", "pi", "33334444"), row("c", "pi", "11112222"),
            row("d", None, None), row("e", "box", "5", "nvidia-t4")]  # fmt: skip
    lines = [point["of"] for point in values(run_trend(rows, "latency_s"))]
    assert lines == ["m · pi (1111)", "m · pi (3333)", "m · pi (1111)", "m · local", "m · box · nvidia-t4"]


def test_a_trend_leaves_out_runs_without_the_number():
    rows = [
        RunRow(id=f"{n}", project="p", status="finished", kind="profile", created=float(n), latency_s=n or None)
        for n in range(3)
    ]
    assert [row["value"] for row in values(run_trend(rows, "latency_s"))] == [1, 2]
    with pytest.raises(DomainError):
        run_trend(rows, "ttft_s")


def test_differences_are_those_of_the_layers_that_differ_most():
    a, b = network(60), network(60, slower=2.0)
    spec = difference_chart(compare(a, b))
    assert len(values(spec)) == 40
    smallest = min(abs(row["by"]) for row in values(spec))
    times = sorted(op.time_s for op in a.phase("forward").ops)
    assert smallest == pytest.approx(times[20])
    with pytest.raises(DomainError):
        difference_chart(compare(a, a))


@pytest.mark.parametrize("profile", [network(300), decoder()], ids=["network", "decoder"])
def test_vega_draws_them(profile):
    pytest.importorskip("vl_convert", reason="pip install 'inferometer[charts]'")
    from inferometer.understand.view.charts.render import render

    for chart in (layer_chart, kind_chart, unit_chart, histogram, memory_chart):
        assert render(chart(profile), "svg").startswith(b"<svg")


def test_a_roofline_has_the_roofs_that_were_kept_with_the_run():
    kept = replace(device("nvidia-t4"), name="local")
    here = replace(network(), device=replace(network().device, name="local"))
    assert "roofline-forward" not in page_of(here, roofs_of(here)).charts
    judged = replace(here, judged_by=JudgedBy(device=kept))
    known = page_of(judged, roofs_of(judged)).charts
    assert known["roofline-forward"].spec()["layer"]
    bare = replace(here, judged_by=JudgedBy(device=replace(kept, peaks={})))
    assert "roofline-forward" not in page_of(bare, roofs_of(bare)).charts


def test_no_dot_is_above_its_roof_and_names_fit_a_phone():
    roofs = device("nvidia-t4")
    profile = network(12)
    quick = replace(profile.phases[1].ops[0], flops=1e9, bytes=1e9, time_s=1e-3)  # its bytes need three times that
    phase = replace(profile.phases[1], ops=(quick, *profile.phases[1].ops[1:]))
    bandwidth = max(float(memory.bandwidth_bytes_per_s) for memory in roofs.memories if memory.bandwidth_bytes_per_s)
    for width in (680, 250):
        drawn = roofline(replace(profile, phases=(phase,)), roofs, width=width)
        (dots,) = [layer["data"]["values"] for layer in drawn["layer"] if layer["mark"].get("type") == "circle"]
        assert all(dot["flops_per_s"] <= 1.02 * dot["intensity"] * bandwidth for dot in dots)
        (hollow,) = [dot for dot in dots if dot["hollow"]]
        assert hollow["reach"] == "≥ 3.12 FLOP/B (1 FLOP/B counted)"
        assert min(layer["mark"].get("fontSize", 11) for layer in drawn["layer"]) >= 11
        assert max(map(len, drawn["title"]["subtitle"])) * 6 <= max(width, 260)


def test_a_command_has_a_histogram_of_its_readings():
    readings = Phase(name="run", time_s=0.2, samples_s=(0.19, 0.2, 0.21) * 10, statistic="median")
    assert "histogram" in page_of(replace(network(), phases=(readings,))).charts


def test_a_trend_marks_the_run_from_which_on_a_line_lies_at_another_level():
    times = [level + (number % 3) / 1000 for level in (1.0, 1.3) for number in range(10)]
    rows = [
        RunRow(id=f"{n}", project="p", status="finished", kind="profile", created=float(n), latency_s=time)
        for n, time in enumerate(times)
    ]
    spec = run_trend(rows, "latency_s")
    assert [(point["run"], point["change"]) for point in values(spec) if "change" in point] == [("10", "+30.0 %")]
    assert "layer" in spec
    assert "layer" not in run_trend(rows[:10], "latency_s")


@pytest.mark.parametrize(("profile", "bars"), [(network(9), 9), (network(500), 46), (None, 0)])
def test_a_thumbnail_has_a_bar_a_layer_or_one_for_several_neighbours(profile, bars):
    drawn = layers_svg(profile)
    assert drawn.count("<rect") == bars
    assert len(drawn) < 6000
    assert ('y="0.00"' in drawn) is (bars > 0)  # the longest fills the height
