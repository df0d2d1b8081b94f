"""Machines as folders: `MachineRecorder` writes what a machine answered, `RecordedMachine` answers from it.

A recording has three files, all meant to be read and trimmed by hand:

    machine.json   the facts about the process, packages and disks, and the paths that are there without text
    files.txt      the text of each file that was read
    commands.txt   the output of each program that was run

In the two .txt files a line `===== NAME` starts each entry: a path, or a command line.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.known.machine.detect.fields import rows, table
from inferometer.known.machine.detect.machine import Disk, Machine

__all__ = ["MachineRecorder", "RecordedMachine", "load_machine", "parse_entries", "render_entries"]

_MARK = "===== "


def parse_entries(text: str) -> dict[str, str]:
    """`===== name` and the lines after it, for each entry."""
    found: dict[str, str] = {}
    for part in ("\n" + text).split(f"\n{_MARK}")[1:]:
        name, _, body = part.partition("\n")
        found[name.strip()] = body.rstrip("\n") + "\n" if body.strip() else ""
    return found


def render_entries(entries: Mapping[str, str]) -> str:
    return "".join(f"{_MARK}{name}\n{text.rstrip()}\n" for name, text in sorted(entries.items()))


@frozen
class RecordedMachine:
    """A machine that answers from what was written down. What was not written down is not there.

    `bare` are paths that exist but have no text: folders, and files that only root may read.
    """

    system: str
    architecture: str
    node: str | None = None
    python: str | None = None
    pid: int | None = None
    privileged: bool | None = None
    page_bytes: int = 4096
    affinity_cpus: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    bare: frozenset[str] = frozenset()
    commands: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    room: tuple[Disk, ...] = ()
    features: Mapping[int, bool] = field(default_factory=dict)
    modules: Mapping[str, Any] = field(default_factory=dict)

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def names(self, folder: str) -> tuple[str, ...]:
        start = folder.rstrip("/") + "/"
        paths = (*self.files, *self.bare)
        return tuple(sorted({path[len(start) :].split("/")[0] for path in paths if path.startswith(start)}))

    def run(self, *argv: str) -> str | None:
        return self.commands.get(" ".join(argv))

    def which(self, program: str) -> str | None:
        known = any(command.split(" ")[0] == program for command in self.commands)
        return f"/usr/bin/{program}" if known else None

    def affinity(self) -> int | None:
        return self.affinity_cpus

    def module(self, name: str) -> Any:
        return self.modules.get(name)

    def installed(self, distribution: str) -> str | None:
        return self.packages.get(distribution)

    def disks(self) -> tuple[Disk, ...]:
        return self.room

    def processor_feature(self, code: int) -> bool | None:
        return self.features.get(code)


def load_machine(folder: Path) -> RecordedMachine:
    """The machine recorded in a folder."""
    try:
        facts = table(json.loads((folder / "machine.json").read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise FormatError(
            f"{folder} is not a recorded machine: machine.json cannot be read ({error}).",
            remedy="A recording has machine.json, files.txt and commands.txt.",
        ) from None
    return RecordedMachine(
        system=str(facts.get("system", "")),
        architecture=str(facts.get("architecture", "")),
        node=facts.get("node"),
        python=facts.get("python"),
        pid=facts.get("pid"),
        privileged=facts.get("privileged"),
        page_bytes=int(facts.get("page_bytes", 4096)),
        affinity_cpus=facts.get("affinity"),
        files=_entries(folder / "files.txt"),
        bare=frozenset(facts.get("bare", ())),
        commands=_entries(folder / "commands.txt"),
        packages=table(facts.get("packages")),
        room=tuple(
            Disk(name=str(row["name"]), total_bytes=int(row["total_bytes"]), free_bytes=int(row["free_bytes"]))
            for row in rows(facts.get("disks"))
        ),
        features={int(code): bool(there) for code, there in table(facts.get("features")).items()},
    )


def _entries(path: Path) -> dict[str, str]:
    return parse_entries(path.read_text("utf-8")) if path.exists() else {}


@dataclass(slots=True)
class MachineRecorder:
    """Passes every question on to a machine and keeps the answers. Modules are kept back: they cannot be written."""

    machine: Machine
    files: dict[str, str] = field(default_factory=dict)
    bare: set[str] = field(default_factory=set)
    commands: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    features: dict[int, bool] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        """What is not kept is asked of the machine itself: its system, its affinity, its disks."""
        return getattr(self.machine, name)

    def read(self, path: str) -> str | None:
        text = self.machine.read(path)
        if text is not None:
            self.files[path] = text.replace("\0", "")
        return text

    def names(self, folder: str) -> tuple[str, ...]:
        found = self.machine.names(folder)
        self.bare.update(f"{folder.rstrip('/')}/{name}" for name in found)
        return found

    def run(self, *argv: str) -> str | None:
        text = self.machine.run(*argv)
        if text is not None:
            self.commands[" ".join(argv)] = text
        return text

    def module(self, name: str) -> Any:  # noqa: ARG002 - the seam's signature
        return None

    def installed(self, distribution: str) -> str | None:
        version = self.machine.installed(distribution)
        if version is not None:
            self.packages[distribution] = version
        return version

    def processor_feature(self, code: int) -> bool | None:
        there = self.machine.processor_feature(code)
        if there is not None:
            self.features[code] = there
        return there

    def save(self, folder: Path, *, leave_out: Iterable[str] = ()) -> None:
        """Write the recording; paths that begin with one of `leave_out` stay behind."""
        kept_back = tuple(leave_out)
        files = {path: text for path, text in self.files.items() if not path.startswith(kept_back)}
        above = {path[:end] for path in files for end in range(len(path)) if path[end] == "/"} | files.keys()
        facts = {
            "system": self.system,
            "architecture": self.architecture,
            "python": self.python,
            "privileged": self.privileged,
            "page_bytes": self.page_bytes,
            "affinity": self.affinity(),
            "bare": sorted(path for path in self.bare - above if not path.startswith(kept_back)),
            "packages": self.packages,
            "disks": [
                {"name": disk.name, "total_bytes": disk.total_bytes, "free_bytes": disk.free_bytes}
                for disk in self.disks()
            ],
            "features": self.features,
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "machine.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
        (folder / "files.txt").write_text(render_entries(files), "utf-8")
        (folder / "commands.txt").write_text(render_entries(self.commands), "utf-8")
