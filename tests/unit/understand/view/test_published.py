"""Published measurements as text, documents and our own CSV form."""

import csv
import io
from dataclasses import replace

import pytest

from inferometer.known.atlas.measurement import AtlasSource, PublishedMeasurement
from inferometer.known.atlas.reading import read_atlas
from inferometer.predict.published import BesidePublished
from inferometer.understand.view.published import (
    apart_text,
    beside_documents,
    beside_facts,
    cited,
    engine_text,
    formats_text,
    listing_row,
    listing_table,
    measurement_document,
    sizes_text,
    tidy_table,
)
from inferometer.understand.view.render import render

ROW = PublishedMeasurement(
    dataset="qai-hub", source="qai-hub", place="vit", file="f.csv", line=7, date="2026-10",
    device_published="Q-8750 (board)", device_spelling="Q-8750 (board)|Galaxy S25", unit="npu", model_published="vit",
    model="timm:vit_base_patch16_224", engine="qnn", version="2.50.0", settings={"form": "dlc"}, weights="i8",
    activations="i8", batch=1, image=224, quantity="forward", figure=5.0, figure_unit="ms", low=4.0, high=6.0,
)  # fmt: skip
SOURCE = AtlasSource(
    key="qai-hub", title="AI Hub Models", short="AI Hub", url="https://x/{place}", licence="BSD-3-Clause"
)


def test_a_line_names_every_device_of_the_job_and_the_settings_that_tell():
    row = listing_row(ROW, SOURCE)
    assert row["device"] == "Q-8750 / Galaxy S25 npu"
    assert row["runtime"] == "qnn 2.50, dlc"
    assert (row["sizes"], row["seconds"], row["source"]) == ("image 224", 0.005, "AI Hub")


def test_a_document_has_the_seconds_and_the_link_of_the_row():
    plain = measurement_document(ROW, SOURCE)
    assert (plain["seconds"], plain["low_s"], plain["high_s"]) == (0.005, 0.004, 0.006)
    assert plain["source"]["url"] == "https://x/vit"
    assert "prompt" not in plain


def test_our_own_form_can_be_read_back(tmp_path):
    text = render(tidy_table([ROW]), "csv")
    assert next(csv.reader(io.StringIO(text)))[:2] == ["device", "model"]
    path = tmp_path / "back.csv"
    path.write_text(text, encoding="utf-8")
    (back,) = read_atlas(path).table.rows()
    same = ("device_published", "model_published", "model", "engine", "settings", "weights", "image", "seconds", "low")
    assert [getattr(back, name) for name in same] == [getattr(ROW, name) for name in same]


def beside(row, phase, predicted_s):
    return BesidePublished(phase=phase, predicted_s=predicted_s, measured=row)


def told(*besides):
    return beside_facts(besides, model="llama-3.1-8b", device="nvidia-h200")


@pytest.fixture(autouse=True)
def _our_source(monkeypatch):
    monkeypatch.setattr("inferometer.known.atlas.shipped.source_named", lambda _: SOURCE)


def test_a_prediction_is_told_how_far_it_is_from_what_others_measured():
    ((label, figure, remark),) = told(beside(ROW, "forward", 0.006))
    assert (label, figure) == ("others measured", "5 ms")
    assert remark == "AI Hub, qnn 2.50, dlc, 2026-10, i8 weights; the prediction is 20 % longer"


@pytest.mark.parametrize(
    ("predicted_s", "text"),
    [(1.002, "the same"), (0.9, "10 % shorter"), (3.0, "3.0 × as long"), (0.25, "4.0 × shorter")],
)
def test_distances_are_said_as_people_say_them(predicted_s, text):
    assert text in apart_text(predicted_s, 1.0)
    assert apart_text(predicted_s, 1.0).startswith("the prediction is ")


@pytest.mark.parametrize(
    ("predicted_s", "text"),
    [(1.0049, "the same"), (1.0051, "1 % longer"), (2.0, "100 % longer"), (2.01, "2.0 × as long"),
     (0.5, "50 % shorter"), (0.499, "2.0 × shorter")],
)  # fmt: skip
def test_distances_change_their_words_at_half_and_double(predicted_s, text):
    assert apart_text(predicted_s, 1.0) == f"the prediction is {text}"


