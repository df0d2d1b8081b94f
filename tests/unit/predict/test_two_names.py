"""One network has one price, whether the catalog's config or torchvision's own graph describes it."""

import pytest

from inferometer import predict
from inferometer.known import models

# The catalog's ViTs and Swins are transformers' own code. ConvNeXts and DenseNets are not alike yet: their two graphs
# differ in what is permuted and joined.
OTHERS = ("vit", "swin", "convnext", "densenet")
SHARED = sorted(
    (row.name, alias.removeprefix("torchvision/"))
    for row in models().values()
    for alias in row.aliases
    if alias.startswith("torchvision/") and not row.name.startswith(OTHERS)
)


@pytest.mark.parametrize("weights", ["f32", "bf16"])
@pytest.mark.parametrize("runtime", ["torch-compile", "torch-graph", "torch-eager"])
@pytest.mark.parametrize(("ours", "theirs"), SHARED)
def test_a_network_of_the_catalog_takes_what_torchvisions_own_takes(ours, theirs, runtime, weights):
    asked = {"on": "nvidia-h200", "runtime": runtime, "weights": weights, "batch": 8, "image": 224}
    both = [predict(name, **asked).phase("forward").time_s for name in (ours, f"torchvision:{theirs}")]
    assert both[0] == pytest.approx(both[1], rel=0.02)
