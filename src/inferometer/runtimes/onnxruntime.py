"""ONNX Runtime."""

from inferometer.runtimes.base import Engine

runtime = Engine(
    name="onnxruntime",
    title="ONNX Runtime",
    package="onnxruntime",
    module="onnxruntime",
    extra="onnxruntime",
    formats=frozenset({"onnx"}),
)
