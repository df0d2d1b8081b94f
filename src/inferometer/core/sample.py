"""Raw readings, and the statistics made of them. Each statistic has its name; one the sample cannot support is None."""

from inferometer.core.frozen import frozen


@frozen
class Sample:
    """Readings in the order they were taken; warm-up is not among them."""

    name: str
    unit: str
    values: tuple[float, ...]


@frozen
class Interval:
    low: float
    high: float
    confidence: float


@frozen
class Percentile:
    """A percentile and the readings it lies between. An end is None where no reading bounds it.

    The value is None where there are so few readings that none is to be expected beyond it.
    `needed` is about how many such readings give both ends.
    """

    share: float
    value: float | None
    low: float | None
    high: float | None
    confidence: float
    count: int
    needed: int


@frozen
class Summary:
    """`std` has n − 1 in its denominator; percentiles are linear between ranks (Hyndman–Fan 7).

    Intervals are bootstrapped. Outliers lie outside Tukey's fences. `exclusive` is the total without what nested spans
    took. Rates divide by the total. Drift is Theil–Sen's slope, `drift_share` its sum over the run as a share of the
    median, `drift_p_value` Mann–Kendall's. `steady_from` is the first reading of the steady part.
    """

    name: str
    unit: str
    count: int
    total: float
    min: float
    max: float
    mean: float
    median: float
    std: float | None = None
    mad: float | None = None
    cv: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p999: float | None = None
    mean_interval: Interval | None = None
    median_interval: Interval | None = None
    outliers: int | None = None
    drift_per_run: float | None = None
    drift_share: float | None = None
    drift_p_value: float | None = None
    steady_from: int | None = None
    exclusive: float | None = None
    per_s: float | None = None
    tokens_per_s: float | None = None
    bytes_per_s: float | None = None
    flop_per_s: float | None = None
