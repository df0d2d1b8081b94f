"""Reading values out of a config without trusting them.

Every size that reaches a template has passed `Config.whole`: it is a whole number between 1 and a limit that no real
model comes near, so a hostile config costs neither time nor memory.
"""

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, overload

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen

LARGEST = 2**32  # of any single size
MANY_LAYERS = 4096  # of anything that is repeated
_NEEDED: Any = object()


@frozen
class Config:
    """A config's values under the names the templates use; `aliases` says what a family calls them instead.

    A key that is absent takes the family's default, then the caller's; with neither it is an error. A key that is null
    is meant to be nothing, so the family's default does not replace it.
    """

    name: str
    values: Mapping[str, Any]
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    inside: str = ""  # the path of a nested config: `text_config.`

    def get(self, key: str, default: Any = None) -> Any:
        """The raw value, or a default."""
        names = (*self.aliases.get(key, ()), key)
        for name in names:
            if (value := self.values.get(name)) is not None:
                return value
        is_null = any(name in self.values for name in names)
        return default if is_null else self.defaults.get(key, default)

    @overload
    def whole(self, key: str, default: int = ..., *, least: int = ..., most: int = ...) -> int: ...

    @overload
    def whole(self, key: str, default: None, *, least: int = ..., most: int = ...) -> int | None: ...

    def whole(self, key: str, default: int | None = _NEEDED, *, least: int = 1, most: int = LARGEST) -> int | None:
        """A whole number between `least` and `most`."""
        value = self._needed(key, default)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(key, f"must be a whole number from {least} to {most}, and is {_short(value)}")
        return value

    def layers(self, key: str, default: int = _NEEDED, *, least: int = 1) -> int:
        """How often something is repeated."""
        return self.whole(key, default, least=least, most=MANY_LAYERS)

    def number(self, key: str, default: float = _NEEDED) -> float:
        value = self._needed(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise self.error(key, f"must be a finite number, and is {_short(value)}")
        return float(value)

    def flag(self, key: str, default: bool = _NEEDED) -> bool:
        value = self._needed(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, and is {_short(value)}")
        return value

    def text(self, key: str, default: str = _NEEDED) -> str:
        value = self._needed(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be a text, and is {_short(value)}")
        return value

    def wholes(self, key: str, *, least: int = 1, count: int | None = None) -> tuple[int, ...]:
        """A list of whole numbers; where `count` is given a single number stands for that many equal ones."""
        value = self._needed(key, _NEEDED)
        if count is not None and isinstance(value, int):
            value = [value] * count
        return tuple(
            replace(self, values={key: item}, aliases={}).whole(key, least=least) for item in self._list(key, value)
        )

    def tables(self, key: str) -> "tuple[Config, ...]":
        """A list of tables, each as a config of its own."""
        items = self._list(key, self._needed(key, _NEEDED))
        return tuple(self._nested(f"{key}[{index}]", item) for index, item in enumerate(items))

    def texts(self, key: str, default: Any = _NEEDED) -> tuple[str, ...]:
        items = self._list(key, self._needed(key, default))
        if not all(isinstance(item, str) for item in items):
            raise self.error(key, f"must be a list of texts, and is {_short(items)}")
        return tuple(items)

    def table(self, key: str) -> "Config":
        """A config inside the config."""
        return self._nested(key, self._needed(key, _NEEDED))

    def require(self, keys: tuple[str, ...]) -> None:
        """Name every key that is missing at once, not one a try."""
        missing = [self._called(key) for key in keys if self.get(key) is None]
        if missing:
            raise FormatError(
                f"The config of {self.name!r} lacks {', '.join(missing)}.", remedy="Add what is missing to the config."
            )

    def error(self, key: str, problem: str) -> FormatError:
        return FormatError(f"The config of {self.name!r}: {self._called(key)} {problem}.")

    def _called(self, key: str) -> str:
        """The name the family's own configs have for a key."""
        names = (*self.aliases.get(key, ()), key)
        return self.inside + next((name for name in names if self.values.get(name) is not None), names[0])

    def _needed(self, key: str, default: Any) -> Any:
        value = self.get(key, default)
        if value is _NEEDED:
            self.require((key,))
        return value

    def _list(self, key: str, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or not 0 < len(value) <= MANY_LAYERS:
            raise self.error(key, f"must be a list of 1 to {MANY_LAYERS} items, and is {_short(value)}")
        return list(value)

    def _nested(self, key: str, value: Any) -> "Config":
        if not isinstance(value, Mapping):
            raise self.error(key, f"must be a table, and is {_short(value)}")
        return Config(name=self.name, values=value, inside=f"{self.inside}{key}.")


def _short(value: Any) -> str:
    """A value in a message: hostile ones may be long, and Python refuses to print the longest numbers."""
    try:
        text = repr(value)
    except ValueError:
        return f"a {type(value).__name__} too long to print"
    return text if len(text) <= 60 else f"{text[:57]}…"
