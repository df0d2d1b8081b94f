"""The values of the queue's interface. Times are seconds since 1970, UTC."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, get_args

from inferometer.core.frozen import frozen
from inferometer.core.job import FINAL, Job, JobState, Verb

DeviceState = Literal["ready", "maintenance", "quarantined"]
DEVICE_STATES: tuple[DeviceState, ...] = get_args(DeviceState)
HELD: tuple[JobState, ...] = ("preparing", "running")
SILENT_S = 90.0  # a device that gave no sign of life for so long counts as away
STILL_S = 120.0  # a run that told nothing new for so long is shown with it
FAULTS_S = 7 * 86_400.0  # that the faults of a device count for
_FAULTS = 3  # in that time, from which on it fails often


@frozen
class LeaseTiming:
    """How long a lease holds without a sign of life, and when a job that was lost is tried again."""

    lease_s: float = 300.0
    attempts: int = 3
    backoff_s: float = 5.0
    backoff_most_s: float = 300.0
    failures: int = 3  # jobs in a row that a device loses before it is quarantined
    often: int = 2  # … and before it is probed: it runs the reference alone, and only then gets another job
    late: float = 10.0  # times its expected time from which on a job is said to be late
    late_least_s: float = 60.0  # and not before: what should take a second may wait for a disk

    def backoff(self, attempts: int) -> float:
        """Twice as long each time."""
        return float(min(self.backoff_s * 2 ** max(attempts - 1, 0), self.backoff_most_s))


@frozen
class Moment:
    """When something happens to a job, and by which times it is judged."""

    timing: LeaseTiming
    now_us: int


@frozen
class Wanted:
    """What a job asks of a device: a name, or labels that it must have. The runtime of the job is one of them."""

    device: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@frozen
class NewDevice:
    """What an agent says of its device when it registers. A label may have several values: `unit` cpu and gpu.

    `token` is the id of the one that it registers with; `probes`: it can be asked to run the reference alone.
    """

    name: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    skew_s: float = 0.0
    token: str | None = None
    probes: bool = False


@frozen
class FleetDevice:
    """A registered device. `job` is the one that it has now; `failures` are jobs in a row that it did not finish.

    `probing`: it has failed often, and has to run the reference before it gets another job.
    """

    name: str
    user: str
    labels: Mapping[str, tuple[str, ...]]
    facts: Mapping[str, Any]
    version: str
    state: DeviceState
    registered: float
    heartbeat: float
    reason: str | None = None
    failures: int = 0
    skew_s: float = 0.0
    job: str | None = None
    probing: bool = False
    everyone: bool = False  # it takes the jobs of every project

    def away(self, now: float) -> bool:
        return now - self.heartbeat > SILENT_S


@frozen
class NewJob:
    """A job for the queue: what to run, for whom, and on what. `anew`: even if the same one is there already."""

    job: Job
    wanted: Wanted = Wanted()
    project: str = "default"
    user: str = "local"
    priority: int = 0
    name: str | None = None
    tags: tuple[str, ...] = ()
    anew: bool = False


@frozen
class JobRow:
    """A job as the queue has it. `key` is the job's own id; `run` is the run that its result became.

    `heard` is when its device last told something of it, `late` whether it takes far longer than expected.
    """

    id: str
    key: str
    project: str
    user: str
    verb: Verb
    state: JobState
    wanted: Wanted
    priority: int
    attempts: int
    created: float
    name: str | None = None
    model: str | None = None
    runtime: str | None = None
    reason: str | None = None
    device: str | None = None
    lease: str | None = None
    lease_until: float | None = None
    not_before: float = 0.0
    leased: float | None = None
    ended: float | None = None
    cancelling: bool = False
    expected_s: float | None = None
    expected_from: str | None = None
    moved: bool | None = None
    run: str | None = None
    events: int = 0
    heard: float | None = None
    late: bool = False

    @property
    def final(self) -> bool:
        return self.state in FINAL

    def still_s(self, now: float) -> float | None:
        """For how long a run has told nothing new, if that is long; its device may well give signs of life."""
        if self.state != "running" or self.heard is None or now - self.heard < STILL_S:
            return None
        return now - self.heard


@frozen
class Lease:
    """A job that was given to a device. It holds for `lease_s` from now, and longer with every sign of life."""

    id: str
    job: Job
    row: JobRow
    lease_s: float


@frozen
class LeaseCheck:
    """The reference job, in seconds, before and after a lease; and how long the device had to cool down before."""

    before_s: float
    after_s: float
    moved: bool
    waited_s: float = 0.0
    device: str = ""
    job: str | None = None
    at: float = 0.0

    @property
    def change(self) -> float:
        return self.after_s / self.before_s - 1


@frozen
class DeviceFault:
    """What a device did wrong: a job that it lost, or an answer that was refused. `kept`: that answer is set aside."""

    device: str
    at: float
    reason: str
    job: str | None = None
    kept: bool = False


def fails_often(failures: int, faults: int) -> bool:
    """Of jobs in a row that a device did not finish, and of its faults in `FAULTS_S`."""
    return failures >= LeaseTiming().often or faults >= _FAULTS
