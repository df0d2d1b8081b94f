"""OpenVINO GenAI: language models with OpenVINO underneath."""

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    engine=engine("openvino-genai"),
    opener="inferometer.runtimes.openvino_genai.session",
    capabilities=Capabilities(
        units=("cpu", "gpu"), arrays=False, text=True, logits=True, precision=("f32", "f16", "bf16")
    ),
)
