"""What a provider is: a way to run a job at some place. design/0007-fleet.md says why it has this shape.

Providers are found through the entry points of the group `inferometer.providers`; ours come through the same door.
An address is a provider's name, a colon, and whatever that provider makes of the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, runtime_checkable
from urllib.parse import parse_qsl, unquote, urlsplit

from inferometer.core.errors import DomainError, MissingDependencyError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.core.plugins import listed, load
from inferometer.engines.base import Missing, Ready

__all__ = [
    "GROUP",
    "Closing",
    "Handle",
    "LocalFiles",
    "Missing",
    "Place",
    "PlaceAddress",
    "Provider",
    "Ready",
    "resolve",
]

GROUP = "inferometer.providers"
LocalFiles = Mapping[str, Path]  # the files of a job on this machine, by their SHA-256


@frozen
class PlaceAddress:
    """An address in its parts: `ssh://pi@board:22?python=…` has a host, `bundle:job.zip` only a `rest`."""

    text: str
    scheme: str
    rest: str = ""
    user: str | None = None
    host: str | None = None
    port: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def require_options(self, *known: str) -> None:
        """A misspelt option is an error: ignored, the job would run in another way than was asked for."""
        for name in self.options:
            if name not in known:
                listing = f"`{self.scheme}` takes {', '.join(known)}." if known else f"`{self.scheme}` takes none."
                raise UnknownNameError(f"option of {self.scheme}", name, known, listing=listing)


@frozen
class Handle:
    """A job that a place has. It is data: another process can open the address and go on with it."""

    address: str
    job: str
    folder: str = ""  # of the job, at that place


@runtime_checkable
class Place(Protocol):
    """Somewhere that jobs run. It may hold a connection: close it, or use it as a context manager.

    `resumes`: a job that is given again while it runs there is picked up. `waits`: somebody has to carry the job
    there, so that `events` ends with the job still queued.
    """

    resumes: bool
    waits: bool

    @property
    def title(self) -> str:
        """What to call it in a message."""

    def submit(self, job: Job, files: LocalFiles) -> Handle: ...

    def events(self, handle: Handle, after: int = 0) -> Iterator[JobEvent]: ...

    def cancel(self, handle: Handle) -> None: ...

    def fetch(self, handle: Handle) -> JobResult: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


class Closing:
    """A place that has nothing to close, or closes it by a `close` of its own."""

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@runtime_checkable
class Provider(Protocol):
    """The protocol that plug-ins of the group `inferometer.providers` keep. `probe` imports nothing."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    def probe(self) -> Ready | Missing: ...

    def open(self, address: PlaceAddress) -> Place:
        """The place of an address. It connects when it is first used."""


def is_place(text: str) -> bool:
    """Whether an `--on` names a place to run at, and not a catalog device."""
    scheme, colon, _ = text.partition(":")
    return (bool(colon) and scheme in _names()) or text == "local"


def _names() -> tuple[str, ...]:
    return tuple(plugin.name for plugin in listed(GROUP))


def parse_address(text: str) -> PlaceAddress:
    """`ssh://user@host:port?key=value`, `adb:serial`, `bundle:job.zip?target=…`, or a bare name such as `local`."""
    scheme, _, rest = text.partition(":")
    body, question, query = rest.partition("?")
    # strict parsing would refuse an empty query as well, which is harmless
    pairs = parse_qsl(query, keep_blank_values=True) if question else []
    options = dict(pairs)
    if len(options) != len(pairs):
        raise DomainError(f"The address {text!r} gives an option twice.")
    if not body.startswith("//"):
        return PlaceAddress(text=text, scheme=scheme, rest=unquote(body), options=options)
    try:
        parts = urlsplit(f"{scheme}:{body}")
        port = parts.port
    except ValueError as error:
        raise DomainError(
            f"The address {text!r} cannot be read: {error}.", remedy="Write ssh://USER@HOST:PORT."
        ) from None
    if not parts.hostname:
        raise DomainError(f"The address {text!r} names no host.", remedy=f"Write {scheme}://USER@HOST.")
    user = None if parts.username is None else unquote(parts.username)
    if parts.password is not None:
        raise DomainError(
            f"The address of {parts.hostname} has a password in it, which other users of this machine could read.",
            remedy="Use a key: ssh-copy-id puts one there.",
        )
    return PlaceAddress(
        text=text, scheme=scheme, rest=parts.path.strip("/"), user=user, host=parts.hostname, port=port, options=options
    )


def resolve(text: str) -> Place:
    """The place of an address. One that needs something that is not installed says what."""
    address = parse_address(text)
    if address.scheme not in _names():
        known = _names()
        raise UnknownNameError(
            "kind of place", address.scheme, known, listing=f"An address begins with {', '.join(known)}."
        )
    provider: Provider = load(GROUP, address.scheme)
    state = provider.probe()
    if isinstance(state, Missing):
        raise MissingDependencyError(f"{provider.title} cannot be used: {state.reason}.", remedy=state.remedy)
    return provider.open(address)
