"""Rows: columns as arrays, choices among them, and what they say of rows that cannot be."""

from dataclasses import fields
from itertools import product

import numpy as np
import pytest

from inferometer import predict
from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.profile import Headline
from inferometer.predict.ask import ask
from inferometer.predict.options import HostCosts, Hosting, Options
from inferometer.predict.sweep import DETAILS, Rows, run_study, sweep
from inferometer.predict.sweep.rows import front, parse_condition
from inferometer.predict.sweep.table import table_of
from unit.predict.sweep.studies import device, graph, small


@pytest.fixture(scope="module")
def rows():
    return run_study(small())


def test_one_row_a_configuration_with_the_columns_of_the_summary_and_the_inputs(rows):
    assert len(rows) == 48
    of_one = {"energy_low_j", "energy_high_j"}  # of one prediction: a sweep has no interval of its energies
    assert {entry.name for entry in fields(Headline)} - of_one < {*rows.columns, *DETAILS}
    assert {"model", "device", "runtime", "weights", "batch", "prompt", "context", "tp"} < {*rows.columns}
    for name in rows.columns:
        assert rows[name].shape == (48,)


@pytest.mark.parametrize("most", [1, 5, 7, 24])
def test_a_column_is_the_same_in_pieces_of_any_length(monkeypatch, rows, most):
    monkeypatch.setattr("inferometer.predict.sweep.answer._PIECE_ROWS", most)
    found = run_study(small())
    (part,) = found.parts
    assert sum(map(len, part.pieces())) == len(rows)
    for name in rows.columns:
        np.testing.assert_array_equal(found[name], rows[name])
        np.testing.assert_array_equal(found[name], np.broadcast_to(part.column(name), part.shape).ravel())


def test_rows_are_the_product_in_order(rows):
    expected = [*product(("nvidia-h200", "nvidia-l4"), ("bf16", "q4_0"), (1, 8), (16, 512, 2048), (100, 200_000))]
    columns = [rows[name].tolist() for name in ("device", "weights", "batch", "prompt", "context")]
    assert [*zip(*columns, strict=True)] == expected


def test_columns_have_the_type_that_fits_them(rows):
    assert rows["model"].dtype == object
    assert rows["batch"].dtype == np.int64
    assert rows["tpot_s"].dtype == float
    assert rows["peak_memory_bytes"].dtype == float  # some are not known, which no int can say
    assert sweep(graph(), device(), context=100)["peak_memory_bytes"].dtype == np.int64
    assert sweep(graph(), device(), context=100)["fits"].dtype == bool


def test_a_row_that_cannot_be_says_why_and_has_no_numbers(rows):
    beyond = rows["context"] == 200_000
    assert all("window of 131072 tokens" in reason for reason in rows["reason"][beyond])
    assert all(reason is None for reason in rows["reason"][~beyond])
    assert np.isnan(rows["tpot_s"][beyond]).all()
    assert all(value is None for value in rows["fits"][beyond])
    assert all(value is None for value in rows["top_unit"][beyond])
    assert not np.isnan(rows["tpot_s"][~beyond]).any()


def test_a_combination_that_cannot_be_is_rows_with_a_reason():
    rows = sweep(graph(), [device("google-coral-edge-tpu"), device()], tp=[1, 3], context=[1, 2])
    reasons = rows["reason"].tolist()
    assert ["no peak for bf16" in (reason or "") for reason in reasons] == [True] * 2 + [False] * 6
    assert ["tp=3 does not divide" in (reason or "") for reason in reasons[-2:]] == [True, True]
    assert rows["model"].tolist() == ["llama-3.2-1b"] * 8


def test_the_verbs_can_be_called_again_when_their_packages_are_loaded():
    import inspect

    import inferometer

    for _ in range(2):  # the first call imports packages, one of which has a verb's name
        assert len(inferometer.sweep(models="llama-3.2-1b", devices=["nvidia-l4"], context=[1, 2])) == 2
        assert inferometer.predict("llama-3.2-1b", on="nvidia-l4").kind == "predicted"
    assert inferometer.predict.sweep.study_of is not None
    assert [*inspect.signature(inferometer.predict).parameters][:3] == ["model", "on", "runtime"]


