"""Networks that the package qai-hub-models defines itself, and OSNet and a VGG of boxes, which it takes from elsewhere.

The package's models ask for weights at once; here they get none. `_UNUSED` are libraries that it imports to judge and
to upload models.
"""

import importlib
import sys
from unittest.mock import MagicMock, patch

import torch
import torchvision
from torch import nn

from workshop.networks.nets.net import Net, image
from workshop.networks.nets.segmentation import ConvBn

_UNUSED = (
    "podm", "podm.metrics", "aiofiles", "aiohttp", "inputimeout", "mypy_boto3_s3", "mypy_boto3_s3.client",
    "mypy_boto3_s3.service_resource",
)  # fmt: skip


def _of_package(folder, name, plain):
    """Its own defaults are enough where `plain`; else what it adds to them when weights are read."""

    def make():
        for library in _UNUSED:
            sys.modules.setdefault(library, MagicMock())
        module = importlib.import_module(f"qai_hub_models.models.{folder}.model")
        module.CachedWebModelAsset = MagicMock()
        module.load_torch = MagicMock()
        model = getattr(module, name)
        if plain:
            return model()
        stays = patch.object(nn.Module, "to", lambda self, *_: self)
        with stays, patch.object(nn.Module, "load_state_dict"), patch.object(torch, "load", MagicMock()):
            return model.from_pretrained()

    return make


class Light(nn.Sequential):
    """A 1 x 1 without activation, then a depthwise 3 x 3."""

    def __init__(self, c1, c2):
        super().__init__(
            nn.Conv2d(c1, c2, 1, bias=False), nn.Conv2d(c2, c2, 3, 1, 1, groups=c2, bias=False), nn.BatchNorm2d(c2),
            nn.ReLU(),
        )  # fmt: skip


class Gate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2 = nn.Conv2d(c, c // 16, 1), nn.Conv2d(c // 16, c, 1)

    def forward(self, x):
        return x * self.cv2(self.cv1(x.mean((2, 3), keepdim=True)).relu()).sigmoid()


class OmniScale(nn.Module):
    """Four streams of one to four light convolutions, added by one gate that they share."""

    def __init__(self, c1, c2):
        super().__init__()
        middle = c2 // 4
        self.start = ConvBn(c1, middle, 1)
        self.streams = nn.ModuleList(nn.Sequential(*(Light(middle, middle) for _ in range(n))) for n in (1, 2, 3, 4))
        self.gate = Gate(middle)
        self.end = nn.Sequential(nn.Conv2d(middle, c2, 1, bias=False), nn.BatchNorm2d(c2))
        self.skip = None if c1 == c2 else nn.Sequential(nn.Conv2d(c1, c2, 1, bias=False), nn.BatchNorm2d(c2))

    def forward(self, x):
        y = self.start(x)
        y = self.end(sum(self.gate(stream(y)) for stream in self.streams))
        return (y + (x if self.skip is None else self.skip(x))).relu()


class OSNet(nn.Module):
    """OSNet x1.0 (arXiv 1905.00953): features of 512 for telling people apart; 2.2M parameters, 979M MACs."""

    def __init__(self):
        super().__init__()
        rows = ((64, 256, True), (256, 384, True), (384, 512, False))
        stages = []
        for c1, c2, halves in rows:
            stages += [OmniScale(c1, c2), OmniScale(c2, c2)]
            stages += [ConvBn(c2, c2, 1), nn.AvgPool2d(2, 2)] if halves else []
        self.body = nn.Sequential(ConvBn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *stages, ConvBn(512, 512, 1))
        self.features = nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU())

    def forward(self, x):
        return self.features(self.body(x).mean((2, 3)))


class BoxVgg(nn.Module):
    """A VGG-19 whose three heads tell direction, its confidence, and size of a box (arXiv 1612.00496)."""

    def __init__(self):
        super().__init__()
        self.body = torchvision.models.vgg19_bn().features
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Linear(512 * 49, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outs)
            )
            for width, outs in ((256, 4), (256, 2), (512, 3))
        )

    def forward(self, x):
        y = self.body(x).flatten(1)
        return tuple(head(y) for head in self.heads)


def nets():
    packaged = (
        ("face-det-lite", "face_det_lite", "FaceDetLite", image(480, 640, channels=1), True, "~878K"),
        ("foot-track-net", "foot_track_net", "FootTrackNet", image(480, 640), True, "~2.53M"),
        ("gear-guard-net", "gear_guard_net", "GearGuardNet", image(320, 192), False, "~6.19M"),
        ("facemap-3dmm", "facemap_3dmm", "FaceMap_3DMM", image(128), False, "~5.42M"),
    )
    found = {
        name: Net(make=_of_package(folder, kind, plain), inputs=inputs, published=published)
        for name, folder, kind, inputs, plain, published in packaged
    }
    found["osnet-x1.0"] = Net(make=OSNet, inputs=image(256, 128), published="~2.2M")
    found["deepbox/vgg_3d_detection"] = Net(make=BoxVgg, inputs=image(224))
    return found
