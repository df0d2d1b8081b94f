"""ONNX Runtime."""

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    engine=engine("onnxruntime"),
    opener="inferometer.runtimes.onnxruntime.session",
    capabilities=Capabilities(
        units=("cpu", "gpu", "npu"), text=True, logits=True, optimisation=("none", "basic", "extended", "all")
    ),
)
