"""Profile: the centre. A prediction and a measurement have the same shape.

`codec.py` writes it as the `inferometer.profile` document; the field names here are that document's.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, get_args

from inferometer.core.device import Device, Origin, Sourced
from inferometer.core.errors import DomainError
from inferometer.core.finding import Finding
from inferometer.core.frozen import frozen, made_when_read
from inferometer.core.lazy import Framed, late
from inferometer.core.machine import MachineFacts
from inferometer.core.served import Served
from inferometer.core.structure import Structure
from inferometer.core.units import format_quantity
from inferometer.core.workload import Workload

# Estimate: how long, within what interval, bounded by what, and based on which data.

Bound = Literal["compute", "memory", "link", "overhead", "storage"]


@frozen
class Estimate:
    """`floor_s` is the time at 100 % of every peak. No estimate beats it."""

    time_s: float
    low_s: float
    high_s: float
    floor_s: float
    bound: Bound
    origin: Origin
    rule: str
    level: str | None = None  # which memory level, where memory bounds
    energy_j: float | None = None

    def __post_init__(self) -> None:
        ordered = 0 <= self.floor_s <= self.low_s <= self.time_s <= self.high_s < float("inf")
        if not ordered:
            raise DomainError(
                f"An estimate needs floor ≤ low ≤ time ≤ high, and has "
                f"{self.floor_s!r}, {self.low_s!r}, {self.time_s!r}, {self.high_s!r}."
            )


ONCE = frozenset({"import", "load", "warm_load", "compile", "capture", "context", "first_run"})  # paid in no request
STEADY = ("decode", "forward", "run", "prefill")  # phases that repeat; the first that is there counts

Kind = Literal["predicted", "measured"]
Verified = Literal["verified", "failed", "unchecked"]


@frozen
class ModelFacts:
    name: str
    parameters: int | None = None
    active_parameters: int | None = None
    weight_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    architecture: str | None = None
    source: str | None = None
    weight_formats: Mapping[str, float] = field(default_factory=dict)  # share of the parameters in each, most first
    frames: int | None = None  # of a video that it makes

    @property
    def weights(self) -> str | None:
        """The format of most weights as they are counted: a model's own, whatever was asked for the others."""
        return next(iter(self.weight_formats), None)


@frozen
class DeviceFacts:
    name: str
    title: str | None = None
    count: int = 1


@frozen
class OpTime:
    """One op, or `count` equal ones: time, flops and bytes are of all of them together, so that sums close."""

    name: str
    kind: str
    time_s: float
    block: str | None = None
    count: int = 1
    unit: str | None = None
    flops: float | None = None
    bytes: float | None = None
    bound: Bound | None = None
    origin: Origin | None = None
    rung: str | None = None  # the source that its predicted seconds are from: `predict/price/ladder.py` has them all
    low_s: float | None = None
    high_s: float | None = None
    floor_s: float | None = None
    predicted_s: float | None = None
    energy_j: float | None = None
    samples_s: tuple[float, ...] | None = None  # its time in each step that was kept, at the pace of the clean run
    layers: tuple[str, ...] = ()  # the model's own layers that ran as this one piece, where it was fused
    kernel: str | None = None  # the engine's name for it
    provider: str | None = None  # the engine's name for where it ran
    device_s: float | None = None  # on the device's own clock; `time_s` is then the larger of host and device
    counters: Mapping[str, float] = field(default_factory=dict)  # the processor's counts in `time_s`: core/machine.py


COUNTED = 0.95  # of a phase: where less of it has known work, it is not compared with its floor


@frozen
class Phase:
    """A part of the run with its own time: load, prefill, decode, forward … Ops stand in the order of execution."""

    name: str
    time_s: float
    low_s: float | None = None
    high_s: float | None = None
    floor_s: float | None = None
    bound: Bound | None = None
    flops: float | None = None
    bytes: float | None = None
    energy_j: float | None = None
    ops: tuple[OpTime, ...] = ()
    statistic: str | None = None  # which statistic of `samples_s` the time is
    samples_s: tuple[float, ...] | None = None
    clean_s: float | None = None  # the run without instruments
    predicted_s: float | None = None
    unattributed_s: float | None = None
    context: tuple[int, ...] | None = None  # tokens in the cache before each of `samples_s`
    op_context: tuple[int, ...] | None = None  # … and before each of its ops' `samples_s`, where steps differ in it
    # Seconds of its parts, which follow one another and add up to its time: write, launch, run, sample, read, between.
    # What an engine's clock cannot tell apart is in `run`. A document lists them, with the prediction beside each.
    parts: Mapping[str, float] = field(default_factory=dict)
    predicted_parts: Mapping[str, float] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)  # host, wait and device: how long each, side by side
    # Of a prediction: seconds that each of compute, memory, storage, host_link, network and overhead takes by itself.
    # They overlap, so they are not parts of the time.
    streams: Mapping[str, float] = field(default_factory=dict)
    repeats: float | None = None  # how often a request runs it, where its name and the workload do not tell
    counters: Mapping[str, float] = field(default_factory=dict)  # the processor's counts in `time_s`: core/machine.py

    @property
    def counted(self) -> float:
        """The share of its ops whose work is known: by time where they were measured, else by number."""
        measured = self.statistic is not None
        weights = [op.time_s if measured else float(op.count) for op in self.ops]
        known = [
            weight
            for op, weight in zip(self.ops, weights, strict=True)
            if op.flops is not None or op.floor_s is not None
        ]
        whole = sum(weights)
        return sum(known) / whole if whole > 0 else 1.0

    @property
    def above_floor(self) -> float | None:
        """Its time over its floor; None where too little of its work is counted for the floor to mean much."""
        if not self.floor_s or self.counted < COUNTED:
            return None
        return self.time_s / self.floor_s

    @property
    def once(self) -> bool:
        """Whether it is paid once and in no request; an engine may say of what: `compile prefill`."""
        return self.name.partition(" ")[0] in ONCE


