"""OpenVINO."""

from inferometer.runtimes.base import Engine

runtime = Engine(
    name="openvino",
    title="OpenVINO",
    package="openvino",
    module="openvino",
    extra="openvino",
    formats=frozenset({"onnx", "tflite"}),
)
