"""The fields of a question as options of a command, made from the table of `predict.fields`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from inferometer.predict.fields import Field, Takes

F = TypeVar("F", bound=Callable[..., Any])

_TAKEN: dict[Takes, dict[str, Any]] = {
    "whole": {"type": int},
    "number": {"type": float},
    "share": {"type": click.FloatRange(0, 1)},
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
                how, words = {**how, "multiple": True}, f"{words.removesuffix('.')}; may be repeated."
            option = f"--{name.replace('_', '-')}"
            function = click.option(option, field.keyword or name, help=f"{words}{default}{rest}", **how)(function)
        return function

    return with_options


def list_options(fields: Mapping[str, Field]) -> Callable[[F], F]:
    """Give a command an option that takes a list for each of the fields."""

    def with_options(function: F) -> F:
        for name, field in reversed([*fields.items()]):
            at_first = "" if field.default is None else f"  [default: {field.default}]"
            function = click.option(f"--{name}", metavar="LIST", help=f"{field.help}{at_first}")(function)
        return function

    return with_options


def taken(values: dict[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Take the fields that were given out of a command's values."""
    found = {name: values.pop(name) for name in fields}
    return {name: value for name, value in found.items() if value is not None and value != ()}
