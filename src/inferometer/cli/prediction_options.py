"""The fields of a question as options of a command, made from the table of `predict.fields`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferometer.cli.options import SHARE, Number, Whole

if TYPE_CHECKING:
    from inferometer.predict.fields import Field, Takes

F = TypeVar("F", bound=Callable[..., Any])

_TAKEN: dict[Takes, dict[str, Any]] = {
    "whole": {"type": Whole()},  # a question names its limits
    "number": {"type": Number()},
    "share": {"type": SHARE},
    "switch": {"is_flag": True},
    "text": {},
    "texts": {"multiple": True},
}


def field_options(
    fields: Mapping[str, Field], *, several: Collection[str] = (), said: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """Give a command an option for each of the fields; those in `several` may be repeated, to compare them.

    `said` is the help of fields that mean something narrower to this command.
    """

    def with_options(function: F) -> F:
        for name, field in reversed([*fields.items()]):
            how: dict[str, Any] = {"default": field.default, **_TAKEN[field.takes]}
            if field.metavar:
                how["metavar"] = field.metavar
            words, default, rest = (said or {}).get(name, field.help).partition("  [default: ")
            if name in several:
                how |= {"multiple": True, "callback": split_lists}
                words = f"{words.removesuffix('.')}; several are compared."
            names = (option_of(name), field.keyword or name)
            function = click.option(*names, help=f"{words}{default}{rest}", **how)(function)
        return function

    return with_options


def list_options(fields: Mapping[str, Field]) -> Callable[[F], F]:
    """Give a command an option that takes a list for each of the fields, under the name of the list."""

    def with_options(function: F) -> F:
        for name, field in reversed([*fields.items()]):
            words = field.help if field.default is None else f"{field.help}  [default: {field.default}]"
            function = list_option(f"--{name}", field.axis, help=words)(function)
        return function

    return with_options


def list_option(*names: str, **how: Any) -> Callable[[F], F]:
    """An option that takes a list, separated by commas or repeated; its value is one text."""
    return click.option(*names, multiple=True, callback=_joined, **{"metavar": "LIST", **how})


def _joined(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> str | None:  # noqa: ARG001 - click's signature
    return ",".join(values) if values else None


def split_lists(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG001 - click's signature
    """Each of the names in a repeated option, of which each may be a list with commas."""
    return tuple(name for value in values for name in map(str.strip, value.split(",")) if name)


def option_of(name: str) -> str:
    """What a command calls a field or a list of a sweep."""
    singular = {"devices": "on", "runtimes": "runtime"}
    return f"--{singular.get(name, name).replace('_', '-')}"


def taken(values: dict[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Take the fields that were given out of a command's values."""
    found = {name: values.pop(name) for name in fields}
    return {name: value for name, value in found.items() if value is not None and value != ()}
