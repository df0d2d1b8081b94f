"""YOLO by its layer tables: every size and task of v3, v5, v8–v12 and 26."""

import math

import torch
from torch import nn

from workshop.networks.nets import yolo_parts as parts
from workshop.networks.nets import yolo_tables as tables
from workshop.networks.nets.yolo_heads import AnchorDetect, AnchorSegment, Classify, Detect, Extra, Segment, TextDetect


class Cat(nn.Module):
    def forward(self, inputs):
        return torch.cat(inputs, 1)


class Focus(nn.Module):
    """Space folded into channels."""

    def __init__(self, c1, c2, k):
        super().__init__()
        self.conv = parts.Conv(4 * c1, c2, k)

    def forward(self, x):
        folded = (x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2])
        return self.conv(torch.cat(folded, 1))


class Yolo(nn.Module):
    """A table's layers in order; each keeps where its inputs come from."""

    def __init__(self, layers, sources, text=None):
        super().__init__()
        self.model = nn.ModuleList(layers)
        self.sources, self.text = sources, text

    def forward(self, x, guide=None):
        made = []
        for layer, places in zip(self.model, self.sources, strict=True):
            first = made[places[0]] if made else x
            given = first if len(places) == 1 else [made[place] for place in places]
            reads_text = isinstance(layer, parts.C2fText | TextDetect)
            made.append(layer(given, guide) if reads_text else layer(given))
        return made[-1]


def divisible(width):
    return math.ceil(width / 8) * 8


def build(table, scale, head, *, large=False, size=""):
    """`head` makes the last layer from the widths it reads. `large`: m, l and x nest bottlenecks (v11 and later)."""
    depth, factor, most = scale
    layers, sources, widths = [], [], []
    for line in table:
        words = line.split()
        places = [int(place) for place in words.pop(0)[1:].split(",")] if words[0].startswith("@") else [-1]
        repeats = int(words.pop(0)[1:]) if words[0].startswith("x") and words[0][1:].isdigit() else 1
        repeats = max(round(repeats * depth), 1) if repeats > 1 else 1
        kind, numbers = words[0], [float(word) if "." in word else int(word) for word in words[1:]]
        read = [widths[place] if widths else 3 for place in places]
        wide = divisible(min(numbers[0], most) * factor) if numbers else 0
        layer, width = _layer(kind, read, wide, repeats, numbers, (large, size, factor, most), head)
        layers.append(layer)
        widths.append(width)
        sources.append(places)
    return Yolo(layers, sources)


def _layer(kind, read, wide, repeats, numbers, scale, head):
    c1, rest = read[0], numbers[1:]
    if kind == "head":
        return head(read if len(read) > 1 else c1), 0
    if kind in {"cat", "up", "pool", "pad", "keep", "fuse", "handed"}:
        return _weightless(kind, read, numbers)
    if kind in {"conv", "bottleneck"} and repeats > 1:
        return nn.Sequential(*(_block(kind, c1 if not i else wide, wide, 1, rest, scale) for i in range(repeats))), wide
    return _block(kind, c1, wide, repeats, rest, scale), wide


def _weightless(kind, read, numbers):  # noqa: PLR0911 - a table's word each
    match kind:
        case "cat":
            return Cat(), sum(read)
        case "up":
            return nn.Upsample(scale_factor=2, mode="nearest"), read[0]
        case "pool":
            return nn.MaxPool2d(numbers[0], numbers[1], 0), read[0]
        case "pad":
            return nn.ZeroPad2d((0, 1, 0, 1)), read[0]
        case "keep":
            return nn.Identity(), read[0]
        case "fuse":
            return parts.Fuse(numbers), read[-1]
        case _:
            return parts.SplitLinear(read[0], numbers), 0


