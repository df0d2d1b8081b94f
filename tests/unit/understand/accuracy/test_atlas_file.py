"""Files of published measurements judged: what is asked of serving rules and what of priors, and how it is told."""

import csv
import json
import random
from math import exp

import pytest
from click.testing import CliRunner

import inferometer as im
from inferometer.cli.run import cli
from inferometer.known.atlas.shipped import load
from inferometer.known.zoo import network_named
from inferometer.measure.calibrate.priors.cases import _not_asked, variants_of
from inferometer.measure.calibrate.priors.judged import DEVICE_OUT, FEW, SEEN
from inferometer.understand.accuracy.atlas_file import accuracy_document, judge_atlas

ARGONNE = (
    "Hardware", "Num of Hardware", "Framework", "Model", "Input Output Length", "Batch Size", "Latency", "Throughput",
)  # fmt: skip


def request(hardware, framework, model="meta-llama/Llama-2-7b-hf", *, devices=1, length=128, seconds=2.0):
    return (hardware, devices, framework, model, length, 1, seconds, 2 * length / seconds)


def written(path, *lines):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([ARGONNE, *lines])
    return path


@pytest.fixture
def table(tmp_path):
    return written(
        tmp_path / "argonne_hidden.csv",
        request("Nvidia A100 GPU", "vLLM"),
        request("Nvidia L40S", "vLLM", seconds=3.0),
        request("Nvidia A100 GPU", "llama.cpp"),
        request("Habana Gaudi2", "Deepspeed", devices=2),
        request("Nvidia A100 GPU", "vLLM", "nobody/Nonesuch-7B"),
        request("SambaNova SN40L", "sambaflow"),
    )


def test_serving_engines_are_asked_of_their_rules_and_the_others_of_the_priors(table):
    judged = judge_atlas(table)
    asked = {(row.device, row.engine): row for row in judged.file.judged}
    assert asked["nvidia-a100-40gb", "vllm"].way == SEEN
    assert asked["nvidia-l40s", "vllm"].way == DEVICE_OUT
    assert asked["nvidia-a100-40gb", "llamacpp"].roofline is not None
    assert ("intel-gaudi-2", "deepspeed-mii") in asked  # two of them share each layer
    assert all(abs(row.residual) < 2 for row in asked.values())
    assert judged.asked == len(judged.file.judged) == 5
    assert "the model nobody/Nonesuch-7B has no graph here" in judged.file.left


def test_the_document_has_a_set_for_each_file_and_a_group_for_each_device_and_engine(table):
    (found,) = accuracy_document([judge_atlas(table)])["sets"]
    assert (found["name"], found["rows"], found["n"], found["unmapped"]) == ("argonne_hidden", 6, 5, 1)
    assert {"median_error", "p90_error", "bias", "covers", "width"} <= set(found)
    assert {(group["device"], group["runtime"]) for group in found["by"]} >= {("nvidia-l40s", "vllm")}
    assert sum(group["n"] for group in found["by"]) == 5


def test_a_device_is_calibrated_from_so_many_of_its_models_and_the_others_are_judged(tmp_path):
    models = ("meta-llama/Llama-2-7b-hf", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen2-7B")
    path = written(tmp_path / "few.csv", *(request("Nvidia A100 GPU", "llama.cpp", model) for model in models))
    judged = judge_atlas(path, from_models=2)
    assert [row.way for row in judged.file.judged] == [FEW]
    assert len(judge_atlas(path).file.judged) == 3


def test_the_command_prints_the_document_of_several_files(table):
    result = CliRunner().invoke(cli, ["accuracy", "--atlas", str(table), str(table), "--format", "json"])
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["sets"]) == 2
    assert "5 predicted, 1 not (1 with a name that nobody here knows)" in result.stderr


def test_models_to_calibrate_from_need_a_table():
    result = CliRunner().invoke(cli, ["accuracy", "--from-models", "3"])
    assert result.exit_code != 0
    assert "need --atlas" in f"{result.output}{result.exception}"


