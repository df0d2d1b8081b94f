"""Recognising and reading PyTorch files. Of pickles the tensors are counted; the code in them is never run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.graph import Graph
    from inferometer.formats.base import Peek
    from inferometer.formats.trust.archive import Archive

# AOTInductor's packages: a library compiled of an exported program, for one kind of machine.
#
# A package has the same ending as an exported program and lies in the same kind of zip file; its members tell them
# apart. It holds no graph. Those that `inferometer prepare` makes have the program's, without weights, beside the
# library.

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
    document = archive.document(name)
    return document if isinstance(document, dict) else {}


_ZIP = b"PK\x03\x04"
LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # torch.save before 1.6 starts with it
_STORAGE = re.compile(r"(data|constants)/\d+")
_PROGRAM = ("serialized_exported_program.json", "archive_format")
_PROGRAM_FOLDERS = ("models/", "data/weights/", "data/constants/", "data/aotinductor/")


class TorchReader:
    name = "torch"
    formats = frozenset({"pt2", "aoti", "torch.save", "torchscript"})

    def match(self, peek: Peek) -> float:
        """By the names of the first members of a zip; pickles are claimed so that the refusal is a clear one."""
        if peek.head[:4] == _ZIP:
            from inferometer.formats.trust.archive import local_names  # noqa: PLC0415 - zip files only

            whole = local_names(peek.head)
            inner = [name.partition("/")[2] for name in whole]  # torch puts all members into one folder
            if any(name in _PROGRAM or name.startswith(_PROGRAM_FOLDERS) for name in (*whole, *inner)):
                return 0.9
            # torch.jit.save puts the storages first, as data/0, data/1 …
            return 0.7 if "data.pkl" in inner or any(_STORAGE.fullmatch(name) for name in inner) else 0.0
        if peek.head.startswith(LEGACY_MAGIC):
            return 0.9
        return 0.3 if _looks_pickled(peek.head) else 0.0

    def read(self, path: Path) -> Graph:
        return read_pt2(path)


def _looks_pickled(head: bytes) -> bool:
    """Protocol 2 to 5: a version byte, then a frame, or an opcode that builds an object."""
    return len(head) > 3 and head[0] == 0x80 and head[1] in {2, 3, 4, 5} and head[2:3] in b"\x95}](c\x8c"


def read_pt2(path: Path, *, model: str | None = None) -> Graph:
    """The graph of an exported program. `model` chooses among the programs of one file.

    Neither torch nor pickle is used: the program is JSON, and weights are known by their shapes. Files that are pickles
    hold no program that can be read: they become one op for each weight.
    """
    from inferometer.formats.torch.convert import program_graph  # noqa: PLC0415
    from inferometer.formats.torch.counted import archive_graph, legacy_graph  # noqa: PLC0415
    from inferometer.formats.torch.parse import parse_program, program_members  # noqa: PLC0415
    from inferometer.formats.trust.archive import open_archive  # noqa: PLC0415 - what reading needs is loaded to read

    path = Path(path)
    if _is_pickle(path):
        return legacy_graph(path)
    archive = open_archive(path)
    about: dict[str, Any] = {"format": "pt2"}
    if is_package(archive) and not program_members(archive):
        about = {"format": FORMAT, "compiled": True, "notes": (said_of(described(archive)),)}
        archive = program_inside(archive)
    members = program_members(archive)
    if not members and any(name.endswith("data.pkl") for name in archive.members):
        return archive_graph(archive)
    if not members:
        shown = ", ".join(sorted(set(archive.members))[:6]) or "nothing"
        raise FormatError(
            f"{str(path)!r} is a zip file without an exported program; it holds {shown}.",
            remedy="Save the model with torch.export.save.",
        )
    try:
        graph = program_graph(parse_program(archive, _chosen(path, members, model), name=model or path.stem))
    except FormatError as error:
        if str(path) in error.message:
            raise
        raise FormatError(f"{str(path)!r} cannot be read: {error.message}", remedy=error.remedy) from error
    return replace(graph, metadata={**graph.metadata, **about})


def _chosen(path: Path, members: list[str], model: str | None) -> str:
    names = {member.removeprefix("models/").removesuffix(".json"): member for member in members}
    if model is not None and model not in names:
        raise FormatError(f"{str(path)!r} has no program {model!r}.", remedy=f"It has {', '.join(names)}.")
    if model is not None or len(members) == 1 or "models/model.json" in members:
        return names[model] if model is not None else members[0]
    raise FormatError(
        f"{str(path)!r} holds {len(members)} programs: {', '.join(names)}.",
        remedy="Say which one: inferometer.formats.torch.read_pt2(path, model=…).",
    )


def _is_pickle(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{str(path)!r} cannot be opened: {error}.") from None
    if head.startswith(LEGACY_MAGIC) or _looks_pickled(head):
        return True
    if head[:4] != _ZIP:
        raise FormatError(
            f"{str(path)!r} is not a zip file, and so no exported program: it starts with {head[:8]!r}.",
            remedy="Save the model with torch.export.save.",
        )
    return False
