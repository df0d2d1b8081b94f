"""Public names that load when they are first used, so that importing a package costs nothing."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType as _Module
    from typing import Any
else:
    _Module = type(sys)  # `types` and `typing` would be a third of what the first page takes


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


_shown_by: list[str] = []


def shown_by(package: str) -> None:
    """Say which package draws values: the front door does, which stands above both."""
    _shown_by[:] = [package]


def late(module: str, name: str) -> Any:
    """What draws a value, loaded now. For methods by which a value is shown: how it is drawn is decided above it."""
    return getattr(import_module(f"{_shown_by[0]}.{module}"), name)


def callable_package(package: str, home: str) -> None:
    """Make a package the verb of its own name, which the module `home` defines; it may stand above the package.

    Importing any module of a package sets the package's name in its parent, in place of a function of that name. So
    the package itself is called.
    """
    name = package.rpartition(".")[2]

    class Verb(_Module):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(import_module(home), name)(*arguments, **options)

        @property
        def __signature__(self) -> Any:
            """The verb's, for help and completion."""
            from inspect import signature  # noqa: PLC0415 - for people who look

            return signature(getattr(import_module(home), name))

    sys.modules[package].__class__ = Verb
    setattr(sys.modules[package], name, sys.modules[package])  # whoever takes the one may call the other


class Framed:
    """For a value that is also a table, by its `to_columns`: the same as a data frame, by a library imported then."""

    __slots__ = ()

    def to_pandas(self) -> Any:
        """The same columns as a `pandas.DataFrame`."""
        return late("frames", "pandas_frame")(self)

    def to_polars(self) -> Any:
        """The same columns as a `polars.DataFrame`."""
        return late("frames", "polars_frame")(self)
