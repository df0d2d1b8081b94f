"""A job that an agent holds: brought here, measured between two references, told of, and brought back.

Everything that matters is on the disk (`lease.json`, `told.jsonl`, the runner's folder), so that an agent that was
killed goes on where it was. The runner has a lease of its own: a file that says until when it may run. An agent that
cannot reach the hub, or is gone, does not renew it; the runner then stops by itself before the hub gives the job away.
"""

import errno
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from inferometer.core.box import BoxOrder
from inferometer.core.codec import decode, document
from inferometer.core.errors import FormatError, InferometerError, PlaceError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobFile, JobResult
from inferometer.hub.agent.carrying_out import MADE, without_places
from inferometer.hub.agent.reference import cool_down, measure_reference, moved
from inferometer.hub.agent.runner import LEASE, alone
from inferometer.hub.places import device_side
from inferometer.hub.places.artifacts import ArtifactFolder, chunks_from
from inferometer.hub.places.following import JOB, RESULT, EventTail, ToldLog, result_in
from inferometer.hub.places.hub_client import API, HubAwayError, HubClient, HubRefusalError, fetch, upload
from inferometer.hub.places.local import FolderHere
from inferometer.measure.bench.guard import Guard
from inferometer.measure.bench.processes import kill_tree

_LOOK_S, _TELL_S, _BEAT_S, _AWAY_S = 0.2, 1.0, 10.0, 2.0
_OURS = 0.85  # of a lease that a runner may use: it has stopped before the hub's own is over
_ROUNDS = 2
_FETCHED = 3  # times that a file is fetched if it arrives damaged
_STOP_S = 60.0  # that a runner gets to stop before it is killed
SHUT_OUT = frozenset({401, 403})
_RESERVE = 200_000_000  # bytes of the disk that a job leaves free
STATE, TOLD = "lease.json", "told.jsonl"


class LeaseGoneError(InferometerError):
    """The hub has given the job to somebody else, or it has ended: nothing more to do here."""


class StoppingError(InferometerError):
    """The agent itself is to stop."""


class CancelledError(InferometerError):
    """Somebody has cancelled the job, and nothing of it is measured yet."""


class ShutOutError(PlaceError):
    """The hub does not let this agent in any more: its token was revoked, or the device is not its own any more."""

    exit_code: ClassVar[int] = 77  # as sysexits.h has it for a right that is missing: starting it again does not help


@frozen
class Held:
    """What is known of the lease; written to the disk at each step."""

    id: str
    lease: str
    lease_s: float
    job: dict[str, Any]
    round: int = 0  # of the runner; 0: not started yet
    waited_s: float = 0.0
    before_s: float | None = None
    after_s: float | None = None
    repeated: bool = False
    giving_back: str | None = None  # why: what is left to do is to give the job back, whoever starts again
    fault: bool = False  # … and whether the device is to blame


@frozen
class Seams:
    """What tests put in place of the machine."""

    guard: Callable[[], Guard] | None = None  # None: the device is not looked at
    reference: Callable[[], float] | None = measure_reference
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    settings: dict[str, str] = field(default_factory=dict)
    box: BoxOrder = field(default_factory=BoxOrder)


