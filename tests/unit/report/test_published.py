"""Published measurements as text, documents and our own CSV form."""

import csv
import io

import pytest

from inferometer.atlas.measurement import AtlasSource, PublishedMeasurement
from inferometer.atlas.reading import read_atlas
from inferometer.report.published import apart_text, beside_fact, listing_row, measurement_document, tidy_table
from inferometer.report.render import render

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


def test_a_prediction_is_told_how_far_it_is_from_what_others_measured():
    label, figure, remark = beside_fact(ROW, SOURCE, phase="forward", predicted_s=0.006)
    assert (label, figure) == ("others measured", "5 ms")
    assert remark == "AI Hub, qnn 2.50, dlc, 2026-10, i8 weights; the prediction is 20 % longer"


@pytest.mark.parametrize(
    ("predicted_s", "text"),
    [(1.002, "the same"), (0.9, "10 % shorter"), (3.0, "3.0 × as long"), (0.25, "4.0 × shorter")],
)
def test_distances_are_said_as_people_say_them(predicted_s, text):
    assert text in apart_text(predicted_s, 1.0)
