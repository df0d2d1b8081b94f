"""A figure that is faster than the device can be, and figures that nothing can be said of."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from inferometer.core.errors import DomainError
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.predict import published, published_rows
from inferometer.predict.published import published_beside, served_beside
from inferometer.predict.published_rows import impossible, predicted_phase, predicted_seconds, ran_elsewhere
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


BARE = {"batch": 4, "image": None, "weights": "q4_0", "activations": None}


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        ({}, BARE | {"prompt": 1, "context": 512}),
        ({"generate": 101}, BARE | {"prompt": 1, "context": 562}),  # the mean step of an answer
        ({"context": None, "generate": None}, BARE | {"prompt": 1, "context": 1}),
        ({"batch": None}, BARE | {"batch": 1, "prompt": 1, "context": 512}),
        ({"quantity": "prefill", "prompt": 99}, BARE | {"prompt": 99, "generate": 0}),
        ({"quantity": "forward", "prompt": 7}, BARE | {"prompt": 7}),
        ({"settings": {"autocast": "1"}, "activations": "f16"},
         BARE | {"weights": "f16", "activations": "f16", "prompt": 1, "context": 512}),
        ({"settings": {"threads": "3"}}, BARE | {"threads": 3, "prompt": 1, "context": 512}),
        ({"settings": {"threads": "all"}}, BARE | {"prompt": 1, "context": 512}),
        ({"settings": {"threads": "3"}, "device": "nvidia-l4"}, BARE | {"prompt": 1, "context": 512}),
        ({"settings": {"elsewhere": "1/11"}}, BARE | {"prompt": 1, "context": 512}),
        ({"settings": {"elsewhere": "1/10"}}, None),  # a tenth of its layers ran on another unit
        ({"quantity": "prefill"}, None),
        ({"quantity": "forward"}, None),  # of how long a text, nobody says
        ({"input": "a file"}, None),
        ({"settings": {"powersave": "1"}}, BARE | {"prompt": 1, "context": 512}),
        ({"settings": {"powersave": "1"}, "device": "qualcomm-snapdragon-8-gen-3-cpu"}, None),
    ],
)  # fmt: skip
def test_the_question_that_a_row_answers(monkeypatch, row, asked):
    """With the engine where it is known, and with `ideal` beside it to say what is impossible."""
    found = []

    def answer(model, *, on, runtime, calibrated, **sizes):
        found.append((model, on, runtime, calibrated, sizes))
        return SimpleNamespace(answer=lambda: SimpleNamespace(phase=lambda name: name))

    monkeypatch.setattr(published_rows, "ask", answer)
    published_rows._phase.cache_clear()
    one = replace(ROW, **{"batch": 4, **row})
    for engine, known in (("llamacpp", "llamacpp"), ("nobodys", None), (None, None)):
        phase = predicted_phase(replace(one, engine=engine))
        if asked is None:
            assert (phase, found) == (None, [])
        else:
            assert phase == one.quantity
            assert found.pop() == ("llama-3.2-1b", one.device, known, True, asked)
            published_rows._phase.cache_clear()


def test_a_floor_is_the_least_of_what_is_known_with_and_without_the_engine(monkeypatch):
    floors = {"ideal": 1.0, "llamacpp": 0.8}
    monkeypatch.setattr(
        published_rows, "_predicted", lambda _row, runtime: SimpleNamespace(floor_s=floors.get(runtime))
    )
    # 0.9 of the floor is taken for the floor: clocks run above the datasheet's
    for steps_per_s, engine, is_possible in (
        (1.38, "llamacpp", True), (1.39, "llamacpp", False), (1.11, None, True), (1.12, None, False),
    ):  # fmt: skip
        row = replace(ROW, figure=steps_per_s, engine=engine)
        assert (impossible(row) is None) == is_possible, steps_per_s
    monkeypatch.setattr(published_rows, "has_own_figures", lambda _name: False)
    assert impossible(replace(ROW, figure=99.0)) is None


def test_seconds_are_those_of_the_phase_or_nobody_knows(monkeypatch):
    def refuse(*_, **__):
        raise DomainError("No.")

    assert predicted_seconds(ROW) == predicted_phase(ROW).time_s
    published_rows._phase.cache_clear()
    monkeypatch.setattr(published_rows, "ask", refuse)
    assert predicted_seconds(ROW) is None
    assert not ran_elsewhere(ROW)


def test_what_is_looked_for_is_what_was_asked_and_answered(monkeypatch):
    looked, measured = [], SimpleNamespace(seconds=0.5)
    monkeypatch.setattr(published, "nearest_published", lambda asked: looked.append(asked) or measured)
    asked = {"on": "nvidia-l4", "runtime": "torch-eager"}
    sizes = {"batch": 3, "prompt": 100, "generate": 41, "weights": "i8", "activations": "f16", "tp": 2}
    question = ask("llama-3.2-1b", **asked, **sizes)
    profile = question.answer()
    reading, writing = published_beside(question, profile)
    for found, name in ((reading, "prefill"), (writing, "decode")):
        assert (found.phase, found.predicted_s, found.measured) == (name, profile.phase(name).time_s, measured)
        assert found.apart == pytest.approx(found.predicted_s / 0.5 - 1)
    for one, name in zip(looked, ("prefill", "decode"), strict=True):
        assert (one.model, one.device, one.quantity, one.engine) == ("llama-3.2-1b", "nvidia-l4", name, "torch-eager")
        assert (one.weights, one.activations, one.count, one.batch) == ("i8", "f16", 2, 3)
        assert (one.image, one.prompt, one.generate, one.context) == (None, 100, 41, 120)
        assert {"f16", *profile.arithmetic} == one.computed
    looked.clear()
    image = ask("resnet50", **asked)
    assert [found.phase for found in published_beside(image, image.answer())] == ["forward"]
    assert (looked[0].image, looked[0].context) == (224, None)
    stepping = ask("llama-3.2-1b", **asked, context=99)
    assert [found.phase for found in published_beside(stepping, stepping.answer())] == ["decode"]
    assert looked[-1].context == 99
    apart = replace(stepping, prefill_on=stepping.device)
    assert published_beside(apart, stepping.answer()) == ()
    monkeypatch.setattr(published, "nearest_published", lambda _asked: None)
    assert published_beside(image, image.answer()) == ()


def test_a_service_is_looked_for_with_its_users_and_devices(monkeypatch):
    looked, measured = [], SimpleNamespace(seconds=0.5)
    monkeypatch.setattr(published, "nearest_published", lambda asked: looked.append(asked) or measured)
    answer = SimpleNamespace(model="m", device="d", runtime="vllm", weights="f8e4m3", devices=8, users=64, prompt=300,
                             generate=200, ttft_s=2.0, tpot_s=0.02)  # fmt: skip
    first, token = served_beside(answer)
    assert [(found.phase, found.predicted_s) for found in (first, token)] == [("ttft", 2.0), ("tpot", 0.02)]
    for one, quantity in zip(looked, ("ttft", "tpot"), strict=True):
        assert (one.model, one.device, one.quantity, one.engine, one.weights) == ("m", "d", quantity, "vllm", "f8e4m3")
        assert (one.count, one.batch, one.prompt, one.generate) == (8, 64, 300, 200)
