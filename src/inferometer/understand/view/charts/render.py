"""The edge to vl-convert: a Vega-Lite spec as SVG, PNG or a page that needs no network. JSON needs nothing."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError, InferometerError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMS = ("svg", "png", "html", "json")
_VERSION = "5.20"
_SHARP = 2.0  # pixels of a PNG for each of the spec's


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
        return str(converter.vegalite_to_html(dict(spec), vl_version=_VERSION, bundle=True)).encode()
    except ValueError as error:
        raise InferometerError(f"vl-convert cannot draw this chart: {error}.") from None


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
