"""One connection to a device over SSH: run a function of `device_side.py` there, read a file, send one.

asyncssh works in a loop of its own, in a thread; the rest of the program waits for it like for any function. What can
go wrong is said here, with what to do about it.
"""

import asyncio
import errno
import json
import os
import re
import shlex
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh

from inferometer.core.errors import PlaceError
from inferometer.hub.places import device_side
from inferometer.hub.places.artifacts import chunks_from
from inferometer.hub.places.base import PlaceAddress

_CONNECT_S = 20.0
_KEEPALIVE_S = 15
_CLOSE_S = 5.0
_SEND_BYTES = 1 << 18
# python3 first: it has what the user installed. The others are there where the system's own is too old.
_PYTHONS = "python3 python python3.14 python3.13 python3.12 python3.11"
_LIST_PYTHONS = (
    f"for p in {_PYTHONS}; do "
    """command -v "$p" >/dev/null 2>&1 && "$p" -c 'import sys; print("%d.%d %s" % (sys.version_info[0], """
    """sys.version_info[1], sys.executable))' 2>/dev/null; done; true"""
)
_VERSION = re.compile(r"^(\d+\.\d+)\s+(\S.*)$", re.MULTILINE)  # a login may print lines of its own
_LEAST = (3, 11)


class LostConnectionError(PlaceError):
    """Nothing answers. A device that could be reached a moment ago may be again."""


