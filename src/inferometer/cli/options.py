"""Options that many commands share, and how they print: data on stdout, messages for people on stderr."""

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferometer.cli.encoding import is_unicode, write_message, write_out
from inferometer.understand.view.render import FORMATS, render
from inferometer.understand.view.table import ReportTable
from inferometer.understand.view.terminal import visible

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.understand.view.cards import Card, View

F = TypeVar("F", bound=Callable[..., Any])


def format_option(function: F) -> F:
    choice = click.Choice(FORMATS)
    return click.option("--format", "form", type=choice, default="table", help="Output format.")(function)


def percentile_option(function: F) -> F:
    share = click.FloatRange(0, 100, min_open=True, max_open=True)
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


def print_card(card: "Card", form: str) -> None:
    """Draw a card for a terminal; in any other format, print a table of its facts."""
    if form == "table":
        from inferometer.understand.view.terminal import draw_card

        print_text(draw_card(card))
    else:
        from inferometer.understand.view.listings import card_table

        print_table(card_table(card), form)


def print_view(view: "View", form: str) -> None:
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


def print_profiles(profiles: "Sequence[Profile]", percentiles: Sequence[float] = ()) -> None:
    """Profiles as JSON. Percentiles that were asked for stand in every phase that has samples."""
    from inferometer.core.codec import document

    documents = [document(profile) for profile in profiles]
    if percentiles:
        from inferometer.measure.bench.percentiles import percentile_documents

        shares = [percent / 100 for percent in percentiles]
        for profile, plain in zip(profiles, documents, strict=True):
            for phase, row in zip(profile.phases, plain["phases"], strict=True):
                row["percentiles"] = percentile_documents(phase, shares) if phase.samples_s else []
    print_documents(documents)


def say(message: str) -> None:
    """Print a message for people on stderr, so that pipes get only data."""
    write_message(f"{visible(message)}\n")
