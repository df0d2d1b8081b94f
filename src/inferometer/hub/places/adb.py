"""The provider `adb`: a phone, with a benchmark that its user names. `adb:SERIAL?binary=PATH&with=LIB.so,LIB.so`.

A phone has no Python, so that the job does not run there: an engine's own benchmark does (LiteRT's benchmark_model,
llama.cpp's llama-bench), and what it prints is read through the importer for it. See benchmarks.py.
"""

import json
import shlex
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from inferometer.core import notices
from inferometer.core.codec import decode, document
from inferometer.core.errors import PlaceError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.core.units import format_quantity
from inferometer.hub.places.artifacts import FileHashes, chunks_from
from inferometer.hub.places.base import Closing, Handle, LocalFiles, Missing, PlaceAddress, Ready
from inferometer.hub.places.benchmarks import program_of
from inferometer.version import __version__

# What an adb server is asked, over its socket: the protocol that the program `adb` speaks with it.
#
# Source: SERVICES.TXT, SYNC.TXT and shell_protocol.h of Android's adb (packages/modules/adb). A request is its length
# in four hexadecimal digits and its text; the answer begins with OKAY or FAIL. After `host:transport:SERIAL` the same
# connection is one to the device: `sync:` for files, `shell,v2,raw:COMMAND` for a command, with its exit code.

_SYNC = struct.Struct("<4sI")
_STAT = struct.Struct("<4sIII")
_PACKET = struct.Struct("<BI")
_CHUNK = 64 * 1024  # the most that one DATA of the protocol may hold
_STDOUT, _STDERR, _EXIT = 1, 2, 3
_ANSWER_S = 60.0
PORT = 5037