class SshConnection:
    def __init__(self, address: PlaceAddress) -> None:
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="inferometer-ssh")
        self._thread.start()
        self._client: Any = None
        self._sftp: Any = None
        self._python = ""
        self.host = f"{address.host}" if address.port is None else f"{address.host}:{address.port}"

    def open(self) -> None:
        try:
            self._client = self._wait(asyncssh.connect(**self._arguments()))
        except BaseException:
            self.close()
            raise

    def _arguments(self) -> dict[str, Any]:
        """Only what the address says; for the rest asyncssh reads ~/.ssh as ssh does."""
        address = self._address
        key, known_hosts, config = (self._file(name) for name in ("key", "known_hosts", "config"))
        given: dict[str, Any] = {
            "username": address.user,
            "port": address.port,
            "client_keys": None if key is None else [key],
            "tunnel": address.options.get("jump"),
            "known_hosts": known_hosts,
            "config": None if config is None else [config],
        }
        return {
            "host": address.host,
            "connect_timeout": _CONNECT_S,
            "keepalive_interval": _KEEPALIVE_S,
            **{name: value for name, value in given.items() if value is not None},
        }

    def _file(self, option: str) -> str | None:
        text = self._address.options.get(option)
        if text is None:
            return None
        path = Path(text).expanduser()
        if not path.is_file():
            raise PlaceError(f"{option} is {text!r} in the address of {self.host}: there is no such file.")
        return str(path)

    def find_python(self, chosen: str | None) -> None:
        """The Python that runs jobs there: the one that the user names, or the first that is new enough."""
        if chosen is not None:
            self._python = chosen
            said = self._run(f"{shlex.quote(chosen)} -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'")
            found = [(version, chosen) for version, _ in _VERSION.findall(f"{said.stdout} {chosen}")]
        else:
            said = self._run(f"sh -c {shlex.quote(_LIST_PYTHONS)}")  # whatever shell its user logs in to
            found = _VERSION.findall(str(said.stdout))
        for version, path in found:
            if tuple(int(part) for part in version.split(".")) >= _LEAST:
                self._python = path
                return
        seen = f"It has {', '.join(f'Python {version}' for version, _ in found)}." if found else "It has none."
        if chosen is not None and not found:
            seen = f"{chosen} is not one: {str(said.stderr).strip()[-200:] or 'it cannot be run'}."
        raise PlaceError(
            f"{self.host} has no Python that can run a job. {seen}",
            remedy=f"Install Python {_LEAST[0]}.{_LEAST[1]} or newer there, or name one: ssh://…?python=PATH.",
        )

    def call(self, function: str, **arguments: Any) -> Any:
        """Run a function of device_side.py there. Its text goes along: nothing has to be installed first."""
        script = Path(device_side.__file__).read_text(encoding="utf-8")
        asked = f"\ncall({function!r}, json.loads({json.dumps(arguments)!r}))\n"
        said = self._run(f"{shlex.quote(self._python)} -", input=script + asked)
        lines = str(said.stdout).splitlines()
        if said.exit_status != 0 or not lines:
            words = str(said.stderr).strip().splitlines() or ["it said nothing"]
            raise PlaceError(f"{self.host} could not {function.replace('_', ' ')}: {words[-1][:500]}")
        answer = json.loads(lines[-1])
        if "error" in answer:
            remedy = (
                "Make room there." if answer.get("number") == errno.ENOSPC else "Choose another folder: ?root=FOLDER."
            )
            raise PlaceError(f"{self.host}: {answer['path'] or function}: {answer['error']}.", remedy=remedy)
        return answer["answer"]

    def _run(self, command: str, **more: Any) -> Any:
        return self._wait(self._client.run(command, check=False, **more))

    def read(self, path: str, offset: int = 0) -> bytes:
        data: bytes = self._wait(self._read(path, offset))
        return data

    async def _read(self, path: str, offset: int) -> bytes:
        sftp = await self._files()
        try:
            async with sftp.open(path, "rb") as file:
                await file.seek(offset)
                data: bytes = await file.read()
                return data
        except asyncssh.SFTPNoSuchFile:
            return b""

    def send(self, source: Path, to: str, offset: int, tell: Callable[[int], None]) -> None:
        """Append a file from an offset on: what arrived before the connection was lost is not sent again."""
        self._wait(self._send(source, to, offset, tell))

    async def _send(self, source: Path, to: str, offset: int, tell: Callable[[int], None]) -> None:
        sftp = await self._files()
        with suppress(asyncssh.SFTPError):
            await sftp.makedirs(to.rpartition("/")[0], exist_ok=True)
        async with sftp.open(to, "ab" if offset else "wb") as file:
            for data in chunks_from(source, offset, _SEND_BYTES):
                await file.write(data)
                offset += len(data)
                tell(offset)

    async def _files(self) -> Any:
        if self._sftp is None:
            self._sftp = await self._client.start_sftp_client()
        return self._sftp

    def _wait(self, work: Awaitable[Any]) -> Any:
        """The answer, or an error that says what to do. A Ctrl-C here leaves the loop as it is."""
        future = asyncio.run_coroutine_threadsafe(_awaited(work), self._loop)
        try:
            return future.result()
        except (asyncssh.Error, OSError, EOFError, ValueError) as error:
            raise self._explained(error) from None

    def _explained(self, error: Exception) -> PlaceError:
        known = self._client is not None
        if isinstance(error, asyncssh.SFTPError) and not isinstance(
            error, asyncssh.SFTPConnectionLost | asyncssh.SFTPNoConnection
        ):
            full = "Failure" in str(error)  # what a full disk is called in that protocol
            remedy = "The disk there may be full: make room." if full else "Choose another folder: ?root=FOLDER."
            return PlaceError(f"{self.host}: a file could not be written: {error}.", remedy=remedy)
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return PlaceError(
                f"{self.host} is not among the known hosts, or has another key than it had: {error}.",
                remedy=f"Check its fingerprint and log in once with `ssh {self._as_typed()}`, which records it.",
            )
        if isinstance(error, asyncssh.PermissionDenied):
            who = self._address.user or "this user"
            return PlaceError(
                f"{self.host} does not let {who} in: {error}.",
                remedy=f"Try `ssh {self._as_typed()}`; ssh-copy-id puts your key there, ?key=FILE names another one.",
            )
        if isinstance(error, asyncssh.KeyImportError | asyncssh.ConfigParseError):
            return PlaceError(f"{self.host}: {error}.", remedy="Check the key, or the file of the configuration.")
        if known:
            return LostConnectionError(
                f"The connection to {self.host} was lost ({str(error) or type(error).__name__}).",
                remedy="Run the same command again: what was sent is not sent twice.",
            )
        return LostConnectionError(
            f"{self.host} cannot be reached: {_reason(error)}.",
            remedy="Check the name and the port, and that the device is on and in the same network.",
        )

    def _as_typed(self) -> str:
        address = self._address
        port = f"-p {address.port} " if address.port is not None else ""
        return f"{port}{address.user}@{address.host}" if address.user else f"{port}{address.host}"

    async def _closed(self) -> None:
        self._client.abort()
        await self._client.wait_closed()

    def close(self) -> None:
        if self._client is not None:
            with suppress(Exception):  # whatever is wrong with it, it is being closed
                asyncio.run_coroutine_threadsafe(self._closed(), self._loop).result(_CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _awaited(work: Any) -> Any:
    return await work


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_CONNECT_S:g} s"
    if isinstance(error, socket.gaierror):
        return "there is no host of that name"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
