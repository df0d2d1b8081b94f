"""MediaPipe's networks of faces and hands."""

import torch
from torch import nn
from torch.nn import functional

from workshop.networks.nets.net import Net, image


class Blaze(nn.Module):
    """Depthwise k × k and 1 × 1 with bias beside a skip; a stride pools the skip, new channels are zeros."""

    def __init__(self, c1, c2, k=5, s=1, act=nn.ReLU, project=False):
        super().__init__()
        self.s, self.grow = s, c2 - c1
        self.convs = nn.Sequential(nn.Conv2d(c1, c1, k, s, k // 2, groups=c1), nn.Conv2d(c1, c2, 1))
        self.project = nn.Conv2d(c1, c2, 1) if project and c1 != c2 else None
        self.act = act(c2) if act is nn.PReLU else act()

    def forward(self, x):
        skip = functional.max_pool2d(x, 2, 2) if self.s == 2 else x
        if self.project is not None:
            skip = self.project(skip)
        elif self.grow:
            skip = functional.pad(skip, (0, 0, 0, 0, 0, self.grow))
        return self.act(self.convs(x) + skip)


def row(c, n, **more):
    return [Blaze(c, c, **more) for _ in range(n)]


def stage(c1, c2, n, **more):
    """A stride, then blocks at the new width."""
    return [Blaze(c1, c2, s=2, **more), *row(c2, n, **more)]


class FaceBack(nn.Module):
    """The 256-pixel face detector: anchors at strides 16 and 32."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 5, 2, 2),
            nn.ReLU(),
            *row(24, 7, k=3),
            *stage(24, 24, 7, k=3),
            *stage(24, 48, 7, k=3),
            *stage(48, 96, 7, k=3),
        )
        self.deep = nn.Sequential(nn.Conv2d(96, 96, 3, 2, 1, groups=96), nn.Conv2d(96, 96, 1), nn.ReLU())
        self.outs = nn.ModuleList(nn.Conv2d(96, c, 1) for c in (2, 6, 32, 96))

    def forward(self, x):
        y = self.body(x)
        z = self.deep(y)
        cls8, cls16, box8, box16 = self.outs
        scores = [_places(cls8(y), 1), _places(cls16(z), 1)]
        return torch.cat([_places(box8(y), 16), _places(box16(z), 16)], 1), torch.cat(scores, 1)


def _places(x, size):
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, size)


class FaceLandmarks(nn.Module):
    """468 points of a face at 192 pixels."""

    def __init__(self):
        super().__init__()
        p = {"k": 3, "act": nn.PReLU}
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.PReLU(16), *row(16, 2, **p), *stage(16, 32, 2, **p), *stage(32, 64, 2, **p),
            *stage(64, 128, 2, **p), *stage(128, 128, 2, **p),
        )  # fmt: skip
        self.points = nn.Sequential(*stage(128, 128, 2, **p), nn.Conv2d(128, 32, 1), nn.PReLU(32), Blaze(32, 32, **p))
        self.sure = nn.Sequential(*stage(128, 128, 0, **p), nn.Conv2d(128, 32, 1), nn.PReLU(32), Blaze(32, 32, **p))
        self.out1, self.out2 = nn.Conv2d(32, 1404, 3), nn.Conv2d(32, 1, 3)

    def forward(self, x):
        y = self.body(x)
        return self.out1(self.points(y)), self.out2(self.sure(y)).sigmoid()


class HandLandmarks(nn.Module):
    """21 points of a hand at 256 pixels: down, up again, and down once more."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), *row(24, 2, k=5), Blaze(24, 48, s=2))
        self.b = nn.Sequential(*row(48, 4), Blaze(48, 96, s=2))
        self.c = nn.Sequential(*row(96, 4), Blaze(96, 96, s=2))
        self.d = nn.Sequential(*row(96, 4), Blaze(96, 96, s=2))
        self.lat = nn.ModuleList(Blaze(c, 48 if c == 48 else 96) for c in (96, 96, 96))
        self.e = nn.Sequential(Blaze(96, 96), nn.Conv2d(96, 48, 1), nn.ReLU())
        self.f = nn.Sequential(
            *row(48, 4), *stage(48, 96, 4), *stage(96, 288, 4, project=True), *stage(288, 288, 4), *stage(288, 288, 4),
            *stage(288, 288, 3),
        )  # fmt: skip
        self.outs = nn.ModuleList(nn.Conv2d(288, c, 2) for c in (1, 1, 63))

    def forward(self, x):
        a = self.a(x)
        b = self.b(a)
        c = self.c(b)
        d = self.d(c)
        up = functional.interpolate
        c = self.lat[0](c + up(self.lat[1](d), scale_factor=2, mode="bilinear"))
        b = self.lat[2](b + up(c, scale_factor=2, mode="bilinear"))
        y = self.f(a + up(self.e(b), scale_factor=2, mode="bilinear"))
        flag, side, points = self.outs
        return flag(y).sigmoid(), side(y).sigmoid(), points(y)


def nets():
    return {
        "mediapipe-face/face_detector": Net(make=FaceBack, inputs=image(256), published="~135K"),
        "mediapipe-face/face_landmark_detector": Net(make=FaceLandmarks, inputs=image(192), published="~603K"),
        "mediapipe-hand/hand_landmark_detector": Net(make=HandLandmarks, inputs=image(256)),
    }
