"""PyTorch, as it runs by default and through its compiler."""

from dataclasses import replace

from inferometer.runtimes.base import Capabilities, Engine

eager = Engine(
    name="torch-eager",
    title="PyTorch, eager",
    package="torch",
    module="torch",
    extra="torch",
    formats=frozenset({"pt2", "safetensors", "config"}),
    opener="inferometer.runtimes.torch.session",
    capabilities=Capabilities(units=("cpu", "gpu"), text=True, logits=True),
)
compiled = replace(eager, name="torch-compile", title="PyTorch, torch.compile")
