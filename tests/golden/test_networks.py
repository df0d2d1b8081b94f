"""Networks that come with us have the parameters that their authors state, and run as many operations.

Sources: PaddleDetection's model zoo (PP-YOLOE, PicoDet), Deci's model card of YOLO-NAS, torchvision's pages of its
R-CNNs, the tables of LW-DETR, RT-DETR and Segment Anything, and the cards of Wan 2.1 and CogVideoX.
"""

import pytest

from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.formats.resolve import read
from inferometer.predict.work.count import graph_work

PARAMETERS = {
    "pp-yoloe-s": 7.93e6, "pp-yoloe-m": 23.43e6, "pp-yoloe-l": 52.20e6, "pp-yoloe-x": 98.42e6,
    "picodet-xs": 0.70e6, "picodet-s": 1.18e6, "picodet-m": 3.46e6, "picodet-l": 5.80e6,
    "yolo-nas-s": 12.2e6, "yolo-nas-m": 31.9e6, "yolo-nas-l": 42.0e6,
    "faster-rcnn-resnet50": 41.76e6, "mask-rcnn-resnet50": 44.40e6, "faster-rcnn-mobilenet-v3-large": 19.39e6,
    "rtdetr-r18": 20e6, "rtdetr-r34": 31e6, "rtdetr-r101": 76e6,
    "sam-vit-b": 93.7e6, "sam-vit-l": 312e6, "sam-vit-h": 641e6,
    "wan2.1-1.3b/transformer": 1.42e9, "wan2.1-14b/transformer": 14.3e9,
    "cogvideox-2b/transformer": 1.69e9, "cogvideox-5b/transformer": 5.57e9,
}  # fmt: skip
# Billions of operations of an image of 640 pixels (PicoDet: 320); a multiply and an add are two.
OPERATIONS = {
    "pp-yoloe-s": 17.36, "pp-yoloe-m": 49.91, "pp-yoloe-l": 110.07, "pp-yoloe-x": 206.59,
    "picodet-xs": 0.67, "picodet-s": 0.97, "picodet-m": 2.57, "picodet-l": 4.20,
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_that_were_published(name):
    assert read(name).parameters == pytest.approx(PARAMETERS[name], rel=0.02)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_that_were_published(name):
    graph = read(name)
    counted = graph_work(graph, bind(graph, Workload())).total_flops / 1e9
    assert counted == pytest.approx(OPERATIONS[name], rel=0.06)


def test_a_larger_detector_is_more_work_at_every_size_of_image():
    def work(name, image):
        graph = read(name)
        return graph_work(graph, bind(graph, Workload(image=image))).total_flops

    for family in (["yolo-nas-s", "yolo-nas-m", "yolo-nas-l"], ["picodet-xs", "picodet-s", "picodet-m", "picodet-l"]):
        for image in (320, 640):
            sizes = [work(name, image) for name in family]
            assert sizes == sorted(sizes)
        assert work(family[0], 640) == pytest.approx(4 * work(family[0], 320), rel=0.01)
