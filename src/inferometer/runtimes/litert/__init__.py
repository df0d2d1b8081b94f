"""LiteRT, formerly TensorFlow Lite."""

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    engine=engine("litert"),
    opener="inferometer.runtimes.litert.session",
    capabilities=Capabilities(units=("cpu",)),
)
