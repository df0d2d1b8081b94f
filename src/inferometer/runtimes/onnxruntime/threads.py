"""How many threads an engine gets where none are asked for: one a physical core that this process may use."""

from __future__ import annotations

import os

import psutil

from inferometer.errors import DomainError

__all__ = ["default_threads", "threads_of"]


def default_threads(physical: int | None, usable: int | None) -> int:
    """Two threads of one core share its arithmetic units: more threads than cores gain nothing."""
    known = [count for count in (physical, usable) if count]
    return max(1, min(known)) if known else 1


def threads_of(asked: int | None) -> int:
    if asked is not None:
        if isinstance(asked, bool) or asked < 1:
            raise DomainError(f"The number of threads must be a whole number of 1 or more, and is {asked!r}.")
        return asked
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return default_threads(psutil.cpu_count(logical=False), usable)
