"""ExecuTorch, PyTorch's engine for phones and boards, on the CPU: its portable kernels and XNNPACK."""

from importlib.util import find_spec

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine, Missing


def _without_torch(_version: str) -> Missing | None:
    """Its package does not ask for PyTorch, and its runtime needs it: inputs and results are PyTorch's tensors."""
    if find_spec("torch") is not None:
        return None
    return Missing(reason="executorch is here without torch", remedy="pip install 'inferometer[executorch]'")


runtime = Engine(
    engine=engine("executorch"),
    opener="inferometer.runtimes.executorch.session",
    capabilities=Capabilities(units=("cpu",)),
    lacks=_without_torch,
)
