"""A Run is a stored Profile."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, get_args

from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile

Status = Literal["pending", "running", "finished", "failed", "killed"]
STATUSES: tuple[Status, ...] = get_args(Status)


@frozen
class Artifact:
    """A file that belongs to a run, addressed by what is in it."""

    name: str
    sha256: str
    size_bytes: int
    media_type: str | None = None


@frozen
class Run:
    id: str
    project: str
    status: Status
    created: str
    name: str | None = None
    parent: str | None = None
    tags: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    profile: Profile | None = None
    artifacts: tuple[Artifact, ...] = ()
