"""Projects, runs and what belongs to a run."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TIMES = ("latency_s", "ttft_s", "tpot_s", "tokens_per_s")
_SORTED = ("name", *_TIMES, "peak_memory_bytes")


def _word(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def _of_run() -> sa.Column[str]:
    return sa.Column("run_id", _word(12), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", _word(100), nullable=False, unique=True),
        sa.Column("description", sa.Text),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    _create_runs()
    _index_runs()
    _create_parts()


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", _word(12), primary_key=True),
        sa.Column("project_id", sa.Integer, sa.ForeignKey("projects.id", ondelete="RESTRICT"), nullable=False),
        sa.Column("parent", _word(12), sa.ForeignKey("runs.id", ondelete="SET NULL")),
        sa.Column("name", _word(200)),
        sa.Column("kind", _word(50), nullable=False),
        sa.Column("status", _word(10), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("started_us", sa.BigInteger),
        sa.Column("ended_us", sa.BigInteger),
        sa.Column("heartbeat_us", sa.BigInteger),
        sa.Column("host", sa.Text),
        sa.Column("boot", sa.Text),
        sa.Column("space", sa.Text),
        sa.Column("pid", sa.BigInteger),
        sa.Column("born", sa.Text),
        sa.Column("profile_kind", _word(20)),
        sa.Column("model", _word(200)),
        sa.Column("device", _word(200)),
        sa.Column("runtime", _word(200)),
        *(sa.Column(name, sa.Double) for name in _TIMES),
        sa.Column("peak_memory_bytes", sa.BigInteger),
        sa.Column("disturbed", sa.Boolean),
        sa.Column("verified", sa.Boolean),
        sa.Column("words", sa.Text, nullable=False),
    )


def _index_runs() -> None:
    op.create_index("ix_runs_created", "runs", ["created_us", "id"])
    op.create_index("ix_runs_project_created", "runs", ["project_id", "created_us", "id"])
    op.create_index("ix_runs_model_created", "runs", ["model", "created_us", "id"])
    op.create_index("ix_runs_parent", "runs", ["parent"])
    _index_where("ix_runs_open", ["status"], "status IN ('pending', 'running')")
    for name in _SORTED:
        _index_where(f"ix_runs_{name}", [name, "id"], f"{name} IS NOT NULL")
        _index_where(f"ix_runs_project_{name}", ["project_id", name, "id"], f"{name} IS NOT NULL")


def _index_where(name: str, columns: list[str], condition: str) -> None:
    op.create_index(name, "runs", columns, sqlite_where=sa.text(condition), postgresql_where=sa.text(condition))


def _create_parts() -> None:
    op.create_table(
        "profiles",
        _of_run(),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_table("tags", _of_run(), sa.Column("tag", _word(100), primary_key=True))
    op.create_index("ix_tags_tag", "tags", ["tag"])
    op.create_table(
        "parameters", _of_run(), sa.Column("name", _word(200), primary_key=True), sa.Column("value", sa.Text)
    )
    op.create_table(
        "metrics",
        _of_run(),
        sa.Column("name", _word(200), primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "artifacts",
        _of_run(),
        sa.Column("name", _word(200), primary_key=True),
        sa.Column("sha256", _word(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("media_type", sa.Text),
    )
    op.create_index("ix_artifacts_sha256", "artifacts", ["sha256"])


def downgrade() -> None:
    for name in ("artifacts", "metrics", "parameters", "tags", "profiles", "runs", "projects"):
        op.drop_table(name)