class Holding:
    def __init__(self, client: HubClient, device: str, root: Path, state: Path, held: Held, seams: Seams) -> None:  # noqa: PLR0913, PLR0917 - where it is, what it is, and the seams
        self._client, self._device, self._root, self._state = client, device, root, state
        self._seams = seams
        self.held = held
        self.job = decode(msgspec.json.encode(held.job), Job)
        self._told = ToldLog(state / TOLD, self.job.id)
        self._beaten_at = self._told_at = self._not_before = float("-inf")
        self._renewed_at = seams.clock()
        self._cancelled = False
        self.stopping = False

    @classmethod
    def found(cls, client: HubClient, device: str, root: Path, state: Path, seams: Seams) -> "Holding | None":
        """The job that an agent of this name had when it ended."""
        try:
            held = msgspec.json.decode((state / STATE).read_bytes(), type=Held)
        except (OSError, msgspec.DecodeError):
            return None
        return cls(client, device, root, state, held, seams)

    def carry_out(self) -> str:
        """From the files to the result that the hub has; gives how it ended."""
        if self.held.giving_back is not None:
            return self._give_back(self.held.giving_back, fault=self.held.fault)
        try:
            self._save()
            result = self._answer()
            spoilt = self._spoilt(result)
            if spoilt is not None:
                return self._give_back(spoilt, fault=True)
            self._bring_back(result)
        except LeaseGoneError:
            self._stop_runner()
            self._clear()
            return "given to another"
        except ShutOutError:
            self._stop_runner(at_once=True)
            self._clear()
            raise
        except _UnusableFileError as error:
            return self._give_back(error.message, fault=True)
        except OSError as error:
            return self._give_back(_disk_words(error), fault=True)
        self._clear()
        return result.ended

    def _answer(self) -> JobResult:
        try:
            if not self._has_result():  # a result is brought even after its lease: the hub may still want it
                self._go_on()
                self._bring_files()
            while True:
                result = self._measured()
                if not self._again(result):
                    return result
        except CancelledError:
            return JobResult(job=self.job, ended="stopped", error="It was cancelled before anything was measured.")

    def _spoilt(self, result: JobResult) -> str | None:
        """A model that cannot be read may be one whose file was damaged on this disk: that is no fault of its own."""
        if result.ended not in {"refused", "failed", "crashed"}:
            return None
        folder = ArtifactFolder(root=self._root)
        for file in self.job.files:
            path = folder.path(file.sha256)
            if not path.is_file():
                continue
            digest = hashlib.sha256()
            for data in chunks_from(path, 0):
                digest.update(data)
                self._keep()  # a large one takes minutes
            if digest.hexdigest() != file.sha256:
                path.unlink()
                return f"{file.path} was damaged on its disk, and is thrown away."
        return None

    # On the disk

    def _save(self, **changes: Any) -> None:
        self.held = replace(self.held, **changes)
        device_side.write_whole(self._state / STATE, msgspec.json.encode(asdict(self.held)))

    def _folder(self, round_: int | None = None) -> Path:
        return self._root / "jobs" / f"hub-{self.held.lease}-{self.held.round if round_ is None else round_}"

    def _clear(self) -> None:
        for round_ in range(1, _ROUNDS + 1):
            shutil.rmtree(self._folder(round_), ignore_errors=True)
        for name in (TOLD, STATE):  # the state last: without it nobody knows of the rest
            (self._state / name).unlink(missing_ok=True)

    # Signs of life

    def _keep(self) -> None:
        """Tell what is new, or at least that we live. A hub that is away is tried again; a lost lease is an error."""
        if self.stopping:
            raise StoppingError("The agent was stopped.")
        now = self._seams.clock()
        unsent = self._told.unsent()
        urgent = any(line["event"]["kind"] != "progress" for line in unsent)
        due = urgent or (now - self._told_at >= _TELL_S if unsent else now - self._beaten_at >= _BEAT_S)
        if not due or now < self._not_before:
            return
        self._told_at = self._beaten_at = now
        held = {"device": self._device, "lease": self.held.lease}
        try:
            if unsent:
                said = {**held, "now": time.time(), "events": unsent}
                heard = self._post(f"{API}/agent/jobs/{self.held.id}/events", said)
                self._told.sent = max(self._told.sent, int(heard["written"]))
            else:
                heard = self._post(f"{API}/agent/beat", {**held, "job": self.held.id})
        except HubAwayError:
            self._not_before = now + _AWAY_S
            return  # the runner's own lease says how long that may last
        self._renewed_at = now
        self._renew()
        if heard["cancel"]:
            self._cancelled = True

    def _post(self, path: str, value: Any, timeout_s: float = 30.0) -> Any:
        try:
            return self._client.post(path, value, timeout_s=timeout_s)
        except HubRefusalError as error:
            if error.status in {404, 409}:
                raise LeaseGoneError(error.message) from None
            if error.status in SHUT_OUT:
                raise ShutOutError(error.message, remedy=error.remedy) from None
            raise HubAwayError(error.message, remedy=error.remedy) from None

    def _renew(self) -> None:
        """Until when the runner may run, by the clock that all processes of a machine share."""
        if self.held.round and self._folder().is_dir():
            until = self._renewed_at + _OURS * self.held.lease_s
            device_side.write_whole(self._folder() / LEASE, str(until).encode())

    # Steps

    def _bring_files(self) -> None:
        folder = ArtifactFolder(root=self._root)
        missing = [file for file in self.job.files if folder.missing([file.sha256])]
        if not missing:
            return
        need = sum(file.size_bytes - folder.arrived(file.sha256) for file in missing)
        self._root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._root).free
        if need + _RESERVE > free:
            raise OSError(errno.ENOSPC, f"{need:,} bytes are needed, {_RESERVE:,} stay free, and there are {free:,}")
        count = "1 file" if len(missing) == 1 else f"{len(missing)} files"
        self._told.note(f"{self._device} fetches {count}, {need:,} bytes.")
        for file in missing:
            self._bring_file(folder, file)

    def _bring_file(self, folder: ArtifactFolder, file: JobFile) -> None:
        """Three times at most, if it arrives damaged each time; each time the hub looks at its own copy."""
        wait, arrived = 0.5, 0
        while True:
            try:
                fetch(self._client, folder, file, self._device, lambda _at: self._go_on())
            except HubAwayError:
                self._wait(wait)
                wait = min(wait * 2, 15.0)
            except HubRefusalError as error:
                if error.status in SHUT_OUT:
                    raise ShutOutError(error.message, remedy=error.remedy) from None
                self._complain(file)
                raise LeaseGoneError(error.message) from None
            except FormatError:  # damaged, and thrown away
                arrived += 1
                self._complain(file)
                self._told.note(f"{file.path} arrived damaged, {arrived} of {_FETCHED} times.")
                if arrived == _FETCHED:
                    raise _UnusableFileError(f"{file.path} arrived damaged {_FETCHED} times.") from None
            else:
                return

    def _complain(self, file: JobFile) -> None:
        """The hub looks at its copy of a file: if that is damaged or gone, the job has ended there."""
        said = {"device": self._device, "lease": self.held.lease, "sha256": file.sha256}
        with suppress(HubAwayError):
            if self._post(f"{API}/agent/jobs/{self.held.id}/damaged", said, timeout_s=300.0)["damaged"]:
                raise LeaseGoneError(f"The hub has no good copy of {file.path}.")
        self._go_on()

    def _go_on(self) -> None:
        """A sign of life. A job that was cancelled meanwhile ends here, if it has no runner that would have to stop."""
        self._keep()
        if self._cancelled and not self._begun():
            raise CancelledError("It was cancelled.")

    def _wait(self, seconds: float) -> None:
        """In small steps: a sign of life may be due, the agent is to stop, or the job was cancelled."""
        ends = self._seams.clock() + seconds
        while self._seams.clock() < ends:
            self._go_on()
            self._seams.sleep(min(_LOOK_S, seconds))

    def _measured(self) -> JobResult:
        """The result of a round: begun, or picked up if its runner was begun before."""
        if not self._begun():
            self._begin()
        folder = FolderHere(folder=self._folder())
        tail = EventTail(self._folder() / "events.jsonl", self._told.heard(self.held.round))
        gone, deadline = 0, self._seams.clock() + self._longest_s()
        while True:
            events = tail.read()
            for event in events:
                self._told.add(self.held.round, event)
            if self._has_result():
                break
            self._keep()
            if self._cancelled:
                device_side.ask_to_stop(str(self._folder()))
                deadline = min(deadline, self._seams.clock() + _STOP_S)
            if self._seams.clock() > deadline:
                return self._killed()
            gone = 0 if events or folder.alive() else gone + 1
            if gone > 2:
                break
            self._seams.sleep(_LOOK_S)
        result = without_places(result_in(folder, self.job), self._folder())
        if self.held.after_s is None and self.held.before_s is not None and result.complete:
            self._save(after_s=self._reference())
        return result

    def _longest_s(self) -> float:
        """That a runner may take. It keeps the job's own limit itself; one that does not any more is killed."""
        limit = self.job.seconds_at_most
        return float("inf") if limit is None else 2 * limit + _STOP_S

    def _killed(self) -> JobResult:
        self._kill_runner()
        if self._cancelled:
            return JobResult(job=self.job, ended="stopped", error="It was cancelled, did not stop, and was killed.")
        return JobResult(
            job=self.job, ended="hung", error_kind="EngineError", remedy="Allow it more time, or measure less.",
            error=f"It was not done after {self.job.seconds_at_most:g} s, did not stop, and was killed.",
        )  # fmt: skip

    def _begun(self) -> bool:
        return self.held.round > 0 and (self._folder() / JOB).is_file()

    def _has_result(self) -> bool:
        return self.held.round > 0 and (self._folder() / RESULT).is_file()

    def _begin(self) -> None:
        guard = self._seams.guard
        self._go_on()
        if guard is not None:
            waited = cool_down(guard(), self._told.note, sleep=self._wait)
            self._save(waited_s=self.held.waited_s + waited)
        before = self._reference()
        self._save(round=self.held.round + 1, before_s=before, after_s=None)
        folder = self._folder()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        plain = document(self.job)
        device_side.lay_out(self._root, device_side.files_of(plain), folder / "files")
        self._renew()
        device_side.write_whole(folder / JOB, json.dumps(plain).encode())
        # The token is the agent's, and not for whatever a model's file may bring a library to do.
        settings = {**self._seams.settings, "INFEROMETER_TOKEN": ""}
        box = msgspec.to_builtins(self._seams.box)
        device_side.run_detached(folder, [str(Path(__file__).parents[3])], settings, box)

    def _reference(self) -> float | None:
        if self._seams.reference is None:
            return None
        with alone(self._root / "measuring.lock", self._told.note, sleep=self._wait):
            return self._seams.reference()

    def _again(self, result: JobResult) -> bool:
        """Whether to measure once more, because the device changed meanwhile."""
        before, after = self.held.before_s, self.held.after_s
        if before is None or after is None or not moved(before, after) or self.held.repeated or not result.complete:
            return False
        if self._cancelled:
            return False  # whoever cancelled it gets what there is
        change = after / before - 1
        self._told.note(f"The reference moved by {change:+.1%} meanwhile: it is measured once more.")
        shutil.rmtree(self._folder(), ignore_errors=True)
        self._save(repeated=True, before_s=None, after_s=None)
        return True

    def _send_made(self, result: JobResult) -> JobResult:
        """The files that it made, before the result that names them. A hub that has no room for them gets only it."""
        for file in result.made:
            to = f"{API}/agent/jobs/{self.held.id}/files"
            asked = {"device": self._device, "lease": self.held.lease}
            wait = 0.5
            while True:
                try:
                    upload(
                        self._client, self._folder() / MADE / file.path, file, 0, lambda _at: self._keep(), to, asked
                    )
                except HubAwayError:
                    self._wait(wait)
                    wait = min(wait * 2, 15.0)
                except HubRefusalError as error:
                    if error.status != 413:
                        raise LeaseGoneError(error.message) from None
                    self._told.note(f"{file.path} stays here: {error.message}")
                    return replace(result, made=(), log=f"{result.log}{file.path} was not kept: {error.message}\n")
                else:
                    break
        return result

    def _bring_back(self, result: JobResult) -> None:
        result = self._send_made(result)
        brought: dict[str, Any] = {
            "device": self._device, "lease": self.held.lease, "result": document(result),
        }  # fmt: skip
        before, after = self.held.before_s, self.held.after_s
        if before is not None and after is not None:
            brought["reference"] = {
                "before_s": before, "after_s": after, "moved": moved(before, after), "waited_s": self.held.waited_s,
            }  # fmt: skip
        # as often as it takes: the result is on the disk, and the hub stores it once
        path = f"{API}/agent/jobs/{self.held.id}/result"
        self._told_at = self._not_before = float("-inf")
        with suppress(HubAwayError, LeaseGoneError):  # the answer to what follows decides
            self._keep()
        self._post_until_heard(path, brought)

    def _post_until_heard(self, path: str, value: Any) -> None:
        wait = 0.5
        while True:
            try:
                self._post(path, value, timeout_s=300.0)
            except HubAwayError:
                if self.stopping:
                    raise StoppingError("The agent was stopped.") from None
                self._seams.sleep(wait)
                wait = min(wait * 2, 30.0)
            else:
                return

    # Not here

    def _stop_runner(self, *, at_once: bool = False) -> None:
        """Ask it to stop and wait for that; `at_once`: not for what it has measured."""
        folder = self._folder()
        if not (self.held.round and folder.is_dir()):
            return
        if not at_once:
            try:
                device_side.ask_to_stop(str(folder))
            except OSError:  # a full disk has no room for the question
                device_side.interrupt_runner(str(folder))
            for _ in range(100):
                if not device_side.is_alive(str(folder)):
                    return
                self._seams.sleep(_LOOK_S)
        self._kill_runner()

    def _kill_runner(self) -> None:
        """With all that it started: it did not stop, or must not go on."""
        with suppress(OSError, ValueError):
            if device_side.is_alive(str(self._folder())):
                kill_tree(int((self._folder() / "runner.pid").read_bytes()))

    def _give_back(self, reason: str, *, fault: bool) -> str:
        """The job is for another device. Written down before anything else: whoever starts again finishes it.

        A disk that is full has no room for that; then an agent that is killed on this way goes on with the job.
        """
        with suppress(OSError):
            self._save(giving_back=reason, fault=fault)
        self._stop_runner()
        said = {"device": self._device, "lease": self.held.lease, "reason": reason, "fault": fault}
        path = f"{API}/agent/jobs/{self.held.id}/return"
        with suppress(LeaseGoneError):
            if not self.stopping:
                self._post_until_heard(path, said)
            else:
                try:
                    self._post(path, said)
                except HubAwayError:
                    return "to be given back when the agent is started again"
        self._clear()
        return f"given back: {reason}" if fault else "given back"

    def give_back(self) -> str:
        """The agent is switched off: the job is for another."""
        return self._give_back(self.held.giving_back or "It is switched off.", fault=self.held.fault)


class _UnusableFileError(InferometerError):
    """A file of the job did not arrive as it should, however often it was fetched."""


def _disk_words(error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"Its disk is full: {error.strerror}."
    return f"Its disk cannot be used: {error.strerror or error}."
