"""The building blocks of YOLO's generations, v3 to 26, as their papers and layer tables describe them.

Widths and counts are those of the finished network: scaling happens in the table's reader. What a deployed network has
folded is built folded: a re-parameterised convolution is one convolution.
"""

import math

import torch
from torch import nn
from torch.nn import functional


class Conv(nn.Module):
    """Convolution without bias, batch norm, activation."""

    function = nn.SiLU

    def __init__(self, c1, c2, k=1, s=1, p=None, g=1, act=True):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2 if p is None else p, groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = type(self).function() if act is True else act or nn.Identity()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Rep(nn.Module):
    """A re-parameterised convolution: one with bias, as deployed."""

    def __init__(self, c1, c2, k=3, s=1, act=True):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2)
        self.act = Conv.function() if act else nn.Identity()

    def forward(self, x):
        return self.act(self.conv(x))


def depthwise(c1, c2, k=3, s=1, act=True):
    return Conv(c1, c2, k, s, g=math.gcd(c1, c2), act=act)


class Bottleneck(nn.Module):
    def __init__(self, c1, c2, shortcut=True, k=(3, 3), e=0.5, rep=False):
        super().__init__()
        hidden = int(c2 * e)
        self.cv1 = Rep(c1, hidden, k[0]) if rep else Conv(c1, hidden, k[0])
        self.cv2 = Conv(hidden, c2, k[1])
        self.add = shortcut and c1 == c2

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.add else y


