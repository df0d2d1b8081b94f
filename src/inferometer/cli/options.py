"""Options that every command has, and how a command's answer leaves it: data on stdout, words on stderr."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferometer.cli.encoding import is_unicode
from inferometer.report.render import FORMATS, render
from inferometer.report.table import ReportTable

if TYPE_CHECKING:
    from inferometer.report.cards import Card

F = TypeVar("F", bound=Callable[..., Any])


def format_option(function: F) -> F:
    choice = click.Choice(FORMATS)
    return click.option(
        "--format", "form", type=choice, default="table", show_default=True, help="Form of the answer."
    )(function)


def print_text(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def print_table(table: ReportTable, form: str) -> None:
    print_text(render(table, form))


def print_card(card: "Card", form: str) -> None:
    """A card as it is drawn, or its facts in the form asked for."""
    if form == "table":
        from inferometer.report.terminal import draw_card

        print_text(draw_card(card))
    else:
        from inferometer.report.listings import card_table

        print_table(card_table(card), form)


def print_document(plain: Any) -> None:
    import json

    print_text(json.dumps(plain, indent=2, ensure_ascii=not is_unicode(sys.stdout.encoding)))


def say(words: str) -> None:
    """For people, not for pipes."""
    sys.stderr.write(f"{words}\n")
