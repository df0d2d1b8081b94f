"""Networks of streets, poses and sounds that no package has: FFNet, BiSeNet, PIDNet, HRNet-OCR, PoseNet, YAMNet."""

import timm
import torch
from torch import nn
from torch.nn import functional

from workshop.networks.nets.net import Net, image
from workshop.networks.nets.segmentation import BnConv, ConvBn, HrFeatures, Residual, resize

FF_WIDTHS = (64, 128, 192, 320)
FF_HEADS = {"B": ((64, 128, 128, 256), (96, 96, 64, 32), 256, 3), "C": ((128,) * 4, (128, 16, 16, 16), 128, 1)}


class FFNet(nn.Module):
    """A slim ResNet whose four planes are added up on the way back and joined at the widest.

    `head` B has 3 × 3 convolutions at the end, C fewer channels and 1 × 1. A `deep` stem has a stride of 8, not 4.
    """

    def __init__(self, depths, head="B", deep=True, classes=19):
        super().__init__()
        adapted, outs, mid, k = FF_HEADS[head]
        self.stem = nn.Sequential(ConvBn(3, 32, 3, 2), ConvBn(32, 64, 3, 2), ConvBn(64, 64, 3, 2 if deep else 1))
        self.stages = nn.ModuleList()
        c = 64
        for index, (width, depth) in enumerate(zip(FF_WIDTHS, depths, strict=True)):
            blocks = [Residual(c if not i else width, width, 2 if index and not i else 1) for i in range(depth)]
            self.stages.append(nn.Sequential(*blocks))
            c = width
        self.adapters = nn.ModuleList(ConvBn(a, b, 1) for a, b in zip(FF_WIDTHS, adapted, strict=True))
        self.smooth = nn.ModuleList(ConvBn(a, b) for a, b in zip(adapted, outs, strict=True))
        self.ups = nn.ModuleList(ConvBn(adapted[i + 1], adapted[i], 1) for i in range(3))
        self.out = nn.Sequential(ConvBn(sum(outs), mid, k, bias=True), nn.Conv2d(mid, classes, k, padding=k // 2))

    def forward(self, x):
        x, planes = self.stem(x), []
        for stage, adapter in zip(self.stages, self.adapters, strict=True):
            x = stage(x)
            planes.append(adapter(x))
        y = planes[3]
        smooth = [self.smooth[3](y)]
        for place in (2, 1, 0):
            y = functional.interpolate(self.ups[place](y), size=planes[place].shape[2:]) + planes[place]
            smooth.append(self.smooth[place](y))
        widest = smooth[-1]
        joined = [widest, *(functional.interpolate(plane, size=widest.shape[2:]) for plane in smooth[-2::-1])]
        return self.out(torch.cat(joined, 1))


class BiSeNet(nn.Module):
    """A short path that keeps the places, a ResNet-18 that sees far, and their fusion."""

    def __init__(self, classes=12):
        super().__init__()
        self.near = nn.Sequential(*(ConvBn(a, b, 3, 2, bias=True) for a, b in ((3, 64), (64, 128), (128, 256))))
        self.far = timm.create_model("resnet18", features_only=True, out_indices=(3, 4))
        self.refine = nn.ModuleList(nn.Conv2d(c, c, 1) for c in (256, 512))
        self.fuse = ConvBn(1024, classes, bias=True)
        self.weigh = nn.Sequential(nn.Conv2d(classes, classes, 1), nn.ReLU(), nn.Conv2d(classes, classes, 1))
        self.out = nn.Conv2d(classes, classes, 1)

    def forward(self, x):
        near, (third, fourth) = self.near(x), self.far(x)
        tail = functional.adaptive_avg_pool2d(fourth, 1)
        planes = [y * layer(functional.adaptive_avg_pool2d(y, 1)).sigmoid()
                  for y, layer in zip((third, fourth), self.refine, strict=True)]  # fmt: skip
        planes[1] = planes[1] * tail
        y = self.fuse(torch.cat((near, *(resize(plane, near) for plane in planes)), 1))
        y = y + y * self.weigh(functional.adaptive_avg_pool2d(y, 1)).sigmoid()
        return self.out(resize(y, x))


class Pappm(nn.Module):
    """As DDRNet's pools, side by side, with one convolution in four groups for all of them."""

    def __init__(self, c1, mid, c2):
        super().__init__()
        self.pools = nn.ModuleList(
            (nn.AvgPool2d(5, 2, 2), nn.AvgPool2d(9, 4, 4), nn.AvgPool2d(17, 8, 8), nn.AdaptiveAvgPool2d(1))
        )
        self.scales = nn.ModuleList(BnConv(c1, mid) for _ in range(5))
        self.process = nn.Sequential(
            nn.BatchNorm2d(4 * mid), nn.ReLU(), nn.Conv2d(4 * mid, 4 * mid, 3, 1, 1, groups=4, bias=False)
        )
        self.joint, self.skip = BnConv(5 * mid, c2), BnConv(c1, c2)

    def forward(self, x):
        first = self.scales[0](x)
        parts = [resize(scale(pool(x)), x) + first for pool, scale in zip(self.pools, self.scales[1:], strict=True)]
        return self.joint(torch.cat((first, self.process(torch.cat(parts, 1))), 1)) + self.skip(x)


class Pag(nn.Module):
    """What of another branch is taken in, pixel by pixel."""

    def __init__(self, c, mid):
        super().__init__()
        self.mine, self.other = ConvBn(c, mid, 1, act=None), ConvBn(c, mid, 1, act=None)

    def forward(self, x, y):
        alike = (self.mine(x) * resize(self.other(y), x)).sum(1, keepdim=True).sigmoid()
        return (1 - alike) * x + alike * resize(y, x)


class PidNet(nn.Module):
    """PIDNet-S: three branches for detail, context and edges."""

    def __init__(self, p=32, classes=19):
        super().__init__()

        def row(c1, c2, count, s=1):
            blocks = [Residual(c1 if not i else c2, c2, s if not i else 1, last=i < count - 1) for i in range(count)]
            return nn.Sequential(*blocks)

        self.stem = nn.Sequential(ConvBn(3, p, 3, 2, bias=True), ConvBn(p, p, 3, 2, bias=True), row(p, p, 2))
        self.l2, self.l3 = row(p, 2 * p, 2, 2), row(2 * p, 4 * p, 3, 2)
        self.l4 = row(4 * p, 8 * p, 3, 2)
        self.l5 = nn.Sequential(
            Residual(8 * p, 16 * p, 2, bottleneck=True), Residual(16 * p, 16 * p, last=False, bottleneck=True)
        )
        self.c3, self.c4 = ConvBn(4 * p, 2 * p, 1, act=None), ConvBn(8 * p, 2 * p, 1, act=None)
        self.pag3, self.pag4 = Pag(2 * p, p), Pag(2 * p, p)
        self.h3, self.h4 = row(2 * p, 2 * p, 2), row(2 * p, 2 * p, 2)
        self.h5 = Residual(2 * p, 4 * p, last=False, bottleneck=True)
        self.d3 = Residual(2 * p, p, last=False)
        self.d4 = Residual(p, 2 * p, last=False, bottleneck=True)
        self.d5 = Residual(2 * p, 4 * p, last=False, bottleneck=True)
        self.diff3, self.diff4 = ConvBn(4 * p, p, act=None), ConvBn(8 * p, 2 * p, act=None)
        self.spp = Pappm(16 * p, 96, 4 * p)
        self.near, self.far = ConvBn(4 * p, 4 * p, 1, act=None), ConvBn(4 * p, 4 * p, 1, act=None)
        self.out = nn.Sequential(BnConv(4 * p, 128, 3), nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, classes, 1))

    def forward(self, x):
        size = x
        x = self.l2(self.stem(x).relu()).relu()
        high, edge, x = self.h3(x), self.d3(x), self.l3(x).relu()
        high, edge = self.pag3(high, self.c3(x)), edge + resize(self.diff3(x), edge)
        x, high, edge = self.l4(x).relu(), self.h4(high.relu()), self.d4(edge.relu())
        high, edge = self.pag4(high, self.c4(x)), edge + resize(self.diff4(x), edge)
        high, edge = self.h5(high.relu()), self.d5(edge.relu()).sigmoid()
        wide = resize(self.spp(self.l5(x)), high)
        y = self.near((1 - edge) * wide + high) + self.far(wide + edge * high)
        return resize(self.out(y), size)


class Ocr(nn.Module):
    """HRNet's planes, and each pixel described by the classes that the first guess sees in the whole picture."""

    def __init__(self, classes=19, width=512, key=256):
        super().__init__()
        self.body = HrFeatures("hrnet_w48", classes, True)
        c = self.body.head[1].in_channels
        self.guess, self.body.head = self.body.head, nn.Identity()
        self.pixels = ConvBn(c, width, bias=True)
        self.query = nn.Sequential(ConvBn(width, key, 1), ConvBn(key, key, 1))
        self.keys = nn.Sequential(ConvBn(width, key, 1), ConvBn(key, key, 1))
        self.values, self.up = ConvBn(width, key, 1), ConvBn(key, width, 1)
        self.joint, self.out = ConvBn(2 * width, width, 1), nn.Conv2d(width, classes, 1)

    def forward(self, x):
        planes = self.body(x)
        guess, pixels = self.guess(planes), self.pixels(planes)
        seen = guess.flatten(2).softmax(2) @ pixels.flatten(2).transpose(1, 2)
        classes = seen.transpose(1, 2).unsqueeze(3)
        query, keys = self.query(pixels).flatten(2).transpose(1, 2), self.keys(classes).flatten(2)
        context = (query @ keys).softmax(2) @ self.values(classes).flatten(2).transpose(1, 2)
        context = context.transpose(1, 2).unflatten(2, pixels.shape[2:])
        return self.out(self.joint(torch.cat((self.up(context), pixels), 1)))


class MobileRow(nn.Sequential):
    """MobileNet's separable convolutions: (channels, stride) each."""

    PLAIN = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5)

    def __init__(self, channels, rows, stride=2):
        layers, c = [ConvBn(channels, 32, 3, stride, act=nn.ReLU6)], 32
        for width, s in rows:
            layers += [ConvBn(c, c, 3, s, groups=c, act=nn.ReLU6), ConvBn(c, width, 1, act=nn.ReLU6)]
            c = width
        super().__init__(*layers)


