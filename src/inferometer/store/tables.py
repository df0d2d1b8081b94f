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
    false,
    text,
)
from sqlalchemy.types import TypeEngine

OPEN = ("pending", "running")
OPEN_ONLY = "status IN ('pending', 'running')"  # word for word: SQLite uses a partial index for nothing less
HELD_ONLY = "state IN ('preparing', 'running')"  # of jobs that a device has; word for word, as above
QUEUED_ONLY = "state = 'queued'"
_SORTED = ("name", "latency_s", "ttft_s", "tpot_s", "tokens_per_s", "peak_memory_bytes")

metadata = MetaData()


def _word(length: int) -> TypeEngine[str]:
    """Text that is compared byte by byte on both databases, so that both sort alike."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def _of_run() -> Column[str]:
    return Column("run_id", _word(12), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, nullable=False)


def _only(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index of some rows. Migrations make it in both databases; to name PostgreSQL here would load its drivers."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where))


projects = Table(
    "projects",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", _word(100), nullable=False, unique=True),
    Column("description", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("open", Boolean, nullable=False, server_default=false()),  # to everybody who is signed in, for reading
    # The highest priority that members may give their jobs.
    Column("writer_priority", Integer, nullable=False, server_default=text("10")),
    Column("owner_priority", Integer, nullable=False, server_default=text("50")),
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
    Column("author", _word(100)),  # who measured it, or brought it here
    Column("note", Text),
    Column("batch", BigInteger),
    Column("precision", _word(100)),
    Column("threads", BigInteger),
    Column("workload", _word(500)),  # all sizes as one text: only runs that share it belong on one line
    Index("ix_runs_created", "created_us", "id"),
    Index("ix_runs_project_created", "project_id", "created_us", "id"),
    Index("ix_runs_model_created", "model", "created_us", "id"),
    Index("ix_runs_machine_created", "machine_id", "created_us", "id"),
    Index("ix_runs_parent", "parent"),
    _only("ix_runs_open", "status", where=OPEN_ONLY),
    *(_only(f"ix_runs_{name}", name, "id", where=f"{name} IS NOT NULL") for name in _SORTED),
    *(_only(f"ix_runs_project_{name}", "project_id", name, "id", where=f"{name} IS NOT NULL") for name in _SORTED),
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

# Runs that are to be sent to a hub, and those that it has.
pushes = Table(
    "pushes",
    metadata,
    _of_run(),
    Column("hub", _word(500), primary_key=True),
    Column("project", _word(100)),  # there; the run's own, if null
    Column("queued_us", BigInteger, nullable=False),
    Column("sent_us", BigInteger),
    Column("refused", Boolean, nullable=False),  # for good: it is not sent again by itself
    Column("reason", Text),
)

users = Table(
    "users",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", _word(100), nullable=False, unique=True),
    Column("created_us", BigInteger, nullable=False),
    # Who a provider of identities says they are, once they have signed in through it.
    Column("issuer", _word(500)),
    Column("subject", _word(255)),
    Column("email", _word(320)),
    Index("ix_users_identity", "issuer", "subject", unique=True),
)

members = Table(
    "members",
    metadata,
    Column("project_id", Integer, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", Integer, ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    Column("role", _word(10), nullable=False),
    Column("since_us", BigInteger, nullable=False),
    Index("ix_members_user", "user_id"),
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
    Column("project_id", Integer, ForeignKey("projects.id", ondelete="CASCADE")),  # all projects, if null
)

# Who has signed in with a browser. The cookie is random and only its hash is here.
sessions = Table(
    "sessions",
    metadata,
    Column("id", _word(12), primary_key=True),
    Column("sha256", _word(64), nullable=False, unique=True),
    Column("user_id", Integer, ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    Column("token_id", _word(12), ForeignKey("tokens.id", ondelete="CASCADE")),  # none: through a provider
    Column("created_us", BigInteger, nullable=False),
    Column("used_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("address", _word(100)),
    Column("browser", _word(300)),
    Index("ix_sessions_user", "user_id"),
    Index("ix_sessions_token", "token_id"),
)

# Links that show one run, or one comparison, to whoever has them.
share_links = Table(
    "share_links",
    metadata,
    Column("id", _word(12), primary_key=True),
    Column("sha256", _word(64), nullable=False, unique=True),
    Column("user_id", Integer, ForeignKey("users.id", ondelete="CASCADE")),  # who made it; none: this machine's user
    Column("runs", Text, nullable=False),  # their ids; a comparison has several, its baseline first
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger),
    Index("ix_share_links_user", "user_id"),
)

# Who did what. Rows are added, and go when they are old; nothing changes them.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("user", _word(100), nullable=False),
    Column("token_id", _word(12)),
    Column("session_id", _word(12)),
    Column("address", _word(100)),
    Column("action", _word(50), nullable=False),
    Column("project_id", Integer, ForeignKey("projects.id", ondelete="SET NULL")),
    Column("project", _word(100)),  # as it was called then
    Column("subject", _word(500)),
    Column("detail", Text),
    Index("ix_audit_project", "project_id", "id"),
    Index("ix_audit_at", "at_us"),
)

devices = Table(
    "devices",
    metadata,
    Column("name", _word(200), primary_key=True),
    Column("title", Text),
    Column("first_us", BigInteger, nullable=False),
    Column("last_us", BigInteger, nullable=False),
)


# The fleet: devices that take jobs from a queue. `store/queue` works with these.

fleet_devices = Table(
    "fleet_devices",
    metadata,
    Column("name", _word(100), primary_key=True),
    Column("user", _word(100), nullable=False),  # whose agent it is
    Column("labels", Text, nullable=False),
    Column("facts", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("state", _word(20), nullable=False),
    Column("reason", Text),
    Column("failures", Integer, nullable=False),  # jobs in a row that it did not bring to an end
    Column("skew_us", BigInteger, nullable=False),  # its clock less ours
    Column("token", _word(12)),  # that it registered with: what it holds ends with it
    Column("probes", Boolean),  # whether its agent can be asked for the reference alone
    Column("probe_us", BigInteger),  # since when it has to run the reference before it gets another job
    Column("registered_us", BigInteger, nullable=False),
    Column("heartbeat_us", BigInteger, nullable=False),
    Column("everyone", Boolean, nullable=False, server_default=false()),  # it takes the jobs of every project
)

fleet_device_projects = Table(
    "fleet_device_projects",
    metadata,
    Column("device", _word(100), ForeignKey("fleet_devices.name", ondelete="CASCADE"), primary_key=True),
    Column("project_id", Integer, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Index("ix_fleet_device_projects_project", "project_id"),
)

# What jobs ask of a device. Few jobs ask for something new, so a device is compared with these and not with each job.
fleet_wants = Table(
    "fleet_wants",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("device", _word(100)),
    Column("document", _word(2000), nullable=False, unique=True),
    Index("ix_fleet_wants_device", "device"),
)

fleet_jobs = Table(
    "fleet_jobs",
    metadata,
    Column("id", _word(12), primary_key=True),
    Column("key", _word(64), nullable=False),
    Column("project_id", Integer, ForeignKey("projects.id", ondelete="RESTRICT"), nullable=False),
    Column("user", _word(100), nullable=False),
    Column("name", _word(200)),
    Column("tags", Text, nullable=False),
    Column("verb", _word(20), nullable=False),
    Column("model", _word(200)),
    Column("runtime", _word(200)),
    Column("wants_id", Integer, ForeignKey("fleet_wants.id", ondelete="RESTRICT"), nullable=False),
    Column("priority", Integer, nullable=False),
    # SQLite keeps longer words than it says, and could only be told so by making the table anew: that empties others.
    Column("state", String(10).with_variant(String(20, collation="C"), "postgresql"), nullable=False),
    Column("reason", Text),
    Column("attempts", Integer, nullable=False),
    Column("device", _word(100)),
    Column("lease", _word(12)),
    Column("lease_until_us", BigInteger),
    Column("not_before_us", BigInteger, nullable=False),
    Column("cancel_us", BigInteger),
    Column("events", Integer, nullable=False),  # how many there are
    Column("sequence", Integer, nullable=False),  # the last one of this lease, by its agent's count
    Column("expected_s", Double),
    Column("expected_from", Text),
    Column("moved", Boolean),  # whether the reference moved while it was measured
    Column("run_id", _word(12), ForeignKey("runs.id", ondelete="SET NULL")),
    Column("created_us", BigInteger, nullable=False),
    Column("leased_us", BigInteger),
    Column("heard_us", BigInteger),  # when its device last had something to tell of it
    Column("late_us", BigInteger),  # when it was said that it takes far longer than expected
    Column("ended_us", BigInteger),
    Column("fetched_us", BigInteger),
    Column("document", LargeBinary, nullable=False),  # zlib of the job's JSON document
    Index("ix_fleet_jobs_created", "created_us", "id"),
    Index("ix_fleet_jobs_key", "key", "created_us"),
    Index("ix_fleet_jobs_device", "device", "created_us"),
    Index("ix_fleet_jobs_run", "run_id"),
    _only("ix_fleet_jobs_queued", "project_id", "priority", "created_us", "id", where=QUEUED_ONLY),
    _only("ix_fleet_jobs_wanted", "wants_id", "priority", where=QUEUED_ONLY),
    _only("ix_fleet_jobs_held", "device", where=HELD_ONLY, unique=True),  # a device measures one job at a time
)


def _of_job() -> Column[str]:
    return Column("job_id", _word(12), ForeignKey("fleet_jobs.id", ondelete="CASCADE"), primary_key=True)


fleet_results = Table(
    "fleet_results",
    metadata,
    _of_job(),
    Column("lease", _word(12)),  # that brought it; none for a job that ended in the queue
    Column("document", LargeBinary, nullable=False),  # zlib of the result's JSON document
)

fleet_events = Table(
    "fleet_events",
    metadata,
    _of_job(),
    Column("number", Integer, primary_key=True),
    Column("document", Text, nullable=False),
)

fleet_files = Table(
    "fleet_files",
    metadata,
    _of_job(),
    Column("sha256", _word(64), primary_key=True),
    Index("ix_fleet_files_sha256", "sha256"),
)

fleet_checks = Table(
    "fleet_checks",
    metadata,
    Column("id", _word(12), primary_key=True),  # of the lease
    Column("device", _word(100), nullable=False),
    Column("job_id", _word(12)),
    Column("at_us", BigInteger, nullable=False),
    Column("before_s", Double, nullable=False),
    Column("after_s", Double, nullable=False),
    Column("moved", Boolean, nullable=False),
    Column("waited_s", Double, nullable=False),
    Index("ix_fleet_checks_device", "device", "at_us"),
)

# What devices did wrong: jobs that they lost, and answers that were refused. `document` is such an answer, set aside.
fleet_faults = Table(
    "fleet_faults",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("device", _word(100), nullable=False),
    Column("job_id", _word(12)),
    Column("lease", _word(12)),
    Column("at_us", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("document", LargeBinary),
    Index("ix_fleet_faults_device", "device", "at_us"),
)

fleet_shares = Table(
    "fleet_shares",
    metadata,
    Column("project_id", Integer, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("used_s", Double, nullable=False),  # of devices' time, halved every hour
    Column("at_us", BigInteger, nullable=False),
)

# How long a project keeps its runs, their files and its jobs; for ever, where that is null.
retention = Table(
    "retention",
    metadata,
    Column("project_id", Integer, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("runs_s", Double),
    Column("artifacts_s", Double),
    Column("jobs_s", Double),
    Column("keep_tags", Text, nullable=False),  # a JSON list
)

# What was deleted by that. A project that is gone stays named here.
deletions = Table(
    "deletions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("project", _word(100), nullable=False),
    Column("rule", _word(100), nullable=False),
    Column("number", Integer, nullable=False),
)
