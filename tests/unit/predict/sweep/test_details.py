"""Columns that rows have where they were asked for: the ends of each time's interval, and what bounds each phase."""

from itertools import product

import numpy as np
import pytest

from inferometer import predict
from inferometer.core.errors import DomainError, FormatError
from inferometer.predict.options import HostCosts, Options
from inferometer.predict.sweep import COLUMNS, DETAILS, Saved, parse_spec, read_rows, run_study, stream, study_of, sweep
from inferometer.predict.sweep.rows import without_figures
from unit.predict.sweep.studies import device, graph
from unit.predict.sweep.test_write import FORMS

ASKED = {"weights": ["bf16", "q4_0"], "batch": [1, 8], "prompt": [16, 512], "generate": [1, 32], "context": [None, 100]}


def rows_with(**more):
    return sweep(graph(), [device(), device("raspberry-pi-5")], **{**ASKED, **more})


@pytest.fixture(scope="module")
def rows():
    return rows_with(details=True)


def test_they_come_after_all_others_which_stay_what_they_are(rows):
    assert rows.columns == (*COLUMNS, *DETAILS)
    plain = rows_with()
    assert plain.columns == tuple(COLUMNS)
    for name in plain.columns:
        np.testing.assert_array_equal(rows[name], plain[name])


def test_rows_without_them_say_how_to_get_them():
    plain = rows_with()
    assert "tpot_low_s" not in plain
    with pytest.raises(DomainError, match="details=True"):
        plain["tpot_low_s"]


def test_every_time_lies_between_its_ends(rows):
    for name in ("ttft", "tpot", "e2e"):
        known = ~np.isnan(rows[f"{name}_s"])
        assert known.any()
        low, time, high = (rows[f"{name}{end}_s"] for end in ("_low", "", "_high"))
        np.testing.assert_array_equal(np.isnan(low), ~known)
        assert (low[known] < time[known]).all()
        assert (time[known] < high[known]).all()


def test_they_are_those_of_the_prediction():
    options = Options(host=HostCosts(tokenise_s_per_token=1e-4, sampling_s=2e-3, detokenise_s_per_token=1e-3))
    rows = sweep(graph(), device(), runtimes="torch-compile", batch=[1, 4], prompt=[64, 512], generate=8,
                 options=options, details=True)  # fmt: skip
    for row, (batch, prompt) in zip(rows, product((1, 4), (64, 512)), strict=True):
        profile = predict(graph(), on=device(), runtime="torch-compile", batch=batch, prompt=prompt, generate=8,
                          options=options)  # fmt: skip
        for end in ("low", "high"):
            for name in ("latency", "ttft", "tpot", "e2e"):
                seconds = getattr(profile.summary, f"{name}_{end}_s")
                assert row[f"{name}_{end}_s"] == (None if seconds is None else pytest.approx(seconds, rel=1e-9))
        assert (row["prefill_bound"], row["decode_bound"]) == tuple(
            profile.phase(name).bound for name in ("prefill", "decode")
        )


def test_a_step_is_bound_by_memory_a_long_prompt_by_arithmetic_and_an_image_by_the_host():
    rows = sweep(graph("llama-3.1-8b"), device(), runtimes="ideal", prompt=8192, generate=2, details=True)
    assert rows["prefill_bound"].tolist() == ["compute"]
    assert rows["decode_bound"].tolist() == ["memory"]
    assert rows["forward_bound"].tolist() == [None]
    one = sweep(graph("resnet50"), device(), runtimes="torch-eager", details=True)
    assert one["forward_bound"].tolist() == ["overhead"]  # one image: the GPU waits for its host
    assert one["prefill_bound"].tolist() == [None]
    assert one["latency_low_s"][0] < one["latency_s"][0] < one["latency_high_s"][0]


def test_a_row_that_cannot_be_has_none_of_them():
    rows = sweep(graph(), device(), runtimes="torch-compile", tp=[1, 3], context=[10, 10**7], details=True)
    assert [row["decode_bound"] is None for row in rows] == [False, True, True, True]
    assert np.isnan(rows["tpot_high_s"]).tolist() == [False, True, True, True]


@pytest.mark.parametrize("form", FORMS)
def test_files_have_them_too(tmp_path, rows, form):
    path = tmp_path / f"rows.{form}"
    asked = {"models": graph(), "devices": [device(), device("raspberry-pi-5")], **ASKED}
    stream(study_of(asked, details=True, chunk_rows=5), path)
    found = read_rows(path)
    assert found.columns == rows.columns
    for name in ("decode_bound", "ttft_s", "device"):
        np.testing.assert_array_equal(found[name], rows[name])
    for name in ("tpot_low_s", "e2e_high_s"):  # the last bit depends on where the points are cut
        np.testing.assert_allclose(found[name], rows[name], rtol=1e-12)
    assert len(Saved(path).cheapest("tpot_high_s<=50ms")) == len(rows.cheapest("tpot_high_s<=50ms"))


def test_a_front_may_be_of_the_worst_case(rows):
    front = rows.pareto("tpot_high_s", "energy_j")
    assert 0 < len(front) < len(rows)
    assert front.columns == rows.columns


def test_rows_one_by_one_have_them():
    rows = sweep(graph(), device(), prompt=[100], generate=4, options=Options(chunk=30), details=True)
    assert rows.columns == (*COLUMNS, *DETAILS)
    assert rows["ttft_low_s"][0] < rows["ttft_s"][0] < rows["ttft_high_s"][0]
    assert rows["prefill_bound"][0] is not None


@pytest.mark.parametrize("key", ["details", "priors"])
def test_a_spec_may_ask_for_them_and_for_no_calibrations(key):
    assert getattr(parse_spec(f"{key} = true", "grid.toml"), key)
    assert not getattr(parse_spec("", "grid.toml"), key)
    with pytest.raises(FormatError, match="true or false"):
        parse_spec(f"{key} = 1", "grid.toml")


def test_an_encoder_decoder_has_a_plan_for_each_prompt_and_rows_in_their_order():
    asked = {"batch": [1, 4], "prompt": [64, 512, 1000], "generate": [1, 16], "context": [None, 7]}
    study = study_of({"models": graph("t5-small"), "devices": device(), **asked}, details=True)
    rows = run_study(study)
    assert len(rows) == 24
    for row, sizes in zip(rows, product(*asked.values()), strict=True):
        assert tuple(row[name] for name in asked) == sizes
        summary = predict(graph("t5-small"), on=device(), **dict(zip(asked, sizes, strict=True))).summary
        for name in ("ttft_s", "tpot_s", "e2e_s", "energy_j", "peak_memory_bytes"):
            expected = getattr(summary, name)
            assert row[name] == (None if expected is None else pytest.approx(expected, rel=1e-12)), name


def test_an_encoder_decoder_that_cannot_be_says_why_in_every_row():
    rows = sweep(graph("t5-small"), device(), tp=3, prompt=[64, 512], generate=[2, 4])
    assert ["does not divide" in reason for reason in rows["reason"]] == [True] * 4
    assert rows["prompt"].tolist() == [64, 64, 512, 512]


def test_devices_that_lack_a_figure_of_a_front_are_named_with_it():
    """Where some rows of a device have them all it is in the running, and is not named."""
    rows = sweep(graph("resnet50"), [device(), device("raspberry-pi-3b-plus")], batch=[1, 2])
    assert without_figures(rows.parts, ["latency_s", "energy_j"]) == {"raspberry-pi-3b-plus": ("energy_j",)}
    assert without_figures(rows.parts, ["latency_s"]) == {}
