"""Published forward passes as cases of the fit: which rows can be asked, on which device, and why others cannot."""

from collections import Counter
from itertools import product

import pytest

from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.measure.calibrate.priors import cases
from inferometer.measure.calibrate.priors.cases import cases_of


def row(**facts):
    known = {
        "dataset": "mine", "source": "mine", "file": "x.csv", "line": 2, "device_published": "a board",
        "model_published": "resnet18", "device": None, "unit": "cpu", "model": "timm:resnet18", "engine": "ncnn",
        "engine_published": "ncnn", "weights": "f32", "activations": "f32", "batch": 1, "image": 224,
        "quantity": "forward", "figure": 50.0, "figure_unit": "ms",
    }  # fmt: skip
    return PublishedMeasurement(**{**known, **facts})


def test_a_board_that_no_row_has_is_made_of_the_cores_that_its_name_lists():
    (case,) = cases_of([row(device_published="A board of tomorrow (Cortex-A55 1.5GHz x 2)")]).cases
    assert (case.standing.device, case.standing.family) == ("described-2x-cortex-a55-1.5ghz", "cortex-a55")


def test_cpu_and_gpu_together_are_one_device_and_a_way_to_run():
    together = row(device_published="Intel Core i7-1185G7 CPU+iGPU", unit="cpu+gpu", engine="openvino")
    (case,) = cases_of([together]).cases
    assert case.standing.device.endswith("+gpu")
    assert case.standing.variants == ("units=cpu+gpu",)


def test_a_list_that_often_beats_its_devices_peak_is_of_another_device():
    """OpenVINO's throughputs of Xeons are of two sockets: cutting the fastest alone would leave the others too slow."""
    board = {"device": "raspberry-pi-5", "device_published": "Raspberry Pi 5", "settings": {"threads": "4"}}
    slow, fast = row(**board), row(**board, figure=2.0)
    assert len(cases_of([slow] * 9 + [fast]).cases) == 9
    assert len(cases_of([slow] * 5 + [fast]).cases) == 5  # one figure tells of no list, however short that is
    assert not cases_of([slow] * 5 + [fast] * 2).cases
    left = cases_of([slow] * 5 + [fast, fast, row(**board, quantity="stream")]).left
    assert left == {"figures of raspberry-pi-5 that are of another device: many beat its peak": 7}


def test_a_model_that_ran_on_two_units_is_of_neither():
    partly = [row(device="raspberry-pi-5", settings={"elsewhere": f"{layers}/100"}) for layers in (9, 10)]
    reading = cases_of(partly)
    assert (len(reading.cases), reading.left) == (1, {"much of it ran on another unit": 1})


def test_a_device_that_nobody_knows_says_so():
    reading = cases_of([row(device_published="Sunway SW831")])
    assert not reading.cases
    assert list(reading.left) == ["the device Sunway SW831 is not in the catalog"]


def test_rows_of_many_inputs_are_not_asked_of_a_graph_that_was_made_for_one():
    """A throughput of a batch over the work of one input looks like a device that is as many times slower."""
    board = {"device": "nvidia-t4", "unit": "gpu", "engine": "tensorrt", "model": "rtdetr-r18", "image": 640}
    reading = cases_of([row(**board), row(**board, batch=8)])
    assert (len(reading.cases), reading.left) == (1, {"rtdetr-r18 was made for one input at once": 1})


def test_a_whole_picture_is_its_steps_and_what_runs_once():
    asked = {"device": "nvidia-h100-sxm", "unit": "gpu", "engine": "torch-eager", "model": "sd-1.5", "image": 512,
             "weights": "f16", "activations": "f16", "figure": 2.0, "figure_unit": "s"}  # fmt: skip
    rows = [
        row(**asked), *(row(**asked, quantity="picture", settings={"steps": str(steps)}) for steps in (20, 50))
    ]  # fmt: skip
    step, twenty, fifty = (float((case.repeats * case.compute).sum()) for case in cases_of(rows).cases)
    assert fifty - twenty == pytest.approx(30 * step)
    assert twenty > 20 * step  # the text's encoder, and the picture's decoder
    assert [case.steps for case in cases_of(rows).cases] == [1, 20, 50]


def test_networks_are_counted_the_same_one_by_one_and_by_several_processes(monkeypatch):
    """Each row alone, beside all of them shared out among processes: computed twice."""
    networks = ("timm:resnet18", "timm:resnet34", "timm:mobilenetv3_small_100", "timm:vit_tiny_patch16_224")
    gpu = {"device": "nvidia-rtx-3090", "unit": "gpu"}
    ways = product((*networks, "timm:resnet81"), ("torch-compile", "torch-eager"), ("f16", "f32"), (1, 64))
    rows = [
        row(model=model, engine=engine, weights=form, activations=form, batch=batch, line=line, **gpu)
        for line, (model, engine, form, batch) in enumerate(ways)
    ]
    monkeypatch.setattr(cases, "_WORTH_PROCESSES", 2)
    monkeypatch.setattr(cases, "_AT_A_TIME", 2)
    together, alone = cases_of(rows, engine="local:2"), [cases_of([each]) for each in rows]
    assert together.left == sum((reading.left for reading in alone), Counter())
    by_line = {case.line: case for reading in alone for case in reading.cases}
    assert sorted(case.line for case in together.cases) == sorted(by_line)
    assert len(by_line) == 8 * len(networks)
    for case in together.cases:
        one = by_line[case.line]
        assert (case.model, case.standing, case.features) == (one.model, one.standing, one.features)
        for name in ("compute", "memory", "kernels", "repeats", "classes"):
            assert getattr(case, name) == pytest.approx(getattr(one, name), rel=1e-12)
