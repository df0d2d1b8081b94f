"""Detectors of other frameworks: PP-YOLOE and PicoDet of PaddleDetection, YOLO-NAS, and R-CNNs with their proposals.

Convolutions of several branches are one, as they are deployed.
"""

import torch
from torch import nn
from torch.nn import functional

from workshop.networks.nets.net import Net, image
from workshop.networks.nets.yolo_parts import Conv


def twice(x):
    return functional.interpolate(x, scale_factor=2.0)


def relu(c1, c2, k=1, s=1):
    return Conv(c1, c2, k, s, act=nn.ReLU())


def plain(c1, c2, s=1, act=nn.ReLU):
    """3 × 3 that was trained as several branches."""
    return nn.Sequential(nn.Conv2d(c1, c2, 3, s, 1), act())


# PP-YOLOE ------------------------------------------------------------------------------------------------------------


class Weighed(nn.Module):
    """Channels by their means: a 1 × 1 and a hard sigmoid, or a sigmoid and a convolution behind it."""

    def __init__(self, width, after=False):
        super().__init__()
        self.fc, self.after = nn.Conv2d(width, width, 1), Conv(width, width) if after else None

    def forward(self, x):
        gate = self.fc(x.mean((2, 3), keepdim=True))
        return x * functional.hardsigmoid(gate) if self.after is None else self.after(x * gate.sigmoid())


class Pair(nn.Module):
    def __init__(self, width, shortcut):
        super().__init__()
        self.one, self.two, self.shortcut = Conv(width, width, 3), plain(width, width, act=nn.SiLU), shortcut

    def forward(self, x):
        y = self.two(self.one(x))
        return x + y if self.shortcut else y