@pytest.mark.parametrize(
    ("given", "device"),
    [({"device": "d"}, "d"), ({"device": "d", "device_spelling": None}, "d"), ({}, ROW.device_spelling),
     ({"device_spelling": None}, ROW.device_published)],
)  # fmt: skip
def test_a_device_goes_by_its_row_its_spelling_or_what_was_published(given, device):
    (row,) = tidy_table([replace(ROW, **given)]).rows
    assert (row["device"], row["model"], row["seconds"]) == (device, ROW.model, 0.005)
    bare = replace(ROW, model=None, model_spelling=None)
    assert [values["model"] for values in tidy_table([bare, replace(bare, model_spelling="s")]).rows] == ["vit", "s"]


def test_what_was_run_is_told_as_far_as_it_is_known():
    assert engine_text(replace(ROW, version="2", settings={"threads": "4", "other": "x", "layout": "nhwc"})) == (
        "qnn 2, nhwc, 4 threads"
    )
    assert engine_text(replace(ROW, version=None, settings={})) == "qnn"
    assert [formats_text(replace(ROW, weights=weights, activations=activations, precision_published="w8"))
            for weights, activations in (("i8", "i8"), ("i4", "i16"), (None, "f16"), (None, None))] == [
        "i8", "i4 / i16", "f16", "w8",
    ]  # fmt: skip
    sizes = replace(ROW, batch=2, image=None, input="x", prompt=3, generate=4, context=0, concurrency=5)
    assert sizes_text(sizes) == "batch 2, input x, prompt 3, generate 4, concurrency 5"
    assert sizes_text(replace(ROW, image=None)) is None
    assert sizes_text(replace(ROW, image=None, context=6)) == "context 6"


def test_who_publishes_its_own_engine_is_named_once():
    assert cited(replace(ROW, engine="AI HUB", version=None, settings={}), SOURCE) == "AI Hub, 2026-10"
    assert cited(replace(ROW, date=None), replace(SOURCE, date="2025")) == "AI Hub, qnn 2.50, dlc, 2025"
    ((label, _, remark),) = told(beside(replace(ROW, settings={"autocast": "yes"}), "decode", 0.005))
    assert (label, remark) == ("others, decode", "AI Hub, qnn 2.50, 2026-10, i8 autocast; the prediction is the same")
    (written,) = beside_documents([beside(ROW, "decode", 0.0075)])
    assert (written["phase"], written["predicted_s"], written["apart"]) == ("decode", 0.0075, pytest.approx(0.5))


def test_where_nobody_measured_the_very_question_the_figures_of_others_are_pointed_at():
    ((label, figures, where),) = told()
    assert (label, figures.endswith("figures")) == ("others measured", True)
    assert where == "otherwise: inferometer atlas --model llama-3.1-8b --device nvidia-h200"
    assert beside_facts((), model="resnet50", device="no-such") == ()


def test_cores_of_a_chip_are_named_where_not_all_ran():
    assert engine_text(replace(ROW, version=None, settings={"cores": "1"})) == "qnn, 1 core"


def test_a_listing_says_how_many_more_there_are():
    rows = [listing_row(ROW, SOURCE)] * 2
    assert listing_table(rows, more=3).note == "3 more: --limit 5 shows them, --format csv has every column."
    assert listing_table(rows).note is None


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({}, "date", "2026-10"), ({"date": None}, "date", "2020"), ({"count": 2, "device": "d"}, "device", "2 × d"),
        ({"device_spelling": None}, "device", "Q-8750 npu"), ({"device_published": "An NPU", "device_spelling": "x"},
                                                              "device", "An NPU"),
        ({"model": None, "part": "encoder"}, "model", "vit (encoder)"), ({}, "published", None),
        ({"figure": 12.5, "figure_unit": "tokens/s/device", "quantity": "decode"}, "published",
         "12.5 tokens/s a device"),
        ({}, "source", "AI Hub"), ({}, "quantity", "forward"),
    ],
)  # fmt: skip
def test_a_line_says_what_is_known_or_what_stands_for_it(given, key, value):
    assert listing_row(replace(ROW, **given), replace(SOURCE, date="2020"))[key] == value


def test_a_users_own_figures_are_told_by_their_line():
    assert listing_row(ROW, replace(SOURCE, licence="yours"))["source"] == "AI Hub, line 7"
