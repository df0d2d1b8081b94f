"""Networks under names of their own, from shipped graphs."""

import pytest

from inferometer.core.dims import evaluate
from inferometer.core.errors import UnknownNameError
from inferometer.core.graph import is_generative
from inferometer.formats.networks.named import DATA, ENDING, net_named, shipped_nets
from inferometer.formats.resolve import read


def macs(graph, image):
    """Multiply-adds of the convolutions, as Ultralytics counts half of its FLOPs."""
    total = 0
    for block, op in graph.ops():
        if op.kind == "convolution":
            weight, output = op.weights[0], op.outputs[0]
            places = evaluate(output.elements, {"batch": 1, "image": image}) // weight.shape[0]
            total += block.count * places * weight.elements
    return total


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("yolov5s", 7_235_389),  # Ultralytics, YOLOv5 release 6
        ("yolov8s", 11_166_560),  # Ultralytics' model tables, as those below
        ("yolov8x", 68_229_648),
        ("yolo11m", 20_114_688),
        ("yolo11n-seg", 2_876_848),
        ("yolov7", 36_926_621),  # 36.9 M in the paper
        ("yolox-s", 8_968_255),  # 8.97 M in the paper
        ("fcn-resnet50", 32_957_013),
        ("r2plus1d-18", 31_505_325),  # torchvision's num_params
        ("llama-4-maverick", 400_711_848_960),
    ],
)
def test_parameters_are_those_that_were_published(name, parameters):
    assert read(name).parameters == parameters


@pytest.mark.parametrize(("name", "gflops"), [("yolov8s", 28.8), ("yolov8x", 258.5), ("yolo11m", 68.5)])
def test_work_at_640_pixels_is_what_ultralytics_publishes(name, gflops):
    # Its figure leaves attention's products out of the convolutions, which are a percent of YOLO11
    assert 2 * macs(read(name), 640) / 1e9 == pytest.approx(gflops, rel=0.02)


def test_work_of_ssd_resnet34_is_what_its_model_zoo_states():
    """433.4 GFLOP, some of them no convolutions; a score for each of 81 classes and four sides, of 15,130 boxes."""
    graph = read("ssd-resnet34")
    assert 2 * macs(graph, 1200) / 1e9 == pytest.approx(433.4, rel=0.005)
    assert [output.shape[1:] for output in graph.outputs] == [(81, 15130), (4, 15130)]


def test_a_yolo_takes_any_side_that_its_strides_divide():
    graph = read("yolov8s")
    assert graph.metadata["default_sizes"] == {"image": 640}
    assert macs(graph, 320) * 4 == macs(graph, 640)


def test_a_name_is_found_in_any_case_and_a_miss_names_the_nearest():
    assert net_named("YOLOv8S") == "yolov8s"
    with pytest.raises(UnknownNameError, match="Did you mean yolov8"):
        read("yolov8z")
    with pytest.raises(UnknownNameError, match="Did you mean opus-mt-en-de/encoder"):
        read("opus-mt-en-de/encodr")


def test_a_part_is_a_model_of_its_own():
    encoder, decoder = read("opus-mt-en-de/encoder"), read("opus-mt-en-de/decoder")
    assert encoder.parameters == decoder.parameters - 7_168  # the decoder has a norm of 512 more in each place
    assert not is_generative(encoder)


def test_every_name_of_the_index_has_a_file():
    files = {path.name.removesuffix(ENDING) for path in DATA.glob(f"*{ENDING}")}
    assert set(shipped_nets().values()) == files