made_when_read(Phase, "bound", "ops", "parts", "streams")


@frozen
class Headline:
    """The summary of a profile: what a person asks first.

    A predicted time has the ends of its own interval: of everything that is in it, not of its longest phase.
    """

    latency_s: float | None = None
    latency_low_s: float | None = None
    latency_high_s: float | None = None
    ttft_s: float | None = None
    ttft_low_s: float | None = None
    ttft_high_s: float | None = None
    tpot_s: float | None = None
    tpot_low_s: float | None = None
    tpot_high_s: float | None = None
    e2e_s: float | None = None
    e2e_low_s: float | None = None
    e2e_high_s: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_user: float | None = None  # what each of its sequences sees
    inputs_per_s: float | None = None  # of a model that makes no tokens: images, frames, texts, whole pictures
    real_time_factor: float | None = None  # of speech: seconds that a second of audio takes
    peak_memory_bytes: int | None = None
    fits: bool | None = None
    energy_j: float | None = None
    energy_low_j: float | None = None
    energy_high_j: float | None = None
    usd_per_million_tokens: float | None = None
    usd_per_million_inferences: float | None = None  # of a model that makes no tokens
    co2e_g: float | None = None
    sustained_s: float | None = None  # the phase that repeats, once the device is as warm as it gets
    battery_s: float | None = None  # how long the battery that was asked about lasts
    inferences_per_charge: float | None = None  # … and how many inputs or sequences it answers
    frame_budget_s: float | None = None  # the time there is for the frames of a batch, at the rate asked about
    frame_headroom: float | None = None  # the share of it that is left; negative where frames are dropped
    unattributed_s: float | None = None
    top_unit: str | None = None  # the unit with the most time
    top_unit_by_count: str | None = None  # the unit with the most ops

    def interval(self, time: str) -> tuple[float, float] | None:
        """The low and the high end of `latency`, `ttft`, `tpot` or `e2e`; None where they are not known."""
        low, high = (getattr(self, f"{time}_{end}_s") for end in ("low", "high"))
        return None if low is None or high is None else (low, high)


@frozen
class EnergySensor:
    """One sensor whose joules were counted. `covers` says who draws them: CPU package, memory, GPU board."""

    name: str
    covers: str
    update_s: float  # how often its value changes


@frozen
class EnergyFacts:
    """How the energy of a run was measured; `reason` says why all of it, or a part, was not.

    Energies include what the machine draws anyway; `idle_w` is that, measured by the same sensors before the model was
    opened. `window_s` and `counts` have, by phase, how long was measured and how often the phase ran meanwhile.
    `predicted_j` stands in, by phase, where nothing was measured: of the device alone, and a prediction.
    """

    sensors: tuple[EnergySensor, ...] = ()
    idle_w: float | None = None
    window_s: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    predicted_j: Mapping[str, float] = field(default_factory=dict)


@frozen
class Environment:
    """What the machine was like while it measured."""

    versions: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    load_before: float | None = None
    load_after: float | None = None
    disturbed: bool | None = None
    reasons: tuple[str, ...] = ()
    host: Mapping[str, Any] = field(default_factory=dict)
    machine: MachineFacts | None = None  # None: measured elsewhere, or before runs carried it
    energy: EnergyFacts | None = None  # None: nobody looked for a sensor

    @property
    def disturbance(self) -> str:
        """The reasons as one text; some end with a sentence of advice."""
        return "; ".join(reason.removesuffix(".") for reason in self.reasons)


@frozen
class Verification:
    """Whether the outputs are right, beside how fast they came. `tolerance` says what was asked of the numbers."""

    status: Verified
    reference: str | None = None  # runtime and precision the outputs were compared with
    computed: str | None = None  # the arithmetic that they were computed in, where the engine says it
    max_abs: float | None = None
    max_rel: float | None = None
    rms_rel: float | None = None  # the whole difference over the whole output, root mean squares
    cosine: float | None = None
    top_1: float | None = None  # share of positions with the same best answer
    top_k: float | None = None  # mean overlap of the five best answers
    nll_drift: float | None = None  # nats a token, for language models
    tolerance: str | None = None
    reason: str | None = None


