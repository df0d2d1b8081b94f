"""Users, and the tokens that let them in from other machines."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def _word(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", _word(100), nullable=False, unique=True),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", _word(12), primary_key=True),
        sa.Column("user_id", sa.Integer, sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", _word(100), nullable=False),
        sa.Column("sha256", _word(64), nullable=False, unique=True),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger),
        sa.Column("used_us", sa.BigInteger),
        sa.Column("revoked_us", sa.BigInteger),
    )


def downgrade() -> None:
    op.drop_table("tokens")
    op.drop_table("users")
