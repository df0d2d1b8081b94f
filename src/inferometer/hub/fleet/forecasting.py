"""An expected time for every job in the queue: how long it should take."""

from __future__ import annotations

import hashlib
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from inferometer.core.codec import document, encode
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.json_text import parse_json
from inferometer.core.settings import config_file, data_folder
from inferometer.core.units import format_duration
from inferometer.hub.box.entering import EntryPlan
from inferometer.hub.box.found import in_bubblewrap, means_here
from inferometer.hub.box.view import environment_in, view_of
from inferometer.hub.places.device_side import environment_for, files_of, lay_out
from inferometer.hub.web.answers import HubError
from inferometer.store.queue.wanted import fits, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.box import Means
    from inferometer.core.job import Job
    from inferometer.core.profile import Profile
    from inferometer.hub.fleet.desk import FleetDesk
    from inferometer.store.queue.values import FleetDevice, JobRow, Wanted

_STARTING_S = 6.0  # to start an engine, where no job has been timed yet
_TIMED, _LEAST = 20, 3  # earlier jobs that are looked at, and that are enough
MEMORY_BYTES, SECONDS = 4_000_000_000, 60  # that reading and pricing a model may take
_READER = "inferometer.hub.fleet.forecast"  # the module that opens what others sent
_REMEMBERED = 1000
_OUTLOOKS = 8  # that may wait for theirs, each in a thread that pages need too
_LEFT_S = 3600.0  # far longer than one takes
_LOOKED_S, _ASKED = 2.0, 3  # how old a look at the devices may be, and how many are asked what they can do


@frozen
class Expected:
    """`seconds` None: it could not be predicted, and `source` says why."""

    seconds: float | None
    source: str


class _Likely(NamedTuple):
    """The device that would take a job, and what it has done last."""

    device: FleetDevice
    done: tuple[JobRow, ...]


