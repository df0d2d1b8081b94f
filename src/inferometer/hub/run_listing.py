"""A page of runs, as the URL asks for it: how to filter and sort, and where to continue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferometer.store.values import SORTS, Filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import QueryParams

_TEXTS = ("project", "model", "device", "machine", "runtime", "kind")
_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListing:
    filter: Filter
    sort: str = "-created"
    limit: int = _ROWS
    after: str | None = None

    @property
    def shown(self) -> Mapping[str, Any]:
        """The filters that are set, for the form and for the chips that remove them."""
        texts = {name: text for name in _TEXTS if (text := getattr(self.filter, name))}
        status = {"status": self.filter.status[0]} if self.filter.status else {}
        return {**texts, **status, "tags": self.filter.tags}


def listing_from(query: QueryParams, *, project: str | None = None) -> RunListing:
    """Unknown values are ignored: URLs are typed by hand and shared, and should always show something."""
    texts: dict[str, Any] = {name: query[name] for name in _TEXTS if query.get(name)}
    if project is not None:
        texts["project"] = project
    sort = query.get("sort", "-created")
    status: Any = tuple(filter(None, query.getlist("status")))
    return RunListing(
        filter=Filter(
            status=status, tags=tuple(filter(None, query.getlist("tag"))), words=query.get("words") or None, **texts
        ),
        sort=sort if sort.removeprefix("-") in SORTS else "-created",
        after=query.get("after") or None,
    )
