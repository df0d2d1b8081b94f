"""A store in one file: a zip of its tables, a row a line, and the files of its runs by hash, with a manifest.

It is written beside its place and moved there whole. A backup that is read comes from anywhere, as an archive of a run
does: only names that a backup has, each size no larger than it says, each part with the hash that it should have.
"""

import base64
import hashlib
import math
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

import msgspec
from sqlalchemy import Table

from inferometer.core.errors import FormatError, SchemaError
from inferometer.core.frozen import frozen
from inferometer.store.errors import StoreError
from inferometer.store.files import whole
from inferometer.store.location import REVISIONS
from inferometer.store.store import Store, open_store
from inferometer.store.tables import metadata
from inferometer.store.transfer import (
    FileKind,
    Snapshot,
    SourceFile,
    Tell,
    TransferSource,
    fill,
    models_folder,
    silent,
    snapshot,
)
from inferometer.version import __version__

_SCHEMA = "inferometer.backup/1"
_MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_MOST_MANIFEST = 64_000_000
_MOST_ROW = 1_000_000_000  # bytes of a line; a profile's document has at most half of that
_AGAIN = "Take the backup again, or restore an older one; nothing was changed."


@frozen
class TablePart:
    """`sha256` is that of its lines: two stores with the same rows have the same."""

    name: str
    columns: tuple[str, ...]
    rows: int
    size_bytes: int
    sha256: str


@frozen
class FileParts:
    count: int = 0
    size_bytes: int = 0


@frozen
class Manifest:
    """What is in a backup. `lost` are files that rows name and that were gone or damaged when it was taken."""

    revision: str
    tables: tuple[TablePart, ...]
    artifacts: FileParts
    models: FileParts
    lost: tuple[str, ...] = ()
    created: str = ""
    version: str = __version__
    schema: str = _SCHEMA

    def rows(self, table: str) -> int:
        return next((part.rows for part in self.tables if part.name == table), 0)


# Writing


def write_backup(store: Store, to: Path, *, models: bool = False, tell: Tell = silent) -> Manifest:
    """Back up a store that others may be writing to: it is in the file as it was when this began."""
    if to.exists() and not _is_backup(to):
        raise StoreError(f"{to} is there already and is no backup: it is not written over.", remedy="Name a new file.")
    with snapshot(store, models=models) as source:
        try:
            with whole(to) as file:  # for its owner's eyes: hashes of tokens and everything of every project is in it
                return _pack(file, source, tell)
        except OSError as error:
            raise StoreError(
                f"The backup could not be written to {to} ({error.strerror or error}).",
                remedy="Make room, or choose another folder; no half of it was left.",
            ) from None


