"""ExecuTorch, PyTorch's engine for phones and boards, on the CPU: its portable kernels and XNNPACK."""

from importlib.util import find_spec

from inferometer.engines.base import Capabilities, Engine, Missing
from inferometer.known.engines import engine


def _without_torch(_version: str) -> Missing | None:
    """Its package does not ask for PyTorch, and its runtime needs it: inputs and results are PyTorch's tensors."""
    if find_spec("torch") is not None:
        return None
    return Missing(reason="executorch is here without torch", remedy="pip install 'inferometer[executorch]'")


runtime = Engine(
    engine=engine("executorch"),
    opener="inferometer.engines.executorch.session",
    capabilities=Capabilities(units=("cpu",)),
    lacks=_without_torch,
)
