"""ONNX Runtime GenAI: language models with ONNX Runtime underneath, on the CPU."""

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    engine=engine("onnxruntime-genai"),
    opener="inferometer.runtimes.onnxruntime_genai.session",
    capabilities=Capabilities(units=("cpu",), arrays=False, text=True, logits=True),
)