def _is_backup(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return _MANIFEST in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _pack(file: IO[bytes], source: Snapshot, tell: Tell) -> Manifest:
    # Documents of profiles are packed already: the lowest level takes off what base64 adds, and more is not to be had.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        tables = []
        for table in metadata.sorted_tables:
            with archive.open(_table_name(table.name), "w", force_zip64=True) as part:
                tables.append(_write_table(source, table, part, tell))
        held, damaged = _pack_files(archive, source, tell)
        manifest = Manifest(
            revision=source.revision, tables=tuple(tables), artifacts=held["artifacts"], models=held["models"],
            lost=tuple(sorted({*source.lost, *damaged})), created=datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip
        archive.writestr(_MANIFEST, msgspec.json.encode(manifest))
    return manifest


def _table_name(table: str) -> str:
    return f"tables/{table}.jsonl"


def _write_table(source: Snapshot, table: Table, to: IO[bytes] | None, tell: Tell = silent) -> TablePart:
    """Write a table's lines, or only count and hash them."""
    digest, rows, size = hashlib.sha256(), 0, 0
    for rows, row in enumerate(source.rows(table), start=1):
        line = msgspec.json.encode([_written(value) for value in row]) + b"\n"
        digest.update(line)
        size += len(line)
        if to is not None:
            to.write(line)
        if not rows % 100:
            tell(f"{table.name} {rows:,}")
    columns = source.tables[table.name]
    return TablePart(name=str(table.name), columns=columns, rows=rows, size_bytes=size, sha256=digest.hexdigest())


def _pack_files(archive: zipfile.ZipFile, source: Snapshot, tell: Tell) -> tuple[dict[str, FileParts], list[str]]:
    """Files that changed since they were kept go in and are marked as lost: better a damaged copy than none."""
    held, damaged = {"artifacts": FileParts(), "models": FileParts()}, []
    for file in source.files():
        name = f"{file.kind}/{file.sha256}"
        # A model's weights do not become smaller.
        entry = zipfile.ZipInfo(name) if file.kind == "models" else name
        digest, size = hashlib.sha256(), 0
        with archive.open(entry, "w", force_zip64=True) as part:
            for chunk in file.chunks:
                digest.update(chunk)
                size += len(chunk)
                part.write(chunk)
        before = held[file.kind]
        held[file.kind] = FileParts(count=before.count + 1, size_bytes=before.size_bytes + size)
        if digest.hexdigest() != file.sha256:
            damaged.append(file.sha256)
        tell(f"{file.kind} {before.count + 1:,}")
    return held, damaged


def table_parts(store: Store) -> tuple[TablePart, ...]:
    """What a backup's manifest would say of the tables now."""
    with snapshot(store) as source:
        return tuple(_write_table(source, table, None) for table in metadata.sorted_tables)


def _written(value: Any) -> Any:
    """A value of a column in JSON, which has no bytes, and no numbers that are not finite."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _value(kind: type[Any], written: Any) -> Any:
    """The opposite, for a column of that kind; ValueError where it cannot be one."""
    if written is None:
        return None
    if kind is bytes and isinstance(written, str):
        return base64.b64decode(written, validate=True)
    if kind is float and (isinstance(written, (int, float)) or written in ("nan", "inf", "-inf")):
        return float(written)
    if kind is int and type(written) is int and -(2**63) <= written < 2**63:
        return written
    if kind in {str, bool} and type(written) is kind:
        return written
    raise ValueError(f"{str(written)[:40]!r} is no {kind.__name__}")


# Reading


class Backup(TransferSource):
    """A backup's file, open for reading. Every hash is checked as its part is read to the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._telling():
            self._archive = zipfile.ZipFile(path)
        try:
            with self._telling():
                self.manifest = self._read_manifest()
                self._require_whole()
        except BaseException:
            self._archive.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    @property
    def revision(self) -> str:
        return self.manifest.revision

    @property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        return {part.name: part.columns for part in self.manifest.tables}

    @cached_property
    def _entries(self) -> Mapping[str, zipfile.ZipInfo]:
        return {entry.filename: entry for entry in self._archive.infolist()}

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FormatError(f"{self.path}: cannot be read ({error.strerror or error}).") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise FormatError(f"{self.path}: this is no backup, or a damaged one ({error}).", remedy=_AGAIN) from None

    def _refusal(self, why: str) -> FormatError:
        return FormatError(f"{self.path}: {why}.", remedy=_AGAIN)

    def _read_manifest(self) -> Manifest:
        entry = self._entries.get(_MANIFEST)
        if entry is None:
            raise self._refusal("there is no manifest in it, so that it is no backup of a store")
        with self._archive.open(entry) as file:
            data = file.read(_MOST_MANIFEST + 1)
        if len(data) > _MOST_MANIFEST:
            raise self._refusal(f"its manifest has more than {_MOST_MANIFEST:,} bytes")
        newer = "Upgrade with `pip install --upgrade inferometer`."
        try:
            schema = msgspec.json.decode(data, type=dict[str, Any]).get("schema")
            if schema != _SCHEMA:
                raise SchemaError(f"{self.path}: this version reads {_SCHEMA}, not {str(schema)[:50]!r}.", remedy=newer)
            manifest = msgspec.json.decode(data, type=Manifest)
        except msgspec.MsgspecError as error:
            raise self._refusal(f"its manifest does not hold: {error}") from None
        if manifest.revision not in REVISIONS:
            raise SchemaError(
                f"{self.path}: its tables are of version {manifest.revision[:20]!r}; this version of Inferometer knows "
                f"up to {REVISIONS[-1]}.",
                remedy=newer,
            )
        return manifest

    def _require_whole(self) -> None:
        """Only the names that the manifest speaks of, once each, and as many as it says."""
        names = self._archive.namelist()
        tables = {_table_name(part.name) for part in self.manifest.tables}
        held = {"artifacts": 0, "models": 0}
        for name in names:
            kind, _, sha256 = name.partition("/")
            if kind in held and len(sha256) == 64 and set(sha256) <= set("0123456789abcdef"):
                held[kind] += 1
            elif name != _MANIFEST and name not in tables:
                raise self._refusal(f"it holds {name[:80]!r}, which no backup has")
        if len(set(names)) != len(names):
            raise self._refusal("it holds the same part twice")
        if not tables <= set(names) or held != {
            "artifacts": self.manifest.artifacts.count,
            "models": self.manifest.models.count,
        }:
            raise self._refusal("parts of it are missing")

    @property
    def size_bytes(self) -> int:
        """Unpacked."""
        return sum(entry.file_size for entry in self._entries.values())

    def rows(self, table: Table) -> Iterator[tuple[Any, ...]]:
        part = next(part for part in self.manifest.tables if part.name == table.name)
        unknown = set(part.columns) - set(table.columns.keys())
        if unknown:
            raise self._refusal(
                f"table {table.name} has a column {min(unknown)[:50]!r}, which version {self.revision} has not"
            )
        kinds = [table.columns[name].type.python_type for name in part.columns]
        count = 0
        for count, line in enumerate(self._lines(part), start=1):
            try:
                values = msgspec.json.decode(line, type=list[Any])
                yield tuple(_value(kind, value) for kind, value in zip(kinds, values, strict=True))
            except (msgspec.MsgspecError, ValueError) as error:
                raise self._refusal(f"row {count:,} of table {table.name} does not hold ({error})") from None
        if count != part.rows:
            raise self._refusal(f"table {table.name} has {count:,} rows in it instead of {part.rows:,}")

    def _lines(self, part: TablePart) -> Iterator[bytes]:
        rest = b""
        for chunk in self._checked(_table_name(part.name), part.sha256, part.size_bytes):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            if len(rest) > _MOST_ROW:
                raise self._refusal(f"a row of table {part.name} has more than {_MOST_ROW:,} bytes")
        if rest:
            raise self._refusal(f"table {part.name} ends in the middle of a row")

    def files(self) -> Iterator[SourceFile]:
        lost = set(self.manifest.lost)
        for name, entry in self._entries.items():
            kind, _, sha256 = name.partition("/")
            if kind in {"artifacts", "models"} and sha256 not in lost:
                known: FileKind = "artifacts" if kind == "artifacts" else "models"
                yield SourceFile(kind=known, sha256=sha256, chunks=self._checked(name, sha256, entry.file_size))

    def _checked(self, name: str, sha256: str, size: int) -> Iterator[bytes]:
        """A part's bytes, never more than it should have; an error at its end where they are not those."""
        digest, read = hashlib.sha256(), 0
        with self._telling(), self._archive.open(self._entries[name]) as file:
            while chunk := file.read(_CHUNK):
                read += len(chunk)
                if read > size:
                    break
                digest.update(chunk)
                yield chunk
        if read != size or digest.hexdigest() != sha256:
            raise self._refusal(f"{name[:30]} in it is not what was put there: it is damaged")


def check_backup(path: Path, *, tell: Tell = silent) -> Manifest:
    """Read all of a backup, and restore its tables into a store that is thrown away: the rows must be the same."""
    with Backup(path) as backup, tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        _require_room(backup, Path(folder), tables_only=True)
        with open_store(Path(folder) / "runs.db") as trial:
            fill(trial, backup, keep_files=False, tell=tell)
            manifest = backup.manifest
            if manifest.revision == REVISIONS[-1] and table_parts(trial) != manifest.tables:
                raise FormatError(f"{path}: its rows are not the same once they are restored.", remedy=_AGAIN)
        return manifest


def restore_backup(path: Path, store: Store, *, tell: Tell = silent) -> Manifest:
    """Write a backup into an empty store, all of it or nothing."""
    with Backup(path) as backup:
        # The nearest folder above the runs' files that is there: its disk is theirs.
        folder = models_folder(store.location)
        standing = next(above for above in folder.parents if above.is_dir())
        _require_room(backup, standing)
        fill(store, backup, tell=tell)
        return backup.manifest


def copy_store(store: Store, to: Store, *, models: bool = False, tell: Tell = silent) -> tuple[str, ...]:
    """Write a store into another, empty one. Gives the hashes of files that were gone or damaged."""
    with snapshot(store, models=models) as source:
        damaged = fill(to, source, tell=tell)
        return tuple(sorted({*source.lost, *damaged}))


def _require_room(backup: Backup, folder: Path, *, tables_only: bool = False) -> None:
    """A backup that says less than comes out of it is refused as that is read; one that says too much, here."""
    tables = sum(part.size_bytes for part in backup.manifest.tables)
    wanted, free = tables if tables_only else backup.size_bytes, shutil.disk_usage(folder).free
    if wanted > free:
        raise StoreError(
            f"{backup.path} holds {wanted:,} bytes unpacked, and the disk of {folder} has {free:,} free.",
            remedy="Make room there, or choose another place with --store.",
        )