@frozen
class SensedSeries:
    """What was read beside a long run, by the seconds since it began: `clock_hz`, `temperature_c` or `power_w`."""

    name: str
    at_s: tuple[float, ...]
    values: tuple[float, ...]


@frozen
class Sustained:
    """How a step's time went over a long run: medians of windows, by the second that each ended at.

    `first_s` and `steady_s` are those of its first and last level, `steady_after_s` when the last began and
    `changes_s` when each did that was not the first. Clock, temperature and power, where they were read, are at first
    and in the last level; `sensed` has them over time. A prediction has no windows and a `span_s` of 0, `low_s` and
    `high_s` around `steady_s`, and as power what it would draw and what its cooling takes away.
    """

    span_s: float
    at_s: tuple[float, ...]
    latency_s: tuple[float, ...]
    first_s: float
    steady_s: float
    steady_after_s: float
    changes_s: tuple[float, ...] = ()
    clock_hz: tuple[float, ...] = ()
    temperature_c: tuple[float, ...] = ()
    power_w: tuple[float, ...] = ()
    limit_c: float | None = None  # where the hottest sensor says that the machine slows down
    low_s: float | None = None
    high_s: float | None = None
    sensed: tuple[SensedSeries, ...] = ()

    @property
    def slower(self) -> float:
        """How much longer a step takes in the end than at first, as a share; below 0 where it became faster."""
        return self.steady_s / self.first_s - 1


@frozen
class Provenance:
    tool: str
    version: str
    created: str
    command: str | None = None
    notes: tuple[str, ...] = ()


@frozen
class CalibrationMark:
    """Which calibration it was: enough to find the file again, and to tell two apart."""

    device: str
    runtime: str
    dtype: str
    created: str
    content_hash: str | None = None


@frozen
class JudgedBy:
    """What a run was judged by, kept with it: a later reader measures nothing and chooses nothing.

    `device` has the peaks and bandwidths as they were before the run. `reached` is the best that the calibration saw
    there, by number format or level of memory: lower roofs, drawn beside the device's own.
    """

    device: Device
    calibration: CalibrationMark | None = None
    reached: Mapping[str, Sourced] = field(default_factory=dict)


_SHOWN = {"tpot_s": "a token", "latency_s": "a pass", "e2e_s": "a request"}


@frozen
class Profile(Framed):
    """A prediction or a measurement, in the same shape: phases with their ops, a summary, the environment.

    In a notebook it shows itself as tables with bars; `to_pandas` and `to_polars` have a row an op.
    """

    kind: Kind
    model: ModelFacts
    device: DeviceFacts
    workload: Workload
    phases: tuple[Phase, ...]
    summary: Headline
    runtime: str | None = None
    environment: Environment | None = None
    provenance: Provenance | None = None
    findings: tuple[Finding, ...] = ()
    verification: Verification | None = None
    judged_by: JudgedBy | None = None
    arithmetic: tuple[str, ...] = ()  # the formats that a prediction counts matrix products in
    sizes: Mapping[str, int] = field(default_factory=dict)  # given for a file that leaves more open than the workload
    served: Served | None = None  # of a service under load: its requests, level by level
    sustained: Sustained | None = None  # of a long run: how its speed lasted
    structure: Structure | None = None  # of the measured model, where its layers were timed: what a graph is drawn of

    @property
    def steady(self) -> Phase | None:
        """The phase that repeats: what a person means by how fast it is."""
        phases = (self.phase(name) for name in STEADY)
        return next((phase for phase in phases if phase is not None and phase.time_s > 0), None)

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)

    def __repr__(self) -> str:
        runtime = f" with {self.runtime}" if self.runtime else ""
        times = ((getattr(self.summary, key), words) for key, words in _SHOWN.items())
        time = next((f": {format_quantity(value, 's')} {words}" for value, words in times if value is not None), "")
        return f"<{self.kind} profile of {self.model.name} on {self.device.name}{runtime}{time}>"

    def to_columns(self) -> dict[str, Any]:
        """One row an op, in the order of execution, its phase first: lists by name, None where nothing is known."""
        columns: dict[str, Any] = late("frames", "profile_columns")(self)
        return columns

    def _repr_html_(self) -> str:
        return str(late("notebook", "view_html")(self))


# A Run is a stored Profile.

Status = Literal["pending", "running", "finished", "failed", "killed"]
STATUSES: tuple[Status, ...] = get_args(Status)


@frozen
class Artifact:
    """A file that belongs to a run, addressed by what is in it."""

    name: str
    sha256: str
    size_bytes: int
    media_type: str | None = None


@frozen
class Run:
    id: str
    project: str
    status: Status
    created: str
    name: str | None = None
    parent: str | None = None
    tags: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    profile: Profile | None = None
    artifacts: tuple[Artifact, ...] = ()
