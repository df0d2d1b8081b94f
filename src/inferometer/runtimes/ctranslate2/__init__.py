"""CTranslate2, OpenNMT's engine for transformers, on the CPU and CUDA."""

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    engine=engine("ctranslate2"),
    opener="inferometer.runtimes.ctranslate2.session",
    capabilities=Capabilities(
        units=("cpu", "gpu"), per_op=False, arrays=False, text=True, logits=True, precision=("f32", "f16", "bf16")
    ),
)
