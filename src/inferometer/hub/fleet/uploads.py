"""Models that are sent to the hub piece by piece: what is under way, who sends it, and whether there is room.

Each upload has a note beside its part, with the size that it was begun with and whose it is. The note reserves that
many bytes: what is under way counts as if it were here already. Everybody has parts of their own, also of a file that
the hub has already: whoever knows a hash has nothing, and whoever sent every byte has the file.
"""

import hashlib
import http.client
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from inferometer.core.codec import settled
from inferometer.core.errors import DomainError
from inferometer.core.units import format_quantity
from inferometer.formats.base import HEAD_BYTES
from inferometer.hub.places.artifacts import ArtifactFolder
from inferometer.hub.places.device_side import collect_garbage, part_path
from inferometer.hub.web.answers import HubError

UNFINISHED_S = 86_400.0  # after which an upload that nobody goes on with is dropped
BROUGHT_S = 86_400.0  # that a file counts as brought by somebody: by then a job of theirs names it
UNFINISHED_EACH = 32  # of one person; a client sends one file after another
_UNUSED_S = 30 * 86_400.0
_ROOM = 1_000_000_000  # bytes of the disk that models leave free
_LOCKS = 64
_FETCHING_S, _PIECE = 60.0, 8_000_000  # that a server may be silent, and what is read and written at once


class Sender(msgspec.Struct, frozen=True):
    """Who sends a file. A token for one project speaks for no other, whoever's it is."""

    user: str
    project: str | None = None

    def key(self, sha256: str) -> str:
        """What a file is called as this one's."""
        return f"{sha256}.{hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]}"


class Note(msgspec.Struct, frozen=True):
    size: int
    sender: Sender


class FetchedFile(msgspec.Struct, frozen=True):
    """A file that the hub fetched; `head` are its first bytes."""

    name: str
    sha256: str
    size_bytes: int
    head: bytes


def _allowed(parts: SplitResult, sources: Sequence[str]) -> bool:
    """The same scheme, host and port as a source, no name or password, and below its path however it is written."""
    path = unquote(parts.path)
    if parts.username is not None or parts.password is not None or ".." in path or "\\" in path:
        return False
    for source in map(urlsplit, sources):
        below = path.startswith(source.path.rstrip("/") + "/")
        if (parts.scheme, parts.netloc.lower()) == (source.scheme, source.netloc.lower()) and below:
            return parts.scheme in {"http", "https"}
    return False


