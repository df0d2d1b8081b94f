"""The file or folder that is written: which format its name asks for, whether it may be, and all of it or nothing."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError, FormatError
from inferometer.formats.synth.files import landing, landing_folder
from inferometer.measure.prepare.carrying_out import model_files
from inferometer.measure.prepare.chain import goals_of
from inferometer.measure.prepare.steps import COMPANIONS, FOLDERS, SUFFIXES

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.core.engine import EngineDescriptor


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