class Pools(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = Conv(4 * width, width)

    def forward(self, x):
        return self.out(torch.cat((x, *(functional.max_pool2d(x, k, 1, k // 2) for k in (5, 9, 13))), 1))


class PpStage(nn.Module):
    """Two branches of which one has the blocks; the backbone's stages begin with a stride and weigh their channels."""

    def __init__(self, c1, c2, n, *, backbone=False, pools=False):
        super().__init__()
        middle = (c1 + c2) // 2 if backbone else c1
        hidden = middle // 2 if backbone else c2 // 2
        self.down = Conv(c1, middle, 3, 2) if backbone else nn.Identity()
        self.beside, self.before = Conv(middle, hidden), Conv(middle, hidden)
        blocks = [Pair(hidden, backbone) for _ in range(n)]
        if pools:
            blocks.insert((n - 1) // 2 + 1, Pools(hidden))
        self.blocks = nn.Sequential(*blocks)
        self.weigh = Weighed(2 * hidden) if backbone else nn.Identity()
        self.out = Conv(2 * hidden, c2)

    def forward(self, x):
        x = self.down(x)
        return self.out(self.weigh(torch.cat((self.beside(x), self.blocks(self.before(x))), 1)))


class PpYoloe(nn.Module):
    def __init__(self, width, depth, classes=80):
        super().__init__()
        w = [round(c * width) for c in (64, 128, 256, 512, 1024)]
        n = [max(round(count * depth), 1) for count in (3, 6, 6, 3)]
        outs, rows = [round(c * width) for c in (768, 384, 192)], max(round(3 * depth), 1)
        self.stem = nn.Sequential(Conv(3, w[0] // 2, 3, 2), Conv(w[0] // 2, w[0] // 2, 3), Conv(w[0] // 2, w[0], 3))
        self.stages = nn.ModuleList(PpStage(w[i], w[i + 1], n[i], backbone=True) for i in range(4))
        joined = [w[4], w[3] + outs[0] // 2, w[2] + outs[1] // 2]
        self.down = nn.ModuleList(
            PpStage(c, out, rows, pools=not i) for i, (c, out) in enumerate(zip(joined, outs, strict=True))
        )
        self.halves = nn.ModuleList(Conv(out, out // 2) for out in outs[:2])
        self.strides = nn.ModuleList(Conv(out, out, 3, 2) for out in outs[:0:-1])
        self.up = nn.ModuleList(PpStage(outs[i] + outs[i + 1], outs[i], rows) for i in (1, 0))
        heads = outs[::-1]
        self.cls = nn.ModuleList(Weighed(c, after=True) for c in heads)
        self.reg = nn.ModuleList(Weighed(c, after=True) for c in heads)
        self.scores = nn.ModuleList(nn.Conv2d(c, classes, 3, 1, 1) for c in heads)
        self.boxes = nn.ModuleList(nn.Conv2d(c, 68, 3, 1, 1) for c in heads)
        self.expected = nn.Conv2d(17, 1, 1, bias=False)

    def forward(self, x):
        x, planes = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            planes.append(x)
        maps = [self.down[0](planes[3])]
        for place in (0, 1):
            maps.append(self.down[place + 1](torch.cat((twice(self.halves[place](maps[-1])), planes[2 - place]), 1)))
        found = [maps[2]]
        for stride, stage, plane in zip(self.strides, self.up, maps[1::-1], strict=True):
            found.append(stage(torch.cat((stride(found[-1]), plane), 1)))
        scores = [
            score(cls(x) + x).sigmoid().flatten(2) for x, cls, score in zip(found, self.cls, self.scores, strict=True)
        ]
        boxes = [box(reg(x)) for x, reg, box in zip(found, self.reg, self.boxes, strict=True)]
        sides = [
            self.expected(b.reshape(b.shape[0], 4, 17, -1).transpose(1, 2).softmax(1)).flatten(1, 2) for b in boxes
        ]
        return torch.cat(scores, 2), torch.cat(sides, 2)


# PicoDet -------------------------------------------------------------------------------------------------------------


class Apart(nn.Module):
    """A depthwise convolution and a 1 × 1 behind it."""

    def __init__(self, c1, c2, k=3, s=1, weigh=False, act=nn.Hardswish):
        super().__init__()
        self.dw = nn.Sequential(nn.Conv2d(c1, c1, k, s, k // 2, groups=c1, bias=False), nn.BatchNorm2d(c1), act())
        squeezed = (nn.Conv2d(c1, c1 // 4, 1), nn.ReLU(), nn.Conv2d(c1 // 4, c1, 1), nn.Hardsigmoid())
        self.weigh = nn.Sequential(*squeezed) if weigh else None
        self.pw = nn.Sequential(nn.Conv2d(c1, c2, 1, bias=False), nn.BatchNorm2d(c2), act())

    def forward(self, x):
        x = self.dw(x)
        return self.pw(x if self.weigh is None else x * self.weigh(x.mean((2, 3), keepdim=True)))


def joined(width):
    """Two planes that were joined, by two separable convolutions."""
    return nn.Sequential(Apart(2 * width, 2 * width, 5), Apart(2 * width, width, 5))


def _hard(c1, c2):
    return Conv(c1, c2, act=nn.Hardswish())


LC_BLOCKS = (
    ((3, 16, 32, 1),), ((3, 32, 64, 2), (3, 64, 64, 1)), ((3, 64, 128, 2), (3, 128, 128, 1)),
    ((3, 128, 256, 2), *((5, 256, 256, 1),) * 5), ((5, 256, 512, 2), (5, 512, 512, 1)),
)  # fmt: skip


def _eights(width):
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded


class PicoDet(nn.Module):
    """LCNet, its pyramid of four planes, and a head that is shared by classes and boxes."""

    def __init__(self, scale, width, convs, classes=80):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, _eights(16 * scale), 3, 2, 1, bias=False), nn.BatchNorm2d(_eights(16 * scale)), nn.Hardswish()
        )
        self.stages = nn.ModuleList(
            nn.Sequential(*(Apart(_eights(a * scale), _eights(b * scale), k, s, weigh=i == 4) for k, a, b, s in stage))
            for i, stage in enumerate(LC_BLOCKS)
        )
        self.adapt = nn.ModuleList(_hard(_eights(c * scale), width) for c in (128, 256, 512))
        self.tops = nn.ModuleList(Apart(width, width, 5, 2) for _ in range(2))
        self.down = nn.ModuleList(joined(width) for _ in range(2))
        self.strides = nn.ModuleList(Apart(width, width, 5, 2) for _ in range(2))
        self.up = nn.ModuleList(joined(width) for _ in range(2))
        self.head = nn.ModuleList(nn.Sequential(*(Apart(width, width, 5) for _ in range(convs))) for _ in range(4))
        self.weigh = nn.ModuleList(Weighed(width, after=True) for _ in range(4))
        self.align = nn.ModuleList(Apart(width, 1, 5, act=nn.Identity) for _ in range(4))
        self.scores = nn.ModuleList(nn.Conv2d(width, classes, 1) for _ in range(4))
        self.boxes = nn.ModuleList(nn.Conv2d(width, 32, 1) for _ in range(4))

    def forward(self, x):
        x, planes = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            planes.append(x)
        a, b, c = (adapt(plane) for adapt, plane in zip(self.adapt, planes[2:], strict=True))
        b2 = self.down[0](torch.cat((twice(c), b), 1))
        found = [self.down[1](torch.cat((twice(b2), a), 1))]
        for stride, stage, plane in zip(self.strides, self.up, (b2, c), strict=True):
            found.append(stage(torch.cat((stride(found[-1]), plane), 1)))
        found.append(self.tops[0](c) + self.tops[1](found[-1]))
        scores, boxes = [], []
        for plane, head, weigh, align, score, box in zip(
            found, self.head, self.weigh, self.align, self.scores, self.boxes, strict=True
        ):
            y = weigh(head(plane))
            scores.append((score(y).sigmoid() * align(y).sigmoid()).sqrt().flatten(2))
            boxes.append(box(y).flatten(2).unflatten(1, (4, 8)).softmax(2).mean(2))
        return torch.cat(scores, 2), torch.cat(boxes, 2)


# YOLO-NAS ------------------------------------------------------------------------------------------------------------


class NasPair(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two, self.alpha = plain(width, width), plain(width, width), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.alpha * x + self.two(self.one(x))


class NasLayer(nn.Module):
    """Two branches; where `kept`, what is between the blocks is joined, too."""

    def __init__(self, c1, c2, n, hidden, kept=False):
        super().__init__()
        self.one, self.two, self.kept = relu(c1, hidden), relu(c1, hidden), kept
        self.out = relu(hidden * (2 + n * kept), c2)
        self.blocks = nn.ModuleList(NasPair(hidden) for _ in range(n))

    def forward(self, x):
        found = [self.one(x)]
        for block in self.blocks:
            found.append(block(found[-1]))
        return self.out(torch.cat((*(found if self.kept else found[-1:]), self.two(x)), 1))


class NasUp(nn.Module):
    """A plane doubled and joined with the two finer ones of the backbone, the finest with a stride."""

    def __init__(self, c1, skips, out, n, hidden):
        super().__init__()
        self.first, self.wide = relu(c1, out), nn.ConvTranspose2d(out, out, 2, 2)
        self.reduce = nn.ModuleList(relu(c, out) for c in skips)
        self.stride, self.joined, self.layer = relu(out, out, 3, 2), relu(3 * out, out), NasLayer(out, out, n, hidden)

    def forward(self, x, near, fine):
        x = self.first(x)
        parts = self.wide(x), self.reduce[0](near), self.stride(self.reduce[1](fine))
        return x, self.layer(self.joined(torch.cat(parts, 1)))


class NasDown(nn.Module):
    def __init__(self, c1, skip, out, n, hidden):
        super().__init__()
        self.stride, self.layer = relu(c1, out // 2, 3, 2), NasLayer(out // 2 + skip, out, n, hidden)

    def forward(self, x, skip):
        return self.layer(torch.cat((self.stride(x), skip), 1))


class YoloNas(nn.Module):
    """`stages` and `neck` are (blocks, hidden width, joined between); widths before them are those of all sizes."""

    def __init__(self, stages, neck, head, classes=80):
        super().__init__()
        widths, outs = (48, 96, 192, 384, 768), (192, 96, 192, 384)
        self.stem = plain(3, widths[0], 2)
        self.stages = nn.ModuleList(
            nn.Sequential(plain(a, b, 2), NasLayer(b, b, n, hidden, kept))
            for a, b, (n, hidden, kept) in zip(widths, widths[1:], stages, strict=False)
        )
        self.pools = nn.Sequential(relu(768, 384), NasPools(384, 768))
        self.up = nn.ModuleList(
            (NasUp(768, (384, 192), outs[0], *neck[0]), NasUp(outs[0], (192, 96), outs[1], *neck[1]))
        )
        self.down = nn.ModuleList(
            (NasDown(outs[1], outs[1], outs[2], *neck[2]), NasDown(outs[2], outs[0], outs[3], *neck[3]))
        )
        self.heads = nn.ModuleList(
            NasHead(c, int(h * head), classes) for c, h in zip(outs[1:], (128, 256, 512), strict=True)
        )

    def forward(self, x):
        x, planes = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            planes.append(x)
        fine, near, far, last = planes
        kept_far, x = self.up[0](self.pools(last), far, near)
        kept_near, x = self.up[1](x, near, fine)
        found = [x]
        for stage, kept in zip(self.down, (kept_near, kept_far), strict=True):
            found.append(stage(found[-1], kept))
        answers = [head(plane) for head, plane in zip(self.heads, found, strict=True)]
        return torch.cat([a for a, _ in answers], 2), torch.cat([b for _, b in answers], 2)


class NasPools(nn.Module):
    def __init__(self, hidden, out):
        super().__init__()
        self.out = relu(4 * hidden, out)

    def forward(self, x):
        return self.out(torch.cat((x, *(functional.max_pool2d(x, k, 1, k // 2) for k in (5, 9, 13))), 1))


class NasHead(nn.Module):
    def __init__(self, c1, width, classes):
        super().__init__()
        self.stem, self.cls, self.reg = relu(c1, width), relu(width, width, 3), relu(width, width, 3)
        self.scores, self.boxes = nn.Conv2d(width, classes, 1), nn.Conv2d(width, 68, 1)

    def forward(self, x):
        x = self.stem(x)
        sides = self.boxes(self.reg(x)).flatten(2).unflatten(1, (4, 17)).softmax(2).mean(2)
        return self.scores(self.cls(x)).sigmoid().flatten(2), sides


# Width and depth, or the sizes of each part, and the parameters that their authors state.
PP_SIZES = {"s": (0.5, 0.33, "7.93M"), "m": (0.75, 0.67, "23.43M"), "l": (1, 1, "52.20M"), "x": (1.25, 1.33, "98.42M")}
PICO_SIZES = {
    "xs": (0.35, 96, 2, "0.70M"), "s": (0.75, 96, 2, "1.18M"), "m": (1.5, 128, 4, "3.46M"), "l": (2, 160, 4, "5.80M"),
}  # fmt: skip
NAS_SIZES = {
    "s": (
        ((2, 32, False), (3, 64, False), (5, 96, False), (2, 192, False)),
        ((2, 64), (2, 48), (2, 64), (2, 64)), 0.5, "12.2M",
    ),
    "m": (
        ((2, 64, True), (3, 128, True), (5, 256, True), (2, 384, False)),
        ((2, 192), (3, 64), (2, 192), (3, 256)), 0.75, "31.9M",
    ),
    "l": (
        ((2, 96, True), (3, 128, True), (5, 256, True), (2, 512, True)),
        ((4, 128), (4, 128), (4, 128), (4, 256)), 1.0, "42.0M",
    ),
}  # fmt: skip


def nets():
    found = {}
    for size, (width, depth, count) in PP_SIZES.items():
        found[f"pp-yoloe-{size}"] = Net(
            make=lambda w=width, d=depth: PpYoloe(w, d), inputs=image(640), step=32, published=f"~{count}"
        )
    for size, (scale, width, convs, count) in PICO_SIZES.items():
        found[f"picodet-{size}"] = Net(
            make=lambda a=(scale, width, convs): PicoDet(*a), inputs=image(320), step=32, published=f"~{count}"
        )
    for size, (stages, neck, head, count) in NAS_SIZES.items():
        found[f"yolo-nas-{size}"] = Net(
            make=lambda a=(stages, neck, head): YoloNas(*a), inputs=image(640), step=32, published=f"~{count}"
        )
    return found
