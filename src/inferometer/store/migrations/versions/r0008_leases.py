"""Leases that end with their token, devices that are probed, jobs that are late or inconclusive, and faults."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def _word(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def _columns() -> tuple[tuple[str, sa.Column[object]], ...]:
    return (
        ("fleet_devices", sa.Column("token", _word(12))),
        ("fleet_devices", sa.Column("probes", sa.Boolean)),
        ("fleet_devices", sa.Column("probe_us", sa.BigInteger)),
        ("fleet_jobs", sa.Column("heard_us", sa.BigInteger)),
        ("fleet_jobs", sa.Column("late_us", sa.BigInteger)),
    )


def upgrade() -> None:
    for table, column in _columns():
        op.add_column(table, column)
    _allow_words_of(20)
    op.create_table(
        "fleet_faults",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("device", _word(100), nullable=False),
        sa.Column("job_id", _word(12)),
        sa.Column("lease", _word(12)),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("document", sa.LargeBinary),
    )
    op.create_index("ix_fleet_faults_device", "fleet_faults", ["device", "at_us"])


def _allow_words_of(length: int) -> None:
    """For the state of a job. SQLite keeps whatever it is given."""
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("fleet_jobs", "state", type_=sa.String(length, collation="C"))


def downgrade() -> None:
    """An earlier version knows `inconclusive` neither as a state nor in an event: both become `failed`."""
    op.execute("UPDATE fleet_jobs SET state = 'failed' WHERE state = 'inconclusive'")
    op.execute(
        """UPDATE fleet_events SET document = replace(document, '"state":"inconclusive"', '"state":"failed"')
        WHERE document LIKE '%"state":"inconclusive"%'"""
    )
    op.drop_table("fleet_faults")
    _allow_words_of(10)
    for table, column in reversed(_columns()):
        op.drop_column(table, column.name)
