"""The half of the store that changes runs."""

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

from sqlalchemy import Connection, delete, select, update

from inferometer.core.errors import DomainError
from inferometer.core.profile import Artifact, Profile, Status
from inferometer.store import files, names, writing
from inferometer.store.errors import StoreError
from inferometer.store.finding import resolve
from inferometer.store.opened import OpenedStore
from inferometer.store.tables import OPEN, artifacts, runs
from inferometer.store.values import Attachment


class Known(TypedDict, total=False):
    """What may be known of a run when it begins."""

    name: str | None
    tags: Iterable[str]
    parameters: Mapping[str, str]
    kind: str
    parent: str | None
    author: str | None
    subject: Mapping[str, str]  # the model and runtime asked for: what a run is known by that never has a profile


class Results(TypedDict, total=False):
    """What a run may leave when it ends, besides its profile."""

    attachments: Iterable[Attachment]
    log: str | None


class RunWriting(OpenedStore):
    def begin(self, project: str = "default", *, status: Status = "running", **known: Unpack[Known]) -> str:
        """Begin a run of this process, or leave one `pending` for later. Gives its id."""
        if status not in OPEN:
            raise DomainError(f"A run begins as pending or running, not as {status}.")
        now, draft = self._now(), self._draft(project, known)
        columns = {
            "status": status,
            "created_us": now,
            "started_us": now if status == "running" else None,
            "heartbeat_us": now,
            **writing.owned_by(self._owner()),
        }
        return self._write(self._insert, draft, columns)

    def add(
        self,
        profile: Profile,
        project: str = "default",
        *,
        attachments: Iterable[Attachment] = (),
        **known: Unpack[Known],
    ) -> str:
        """Store a finished run in one transaction."""
        return self._added(project, [self._ready(profile, attachments)], known)[0]

    def add_all(
        self, profiles: Iterable[Profile], project: str = "default", **known: Unpack[Known]
    ) -> tuple[str, ...]:  # fmt: skip
        """Store a finished run of each profile, all of them in one transaction or none."""
        return self._added(project, [self._ready(profile, ()) for profile in profiles], known)

    def _added(self, project: str, brought: list[writing.Belongings], known: Known) -> tuple[str, ...]:
        now, draft = self._now(), self._draft(project, known)
        times = {"created_us": now, "started_us": now, "ended_us": now, "heartbeat_us": now}

        def work(connection: Connection) -> tuple[str, ...]:
            made = []
            for belongings in brought:
                made.append(self._insert(connection, draft, {"status": "finished", **times, **belongings.headline}))
                writing.keep(connection, made[-1], belongings, now)
            return tuple(made)

        return self._write(work)

    def _draft(self, project: str, known: Known) -> writing.RunDraft:
        parent = known.get("parent")
        return writing.RunDraft(
            project=project,
            name=known.get("name"),
            kind=known.get("kind", "profile"),
            tags=tuple(known.get("tags", ())),
            parameters=known.get("parameters", {}),
            parent=None if parent is None else self._read(resolve, parent, self.sight),
            author=known.get("author"),
            subject=known.get("subject", {}),
        ).checked()

    @staticmethod
    def _insert(connection: Connection, draft: writing.RunDraft, columns: Mapping[str, Any]) -> str:
        while True:  # an id that is taken is drawn again: one in a million, when two begin in the same 10 ms
            run = names.new_id(columns["created_us"] / 1e6)
            if writing.begin(connection, run, draft, columns):
                return run

    def _ready(
        self, profile: Profile | None, attachments: Iterable[Attachment], log: str | None = None
    ) -> writing.Belongings:
        """Pack and copy before the transaction: nobody waits for it, and files stand before a row names them."""
        given = list(attachments)
        if log is not None:
            given.append(Attachment(name="log.txt", source=log.encode("utf-8", "replace"), media_type="text/plain"))
        return writing.belongings(profile, tuple(self._kept(attachment) for attachment in given))

    def _kept(self, attachment: Attachment) -> Artifact:
        name = names.valid_name("file", attachment.name)
        kept = files.keep(self.location.artifacts, attachment.source)
        return Artifact(
            name=name, sha256=kept.sha256, size_bytes=kept.size_bytes, media_type=names.clean(attachment.media_type)
        )

    def start(self, run: str) -> None:
        """A pending run begins: it is this process's now."""
        now = self._now()

        def work(connection: Connection) -> None:
            run_id = resolve(connection, run, self.sight)
            changed = connection.execute(
                update(runs)
                .where(runs.c.id == run_id, runs.c.status == "pending")
                .values(status="running", started_us=now, heartbeat_us=now, **writing.owned_by(self._owner()))
            )
            if not changed.rowcount:
                raise StoreError(f"Run {run_id} is not pending: it cannot be started.")

        self._write(work)

    def finish(self, run: str, profile: Profile | None = None, **results: Unpack[Results]) -> None:
        """The run is done, and durable when this returns."""
        self._end(run, "finished", None, profile, **results)

    def fail(
        self, run: str, reason: str | None = None, profile: Profile | None = None, **results: Unpack[Results]
    ) -> None:
        self._end(run, "failed", reason, profile, **results)

    def kill(
        self, run: str, reason: str | None = None, profile: Profile | None = None, **results: Unpack[Results]
    ) -> None:
        self._end(run, "killed", reason, profile, **results)

    def _end(
        self, run: str, status: Status, reason: str | None, profile: Profile | None, **results: Unpack[Results]
    ) -> None:
        brought = self._ready(profile, results.get("attachments", ()), results.get("log"))
        outcome = {"status": status, "ended_us": self._now(), "reason": names.clean(reason, most=2000)}
        self._write(lambda connection: writing.end(connection, resolve(connection, run, self.sight), outcome, brought))

    def add_metrics(self, run: str, values: Mapping[str, float], step: int | None = None) -> int:
        """Write the values of one step, and return it: the next one where none is given."""
        now = self._now()
        return self._write(
            lambda connection: writing.add_metrics(connection, resolve(connection, run, self.sight), values, step, now)
        )

    def add_series(self, run: str, name: str, points: Mapping[int, float]) -> None:
        """Many steps of one metric at once, as of a meter that was read while the run went on."""
        now = self._now()
        self._write(
            lambda connection: writing.add_series(connection, resolve(connection, run, self.sight), name, points, now)
        )

    def beat(self, run: str) -> None:
        """A sign of life, for those who look from another machine."""
        now = self._now()
        self._write(
            lambda connection: connection.execute(update(runs).where(runs.c.id == run).values(heartbeat_us=now))
        )

    def tag(self, run: str, *tags: str) -> None:
        self.retag(run, add=tags)

    def retag(self, run: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        add, remove = tuple(add), tuple(remove)
        self._write(
            lambda connection: writing.retag(connection, resolve(connection, run, self.sight), add=add, remove=remove)
        )

    def rename(self, run: str, name: str | None) -> None:
        wanted = None if name is None else names.valid_name("run", name)

        def work(connection: Connection) -> None:
            run_id = resolve(connection, run, self.sight)
            connection.execute(update(runs).where(runs.c.id == run_id).values(name=wanted))
            writing.reword(connection, run_id)

        self._write(work)

    def note(self, run: str, text: str | None) -> None:
        """What people should know about the run; an empty text takes the note away."""
        kept = names.clean((text or "").strip(), most=names.MOST_NOTE) or None
        self._write(
            lambda connection: connection.execute(
                update(runs).where(runs.c.id == resolve(connection, run, self.sight)).values(note=kept)
            )
        )

    def move(self, run: str, project: str) -> None:
        """Into another project, which is made where there is none of that name."""
        wanted, now = names.valid_name("project", project), self._now()

        def work(connection: Connection) -> None:
            run_id = resolve(connection, run, self.sight)
            there = writing.ensure_project(connection, wanted, now)
            connection.execute(update(runs).where(runs.c.id == run_id).values(project_id=there))

        self._write(work)

    def delete(self, *wanted: str) -> tuple[str, ...]:
        """Delete runs, all or none; gives their ids. Runs that have one as their parent stay."""

        def work(connection: Connection) -> tuple[tuple[str, ...], list[str]]:
            run_ids = tuple(dict.fromkeys(resolve(connection, run, self.sight) for run in wanted))
            held = select(artifacts.c.sha256).where(artifacts.c.run_id.in_(run_ids)).distinct()
            dropped = list(connection.execute(held).scalars())
            connection.execute(delete(runs).where(runs.c.id.in_(run_ids)))
            return run_ids, dropped

        run_ids, dropped = self._write(work)
        self._drop(dropped)
        return run_ids

    def _drop(self, hashes: Iterable[str], **options: float) -> int:
        """Remove files that no run names any more."""
        wanted = list(hashes)
        held = select(artifacts.c.sha256).where(artifacts.c.sha256.in_(wanted)).distinct()
        named = set(self._read(lambda connection: connection.execute(held).scalars().all())) if wanted else set()
        return sum(files.drop(self.location.artifacts, sha256, **options) for sha256 in set(wanted) - named)

    def tidy(self, *, grace_s: float = 600.0) -> int:
        """Remove every kept file that no run names; gives how many. Files of the last minutes stay."""
        return self._drop(list(files.all_of(self.location.artifacts)), grace_s=grace_s)
