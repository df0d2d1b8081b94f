"""The open store: what commands and the hub talk to."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack

from sqlalchemy import Connection, select

from inferometer.core.errors import InferometerError, UnknownNameError
from inferometer.store import audit, links, members, outbox, people, projects, retention, visitors
from inferometer.store.audit import AuditFilter
from inferometer.store.engine import Database, open_database
from inferometer.store.errors import StoreError
from inferometer.store.exchange import StoreExchange
from inferometer.store.location import Location, locate
from inferometer.store.opened import Owner, this_process
from inferometer.store.retention import Deletion, Retention
from inferometer.store.schema import prepare
from inferometer.store.tables import runs
from inferometer.store.values import (
    AuditEntry,
    Member,
    Project,
    Push,
    Role,
    Scope,
    Secret,
    SessionRow,
    ShareLink,
    Token,
    User,
    Visitor,
)


class ProjectChange(TypedDict, total=False):
    """What an owner may change in a project."""

    open: bool
    writer_priority: int
    owner_priority: int
    description: str | None


def open_store(
    place: str | Path | None = None,
    *,
    read_only: bool = False,
    artifacts: Path | None = None,
    clock: Callable[[], float] = time.time,
    owner: Callable[[], Owner] = this_process,
) -> "Store":
    """Open a store by URL or path, or the user's own; it is made where there is none.

    A file that cannot be written, on a read-only or a full disk, is opened for reading: its runs can still be seen.
    """
    location = locate(place, artifacts=artifacts)
    try:
        database = _prepared(location, read_only=read_only)
    except StoreError as error:
        if read_only or location.file is None or not location.file.is_file():
            raise
        with suppress(InferometerError):
            return Store(_prepared(location, read_only=True, why=error.message), clock=clock, owner=owner)
        raise
    return Store(database, clock=clock, owner=owner)


def _prepared(location: Location, *, read_only: bool, why: str | None = None) -> Database:
    database = open_database(location, read_only=read_only, why=why)
    try:
        prepare(database)
    except BaseException:
        database.close()
        raise
    return database


class Store(StoreExchange):
    """Runs are named by id, by a part of one, by name, or as `last`. What a call wrote is durable when it returns."""

    def close(self) -> None:
        self.database.close()

    def mark(self) -> object:
        """Changes whenever somebody has written to the store; None where that cannot be told."""
        return self.database.mark()

    def readable(self) -> None:
        """Raise where the runs cannot be read."""
        self._read(lambda connection: connection.execute(select(runs.c.id).limit(1)).first())

    def takes_writes(self) -> bool:
        return self.database.takes_writes()

    def now(self) -> float:
        return self._clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # Projects

    def projects(self) -> tuple[Project, ...]:
        return self._read(projects.listed, self.sight)

    def project_names(self) -> tuple[str, ...]:
        return self._read(projects.named, self.sight)

    def project(self, name: str) -> Project:
        known = {project.name: project for project in self.projects()}
        if name not in known:
            raise UnknownNameError("project", name, known, listing="`inferometer runs projects` lists them.")
        return known[name]

    def create_project(self, name: str, *, description: str | None = None, owner: str | None = None) -> None:
        self._write(projects.create, name, description=description, owner=owner, now_us=self._now())

    def change_project(self, name: str, **values: Unpack[ProjectChange]) -> None:
        self._write(projects.change, name, values)

    def rename_project(self, name: str, to: str) -> None:
        self._write(projects.rename, name, to)

    def delete_project(self, name: str, *, with_runs: bool = False) -> None:
        """A project with runs goes only where they are to go with it."""
        self._drop(self._write(projects.remove, name, with_runs=with_runs))

    # Members

    def members(self, project: str) -> tuple[Member, ...]:
        return self._read(members.listed, project)

    def set_member(self, project: str, user: str, role: Role) -> None:
        """Make a user a member of a project, or change their role."""
        self._write(members.put, project, user, role, now_us=self._now())

    def remove_member(self, project: str, user: str) -> None:
        """Their devices take no more jobs of it, and give back what they have."""
        from inferometer.store.queue.ending import strand, take_back  # noqa: PLC0415 - the queue, which few need
        from inferometer.store.queue.values import LeaseTiming, Moment  # noqa: PLC0415 - as above

        now = self._now()

        def work(connection: Connection) -> None:
            members.remove(connection, project, user, now_us=now)
            take_back(connection, Moment(timing=LeaseTiming(), now_us=now))
            strand(connection, now)

        self._write(work)

    # What is kept, and for how long

    def set_retention(self, chosen: Retention) -> None:
        """The rules of a project from now on; without any, it keeps everything."""
        self._write(retention.choose, chosen)

    def retentions(self) -> tuple[Retention, ...]:
        return self._read(retention.listed)

    def retention(self, project: str) -> Retention:
        """The rules of a project; one without any keeps everything."""
        return next((rules for rules in self.retentions() if rules.project == project), Retention(project=project))

    def deletions(self, most: int = 20) -> tuple[Deletion, ...]:
        """What went by rules, the latest first."""
        return self._read(retention.deleted, most)

    def apply_retention(self, *, dry_run: bool = False) -> tuple[Deletion, ...]:
        """Delete what the projects' rules say; with `dry_run`, only say what would go."""
        return tuple(retention.apply(self.database, self._now(), dry_run=dry_run, drop=self._drop))

    # Sending to a hub

    def queue_push(self, run: str, hub: str, project: str | None = None) -> None:
        """Keep in mind that a run, with those below it, is to be sent to a hub."""
        self._write(outbox.queue, run, hub, project, now_us=self._now())

    def waiting_pushes(self, hub: str) -> tuple[Push, ...]:
        return self._read(outbox.waiting, hub)

    def note_push(self, push: Push, *, reason: str | None = None, refused: bool = False) -> None:
        """How an attempt went; without a reason, it has arrived."""
        sent_us = self._now() if reason is None else None
        self._write(outbox.note, push, {"sent_us": sent_us, "reason": reason, "refused": refused})

    # Users and tokens

    def create_user(self, name: str) -> User:
        return self._write(people.create_user, name, now_us=self._now())

    def users(self) -> tuple[User, ...]:
        return self._read(people.listed_users)

    def identified(self, issuer: str, subject: str, email: str | None, *, joins: bool) -> str | None:
        """The user behind a provider's identity; None for a stranger, unless strangers may join (`joins`)."""
        return self._write(people.identified, issuer, subject, email, joins=joins, now_us=self._now())

    def delete_user(self, name: str) -> None:
        self._write(people.delete_user, name)

    def create_token(
        self,
        user: str,
        *,
        name: str = "token",
        scopes: Iterable[Scope] = ("read",),
        lasts_s: float | None = None,
        project: str | None = None,
    ) -> Secret:
        """A new token; its text is in the answer and nowhere else. `project` limits an agent to that one's jobs."""
        now = self._now()
        expires = None if lasts_s is None else now + round(lasts_s * 1e6)
        new = people.NewToken(
            user=user, name=name, scopes=tuple(scopes), now_us=now, expires_us=expires, project=project
        )
        return self._write(people.create_token, new)

    def tokens(self, user: str | None = None) -> tuple[Token, ...]:
        return self._read(people.listed_tokens, user)

    def revoke_token(self, token: str) -> None:
        self._write(people.revoke, token, now_us=self._now())

    def admitted(self, text: str, scope: Scope | None = None) -> Token | None:
        """The token of this text, if it holds and has the scope; None otherwise."""
        now = self._now()
        token = self._read(people.admitted, text, now_us=now)
        if token is None or (scope is not None and not token.allows(scope)):
            return None
        if people.worth_noting(token, now) and not self.database.read_only:
            with suppress(StoreError):  # a full disk is no reason to keep people out
                self._write(people.used, token.id, now_us=now)
        return token

    # The audit log

    def note_deed(self) -> None:
        """Put a deed (`doing`) that writes nothing itself into the audit log, such as an export."""
        self._write(lambda _connection: None)

    def audit(self, wanted: AuditFilter | None = None, *, limit: int = 100) -> tuple[AuditEntry, ...]:
        return self._read(audit.listed, wanted or AuditFilter(), limit=limit)

    def forget_audit(self, *, older_s: float) -> int:
        return self._write(audit.forget, before_us=self._now() - round(older_s * 1e6))

    # Share links

    def create_link(self, runs: Sequence[str], *, user: str | None, lasts_s: float) -> str:
        """The text of a link to a run, or to a comparison of several, the baseline first."""
        now = self._now()
        expires = now + round(lasts_s * 1e6)
        return self._write(links.create, tuple(runs), user=user, expires_us=expires, now_us=now)

    def opened_link(self, text: str) -> ShareLink | None:
        return self._read(links.opened, text, now_us=self._now())

    def links(self, *, user: str | None = None, projects: frozenset[str] | None = None) -> tuple[ShareLink, ...]:
        """Those that hold: all, or a user's own and those to runs of these projects."""
        return self._read(links.listed, user=user, projects_=projects, now_us=self._now())

    def revoke_link(self, link: str) -> None:
        self._write(links.revoke, link, now_us=self._now())

    # Visitors and sessions

    def visitor(self, *, token: str = "", session: str = "") -> Visitor | None:
        """Who this text lets in, with their roles; None if it is unknown or has ended."""
        if token:
            held = self.admitted(token)
            return None if held is None else self._read(visitors.by_token, held)
        now = self._now()
        visitor = self._read(visitors.by_session, session, now_us=now)
        if visitor is not None and visitor.session and visitors.worth_noting(visitor, now):
            with suppress(StoreError):  # as with tokens: a full disk is no reason to keep people out
                self._write(visitors.note_use, visitor.session, now_us=now)
        return visitor

    def visitor_again(self, visitor: Visitor) -> Visitor | None:
        return self._read(visitors.again, visitor, now_us=self._now())

    def begin_session(
        self, user: str, *, token: str | None = None, address: str | None = None, browser: str | None = None
    ) -> str:
        """The text of a cookie, which is kept nowhere."""
        new = visitors.NewSession(user=user, token=token, address=address, browser=browser)
        return self._write(visitors.begin_session, new, now_us=self._now())

    def end_session(self, session: str, *, user: str | None = None) -> None:
        self._write(visitors.end_session, session, user=user, now_us=self._now())

    def sessions(self, user: str) -> tuple[SessionRow, ...]:
        return self._read(visitors.listed_sessions, user, now_us=self._now())
