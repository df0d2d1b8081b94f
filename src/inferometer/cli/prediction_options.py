"""The flags of a prediction, for the commands that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from inferometer.predict.flags import FLAGS, Takes

F = TypeVar("F", bound=Callable[..., Any])

_TAKEN: dict[Takes, dict[str, Any]] = {
    "whole": {"type": int},
    "number": {"type": float},
    "share": {"type": click.FloatRange(0, 1)},
    "switch": {"is_flag": True, "default": None},
    "text": {},
    "texts": {"multiple": True},
}


def prediction_options(function: F) -> F:
    """Give a command all of the flags."""
    for name, flag in reversed(FLAGS.items()):
        how = {"metavar": flag.metavar, **_TAKEN[flag.takes]} if flag.metavar else _TAKEN[flag.takes]
        function = click.option(f"--{name.replace('_', '-')}", name, help=flag.help, **how)(function)
    return function


def taken(values: dict[str, Any]) -> dict[str, Any]:
    """Take the flags that were given out of a command's values."""
    flags = {name: values.pop(name) for name in FLAGS}
    return {name: value for name, value in flags.items() if value is not None and value != ()}
