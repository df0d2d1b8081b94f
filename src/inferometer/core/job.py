"""A job: what to measure, as a value that can be sent to another machine. See design/0007-fleet.md.

It is data, never code. The verbs are known ones; a runtime, a provider and a device are names, never paths; and a model
is a catalog name, or a list of its own files by the hash of what is in them. Which names there are is asked where the
job runs: see hub/places/admission.py.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, get_args

from inferometer.core.calibration import Calibration
from inferometer.core.carried import require_carried, require_distinct, require_inside
from inferometer.core.errors import DomainError, TrustError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile, Verification
from inferometer.core.workload import Workload

Verb = Literal["profile", "bench", "calibrate", "verify", "prepare"]
VERBS: tuple[Verb, ...] = get_args(Verb)

# `failed` is the model's own fault, and is not tried again; `inconclusive` is the fault of a device, a network or a
# disk: tried again elsewhere, and still without an answer that counts.
JobState = Literal["queued", "preparing", "running", "done", "failed", "cancelled", "inconclusive"]
FINAL: frozenset[JobState] = frozenset({"done", "failed", "cancelled", "inconclusive"})
EventKind = Literal["state", "progress", "notice"]
# How a measurement ends (measure/run/raw.py); `lost`: the runner, its device or its answer went away, and no result
# counts.
JobEnd = Literal["done", "refused", "failed", "crashed", "hung", "too-big", "stopped", "lost"]

PROOF = "prepared.json"  # the file of a run with the proof of what was prepared

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_RUNTIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# What a device, a unit, a provider or a format is called; what an engine's option is, and may be set to. None of these
# can be a path, a library or a module.
_NAME = re.compile(r"[A-Za-z0-9][\w.:@+ -]{0,99}", re.ASCII)
_LIBRARY = re.compile(r"(?i).*\.(so|dll|dylib|pyd)(\.[\d.]+)?")
_NAMED = ("unit", "precision", "optimisation", "weights", "device", "dtype", "quantise")
_VALUE = re.compile(r"[\w.:@+, -]{0,100}", re.ASCII)
_PATHLIKE = re.compile(r"[/~.]|[A-Za-z]:|.*(\.\.|\\)")
_LONGEST = {"name": 200, "command": 20_000, "created": 100, "by": 100, "words": 1_000_000}  # letters


@frozen
class JobFile:
    """A file by what is in it. `path` is where the job expects it: relative, with slashes, without `..`."""

    path: str
    sha256: str
    size_bytes: int

    def __post_init__(self) -> None:
        require_inside(self.path)  # a job comes from elsewhere
        if not _SHA256.fullmatch(self.sha256):
            raise DomainError(f"{self.sha256[:80]!r} is not a SHA-256 hash: it should have 64 hexadecimal digits.")
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
        _require_short("name", self.name)
        if not self.files and (_PATHLIKE.match(self.name) or not self.name.isprintable()):
            raise DomainError(
                f"The model {self.name!r} is a path, and the job brings no file of it.",
                remedy="Send its files with the job, or give the name of a model of the catalog.",
            )
        inside = any(file.path == self.entry or file.path.startswith(f"{self.entry}/") for file in self.files)
        if self.files and not inside:
            raise DomainError(f"The model {self.name!r} opens {self.entry!r}, which is not among its files.")
        paths = [file.path for file in self.files]
        require_distinct(paths, f"The model {self.name!r}")
        require_carried(self.entry, paths)

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
        _require_names(self.options)
        _require_data(self)
        for name in ("command", "created", "by"):
            _require_short(name, getattr(self, name) or "")
        if self.seconds_at_most is not None and not self.seconds_at_most > 0:
            raise DomainError(f"A job cannot take at most {self.seconds_at_most} s.")

    @property
    def files(self) -> tuple[JobFile, ...]:
        """Every file that it needs where it runs."""
        models = (model for model in (self.model, self.reference) if model is not None)
        return (*(file for model in models for file in model.files), *self.inputs.values())


def _require_short(name: str, text: str) -> None:
    if len(text) > _LONGEST[name]:
        raise DomainError(f"A job's {name} has {len(text):,} letters; {_LONGEST[name]:,} are the most.")


def _require_names(options: Mapping[str, Any]) -> None:
    """Options that name something name it as the place knows it; a path, a library or a module is refused."""
    providers, inputs, engine = (options.get(key) or () for key in ("providers", "inputs", "options"))
    named = [*(("provider", name) for name in providers), *((key, options[key]) for key in _NAMED if options.get(key))]
    for word, name in named:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or _LIBRARY.fullmatch(name):
            raise TrustError(
                f"The job names the {word} {str(name)[:80]!r}, which is no name that a device has for one.",
                remedy="A library or a file can be chosen by whoever sits at the device, and not by a job.",
            )
    for name, value in engine.items() if isinstance(engine, Mapping) else ():
        if not _NAME.fullmatch(str(name)) or not _VALUE.fullmatch(str(value)) or _LIBRARY.fullmatch(str(value)):
            raise TrustError(
                f"The job sets the engine's option {str(name)[:80]!r} to {str(value)[:80]!r}, which is no plain value.",
                remedy="Options that name files can be set by whoever sits at the device, and not by a job.",
            )
    for name, value in inputs.items() if isinstance(inputs, Mapping) else ():
        try:
            float(value)
        except (TypeError, ValueError):
            raise DomainError(
                f"The job sets the input {str(name)[:80]!r} to {str(value)[:80]!r}, which is no number.",
                remedy="Send a file as one of the job's inputs.",
            ) from None
    _require_short("words", str(options.get("words") or ""))


def _require_data(job: Job) -> None:
    """Files of the whole job: each path means one content, and inputs are arrays."""
    known = {file.path: file.sha256 for file in job.files}
    if any(known[file.path] != file.sha256 for file in job.files):
        raise DomainError("The job has two files of one name, which differ.", remedy="Give one of them another name.")
    require_distinct(known, "The job")
    for name, file in job.inputs.items():
        _require_short("name", name)
        if not file.path.endswith(".npy"):
            raise TrustError(
                f"The job carries {file.path!r} for the input {name!r}; inputs are .npy files.",
                remedy="Save the array with numpy.save.",
            )


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
    `series` are values over time, by name: milliseconds and the value. `prepared` is an inferometer.prepared document,
    and `made` are the files that it is about: they lie in the folder `made` beside the result, and travel alone.
    """

    job: Job
    ended: JobEnd
    profiles: tuple[Profile, ...] = ()
    calibration: Calibration | None = None
    verification: Verification | None = None
    prepared: Mapping[str, Any] | None = None
    made: tuple[JobFile, ...] = ()
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
