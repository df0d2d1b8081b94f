"""Declare torchvision's compiled operators where its binary does not fit this torch: their shapes are all we trace."""

import torch

_NAMES = (
    "nms", "qnms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d", "_roi_align_backward",
    "_roi_pool_backward", "_ps_roi_align_backward", "_ps_roi_pool_backward", "_deform_conv2d_backward",
)  # fmt: skip


def declare():
    try:
        import torchvision.extension  # noqa: F401, PLC0415 - this is the question
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in _NAMES:
            library.define(f"{name}(Tensor a, Tensor b, float c) -> Tensor")
        return library
    return None


KEPT = declare()
