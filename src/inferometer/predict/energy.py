"""Energy: from power and how busy the device is, or from coefficients for an operation and a byte; idle included.

A device draws its idle power while it waits, a share of its power limit while it moves data, and a larger one the more
its arithmetic is busy: steeply at first, until the limit holds it. Where somebody measured what it draws while it runs
networks, or its maker prints what is typical, that stands for all of its work, since no published figure of such boards
tells moving data from computing. Where a kind of unit has no shares (`power.toml`) and a device no such figure, the
power limit stands for all of it: an upper bound.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Phase, Sustained
from inferometer.known.formulas.edge import battery_life
from inferometer.known.formulas.energy import edgeprofiler_energy
from inferometer.predict.options import Battery, EnergyCosts, Options
from inferometer.predict.price.priors import power_prior

if TYPE_CHECKING:
    from inferometer.core.device import Device, Sourced


# Eight in ten within: between models on one board, published watts differ by 1.06 (microcontrollers) to 1.15 (boards
# and machines at the wall). What a maker calls typical says neither of which network nor at what load: twice that.
_MEASURED_SPREAD, _TYPICAL_SPREAD = 1.2, 1.5
# Power above idle follows the clock to this power: 3 while the voltage falls with it, 1 once it cannot fall any more.
_CLOCK_POWERS = (1.0, 2.0, 3.0)


@frozen
class PowerModel:
    """Watts of one device: waiting, moving data, computing. `bound`: an upper bound, not an estimate.

    `full_share`: with arithmetic busy for that share of the time the device draws all of `computing_w`. `spread`: of
    ten powers about eight lie within power / spread and power · spread.
    """

    idle_w: float
    moving_w: float
    computing_w: float
    full_share: float = 1.0
    spread: float = 1.0
    bound: bool = False

    @property
    def resting_w(self) -> float:
        """Watts at rest, to stand beside operations that have a price of their own: none where work alone is known."""
        return 0.0 if not self.bound and self.idle_w == self.computing_w else self.idle_w

    def joules(self, *, time_s: Any, computing_s: Any, waiting_s: Any) -> Any:
        """Energy of a phase: `waiting_s` at idle; in the rest the arithmetic is busy for `computing_s` of it.

        Power grows with the root of that share: a clock that is up and data that flow cost most of it already.
        """
        busy = np.maximum(0.0, time_s - waiting_s)
        full = self.full_share * busy
        # The root of share · busy², so that a phase in which nothing runs needs no division by nothing.
        computing = (self.computing_w - self.moving_w) * np.sqrt(busy * np.minimum(full, computing_s) / self.full_share)
        return self.moving_w * busy + computing + self.idle_w * np.minimum(waiting_s, time_s)

    def ends(self, joules: float, time_s: float, low_s: float | None, high_s: float | None) -> tuple[float, float]:
        """The low and the high end of an energy: power and time are off for reasons of their own.

        A time without a low end may be as short as one likes, and so may its energy be; without a high one as long.
        """
        low, high = (
            math.hypot(math.log(self.spread), math.log(end / time_s)) if end and time_s > 0 else math.inf
            for end in (low_s, high_s)
        )
        return joules * math.exp(-low), joules * math.exp(high)


def power_model(device: Device) -> PowerModel | None:
    """None where neither the device's power limit is known nor what it draws at work."""
    if device.busy_w is not None:
        busy = float(device.busy_w)
        spread = _MEASURED_SPREAD if device.busy_w.origin in {"measured", "calibrated"} else _TYPICAL_SPREAD
        return PowerModel(idle_w=_or(device.idle_w, busy), moving_w=busy, computing_w=busy, spread=spread)
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
        full_share=float(prior.full_share),
        spread=float(prior.spread),
    )


def _or(stated: Sourced | None, otherwise: float) -> float:
    return otherwise if stated is None else min(float(stated), otherwise)


def counted_joules(costs: EnergyCosts, *, flops: float, bytes_moved: float, idle_w: float, time_s: float) -> float:
    """A price for each operation and byte, and idle power for as long as it takes."""
    active = edgeprofiler_energy(
        flops=flops, bytes=bytes_moved, joules_per_flop=costs.joules_per_flop, joules_per_byte=costs.joules_per_byte
    )
    return float(active + idle_w * time_s)


