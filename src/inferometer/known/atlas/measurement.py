"""What others measured, as values: a published figure, its source, and a line that could not be read.

What was published stands beside what we make of it: `device_published` and `device`, `figure` and `seconds`. None means
that it was not stated, or that no rule knows the name.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from inferometer.core.errors import UnitError
from inferometer.core.frozen import frozen

# A published figure → seconds. The one place where a rate is turned round.

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
    work = {"forward": many, "picture": many, "decode": many, "prefill": many * (1 if prompt is None else prompt)}.get(
        quantity, 1
    )
    rate = figure * (1 if count is None else count) if unit == "tokens/s/device" else figure
    return work / rate


_INPUTS = ("forward", "stream", "picture")
_TOKENS = ("decode", "prefill", "tokens")


QUANTITIES: Mapping[str, str] = {
    "forward": "one step of `batch` inputs",
    "stream": "each input when several are under way: the FPS of a pipeline, an offline run",
    "picture": "`batch` whole pictures or videos, of so many denoising `steps`",
    "prefill": "reading `prompt` tokens of `batch` sequences",
    "decode": "one step: a token for each of `batch` sequences",
    "ttft": "until the first token, as a client sees it",
    "tpot": "between two tokens, as a client of a server sees it",
    "request": "`batch` whole requests at once",
    "tokens": "each token of a busy system, all sequences together",
}


@frozen
class AtlasSource:
    """Who published a figure, and on what terms. `url` may hold `{place}`, the page or file there."""

    key: str
    title: str
    short: str
    url: str
    licence: str
    revision: str | None = None
    date: str | None = None
    shipped: bool = True
    note: str | None = None

    def link(self, place: str | None) -> str:
        """The address of a row's own page, or of the folder around it where the row names none."""
        before, named, _ = self.url.partition("{place}")
        if not named:
            return self.url
        return self.url.replace("{place}", place) if place else before.rpartition("/")[0]


@frozen
class PublishedMeasurement:
    """One published figure. `context` is what is in the cache before the measured part begins."""

    dataset: str
    source: str
    file: str
    line: int
    device_published: str
    model_published: str
    quantity: str
    figure: float
    figure_unit: str
    place: str | None = None
    date: str | None = None
    device_spelling: str | None = None  # what was looked up where it is not the published name; `A|B` for either
    device: str | None = None
    unit: str | None = None
    count: int = 1
    model_spelling: str | None = None
    model: str | None = None
    part: str | None = None
    engine_published: str | None = None
    engine: str | None = None
    version: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    precision_published: str | None = None
    weights: str | None = None
    activations: str | None = None
    batch: int | None = None
    image: int | None = None
    input: str | None = None
    prompt: int | None = None
    generate: int | None = None
    context: int | None = None
    concurrency: int | None = None
    low: float | None = None
    high: float | None = None
    spread: str | None = None
    memory_bytes: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    parameters: float | None = None
    macs: float | None = None
    weight_bytes: float | None = None

    @property
    def seconds(self) -> float:
        return self._seconds(self.figure)

    @property
    def low_s(self) -> float | None:
        """The shortest time that was published. Of a rate it is the highest."""
        ends = [self._seconds(end) for end in (self.low, self.high) if end is not None]
        return min(ends) if len(ends) == 2 else None

    @property
    def high_s(self) -> float | None:
        ends = [self._seconds(end) for end in (self.low, self.high) if end is not None]
        return max(ends) if len(ends) == 2 else None

    def _seconds(self, figure: float) -> float:
        return float(
            seconds_of(figure, self.figure_unit, self.quantity, batch=self.batch, prompt=self.prompt, count=self.count)
        )


@frozen
class SetAside:
    """A line of a file that was not taken, and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"
