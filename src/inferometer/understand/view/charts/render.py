"""The edge to vl-convert: a Vega-Lite spec as SVG, PNG or a page that needs no network. JSON needs nothing.

The colours and the theme that every chart has stand here too.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from inferometer.core.cache import write_whole
from inferometer.core.errors import DomainError, InferometerError, MissingDependencyError
from inferometer.core.settings import cache_folder
from inferometer.predict.sweep.columns import unit_of

# How every chart looks, and how a column's numbers are written on an axis.

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
INK, QUIET, LINES = "#1f2933", "#7b8794", "#e4e7eb"
# Okabe and Ito's colours, told apart by all eyes, and darker mixes of them where eight are not enough.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b5b95", "#8c8c00",
    "#003d5c", "#7a3600", "#005c43", "#7d3a5f", "#8a5f00", "#2a6f97", "#3f3560", "#4d4d00",
)  # fmt: skip

_TITLES = {
    "latency_s": "Latency",
    "ttft_s": "Time to first token",
    "tpot_s": "Time per output token",
    "e2e_s": "Whole request",
    "tokens_per_s": "Tokens a second",
    "peak_memory_bytes": "Peak memory",
    "energy_j": "Energy",
    "usd_per_million_tokens": "US dollars a million tokens",
    "co2e_g": "CO₂e",
    "unattributed_s": "On no op",
    "batch": "Batch",
    "prompt": "Prompt tokens",
    "generate": "Generated tokens",
    "context": "Context tokens",
    "tp": "Tensor-parallel devices",
}


def column_title(name: str) -> str:
    return _TITLES.get(name, name.replace("_", " ").capitalize())


def number_text(name: str, datum: str = "datum.value") -> str:
    """A Vega expression that writes a number of a column for people: 50 ms, 24 GB, $0.12, 1.2k."""
    unit = unit_of(name)
    if name.startswith("usd"):
        return f"'$' + format({datum}, ',.3~r')"
    if unit == "1":
        return f"{datum} < 10000 ? format({datum}, ',.4~r') : format({datum}, ',.0f')"
    # d3 writes the prefix against the number; a unit stands behind a space, and the prefix with it.
    return f"replace(format({datum}, '.3~s'), /([a-zµ]?)$/i, ' $1{unit}')"


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two others: 1, 2 and 5 of each power of ten, 1 and 3 over more of them, or 1 alone."""
    decades = log10(high / low)
    steps = (1, 2, 5) if decades <= 2.5 else (1, 3) if decades <= 4 else (1,)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def log_axis(name: str, values: Iterable[float]) -> dict[str, Any]:
    """A column on a logarithmic axis with room around its values, which are all greater than 0."""
    known = list(values)
    room = 1.15 if max(known) > min(known) else 3.0
    low, high = min(known) / room, max(known) * room
    scale = {"type": "log", "domain": [low, high], "nice": False}
    drawn = {"title": column_title(name), "labelExpr": number_text(name), "values": log_ticks(low, high)}
    return {"field": name, "type": "quantitative", "scale": scale, "axis": drawn}


def tooltip(fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """Fields of the data by their titles."""
    return [{"field": field, "title": title} for field, title in fields.items()]


def spec(*, title: str, subtitle: str | list[str] | None, body: Mapping[str, Any]) -> dict[str, Any]:
    """A whole spec: what is drawn, under a title, in this program's clothes."""
    heading: dict[str, Any] = {"text": title}
    if subtitle:
        heading["subtitle"] = subtitle
    return {"$schema": SCHEMA, "title": heading, "background": "white", "padding": 12, **body, "config": _CONFIG}


_CONFIG: dict[str, Any] = {
    "font": "Helvetica Neue, Helvetica, Arial, sans-serif",
    "title": {
        "anchor": "start", "frame": "group", "color": INK, "fontSize": 17, "fontWeight": 600, "offset": 16,
        "subtitleColor": QUIET, "subtitleFontSize": 12.5, "subtitlePadding": 6,
    },
    "view": {"stroke": None},
    "axis": {
        "labelColor": QUIET, "labelFontSize": 11.5, "titleColor": INK, "titleFontSize": 12.5, "titleFontWeight": 500,
        "titlePadding": 10, "gridColor": LINES, "domainColor": LINES, "tickColor": LINES, "labelOverlap": True,
    },
    "legend": {
        "labelColor": INK, "labelFontSize": 12, "titleColor": QUIET, "titleFontSize": 11.5, "titleFontWeight": 500,
        "labelLimit": 240, "rowPadding": 4,
    },
    "header": {"labelColor": INK, "labelFontSize": 12.5, "labelFontWeight": 600, "title": None},
}  # fmt: skip


FORMS = ("svg", "png", "html", "json")
_VERSION = "5.20"
_SHARP = 2.0  # pixels of a PNG for each of the spec's


_ADDRESSES = re.compile(r'(?:<script src="https://[^"]*"></script>\s*?)+(?=\s*</head>)')  # of Vega's scripts


def require_form(path: Path) -> str:
    """The form that a file's name asks for, with what drawing it needs at hand."""
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMS:
        raise DomainError(
            f"{path.name!r} does not say what to draw.",
            remedy=f"End the name with {', '.join(f'.{f}' for f in FORMS)}.",
        )
    if form != "json":
        _converter()
    return form


def render(spec: Mapping[str, Any], form: str) -> bytes:
    """The chart as the bytes of a file."""
    if form not in FORMS:
        raise DomainError(f"A chart cannot be made {form!r}.", remedy=f"It can be {', '.join(FORMS)}.")
    if form == "json":
        return (json.dumps(spec, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
    converter = _converter()
    try:
        if form == "png":
            made: bytes = converter.vegalite_to_png(dict(spec), vl_version=_VERSION, scale=_SHARP)
            return made
        if form == "svg":
            return str(converter.vegalite_to_svg(dict(spec), vl_version=_VERSION)).encode()
        return _page(converter, dict(spec)).encode()
    except ValueError as error:
        raise InferometerError(f"vl-convert cannot draw this chart: {error}.") from None


def _page(converter: Any, spec: dict[str, Any]) -> str:
    """A page that needs no network. Bundling Vega's scripts takes seconds, so they are kept for the next chart."""
    page = str(converter.vegalite_to_html(spec, vl_version=_VERSION, bundle=False))
    parts = _ADDRESSES.split(page)
    if len(parts) != 2 or any("<script src=" in part for part in parts):  # another vl-convert writes another page
        return str(converter.vegalite_to_html(spec, vl_version=_VERSION, bundle=True))
    return f'<script type="text/javascript">{_scripts(converter)}</script>'.join(parts)


def _scripts(converter: Any) -> str:
    path = cache_folder() / "charts" / f"vega-{converter.__version__}-{_VERSION}.js"
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    made = str(converter.javascript_bundle(vl_version=_VERSION))
    with suppress(OSError):  # a cache that cannot be written costs the seconds each time
        write_whole(path, made.encode())
    return made


def save(spec: Mapping[str, Any], path: Path) -> None:
    """Write a chart in the form that the file's name asks for."""
    data = render(spec, require_form(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise InferometerError(f"{path} cannot be written: {error.strerror}.") from None


def _converter() -> Any:
    try:
        return import_module("vl_convert")
    except ImportError:
        raise MissingDependencyError(
            "Drawing a chart needs vl-convert, which is not installed.",
            remedy="pip install 'inferometer[charts]', or ask for a .json file: the Vega-Lite spec.",
        ) from None
