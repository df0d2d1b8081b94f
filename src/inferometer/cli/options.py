"""Options that many commands share, and how they print: data on stdout, messages for people on stderr."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from inferometer.cli.encoding import is_unicode, write_message, write_out
from inferometer.core.errors import DomainError, InferometerError, UnitError, UnknownNameError
from inferometer.core.units import format_quantity, parse_quantity
from inferometer.understand.view.render import FORMATS, render
from inferometer.understand.view.table import Column, ReportTable, columns
from inferometer.understand.view.terminal import visible

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.predict.fields import Field, Takes
    from inferometer.understand.view.cards import Card, View

F = TypeVar("F", bound=Callable[..., Any])


class Whole(click.ParamType):  # type: ignore[type-arg] # newer clicks have one, which older ones refuse
    """A whole number, also as 1e6. A refusal names the limits; without them, what reads the value has its own."""

    name = "N"

    def __init__(self, least: int | None = None, most: int | None = None) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = _whole(value)
        if number is None or not _within(number, self.least, self.most):
            self.fail(f"{str(value)[:40]!r} is not a whole number{_range(self.least, self.most)}.", param, ctx)
        return number


class Number(click.ParamType):  # type: ignore[type-arg] # newer clicks have one, which older ones refuse
    """A finite number within limits that a refusal names, as above; `between` leaves the limits themselves out."""

    name = "X"

    def __init__(self, least: float | None = None, most: float | None = None, *, between: bool = False) -> None:
        self.least, self.most, self.between = least, most, between

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        on_a_limit = self.between and number in {self.least, self.most}
        if not math.isfinite(number) or on_a_limit or not _within(number, self.least, self.most):
            words = f" between {self.least:g} and {self.most:g}" if self.between else _range(self.least, self.most)
            self.fail(f"{str(value)[:40]!r} is not a finite number{words}.", param, ctx)
        return number


class Amount(click.ParamType):  # type: ignore[type-arg] # newer clicks have one, which older ones refuse
    """A quantity with its unit, within limits. The text is handed on: what reads it knows what a bare number means."""

    def __init__(self, name: str, unit: str, least: float, most: float) -> None:
        self.name, self.unit, self.least, self.most = name, unit, least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            number = parse_quantity(value, self.unit)
        except UnitError as error:
            self.fail(str(error), param, ctx)
        if not _within(number, self.least, self.most):
            limits = " to ".join(format_quantity(limit, self.unit) for limit in (self.least, self.most))
            self.fail(f"{value[:40]!r} is not within {limits}.", param, ctx)
        return str(value)


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except ValueError:  # no digits alone, or more of them than any number here has
        pass
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _within(number: float, least: float | None, most: float | None) -> bool:
    return (least is None or number >= least) and (most is None or number <= most)


def _range(least: float | None, most: float | None) -> str:
    return "" if least is None or most is None else f" from {least:,} to {most:,}"


# Limits that several commands share. Beyond them a number is a slip of the pen, or would not end in anyone's lifetime.
SEED = Whole(0, (1 << 32) - 1)  # what every engine takes
RUNS, WARMUP = Whole(1, 1_000_000), Whole(0, 1_000_000)
BATCH, TOKENS, IMAGE, THREADS, PORT = (
    Whole(1, 1 << 20), Whole(1, 1 << 27), Whole(1, 1 << 14), Whole(1, 1 << 16), Whole(0, 65_535),
)  # fmt: skip
DEVICES, SHARE = Whole(1, 1 << 16), Number(0, 1)
TIME, MEMORY = Amount("TIME", "s", 0, 366 * 86_400.0), Amount("SIZE", "B", 1, 1e18)
ALPHA, RATE, SPEED, BURSTINESS = Number(0, 1, between=True), Number(0, 1e9), Number(1e-6, 1e6), Number(0.01, 100)


def together(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator, in the order of the help page."""

    def with_options(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return with_options


def format_option(function: F) -> F:
    choice = click.Choice(FORMATS)
    return click.option("--format", "form", type=choice, default="table", help="Output format.")(function)


def percentile_option(function: F) -> F:
    share = Number(0, 100, between=True)
    words = "Also show this percentile of the times with its interval, such as 99; may be repeated."
    return click.option("--percentile", "percentiles", multiple=True, type=share, metavar="P", help=words)(function)


def where_option(function: F) -> F:
    return click.option(
        "--where", multiple=True, metavar="CONDITION", help="Keep only rows that match; repeat for several conditions."
    )(function)


def command_line() -> str:
    """The command as it was typed, to be kept with what it measured: without tokens and passwords."""
    import shlex

    from inferometer.store.location import without_password

    words = ["inferometer", *sys.argv[1:]]
    after_token = [before == "--token" for before in ["", *words[:-1]]]
    kept = ["***" if secret else word for word, secret in zip(words, after_token, strict=True)]
    return shlex.join(re.sub(r"^(--token=).*", r"\1***", without_password(word)) for word in kept)


def print_text(text: str) -> None:
    """For people: what a model or a file is called cannot move the cursor or set the window's title."""
    write_out(f"{visible(text)}\n")


def print_data(text: str) -> None:
    """For programs, as it is; but what goes to a terminal is read by a person."""
    write_out(f"{visible(text) if sys.stdout.isatty() else text}\n")


def print_table(table: ReportTable, form: str) -> None:
    (print_data if form in {"json", "csv"} else print_text)(render(table, form))


def print_rows(rows: Sequence[Mapping[str, Any]], shown: Sequence[str | Column], form: str, none: str = "") -> None:
    """Rows by these columns. Where there are none, `none` says so, and programs get the columns alone."""
    if not rows and none:
        say(none)
    if rows or not none or form != "table":
        print_table(ReportTable(columns=columns(*shown), rows=tuple(rows)), form)


def print_card(card: Card, form: str) -> None:
    """Draw a card for a terminal; in any other format, print a table of its facts."""
    if form == "table":
        from inferometer.understand.view.terminal import draw_card

        print_text(draw_card(card))
    else:
        from inferometer.understand.view.listings import card_table

        print_table(card_table(card), form)


def print_view(view: View, form: str) -> None:
    """The card, then each table after an empty line."""
    print_card(view.card, form)
    for table in view.tables:
        print_text("")
        print_table(table, form)


def print_document(plain: Any) -> None:
    import json

    print_data(json.dumps(plain, indent=2, ensure_ascii=not is_unicode(sys.stdout.encoding)))


def print_documents(documents: Sequence[Any]) -> None:
    """One document by itself, several as a list."""
    print_document(documents[0] if len(documents) == 1 else list(documents))


def print_profiles(profiles: Sequence[Profile], percentiles: Sequence[float] = ()) -> None:
    """Profiles as JSON. Percentiles that were asked for stand in every phase that has samples."""
    from inferometer.core.codec import document

    documents = [document(profile) for profile in profiles]
    if percentiles:
        from inferometer.measure.bench.statistics import percentile_documents

        shares = [percent / 100 for percent in percentiles]
        for profile, plain in zip(profiles, documents, strict=True):
            for phase, row in zip(profile.phases, plain["phases"], strict=True):
                row["percentiles"] = percentile_documents(phase, shares) if phase.samples_s else []
    print_documents(documents)


def say(message: str) -> None:
    """Print a message for people on stderr, so that pipes get only data."""
    write_message(f"{visible(message)}\n")


# The fields of a question as options of a command, made from the table of `predict.fields`.


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


def refuse_given(unwanted: Collection[str], reason: str, remedy: str) -> None:
    """Refuse options of the command line that would change nothing; `reason` has a place for the option's name."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in unwanted and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise DomainError(reason.format(parameter.opts[-1]), remedy=remedy)


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


def listed(text: str | None) -> tuple[str, ...]:
    """The names in a list with commas; none where the option was left out."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def split_lists(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Each of the names in a repeated option, of which each may be a list with commas."""
    names = listed(",".join(values))
    if values and not names:  # a variable of a script that is empty
        raise click.BadParameter("it is empty.", ctx=context, param=parameter)
    return names


def option_of(name: str) -> str:
    """What a command calls a field or a list of a sweep."""
    singular = {"devices": "on", "runtimes": "runtime"}
    return f"--{singular.get(name, name).replace('_', '-')}"


def taken(values: dict[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Take the fields that were given out of a command's values."""
    found = {name: values.pop(name) for name in fields}
    return {name: value for name, value in found.items() if value is not None and value != ()}


# A command that lists by itself and has subcommands. For a misspelt one, the error suggests the nearest.


class ListingGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            known = [name for name, command in self.commands.items() if not command.hidden]
            listing = f"Known: {', '.join(known)}."
            raise UnknownNameError(f"{self.name} subcommand", args[0], known, listing=listing)
        return super().resolve_command(ctx, args)


# The type of every option that names a file to write. The place is tried when the option is read.
#
# A measurement of an hour is not lost to a folder that may not be written to: each command checks its outputs before
# it does anything else, because click reads the options first. Nothing is left behind by the check.

_ELSEWHERE = "Choose another folder."


class OutputFile(click.Path):
    """A file to write; `folders`: a folder that is there will do too.

    The file's folder is made later if it is missing, unless it must be `there`: what took an hour to measure is worth a
    folder, and where a file can be written again at once, a missing folder is more likely a slip.
    """

    def __init__(self, *, folders: bool = False, there: bool = False) -> None:
        super().__init__(path_type=Path)
        self.folders, self.there = folders, there

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ARG002 - click's signature
        path = Path(value)
        if self.there and not path.absolute().parent.exists():
            missing = f"{path} cannot be written: there is no folder {path.parent}."
            raise InferometerError(missing, remedy="Make it first, or check the path.")
        require_writable(path, folders=self.folders)
        return path


def require_writable(path: Path, *, folders: bool = False) -> None:
    """Raise unless a file can be made there: by trying, since rights alone do not tell (a read-only disk, /proc)."""
    import tempfile

    try:
        if path.is_dir():
            if not folders:
                raise InferometerError(f"{path} is a folder, and a file is to be saved.", remedy="Name a file in it.")
            folder = path
        elif path.exists() and not path.is_file():  # a device or a pipe would be replaced by a file
            raise InferometerError(
                f"{path} is not a file that can be replaced.", remedy="Name a file; --format json prints the result."
            )
        else:
            folder = _nearest_folder(path)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InferometerError(f"{path} cannot be written: {error.strerror or error}.", remedy=_ELSEWHERE) from None


def _nearest_folder(path: Path) -> Path:
    """The folder that the file goes into, or the one in which that has to be made."""
    for folder in path.absolute().parents:
        if folder.is_dir():
            return folder
        if folder.exists():
            raise InferometerError(
                f"{path} cannot be written: {folder} is a file, and not a folder.", remedy=_ELSEWHERE
            )
    return path.absolute().parent
