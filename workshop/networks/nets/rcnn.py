"""R-CNNs of torchvision and detectron2, whole and in the two parts that tables of NPUs have.

What is chosen among boxes has no arithmetic, and is left out. Detectron2's are built of torchvision's layers: its
ResNet-50 has the same convolutions.
"""

import torchvision
from torch import nn

from workshop.networks.nets.net import Net, image

BOXES, MASKS = 1000, 100  # that torchvision and detectron2 look at, unless told otherwise
HUB_BOXES = 200  # that the parts on Qualcomm AI Hub are given


def _boxes_of(plane, boxes, side):
    """As many patches as boxes: what is read of the planes is at most what is written."""
    return plane[:, :, :side, :side].repeat(boxes, 1, 1, 1)


class Proposals(nn.Module):
    """Backbone, pyramid, and the head that scores places."""

    def __init__(self, net):
        super().__init__()
        self.backbone, self.rpn = net.backbone, net.rpn.head

    def forward(self, x):
        planes = list(self.backbone(x).values())
        scores, sides = self.rpn(planes)
        return planes[0], *scores, *sides


class Heads(nn.Module):
    """What is asked of each box, and of fewer each mask."""

    def __init__(self, net, boxes, masks):
        super().__init__()
        heads = net.roi_heads
        self.box, self.boxes, self.counts = heads.box_head, heads.box_predictor, (boxes, masks)
        self.mask, self.masks = (heads.mask_head, heads.mask_predictor) if masks else (None, None)

    def forward(self, plane):
        boxes, masks = self.counts
        found = self.boxes(self.box(_boxes_of(plane, boxes, 7)))
        return (*found, self.masks(self.mask(_boxes_of(plane, masks, 14)))) if masks else found


class C4Proposals(nn.Module):
    """Detectron2's R-CNN on the fourth stage: proposals of fifteen shapes at each place of it."""

    def __init__(self):
        super().__init__()
        net = torchvision.models.resnet50()
        self.body = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1, net.layer2, net.layer3)
        self.conv = nn.Sequential(nn.Conv2d(1024, 1024, 3, padding=1), nn.ReLU())
        self.scores, self.sides = nn.Conv2d(1024, 15, 1), nn.Conv2d(1024, 60, 1)

    def forward(self, x):
        plane = self.body(x)
        found = self.conv(plane)
        return plane, self.scores(found), self.sides(found)


class C4Heads(nn.Module):
    """Its fifth stage runs for each box, on a patch of 14 x 14."""

    def __init__(self, boxes):
        super().__init__()
        self.stage, self.count = torchvision.models.resnet50().layer4, boxes
        self.scores, self.sides = nn.Linear(2048, 81), nn.Linear(2048, 320)

    def forward(self, plane):
        boxes = self.stage(_boxes_of(plane, self.count, 14)).mean((2, 3))
        return self.scores(boxes), self.sides(boxes)


class Whole(nn.Module):
    def __init__(self, proposals, heads):
        super().__init__()
        self.proposals, self.heads = proposals, heads

    def forward(self, x):
        plane, *found = self.proposals(x)
        return (*found, *self.heads(plane))


def nets():
    wide, square = image(800, 1344), image(800)
    found = {}
    for name, factory, masks, published in (
        ("faster-rcnn-resnet50", "fasterrcnn_resnet50_fpn", 0, "~41.8M"),
        ("faster-rcnn-mobilenet-v3-large", "fasterrcnn_mobilenet_v3_large_fpn", 0, "~19.4M"),
        ("mask-rcnn-resnet50", "maskrcnn_resnet50_fpn", MASKS, "~44.4M"),
        ("mask-rcnn-resnet50-v2", "maskrcnn_resnet50_fpn_v2", MASKS, "~46.4M"),
    ):

        def make(factory=factory):
            return getattr(torchvision.models.detection, factory)(weights=None, weights_backbone=None)

        found[name] = Net(
            make=lambda make=make, masks=masks: Whole(Proposals(made := make()), Heads(made, BOXES, masks)),
            inputs=wide, fixed=True, published=published,
        )  # fmt: skip
        if name.endswith("-v2"):
            found[f"{name}/proposal_generator"] = Net(make=lambda make=make: Proposals(make()), inputs=square)
            found[f"{name}/roi_head"] = Net(
                make=lambda make=make: Heads(make(), HUB_BOXES, HUB_BOXES), inputs=image(200, channels=256), fixed=True
            )
    found["faster-rcnn-r50-c4"] = Net(
        make=lambda: Whole(C4Proposals(), C4Heads(BOXES)), inputs=wide, fixed=True, published="33.8M"
    )
    found["faster-rcnn-r50-c4/proposal_generator"] = Net(make=C4Proposals, inputs=square)
    found["faster-rcnn-r50-c4/roi_head"] = Net(
        make=lambda: C4Heads(HUB_BOXES), inputs=image(50, channels=1024), fixed=True
    )
    return found
