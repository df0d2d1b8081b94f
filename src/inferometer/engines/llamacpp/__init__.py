"""llama.cpp, in process."""

from inferometer.engines.base import Capabilities, Engine
from inferometer.known.engines import engine

runtime = Engine(
    engine=engine("llamacpp"),
    opener="inferometer.engines.llamacpp.session",
    capabilities=Capabilities(units=("cpu", "gpu"), perturbs=True, arrays=False, text=True, logits=True),
)
