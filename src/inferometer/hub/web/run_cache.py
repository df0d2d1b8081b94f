"""A cache of the runs that were just looked at: the profile of a run that has ended never changes."""

import threading
from collections import OrderedDict
from dataclasses import replace

from inferometer.core.profile import Run
from inferometer.hub.web.pages.explaining import PageExplanation, page_explanation
from inferometer.store.store import Store
from inferometer.store.values import RunRow

_MOST = 16
_MOST_OPS = 200_000  # of all cached profiles together


class RunCache:
    """Reads runs for the pages. Names, tags, project and status may change, so they always come from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[str, float | None], Run] = OrderedDict()
        self._explanations: OrderedDict[tuple[str, float | None], PageExplanation] = OrderedDict()

    def get(self, name: str, seen: Store | None = None) -> tuple[Run, RunRow]:
        """`seen` is the store as whoever asks may see it: what they may not see is not there, cached or not."""
        row = (seen or self._store).row(name)
        key = (row.id, row.ended)
        with self._lock:
            run = self._runs.get(key)
        if run is None:
            run = self._store.get(row.id)
            if row.ended is not None and run.profile is not None:
                self._keep(key, run)
        return replace(run, name=row.name, tags=row.tags, project=row.project, status=row.status), row

    def _keep(self, key: tuple[str, float | None], run: Run) -> None:
        with self._lock:
            self._runs[key] = run
            while len(self._runs) > _MOST or (len(self._runs) > 1 and self._ops() > _MOST_OPS):
                self._runs.popitem(last=False)

    def _ops(self) -> int:
        return sum(len(phase.ops) for run in self._runs.values() if run.profile for phase in run.profile.phases)

    def cached_explanation(self, row: RunRow) -> PageExplanation | None:
        """The explanation of a run, if somebody has already asked for it."""
        with self._lock:
            return self._explanations.get((row.id, row.ended))

    def explanation(self, name: str, seen: Store | None = None) -> tuple[Run, PageExplanation]:
        run, row = self.get(name, seen)
        if run.profile is None:
            return run, PageExplanation()
        explanation = self.cached_explanation(row)
        if explanation is None:
            explanation = page_explanation(run.profile, name=run.id)
            with self._lock:
                self._explanations[row.id, row.ended] = explanation
                while len(self._explanations) > _MOST:
                    self._explanations.popitem(last=False)
        return run, explanation
