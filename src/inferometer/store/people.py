"""Users and their tokens.

A token is 256 random bits, so one SHA-256 of it is safe to keep: there is nothing to guess, and a slow hash, which is
for passwords people choose, would only slow every request down.
"""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.store import names
from inferometer.store.finding import project_id, value_of
from inferometer.store.tables import projects, tokens, users
from inferometer.store.values import SCOPES, Scope, Secret, Token, User

_PREFIX = "ifm_"  # so that a token found in a log or a commit is known for what it is
_BYTES = 32
_COUNTED_US = 60_000_000  # "last used" is written once a minute at most


def create_user(connection: Connection, name: str, *, now_us: int) -> User:
    try:
        connection.execute(insert(users), [{"name": names.valid_name("user", name), "created_us": now_us}])
    except IntegrityError:
        raise DomainError(f"There is a user named {name!r} already.", remedy="Choose another name.") from None
    return User(name=name.strip(), created=now_us / 1e6)


def listed_users(connection: Connection) -> tuple[User, ...]:
    rows = connection.execute(select(users).order_by(users.c.name))
    return tuple(value_of(User, row) for row in rows.mappings())


def identified(  # noqa: PLR0913 - who they are there, and what becomes of a stranger
    connection: Connection, issuer: str, subject: str, email: str | None, *, joins: bool, now_us: int
) -> str | None:
    """The user that a provider's identity belongs to; None for a stranger.

    Somebody known is found by who they are at the provider. Else whoever was invited by this e-mail address, and has
    not come yet; else, if anybody of that address `joins`, a new user of that name.
    """
    known = select(users.c.name).where(users.c.issuer == issuer, users.c.subject == subject)
    name = connection.execute(known).scalar()
    if name is not None or email is None:
        return name
    who = {"issuer": issuer, "subject": subject, "email": email}
    invited = update(users).where(func.lower(users.c.name) == email, users.c.subject.is_(None)).values(**who)
    if connection.execute(invited).rowcount:
        return str(connection.execute(known).scalar_one())
    taken = connection.execute(select(users.c.id).where(func.lower(users.c.name) == email)).first()
    if not joins or taken is not None:  # another identity has the address: it may have a new owner
        return None
    row = {"name": names.valid_name("user", email), "created_us": now_us, **who}
    connection.execute(insert(users), [row])
    return email


def delete_user(connection: Connection, name: str) -> None:
    """The user's tokens go too."""
    connection.execute(delete(users).where(users.c.id == user_id(connection, name)))


def user_id(connection: Connection, name: str) -> int:
    user = connection.execute(select(users.c.id).where(users.c.name == name)).scalar()
    if user is None:
        raise UnknownNameError("user", name, list(connection.execute(select(users.c.name)).scalars()))
    return int(user)


@frozen
class NewToken:
    """A token to be. `project` limits an agent to the jobs of one project."""

    user: str
    name: str
    scopes: tuple[Scope, ...]
    now_us: int
    expires_us: int | None = None
    project: str | None = None


def create_token(connection: Connection, new: NewToken) -> Secret:
    text, now_us = _PREFIX + secrets.token_urlsafe(_BYTES), new.now_us
    wanted = tuple(scope for scope in SCOPES if scope in new.scopes)
    unknown = set(new.scopes) - set(SCOPES)
    if unknown or not wanted:
        wrong = min(unknown) if unknown else ""
        raise UnknownNameError("scope", wrong, SCOPES, listing=f"There is: {', '.join(SCOPES)}.")
    row = {
        "id": names.new_id(now_us / 1e6),
        "user_id": user_id(connection, new.user),
        "name": names.valid_name("token", new.name),
        "sha256": hashed(text),
        "scopes": " ".join(wanted),
        "created_us": now_us,
        "expires_us": new.expires_us,
        "project_id": None if new.project is None else project_id(connection, new.project),
    }
    connection.execute(insert(tokens), [row])
    shown = {**row, "used_us": None, "revoked_us": None, "user": new.user, "project": new.project}
    return Secret(token=token_of_row(shown), text=text)


def listed_tokens(connection: Connection, user: str | None = None) -> tuple[Token, ...]:
    query = tokens_query().order_by(tokens.c.created_us.desc(), tokens.c.id)
    if user is not None:
        query = query.where(tokens.c.user_id == user_id(connection, user))
    return tuple(token_of_row(row) for row in connection.execute(query).mappings())


def revoke(connection: Connection, token: str, *, now_us: int) -> None:
    changed = connection.execute(
        update(tokens).where(tokens.c.id == token, tokens.c.revoked_us.is_(None)).values(revoked_us=now_us)
    )
    if not changed.rowcount and connection.execute(select(tokens.c.id).where(tokens.c.id == token)).first() is None:
        raise UnknownNameError("token", token, list(connection.execute(select(tokens.c.id)).scalars()))


def admitted(connection: Connection, text: str, *, now_us: int) -> Token | None:
    """The token of this text; None if it is unknown, revoked or expired."""
    return holding(connection, tokens.c.sha256 == hashed(text), now_us=now_us)


def holding(connection: Connection, which: ColumnElement[bool], *, now_us: int) -> Token | None:
    """The token, if there is one and it still holds."""
    row = connection.execute(tokens_query().where(which)).mappings().first()
    token = None if row is None else token_of_row(row)
    return token if token is not None and token.holds(now_us / 1e6) else None


def used(connection: Connection, token: str, *, now_us: int) -> None:
    connection.execute(update(tokens).where(tokens.c.id == token).values(used_us=now_us))


def worth_noting(token: Token, now_us: int) -> bool:
    return token.used is None or now_us - token.used * 1e6 > _COUNTED_US


def tokens_query() -> Select[Any]:
    named = select(tokens, users.c.name.label("user"), projects.c.name.label("project"))
    return named.join(users, users.c.id == tokens.c.user_id).outerjoin(projects, projects.c.id == tokens.c.project_id)


def token_of_row(row: Mapping[str, Any] | RowMapping) -> Token:
    return value_of(Token, row, scopes=tuple(row["scopes"].split()))


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
