"""Recordings made by hand, and every number of what is derived from them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.errors import SchemaError
from inferometer.core.trace import Segment, Span, Trace
from inferometer.measure.spans import energy, from_trace, load, merge, nest, sensors
from inferometer.measure.spans.attribution import attribute, calls_of, time_by_layer, trend_of
from inferometer.measure.spans.build import build
from inferometer.measure.spans.files import SpanFile, _placed, _process_numbers, _shift_ns, _sound, run_of
from inferometer.measure.spans.flow import Repeat, Stretch, flow, fold, stretches
from inferometer.measure.spans.keeping import Everything, Reservoir, Ring, Spilling, log_for
from inferometer.measure.spans.meters import MeterLevel, PeakMeter
from inferometer.measure.spans.power import Power, Series, energy_curve, energy_of_spans, uses
from inferometer.measure.spans.recorder import Watcher
from inferometer.measure.spans.recording import SpanBatch
from inferometer.measure.spans.span_stats import stats, stats_of_all


def trace(*rows):
    """(name, start ms, end ms, parent, facts)."""
    spans = tuple(
        Span(name=name, start_ns=round(start * 1e6), end_ns=round(end * 1e6), parent=parent, **facts)
        for name, start, end, parent, facts in rows
    )
    return from_trace(Trace(spans=spans))


def rows_of(recording):
    return np.arange(len(recording))


# Where the time went.

TWO_LANES = trace(
    ("step", 0, 20, None, {"thread": 1}), ("gpu work", 0, 10, 0, {"thread": 1, "unit": "gpu", "flops": 6e6}),
    ("inner", 2, 5, 1, {"thread": 1, "unit": "cpu"}),
    ("beside", 4, 12, None, {"thread": 2, "unit": "cpu", "bytes": 3.0}),
    ("untagged", 12, 14, 0, {"thread": 1}),
)  # fmt: skip


def test_a_moment_is_the_innermost_units_and_units_that_work_together_overlap():
    found = attribute(TWO_LANES, rows_of(TWO_LANES), 20_000_000, 2)
    # gpu 10 − 3, cpu 3 + 8; both lanes together cover 12 of the 20 ms
    assert found.wall_s == pytest.approx(10e-3)
    assert found.units == (("cpu", pytest.approx(5.5e-3)), ("gpu", pytest.approx(3.5e-3)))
    assert found.unattributed_s == pytest.approx(4e-3)
    assert found.overlap_s == pytest.approx((18 - 12) * 1e-3 / 2)
    alone = attribute(TWO_LANES, np.array([1, 2]), 20_000_000, 1)
    assert alone.overlap_s == 0.0
    assert attribute(TWO_LANES, np.array([0, 4]), 20_000_000, 1).units == ()


def test_calls_are_by_name_and_unit_the_longest_first():
    recording = trace(
        ("mm", 0, 4, None, {"unit": "gpu", "flops": 2e6, "bytes": 10.0, "device_start_ns": 0, "device_s": 2e-3}),
        ("mm", 5, 11, None, {"unit": "gpu", "flops": 4e6, "device_start_ns": 1_000_000, "device_s": 4e-3}),
        ("mm", 12, 13, None, {"unit": "cpu"}), ("no unit", 13, 90, None, {}),
    )  # fmt: skip
    first, second = calls_of(recording, rows_of(recording), lambda rows: (f"parts of {len(rows)}",))
    assert (first.name, first.unit, first.count, first.parts) == ("mm", "gpu", 2, ("parts of 2",))
    assert (first.mean_s, first.min_s, first.max_s, first.total_s) == pytest.approx((5e-3, 4e-3, 6e-3, 10e-3))
    assert (first.flops, first.bytes) == (6e6, 10.0)
    assert first.device_s == pytest.approx(5e-3), "from 0 to 2 and from 1 to 5"
    assert (second.unit, second.count, second.flops, second.device_s) == ("cpu", 1, None, None)
    plain = trace(("outer", 0, 9, None, {}), ("leaf", 1, 3, 0, {}), ("leaf", 4, 5, 0, {}))
    assert [(call.name, call.count) for call in calls_of(plain, rows_of(plain), lambda _: ())] == [("leaf", 2)]


def test_layers_are_of_their_outermost_spans_run_by_run():
    recording = trace(
        ("run", 0, 10, None, {}), ("a", 0, 2, 0, {"layer": 0}), ("in a", 1, 2, 1, {"layer": 0}),
        ("b", 2, 5, 0, {"layer": 1}),
        ("run", 10, 20, None, {}), ("a", 10, 14, 4, {"layer": 0}), ("again", 15, 16, 4, {"layer": 0}),
        ("b", 16, 17, 4, {"layer": 1}),
    )  # fmt: skip
    found = time_by_layer(recording, np.array([0, 4]), rows_of(recording), 2)
    assert [(each.layer, each.mean_s, each.min_s, each.max_s) for each in found] == [
        (0, pytest.approx(3.5e-3), pytest.approx(2e-3), pytest.approx(5e-3)),
        (1, pytest.approx(2e-3), pytest.approx(1e-3), pytest.approx(3e-3)),
    ]  # fmt: skip
    assert time_by_layer(recording, np.array([0]), np.array([0]), 1) == ()


def test_a_trend_is_from_the_first_token_to_the_last_in_their_order():
    rows = [("late", 0, 8, None, {"token": 3}), ("t", 10, 12, None, {"token": 0}), ("t", 12, 15, None, {"token": 1}),
            ("inside", 13, 14, 2, {"token": 1}), ("t", 20, 25, None, {"token": 2}),
            ("more", 25, 26, None, {"token": 0})]  # fmt: skip
    found = trend_of(trace(*rows), np.arange(6))
    assert found.values_s == pytest.approx((3e-3, 3e-3, 5e-3, 8e-3))
    assert (found.count, found.first_s, found.middle_s, found.last_s) == (
        4, pytest.approx(3e-3), pytest.approx(5e-3), pytest.approx(8e-3),
    )  # fmt: skip
    assert (found.min_s, found.max_s, found.mean_s) == pytest.approx((3e-3, 8e-3, 4.75e-3))
    assert found.drift == pytest.approx(8 / 3 - 1)
    assert found.slope_s == pytest.approx(1.7e-3)
    assert trend_of(trace(*rows[:1]), np.arange(1)) is None


def test_statistics_count_a_recursive_call_once_and_rates_are_over_the_time_inside():
    recording = trace(
        ("f", 0, 10, None, {"tokens": 4, "bytes": 100.0}), ("f", 2, 6, 0, {"failed": True}), ("g", 3, 4, 1, {}),
        ("f", 20, 30, None, {"tokens": 6}),
    )  # fmt: skip
    found = stats(recording, "f")
    assert (found.count, found.failed, found.total_s, found.exclusive_s) == (
        3, 1, pytest.approx(20e-3), pytest.approx(19e-3),
    )  # fmt: skip
    assert (found.min_s, found.max_s, found.median_s, found.mean_s) == pytest.approx((4e-3, 10e-3, 10e-3, 8e-3))
    assert found.mad_s == 0.0
    assert found.std_s == pytest.approx(np.std([10e-3, 4e-3, 10e-3], ddof=1))
    assert found.cv == pytest.approx(found.std_s / 8e-3)
    assert (found.tokens, found.tokens_per_s, found.bytes_per_s) == (10, pytest.approx(500.0), pytest.approx(5e3))
    assert [each.name for each in stats_of_all(recording)] == ["f", "g"]


def test_a_flow_has_phases_in_order_repeats_folded_and_the_rest_told():
    recording = trace(
        ("load", 0, 3, None, {}), ("all", 3, 40, None, {}), ("prefill", 3, 13, 1, {"phase": "prefill"}),
        ("a", 3, 5, 2, {}), ("b", 5, 6, 2, {}), ("a", 6, 9, 2, {}), ("b", 9, 11, 2, {}),
        ("decode", 14, 18, 1, {"phase": "decode"}), ("c", 14, 17, 7, {}), ("decode", 20, 26, 1, {"phase": "decode"}),
        ("c", 20, 23, 9, {}), ("d", 23, 24, 9, {}),
    )  # fmt: skip
    found = flow(recording)
    assert found.wall_s == pytest.approx(40e-3)
    assert [(phase.name, phase.runs) for phase in found.phases] == [
        ("prefill", 1),
        ("decode", 2),
        ("outside phases", 1),
    ]
    prefill, decode, outside = found.phases
    (block,) = prefill.rows
    assert (block.name, block.count, block.time_s, block.total_s) == (None, 2, pytest.approx(4e-3), pytest.approx(8e-3))
    assert [(row.name, row.count, row.time_s) for row in block.rows] == [
        ("a", 1, pytest.approx(2.5e-3)), ("b", 1, pytest.approx(1.5e-3)),
    ]  # fmt: skip
    assert (prefill.wall_s, prefill.rest_s) == (pytest.approx(10e-3), pytest.approx(2e-3))
    assert (decode.title, decode.wall_s, decode.rest_s) == ("decode", pytest.approx(5e-3), pytest.approx(1.5e-3))
    assert [(row.name, row.count, row.time_s) for row in decode.rows] == [
        ("c", 1.0, pytest.approx(3e-3)), ("d", 0.5, pytest.approx(1e-3)),
    ]  # fmt: skip
    assert (outside.wall_s, outside.title) == (pytest.approx(3e-3), "load")


# Which span is in which.


def array(*values):
    return np.array(values, dtype=np.int64)


def test_parents_are_the_next_to_end_that_began_no_later_and_links_say_it_outright():
    starts, ends = array(2, 1, 5, 5, 0), array(3, 4, 5, 9, 10)
    assert nest.parents(starts, ends, array(0, 0, 0, 0, 0)).tolist() == [1, 4, 4, 4, -1]
    within = np.array([False, False, True, False, False])
    assert nest.parents(starts, ends, array(0, 0, 0, 0, 0), within).tolist() == [1, 4, 3, 4, -1]
    assert nest.parents(starts, ends, array(0, 1, 0, 1, 0)).tolist() == [4, -1, 4, -1, -1]
    parent = array(-1, -1, -1)
    nest.follow_links(parent, [None, 7, 8], [None, 99, 7])
    assert parent.tolist() == [-1, -1, 1], "a link to a span that is not there says nothing"


def test_trees_are_told_from_circles_and_exclusive_times_from_what_ran_beside():
    nest.require_tree(array(-1, 0, 1))
    nest.require_tree(array(1, -1))
    with pytest.raises(SchemaError, match="names row 2 as its parent, and there are 2"):
        nest.require_tree(array(-1, 2))
    with pytest.raises(SchemaError, match="in itself"):
        nest.require_tree(array(1, 0))
    starts, ends, parent = array(0, 1, 2, 6), array(10, 4, 5, 7), array(-1, 0, 0, 0)
    assert nest.exclusive_ns(starts, ends, parent, array(0, 0, 0, 0)).tolist() == [10 - 3 - 3 - 1, 3, 3, 1]
    assert nest.exclusive_ns(starts, ends, parent, array(0, 1, 2, 0)).tolist() == [10 - 4 - 1, 3, 3, 1]
    assert nest.covered_ns(array(5, 0, 1), array(8, 2, 4)) == 7
    assert nest.covered_ns(array(0, 1), array(9, 2)) == 9
    assert nest.depths(array(-1, 0, 1, 0)).tolist() == [0, 1, 2, 1]
    assert nest.inherited(array(-1, 5, -1, -1), array(-1, 0, 1, 0)).tolist() == [-1, 5, 5, -1]
    assert nest.nested_in_own_name(array(1, 2, 1, 2), array(-1, 0, 1, 0)).tolist() == [False, False, True, False]
    order, first = nest.children_of(array(-1, 0, 0, 1))
    assert [order[first[row + 1] : first[row + 2]].tolist() for row in range(4)] == [[1, 2], [3], [], []]
    inner = array(-1, 0, -1, -1)
    nest.enclose(inner, array(0, 2, 3, 20), array(10, 6, 9, 21), array(2, 3), array(0, 1))
    assert inner.tolist() == [-1, 0, 0, -1], "the innermost that is still open at its end"


def test_a_sequence_is_folded_by_the_period_that_covers_most():
    assert fold([1, 2, 1, 2, 1, 2, 3]) == (Repeat((1, 2), 3), Repeat((3,), 1))
    assert fold([1, 1, 1]) == (Repeat((1,), 3),)
    assert fold([1, 1, 2, 1, 1, 2]) == (Repeat((1, 1, 2), 2),)
    assert fold([]) == ()
    assert stretches([None, 0, None, 1, 2, None, 0], [9, 1, 3, 1, 1, 8, 1]) == (
        Stretch(layered=False, groups=((0,),)), Stretch(layered=True, groups=((1, 2), (3,), (4,))),
        Stretch(layered=False, groups=((5,),)), Stretch(layered=True, groups=((6,),)),
    )  # fmt: skip
    assert stretches([0, 1, 0], [1, 1, 1]) == (Stretch(layered=True, groups=((0, 2), (1,))),)
    assert stretches([0, 1], [5, 6]) == (Stretch(layered=True, groups=((0,),)), Stretch(layered=True, groups=((1,),)))


# Power.


def series(values, quantity="power", **more):
    times = tuple(1_000_000_000 * n for n in range(len(values)))
    return Series(name="s", quantity=quantity, times_ns=times, values=tuple(values), **more)


def test_energy_is_the_area_under_power_or_what_a_counter_says():
    assert energy_curve(series((10.0, 20.0, 0.0)))[1].tolist() == pytest.approx([0.0, 15.0, 25.0])
    assert energy_curve(series((5.0, 9.0, 2.0), "energy", range_j=10.0))[1].tolist() == pytest.approx([0.0, 4.0, 7.0])
    assert energy_curve(series((5.0, 9.0, 2.0), "energy"))[1].tolist() == pytest.approx([0.0, 4.0, 4.0])
    assert energy_curve(series((5.0,)))[1].tolist() == [0.0]
    starts, ends = array(0, 500_000_000, -1), array(2_000_000_000, 1_500_000_000, 1)
    both = Power(series=(series((10.0, 10.0, 10.0), counted=True), series((0.0, 4.0, 8.0), "energy", counted=True),
                         series((99.0, 99.0, 99.0)), series((), counted=True)))  # fmt: skip
    found = energy_of_spans(both, starts, ends)
    assert found[:2].tolist() == pytest.approx([20.0 + 8.0, 10.0 + 4.0])
    assert np.isnan(found[2]), "it began before the first reading"
    assert energy_of_spans(Power(series=(series((1.0, 2.0)),)), starts, ends) is None


def test_each_series_is_one_line_and_one_without_readings_none():
    found = uses(
        Power(
            series=(series(()), series((10.0, 30.0)), series((1.0, 3.0, 9.0), "energy"), series((40.0,), "temperature"))
        )
    )
    assert [(use.quantity, use.mean, use.min, use.max, use.energy_j) for use in found] == [
        ("power", 20.0, 10.0, 30.0, pytest.approx(20.0)), ("energy", 4.0, 2.0, 6.0, pytest.approx(8.0)),
        ("temperature", 40.0, 40.0, 40.0, None),
    ]  # fmt: skip


# Files.

HEADER = {"schema": "inferometer.spans/1", "clock": "c", "process": 7}


def line(count=1, words=("f",), **columns):
    given = {"name": [0] * count, "start": [1] * count, "end": [3] * count, **columns}
    return {"spans": count, "words": list(words), "columns": given}


def written(path, *documents, header=None, end=True):
    counted = sum(each["spans"] for each in documents if isinstance(each, dict) and isinstance(each["spans"], int))
    rows = [header or HEADER, *documents, *([{"end": True, "spans": counted}] if end else [])]
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def spans_schema():
    from inferometer.measure.spans.files import SCHEMA

    return {**HEADER, "schema": str(SCHEMA)}


def read(path, *documents, **more):
    file = SpanFile.open(written(path, *documents, header=spans_schema(), **more))
    return [(batch.count, batch.columns["name"]) for batch in file.batches()], file.notes


@pytest.mark.parametrize(
    ("bad", "note"),
    [
        (line(start="ab"), "columns of different lengths"), (line(start=[1, 2]), "columns of different lengths"),
        (line(start=5), "columns of different lengths"),
        (line(words=(), name=[9]), "uses a name of a line that is lost"),
        ("{", "line 2 cannot be read"), ({"spans": 1, "words": [], "columns": {"name": [0]}}, "line 2 cannot be read"),
        ({**line(), "spans": "1"}, "line 2 cannot be read"), ({**line(), "words": {}}, "line 2 cannot be read"),
    ],
)  # fmt: skip
def test_a_bad_line_is_told_and_the_others_are_read(tmp_path, bad, note):
    found, notes = read(tmp_path / "f", bad, line(words=("g",), name=[0]))
    assert len(found) == 1
    assert note in notes[0]


def test_nothing_after_the_last_line_is_read_and_what_is_missing_is_told(tmp_path):
    path = written(tmp_path / "f", line(), header=spans_schema())
    path.write_text(path.read_text() + json.dumps(line()) + "\n")
    file = SpanFile.open(path)
    assert len(list(file.batches())) == 1
    assert file.notes == []
    assert read(tmp_path / "g", line(), end=False)[1] == [
        "g has no last line: its run did not finish, or the file was cut."
    ]
    path = written(tmp_path / "h", line(), header=spans_schema())
    path.write_text(path.read_text().replace('"spans": 1}\n', '"spans": 5}\n'))
    file = SpanFile.open(path)
    list(file.batches())
    assert file.notes == ["h: 4 of 5 spans could not be read."]


@pytest.mark.parametrize(
    ("name", "column", "sound"),
    [("name", ["a"], True), ("name", [None], False), ("unit", [None, "a"], True), ("unit", [1], False),
     ("start", [1], True), ("start", [None], False), ("start", [1.5], False), ("start", [2**63], False),
     ("start", [2**63 - 1], True), ("start", [-(2**63)], False), ("layer", [None, 3], True), ("layer", [True], False),
     ("flops", [1, 2.5, None], True), ("flops", ["1"], False), ("failed", [True, False], True), ("failed", [1], False),
     ("something new", [{}], True)],
)  # fmt: skip
def test_a_column_holds_what_it_should(name, column, sound):
    assert _sound(name, column) is sound


def file(**header):
    return SimpleNamespace(header=header, path=SimpleNamespace(name="f"))


def test_processes_keep_their_ids_unless_two_share_one():
    assert _process_numbers([file(process=7), file(process=9)]) == [7, 9]
    assert _process_numbers([file(process=7), file(process=7)]) == [1, 2]
    assert (
        _process_numbers([file(process=7), file()]) == _process_numbers([file(process="x"), file(process=9)]) == [1, 2]
    )


def test_another_machine_is_shifted_by_the_wall_clocks():
    first = file(host="a", boot="1", clock="c", epoch_ns=1000, started_ns=100)
    notes = []
    assert _shift_ns(first, first, notes) == _shift_ns(file(**first.header), first, notes) == 0
    assert notes == []
    other = file(host="b", boot="1", clock="c", epoch_ns=5000, started_ns=300)
    assert _shift_ns(other, first, notes) == (5000 - 300) - (1000 - 100)
    assert _shift_ns(file(host="b"), first, notes) == 0
    assert [note.partition(" machine")[2] for note in notes] == [
        ": aligned by the machines' wall clocks.", " and says no time of day: it is not aligned.",
    ]  # fmt: skip
    batch = SpanBatch(count=2, columns={"start": [1, 2], "end": [3, None], "link": [1, None], "above": [None, 1]})
    moved = _placed(batch, 4, 10, 5)
    assert moved.columns == {
        "process": [4, 4], "start": [11, 12], "end": [13, None], "link": [6, None], "above": [None, 6],
    }  # fmt: skip
    assert _placed(batch, 4, 0, 0).columns["link"] == [1, None]


def test_the_facts_of_several_runs_are_one():
    found = run_of({"clock": "c", "started_at": "t"}, [{"dropped": 2, "span_cost_s": 1e-6},
                                                       {"dropped": 3, "span_cost_s": 2e-6},
                                                       {"dropped": None}])  # fmt: skip
    assert (found.clock, found.started_at, found.dropped, found.span_cost_s, found.power) == ("c", "t", 5, 2e-6, None)
    assert run_of({}, [{"power": {"series": 3}}]).power is None
    assert run_of({}, [{}]).span_cost_s is None


def test_merged_files_keep_their_links_apart(tmp_path):
    paths = [
        written(tmp_path / f"{n}", line(2, start=[1, 0], end=[3, 9], link=[2, 1], above=[1, None]),
                header={**spans_schema(), "process": n + 1})
        for n in range(2)
    ]  # fmt: skip
    together = merge(*paths)
    assert len(together) == 4
    inside = np.flatnonzero(together.parent >= 0)
    assert together.lane[inside].tolist() == together.lane[together.parent[inside]].tolist()
    assert sorted(together.lane[inside].tolist()) == [0, 1]
    assert [lane.process for lane in together.lanes] == [1, 2]
    assert len(load(paths[0])) == 2


# What is kept.


def entry(number):
    return SimpleNamespace(number=number)


def test_a_ring_has_the_last_and_counts_what_was_pushed_out():
    ring = log_for(Ring(spans=3))
    assert (ring.dropped(), ring.mark()) == (0, (0, -1))
    for _ in range(5):
        ring.keep(entry(ring.numbers()))
    assert ([each.number for each in ring.entries()], ring.dropped(), ring.mark()) == ([2, 3, 4], 2, (3, 4))
    ring.clear()
    assert ring.dropped() == 0
    ring.keep(entry(ring.numbers()))
    assert ring.dropped() == 0


def test_a_sample_is_as_large_as_its_room_and_in_order():
    sample = log_for(Reservoir(spans=4, seed=3))
    for _ in range(50):
        sample.keep(entry(sample.numbers()))
    kept = [each.number for each in sample.entries()]
    assert (len(kept), sample.dropped(), sample.mark()) == (4, 46, 50)
    assert kept == sorted(set(kept))
    assert kept != [0, 1, 2, 3]
    sample.clear()
    assert (sample.dropped(), sample.entries()) == (0, [])
    everything = log_for(Everything(reserve=0))
    everything.keep("a")
    assert (everything.entries(), everything.mark(), everything.dropped(), everything.numbers) == (["a"], 1, 0, None)


def test_spilling_hands_on_a_batch_as_soon_as_it_is_full():
    spilled = []
    spilling = Spilling(lambda batch: spilled.append(batch) or len(batch) - 1, batch=2)
    for number in range(5):
        spilling.keep(number)
    assert (spilled, spilling.entries(), spilling.dropped(), spilling.mark()) == ([[0, 1], [2, 3]], [4], 2, (4, 1))
    spilling.flush()
    spilling.flush()
    assert (spilled, spilling.mark()) == ([[0, 1], [2, 3], [4]], (5, 0))


class Gauge:
    prefix = "rss"

    def __init__(self, *levels, restarts=True):
        self.levels, self.restarts, self.put_back = list(levels), restarts, 0

    def read(self):
        return self.levels.pop(0)

    def restart(self):
        self.put_back += 1
        return self.restarts


def test_nested_spans_each_have_their_own_peak():
    gauge = Gauge(MeterLevel(10, 10), MeterLevel(20, 50), MeterLevel(15, 30, 99), MeterLevel(12, 40))
    meter = PeakMeter(gauge)
    outer, inner = meter.begin(None), meter.begin(None)
    assert meter.end(None, inner) == {"rss_delta_bytes": -5, "rss_peak_bytes": 30, "rss_reserved_bytes": 99}
    assert meter.end(None, outer) == {"rss_delta_bytes": 2, "rss_peak_bytes": 50}
    assert gauge.put_back == 1 + 3, "at the start, and wherever it stood above"


def test_a_mark_that_stays_is_a_spans_own_only_if_it_raised_it():
    meter = PeakMeter(
        Gauge(MeterLevel(10, 80), MeterLevel(20, 80), MeterLevel(20, 80), MeterLevel(30, 90), restarts=False)
    )
    first = meter.begin(None)
    assert meter.end(None, first) == {"rss_delta_bytes": 10}
    second = meter.begin(None)
    assert meter.end(None, second) == {"rss_delta_bytes": 10, "rss_peak_bytes": 90}


def test_a_span_that_nobody_saw_begin_is_kept_without_readings():
    kept = []
    meter = SimpleNamespace(
        begin=lambda span: span, end=lambda span, state: {"rss_delta_bytes": 1.0 if span is state else 0.0}
    )
    watcher = Watcher(kept.append, None, (meter,), None, numbers=iter([4, 5]).__next__)
    one, other = object(), object()
    watcher.begin(one)
    watcher.end(other, None, 9)
    watcher.end(one, ValueError, 10)
    assert [(each.span, each.end, each.number, each.error, each.readings) for each in kept] == [
        (other, 9, 4, None, None), (one, 10, 5, ValueError, {"rss_delta_bytes": 1.0}),
    ]  # fmt: skip


# From batches to a recording.


def test_a_clock_that_went_back_leaves_no_negative_time_and_is_told():
    columns = {"name": ["a", "b", "c"], "start": [0, 10, 20], "end": [5, 4, 15]}
    found = build([SpanBatch(count=3, columns=columns)])
    assert (found.end - found.start).tolist() == [5, 0, 0]
    assert found.run.notes == (
        "The clock went backwards 2 times, by up to 6 ns: 2 spans that would end before they began have no duration.",
    )


def test_batches_that_lack_a_column_are_filled_and_lanes_are_numbered():
    batches = [
        SpanBatch(count=1, columns={"name": ["a"], "start": np.array([0]), "end": np.array([9]),
                                    "thread": np.array([3]), "flops": [2.0]}),
        SpanBatch(count=2, columns={"name": ["b", "c"], "start": [1, 20], "end": [2, 21], "thread": [3, 4],
                                "process": [8, 8],
                                "failed": [True, False]}),
    ]  # fmt: skip
    found = build(batches, titles={(5, 3): "main"}, process=5)
    assert [(lane.process, lane.thread, lane.title) for lane in found.lanes] == [
        (5, 3, "main"), (8, 3, "thread 3"), (8, 4, "thread 4"),
    ]  # fmt: skip
    assert found.flops.tolist()[0] == 2.0
    assert np.isnan(found.flops[1:]).all()
    assert found.failed.tolist() == [False, True, False]
    assert found.parent.tolist() == [-1, -1, -1], "each in a lane of its own"


def test_threads_that_ended_unnamed_are_counted_and_not_called_by_their_address():
    first, second, known = 139712689772224, 139712681379520, 139712601781952
    columns = {
        "name": ["a", "b", "c", "d"], "start": [0, 2, 4, 6], "end": [1, 3, 5, 7],
        "thread": [first, known, second, first], "task": [None, None, None, 1],
    }  # fmt: skip
    found = build([SpanBatch(count=4, columns=columns)], titles={(5, known): "main"}, process=5)
    titles = [lane.title for lane in found.lanes]
    assert titles == ["ended thread 1", "main", "ended thread 2", "ended thread 1, task 1"]


def test_segments_belong_to_the_span_around_them_and_are_no_spans():
    outer = Span(name="s", start_ns=0, end_ns=10, segments=(Segment(name="write", start_ns=1, end_ns=4),))
    found = from_trace(Trace(spans=(outer, Span(name="t", start_ns=0, end_ns=12))))
    assert [found.words[name] for name in found.name.tolist()] == ["s", "t"]
    parts = found.segments
    assert (parts.owner.tolist(), parts.start.tolist(), parts.end.tolist()) == ([0], [1], [4])


# Sensors.


def machine(system="Linux", **files):
    held = {name.replace("__", "/"): text for name, text in files.items()}
    return SimpleNamespace(system=system, read=held.get, names=lambda _folder: ["cpu0", "cpu1", "cpufreq"],
                           which=held.get)  # fmt: skip


def test_a_processors_use_is_of_the_first_line_and_of_the_time_since_the_last_reading():
    texts = [
        "cpu 10 0 10 70 10 0 0 0\ncpu0 1 1 1 1 1 1 1 1\n",
        "cpu 40 0 20 110 30 0 0 0\ncpu0 9 9 9 9 9 9 9 9\n",
        "x 1 2\n",
    ]
    (channel,) = sensors._cpu_use(SimpleNamespace(read=lambda _: texts.pop(0)))
    assert channel.read() == 0.0
    assert channel.read() == pytest.approx(1 - (140 - 80) / (200 - 100))
    assert channel.read() is None


@pytest.mark.parametrize(
    ("files", "watts"),
    [({"status": "Discharging\n", "power_now": "-5000000\n"}, 5.0),
     ({"status": "Charging", "power_now": "5000000"}, None),
     ({"power_now": "2500000"}, 2.5), ({"voltage_now": "12000000", "current_now": "-500000"}, 6.0),
     ({"voltage_now": "12000000"}, None)],
)  # fmt: skip
def test_a_batterys_watts_are_what_it_gives_away(files, watts):
    held = {f"b/{name}": text for name, text in files.items()}
    assert sensors._battery_watts(SimpleNamespace(read=held.get), "b")() == watts


def test_the_clock_is_the_mean_of_the_processors_and_powermetrics_says_what_it_lacks():
    text = {f"{sensors._CPU}/cpu{n}/cpufreq/scaling_cur_freq": f"{1_000_000 * (n + 1)}\n" for n in range(2)}
    (channel,) = sensors._clocks(SimpleNamespace(read=text.get, names=lambda _: ["cpu0", "cpu1", "cpuidle", "cpu2"]))
    assert channel.read() == pytest.approx(1.5e9)
    assert sensors._why_no_powermetrics(machine()) == "not macOS"
    assert sensors._why_no_powermetrics(machine("Darwin")) == "there is no powermetrics"
    assert sensors._why_no_powermetrics(machine("Darwin", powermetrics="/usr/bin/powermetrics")).startswith(
        "powermetrics needs root"
    )


def test_work_must_be_as_long_as_the_slowest_of_its_sensors_and_its_readings_need():
    def meter(*updates, every=None):
        channels = tuple(SimpleNamespace(update_s=update) for update in updates)
        return energy.EnergyMeter(sensors=None, channels=channels, every_s=every)

    least, times = energy.LEAST_S, energy.LEAST_UPDATES
    assert meter().least_s == meter(1e-6).least_s == meter(1e-6).least_part_s == least
    assert meter(least, 2 * least).least_s == 2 * times * least
    assert meter(1e-6, every=least).least_part_s == times * least
    assert meter(2 * least, every=least).least_part_s == 2 * times * least


def test_layers_that_differ_from_run_to_run_are_no_stack():
    alike = [("run", 0, 10, None, {}), ("a", 0, 2, 0, {"layer": 0}), ("a", 2, 4, 0, {"layer": 1}),
             ("run", 10, 20, None, {}), ("a", 10, 12, 3, {"layer": 0}), ("a", 12, 16, 3, {"layer": 1})]  # fmt: skip
    (phase,) = flow(trace(*alike)).phases
    assert [(row.name, row.count, row.time_s) for row in phase.rows] == [("a", 2, pytest.approx(2.5e-3))]
    (phase,) = flow(trace(*alike, ("a", 16, 17, 3, {"layer": 2}))).phases
    assert [(row.name, row.count) for row in phase.rows] == [("a", 2.5)], "as often as in the mean"
