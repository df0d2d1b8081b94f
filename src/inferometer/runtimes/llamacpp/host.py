"""What both in-process engines need of the host: a sensible number of threads, and what C code writes to stderr."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["captured", "chosen_threads", "usable_cores"]


def usable_cores() -> int:
    """Physical cores this process may use, and at least one."""
    from inferometer.catalog.detect import detect_host  # noqa: PLC0415 - reads the machine, only when asked

    host = detect_host()
    known = [count for count in (host.cpu.physical_cores, host.usable_cpus) if count]
    return max(1, int(min(known))) if known else os.cpu_count() or 1


def chosen_threads(asked: int | None, *, cores: Callable[[], int] = usable_cores) -> int:
    if asked is not None and asked < 1:
        raise DomainError(f"{asked} threads were asked for.", remedy="Ask for one or more.")
    return asked if asked is not None else cores()


@contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Keeps what is written to the process's stderr, by C code too; the value gives it. It is passed on nowhere."""
    with suppress(ValueError, OSError):
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as file:

        def said() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
