"""A run in one file that can be passed on: a zip with the run's document, its metrics, and its files by hash.

An archive comes from anywhere. Nothing in it is written by the name it has there; every size is limited twice, by what
the archive says and by what comes out; every file must have the hash it is filed under.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

import msgspec

from inferometer.core.codec import decode, encode
from inferometer.core.errors import FormatError, SchemaError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile, Run
from inferometer.store.files import path_of, whole
from inferometer.store.values import Metric

_SCHEMA = "inferometer.run-archive/1"
_RUN, _STORY, _FILES = "run.json", "story.json", "artifacts/"
_CHUNK = 1 << 20


@frozen
class ArchiveLimits:
    """What an archive may hold, unpacked."""

    entries: int = 1000
    document_bytes: int = 512_000_000
    total_bytes: int = 4_000_000_000
    ratio: float = 1100.0  # deflate cannot do better than 1,032 : 1; more is a trick


@frozen
class Story:
    """How the run went, which its document does not say."""

    schema: str = _SCHEMA
    kind: str = "profile"
    started: float | None = None
    ended: float | None = None
    reason: str | None = None
    author: str | None = None
    note: str | None = None
    metrics: tuple[Metric, ...] = ()


@frozen
class Packed:
    """What came out: a run, its story, and where its files lie, by hash; or a profile that was never a run."""

    run: Run | None = None
    profile: Profile | None = None
    story: Story = Story()
    files: Mapping[str, Path] = field(default_factory=dict)


def write_archive(run: Run, story: Story, folder: Path, to: Path) -> None:
    with (
        whole(to, mode=0o644) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive,
    ):
        archive.writestr(_RUN, encode(run))
        archive.writestr(_STORY, msgspec.json.encode(story))
        for sha256 in sorted({artifact.sha256 for artifact in run.artifacts}):
            archive.write(path_of(folder, sha256), _FILES + sha256)


def read_archive(path: Path, into: Path, limits: ArchiveLimits | None = None) -> Packed:
    """Read an archive, or a bare document of a run or profile. Files are unpacked into the folder, by hash."""
    limits = limits or ArchiveLimits()
    try:
        if not zipfile.is_zipfile(path):
            return _bare(path, limits)
        with zipfile.ZipFile(path) as archive:
            return _read(archive, into, limits)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FormatError(f"{path}: this archive is damaged ({error}).", remedy="Export the run again.") from None
    except (FormatError, SchemaError) as error:
        raise type(error)(f"{path}: {error.message}", remedy=error.remedy) from None


def _bare(path: Path, limits: ArchiveLimits) -> Packed:
    if path.stat().st_size > limits.document_bytes:
        raise FormatError(f"it is larger than the {limits.document_bytes:,} bytes a document may have.")
    data = path.read_bytes()
    if b'"inferometer.run/' in data[:200]:
        run = decode(data, Run)
        if run.artifacts:
            raise FormatError("this document names files that are not in it.", remedy="Import the run's archive.")
        return Packed(run=run)
    return Packed(profile=decode(data, Profile))


def _read(archive: zipfile.ZipFile, into: Path, limits: ArchiveLimits) -> Packed:
    entries = _checked(archive, limits)
    run = decode(_document(archive, entries, _RUN, limits), Run)
    data = _document(archive, entries, _STORY, limits)
    try:
        story = msgspec.json.decode(data, type=Story)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SchemaError(f"{_STORY} does not hold: {error}.") from None
    if story.schema != _SCHEMA:
        raise SchemaError(
            f"{_STORY} is of schema {story.schema!r}; this version of Inferometer reads {_SCHEMA}.",
            remedy="Upgrade with `pip install --upgrade inferometer`.",
        )
    wanted = {artifact.sha256: artifact.size_bytes for artifact in run.artifacts}
    held = {name.removeprefix(_FILES) for name in entries if name.startswith(_FILES)}
    if held != set(wanted):
        raise FormatError("the files in it are not those its run names.", remedy="Export the run again.")
    files = {sha256: _unpack(archive, sha256, size, into) for sha256, size in wanted.items()}
    return Packed(run=run, story=story, files=files)


def _checked(archive: zipfile.ZipFile, limits: ArchiveLimits) -> dict[str, zipfile.ZipInfo]:
    """Only names that an archive of ours has, once each, of sizes that can be."""
    entries = archive.infolist()
    if len(entries) > limits.entries:
        raise FormatError(f"it holds {len(entries)} files; {limits.entries} are the most.")
    for entry in entries:
        if not _known(entry.filename):
            raise FormatError(f"it holds {entry.filename[:80]!r}, which no archive of a run has.")
        if entry.file_size > limits.ratio * max(entry.compress_size, 1):
            raise FormatError(f"{entry.filename} would grow {limits.ratio:,.0f}-fold or more when unpacked.")
    if len({entry.filename for entry in entries}) != len(entries):
        raise FormatError("it holds the same file twice.")
    total = sum(entry.file_size for entry in entries)
    if total > limits.total_bytes:
        raise FormatError(f"it holds {total:,} bytes unpacked; {limits.total_bytes:,} are the most.")
    return {entry.filename: entry for entry in entries}


def _known(name: str) -> bool:
    if name in {_RUN, _STORY}:
        return True
    sha256 = name.removeprefix(_FILES)
    return name.startswith(_FILES) and len(sha256) == 64 and all(letter in "0123456789abcdef" for letter in sha256)


def _document(
    archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], name: str, limits: ArchiveLimits
) -> bytes:
    if name not in entries:
        raise FormatError(f"it has no {name}.", remedy="An archive is made by `inferometer export RUN -o run.zip`.")
    with archive.open(entries[name]) as file:
        data = file.read(limits.document_bytes + 1)
    if len(data) > limits.document_bytes:
        raise FormatError(f"{name} is longer than the {limits.document_bytes:,} bytes it may have.")
    return data


def _unpack(archive: zipfile.ZipFile, sha256: str, size: int, into: Path) -> Path:
    place, digest, written = into / sha256, hashlib.sha256(), 0
    with archive.open(_FILES + sha256) as file, place.open("wb") as out:
        while chunk := file.read(_CHUNK):
            written += len(chunk)
            if written > size:
                break
            digest.update(chunk)
            out.write(chunk)
    if written != size or digest.hexdigest() != sha256:
        raise FormatError(f"the file {sha256[:12]}… is not what its run says it is.", remedy="Export the run again.")
    return place
