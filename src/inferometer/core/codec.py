"""Values ↔ JSON documents. Every document names its schema and version.

A newer version is refused, since its numbers may mean something else; unknown fields are skipped, since a later writer
may add some. NaN and infinity are refused both ways: JSON has no word for them, and `null` would say "unknown".
"""

import math
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from inferometer.core.calibration import Calibration
from inferometer.core.device import Device, Roof
from inferometer.core.errors import InferometerError, SchemaError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.core.profile import Profile, Run
from inferometer.core.request import BUSY
from inferometer.core.trace import Trace

T = TypeVar("T", Profile, Calibration, Device, Roof, Run, Trace, Job, JobEvent, JobResult)
K = TypeVar("K")
_SETTLED: set[Any] = set()
_SETTLING = threading.Lock()


def settled(kind: type[K]) -> type[K]:
    """The type, once msgspec knows it whole: whoever gives it a type to read by asks here first.

    msgspec looks at a class when it first reads one, and shows what it knows of it to other threads before it has
    looked at all of it: two threads that read their first profile end the process (msgspec 0.22).
    """
    if kind not in _SETTLED:
        with _SETTLING:
            with suppress(msgspec.ValidationError):
                msgspec.convert(None, kind)
            _SETTLED.add(kind)
    return kind


@frozen
class Schema:
    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


SCHEMAS: dict[type, Schema] = {
    Profile: Schema(name="inferometer.profile", version=1),
    Calibration: Schema(name="inferometer.calibration", version=1),
    Device: Schema(name="inferometer.device", version=1),
    Roof: Schema(name="inferometer.roof", version=1),
    Run: Schema(name="inferometer.run", version=1),
    Trace: Schema(name="inferometer.trace", version=1),
    Job: Schema(name="inferometer.job", version=1),
    JobEvent: Schema(name="inferometer.job-event", version=1),
    JobResult: Schema(name="inferometer.job-result", version=1),
}


def document(value: T) -> dict[str, Any]:
    """The value as plain dicts, lists and numbers, in the shape its document has."""
    plain = msgspec.to_builtins(value)
    _require_finite(plain)
    for profile in _profiles_in(plain, type(value)):
        # A Workload holds its precision and parallel plan; the document shows them beside it.
        workload = profile["workload"]
        profile["precision"] = workload.pop("precision")
        profile["parallel"] = workload.pop("parallel")
        # a Phase holds its parts by name, measured and predicted apart; the document lists them in order, side by side
        for phase in profile["phases"]:
            predicted = phase.pop("predicted_parts")
            phase["parts"] = [
                {"name": name, "time_s": seconds, "predicted_s": predicted.get(name)}
                for name, seconds in phase["parts"].items()
            ]
    return {"schema": str(SCHEMAS[type(value)]), **plain}


def encode(value: T, *, indent: int | None = None) -> bytes:
    data = msgspec.json.encode(document(value))
    return data if indent is None else msgspec.json.format(data, indent=indent)


def decode(data: bytes | str, kind: type[T]) -> T:
    """Read a document. What does not fit is a `SchemaError` that says where."""
    try:
        plain = msgspec.json.decode(data)  # which takes no NaN, and no number that is beyond a float
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"This is not a JSON document: {error}.") from None
    require_schema(plain, SCHEMAS[kind])
    for profile in _profiles_in(plain, kind):
        workload = profile.get("workload")
        if isinstance(workload, dict):
            for name in ("precision", "parallel"):
                if name in profile:
                    workload[name] = profile.pop(name)
        _name_parts(profile)
    try:
        return msgspec.convert(plain, settled(kind))
    except msgspec.ValidationError as error:
        raise SchemaError(f"This is not a valid {SCHEMAS[kind]} document: {error}.") from None
    except InferometerError as error:
        raise SchemaError(f"This {SCHEMAS[kind]} document holds a value that cannot be: {error}") from None


def require_schema(plain: object, wanted: Schema) -> None:
    if not isinstance(plain, dict) or not isinstance(plain.get("schema"), str):
        raise SchemaError(
            f"This document names no schema; an {wanted} document was asked for.",
            remedy=f'It should have "schema": "{wanted}".',
        )
    name, _, version = plain["schema"].rpartition("/")
    if name != wanted.name or not version.isdecimal():
        raise SchemaError(f"This is a {plain['schema']!r} document; an {wanted} document was asked for.")
    if int(version) > wanted.version:
        raise SchemaError(
            f"This document is of schema {plain['schema']}; this version of Inferometer reads up to {wanted}.",
            remedy="Upgrade with `pip install --upgrade inferometer`.",
        )


def _profiles_in(plain: dict[str, Any], kind: type) -> list[dict[str, Any]]:
    """The profiles of a document: it is one, or a run with one, or a job's result with several."""
    if kind is Profile:
        return [plain]
    held: Any = [plain.get("profile")] if kind is Run else plain.get("profiles") if kind is JobResult else ()
    return [profile for profile in held if isinstance(profile, dict)] if isinstance(held, list | tuple) else []


def _name_parts(plain: dict[str, Any]) -> None:
    """Back again. A document of before had them by name, with the clocks that run side by side among them."""
    phases = plain.get("phases")
    for phase in phases if isinstance(phases, list) else ():
        parts = phase.get("parts") if isinstance(phase, dict) else None
        if isinstance(parts, dict):
            phase["clocks"] = {name: seconds for name, seconds in parts.items() if name in BUSY}
            phase["parts"] = {name: seconds for name, seconds in parts.items() if name not in BUSY}
        elif isinstance(parts, list) and all(
            isinstance(part, dict) and isinstance(part.get("name"), str) for part in parts
        ):
            known = [part for part in parts if part.get("predicted_s") is not None]
            phase["predicted_parts"] = {part["name"]: part["predicted_s"] for part in known}
            phase["parts"] = {part["name"]: part.get("time_s") for part in parts}


_HOLDERS = frozenset({dict, list, tuple})


def _require_finite(plain: Any) -> None:
    """The place of a wrong number is looked for only where there is one: most documents have thousands that are not."""
    if not _finite(plain):
        place, value = next(_infinite(plain, ""))
        raise SchemaError(f"{place.lstrip('.') or 'The value'} is {value}, which a document cannot hold.")


def _finite(plain: Any) -> bool:
    """Of a dict, list or tuple. A loop over exact types, because this is most of what reading a document takes."""
    for value in plain.values() if type(plain) is dict else plain:
        kind = type(value)
        if kind is float:
            if not math.isfinite(value):
                return False
        elif kind in _HOLDERS and not _finite(value):
            return False
    return True


def _infinite(plain: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(plain, float):
        if not math.isfinite(plain):
            yield path, plain
    elif isinstance(plain, dict):
        for key, value in plain.items():
            yield from _infinite(value, f"{path}.{key}")
    elif isinstance(plain, list | tuple):
        for index, value in enumerate(plain):
            yield from _infinite(value, f"{path}[{index}]")
