"""A form: the columns that recognise it, and how a line of it becomes measurements."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from inferometer.core.dtypes import dtype
from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known.atlas.csv_lines import CsvLine, LineError
from inferometer.known.atlas.devices import catalog_device
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.names import match_model


@frozen
class Form:
    """`read` may raise `LineError`: the line is set aside with that reason."""

    name: str
    title: str
    columns: frozenset[str]
    read: Callable[[CsvLine], Iterable[PublishedMeasurement]]


def published(  # noqa: PLR0913 - what every measurement has
    line: CsvLine,
    *,
    dataset: str,
    device_published: str,
    model_published: str,
    quantity: str,
    figure: float,
    figure_unit: str,
    device_spelling: str | None = None,
    model_spelling: str | None = None,
    **facts: Any,
) -> PublishedMeasurement:
    """A measurement of a line, its names matched. `facts` are other fields of the measurement.

    A spelling is what is looked up instead of the published name, where that needs a word more or less.
    """
    if not figure > 0:
        raise LineError(f"{quantity} is {figure:g} {figure_unit}, and should be above zero.")
    facts.setdefault("source", dataset)
    return PublishedMeasurement(
        dataset=dataset, file=line.file, line=line.number, device_published=device_published,
        model_published=model_published, device_spelling=_if_other(device_spelling, device_published),
        model_spelling=_if_other(model_spelling, model_published), quantity=quantity, figure=figure,
        figure_unit=figure_unit, device=catalog_device(device_spelling or device_published, facts.get("unit")),
        model=match_model(model_spelling or model_published, dataset=dataset, part=facts.get("part")), **facts,
    )  # fmt: skip


def _if_other(spelling: str | None, name: str) -> str | None:
    return None if spelling == name else spelling


def settings(**values: Any) -> Mapping[str, str]:
    """Settings that were stated; `;` and `=` would break their text."""
    return {name: str(value).replace(";", ",").replace("=", ":") for name, value in values.items() if value is not None}


def format_named(text: str | None) -> str | None:
    """Our name of a number format as others spell it, and None where it is not one."""
    try:
        return None if text is None else dtype(text.strip()).name
    except UnknownNameError:
        return None


def quantised(text: str | None) -> tuple[str | None, str | None]:
    """Weights and activations of `w4a16`, `W8A8`, `int8`, `fp16` …; a mix that is not spelt out is unknown."""
    lowered = (text or "").casefold().partition("_")[0]
    if lowered.startswith("w") and "a" in lowered:
        weights, _, activations = lowered[1:].partition("a")
        return _bits(weights), _bits(activations)
    if lowered.startswith("w"):
        return _bits(lowered[1:]), None
    known = format_named(text)
    return known, known


def _bits(bits: str) -> str | None:
    return {"2": "i2", "4": "i4", "8": "i8", "16": "i16"}.get(bits)
