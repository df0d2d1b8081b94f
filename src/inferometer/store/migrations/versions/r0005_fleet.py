"""The fleet: devices, what jobs want of them, the queue, results, events, files in use, checks and fair shares."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_HELD, _QUEUED = "state IN ('preparing', 'running')", "state = 'queued'"


def _word(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def _of_job() -> sa.Column[str]:
    return sa.Column("job_id", _word(12), sa.ForeignKey("fleet_jobs.id", ondelete="CASCADE"), primary_key=True)


def upgrade() -> None:
    with op.batch_alter_table("tokens") as tokens:
        tokens.add_column(sa.Column("project_id", sa.Integer))
        tokens.create_foreign_key(
            "fk_tokens_project_id", "projects", ["project_id"], ["id"], ondelete="CASCADE"
        )  # fmt: skip
    _create_devices()
    _create_jobs()
    _create_parts()


def _create_devices() -> None:
    op.create_table(
        "fleet_devices",
        sa.Column("name", _word(100), primary_key=True),
        sa.Column("user", _word(100), nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("state", _word(20), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("skew_us", sa.BigInteger, nullable=False),
        sa.Column("registered_us", sa.BigInteger, nullable=False),
        sa.Column("heartbeat_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "fleet_wants",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("device", _word(100)),
        sa.Column("document", _word(2000), nullable=False, unique=True),
    )
    op.create_index("ix_fleet_wants_device", "fleet_wants", ["device"])


def _create_jobs() -> None:
    op.create_table(
        "fleet_jobs",
        sa.Column("id", _word(12), primary_key=True),
        sa.Column("key", _word(64), nullable=False),
        sa.Column("project_id", sa.Integer, sa.ForeignKey("projects.id", ondelete="RESTRICT"), nullable=False),
        sa.Column("user", _word(100), nullable=False),
        sa.Column("name", _word(200)),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("verb", _word(20), nullable=False),
        sa.Column("model", _word(200)),
        sa.Column("runtime", _word(200)),
        sa.Column("wants_id", sa.Integer, sa.ForeignKey("fleet_wants.id", ondelete="RESTRICT"), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("state", _word(10), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("device", _word(100)),
        sa.Column("lease", _word(12)),
        sa.Column("lease_until_us", sa.BigInteger),
        sa.Column("not_before_us", sa.BigInteger, nullable=False),
        sa.Column("cancel_us", sa.BigInteger),
        sa.Column("events", sa.Integer, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("expected_s", sa.Double),
        sa.Column("expected_from", sa.Text),
        sa.Column("moved", sa.Boolean),
        sa.Column("run_id", _word(12), sa.ForeignKey("runs.id", ondelete="SET NULL")),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("leased_us", sa.BigInteger),
        sa.Column("ended_us", sa.BigInteger),
        sa.Column("fetched_us", sa.BigInteger),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_fleet_jobs_created", "fleet_jobs", ["created_us", "id"])
    op.create_index("ix_fleet_jobs_key", "fleet_jobs", ["key", "created_us"])
    op.create_index("ix_fleet_jobs_device", "fleet_jobs", ["device", "created_us"])
    op.create_index("ix_fleet_jobs_run", "fleet_jobs", ["run_id"])
    _index_where("ix_fleet_jobs_queued", ["project_id", "priority", "created_us", "id"], _QUEUED)
    _index_where("ix_fleet_jobs_wanted", ["wants_id", "priority"], _QUEUED)
    _index_where("ix_fleet_jobs_held", ["device"], _HELD, unique=True)


def _index_where(name: str, columns: list[str], condition: str, *, unique: bool = False) -> None:
    where = sa.text(condition)
    op.create_index(name, "fleet_jobs", columns, unique=unique, sqlite_where=where, postgresql_where=where)


def _create_parts() -> None:
    op.create_table(
        "fleet_results", _of_job(), sa.Column("lease", _word(12)), sa.Column("document", sa.LargeBinary, nullable=False)
    )
    op.create_table(
        "fleet_events",
        _of_job(),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table("fleet_files", _of_job(), sa.Column("sha256", _word(64), primary_key=True))
    op.create_index("ix_fleet_files_sha256", "fleet_files", ["sha256"])
    op.create_table(
        "fleet_checks",
        sa.Column("id", _word(12), primary_key=True),
        sa.Column("device", _word(100), nullable=False),
        sa.Column("job_id", _word(12)),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("before_s", sa.Double, nullable=False),
        sa.Column("after_s", sa.Double, nullable=False),
        sa.Column("moved", sa.Boolean, nullable=False),
        sa.Column("waited_s", sa.Double, nullable=False),
    )
    op.create_index("ix_fleet_checks_device", "fleet_checks", ["device", "at_us"])
    op.create_table(
        "fleet_shares",
        sa.Column("project_id", sa.Integer, sa.ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("used_s", sa.Double, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    for name in ("shares", "checks", "files", "events", "results", "jobs", "wants", "devices"):
        op.drop_table(f"fleet_{name}")
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_constraint("fk_tokens_project_id", type_="foreignkey")
        tokens.drop_column("project_id")
