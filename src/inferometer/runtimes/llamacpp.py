"""llama.cpp, in process."""

from inferometer.runtimes.base import Engine

runtime = Engine(
    name="llamacpp",
    title="llama.cpp",
    package="xllamacpp",
    module="xllamacpp",
    extra="llamacpp",
    formats=frozenset({"gguf"}),
)
