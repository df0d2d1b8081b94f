"""The machine that each run was measured on. Runs that are there already carry none: they stay without."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def _word(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("runs", sa.Column("machine", _word(200)))
    op.add_column("runs", sa.Column("machine_id", _word(64)))
    op.create_index("ix_runs_machine_created", "runs", ["machine_id", "created_us", "id"])


def downgrade() -> None:
    op.drop_index("ix_runs_machine_created", "runs")
    op.drop_column("runs", "machine_id")
    op.drop_column("runs", "machine")
