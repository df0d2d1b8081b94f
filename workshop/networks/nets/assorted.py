"""Networks of several kinds, a few layers of description each: CRAFT, IResNet, YOLO-World."""

import torch
import torchvision
from torch import nn
from torch.nn import functional

from workshop.networks.nets import yolo_tables as tables
from workshop.networks.nets.net import Net, image
from workshop.networks.nets.segmentation import ConvBn, resize
from workshop.networks.nets.yolo import build
from workshop.networks.nets.yolo_heads import TextDetect


class Craft(nn.Module):
    """EasyOCR's text detector: VGG-16 with norms, and a U-shaped way back."""

    def __init__(self):
        super().__init__()
        layers = torchvision.models.vgg16_bn().features
        self.slices = nn.ModuleList((layers[:12], layers[12:19], layers[19:29], layers[29:39]))
        self.last = nn.Sequential(
            nn.MaxPool2d(3, 1, 1), nn.Conv2d(512, 1024, 3, padding=6, dilation=6), nn.Conv2d(1024, 1024, 1)
        )
        self.ups = nn.ModuleList(
            nn.Sequential(ConvBn(a, b, 1, bias=True), ConvBn(b, c, 3, bias=True))
            for a, b, c in ((1536, 512, 256), (768, 256, 128), (384, 128, 64), (192, 64, 32))
        )
        self.out = nn.Sequential(
            nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 16, 3, 1, 1),
            nn.ReLU(), nn.Conv2d(16, 16, 1), nn.ReLU(), nn.Conv2d(16, 2, 1),
        )  # fmt: skip

    def forward(self, x):
        planes = []
        for part in self.slices:
            x = part(x)
            planes.append(x)
        y = self.ups[0](torch.cat((self.last(x), planes[3]), 1))
        for up, plane in zip(self.ups[1:], (planes[2], planes[1], planes[0]), strict=True):
            y = up(torch.cat((resize(y, plane), plane), 1))
        return self.out(y).permute(0, 2, 3, 1), y


class Squeeze(nn.Module):
    def __init__(self, c, ratio=16):
        super().__init__()
        self.cv1, self.cv2 = nn.Conv2d(c, c // ratio, 1, bias=False), nn.Conv2d(c // ratio, c, 1, bias=False)

    def forward(self, x):
        return x * self.cv2(self.cv1(functional.adaptive_avg_pool2d(x, 1)).relu()).sigmoid()


class FaceBlock(nn.Module):
    def __init__(self, c1, c2, s, squeeze):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(c1), nn.Conv2d(c1, c2, 3, 1, 1, bias=False), nn.PReLU(c2),
            nn.Conv2d(c2, c2, 3, s, 1, bias=False),
            nn.BatchNorm2d(c2), *((Squeeze(c2),) if squeeze else ()),
        )  # fmt: skip
        same = nn.MaxPool2d(1, s)
        self.skip = same if c1 == c2 else nn.Sequential(nn.Conv2d(c1, c2, 1, s, bias=False), nn.BatchNorm2d(c2))

    def forward(self, x):
        return self.body(x) + self.skip(x)


def face_resnet(depths, squeeze=False):
    """ArcFace's residual network at 112 pixels: 512 numbers a face."""
    layers, c = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)], 64
    for n, width in zip(depths, (64, 128, 256, 512), strict=True):
        for i in range(n):
            layers.append(FaceBlock(c, width, 2 if not i else 1, squeeze))
            c = width
    return nn.Sequential(
        *layers, nn.BatchNorm2d(512), nn.Dropout(0.4), nn.Flatten(), nn.Linear(512 * 49, 512), nn.BatchNorm1d(512)
    )


class World(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.net = build(tables.V8_WORLD, tables.V8_SCALES[size], TextDetect)

    def forward(self, x, texts):
        return self.net(x, texts)


def nets():
    found = {
        "easyocr/detector": Net(make=Craft, inputs=image(608, 800), published="20.8M"),
        "cavaface": Net(make=lambda: face_resnet((3, 13, 30, 3), True), inputs=image(112), published="~65.5M"),
        "arcface-r50": Net(make=lambda: face_resnet((3, 4, 14, 3)), inputs=image(112), published="43.6M"),
        "arcface-r100": Net(make=lambda: face_resnet((3, 13, 30, 3)), inputs=image(112), published="65.2M"),
    }
    for size in "smlx":
        found[f"yolov8{size}-worldv2"] = Net(
            make=lambda s=size: World(s), inputs=(*image(640), (1, 80, 512)), fixed=True,
            published={"s": "12.7M", "m": "28.4M", "l": "46.8M", "x": "72.9M"}[size],
        )  # fmt: skip
    return found
