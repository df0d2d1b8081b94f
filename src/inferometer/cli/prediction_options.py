"""Everything that may be asked of a prediction beyond the workload, as flags of one group.

`predict` and `sweep` have all of them. A flag that is not given is None; `options_from` makes `Options` of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferometer.errors import DomainError, UnitError

if TYPE_CHECKING:
    from inferometer.cost.options import Battery, EnergyCosts, HostCosts, Offload, Options, Place, Speculative

F = TypeVar("F", bound=Callable[..., Any])
Flags = Mapping[str, Any]

DRAFT_LENGTH, ACCEPTANCE = 4, 0.7

_WHOLE, _NUMBER = {"type": int, "metavar": "N"}, {"type": float, "metavar": "X"}
_SHARE: dict[str, Any] = {"type": click.FloatRange(0, 1), "metavar": "SHARE"}
_FLAG: dict[str, Any] = {"is_flag": True, "default": None}
# The flags by name, in the order of the help page.
FLAGS: dict[str, dict[str, Any]] = {
    "engine_version": {"metavar": "VERSION", "help": "Of a serving engine.  [default: the newest that is known]"},
    "chunk": {**_WHOLE, "help": "Chunked prefill: read the prompt N tokens at a time."},
    "cached_prefix": {**_WHOLE, "help": "Prompt tokens already in the cache."},
    "draft": {"metavar": "MODEL", "help": "Speculative decoding: the model that drafts tokens."},
    "draft_length": {**_WHOLE, "help": f"Tokens drafted at a time.  [default: {DRAFT_LENGTH}]"},
    "acceptance": {**_SHARE, "help": f"Share of drafted tokens that are accepted.  [default: {ACCEPTANCE}]"},
    "link": {"metavar": "NAME", "help": "The link between devices: `inferometer catalog links` lists them."},
    "overlap": {**_SHARE, "help": "Share of the communication that hides behind computing."},
    "micro_batches": {**_WHOLE, "help": "Parts of the batch that a pipeline works on at once."},
    "imbalance": {**_NUMBER, "help": "Rows of the busiest expert device over the mean."},
    "sequence_parallel": {**_FLAG, "help": "Split norms and additions over the tensor-parallel devices, too."},
    "steps": {**_WHOLE, "help": "Denoising steps of a diffusion model."},
    "offload_layers": {**_WHOLE, "help": "The last N layers lie in the host's memory."},
    "offload_experts": {**_FLAG, "help": "All routed experts lie in the host's memory."},
    "override": {
        "multiple": True, "metavar": "OP=FORMAT", "help": 'Format of some weights: "lm_head=f16", "*.mlp.*=q4_0".',
    },
    "storage": {"metavar": "RATE", "help": "What the model is loaded from, such as 3GB/s."},
    "tokenise": {"metavar": "TIME", "help": "Host time to tokenise one token, such as 2us."},
    "sampling": {"metavar": "TIME", "help": "Host time to sample a token."},
    "detokenise": {"metavar": "TIME", "help": "Host time to detokenise one token."},
    "instance": {"metavar": "NAME", "help": "Whose price: `inferometer catalog instances` lists them."},
    "usd_per_hour": {**_NUMBER, "help": "The price of all devices together, in dollars an hour."},
    "spot": {**_FLAG, "help": "Spot prices instead of those on demand."},
    "grid": {"metavar": "NAME", "help": "Whose electricity, for the carbon: `inferometer catalog grids`."},
    "pue": {"metavar": "NAME|X", "help": "Overhead of the data centre, for the carbon: `inferometer catalog pue`."},
    "joules_per_flop": {"metavar": "J", "help": "Count energy by the operation, such as 1pJ."},
    "joules_per_byte": {"metavar": "J", "help": "Energy of a byte moved, such as 20pJ."},
    "battery": {"metavar": "ENERGY", "help": "Predict how long this battery lasts, such as 15Wh."},
    "per_second": {**_NUMBER, "help": "Requests a second, for a battery.  [default: one after the other]"},
    "battery_efficiency": {**_SHARE, "help": "Share of the battery's energy that reaches the device.  [default: 1]"},
    "layout": {"type": click.Choice(["nchw", "nhwc"]), "help": "Of images.  [default: nchw]"},
    "host_speed": {
        "metavar": "X|TIME",
        "help": "Speed of the host that starts kernels: over the one calibrated (0.8), or as doctor reads it (1.6us).",
    },
    "frame_rate": {**_NUMBER, "help": "Frames a second: does the model keep up, and what is left of a frame."},
}  # fmt: skip
# Flags whose names and values are those of the options.
_SAME_NAME = frozenset({
    "chunk", "cached_prefix", "micro_batches", "imbalance", "overlap", "sequence_parallel", "steps", "frame_rate",
    "engine_version", "layout",
})  # fmt: skip


def prediction_options(function: F) -> F:
    """Give a command all of the flags."""
    for name, how in reversed(FLAGS.items()):
        function = click.option(f"--{name.replace('_', '-')}", name, **how)(function)
    return function


def taken(values: dict[str, Any]) -> dict[str, Any]:
    """Take the flags that were given out of a command's values."""
    flags = {name: values.pop(name) for name in FLAGS}
    return {name: value for name, value in flags.items() if value is not None and value != ()}


