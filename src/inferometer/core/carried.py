"""What a job may carry: names that stay inside its folder on every system, and the files that a model consists of."""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError, TrustError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

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
    """Files that a model of such an entry may consist of; what could be code, or belongs to no model, is refused."""
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
