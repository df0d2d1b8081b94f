"""The END-TO-END DATAFLOW of any span tree: order, folding, attribution, layers, calls, segments, tokens."""

import xml.etree.ElementTree as ET

import pytest

from inferometer.core.trace import Span, Trace
from inferometer.measure.spans import Profiler
from inferometer.understand.view.dataflow import dataflow
from inferometer.understand.view.drawing import UNIT_COLOURS, unit_colour
from unit.measure.spans.clocks import Manual


@pytest.fixture
def clock():
    return Manual()


@pytest.fixture
def profiler(clock):
    return Profiler(enabled=True, clock=clock)


def spans(*rows):
    """A trace from (name, start ms, end ms, parent, facts)."""
    return Trace(
        spans=tuple(
            Span(name=name, start_ns=round(begin * 1e6), end_ns=round(end * 1e6), parent=parent, **facts)
            for name, begin, end, parent, facts in rows
        )
    )


def only(flow):
    (phase,) = flow.flow.phases
    return phase


def test_a_sequence_that_repeats_is_a_block_though_no_span_is_around_it():
    trace = spans(
        ("embed", 0, 1, None, {}),
        *((("attn", "mlp")[place % 2], 1 + place, 2 + place, None, {}) for place in range(16)),
        ("head", 17, 18, None, {}),
    )  # fmt: skip
    embed, block, head = only(dataflow(trace)).rows
    assert (embed.name, block.name, block.count, head.name) == ("embed", None, 8, "head")
    assert [row.name for row in block.rows] == ["attn", "mlp"]
    assert block.time_s == pytest.approx(2e-3)
    assert "block × 8" in dataflow(trace).text()


def test_steps_keep_their_order_and_a_name_may_come_twice():
    trace = spans(
        ("run", 0, 10, None, {}),
        ("norm", 0, 1, 0, {}),
        ("attn", 1, 4, 0, {}),
        ("norm", 4, 5, 0, {}),
        ("mlp", 5, 9, 0, {}),
    )
    assert [row.name for row in only(dataflow(trace)).rows] == ["norm", "attn", "norm", "mlp"]


def test_runs_that_differ_are_merged_by_name_with_mean_counts():
    trace = spans(
        ("token", 0, 10, None, {"phase": "decode", "token": 0}), ("forward", 0, 8, 0, {}),
        ("token", 10, 20, None, {"phase": "decode", "token": 1}), ("forward", 10, 16, 2, {}),
        ("collect", 16, 19, 2, {}),
    )  # fmt: skip
    phase = only(dataflow(trace))
    assert [(row.name, row.count) for row in phase.rows] == [("forward", 1.0), ("collect", 0.5)]
    assert phase.rows[0].time_s == pytest.approx(7e-3)
    assert phase.runs == 2


def test_time_belongs_to_the_innermost_span_with_a_unit():
    trace = spans(
        ("run", 0, 10, None, {}), ("call", 0, 8, 0, {"unit": "cpu"}), ("kernel", 2, 7, 1, {"unit": "gpu"}),
    )  # fmt: skip
    found = only(dataflow(trace)).attribution
    assert dict(found.units) == {"gpu": pytest.approx(5e-3), "cpu": pytest.approx(3e-3)}
    assert found.unattributed_s == pytest.approx(2e-3)
    assert found.overlap_s == 0


AT_THE_SAME_TIME = spans(
    ("run", 0, 10, None, {}),
    ("copy", 0, 6, 0, {"unit": "cpu", "thread": 1}),
    ("kernel", 4, 9, 0, {"unit": "gpu", "thread": 2}),
)


def test_units_at_the_same_time_are_said_to_overlap():
    found = only(dataflow(AT_THE_SAME_TIME)).attribution
    assert sum(time_s for _, time_s in found.units) == pytest.approx(11e-3)
    assert found.overlap_s == pytest.approx(2e-3)
    assert found.unattributed_s == pytest.approx(1e-3)
    assert "at the same time" in dataflow(AT_THE_SAME_TIME).text()


def test_the_attribution_always_closes():
    found = only(dataflow(AT_THE_SAME_TIME)).attribution
    parts = sum(time_s for _, time_s in found.units) + found.unattributed_s - found.overlap_s
    assert parts == pytest.approx(found.wall_s)


def test_phases_come_in_order_and_what_is_around_them_is_not_one():
    trace = spans(
        ("all", 0, 100, None, {}), ("load", 0, 30, 0, {}), ("prefill", 30, 60, 0, {"phase": "prefill"}),
        ("decode", 60, 90, 0, {"phase": "decode"}),
    )  # fmt: skip
    assert [(phase.name, phase.wall_s) for phase in dataflow(trace).flow.phases] == [
        ("prefill", pytest.approx(0.03)), ("decode", pytest.approx(0.03)), ("outside phases", pytest.approx(0.03)),
    ]  # fmt: skip


def test_a_phase_inside_a_phase_is_a_phase_of_its_own():
    trace = spans(
        ("serve", 0, 10, None, {"phase": "serve"}),
        ("decode", 2, 8, 0, {"phase": "decode"}),
        ("op", 2, 4, 1, {"unit": "gpu"}),
    )
    assert {phase.name for phase in dataflow(trace).flow.phases} == {"serve", "decode"}


def test_layers_are_summed_over_their_ops_and_compared_over_runs(profiler, clock):
    for token in range(3):
        with profiler.span("token", phase="decode", token=token):
            for layer in range(2):
                with profiler.span("attn", layer=layer):
                    clock.pass_ms(1 + token)
                with profiler.span("mlp", layer=layer):
                    clock.pass_ms(2)
    (phase,) = profiler.dataflow().flow.phases
    assert [layer.layer for layer in phase.layers] == [0, 1]
    assert phase.layers[0].min_s == pytest.approx(3e-3, rel=1e-3)
    assert phase.layers[0].max_s == pytest.approx(5e-3, rel=1e-3)
    assert phase.layers[0].mean_s == pytest.approx(4e-3, rel=1e-3)


