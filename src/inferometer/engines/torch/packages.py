"""What a package of AOTInductor says of itself, and whether it can run here.

The library in a package is made for one architecture, its vector instructions, one system and one version of PyTorch.
Elsewhere it would end the process, or fail with a message about a symbol: it is refused before it is loaded.
"""

from __future__ import annotations

import platform
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError, FormatError
from inferometer.core.json_text import parse_json
from inferometer.core.package import ABOUT
from inferometer.engines.base import Port
from inferometer.engines.torch.capture import Calls
from inferometer.known.machine.detect import detect_host

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.engines.torch.engine import Place

AGAIN = "Prepare the model on this machine: inferometer prepare MODEL --for torch-compile -o PACKAGE.pt2."
_FLAGS = {"avx512": "avx512f", "sve128": "sve", "sve256": "sve"}  # where the compiler has another word for a flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """`machine`, `system` and `instructions` are what it was compiled for; `unit` is cpu or cuda."""

    machine: str
    system: str
    instructions: str
    torch: str
    unit: str
    precision: str
    inputs: tuple[Port, ...]
    calls: Calls


def open_package(path: Path) -> Package:
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((name for name in archive.namelist() if name.endswith(f"/{ABOUT}") or name == ABOUT), None)
            about: dict[str, Any] = parse_json(archive.read(name)) if name is not None else {}
        if not about:
            raise FormatError(f"The package {str(path)!r} does not say what it takes.", remedy=AGAIN)
        ports = tuple(Port(name=name, dtype=kind, shape=tuple(shape)) for name, kind, shape in about["inputs"])
        calls = tuple((str(name), tuple(map(str, layers))) for name, layers in about["calls"])
        words = {key: str(about[key]) for key in ("machine", "system", "instructions", "torch", "unit", "precision")}
        return Package(**words, inputs=ports, calls=calls)
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"The package {str(path)!r} cannot be read: {error}.", remedy=AGAIN) from error


def require_here(package: Package, path: Path, *, place: Place, version: str) -> None:
    """Refuse what was compiled for another machine, and say how it differs."""
    here = {"machine": platform.machine(), "system": platform.system(), "torch": version}
    there = {"machine": package.machine, "system": package.system, "torch": package.torch}
    differs = [f"{there[key]} and not {here[key]}" for key in here if here[key] != there[key]]
    differs += [f"{word} instructions, which this processor has not" for word in _lacking(package.instructions)]
    if package.unit == "cuda" and not place.cuda:
        differs.append("a CUDA device, and it would run on the CPU here")
    if differs:
        raise EngineError(f"{path.name!r} was compiled for {'; for '.join(differs)}.", remedy=AGAIN)


def _lacking(instructions: str) -> list[str]:
    """Vector instructions that are known to be missing here."""
    cpu = detect_host().cpu
    words = instructions.casefold().split()
    return [word.upper() for word in words if cpu.has(_FLAGS.get(word, word)) is False]
