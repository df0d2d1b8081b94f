"""ONNX Runtime GenAI: language models with ONNX Runtime underneath, on the CPU."""

from inferometer.engines.base import Capabilities, Engine
from inferometer.known.engines import engine

runtime = Engine(
    engine=engine("onnxruntime-genai"),
    opener="inferometer.engines.onnxruntime_genai.session",
    capabilities=Capabilities(units=("cpu",), arrays=False, text=True, logits=True),
)
