"""What a client of the server may reach: names, and files in folders that the user named. Everything else is refused.

A client passes on what a language model wrote, which may have read a stranger's page: every text that could be opened
as a file goes through `Access.file_or_name` before a verb sees it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from inferometer.core.errors import DomainError, TrustError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile
from inferometer.store.store import Store

MOST_ROWS = 1000  # of one answer: a page that a language model can still read
MOST_CONFIGURATIONS = 10_000  # of a sweep: seconds, not hours
MOST_REQUESTS = 20_000  # of a simulation: as above


@frozen
class Access:
    """`folders` may be read; `profiling` lets a client ask for a measurement here, which the user then confirms.

    At a hub, `seen` is the store as whoever asks may see it: devices and models are the catalog's then, never this
    machine's. `submit` puts a measurement into the hub's queue, for who may.
    """

    folders: tuple[Path, ...] = ()
    store: str | None = None
    profiling: bool = False
    seen: Store | None = None
    submit: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None

    def file_or_name(self, text: str, is_known: Callable[[str], object] = lambda _: False) -> str:
        """The text where it is a name; the path of a file in one of the folders; else a refusal.

        A name that `is_known` is never taken for a file, as in the verbs themselves. Links are followed before the
        folder is compared, so that a link in it leads no further than a path would.
        """
        if is_known(text):
            return text
        try:
            for folder in self.folders:
                path = (folder / text).resolve()
                if path.is_relative_to(folder.resolve()) and path.exists():
                    return str(path)
            if "/" not in text and "\\" not in text and not Path(text).exists():
                return text
        except (OSError, ValueError):  # too long for a file system, or with a zero in it
            pass
        raise TrustError(
            f"{text[:200]!r} is a path, and not in a folder that this server may read.",
            remedy="Ask for a catalog name, or let the user start `inferometer hub mcp --files FOLDER`.",
        )

    def file(self, text: str) -> str:
        """The path of a file in one of the folders, and no name: that of a trace may be a dataset to fetch."""
        path = self.file_or_name(text)
        if not Path(path).is_absolute():
            raise TrustError(
                f"{text[:200]!r} is no file in a folder that this server may read.",
                remedy="Let the user start `inferometer hub mcp --files FOLDER`.",
            )
        return path

    def runs(self) -> AbstractContextManager[Store]:
        """The stored runs that may be read."""
        from inferometer.api.naming import open_chosen  # noqa: PLC0415 - a server starts without

        return open_chosen(self.store) if self.seen is None else nullcontext(self.seen)

    def profile(self, text: str) -> Profile:
        """The profile of a stored run; where no hub stands between, of a file too."""
        from inferometer.api.naming import profile_of  # noqa: PLC0415 - as above

        named = self.file_or_name(text)
        if self.seen is None:
            return profile_of(named, self.store)
        stored = self.seen.get(named)
        if stored.profile is None:
            raise DomainError(f"Run {stored.id} has no profile.", remedy="It failed, or has not ended yet.")
        return stored.profile

    def model(self, text: str) -> str:
        if self.seen is not None:
            from inferometer.hub.web.guard.catalog_names import catalog_model  # noqa: PLC0415 - as above

            return catalog_model(text)
        from inferometer.formats.networks.named import net_named  # noqa: PLC0415 - a server starts without
        from inferometer.known.files import row_named  # noqa: PLC0415 - as above
        from inferometer.known.zoo import network_named  # noqa: PLC0415 - as above

        return self.file_or_name(text, lambda name: row_named("models", name) or net_named(name) or network_named(name))

    def device(self, text: str) -> str:
        if self.seen is not None:
            from inferometer.hub.web.guard.catalog_names import catalog_device  # noqa: PLC0415 - as above

            return catalog_device(text).name
        from inferometer.known.files import row_named  # noqa: PLC0415 - as above

        return self.file_or_name(text, lambda name: name.partition(":")[0] == "local" or row_named("devices", name))

    def length(self, given: int | str) -> int | str:
        """A length may be a file's column: `file:lengths.csv`."""
        kind, colon, rest = str(given).strip().partition(":")
        return f"file:{self.file_or_name(rest)}" if colon and kind == "file" else given


def require_bounded(asked: float, most: int, what: str) -> None:
    if asked > most:
        raise DomainError(
            f"{asked:,.0f} {what} were asked for; one call takes at most {most:,}.",
            remedy="Ask for less, or let the user run the command of the same name.",
        )


def paged(document: dict[str, object], *, offset: int, limit: int) -> dict[str, object]:
    """The document with every list that is longer than a page cut to that page; `pages` says which, and their lengths.

    Short lists stay whole on every page, so that rows keep what they are rows of. The same call with
    `offset=offset + limit` has the next page of all of them.
    """
    require_bounded(limit, MOST_ROWS, "rows")
    if limit < 1 or offset < 0:
        raise DomainError("A page has a limit of 1 or more rows and an offset of 0 or more.")
    cut: list[dict[str, object]] = []

    def page_of(plain: object, place: str) -> object:
        if isinstance(plain, dict):
            return {key: page_of(value, f"{place}/{key}") for key, value in plain.items()}
        if not isinstance(plain, list | tuple):
            return plain
        rows: Sequence[object] = plain
        if len(rows) > limit:
            cut.append({"at": place, "offset": offset, "limit": limit, "total": len(rows)})
            rows = rows[offset : offset + limit]
        return [page_of(row, f"{place}/{number}") for number, row in enumerate(rows)]

    shown = {key: page_of(value, f"/{key}") for key, value in document.items()}
    return {**shown, "pages": cut} if cut else shown
