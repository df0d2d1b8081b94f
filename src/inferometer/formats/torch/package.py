"""AOTInductor's packages: a library compiled of an exported program, for one kind of machine.

A package has the same ending as an exported program and lies in the same kind of zip file; its members tell them apart.
It holds no graph. Those that `inferometer prepare` makes have the program's, without weights, beside the library.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError
from inferometer.core.json_text import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.formats.trust.archive import Archive

# What `inferometer prepare` lays into a package of AOTInductor, for who reads one and who runs one.

SCHEMA = "inferometer.package/1"
PROGRAM = "extra/program/"  # the exported program that was compiled, without its weights
ABOUT = "extra/inferometer.json"  # the machine it was compiled for, what it takes, and the layers of its kernels


FORMAT = "aoti"
_COMPILED, _METADATA = "data/aotinductor/", "_metadata.json"
_KEYS = {
    "AOTI_MACHINE": "machine", "AOTI_PLATFORM": "system", "AOTI_CPU_ISA": "instructions", "AOTI_DEVICE_KEY": "unit",
}  # fmt: skip


def is_package(archive: Archive) -> bool:
    return any(name.startswith(_COMPILED) for name in archive.members)


def described(archive: Archive) -> dict[str, Any]:
    """What the package says of itself: the machine, the instructions and the PyTorch it was compiled for."""
    about: dict[str, Any] = {}
    for name in archive.members:
        if name.startswith(_COMPILED) and name.endswith(_METADATA):
            told = _document(archive, name)
            about |= {ours: told[theirs] for theirs, ours in _KEYS.items() if told.get(theirs)}
    if ABOUT in archive.members:
        ours = _document(archive, ABOUT)
        about |= {key: ours[key] for key in ("torch",) if key in ours}
    return about


def said_of(about: Mapping[str, Any]) -> str:
    """One sentence: what a reader should know before anything else."""
    made = ", ".join(str(about[key]) for key in ("machine", "system", "instructions") if key in about)
    version = f" and PyTorch {about['torch']}" if "torch" in about else ""
    return f"A package of AOTInductor, compiled for {made or 'a machine it does not name'}{version}."


def program_inside(archive: Archive) -> Archive:
    """The program that was compiled, as an archive of its own without weights."""
    inside = (name for name in archive.members if name.startswith(PROGRAM))
    members = {name.removeprefix(PROGRAM): archive.members[name] for name in inside}
    if not members:
        raise FormatError(
            f"{str(archive.path)!r} has no graph in it. {said_of(described(archive))}",
            remedy="Read the program it was compiled from, or compile that with `inferometer prepare PROGRAM.pt2 --for "
            "torch-compile`, which keeps the graph.",
        )
    return replace(archive, members=members, weights=False)


def _document(archive: Archive, name: str) -> dict[str, Any]:
    try:
        document = parse_json(archive.read(name))
    except ValueError as error:
        raise FormatError(
            f"The member {name!r} of {str(archive.path)!r} is no JSON: {error}.", remedy="The file is damaged."
        ) from None
    return document if isinstance(document, dict) else {}
