"""YOLOs of other hands: v4, v6, v7, YOLOX, YOLOv5 as it was up to release 3; and RTMDet, which is built alike."""

import torch
from torch import nn
from torch.nn import functional

from workshop.networks.nets import yolo_tables as tables
from workshop.networks.nets.yolo import build, divisible
from workshop.networks.nets.yolo_heads import AnchorDetect
from workshop.networks.nets.yolo_parts import Bottleneck, Conv, Rep, SpatialPyramid


def relu(c1, c2, k=1, s=1):
    return Conv(c1, c2, k, s, act=nn.ReLU())


# YOLOX ---------------------------------------------------------------------------------------------------------------


class Decoupled(nn.Module):
    """YOLOX's head: a stem, two convolutions for classes and two for boxes at each scale."""

    def __init__(self, widths, classes=80):
        super().__init__()
        hidden = widths[0]
        self.stems = nn.ModuleList(Conv(c1, hidden) for c1 in widths)
        self.cls = nn.ModuleList(nn.Sequential(Conv(hidden, hidden, 3), Conv(hidden, hidden, 3)) for _ in widths)
        self.reg = nn.ModuleList(nn.Sequential(Conv(hidden, hidden, 3), Conv(hidden, hidden, 3)) for _ in widths)
        self.outs = nn.ModuleList(nn.ModuleList(nn.Conv2d(hidden, out, 1) for out in (4, 1, classes)) for _ in widths)

    def forward(self, maps):
        found = []
        for x, stem, cls, reg, (box, sure, score) in zip(maps, self.stems, self.cls, self.reg, self.outs, strict=True):
            y = stem(x)
            boxes, scores = reg(y), cls(y)
            found.append(torch.cat((box(boxes), sure(boxes).sigmoid(), score(scores).sigmoid()), 1).flatten(2))
        joined = torch.cat(found, 2).permute(0, 2, 1)
        places = joined.shape[1]
        centres, strides = joined.new_empty(1, places, 2), joined.new_empty(1, places, 1)
        middle = (joined[..., :2] + centres) * strides
        return torch.cat((middle, joined[..., 2:4].exp() * strides, joined[..., 4:]), -1)


# YOLOv5 up to 3.1 ----------------------------------------------------------------------------------------------------


class Csp(nn.Module):
    """Cross-stage block with plain 1 × 1 on both branches and one norm over their joint."""

    def __init__(self, c1, c2, n=1, shortcut=True):
        super().__init__()
        hidden = c2 // 2
        self.cv1, self.cv4 = Conv(c1, hidden), Conv(2 * hidden, c2)
        self.cv2, self.cv3 = nn.Conv2d(c1, hidden, 1, bias=False), nn.Conv2d(hidden, hidden, 1, bias=False)
        self.bn = nn.BatchNorm2d(2 * hidden)
        self.m = nn.Sequential(*(Bottleneck(hidden, hidden, shortcut, (1, 3), 1.0) for _ in range(n)))

    def forward(self, x):
        joined = torch.cat((self.cv3(self.m(self.cv1(x))), self.cv2(x)), 1)
        return self.cv4(functional.leaky_relu(self.bn(joined), 0.1))


def early_v5(scale, pyramid=True):
    """Release 3: YOLOv5's table of release 4 with cross-stage blocks. Without its pyramid: two 1 × 1 in its place."""
    model = build(tables.V5_OLD, scale, AnchorDetect)
    for index, layer in enumerate(model.model):
        if type(layer).__name__ == "C3":
            c1 = layer.cv1.conv.in_channels
            c2, n = layer.cv3.conv.out_channels, len(layer.m)
            model.model[index] = Csp(c1, c2, n, layer.m[0].add)
        if isinstance(layer, SpatialPyramid) and not pyramid:
            c1 = layer.cv1.conv.in_channels
            model.model[index] = nn.Sequential(Conv(c1, 2 * c1), Conv(2 * c1, c1))
    return model


# YOLOv6 3.0 ----------------------------------------------------------------------------------------------------------


