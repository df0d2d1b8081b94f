"""OpenVINO."""

from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    name="openvino",
    title="OpenVINO",
    package="openvino",
    module="openvino",
    extra="openvino",
    formats=frozenset({"onnx", "openvino", "tflite"}),
    opener="inferometer.runtimes.openvino.session",
    capabilities=Capabilities(units=("cpu", "gpu", "npu"), precision=("f32", "f16", "bf16")),
)
