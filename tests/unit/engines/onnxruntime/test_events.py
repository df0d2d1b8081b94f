"""The engine's profile: events as ONNX Runtime 1.31.1 writes them, shortened to what is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.errors import EngineError
from inferometer.engines.onnxruntime.recorder import NodeTable, NodeTime, add_run, node_times, parse_profile

CPU = "CPUExecutionProvider"


def node(name, kind, ts, dur, **more):
    details = {"op_name": kind, "provider": CPU, "activation_size": "0", "output_size": "0", **more}
    return {"cat": "Node", "pid": 1, "tid": 1, "dur": dur, "ts": ts, "ph": "X", "name": f"{name}_kernel_time",
            "args": details}  # fmt: skip


def session(name, ts, dur):
    return {"cat": "Session", "pid": 1, "tid": 1, "dur": dur, "ts": ts, "ph": "X", "name": name, "args": {}}


def written(*events):
    return json.dumps(events).encode()


# silero-vad, its inner If: the branch's node, the executor within, the If, and what comes after, in the file's order
NESTED = (
    session("model_loading_uri", 11, 22329),
    session("session_initialization", 22443, 106473),
    node("Equal", "Equal", 129958, 11),
    node("Squeeze", "Squeeze", 129986, 15),
    session("SequentialExecutor::Execute", 129985, 24),
    node("If", "If", 129975, 45),
    node("Shape", "Shape", 130038, 9),
    session("SequentialExecutor::Execute", 129246, 1519),
    session("model_run", 129218, 1554),
)


def test_a_conv_of_squeezenet_has_its_sizes_and_shapes():
    event = node(
        "r1_nchwc", "Conv", 25250, 457, activation_size="602112", output_size="3154176", parameter_size="7168",
        input_type_shape=[{"float": [1, 3, 224, 224]}], output_type_shape=[{"float": [1, 64, 111, 111]}],
    )  # fmt: skip
    (events,) = parse_profile(written(event, session("model_run", 25000, 900)))
    (row,) = node_times(events)
    assert row == NodeTime(
        name="r1_nchwc", kind="Conv", provider=CPU, seconds=457e-6, bytes=602112 + 3154176, dtype="float",
        shapes=((1, 64, 111, 111),),
    )  # fmt: skip


def test_what_runs_within_a_branch_is_not_counted_twice():
    (events,) = parse_profile(written(*NESTED))
    rows = {row.name: row.seconds for row in node_times(events)}
    assert rows == pytest.approx({"Equal": 11e-6, "If": 30e-6, "Squeeze": 15e-6, "Shape": 9e-6})


def test_nodes_stand_in_the_order_they_started():
    (events,) = parse_profile(written(*NESTED))
    assert [row.name for row in node_times(events)] == ["Equal", "If", "Squeeze", "Shape"]


def test_a_node_that_ended_when_a_branch_began_is_not_in_it():
    (events,) = parse_profile(
        written(node("before", "Add", 90, 9), node("If", "If", 100, 20), session("model_run", 0, 1))
    )
    assert {row.name: row.seconds for row in node_times(events)} == pytest.approx({"before": 9e-6, "If": 20e-6})


def test_a_loops_body_is_one_row_however_often_it_ran():
    trips = [node("Add", "Add", 110 + 10 * trip, 4) for trip in range(5)]
    (events,) = parse_profile(written(*trips, node("Loop", "Loop", 100, 70), session("model_run", 99, 80)))
    rows = {row.name: row.seconds for row in node_times(events)}
    assert rows["Add"] == pytest.approx(20e-6)
    assert rows["Loop"] == pytest.approx((70 - 44) * 1e-6)  # the body spans 110 … 154


def test_runs_are_told_apart_and_an_unfinished_one_is_left_out():
    one = (node("a", "Relu", 1, 2), session("model_run", 0, 5))
    runs = parse_profile(written(*one, *one, node("a", "Relu", 20, 2)))
    assert [len(events) for events in runs] == [1, 1]


def test_a_profile_that_is_cut_short_is_an_error_of_the_engine():
    with pytest.raises(EngineError, match="profile"):
        parse_profile(written(*NESTED)[:-20])


def test_a_node_that_did_not_run_has_a_sample_of_nothing():
    table = NodeTable()
    add_run(table, [row("a", 1.0), row("then", 2.0), row("z", 3.0)])
    add_run(table, [row("a", 1.5), row("else", 4.0), row("z", 3.5)])
    assert table.samples_s == {"a": [1.0, 1.5], "then": [2.0, 0.0], "z": [3.0, 3.5], "else": [0.0, 4.0]}
    assert table.order.index("a") < table.order.index("else") < table.order.index("z")


def row(name, seconds):
    return NodeTime(name=name, kind="Add", provider=CPU, seconds=seconds, bytes=0.0)


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 1)), unique_by=lambda pair: pair[0]), max_size=6
    )
)
def test_every_node_has_one_sample_a_run_and_the_totals_stay(runs):
    table = NodeTable()
    for run in runs:
        add_run(table, [row(name, seconds) for name, seconds in run])
    assert table.runs == len(runs)
    assert sorted(table.order) == sorted(table.rows) == sorted(table.samples_s)
    assert all(len(samples) == len(runs) for samples in table.samples_s.values())
    total = sum(seconds for run in runs for _, seconds in run)
    assert sum(sum(samples) for samples in table.samples_s.values()) == pytest.approx(total)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(0, 30))
def test_own_times_never_exceed_the_time_around_them(durations, extra):
    """Nodes one after the other within a branch, then the branch."""
    events, at = [], 1000
    for place, dur in enumerate(durations):
        events.append(node(f"n{place}", "Add", at, dur))
        at += dur
    events.append(node("If", "If", 1000, at - 1000 + extra))
    (run,) = parse_profile(written(*events, session("model_run", 999, 9999)))
    assert sum(each.seconds for each in node_times(run)) == pytest.approx((at - 1000 + extra) * 1e-6)
