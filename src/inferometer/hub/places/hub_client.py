"""Talking to a hub: by HTTP, with the standard library, so that a small board needs nothing more."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from inferometer.core.errors import DomainError, InferometerError, PlaceError
from inferometer.core.frozen import frozen
from inferometer.core.json_text import parse_json
from inferometer.core.settings import value_of
from inferometer.hub.places.device_side import CHUNK, part_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from inferometer.core.job import JobFile
    from inferometer.hub.places.artifacts import ArtifactFolder
    from inferometer.store.store import Store
    from inferometer.store.values import Push

_TIMEOUT_S = 30.0
_PIECE = 8 * CHUNK
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL})
API = "/api/v1/fleet"


class HubAwayError(PlaceError):
    """The hub does not answer, or says that it cannot at the moment: asking again later may help."""


class HubRefusalError(PlaceError):
    """The hub understood and refuses. `status` is HTTP's."""

    def __init__(self, status: int, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


@frozen
class HubAddress:
    """Where a hub is, and what opens it. `ca` is a file with the certificate that its own is signed by."""

    url: str
    token: str | None = None
    ca: str | None = None


def hub_address(url: str | None = None, token: str | None = None, ca: str | None = None) -> HubAddress:
    """What was given, else what the settings say, else the hub of this machine."""
    return HubAddress(
        url=url or value_of("INFEROMETER_HUB") or f"http://127.0.0.1:{value_of('INFEROMETER_PORT')}",
        token=token or value_of("INFEROMETER_TOKEN"),
        ca=ca or value_of("INFEROMETER_CA"),
    )


class HubClient:
    """Each call is a connection of its own: what was lost with one is lost with that call only."""

    def __init__(self, address: HubAddress) -> None:
        parts = urlsplit(address.url if "://" in address.url else f"http://{address.url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise DomainError(f"{address.url!r} is not the address of a hub.", remedy="Write https://HOST:PORT.")
        if parts.username or parts.password:
            raise DomainError("The address of a hub has no user in it.", remedy="Give the token with --token-file.")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/")
        self._token = address.token
        self._tls = _tls(address) if parts.scheme == "https" else None

    @property
    def in_the_clear(self) -> bool:
        """Whether a token would go over a network that others can read."""
        return self._tls is None and self._token is not None and self._host not in {"localhost", "127.0.0.1", "::1"}

    def get(self, path: str, **query: Any) -> Any:
        return parse_json(self.call("GET", path, query=query))

    def post(self, path: str, value: Any = None, *, timeout_s: float = _TIMEOUT_S) -> Any:
        body = b"" if value is None else msgspec.json.encode(value)
        return parse_json(self.call("POST", path, body, timeout_s=timeout_s))

    def call(  # noqa: PLR0913 - all that a request may need; most of it by name
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        timeout_s: float = _TIMEOUT_S,
        kind: str | None = None,
    ) -> bytes:
        """The body of the answer; an error in the hub's own words if it refuses. `kind` is the type of the body."""
        kind = kind or ("application/octet-stream" if method == "PUT" else "application/json")
        headers = {**self._headers(), "content-type": kind} if body is not None else self._headers()
        with _NetworkErrors(self), self._connected(timeout_s) as connection:
            connection.request(method, self._path(path, query), body, headers)
            response = connection.getresponse()
            data = response.read()
        if response.status >= 300:
            raise self._refusal(response.status, data)
        return data

    def download(self, path: str, to: Path, *, start: int, tell: Callable[[int], None]) -> int:
        """Append what a file has from `start` on; gives how much of it is there then."""
        headers = {**self._headers(), **({"range": f"bytes={start}-"} if start else {})}
        with _NetworkErrors(self), self._connected(_TIMEOUT_S) as connection:
            connection.request("GET", self._path(path, None), None, headers)
            response = connection.getresponse()
            if response.status not in {200, 206}:
                raise self._refusal(response.status, response.read())
            at = start if response.status == 206 else 0
            with to.open("r+b" if to.exists() else "wb") as file:
                file.seek(at)
                file.truncate()
                while data := response.read(CHUNK):
                    file.write(data)
                    at += len(data)
                    tell(at)
        return at

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    def _path(self, path: str, query: Mapping[str, Any] | None) -> str:
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        return f"{self._base}{path}" + (f"?{urlencode(asked, doseq=True, quote_via=quote)}" if asked else "")

    def _connected(self, timeout_s: float) -> _Closing:
        if self._tls is not None:
            return _Closing(
                http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)
            )  # fmt: skip
        return _Closing(http.client.HTTPConnection(self._host, self._port, timeout=timeout_s))

    def _refusal(self, status: int, data: bytes) -> InferometerError:
        message, remedy = f"The hub at {self.url} answers {status}.", None
        with suppress(ValueError, TypeError, KeyError):
            problem = parse_json(data)
            message, remedy = str(problem["error"]), problem.get("remedy")
        if status in _PASSING:
            return HubAwayError(f"The hub at {self.url}: {message}", remedy=remedy)
        if status == 401:
            return HubRefusalError(
                status,
                f"The hub at {self.url} does not let us in: {message}",
                remedy="There, `inferometer hub token create NAME --scope write` makes one; agents need --scope agent.",
            )
        return HubRefusalError(status, message, remedy=remedy)


class _Closing:
    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def __enter__(self) -> http.client.HTTPConnection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class _NetworkErrors:
    """Turns what a network does into errors of ours, and hides nothing else."""

    def __init__(self, client: HubClient) -> None:
        self._client = client

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _at: object) -> None:
        if isinstance(error, ssl.SSLCertVerificationError):
            raise PlaceError(
                f"The certificate of {self._client.url} cannot be trusted: {error.verify_message}.",
                remedy="Name the file of the certificate authority with --ca, or INFEROMETER_CA.",
            ) from None
        if isinstance(error, socket.gaierror):
            raise HubAwayError(
                f"The hub at {self._client.url} cannot be found: {error.strerror}.", remedy="Check its name."
            ) from None
        if isinstance(error, ConnectionRefusedError):
            raise HubAwayError(
                f"No hub answers at {self._client.url}.", remedy="Start it with `inferometer hub`, or name another."
            ) from None
        lost = isinstance(error, (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException))
        if lost or (isinstance(error, OSError) and error.errno in _UNREACHABLE):
            raise HubAwayError(
                f"The connection to the hub at {self._client.url} was lost: {error or type(error).__name__}."
            ) from None


