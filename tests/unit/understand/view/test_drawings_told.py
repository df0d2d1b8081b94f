"""Drawings of flows and roofs: what is worth drawing, where it stands, and what its numbers say."""

import re
from dataclasses import replace

import pytest

from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.workload import Workload
from inferometer.measure.spans.attribution import Attribution, CallPart, CallTimes, Trend
from inferometer.measure.spans.flow import Flow, FlowRow, PhaseFlow
from inferometer.understand.view.charts.roofline import roofline
from inferometer.understand.view.dataflow import part_table, trend_table
from inferometer.understand.view.drawing import _short, draw, unit_colour, unit_tag

# Flows.


def phase(*rows, name="decode", wall_s=1.0, rest_s=0.0, runs=1, units=(("cpu", 1.0),), unattributed_s=0.0, trend=None):
    return PhaseFlow(
        name=name, title=None, runs=runs, wall_s=wall_s, rows=rows, rest_s=rest_s, layers=(), calls=(), trend=trend,
        attribution=Attribution(wall_s=wall_s, units=units, unattributed_s=unattributed_s),
    )  # fmt: skip


def drawn(*phases):
    return draw(Flow(wall_s=sum(each.wall_s for each in phases), phases=phases))


def texts(svg):
    return re.findall(r"<text [^>]*>([^<]*)</text>", svg)


def rests(svg):
    """What is written beside each time that no step has."""
    found = texts(svg)
    return [found[place + 1] for place, text in enumerate(found) if text == "between these"]


def test_a_rest_is_drawn_from_half_a_thousandth_of_the_wall_on_counted_as_often_as_it_comes():
    step = FlowRow(name="a", unit="cpu", time_s=0.1)
    assert rests(drawn(phase(step, rest_s=0.0005))) == ["500 µs · 0.1%"]
    assert rests(drawn(phase(step, rest_s=0.0004))) == []
    assert rests(drawn(phase(step, wall_s=0.0, rest_s=0.0))) == []
    loop = FlowRow(name="loop", count=10.0, time_s=0.05, rows=(step,), rest_s=0.00005)
    assert rests(drawn(phase(loop))) == ["50 µs · 0.1%"]
    outer = FlowRow(name="outer", count=4.0, time_s=0.2, rows=(loop,), rest_s=None)
    assert rests(drawn(phase(outer))) == ["50 µs · 0.2%"], "four times ten of them"
    rare = FlowRow(name="loop", count=0.5, time_s=0.05, rows=(step,), rest_s=0.0009)
    assert rests(drawn(phase(rare))) == []


def test_a_step_says_its_share_of_the_phase_however_deep_it_lies():
    step = FlowRow(name="a", unit="gpu", time_s=0.01, count=3.0)
    loop = FlowRow(name="loop", count=5.0, time_s=0.04, rows=(step,))
    svg = drawn(phase(loop, runs=7))
    assert "a: 10 ms, 15.0% of the phase" in svg
    assert {"a × 3", "10 ms", "= 30 ms  15.0% of the phase", "loop × 5", "40 ms each · 200 ms", "GPU",
            "1 s · mean of 7 runs"} <= set(texts(svg))  # fmt: skip
    bars = re.findall(r'width="([\d.]+)" height="3"', svg)
    assert bars == [f"{(470 - 28 - 12) * 0.15:.1f}"]
    once = texts(drawn(phase(FlowRow(name="b", time_s=2.0), wall_s=1.0)))
    assert {"b", "2 s", "200.0% of the phase", "—"} <= set(once)


def test_no_more_than_forty_boxes_are_drawn_and_the_rest_is_said():
    rows = [FlowRow(name=f"s{place}", time_s=0.01) for place in range(41)]
    assert "… more steps" not in texts(drawn(phase(*rows[:40])))
    found = texts(drawn(phase(*rows)))
    assert "… more steps" in found
    assert "s39" in found
    assert "s40" not in found


