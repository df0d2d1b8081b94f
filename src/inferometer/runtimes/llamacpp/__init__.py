"""llama.cpp, in process."""

from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    name="llamacpp",
    title="llama.cpp",
    package="xllamacpp",
    module="xllamacpp",
    extra="llamacpp",
    formats=frozenset({"gguf"}),
    opener="inferometer.runtimes.llamacpp.session",
    capabilities=Capabilities(units=("cpu", "gpu"), perturbs=True, arrays=False, text=True, logits=True),
)
