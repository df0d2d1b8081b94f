"""Share links: one run, or one comparison, for whoever has the link, until it ends.

A link lends its maker's right to see: it opens only what its maker may still see.
"""

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, insert, select, update

from inferometer.core.errors import UnknownNameError
from inferometer.store import names
from inferometer.store.finding import in_sight, value_of
from inferometer.store.members import roles_of
from inferometer.store.people import hashed, listed_tokens, user_id
from inferometer.store.tables import projects, runs, share_links, users
from inferometer.store.values import ShareLink, Sight

_PREFIX = "ifl_"
_BYTES = 32


def create(connection: Connection, wanted: Sequence[str], *, user: str | None, expires_us: int, now_us: int) -> str:
    """The text of a link to these runs, which is kept nowhere."""
    text = _PREFIX + secrets.token_urlsafe(_BYTES)
    row = {
        "id": names.new_id(now_us / 1e6),
        "sha256": hashed(text),
        "user_id": None if user is None else user_id(connection, user),
        "runs": " ".join(wanted),
        "created_us": now_us,
        "expires_us": expires_us,
    }
    connection.execute(insert(share_links), [row])
    return text


def opened(connection: Connection, text: str, *, now_us: int) -> ShareLink | None:
    """The link of this text, if it holds, and its maker may still see every run of it."""
    query = _links().where(share_links.c.sha256 == hashed(text), share_links.c.revoked_us.is_(None))
    row = connection.execute(query.where(share_links.c.expires_us > now_us)).mappings().first()
    if row is None:
        return None
    link = _link(row)
    sight = None if link.user is None else _sight_of(connection, link.user, now_us)
    there = select(runs.c.id).where(runs.c.id.in_(link.runs), *in_sight(sight))
    return link if len(connection.execute(there).all()) == len(link.runs) else None


def _sight_of(connection: Connection, user: str, now_us: int) -> Sight | None:
    """What a user may see by now; None is everything, for who holds a token of an administrator."""
    held = listed_tokens(connection, user)
    if any(token.allows("admin") and token.project is None and token.holds(now_us / 1e6) for token in held):
        return None
    return Sight(projects=frozenset(number for number, _ in roles_of(connection, user).values()), user=user)


def listed(
    connection: Connection, *, user: str | None = None, projects_: frozenset[str] | None = None, now_us: int
) -> tuple[ShareLink, ...]:
    """The links that hold: all, or those of a user and those to runs of these projects."""
    query = _links().where(share_links.c.revoked_us.is_(None), share_links.c.expires_us > now_us)
    links = [_link(row) for row in connection.execute(query.order_by(share_links.c.created_us.desc())).mappings()]
    if user is None:
        return tuple(links)
    wanted = {run for link in links for run in link.runs}
    theirs = select(runs.c.id).join(projects, projects.c.id == runs.c.project_id)
    theirs = theirs.where(runs.c.id.in_(wanted), projects.c.name.in_(projects_ or ()))
    owned = set(connection.execute(theirs).scalars())
    return tuple(link for link in links if link.user == user or not owned.isdisjoint(link.runs))


def revoke(connection: Connection, link: str, *, now_us: int) -> None:
    change = update(share_links).where(share_links.c.id == link, share_links.c.revoked_us.is_(None))
    if not connection.execute(change.values(revoked_us=now_us)).rowcount:
        raise UnknownNameError("link", link, [])


def _links() -> Select[Any]:
    return select(share_links, users.c.name.label("user")).outerjoin(users, users.c.id == share_links.c.user_id)


def _link(row: RowMapping) -> ShareLink:
    return value_of(ShareLink, row, runs=tuple(row["runs"].split()))
