"""Who asks: the holder of a token, or a browser that has signed in, with their role in each project.

A browser's cookie is a random number of its own. The session behind it ends after half a day without a request, after a
month at the latest, when it is signed out, and with the token that it was begun with.
"""

import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, insert, select, update

from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.store import names
from inferometer.store.finding import value_of
from inferometer.store.members import roles_of
from inferometer.store.people import hashed, holding, user_id
from inferometer.store.tables import sessions, tokens, users
from inferometer.store.values import Role, Scope, SessionRow, Token, Visitor

PREFIX = "ifs_"
IDLE_S, LONGEST_S = 12 * 3600.0, 30 * 86400.0
_NOTED_US = 300_000_000  # a session's last use is written so often: idle times are hours, and a write empties caches
_BYTES = 32
_SIGNED_IN: tuple[Scope, ...] = ("read", "write")  # of who comes through a provider: roles say what they may do where


@frozen
class NewSession:
    user: str
    token: str | None = None
    address: str | None = None
    browser: str | None = None


def begin_session(connection: Connection, new: NewSession, *, now_us: int) -> str:
    """The text of the cookie, which is kept nowhere."""
    text = PREFIX + secrets.token_urlsafe(_BYTES)
    row = {
        "id": names.new_id(now_us / 1e6),
        "sha256": hashed(text),
        "user_id": user_id(connection, new.user),
        "token_id": new.token,
        "created_us": now_us,
        "used_us": now_us,
        "address": names.clean(new.address, most=100),
        "browser": names.clean(new.browser, most=300),
    }
    connection.execute(insert(sessions), [row])
    return text


def end_session(connection: Connection, session: str, *, user: str | None = None, now_us: int) -> None:
    """`user`: only if it is theirs; another's is not there."""
    query = select(sessions.c.id).join(users, users.c.id == sessions.c.user_id).where(sessions.c.id == session)
    if connection.execute(query if user is None else query.where(users.c.name == user)).first() is None:
        raise UnknownNameError("session", session, [])
    change = update(sessions).where(sessions.c.id == session, sessions.c.ended_us.is_(None))
    connection.execute(change.values(ended_us=now_us))


def listed_sessions(connection: Connection, user: str, *, now_us: int) -> tuple[SessionRow, ...]:
    """Those that still hold, the last used first."""
    query = _sessions().where(users.c.name == user).order_by(sessions.c.used_us.desc())
    rows = [row for row in connection.execute(query).mappings() if _holds(connection, row, now_us)]
    return tuple(value_of(SessionRow, row) for row in rows)


def _sessions() -> Select[Any]:
    return select(sessions, users.c.name.label("user")).join(users, users.c.id == sessions.c.user_id)


def _holds(connection: Connection, row: Mapping[Any, Any], now_us: int) -> bool:
    if row["ended_us"] is not None or _ends_us(row) <= now_us:
        return False
    return row["token_id"] is None or holding(connection, tokens.c.id == row["token_id"], now_us=now_us) is not None


def _ends_us(row: Mapping[Any, Any]) -> float:
    return float(min(row["used_us"] + IDLE_S * 1e6, row["created_us"] + LONGEST_S * 1e6))


def by_session(connection: Connection, text: str, *, now_us: int) -> Visitor | None:
    return _signed_in(connection, sessions.c.sha256 == hashed(text), now_us)


def again(connection: Connection, visitor: Visitor, *, now_us: int) -> Visitor | None:
    """The same visitor as of now: None if their token or session has ended meanwhile."""
    if visitor.session is not None:
        return _signed_in(connection, sessions.c.id == visitor.session, now_us)
    token = None if visitor.token is None else holding(connection, tokens.c.id == visitor.token, now_us=now_us)
    return None if token is None else by_token(connection, token)


def _signed_in(connection: Connection, condition: Any, now_us: int) -> Visitor | None:
    row = connection.execute(_sessions().where(condition)).mappings().first()
    if row is None or not _holds(connection, row, now_us):
        return None
    ends, noted = _ends_us(row) / 1e6, row["used_us"] / 1e6
    if row["token_id"] is None:
        return _visitor(connection, row["user"], _SIGNED_IN, session=row["id"], until=ends, noted=noted)
    token = holding(connection, tokens.c.id == row["token_id"], now_us=now_us)
    assert token is not None  # noqa: S101 - the session holds only if its token does
    until = ends if token.expires is None else min(ends, token.expires)
    return _visitor(
        connection, token.user, token.scopes, token=token.id, session=row["id"], project=token.project, until=until,
        noted=noted,
    )  # fmt: skip


def by_token(connection: Connection, token: Token) -> Visitor:
    return _visitor(
        connection, token.user, token.scopes, token=token.id, project=token.project, until=token.expires,
        noted=token.used or 0.0,
    )  # fmt: skip


def _visitor(connection: Connection, user: str, scopes: tuple[Scope, ...], **known: Any) -> Visitor:
    only = known.get("project")
    if "admin" in scopes and only is None:
        return Visitor(user=user, scopes=scopes, roles=None, **known)
    found = roles_of(connection, user) if {"read", "write", "admin"}.intersection(scopes) else {}
    found = {name: held for name, held in found.items() if only in {None, name}}
    capped: Role | None = None if {"write", "admin"}.intersection(scopes) else "reader"
    roles = {name: capped or role for name, (_, role) in found.items()}
    numbers = frozenset(number for number, _ in found.values())
    return Visitor(user=user, scopes=scopes, roles=roles, numbers=numbers, **known)


def worth_noting(visitor: Visitor, now_us: int) -> bool:
    return visitor.session is not None and now_us - visitor.noted * 1e6 > _NOTED_US


def note_use(connection: Connection, session: str, *, now_us: int) -> None:
    connection.execute(update(sessions).where(sessions.c.id == session).values(used_us=now_us))
