"""Models as lists of files by the hash of their content, and copies of such files that can be broken off and resumed.

What belongs to a model depends on its format: one file (ONNX, TFLite, GGUF, .pt2), a file and what it points to (ONNX
with external data, OpenVINO's .xml and ncnn's .param with their .bin, the parts of a GGUF), or a folder (safetensors
with a config).
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from inferometer.core.errors import DomainError, FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.job import JobFile, JobModel, travels
from inferometer.core.settings import cache_folder
from inferometer.formats.resolve import read
from inferometer.hub.places.base import LocalFiles
from inferometer.hub.places.device_side import CHUNK, artifact_path, hash_file, part_path, seal, write_whole
from inferometer.known.files import is_built_in, row_named
from inferometer.known.zoo import model as catalog_model
from inferometer.known.zoo import require_file

_REMEMBERED = 4096  # hashes of files, the last used
_GGUF_PART = re.compile(r"(.*)-\d{5}-of-\d{5}\.gguf")


@frozen
class ModelFiles:
    """A model as a job names it, and where its files are on this machine."""

    model: JobModel
    paths: LocalFiles


def model_files(name: str, *, hashes: "FileHashes | None" = None) -> ModelFiles:
    """The files of a model that the user named: none for a catalog name, which every place can make for itself."""
    row = row_named("models", name)
    if row is not None and is_built_in("models", name):
        return ModelFiles(model=JobModel(name=name), paths={})
    if row is None:
        require_file(name)
    path = Path(name) if row is None else _as_folder(row.name)
    if not path.exists():
        read(name)  # says that there is no such model, and which names are near
    hashes = hashes or FileHashes()
    base = path.resolve().parent if not path.is_dir() else path.resolve()
    entry = path.resolve().name
    members = _folder(base) if path.is_dir() else [path.resolve(), *companions(path.resolve())]
    files, paths = [], {}
    for member in members:
        inside = member.relative_to(base).as_posix()
        file = hashes.file(member, f"{entry}/{inside}" if path.is_dir() else inside)
        files.append(file)
        paths[file.sha256] = member
    hashes.remember()
    return ModelFiles(model=JobModel(name=entry, entry=entry, files=tuple(files)), paths=paths)


def _as_folder(name: str) -> Path:
    """A model of the user's own catalog as a folder with its config: other places do not have the row."""
    folder = cache_folder() / "configs" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "config.json", json.dumps(dict(catalog_model(name).config), indent=1).encode())
    return folder


def _folder(folder: Path) -> list[Path]:
    """What of a folder belongs to the model: not what tools hide there (.git, .cache), code, pickles or pictures."""
    members = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and travels(path.name, {other.name for other in path.parent.glob("*.xml")})
    )
    if not members:
        raise FormatError(
            f"The folder {str(folder)!r} has no files of a model in it.", remedy="Name the folder with the model."
        )
    return members


def companions(path: Path) -> list[Path]:
    """The files beside a model's file that it cannot be opened without."""
    if path.suffix in {".xml", ".param"}:  # OpenVINO and ncnn
        return _required(path, [path.with_suffix(".bin")])
    if (part := _GGUF_PART.fullmatch(path.name)) is not None:
        return [other for other in sorted(path.parent.glob(f"{part[1]}-*-of-*.gguf")) if other != path]
    if path.suffix == ".onnx":
        data = read(str(path)).metadata.get("external_data", {})
        return _required(path, [path.parent / name for name in data.get("files", ())])
    return []


def _required(path: Path, companions: list[Path]) -> list[Path]:
    for companion in companions:
        if not companion.is_file():
            raise FormatError(
                f"{str(path)!r} needs {companion.name!r} beside it, which is not there.", remedy="Copy it there."
            )
    return companions


class FileHashes:
    """Hashes of files, remembered by path, size and time of change: a model of 100 GB is not read for every job."""

    def __init__(self, memory: Path | None = None) -> None:
        self._memory = memory or cache_folder() / "hashes.json"
        self._known: dict[str, str] = {}
        self._new = False
        with suppress(OSError, ValueError):
            known = json.loads(self._memory.read_bytes())
            self._known = known if isinstance(known, dict) else {}

    def file(self, path: Path, named: str) -> JobFile:
        try:
            status = path.stat()
            key = f"{path}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}"
            sha256 = self._known.pop(key, None)
            if sha256 is None:
                sha256, self._new = hash_file(path), True
        except OSError as error:
            raise InferometerError(f"{path} cannot be read: {error.strerror or error}.") from None
        self._known[key] = sha256  # the last used comes last
        return JobFile(path=named, sha256=sha256, size_bytes=status.st_size)

    def remember(self) -> None:
        if self._new:
            recent = dict(list(self._known.items())[-_REMEMBERED:])
            with suppress(OSError):  # remembering is a favour
                self._memory.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._memory, json.dumps(recent).encode())


def chunks_from(path: Path, offset: int, size: int = CHUNK) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        while data := file.read(size):
            yield data


@frozen
class ArtifactFolder:
    """The artifacts of a place on this machine: `artifacts/ab/HASH` in its root. A hub or an agent keeps one too."""

    root: Path

    def path(self, sha256: str) -> Path:
        return artifact_path(self.root, sha256)

    def missing(self, hashes: Sequence[str]) -> tuple[str, ...]:
        return tuple(sha256 for sha256 in dict.fromkeys(hashes) if not self.path(sha256).is_file())

    def arrived(self, sha256: str) -> int:
        """How much of a file is there: where a copy that broke off goes on."""
        part = part_path(self.root, sha256)
        return part.stat().st_size if part.is_file() else 0

    def append(self, sha256: str, offset: int, data: bytes, *, most: int) -> int:
        """Add a chunk. One that was sent twice is written once; one that leaves a gap, or is too much, is refused."""
        part = part_path(self.root, sha256)
        part.parent.mkdir(parents=True, exist_ok=True)
        have = self.arrived(sha256)
        if offset > have:
            raise DomainError(
                f"A chunk of {sha256[:12]}… begins at byte {offset:,}, and {have:,} are there.",
                remedy=f"Send it from byte {have:,} on.",
            )
        fresh = data[have - offset :]
        if have + len(fresh) > most:
            raise DomainError(f"{sha256[:12]}… was said to have {most:,} bytes, and more were sent.")
        with part.open("ab") as file:
            file.write(fresh)
        return have + len(fresh)

    def seal(self, sha256: str, *, part: str | None = None) -> None:
        """`part` is what the part is called, where it is not by the hash alone."""
        if not seal(str(self.root), sha256, part):
            raise FormatError(
                f"What arrived as {sha256[:12]}… has another hash, and was thrown away.", remedy="Send it again."
            )

    def add(self, path: Path, file: JobFile, *, tell: Callable[[int], None] = lambda _sent: None) -> None:
        """Copy a file in, from where an earlier copy broke off."""
        if not self.missing([file.sha256]):
            return
        at = self.arrived(file.sha256)
        for data in chunks_from(path, at):
            at = self.append(file.sha256, at, data, most=file.size_bytes)
            tell(at)
        if at == 0:  # an empty file has no chunks
            self.append(file.sha256, 0, b"", most=0)
        self.seal(file.sha256)
