"""An engine's exceptions become errors of ours, which name the operator where the engine does."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from inferometer.core.errors import InferometerError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


@contextmanager
def guard(fault_of: Callable[[Path, str, Exception], Exception], path: Path, doing: str) -> Iterator[None]:
    """An engine's exception becomes what `fault_of` makes of it; ours and the interpreter's pass."""
    try:
        yield
    except (InferometerError, MemoryError):
        raise
    except Exception as error:  # engines' exceptions have no common root but this
        raise fault_of(path, doing, error) from error


def op_named(words: str, patterns: Iterable[re.Pattern[str]], *, which: int) -> str | None:
    """The operator, and the node, that a message speaks of; `which` of several, as in a list."""
    for pattern in patterns:
        matches = list(pattern.finditer(words))
        if matches:
            parts = matches[which].groupdict()
            return f"{parts['op']} (node {parts['node']!r})" if parts.get("node") else parts["op"]
    return None
