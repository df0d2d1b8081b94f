"""Every network of the zoo by name."""

from workshop.networks.nets import compiled_ops  # noqa: F401, I001 - before torchvision is imported
from workshop.networks.nets import (
    ai_hub,
    assorted,
    blaze,
    detectors,
    diffusion,
    language,
    mlperf,
    packaged,
    rcnn,
    restoration,
    segmentation,
    speech,
    streets,
    yolo,
    yolo_others,
)
from workshop.networks.nets.net import Net, image

_PUBLISHED = {
    "yolov5n": 1872157, "yolov5s": 7235389, "yolov5m": 21190557, "yolov5l": 46563709, "yolov5x": 86749405,
    "yolov8n": 3157200, "yolov8s": 11166560, "yolov8m": 25902640, "yolov8l": 43691520, "yolov8x": 68229648,
    "yolo11n": 2624080, "yolo11s": 9458752, "yolo11m": 20114688, "yolo11l": 25372160, "yolo11x": 56966176,
    "yolo11n-seg": 2876848, "yolo11s-seg": 10113248, "yolo11m-seg": 22420896, "yolo11l-seg": 27678368,
    "yolo11x-seg": 62142656, "yolo12n": 2602288, "yolo12s": 9284096, "yolo12m": 20199168, "yolo12l": 26450784,
    "yolo12x": 59210784, "yolo26n-cls": 2812104, "yolo26s-cls": 6724008, "yolo26m-cls": 11634216,
    "yolo26l-cls": 14115624, "yolo26x-cls": 29637064, "yolov10n": "2.3M", "yolov10s": "7.2M", "yolov10m": "15.4M",
    "yolov10b": "19.1M", "yolov10l": "24.4M", "yolov10x": "29.5M", "yolo26n": "2.4M", "yolo26s": "9.5M",
    "yolo26m": "20.4M", "yolo26l": "24.8M", "yolo26x": "55.7M", "yolov9t": "2.0M", "yolov9s": "7.2M",
    "yolov9m": "20.1M",
    "yolov3-tiny": "8.85M", "yolov3": "61.9M", "fastsam-s": "11.8M",
}  # fmt: skip


def nets():
    found = {}
    for name, (make, side) in yolo.nets().items():
        published = _PUBLISHED.get(name)
        found[name] = Net(
            make=make, inputs=image(side), step=64 if side == 1280 else 32,
            published=None if published is None else str(published),
        )  # fmt: skip
    for name, (make, side, published) in yolo_others.nets().items():
        found[name] = Net(make=make, inputs=image(side), step=32, published=published)
    for module in (
        packaged,
        restoration,
        segmentation,
        streets,
        blaze,
        speech,
        language,
        mlperf,
        diffusion,
        detectors,
        assorted,
        rcnn,
        ai_hub,
    ):
        found |= module.nets()
    return found
