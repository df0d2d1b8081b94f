"""The devices that runs were stored of: first and last time each was seen, filled from the runs that are there."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    word = sa.String(200).with_variant(sa.String(200, collation="C"), "postgresql")
    op.create_table(
        "devices",
        sa.Column("name", word, primary_key=True),
        sa.Column("title", sa.Text),
        sa.Column("first_us", sa.BigInteger, nullable=False),
        sa.Column("last_us", sa.BigInteger, nullable=False),
    )
    op.execute(
        "INSERT INTO devices (name, first_us, last_us) "
        "SELECT device, min(created_us), max(created_us) FROM runs WHERE device IS NOT NULL GROUP BY device"
    )


def downgrade() -> None:
    op.drop_table("devices")
