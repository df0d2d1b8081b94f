"""What a service did under load: requests by columns, one level of load after another.

A load test and a simulation have the same shape, so that the two compare. Times are seconds since the start of their
level, on a clock that never steps. Figures such as percentiles are computed from the columns (`traffic.figures`); only
what another tool reported without its requests is stored as figures (`Level.stated`).
"""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, get_args, get_type_hints

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.units import format_quantity, parse_quantity

OK = "ok"  # the outcome of a request that was answered in full; every other word is a kind of error

Loop = Literal["closed", "open", "trace"]


@frozen
class RequestColumns:
    """One entry a request in every column, in the order in which they were due. None: it never came to that.

    `due_s` is when the schedule wanted it sent: in a closed loop, when its place became free. Latencies count from
    there and not from `sent_s`, so that a request that had to wait in the client is not called fast (coordinated
    omission). `first_s` and `last_s` are when its first and its last token arrived; `gap_s` is its longest wait between
    two tokens. Columns that do not apply are empty.
    """

    due_s: tuple[float, ...]
    sent_s: tuple[float | None, ...]
    first_s: tuple[float | None, ...]
    last_s: tuple[float | None, ...]
    input_tokens: tuple[int | None, ...]
    output_tokens: tuple[int | None, ...]
    outcome: tuple[str, ...]
    gap_s: tuple[float | None, ...] = ()
    session: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.due_s)


@frozen
class Spread:
    """How often each time was read: counts over bins of equal ratio, exact count, sum and ends.

    Bin n holds the times from `ratio`ⁿ to `ratio`ⁿ⁺¹ seconds, so that a percentile is known to half a bin: a quarter
    of a percent. Zeros, of tokens that arrived together, are counted apart.
    """

    count: int
    total_s: float
    min_s: float
    max_s: float
    zeros: int = 0
    ratio: float = 1.005
    bins: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()


@frozen
class Window:
    """The part of a round whose requests are reported: when the load was as asked for. `why` says how it was chosen."""

    start_s: float
    end_s: float
    why: str

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@frozen
class ClientReadings:
    """How the load generator itself did. Where `bottleneck`, the figures are of it and not of the server.

    `lag` is how late the event loop came to a timer; `cpu_share` is of one core, of the busiest process; the send
    delay is from when a request was due to when it was written.
    """

    processes: int = 1
    send_delay_p50_s: float | None = None
    send_delay_p99_s: float | None = None
    send_delay_max_s: float | None = None
    lag_p99_s: float | None = None
    lag_max_s: float | None = None
    cpu_share: float | None = None
    connections: int | None = None
    bottleneck: bool = False
    reasons: tuple[str, ...] = ()


@frozen
class ServerReadings:
    """What the server says of the same time: its counters before and after, its gauges in between, its usage fields.

    Counters are differences over the level, gauges (mean, maximum). `usage_*` are sums over the requests' own usage.
    """

    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    usage_input_tokens: int | None = None
    usage_output_tokens: int | None = None
    usage_requests: int = 0


@frozen
class Distribution:
    """A percentile is None where so few requests do not support it (`core.statistics`)."""

    count: int | None = None
    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


@frozen
class Objective:
    """A service-level objective: `ttft` of every request, or of the share `share` of them, within `limit_s`."""

    metric: Literal["ttft", "tpot", "itl", "e2e"]
    limit_s: float
    share: float | None = None

    def __str__(self) -> str:
        share = "" if self.share is None else f"_p{100 * self.share:g}"
        return f"{self.metric}{share}<={format_quantity(self.limit_s, 's').replace(' ', '')}"