def _block(kind, c1, c2, n, rest, scale):  # noqa: PLR0911, PLR0912 - a table's word each
    large, size, factor, most = scale
    match kind:
        case "conv":
            k, s, *p = rest
            return parts.Conv(c1, c2, k, s, *p)
        case "focus":
            return Focus(c1, c2, *rest)
        case "bottleneck":
            return parts.Bottleneck(c1, c2, bool(rest[0]) if rest else True, (1, 3))
        case "c3":
            return parts.C3(c1, c2, n, bool(rest[0]) if rest else True)
        case "c2f":
            return parts.c2f(c1, c2, n, bool(rest and rest[0]))
        case "c3k2":
            nested, e, attention = (*rest, *(None,) * (3 - len(rest)))
            return parts.c3k2(c1, c2, n, bool(nested or large), e or 0.5, bool(attention))
        case "a2c2f":
            big = size in {"l", "x"}
            return parts.A2C2f(c1, c2, n, rest[0], 1.2 if big else 2.0, big)
        case "cib":
            return parts.C2f(c1, c2, n, lambda width: parts.Cib(width, bool(rest[0]), bool(rest[1])))
        case "c2psa":
            return parts.C2Psa(c1, c2, n)
        case "psa":
            return parts.C2Psa(c1, c2, 1)
        case "scdown":
            return parts.SpatialDown(c1, c2)
        case "sppf":
            return parts.SpatialPyramid(c1, c2, shortcut=bool(rest and c1 == c2))
        case "spp":
            return parts.SpatialPyramid(c1, c2, tuple(rest), row=False)
        case "elan":
            return parts.Elan(c1, c2, *rest)
        case "elanpool":
            return parts.ElanPyramid(c1, c2, *rest)
        case "aconv":
            return parts.AverageConv(c1, c2)
        case "adown":
            return parts.AverageDown(c1, c2)
        case "c2ftext":
            embed = divisible(min(rest[0], most // 2) * factor)
            heads = max(round(min(rest[1], most // 2 // 32) * factor), 1)
            return parts.C2fText(c1, c2, n, embed, heads)
    raise ValueError(kind)


def _plain_task(task, scale, **detect):
    """The head of a task, for the generations since v8. Published weights: COCO's 80 classes, people, DOTA's 15."""
    _, factor, most = scale
    match task:
        case "seg":
            return lambda widths: Segment(widths, divisible(min(256, most) * factor), **detect)
        case "pose":
            # YOLO26's key points share a branch with their uncertainty, which only training reads
            spread = 85 if detect.get("bins") == 1 else 51
            return lambda widths: Extra(widths, 51, max(widths[0] // 4, spread), **{"classes": 1, **detect})
        case "obb":
            return lambda widths: Extra(widths, 1, **{"classes": 15, **detect})
        case "cls":
            return Classify
        case _:
            return lambda widths: Detect(widths, **detect)


TASKS = ("", "seg", "pose", "obb", "cls")


def nets():
    """Name → how to build it and the side of its image."""
    found = {}
    for size, scale in tables.V5_SCALES.items():
        found[f"yolov5{size}"] = (lambda s=scale: build(tables.V5, s, AnchorDetect)), 640
        found[f"yolov5{size}u"] = (lambda s=scale: build(tables.V5, s, Detect)), 640
        found[f"yolov5{size}6"] = (lambda s=scale: build(tables.V5_P6, s, AnchorDetect)), 1280
        proto = divisible(256 * scale[1])
        found[f"yolov5{size}-seg"] = (
            (lambda s=scale, p=proto: build(tables.V5, s, lambda widths: AnchorSegment(widths, p))),
            640,
        )
    for task in TASKS:
        end = f"-{task}" if task else ""
        side = {"cls": 224, "obb": 1024}.get(task, 640)
        for size, scale in (tables.V8_CLASS_SCALES if task == "cls" else tables.V8_SCALES).items():
            table = tables.V8_CLASSES if task == "cls" else tables.V8
            found[f"yolov8{size}{end}"] = (lambda t=table, s=scale, k=task: build(t, s, _plain_task(k, s))), side
        for size, scale in tables.V11_SCALES.items():
            for generation, table, detect in (
                ("11", tables.V11_CLASSES if task == "cls" else tables.V11, {"light": True}),
                ("12", tables.V12, {"light": True}),
                ("26", tables.V11_CLASSES if task == "cls" else tables.V26, {"light": True, "bins": 1}),
            ):
                if generation == "12" and task:
                    continue
                found[f"yolo{generation}{size}{end}"] = (
                    lambda t=table, s=scale, k=task, d=detect, z=size: build(
                        t, s, _plain_task(k, s, **(d if k != "seg" or "bins" not in d else {**d, "fused": True})),
                        large=z in {"m", "l", "x"}, size=z,
                    )
                ), side  # fmt: skip
    for size, table in tables.V9.items():
        found[f"yolov9{size}"] = (lambda t=table: build(t, (1.0, 1.0, 4096), Detect)), 640
    for size in ("c", "e"):
        found[f"yolov9{size}-seg"] = (
            (lambda t=tables.V9[size]: build(t, (1.0, 1.0, 4096), lambda widths: Segment(widths, 256))),
            640,
        )
    for size, table in tables.V10.items():
        found[f"yolov10{size}"] = (
            (lambda t=table, s=tables.V10_SCALES[size]: build(t, s, lambda widths: Detect(widths, light=True))),
            640,
        )
    for name, table in (("yolov3", tables.V3), ("yolov3-spp", tables.V3_SPP), ("yolov3-tiny", tables.V3_TINY)):
        found[name] = (lambda t=table: build(t, (1.0, 1.0, 1024), AnchorDetect)), 416 if "tiny" in name else 640
        found[f"{name}u"] = (lambda t=table: build(t, (1.0, 1.0, 1024), Detect)), 640
    for size in ("s", "x"):
        scale = tables.V8_SCALES[size]
        found[f"fastsam-{size}"] = (lambda s=scale: build(tables.V8, s, _plain_task("seg", s, classes=1))), 640
    return found