def test_the_trend_shows_drift(profiler, clock):
    for token in range(11):
        with profiler.span("token", phase="decode", token=token), profiler.span("forward", unit="npu"):
            clock.pass_ms(100 + token)
    (phase,) = profiler.dataflow().flow.phases
    assert phase.trend.drift == pytest.approx(0.10, rel=1e-4)
    assert phase.trend.slope_s == pytest.approx(1e-3, rel=1e-4)
    assert phase.trend.middle_s == pytest.approx(0.105, rel=1e-4)
    assert "first → last +10.00%" in profiler.dataflow().text()


def test_segments_are_means_a_call_and_sums_a_run(profiler, clock):
    for _ in range(2):
        with profiler.span("run", phase="prefill"):
            for size in (1, 3):
                with profiler.span("matmul", unit="npu"):
                    with profiler.segment("write", bytes=1e6):
                        clock.pass_ms(size)
                    with profiler.segment("run"):
                        clock.pass_ms(10)
    (phase,) = profiler.dataflow().flow.phases
    (call,) = phase.calls
    assert [(part.name, part.time_s, part.bytes) for part in call.parts] == [
        ("write", pytest.approx(2e-3, rel=1e-4), 1e6), ("run", pytest.approx(10e-3, rel=1e-4), None),
    ]  # fmt: skip
    text = profiler.dataflow().text()
    assert "prefill: segments" in text
    assert "write 16.7 % · run 83.3 %" in text


def test_a_recording_without_units_shows_its_leaves(profiler, clock):
    with profiler.span("outer"), profiler.span("leaf"):
        clock.pass_ms(1)
    (phase,) = profiler.dataflow().flow.phases
    assert [call.name for call in phase.calls] == ["leaf"]
    assert phase.attribution.unattributed_s == pytest.approx(phase.wall_s)


def test_an_empty_profile_has_an_empty_flow():
    flow = Profiler(enabled=True).dataflow()
    assert flow.flow.phases == ()
    ET.fromstring(flow.svg())  # noqa: S314 - our own drawing


# ── the drawing ─────────────────────────────────────────────────────────────────────────────────────────────────────

SVG = "{http://www.w3.org/2000/svg}"


def test_the_drawing_is_well_formed_and_holds_every_step(profiler, clock):
    with profiler.span("prefill", phase="prefill"):
        for layer in range(16):
            with profiler.span("layer", layer=layer), profiler.span("a <b> & 'c'", unit="npu"):
                clock.pass_ms(1)
        with profiler.span("head", unit="strange unit"):
            clock.pass_ms(2)
    root = ET.fromstring(profiler.dataflow().svg())  # noqa: S314 - our own drawing
    words = [element.text for element in root.iter(f"{SVG}text")]
    assert {"prefill", "layer × 16", "a <b> & 'c'", "head", "Wall time by unit", "unattributed"} <= set(words)
    width, height = float(root.get("width")), float(root.get("height"))
    for group in root.iter(f"{SVG}g"):
        for box in group.iter(f"{SVG}rect"):
            assert 0 <= float(box.get("x", 0)) <= width
            assert float(box.get("y", 0)) <= height
            assert float(box.get("width")) >= 0


def test_a_unit_has_the_same_colour_every_time():
    assert unit_colour("NPU") == UNIT_COLOURS["npu"]
    assert unit_colour("my asic") == unit_colour("my asic")
    assert len(set(UNIT_COLOURS.values())) == len(UNIT_COLOURS)


def test_a_very_long_flow_is_cut_in_the_drawing_and_the_text(profiler, clock):
    with profiler.span("run"):
        for number in range(200):
            with profiler.span(f"step {number}", unit="cpu"):
                clock.pass_ms(1)
    assert "… more steps" in profiler.dataflow().svg()
    assert "more steps" in profiler.dataflow().text()


def stack(*, extra):
    """Three layers of norm and mlp in a step; layer `extra` runs one kernel more, and mlp runs before its norm."""
    rows, now = [("step", 0, 20, None, {"phase": "decode"}), ("embed", 0, 1, 0, {})], 1
    for layer in range(3):
        names = ("mlp", "norm", "copy") if layer == extra else ("mlp", "norm")
        for name in names:
            rows.append((name, now, now + 1, 0, {"layer": layer}))
            now += 1
    return spans(*rows, ("head", now, now + 1, 0, {}))


@pytest.mark.parametrize("extra", [None, 0, 1, 2])
def test_layers_are_folded_by_their_number_though_one_runs_another_kernel(extra):
    embed, layer, head = only(dataflow(stack(extra=extra))).rows
    assert (embed.name, layer.name, layer.count, head.name) == ("embed", "layer", 3, "head")
    assert [row.name for row in layer.rows][:2] == ["mlp", "norm"]
    assert layer.total_s == pytest.approx(6e-3 if extra is None else 7e-3)


def test_a_span_without_length_does_not_split_the_layers(profiler, clock):
    with profiler.span("step", phase="decode"):
        for layer in range(4):
            with profiler.span("layer", layer=layer):
                if layer == 2:
                    with profiler.span("nothing"):
                        pass
                with profiler.span("mlp"):
                    clock.pass_ms(1)
    (row,) = only(profiler.dataflow()).rows
    assert (row.name, row.count) == ("layer", 4)
    assert {inner.name for inner in row.rows} == {"nothing", "mlp"}
