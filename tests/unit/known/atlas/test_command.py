"""`inferometer atlas` and `predict`, as a person types them."""

import json

import pytest

from inferometer.cli.run import run


@pytest.fixture(autouse=True)
def _data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / "data"))


@pytest.fixture
def said(capsys):
    def say(*arguments):
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return say


def test_what_others_measured_comes_with_its_source(said):
    code, out, _ = said("atlas", "--model", "resnet101", "--device", "nvidia-rtx-4090", "--limit", "2")
    assert code == 0
    assert "torch-compile 2.4, nchw" in out
    assert "18 more: --limit 20 shows them" in out
    assert "timm: PyTorch Image Models, inference benchmarks, Apache-2.0. https://github.com/" in out


def test_json_has_everything_and_csv_our_own_form(said):
    told = json.loads(said("atlas", "--model", "yolov8n", "--runtime", "rknn", "--format", "json")[1])
    rows = told["rows"]
    assert told["schema"] == "inferometer.atlas/1"
    promised = set("device model runtime version weights batch metric value unit source date".split())
    assert all(promised <= set(row) for row in rows)
    assert {row["device_published"] for row in rows} >= {"RK3588 @single_core"}
    assert all(row["source"]["licence"] == "Apache-2.0" for row in rows)
    header = said("atlas", "--model", "yolov8n", "--runtime", "rknn", "--format", "csv")[1].splitlines()[0]
    assert header.startswith("device,model,")
    assert header.endswith("seconds")


def test_alone_it_lists_the_datasets_and_what_is_left_out(said):
    code, out, _ = said("atlas")
    assert code == 0
    assert "23,066" in out
    assert "not shipped" in out
    assert said("atlas", "sources")[1] == out


def test_what_nobody_measured_says_where_the_model_was_measured(said):
    code, _, told = said("atlas", "--model", "resnet101", "--device", "amd-mi300x")
    assert code == 2
    assert "Nobody has published a measurement of model resnet101, device amd-mi300x. resnet101 was measured on" in told
    assert "other devices" in told


def test_a_table_is_added_with_a_word_on_every_line_that_is_not(said, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "device,model,engine,quantity,figure,figure_unit,batch,weights,context\n"
        "raspberry-pi-5,llama-3.2-1b,llamacpp,decode,9.5,tokens/s,1,q4_0,512\n"
        "raspberry-pi-5,llama-3.2-1b,llamacpp,decode,950,tokens/s,1,q4_0,512\n"
        "raspberry-pi-5,llama-3.2-1b,llamacpp,decode,9.5,GB/s,1,q4_0,512\n"
    )
    code, _, told = said("atlas", "add", str(path))
    assert code == 0
    assert "set aside mine.csv, line 3: 1.053 ms is faster than raspberry-pi-5 can be" in told
    assert "set aside mine.csv, line 4: 'GB/s' is neither a time nor a rate." in told
    assert "Added 1 measurement as mine; 2 lines set aside." in told
    assert "mine: a table of yours." in said("atlas", "--dataset", "mine")[1]
    assert said("atlas", "remove", "mine")[0] == 0
    path.write_text("device,model,quantity,figure,figure_unit\na,b,forward,x,ms\n")
    code, _, told = said("atlas", "add", str(path))
    assert code == 2
    assert "has no line that can be taken: 1 line set aside." in told


def test_a_prediction_stands_beside_what_others_measured(said):
    asked = ("predict", "resnet101", "--on", "nvidia-rtx-4090", "--batch", "1024", "--weights", "f16", "--activations",
             "f16", "--runtime", "torch-eager")  # fmt: skip
    assert (
        "others measured  368.2 ms  timm, torch-eager 2.9, nchw, 2026-08, f16 autocast; the prediction is"
        in said(*asked)[1]
    )
    (beside,) = json.loads(said(*asked, "--format", "json")[1])["published"]
    assert beside["phase"] == "forward"
    assert beside["apart"] == pytest.approx(beside["predicted_s"] / beside["measured"]["seconds"] - 1)
    assert json.loads(said("predict", "resnet101", "--on", "nvidia-rtx-4090", "--format", "json")[1])["published"] == []
