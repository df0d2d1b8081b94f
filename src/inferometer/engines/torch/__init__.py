"""PyTorch, as it runs by default, captured in CUDA graphs, and through its compiler.

`session` opens; `modules` makes a module from a config, weights or an exported program; `text` and `arrays` are the two
kinds of session; `capture` records CUDA graphs; `recorder` turns the profiler on, and `trace` (pure) reads what it
wrote.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import which

from inferometer.engines.base import Capabilities, Engine, Missing
from inferometer.known.engines import engine

__all__ = ["compiled", "eager", "graph", "lacks_cuda"]

_DRIVER = Path("/proc/driver/nvidia/version")


def lacks_cuda(version: str, *, driver: Path = _DRIVER, find: Callable[[str], str | None] = which) -> Missing | None:
    """What keeps a PyTorch of that version from CUDA graphs, as far as it shows without importing it."""
    if "+cpu" in version:
        return Missing(
            reason=f"CUDA graphs need a build of PyTorch for CUDA, and {version} is for CPUs",
            remedy="Install one (https://pytorch.org/get-started), or choose torch-eager.",
        )
    if not driver.exists() and find("nvidia-smi") is None:
        return Missing(
            reason="CUDA graphs need an NVIDIA GPU, and no driver of one is here",
            remedy="Run it on a machine with one, or choose torch-eager.",
        )
    return None


eager = Engine(
    engine=engine("torch-eager"),
    opener="inferometer.engines.torch.session",
    capabilities=Capabilities(
        units=("cpu", "gpu"), text=True, logits=True, bare=True, precision=("f64", "f32", "bf16", "f16")
    ),
)
compiled = replace(eager, engine=engine("torch-compile"))
graph = replace(
    eager,
    engine=engine("torch-graph"),
    capabilities=replace(eager.capabilities, units=("gpu",)),
    lacks=lacks_cuda,
)
