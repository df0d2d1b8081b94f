"""Rows of the catalog → the rules of an engine's scheduler, by version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.engine import SchedulerRules
from inferometer.core.errors import DomainError
from inferometer.known.engines import version_numbers
from inferometer.known.files import all_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.known.load import CatalogRow


def schedulers() -> Mapping[str, SchedulerRules]:
    return all_of("schedulers", _rules)


def scheduler_of(engine: str, version: str | None = None) -> SchedulerRules:
    """The rules of an engine from the newest version on that is not newer than the one asked for."""
    known = sorted(
        (rules for rules in schedulers().values() if rules.engine == engine), key=lambda r: version_numbers(r.since)
    )
    if not known:
        engines = ", ".join(sorted({rules.engine for rules in schedulers().values()}))
        raise DomainError(f"The scheduler of {engine} is not known.", remedy=f"Ask for --runtime {engines}.")
    if version is None:
        return known[-1]
    older = [rules for rules in known if version_numbers(rules.since) <= version_numbers(version)]
    return older[-1] if older else known[0]


def _rules(row: CatalogRow) -> SchedulerRules:
    source = row.sources.get(row.text("source") or "", {})
    return row.value(SchedulerRules, source=source.get("title", ""), url=source.get("url", ""))