class C3(nn.Module):
    """Two 1 × 1 branches, a chain of bottlenecks on one of them, joined by a third."""

    def __init__(self, c1, c2, n=1, shortcut=True, e=0.5, k=(1, 3), rep=False):
        super().__init__()
        hidden = int(c2 * e)
        self.cv1, self.cv2 = Conv(c1, hidden), Conv(c1, hidden)
        self.cv3 = Conv(2 * hidden, c2)
        self.m = nn.Sequential(*(Bottleneck(hidden, hidden, shortcut, k, 1.0, rep) for _ in range(n)))

    def forward(self, x):
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class C2f(nn.Module):
    """Halves; one passes a chain, and every stage of the chain is joined at the end."""

    def __init__(self, c1, c2, n, stage, e=0.5):
        super().__init__()
        self.width = int(c2 * e)
        self.cv1 = Conv(c1, 2 * self.width)
        self.cv2 = Conv((2 + n) * self.width, c2)
        self.m = nn.ModuleList(stage(self.width) for _ in range(n))

    def forward(self, x):
        parts = list(self.cv1(x).chunk(2, 1))
        for stage in self.m:
            parts.append(stage(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


def c2f(c1, c2, n=1, shortcut=False):
    return C2f(c1, c2, n, lambda width: Bottleneck(width, width, shortcut, (3, 3), 1.0))


def c3k(c1, c2, n=2):
    return C3(c1, c2, n, k=(3, 3))


def c3k2(c1, c2, n=1, nested=False, e=0.5, attention=False):
    def stage(width):
        if attention:
            return nn.Sequential(Bottleneck(width, width), PsaBlock(width, max(width // 64, 1)))
        return c3k(width, width) if nested else Bottleneck(width, width)

    return C2f(c1, c2, n, stage, e)


class Attention(nn.Module):
    """Attention over all places of a plane, keys half as wide as values, a depthwise convolution for positions."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.value = heads, dim // heads
        self.key = self.value // 2
        self.qkv = Conv(dim, dim + 2 * self.key * heads, act=False)
        self.proj, self.pe = Conv(dim, dim, act=False), Conv(dim, dim, 3, g=dim, act=False)

    def forward(self, x):
        batch, width, high, wide = x.shape
        joined = self.qkv(x).view(batch, self.heads, 2 * self.key + self.value, high * wide)
        q, k, v = joined.split([self.key, self.key, self.value], 2)
        scores = ((q.transpose(-2, -1) @ k) * self.key**-0.5).softmax(-1)
        y = (v @ scores.transpose(-2, -1)).view(batch, width, high, wide)
        return self.proj(y + self.pe(v.reshape(batch, width, high, wide)))


class PsaBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = Attention(width, heads)
        self.ffn = nn.Sequential(Conv(width, 2 * width), Conv(2 * width, width, act=False))

    def forward(self, x):
        x = x + self.attn(x)
        return x + self.ffn(x)


class C2Psa(nn.Module):
    """Half of the channels pass attention blocks."""

    def __init__(self, c1, c2, n=1):
        super().__init__()
        self.width = c1 // 2
        self.cv1, self.cv2 = Conv(c1, 2 * self.width), Conv(2 * self.width, c2)
        self.m = nn.Sequential(*(PsaBlock(self.width, self.width // 64) for _ in range(n)))

    def forward(self, x):
        a, b = self.cv1(x).chunk(2, 1)
        return self.cv2(torch.cat((a, self.m(b)), 1))


class AreaAttention(nn.Module):
    """Attention within `area` stripes of the plane."""

    def __init__(self, dim, heads, area):
        super().__init__()
        self.heads, self.area = heads, area
        self.qkv, self.proj = Conv(dim, 3 * dim, act=False), Conv(dim, dim, act=False)
        self.pe = Conv(dim, dim, 7, g=dim, act=False)

    def forward(self, x):
        batch, width, high, wide = x.shape
        places = high * wide // self.area
        joined = self.qkv(x).flatten(2).transpose(1, 2).reshape(batch * self.area, places, 3 * width)
        joined = joined.view(batch * self.area, places, self.heads, 3 * width // self.heads).permute(0, 2, 3, 1)
        q, k, v = joined.chunk(3, 2)
        scores = ((q.transpose(-2, -1) @ k) * (width // self.heads) ** -0.5).softmax(-1)
        y = (v @ scores.transpose(-2, -1)).permute(0, 3, 1, 2).reshape(batch, high, wide, width).permute(0, 3, 1, 2)
        v = v.permute(0, 3, 1, 2).reshape(batch, high, wide, width).permute(0, 3, 1, 2)
        return self.proj(y + self.pe(v.contiguous()))


class AreaBlock(nn.Module):
    def __init__(self, dim, ratio, area):
        super().__init__()
        self.attn = AreaAttention(dim, dim // 32, area)
        self.mlp = nn.Sequential(Conv(dim, int(dim * ratio)), Conv(int(dim * ratio), dim, act=False))

    def forward(self, x):
        x = x + self.attn(x)
        return x + self.mlp(x)


class A2C2f(nn.Module):
    """A chain of area attention (area > 0) or of nested bottlenecks; all stages are joined. `gamma`: a residual."""

    def __init__(self, c1, c2, n=1, area=0, ratio=2.0, gamma=False):
        super().__init__()
        width = c2 // 2
        self.cv1, self.cv2 = Conv(c1, width), Conv((1 + n) * width, c2)
        self.gamma = nn.Parameter(torch.empty(c2)) if gamma and area else None
        self.m = nn.ModuleList(
            nn.Sequential(AreaBlock(width, ratio, area), AreaBlock(width, ratio, area)) if area else c3k(width, width)
            for _ in range(n)
        )

    def forward(self, x):
        parts = [self.cv1(x)]
        for stage in self.m:
            parts.append(stage(parts[-1]))
        y = self.cv2(torch.cat(parts, 1))
        return y if self.gamma is None else x + self.gamma.view(1, -1, 1, 1) * y


class SpatialPyramid(nn.Module):
    """Max pools of ever larger windows: in a row (SPPF), or side by side (SPP)."""

    def __init__(self, c1, c2, kernels=(5, 5, 5), row=True, shortcut=False):
        super().__init__()
        self.row, self.shortcut = row, shortcut
        self.cv1, self.cv2 = Conv(c1, c1 // 2), Conv(c1 // 2 * (len(kernels) + 1), c2)
        self.m = nn.ModuleList(nn.MaxPool2d(k, 1, k // 2) for k in kernels)

    def forward(self, x):
        parts = [self.cv1(x)]
        for pool in self.m:
            parts.append(pool(parts[-1 if self.row else 0]))
        y = self.cv2(torch.cat(parts, 1))
        return x + y if self.shortcut else y


class SpatialDown(nn.Sequential):
    """1 × 1 to the new width, then a depthwise stride."""

    def __init__(self, c1, c2, k=3, s=2):
        super().__init__(Conv(c1, c2), Conv(c2, c2, k, s, g=c2, act=False))


class Cib(nn.Module):
    """The compact inverted block: depthwise, 1 × 1, depthwise, 1 × 1, depthwise. `large`: 7 × 7 in the middle."""

    def __init__(self, width, shortcut, large):
        super().__init__()
        middle = (
            nn.Sequential(nn.Conv2d(2 * width, 2 * width, 7, 1, 3, groups=2 * width), nn.SiLU())
            if large
            else depthwise(2 * width, 2 * width)
        )
        self.body = nn.Sequential(
            depthwise(width, width), Conv(width, 2 * width), middle, Conv(2 * width, width), depthwise(width, width)
        )
        self.add = shortcut

    def forward(self, x):
        return x + self.body(x) if self.add else self.body(x)


class Elan(nn.Module):
    """YOLOv9: halves, and two stages in a row on the second; all four joined."""

    def __init__(self, c1, c2, inner, width, n=0):
        super().__init__()
        self.cv1 = Conv(c1, inner)
        if n:
            self.cv2 = nn.Sequential(C3(inner // 2, width, n, k=(3, 3), rep=True), Conv(width, width, 3))
            self.cv3 = nn.Sequential(C3(width, width, n, k=(3, 3), rep=True), Conv(width, width, 3))
        else:
            self.cv2, self.cv3 = Conv(inner // 2, width, 3), Conv(width, width, 3)
        self.cv4 = Conv(inner + 2 * width, c2)

    def forward(self, x):
        parts = list(self.cv1(x).chunk(2, 1))
        parts.append(self.cv2(parts[-1]))
        parts.append(self.cv3(parts[-1]))
        return self.cv4(torch.cat(parts, 1))


class AverageConv(nn.Module):
    def __init__(self, c1, c2):
        super().__init__()
        self.cv1 = Conv(c1, c2, 3, 2)

    def forward(self, x):
        return self.cv1(functional.avg_pool2d(x, 2, 1, 0))


class AverageDown(nn.Module):
    def __init__(self, c1, c2):
        super().__init__()
        self.cv1, self.cv2 = Conv(c1 // 2, c2 // 2, 3, 2), Conv(c1 // 2, c2 // 2)

    def forward(self, x):
        a, b = functional.avg_pool2d(x, 2, 1, 0).chunk(2, 1)
        return torch.cat((self.cv1(a), self.cv2(functional.max_pool2d(b, 3, 2, 1))), 1)


class ElanPyramid(nn.Module):
    def __init__(self, c1, c2, width):
        super().__init__()
        self.cv1, self.cv5 = Conv(c1, width), Conv(4 * width, c2)

    def forward(self, x):
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.cv5(torch.cat(parts, 1))


class SplitLinear(nn.Module):
    """One 1 × 1 with bias whose result is handed to several stages."""

    def __init__(self, c1, widths):
        super().__init__()
        self.widths = widths
        self.conv = nn.Conv2d(c1, sum(widths), 1)

    def forward(self, x):
        return self.conv(x).split(self.widths, 1)


class Fuse(nn.Module):
    """The sum of what was handed on, resized to the last."""

    def __init__(self, places):
        super().__init__()
        self.places = places

    def forward(self, inputs):
        *handed, last = inputs
        side = last.shape[2:]
        for part, place in zip(handed, self.places, strict=True):
            last = last + functional.interpolate(part[place], size=side, mode="nearest")
        return last


class TextAttention(nn.Module):
    """YOLO-World: a plane is scaled by how well each place fits the best text."""

    def __init__(self, width, embed, heads, text=512):
        super().__init__()
        self.heads = heads
        self.ec = Conv(width, embed, act=False) if width != embed else None
        self.gl = nn.Linear(text, embed)
        self.bias = nn.Parameter(torch.zeros(heads))
        self.proj = Conv(width, width, 3, act=False)

    def forward(self, x, guide):
        batch, width, high, wide = x.shape
        texts = self.gl(guide).view(batch, -1, self.heads, width // self.heads if self.ec is None else -1)
        embed = (x if self.ec is None else self.ec(x)).view(batch, self.heads, -1, high, wide)
        fit = torch.einsum("bmchw,bnmc->bmhwn", embed, texts).amax(-1)
        fit = (fit / (width // self.heads) ** 0.5 + self.bias[None, :, None, None]).sigmoid()
        y = self.proj(x).view(batch, self.heads, -1, high, wide)
        return (y * fit.unsqueeze(2)).view(batch, width, high, wide)


class C2fText(nn.Module):
    def __init__(self, c1, c2, n, embed, heads):
        super().__init__()
        width = c2 // 2
        self.cv1, self.cv2 = Conv(c1, 2 * width), Conv((3 + n) * width, c2)
        self.m = nn.ModuleList(Bottleneck(width, width, False, (3, 3), 1.0) for _ in range(n))
        self.attn = TextAttention(width, embed, heads)

    def forward(self, x, guide):
        parts = list(self.cv1(x).chunk(2, 1))
        for stage in self.m:
            parts.append(stage(parts[-1]))
        parts.append(self.attn(parts[-1], guide))
        return self.cv2(torch.cat(parts, 1))
