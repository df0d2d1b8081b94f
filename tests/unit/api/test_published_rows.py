"""A figure that is faster than the device can be, and figures that nothing can be said of."""

from dataclasses import replace

from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.predict.published import published_beside
from inferometer.predict.published_rows import impossible
from inferometer.predict.verbs import ask

# 1.24 G parameters at 4.5 bits are 0.7 GB, which a Raspberry Pi 5 reads in 41 ms
ROW = PublishedMeasurement(
    dataset="own", source="own", file="f", line=2, device_published="raspberry-pi-5", device="raspberry-pi-5",
    model_published="llama-3.2-1b", model="llama-3.2-1b", weights="q4_0", batch=1, context=512, quantity="decode",
    figure=950.0, figure_unit="tokens/s",
)  # fmt: skip


def test_a_step_that_beats_the_memory_is_impossible():
    assert "1.053 ms is faster than raspberry-pi-5 can be" in impossible(ROW)
    assert impossible(replace(ROW, figure=9.5)) is None


def test_nothing_is_said_of_what_is_not_known():
    for unknown in ({"model": None}, {"device": None}, {"weights": None}, {"count": 2}, {"part": "encoder"},
                    {"quantity": "tokens"}, {"model": "timm:no_such_net"}):  # fmt: skip
        assert impossible(replace(ROW, **unknown)) is None


def test_a_prediction_finds_what_others_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    question = ask(
        "resnet101", on="nvidia-rtx-4090", batch=512, weights="f16", activations="f16", runtime="torch-eager"
    )
    (beside,) = published_beside(question, question.answer())
    assert (beside.phase, beside.measured.engine, beside.measured.settings["layout"]) == (
        "forward",
        "torch-eager",
        "nhwc",
    )
    assert beside.apart == beside.predicted_s / beside.measured.seconds - 1
    alone = ask("resnet101", on="nvidia-rtx-4090", batch=7, weights="f16")
    assert published_beside(alone, alone.answer()) == ()
