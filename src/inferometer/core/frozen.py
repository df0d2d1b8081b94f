"""`@frozen`: `dataclass(frozen=True, slots=True, kw_only=True)` that costs little until it is used.

The standard decorator compiles six functions for every class. A command imports a hundred classes, and that took a
quarter of its time. Here showing, comparing, hashing and freezing are the same few functions for all of them, and
`__init__` is compiled when somebody looks at it or a few instances were made without. The result is a dataclass:
`fields`, `replace`, `asdict`, copying, pickling and `inspect.signature` do with it what they do with any other. It does
not inherit from another.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache, partial
from operator import attrgetter
from typing import Any, ClassVar, NoReturn, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a value. Of the methods below it keeps those it defines itself."""
    for name, method in _METHODS.items():
        if cls.__dict__.get(name) is None:
            setattr(cls, name, method)
    made: type[T] = _slotted(cls)
    init = _Init()
    init.owner = made
    # After the class is made: Python 3.14 looks at its `__init__` while it gives it slots. A plain assignment is one
    # that type checkers refuse.
    setattr(made, "__init__", init)  # noqa: B010 - as said
    return made


def _slotted(cls: Any) -> Any:
    """The class anew, as a dataclass with slots. Field by field, since the standard one takes five times as long."""
    if any("__dataclass_fields__" in vars(base) for base in cls.__mro__):
        raise TypeError(f"cannot inherit from a dataclass: {cls.__name__}")
    entries: dict[str, Field[Any]] = {}
    for name, kind in cls.__annotations__.items():
        if "ClassVar" in kind if isinstance(kind, str) else getattr(kind, "__origin__", kind) is ClassVar:
            continue
        default = cls.__dict__.get(name, MISSING)
        if default.__class__.__hash__ is None:
            raise ValueError(f"a mutable default for {name}: use default_factory")
        entry: Any = default if isinstance(default, Field) else field(default=default)
        entry.name, entry.type, entry.kw_only = name, kind, True
        entry._field_type = _FIELD  # noqa: SLF001 - what `fields` looks for
        entries[name] = entry
    left_out = {"__dict__", "__weakref__", *entries}
    members = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    members |= {
        "__slots__": tuple(entries),
        "__dataclass_fields__": entries,
        "__dataclass_params__": _PARAMETERS,
        **{name: made for name in ("__match_args__", "__replace__") if (made := vars(_Standard).get(name)) is not None},
        "__doc__": cls.__doc__ or cls.__name__,  # without one the standard decorator works out a signature
    }
    made = type(cls)(cls.__name__, cls.__bases__, members)
    made.__qualname__ = cls.__qualname__
    return made


def made_when_read(cls: type, *names: str) -> None:
    """Let fields of a frozen class be given as `later(make)`: who never reads them does not wait for them."""
    for name in names:
        _wait(cls, name, cls.__dict__[name])


def _wait(cls: type, name: str, slot: Any) -> None:
    def get(self: Any) -> Any:
        value = slot.__get__(self)
        if isinstance(value, _Later):
            value = value.make()
            slot.__set__(self, value)
        return value

    setattr(cls, name, property(get, slot.__set__))


class _Later:
    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def later(make: Callable[[], T]) -> T:
    """What `make` makes, once it is read: for fields that `made_when_read` names."""
    made: Any = _Later(make)
    return cast("T", made)


class _Init:
    """Stands for a class's `__init__` until somebody looks at it, or has made a few instances."""

    __slots__ = ("few", "fill", "owner")
    owner: type

    def __init__(self) -> None:
        self.few = _FEW
        self.fill: Callable[..., None] | None = None

    def __get__(self, instance: Any, cls: type | None = None) -> Any:
        if isinstance(instance, self.owner) and self.few:  # Python 3.13 looks up a signature with the class as instance
            self.few -= 1
            self.fill = self.fill or _filling(self.owner)
            return partial(self.fill, instance)
        init = _compiled(self.owner)
        setattr(self.owner, "__init__", init)  # noqa: B010 - as above
        return init if instance is None else init.__get__(instance, cls)


class _Factory:
    """The default of a field whose value is made for each instance."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()
_FEW = 8  # instances that are filled field by field: to compile takes as long as some thirty of them


def _filling(cls: Any) -> Callable[..., None]:
    """What `_compiled` does, by a loop. What was given wrongly is left to that one, which says so as Python does."""
    slots = [(entry, getattr(cls, entry.name).__set__) for entry in fields(cls)]
    needed = {entry.name for entry in fields(cls) if entry.init and entry.default is entry.default_factory is MISSING}
    taken = {entry.name for entry in fields(cls) if entry.init}

    def fill(self: Any, *args: Any, **given: Any) -> None:
        if args or not needed <= given.keys() <= taken:
            _compiled(cls)(self, *args, **given)
        for entry, put in slots:
            if entry.name in given:
                put(self, given[entry.name])
            elif entry.default_factory is not MISSING:
                put(self, entry.default_factory())
            elif entry.default is not MISSING:
                put(self, entry.default)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    return fill


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


@dataclass(init=True, repr=True, eq=True, slots=True, kw_only=True, frozen=True)
class _Standard:
    """What the standard decorator says of a class like ours."""

    entry: int


_FIELD: Any = vars(_Standard)["__dataclass_fields__"]["entry"]._field_type  # noqa: SLF001 - as above
_PARAMETERS: Any = vars(_Standard)["__dataclass_params__"]

_METHODS: dict[str, Any] = {
    "__repr__": _show,
    "__eq__": _equal,
    "__hash__": _hash,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
