"""The networks of ncnn's and OpenVINO's benchmarks that no package has, written down from their definitions.

Of ncnn's they are those of benchmark/*.param; of OpenVINO's those of the Open Model Zoo. What comes after the last
convolution of a detector (decoding boxes, suppressing overlaps) is left out: its work depends on what is seen, and the
benchmarks give networks random pixels.
"""

from collections.abc import Callable

from workshop.networks.sketch import Sketch

_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
_V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
# MobileNetV2: expansion, channels, how many, first stride.
_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
# EfficientNet-B0: expansion, channels, how many, first stride, kernel.
_B0 = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
       (6, 320, 1, 1, 3))  # fmt: skip


def alexnet() -> Sketch:
    """Caffe's: two groups, local response norm."""
    net = Sketch()
    x = net.pool(net.local_norm(net.conv(0, 96, 11, 4, padding=0)), 3, 2)
    x = net.pool(net.local_norm(net.conv(x, 256, 5, groups=2)), 3, 2)
    x = net.conv(net.conv(net.conv(x, 384, 3), 384, 3, groups=2), 256, 3, groups=2)
    x = net.flat(net.pool(x, 3, 2))
    net.linear(net.linear(net.linear(x, 4096, "relu", inputs=256 * 36), 4096, "relu"), 1000)
    return net


