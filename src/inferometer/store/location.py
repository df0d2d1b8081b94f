"""Where the store is: a SQLite file or a PostgreSQL server, and the folder of the runs' files; what it needs."""

import re
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

from inferometer.core.errors import DomainError, MissingDependencyError
from inferometer.core.frozen import frozen
from inferometer.core.settings import data_folder, value_of

# SQLAlchemy is an optional dependency: a small board measures without it.


def require_database() -> None:
    missing = [name for name in ("sqlalchemy", "alembic") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"Runs are kept with {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed.",
            remedy="pip install 'inferometer[hub]'",
        )


# The version of the tables. Apart from them, for those who look into a file without SQLAlchemy.

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")  # every migration, oldest first
VERSION_TABLE = "inferometer_version"  # of our own name: a database may hold another program's alembic_version


_FILE = "runs.db"
_SERVERS = ("postgresql", "postgres", "postgresql+psycopg")


@frozen
class Location:
    """`file` is the SQLite file, or `url` the PostgreSQL server; `artifacts` is the folder of the runs' files."""

    artifacts: Path
    file: Path | None = None
    url: str | None = field(default=None, repr=False)  # it may hold a password

    def __str__(self) -> str:
        """For people: never with a password."""
        return str(self.file) if self.file is not None else without_password(self.url or "")


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
                f"A store cannot be opened at {without_password(place)!r}: {scheme!r} is not a supported database.",
                remedy="Give a file, sqlite:///FILE, or postgresql://USER@HOST/DATABASE.",
            )
        place = unquote(rest.removeprefix("/"))
    if isinstance(place, str) and re.match(rf"({'|'.join(map(re.escape, _SERVERS))}|sqlite):", place):
        raise DomainError(
            f"{without_password(place)!r} is not the address of a store.",
            remedy="Write postgresql://USER@HOST/DATABASE, with both slashes.",
        )
    if not str(place).strip() or "\0" in str(place):
        raise DomainError(f"{str(place)!r} cannot be the file of a store.", remedy="Give a file or folder.")
    path = Path(place).expanduser()
    if path.is_dir() or str(place).endswith(("/", "\\")):
        path /= _FILE
    path = path.absolute()
    return Location(file=path, artifacts=folder or path.with_name(f"{path.stem}.artifacts"))


def without_password(text: str) -> str:
    """A text that may be or hold an address, with *** for its password.

    A password may hold any letter, also @ and /, so everything between the user and the last @ of the word is taken
    for it.
    """
    hidden = re.sub(r"([a-z][\w+.-]*:/*[^\s:/@]*):\S*@", r"\1:***@", text, flags=re.IGNORECASE)
    return re.sub(r"(password=)[^\s&]*", r"\1***", hidden, flags=re.IGNORECASE)
