"""Who measured a run, what was noted about it, what it was asked to do; and the hubs it is sent to."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def _word(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def _columns() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("author", _word(100)),
        sa.Column("note", sa.Text),
        sa.Column("batch", sa.BigInteger),
        sa.Column("precision", _word(100)),
        sa.Column("threads", sa.BigInteger),
        sa.Column("workload", _word(500)),
    )


def upgrade() -> None:
    for column in _columns():
        op.add_column("runs", column)
    run_id = sa.Column("run_id", _word(12), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    op.create_table(
        "pushes",
        run_id,
        sa.Column("hub", _word(500), primary_key=True),
        sa.Column("project", _word(100)),
        sa.Column("queued_us", sa.BigInteger, nullable=False),
        sa.Column("sent_us", sa.BigInteger),
        sa.Column("refused", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text),
    )


def downgrade() -> None:
    op.drop_table("pushes")
    for column in reversed(_columns()):
        op.drop_column("runs", column.name)