@pytest.mark.parametrize("asked", [{"tp": 3}, {"pp": 40}, {"context": 10**7}, {"tp": 8}])
def test_of_several_reasons_a_row_has_the_one_that_a_prediction_gives(asked):
    asked = {"dp": 2, "batch": 1, "context": 100, **asked}
    place = Options(place=Hosting(instance="aws-p5en.48xlarge"))
    for on in (device(), device("nvidia-l4"), device("apple-m4-pro-ane")):
        with pytest.raises(DomainError) as caught:
            predict(graph(), on=on, runtime="ideal", options=place, **asked)
        assert sweep(graph(), on, runtimes="ideal", options=place, **asked)["reason"].tolist() == [str(caught.value)]


def test_a_column_that_is_not_there_is_an_error_that_suggests(rows):
    with pytest.raises(UnknownNameError, match="Did you mean tpot_s"):
        rows["tpott_s"]
    with pytest.raises(DomainError, match="by name"):
        rows[0]
    assert "tpot_s" in rows
    assert "tpott_s" not in rows


def test_records_are_plain_values(rows):
    first, second = [*rows.records()][:2]
    assert first["peak_memory_bytes"] == int(rows["peak_memory_bytes"][0])
    assert type(first["batch"]) is int
    assert first["image"] is None
    assert second["tpot_s"] is None
    assert first["fits"] is True
    assert next(iter(rows)) == first


def test_rows_can_be_taken_by_place_and_by_flag(rows):
    picked = rows.take([47, 0, 13])
    for name in ("device", "batch", "prompt", "context", "ttft_s"):
        np.testing.assert_array_equal(picked[name], rows[name][[47, 0, 13]])
    flags = rows["batch"] == 8
    assert len(rows.take(flags)) == 24
    assert len(rows.take([])) == 0
    with pytest.raises(DomainError, match="outside"):
        rows.take([48])
    with pytest.raises(DomainError, match="flags"):
        rows.take([True])


def test_no_rows_have_columns_of_no_values():
    empty = Rows([])
    assert len(empty) == 0
    assert empty["tpot_s"].shape == empty["model"].shape == (0,)
    assert len(empty.pareto("tpot_s", "energy_j")) == 0
    detailed = table_of([{"batch": 3, "decode_bound": "memory"}], details=True)
    beside = Rows([table_of([], details=False), detailed])
    assert beside.columns == Rows([detailed]).columns
    assert (beside["batch"].tolist(), beside["decode_bound"].tolist(), len(beside.parts)) == ([3], ["memory"], 1)


def test_a_sweep_may_be_cut_into_any_chunks(rows):
    for most in (1, 5, 24):
        other = run_study(small(chunk_rows=most))
        for name in rows.columns:
            np.testing.assert_array_equal(rows[name], other[name])


def dominated(points, place):
    others = np.delete(points, place, axis=0)
    return bool(np.any(np.all(others <= points[place], axis=1) & np.any(others < points[place], axis=1)))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_the_front_is_what_nothing_dominates(width):
    generator = np.random.default_rng(width)
    points = generator.integers(0, 12, size=(300, width)).astype(float)
    expected = [place for place in range(len(points)) if not dominated(points, place)]
    assert front(points).tolist() == expected
    first = {tuple(points[place]): place for place in reversed(expected)}
    assert front(points, ties=False).tolist() == sorted(first.values()), "of equal points the first, in their order"


def test_the_pareto_front_of_rows_is_that_of_all_that_can_be(rows):
    found = rows.pareto("tpot_s", "usd_per_million_tokens")
    possible = rows.take(~np.isnan(rows["tpot_s"]))
    points = np.stack([possible["tpot_s"], possible["usd_per_million_tokens"]], axis=1)
    expected = [place for place in range(len(points)) if not dominated(points, place)]
    assert len(found) == len(expected)
    assert sorted(found["tpot_s"]) == sorted(points[expected, 0])
    assert (np.diff(found["tpot_s"]) >= 0).all()


