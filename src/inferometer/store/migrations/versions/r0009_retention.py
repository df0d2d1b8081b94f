"""How long each project keeps its runs, their files and its jobs, and what was deleted by that."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def _word(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "retention",
        sa.Column("project_id", sa.Integer, sa.ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("runs_s", sa.Double),
        sa.Column("artifacts_s", sa.Double),
        sa.Column("jobs_s", sa.Double),
        sa.Column("keep_tags", sa.Text, nullable=False),
    )
    op.create_table(
        "deletions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("project", _word(100), nullable=False),
        sa.Column("rule", _word(100), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("deletions")
    op.drop_table("retention")
