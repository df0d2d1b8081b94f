"""Bringing a device to where it can run a job: our code, packages that are missing, and the files of the job.

Nothing is sent that is there. Packages go into a folder of their own; the device's Python stays as it is.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core import notices
from inferometer.core.errors import PlaceError
from inferometer.core.frozen import frozen
from inferometer.core.units import format_quantity
from inferometer.hub.places.artifacts import FileHashes
from inferometer.hub.places.requirements import needs_of
from inferometer.hub.places.wheels import download_wheels, our_wheel, target_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.job import Job
    from inferometer.hub.places.base import LocalFiles
    from inferometer.hub.places.requirements import Need
    from inferometer.hub.places.ssh.connection import SshConnection

_SPARE_BYTES = 100_000_000  # for results, logs and what engines write
_SEND_TOLD = 20_000_000  # bytes from which on sending is worth a word
_TELL_S = 10.0
_TRIES = 2


@frozen
class DeviceSetup:
    """`paths` are where the runner's Python finds our code and packages."""

    root: str
    paths: tuple[str, ...]


def set_up(connection: SshConnection, root: str, job: Job, files: LocalFiles) -> DeviceSetup:
    needs, code = needs_of(job, files), our_wheel()
    code_hash = hashlib.sha256(code).hexdigest()
    code_key = f"code/{code_hash[:16]}"
    sizes = {file.sha256: file.size_bytes for file in job.files}
    facts = connection.call(
        "look_around",
        root=root,
        packages=sorted({name for need in needs for name in need.names}),
        hashes=[*sizes, code_hash],
        keys=[code_key],
    )
    missing = [sha256 for sha256 in facts["missing"] if sha256 in sizes]
    _require_room(connection, facts, sum(sizes[sha256] for sha256 in missing))
    there = _Device(connection, facts)
    unmet = tuple(need for need in needs if not need.is_met(facts["packages"]))
    packages = (there.packages(unmet),) if unmet else ()
    code_path = there.code(code_key, code_hash, code)
    for sha256 in missing:
        there.send(files[sha256], sha256)
    return DeviceSetup(root=there.root, paths=(code_path, *packages))


def _require_room(connection: SshConnection, facts: dict[str, Any], nbytes: int) -> None:
    free = int(facts["free_bytes"])
    if free < nbytes + _SPARE_BYTES:
        needed, left = format_quantity(nbytes + _SPARE_BYTES, "B"), format_quantity(free, "B")
        raise PlaceError(
            f"{connection.host} has too little room in {facts['root']}: {left} are free, and the job needs {needed}.",
            remedy="Make room there, or choose a folder on another disk: ?root=FOLDER.",
        )


def _told_now_and_then(name: str, size: int, clock: Callable[[], float] = time.monotonic) -> Callable[[int], None]:
    """Says how much of a large file has been sent. It is called in another thread, which has no listener of its own."""
    show, told_at = notices.listener.get(), clock()

    def tell(sent: int) -> None:
        nonlocal told_at
        if show is not None and clock() - told_at >= _TELL_S:
            told_at = clock()
            show(f"{sent / size:.0%} of {name} sent")

    return tell


class _Device:
    def __init__(self, connection: SshConnection, facts: dict[str, Any]) -> None:
        self.connection, self.facts = connection, facts

    @property
    def root(self) -> str:
        return str(self.facts["root"])

    def code(self, key: str, sha256: str, wheel: bytes) -> str:
        if key in self.facts["ready"]:
            return f"{self.root}/{key}"
        with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
            path = Path(folder) / "inferometer.whl"
            path.write_bytes(wheel)
            self.send(path, sha256)
        return str(self.connection.call("unpack", root=self.root, key=key, hashes=[sha256]))

    def packages(self, unmet: tuple[Need, ...]) -> str:
        """A folder with the packages that the device lacks: from its own index, or else sent from here."""
        wanted = sorted({text for need in unmet for text in need.install})
        lacking = [need for need in unmet if not need.install]
        if lacking:
            raise PlaceError(
                f"{self.connection.host} has no {' or '.join(lacking[0].names)}, which the job needs.",
                remedy="Install it there, or name the Python that has it: ?python=PATH.",
            )
        target = target_of(self.facts)
        key = f"env/{target}-{hashlib.sha256(chr(10).join(wanted).encode()).hexdigest()[:16]}"
        if self.connection.call("look_around", root=self.root, packages=[], hashes=[], keys=[key])["ready"]:
            return f"{self.root}/{key}"
        names = ", ".join(need.names[0] for need in unmet)
        notices.tell(f"Setting up {self.connection.host} once: it lacks {names}.")
        if self.facts["pip"]:
            answer = self.connection.call("install", root=self.root, key=key, requirements=wanted)
            if "folder" in answer:
                return str(answer["folder"])
            notices.tell(f"{self.connection.host} could not fetch them itself; they are sent from here.")
        hashes = []
        memory = FileHashes()
        for wheel in download_wheels(wanted, target):
            file = memory.file(wheel, wheel.name)
            self.send(wheel, file.sha256)
            hashes.append(file.sha256)
        memory.remember()
        return str(self.connection.call("unpack", root=self.root, key=key, hashes=hashes))

    def send(self, path: Path, sha256: str) -> None:
        """Send a file from where an earlier attempt broke off; it counts once its hash is right there."""
        if sha256 not in self.facts["missing"]:
            answer = self.connection.call("look_around", root=self.root, packages=[], hashes=[sha256], keys=[])
            if not answer["missing"]:
                return
        size = path.stat().st_size
        at = min(int(self.facts["parts"].get(sha256, 0)), size)
        if size - at >= _SEND_TOLD:
            notices.tell(f"Sending {path.name} ({format_quantity(size - at, 'B')}) to {self.connection.host} …")
        for _ in range(_TRIES):
            self.connection.send(path, f"{self.root}/incoming/{sha256}.part", at, _told_now_and_then(path.name, size))
            if self.connection.call("seal", root=self.root, sha256=sha256):
                return
            at = 0  # what was there of it was something else
        raise PlaceError(
            f"{path.name} arrived on {self.connection.host} damaged, {_TRIES} times.",
            remedy="Check the disk there, or whether the file is being changed here.",
        )
