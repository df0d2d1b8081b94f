"""The provider `ssh`: a device that one can log in to, by `ssh://USER@HOST:PORT?python=PATH&root=FOLDER`.

What the user's own ssh knows holds here too: `~/.ssh/config`, known hosts, keys, the agent, jump hosts. The job runs
detached, in a folder of the device; this side reads that folder, so that a lost connection costs nothing but time.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from inferometer.core import notices
from inferometer.core.codec import decode, document
from inferometer.core.errors import DomainError, PlaceError, UnknownNameError
from inferometer.core.job import Job
from inferometer.core.units import parse_quantity
from inferometer.hub.places.base import Closing, Handle, LocalFiles, Missing, PlaceAddress, Ready
from inferometer.hub.places.following import JOB, follow, result_in
from inferometer.hub.places.patience import Patience
from inferometer.hub.places.requests import require_known
from inferometer.hub.places.ssh.setup import DeviceSetup, set_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.core.job import JobEvent, JobResult
    from inferometer.hub.places.ssh.connection import SshConnection

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
        from importlib.metadata import version  # noqa: PLC0415 - only where it is there

        return Ready(version=version("asyncssh"))

    def open(self, address: PlaceAddress) -> SshPlace:
        return SshPlace(address)


provider: Any = SshProvider()
