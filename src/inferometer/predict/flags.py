"""From fields as a person writes them to the options of a question: texts with units, names of the catalog.

A field that is not given is absent; `options_from` makes `Options` of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError, UnitError
from inferometer.predict.fields import ACCEPTANCE, DRAFT_LENGTH, FIELDS, fields_that

if TYPE_CHECKING:
    from inferometer.predict.options import Battery, EnergyCosts, HostCosts, Hosting, Offload, Options, Speculative

Flags = Mapping[str, Any]
FLAGS = fields_that("option", "cost")


def parse_sizes(assignments: Iterable[str]) -> dict[str, int]:
    """The values of `--size NAME=N`."""
    sizes: dict[str, int] = {}
    for assignment in assignments:
        name, _, value = assignment.rpartition("=")
        if not name or not value.isdecimal() or int(value) < 1:
            raise DomainError(f"{assignment!r} is not a size.", remedy="Write NAME=N, for example sequence=128.")
        sizes[name] = int(value)
    return sizes


@cache
def usual_options() -> Options:
    """One object for all who ask for nothing: what was made for it is found by its identity."""
    from inferometer.predict.options import Options  # noqa: PLC0415 - as below

    return Options()


def options_from(flags: Flags, base: Options | None = None) -> Options:
    """The options that the flags ask for, above those of `base`."""
    found = base or usual_options()
    if not flags:  # what nearly everyone asks
        return found
    from inferometer.known import link  # noqa: PLC0415 - a command's help needs no cost model
    from inferometer.predict.options import Options  # noqa: PLC0415 - as above

    same = {option.name for option in fields(Options)} - {"link", "battery", "host_speed"}  # read below
    changed: dict[str, Any] = {name: flags[name] for name in same & flags.keys()}
    if "link" in flags:
        changed["link"] = link(flags["link"]) if isinstance(flags["link"], str) else flags["link"]
    if "audio" in flags:
        changed["audio_s"] = _quantity(flags, "audio")
    if "cooling" in flags:
        changed["cooling_w"] = _quantity(flags, "cooling")
    if "storage" in flags:
        changed["storage_bytes_per_s"] = _quantity(flags, "storage")
    if "host_speed" in flags:
        changed |= _host_speed(flags)
    if "override" in flags:
        changed["overrides"] = {**found.overrides, **_overrides(flags["override"])}
    return replace(
        found,
        **changed,
        offload=_offload(flags, found.offload),
        speculative=_speculative(flags, found.speculative),
        host=_host(flags, found.host),
        place=_place(flags, found.place),
        energy=_energy(flags, found.energy),
        battery=_battery(flags, found.battery),
    )


def _quantity(flags: Flags, name: str, *, bare: bool = False) -> float:
    """A text needs its unit unless the field's name has it (`bare`): a battery of "50" may be joules or watt-hours.

    A number is in SI base units, as all are in Python.
    """
    from inferometer.core.units import parse_quantity  # noqa: PLC0415 - as above

    if isinstance(flags[name], int | float):
        return float(flags[name])
    try:
        return parse_quantity(flags[name], FIELDS[name].unit or "s", bare=bare)
    except UnitError as error:
        raise DomainError(f"--{name.replace('_', '-')}: {error.message}", remedy=error.remedy) from None


def _host_speed(flags: Flags) -> dict[str, float | None]:
    """A bare number is a ratio of speeds, a time is what `doctor` reads."""
    try:
        return {"host_speed": float(flags["host_speed"]), "host_call_s": None}
    except ValueError:
        return {"host_speed": None, "host_call_s": _quantity(flags, "host_speed")}


def _overrides(assignments: Iterable[str]) -> dict[str, str]:
    found = {}
    for assignment in assignments:
        pattern, sign, stored = assignment.rpartition("=")
        if not (pattern and sign and stored):
            raise DomainError(f"--override {assignment!r} is no assignment.", remedy='Write "lm_head=f16".')
        found[pattern] = stored
    return found


def _offload(flags: Flags, before: Offload | None) -> Offload | None:
    from inferometer.predict.options import Offload  # noqa: PLC0415 - as above

    keys = {"offload_layers": "layers", "offload_experts": "experts"}
    given = {field: flags[name] for name, field in keys.items() if name in flags}
    return replace(before or Offload(), **given) if given else before


def _speculative(flags: Flags, before: Speculative | None) -> Speculative | None:
    keys = {"draft_length": "length", "acceptance": "acceptance"}
    given: dict[str, Any] = {field: flags[name] for name, field in keys.items() if name in flags}
    if given.get("length") == 0:
        raise DomainError("A draft has 1 token or more, and --draft-length is 0.", remedy="Leave --draft out.")
    if "draft_up_to" in flags:
        from inferometer.predict.options import draft_schedule  # noqa: PLC0415 - as above

        length = given.get("length", DRAFT_LENGTH if before is None else before.length)
        given["up_to"] = draft_schedule(flags["draft_up_to"], length)
    if "draft" not in flags:
        if given and before is None:
            raise DomainError(
                "--draft-length, --acceptance and --draft-up-to are of a draft, and none is given.",
                remedy="Add --draft.",
            )
        return before if before is None else replace(before, **given)
    from inferometer.predict.ask import model_graph  # noqa: PLC0415 - as above
    from inferometer.predict.options import Speculative  # noqa: PLC0415 - as above

    return Speculative(draft=model_graph(flags["draft"]), **{"length": DRAFT_LENGTH, "acceptance": ACCEPTANCE, **given})


def _host(flags: Flags, before: HostCosts) -> HostCosts:
    keys = {
        "tokenise": "tokenise_s_per_token", "sampling": "sampling_s", "detokenise": "detokenise_s_per_token",
    }  # fmt: skip
    return replace(before, **{field: _quantity(flags, name) for name, field in keys.items() if name in flags})


def _place(flags: Flags, before: Hosting) -> Hosting:
    given = {name: flags[name] for name in ("instance", "usd_per_hour", "spot", "grid", "pue") if name in flags}
    with suppress(KeyError, ValueError):  # it is not given, or the name of a row
        given["pue"] = float(given["pue"])
    return replace(before, **given)


def _energy(flags: Flags, before: EnergyCosts | None) -> EnergyCosts | None:
    names = ("joules_per_flop", "joules_per_byte")
    given = {name: _quantity(flags, name, bare=True) for name in names if name in flags}
    if not given:
        return before
    if before is None and len(given) < len(names):
        raise DomainError("--joules-per-flop and --joules-per-byte go together.", remedy="Give both.")
    from inferometer.predict.options import EnergyCosts  # noqa: PLC0415 - as above

    return replace(before, **given) if before is not None else EnergyCosts(**given)


def _battery(flags: Flags, before: Battery | None) -> Battery | None:
    given: dict[str, Any] = {"capacity_j": _quantity(flags, "battery")} if "battery" in flags else {}
    keys = {"per_second": "per_s", "battery_efficiency": "efficiency"}
    given |= {field: flags[name] for name, field in keys.items() if name in flags}
    if not given:
        return before
    from inferometer.predict.options import Battery  # noqa: PLC0415 - as above

    return replace(before or Battery(), **given)
