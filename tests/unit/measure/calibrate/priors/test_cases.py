"""Published forward passes as cases of the fit: which rows can be asked, on which device, and why others cannot."""

from inferometer.known.atlas.measurement import PublishedMeasurement
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


def test_a_device_that_nobody_knows_says_so():
    reading = cases_of([row(device_published="Sunway SW831")])
    assert not reading.cases
    assert list(reading.left) == ["the device Sunway SW831 is not in the catalog"]
