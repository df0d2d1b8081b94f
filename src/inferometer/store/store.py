"""The open store: what commands and the hub talk to."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from inferometer.store import people, projects
from inferometer.store.engine import open_database
from inferometer.store.exchange import Exchange
from inferometer.store.location import locate
from inferometer.store.owner import Owner, this_process
from inferometer.store.schema import prepare
from inferometer.store.values import Project, Scope, Secret, Token, User


def open_store(
    place: str | Path | None = None,
    *,
    read_only: bool = False,
    artifacts: Path | None = None,
    clock: Callable[[], float] = time.time,
    owner: Callable[[], Owner] = this_process,
) -> "Store":
    """Open a store by URL or path, or the user's own; it is made where there is none."""
    database = open_database(locate(place, artifacts=artifacts), read_only=read_only)
    try:
        prepare(database)
    except BaseException:
        database.close()
        raise
    return Store(database, clock=clock, owner=owner)


class Store(Exchange):
    """Runs are named by id, by a part of one, by name, or as `last`. What a call wrote is durable when it returns."""

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # Projects

    def projects(self) -> tuple[Project, ...]:
        return self._read(projects.listed)

    def create_project(self, name: str, *, description: str | None = None) -> None:
        self._write(projects.create, name, description=description, now_us=self._now())

    def rename_project(self, name: str, to: str) -> None:
        self._write(projects.rename, name, to)

    def delete_project(self, name: str, *, with_runs: bool = False) -> None:
        """A project with runs goes only where they are to go with it."""
        self._drop(self._write(projects.remove, name, with_runs=with_runs))

    # Users and tokens

    def create_user(self, name: str) -> User:
        return self._write(people.create_user, name, now_us=self._now())

    def users(self) -> tuple[User, ...]:
        return self._read(people.listed_users)

    def delete_user(self, name: str) -> None:
        self._write(people.delete_user, name)

    def create_token(
        self, user: str, *, name: str = "token", scopes: Iterable[Scope] = ("read",), lasts_s: float | None = None
    ) -> Secret:
        """A new token; its text is in the answer and nowhere else."""
        now = self._now()
        expires = None if lasts_s is None else now + round(lasts_s * 1e6)
        return self._write(people.create_token, user, name, tuple(scopes), (now, expires))

    def tokens(self, user: str | None = None) -> tuple[Token, ...]:
        return self._read(people.listed_tokens, user)

    def revoke_token(self, token: str) -> None:
        self._write(people.revoke, token, now_us=self._now())

    def admitted(self, text: str, scope: Scope = "read") -> Token | None:
        """The token of this text, where it holds and has the scope; None otherwise, without saying why."""
        now = self._now()
        token = self._read(people.admitted, text, scope, now_us=now)
        if token is not None and people.worth_noting(token, now) and not self.database.read_only:
            self._write(people.used, token.id, now_us=now)
        return token
