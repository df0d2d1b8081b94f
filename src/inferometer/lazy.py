"""Public names that load when they are first used, so that importing a package costs nothing."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["attributes"]


def attributes(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A `__getattr__` for a package: `homes` says which module defines which names."""
    where = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(where[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
