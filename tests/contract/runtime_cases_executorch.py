"""ExecuTorch in the suite of every runtime: a network partly lowered to XNNPACK, and one of portable kernels alone."""

from pathlib import Path

import numpy as np

from inferometer.engines.base import Target

PROGRAMS = Path(__file__).parents[1] / "data" / "executorch"
IMAGE = {"input_0": np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32)}


def lowered(_folder):
    return Target(path=PROGRAMS / "xnnpack.pte", format="pte", threads=1)


def portable(_folder):
    return Target(path=PROGRAMS / "portable.pte", format="pte", threads=1)


CASES = [("executorch", lowered, IMAGE), ("executorch", portable, IMAGE)]