@frozen
class Ran:
    """A command that ran on the device."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace").strip()


@frozen
class AdbServer:
    """An adb server, usually of this machine. Every request is a connection of its own, as the protocol has it."""

    host: str = "127.0.0.1"
    port: int = PORT

    def version(self) -> int:
        with self._connection() as connection:
            connection.request("host:version")
            return int(connection.text(), 16)

    def devices(self) -> dict[str, str]:
        """The state of each device that the server sees, by its serial number: device, unauthorized, offline."""
        with self._connection() as connection:
            connection.request("host:devices")
            lines = (line.partition("\t") for line in connection.text().splitlines() if "\t" in line)
            return {serial: state for serial, _, state in lines}

    def run(self, serial: str, command: str) -> Ran:
        """Run a shell command on the device and wait for its end."""
        with self._to(serial) as connection:
            connection.request(f"shell,v2,raw:{command}")
            return connection.packets()

    def size_of(self, serial: str, path: str) -> int | None:
        """The size of a file there; None if it is not there."""
        with self._sync(serial) as connection:
            name = path.encode()
            connection.send(_SYNC.pack(b"STAT", len(name)) + name)
            _, mode, size, _ = _STAT.unpack(connection.exactly(_STAT.size))
            return int(size) if mode else None

    def push(self, serial: str, data: Iterable[bytes], to: str, *, mode: int = 0o644) -> None:
        with self._sync(serial) as connection:
            target = f"{to},{0o100000 | mode}".encode()
            connection.send(_SYNC.pack(b"SEND", len(target)) + target)
            for piece in data:
                for at in range(0, len(piece), _CHUNK):
                    chunk = piece[at : at + _CHUNK]
                    connection.send(_SYNC.pack(b"DATA", len(chunk)) + chunk)
            connection.send(_SYNC.pack(b"DONE", 0))
            connection.sync_answer(to)

    def pull(self, serial: str, path: str) -> bytes:
        with self._sync(serial) as connection:
            name = path.encode()
            connection.send(_SYNC.pack(b"RECV", len(name)) + name)
            data = bytearray()
            while True:
                kind, length = _SYNC.unpack(connection.exactly(_SYNC.size))
                if kind == b"DONE":
                    return bytes(data)
                piece = connection.exactly(length)
                if kind != b"DATA":
                    raise PlaceError(f"The device does not give {path}: {piece.decode('utf-8', 'replace')}.")
                data += piece

    def _to(self, serial: str) -> "_Connection":
        connection = self._connection()
        try:
            connection.request(f"host:transport:{serial}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _sync(self, serial: str) -> "_Connection":
        connection = self._to(serial)
        try:
            connection.request("sync:")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connection(self) -> "_Connection":
        try:
            return _Connection(socket.create_connection((self.host, self.port), timeout=_ANSWER_S))
        except OSError as error:
            raise PlaceError(
                f"No adb server answers at {self.host}:{self.port}: {(error.strerror or str(error)).lower()}.",
                remedy="Start it with `adb start-server`; adb is part of Android's platform tools.",
            ) from None


class _Connection:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def request(self, text: str) -> None:
        data = text.encode()
        self.send(f"{len(data):04x}".encode() + data)
        answer = self.exactly(4)
        if answer == b"OKAY":
            return
        if answer != b"FAIL":
            raise PlaceError(f"What answers is no adb server: it said {answer!r}.")
        raise PlaceError(f"adb refused {text.partition(':')[0]}: {self.text()}.", remedy="`adb devices` lists them.")

    def text(self) -> str:
        return self.exactly(int(self.exactly(4), 16)).decode("utf-8", "replace")

    def packets(self) -> Ran:
        """What a command printed, and the exit code that comes last. Without one the device went away."""
        printed = {_STDOUT: bytearray(), _STDERR: bytearray()}
        while True:
            kind, length = _PACKET.unpack(self.exactly(_PACKET.size))
            data = self.exactly(length)
            if kind == _EXIT:
                return Ran(code=data[0], stdout=bytes(printed[_STDOUT]), stderr=bytes(printed[_STDERR]))
            if kind in printed:
                printed[kind] += data

    def sync_answer(self, path: str) -> None:
        kind, length = _SYNC.unpack(self.exactly(_SYNC.size))
        if kind != b"OKAY":
            words = self.exactly(length).decode("utf-8", "replace")
            raise PlaceError(
                f"The device does not take {path}: {words}.", remedy="Make room there, or say ?folder=PATH."
            )

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _gone(error) from None

    def exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self._socket.recv(count - len(data))
            except OSError as error:
                raise _gone(error) from None
            if not piece:
                raise _gone(None)
            data += piece
        return bytes(data)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _gone(error: OSError | None) -> PlaceError:
    why = "it closed the connection" if error is None else (error.strerror or str(error)).lower()
    return PlaceError(f"The phone or the adb server went away: {why}.", remedy="Check the cable and `adb devices`.")


_FOLDER = "/data/local/tmp/inferometer"  # where a phone lets its user's programs run
_LOOK_S = 0.5
_SPARE_BYTES = 50_000_000


class AdbPlace(Closing):
    resumes = True
    waits = False

    def __init__(self, address: PlaceAddress, *, sleep: Callable[[float], None] = time.sleep) -> None:
        address.require_options("binary", "with", "kind", "server", "folder")
        self._address, self._sleep = address, sleep
        self._program = program_of(address)
        host, _, port = address.options.get("server", "").partition(":")
        self._server = AdbServer(host=host or "127.0.0.1", port=int(port) if port.isdecimal() else PORT)
        self._root = address.options.get("folder", _FOLDER)
        self._serial = address.rest

    @property
    def title(self) -> str:
        return f"the phone {self._serial}" if self._serial else "the phone"

    def submit(self, job: Job, files: LocalFiles) -> Handle:
        request = self._program.request(job)
        self._choose_phone()
        folder = f"{self._root}/jobs/{job.id}"
        handle = Handle(address=self._address.text, job=job.id, folder=folder)
        if self._runs(folder):
            notices.tell(f"This job was begun on {self.title} before: it is picked up where it is.")
            return handle
        hashes = FileHashes()
        programs = [hashes.file(path.resolve(), path.name) for path in self._program.files]
        hashes.remember()
        sources = {**files, **{file.sha256: path for file, path in zip(programs, self._program.files, strict=True)}}
        self._require_room(sum(file.size_bytes for file in (*job.files, *programs)))
        # What an earlier attempt left is no answer to what is asked now.
        self._shell(f"rm -rf {shlex.quote(folder)}; mkdir -p {shlex.quote(folder)} {shlex.quote(self._root)}/artifacts")
        for file in (*job.files, *programs):
            self._send(sources[file.sha256], file.sha256, file.size_bytes)
        for file in (*job.files, *programs):
            there = f"{self._root}/artifacts/{file.sha256}"
            self._shell(f"cd {shlex.quote(folder)} && ln -sf {shlex.quote(there)} {shlex.quote(Path(file.path).name)}")
        self._server.push(self._serial, [json.dumps(document(job)).encode()], f"{folder}/job.json")
        # In a session of its own, so that it goes on without us: `out`, `err` and, at its end, `code` are left.
        model = job.model.entry if job.model is not None else ""
        words = shlex.join([f"./{self._program.binary.name}", *self._program.benchmark.arguments(model, request)])
        script = f"LD_LIBRARY_PATH=. {words} >out 2>err; echo $? >code.part; mv code.part code"
        quiet = "</dev/null >/dev/null 2>&1"
        self._shell(f"cd {shlex.quote(folder)} && (setsid sh -c {shlex.quote(script)} {quiet} & echo $! >pid)")
        return handle

    def _choose_phone(self) -> None:
        """The phone of the serial number; if none is given, the only one there is."""
        self._server.version()
        devices = self._server.devices()
        ready = [serial for serial, state in devices.items() if state == "device"]
        listing = ", ".join(f"{serial} ({state})" for serial, state in devices.items()) or "none"
        if not self._serial:
            if len(ready) != 1:
                raise PlaceError(f"adb sees {len(ready)} phones that are ready: {listing}.", remedy="Write adb:SERIAL.")
            self._serial = ready[0]
        if self._serial not in devices:
            raise UnknownNameError("phone", self._serial, devices, listing=f"adb sees {listing}.")
        if devices[self._serial] != "device":
            raise PlaceError(
                f"The phone {self._serial} is {devices[self._serial]}.",
                remedy="Unlock it and allow debugging from this machine, then try again.",
            )

    def _require_room(self, nbytes: int) -> None:
        parent = self._root.rpartition("/")[0] or "/"
        said = self._server.run(self._serial, f"df -k {shlex.quote(parent)} | tail -n 1").text.split()
        free = int(said[3]) * 1024 if len(said) > 3 and said[3].isdecimal() else None
        if free is not None and free < nbytes + _SPARE_BYTES:
            left, needed = format_quantity(free, "B"), format_quantity(nbytes + _SPARE_BYTES, "B")
            raise PlaceError(
                f"{self.title} has too little room: {left} are free, and the job needs {needed}.",
                remedy="Make room there, or choose another folder: ?folder=PATH.",
            )

    def _send(self, path: Path, sha256: str, size: int) -> None:
        """Only what is not there, whole and with the right hash; a half that was sent before is sent again."""
        there = f"{self._root}/artifacts/{sha256}"
        if self._server.size_of(self._serial, there) == size:
            return
        notices.tell(f"Sending {path.name} ({format_quantity(size, 'B')}) to {self.title} …")
        self._server.push(self._serial, chunks_from(path, 0), f"{there}.part", mode=0o755)
        said = self._server.run(self._serial, f"sha256sum {shlex.quote(there)}.part").text.split()
        if said and said[0] != sha256:
            raise PlaceError(f"{path.name} arrived on {self.title} damaged.", remedy="Check the cable, and try again.")
        self._shell(f"mv {shlex.quote(there)}.part {shlex.quote(there)}")

    def _shell(self, command: str) -> str:
        ran = self._server.run(self._serial, command)
        if ran.code:
            words = ran.stderr.decode("utf-8", "replace").strip() or ran.text or f"exit code {ran.code}"
            raise PlaceError(f"{self.title}: {words[-500:]}", remedy="Choose another folder there: ?folder=PATH.")
        return ran.text

    def events(self, handle: Handle, after: int = 0) -> Iterator[JobEvent]:
        """That it runs, and how it ended: a benchmark tells nothing in between."""
        if after < 1:
            yield JobEvent(job=handle.job, number=1, at=time.time(), kind="state", state="running")
        while self._server.size_of(self._serial, f"{handle.folder}/code") is None:
            if not self._runs(handle.folder) and self._code(handle) is None:
                break
            self._sleep(_LOOK_S)
        result = self._result(handle)
        yield JobEvent(
            job=handle.job, number=2, at=time.time(), kind="state", state=result.state, text=result.error
        )  # fmt: skip

    def _runs(self, folder: str) -> bool:
        return self._server.run(self._serial, f"kill -0 $(cat {shlex.quote(folder)}/pid)").code == 0

    def cancel(self, handle: Handle) -> None:
        """The whole session of the benchmark is ended; what it has printed so far is no result."""
        folder = shlex.quote(handle.folder)
        stop = f"cd {folder} && touch cancel && p=$(cat pid) && kill -TERM -$p 2>/dev/null || kill -TERM $p 2>/dev/null"
        self._server.run(self._serial, f"{stop}; true")

    def fetch(self, handle: Handle) -> JobResult:
        result = self._result(handle)
        self._shell(f"rm -rf {shlex.quote(handle.folder)}")
        return result

    def _code(self, handle: Handle) -> int | None:
        if self._server.size_of(self._serial, f"{handle.folder}/code") is None:
            return None
        text = self._server.pull(self._serial, f"{handle.folder}/code").strip()
        return int(text) if text.isdigit() else None

    def _said(self, handle: Handle, name: str) -> bytes:
        """What the binary printed: nothing, if it was stopped before its shell had made the file."""
        path = f"{handle.folder}/{name}"
        return b"" if self._server.size_of(self._serial, path) is None else self._server.pull(self._serial, path)

    def _result(self, handle: Handle) -> JobResult:
        if self._server.size_of(self._serial, f"{handle.folder}/job.json") is None:
            raise PlaceError(f"There is no job {handle.job} on {self.title}: its result was fetched before.")
        job = decode(self._server.pull(self._serial, f"{handle.folder}/job.json"), Job)
        out, err = (self._said(handle, name) for name in ("out", "err"))
        log = (err + b"\n" + out).decode("utf-8", "replace")[-64_000:]
        code = self._code(handle)
        if code == 0:
            phone = self._server.run(self._serial, "getprop ro.product.model").text or self._serial
            return self._program.result(job, out, log, phone)
        if self._server.size_of(self._serial, f"{handle.folder}/cancel") is not None:
            return JobResult(job=job, ended="stopped", error="It was stopped before it was done.", log=log)
        return self._program.failed(job, code, log)


class AdbProvider:
    name = "adb"
    title = "Android over adb"

    def probe(self) -> Ready | Missing:
        return Ready(version=__version__)

    def open(self, address: PlaceAddress) -> AdbPlace:
        return AdbPlace(address)


provider: Any = AdbProvider()
