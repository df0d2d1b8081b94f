"""The values of the store's interface, besides `core.run.Run`. Times are seconds since 1970, UTC."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, get_args

from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Status

# What a list may be sorted by: the name people type, and the column.
SORTS: Mapping[str, str] = {
    "created": "created_us",
    "name": "name",
    "model": "model",
    "device": "device",
    "machine": "machine",
    "author": "author",
    "batch": "batch",
    "precision": "precision",
    "threads": "threads",
    "status": "status",
    "latency": "latency_s",
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "tokens": "tokens_per_s",
    "memory": "peak_memory_bytes",
}

Scope = Literal["read", "write", "admin", "agent"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
# Who has a scope: `write` reads too, and an administrator may do everything. An agent may do an agent's things only.
HOLDERS: Mapping[Scope, frozenset[Scope]] = {
    "read": frozenset({"read", "write", "admin"}),
    "write": frozenset({"write", "admin"}),
    "admin": frozenset({"admin"}),
    "agent": frozenset({"agent", "admin"}),
}

Role = Literal["reader", "writer", "owner"]
ROLES: tuple[Role, ...] = get_args(Role)  # each may do what those before it may


@frozen
class RunRow:
    """A run as a list shows it: everything but its profile, parameters and files."""

    id: str
    project: str
    status: Status
    kind: str
    created: float
    name: str | None = None
    parent: str | None = None
    started: float | None = None
    ended: float | None = None
    reason: str | None = None
    tags: tuple[str, ...] = ()
    profile_kind: str | None = None
    model: str | None = None
    device: str | None = None
    runtime: str | None = None
    machine: str | None = None
    machine_id: str | None = None
    author: str | None = None
    note: str | None = None
    batch: int | None = None
    precision: str | None = None
    threads: int | None = None
    workload: str | None = None
    latency_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    tokens_per_s: float | None = None
    peak_memory_bytes: int | None = None
    disturbed: bool | None = None
    verified: bool | None = None

    @property
    def seconds(self) -> float | None:
        """How long it ran; None while it does, or where it never began."""
        return None if self.started is None or self.ended is None else self.ended - self.started


@frozen
class Filter:
    """Which runs: each given field narrows. A run has all of `tags`, and all of `words` somewhere in what names it.

    `machine` is the name or the id of the machine it was measured on.
    """

    project: str | None = None
    status: tuple[Status, ...] = ()
    tags: tuple[str, ...] = ()
    model: str | None = None
    device: str | None = None
    runtime: str | None = None
    machine: str | None = None
    author: str | None = None
    precision: str | None = None
    kind: str | None = None
    parent: str | None = None
    since: float | None = None
    until: float | None = None
    words: str | None = None


@frozen
class Page:
    """`after` asks for the next page; None where this is the last."""

    rows: tuple[RunRow, ...]
    after: str | None = None


@frozen
class Metric:
    name: str
    value: float
    step: int
    at: float | None = None


@frozen
class Project:
    name: str
    created: float
    description: str | None = None
    runs: int = 0
    last: float | None = None  # when its newest run was created
    open: bool = False  # everybody who is signed in may read it
    writer_priority: int = 10  # the highest that a writer may give a job
    owner_priority: int = 50


@frozen
class StoredDevice:
    """A device that runs were stored of."""

    name: str
    title: str | None
    first: float
    last: float


@frozen
class Attachment:
    """A file to keep with a run: from a path, or from memory."""

    name: str
    source: Path | bytes
    media_type: str | None = None


@frozen
class Push:
    """A run on its way to a hub. `reason` is why it is not there yet."""

    run: str
    hub: str
    queued: float
    project: str | None = None
    sent: float | None = None
    reason: str | None = None


@frozen
class User:
    name: str
    created: float
    email: str | None = None


@frozen
class Member:
    user: str
    role: Role
    since: float


@frozen
class Sight:
    """What somebody sees: the runs and jobs of these projects, by number, and the devices that are their own."""

    projects: frozenset[int]
    user: str


@frozen
class Visitor:
    """Who asks, and their role in each project that they may see. `roles` is None for who owns everything.

    A role is no more than the token allows: one that only reads makes an owner a reader.
    """

    user: str
    scopes: tuple[Scope, ...]
    token: str | None = None  # their ids
    session: str | None = None
    project: str | None = None  # the only one that the token is for
    roles: Mapping[str, Role] | None = field(default_factory=dict)
    numbers: frozenset[int] = frozenset()  # of the projects in `roles`
    until: float | None = None  # when it ends by itself
    noted: float = 0.0  # when its use was last written down

    @property
    def sight(self) -> Sight | None:
        """None for who sees everything."""
        return None if self.roles is None else Sight(projects=self.numbers, user=self.user)

    @property
    def sees_all(self) -> bool:
        return self.roles is None

    def allows(self, scope: Scope) -> bool:
        return not HOLDERS[scope].isdisjoint(self.scopes)

    def may(self, role: Role, project: str) -> bool:
        """Whether they have this role there, or a stronger one."""
        if self.roles is None:
            return True
        held = self.roles.get(project)
        return held is not None and ROLES.index(held) >= ROLES.index(role)


@frozen
class SessionRow:
    """A browser that has signed in; by a token, or through a provider of identities."""

    id: str
    user: str
    created: float
    used: float
    token: str | None = None
    address: str | None = None
    browser: str | None = None


@frozen
class Token:
    """What is known of a token: never the token itself. An agent's may be for the jobs of one project only."""

    id: str
    user: str
    name: str
    scopes: tuple[Scope, ...]
    created: float
    expires: float | None = None
    used: float | None = None
    revoked: float | None = None
    project: str | None = None

    def allows(self, scope: Scope) -> bool:
        return not HOLDERS[scope].isdisjoint(self.scopes)

    def holds(self, now: float) -> bool:
        return self.revoked is None and (self.expires is None or self.expires > now)


@frozen
class ShareLink:
    """A link that shows one run, or a comparison of several, to whoever has it; never its text."""

    id: str
    runs: tuple[str, ...]
    created: float
    expires: float
    user: str | None = None


@frozen
class AuditEntry:
    """Who did what, when and from where: the ids are those of the token and the session it was done with."""

    number: int
    at: float
    user: str
    action: str
    project: str | None = None
    subject: str | None = None
    detail: str | None = None
    token: str | None = None
    session: str | None = None
    address: str | None = None


@frozen
class Secret:
    """A new token with its text, which is shown once and kept nowhere."""

    token: Token
    text: str = field(repr=False)


def sort_column(sort: str) -> tuple[str, bool]:
    """The column and whether it falls: `-latency` is slowest first."""
    name = sort.removeprefix("-")
    if name not in SORTS:
        raise UnknownNameError("sort key", name, SORTS, listing=f"There is: {', '.join(SORTS)}.")
    return SORTS[name], sort.startswith("-")


def sort_value(row: RunRow, column: str) -> Any:
    """The row's own value of a column, exactly as the database compares it."""
    return round(row.created * 1e6) if column == "created_us" else getattr(row, column)
