"""Rows of the catalog → the rules of an engine's scheduler, by version."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from inferometer.core.engine import Admission, Order, SchedulerRules, Victim
from inferometer.core.errors import DomainError
from inferometer.known.engines import version_numbers
from inferometer.known.files import all_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from inferometer.known.load import CatalogRow

_KEYS = (
    "title", "engine", "since", "order", "admission", "victim", "prefix_cache", "ahead", "gang", "apart",
    "waits_after_preemption", "estimate_start", "estimate_least", "estimate_steps", "slots", "step_tokens", "source",
)  # fmt: skip


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
    row.allow(*_KEYS)
    source = row.sources.get(row.text("source") or "", {})
    return SchedulerRules(
        engine=row.required_text("engine"),
        since=row.required_text("since"),
        title=row.required_text("title"),
        order=_one_of(row, "order", Order),
        admission=_one_of(row, "admission", Admission),
        victim=_one_of(row, "victim", Victim),
        prefix_cache=row.text("prefix_cache") == "yes",
        ahead=row.text("ahead") == "yes",
        gang=row.text("gang") == "yes",
        apart=row.text("apart") == "yes",
        waits_after_preemption=row.text("waits_after_preemption") != "no",
        estimate_start=_number(row, "estimate_start"),
        estimate_least=_number(row, "estimate_least"),
        estimate_steps=row.whole("estimate_steps") or 0,
        slots=row.whole("slots"),
        step_tokens=row.whole("step_tokens"),
        source=source.get("title", ""),
        url=source.get("url", ""),
    )


def _number(row: CatalogRow, key: str) -> float:
    number = row.number(key, "1")
    return 0.0 if number is None else number.value


def _one_of(row: CatalogRow, key: str, choices: Any) -> Any:
    value = row.required_text(key)
    if value not in get_args(choices):
        raise row.place.at(key).error(f"is {value!r}, and must be one of {', '.join(get_args(choices))}.")
    return value
