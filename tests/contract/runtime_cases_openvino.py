"""OpenVINO in the suite of every runtime: files others made, in two formats, with fixed and with open sizes."""

import numpy as np

from contract.runtime_cases_onnxruntime import packaged
from inferometer.runtimes.base import Target

RANDOM = np.random.default_rng(0)


def squeezenet(folder):
    return Target(path=packaged("onnx", "backend/test/data/light/light_squeezenet.onnx"), format="onnx")


def text_angle(folder):
    return Target(path=packaged("rapidocr_onnxruntime", "models/*cls*.onnx"), format="onnx")


def basic_pitch(folder):
    return Target(path=packaged("basic_pitch", "**/nmp.tflite"), format="tflite")


CASES = [
    ("openvino", squeezenet, {"data_0": RANDOM.standard_normal((1, 3, 224, 224)).astype(np.float32)}),
    ("openvino", text_angle, {"x": RANDOM.standard_normal((1, 3, 48, 192)).astype(np.float32)}),
    ("openvino", basic_pitch, {"serving_default_input_2:0": RANDOM.standard_normal((1, 43844, 1)).astype(np.float32)}),
]