def test_the_wall_by_unit_fills_the_bar():
    svg = drawn(phase(wall_s=2.0, units=(("cpu", 0.5), ("npu", 1.0)), unattributed_s=0.5))
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="16"', svg)]
    assert widths == pytest.approx([117.5, 235.0, 117.5])
    places = [float(x) for x in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="[\d.]+" height="16"', svg)]
    assert places == pytest.approx([0.0, 117.5, 352.5])
    found = texts(svg)
    for name, seconds, share in (
        ("CPU", "500 ms", "25.0%"),
        ("NPU", "1 s", "50.0%"),
        ("unattributed", "500 ms", "25.0%"),
    ):
        at = max(
            place for place, text in enumerate(found) if text == name and found[place + 1 : place + 2] == [seconds]
        )
        assert found[at : at + 3] == [name, seconds, share]
    over = drawn(phase(wall_s=1.0, units=(("cpu", 1.0), ("gpu", 1.0))))
    assert re.findall(r'width="([\d.]+)" height="16"', over)[:2] == ["235.0", "235.0"], "units may work at once"


def test_a_trend_begins_at_zero_and_has_some_of_many_points():
    def points(*values):
        trend = Trend(count=len(values), first_s=1.0, middle_s=1.0, last_s=1.0, min_s=min(values), max_s=max(values),
                      mean_s=1.0, drift=0.25, slope_s=None, values_s=values)  # fmt: skip
        svg = drawn(phase(trend=trend))
        assert f"first → last +25.0% · {min(values):g} s to {max(values):g} s" in texts(svg)
        return [tuple(map(float, pair.split(","))) for pair in re.search(r'points="([^"]*)"', svg)[1].split()]

    first, second, third = points(1.0, 2.0, 4.0)
    assert (first[0], second[0], third[0]) == (0.0, 235.0, 470.0)
    assert (first[1] - third[1], second[1] - third[1]) == pytest.approx((46 * 0.85 * 0.75, 46 * 0.85 * 0.5), abs=0.06)
    assert len(points(*[1.0] * 399)) == 399
    assert len(points(*[1.0] * 400)) == 200


def test_three_columns_stand_side_by_side_and_more_below():
    svg = drawn(*(phase(name=f"p{place}") for place in range(4)))
    places = re.findall(r"translate\((\d+) ([\d.]+)\)", svg)
    assert [x for x, _ in places] == ["28", "532", "1036", "28"]
    assert places[0][1] == places[2][1] == "84.0"
    assert float(places[3][1]) > 84.0 + 40
    assert re.search(r'width="(\d+)"', svg)[1] == str(2 * 28 + 3 * 470 + 2 * 34)
    assert re.search(r'width="(\d+)"', drawn(phase()))[1] == str(2 * 28 + 470)


def test_units_have_colours_of_their_own_and_long_names_end():
    assert unit_colour("GPU") == unit_colour("gpu") != unit_colour("cpu") != unit_colour(None)
    assert unit_colour("xyz") == unit_colour("xyz")
    assert (unit_tag(None), unit_tag("gpu:1")) == ("—", "GPU:1")
    assert (_short("x" * 30, 30), _short("x" * 31, 30)) == ("x" * 30, "x" * 29 + "…")


# Roofs.


def told(value):
    return Sourced(value=value, origin="datasheet", source="s", date="2026")


DEVICE = Device(
    name="d", title="D", vendor="v", unit="gpu", peaks={"f16": told(100.0), "f32": told(50.0), "bf16": told(100.0)},
    memories=(Memory(level="dram", bandwidth_bytes_per_s=told(10.0)), Memory(level="l2", bandwidth_bytes_per_s=None)),
)  # fmt: skip


def op(name, time_s, flops, moved, **more):
    return OpTime(name=name, kind="linear", time_s=time_s, flops=flops, bytes=moved, **more)


def drawn_roof(*ops, count=1, **more):
    made = Profile(
        kind="measured", model=ModelFacts(name="m"), device=DeviceFacts(name="d", count=count), workload=Workload(),
        summary=Headline(), phases=(Phase(name="forward", time_s=sum(each.time_s for each in ops), ops=ops),),
    )  # fmt: skip
    return roofline(made, DEVICE, **more)


def dots(made):
    return {row["op"]: row for layer in made["layer"] if layer["mark"].get("type") == "circle"
            for row in layer["data"]["values"]}  # fmt: skip


def names(made):
    return [layer["data"]["values"][0]["label"] for layer in made["layer"] if "label" in layer["data"]["values"][0]]


def test_an_op_above_its_roof_is_hollow_and_stands_where_the_roof_allows_its_speed():
    """Memory gives 10 bytes a second: 10 bytes in half of one were not all moved."""
    made = drawn_roof(op("slow", 1.0, 5.0, 1.0), op("fused", 0.5, 40.0, 10.0), op("edge", 1.0, 40.0, 10.0))
    found = dots(made)
    assert {name: row["hollow"] for name, row in found.items()} == {"slow": False, "fused": True, "edge": False}
    assert {name: row["intensity"] for name, row in found.items()} == {"slow": 5.0, "fused": 8.0, "edge": 4.0}
    assert {name: row["flops_per_s"] for name, row in found.items()} == {"slow": 5.0, "fused": 80.0, "edge": 40.0}
    assert (found["fused"]["reach"], found["edge"]["reach"]) == ("≥ 8 FLOP/B (4 FLOP/B counted)", "4 FLOP/B")
    assert any("Hollow" in line for line in made["title"]["subtitle"]), "one of three is enough to explain it"
    assert not any("Hollow" in line for line in drawn_roof(op("slow", 1.0, 5.0, 1.0))["title"]["subtitle"])
    both = dots(drawn_roof(op("fused", 0.5, 40.0, 10.0), op("slow", 1.0, 5.0, 1.0), count=2))
    assert both["fused"]["hollow"] is False, "two devices move twice as much"


def test_ops_that_do_better_than_their_peak_are_counted():
    fast = [
        op(f"o{place}", 1.0, 5.0, 1.0, bound="compute", floor_s=floor) for place, floor in enumerate((1.02, 1.0, 2.0))
    ]
    made = drawn_roof(*fast, op("m", 1.0, 5.0, 1.0, bound="memory", floor_s=9.0))
    words = " ".join(made["title"]["subtitle"])
    assert "2 ops above a flat roof" in words
    assert "above a flat roof" not in " ".join(drawn_roof(*fast[1:2])["title"]["subtitle"])


def test_only_ops_with_a_hundredth_of_the_time_are_named_and_no_two_on_one_spot():
    large, far = op("layers.3.large", 0.9, 9.0, 2.0), op("far", 0.09, 0.0009, 0.09)
    made = drawn_roof(large, op("same spot", 0.9, 9.0, 2.0), far, op("tiny", 0.009, 0.000001, 0.009))
    assert set(names(made)) == {"large", "far"}
    assert set(dots(made)) == {"layers.3.large", "same spot", "far", "tiny"}
    long = names(drawn_roof(op("a" * 29, 1.0, 9.0, 2.0)))
    assert long == ["…" + "a" * 27]


def test_a_roof_is_of_all_devices_and_one_line_for_formats_alike():
    made = drawn_roof(op("a", 1.0, 5.0, 1.0), count=3)
    roofs = {row["roof"]: row for row in made["layer"][0]["data"]["values"]}
    assert set(roofs) == {"dram", "f16/bf16", "f32"}
    assert roofs["f16/bf16"]["flops_per_s"] == 300.0
    flat = [row for row in made["layer"][0]["data"]["values"] if row["roof"] == "f32"]
    assert [row["intensity"] for row in flat] == [5.0, max(5.0, 300 / 30) * 12]
    slope = [row for row in made["layer"][0]["data"]["values"] if row["roof"] == "dram"]
    assert [(row["intensity"], row["flops_per_s"]) for row in slope] == [
        (pytest.approx(5 / 3), pytest.approx(50.0)), (10.0, 300.0),
    ]  # fmt: skip
    assert made["title"]["text"] == "m on 3 × D"
    assert made["encoding"]["y"]["scale"]["domain"] == [pytest.approx(5 / 3), 900.0]


@pytest.mark.parametrize(("asked", "width", "height"), [(100, 260, 300), (680, 680, 422), (9999, 1200, 440)])
def test_a_plane_is_as_wide_as_asked_within_limits(asked, width, height):
    made = drawn_roof(op("a", 1.0, 5.0, 1.0), width=asked)
    assert (made["width"], made["height"]) == (width, height)


def test_what_cannot_be_drawn_says_why():
    with pytest.raises(DomainError, match="nothing to draw"):
        drawn_roof(op("a", 1.0, None, 1.0), op("b", 1.0, 1.0, 0.0))
    with pytest.raises(UnknownNameError, match="There are: forward"):
        drawn_roof(op("a", 1.0, 5.0, 1.0), phase="decode")
    made = drawn_roof(op("a", 1.0, 5.0, 1.0), op("short", 0.9e-4, 5.0, 1.0))
    assert set(dots(made)) == {"a"}, "less than a ten-thousandth of the time"


# Segments.


def call(name, count, mean_s, *parts):
    return CallTimes(
        name=name,
        unit="cpu",
        count=count,
        mean_s=mean_s,
        min_s=mean_s,
        max_s=mean_s,
        total_s=count * mean_s,
        parts=parts,
    )


def test_segments_are_of_a_call_and_close_to_what_a_run_has_of_them():
    calls = (
        call("a", 4, 0.5, CallPart(name="copy", time_s=0.1, bytes=10.0), CallPart(name="run", time_s=0.4, bytes=5.0)),
        call("b", 2, 0.3, CallPart(name="run", time_s=0.3)),
        call("bare", 9, 1.0),
    )
    table = part_table(replace(phase(runs=2), calls=calls))
    assert [column.key for column in table.columns] == ["call", "time_s", "copy", "run", "bytes"]
    assert table.rows[:2] == (
        {"call": "a", "time_s": 0.5, "copy": 0.1, "run": 0.4, "bytes": 15.0}, {"call": "b", "time_s": 0.3, "run": 0.3}
    )  # fmt: skip
    last = table.rows[2]
    assert last == {"call": "a run of the phase", "time_s": pytest.approx(1.3), "copy": pytest.approx(0.2),
                    "run": pytest.approx(1.1)}  # fmt: skip
    assert table.note == "copy 15.4 % · run 84.6 %"
    assert "bytes" not in [column.key for column in part_table(replace(phase(), calls=calls[1:2])).columns]


def test_the_trend_of_tokens_has_its_moments_in_order():
    trend = Trend(count=9, first_s=1.0, middle_s=2.0, last_s=3.0, min_s=0.5, max_s=4.0, mean_s=2.5, drift=-0.125,
                  slope_s=2.5e-3, values_s=())  # fmt: skip
    table = trend_table(phase(), trend)
    assert [(row["token"], row["time_s"]) for row in table.rows] == [
        ("first", 1.0), ("middle", 2.0), ("last", 3.0), ("min", 0.5), ("max", 4.0), ("mean", 2.5),
    ]  # fmt: skip
    assert table.note == "9 tokens; first → last -12.50%; fitted: 2.5 ms a token"
    assert trend_table(phase(), replace(trend, slope_s=None)).note == "9 tokens; first → last -12.50%"
