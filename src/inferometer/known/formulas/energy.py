"""Energy, cost and carbon: power, joules per token, the cost of owning, and CO₂e."""

import numpy as np

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.registry import formula

_JOULES_PER_KWH = 3.6e6
_SECONDS_PER_HOUR = 3600
_PUE = "ISO/IEC 30134-2, Power usage effectiveness"
_PATTERSON = "Patterson et al. 2021, Carbon Emissions and Large Neural Network Training, arXiv:2104.10350"


@formula(row="17.1 Power", source="definition", example={"energy": 6000.0, "time": 60.0}, answer=100.0)
def power(*, energy: q.Joules, time: q.SomeSeconds) -> q.Watts:
    """The mean power over a time.

    Derivation: a watt is a joule per second.
    Units: J and s → W.
    Ignores: the shape. Limits on current and heat follow the peaks.
    """
    return energy / time


@formula(row="17.1 Energy per op", source="definition", example={"energy": 6000.0, "ops": 6e15}, answer=1e-12)
def energy_per_op(*, energy: q.Joules, ops: q.SomeFlops) -> q.JoulesPerFlop:
    """Joules for one operation.

    Derivation: energy over the operations it paid for.
    Units: J and FLOP (or OP) → J/FLOP.
    Ignores: which operations. Most of it is moving data, so it says as much about memory as about arithmetic.
    """
    return energy / ops


@formula(row="17.1 Energy efficiency", source="definition", example={"flops": 6e15, "energy": 6000.0}, answer=1e12)
def energy_efficiency(*, flops: q.Flops, energy: q.SomeJoules) -> q.FlopsPerJoule:
    """Operations for one joule: one over the energy per operation.

    Derivation: FLOP/J = (FLOP/s)/W, so it is also performance per watt.
    Units: FLOP and J → FLOP/J.
    Ignores: what the energy covers. Say whether it is the chip, the board or the wall socket.
    """
    return flops / energy


@formula(row="17.1 Energy per token", source="definition", example={"power": 28.0, "tpot": 0.092}, answer=2.576)
def energy_per_token(*, power: q.Watts, tpot: q.Seconds) -> q.Joules:
    """Joules for one output token.

    Derivation: mean power × the time of a token.
    Units: W and s per token → J per token.
    Ignores: the prefill, and the batch: divide by the sequences decoded together.
    """
    return power * tpot


@formula(
    row="17.1 Energy by integration",
    source="definition",
    example={"powers": [10, 20, 10], "interval": 1.0},
    answer=30.0,
)
def energy_by_integration(*, powers: q.WattsList, interval: q.SomeSeconds) -> q.Joules:
    """Energy from power readings taken at equal intervals.

    Derivation: between two readings power is taken as a straight line, whose area is ½(Pᵢ + Pᵢ₊₁)·Δt. Summed, every
    inner reading counts once and the two at the ends half.
    Units: a list of W (two or more) and s → J.
    Ignores: what happens between readings. A meter that updates ten times a second misses a kernel of a millisecond.
    """
    readings = np.asarray(powers)
    return interval * (np.sum(readings, axis=-1) - (readings[..., 0] + readings[..., -1]) / 2)


@formula(
    row="17.1 EDP",
    source="Gonzalez & Horowitz 1996, Energy Dissipation in General Purpose Microprocessors",
    example={"energy": 2.576, "time": 0.092},
    answer=0.236992,
)
def edp(*, energy: q.Joules, time: q.Seconds) -> q.JouleSeconds:
    """Energy–delay product: low is both frugal and quick.

    Derivation: a product, so that halving the energy at twice the time gains nothing.
    Units: J and s → J·s.
    Ignores: which of the two matters more to you; some weigh time more (E·T²).
    """
    return energy * time


@formula(
    row="17.1 EdgeProfiler energy",
    source="EdgeProfiler, arXiv:2506.09061",
    example={"flops": 2_617_688_064, "bytes": 6_066_290_688},
    answer=6.068908376064001,
)
def edgeprofiler_energy(
    *, flops: q.Flops, bytes: q.Bytes, joules_per_flop: q.JoulesPerFlop = 1e-12, joules_per_byte: q.JoulesPerByte = 1e-9
) -> q.Joules:
    """Energy of a token as EdgeProfiler estimates it.

    Derivation: a fixed price for an operation and for a byte; both add. With its prices the bytes are nearly all.
    Units: FLOP, B, J/FLOP and J/B → J.
    Ignores: idle and leakage power, the data type (the price per FLOP is the same for 4 and 32 bits) and the device.
    """
    return flops * joules_per_flop + bytes * joules_per_byte


@formula(row="17.2 Perf/W", source="definition", example={"performance": 10.87, "power": 28.0}, answer=10.87 / 28)
def perf_per_watt(*, performance: q.TokenRate, power: q.SomeWatts) -> q.TokensPerJoule:
    """Tokens per second for each watt, which are tokens per joule.

    Derivation: (token/s)/(J/s) = token/J.
    Units: token/s and W → token/J.
    Ignores: what the power covers, and the load: machines are less efficient when half idle.
    """
    return performance / power


