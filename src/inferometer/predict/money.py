"""Money and carbon: what an hour of the devices costs, what a million tokens cost, and what they emit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.known import grid, instance, instances_with, pue
from inferometer.known.formulas import cloud, energy

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.known import Instance
    from inferometer.predict.options import Hosting


@frozen
class HourlyPrice:
    """Dollars an hour for all devices of a plan, and whose price it is."""

    usd_per_hour: float
    note: str


def hourly_price(device: Device, devices: int, place: Hosting) -> HourlyPrice | None:
    """What the place says, else the cheapest instance of the catalog that has the device; None where none has.

    An instance with more devices than the plan uses is paid by its share of them.
    """
    if place.usd_per_hour is not None:
        return HourlyPrice(usd_per_hour=place.usd_per_hour, note=f"{place.usd_per_hour:g} USD/h as given.")
    if place.instance is not None:
        return _price(instance(place.instance), device, devices, spot=place.spot, named=True)
    offers = (_price(entry, device, devices, spot=place.spot) for entry in instances_with(device.name))
    cheapest = min((offer for offer in offers if offer), key=lambda offer: offer.usd_per_hour, default=None)
    if cheapest is None and place.spot:
        raise DomainError(
            f"No instance of the catalog with {device.name} has a spot price.",
            remedy="Give the price: --usd-per-hour. `inferometer catalog instances` lists what is known.",
        )
    return cheapest


def _price(
    entry: Instance, device: Device, devices: int, *, spot: bool = False, named: bool = False
) -> HourlyPrice | None:
    if named and entry.device != device.name:
        raise DomainError(
            f"The instance {entry.name} has {entry.device}, and {device.name} was asked for.",
            remedy="Name an instance with that device, or give the price.",
        )
    price = entry.spot_usd_per_hour if spot else entry.usd_per_hour
    if price is None:
        if named:
            raise DomainError(f"The {'spot' if spot else 'on-demand'} price of {entry.name} is not known.")
        return None
    share = float(price) * devices / entry.count
    kind = "spot" if spot else "on demand"
    note = f"Price: {devices} of the {entry.count} devices of {entry.name}, {kind}, {price.date} ({price.source})."
    return HourlyPrice(usd_per_hour=share, note=note)


def million_usd(price: HourlyPrice, tokens_per_s: Any) -> Any:
    """Dollars for a million output tokens, or inferences, at a rate or at each of an array of rates."""
    return cloud.usd_per_million_tokens(price=price.usd_per_hour, tokens_per_s=tokens_per_s)


def carbon_grams(joules: float, place: Hosting) -> float | None:
    """CO₂e of energy at the computers, with the site's overhead; None where no grid is named."""
    if place.grid is None:
        return None
    intensity = grid(place.grid).carbon_g_per_kwh
    overhead = place.pue if isinstance(place.pue, int | float) else 1.0
    if isinstance(place.pue, str):
        overhead = float(pue(place.pue).pue)
    return float(energy.co2e(energy=joules, intensity=float(intensity), pue=overhead))