def googlenet() -> Sketch:
    """Caffe's: 5 × 5 convolutions, no batch norm."""
    net = Sketch()
    x = net.local_norm(net.pool(net.conv(0, 64, 7, 2), 3, 2, ceil=True))
    x = net.pool(net.local_norm(net.conv(net.conv(x, 64), 192, 3)), 3, 2, ceil=True)
    for row in (
        (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), None,
        (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128), None,
        (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
    ):  # fmt: skip
        if row is None:
            x = net.pool(x, 3, 2, ceil=True)
            continue
        one, before3, three, before5, five, pooled = row
        x = net.cat(
            net.conv(x, one), net.conv(net.conv(x, before3), three, 3), net.conv(net.conv(x, before5), five, 5),
            net.conv(net.pool(x, 3, 1, 1), pooled),
        )  # fmt: skip
    net.linear(net.flat(net.everywhere(x)), 1000)
    return net


def shufflenet() -> Sketch:
    """ShuffleNet v1, 1 ×, three groups."""
    net = Sketch()
    x = net.pool(net.conv(0, 24, 3, 2), 3, 2, 1)
    for width, times in ((240, 4), (480, 8), (960, 4)):
        for index in range(times):
            down, before = index == 0, x
            grown = width - net.width(x) if down else width
            groups = 1 if net.width(x) == 24 else 3
            inner = net.shuffle(net.conv(x, width // 4, groups=groups), 3)
            inner = net.conv(net.depthwise(inner, 3, 2 if down else 1, act=None), grown, groups=3, act=None)
            x = net.act(net.cat(net.average(before, 3, 2, 1), inner) if down else net.sum(inner, before), "relu")
    net.linear(net.flat(net.everywhere(x)), 1000)
    return net


def proxylessnas() -> Sketch:
    """ProxylessNAS for mobile CPUs: kernel, expansion of each block; None is a block that was left out."""
    net = Sketch()
    x = net.conv(0, 32, 3, 2, act="relu6")
    x = net.conv(net.depthwise(x, act="relu6"), 16, act=None)
    stages = (
        (32, 2, ((5, 3), (3, 3))), (40, 2, ((7, 3), (3, 3), (5, 3), (5, 3))),
        (80, 2, ((7, 6), (5, 3), (5, 3), (5, 3))), (96, 1, ((5, 6), (5, 3), (5, 3), (5, 3))),
        (192, 2, ((7, 6), (7, 6), (7, 3), (7, 3))), (320, 1, ((7, 6),)),
    )  # fmt: skip
    for width, stride, blocks in stages:
        for index, (kernel, expansion) in enumerate(blocks):
            x = _inverted(net, x, width, expansion, stride if index == 0 else 1, kernel=kernel, act="relu6")
    net.linear(net.flat(net.everywhere(net.conv(x, 1280, act="relu6"))), 1000)
    return net


def blazeface() -> Sketch:
    """The front camera's: 128 pixels, 896 anchors."""
    net = Sketch()
    x = net.conv(0, 24, 5, 2)
    for width, stride in ((24, 1), (28, 1), (32, 2), (36, 1), (42, 1), (48, 2), (56, 1), (64, 1), (72, 1), (80, 1),
                          (88, 1)):  # fmt: skip
        x = _blaze(net, x, width, stride)
    far = x
    for stride in (2, 1, 1, 1, 1):
        far = _blaze(net, far, 96, stride)
    return net.ends(*(net.conv(at, anchors * size, act=None) for at, anchors in ((x, 2), (far, 6)) for size in (1, 16)))


def _blaze(net: Sketch, x: int, width: int, stride: int) -> int:
    inner = net.conv(net.depthwise(x, 3, stride, act=None), width, act=None)
    beside = net.pool(x, 2, 2) if stride == 2 else x
    beside = net.pad_channels(beside, width) if net.width(beside) < width else beside
    return net.sum(inner, beside, "relu")


def squeezenet_ssd() -> Sketch:
    """300 pixels, 21 classes."""
    net = Sketch()
    x = net.pool(net.conv(0, 64, 3, 2, padding=0), 3, 2, ceil=True)
    for index, (squeezed, expanded) in enumerate(_FIRES):
        x = _fire(net, x, squeezed, expanded)
        if index == 3:
            near = x
        if index in {1, 3}:
            x = net.pool(x, 3, 2, ceil=True)
    levels = [(net.norm(near), 4), (x, 6)]
    x = _fire(net, net.pool(x, 3, 2, ceil=True), 96, 384)
    levels.append((x, 6))
    x = _fire(net, net.pool(x, 3, 2, ceil=True), 96, 384)
    levels.append((x, 6))
    x = net.conv(net.conv(x, 128), 256, 3, 2)
    levels.append((x, 6))
    levels.append((net.conv(net.conv(x, 64), 128, 3, 2), 6))
    return _boxes(net, levels, classes=21, kernel=3)


def _fire(net: Sketch, x: int, squeezed: int, expanded: int) -> int:
    x = net.conv(x, squeezed)
    return net.cat(net.conv(x, expanded), net.conv(x, expanded, 3))


def _mobilenet(net: Sketch, *, act: str = "relu") -> tuple[int, int]:
    """MobileNet v1 without its classifier: the last step of 512 channels, and the last of 1024."""
    x = net.conv(0, 32, 3, 2, act=act)
    middle = x
    for width, stride in _V1:
        x = net.separable(x, width, 3, stride, act=act)
        middle = x if width == 512 else middle
    return middle, x


def _boxes(net: Sketch, levels: list[tuple[int, int]], *, classes: int, kernel: int) -> Sketch:
    """For each level and anchor a place and a class."""
    return net.ends(*(
        net.conv(x, anchors * size, kernel, act=None) for x, anchors in levels for size in (4, classes)
    ))  # fmt: skip


def mobilenet_ssd() -> Sketch:
    """300 pixels, 21 classes."""
    return _mobilenet_ssd(classes=21, act="relu")


def ssd_mobilenet_v1_coco() -> Sketch:
    """TensorFlow's: 91 classes, and clipped activations."""
    return _mobilenet_ssd(classes=91, act="relu6")


def _mobilenet_ssd(*, classes: int, act: str) -> Sketch:
    net = Sketch()
    middle, x = _mobilenet(net, act=act)
    levels = [(middle, 3), (x, 6)]
    for narrow, width in ((256, 512), (128, 256), (128, 256), (64, 128)):
        x = net.conv(net.conv(x, narrow, act=act), width, 3, 2, act=act)
        levels.append((x, 6))
    return _boxes(net, levels, classes=classes, kernel=1)


def mobilenet_yolo() -> Sketch:
    """416 pixels, 5 anchors, 20 classes."""
    net = Sketch()
    middle, x = _mobilenet(net)
    x = net.separable(x, 1024)
    up = net.sum(net.upconv(x, 512, 4, 2, padding=1, groups=512), middle)
    return net.ends(net.conv(x, 125, act=None), net.conv(net.separable(up, 1024), 125, act=None))


def mobilenet_yolov3() -> Sketch:
    """416 pixels, 3 anchors, 20 classes: MobileNet v1 under the head of mobilenetv2_yolov3."""
    net = Sketch()
    middle, x = _mobilenet(net)
    return _yolo_head(net, x, middle, 512)


def mobilenetv2_yolov3() -> Sketch:
    """352 pixels, 3 anchors, 20 classes."""
    net = Sketch()
    x = net.conv(0, 32, 3, 2)
    middle = x
    for expansion, width, times, stride in _V2:
        for index in range(times):
            if width == 160 and index == 0:  # the head takes the expanded channels of this block
                middle = net.conv(x, 576)
                x = net.conv(net.depthwise(middle, 3, 2), 160, act=None)
            else:
                x = _inverted(net, x, width, expansion, stride if index == 0 else 1)
    return _yolo_head(net, net.conv(x, 1280), middle, 576)


def _yolo_head(net: Sketch, x: int, middle: int, width: int) -> Sketch:
    x = net.separable(x, width)
    up = net.pool(net.upconv(x, width, 1, 2, groups=width), 2, 1, 1)
    both = net.sum(up, net.separable(middle, width))
    return net.ends(net.conv(x, 75, act=None), net.conv(net.separable(both, width), 75, act=None))


def _inverted(net: Sketch, x: int, width: int, expansion: int, stride: int, *, kernel: int = 3, act: str = "relu",
              squeezed: int | None = None) -> int:  # fmt: skip
    """MobileNetV2's block: wide inside, and added to what it takes where the shapes agree."""
    inner = x if expansion == 1 else net.conv(x, expansion * net.width(x), act=act)
    inner = net.depthwise(inner, kernel, stride, act=act)
    inner = inner if squeezed is None else net.excite(inner, squeezed, act)
    inner = net.conv(inner, width, act=None)
    return net.sum(inner, x) if stride == 1 and net.width(x) == width else inner


def yolov4_tiny() -> Sketch:
    """416 pixels, 3 anchors, 80 classes."""
    net = Sketch()
    x = net.conv(net.conv(0, 32, 3, 2, act="leaky"), 64, 3, 2, act="leaky")
    middle = x
    for width in (64, 128, 256):
        x = net.conv(x, width, 3, act="leaky")
        first = net.conv(net.halved(x, 1), width // 2, 3, act="leaky")
        both = net.cat(net.conv(first, width // 2, 3, act="leaky"), first)
        middle = net.conv(both, width, act="leaky")
        x = net.pool(net.cat(x, middle), 2, 2)
    x = net.conv(net.conv(x, 512, 3, act="leaky"), 256, act="leaky")
    far = net.conv(net.conv(x, 512, 3, act="leaky"), 255, act=None)
    up = net.cat(net.resize(net.conv(x, 128, act="leaky"), 2), middle)
    return net.ends(far, net.conv(net.conv(up, 256, 3, act="leaky"), 255, act=None))


def yolo_v3_tiny() -> Sketch:
    """416 pixels, 3 anchors, 80 classes."""
    net = Sketch()
    x, middle = 0, 0
    for width in (16, 32, 64, 128, 256):
        middle = net.conv(x, width, 3, act="leaky")
        x = net.pool(middle, 2, 2)
    x = net.pool(net.conv(x, 512, 3, act="leaky"), 3, 1, 1)  # 2 × 2 with one row of padding there: the same size
    x = net.conv(net.conv(x, 1024, 3, act="leaky"), 256, act="leaky")
    far = net.conv(net.conv(x, 512, 3, act="leaky"), 255, act=None)
    up = net.cat(net.resize(net.conv(x, 128, act="leaky"), 2), middle)
    return net.ends(far, net.conv(net.conv(up, 256, 3, act="leaky"), 255, act=None))


def yolo_fastest() -> Sketch:
    """Yolo-Fastest 1.1: 320 pixels, 3 anchors, 80 classes. Blocks: channels inside, outside, stride."""
    net = Sketch()
    x = net.conv(0, 8, 3, 2, act="leaky")
    blocks = (
        (8, 4, 1), (8, 4, 1), (24, 8, 2), (32, 8, 1), (32, 8, 1), (32, 8, 2), (48, 8, 1), (48, 8, 1), (48, 16, 1),
        *[(96, 16, 1)] * 4, (96, 24, 2), *[(136, 24, 1)] * 4, (136, 48, 2), *[(224, 48, 1)] * 5,
    )  # fmt: skip
    middle = x
    for inside, outside, stride in blocks:
        wide = net.conv(x, inside, act="leaky")
        middle = wide if (inside, outside) == (136, 48) else middle
        inner = net.conv(net.depthwise(wide, 3, stride, act="leaky"), outside, act=None)
        x = net.sum(inner, x) if stride == 1 and net.width(x) == outside else inner
    x = net.cat(net.pool(x, 9, 1, 4), net.pool(x, 5, 1, 2), net.pool(x, 3, 1, 1), x)
    x = net.conv(x, 96, act="leaky")
    far = _fastest_head(net, x, 96)
    near = net.conv(net.cat(net.resize(x, 2), middle), 96, act="leaky")
    return net.ends(far, _fastest_head(net, near, 96))


def _fastest_head(net: Sketch, x: int, width: int) -> int:
    """5 × 5 depthwise and 1 × 1, twice, then the boxes."""
    for act in ("leaky", None):
        x = net.conv(net.depthwise(x, 5, act="leaky"), width, act=act)
    return net.conv(x, 255, act=None)


def _shufflenet_v2(net: Sketch, x: int, widths: tuple[int, ...], act: str = "relu") -> list[int]:
    """The stages of ShuffleNet v2, of 4, 8 and 4 blocks."""
    stages = []
    for width, times in zip(widths, (4, 8, 4), strict=True):
        half = width // 2
        one = net.conv(net.depthwise(x, 3, 2, act=None), half, act=act)
        other = net.conv(net.depthwise(net.conv(x, half, act=act), 3, 2, act=None), half, act=act)
        x = net.shuffle(net.cat(one, other), 2)
        for _ in range(times - 1):
            inner = net.conv(net.depthwise(net.conv(net.halved(x, 1), half, act=act), 3, 1, act=None), half, act=act)
            x = net.shuffle(net.cat(net.halved(x, 0), inner), 2)
        stages.append(x)
    return stages


def nanodet_m() -> Sketch:
    """320 pixels, 80 classes, 8 bins a side: ShuffleNet v2 1 ×, levels added up and down, one head a level."""
    net = Sketch()
    x = net.pool(net.conv(0, 24, 3, 2, act="leaky"), 3, 2, 1)
    near, middle, far = (net.conv(stage, 96, act=None) for stage in _shufflenet_v2(net, x, (116, 232, 464), "leaky"))
    middle = net.sum(net.resize(far, 2, "bilinear"), middle)
    near = net.sum(net.resize(middle, 2, "bilinear"), near)
    middle = net.sum(net.resize(near, 0.5, "bilinear"), middle)
    far = net.sum(net.resize(middle, 0.5, "bilinear"), far)
    ends = []
    for level in (near, middle, far):
        for _ in range(2):
            level = net.separable(level, 96, act="leaky")  # noqa: PLW2901 - layer after layer
        ends += [net.conv(level, 112, act=None)]
    return net.ends(*ends)


def yolo_fastestv2() -> Sketch:
    """352 pixels, 3 anchors, 80 classes: a quarter of ShuffleNet v2, and one head for two levels."""
    net = Sketch()
    x = net.pool(net.conv(0, 24, 3, 2), 3, 2, 1)
    _, middle, far = _shufflenet_v2(net, x, (48, 96, 192))
    ends = []
    for level in (net.conv(net.cat(net.resize(far, 2), middle), 72), net.conv(far, 72)):
        classes, indices = (_five_by_five(net, level, 72) for _ in range(2))
        ends += [net.conv(classes, 80, act=None), net.conv(indices, 3, act=None), net.conv(indices, 12, act=None)]
    return net.ends(*ends)


def _five_by_five(net: Sketch, x: int, width: int) -> int:
    for _ in range(2):
        x = net.conv(net.depthwise(x, 5), width, act=None)
    return x


def fastestdet() -> Sketch:
    """352 pixels, 80 classes: one level."""
    net = Sketch()
    x = net.pool(net.conv(0, 24, 3, 2), 3, 2, 1)
    near, middle, far = _shufflenet_v2(net, x, (48, 96, 192))
    x = net.conv(net.cat(net.average(near, 3, 2, 1), middle, net.resize(far, 2)), 96)
    branches, inner = [], x
    for times in (1, 2, 3):
        inner = x
        for _ in range(times):
            inner = net.depthwise(inner, 5)
        branches.append(inner)
    x = net.conv(net.sum(x, net.conv(net.cat(*branches), 96, act=None), "relu"), 96)
    return net.ends(*(net.conv(net.depthwise(x, 5), size, act=None) for size in (1, 4, 80)))


def unet_camvid() -> Sketch:
    """368 × 480 pixels, 12 classes."""
    net = Sketch()
    x, levels = 0, list[int]()
    for width in (64, 128, 256, 512, 1024):
        x = net.conv(net.conv(net.pool(x, 2, 2) if levels else x, width, 3), width, 3)
        levels.append(x)
    for level in reversed(levels[:-1]):
        x = net.cat(net.upconv(x, net.width(level), 2, 2), level)
        x = net.conv(net.conv(x, net.width(level), 3), net.width(level), 3)
    net.conv(x, 12, act=None)
    return net


def efficientdet_d0() -> Sketch:
    """512 pixels, 9 anchors, 90 classes: EfficientNet-B0, three rounds of BiFPN, three layers in each head."""
    net = Sketch()
    x = net.conv(0, 32, 3, 2, act="silu")
    levels: list[int] = []
    for expansion, width, times, stride, kernel in _B0:
        for index in range(times):
            squeezed = max(1, net.width(x) // 4)
            x = _inverted(net, x, width, expansion, stride if index == 0 else 1, kernel=kernel, act="silu",
                          squeezed=squeezed)  # fmt: skip
        if width in {40, 112, 320}:
            levels.append(x)
    levels = [net.conv(level, 64, act=None) for level in levels]
    levels.append(net.pool(net.conv(x, 64, act=None), 3, 2, 1))
    levels.append(net.pool(levels[-1], 3, 2, 1))
    for _ in range(3):
        levels = _bifpn(net, levels)
    ends = []
    for size in (9 * 90, 9 * 4):
        inner, first = levels[0], len(net.steps) + 1
        for _ in range(3):
            inner = net.act(_plain_separable(net, inner, 64), "silu")
        last = _plain_separable(net, inner, size)
        ends += [last, *(net.again(first, last, level) for level in levels[1:])]  # one head's weights for all levels
    return net.ends(*ends)


def _plain_separable(net: Sketch, x: int, width: int) -> int:
    return net.conv(net.depthwise(x, act=None), width, act=None)


def _bifpn(net: Sketch, levels: list[int]) -> list[int]:
    """Down from the coarsest level, and up again; what meets is added."""
    down = [levels[-1]]
    for level in reversed(levels[:-1]):
        down.insert(0, _plain_separable(net, net.act(net.sum(level, net.resize(down[0], 2)), "silu"), 64))
    up = [down[0]]
    for level, before in zip(levels[1:], down[1:], strict=True):
        met = net.sum(level, net.pool(up[-1], 3, 2, 1))
        met = met if before == level else net.sum(met, before)
        up.append(_plain_separable(net, net.act(met, "silu"), 64))
    return up


# Each with the image that its benchmark gives it: height and width.
NETWORKS: dict[str, tuple[Callable[[], Sketch], tuple[int, int]]] = {
    "ncnn:alexnet": (alexnet, (227, 227)),
    "ncnn:googlenet": (googlenet, (224, 224)),
    "ncnn:shufflenet": (shufflenet, (224, 224)),
    "ncnn:proxylessnasnet": (proxylessnas, (224, 224)),
    "ncnn:blazeface": (blazeface, (128, 128)),
    "ncnn:squeezenet_ssd": (squeezenet_ssd, (300, 300)),
    "ncnn:mobilenet_ssd": (mobilenet_ssd, (300, 300)),
    "ncnn:mobilenet_yolo": (mobilenet_yolo, (416, 416)),
    "ncnn:mobilenet_yolov3": (mobilenet_yolov3, (416, 416)),
    "ncnn:mobilenetv2_yolov3": (mobilenetv2_yolov3, (352, 352)),
    "ncnn:yolov4-tiny": (yolov4_tiny, (416, 416)),
    "ncnn:yolo-fastest-1.1": (yolo_fastest, (320, 320)),
    "ncnn:yolo-fastestv2": (yolo_fastestv2, (352, 352)),
    "ncnn:nanodet_m": (nanodet_m, (320, 320)),
    "ncnn:fastestdet": (fastestdet, (352, 352)),
    "openvino:ssd_mobilenet_v1_coco": (ssd_mobilenet_v1_coco, (300, 300)),
    "openvino:efficientdet-d0": (efficientdet_d0, (512, 512)),
    "openvino:unet-camvid-onnx-0001": (unet_camvid, (368, 480)),
    "openvino:yolo_v3_tiny": (yolo_v3_tiny, (416, 416)),
}
