"""CTranslate2, OpenNMT's engine for transformers, on the CPU and CUDA."""

from inferometer.engines.base import Capabilities, Engine
from inferometer.known.engines import engine

runtime = Engine(
    engine=engine("ctranslate2"),
    opener="inferometer.engines.ctranslate2.session",
    capabilities=Capabilities(
        units=("cpu", "gpu"), per_op=False, arrays=False, text=True, logits=True, precision=("f32", "f16", "bf16")
    ),
)
