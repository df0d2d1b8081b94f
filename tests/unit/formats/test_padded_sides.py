"""Sides that a network pads before a convolution follow the image, as its other sides do."""

import pytest

import inferometer as im


@pytest.mark.parametrize(("name", "most"), [("midas-small", 1e9), ("yolov3-tinyu", 1e9), ("lama-dilated", 8e9)])
def test_a_padded_side_is_not_left_at_the_size_it_was_traced_with(name, most):
    """MiDaS once moved 245 GB an image: its padded planes kept sides of 16,145 pixels."""
    profile = im.predict(name, on="nvidia-rtx-4090", runtime="ideal", weights="f16", activations="f16")
    assert profile.phase("forward").bytes < most
