"""A page of runs from the words of an address: what it filters by, how it is sorted, where it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferometer.store.values import SORTS, Filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import QueryParams

_TEXTS = ("project", "model", "device", "runtime", "kind")
_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    wanted: Filter
    sort: str = "-created"
    limit: int = _ROWS
    after: str | None = None

    @property
    def shown(self) -> Mapping[str, Any]:
        """What is filtered by, for the form and for chips that take a filter off again."""
        wanted = self.wanted
        plain = {name: getattr(wanted, name) for name in _TEXTS if getattr(wanted, name)}
        return {**plain, **({"status": wanted.status[0]} if wanted.status else {}), "tags": wanted.tags}


def listed_from(query: QueryParams, *, project: str | None = None) -> Listed:
    """Whatever is not understood is left out: an address is typed by hand and shared, and should show something."""
    given: dict[str, Any] = {name: query[name] for name in _TEXTS if query.get(name)}
    if project is not None:
        given["project"] = project
    sort = query.get("sort", "-created")
    status: Any = tuple(filter(None, query.getlist("status")))
    return Listed(
        wanted=Filter(
            status=status, tags=tuple(filter(None, query.getlist("tag"))), words=query.get("words") or None, **given
        ),
        sort=sort if sort.removeprefix("-") in SORTS else "-created",
        after=query.get("after") or None,
    )
