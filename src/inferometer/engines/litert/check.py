"""Whether LiteRT's profiler can be read here. An untried release may crash, so it is tried in its own process."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from inferometer.core.errors import EngineError
from inferometer.engines.litert.capi import Profiled, library_path, missing_functions

TRIED = frozenset({"2.3.0"})
_PATIENCE_S = 120.0


def profiling_works(
    model: Path,
    threads: int,
    shapes: Sequence[Sequence[int]],
    *,
    release: Callable[[], str] | None = None,
    command: Sequence[str] = (sys.executable, "-P", "-m", "inferometer.engines.litert.check"),
) -> str | None:
    """None where it works, else the reason why not."""
    library = library_path()
    if library is None:
        return "LiteRT came without its library of C functions."
    missing = missing_functions(library)
    if missing:
        return f"LiteRT's library lacks {', '.join(missing[:3])}."
    installed = (release or _release)()
    sizes = [",".join(str(dim) for dim in shape) for shape in shapes]
    return None if installed in TRIED else _tried([*command, str(model), str(threads), *sizes], installed)


def _release() -> str:
    try:
        return version("ai-edge-litert")
    except PackageNotFoundError:
        return "unknown"


def _tried(command: Sequence[str], release: str) -> str | None:
    try:
        done = subprocess.run(list(command), capture_output=True, timeout=_PATIENCE_S, check=False)  # noqa: S603 - our own module
    except subprocess.TimeoutExpired:
        return f"the profiler of LiteRT {release} did not answer."
    if done.returncode:
        return f"the profiler of LiteRT {release} is another than that of {', '.join(sorted(TRIED))}."
    return None


def main(arguments: Sequence[str]) -> int:
    """Run a model once with the profiler on: 0 where it recorded something that took time."""
    model, threads, *sizes = arguments
    library = library_path()
    if library is None:
        return 1
    shapes = [[int(dim) for dim in each.split(",") if dim] for each in sizes]
    try:
        profiled = Profiled(library, Path(model), int(threads), shapes)
        profiled.run()
        events = profiled.events()
        profiled.close()
    except EngineError:
        return 1
    return 0 if any(event.elapsed_us for event in events) and all(event.tag for event in events) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
