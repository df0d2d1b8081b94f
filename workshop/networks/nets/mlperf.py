"""MLPerf's reference networks that no other file has: Tiny's four, 3D-UNet, RetinaNet, SSD-ResNet34."""

from itertools import pairwise

import torch
import torchvision
from torch import nn
from torch.nn import functional

from workshop.networks.nets.net import Net, image
from workshop.networks.nets.segmentation import ConvBn, Residual


def depthwise(c1, c2, s=1):
    return nn.Sequential(ConvBn(c1, c1, 3, s, groups=c1, bias=True), ConvBn(c1, c2, 1, bias=True))


def autoencoder():
    """Anomaly detection: 640 numbers to 8 and back."""
    widths = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(128, 640))


def resnet8():
    return nn.Sequential(
        ConvBn(3, 16, bias=True), Residual(16, 16), Residual(16, 32, 2), Residual(32, 64, 2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1),
    )  # fmt: skip


def keyword():
    """DS-CNN: a 10 × 4 convolution and four separable ones over 49 × 10 features."""
    first = nn.Sequential(nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.BatchNorm2d(64), nn.ReLU())
    return nn.Sequential(
        first,
        *(depthwise(64, 64) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 12),
        nn.Softmax(1),
    )


def mobilenet_quarter():
    """MobileNet-v1 at a quarter of its width, 96 pixels, two classes."""
    w = [int(c * 0.25) for c in (32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)]
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    body = [depthwise(a, b, s) for a, b, s in zip(w, w[1:], strides, strict=False)]
    return nn.Sequential(
        ConvBn(3, w[0], 3, 2), *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(w[-1], 2), nn.Softmax(1)
    )


class UNet3d(nn.Module):
    """KiTS19: instance norms, five strides, one volume of 128³."""

    def __init__(self, widths=(32, 64, 128, 256, 320, 320)):
        super().__init__()
        self.enc = nn.ModuleList(
            self._two(a, b, 1 if not i else 2) for i, (a, b) in enumerate(zip((1, *widths), widths, strict=False))
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.ups = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, 2) for a, b in pairs)
        self.dec = nn.ModuleList(self._two(2 * b, b, 1) for _, b in pairs)
        self.out = nn.Conv3d(widths[0], 3, 1)

    @staticmethod
    def _two(c1, c2, s):
        layers = []
        for a, stride in ((c1, s), (c2, 1)):
            layers += [nn.Conv3d(a, c2, 3, stride, 1, bias=False), nn.InstanceNorm3d(c2, affine=True), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x):
        kept = []
        for block in self.enc:
            x = block(x)
            kept.append(x)
        for up, block, skip in zip(self.ups, self.dec, kept[-2::-1], strict=True):
            x = block(torch.cat((up(x), skip), 1))
        return self.out(x)


class RetinaNet(nn.Module):
    """ResNeXt-50 with a feature pyramid and two heads of four convolutions; Open Images' 264 classes, 800 pixels."""

    def __init__(self, classes=264, anchors=9):
        super().__init__()
        body = torchvision.models.resnext50_32x4d()
        self.stem = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1)
        self.stages = nn.ModuleList((body.layer2, body.layer3, body.layer4))
        self.inner = nn.ModuleList(nn.Conv2d(c, 256, 1) for c in (512, 1024, 2048))
        self.outer = nn.ModuleList(nn.Conv2d(256, 256, 3, 1, 1) for _ in range(3))
        self.p6, self.p7 = nn.Conv2d(256, 256, 3, 2, 1), nn.Conv2d(256, 256, 3, 2, 1)
        self.cls, self.box = self._head(classes * anchors), self._head(4 * anchors)

    @staticmethod
    def _head(out):
        layers = [part for _ in range(4) for part in (nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU())]
        return nn.Sequential(*layers, nn.Conv2d(256, out, 3, 1, 1))

    def forward(self, x):
        x, planes = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            planes.append(x)
        made, last = [], None
        for inner, outer, plane in zip(reversed(self.inner), reversed(self.outer), reversed(planes), strict=True):
            y = inner(plane)
            last = y if last is None else y + functional.interpolate(last, size=y.shape[2:])
            made.insert(0, outer(last))
        made.append(self.p6(made[-1]))
        made.append(self.p7(made[-1].relu()))
        return (
            torch.cat([self.cls(plane).flatten(2) for plane in made], 2).sigmoid(),
            torch.cat([self.box(plane).flatten(2) for plane in made], 2),
        )


class SsdResnet34(nn.Module):
    """ResNet-34 up to its third stage, which keeps its stride of 8; five smaller planes behind it, COCO's 81 classes.

    Heads step by 3, so that 1200 pixels have 15,130 boxes: 4 or 6 a cell, on planes of 50, 25, 13, 7, 3 and 3 cells.
    """

    planes = ((256, 4), (512, 6), (512, 6), (256, 6), (256, 4), (256, 4))  # width and boxes a cell
    # narrow, stride and padding of what makes each plane from the one before it
    steps = ((256, 2, 1), (256, 2, 1), (128, 2, 1), (128, 2, 0), (128, 1, 0))

    def __init__(self, classes=81):
        super().__init__()
        self.classes = classes
        body = torchvision.models.resnet34()
        body.layer3[0].conv1.stride = body.layer3[0].downsample[0].stride = (1, 1)
        self.body = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1, body.layer2, body.layer3)
        self.more = nn.ModuleList(
            nn.Sequential(nn.Conv2d(wide, narrow, 1), nn.ReLU(), nn.Conv2d(narrow, out, 3, stride, padding), nn.ReLU())
            for ((wide, _), (out, _)), (narrow, stride, padding) in zip(pairwise(self.planes), self.steps, strict=True)
        )
        self.cls, self.box = (
            nn.ModuleList(nn.Conv2d(wide, boxes * each, 3, 3, 1) for wide, boxes in self.planes)
            for each in (classes, 4)
        )

    def forward(self, x):
        planes = [self.body(x)]
        for more in self.more:
            planes.append(more(planes[-1]))
        scores, sides = (
            torch.cat(
                [head(plane).unflatten(1, (each, -1)).flatten(2) for head, plane in zip(heads, planes, strict=True)], 2
            )
            for heads, each in ((self.cls, self.classes), (self.box, 4))
        )
        return scores.softmax(1), sides


def nets():
    return {
        "mlperf-tiny-autoencoder": Net(make=autoencoder, inputs=((1, 640),)),
        "mlperf-tiny-resnet8": Net(make=resnet8, inputs=image(32), published="78K"),
        "mlperf-tiny-ds-cnn": Net(make=keyword, inputs=image(49, 10, 1)),
        "mobilenet-v1-0.25-96": Net(make=mobilenet_quarter, inputs=image(96)),
        "3d-unet-kits19": Net(make=UNet3d, inputs=((1, 1, 128, 128, 128),)),
        "retinanet-resnext50": Net(make=RetinaNet, inputs=image(800)),
        "ssd-resnet34": Net(make=SsdResnet34, inputs=image(1200), published="~20.058M"),
    }
