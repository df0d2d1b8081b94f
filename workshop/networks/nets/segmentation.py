"""Segmentation, depth and pose networks that no package has."""

import timm
import torch
from torch import nn
from torch.nn import functional

from workshop.networks.nets.net import Net, image


class ConvBn(nn.Sequential):
    def __init__(self, c1, c2, k=3, s=1, d=1, groups=1, act=nn.ReLU, bias=False):
        layers = [nn.Conv2d(c1, c2, k, s, d * (k // 2), d, groups, bias=bias), nn.BatchNorm2d(c2)]
        super().__init__(*layers, *((act(),) if act else ()))


def resize(x, like, corners=False):
    return functional.interpolate(x, size=like.shape[2:], mode="bilinear", align_corners=corners)


class UNet(nn.Module):
    """Two 3 × 3 at each of five depths, transposed convolutions on the way up."""

    def __init__(self, classes=2, width=64):
        super().__init__()
        w = [width * 2**i for i in range(5)]
        self.enc = nn.ModuleList(self._two(a, b) for a, b in zip((3, *w), w, strict=False))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(c, c // 2, 2, 2) for c in w[:0:-1])
        self.dec = nn.ModuleList(self._two(c, c // 2) for c in w[:0:-1])
        self.out = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _two(c1, c2):
        return nn.Sequential(ConvBn(c1, c2), ConvBn(c2, c2))

    def forward(self, x):
        kept = []
        for index, block in enumerate(self.enc):
            x = block(functional.max_pool2d(x, 2) if index else x)
            kept.append(x)
        for up, block, skip in zip(self.ups, self.dec, kept[-2::-1], strict=True):
            x = block(torch.cat((skip, up(x)), 1))
        return self.out(x)


class Rsu(nn.Module):
    """U²-Net's block: a small U-Net with a residual. `deep` 0: dilations instead of pools."""

    def __init__(self, depth, c1, mid, c2, dilated=False):
        super().__init__()
        self.dilated = dilated
        self.first = ConvBn(c1, c2, bias=True)
        rate = (lambda i: 2**i) if dilated else (lambda _: 1)
        self.enc = nn.ModuleList(ConvBn(c2 if not i else mid, mid, d=rate(i), bias=True) for i in range(depth - 1))
        self.bottom = ConvBn(mid, mid, d=2 ** (depth - 1) if dilated else 2, bias=True)
        self.dec = nn.ModuleList(
            ConvBn(2 * mid, mid if i else c2, d=rate(i), bias=True) for i in reversed(range(depth - 1))
        )

    def forward(self, x):
        first = y = self.first(x)
        kept = []
        for index, layer in enumerate(self.enc):
            if index and not self.dilated:
                y = functional.max_pool2d(y, 2, 2, ceil_mode=True)
            y = layer(y)
            kept.append(y)
        y = self.bottom(y)
        for layer, skip in zip(self.dec, kept[::-1], strict=True):
            y = layer(torch.cat((y if self.dilated else resize(y, skip), skip), 1))
        return y + first


class U2Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.ModuleList((
            Rsu(7, 3, 32, 64), Rsu(6, 64, 32, 128), Rsu(5, 128, 64, 256), Rsu(4, 256, 128, 512),
            Rsu(4, 512, 256, 512, True), Rsu(4, 512, 256, 512, True),
        ))  # fmt: skip
        self.dec = nn.ModuleList((
            Rsu(4, 1024, 256, 512, True), Rsu(4, 1024, 128, 256), Rsu(5, 512, 64, 128), Rsu(6, 256, 32, 64),
            Rsu(7, 128, 16, 64),
        ))  # fmt: skip
        self.sides = nn.ModuleList(nn.Conv2d(c, 1, 3, 1, 1) for c in (64, 64, 128, 256, 512, 512))
        self.out = nn.Conv2d(6, 1, 1)

    def forward(self, x):
        size, kept, y = x, [], x
        for index, block in enumerate(self.enc):
            y = block(functional.max_pool2d(y, 2, 2, ceil_mode=True) if index else y)
            kept.append(y)
        made = [y]
        for block, skip in zip(self.dec, kept[-2::-1], strict=True):
            y = block(torch.cat((resize(y, skip), skip), 1))
            made.append(y)
        maps = [resize(side(plane), size) for side, plane in zip(self.sides, made[::-1], strict=True)]
        return self.out(torch.cat(maps, 1)).sigmoid()


class Aspp(nn.Module):
    def __init__(self, c1, rates, width=256, pooled=True):
        super().__init__()
        self.convs = nn.ModuleList((ConvBn(c1, width, 1), *(ConvBn(c1, width, 3, d=d) for d in rates)))
        self.pool = ConvBn(c1, width, 1) if pooled else None
        self.out = ConvBn(width * (len(rates) + 1 + bool(pooled)), width, 1)

    def forward(self, x):
        parts = [layer(x) for layer in self.convs]
        if self.pool is not None:
            parts.append(resize(self.pool(functional.adaptive_avg_pool2d(x, 1)), x))
        return self.out(torch.cat(parts, 1))


class DeepLabPlus(nn.Module):
    """MobileNetV2 at stride 16, dilated pooling, and a decoder that sees stride 4."""

    def __init__(self, classes=21, backbone="mobilenetv2_100"):
        super().__init__()
        self.body = timm.create_model(backbone, features_only=True, output_stride=16, out_indices=(1, 4))
        low, high = self.body.feature_info.channels()
        self.aspp, self.low = Aspp(high, (6, 12, 18)), ConvBn(low, 48, 1)
        self.out = nn.Sequential(ConvBn(304, 256), ConvBn(256, 256), nn.Conv2d(256, classes, 1))

    def forward(self, x):
        low, high = self.body(x)
        low = self.low(low)
        return resize(self.out(torch.cat((resize(self.aspp(high), low), low), 1)), x)


class PspNet(nn.Module):
    """ResNet-101 at stride 8 with a pyramid of pools."""

    def __init__(self, backbone="resnet101", classes=150):
        super().__init__()
        self.body = timm.create_model(backbone, features_only=True, output_stride=8, out_indices=(4,))
        c = self.body.feature_info.channels()[-1]
        self.pools = nn.ModuleList(ConvBn(c, c // 4, 1) for _ in range(4))
        self.out = nn.Sequential(ConvBn(2 * c, 512), nn.Conv2d(512, classes, 1))

    def forward(self, x):
        (y,) = self.body(x)
        parts = [y]
        for side, layer in zip((1, 2, 3, 6), self.pools, strict=True):
            parts.append(resize(layer(functional.adaptive_avg_pool2d(y, side)), y))
        return resize(self.out(torch.cat(parts, 1)), x)


class Residual(nn.Module):
    def __init__(self, c1, c2, s=1, last=True, bottleneck=False):
        super().__init__()
        if bottleneck:
            self.body = nn.Sequential(
                ConvBn(c1, c2 // 2, 1), ConvBn(c2 // 2, c2 // 2, 3, s), ConvBn(c2 // 2, c2, 1, act=None)
            )
        else:
            self.body = nn.Sequential(ConvBn(c1, c2, 3, s), ConvBn(c2, c2, 3, act=None))
        self.skip = ConvBn(c1, c2, 1, s, act=None) if s != 1 or c1 != c2 else nn.Identity()
        self.last = last

    def forward(self, x):
        y = self.body(x) + self.skip(x)
        return y.relu() if self.last else y


class BnConv(nn.Sequential):
    def __init__(self, c1, c2, k=1):
        super().__init__(nn.BatchNorm2d(c1), nn.ReLU(), nn.Conv2d(c1, c2, k, padding=k // 2, bias=False))


class Dappm(nn.Module):
    """Average pools of growing windows, each added to the one before."""

    def __init__(self, c1, mid, c2):
        super().__init__()
        self.pools = nn.ModuleList(
            (nn.AvgPool2d(5, 2, 2), nn.AvgPool2d(9, 4, 4), nn.AvgPool2d(17, 8, 8), nn.AdaptiveAvgPool2d(1))
        )
        self.scales = nn.ModuleList(BnConv(c1, mid) for _ in range(5))
        self.process = nn.ModuleList(BnConv(mid, mid, 3) for _ in range(4))
        self.joint, self.skip = BnConv(5 * mid, c2), BnConv(c1, c2)

    def forward(self, x):
        parts = [self.scales[0](x)]
        for pool, scale, process in zip(self.pools, self.scales[1:], self.process, strict=True):
            parts.append(process(resize(scale(pool(x)), x) + parts[-1]))
        return self.joint(torch.cat(parts, 1)) + self.skip(x)


class DdrNet(nn.Module):
    """DDRNet-23-slim: two branches that exchange twice."""

    def __init__(self, p=32, spp=128, head=64, classes=19):
        super().__init__()
        self.stem = nn.Sequential(ConvBn(3, p, 3, 2, bias=True), ConvBn(p, p, 3, 2, bias=True))
        self.l1 = nn.Sequential(Residual(p, p), Residual(p, p, last=False))
        self.l2 = nn.Sequential(Residual(p, 2 * p, 2), Residual(2 * p, 2 * p, last=False))
        self.l3 = nn.Sequential(Residual(2 * p, 4 * p, 2), Residual(4 * p, 4 * p, last=False))
        self.l4 = nn.Sequential(Residual(4 * p, 8 * p, 2), Residual(8 * p, 8 * p, last=False))
        self.c3, self.d3 = ConvBn(4 * p, 2 * p, 1, act=None), ConvBn(2 * p, 4 * p, 3, 2, act=None)
        self.c4 = ConvBn(8 * p, 2 * p, 1, act=None)
        self.d4 = nn.Sequential(ConvBn(2 * p, 4 * p, 3, 2), ConvBn(4 * p, 8 * p, 3, 2, act=None))
        self.h3 = nn.Sequential(Residual(2 * p, 2 * p), Residual(2 * p, 2 * p, last=False))
        self.h4 = nn.Sequential(Residual(2 * p, 2 * p), Residual(2 * p, 2 * p, last=False))
        self.h5, self.l5 = (
            Residual(2 * p, 4 * p, last=False, bottleneck=True),
            Residual(8 * p, 16 * p, 2, last=False, bottleneck=True),
        )
        self.spp = Dappm(16 * p, spp, 4 * p)
        self.out = nn.Sequential(BnConv(4 * p, head, 3), nn.BatchNorm2d(head), nn.ReLU(), nn.Conv2d(head, classes, 1))

    def forward(self, x):
        size = x
        x = self.l2(self.l1(self.stem(x)).relu())
        low, high = self.l3(x.relu()), self.h3(x.relu())
        low, high = low + self.d3(high.relu()), high + resize(self.c3(low.relu()), high)
        low4, high4 = self.l4(low.relu()), self.h4(high.relu())
        low4, high4 = low4 + self.d4(high4.relu()), high4 + resize(self.c4(low4.relu()), high4)
        y = self.h5(high4.relu())
        y = y + resize(self.spp(self.l5(low4.relu())), y)
        return resize(self.out(y), size)


class MidasSmall(nn.Module):
    """EfficientNet-Lite3 with a narrow refining path."""

    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()
        self.body = timm.create_model("tf_efficientnet_lite3", features_only=True, out_indices=(1, 2, 3, 4))
        self.reads = nn.ModuleList(
            nn.Conv2d(c, w, 3, 1, 1, bias=False) for c, w in zip(self.body.feature_info.channels(), widths, strict=True)
        )
        outs = (64, 64, 128, 256)
        self.refine = nn.ModuleList(
            MidasFusion(w, o, deep=i < 3) for i, (w, o) in enumerate(zip(widths, outs, strict=True))
        )
        self.out1, self.out2, self.out3 = nn.Conv2d(64, 32, 3, 1, 1), nn.Conv2d(32, 32, 3, 1, 1), nn.Conv2d(32, 1, 1)

    def forward(self, x):
        planes = [read(plane) for read, plane in zip(self.reads, self.body(x), strict=True)]
        y = None
        for refine, plane in zip(reversed(self.refine), reversed(planes), strict=True):
            y = refine(plane, y)
        y = functional.interpolate(self.out1(y), scale_factor=2, mode="bilinear", align_corners=False)
        return self.out3(self.out2(y).relu()).relu()


class MidasFusion(nn.Module):
    def __init__(self, c, out, deep):
        super().__init__()

        def unit():
            return nn.Sequential(nn.ReLU(), nn.Conv2d(c, c, 3, 1, 1), nn.ReLU(), nn.Conv2d(c, c, 3, 1, 1))

        self.unit1, self.unit2, self.out = unit() if deep else None, unit(), nn.Conv2d(c, out, 1)

    def forward(self, x, deeper):
        y = x if deeper is None else deeper + x + self.unit1(x)
        y = y + self.unit2(y)
        return self.out(functional.interpolate(y, scale_factor=2, mode="bilinear", align_corners=True))


class HrFeatures(nn.Module):
    """HRNet's planes joined at the widest, then 1 × 1."""

    def __init__(self, name, out, joint):
        super().__init__()
        base = timm.create_model(name)
        self.base, self.joint = base, joint
        for part in (
            "incre_modules",
            "downsamp_modules",
            "final_layer",
            "classifier",
            "global_pool",
            "head_drop",
            "act3",
        ):
            if hasattr(base, part):
                setattr(base, part, nn.Identity())
        if not joint:  # only the widest plane is read: the last exchange makes no other
            base.stage4[-1].fuse_layers = base.stage4[-1].fuse_layers[:1]
        widths = [int(w) for w in base.stage4_cfg["num_channels"]]
        c = sum(widths) if joint else widths[0]
        self.head = nn.Sequential(ConvBn(c, c, 1, bias=True), nn.Conv2d(c, out, 1)) if joint else nn.Conv2d(c, out, 1)

    def forward(self, x):
        base = self.base
        y = base.act2(base.bn2(base.conv2(base.act1(base.bn1(base.conv1(x))))))
        planes = base.stages(y)
        if not self.joint:
            return self.head(planes[0])
        return self.head(torch.cat([planes[0], *(resize(plane, planes[0]) for plane in planes[1:])], 1))


def nets():
    return {
        "unet": Net(make=UNet, inputs=image(640, 1280), published="31.0M"),
        "u2net": Net(make=U2Net, inputs=image(320), published="44.0M"),
        "deeplabv3-plus-mobilenet-v2": Net(make=DeepLabPlus, inputs=image(513), published="~5.80M"),
        "pspnet-resnet101": Net(make=PspNet, inputs=image(473), published="65.7M"),
        "ddrnet-23-slim": Net(make=DdrNet, inputs=image(1024, 2048), published="5.7M"),
        "midas-small": Net(make=MidasSmall, inputs=image(256), step=32, published="16.6M"),
        "hrnet-w32-pose": Net(
            make=lambda: HrFeatures("hrnet_w32", 17, False), inputs=image(256, 192), published="28.5M"
        ),
        "hrnet-w48-pose": Net(
            make=lambda: HrFeatures("hrnet_w48", 17, False), inputs=image(256, 192), published="63.6M"
        ),
        "hrnet-w18-face": Net(make=lambda: HrFeatures("hrnet_w18", 29, True), inputs=image(256), published="~9.68M"),
    }
