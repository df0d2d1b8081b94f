"""A job: what to measure, as a value that can be sent to another machine. See design/0007-fleet.md.

It is data, never code. The verbs are known ones; a runtime, a provider and a device are names, never paths; and a model
is a catalog name, or a list of its own files by the hash of what is in them. Which names there are is asked where the
job runs: see hub/agent/carrying_out.py.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from inferometer.core.calibration import Calibration
from inferometer.core.errors import DomainError, TrustError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile, Verification
from inferometer.core.workload import Workload

# What a job may carry: names that stay inside its folder on every system, and the files that a model consists of.

_LONGEST_PATH, _LONGEST_PART = 1000, 200  # letters, and bytes: file systems hold 255 of them
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[1-9]|lpt[1-9]|conin\$|conout\$)(\..*)?")  # devices, on Windows
_UNSEEN = frozenset(
    {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
)  # controls, marks that turn text round, halves of letters
# A file that is opened, by its ending, and the endings of what may lie beside it. ONNX names its own data files, which
# are checked where the file is read.
_BESIDE = {".xml": (".bin",), ".param": (".bin",), ".gguf": (".gguf",), ".safetensors": (".safetensors", ".json")}
_NAMES_ITS_OWN = ".onnx"
_IN_FOLDERS = re.compile(
    r".*\.(json|txt|safetensors|model|xml|onnx|onnx_data(_\d+)?|data|gguf|tiktoken|jinja|vocab|bpe|spm)"
)
_WEIGHTS_BESIDE = ("model.bin",)  # of CTranslate2; other .bin files are an .xml's, or pickles
_CODE = re.compile(
    r"(?i).*\.(so(\.[\d.]+)?|dll|dylib|pyd|exe|bat|cmd|ps1|sh|py[co]?|pyz|egg|whl|jar|wasm|ko|cubin|ptx|"
    r"pkl|pickle|joblib|dill|pt|pth|ckpt|npz|h5|hdf5|keras|msgpack|tar|zip|gz)"
)


def require_inside(path: str) -> None:
    """A relative path with slashes that means one file inside a folder, on every system."""
    parts = path.split("/")
    plain = len(path) <= _LONGEST_PATH and not any(
        mark in "\\:" or (unicodedata.category(mark) in _UNSEEN) for mark in path
    )
    if not (plain and all(map(_is_plain_part, parts))):
        shown = path if len(path) <= 80 else f"{path[:80]}…"
        raise DomainError(f"The path {shown!r} of a job's file is not one inside its folder.")


def _is_plain_part(part: str) -> bool:
    return (
        part not in {"", ".", ".."}
        and part == part.strip(" ").rstrip(".")  # Windows drops what is behind
        and len(part.encode()) <= _LONGEST_PART
        and _RESERVED.fullmatch(part) is None
    )


def require_distinct(paths: Iterable[str], whose: str) -> None:
    """No two names that some file system takes for one, and no file where another has a folder."""
    seen: dict[str, str] = {}
    for path in paths:
        key = unicodedata.normalize("NFC", path).casefold()
        if key in seen:
            raise DomainError(f"{whose} names the same file twice: {seen[key]!r} and {path!r}.")
        seen[key] = path
    for key, path in seen.items():
        above = next((str(folder) for folder in PurePosixPath(key).parents if str(folder) in seen), None)
        if above is not None:
            raise DomainError(f"{whose} has {seen[above]!r} as a file and as the folder of {path!r}.")


def require_carried(entry: str, paths: Collection[str]) -> None:
    """Refuse a file that could be code, or is no part of the model that is opened as `entry`."""
    for path in paths:
        if not may_carry(entry, path, paths):
            raise TrustError(
                f"The job carries {path!r}, which is no part of a model that is opened as {entry!r}.",
                remedy="A job carries a model's own files, and no code.",
            )


def may_carry(entry: str, path: str, paths: Collection[str]) -> bool:
    """Whether a model that is opened as `entry` may bring this file along."""
    if _CODE.fullmatch(path):
        return False
    if path == entry:
        return True
    if entry not in paths:
        return path.startswith(f"{entry}/") and travels(PurePosixPath(path).name, paths_of_folder(path, paths))
    suffix = PurePosixPath(entry).suffix
    if suffix == _NAMES_ITS_OWN:
        return True
    return PurePosixPath(path).suffix in _BESIDE.get(suffix, ())


def paths_of_folder(path: str, paths: Collection[str]) -> set[str]:
    """The names of the files that lie in the same folder."""
    folder = PurePosixPath(path).parent
    return {PurePosixPath(other).name for other in paths if PurePosixPath(other).parent == folder}


def travels(name: str, beside: Collection[str]) -> bool:
    """Whether a file of a model's folder goes with it: weights, configs and tokenisers do; code and pickles do not."""
    if name.endswith(".bin"):
        return name in _WEIGHTS_BESIDE or f"{name.removesuffix('.bin')}.xml" in beside
    return _IN_FOLDERS.fullmatch(name) is not None and _CODE.fullmatch(name) is None


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
