"""The heads of YOLO's generations: boxes and classes at three scales, masks, key points, angles, whole images."""

import torch
from torch import nn

from workshop.networks.nets.yolo_parts import Conv, depthwise


def _anchors(maps):
    """The centre of every place, [2, places], and its stride's share: what boxes are decoded with."""
    places = sum(plane.shape[2] * plane.shape[3] for plane in maps)
    return maps[0].new_empty(2, places), maps[0].new_empty(1, places)


def _plain(c1, hidden, out):
    return nn.Sequential(Conv(c1, hidden, 3), Conv(hidden, hidden, 3), nn.Conv2d(hidden, out, 1))


def _light(c1, hidden, out):
    return nn.Sequential(
        nn.Sequential(depthwise(c1, c1), Conv(c1, hidden)),
        nn.Sequential(depthwise(hidden, hidden), Conv(hidden, hidden)),
        nn.Conv2d(hidden, out, 1),
    )


class Detect(nn.Module):
    """v8 and later: a branch for boxes and one for classes; a side is the mean of a distribution over `bins` places."""

    def __init__(self, widths, classes=80, bins=16, light=False, texts=0):
        super().__init__()
        self.bins, self.classes = bins, texts or classes
        box, score = max(16, widths[0] // 4, 4 * bins), max(widths[0], min(classes, 100))
        self.cv2 = nn.ModuleList(_plain(c1, box, 4 * bins) for c1 in widths)
        branch = _light if light else _plain
        self.cv3 = nn.ModuleList(branch(c1, score, texts or classes) for c1 in widths)
        self.dfl = nn.Conv2d(bins, 1, 1, bias=False) if bins > 1 else None

    def forward(self, maps):
        batch = maps[0].shape[0]
        boxes = torch.cat([branch(x).flatten(2) for branch, x in zip(self.cv2, maps, strict=True)], 2)
        scores = torch.cat([branch(x).flatten(2) for branch, x in zip(self.cv3, maps, strict=True)], 2)
        return torch.cat((self._decoded(boxes, maps, batch), scores.sigmoid()), 1)

    def _decoded(self, boxes, maps, batch):
        places = boxes.shape[2]
        if self.dfl is not None:
            spread = boxes.view(batch, 4, self.bins, places).transpose(2, 1).softmax(1)
            boxes = self.dfl(spread).view(batch, 4, places)
        centres, strides = _anchors(maps)
        near, far = boxes.chunk(2, 1)
        low, high = centres - near, centres + far
        return torch.cat(((low + high) / 2, high - low), 1) * strides


class TextDetect(Detect):
    """YOLO-World: what a place looks like is compared with each text."""

    def __init__(self, widths, text=512):
        super().__init__(widths, texts=text)
        self.cv4 = nn.ModuleList(nn.BatchNorm2d(text) for _ in widths)

    def forward(self, maps, guide):
        batch = maps[0].shape[0]
        boxes, scores = [], []
        texts = nn.functional.normalize(guide, dim=-1)
        for box, look, norm, x in zip(self.cv2, self.cv3, self.cv4, maps, strict=True):
            boxes.append(box(x).flatten(2))
            scores.append(torch.einsum("bcp,bkc->bkp", norm(look(x)).flatten(2), texts))
        return torch.cat((self._decoded(torch.cat(boxes, 2), maps, batch), torch.cat(scores, 2).sigmoid()), 1)


class Proto(nn.Module):
    """Masks' prototypes at a quarter of the image's side."""

    def __init__(self, c1, hidden, masks=32):
        super().__init__()
        self.cv1, self.cv2, self.cv3 = Conv(c1, hidden, 3), Conv(hidden, hidden, 3), Conv(hidden, masks)
        self.upsample = nn.ConvTranspose2d(hidden, hidden, 2, 2)

    def forward(self, x):
        return self.cv3(self.cv2(self.upsample(self.cv1(x))))


class FusedProto(nn.Module):
    """YOLO26: the deeper planes are added before."""

    def __init__(self, widths, hidden, masks=32):
        super().__init__()
        self.refine = nn.ModuleList(Conv(c1, widths[0]) for c1 in widths[1:])
        self.fuse = Conv(widths[0], hidden, 3)
        self.proto = Proto(hidden, hidden, masks)

    def forward(self, maps):
        x = maps[0]
        for refine, deeper in zip(self.refine, maps[1:], strict=True):
            x = x + nn.functional.interpolate(refine(deeper), size=x.shape[2:], mode="nearest")
        return self.proto(self.fuse(x))


class Segment(nn.Module):
    def __init__(self, widths, hidden, masks=32, fused=False, **detect):
        super().__init__()
        self.detect = Detect(widths, **detect)
        self.proto = FusedProto(widths, hidden, masks) if fused else Proto(widths[0], hidden, masks)
        self.fused = fused
        self.cv4 = nn.ModuleList(_plain(c1, max(widths[0] // 4, masks), masks) for c1 in widths)

    def forward(self, maps):
        weights = torch.cat([branch(x).flatten(2) for branch, x in zip(self.cv4, maps, strict=True)], 2)
        return torch.cat((self.detect(maps), weights), 1), self.proto(maps if self.fused else maps[0])


class Extra(nn.Module):
    """Detect, and `out` numbers more a place: key points (`pose`) or an angle."""

    def __init__(self, widths, out, hidden=None, **detect):
        super().__init__()
        self.detect = Detect(widths, **detect)
        self.cv4 = nn.ModuleList(_plain(c1, hidden or max(widths[0] // 4, out), out) for c1 in widths)

    def forward(self, maps):
        more = torch.cat([branch(x).flatten(2) for branch, x in zip(self.cv4, maps, strict=True)], 2)
        return torch.cat((self.detect(maps), more.sigmoid()), 1)


class Classify(nn.Module):
    def __init__(self, c1, classes=1000):
        super().__init__()
        self.conv = Conv(c1, 1280)
        self.linear = nn.Linear(1280, classes)

    def forward(self, x):
        return self.linear(nn.functional.adaptive_avg_pool2d(self.conv(x), 1).flatten(1)).softmax(1)


class AnchorDetect(nn.Module):
    """v3 to v7: three anchors a place, one plain 1 × 1 a scale; `masks` numbers more where masks are made."""

    def __init__(self, widths, classes=80, masks=0, anchors=3):
        super().__init__()
        self.out, self.anchors = classes + 5 + masks, anchors
        self.m = nn.ModuleList(nn.Conv2d(c1, anchors * self.out, 1) for c1 in widths)

    def forward(self, maps):
        decoded = []
        for branch, x in zip(self.m, maps, strict=True):
            batch, _, high, wide = x.shape
            y = branch(x).view(batch, self.anchors, self.out, high, wide).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
            middle, size, rest = y.split((2, 2, self.out - 4), 4)
            middle = (middle * 2 + y.new_empty(1, self.anchors, high, wide, 2)) * 8
            size = (size * 2) ** 2 * y.new_empty(1, self.anchors, 1, 1, 2)
            decoded.append(torch.cat((middle, size, rest), 4).view(batch, self.anchors * high * wide, self.out))
        return torch.cat(decoded, 1)


class AnchorSegment(nn.Module):
    """YOLOv5's: masks as prototypes times numbers that each anchor gives."""

    def __init__(self, widths, hidden, classes=80, masks=32):
        super().__init__()
        self.detect = AnchorDetect(widths, classes, masks)
        self.cv1, self.cv2, self.cv3 = Conv(widths[0], hidden, 3), Conv(hidden, hidden, 3), Conv(hidden, masks)

    def forward(self, maps):
        x = nn.functional.interpolate(self.cv1(maps[0]), scale_factor=2, mode="nearest")
        return self.detect(maps), self.cv3(self.cv2(x))