class PoseNet(nn.Module):
    """MobileNet at stride 16 with heads for points, their offsets, and the way from one to the next."""

    def __init__(self):
        super().__init__()
        self.body = MobileRow(3, (*MobileRow.PLAIN, (1024, 1), (1024, 1)))
        self.heads = nn.ModuleList(nn.Conv2d(1024, out, 1) for out in (17, 34, 32, 32))

    def forward(self, x):
        y = self.body(x)
        return tuple(head(y) for head in self.heads)


class Yamnet(nn.Module):
    """MobileNet over a picture of 96 frames and 64 bands."""

    def __init__(self, classes=521):
        super().__init__()
        self.body = MobileRow(1, (*MobileRow.PLAIN, (1024, 2), (1024, 1)))
        self.out = nn.Linear(1024, classes)

    def forward(self, x):
        return self.out(self.body(x).mean((2, 3))).sigmoid()


def nets():
    depths = {"40s": (4, 5, 6, 4), "54s": (5, 8, 8, 5), "78s": (6, 12, 12, 8)}
    published = {"40s": "13.9M", "54s": "18.0M", "78s": "27.5M"}
    found = {
        f"ffnet-{size}": Net(make=lambda d=d: FFNet(d), inputs=image(1024, 2048), published=f"~{published[size]}")
        for size, d in depths.items()
    }
    return found | {
        "ffnet-78s-lowres": Net(
            make=lambda: FFNet(depths["78s"], "C", deep=False), inputs=image(512, 1024), published="~26.8M"
        ),
        "bisenet-resnet18": Net(make=BiSeNet, inputs=image(720, 960), published="~12.0M"),
        "pidnet-s": Net(make=PidNet, inputs=image(1024, 2048), published=None),
        "posenet-mobilenet": Net(make=PoseNet, inputs=image(513, 257), published="~3.31M"),
        "yamnet": Net(make=Yamnet, inputs=image(96, 64, 1), published="~3.73M"),
        "hrnet-w48-ocr": Net(make=Ocr, inputs=image(1024, 2048), published="70.3M"),
    }
