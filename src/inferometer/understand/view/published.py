"""Published measurements for people and machines: rows of a listing, sources, and the remark beside a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.units import counted, format_quantity
from inferometer.understand.view.table import Column, ReportTable, columns, filled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from inferometer.core.profile import Profile
    from inferometer.known.atlas import AtlasSource, PublishedMeasurement
    from inferometer.known.atlas.table import AtlasTable
    from inferometer.predict.published import BesidePublished
    from inferometer.predict.question import Question
    from inferometer.understand.view.cards import Fact

_LISTED = columns(
    "date", "device", "model", "runtime", "formats", "sizes",
    Column(key="quantity", heading="what"),
    Column(key="seconds", heading="time", unit="s"),
    "published", "source",
)  # fmt: skip
_SOURCES = columns(
    "dataset",
    Column(key="rows", heading="rows", exact=True),
    Column(key="devices", heading="devices", exact=True),
    Column(key="models", heading="models", exact=True),
    "date", "licence", "whose", "title", "url",
)  # fmt: skip
_TELLING = frozenset({"layout", "backend", "provider", "form", "delegate"})
_SERVED = {"ttft": "first token", "tpot": "each token"}
_UNITS = {"inputs/s": "inputs/s", "tokens/s": "tokens/s", "tokens/s/device": "tokens/s a device"}


def listing_row(row: PublishedMeasurement, source: AtlasSource) -> dict[str, Any]:
    """A measurement as a line that a person reads."""
    count = f"{row.count} × " if row.count > 1 else ""
    return {
        "date": row.date or source.date,
        "device": f"{count}{row.device or _short(row)}",
        "model": (row.model or row.model_published) + (f" ({row.part})" if row.part else ""),
        "runtime": engine_text(row),
        "formats": formats_text(row),
        "sizes": sizes_text(row),
        "quantity": row.quantity,
        "seconds": row.seconds,
        "published": f"{row.figure:g} {_UNITS[row.figure_unit]}" if row.figure_unit in _UNITS else None,
        "source": f"{source.short}, line {row.line}" if source.licence == "yours" else source.short,
    }


def _short(row: PublishedMeasurement) -> str:
    """The published name without what stands in brackets, others of the same job, and the unit that ran."""
    names = row.device_spelling if row.device_spelling and "|" in row.device_spelling else row.device_published
    bare = " / ".join(name.partition(" (")[0].strip() for name in names.split("|"))
    return f"{bare} {row.unit}" if row.unit and row.unit.casefold() not in bare.casefold() else bare


def engine_text(row: PublishedMeasurement) -> str | None:
    """`qnn 2.50, dlc`: the engine, its version, and the settings that tell rows apart."""
    name = row.engine or row.engine_published
    version = ".".join(row.version.split(".")[:2]) if row.version else None
    kept = [value for key, value in row.settings.items() if key in _TELLING]
    kept += [f"{row.settings['threads']} threads"] if "threads" in row.settings else []
    kept += [counted(int(row.settings["cores"]), "core")] if row.settings.get("cores", "").isdecimal() else []
    return ", ".join(filter(None, (" ".join(filter(None, (name, version))), *kept))) or None


def formats_text(row: PublishedMeasurement) -> str | None:
    """`i8`, or `i4 / i16` where weights and activations differ; else what was published."""
    known = dict.fromkeys(name for name in (row.weights, row.activations) if name)
    return " / ".join(known) or row.precision_published


def sizes_text(row: PublishedMeasurement) -> str | None:
    parts = (
        ("batch", row.batch if row.batch != 1 else None), ("image", row.image), ("input", row.input),
        ("prompt", row.prompt), ("generate", row.generate), ("context", row.context or None),
        ("concurrency", row.concurrency),
    )  # fmt: skip
    return ", ".join(f"{name} {value}" for name, value in parts if value is not None) or None


def listing_table(rows: Iterable[Mapping[str, Any]], *, more: int = 0) -> ReportTable:
    kept = tuple(rows)
    note = f"{more} more: --limit {len(kept) + more} shows them, --format csv has every column." if more else None
    return ReportTable(columns=filled(_LISTED, kept), rows=kept, note=note)


def measurement_document(row: PublishedMeasurement, source: AtlasSource) -> dict[str, Any]:
    """Everything that is known of a measurement, for machines."""
    plain = {name: getattr(row, name) for name in row.__slots__}  # type: ignore[attr-defined] # `frozen` gives slots
    known = {name: dict(value) if name == "settings" else value for name, value in plain.items() if value is not None}
    ends = {name: end for name, end in (("low_s", row.low_s), ("high_s", row.high_s)) if end is not None}
    about = {"title": source.title, "url": source.link(row.place), "licence": source.licence}
    return {**known, "seconds": row.seconds, **ends, "source": {"key": row.source, **about}}


def atlas_document(table: AtlasTable) -> dict[str, Any]:
    """The JSON of `inferometer atlas`. A name that no rule knows stays as published.

    `unit` is that of `value`; the unit of a chip that ran it is `chip_unit`.
    """
    from inferometer.known.atlas.shipped import source_named  # noqa: PLC0415 - brings numpy

    rows = [
        {
            **measurement_document(row, source_named(row.source)),
            "device": row.device or row.device_published,
            "model": row.model or row.model_published,
            "runtime": row.engine or row.engine_published,
            "version": row.version,
            "weights": row.weights,
            "batch": row.batch,
            "metric": row.quantity,
            "value": row.figure,
            "unit": row.figure_unit,
            "chip_unit": row.unit,
            "date": row.date,
        }
        for row in table.rows()
    ]
    return {"schema": "inferometer.atlas/1", "rows": rows}


def tidy_table(rows: Iterable[PublishedMeasurement]) -> ReportTable:
    """Every field as a column: what `inferometer atlas add` reads."""
    from inferometer.known.atlas.table import NUMBERS, TEXTS, settings_text  # noqa: PLC0415 - brings numpy

    names = (
        "device",
        "model",
        *(name for name in (*TEXTS, *NUMBERS) if name not in {"device", "model", "line", "file"}),
    )
    plain = []
    for row in rows:
        values = {name: getattr(row, name) for name in names}
        values["device"] = row.device or row.device_spelling or row.device_published
        values["model"] = row.model or row.model_spelling or row.model_published
        plain.append({**values, "settings": settings_text(row.settings), "seconds": row.seconds})
    listed = filled(columns(*names, "seconds"), plain) or columns(*names)
    return ReportTable(columns=listed, rows=tuple(plain))


def source_table(rows: Iterable[Mapping[str, Any]], *, addresses: bool) -> ReportTable:
    """Datasets and their sources. Addresses are for formats that do not break lines."""
    kept = tuple(rows)
    listed = _SOURCES if addresses else tuple(column for column in _SOURCES if column.key != "url")
    return ReportTable(columns=filled(listed, kept), rows=kept)


def apart_text(predicted_s: float, measured_s: float) -> str:
    """How far a prediction is from what was measured, as a person says it."""
    ratio = predicted_s / measured_s
    if abs(ratio - 1) < 0.005:
        return "the prediction is the same"
    if ratio > 2 or ratio < 0.5:
        return (
            f"the prediction is {ratio:.1f} × as long" if ratio > 1 else f"the prediction is {1 / ratio:.1f} × shorter"
        )
    return f"the prediction is {100 * abs(ratio - 1):.0f} % {'longer' if ratio > 1 else 'shorter'}"


def cited(row: PublishedMeasurement, source: AtlasSource) -> str:
    """`AI Hub, qnn 2.50, 2026-10`. An engine that publishes its own figures is named once."""
    engine = engine_text(row)
    told = None if engine and engine.casefold() == source.short.casefold() else engine
    return ", ".join(filter(None, (source.short, told, row.date or source.date)))


def beside_facts(besides: Sequence[BesidePublished], *, model: str, device: str) -> tuple[Fact, ...]:
    """Lines of a card: what others measured, who, and how far the two are apart; else how many measured otherwise."""
    from inferometer.known.atlas.looking import count_published  # noqa: PLC0415 - brings numpy

    if besides:
        return tuple(_beside_fact(beside) for beside in besides)
    many = count_published(model, device)
    if not many:
        return ()
    where = f"otherwise: inferometer atlas --model {model} --device {device}"
    return (("others measured", counted(many, "figure"), where),)


def _beside_fact(beside: BesidePublished) -> Fact:
    from inferometer.known.atlas.shipped import source_named  # noqa: PLC0415 - brings numpy

    row = beside.measured
    label = "others measured" if beside.phase == "forward" else f"others, {_SERVED.get(beside.phase, beside.phase)}"
    formats = f"{row.weights} weights" if "autocast" not in row.settings else f"{row.activations} autocast"
    apart = apart_text(beside.predicted_s, row.seconds)
    return label, format_quantity(row.seconds, "s"), f"{cited(row, source_named(row.source))}, {formats}; {apart}"


def beside_documents(besides: Iterable[BesidePublished]) -> list[dict[str, Any]]:
    from inferometer.known.atlas.shipped import source_named  # noqa: PLC0415 - brings numpy

    return [
        {
            "phase": beside.phase,
            "predicted_s": beside.predicted_s,
            "apart": beside.apart,
            "measured": measurement_document(beside.measured, source_named(beside.measured.source)),
        }
        for beside in besides
    ]


def prediction_document(question: Question, profile: Profile) -> dict[str, Any]:
    """The JSON of a prediction: its profile, and what others measured under the same conditions."""
    from inferometer.core.codec import document  # noqa: PLC0415 - lists do without
    from inferometer.predict.published import published_beside  # noqa: PLC0415 - as above

    told = document(profile)
    told["summary"] |= rates_of(question, profile)
    return {**told, "published": beside_documents(published_beside(question, profile))}


def rates_of(question: Question, profile: Profile) -> dict[str, float]:
    """What follows from the other figures of a summary, where it applies: what people quote, under their names."""
    from inferometer.predict.applicable import takes_image  # noqa: PLC0415 - as above
    from inferometer.understand.view.phrases import token_energy  # noqa: PLC0415 - as above

    summary, energy = profile.summary, token_energy(profile)
    found = {"rtf": summary.real_time_factor}
    if takes_image(question.graph) and profile.model.frames is None:
        found["images_per_s"] = summary.inputs_per_s
    if energy is not None:
        found |= dict(
            zip(("energy_j_per_token", "energy_j_per_token_low", "energy_j_per_token_high"), energy, strict=True)
        )
    return {name: value for name, value in found.items() if value is not None}