def test_a_front_has_no_row_that_lacks_one_of_its_figures():
    made = [{"tpot_s": 1.0, "energy_j": None}, {"tpot_s": None, "energy_j": 1.0}, {"tpot_s": 3.0, "energy_j": 3.0}]
    found = Rows([table_of([{**each, "fits": True} for each in made])]).pareto("tpot_s", "energy_j")
    assert found["tpot_s"].tolist() == [3.0]


def test_more_tokens_a_second_are_better(rows):
    found = rows.pareto("tokens_per_s")
    assert {*found["tokens_per_s"]} == {np.nanmax(rows["tokens_per_s"])}


def test_a_front_leaves_out_what_does_not_fit():
    rows = sweep(graph("llama-3.1-70b"), [device("nvidia-h100-sxm"), device("nvidia-l4")], tp=[1, 8], context=100)
    assert rows["fits"].tolist() == [False, True, False, True]
    assert {*rows.pareto("usd_per_million_tokens")["tp"].tolist()} == {8}
    assert len(rows.pareto("peak_memory_bytes", "tpot_s", only_fitting=False)) > 0


def test_a_front_needs_numbers(rows):
    with pytest.raises(DomainError, match="needs columns"):
        rows.pareto()
    with pytest.raises(DomainError, match="no numbers"):
        rows.pareto("device")


def test_the_cheapest_device_that_meets_a_limit_comes_first(rows):
    found = rows.cheapest("tpot_s<=10ms", "ttft_s < 0.5")
    assert (np.diff(found["usd_per_million_tokens"]) >= 0).all()
    assert len({*found["device"].tolist()}) == len(found) == 2
    meeting = (rows["tpot_s"] <= 0.01) & (rows["ttft_s"] < 0.5)
    assert found["usd_per_million_tokens"][0] == rows["usd_per_million_tokens"][meeting].min()


def test_nothing_meets_a_limit_that_nothing_can_meet(rows):
    assert len(rows.cheapest("tpot_s<1ns")) == 0


def test_cheap_may_mean_something_else(rows):
    found = rows.cheapest("tpot_s<1", by="energy_j")
    assert found["energy_j"].min() == np.nanmin(rows["energy_j"])


@pytest.mark.parametrize("text", ["tpot_s", "<=3", "tpot_s <= fast", "tpot_s<=3 GB", "model<=3", "tpott<=3", ""])
def test_a_condition_that_cannot_be_read_is_refused(text):
    from inferometer.core.errors import InferometerError

    with pytest.raises(InferometerError):
        parse_condition(text)


def test_conditions_take_units_of_their_column():
    assert parse_condition("tpot_s<=50ms").limit == 0.05
    assert parse_condition("peak_memory_bytes < 24 GB").limit == 24e9
    assert parse_condition("tokens_per_s>=100").limit == 100
    assert parse_condition("batch==4").comparison == "="


def test_host_costs_count_as_in_a_prediction():
    options = Options(host=HostCosts(tokenise_s_per_token=1e-6, sampling_s=1e-4, detokenise_s_per_token=1e-5))
    asked = {"runtimes": "ideal", "batch": 4, "prompt": 128, "generate": [1, 16]}
    rows = sweep(graph(), device(), options=options, **asked)
    for place, generate in enumerate((1, 16)):
        summary = predict(
            graph(), on=device(), runtime="ideal", batch=4, prompt=128, generate=generate, options=options
        ).summary
        assert rows["ttft_s"][place] == pytest.approx(summary.ttft_s, rel=1e-12)
        assert rows["e2e_s"][place] == pytest.approx(summary.e2e_s, rel=1e-12)