def options_from(flags: Flags, base: Options | None = None) -> Options:
    """The options that the flags ask for, above those of `base`."""
    from inferometer.catalog import link
    from inferometer.cost.options import Options

    found = base or Options()
    changed: dict[str, Any] = {name: flags[name] for name in _SAME_NAME & flags.keys()}
    if "link" in flags:
        changed["link"] = link(flags["link"])
    if "storage" in flags:
        changed["storage_bytes_per_s"] = _quantity(flags, "storage", "B/s")
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


def _quantity(flags: Flags, name: str, unit: str) -> float:
    from inferometer.units import parse_quantity

    try:
        return parse_quantity(flags[name], unit)
    except UnitError as error:
        raise DomainError(f"--{name.replace('_', '-')}: {error.message}", remedy=error.remedy) from None


def _host_speed(flags: Flags) -> dict[str, float | None]:
    """A bare number is a ratio of speeds, a time is what `doctor` reads."""
    try:
        return {"host_speed": float(flags["host_speed"]), "host_call_s": None}
    except ValueError:
        return {"host_speed": None, "host_call_s": _quantity(flags, "host_speed", "s")}


def _overrides(assignments: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for assignment in assignments:
        pattern, sign, stored = assignment.rpartition("=")
        if not (pattern and sign and stored):
            raise DomainError(f"--override {assignment!r} is no assignment.", remedy='Write "lm_head=f16".')
        found[pattern] = stored
    return found


def _offload(flags: Flags, before: Offload | None) -> Offload | None:
    from inferometer.cost.options import Offload

    keys = {"offload_layers": "layers", "offload_experts": "experts"}
    given = {field: flags[name] for name, field in keys.items() if name in flags}
    return replace(before or Offload(), **given) if given else before


def _speculative(flags: Flags, before: Speculative | None) -> Speculative | None:
    keys = {"draft_length": "length", "acceptance": "acceptance"}
    given: dict[str, Any] = {field: flags[name] for name, field in keys.items() if name in flags}
    if "draft" not in flags:
        if given and before is None:
            raise DomainError(
                "--draft-length and --acceptance are of a draft, and none is given.", remedy="Add --draft."
            )
        return before if before is None else replace(before, **given)
    from inferometer.asking.ask import model_graph
    from inferometer.cost.options import Speculative

    return Speculative(draft=model_graph(flags["draft"]), **{"length": DRAFT_LENGTH, "acceptance": ACCEPTANCE, **given})


def _host(flags: Flags, before: HostCosts) -> HostCosts:
    keys = {
        "tokenise": "tokenise_s_per_token", "sampling": "sampling_s", "detokenise": "detokenise_s_per_token",
    }  # fmt: skip
    return replace(before, **{field: _quantity(flags, name, "s") for name, field in keys.items() if name in flags})


def _place(flags: Flags, before: Place) -> Place:
    given = {name: flags[name] for name in ("instance", "usd_per_hour", "spot", "grid", "pue") if name in flags}
    with suppress(KeyError, ValueError):  # it is not given, or the name of a row
        given["pue"] = float(given["pue"])
    return replace(before, **given)


def _energy(flags: Flags, before: EnergyCosts | None) -> EnergyCosts | None:
    names = ("joules_per_flop", "joules_per_byte")
    given = {name: _quantity(flags, name, "J") for name in names if name in flags}
    if not given:
        return before
    if before is None and len(given) < len(names):
        raise DomainError("--joules-per-flop and --joules-per-byte go together.", remedy="Give both.")
    from inferometer.cost.options import EnergyCosts

    return replace(before, **given) if before is not None else EnergyCosts(**given)


def _battery(flags: Flags, before: Battery | None) -> Battery | None:
    given: dict[str, Any] = {"capacity_j": _quantity(flags, "battery", "J")} if "battery" in flags else {}
    keys = {"per_second": "per_s", "battery_efficiency": "efficiency"}
    given |= {field: flags[name] for name, field in keys.items() if name in flags}
    if not given:
        return before
    from inferometer.cost.options import Battery

    return replace(before or Battery(), **given)
