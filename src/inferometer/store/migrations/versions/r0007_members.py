"""Members of projects, sessions, share links, the audit log; and which projects a device works for.

Nobody is locked out and nobody sees more than before: whoever holds a token becomes a member of the projects that are
here, with the role that the token gave; a device that took the jobs of every project still does. Projects and users
that come later begin with no members but whoever makes the project.
"""

import time
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_PROJECT_COLUMNS = ("open", "writer_priority", "owner_priority")
_USER_COLUMNS = ("issuer", "subject", "email")
_TABLES = ("fleet_device_projects", "audit", "share_links", "sessions", "members")


def _word(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def _id() -> sa.Column[str]:
    return sa.Column("id", _word(12), primary_key=True)


def _of(table: str, name: str, kind: Any, **options: bool) -> sa.Column[Any]:
    """A column that leads to another table's row, and goes with it."""
    key = sa.ForeignKey(f"{table}.{'name' if table == 'fleet_devices' else 'id'}", ondelete="CASCADE")
    return sa.Column(
        name, kind, key, primary_key=options.get("primary_key", False), nullable=options.get("null", False)
    )


def upgrade() -> None:
    whole = sa.Integer()
    op.add_column("projects", sa.Column("open", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("projects", sa.Column("writer_priority", whole, nullable=False, server_default=sa.text("10")))
    op.add_column("projects", sa.Column("owner_priority", whole, nullable=False, server_default=sa.text("50")))
    for name, length in zip(_USER_COLUMNS, (500, 255, 320), strict=True):
        op.add_column("users", sa.Column(name, _word(length)))
    op.create_index("ix_users_identity", "users", ["issuer", "subject"], unique=True)
    op.add_column("fleet_devices", sa.Column("everyone", sa.Boolean, nullable=False, server_default=sa.false()))
    _create_people()
    _create_audit()
    op.create_table(
        "fleet_device_projects",
        _of("fleet_devices", "device", _word(100), primary_key=True),
        _of("projects", "project_id", whole, primary_key=True),
    )
    op.create_index("ix_fleet_device_projects_project", "fleet_device_projects", ["project_id"])
    _fill_members()
    op.get_bind().execute(sa.update(sa.table("fleet_devices", sa.column("everyone"))).values(everyone=sa.true()))


def _create_people() -> None:
    moment = sa.BigInteger()
    op.create_table(
        "members",
        _of("projects", "project_id", sa.Integer(), primary_key=True),
        _of("users", "user_id", sa.Integer(), primary_key=True),
        sa.Column("role", _word(10), nullable=False),
        sa.Column("since_us", moment, nullable=False),
    )
    op.create_index("ix_members_user", "members", ["user_id"])
    op.create_table(
        "sessions",
        _id(),
        sa.Column("sha256", _word(64), nullable=False, unique=True),
        _of("users", "user_id", sa.Integer()),
        _of("tokens", "token_id", _word(12), null=True),
        sa.Column("created_us", moment, nullable=False),
        sa.Column("used_us", moment, nullable=False),
        sa.Column("ended_us", moment),
        sa.Column("address", _word(100)),
        sa.Column("browser", _word(300)),
    )
    op.create_index("ix_sessions_user", "sessions", ["user_id"])
    op.create_index("ix_sessions_token", "sessions", ["token_id"])
    op.create_table(
        "share_links",
        _id(),
        sa.Column("sha256", _word(64), nullable=False, unique=True),
        _of("users", "user_id", sa.Integer(), null=True),
        sa.Column("runs", sa.Text, nullable=False),
        sa.Column("created_us", moment, nullable=False),
        sa.Column("expires_us", moment, nullable=False),
        sa.Column("revoked_us", moment),
    )
    op.create_index("ix_share_links_user", "share_links", ["user_id"])


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("user", _word(100), nullable=False),
        sa.Column("token_id", _word(12)),
        sa.Column("session_id", _word(12)),
        sa.Column("address", _word(100)),
        sa.Column("action", _word(50), nullable=False),
        sa.Column("project_id", sa.Integer, sa.ForeignKey("projects.id", ondelete="SET NULL")),
        sa.Column("project", _word(100)),
        sa.Column("subject", _word(500)),
        sa.Column("detail", sa.Text),
    )
    op.create_index("ix_audit_project", "audit", ["project_id", "id"])
    op.create_index("ix_audit_at", "audit", ["at_us"])
    _forbid_changes()


def _forbid_changes() -> None:
    """Rows of the audit log are added and removed. The one change is that a deleted project's number is taken away."""
    kept = ("at_us", "user", "token_id", "session_id", "address", "action", "project", "subject", "detail")
    columns = ", ".join(f'"{name}"' for name in kept)
    before, refuse = f"CREATE TRIGGER audit_stays BEFORE UPDATE OF {columns} ON audit", "the audit log is not changed"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"{before} BEGIN SELECT RAISE(ABORT, '{refuse}'); END")
        return
    body = f"BEGIN RAISE EXCEPTION '{refuse}'; END"
    op.execute(f"CREATE OR REPLACE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    op.execute(f"{before} FOR EACH ROW EXECUTE FUNCTION audit_stays()")


def _fill_members() -> None:
    """By the strongest scope of each user's tokens that are not revoked. One for a single project counts there only."""
    connection, now_us = op.get_bind(), round(time.time() * 1e6)
    held = connection.execute(sa.text("SELECT user_id, scopes, project_id FROM tokens WHERE revoked_us IS NULL")).all()
    every = list(connection.execute(sa.text("SELECT id FROM projects")).scalars())
    rank = {"reader": 1, "writer": 2, "owner": 3}
    roles: dict[tuple[int, int], str] = {}
    for user, scopes, only in held:
        given = scopes.split()
        role = next((r for s, r in (("admin", "owner"), ("write", "writer"), ("read", "reader")) if s in given), None)
        for project in every if only is None else [only]:
            if role is not None and rank[role] > rank.get(roles.get((project, user), ""), 0):
                roles[project, user] = role
    rows = [
        {"project_id": project, "user_id": user, "role": role, "since_us": now_us}
        for (project, user), role in roles.items()
    ]
    if rows:
        table = sa.table("members", *(sa.column(name) for name in rows[0]))
        op.bulk_insert(table, rows)


def downgrade() -> None:
    for table in _TABLES:
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_stays()")
    op.drop_column("fleet_devices", "everyone")
    op.drop_index("ix_users_identity", "users")
    for name in reversed(_USER_COLUMNS):
        op.drop_column("users", name)
    for name in reversed(_PROJECT_COLUMNS):
        op.drop_column("projects", name)