def calibrated(dtype, share, **more):
    rising = Utilisation(
        op_class="linear", stream="hbm", axes=("rows", "in_features"), grid=((1.0, 64.0), (512.0, 8192.0)),
        values=(0.5 * share, 0.8 * share, 0.6 * share, share), residual=0.05,
    )  # fmt: skip
    named = {"device": "nvidia-h200", "runtime": "torch-compile", "dtype": dtype, "created": "2026-01-01", **more}
    return Calibration(**named, tables=(rising,))


COMPILED = "torch-compile"  # what the H200 has a calibration of


def test_a_calibration_that_is_given_counts_as_in_a_prediction():
    given, asked = calibrated("bf16", 0.9), {"batch": [1, 2, 33, 100], "prompt": [1, 700], "context": [5, 5000]}
    machines = [device(), device("nvidia-l4")]
    rows, kept = (
        sweep(graph(), machines, runtimes=COMPILED, calibrations=[given], **asked),
        sweep(graph(), machines, runtimes=COMPILED, **asked),
    )
    assert (rows["tpot_s"][:16] != kept["tpot_s"][:16]).all()
    assert (rows["tpot_s"][16:] == kept["tpot_s"][16:]).all()  # it is of another device
    for place, (batch, prompt, context) in enumerate(product(*asked.values())):
        summary = predict(
            graph(), on=device(), runtime=COMPILED, calibration=given, batch=batch, prompt=prompt, context=context
        ).summary
        assert rows["tpot_s"][place] == pytest.approx(summary.tpot_s, rel=1e-9)
        assert rows["ttft_s"][place] == pytest.approx(summary.ttft_s, rel=1e-9)


def test_of_several_calibrations_that_are_given_each_format_has_its_own():
    given = [calibrated("f32", 0.3), calibrated("bf16", 0.9), calibrated("bf16", 0.1, runtime="torch-eager")]
    rows = sweep(
        graph(), device(), runtimes=COMPILED, activations=["bf16", "f32", "f16"], context=100, calibrations=given
    )
    expected = [
        predict(
            graph(), on=device(), runtime=COMPILED, activations=name, context=100, calibration=given[which]
        ).summary.tpot_s
        for name, which in (("bf16", 1), ("f32", 0), ("f16", 0))  # where none fits, the first
    ]
    assert rows["tpot_s"].tolist() == pytest.approx(expected, rel=1e-12)


def test_calibrations_that_are_kept_can_be_left_out():
    rows, priors = (
        sweep(graph(), device(), runtimes=COMPILED, context=[100], calibrated=kept)["tpot_s"][0]
        for kept in (True, False)
    )
    assert rows == pytest.approx(predict(graph(), on=device(), runtime=COMPILED, context=100).summary.tpot_s, rel=1e-12)
    assert priors == pytest.approx(
        predict(graph(), on=device(), runtime=COMPILED, context=100, calibrated=False).summary.tpot_s
    )
    assert rows != priors


def test_a_table_of_records_knows_what_is_missing():
    table = table_of([{"model": "a", "batch": 1}, {"model": "b", "tpot_s": 0.5}])
    rows = Rows([table])
    assert rows["tpot_s"].tolist()[1] == 0.5
    assert np.isnan(rows["tpot_s"][0])
    assert rows["reason"].tolist() == [None, None]


@pytest.mark.parametrize("runtime", ["vllm", "llamacpp"])
def test_what_an_engine_keeps_for_itself_is_taken_from_the_room_as_in_fit(runtime):
    batches = [*range(1, 10)]  # a gigabyte each, up to the card's memory and past it
    rows = sweep("llama-3.1-8b", "nvidia-l4", batch=batches, runtimes=runtime, context=8192, calibrated=False)
    asked = {"on": "nvidia-l4", "runtime": runtime, "context": 8192, "calibrated": False}
    fits = [ask("llama-3.1-8b", batch=batch, **asked).fit().fits for batch in batches]
    assert rows["fits"].tolist() == fits
    assert 1 < sum(fits) < len(fits)
