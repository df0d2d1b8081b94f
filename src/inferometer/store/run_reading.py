"""The half of the store that reads runs. The first reader marks the runs whose process is gone."""

from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, select

from inferometer.core.errors import UnknownNameError
from inferometer.core.run import Artifact, Run
from inferometer.store import files, listing
from inferometer.store.errors import StoreError
from inferometer.store.finding import LIST_COLUMNS, artifacts_of, in_sight, resolve, rows_of, run_of
from inferometer.store.opened import Opened
from inferometer.store.reaping import reaped
from inferometer.store.tables import devices, metrics, runs, tags
from inferometer.store.values import Device, Filter, Metric, Page, RunRow


class RunReading(Opened):
    def reap(self) -> tuple[str, ...]:
        """Mark the runs whose process is gone as killed; gives their ids."""
        return reaped(self.database, self._owner(), self._now())

    def _tidy(self) -> None:
        """Before a look. That a dead run cannot be marked, on a full disk, is no reason not to show what is there."""
        with suppress(StoreError):
            self.reap()

    def resolve(self, run: str) -> str:
        return self._read(resolve, run, self.sight)

    def get(self, run: str) -> Run:
        """The run with its profile, parameters and files."""
        self._tidy()
        return self._read(lambda connection: run_of(connection, resolve(connection, run, self.sight)))

    def row(self, run: str) -> RunRow:
        """The run as a list shows it, with its times and why it ended."""
        self._tidy()

        def work(connection: Connection) -> RunRow:
            query = select(*LIST_COLUMNS).where(runs.c.id == resolve(connection, run, self.sight))
            return rows_of(connection, [connection.execute(query).mappings().one()])[0]

        return self._read(work)

    def list(
        self, wanted: Filter | None = None, *, sort: str = "-created", limit: int = 50, after: str | None = None
    ) -> Page:
        self._tidy()
        return self._read(listing.page, wanted or Filter(), self.sight, sort=sort, limit=limit, after=after)

    def count(self, wanted: Filter | None = None) -> int:
        return self._read(listing.count, wanted or Filter(), self.sight)

    def known(self, what: str) -> tuple[str, ...]:
        """Every model, device, machine, runtime, kind or tag that some run has."""
        column = tags.c.tag if what == "tag" else runs.c[what]
        query = select(column).where(column.is_not(None)).distinct().order_by(column)
        if self.sight is not None:
            mine = select(runs.c.id).where(*in_sight(self.sight))
            query = query.where(tags.c.run_id.in_(mine) if what == "tag" else runs.c.id.in_(mine))
        return tuple(self._read(lambda connection: connection.execute(query).scalars().all()))

    def metrics(self, run: str, name: str | None = None) -> tuple[Metric, ...]:
        def work(connection: Connection) -> tuple[Metric, ...]:
            query = select(metrics).where(metrics.c.run_id == resolve(connection, run, self.sight))
            if name is not None:
                query = query.where(metrics.c.name == name)
            rows = connection.execute(query.order_by(metrics.c.name, metrics.c.step))
            return tuple(Metric(name=m.name, value=m.value, step=m.step, at=m.at_us / 1e6) for m in rows)

        return self._read(work)

    def artifact(self, run: str, name: str) -> Path:
        """Where a run's file lies. It is shared with other runs: read it, never write it."""
        hashes = {artifact.name: artifact.sha256 for artifact in self.get_artifacts(run)}
        if name not in hashes:
            raise UnknownNameError("file of this run", name, list(hashes))
        return files.read(self.location.artifacts, hashes[name])

    def get_artifacts(self, run: str) -> tuple[Artifact, ...]:
        return self._read(lambda connection: artifacts_of(connection, resolve(connection, run, self.sight)))

    def devices(self) -> tuple[Device, ...]:
        query = select(devices).order_by(devices.c.name)
        if self.sight is not None:
            query = query.where(devices.c.name.in_(select(runs.c.device).where(*in_sight(self.sight)).distinct()))
        rows = self._read(lambda connection: connection.execute(query).all())
        return tuple(Device(name=d.name, title=d.title, first=d.first_us / 1e6, last=d.last_us / 1e6) for d in rows)