def energy_costs(device: Device, options: Options) -> EnergyCosts | None:
    """Joules for an operation and a byte: those asked for, else those of the device's row."""
    if options.energy is not None or device.joules_per_flop is None or device.joules_per_byte is None:
        return options.energy
    return EnergyCosts(joules_per_flop=float(device.joules_per_flop), joules_per_byte=float(device.joules_per_byte))


def battery_of(device: Device, options: Options) -> Battery | None:
    """The battery asked for, else the one of the device's row."""
    asked = options.battery
    if asked is not None and asked.capacity_j is not None:
        return asked
    if device.battery_j is not None:
        return replace(asked or Battery(), capacity_j=float(device.battery_j))
    if asked is not None:
        raise DomainError(f"{device.name} has no battery in its row.", remedy="Give one, as in --battery 15Wh.")
    return None


def battery_seconds(battery: Battery, *, joules: float, time_s: float, idle_w: float) -> float:
    """How long a battery lasts, from the energy and the duration of one request.

    The energy of a request has the idle power in it. Only between requests it comes on top: none one after the other.
    """
    rate = 1 / time_s if battery.per_s is None else battery.per_s
    busy = rate * time_s
    # A rate that was computed from the time itself gives 1 but for its last digit.
    if busy > 1 + 1e-9:
        raise DomainError(
            f"{battery.per_s:g} requests a second were asked for; one takes {time_s:.3g} s, which is {1 / time_s:.3g} "
            "a second.",
            remedy="Ask for fewer, or leave the rate out: then one follows upon the other.",
        )
    life = battery_life(
        capacity=battery.capacity_j or 0.0,
        energy_per_inference=joules,
        rate=rate,
        idle_power=max(0.0, 1 - busy) * idle_w,
        efficiency=battery.efficiency,
    )
    return float(life)


def charge_requests(battery: Battery, life_s: float, time_s: float) -> float:
    """Requests that a charge answers."""
    return life_s * (1 / time_s if battery.per_s is None else battery.per_s)


def lasting(phase: Phase | None, device: Device, options: Options, devices: int) -> Sustained | None:
    """What the phase that repeats takes once the device is as warm as it gets; None where nobody knows its cooling.

    Drawing more than its cooling takes away, a device reaches its limit of temperature and lowers its clock until it
    draws that much. Power above idle goes with the clock squared (between its first and its third power, which are the
    ends of the interval). Arithmetic takes as much longer; at the slow end data do too, since caches and the cores that
    ask for them have the same clock. Until then it warms as one body: at t it is 1 − e^(−t / warms) of the way to the
    temperature that it would end at, which is as much above the limit as its power is above the cooling's.
    Ignores: a clock that may fall in steps alone, other parts of the machine that warm the same air, its surroundings.
    """
    taken = options.cooling_w or (None if device.cooling_w is None else float(device.cooling_w))
    power = power_model(device)
    if taken is None or power is None or phase is None or phase.energy_j is None or phase.time_s <= 0:
        return None
    drawn = phase.energy_j / phase.time_s / devices
    if taken <= power.idle_w:
        raise DomainError(
            f"A cooling of {taken:g} W takes away less than the {power.idle_w:.3g} W that {device.name} draws at rest.",
            remedy="Give what its heat sink takes away while it works, such as --cooling 8W.",
        )
    first, ends = phase.time_s, (phase.low_s or phase.time_s, phase.high_s or phase.time_s)
    if drawn <= taken:
        slow = mid = fast = 1.0
        changes: tuple[float, ...] = ()
    else:
        share = (taken - power.idle_w) / (drawn - power.idle_w)
        computing = sum(op.time_s for op in phase.ops if op.bound == "compute") / phase.time_s
        slow, mid, fast = (share ** (-1 / each) for each in _CLOCK_POWERS)
        mid, fast = (1 + min(1.0, computing) * (ratio - 1) for ratio in (mid, fast))
        warms = 0.0 if device.warms_s is None else float(device.warms_s)
        changes = (-warms * math.log1p(-share),)
    return Sustained(
        span_s=0.0, at_s=(), latency_s=(), first_s=first, steady_s=first * mid, low_s=ends[0] * fast,
        high_s=ends[1] * slow, steady_after_s=changes[0] if changes else 0.0, changes_s=changes,
        power_w=(drawn, min(drawn, taken)),
    )  # fmt: skip
