"""LiteRT, formerly TensorFlow Lite."""

from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    name="litert",
    title="LiteRT",
    package="ai-edge-litert",
    module="ai_edge_litert",
    extra="litert",
    formats=frozenset({"tflite"}),
    opener="inferometer.runtimes.litert.session",
    capabilities=Capabilities(units=("cpu",)),
)
