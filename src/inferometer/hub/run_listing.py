"""A page of runs, as the URL asks for it: how to filter and sort, which columns to show, and where to continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from inferometer.store.values import SORTS, Filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.datastructures import QueryParams

    from inferometer.store.values import RunRow

_TEXTS = ("project", "model", "device", "machine", "runtime", "precision", "author", "kind")
_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ListColumn:
    """A column of the list. `field` is the run's, whose values decide whether it is shown unless asked for."""

    key: str
    heading: str
    field: str
    sort: str | None = None
    number: bool = False
    wanted: bool = True  # by default, where some run has it
    telling: bool = False  # by default only where two runs differ in it


COLUMNS = (
    ListColumn(key="when", heading="When", field="created", sort="created"),
    ListColumn(key="run", heading="Run", field="id", sort="name"),
    ListColumn(key="status", heading="Status", field="status", sort="status"),
    ListColumn(key="model", heading="Model", field="model", sort="model"),
    ListColumn(key="device", heading="Device", field="device", sort="device"),
    ListColumn(key="latency", heading="Latency", field="latency_s", sort="latency", number=True),
    ListColumn(key="ttft", heading="TTFT", field="ttft_s", sort="ttft", number=True),
    ListColumn(key="tpot", heading="TPOT", field="tpot_s", sort="tpot", number=True, wanted=False),
    ListColumn(key="tokens", heading="Tokens/s", field="tokens_per_s", sort="tokens", number=True),
    ListColumn(key="memory", heading="Memory", field="peak_memory_bytes", sort="memory", number=True),
    ListColumn(key="batch", heading="Batch", field="batch", sort="batch", number=True, telling=True),
    ListColumn(key="precision", heading="Precision", field="precision", sort="precision", telling=True),
    ListColumn(key="threads", heading="Threads", field="threads", sort="threads", number=True, wanted=False),
    ListColumn(key="runtime", heading="Runtime", field="runtime", telling=True),
    ListColumn(key="machine", heading="Machine", field="machine_id", sort="machine", telling=True),
    ListColumn(key="author", heading="Author", field="author", sort="author", wanted=False),
    ListColumn(key="tags", heading="Tags", field="tags"),
)
_ALWAYS = {"run"}


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
        """Every column, and whether it is shown: as the address says, else where some run has something in it."""
        if self.columns is not None:
            return {column.key: column.key in self.columns or column.key in _ALWAYS for column in COLUMNS}
        known = {column.key: {getattr(row, column.field) for row in rows} - {None, ()} for column in COLUMNS}
        return {
            column.key: column.wanted and len(known[column.key]) > (1 if column.telling else 0) for column in COLUMNS
        }


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
