"""Systems and queues: utilisation, Little's law and the M/M/1 queue."""

from typing import Any

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.registry import formula, require

_KLEINROCK = "Kleinrock 1975, Queueing Systems, vol. 1"


@formula(row="7.1 Device utilization", source="definition", example={"busy": 48.0, "observed": 60.0}, answer=0.8)
def device_utilization(*, busy: q.Seconds, observed: q.SomeSeconds) -> q.Fraction:
    """The share of time in which a device did something.

    Derivation: busy time over the time looked at.
    Units: s and s → 1.
    Ignores: how much it did. `nvidia-smi` calls a GPU busy that runs one small kernel; see MFU for useful work.
    """
    require(busy <= observed, "busy must not exceed observed", busy=busy, observed=observed)
    return busy / observed


@formula(row="7.2 Unit utilization", source="definition", example={"busy_cycles": 6e8, "cycles": 1e9}, answer=0.6)
def unit_utilization(*, busy_cycles: q.Cycles, cycles: q.SomeCycles) -> q.Fraction:
    """The share of cycles in which one unit (ALU, load/store, tensor core) was busy.

    Derivation: busy cycles over all cycles.
    Units: cycle and cycle → 1.
    Ignores: lanes. A unit that serves one lane of 32 is as busy as one that serves all.
    """
    require(busy_cycles <= cycles, "busy_cycles must not exceed cycles", busy_cycles=busy_cycles, cycles=cycles)
    return busy_cycles / cycles


@formula(row="7.3 Stall fraction", source="definition", example={"stall_cycles": 2.5e8, "cycles": 1e9}, answer=0.25)
def stall_fraction(*, stall_cycles: q.Cycles, cycles: q.SomeCycles) -> q.Fraction:
    """The share of cycles in which nothing could issue.

    Derivation: stalled cycles over all cycles.
    Units: cycle and cycle → 1.
    Ignores: the cause, and stalls that other warps or threads cover.
    """
    require(stall_cycles <= cycles, "stall_cycles must not exceed cycles", stall_cycles=stall_cycles, cycles=cycles)
    return stall_cycles / cycles


@formula(
    row="7.4 Little's law",
    source="Little 1961, A Proof for the Queuing Formula L = λW",
    example={"arrival_rate": 100, "time": 0.05},
    answer=5.0,
)
def littles_law(*, arrival_rate: q.RequestRate, time: q.Seconds) -> q.Amount:
    """How many requests are in a system at once.

    Derivation: draw arrivals and departures over an interval T. The area between the curves is both ∫L dt = L·T and
    the sum of the stays = λ·T·W. So L = λ·W, whatever the distributions.
    Units: req/s and s (the mean stay) → requests in flight.
    Ignores: start and end. The system must be stable and seen for much longer than one stay.
    """
    return arrival_rate * time


@formula(row="7.4 M/M/1 response", source=_KLEINROCK, example={"arrival_rate": 20, "service_rate": 25}, answer=0.2)
def mm1_response(*, arrival_rate: q.RequestRate, service_rate: q.SomeRequestRate) -> q.SomeSeconds:
    """The mean time in an M/M/1 queue, waiting and service together.

    Derivation: with ρ = λ/μ there are k requests with probability (1−ρ)ρᵏ, so L = ρ/(1−ρ) on average. Little gives
    W = L/λ = 1/(μ−λ).
    Units: req/s and req/s → s.
    Ignores: batching, several servers, limits on the queue. Arrivals are Poisson, service times exponential. It must
    have λ < μ, or the queue grows without end.
    """
    _require_stable(arrival_rate, service_rate)
    return 1.0 / (service_rate - arrival_rate)


@formula(row="7.4 M/M/1 utilization", source=_KLEINROCK, example={"arrival_rate": 20, "service_rate": 25}, answer=0.8)
def mm1_utilization(*, arrival_rate: q.RequestRate, service_rate: q.SomeRequestRate) -> q.PartFraction:
    """The share of time in which the server of an M/M/1 queue is busy.

    Derivation: λ requests a second of 1/μ seconds each keep it busy for λ/μ of every second.
    Units: req/s and req/s → 1.
    Ignores: overload. At λ ≥ μ the server is always busy and the queue has no steady state.
    """
    _require_stable(arrival_rate, service_rate)
    return arrival_rate / service_rate


def _require_stable(arrival_rate: Any, service_rate: Any) -> None:
    require(
        arrival_rate < service_rate,
        "arrival_rate must be below service_rate, or the queue grows without end",
        remedy="Serve faster, add servers, or turn requests away.",
        arrival_rate=arrival_rate,
        service_rate=service_rate,
    )
