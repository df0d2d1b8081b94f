"""Templates: all data is escaped, and data for scripts goes into an element that browsers do not run."""

import shlex
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from inferometer.core.units import format_capacity, format_duration, format_quantity
from inferometer.hub.web.assets import asset_address, module_scripts
from inferometer.store.values import Visitor
from inferometer.version import __version__

# Whose request is being answered. A page is rendered in a thread, which gets a copy of it.
signed_in: ContextVar[Visitor | None] = ContextVar("signed_in", default=None)
_HERE = Path(__file__).parent


@cache
def environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "quantity": _quantity,
        "duration": _duration,
        "capacity": format_capacity,
        "moment": _moment,
        "share": _share,
        "evidence": _evidence,
        "coded": _coded,
        "linked": _linked,
        "shell": shlex.quote,
        "span": _span,
    }
    env.globals |= {
        "version": __version__,
        "asset": asset_address,
        "data_element": data_element,
        "module_scripts": module_scripts,
        "signed_in": signed_in.get,
    }
    return env


def render_template(name: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(name).render(values)


def data_element(name: str, value: Any) -> Markup:
    """A value as JSON in the page. `<` is escaped in it, so that no name can end the element."""
    text = msgspec.json.encode(value).decode()
    for letter, written in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        text = text.replace(letter, written)
    return Markup('<script type="application/json" id="{}">').format(name) + Markup(text) + Markup("</script>")  # noqa: S704 - escaped above


def _quantity(value: float | None, unit: str, digits: int = 4) -> str:
    return "–" if value is None else format_quantity(value, unit, digits=digits)


def _duration(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds)


def _coded(text: str | None) -> Markup:
    """Text of ours with its commands between backticks as code. Everything in it is escaped."""
    parts = (text or "").split("`")
    if len(parts) % 2 == 0:  # one that stands alone is a backtick
        return escape(text)
    tags = (Markup("<code>%s</code>") % part if number % 2 else escape(part) for number, part in enumerate(parts))
    return Markup("").join(tags)


def _linked(source: str) -> Markup:
    """A source that ends with its address, as a link to it."""
    words, comma, address = source.rpartition(", https://")
    if not comma or not address or set(address) & set(" \"'<>"):
        return escape(source)
    link = Markup('<a href="https://%s" rel="noreferrer" target="_blank">https://%s</a>') % (address, address)
    return escape(f"{words}, ") + link


def _evidence(numbers: Mapping[str, float]) -> str:
    from inferometer.understand.view.explanations import evidence_text  # noqa: PLC0415 - only findings have it

    return evidence_text(numbers)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _span(seconds: float) -> str:
    """How long something took, in the words of a clock."""
    if seconds < 60:
        return format_quantity(seconds, "s", digits=3)
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _moment(seconds: float | None) -> str:
    """In UTC; the page's script turns it into local time."""
    return "–" if seconds is None else datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