@frozen
class LevelFigures:
    """The figures of one level. None is what is not known; see docs/load.md for the definition of each."""

    requests: int
    completed: int
    errors: Mapping[str, int] = field(default_factory=dict)
    counted: int | None = None  # requests in the window that the distributions are of
    window_s: float | None = None
    ttft_s: Distribution | None = None
    itl_s: Distribution | None = None
    tpot_s: Distribution | None = None
    e2e_s: Distribution | None = None
    requests_per_s: float | None = None
    offered_per_s: float | None = None
    input_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    goodput_per_s: float | None = None
    attained: float | None = None  # the share of the window's requests that met every objective; errors did not
    objectives: Mapping[str, bool | None] = field(default_factory=dict)  # whether each held; None: too few requests
    in_time: Mapping[str, float] = field(default_factory=dict)  # by objective: the share of the window's requests
    in_flight: float | None = None  # mean number of requests in the system
    little: float | None = None  # requests a second × mean time in the system: what Little's law says it should be
    growth_per_s: float | None = None  # requests that pile up a second
    growing: bool = False
    input_tokens: float | None = None  # mean of a request
    output_tokens: float | None = None
    spread: Mapping[str, float] = field(default_factory=dict)  # (largest − smallest) / mean between equal rounds
    rounds: str | None = None  # what those rounds were

    @property
    def has_times(self) -> bool:
        return self.e2e_s is not None or self.ttft_s is not None or self.tpot_s is not None


@frozen
class Level:
    """One load: so many requests a second, or so many at once. `stated` is for a source that keeps no requests."""

    name: str
    rate_per_s: float | None = None
    rate_to_per_s: float | None = None  # of a ramp: the rate at its end; it is not meant to be steady
    concurrency: int | None = None
    seconds: float | None = None
    requests: RequestColumns | None = None
    windows: tuple[Window, ...] = ()
    gaps: Spread | None = None  # between tokens, of the requests in the windows
    counting: str | None = None  # how it is known how many tokens a chunk held
    tokens_per_chunk: float | None = None
    client: ClientReadings | None = None
    server: ServerReadings | None = None
    stated: LevelFigures | None = None
    interrupted: bool = False
    messages: Mapping[str, str] = field(default_factory=dict)  # by kind of error: the first message the server gave
    notes: tuple[str, ...] = ()


@frozen
class Served:
    """A service under load. `arrivals` and `lengths` say in words what was asked of it."""

    loop: Loop
    levels: tuple[Level, ...]
    endpoint: str | None = None
    api: str | None = None
    streamed: bool = True
    arrivals: str | None = None
    lengths: str | None = None
    prompts: str | None = None  # how their tokens were counted
    objectives: tuple[Objective, ...] = ()
    headline: int = 0  # the level that the profile's own phases and summary are of


# Service-level objectives as people write them: `ttft<=500ms` of every request, `tpot_p95<=50ms` of 95 % of them.

METRICS: tuple[str, ...] = get_args(get_type_hints(Objective)["metric"])
_FORM = re.compile(r"^\s*(\w+?)(?:_p(\d+(?:\.\d+)?))?\s*(?:<=|<|≤)\s*(.+?)\s*$", re.IGNORECASE)
_REMEDY = "Write ttft<=500ms for every request, or tpot_p95<=50ms for 95 % of them; there is ttft, tpot, itl and e2e."


def parse_objective(text: str) -> Objective:
    matched = _FORM.match(text)
    if matched is None or matched[1].lower() not in METRICS:
        raise DomainError(f"{text!r} is not an objective.", remedy=_REMEDY)
    share = None if matched[2] is None else round(float(matched[2]) / 100, 9)
    if share is not None and not 0 < share < 1:
        raise DomainError(f"{text!r} asks for a percentile that is not between 0 and 100.", remedy=_REMEDY)
    try:
        limit = parse_quantity(matched[3], "s")
    except InferometerError as error:
        raise DomainError(f"{text!r} is not an objective: {error.message}", remedy=_REMEDY) from None
    if not limit > 0:
        raise DomainError(f"{text!r} asks for a time that is not greater than 0.", remedy=_REMEDY)
    return Objective(metric=matched[1].lower(), share=share, limit_s=limit)  # type: ignore[arg-type] # checked above
