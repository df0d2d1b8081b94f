"""The file or folder that is written: which format its name asks for, whether it may be, and all of it or nothing."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path

from inferometer.core.engine import EngineDescriptor
from inferometer.core.errors import DomainError, FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.settings import cache_folder
from inferometer.formats.synth.files import landing, landing_folder
from inferometer.known.files import row_named
from inferometer.measure.prepare.carrying_out import model_files
from inferometer.measure.prepare.chain import goals_of
from inferometer.measure.prepare.steps import COMPANIONS, FOLDERS, SUFFIXES

# What a prepared file was made of, so that advice about it can begin there: most formats lead to no other.
#
# It is kept beside the cache by the file's content, and holds wherever the file is copied to on this machine.

_PIECE = 1 << 16  # of the beginning and the end of each file: a whole one may have gigabytes


@frozen
class Origin:
    """`model` is a name of the catalog, or a path. `image` and `sizes` are fixed in some of the files made of it."""

    model: str
    image: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


def keep_origin(artifact: Path, origin: Origin) -> None:
    """A cache that cannot be written is none."""
    model = origin.model if row_named("models", origin.model) else str(Path(origin.model).resolve())
    with suppress(OSError):
        place = _place(artifact)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(asdict(replace(origin, model=model))), encoding="utf-8")


def origin_of(model: str) -> Origin | None:
    """What a file was made of here, if that is still there."""
    try:
        origin = Origin(**json.loads(_place(Path(model)).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, InferometerError):
        return None
    return origin if row_named("models", origin.model) or Path(origin.model).exists() else None


def _place(path: Path) -> Path:
    digest = hashlib.sha256()
    for file in model_files(path):
        size = file.stat().st_size
        with file.open("rb") as content:
            digest.update(f"{size}\0".encode() + content.read(_PIECE))
            content.seek(max(0, size - _PIECE))
            digest.update(content.read(_PIECE))
    return cache_folder() / "prepared" / "origins" / digest.hexdigest()[:32]


def goal_of(out: Path | None, engine: EngineDescriptor, overwrite: bool) -> str | None:
    """The format that the name of the file asks for; refused before any work, if it cannot be."""
    if out is None:
        return None
    if out.exists() and not overwrite:
        raise DomainError(f"{out} exists already.", remedy="Give another name, or overwrite it with --overwrite.")
    _require_writable(out.absolute().parent)
    opens = [form for form in engine.opens if form in SUFFIXES]
    named = (form for form in (*goals_of(engine), *SUFFIXES) if out.name.endswith(SUFFIXES.get(form, "/")))
    goal = next(named, None)
    folder = next((form for form in engine.opens if form in FOLDERS), None)
    if folder is not None and (goal is None or not opens):
        # the folder is replaced as a whole: one that holds something else is left alone
        if goal is not None or out.is_file():
            raise FormatError(
                f"{engine.title} opens a folder, and {out.name} is the name of a file.", remedy="Name a folder."
            )
        if out.is_dir() and any(out.iterdir()) and not (out / FOLDERS[folder]).is_file():
            raise DomainError(
                f"{out} holds other things than a model of {engine.title}, and would be replaced.",
                remedy="Name a folder of its own.",
            )
        return folder
    if goal not in opens:
        endings = " or ".join(dict.fromkeys(SUFFIXES[form] for form in opens))
        raise FormatError(f"{out.name} is no name of a file that {engine.title} opens.", remedy=f"End it in {endings}.")
    if out.is_dir():
        raise DomainError(f"{out} is a folder, where {out.name} is to be a file.", remedy="Give another name.")
    beside = out.with_suffix(COMPANIONS[goal]) if goal in COMPANIONS else None
    if beside is not None and beside.exists() and not overwrite:
        raise DomainError(
            f"{beside} exists already, where the weights of {out.name} would lie.",
            remedy="Give another name, or overwrite it with --overwrite.",
        )
    return goal


def _require_writable(folder: Path) -> None:
    """Before any work: what is not there yet is made in the nearest folder that is."""
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise DomainError(f"Nothing can be written in {there}.", remedy="Choose a folder you may write to.")


def require_another(out: Path | None, source: Path) -> None:
    """Refuse to write over the model itself, which everything is proven against."""
    if out is not None and out.resolve() in {source, *source.parents}:
        raise DomainError(
            f"{out} is the model itself, or has it inside, and would be replaced.", remedy="Give another name."
        )


def written(path: Path, out: Path | None, *, overwrite: bool) -> Path:
    """The artifact under the user's name, all of its files or none; without a name it stays in the cache."""
    if out is None:
        return path
    if path.is_dir():
        with landing_folder(out, overwrite=overwrite, needs_bytes=bytes_of(path)) as partial:
            shutil.copytree(path, partial)
        return out
    form = next(form for form, suffix in SUFFIXES.items() if path.name.endswith(suffix))
    pairs = [(path, out)]
    if form in COMPANIONS:
        pairs.insert(0, (path.with_suffix(COMPANIONS[form]), out.with_suffix(COMPANIONS[form])))
    pairs = [*((file, out.parent / file.name) for file in model_files(path) if file.suffix == ".data"), *pairs]
    size = sum(file.stat().st_size for file, _ in pairs)
    with landing(*(place for _, place in pairs), overwrite=overwrite, needs_bytes=size) as partial:
        for (file, _), place in zip(pairs, partial, strict=True):
            shutil.copyfile(file, place)
    return out


def bytes_of(path: Path) -> int:
    return sum(file.stat().st_size for file in model_files(path))
