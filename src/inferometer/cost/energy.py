"""Energy: from power and how busy the device is, or from coefficients for an operation and a byte; idle included.

A device draws its idle power while it waits, a share of its power limit while it moves data, and a larger one while it
computes. Where a kind of unit has no such shares (`power.toml`) the power limit stands for all of it: an upper bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.cost.price.priors import power_prior
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from inferometer.core.device import Device, Sourced
    from inferometer.core.profile import Profile

__all__ = ["PowerModel", "battery_seconds", "energy_from_coefficients", "power_model"]


@frozen
class PowerModel:
    """Watts of one device: waiting, moving data, computing at full rate. `bound`: an upper bound, not an estimate."""

    idle_w: float
    moving_w: float
    computing_w: float
    bound: bool = False

    def joules(self, *, time_s: Any, computing_s: Any, waiting_s: Any) -> Any:
        """Energy of a phase: `waiting_s` at idle; in the rest the arithmetic is busy for `computing_s` of it."""
        busy = np.maximum(0.0, time_s - waiting_s)
        moving = self.moving_w * busy
        computing = (self.computing_w - self.moving_w) * np.minimum(busy, computing_s)
        return moving + computing + self.idle_w * np.minimum(waiting_s, time_s)


def power_model(device: Device) -> PowerModel | None:
    """None where the device's power limit is not known."""
    if device.power_w is None:
        return None
    limit = float(device.power_w)
    prior = power_prior(device.unit)
    if prior is None:
        return PowerModel(idle_w=_or(device.idle_w, limit), moving_w=limit, computing_w=limit, bound=True)
    return PowerModel(
        idle_w=_or(device.idle_w, limit * float(prior.idle_share)),
        moving_w=limit * float(prior.moving_share),
        computing_w=limit * float(prior.computing_share),
    )


def _or(stated: Sourced | None, otherwise: float) -> float:
    return otherwise if stated is None else min(float(stated), otherwise)


def energy_from_coefficients(  # noqa: PLR0913 - the terms of the sum
    *, flops: float, bytes_moved: float, joules_per_flop: float, joules_per_byte: float, idle_w: float, time_s: float
) -> float:
    """A price for each operation and byte, and idle power for as long as it takes."""
    from inferometer.formulas.energy import edgeprofiler_energy  # noqa: PLC0415 - no prediction needs it

    active = edgeprofiler_energy(
        flops=flops, bytes=bytes_moved, joules_per_flop=joules_per_flop, joules_per_byte=joules_per_byte
    )
    return float(active + idle_w * time_s)


def battery_seconds(
    profile: Profile, *, capacity_j: float, per_s: float, idle_w: float = 0.0, efficiency: float = 1.0
) -> float:
    """How long a battery lasts at `per_s` of what the profile describes (requests or forward passes) a second."""
    if profile.summary.energy_j is None:
        raise DomainError(
            f"The energy of {profile.model.name} on {profile.device.name} is not known.",
            remedy="The device needs a power figure.",
        )
    from inferometer.formulas.edge import battery_life  # noqa: PLC0415 - as above

    return float(
        battery_life(
            capacity=capacity_j,
            energy_per_inference=profile.summary.energy_j,
            rate=per_s,
            idle_power=idle_w,
            efficiency=efficiency,
        )
    )
