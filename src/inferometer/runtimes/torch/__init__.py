"""PyTorch, as it runs by default and through its compiler.

`session` opens; `modules` makes a module from a config, weights or an exported program; `text` and `arrays` are the two
kinds of session; `recorder` turns the profiler on, and `trace` (pure) reads what it wrote.
"""

from dataclasses import replace

from inferometer.runtimes.base import Capabilities, Engine

__all__ = ["compiled", "eager"]

eager = Engine(
    name="torch-eager",
    title="PyTorch, eager",
    package="torch",
    module="torch",
    extra="torch",
    formats=frozenset({"pt2", "safetensors", "config"}),
    opener="inferometer.runtimes.torch.session",
    capabilities=Capabilities(units=("cpu", "gpu"), text=True, logits=True, precision=("f64", "f32", "bf16", "f16")),
)
compiled = replace(eager, name="torch-compile", title="PyTorch, torch.compile")
