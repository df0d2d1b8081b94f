"""OpenVINO GenAI: language models with OpenVINO underneath."""

from inferometer.engines.base import Capabilities, Engine
from inferometer.known.engines import engine

runtime = Engine(
    engine=engine("openvino-genai"),
    opener="inferometer.engines.openvino_genai.session",
    capabilities=Capabilities(
        units=("cpu", "gpu"), arrays=False, text=True, logits=True, precision=("f32", "f16", "bf16")
    ),
)