class Uploads:
    def __init__(
        self,
        root: Path,
        quota_bytes: int,
        in_use: Callable[[], Iterable[str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root, self._quota, self._in_use, self._clock = root, quota_bytes, in_use, clock
        self._folder = ArtifactFolder(root=root)
        # By the first letters of the hash. One lock a file would have to be forgotten at some time, in use or not.
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        self._booking = threading.Lock()  # two that look for room at once would both find the same

    def alone(self, sha256: str) -> threading.Lock:
        """Two that send the same file at once take turns."""
        return self._locks[int(sha256[:4], 16) % _LOCKS]

    def brought(self, sha256: str, sender: Sender) -> bool:
        """Whether they have sent the whole file, lately."""
        return self._mark(sha256, sender).exists()

    def arrived(self, sha256: str, sender: Sender) -> int:
        """How much of a file is here from them: where they go on."""
        return self._folder.arrived(sender.key(sha256))

    def receive(self, sha256: str, offset: int, data: bytes, note: Note) -> int:
        """Write a piece of a file; gives how much of it is there. A whole file whose hash is wrong is thrown away."""
        key, size = note.sender.key(sha256), note.size
        with self.alone(sha256):
            if self.brought(sha256, note.sender) and not self._folder.missing([sha256]):
                return size
            with self._booking:
                self._book(key, offset, note)
            try:
                arrived = self._folder.append(key, offset, data, most=size)
                if arrived == size:
                    try:
                        self._folder.seal(sha256, part=key)
                    finally:
                        self._note(key).unlink(missing_ok=True)
                    mark = self._mark(sha256, note.sender)
                    mark.parent.mkdir(exist_ok=True, mode=0o700)
                    mark.touch()
            except OSError as error:
                raise HubError(413, f"The hub could not write this piece ({error.strerror or 'its disk'}).") from None
            return arrived

    def fetch(self, url: str, sources: Sequence[str], sender: Sender) -> FetchedFile:
        """A model of one file from an address that the hub's owner allows, as if they had sent it.

        A redirection is not followed: it could lead anywhere that this machine reaches.
        """
        parts = urlsplit(url)
        if not _allowed(parts, sources):
            known = ", ".join(sources) or "none"
            raise DomainError(
                f"The hub fetches no model from {url[:200]!r}: addresses that it may fetch from: {known}.",
                remedy="Fetch it yourself and drop the file; `inferometer hub --models-from URL` allows more.",
            )
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_FETCHING_S)
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            connection.request("GET", f"{parts.path}{f'?{parts.query}' if parts.query else ''}")
            response = connection.getresponse()
            if response.status != 200:
                raise DomainError(f"{parts.hostname} answered {response.status} for {PurePosixPath(parts.path).name}.")
            with tempfile.TemporaryFile(dir=self._root) as file:
                digest, size = hashlib.sha256(), 0
                while data := response.read(_PIECE):
                    digest.update(data)
                    size += file.write(data)
                    if size > min(self._quota, shutil.disk_usage(self._root).free - _ROOM):
                        raise HubError(413, f"{url[:200]} is larger than what this hub has room for.")
                if response.length:
                    raise DomainError(f"{parts.hostname} broke off after {size:,} bytes.", remedy="Try it again.")
                note, sha256, head = Note(size=size, sender=sender), digest.hexdigest(), b""
                file.seek(0)
                for offset in range(0, max(size, 1), _PIECE):
                    data = file.read(_PIECE)
                    head = head or data[:HEAD_BYTES]
                    self.receive(sha256, offset, data, note)
        except (OSError, http.client.HTTPException) as error:
            raise DomainError(f"{parts.hostname} could not be read: {str(error) or type(error).__name__}.") from None
        finally:
            connection.close()
        return FetchedFile(name=PurePosixPath(unquote(parts.path)).name, sha256=sha256, size_bytes=size, head=head)

    def tidy(self) -> None:
        """Drop uploads that nobody goes on with, and forget who brought what: those who come again send it again."""
        with self._booking:
            self._notes()
        for mark in (self._root / "brought").glob("*"):
            with suppress(OSError):
                if self._clock() - mark.stat().st_mtime > BROUGHT_S:
                    mark.unlink()

    def _mark(self, sha256: str, sender: Sender) -> Path:
        return self._root / "brought" / sender.key(sha256)

    def _note(self, key: str) -> Path:
        return part_path(self._root, key).with_suffix(".upload")

    def _book(self, key: str, offset: int, asked: Note) -> None:
        """Take down a new upload, or find the one that goes on; in both cases there must be room for the rest of it."""
        notes = self._notes()
        begun = notes.get(key)
        if begun is not None and begun.size != asked.size and offset > 0:
            raise DomainError(
                f"{key[:12]}… was begun with {begun.size:,} bytes, and now it is said to have {asked.size:,}.",
                remedy="Send it from its beginning.",
            )
        if begun is None or begun.size != asked.size:
            self._require_few(notes, asked.sender.user)
            if begun is not None:
                part_path(self._root, key).unlink(missing_ok=True)
            self._require_room(key, {**notes, key: asked})
            self._note(key).write_bytes(msgspec.json.encode(asked))
        else:
            self._require_room(key, notes)

    def _notes(self) -> dict[str, Note]:
        """What is under way. What nobody went on with for a day is dropped, and so is a note that cannot be read."""
        incoming = part_path(self._root, "0").parent
        incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        notes = {}
        for key in {path.stem for path in incoming.iterdir()}:
            part, note = part_path(self._root, key), self._note(key)
            try:
                touched = max(path.stat().st_mtime for path in (note, part) if path.exists())
                if self._clock() - touched <= UNFINISHED_S:
                    notes[key] = msgspec.json.decode(note.read_bytes(), type=settled(Note))
                    continue
            except FileNotFoundError:
                continue  # a part without a note: of a hub of an earlier version
            except (OSError, ValueError):
                pass
            part.unlink(missing_ok=True)
            note.unlink(missing_ok=True)
        return notes

    @staticmethod
    def _require_few(notes: dict[str, Note], user: str) -> None:
        unfinished = sum(note.sender.user == user for note in notes.values())
        if unfinished >= UNFINISHED_EACH:
            raise HubError(
                429,
                f"{user} has {unfinished} uploads that are not finished; {UNFINISHED_EACH} are the most.",
                remedy="Finish one of them; those that nobody goes on with are dropped after a day.",
            )

    def require_at_most(self, size: int) -> None:
        """Whatever else is here: no file may be larger than everything that the hub keeps."""
        if size > self._quota:
            most = format_quantity(self._quota, "B")
            raise HubError(413, f"A file of {format_quantity(size, 'B')} is more than the {most} that this hub keeps.")

    def _require_room(self, key: str, notes: dict[str, Note]) -> None:
        """In the quota, where every upload counts in full, and on the disk for what is still to come."""
        size = notes[key].size
        self.require_at_most(size)
        left = self._quota - sum(note.size for note in notes.values())
        collect_garbage(str(self._root), older_s=_UNUSED_S, quota_bytes=max(left, 0), keep=self._in_use())
        held = sum(path.stat().st_size for path in (self._root / "artifacts").glob("??/*"))
        if held > left:
            most = format_quantity(self._quota, "B")
            raise HubError(
                413,
                f"Models of jobs that have not ended, and uploads under way, take the {most} that this hub keeps.",
                remedy="Wait for them, or cancel some.",
            )
        to_come, free = size - self._folder.arrived(key), shutil.disk_usage(self._root).free
        if to_come + _ROOM > free:
            raise HubError(
                413,
                f"The hub's disk has {format_quantity(free, 'B')} free, which is too little for this file.",
                remedy="Make room there.",
            )
