"""A page of runs, as the URL asks for it: how to filter and sort, which columns to show, and where to continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from inferometer.store.values import SORTS, Filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from starlette.datastructures import QueryParams

    from inferometer.store.values import RunRow

_TEXTS = ("project", "model", "device", "machine", "runtime", "precision", "author", "kind")
_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ListColumn:
    """A column of the list. `field` is the run's, whose values decide whether it is shown unless asked for.

    `width` is at most what it takes, in pixels, and `rank` says who comes first where there is no room for all.
    """

    key: str
    heading: str
    field: str
    rank: int
    width: int
    sort: str | None = None
    number: bool = False
    wanted: bool = True  # by default, where some run has it
    telling: bool = False  # by default only where two runs differ in it


COLUMNS = (
    ListColumn(key="when", heading="When", rank=5, width=84, field="created", sort="created"),
    ListColumn(key="run", heading="Run", rank=1, width=208, field="id", sort="name"),
    ListColumn(key="status", heading="Status", rank=2, width=88, field="status", sort="status"),
    ListColumn(key="model", heading="Model", rank=3, width=136, field="model", sort="model"),
    ListColumn(key="device", heading="Device", rank=6, width=136, field="device", sort="device"),
    ListColumn(key="latency", heading="Latency", rank=4, width=76, field="latency_s", sort="latency", number=True),
    ListColumn(key="ttft", heading="TTFT", rank=11, width=76, field="ttft_s", sort="ttft", number=True),
    ListColumn(key="tpot", heading="TPOT", rank=15, width=76, field="tpot_s", sort="tpot", number=True, wanted=False),
    ListColumn(key="tokens", heading="Tokens/s", rank=8, width=72, field="tokens_per_s", sort="tokens", number=True),
    ListColumn(key="memory", heading="Memory", rank=7, width=76, field="peak_memory_bytes", sort="memory", number=True),
    ListColumn(key="batch", heading="Batch", rank=13, width=52, field="batch", sort="batch", number=True, telling=True),
    ListColumn(
        key="precision", heading="Precision", rank=12, width=80, field="precision", sort="precision", telling=True
    ),
    ListColumn(
        key="threads", heading="Threads", rank=16, width=66, field="threads", sort="threads", number=True, wanted=False
    ),
    ListColumn(key="runtime", heading="Runtime", rank=9, width=110, field="runtime", telling=True),
    ListColumn(key="machine", heading="Machine", rank=14, width=136, field="machine_id", sort="machine", telling=True),
    ListColumn(key="author", heading="Author", rank=17, width=100, field="author", sort="author", wanted=False),
    ListColumn(key="tags", heading="Tags", rank=10, width=144, field="tags"),
)
_ALWAYS = {"run"}
_ROOM = 1020  # pixels for the columns of a list beside its projects, on a screen of 1280


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListing:
    filter: Filter
    query: Sequence[tuple[str, str]] = ()  # of the address, without the mark of a page
    project: str | None = None
    sort: str = "-created"
    limit: int = _ROWS
    after: str | None = None
    columns: tuple[str, ...] | None = None  # None: those that say something

    def chips(self) -> Iterable[tuple[str, str, str]]:
        """Each filter that is set: its name, its value, and the address without it."""
        for name in (*(name for name in _TEXTS if name != "project" or self.project is None), "words"):
            value = getattr(self.filter, name)
            if value:
                yield name, value, self.without(name, value)
        for status in self.filter.status:
            yield "status", status, self.without("status", status)
        for tag in self.filter.tags:
            yield "tag", tag, self.without("tag", tag)

    def adding(self, name: str, value: str) -> str:
        """The address with this filter too; a run has many tags, and one of everything else."""
        kept = [pair for pair in self.query if pair != (name, value) and (name == "tag" or pair[0] != name)]
        return "?" + urlencode([*kept, (name, value)])

    def without(self, name: str, value: str) -> str:
        return "?" + urlencode([pair for pair in self.query if pair != (name, value)])

    def sorting(self, key: str) -> str:
        wanted = key if self.sort == f"-{key}" else f"-{key}"
        return self.adding("sort", wanted)

    def following(self, mark: str) -> str:
        return "?" + urlencode([*self.query, ("after", mark)])

    def shown(self, rows: Sequence[RunRow]) -> Mapping[str, bool]:
        """Every column, and whether it is shown: as the address says, else where some run has something in it.

        Of those, as many as stand side by side on a laptop's screen; the others are a click away.
        """
        if self.columns is not None:
            return {column.key: column.key in self.columns or column.key in _ALWAYS for column in COLUMNS}
        known = {column.key: {getattr(row, column.field) for row in rows} - {None, ()} for column in COLUMNS}
        telling = [
            column for column in COLUMNS if column.wanted and len(known[column.key]) > (1 if column.telling else 0)
        ]
        return dict.fromkeys((column.key for column in COLUMNS), False) | dict.fromkeys(_fitting(telling), True)


def _fitting(columns: Iterable[ListColumn]) -> Iterator[str]:
    """The keys of those that there is room for, the most important first."""
    room = _ROOM
    for column in sorted(columns, key=lambda column: column.rank):
        if column.width <= room:
            room -= column.width
            yield column.key


def listing_from(query: QueryParams, *, project: str | None = None) -> RunListing:
    """Unknown values are ignored: URLs are typed by hand and shared, and should always show something."""
    texts: dict[str, Any] = {name: query[name] for name in _TEXTS if query.get(name)}
    if project is not None:
        texts["project"] = project
    sort = query.get("sort", "-created")
    status: Any = tuple(filter(None, query.getlist("status")))
    chosen = query.get("columns")
    return RunListing(
        filter=Filter(
            status=status, tags=tuple(filter(None, query.getlist("tag"))), words=query.get("words") or None, **texts
        ),
        query=[(key, value) for key, value in query.multi_items() if key != "after" and value],
        project=project,
        sort=sort if sort.removeprefix("-") in SORTS else "-created",
        after=query.get("after") or None,
        columns=None if chosen is None else tuple(chosen.split(",")),
    )