TIDY = ("device", "model", "engine", "weights", "activations", "batch", "image", "quantity", "figure", "figure_unit")


def thirty_rows():
    """One row of each of thirty groups, drawn from all devices and engines that a question can name as they ran."""
    groups = {}
    for row in load(["qai-hub", "openvino", "ncnn", "rknn"]).rows():
        plain = row.quantity == "forward" and not row.part and not variants_of(row) and "autocast" not in row.settings
        sized = row.image is None or network_named(row.model or "") is not None  # else its image cannot be asked for
        if plain and sized and row.device and _not_asked(row) is None:
            groups.setdefault((row.device, row.engine, row.weights), []).append(row)
    draw = random.Random(37)  # noqa: S311 - a draw that is the same every time
    chosen = draw.sample(sorted(groups), 30)
    return [draw.choice(groups[key]) for key in chosen]


def test_a_file_is_judged_by_what_predict_answers_in_thirty_groups_drawn_at_random(tmp_path, monkeypatch):
    """Two ways to one number: the arithmetic of the fit over a file, and a question at the user's door."""
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    rows, compared = thirty_rows(), 0
    for row in rows:
        path = tmp_path / "one.csv"
        stated = [row.device, row.model, row.engine, row.weights, row.activations, row.batch or 1, row.image]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([TIDY, [*stated, "forward", row.seconds, "s"]])
        judged = [each for each in judge_atlas(path).file.judged if each.way != FEW]
        if not judged:
            continue  # its graph has other parameters, or another size of image than is at hand
        answer = im.predict(
            row.model, on=row.device, runtime=row.engine, weights=row.weights, activations=row.activations,
            batch=row.batch or 1, image=row.image,
        ).phase("forward")  # fmt: skip
        compared += 1
        ratio = answer.time_s / (row.seconds / exp(judged[0].residual))
        # An answer holds each op at its floor, which the fit knows nothing of: of a model that runs in half of what its
        # work says, many are there.
        held = sum(op.time_s for op in answer.ops if op.floor_s and op.time_s <= 1.001 * op.floor_s)
        assert 0.98 <= ratio <= (1.1 if held < 0.2 * answer.time_s else 1.5), stated
        if answer.high_s is None:  # an op whose work is not known may take any time
            assert any(op.kind == "custom" for op in answer.ops), stated
            continue
        wider = answer.high_s / answer.time_s / exp(judged[0].half)
        assert 0.95 <= wider <= 1.3, stated  # an answer is wider where few published steps stand behind a device
    assert compared >= 20


WORLD = "source,repo,path,model,device,runtime,precision,batch,input,metric,value,unit,notes"


def test_damaged_lines_are_set_aside_by_reason_and_take_no_other_with_them(tmp_path):
    def line(batch, value, unit="ms", device="NVIDIA T4"):
        return f"x 1 2026-01-01,a/b,README.md,resnet50,{device},TensorRT,fp16,{batch},224*224*3,latency,{value},{unit},"

    path = tmp_path / "damaged.csv"
    damaged = (line(8, 0.0001), line(8, 5, "foo"), line(-3, 5), line("1-8", 5), line(1, "nan"), line(1, -4))
    path.write_text("\n".join([WORLD, line(1, 2.1), line(8, 9), *damaged, line(1, 4, device="Frobnitz 9")]))
    judged = judge_atlas(path)
    assert judged.asked == len(judged.file.judged) == 2
    assert judged.file.left == {
        "it beats the peak of its device": 1, "the device Frobnitz 9 is not in the catalog": 1,
    }  # fmt: skip
    assert sum(judged.aside.values()) == 5
    assert judged.aside["a batch of -3 is none."] == 1
    (found,) = accuracy_document([judged])["sets"]
    assert found["aside"] == dict(judged.aside)
    ran = CliRunner().invoke(cli, ["accuracy", "--atlas", str(path)])
    assert ran.exit_code == 0
    assert all(reason in ran.output for reason in (*judged.aside, *judged.file.left))
