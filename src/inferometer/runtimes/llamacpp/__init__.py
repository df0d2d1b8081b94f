"""llama.cpp, in process."""

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    engine=engine("llamacpp"),
    opener="inferometer.runtimes.llamacpp.session",
    capabilities=Capabilities(units=("cpu", "gpu"), perturbs=True, arrays=False, text=True, logits=True),
)
