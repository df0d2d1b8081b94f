"""The fields of the predict page beyond the first few, which have places of their own: those with a group."""

from __future__ import annotations

from typing import Any

from inferometer.known.files import names_of
from inferometer.predict.fields import FIELDS

GROUPED = {name: field for name, field in FIELDS.items() if field.group}


def field_groups() -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, field in GROUPED.items():
        said, _, default = field.help.partition("  [default: ")
        groups.setdefault(field.group, []).append(
            {
                "name": name,
                "label": field.label or name.replace("_", " ").capitalize(),
                "takes": field.takes,
                "hint": default.rstrip("]") or said.partition(", such as ")[2].rstrip("."),
                "help": said.partition(": `inferometer")[0].rstrip(".:") + ".",
                "list": field.catalog or None,
            }
        )
    return [{"title": title, "fields": fields} for title, fields in groups.items()]


def name_lists() -> dict[str, list[str]]:
    """The names that a browser offers; models and devices come when one chooses, calibrations with a model."""
    kinds = {field.catalog for field in GROUPED.values()} - {"", "models", "devices", "calibrations"}
    return {"calibrations": [], **{kind: names_of(kind) for kind in sorted(kinds)}}