class Forecaster:
    """Works in a thread of its own, one job after the other: nobody who submits waits for it."""

    def __init__(self, desk: FleetDesk) -> None:
        self._desk = desk
        self._jobs: queue.SimpleQueue[tuple[JobRow, Job]] = queue.SimpleQueue()
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._looking = threading.Semaphore(2)
        self._asking = threading.Semaphore(_OUTLOOKS)
        self._chosen: dict[tuple[str, str], _Likely | None] = {}
        self._looked_at = float("-inf")

    def ask(self, row: JobRow, job: Job) -> None:
        self._jobs.put((row, job))
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="forecasts", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            row, job = self._jobs.get()
            try:
                self.forecast(row, job)
            except (InferometerError, OSError, ValueError):  # the store is away, or the job is gone: it has no time
                continue

    def forecast(self, row: JobRow, job: Job) -> Expected:
        expected = self._expected(row, job)
        self._desk.fleet.expect(row.id, expected.seconds, expected.source)
        return expected

    def _expected(self, row: JobRow, job: Job) -> Expected:
        likely = self._likely(row.wanted, row.project)
        if likely is None:
            return Expected(seconds=None, source="no device that fits has said what it can do")
        name = likely.device.name
        earlier = [_took(done) for done in likely.done if (done.key, done.project) == (row.key, row.project)]
        if earlier:  # what the very same job took there before is the best that is known
            runs = "as it took before" if len(earlier) == 1 else f"the median of {len(earlier)} earlier runs"
            return Expected(seconds=median(earlier), source=f"{runs} on {name}")
        return self._predicted(job, likely.device, sorted(map(_took, likely.done)))

    def _likely(self, wanted: Wanted, project: str) -> _Likely | None:
        """The device that would take a job, looked up anew every few seconds: many jobs come at once."""
        now, wish = time.monotonic(), (project, written(wanted))
        if now - self._looked_at > _LOOKED_S:
            self._looked_at = now
            self._chosen.clear()
        if wish not in self._chosen:
            self._chosen[wish] = self._choose(wanted, project)
        return self._chosen[wish]

    def _choose(self, wanted: Wanted, project: str) -> _Likely | None:
        """One that is there and has nothing to do, if there is one."""
        fleet = self._desk.fleet
        there = fleet.devices(facts=False, project=project)
        fitting = [device for device in there if fits(wanted, device.name, device.labels)]
        fitting.sort(key=lambda device: (device.state != "ready", device.away(fleet.now()), device.job is not None))
        for device in fitting[:_ASKED]:
            known = fleet.device(device.name)
            if known.facts.get("device"):
                return _Likely(known, fleet.jobs(states=("done",), device=device.name, limit=_TIMED))
        return None

    def _predicted(self, job: Job, device: FleetDevice, times: list[float]) -> Expected:
        # No job is shorter than what it takes to start: the shortest that were timed say how long that is.
        starting = times[len(times) // 10] if len(times) >= _LEAST else _STARTING_S
        answer = self._remembered(job, device)
        if "error" in answer:
            return Expected(seconds=None, source=f"not predicted for {device.name}: {answer['error']}")
        measuring = float(answer["seconds"])
        source = (
            f"predicted for {device.name}: {format_duration(measuring)} of measuring, "
            f"and {format_duration(starting)} around it"
        )
        return Expected(seconds=measuring + starting, source=source)

    def floors(self, job: Job, device: FleetDevice, profiles: Sequence[Profile]) -> dict[str, Any]:
        """What an answer of this device is held against (`hub/fleet/desk.py`); empty where it cannot be known."""
        if not device.facts.get("device") or not profiles:
            return {}
        workloads = [msgspec.to_builtins(profile.workload) for profile in profiles]
        try:
            known = self._remembered(
                job, device, floors={"workloads": workloads, "unit": profiles[0].summary.top_unit}
            )  # fmt: skip
        except (InferometerError, OSError, ValueError):  # a file of it is gone, or what reads it said nothing
            return {}
        return {} if "error" in known else known

    def outlook(self, job: Job, devices: Sequence[FleetDevice], prepared_on: str | None = None) -> dict[str, Any]:
        """What the job's model is, and what each of these devices should need for it: read and priced in one box.

        Somebody waits for it, and each takes a process: two are at work at once, a few wait, and others come again.
        """
        fleet = {
            device.name: {
                "device": device.facts.get("device"), "calibrations": _documents(device),
                "engines": device.labels.get("runtime", ()),
            }
            for device in devices
        }  # fmt: skip
        if not self._asking.acquire(blocking=False):
            raise HubError(503, "The hub is reading many other models.", remedy="Try again in a minute.")
        try:
            with self._looking:
                return self._in_a_box(
                    job, {"fleet": fleet, "prepared_on": prepared_on if prepared_on in fleet else None}
                )
        finally:
            self._asking.release()

    def _remembered(self, job: Job, device: FleetDevice, **more: Any) -> dict[str, Any]:
        """Devices that say the same of themselves are predicted once: a fleet has many of a kind."""
        said = json.dumps([device.facts.get("device"), device.facts.get("calibrations"), more], sort_keys=True)
        key = hashlib.sha256(f"{_mark(job)} {said}".encode()).hexdigest()
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._asked(job, device, more)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return known

    def tidy(self) -> None:
        """Drop what a hub that was ended in the middle of a forecast has left."""
        for folder in (self._desk.root / "forecasts").glob("*"):
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > _LEFT_S:
                    shutil.rmtree(folder, ignore_errors=True)

    def _asked(self, job: Job, device: FleetDevice, more: dict[str, Any]) -> dict[str, Any]:
        said = {"device": device.facts.get("device"), "calibrations": _documents(device)}
        return self._in_a_box(job, {**said, **more})

    def _in_a_box(self, job: Job, question: dict[str, Any]) -> dict[str, Any]:
        root, location = self._desk.root, self._desk.store.location
        (root / "forecasts").mkdir(parents=True, exist_ok=True, mode=0o700)  # beside the models, which are linked
        folder = Path(tempfile.mkdtemp(dir=root / "forecasts"))
        asked = {
            "job": document(job), "files": str(folder / "files"), "memory_bytes": MEMORY_BYTES, "seconds": SECONDS,
            **question,
        }  # fmt: skip
        rows = [] if location.file is None else location.file.parent.glob(f"{location.file.name}*")  # and its log
        secret = [location.artifacts, root, *rows]
        try:
            lay_out(root, files_of(document(job)), folder / "files")
            return in_a_process(asked, folder, secret)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _documents(device: FleetDevice) -> list[Any]:
    """The calibrations that its agent sent whole."""
    return [plain for each in device.facts.get("calibrations") or () if (plain := each.get("document"))]


def in_a_process(
    asked: dict[str, Any], folder: Path, secret: Sequence[Path], means: Means | None = None
) -> dict[str, Any]:
    """With limits, and in a box where the system has one: the model comes from somebody else.

    It reads `folder` beside what every box shows, writes nothing, reaches nobody and starts no process; of `secret`
    nothing is there.
    """
    command, environment = _boxed(folder, secret, means or means_here())
    try:
        ran = subprocess.run(  # noqa: S603 - our own module
            command, input=json.dumps(asked), text=True, capture_output=True, check=False, timeout=2 * SECONDS,
            env=environment, cwd=folder / "own",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": "it takes too long to read"}
    answer: dict[str, Any] = parse_json(ran.stdout) if ran.stdout else {"error": "it takes too much to read"}
    return answer


def _boxed(folder: Path, secret: Sequence[Path], means: Means) -> tuple[list[str], dict[str, str]]:
    """The command, and its environment."""
    own = folder / "own"
    (own / "tmp").mkdir(parents=True)
    view = view_of(folder, own, hide=[*secret, config_file(), data_folder()])
    # A disk without hard links has soft ones, which lead out of the folder.
    soft = [str(path.resolve()) for path in (folder / "files").rglob("*") if path.is_symlink()]
    view = replace(view, readable=(*view.readable, *soft))
    plan = EntryPlan(
        run=(_READER,), file_bytes=0, processes=None, alone=True, connecting=False,
        view=view if means.real and means.bubblewrap is None else None, filtered=means.real,
    )  # fmt: skip
    command = [sys.executable, "-P", "-m", "inferometer.hub.box.entering", msgspec.json.encode(plan).decode()]
    if means.real and means.bubblewrap is not None:
        command = in_bubblewrap(means.bubblewrap, view, command, inside=own)
    outside = environment_for([str(Path(__file__).parents[3])], {})
    return command, environment_in(outside, own, shared_memory=False)


def _mark(job: Job) -> str:
    return encode(replace(job, id="same", created="", command=None)).decode()


def _took(row: JobRow) -> float:
    return (row.ended or 0.0) - (row.leased or row.created)
