"""`@frozen`: `dataclass(frozen=True, slots=True, kw_only=True)` that costs little until it is used.

The standard decorator compiles six functions for every class. A command imports a hundred classes, and that took a
quarter of its time. Here showing, comparing, hashing and freezing are the same few functions for all of them, and
`__init__` is compiled when the first instance is made. The result is a dataclass: `fields`, `replace`, `asdict`,
copying, pickling and `inspect.signature` do with it what they do with any other. It does not inherit from another.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a value. Of the methods below it keeps those it defines itself."""
    for name, method in _METHODS.items():
        if cls.__dict__.get(name) is None:
            setattr(cls, name, method)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else the standard decorator works out a signature, to have something to say
    made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    init = _Init()
    init.owner = made
    # After the class is made: Python 3.14 looks at its `__init__` while it gives it slots. A plain assignment is one
    # that type checkers refuse.
    setattr(made, "__init__", init)  # noqa: B010 - as said
    parameters: Any = made.__dict__["__dataclass_params__"]
    parameters.init = parameters.repr = parameters.eq = parameters.frozen = True  # what it is, though made here
    return made


class _Init:
    """Stands for a class's `__init__` until somebody looks at it."""

    __slots__ = ("owner",)
    owner: type

    def __get__(self, instance: Any, cls: type | None = None) -> Any:
        init = _compiled(self.owner)
        setattr(self.owner, "__init__", init)  # noqa: B010 - as above
        return init if instance is None else init.__get__(instance, cls)


class _Factory:
    """The default of a field whose value is made for each instance."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _compiled(cls: Any) -> Any:
    """`def __init__(self, *, name, other=default, …)`, which sets one slot after the other."""
    names: dict[str, Any] = {"_factory": _FACTORY}
    parameters, lines = [], []
    for entry in fields(cls):
        name, default = entry.name, entry.default if entry.default_factory is MISSING else _FACTORY
        names |= {f"_set_{name}": getattr(cls, name).__set__, f"_default_{name}": default}
        names[f"_make_{name}"] = entry.default_factory
        if entry.init:
            parameters.append(name if default is MISSING else f"{name}=_default_{name}")
        if entry.init or default is not MISSING:
            lines.append(f"_set_{name}(self, {_source(entry)})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join(["self", *(["*"] if parameters else []), *parameters])
    exec(f"def __init__({head}):\n " + "\n ".join(lines or ["pass"]), names)  # noqa: S102 - made of field names alone
    init = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {**{entry.name: entry.type for entry in fields(cls) if entry.init}, "return": None}
    return init


def _source(entry: Field[Any]) -> str:
    """Where the value of a field comes from, as code."""
    name, made = entry.name, f"_make_{entry.name}()"
    if entry.default_factory is MISSING:
        return name if entry.init else f"_default_{name}"
    return f"{made} if {name} is _factory else {name}" if entry.init else made


@cache
def _compared(cls: Any, *, hashed: bool = False) -> Callable[[Any], tuple[Any, ...]]:
    """What equality, or the hash, looks at, as a tuple: a field may be left out of the hash alone (`hash=False`)."""
    names = [entry.name for entry in fields(cls) if entry.compare and not (hashed and entry.hash is False)]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _show(self: Any) -> str:
    parts = (f"{entry.name}={getattr(self, entry.name)!r}" for entry in fields(self) if entry.repr)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = _compared(self.__class__)
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(_compared(self.__class__, hashed=True)(self))


def _refuse_set(self: Any, name: str, value: Any) -> NoReturn:  # noqa: ARG001 - Python's signature
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> NoReturn:  # noqa: ARG001 - Python's signature
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, entry.name) for entry in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for entry, kept in zip(fields(self), state, strict=True):
        object.__setattr__(self, entry.name, kept)


_METHODS: dict[str, Any] = {
    "__repr__": _show,
    "__eq__": _equal,
    "__hash__": _hash,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
