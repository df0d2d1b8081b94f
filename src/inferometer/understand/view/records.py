"""Flat records of catalog values: what lists print and `--where` filters. Numbers are raw SI; unknown is None."""

from collections.abc import Mapping
from typing import Any

from inferometer.core.device import Device, Sourced
from inferometer.core.dtypes import DTYPES
from inferometer.known import devices
from inferometer.known.files import kept_in_cache, mark_of_catalog
from inferometer.known.zoo import CatalogModel

# Field → unit of its number, or None where it is text.
DEVICE_FIELDS: dict[str, str | None] = {
    "name": None, "title": None, "vendor": None, "unit": None, "kind": None, "family": None, "chip": None,
    "year": "1", "memory": "B", "bandwidth": "B/s", "power": "W", "price": "USD", "cores": "1", "clock": "Hz",
    "half": "FLOP/s", "ops_per_joule": "FLOP/J",
    **dict.fromkeys(DTYPES, "FLOP/s"),
}  # fmt: skip
MODEL_FIELDS: dict[str, str | None] = {
    "name": None, "title": None, "family": None, "year": "1", "parameters": "1", "active": "1", "context": "1",
    "layers": "1", "hidden": "1",
}  # fmt: skip

_AS_THEY_ARE = ("name", "title", "vendor", "unit", "kind", "family", "chip", "year")
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", "encoder_layers")
_HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model", "dim")


def device_record(device: Device, *, efficiency: bool = False) -> dict[str, Any]:
    """`efficiency` also computes operations per joule, which needs the formulas and so numpy: lists do without."""
    memory = device.memory
    computed = {"ops_per_joule": ops_per_joule(device)} if efficiency else {}
    return {
        **{name: getattr(device, name) for name in _AS_THEY_ARE},
        "memory": _number(memory.capacity_bytes if memory else None),
        "bandwidth": _number(memory.bandwidth_bytes_per_s if memory else None),
        "power": _number(device.power_w or device.busy_w),
        "price": _number(device.price_usd),
        "cores": _number(device.cores),
        "clock": _number(device.clock_hz),
        "half": _number(device.peaks.get("bf16") or device.peaks.get("f16")),
        **computed,
        **{name: _number(peak) for name, peak in device.peaks.items()},
    }


def device_records(*, efficiency: bool = False) -> list[dict[str, Any]]:
    """Those of the whole catalog. To make a thousand devices takes longer than all else of a list, so they are kept."""

    def make() -> list[dict[str, Any]]:
        return [device_record(device, efficiency=efficiency) for device in devices().values()]

    return make() if efficiency else kept_in_cache("device-records", mark_of_catalog(__file__), make)


def ops_per_joule(device: Device) -> float | None:
    """The best dense peak of an 8-bit or wider format over the power limit: computed, never stored.

    What it draws at work stands for a limit that nobody prints. None where either is that of a whole chip or machine:
    the unit draws an unknown part of it.
    """
    from inferometer.known.formulas.edge import ops_per_watt  # noqa: PLC0415 - brings numpy, which lists do without

    wide = [peak.value for name, peak in device.peaks.items() if DTYPES[name].bits >= 8]
    watts = device.power_w
    if watts is None and device.busy_w is not None and device.busy_w.origin == "datasheet":  # a chip's, not a wall's
        watts = device.busy_w
    if not wide or watts is None or watts.value == 0 or device.shares_power:
        return None
    return float(ops_per_watt(ops=max(wide), power=watts.value))


def model_record(model: CatalogModel) -> dict[str, Any]:
    text = model.config.get("text_config")
    inner = {**model.config, **(text if isinstance(text, dict) else {})}
    return {
        **{name: getattr(model, name) for name in ("name", "title", "family", "year")},
        "parameters": _number(model.parameters),
        "active": _number(model.active_parameters),
        "context": _number(model.context),
        "layers": _first(inner, _LAYER_KEYS),
        "hidden": _first(inner, _HIDDEN_KEYS),
    }


def _number(sourced: Sourced | None) -> float | None:
    return None if sourced is None else sourced.value


def _first(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    return next((config[key] for key in keys if isinstance(config.get(key), int)), None)
