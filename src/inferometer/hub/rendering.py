"""Templates: all data is escaped, and data for scripts goes into an element that browsers do not run."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from inferometer.units import format_capacity, format_quantity
from inferometer.version import __version__

_HERE = Path(__file__).parent
STATIC = _HERE / "static"


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
        "capacity": format_capacity,
        "moment": _moment,
        "share": _share,
        "evidence": _evidence,
    }
    env.globals |= {"version": __version__, "data_element": data_element}
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


def _evidence(numbers: Mapping[str, float]) -> str:
    from inferometer.report.explanations import evidence_text  # noqa: PLC0415 - only findings have it

    return evidence_text(numbers)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _moment(seconds: float | None) -> str:
    """In UTC; the page's script turns it into local time."""
    return "–" if seconds is None else datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
