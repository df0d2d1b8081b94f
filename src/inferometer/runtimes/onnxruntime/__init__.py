"""ONNX Runtime."""

from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    name="onnxruntime",
    title="ONNX Runtime",
    package="onnxruntime",
    module="onnxruntime",
    extra="onnxruntime",
    formats=frozenset({"onnx"}),
    opener="inferometer.runtimes.onnxruntime.session",
    capabilities=Capabilities(
        units=("cpu", "gpu", "npu"), text=True, logits=True, optimisation=("none", "basic", "extended", "all")
    ),
)
