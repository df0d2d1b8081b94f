"""Every table closes: rows and remainder are the whole, whatever the profile."""

from math import fsum, isclose

import pytest
from hypothesis import given, settings

from inferometer.core.profile import Headline, OpTime, Phase
from inferometer.core.request import repeats
from inferometer.understand.attribution import attribution, by_host, by_parts, by_phase, split_phase
from unit.understand.explain_cases import computing, forward, op, profile, text
from unit.understand.strategies import profiles


@settings(max_examples=10)
@given(profiles())
def test_every_table_closes(found):
    for table in attribution(found):
        assert isclose(
            fsum(row.time_s for row in table.rows) + table.remainder_s, table.whole_s, rel_tol=1e-8, abs_tol=1e-12
        )
        assert table.remainder == ("overlapping" if table.remainder_s < 0 else "unattributed")
        assert [row.time_s for row in table.rows] == sorted((row.time_s for row in table.rows), reverse=True)


@settings(max_examples=10)
@given(profiles())
def test_shares_are_of_the_whole(found):
    for table in attribution(found):
        for row in table.rows:
            expected = row.time_s if table.whole_s > 0 else 0.0
            assert isclose(row.share * table.whole_s, expected, rel_tol=1e-9, abs_tol=1e-12)


@settings(max_examples=10)
@given(profiles())
def test_every_op_is_in_exactly_one_row(found):
    for table in attribution(found):
        phase = found.phase(table.phase) if table.phase else None
        if phase is not None and table.by in {"kind", "block", "layer", "unit", "bound"}:
            assert sum(row.count for row in table.rows) == sum(each.count for each in phase.ops)


def test_ops_of_one_kind_stand_together_and_the_rest_is_said():
    table = split_phase(forward(computing(0.3, "a"), computing(0.4, "b"), op("c", "norm", 0.1)), "kind")
    assert [(row.name, row.time_s, row.count) for row in table.rows] == [
        ("linear", pytest.approx(0.7), 2),
        ("norm", 0.1, 1),
    ]
    assert table.remainder_s == pytest.approx(0.2)
    assert table.remainder == "unattributed"


def test_ops_that_add_up_to_more_than_the_phase_overlap():
    table = split_phase(forward(computing(0.8), computing(0.7)), "kind")
    assert table.remainder_s == pytest.approx(-0.5)
    assert table.remainder == "overlapping"


def test_a_layer_is_what_stands_up_to_its_number():
    names = ("layers.0.attn.q", "layers.0.mlp.up", "layers.11.mlp.up", "model/layers_3/fc", "head.norm", "conv1")
    table = split_phase(forward(*(op(name, "linear", 0.1, block="b") for name in names)), "layer")
    assert {row.name: row.count for row in table.rows} == {"layers.0": 2, "layers.11": 1, "b": 2, "model/layers_3": 1}


def test_equal_layers_that_a_prediction_counts_together_stand_under_their_block():
    one = OpTime(name="layers.0.mlp.up", kind="linear", time_s=0.1, block="decoder", count=32)
    assert split_phase(forward(one), "layer").rows[0].name == "decoder"


def test_a_request_is_the_prompt_and_every_step_after_the_first_token():
    table = by_phase(text(1.0, 0.1, generate=11))
    assert {row.name: row.time_s for row in table.rows} == {"prefill": 1.0, "decode": pytest.approx(1.0)}
    assert table.remainder_s == 0.0


def test_one_time_costs_are_in_no_request():
    found = profile(Phase(name="load", time_s=9.0), Phase(name="first_run", time_s=2.0), forward(computing(1.0)))
    assert repeats(found) == {"forward": 1.0}
    assert by_phase(found).whole_s == 1.0


@pytest.mark.parametrize("name", ["import", "load", "compile prefill", "compile decode", "capture", "first_run"])
def test_what_an_engine_does_once_is_in_no_request_by_whatever_name(name):
    once = Phase(name=name, time_s=30.0)
    found = by_phase(profile(once, forward(computing(1.0))))
    assert [row.name for row in found.rows] == ["forward"]
    assert found.remainder_s == pytest.approx(0.0)


def test_what_a_request_takes_beyond_its_phases_is_the_remainder():
    found = text(1.0, 0.1, generate=11, summary=Headline(e2e_s=2.5, ttft_s=1.0, tpot_s=0.1))
    assert by_phase(found).remainder_s == pytest.approx(0.5)


def test_host_and_device_by_the_devices_own_clock():
    table = by_host(forward(op("a", "linear", 0.5, unit="gpu", device_s=0.3), op("b", "sort", 0.2)))
    assert {row.name: row.time_s for row in table.rows} == {"device": 0.3, "host": pytest.approx(0.4)}
    assert table.remainder_s == pytest.approx(0.3)


def test_host_and_device_by_unit_where_there_is_no_such_clock():
    table = by_host(forward(op("a", "linear", 0.5, unit="npu"), op("b", "sort", 0.2)))
    assert {row.name: row.time_s for row in table.rows} == {"device": 0.5, "host": 0.2}


def test_a_run_on_the_cpu_has_no_two_sides():
    assert by_host(forward(computing(1.0))) is None


def test_parts_are_the_engines_own():
    table = by_parts(forward(parts={"write": 0.1, "run": 0.7, "read": 0.1}))
    assert table.rows[0].name == "run"
    assert table.remainder_s == pytest.approx(0.1)
