"""LiteRT, formerly TensorFlow Lite."""

from inferometer.engines.base import Capabilities, Engine
from inferometer.known.engines import engine

runtime = Engine(
    engine=engine("litert"),
    opener="inferometer.engines.litert.session",
    capabilities=Capabilities(units=("cpu",)),
)
