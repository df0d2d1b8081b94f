"""The zip file of a PyTorch model: which members it has, and the few that are read.

Nothing is extracted to disk and nothing is unpickled. The directory is bounded before it is read, and so is every
member: a zip bomb is refused for what it claims, and stopped where it lies.
"""

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.json_text import parse_json

MAX_MEMBERS = 1_000_000
MAX_DIRECTORY = 256 << 20  # bytes of the zip directory
MAX_JSON = 256 << 20  # bytes of one JSON member
_MAX_RATIO = 250  # repetitive JSON packs 100 : 1; bombs pack 1000 : 1
_RATIO_FROM = 1 << 20  # smaller members cannot harm

_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_LOCAL = b"PK\x03\x04"
_BROKEN = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError,
    struct.error, OverflowError, OSError, KeyError, IndexError,
)  # fmt: skip


@frozen
class Archive:
    """Members by name, without the folder all of them stand in; how many bytes each has.

    One without `weights` describes tensors whose numbers lie elsewhere.
    """

    path: Path
    members: Mapping[str, zipfile.ZipInfo]
    weights: bool = True

    def size(self, name: str) -> int | None:
        member = self.members.get(name)
        return None if member is None else member.file_size

    def read(self, name: str, *, limit: int = MAX_JSON) -> bytes:
        """A member's bytes; what claims or turns out to be larger than the limit is refused."""
        member = self.members.get(name)
        if member is None:
            raise FormatError(
                f"{str(self.path)!r} has no member {name!r}: it is not a whole exported program.",
                remedy="Save it again with torch.export.save.",
            )
        _refuse_bomb(self.path, name, member, limit)
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(member) as file:
                data = file.read(limit + 1)
        except _BROKEN as error:
            raise FormatError(
                f"The member {name!r} of {str(self.path)!r} (at byte {member.header_offset}) cannot be read: {error}.",
                remedy="The file is damaged; copy or save it again.",
            ) from None
        if len(data) > limit:
            raise FormatError(f"The member {name!r} of {str(self.path)!r} is larger than the {limit:,} bytes allowed.")
        return data

    def document(self, name: str) -> Any:
        """What a member that is JSON says."""
        try:
            return parse_json(self.read(name))
        except ValueError as error:
            raise FormatError(
                f"The member {name!r} of {str(self.path)!r} is no JSON: {error}.", remedy="The file is damaged."
            ) from None


def open_archive(path: Path) -> Archive:
    """Read a zip file's directory. Torch puts all members into one folder; its name is left out."""
    try:
        with path.open("rb") as file:
            _bound_directory(path, file)
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except _BROKEN as error:
        raise FormatError(
            f"{str(path)!r} is not a sound zip file: {error}.", remedy="The file is damaged; copy or save it again."
        ) from None
    names = [entry.filename for entry in entries]
    _require_clear(path, names)
    folder = _common_folder(names)
    return Archive(path=path, members={entry.filename.removeprefix(folder): entry for entry in entries})


def _require_clear(path: Path, names: list[str]) -> None:
    """Names that mean one member each, to PyTorch too, which does not tell small letters from large ones."""
    seen: set[str] = set()
    for name in names:
        if ".." in name.split("/") or name.startswith("/") or any(mark in name for mark in "\\:\0"):
            raise FormatError(f"{str(path)!r} has a member {name[:80]!r}, which leads out of the archive.")
        if name.casefold() in seen:
            raise FormatError(f"{str(path)!r} has two members that are called {name[:80]!r}.")
        seen.add(name.casefold())


def local_names(head: bytes) -> list[str]:
    """The names of the members that a file's first bytes show, as their local headers give them."""
    names: list[str] = []
    place = 0
    while head[place : place + 4] == _LOCAL and len(head) >= place + 30:
        packed, name_length, extra_length = struct.unpack_from("<I4xHH", head, place + 18)
        start = place + 30
        names.append(head[start : start + name_length].decode("utf-8", errors="replace"))
        place = start + name_length + extra_length + packed
    return names


def _bound_directory(path: Path, file: IO[bytes]) -> None:
    """Refuse a directory that claims more than any model needs, before it is read into memory."""
    size = file.seek(0, 2)
    start = max(0, size - 65_536 - 22)
    file.seek(start)
    tail = file.read()
    end = tail.rfind(_END)
    if end < 0 or len(tail) < end + 22:
        raise zipfile.BadZipFile("it has no directory at its end")
    members, directory = struct.unpack_from("<H", tail, end + 10)[0], struct.unpack_from("<I", tail, end + 12)[0]
    locator = tail.rfind(_LOCATOR64, 0, end)
    if locator >= 0 and len(tail) >= locator + 16:
        file.seek(min(size, struct.unpack_from("<Q", tail, locator + 8)[0]))
        record = file.read(56)
        if record[:4] == _END64 and len(record) == 56:
            members, directory = struct.unpack_from("<QQ", record, 32)
    if members > MAX_MEMBERS or directory > min(MAX_DIRECTORY, size):
        raise FormatError(
            f"The directory of {str(path)!r} claims {members:,} members in {directory:,} bytes, of a file of {size:,}; "
            f"at most {MAX_MEMBERS:,} in {MAX_DIRECTORY:,} are read.",
        )


def _refuse_bomb(path: Path, name: str, member: zipfile.ZipInfo, limit: int) -> None:
    packed, unpacked = member.compress_size, member.file_size
    if unpacked > limit:
        raise FormatError(
            f"The member {name!r} of {str(path)!r} claims {unpacked:,} bytes; at most {limit:,} are read.",
        )
    if unpacked > _RATIO_FROM and unpacked > _MAX_RATIO * max(1, packed):
        raise FormatError(
            f"The member {name!r} of {str(path)!r} claims to unpack {packed:,} bytes to {unpacked:,}: a zip bomb.",
        )


def _common_folder(names: list[str]) -> str:
    folders = {name.split("/", 1)[0] + "/" if "/" in name else "" for name in names}
    folder = next(iter(folders)) if len(folders) == 1 else ""
    return "" if folder in {"models/", "data/"} else folder
