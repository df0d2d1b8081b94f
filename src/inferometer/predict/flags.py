"""Everything that may be asked of a prediction beyond the workload, as plain values by name.

The commands have a flag for each, the hub's page a field. One that is not given is absent; `options_from` makes
`Options` of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from inferometer.core.errors import DomainError, UnitError

if TYPE_CHECKING:
    from inferometer.predict.options import Battery, EnergyCosts, HostCosts, Offload, Options, Place, Speculative

Flags = Mapping[str, Any]
Takes = Literal["whole", "number", "share", "switch", "text", "texts"]

DRAFT_LENGTH, ACCEPTANCE = 4, 0.7


@dataclass(frozen=True, slots=True)
class Flag:
    """What it takes, what its value is called, what it is for, and where it belongs on a page."""

    takes: Takes
    metavar: str
    help: str
    group: str


_SERVED, _SPLIT, _DRAFT = "Reading and serving", "Several devices", "Drafted tokens"
_HOST, _MONEY, _ENERGY = "Host and memory", "Price and carbon", "Energy and frames"
# In the order of the help page.
FLAGS: dict[str, Flag] = {
    "engine_version": Flag("text", "VERSION", "Of a serving engine.  [default: the newest that is known]", _SERVED),
    "chunk": Flag("whole", "N", "Chunked prefill: read the prompt N tokens at a time.", _SERVED),
    "cached_prefix": Flag("whole", "N", "Prompt tokens already in the cache.", _SERVED),
    "draft": Flag("text", "MODEL", "Speculative decoding: the model that drafts tokens.", _DRAFT),
    "draft_length": Flag("whole", "N", f"Tokens drafted at a time.  [default: {DRAFT_LENGTH}]", _DRAFT),
    "acceptance": Flag(
        "share", "SHARE", f"Share of drafted tokens that are accepted.  [default: {ACCEPTANCE}]", _DRAFT
    ),
    "link": Flag("text", "NAME", "The link between devices: `inferometer catalog links` lists them.", _SPLIT),
    "overlap": Flag("share", "SHARE", "Share of the communication that hides behind computing.", _SPLIT),
    "micro_batches": Flag("whole", "N", "Parts of the batch that a pipeline works on at once.", _SPLIT),
    "imbalance": Flag("number", "X", "Rows of the busiest expert device over the mean.", _SPLIT),
    "sequence_parallel": Flag("switch", "", "Split norms and additions over the tensor-parallel devices, too.", _SPLIT),
    "steps": Flag("whole", "N", "Denoising steps of a diffusion model.", _SERVED),
    "offload_layers": Flag("whole", "N", "The last N layers lie in the host's memory.", _HOST),
    "offload_experts": Flag("switch", "", "All routed experts lie in the host's memory.", _HOST),
    "override": Flag("texts", "OP=FORMAT", 'Format of some weights: "lm_head=f16", "*.mlp.*=q4_0".', _HOST),
    "storage": Flag("text", "RATE", "What the model is loaded from, such as 3GB/s.", _HOST),
    "tokenise": Flag("text", "TIME", "Host time to tokenise one token, such as 2us.", _HOST),
    "sampling": Flag("text", "TIME", "Host time to sample a token.", _HOST),
    "detokenise": Flag("text", "TIME", "Host time to detokenise one token.", _HOST),
    "instance": Flag("text", "NAME", "Whose price: `inferometer catalog instances` lists them.", _MONEY),
    "usd_per_hour": Flag("number", "X", "The price of all devices together, in dollars an hour.", _MONEY),
    "spot": Flag("switch", "", "Spot prices instead of those on demand.", _MONEY),
    "grid": Flag("text", "NAME", "Whose electricity, for the carbon: `inferometer catalog grids`.", _MONEY),
    "pue": Flag("text", "NAME|X", "Overhead of the data centre, for the carbon: `inferometer catalog pue`.", _MONEY),
    "joules_per_flop": Flag("text", "J", "Count energy by the operation, such as 1pJ.", _ENERGY),
    "joules_per_byte": Flag("text", "J", "Energy of a byte moved, such as 20pJ.", _ENERGY),
    "battery": Flag("text", "ENERGY", "Predict how long this battery lasts, such as 15Wh.", _ENERGY),
    "per_second": Flag("number", "X", "Requests a second, for a battery.  [default: one after the other]", _ENERGY),
    "battery_efficiency": Flag(
        "share", "SHARE", "Share of the battery's energy that reaches the device.  [default: 1]", _ENERGY
    ),
    "layout": Flag("text", "LAYOUT", "Of images: nchw or nhwc.  [default: nchw]", _HOST),
    "host_speed": Flag(
        "text",
        "X|TIME",
        "Speed of the host that starts kernels: over the one calibrated (0.8), or as doctor reads it (1.6us).",
        _HOST,
    ),
    "audio": Flag(
        "text", "TIME", "How long a recording is, such as 10min.  [default: one window of the model]", _ENERGY
    ),
    "frame_rate": Flag("number", "X", "Frames a second: does the model keep up, and what is left of a frame.", _ENERGY),
}
# Flags whose names and values are those of the options.
_SAME_NAME = frozenset({
    "chunk", "cached_prefix", "micro_batches", "imbalance", "overlap", "sequence_parallel", "steps", "frame_rate",
    "engine_version", "layout",
})  # fmt: skip


def parse_sizes(assignments: Iterable[str]) -> dict[str, int]:
    """The values of `--size NAME=N`."""
    sizes: dict[str, int] = {}
    for assignment in assignments:
        name, _, value = assignment.rpartition("=")
        if not name or not value.isdecimal() or int(value) < 1:
            raise DomainError(f"{assignment!r} is not a size.", remedy="Write NAME=N, for example sequence=128.")
        sizes[name] = int(value)
    return sizes


def options_from(flags: Flags, base: Options | None = None) -> Options:
    """The options that the flags ask for, above those of `base`."""
    from inferometer.known import link  # noqa: PLC0415 - a command's help needs no cost model
    from inferometer.predict.options import Options  # noqa: PLC0415 - as above

    found = base or Options()
    changed: dict[str, Any] = {name: flags[name] for name in _SAME_NAME & flags.keys()}
    if "link" in flags:
        changed["link"] = link(flags["link"])
    if "audio" in flags:
        changed["audio_s"] = _quantity(flags, "audio", "s")
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


def _quantity(flags: Flags, name: str, unit: str, *, bare: bool = False) -> float:
    """A number needs its unit unless the flag's name has it (`bare`): a battery of 50 may be joules or watt-hours."""
    from inferometer.core.units import parse_quantity  # noqa: PLC0415 - as above

    try:
        return parse_quantity(flags[name], unit, bare=bare)
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
    from inferometer.predict.options import Offload  # noqa: PLC0415 - as above

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
    from inferometer.predict.ask import model_graph  # noqa: PLC0415 - as above
    from inferometer.predict.options import Speculative  # noqa: PLC0415 - as above

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
    given = {name: _quantity(flags, name, "J", bare=True) for name in names if name in flags}
    if not given:
        return before
    if before is None and len(given) < len(names):
        raise DomainError("--joules-per-flop and --joules-per-byte go together.", remedy="Give both.")
    from inferometer.predict.options import EnergyCosts  # noqa: PLC0415 - as above

    return replace(before, **given) if before is not None else EnergyCosts(**given)


def _battery(flags: Flags, before: Battery | None) -> Battery | None:
    given: dict[str, Any] = {"capacity_j": _quantity(flags, "battery", "J")} if "battery" in flags else {}
    keys = {"per_second": "per_s", "battery_efficiency": "efficiency"}
    given |= {field: flags[name] for name, field in keys.items() if name in flags}
    if not given:
        return before
    from inferometer.predict.options import Battery  # noqa: PLC0415 - as above

    return replace(before or Battery(), **given)
