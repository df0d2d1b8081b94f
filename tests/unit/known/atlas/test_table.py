"""The table: columns, conversions, keeping; and the tables that the package has."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core.errors import DomainError, FormatError, SchemaError, UnitError, UnknownNameError
from inferometer.known.atlas.measurement import QUANTITIES, RATES, TIMES, PublishedMeasurement, seconds_of, unit_named
from inferometer.known.atlas.names import timm_names
from inferometer.known.atlas.shipped import (
    index,
    load,
    read_table,
    shipped_datasets,
    source_named,
    sources,
    tables_with,
    write_table,
)
from inferometer.known.atlas.table import joined, table_of
from workshop.atlas.renaming import renamed

ROOT = Path(__file__).parents[4]
_RATED = {"inputs/s": ("forward", "stream"), "tokens/s": ("decode", "prefill", "tokens")}
_TEXT = st.one_of(st.none(), st.text(max_size=5))
_COUNT = st.one_of(st.none(), st.integers(1, 10**6))


@st.composite
def measurements(draw):
    unit = draw(st.sampled_from((*TIMES, "inputs/s", "tokens/s", "tokens/s/device")))
    allowed = tuple(QUANTITIES) if unit in TIMES else _RATED[unit.removesuffix("/device")]
    figure = draw(st.floats(1e-6, 1e6).map(lambda value: float(f"{value:.6g}")))
    ends = draw(st.one_of(st.just((None, None)), st.just((figure / 2, figure * 2))))
    return PublishedMeasurement(
        dataset="d", source="s", file="f.csv", line=draw(st.integers(2, 10**6)), device_published=draw(st.text()),
        model_published="m", quantity=draw(st.sampled_from(allowed)), figure=figure, figure_unit=unit,
        device=draw(_TEXT), batch=draw(_COUNT), prompt=draw(_COUNT), count=draw(st.integers(1, 64)),
        settings=draw(st.dictionaries(st.sampled_from(["tp", "threads"]), st.sampled_from(["1", "2"]))),
        low=ends[0], high=ends[1],
    )  # fmt: skip


@settings(max_examples=40)
@given(rows=st.lists(measurements(), max_size=6))
def test_a_table_holds_what_was_put_in_and_computes_the_same_seconds(rows):
    table = table_of(rows)
    assert list(table.rows()) == rows
    assert table["seconds"] == pytest.approx([row.seconds for row in rows])
    assert all(row.seconds > 0 for row in rows)
    for low, high, row in zip(table["low_s"], table["high_s"], rows, strict=True):
        assert (low, high) == pytest.approx((row.low_s or math.nan, row.high_s or math.nan), nan_ok=True)
        assert row.low_s is None or row.low_s <= row.seconds <= row.high_s


@settings(max_examples=20)
@given(rows=st.lists(measurements(), max_size=6))
def test_a_table_that_was_kept_is_the_same_table(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("atlas") / "t.json.gz"
    write_table(path, table_of(rows))
    kept = list(read_table(path).rows())
    assert [row.line for row in kept] == [row.line for row in rows]
    assert [(row.device_published, row.device, row.settings) for row in kept] == [
        (row.device_published, row.device, row.settings) for row in rows
    ]
    assert [row.seconds for row in kept] == pytest.approx([row.seconds for row in rows], rel=1e-6)


def test_a_rate_is_turned_round_by_what_the_quantity_is_of():
    assert seconds_of(1000.0, "inputs/s", "forward", batch=8) == 0.008
    assert seconds_of(1000.0, "inputs/s", "stream", batch=8) == 0.001
    assert seconds_of(1000.0, "tokens/s", "decode", batch=8) == 0.008
    assert seconds_of(1000.0, "tokens/s", "prefill", batch=2, prompt=500) == 1.0
    assert seconds_of(1000.0, "tokens/s/device", "tokens", count=4) == 0.00025
    with pytest.raises(UnitError, match="cannot be published in inputs/s"):
        seconds_of(1.0, "inputs/s", "decode")


def test_units_are_known_in_many_spellings_and_others_are_refused():
    assert {unit_named(text) for text in ("FPS", "images/s", "inf./sec.")} == {"inputs/s"}
    assert unit_named(" ms. ") == "ms"
    assert unit_named("Tokens per sec") == "tokens/s"
    with pytest.raises(UnitError, match="neither a time nor a rate"):
        unit_named("GB/s")


def _rows():
    shared = {"dataset": "d", "source": "s", "file": "f", "model_published": "m", "quantity": "forward",
              "figure": 1.0, "figure_unit": "ms"}  # fmt: skip
    return [
        PublishedMeasurement(line=2, device_published="a", unit="npu", date="2024", **shared),
        PublishedMeasurement(line=3, device_published="b", unit="cpu", date="2026-10", batch=4, **shared),
        PublishedMeasurement(line=4, device_published="c", unit="npu", **shared),
    ]


def test_rows_are_chosen_ordered_and_joined():
    table = table_of(_rows())
    assert table.where(unit="npu")["line"].tolist() == [2, 4]
    assert table.where(device_published=["a", "b"])["line"].tolist() == [2, 3]
    assert table.where(batch=4)["line"].tolist() == [3]
    assert table.where(batch=None)["line"].tolist() == [2, 4]
    assert table.newest_first()["line"].tolist() == [3, 2, 4]
    assert joined([table, table.where(unit="cpu")])["device_published"].tolist() == ["a", "b", "c", "b"]
    assert joined([]).where(unit="npu")["seconds"].tolist() == []
    assert set(table.columns) >= {"seconds", "device", "batch"}
    with pytest.raises(DomainError, match="Did you mean seconds"):
        table["secconds"]


def test_a_file_that_is_no_table_or_of_a_later_version_is_refused(tmp_path):
    import gzip

    path = tmp_path / "t.json.gz"
    path.write_bytes(b"nonsense")
    with pytest.raises(FormatError):
        read_table(path)
    path.write_bytes(gzip.compress(b'{"schema": "inferometer.atlas/99"}'))
    with pytest.raises(SchemaError, match="Upgrade"):
        read_table(path)


# the tables of the package


@pytest.fixture(scope="module")
def atlas():
    return load(shipped_datasets())


def test_every_shipped_row_is_positive_sourced_and_allowed(atlas):
    assert len(atlas) > 50_000
    assert np.all(atlas["seconds"] > 0)
    assert set(atlas.distinct("quantity")) <= set(QUANTITIES)
    assert set(atlas.distinct("figure_unit")) <= {*TIMES, *RATES}
    assert all(sources()[key].shipped and sources()[key].licence for key in atlas.distinct("source"))


def test_the_pages_say_how_many_there_are(atlas):
    for page in ("README.md", "docs/atlas.md"):
        assert f"{len(atlas):,} published" in (ROOT / page).read_text(encoding="utf-8")
    assert f"of {len(atlas.distinct('device_published'))} devices" in (ROOT / "docs/atlas.md").read_text(
        encoding="utf-8"
    )


def test_the_index_finds_every_model_and_device(atlas, tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    assert set(index().models) == set(atlas.distinct("model")) - {None}
    assert set(index().devices) == set(atlas.distinct("device")) - {None}
    for model, device in (("timm:resnet101", "nvidia-rtx-4090"), ("llama-3.1-8b", None)):
        wanted = {"model": model} if device is None else {"model": model, "device": device}
        found = sum(len(table.where(**wanted)) for table in tables_with([model], device))
        assert found == len(atlas.where(**wanted)) > 0
    assert tables_with(["no-such-model"]) == ()


def test_the_names_in_the_package_are_those_that_the_rules_give_today(atlas):
    """If not: `python -m workshop.atlas.build --names`."""
    now = renamed(atlas)
    assert [str(was) for was in atlas["model"]] == [str(name) for name in now["model"]]
    assert [str(was) for was in atlas["device"]] == [str(name) for name in now["device"]]


def test_timms_rows_are_of_models_that_timm_has(atlas):
    named = {str(model).removeprefix("timm:") for model in atlas.where(dataset="timm").distinct("model")}
    assert len(named - timm_names()) < 12  # architectures that later releases have dropped


def test_an_unknown_dataset_suggests_and_a_source_links_to_its_page():
    with pytest.raises(UnknownNameError, match="Did you mean timm"):
        load(["tim"])
    assert source_named("timm").link("x.csv").endswith("/results/x.csv")
    assert source_named("timm").link(None).endswith("/results")
    assert source_named("somebody").short == "somebody"
