"""The fake engine in the suite of every runtime."""

import numpy as np

from fakes.fake_runtime import FakeRuntime, write_arrays, write_text
from inferometer.engines.base import Target


def arrays(folder):
    return Target(path=write_arrays(folder / "arrays.json"), format="fake")


def text(folder):
    return Target(path=write_text(folder / "text.json"), format="fake", text=True)


CASES = [
    (FakeRuntime(), arrays, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}),
    (FakeRuntime(), text, (1, 2, 3, 4)),
]
