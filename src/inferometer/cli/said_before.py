"""What a command printed when it was asked the very same before, without asking again.

A prediction loads numpy, the catalog and the price of a graph to print forty lines that cannot have changed. So what
pure commands print is kept in the cache folder under everything that it depends on: the arguments with the files they
name, the environment, the terminal, the day, the packages that are installed, our own files, and the user's rows and
calibrations. Whatever cannot be known from outside (this machine as it is now) is never kept.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from inferometer.core import settings
from inferometer.core.stamps import stamp_of, stamp_of_data, stamp_of_ours, stamp_of_tree

# Functions of what `mark_of` looks at, and of nothing else. They must be asked about a device that the catalog has.
_PURE = frozenset({"atlas", "catalog", "devices", "formulas", "models", "predict"})
_MOST_FILES = 2_000  # beside a model: above that, to look at them takes as long as to predict
_MOST_BYTES = 2_000_000  # of one text
_MOST_TEXTS = 400
_CHANGING = frozenset({"_", "OLDPWD", "SHLVL"})  # variables that a shell sets anew for each command


def mark_of(arguments: Sequence[str]) -> str | None:
    """A digest of everything that the answer to a command line depends on; None where it must be worked out."""
    if not settings.remembers() or not _is_pure(arguments):
        return None
    try:
        stamps = [
            stamp_of_ours(),
            *(stamp_of(entry or ".") for entry in sys.path),  # a package that comes or goes changes its folder
            stamp_of(settings.config_file()),
            stamp_of_data(settings.data_folder()),
            *(stamp_of_tree(folder) for folder in settings.catalog_folders()),
            *(_beside(path) for argument in arguments for path in (argument, argument.partition("=")[2]) if path),
        ]
    except OverflowError:
        return None
    streams = [(stream.isatty(), stream.encoding) for stream in (sys.stdout, sys.stderr)]
    facts = (
        sys.version, sys.executable, str(Path.cwd()), time.strftime("%Y-%m-%d"), streams, _width(),
        sorted(item for item in settings.variables().items() if item[0] not in _CHANGING), list(arguments), stamps,
    )  # fmt: skip
    return sha256(ascii(facts).encode()).hexdigest()  # the environment has secrets, which lie in no cache


def _is_pure(arguments: Sequence[str]) -> bool:
    if arguments[0] not in _PURE or any("local" in argument for argument in arguments):
        return False
    asks_for_help = not {"--help", "-h"}.isdisjoint(arguments)
    return arguments[0] != "predict" or asks_for_help or any(a.startswith("--on") for a in arguments)


def _width() -> int | None:
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stdout.fileno()).columns
    return None


def _beside(argument: str) -> Any:
    """The files that a name in the arguments may stand for: a folder's, or a file's with those beside it."""
    path, stamp = Path(argument), stamp_of(argument)
    if stamp is None:
        return None
    return stamp, stamp_of_tree(path if path.is_dir() else path.parent, most=_MOST_FILES)


def _file_of(mark: str) -> Path:
    return settings.cache_folder() / "said" / mark


def said(mark: str) -> str | None:
    """What was printed then."""
    with suppress(OSError, ValueError):
        return _file_of(mark).read_bytes().decode()
    return None


@contextmanager
def listening() -> Iterator[Callable[[str], None]]:
    """A function that keeps, under a mark, what is printed meanwhile; nothing if stderr has a word to say, too."""
    printed: list[str] = []
    other: list[str] = []  # what stderr got, and what stdout could not take
    streams: tuple[tuple[Any, list[str]], ...] = ((sys.stdout, printed), (sys.stderr, other))
    for stream, heard in streams:
        stream.write = _heard(stream.write, heard, other)
    try:
        yield lambda mark: None if other else _keep(mark, "".join(printed))
    finally:
        for stream, _ in streams:
            del stream.write  # the class's own is there again


def _heard(write: Callable[[str], int], heard: list[str], lost: list[str]) -> Callable[[str], int]:
    def written(text: str) -> int:
        try:
            length = write(text)
        except OSError:
            lost.append(text)
            raise
        heard.append(text)  # after, because click tries with bytes, whether it may
        return length

    return written


def _keep(mark: str, text: str) -> None:
    """Whole or not at all; a folder that cannot be written costs an answer each time."""
    path = _file_of(mark)
    if not text or len(text) > _MOST_BYTES:
        return
    from inferometer.core.cache import write_among

    with suppress(OSError):
        write_among(path, text.encode(), most=_MOST_TEXTS)
