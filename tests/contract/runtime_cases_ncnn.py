"""ncnn in the suite of every runtime: a network of three layers, written as text with its weights beside it."""

import numpy as np

from inferometer.engines.base import Target

RANDOM = np.random.default_rng(0)
LAYERS = """7767517
4 4
Input       data 0 1 data 0=16 1=16 2=3
Convolution conv 1 1 data conv 0=8 1=3 4=1 5=1 6=216 9=1
Pooling     pool 1 1 conv pool 0=1 4=1
InnerProduct fc  1 1 pool fc   0=10 1=1 2=80
"""
PLAIN = np.zeros(1, "<u4").tobytes()  # the mark of weights in f32


def write_network(folder):
    """The same numbers every time; weights come with a mark, biases without."""
    random = np.random.default_rng(1)
    weights, bias, matrix, offset = (random.standard_normal(size).astype("<f4") for size in (216, 8, 80, 10))
    path = folder / "three.param"
    path.write_text(LAYERS, encoding="utf-8")
    parts = (PLAIN, weights.tobytes(), bias.tobytes(), PLAIN, matrix.tobytes(), offset.tobytes())
    path.with_suffix(".bin").write_bytes(b"".join(parts))
    return path


def three(folder):
    return Target(path=write_network(folder), format="ncnn", threads=1, precision="f32")


CASES = [("ncnn", three, {"data": RANDOM.standard_normal((1, 3, 16, 16), np.float32)})]
