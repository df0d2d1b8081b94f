"""Super-resolution, denoising, inpainting, low light."""

import torch
from torch import nn
from torch.nn import functional

from workshop.networks.nets.net import Net, image


def conv(c1, c2, k=3, s=1, **more):
    return nn.Conv2d(c1, c2, k, s, k // 2, **more)


class QuickSr(nn.Module):
    """Plain 3 × 3 convolutions with clipped activations, then depth to space; `residual`: the image is added."""

    def __init__(self, width, layers, scale=4, residual=False):
        super().__init__()
        self.body = nn.Sequential(
            conv(3, width), nn.ReLU6(), *(part for _ in range(layers) for part in (conv(width, width), nn.ReLU6()))
        )
        self.last, self.scale, self.residual = conv(width, 3 * scale * scale), scale, residual

    def forward(self, x):
        y = self.last(self.body(x))
        if self.residual:
            y = y + x.repeat_interleave(self.scale**2, 1)
        return functional.pixel_shuffle(y, self.scale).clamp(0, 1)


class Xlsr(nn.Module):
    def __init__(self, scale=4):
        super().__init__()
        self.skip, self.first = conv(3, 16), conv(3, 32)
        self.blocks = nn.Sequential(
            *(nn.Sequential(conv(32, 32, groups=4), nn.ReLU(), conv(32, 32, 1)) for _ in range(3))
        )
        self.joint = nn.Sequential(conv(48, 32, 1), nn.ReLU(), conv(32, 32, 1), nn.ReLU())
        self.last, self.scale = conv(32, 3 * scale * scale), scale

    def forward(self, x):
        y = torch.cat((self.blocks(self.first(x)), self.skip(x)), 1)
        return functional.pixel_shuffle(self.last(self.joint(y)).clamp(0, 1), self.scale)


class Sesr(nn.Module):
    """As deployed: the linear blocks collapsed into single convolutions."""

    def __init__(self, layers, scale=4, width=16):
        super().__init__()
        self.first, self.act = conv(3, width, 5), nn.PReLU(width)
        self.body = nn.ModuleList(nn.Sequential(conv(width, width), nn.PReLU(width)) for _ in range(layers))
        self.last, self.scale = conv(width, 3 * scale * scale, 5), scale

    def forward(self, x):
        first = y = self.act(self.first(x))
        for layer in self.body:
            y = layer(y)
        y = self.last(y + first) + x.repeat_interleave(self.scale**2, 1)
        return functional.pixel_shuffle(y, self.scale)


class Compact(nn.Module):
    """Real-ESRGAN's small network: 3 × 3 convolutions with PReLU."""

    def __init__(self, width=64, layers=32, scale=4):
        super().__init__()
        body = [conv(3, width), nn.PReLU(width)]
        for _ in range(layers):
            body += [conv(width, width), nn.PReLU(width)]
        self.body, self.scale = nn.Sequential(*body, conv(width, 3 * scale * scale)), scale

    def forward(self, x):
        return functional.pixel_shuffle(self.body(x), self.scale) + functional.interpolate(x, scale_factor=self.scale)


class DenseBlock(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        self.convs = nn.ModuleList(conv(width + i * growth, growth if i < 4 else width) for i in range(5))

    def forward(self, x):
        parts = [x]
        for layer in self.convs[:-1]:
            parts.append(functional.leaky_relu(layer(torch.cat(parts, 1)), 0.2))
        return x + self.convs[-1](torch.cat(parts, 1)) * 0.2


class Rrdb(nn.Module):
    """ESRGAN's generator: residual in residual dense blocks."""

    def __init__(self, width=64, growth=32, blocks=23):
        super().__init__()
        self.first, self.trunk = conv(3, width), conv(width, width)
        self.body = nn.ModuleList(nn.Sequential(*(DenseBlock(width, growth) for _ in range(3))) for _ in range(blocks))
        self.up1, self.up2, self.hr, self.last = (
            conv(width, width),
            conv(width, width),
            conv(width, width),
            conv(width, 3),
        )

    def forward(self, x):
        first = y = self.first(x)
        for block in self.body:
            y = y + block(y) * 0.2
        y = first + self.trunk(y)
        for up in (self.up1, self.up2):
            y = functional.leaky_relu(up(functional.interpolate(y, scale_factor=2)), 0.2)
        return self.last(functional.leaky_relu(self.hr(y), 0.2))


class SrGan(nn.Module):
    """SRResNet: 16 residual blocks, two steps of depth to space."""

    def __init__(self, width=64, blocks=16):
        super().__init__()
        self.first, self.act = conv(3, width, 9), nn.PReLU()
        self.body = nn.ModuleList(
            nn.Sequential(
                conv(width, width, bias=False), nn.BatchNorm2d(width), nn.PReLU(),
                conv(width, width, bias=False), nn.BatchNorm2d(width),
            )
            for _ in range(blocks)
        )  # fmt: skip
        self.after = nn.Sequential(conv(width, width, bias=False), nn.BatchNorm2d(width))
        up = (conv(width, 4 * width), nn.PixelShuffle(2), nn.PReLU())
        self.up = nn.Sequential(*up, conv(width, 4 * width), nn.PixelShuffle(2), nn.PReLU())
        self.last = conv(width, 3, 9)

    def forward(self, x):
        first = y = self.act(self.first(x))
        for block in self.body:
            y = y + block(y)
        return self.last(self.up(first + self.after(y))).tanh()


class DnCnn(nn.Module):
    def __init__(self, channels, layers, width=64):
        super().__init__()
        body = [conv(channels, width), nn.ReLU()]
        for _ in range(layers - 2):
            body += [conv(width, width), nn.ReLU()]
        self.body = nn.Sequential(*body, conv(width, channels))

    def forward(self, x):
        return x - self.body(x)


class Edsr(nn.Module):
    """EDSR with 32 channels and 5 blocks: MLPerf Mobile's network, times 2."""

    def __init__(self, width=32, blocks=5, scale=2):
        super().__init__()
        self.first, self.after = conv(3, width), conv(width, width)
        self.body = nn.ModuleList(
            nn.Sequential(conv(width, width), nn.ReLU(), conv(width, width)) for _ in range(blocks)
        )
        self.up, self.last = nn.Sequential(conv(width, width * scale**2), nn.PixelShuffle(scale)), conv(width, 3)

    def forward(self, x):
        first = y = self.first(x)
        for block in self.body:
            y = y + block(y)
        return self.last(self.up(first + self.after(y)))


def espcn(scale):
    return nn.Sequential(
        conv(1, 64, 5),
        nn.Tanh(),
        conv(64, 32),
        nn.Tanh(),
        conv(32, scale * scale),
        nn.PixelShuffle(scale),
        nn.Sigmoid(),
    )


class ZeroDce(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        w = width
        self.convs = nn.ModuleList(
            conv(a, b) for a, b in ((3, w), (w, w), (w, w), (w, w), (2 * w, w), (2 * w, w), (2 * w, 24))
        )

    def forward(self, x):
        a, b, c, d, e, f, last = self.convs
        x1 = a(x).relu()
        x2 = b(x1).relu()
        x3 = c(x2).relu()
        x4 = d(x3).relu()
        x5 = e(torch.cat((x3, x4), 1)).relu()
        x6 = f(torch.cat((x2, x5), 1)).relu()
        y = x
        for curve in last(torch.cat((x1, x6), 1)).tanh().chunk(8, 1):
            y = y + curve * (y * y - y)
        return y


class NafBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(1, c), nn.GroupNorm(1, c)
        self.cv1, self.cv2, self.cv3 = conv(c, 2 * c, 1), conv(2 * c, 2 * c, groups=2 * c), conv(c, c, 1)
        self.gate, self.cv4, self.cv5 = conv(c, c, 1), conv(c, 2 * c, 1), conv(c, c, 1)
        self.beta, self.gamma = nn.Parameter(torch.empty(1, c, 1, 1)), nn.Parameter(torch.empty(1, c, 1, 1))

    def forward(self, x):
        a, b = self.cv2(self.cv1(self.n1(x))).chunk(2, 1)
        y = a * b
        x = x + self.cv3(y * self.gate(functional.adaptive_avg_pool2d(y, 1))) * self.beta
        a, b = self.cv4(self.n2(x)).chunk(2, 1)
        return x + self.cv5(a * b) * self.gamma


class NafNet(nn.Module):
    def __init__(self, width, enc, middle, dec):
        super().__init__()
        self.intro, self.ending = conv(3, width), conv(width, 3)
        self.encoders, self.downs, self.decoders, self.ups = (nn.ModuleList() for _ in range(4))
        c = width
        for n in enc:
            self.encoders.append(nn.Sequential(*(NafBlock(c) for _ in range(n))))
            self.downs.append(nn.Conv2d(c, 2 * c, 2, 2))
            c *= 2
        self.middle = nn.Sequential(*(NafBlock(c) for _ in range(middle)))
        for n in dec:
            self.ups.append(nn.Sequential(conv(c, 2 * c, 1, bias=False), nn.PixelShuffle(2)))
            c //= 2
            self.decoders.append(nn.Sequential(*(NafBlock(c) for _ in range(n))))

    def forward(self, x):
        y, kept = self.intro(x), []
        for encoder, down in zip(self.encoders, self.downs, strict=True):
            y = encoder(y)
            kept.append(y)
            y = down(y)
        y = self.middle(y)
        for decoder, up, skip in zip(self.decoders, self.ups, kept[::-1], strict=True):
            y = decoder(up(y) + skip)
        return self.ending(y) + x


# LaMa: Fourier convolutions are replaced by dilated ones -------------------------------------------------------------


class Inpaint(nn.Module):
    """A stem, three strides, residual blocks, three transposed strides. LaMa-dilated has four dilations in a block."""

    def __init__(self, blocks=9, width=64):
        super().__init__()
        down = [nn.ReflectionPad2d(3), nn.Conv2d(4, width, 7), nn.BatchNorm2d(width), nn.ReLU()]
        for i in range(3):
            c = width * 2**i
            down += [conv(c, 2 * c, 3, 2), nn.BatchNorm2d(2 * c), nn.ReLU()]
        self.down, c = nn.Sequential(*down), 8 * width
        self.body = nn.ModuleList(DilatedBlock(c) for _ in range(blocks))
        up = []
        for i in range(3):
            c = width * 2 ** (3 - i)
            up += [nn.ConvTranspose2d(c, c // 2, 3, 2, 1, 1), nn.BatchNorm2d(c // 2), nn.ReLU()]
        self.up = nn.Sequential(*up, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Sigmoid())

    def forward(self, picture, mask):
        y = self.down(torch.cat((picture * (1 - mask), mask), 1))
        for block in self.body:
            y = y + block(y)
        return self.up(y) * mask + picture * (1 - mask)


class DilatedBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.first, self.second = DilatedConv(c), DilatedConv(c)

    def forward(self, x):
        return self.second(self.first(x))


class DilatedConv(nn.Module):
    """Four dilations side by side, a quarter of the width each."""

    def __init__(self, c):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(c, c // 4, 3, 1, d, d, bias=False) for d in (1, 2, 4, 8))
        self.bn = nn.BatchNorm2d(c)

    def forward(self, x):
        return self.bn(torch.cat([layer(x) for layer in self.convs], 1)).relu()


class AotBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(c, c // 4, 3, 1, d, d) for d in (1, 2, 4, 8))
        self.fuse, self.gate = conv(c, c), conv(c, c)

    def forward(self, x):
        y = self.fuse(torch.cat([layer(x).relu() for layer in self.convs], 1))
        mask = self.gate(x)
        mask = ((mask - mask.mean((2, 3), keepdim=True)) / mask.std((2, 3), keepdim=True)).sigmoid()
        return x * (1 - mask) + y * mask


class AotGan(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.ReflectionPad2d(3), nn.Conv2d(4, 64, 7), nn.ReLU(), conv(64, 128, 4, 2), nn.ReLU(),
            nn.Conv2d(128, 256, 4, 2, 1), nn.ReLU(),
        )  # fmt: skip
        self.encoder[3] = nn.Conv2d(64, 128, 4, 2, 1)
        self.middle = nn.Sequential(*(AotBlock(256) for _ in range(8)))
        self.cv1, self.cv2, self.cv3 = conv(256, 128), conv(128, 64), conv(64, 3)

    def forward(self, picture, mask):
        y = self.middle(self.encoder(torch.cat((picture, mask), 1)))
        y = self.cv1(functional.interpolate(y, scale_factor=2, mode="bilinear", align_corners=True)).relu()
        y = self.cv2(functional.interpolate(y, scale_factor=2, mode="bilinear", align_corners=True)).relu()
        return self.cv3(y).tanh() * mask + picture * (1 - mask)


def nets():
    small = image(128)
    found = {
        "quicksrnet-small": Net(make=lambda: QuickSr(32, 2), inputs=small, step=8),
        "quicksrnet-medium": Net(make=lambda: QuickSr(32, 5), inputs=small, step=8),
        "quicksrnet-large": Net(make=lambda: QuickSr(64, 11, residual=True), inputs=small, step=8),
        "xlsr": Net(make=Xlsr, inputs=small, step=8, published="28.0K"),
        "sesr-m5": Net(make=lambda: Sesr(5), inputs=small, step=8),
        "real-esrgan-general-x4v3": Net(make=Compact, inputs=small, step=8),
        "real-esrgan-x4plus": Net(make=Rrdb, inputs=small, step=8, published="16.7M"),
        "esrgan": Net(make=Rrdb, inputs=small, step=8, published="16.7M"),
        "srgan": Net(make=SrGan, inputs=small, step=8),
        "dncnn3": Net(make=lambda: DnCnn(1, 20), inputs=image(321, 481, 1), published="~0.66M"),
        "dncnn-color": Net(make=lambda: DnCnn(3, 20), inputs=image(256), step=8),
        "edsr-mobile": Net(make=Edsr, inputs=image(540, 960)),
        "zero-dce": Net(make=ZeroDce, inputs=image(400, 600)),
        "nafnet-gopro-width32": Net(
            make=lambda: NafNet(32, (1, 1, 1, 28), 1, (1, 1, 1, 1)), inputs=image(256), step=16
        ),
        "nafnet-gopro-width64": Net(
            make=lambda: NafNet(64, (1, 1, 1, 28), 1, (1, 1, 1, 1)), inputs=image(256), step=16
        ),
        "nafnet-sidd-width32": Net(make=lambda: NafNet(32, (2, 2, 4, 8), 12, (2, 2, 2, 2)), inputs=image(256), step=16),
        "nafnet-sidd-width64": Net(make=lambda: NafNet(64, (2, 2, 4, 8), 12, (2, 2, 2, 2)), inputs=image(256), step=16),
        "lama-dilated": Net(make=Inpaint, inputs=(*image(512), *image(512, 0, 1)), step=8, published="45.6M"),
        "aotgan": Net(make=AotGan, inputs=(*image(512), *image(512, 0, 1)), published="15.2M"),
    }
    for scale, (high, wide) in {2: (156, 240), 3: (104, 160), 4: (78, 120)}.items():
        found[f"espcn-x{scale}"] = Net(make=lambda s=scale: espcn(s), inputs=image(high, wide, 1))
    return found
