"""Plans at the edge: which device keeps up with streams of frames, for how long on a battery, within what cooling."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil, floor
from typing import Any

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.known import device as device_named
from inferometer.known import devices as all_devices
from inferometer.predict.ask import ask
from inferometer.predict.energy import power_model
from inferometer.predict.options import Options
from inferometer.serving.plans.asked import Goal


@frozen
class EdgeSearch:
    """Streams of frames, and devices to choose from; without any, the small ones of the catalog that have a price."""

    model: Any
    frames_per_s: float
    streams: int = 1
    devices: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    weights: tuple[str | None, ...] = ()
    image: int | None = None
    max_watts: float | None = None
    goal: Goal = "cheapest"
    options: Options = Options()

    def __post_init__(self) -> None:
        if not self.frames_per_s > 0 or self.streams < 1:
            raise DomainError("A stream has more than 0 frames a second, and there is 1 stream or more.")


@frozen
class EdgePlan:
    """One device's part. `streams` is what it keeps up with; `count` is how many of it serve them all."""

    device: str
    count: int
    runtime: str
    weights: str | None
    latency_s: float
    frames_per_s: float  # that one device can do
    streams: int
    busy: float
    watts: float | None
    battery_s: float | None
    usd: float | None
    meets: bool
    why: str

    def score(self, goal: Goal) -> tuple[bool, float]:
        by = {"cheapest": self.usd, "greenest": self.watts, "smallest": 1.0}[goal]
        return (not self.meets, float("inf") if by is None else by * self.count)


@frozen
class EdgeAnswer:
    plans: tuple[EdgePlan, ...]
    why_not: str | None

    def document(self) -> dict[str, Any]:
        plans = [asdict(each) for each in self.plans]
        return {"schema": "inferometer.plan/1", "plans": plans, "why_not": self.why_not}


def edge_plans(search: EdgeSearch) -> EdgeAnswer:
    """Every device by the time of one inference, the ones that keep up first."""
    found: list[EdgePlan] = []
    refused: list[str] = []
    for name in search.devices or _small():
        for runtime in search.runtimes or (None,):
            for weights in search.weights or (None,):
                try:
                    found.append(_one(search, name, runtime, weights))
                except InferometerError as error:
                    refused.append(f"{name}: {error.message}")
    found.sort(key=lambda each: each.score(search.goal))
    return EdgeAnswer(plans=tuple(found), why_not=_why_not(search, found, refused))


def _small() -> tuple[str, ...]:
    return tuple(
        name for name, device in all_devices().items() if device.kind in {"embedded", "board"} and device.price_usd
    )


def _one(search: EdgeSearch, name: str, runtime: str | None, weights: str | None) -> EdgePlan:
    question = ask(
        search.model, on=name, runtime=runtime, weights=weights, image=search.image, options=Options(),
    )  # fmt: skip
    profile = question.answer()
    # A camera runs for hours: what counts is the speed that lasts, where the device's cooling is known.
    latency = profile.summary.sustained_s or profile.summary.latency_s
    if latency is None or profile.summary.latency_s is None:
        raise DomainError(
            f"{question.graph.name} makes tokens, and frames are for models of images.", remedy="Use --rate."
        )
    device, rate = device_named(name), 1 / latency
    quick = floor(rate / search.frames_per_s)
    streams = _cooled(search, device, latency, quick)
    count = ceil(search.streams / streams) if streams else 0
    busy = _busy(search, latency, streams or min(quick, 1))
    watts = _watts(device, busy)
    battery = search.options.battery
    life = None
    if battery is not None and battery.capacity_j and watts:
        life = battery.capacity_j * (battery.efficiency or 1.0) / watts
    return EdgePlan(
        device=name,
        count=count,
        runtime=question.runtime_name,
        weights=weights,
        latency_s=latency,
        frames_per_s=rate,
        streams=streams,
        busy=busy,
        watts=watts,
        battery_s=life,
        usd=None if device.price_usd is None else float(device.price_usd),
        meets=streams >= 1,
        why=_why(search, rate, watts, (streams, quick)) + (", once it is warm" if profile.summary.sustained_s else ""),
    )


def _busy(search: EdgeSearch, latency_s: float, streams: int) -> float:
    """The share of the time that a device works, with some of the streams or all."""
    return min(1.0, min(search.streams, streams) * search.frames_per_s * latency_s) if streams else 1.0


def _cooled(search: EdgeSearch, device: Any, latency_s: float, streams: int) -> int:
    """How many of the streams that a device is quick enough for it can take without drawing too much."""
    if search.max_watts is None or power_model(device) is None:
        return streams
    drawn = ((count, _watts(device, _busy(search, latency_s, count))) for count in range(streams, 0, -1))
    return next((count for count, watts in drawn if watts is not None and watts <= search.max_watts), 0)


def _watts(device: Any, busy: float) -> float | None:
    power = power_model(device)
    if power is None:
        return None
    return busy * (power.moving_w + power.computing_w) / 2 + (1 - busy) * power.idle_w


def _why(search: EdgeSearch, rate: float, watts: float | None, counts: tuple[int, int]) -> str:
    """`counts` are the streams that the device takes, with and without a limit of its power."""
    streams, quick = counts
    if not quick:
        return f"{search.frames_per_s / rate:.2g} times too slow"
    if not streams and watts is not None and search.max_watts is not None:
        return f"draws {watts / search.max_watts:.2g} times what may be taken away"
    limited = f" within {search.max_watts:g} W, with {quick} by its speed" if streams < quick else ""
    return f"keeps up with {streams} stream{'s' if streams > 1 else ''}{limited}"


def _why_not(search: EdgeSearch, found: list[EdgePlan], refused: list[str]) -> str | None:
    if any(each.meets for each in found):
        return None
    if not found:
        return f"Nothing could be predicted. {refused[0]}" if refused else "There is no device to choose from."
    fastest = max(found, key=lambda each: each.frames_per_s)
    if fastest.frames_per_s >= search.frames_per_s:
        return f"Cooling binds: {fastest.device} keeps up and {fastest.why}."
    return (
        f"Speed binds: the fastest, {fastest.device}, does {fastest.frames_per_s:.3g} frames/s of "
        f"{search.frames_per_s:g}. Try fewer bits (--weights i8) or a smaller image."
    )
