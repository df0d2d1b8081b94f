"""The type of every option that names a file to write. The place is tried when the option is read.

A measurement of an hour is not lost to a folder that may not be written to: each command checks its outputs before it
does anything else, because click reads the options first. Nothing is left behind by the check.
"""

import tempfile
from pathlib import Path
from typing import Any

import click

from inferometer.core.errors import InferometerError

_ELSEWHERE = "Choose another folder."


class OutputFile(click.Path):
    """A file to write; `folders`: a folder that is there will do too.

    The file's folder is made later if it is missing, unless it must be `there`: what took an hour to measure is worth a
    folder, and where a file can be written again at once, a missing folder is more likely a slip.
    """

    def __init__(self, *, folders: bool = False, there: bool = False) -> None:
        super().__init__(path_type=Path)
        self.folders, self.there = folders, there

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ARG002 - click's signature
        path = Path(value)
        if self.there and not path.absolute().parent.exists():
            missing = f"{path} cannot be written: there is no folder {path.parent}."
            raise InferometerError(missing, remedy="Make it first, or check the path.")
        require_writable(path, folders=self.folders)
        return path


def require_writable(path: Path, *, folders: bool = False) -> None:
    """Raise unless a file can be made there: by trying, since rights alone do not tell (a read-only disk, /proc)."""
    try:
        if path.is_dir():
            if not folders:
                raise InferometerError(f"{path} is a folder, and a file is to be saved.", remedy="Name a file in it.")
            folder = path
        elif path.exists() and not path.is_file():  # a device or a pipe would be replaced by a file
            raise InferometerError(
                f"{path} is not a file that can be replaced.", remedy="Name a file; --format json prints the result."
            )
        else:
            folder = _nearest_folder(path)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InferometerError(f"{path} cannot be written: {error.strerror or error}.", remedy=_ELSEWHERE) from None


def _nearest_folder(path: Path) -> Path:
    """The folder that the file goes into, or the one in which that has to be made."""
    for folder in path.absolute().parents:
        if folder.is_dir():
            return folder
        if folder.exists():
            raise InferometerError(
                f"{path} cannot be written: {folder} is a file, and not a folder.", remedy=_ELSEWHERE
            )
    return path.absolute().parent
