"""Database errors as sentences with a remedy, and which of them are worth a retry."""

import re

from sqlalchemy.exc import DBAPIError, IntegrityError

from inferometer.store.errors import StoreError
from inferometer.store.location import Location, without_password

_ELSEWHERE = "Choose another store with INFEROMETER_STORE, or leave the run out of it with --no-store."

# The beginning of SQLite's own name for what went wrong, what that is, what to do.
_SQLITE = (
    ("SQLITE_FULL", "cannot be written: the disk is full", "Make room; nothing that was stored before is lost."),
    ("SQLITE_READONLY", "may not be written to", _ELSEWHERE),
    ("SQLITE_CORRUPT", "is damaged", "Restore it from a copy, or move it away: a new one is made."),
    ("SQLITE_NOTADB", "is not a store's file, or is damaged", "Move it away: a new one is made; or name another."),
    ("SQLITE_CANTOPEN", "cannot be opened", _ELSEWHERE),
    ("SQLITE_BUSY", "was held by another program for too long", "Try again when it has ended."),
    ("SQLITE_IOERR", "cannot be read or written: the disk reports an error", "See the system's log."),
)
# PostgreSQL's five letters.
_STATES = {
    "53100": ("cannot be written: the server's disk is full", "Make room on the server."),
    "53300": ("has too many connections", "Try again, or raise max_connections."),
    "25006": ("is read-only", "Connect to the primary server."),
    "42501": ("may not be changed by this user", "GRANT the user what is missing, or connect as another."),
}
# A connection that fails has no such letters: only words.
_WORDS = (
    (r"password authentication failed|no password supplied", "refuses the password", "Check user and password."),
    (r"database .* does not exist", "has no such database", "Create it with createdb, or name another."),
    (r"role .* does not exist", "knows no such user", "Check the user's name."),
    (r"no pg_hba.conf entry", "does not let this user in from here", "Add a line to the server's pg_hba.conf."),
    (r"not currently accepting connections|is (starting up|shutting down)|in recovery mode",
     "lets nobody in at the moment", "Try again when the server is up; --no-store measures without it."),
    (r"refused|timeout|timed out|unreachable|resolve|translate|No such file|closed the connection",
     "does not answer", "Check that the server runs, and its host and port; --no-store measures without it."),
)  # fmt: skip
_PASSING_STATES = {"40001", "40P01", "55P03"}


def passing(error: DBAPIError) -> bool:
    """Whether trying again may help: somebody else held a lock, or the order could not be kept."""
    if getattr(error.orig, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return True
    return getattr(error.orig, "sqlstate", None) in _PASSING_STATES


def store_error(error: DBAPIError, location: Location) -> StoreError:
    what, words, remedy = _understood(error)
    said = f" ({words})" if words else ""
    message = without_password(f"The store {location} {what}{said}.")
    return StoreError(message, remedy=remedy, told=f"The store {what}.")


def busy(location: Location) -> StoreError:
    """All connections were in use for a minute: a fault of ours, or far too much at once."""
    much = "has too much to do at the moment."
    return StoreError(f"The store {location} {much}", remedy="Try again.", told=f"The store {much}")


def _understood(error: DBAPIError) -> tuple[str, str | None, str]:
    """What it is, the database's own words where they say more, and what to do."""
    name = getattr(error.orig, "sqlite_errorname", "")
    for beginning, what, remedy in _SQLITE:
        if name.startswith(beginning):
            return what, None, remedy
    state = getattr(error.orig, "sqlstate", None)
    if state in _STATES:
        what, remedy = _STATES[state]
        return what, None, remedy
    message = " ".join(str(error.orig).split())[:300]
    if isinstance(error, IntegrityError):
        return "refuses this: it would not hold together", message, "Look again: another program may have changed it."
    for pattern, what, remedy in _WORDS:
        if re.search(pattern, message, re.IGNORECASE):
            return what, message, remedy
    return "reports an error", message, "See the database's log."
