"""What torch's compiler made, kept between runs: a second run of the same model compiles nothing.

The compiler keeps each graph under a hash of the graph, its settings, the processor and its own version, with the
kernels it built. By default that lies in the folder for temporary files, where it is lost with the next start of the
machine; here it lies in the user's cache, in a folder for each version of torch. What is traced in Python before a
graph can be looked up (a few seconds for a large model) is done each time.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from inferometer.core.settings import cache_folder
from inferometer.core.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True, kw_only=True)
class KeptGraphs:
    """How many graphs came from an earlier run, and how many were compiled, while the context was open."""

    folder: Path
    found: int = 0
    made: int = 0

    @property
    def calls(self) -> Path:
        """Where it is kept which modules each kernel of a graph stands for."""
        return self.folder / "calls"

    @property
    def note(self) -> str | None:
        if not self.found:
            return None
        if not self.made:
            return f"Nothing was compiled: {counted(self.found, 'graph')} came from an earlier run ({self.folder})."
        return f"{counted(self.found, 'graph')} came from an earlier run ({self.folder}), {self.made} were compiled."


def compiled_folder(torch: Any) -> Path:
    return cache_folder() / "compiled" / f"torch-{torch.__version__}"


@contextmanager
def kept_graphs(folder: Path) -> Iterator[KeptGraphs]:
    """Compile into the folder, and take from it what is there."""
    kept = KeptGraphs(folder=folder)
    before = _counts()
    with _directed_to(folder):
        yield kept
    found, made = _counts()
    kept.found, kept.made = found - before[0], made - before[1]


def _directed_to(folder: Path) -> AbstractContextManager[None]:
    """A version of torch without this function keeps its graphs where it likes."""
    try:
        direct = import_module("torch._inductor.runtime.cache_dir_utils").temporary_cache_dir
        folder.mkdir(parents=True, exist_ok=True)
    except (ImportError, AttributeError, OSError):
        return nullcontext()
    directed: AbstractContextManager[None] = direct(str(folder))
    return directed


def _counts() -> tuple[int, int]:
    counts = import_module("torch._dynamo.utils").counters["inductor"]
    return int(counts["fxgraph_cache_hit"]), int(counts["fxgraph_cache_miss"] + counts["fxgraph_cache_bypass"])


def compiled_apart(function: Any) -> Any:
    """The same function with a code object of its own, on which torch.compile keeps what it compiled.

    Otherwise every session and size would share one list of compilations, which is short.
    """
    code = function.__code__.replace(co_name=function.__name__)
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