def _tls(address: HubAddress) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=address.ca)
    except (OSError, ssl.SSLError) as error:
        raise DomainError(
            f"{address.ca} is not a file with a certificate: {error}.", remedy="Give one in PEM form with --ca."
        ) from None


def upload(  # noqa: PLR0913, PLR0917 - what goes where, and who is told
    client: HubClient,
    path: Path,
    file: JobFile,
    start: int,
    tell: Callable[[int], None],
    to: str = f"{API}/artifacts",
    asked: Mapping[str, str] | None = None,
) -> None:
    """Send a file from byte `start` on, piece by piece. The hub says how far it is, and is believed."""
    at = start
    with path.open("rb") as source:
        while True:
            source.seek(at)
            data = source.read(_PIECE)
            query = {"offset": at, "size": file.size_bytes, **(asked or {})}
            state = parse_json(client.call("PUT", f"{to}/{file.sha256}", data, query=query, timeout_s=300.0))
            at = int(state["arrived"])
            tell(at)
            if state["complete"]:
                return
            if not data:
                raise DomainError(f"{path} has changed while it was sent.", remedy="Run the same command again.")


def fetch(client: HubClient, folder: ArtifactFolder, file: JobFile, device: str, tell: Callable[[int], None]) -> None:
    """Bring a file of the job that the device has, from where an earlier copy broke off."""
    if not folder.missing([file.sha256]):
        return
    part = part_path(folder.root, file.sha256)
    part.parent.mkdir(parents=True, exist_ok=True)
    start = folder.arrived(file.sha256)
    if start < file.size_bytes or file.size_bytes == 0:
        path = f"{API}/agent/artifacts/{file.sha256}?device={quote(device)}"
        at = client.download(path, part, start=start, tell=tell)
        if at < file.size_bytes:
            raise HubAwayError(f"{file.path} broke off at {at:,} of {file.size_bytes:,} bytes.")
    folder.seal(file.sha256)


# Send runs to a hub. What it cannot take now is kept and sent later; a run keeps its id, so that it arrives once.

_PUSH_TIMEOUT_S = 300.0


@frozen
class Pushed:
    """What became of one run: its page at the hub, or why it has none. `waits` if it will be sent later."""

    run: str
    link: str | None = None
    waits: bool = False
    reason: str | None = None


def push(store: Store, client: HubClient, runs: Iterable[str] = (), *, project: str | None = None) -> list[Pushed]:
    """Send these runs, and whatever waits for this hub from before, the oldest first.

    A hub that does not answer is asked once: the rest waits too.
    """
    for run in runs:
        store.queue_push(run, client.url, project)
    answers: list[Pushed] = []
    away: HubAwayError | None = None
    for waiting in store.waiting_pushes(client.url):
        if away is None:
            try:
                answers.append(_send(store, client, waiting))
                continue
            except HubAwayError as error:
                away = error
        store.note_push(waiting, reason=away.message)
        answers.append(Pushed(run=waiting.run, waits=True, reason=str(away)))
    return answers


def _send(store: Store, client: HubClient, waiting: Push) -> Pushed:
    try:
        with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
            archive = store.export(waiting.run, Path(folder, "run.zip")).read_bytes()
        answer = parse_json(
            client.call(
                "POST", "/api/v1/runs/import", archive, query={"project": waiting.project}, timeout_s=_PUSH_TIMEOUT_S,
                kind="application/zip",
            )
        )  # fmt: skip
    except HubAwayError:
        raise
    except HubRefusalError as error:
        # A token can be mended; what the hub says of the run itself stays true.
        store.note_push(waiting, reason=error.message, refused=error.status not in {401, 403})
        return Pushed(run=waiting.run, waits=error.status in {401, 403}, reason=str(error))
    except InferometerError as error:
        store.note_push(waiting, reason=error.message, refused=True)
        return Pushed(run=waiting.run, reason=str(error))
    store.note_push(waiting)
    return Pushed(run=waiting.run, link=str(answer["link"]))
