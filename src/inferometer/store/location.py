"""Where the store is: a SQLite file or a PostgreSQL server, and the folder of the runs' files."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from inferometer.errors import DomainError
from inferometer.settings import data_folder, value_of

_FILE = "runs.db"
_SERVERS = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """`file` is the SQLite file, or `url` the PostgreSQL server; `artifacts` is the folder of the runs' files."""

    artifacts: Path
    file: Path | None = None
    url: str | None = None

    def __str__(self) -> str:
        """For people: never with a password."""
        return str(self.file) if self.file is not None else _without_password(self.url or "")


def locate(place: str | Path | None = None, *, artifacts: Path | None = None) -> Location:
    """The place a text or path means; without one, the setting's, and without that, the user's data folder."""
    if place is None:
        place = value_of("INFEROMETER_STORE") or data_folder() / _FILE
    chosen = value_of("INFEROMETER_ARTIFACTS")
    folder = artifacts or (Path(chosen).expanduser() if chosen else None)
    if isinstance(place, str) and "://" in place:
        scheme, _, rest = place.partition("://")
        if scheme in _SERVERS:
            return Location(url=f"postgresql://{rest}", artifacts=folder or data_folder() / "artifacts")
        if scheme != "sqlite":
            raise DomainError(
                f"A store cannot be opened at {_without_password(place)!r}: {scheme!r} is not a supported database.",
                remedy="Give a file, sqlite:///FILE, or postgresql://USER@HOST/DATABASE.",
            )
        place = unquote(rest.removeprefix("/"))
    return _in_file(place, folder)


def _in_file(place: str | Path, artifacts: Path | None) -> Location:
    if not str(place).strip() or "\0" in str(place):
        raise DomainError(f"{str(place)!r} cannot be the file of a store.", remedy="Give a file or folder.")
    path = Path(place).expanduser()
    if path.is_dir() or str(place).endswith(("/", "\\")):
        path /= _FILE
    path = path.absolute()
    return Location(file=path, artifacts=artifacts or path.with_name(f"{path.stem}.artifacts"))


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
        if not parts.password:
            return url
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return f"{url.partition('://')[0]}://…"
    return parts._replace(netloc=f"{parts.username or ''}:***@{host}").geturl()
