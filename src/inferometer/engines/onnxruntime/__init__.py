"""ONNX Runtime."""

from inferometer.engines.base import Capabilities, Engine
from inferometer.known.engines import engine

runtime = Engine(
    engine=engine("onnxruntime"),
    opener="inferometer.engines.onnxruntime.session",
    capabilities=Capabilities(
        units=("cpu", "gpu", "npu"), text=True, logits=True, optimisation=("none", "basic", "extended", "all")
    ),
)
