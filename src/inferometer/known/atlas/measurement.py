"""What others measured, as values: a published figure, its source, and a line that could not be read.

What was published stands beside what we make of it: `device_published` and `device`, `figure` and `seconds`. None means
that it was not stated, or that no rule knows the name.
"""

from collections.abc import Mapping
from dataclasses import field

from inferometer.core.frozen import frozen
from inferometer.known.atlas.conversions import seconds_of

QUANTITIES: Mapping[str, str] = {
    "forward": "one step of `batch` inputs",
    "stream": "each input when several are under way: the FPS of a pipeline, an offline run",
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