class RepRow(nn.Sequential):
    def __init__(self, c1, c2, n):
        super().__init__(*(_rep(c1 if not i else c2, c2) for i in range(n)))


def _rep(c1, c2, s=1):
    return nn.Sequential(nn.Conv2d(c1, c2, 3, s, 1), nn.ReLU())


class BottleRep(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = _rep(width, width), _rep(width, width)
        self.alpha = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.conv2(self.conv1(x)) + self.alpha * x


class BepC3(nn.Module):
    def __init__(self, c1, c2, n, e):
        super().__init__()
        hidden = int(c2 * e)
        self.cv1, self.cv2, self.cv3 = relu(c1, hidden), relu(c1, hidden), relu(2 * hidden, c2)
        self.m = nn.Sequential(*(BottleRep(hidden) for _ in range(max(n // 2, 1))))

    def forward(self, x):
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class CspPyramid(nn.Module):
    """Pools on one of two branches; `before` and `after` are 3 × 3 around them."""

    def __init__(self, c1, c2, conv, row=True, hidden=None):
        super().__init__()
        hidden = hidden or c2 // 2
        self.row = row
        self.before = nn.Sequential(conv(c1, hidden), conv(hidden, hidden, 3), conv(hidden, hidden))
        self.beside = conv(c1, hidden)
        self.after = nn.Sequential(conv(4 * hidden, hidden), conv(hidden, hidden, 3))
        self.out = conv(2 * hidden, c2)

    def forward(self, x):
        parts = [self.before(x)]
        for side in (5, 5, 5) if self.row else (5, 9, 13):
            parts.append(functional.max_pool2d(parts[-1 if self.row else 0], side, 1, side // 2))
        return self.out(torch.cat((self.after(torch.cat(parts, 1)), self.beside(x)), 1))


class Pyramid(nn.Module):
    def __init__(self, c1, c2):
        super().__init__()
        self.cv1, self.cv2 = relu(c1, c1 // 2), relu(2 * c1, c2)

    def forward(self, x):
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.cv2(torch.cat(parts, 1))


class BiFusion(nn.Module):
    """Three neighbouring scales joined at the middle one."""

    def __init__(self, deep, same, shallow, c2):
        super().__init__()
        self.up = nn.ConvTranspose2d(deep, c2, 2, 2)
        self.cv1, self.cv2, self.cv3 = relu(same, c2), relu(shallow, c2), relu(3 * c2, c2)
        self.down = relu(c2, c2, 3, 2)

    def forward(self, deep, same, shallow):
        return self.cv3(torch.cat((self.up(deep), self.cv1(same), self.down(self.cv2(shallow))), 1))


class YoloV6(nn.Module):
    def __init__(self, depth, factor, csp=0.0, bins=0):
        super().__init__()
        w = [divisible(c * factor) for c in (64, 128, 256, 512, 1024, 256, 128, 128, 256, 256, 512)]
        n = [max(round(c * depth), 1) for c in (1, 6, 12, 18, 6, 12, 12, 12, 12)]

        def block(c1, c2, repeats):
            return BepC3(c1, c2, repeats, csp) if csp else RepRow(c1, c2, repeats)

        self.stem = _rep(3, w[0], 2)
        self.stages = nn.ModuleList(
            nn.Sequential(_rep(w[i], w[i + 1], 2), block(w[i + 1], w[i + 1], n[i + 1])) for i in range(4)
        )
        self.pyramid = Pyramid(w[4], w[4]) if csp else CspPyramid(w[4], w[4], relu)
        self.reduce0, self.fuse0, self.p4 = relu(w[4], w[5]), BiFusion(w[5], w[3], w[2], w[5]), block(w[5], w[5], n[5])
        self.reduce1, self.fuse1, self.p3 = relu(w[5], w[6]), BiFusion(w[6], w[2], w[1], w[6]), block(w[6], w[6], n[6])
        self.down2, self.n3 = relu(w[6], w[7], 3, 2), block(w[6] + w[7], w[8], n[7])
        self.down1, self.n4 = relu(w[8], w[9], 3, 2), block(w[5] + w[9], w[10], n[8])
        self.bins = bins
        self.heads = nn.ModuleList(
            nn.ModuleDict({
                "stem": Conv(c, c), "cls": Conv(c, c, 3), "reg": Conv(c, c, 3),
                "score": nn.Conv2d(c, 80, 1), "box": nn.Conv2d(c, 4 * (bins + 1), 1),
            })
            for c in (w[6], w[8], w[10])
        )  # fmt: skip

    def forward(self, x):
        x = self.stem(x)
        planes = []
        for stage in self.stages:
            x = stage(x)
            planes.append(x)
        p2, p3, p4, p5 = planes
        p5 = self.reduce0(self.pyramid(p5))
        up4 = self.p4(self.fuse0(p5, p4, p3))
        up4 = self.reduce1(up4)
        out3 = self.p3(self.fuse1(up4, p3, p2))
        out4 = self.n3(torch.cat((self.down2(out3), up4), 1))
        out5 = self.n4(torch.cat((self.down1(out4), p5), 1))
        boxes, scores = [], []
        for head, plane in zip(self.heads, (out3, out4, out5), strict=True):
            y = head["stem"](plane)
            scores.append(head["score"](head["cls"](y)).sigmoid().flatten(2))
            box = head["box"](head["reg"](y)).flatten(2)
            if self.bins:
                box = box.view(box.shape[0], 4, self.bins + 1, box.shape[2]).softmax(2).mean(2)
            boxes.append(box)
        boxes, scores = torch.cat(boxes, 2), torch.cat(scores, 2)
        centres = boxes.new_empty(2, boxes.shape[2])
        near, far = boxes.chunk(2, 1)
        return torch.cat(((centres - near) * 8, (centres + far) * 8, scores), 1)


# YOLOv7 --------------------------------------------------------------------------------------------------------------


class Elan7(nn.Module):
    """Two 1 × 1 branches, a chain of 3 × 3 on the second; the kept stages of the chain are joined."""

    def __init__(self, c1, hidden, width, c2, chain, kept, conv=Conv):
        super().__init__()
        self.kept = kept
        self.cv1, self.cv2 = conv(c1, hidden), conv(c1, hidden)
        self.chain = nn.ModuleList(conv(hidden if not i else width, width, 3) for i in range(chain))
        self.out = conv(2 * hidden + len(kept) * width, c2)

    def forward(self, x):
        y = self.cv2(x)
        parts = [self.cv1(x), y]
        for index, conv in enumerate(self.chain):
            y = conv(y)
            if index in self.kept:
                parts.append(y)
        return self.out(torch.cat(parts[::-1], 1))


class Down7(nn.Module):
    """A max pool and a stride side by side."""

    def __init__(self, c1, width):
        super().__init__()
        self.pooled, self.cv1, self.cv2 = Conv(c1, width), Conv(c1, width), Conv(width, width, 3, 2)

    def forward(self, x):
        return torch.cat((self.cv2(self.cv1(x)), self.pooled(functional.max_pool2d(x, 2, 2))), 1)


def _up(x):
    return functional.interpolate(x, scale_factor=2, mode="nearest")


class YoloV7(nn.Module):
    """`base` widens and `chain` lengthens: v7 has 32 and 4, v7x 40 and 6."""

    def __init__(self, base=32, chain=4):
        super().__init__()
        b, h = base, 64
        stages, every = tuple(range(1, chain, 2)), tuple(range(chain))

        def block(c1, hidden, c2):
            return Elan7(c1, hidden, hidden, c2, chain, stages)

        def path(c1, hidden, c2):
            return Elan7(c1, hidden, hidden // 2, c2, 4, every) if chain == 4 else block(c1, hidden, c2)

        self.stem = nn.Sequential(Conv(3, b, 3), Conv(b, 2 * b, 3, 2), Conv(2 * b, 2 * b, 3), Conv(2 * b, 4 * b, 3, 2))
        self.e2, self.d3 = block(4 * b, h, 8 * b), Down7(8 * b, 4 * b)
        self.e3, self.d4 = block(8 * b, 2 * h, 16 * b), Down7(16 * b, 8 * b)
        self.e4, self.d5 = block(16 * b, 4 * h, 32 * b), Down7(32 * b, 16 * b)
        self.e5 = block(32 * b, 4 * h, 32 * b)
        self.pyramid = CspPyramid(32 * b, 16 * b, Conv, row=False, hidden=16 * b)
        self.l5, self.l4, self.p4 = Conv(16 * b, 8 * b), Conv(32 * b, 8 * b), path(16 * b, 4 * h, 8 * b)
        self.m4, self.l3, self.p3 = Conv(8 * b, 4 * b), Conv(16 * b, 4 * b), path(8 * b, 2 * h, 4 * b)
        self.t4, self.n4 = Down7(4 * b, 4 * b), path(16 * b, 4 * h, 8 * b)
        self.t5, self.n5 = Down7(8 * b, 8 * b), path(32 * b, 8 * h, 16 * b)
        last = Rep if chain == 4 else lambda c1, c2: Conv(c1, c2, 3)
        self.ends = nn.ModuleList(last(c, 2 * c) for c in (4 * b, 8 * b, 16 * b))
        self.head = AnchorDetect([8 * b, 16 * b, 32 * b])

    def forward(self, x):
        c3 = self.e3(self.d3(self.e2(self.stem(x))))
        c4 = self.e4(self.d4(c3))
        c5 = self.pyramid(self.e5(self.d5(c4)))
        p4 = self.p4(torch.cat((self.l4(c4), _up(self.l5(c5))), 1))
        p3 = self.p3(torch.cat((self.l3(c3), _up(self.m4(p4))), 1))
        n4 = self.n4(torch.cat((self.t4(p3), p4), 1))
        n5 = self.n5(torch.cat((self.t5(n4), c5), 1))
        return self.head([end(plane) for end, plane in zip(self.ends, (p3, n4, n5), strict=True)])


def leaky(c1, c2, k=1, s=1):
    return Conv(c1, c2, k, s, act=nn.LeakyReLU(0.1))


class YoloV7Tiny(nn.Module):
    def __init__(self):
        super().__init__()

        def block(c1, hidden, c2):
            return Elan7(c1, hidden, hidden, c2, 2, (0, 1), leaky)

        self.stem = nn.Sequential(leaky(3, 32, 3, 2), leaky(32, 64, 3, 2), block(64, 32, 64))
        self.e3, self.e4, self.e5 = block(64, 64, 128), block(128, 128, 256), block(256, 256, 512)
        self.s1, self.s2, self.s3, self.s4 = leaky(512, 256), leaky(512, 256), leaky(1024, 256), leaky(512, 256)
        self.l5, self.l4, self.p4 = leaky(256, 128), leaky(256, 128), block(256, 64, 128)
        self.m4, self.l3, self.p3 = leaky(128, 64), leaky(128, 64), block(128, 32, 64)
        self.t4, self.n4 = leaky(64, 128, 3, 2), block(256, 64, 128)
        self.t5, self.n5 = leaky(128, 256, 3, 2), block(512, 128, 256)
        self.ends = nn.ModuleList(leaky(c, 2 * c, 3) for c in (64, 128, 256))
        self.head = AnchorDetect([128, 256, 512])

    def forward(self, x):
        c3 = self.e3(functional.max_pool2d(self.stem(x), 2, 2))
        c4 = self.e4(functional.max_pool2d(c3, 2, 2))
        c5 = self.e5(functional.max_pool2d(c4, 2, 2))
        y = self.s2(c5)
        pooled = [functional.max_pool2d(y, side, 1, side // 2) for side in (13, 9, 5)]
        c5 = self.s4(torch.cat((self.s3(torch.cat((*pooled, y), 1)), self.s1(c5)), 1))
        p4 = self.p4(torch.cat((self.l4(c4), _up(self.l5(c5))), 1))
        p3 = self.p3(torch.cat((self.l3(c3), _up(self.m4(p4))), 1))
        n4 = self.n4(torch.cat((self.t4(p3), p4), 1))
        n5 = self.n5(torch.cat((self.t5(n4), c5), 1))
        return self.head([end(plane) for end, plane in zip(self.ends, (p3, n4, n5), strict=True)])


# YOLOv4 --------------------------------------------------------------------------------------------------------------


class Residual4(nn.Module):
    def __init__(self, c1, hidden, conv):
        super().__init__()
        self.cv1, self.cv2 = conv(c1, hidden), conv(hidden, c1, 3)

    def forward(self, x):
        return x + self.cv2(self.cv1(x))


class Stage4(nn.Module):
    """CSPDarknet53: a stride, two branches, residuals on one of them. The first stage keeps its width."""

    def __init__(self, c1, c2, n, conv, first=False):
        super().__init__()
        half = c2 if first else c2 // 2
        self.down, self.cv1, self.cv2 = conv(c1, c2, 3, 2), conv(c2, half), conv(c2, half)
        self.m = nn.Sequential(*(Residual4(half, c2 // 2 if first else half, conv) for _ in range(n)))
        self.cv3, self.cv4 = conv(half, half), conv(2 * half, c2)

    def forward(self, x):
        x = self.down(x)
        return self.cv4(torch.cat((self.cv3(self.m(self.cv2(x))), self.cv1(x)), 1))


class YoloV4(nn.Module):
    def __init__(self, act=nn.Mish):
        super().__init__()

        def conv(c1, c2, k=1, s=1):
            return Conv(c1, c2, k, s, act=act())

        self.stem = conv(3, 32, 3)
        self.stages = nn.ModuleList(
            Stage4(c1, c2, n, conv, first=c1 == 32)
            for c1, c2, n in ((32, 64, 1), (64, 128, 2), (128, 256, 8), (256, 512, 8), (512, 1024, 4))
        )
        self.before = nn.Sequential(leaky(1024, 512), leaky(512, 1024, 3), leaky(1024, 512))
        self.after = nn.Sequential(leaky(2048, 512), leaky(512, 1024, 3), leaky(1024, 512))
        self.u5, self.l4, self.p4 = leaky(512, 256), leaky(512, 256), self._five(512, 256)
        self.u4, self.l3, self.p3 = leaky(256, 128), leaky(256, 128), self._five(256, 128)
        self.d3, self.n4 = leaky(128, 256, 3, 2), self._five(512, 256)
        self.d4, self.n5 = leaky(256, 512, 3, 2), self._five(1024, 512)
        self.ends = nn.ModuleList(leaky(c, 2 * c, 3) for c in (128, 256, 512))
        self.head = AnchorDetect([256, 512, 1024])

    @staticmethod
    def _five(c1, c2):
        return nn.Sequential(
            leaky(c1, c2), leaky(c2, 2 * c2, 3), leaky(2 * c2, c2), leaky(c2, 2 * c2, 3), leaky(2 * c2, c2)
        )

    def forward(self, x):
        x = self.stem(x)
        planes = []
        for stage in self.stages:
            x = stage(x)
            planes.append(x)
        c3, c4, c5 = planes[2:]
        y = self.before(c5)
        pooled = [functional.max_pool2d(y, side, 1, side // 2) for side in (13, 9, 5)]
        p5 = self.after(torch.cat((*pooled, y), 1))
        p4 = self.p4(torch.cat((self.l4(c4), _up(self.u5(p5))), 1))
        p3 = self.p3(torch.cat((self.l3(c3), _up(self.u4(p4))), 1))
        n4 = self.n4(torch.cat((self.d3(p3), p4), 1))
        n5 = self.n5(torch.cat((self.d4(n4), p5), 1))
        return self.head([end(plane) for end, plane in zip(self.ends, (p3, n4, n5), strict=True)])


class YoloV4Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(leaky(3, 32, 3, 2), leaky(32, 64, 3, 2))
        self.stages = nn.ModuleList(TinyStage(c) for c in (64, 128, 256))
        self.cv1, self.cv2, self.cv3 = leaky(512, 512, 3), leaky(512, 256), leaky(256, 512, 3)
        self.up, self.end = leaky(256, 128), leaky(384, 256, 3)
        self.head = AnchorDetect([256, 512])

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            kept, x = stage(x)
        y = self.cv2(self.cv1(x))
        return self.head([self.end(torch.cat((_up(self.up(y)), kept), 1)), self.cv3(y)])


class TinyStage(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2, self.cv3, self.cv4 = (
            leaky(c, c, 3),
            leaky(c // 2, c // 2, 3),
            leaky(c // 2, c // 2, 3),
            leaky(c, c),
        )

    def forward(self, x):
        x = self.cv1(x)
        a = self.cv2(x.chunk(2, 1)[1])
        y = self.cv4(torch.cat((self.cv3(a), a), 1))
        return y, functional.max_pool2d(torch.cat((x, y), 1), 2, 2)


# RTMDet --------------------------------------------------------------------------------------------------------------


class LargeKernel(nn.Module):
    """CSPNeXt's block: a 3 × 3, then a depthwise 5 × 5 and a pointwise."""

    def __init__(self, width, add):
        super().__init__()
        self.add = add
        self.rows = nn.Sequential(Conv(width, width, 3), Conv(width, width, 5, g=width), Conv(width, width))

    def forward(self, x):
        return x + self.rows(x) if self.add else self.rows(x)


class Weighed(nn.Module):
    """Channels weighed by what the whole map holds of them."""

    def __init__(self, width):
        super().__init__()
        self.fc = nn.Conv2d(width, width, 1)

    def forward(self, x):
        return x * functional.hardsigmoid(self.fc(functional.adaptive_avg_pool2d(x, 1)))


class NextStage(nn.Module):
    """A cross-stage row of large-kernel blocks; in the backbone the joint channels are weighed."""

    def __init__(self, c1, c2, n, add=True, weighed=True):
        super().__init__()
        half = c2 // 2
        self.main, self.short, self.final = Conv(c1, half), Conv(c1, half), Conv(2 * half, c2)
        self.blocks = nn.Sequential(*(LargeKernel(half, add) for _ in range(n)))
        self.weigh = Weighed(2 * half) if weighed else nn.Identity()

    def forward(self, x):
        return self.final(self.weigh(torch.cat((self.blocks(self.main(x)), self.short(x)), 1)))


class Pools(nn.Module):
    """Pools of three sizes side by side."""

    def __init__(self, width):
        super().__init__()
        self.cv1, self.cv2 = Conv(width, width // 2), Conv(2 * width, width)

    def forward(self, x):
        y = self.cv1(x)
        return self.cv2(torch.cat((y, *(functional.max_pool2d(y, k, 1, k // 2) for k in (5, 9, 13))), 1))


class SharedHead(nn.Module):
    """The same convolutions at every scale, each scale with norms of its own."""

    def __init__(self, width, classes=80):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(nn.ModuleList(nn.BatchNorm2d(width) for _ in range(4)) for _ in range(3))
        self.outs = nn.ModuleList(nn.ModuleList((nn.Conv2d(width, classes, 1), nn.Conv2d(width, 4, 1))) for _ in "abc")

    def forward(self, maps):
        found = []
        for x, norms, (score, box) in zip(maps, self.norms, self.outs, strict=True):
            classes = boxes = x
            for conv, norm in zip(self.convs[:2], norms[:2], strict=True):
                classes = functional.silu(norm(conv(classes)))
            for conv, norm in zip(self.convs[2:], norms[2:], strict=True):
                boxes = functional.silu(norm(conv(boxes)))
            found.append(torch.cat((score(classes).sigmoid(), box(boxes).exp()), 1).flatten(2))
        return torch.cat(found, 2)


class RtmDet(nn.Module):
    """CSPNeXt, a path-aggregating pyramid of the same stages, and a head whose scales share their convolutions."""

    def __init__(self, depth, width):
        super().__init__()
        widths = [int(c * width) for c in (64, 128, 256, 512, 1024)]
        half, counts = widths[0] // 2, [max(round(n * depth), 1) for n in (3, 6, 6, 3)]
        self.stem = nn.Sequential(Conv(3, half, 3, 2), Conv(half, half, 3), Conv(half, widths[0], 3))
        self.stages = nn.ModuleList(
            nn.Sequential(
                Conv(c1, c2, 3, 2), *([Pools(c2)] if c2 == widths[4] else []), NextStage(c2, c2, n, c2 != widths[4])
            )
            for c1, c2, n in zip(widths, widths[1:], counts, strict=False)
        )
        small, middle, wide = widths[2:]
        n = counts[0]
        self.reduce = nn.ModuleList((Conv(wide, middle), Conv(middle, small)))
        self.down = nn.ModuleList(
            (NextStage(2 * middle, middle, n, False, False), NextStage(2 * small, small, n, False, False))
        )
        self.smaller = nn.ModuleList((Conv(small, small, 3, 2), Conv(middle, middle, 3, 2)))
        self.up = nn.ModuleList(
            (NextStage(2 * small, middle, n, False, False), NextStage(2 * middle, wide, n, False, False))
        )
        self.outs = nn.ModuleList(Conv(c, small, 3) for c in (small, middle, wide))
        self.head = SharedHead(small)

    def forward(self, image):
        maps, x = [], self.stem(image)
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        _, fine, middle, coarse = maps
        coarse = self.reduce[0](coarse)
        middle = self.reduce[1](self.down[0](torch.cat((_up(coarse), middle), 1)))
        fine = self.down[1](torch.cat((_up(middle), fine), 1))
        middle = self.up[0](torch.cat((self.smaller[0](fine), middle), 1))
        coarse = self.up[1](torch.cat((self.smaller[1](middle), coarse), 1))
        return self.head([out(x) for out, x in zip(self.outs, (fine, middle, coarse), strict=True)])


def nets():
    found = {
        "rtmdet-tiny": (lambda: RtmDet(0.167, 0.375), 640, "4.8M"),
        "rtmdet-s": (lambda: RtmDet(0.33, 0.5), 640, "8.89M"),
        "rtmdet-m": (lambda: RtmDet(0.67, 0.75), 640, "24.71M"),
        "rtmdet-l": (lambda: RtmDet(1.0, 1.0), 640, "52.3M"),
        "rtmdet-x": (lambda: RtmDet(1.33, 1.25), 640, "94.86M"),
        "yolov7": (YoloV7, 640, "36.9M"),
        "yolov7x": (lambda: YoloV7(40, 6), 640, "71.3M"),
        "yolov7-tiny": (YoloV7Tiny, 640, "~6.24M"),
        "yolov4": (YoloV4, 608, "64.3M"),
        "yolov4-leaky": (lambda: YoloV4(lambda: nn.LeakyReLU(0.1)), 512, "~64.33M"),
        "yolov4-tiny": (YoloV4Tiny, 416, "6.06M"),
        "yolov6n": (lambda: YoloV6(0.33, 0.25), 640, "~4.68M"),
        "yolov6s": (lambda: YoloV6(0.33, 0.5), 640, "18.5M"),
        "yolov6m": (lambda: YoloV6(0.6, 0.75, 2 / 3, 16), 640, "34.9M"),
        "yolov6l": (lambda: YoloV6(1.0, 1.0, 0.5, 16), 640, "59.6M"),
    }
    for size, scale, count in (
        ("tiny", (0.33, 0.375, 1024), "5.06M"), ("s", (0.33, 0.5, 1024), "8.97M"), ("m", (0.67, 0.75, 1024), "25.3M"),
        ("l", (1.0, 1.0, 1024), "54.2M"), ("x", (1.33, 1.25, 1024), "99.1M"),
    ):  # fmt: skip
        found[f"yolox-{size}"] = (
            (lambda s=scale: build(tables.V5_OLD, s, Decoupled)), 416 if size == "tiny" else 640, count
        )  # fmt: skip
    for size, count, bare in (("s", "~7.46M", "~7.85M"), ("m", "~21.78M", "~22.67M")):
        scale = tables.V5_SCALES[size]
        found[f"yolov5{size}-3.0"] = ((lambda s=scale: early_v5(s)), 640, count)
        found[f"yolov5{size}-3.0-without-spp"] = ((lambda s=scale: early_v5(s, pyramid=False)), 640, bare)
    return found
