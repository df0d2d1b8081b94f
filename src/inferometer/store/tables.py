"""The current tables. `migrations/` brings a database here; a test keeps the two in step.

What a list shows of a profile stands in `runs` itself, so that a page of a hundred thousand runs is one walk along one
index. The profile's document stands apart, packed: a list never reads past it. Times are whole microseconds since 1970.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

REVISIONS = ("0001", "0002", "0003", "0004")  # every migration, oldest first
VERSION_TABLE = "inferometer_version"  # of our own name: a database may hold another program's alembic_version
OPEN = ("pending", "running")
OPEN_ONLY = "status IN ('pending', 'running')"  # word for word: SQLite uses a partial index for nothing less
_SORTED = ("name", "latency_s", "ttft_s", "tpot_s", "tokens_per_s", "peak_memory_bytes")

metadata = MetaData()


def _word(length: int) -> TypeEngine[str]:
    """Text that is compared byte by byte on both databases, so that both sort alike."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def _of_run(*, primary: bool = True) -> Column[str]:
    return Column("run_id", _word(12), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=primary, nullable=False)


def _where_known(name: str, *columns: str, known: str) -> Index:
    return Index(
        name, *columns, sqlite_where=text(f"{known} IS NOT NULL"), postgresql_where=text(f"{known} IS NOT NULL")
    )


projects = Table(
    "projects",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", _word(100), nullable=False, unique=True),
    Column("description", Text),
    Column("created_us", BigInteger, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", _word(12), primary_key=True),
    Column("project_id", Integer, ForeignKey("projects.id", ondelete="RESTRICT"), nullable=False),
    Column("parent", _word(12), ForeignKey("runs.id", ondelete="SET NULL")),
    Column("name", _word(200)),
    Column("kind", _word(50), nullable=False),
    Column("status", _word(10), nullable=False),
    Column("reason", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("started_us", BigInteger),
    Column("ended_us", BigInteger),
    Column("heartbeat_us", BigInteger),
    Column("host", Text),
    Column("boot", Text),
    Column("space", Text),
    Column("pid", BigInteger),
    Column("born", Text),
    Column("profile_kind", _word(20)),
    Column("model", _word(200)),
    Column("device", _word(200)),
    Column("runtime", _word(200)),
    Column("latency_s", Double),
    Column("ttft_s", Double),
    Column("tpot_s", Double),
    Column("tokens_per_s", Double),
    Column("peak_memory_bytes", BigInteger),
    Column("disturbed", Boolean),
    Column("verified", Boolean),
    Column("words", Text, nullable=False),
    Column("machine", _word(200)),
    Column("machine_id", _word(64)),
    Index("ix_runs_created", "created_us", "id"),
    Index("ix_runs_project_created", "project_id", "created_us", "id"),
    Index("ix_runs_model_created", "model", "created_us", "id"),
    Index("ix_runs_machine_created", "machine_id", "created_us", "id"),
    Index("ix_runs_parent", "parent"),
    Index(
        "ix_runs_open",
        "status",
        sqlite_where=text(OPEN_ONLY),
        postgresql_where=text(OPEN_ONLY),
    ),
    *(_where_known(f"ix_runs_{name}", name, "id", known=name) for name in _SORTED),
    *(_where_known(f"ix_runs_project_{name}", "project_id", name, "id", known=name) for name in _SORTED),
)

profiles = Table(
    "profiles",
    metadata,
    _of_run(),
    Column("size_bytes", BigInteger, nullable=False),
    Column("document", LargeBinary, nullable=False),  # zlib of the profile's JSON document
)

tags = Table("tags", metadata, _of_run(), Column("tag", _word(100), primary_key=True), Index("ix_tags_tag", "tag"))

parameters = Table(
    "parameters", metadata, _of_run(), Column("name", _word(200), primary_key=True), Column("value", Text)
)

metrics = Table(
    "metrics",
    metadata,
    _of_run(),
    Column("name", _word(200), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("value", Double, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)

artifacts = Table(
    "artifacts",
    metadata,
    _of_run(),
    Column("name", _word(200), primary_key=True),
    Column("sha256", _word(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("media_type", Text),
    Index("ix_artifacts_sha256", "sha256"),
)

users = Table(
    "users",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", _word(100), nullable=False, unique=True),
    Column("created_us", BigInteger, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _word(12), primary_key=True),
    Column("user_id", Integer, ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    Column("name", _word(100), nullable=False),
    Column("sha256", _word(64), nullable=False, unique=True),
    Column("scopes", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger),
    Column("used_us", BigInteger),
    Column("revoked_us", BigInteger),
)

devices = Table(
    "devices",
    metadata,
    Column("name", _word(200), primary_key=True),
    Column("title", Text),
    Column("first_us", BigInteger, nullable=False),
    Column("last_us", BigInteger, nullable=False),
)
