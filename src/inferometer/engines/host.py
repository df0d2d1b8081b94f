"""What engines need of the machine they run on: a sensible number of threads, and what C code writes to stderr."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from inferometer.core.errors import DomainError


def default_threads(physical: int | None, usable: int | None) -> int:
    """Two threads of one core share its arithmetic units: more threads than cores gain nothing."""
    known = [count for count in (physical, usable) if count]
    return max(1, min(known)) if known else 1


def threads_of(asked: int | None) -> int:
    """As many as asked for; by default one for each physical core that this process may use."""
    if asked is not None:
        if isinstance(asked, bool) or asked < 1:
            raise DomainError(f"The number of threads must be a whole number of 1 or more, and is {asked!r}.")
        return asked
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return default_threads(psutil.cpu_count(logical=False), usable)


@contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Keep what is written to the process's stderr, by C code too; the value returns it. Nothing is passed on."""
    with suppress(ValueError, OSError):
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as file:

        def written() -> str:
            """Read without moving: who writes meanwhile, in a thread of C's, shares the place in the file."""
            return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")

        os.dup2(file.fileno(), 2)
        try:
            yield written
        finally:
            os.dup2(kept, 2)
            os.close(kept)
