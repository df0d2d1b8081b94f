"""A published figure → seconds. The one place where a rate is turned round."""

from typing import Any

from inferometer.core.errors import UnitError

TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
RATES = frozenset({"inputs/s", "tokens/s", "tokens/s/device"})
UNITS = (*TIMES, *sorted(RATES))

# How units are written elsewhere. Frames, images, samples and inferences are all inputs.
_SPELT = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "millisecond": "ms", "milliseconds": "ms",
    "µs": "us", "μs": "us", "usec": "us", "microseconds": "us", "nanoseconds": "ns",
    "fps": "inputs/s", "images/s": "inputs/s", "img/s": "inputs/s", "frames/s": "inputs/s", "samples/s": "inputs/s",
    "inferences/s": "inputs/s", "infer/s": "inputs/s", "inf/s": "inputs/s", "queries/s": "inputs/s",
    "images/sec": "inputs/s", "samples/sec": "inputs/s", "inf./sec": "inputs/s", "queries/sec": "inputs/s",
    "tok/s": "tokens/s", "t/s": "tokens/s", "tokens/sec": "tokens/s", "tokens per sec": "tokens/s",
    "tokens per second": "tokens/s", "tok/s/gpu": "tokens/s/device", "tokens/s/gpu": "tokens/s/device",
}  # fmt: skip


def unit_named(text: str) -> str:
    """Our name of a unit as others spell it; an unknown one is an error that lists ours."""
    spelt = " ".join(text.strip().casefold().rstrip(".").split())
    unit = _SPELT.get(spelt, spelt)
    if unit not in UNITS:
        raise UnitError(f"{text!r} is neither a time nor a rate.", remedy=f"Known: {', '.join(UNITS)}, fps.")
    return unit


def seconds_of(  # noqa: PLR0913 - everything that the seconds of a rate depend on
    figure: Any, unit: str, quantity: str, *, batch: Any = None, prompt: Any = None, count: Any = None
) -> Any:
    """Seconds of what `quantity` names, from one figure or an array of them.

    A time is scaled. A rate divides the work that the quantity is of: `batch` inputs for a forward step, `batch`
    tokens for a decode step, `batch` × `prompt` tokens for a prefill, one input or token for a stream. A rate per
    device is one of all devices first.
    """
    if unit in TIMES:
        return figure * TIMES[unit]
    if unit not in RATES:
        raise UnitError(f"{unit!r} is neither a time nor a rate.", remedy=f"Known: {', '.join(UNITS)}.")
    wanted = _INPUTS if unit == "inputs/s" else _TOKENS
    if quantity not in wanted:
        raise UnitError(f"A {quantity} cannot be published in {unit}.", remedy=f"Of a rate: {', '.join(wanted)}.")
    many = 1 if batch is None else batch
    work = {"forward": many, "decode": many, "prefill": many * (1 if prompt is None else prompt)}.get(quantity, 1)
    rate = figure * (1 if count is None else count) if unit == "tokens/s/device" else figure
    return work / rate


_INPUTS = ("forward", "stream")
_TOKENS = ("decode", "prefill", "tokens")
