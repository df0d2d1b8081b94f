"""What an adb server is asked, over its socket: the protocol that the program `adb` speaks with it.

Source: SERVICES.TXT, SYNC.TXT and shell_protocol.h of Android's adb (packages/modules/adb). A request is its length in
four hexadecimal digits and its text; the answer begins with OKAY or FAIL. After `host:transport:SERIAL` the same
connection is one to the device: `sync:` for files, `shell,v2,raw:COMMAND` for a command, with its exit code.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from inferometer.core.errors import PlaceError
from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

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

    def _to(self, serial: str) -> _Connection:
        connection = self._connection()
        try:
            connection.request(f"host:transport:{serial}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _sync(self, serial: str) -> _Connection:
        connection = self._to(serial)
        try:
            connection.request("sync:")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connection(self) -> _Connection:
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