@formula(row="17.3 Perf/$", source="definition", example={"performance": 2400, "cost": 98}, answer=2400 / 98)
def perf_per_dollar(*, performance: q.TokenRate, cost: q.SomeUsd) -> q.TokenRatePerUsd:
    """Performance for each dollar of a price.

    Derivation: a rate over a cost.
    Units: token/s and USD → token/s per USD. For a rent by the hour use `cost_efficiency`.
    Ignores: running costs and lifetime; see `perf_per_tco`.
    """
    return performance / cost


@formula(
    row="17.4 TCO",
    source="definition",
    example={"capex": 250e3, "opex": 60e3 / 8760, "lifetime": 4 * 31_536_000.0},
    answer=490e3,
)
def tco(*, capex: q.Usd, opex: q.UsdPerHour, lifetime: q.Seconds) -> q.Usd:
    """The total cost of owning a machine.

    Derivation: what it costs to buy, and what it costs to run for as long as it is kept.
    Units: USD, USD/h (60,000 USD a year are 6.85 USD/h) and s → USD.
    Ignores: interest, what it can be sold for in the end, and inflation.
    """
    return capex + opex * lifetime / _SECONDS_PER_HOUR


@formula(
    row="17.4 Electricity OpEx",
    source=_PUE,
    example={"power": 10.2e3, "pue": 1.3, "electricity_price": 0.12},
    answer=10.2 * 1.3 * 0.12,
)
def electricity_opex(*, power: q.Watts, electricity_price: q.UsdPerKwh, pue: q.Pue = 1) -> q.UsdPerHour:
    """What a machine's electricity costs.

    Derivation: the machine draws P and its building PUE times as much; an hour at that power is P·PUE/1000 kWh.
    Units: W, USD/kWh and a ratio → USD/h. A year has 8760 hours.
    Ignores: charges for peak power, and that a machine does not always draw its rated power.
    """
    return total_energy(energy=power * _SECONDS_PER_HOUR, pue=pue) / _JOULES_PER_KWH * electricity_price


@formula(
    row="17.4 Perf/TCO",
    source="definition",
    example={"performance": 24_000, "utilization": 0.5, "lifetime": 4 * 31_536_000.0, "tco": 490e3},
    answer=24_000 * 0.5 * 4 * 31_536_000 / 490e3,
)
def perf_per_tco(
    *, performance: q.TokenRate, lifetime: q.Seconds, tco: q.SomeUsd, utilization: q.Fraction = 1
) -> q.TokensPerUsd:
    """Work done in a machine's life for each dollar it costs in its life.

    Derivation: rate × share of time in use × lifetime, over the total cost.
    Units: token/s, s, USD and a fraction → token/USD.
    Ignores: that newer machines make the later tokens worth less.
    """
    return performance * utilization * lifetime / tco


@formula(row="17.5 Total energy", source=_PUE, example={"energy": 1000 * 3.6e6, "pue": 1.3}, answer=1300 * 3.6e6)
def total_energy(*, energy: q.Joules, pue: q.Pue = 1) -> q.Joules:
    """Energy of a data centre for what its computers used.

    Derivation: PUE is defined as the building's energy over the computers', so the building's is IT·PUE.
    Units: J (1 kWh = 3.6 MJ) and a ratio of 1 or more → J.
    Ignores: seasons and load. PUE is a yearly mean of a whole site.
    """
    return energy * pue


@formula(
    row="17.5 CO2e",
    source=_PATTERSON,
    example={"energy": 1000 * 3.6e6, "pue": 1.3, "intensity": 400},
    answer=520_000.0,
)
def co2e(*, energy: q.Joules, intensity: q.GramsPerKwh, pue: q.Pue = 1) -> q.Grams:
    """Carbon emitted for the energy that computers used.

    Derivation: kWh at the computers × PUE = kWh at the meter; each emits `intensity` grams on the way. The source's
    line leaves the PUE out; it belongs in.
    Units: J (at the computers), g/kWh and a ratio → g of CO₂e.
    Ignores: making the hardware. The intensity of a grid changes by the hour; a yearly mean hides that.
    """
    return total_energy(energy=energy, pue=pue) / _JOULES_PER_KWH * intensity


@formula(
    row="17.5 CO2e per 1M tokens",
    source=_PATTERSON,
    example={"energy_per_token": 2.576, "pue": 1.3, "intensity": 400},
    answer=372.08888888888885,
)
def co2e_per_million_tokens(*, energy_per_token: q.Joules, intensity: q.GramsPerKwh, pue: q.Pue = 1) -> q.Grams:
    """Carbon emitted for a million tokens.

    Derivation: the CO₂e of 10⁶ times the energy of a token.
    Units: J per token, g/kWh and a ratio → g of CO₂e per million tokens.
    Ignores: idle machines that wait for requests, unless their energy is in that of the token.
    """
    return co2e(energy=energy_per_token * 1e6, intensity=intensity, pue=pue)
