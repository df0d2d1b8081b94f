"""Profiles that were just looked at, kept: a run that has ended never changes its profile."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from inferometer.hub.explaining import Explained, explained

if TYPE_CHECKING:
    from inferometer.core.run import Run
    from inferometer.store.store import Store
    from inferometer.store.values import RunRow

_MOST = 16
_MOST_OPS = 200_000  # of all kept profiles together: what is larger is read again each time


class Kept:
    """Reads runs for the pages. Names and tags may change, and so are always the store's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[str, float | None], Run] = OrderedDict()
        self._explained: OrderedDict[tuple[str, float | None], Explained] = OrderedDict()

    def get(self, asked: str) -> tuple[Run, RunRow]:
        row = self._store.row(asked)
        key = (row.id, row.ended)
        with self._lock:
            found = self._runs.get(key)
        if found is None:
            found = self._store.get(row.id)
            if row.ended is not None and found.profile is not None:
                self._keep(key, found)
        return replace(found, name=row.name, tags=row.tags, project=row.project, status=row.status), row

    def _keep(self, key: tuple[str, float | None], run: Run) -> None:
        with self._lock:
            self._runs[key] = run
            while len(self._runs) > _MOST or (len(self._runs) > 1 and self._ops() > _MOST_OPS):
                self._runs.popitem(last=False)

    def _ops(self) -> int:
        return sum(len(phase.ops) for run in self._runs.values() if run.profile for phase in run.profile.phases)

    def explained_before(self, row: RunRow) -> Explained | None:
        """The explanation, where somebody has asked for it already."""
        with self._lock:
            return self._explained.get((row.id, row.ended))

    def explained(self, asked: str) -> tuple[Run, Explained]:
        run, row = self.get(asked)
        if run.profile is None:
            return run, Explained()
        key = (run.id, row.ended)
        with self._lock:
            found = self._explained.get(key)
        if found is None:
            found = explained(run.profile, name=run.id)
            with self._lock:
                self._explained[key] = found
                while len(self._explained) > _MOST:
                    self._explained.popitem(last=False)
        return run, found
