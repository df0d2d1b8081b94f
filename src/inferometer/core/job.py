"""A job: what to measure, as a value that can be sent to another machine. See design/0007-fleet.md.

It is data, never code. The verbs are known ones, a runtime is the name of an installed plug-in, and a model is a
catalog name or a list of files by the hash of what is in them.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from inferometer.core.calibration import Calibration
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile, Verification
from inferometer.core.workload import Workload
from inferometer.errors import DomainError, UnknownNameError

Verb = Literal["profile", "bench", "calibrate", "verify"]
VERBS: tuple[Verb, ...] = get_args(Verb)

# `failed` is the model's own fault, and is not tried again; `inconclusive` is the fault of a device, a network or a
# disk: tried again elsewhere, and still without an answer that counts.
JobState = Literal["queued", "preparing", "running", "done", "failed", "cancelled", "inconclusive"]
FINAL: frozenset[JobState] = frozenset({"done", "failed", "cancelled", "inconclusive"})
EventKind = Literal["state", "progress", "notice"]
# How a measurement ends (measure/raw.py); `lost`: the runner, its device or its answer went away, and no result counts.
JobEnd = Literal["done", "refused", "failed", "crashed", "hung", "too-big", "stopped", "lost"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_RUNTIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@frozen
class JobFile:
    """A file by what is in it. `path` is where the job expects it: relative, with slashes, without `..`."""

    path: str
    sha256: str
    size_bytes: int

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.path).parts
        # A job comes from elsewhere: its paths must stay inside the folder that it is unpacked in, on Windows too.
        if not parts or self.path.startswith("/") or ".." in parts or any(mark in self.path for mark in "\\:\0"):
            raise DomainError(f"The path {self.path!r} of a job's file is not one inside its folder.")
        if not _SHA256.fullmatch(self.sha256):
            raise DomainError(f"{self.sha256!r} is not a SHA-256 hash: it should have 64 hexadecimal digits.")
        if self.size_bytes < 0:
            raise DomainError(f"{self.path} cannot have {self.size_bytes} bytes.")


@frozen
class JobModel:
    """A model by its content. `entry` is the file or folder that is opened; without files, `name` is the catalog's."""

    name: str
    entry: str = ""
    files: tuple[JobFile, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise DomainError("A job's model has no name.")
        inside = any(file.path == self.entry or file.path.startswith(f"{self.entry}/") for file in self.files)
        if self.files and not inside:
            raise DomainError(f"The model {self.name!r} opens {self.entry!r}, which is not among its files.")
        if len({file.path for file in self.files}) != len(self.files):
            raise DomainError(f"The model {self.name!r} names the same file twice.")

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def sha256(self) -> str | None:
        """The hash of the one file, or of the list of files below the entry; None for a catalog name."""
        if not self.files:
            return None
        if len(self.files) == 1:
            return self.files[0].sha256
        prefix = f"{self.entry}/"
        listed = sorted((file.path.removeprefix(prefix), file.sha256) for file in self.files)
        return hashlib.sha256(json.dumps(listed, separators=(",", ":")).encode()).hexdigest()


@frozen
class Job:
    """`plan` and `options` hold what is not at its default. `seconds_at_most` limits the whole job, however it goes.

    `reference` is the model that outputs are compared with, if it is another file; `inputs` are files that the model
    is fed with, by the name of the input. `created` is when, and `by` which version of Inferometer made it.
    """

    id: str
    verb: Verb
    model: JobModel | None = None
    reference: JobModel | None = None
    inputs: Mapping[str, JobFile] = field(default_factory=dict)
    runtime: str | None = None
    workload: Workload = Workload()
    plan: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seconds_at_most: float | None = None
    command: str | None = None  # that was typed, for the record
    created: str = ""
    by: str = ""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise DomainError(f"{self.id!r} is not the id of a job: letters, digits and dashes, 64 at most.")
        if self.verb not in VERBS:
            raise UnknownNameError("verb", self.verb, VERBS, listing=f"A job may {', '.join(VERBS)}.")
        if self.model is None and self.verb != "calibrate":
            raise DomainError(f"A job that is to {self.verb} needs a model.")
        for name in filter(None, (self.runtime, self.options.get("against"))):
            if not isinstance(name, str) or not _RUNTIME.fullmatch(name):
                raise DomainError(
                    f"The runtime {name!r} cannot be sent with a job.",
                    remedy="A job names a runtime that is installed where it runs; MODULE:ATTRIBUTE is only for here.",
                )
        if self.seconds_at_most is not None and not self.seconds_at_most > 0:
            raise DomainError(f"A job cannot take at most {self.seconds_at_most} s.")

    @property
    def files(self) -> tuple[JobFile, ...]:
        """Every file that it needs where it runs."""
        models = (model for model in (self.model, self.reference) if model is not None)
        return (*(file for model in models for file in model.files), *self.inputs.values())


@frozen
class JobEvent:
    """Something that happened to a job. `number` counts from 1, in the order of the job; `at` is UNIX time.

    A `state` event names the new state, and `text` says more where there is more to say. A `progress` event has the
    stage of a measurement and how far it is. A `notice` is a line for whoever waits.
    """

    job: str
    number: int
    at: float
    kind: EventKind
    state: JobState | None = None
    stage: str | None = None
    done: int | None = None
    share: float | None = None
    text: str | None = None

    @property
    def final(self) -> bool:
        return self.state in FINAL


@frozen
class JobResult:
    """What came of a job, however it ended. `error`, `remedy` and `error_kind` are those of an InferometerError.

    `profiles` has one for each case of the job, in its order; if it ended early, of what was measured until then.
    `series` are values over time, by name: milliseconds and the value.
    """

    job: Job
    ended: JobEnd
    profiles: tuple[Profile, ...] = ()
    calibration: Calibration | None = None
    verification: Verification | None = None
    error: str | None = None
    remedy: str | None = None
    error_kind: str | None = None
    log: str = ""
    series: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    started: str = ""
    finished: str = ""

    @property
    def complete(self) -> bool:
        return self.ended == "done"

    @property
    def state(self) -> JobState:
        """The final state that goes with it."""
        if self.ended == "done":
            return "done"
        if self.ended == "lost":
            return "inconclusive"
        return "cancelled" if self.ended == "stopped" else "failed"
