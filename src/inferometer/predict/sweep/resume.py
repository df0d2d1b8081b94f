"""The journal beside an unfinished file: of which sweep it is, and how far it is for certain.

A line is added when a chunk has reached the disk. After a kill the last whole line holds, and what the file has beyond
it is dropped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.predict.sweep.sinks import partial_of
from inferometer.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.predict.sweep.grid import Study


@frozen
class Standing:
    """How far a sweep is: chunks and rows done, those of them that cannot be, and the sink's mark behind them."""

    chunks: int = 0
    rows: int = 0
    impossible: int = 0
    mark: int = 0


_KEYS = {entry.name for entry in fields(Standing)}


def journal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.journal")


class Journal:
    def __init__(self, path: Path, standing: Standing) -> None:
        self._path, self.standing = path, standing
        self._file = path.open("a", encoding="utf-8")

    def add(self, *, rows: int, impossible: int, mark: int) -> Standing:
        before = self.standing
        self.standing = Standing(
            chunks=before.chunks + 1, rows=before.rows + rows, impossible=before.impossible + impossible, mark=mark
        )
        self._file.write(json.dumps(asdict(self.standing)) + "\n")
        self._file.flush()
        return self.standing

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)


def open_journal(path: Path, study: Study, form: str, *, resume: bool) -> Journal:
    """The journal of a file. One that is there is of an unfinished sweep: it is continued only if that is asked for."""
    file, mark = journal_of(path), fingerprint(study, form)
    if not file.exists() or (resume and not partial_of(path).exists()):
        file.write_text(json.dumps({"inferometer": __version__, "sweep": mark}) + "\n", encoding="utf-8")
        return Journal(file, Standing())
    if not resume:
        raise DomainError(
            f"{path} has an unfinished sweep beside it ({file.name}).",
            remedy=f"Continue it with --resume, or remove {file.name} to begin again.",
        )
    whole = [line for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    head, *lines = _decoded(file, whole)
    if head.get("sweep") != mark:
        raise DomainError(
            f"The unfinished sweep of {path} is another one than is asked for now.",
            remedy=f"Ask for the same, or remove {file.name} to begin again.",
        )
    file.write_text("".join(whole), encoding="utf-8")  # without what a kill left of a last line
    return Journal(file, Standing(**lines[-1]) if lines else Standing())


def _decoded(file: Path, lines: list[str]) -> list[dict[str, Any]]:
    try:
        found = [json.loads(line) for line in lines]
        if all(isinstance(line, dict) for line in found) and all(line.keys() == _KEYS for line in found[1:]):
            return found or [{}]
    except ValueError:
        pass
    raise DomainError(f"{file} is no journal of a sweep.", remedy="Remove it to begin again.")


def fingerprint(study: Study, form: str) -> str:
    """The same for the same sweep in any process: questions, calibrations, lists and form, by what is in them."""
    digest = hashlib.sha256(f"{__version__} {form}".encode())
    _add(digest, study, {})
    return digest.hexdigest()[:32]


def _add(digest: Any, value: Any, known: dict[int, bytes]) -> None:
    """Values of any depth. Sets have no order of their own, so theirs is made.

    Of dataclasses the digest is `known` by identity: a graph is large, and stands in a question for every device.
    """
    if is_dataclass(value):
        if id(value) not in known:
            own = hashlib.sha256(type(value).__name__.encode())
            for entry in fields(value):
                _add(own, getattr(value, entry.name), known)
            known[id(value)] = own.digest()
        digest.update(known[id(value)])
    elif isinstance(value, Mapping):
        digest.update(b"{")
        for key in sorted(value, key=str):
            _add(digest, key, known)
            _add(digest, value[key], known)
    elif isinstance(value, set | frozenset):
        _add(digest, sorted(value, key=str), known)
    elif isinstance(value, list | tuple | range | np.ndarray):
        digest.update(b"[")
        for inner in value:
            _add(digest, inner, known)
        digest.update(b"]")
    else:
        digest.update(f"{type(value).__name__}:{value!r},".encode())
