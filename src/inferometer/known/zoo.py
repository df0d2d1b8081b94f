"""Model rows: a name, what was published about the model, and the config values that shape it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from inferometer.core.device import Sourced
from inferometer.core.frozen import frozen
from inferometer.known.files import all_of, one_named
from inferometer.known.load import CatalogRow


@frozen
class CatalogModel:
    """`parameters` is the published count; `config` has Hugging Face's own key names.

    `network` is a package's network that is the same model, where its traced graph says more than the config does.
    """

    name: str
    title: str
    family: str
    aliases: tuple[str, ...] = ()
    year: int | None = None
    parameters: Sourced | None = None
    active_parameters: Sourced | None = None
    context: Sourced | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    network: str | None = None
    notes: str | None = None


def models() -> Mapping[str, CatalogModel]:
    return all_of("models", _model)


def model(name: str) -> CatalogModel:
    """The model of that name or alias, matched exactly."""
    return one_named("models", name, _model, what="model")


def _model(row: CatalogRow) -> CatalogModel:
    row.allow(
        "title", "family", "aliases", "year", "parameters", "active_parameters", "context", "config", "network", "notes"
    )
    config = row.fields.get("config")
    if not isinstance(config, dict) or not config:
        raise row.place.at("config").error("must be a table with the values of the model's config.")
    return CatalogModel(
        name=row.name,
        title=row.required_text("title"),
        family=row.required_text("family"),
        aliases=row.names("aliases"),
        year=row.whole("year"),
        parameters=row.number("parameters", "1"),
        active_parameters=row.number("active_parameters", "1"),
        context=row.number("context", "1"),
        config=config,
        network=row.text("network"),
        notes=row.text("notes"),
    )
