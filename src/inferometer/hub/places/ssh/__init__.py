"""The provider `ssh`: a device that one can log in to, by `ssh://USER@HOST:PORT?python=PATH&root=FOLDER`.

What the user's own ssh knows holds here too: `~/.ssh/config`, known hosts, keys, the agent, jump hosts. The job runs
detached, in a folder of the device; this side reads that folder, so that a lost connection costs nothing but time.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from inferometer.core import notices
from inferometer.core.codec import decode, document
from inferometer.core.errors import DomainError, PlaceError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.core.units import format_quantity, parse_quantity
from inferometer.hub.places.artifacts import FileHashes
from inferometer.hub.places.base import Closing, Handle, LocalFiles, Missing, PlaceAddress, Ready
from inferometer.hub.places.following import JOB, Patience, follow, result_in
from inferometer.hub.places.requests import require_known
from inferometer.hub.places.requirements import Need, needs_of
from inferometer.hub.places.wheels import download_wheels, our_wheel, target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.hub.places.ssh.connection import SshConnection

# Bringing a device to where it can run a job: our code, packages that are missing, and the files of the job.
#
# Nothing is sent that is there. Packages go into a folder of their own; the device's Python stays as it is.

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


_OPTIONS = ("python", "root", "key", "jump", "known_hosts", "config", "patience", "quota", "box")
_BOXES = ("auto", "strict", "none")
_ROOT = "~/.cache/inferometer/places"
_LOOK_S = 0.5  # between two looks at the events: reading them takes the device a little time
_ALIVE_S = 10.0  # between two looks at whether the runner lives, which takes it more
T = TypeVar("T")

_PATIENCE = "10 min"  # that a lost connection is waited for
_QUOTA, _AGE_S = "50 GB", 30 * 86_400.0  # of files kept on the device for later jobs


class SshPlace(Closing):
    resumes = True
    waits = False

    def __init__(self, address: PlaceAddress, *, sleep: Callable[[float], None] = time.sleep) -> None:
        address.require_options(*_OPTIONS)
        if address.host is None:
            raise DomainError(f"The address {address.text!r} names no host.", remedy="Write ssh://USER@HOST.")
        options = address.options
        self._address, self._sleep = address, sleep
        self._patience_s = parse_quantity(options.get("patience", _PATIENCE), "s")
        self._quota = int(parse_quantity(options.get("quota", _QUOTA), "B"))
        self._box = options.get("box", "auto")
        if self._box not in _BOXES:
            raise UnknownNameError("box", self._box, _BOXES, listing=f"A box is one of {', '.join(_BOXES)}.")
        self._root, self._python = options.get("root", _ROOT), options.get("python")
        self._connection: SshConnection | None = None

    @property
    def title(self) -> str:
        return f"{self._address.user}@{self._address.host}" if self._address.user else str(self._address.host)

    @property
    def connection(self) -> SshConnection:
        """The connection, made when it is first used."""
        if self._connection is None:
            from inferometer.hub.places.ssh.connection import SshConnection  # noqa: PLC0415 - brings asyncssh

            connection = SshConnection(self._address)
            connection.open()
            connection.find_python(self._python)
            self._connection = connection
        return self._connection

    def submit(self, job: Job, files: LocalFiles) -> Handle:
        require_known(job)  # before its files travel
        setup: DeviceSetup = set_up(self.connection, self._root, job, files)
        settings = {"INFEROMETER_CACHE": f"{setup.root}/cache"}
        if self._root != _ROOT:  # a place that was chosen holds everything that is written there
            settings |= {"INFEROMETER_DATA": f"{setup.root}/data", "INFEROMETER_CONFIG": f"{setup.root}/config.toml"}
        started = self.connection.call(
            "start", root=setup.root, job=document(job), paths=list(setup.paths), settings=settings,
            box={"wish": self._box},
        )  # fmt: skip
        if started["resumed"]:
            notices.tell(f"This job was begun on {self.title} before: it is picked up where it is.")
        return Handle(address=self._address.text, job=job.id, folder=started["folder"])

    def events(self, handle: Handle, after: int = 0) -> Iterator[JobEvent]:
        folder = _FolderThere(self, handle.folder)
        return follow(folder, handle.job, after, look_s=_LOOK_S, sleep=self._sleep)

    def cancel(self, handle: Handle) -> None:
        self.patiently(lambda: self.connection.call("ask_to_stop", folder=handle.folder))

    def fetch(self, handle: Handle) -> JobResult:
        """The result. Then the folder of the job goes, and files that were not used for long."""
        folder = _FolderThere(self, handle.folder)
        data = folder.read(JOB)
        if not data:
            raise PlaceError(f"There is no job {handle.job} on {self.title}: its result was fetched before.")
        result = result_in(folder, decode(data, Job))
        self.connection.call("clear", folder=handle.folder)
        root = str(PurePosixPath(handle.folder).parents[1])
        keep = [file.sha256 for file in result.job.files]
        self.connection.call("collect_garbage", root=root, older_s=_AGE_S, quota_bytes=self._quota, keep=keep)
        return result

    def patiently(self, ask: Callable[[], T]) -> T:
        """Ask, and if the connection is lost meanwhile, connect and ask again until the patience is at its end."""
        from inferometer.hub.places.ssh.connection import LostConnectionError  # noqa: PLC0415 - brings asyncssh

        says = f"The connection to {self.title} is lost; the job goes on there. Connecting again …"
        patience = Patience(title=self.title, seconds=self._patience_s, sleep=self._sleep)
        return patience.ask(ask, away=LostConnectionError, says=lambda _: says, again=self.close)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _FolderThere:
    """A job's folder on the device."""

    def __init__(self, place: SshPlace, folder: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._place, self._folder, self._clock = place, folder, clock
        self._lived_at: float = clock()

    def read(self, name: str, offset: int = 0) -> bytes:
        data: bytes = self._place.patiently(lambda: self._place.connection.read(f"{self._folder}/{name}", offset))
        if data:
            self._lived_at = self._clock()
        return data

    def alive(self) -> bool:
        """Asked seldom: it starts a process on a device that is being measured."""
        if self._clock() - self._lived_at < _ALIVE_S:
            return True
        alive: bool = self._place.patiently(lambda: self._place.connection.call("is_alive", folder=self._folder))
        if alive:
            self._lived_at = self._clock()
        return alive


class SshProvider:
    name = "ssh"
    title = "SSH"

    def probe(self) -> Ready | Missing:
        if find_spec("asyncssh") is None:
            return Missing(reason="asyncssh is not installed", remedy="pip install 'inferometer[fleet]'")
        return Ready(version=version("asyncssh"))

    def open(self, address: PlaceAddress) -> SshPlace:
        return SshPlace(address)


provider: Any = SshProvider()


__all__ = ["provider"]
