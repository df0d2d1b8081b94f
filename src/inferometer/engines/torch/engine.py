"""The engine's edge: importing it, its devices and number formats, threads, and its errors in our words."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, ClassVar

from inferometer.core.errors import EngineError, InferometerError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from inferometer.engines.base import Target

PRECISIONS = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16"}  # ours, and torch's
_REMEDY = "pip install 'inferometer[torch]'"


def import_torch() -> Any:
    try:
        return import_module("torch")
    except (ImportError, OSError) as error:
        raise MissingDependencyError(f"PyTorch cannot be imported: {error}.", remedy=_REMEDY) from None


def import_transformers() -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        raise MissingDependencyError(
            f"PyTorch opens a config or a folder of weights through transformers, which cannot be imported: {error}.",
            remedy=_REMEDY,
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchDevice:
    """Where it runs: the unit in our words, and the device in torch's."""

    unit: str  # cpu, gpu:0
    device: str  # cpu, cuda:0

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def kind(self) -> str:
        return self.unit.partition(":")[0]


def choose_device(target: Target, torch: Any) -> TorchDevice:
    """The place asked for: a provider before a unit, and a GPU before the CPU where nothing was asked."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    there = {"cpu": TorchDevice(unit="cpu", device="cpu")}
    for card in range(cards):
        there[f"cuda:{card}"] = TorchDevice(unit=f"gpu:{card}" if cards > 1 else "gpu", device=f"cuda:{card}")
    wanted = [name if ":" in name or name != "cuda" else "cuda:0" for name in target.providers]
    for name in wanted:
        if name in there:
            return there[name]
    if wanted:
        raise _absent(", ".join(target.providers), there)
    if target.unit is None:
        return there.get("cuda:0", there["cpu"])
    kind, _, index = target.unit.partition(":")
    place = there.get("cpu" if kind == "cpu" else f"cuda:{index or 0}") if kind in {"cpu", "gpu"} else None
    if place is None:
        raise _absent(target.unit, there)
    return place


def _absent(asked: str, there: Mapping[str, TorchDevice]) -> EngineError:
    units = ", ".join(f"{place.unit} ({name})" for name, place in there.items())
    return EngineError(
        f"PyTorch was asked to run on {asked!r}; here it has {units}.",
        remedy="Choose one of those, or install a build of PyTorch for that device.",
    )


def choose_precision(target: Target, place: TorchDevice, config_dtype: Any) -> str:
    """Asked for; else f32 on a CPU, where narrower formats are slow, and the config's own or bf16 on a GPU."""
    if target.precision is not None:
        return target.precision
    if not place.cuda:
        return "f32"
    name = str(config_dtype or "").removeprefix("torch.")
    return next((ours for ours, theirs in PRECISIONS.items() if theirs == name), "bf16")


class Threads:
    """The engine's threads are one number for the process: the first session keeps it, the last one restores it."""

    _open: ClassVar[set[int]] = set()
    _before: ClassVar[int | None] = None

    def __init__(self, torch: Any, count: int) -> None:
        self._torch, self.count = torch, count
        if not Threads._open:
            Threads._before = torch.get_num_threads()
        Threads._open.add(id(self))
        self.hold()

    def hold(self) -> None:
        """Set the number again, where another session has changed it."""
        if self._torch.get_num_threads() != self.count:
            self._torch.set_num_threads(self.count)

    def close(self) -> None:
        Threads._open.discard(id(self))
        if not Threads._open and Threads._before is not None:
            self._torch.set_num_threads(Threads._before)
            Threads._before = None


def versions_of(torch: Any) -> dict[str, str]:
    """What a number depends on."""
    versions = {"torch": str(torch.__version__)}
    for package in ("transformers", "torchvision", "triton"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    if torch.version.cuda and torch.cuda.is_available():
        versions["cuda"] = str(torch.version.cuda)
        versions["gpu"] = str(torch.cuda.get_device_name())
    return versions


@contextmanager
def translated(torch: Any, doing: str) -> Iterator[None]:
    """An error of the engine becomes one of ours that says what it was doing."""
    try:
        yield
    except InferometerError:
        raise
    except (
        RuntimeError,
        NotImplementedError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ImportError,
        OSError,
    ) as error:
        free = torch.cuda.mem_get_info() if _out_of_memory(error) and torch.cuda.is_available() else None
        raise refused(error, doing, free=free) from error
    except MemoryError as error:
        raise refused(error, doing, free=None) from error


def _out_of_memory(error: BaseException) -> bool:
    return type(error).__name__ in {"OutOfMemoryError", "MemoryError"} or "can't allocate memory" in str(error)


def refused(error: BaseException, doing: str, *, free: tuple[int, int] | None) -> EngineError:
    """The engine's words in our sentence: how much memory was asked for and free, or the op that is not there."""
    lines = str(error).strip().splitlines()
    words = lines[0] if lines else type(error).__name__
    if _out_of_memory(error):
        asked = re.search(r"(?:allocate|allocated?) ([\d.]+ ?(?:[KMGT]i?B|bytes))", str(error), re.IGNORECASE)
        of = f" {free[0] / 1e9:.2f} GB of {free[1] / 1e9:.2f} GB were free." if free else ""
        return EngineError(
            f"PyTorch ran out of memory while {doing}: it asked for {asked[1] if asked else 'more'}.{of}",
            remedy="Use a smaller model, batch, context or precision, or a device with more memory.",
        )
    op = re.search(r"\b(?:aten|prims|torchvision|mkldnn|quantized)(?:::|\.)\w+", str(error))
    named = f" (op {op[0].replace('.', '::')})" if op else ""
    return EngineError(
        f"PyTorch failed while {doing}{named}: {words}",
        remedy="Try torch-eager, another precision or unit, or another runtime (`inferometer runtimes`).",
    )
