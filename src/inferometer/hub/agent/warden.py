"""`python -m inferometer.hub.agent.warden FOLDER`: the runner of a job that came from elsewhere, in a box.

It stays outside. It makes the box, starts the runner in it, passes its events on, watches what it uses up, ends all of
it, and brings its result out; what was exceeded or refused it says in the result. `box.json` in the job's folder says
what the device's owner wants; `own/` is the one folder that the job may write to, and it is gone afterwards.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.box import BoxOrder, Means
from inferometer.core.codec import decode, encode
from inferometer.core.errors import DomainError, EngineError, InferometerError, SchemaError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEnd, JobEvent, JobResult
from inferometer.core.settings import cache_folder, config_file, data_folder, machine_name, user_name
from inferometer.core.units import format_quantity
from inferometer.hub.agent.carrying_out import MADE, failed
from inferometer.hub.agent.runner import LEASE, EventLog, alone, refuse
from inferometer.hub.box import process, seccomp
from inferometer.hub.box.entering import EntryPlan
from inferometer.hub.box.found import JobCgroup, in_bubblewrap, in_scope, means_here, place_here, scope_of
from inferometer.hub.box.view import environment_in, view_of
from inferometer.hub.places.device_side import write_whole
from inferometer.measure.run.room import available_bytes

OWN, ORDER = "own", "box.json"
_ROOM_BYTES = 1_000_000  # with less, whatever the runner wanted to write did not fit
_LOOK_S, _DISK_S, _FAMILY_S = 0.05, 1.0, 0.25  # between two looks at memory, at the disk, and at who is there
_GRACE_S = 30.0  # that a runner gets to stop by itself, with what it has measured
_ENDS_S = 10.0  # that ending all of it may take
_EVENT_BYTES, _EVENTS = 1_000_000, 10_000  # a line, and how many are passed on
_RESULT_BYTES = 256_000_000
_FILES = 1_000_000  # in its folder, before it is too much to look at
_FLOOR = 0.25  # of what the ceiling leaves free: below it the machine itself is in danger, whoever holds it
# Small files that predictions need, which are copied into a box.
_KEPT = {"data": ("roofs", "calibrations"), "cache/inferometer": ("catalog", "engine-tables")}
_TOO_BIG = "Use a smaller batch, a shorter context or fewer bits a weight, or a device that has more."


@frozen
class JobLimits:
    """What a job may use up, and how each is said."""

    memory_bytes: int
    memory_said: str
    floor_bytes: int
    disk_bytes: int
    disk_said: str
    processes: int
    seconds: float


@frozen
class Verdict:
    ended: JobEnd
    error: str
    remedy: str | None = None


def limits_for(order: BoxOrder, job: Job, *, memory_free: int, disk_free: int) -> JobLimits:
    memory, disk = order.memory.of(memory_free), order.disk.of(disk_free)
    return JobLimits(
        memory_bytes=memory,
        memory_said=order.memory.said(memory, "memory that was free"),
        floor_bytes=int(_FLOOR * max(memory_free - memory, 0)),
        disk_bytes=disk,
        disk_said=order.disk.said(disk, "disk that was free"),
        processes=order.processes,
        seconds=min(order.seconds, job.seconds_at_most or order.seconds),
    )


class Warden:
    """`runner` are the words after `python` that start what runs in the box; tests put something hostile there."""

    def __init__(  # noqa: PLR0913 - what, how, and the seams
        self,
        folder: Path,
        job: Job,
        order: BoxOrder,
        means: Means,
        *,
        clock: Callable[[], float] = time.monotonic,
        runner: Sequence[str] = ("-P", "-m", "inferometer.hub.box.entering"),
    ) -> None:
        # -P: a file of the user such as glob.py must not stand in for a module of Python
        self._folder, self._job, self._order, self._means, self._clock = folder, job, order, means, clock
        self._runner = runner
        self._own = folder / OWN
        self._unit = f"inferometer-{folder.name}-{os.getpid()}"  # what its group is called
        self._log = EventLog(folder / "events.jsonl", job.id)
        self._group: JobCgroup | None = None
        self._channel: socket.socket | None = None
        self._listener: int | None = None
        self._refused: list[str] = []  # in words, each once
        self._events = _BoxEvents(self._own / "events.jsonl")
        self._asked_at: float | None = None  # when it was asked to stop
        self._looked = dict.fromkeys(("disk", "family", "memory"), float("-inf"))
        self._family: list[int] = []

    def run(self) -> JobResult:
        if self._order.wish == "strict" and not self._means.real:
            refusal = DomainError(
                f"This device takes jobs only into a box, and it has {self._means.said}.",
                remedy="Its owner may install bubblewrap, or start the agent with --box auto.",
            )
            return self._leave(failed(self._job, refusal))
        try:
            with alone(self._folder.parent.parent / "measuring.lock", self._log.notice, sleep=self._wait):
                result = self._held()
        except KeyboardInterrupt:
            reason = self._stop_reason()
            ended: JobEnd = "stopped" if reason is None else reason.ended
            result = JobResult(job=self._job, ended=ended, error="It was stopped before anything was measured.")
        except InferometerError as error:
            result = failed(self._job, error)
        except (OSError, subprocess.SubprocessError) as error:
            result = failed(self._job, EngineError(f"The box for the job cannot be made: {error}."))
        return self._leave(result)

    def _wait(self, seconds: float) -> None:
        """For another job to end, unless this one need not run any more."""
        if self._stop_reason() is not None or self._asked_at is not None:
            raise KeyboardInterrupt
        time.sleep(seconds)

    def ask(self, *_signal: object) -> None:
        """The device shuts down, or the agent has no room for a file that says so."""
        if self._asked_at is None:
            self._asked_at = self._clock()
            for pid in process.descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/exe").resolve() == Path(sys.executable).resolve():
                        os.kill(pid, signal.SIGTERM)

    def _held(self) -> JobResult:
        """From the empty box to the result that came out of it; nothing of it runs afterwards."""
        limits = limits_for(
            self._order,
            self._job,
            memory_free=available_bytes() or sys.maxsize,
            disk_free=shutil.disk_usage(self._folder).free,
        )
        self._furnish()
        started = self._clock()
        child = self._start(limits)
        verdict = None
        try:
            while verdict is None and child.poll() is None:
                self._hear(_LOOK_S)
                if self._means.memory == "systemd" and self._group is None:
                    self._group = scope_of(child.pid, self._unit)
                verdict = self._broken(limits, self._clock() - started)
        finally:
            self._end(child)
        self._hear(0.0)
        return self._result(child.returncode, verdict, limits)

    # Making it

    def _furnish(self) -> None:
        _remove(self._own)
        for name in ("home", "tmp", "config", "share", "cache/inferometer", "data"):
            (self._own / name).mkdir(parents=True, mode=0o700)
        sources = {"data": data_folder(), "cache/inferometer": cache_folder()}
        for place, names in _KEPT.items():
            for name in names:
                if (sources[place] / name).is_dir():
                    shutil.copytree(sources[place] / name, self._own / place / name)

    def _start(self, limits: JobLimits) -> subprocess.Popen[bytes]:
        """The runner, in as many layers as there are: a group, a file system, and what it gives up by itself."""
        means, inner = self._means, os.environ  # noqa: TID251 - what is passed on is chosen in hub/box/view.py
        hide = (*self._order.hide, config_file(), data_folder(), self._folder.parent)
        view = view_of(self._folder, self._own, hide=map(str, hide))
        ours: socket.socket | None = None
        if means.seccomp and means.real:
            self._channel, ours = socket.socketpair()
        in_file_system = means.real and means.bubblewrap is not None
        place = place_here() if means.memory == "cgroup" else None
        plan = EntryPlan(
            run=("inferometer.hub.agent.runner", str(self._folder), str(self._own)),
            file_bytes=limits.disk_bytes,
            # The kernel's limit only keeps a flood from coming faster than it is looked for, and counted in words.
            processes=None if means.memory != "watch" else _processes_of_user() + 2 * limits.processes,
            view=view if means.real and not in_file_system else None,
            filtered=means.seccomp and means.real,
            connecting=in_file_system,
            channel=None if ours is None else ours.fileno(),
        )
        command = [sys.executable, *self._runner, msgspec.json.encode(plan).decode()]
        if in_file_system:
            command = in_bubblewrap(str(means.bubblewrap), view, command, inside=self._own)
        if place is not None:
            self._group = place.make(self._unit, memory_bytes=limits.memory_bytes, processes=limits.processes)
        names = {"INFEROMETER_MACHINE": machine_name(), "INFEROMETER_USER": user_name()}
        environment = {
            **environment_in(inner, self._own, shared_memory=in_file_system),
            **{name: text for name, text in names.items() if text},
        }
        if means.memory == "systemd":  # which is asked in the user's environment, and not in the job's
            words = [f"{name}={text}" for name, text in environment.items()]
            most = {"memory_bytes": limits.memory_bytes, "processes": limits.processes}
            command = in_scope(["env", "-i", *words, *command], unit=self._unit, **most)
            environment = dict(inner)
        try:
            return subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.DEVNULL,
                cwd=self._own,
                env=environment,
                pass_fds=() if ours is None else (ours.fileno(),),
                start_new_session=True,
                preexec_fn=None if self._group is None else self._group.join,  # noqa: PLW1509 - there is one thread here
            )
        finally:
            if ours is not None:
                ours.close()

    # While it runs

    def _hear(self, seconds: float) -> None:
        """Pass events on and answer refused calls, for so long."""
        until = self._clock() + seconds
        while True:
            for event in self._events.read():
                if event.kind == "state" and event.state != "running":
                    continue  # how it ended is said when the result is there
                self._log.tell(
                    **{name: getattr(event, name) for name in ("kind", "state", "stage", "done", "share", "text")}
                )
            left = max(until - self._clock(), 0.0)
            waits: list[Any] = [found for found in (self._listener, self._channel) if found is not None]
            for ready in _readable(waits, left):
                self._answer(ready)
            if not waits and left:
                time.sleep(left)
            if self._clock() >= until:
                return

    def _answer(self, ready: Any) -> None:
        if ready == self._listener:
            refused = seccomp.answer_refused(ready)
            if refused is None:
                os.close(ready)
                self._listener = None
            elif refused.words not in self._refused:
                self._refused.append(refused.words)
                self._log.notice(f"It tried to {refused.words}, which the box refuses.")
        elif self._channel is not None:
            with self._channel:
                _words, found, *_ = socket.recv_fds(self._channel, 16, 1)
            self._channel, self._listener = None, found[0] if found else None

    def _broken(self, limits: JobLimits, spent_s: float) -> Verdict | None:
        """What it has used up, or why it should not run any more and has not stopped by itself."""
        if spent_s > limits.seconds + _GRACE_S:
            error = f"It was not done after {limits.seconds:g} s, and was stopped."
            return Verdict(ended="hung", error=error, remedy="Allow it more time, or measure less.")
        reason = self._stop_reason()
        if reason is not None and self._asked_at is None:
            self._asked_at = self._clock()
        if self._asked_at is not None and self._clock() - self._asked_at > _GRACE_S:
            return reason or Verdict(ended="stopped", error="It was asked to stop, and had to be ended.")
        return self._over_memory(limits) or self._over_processes(limits) or self._over_disk(limits)

    def _stop_reason(self) -> Verdict | None:
        if (self._folder / "cancel").exists():
            return Verdict(ended="stopped", error="It was asked to stop, and had to be ended.")
        try:
            expired = time.monotonic() > float((self._folder / LEASE).read_bytes())
        except (OSError, ValueError):
            return None  # a job without a lease
        return Verdict(ended="lost", error="Its lease ran out: the hub could not be reached.") if expired else None

    def _due(self, name: str, every_s: float) -> bool:
        now = self._clock()
        if now - self._looked[name] < every_s:
            return False
        self._looked[name] = now
        return True

    def _over_memory(self, limits: JobLimits) -> Verdict | None:
        too_big = Verdict(ended="too-big", error=f"It asked for more than {limits.memory_said}.", remedy=_TOO_BIG)
        if self._means.memory == "watch":
            if self._due("family", _FAMILY_S):
                self._family = process.descendants(os.getpid())
            if sum(map(process.held_bytes, self._family)) > limits.memory_bytes:
                return too_big
        # Memory can also be held by files that no process has mapped. It is told by what the machine has left.
        if self._means.memory != "cgroup" and self._due("memory", _FAMILY_S):
            left = available_bytes()
            if left is not None and left < limits.floor_bytes:
                error = f"The memory of the device ran out while it ran: {format_quantity(left, 'B')} were left."
                return Verdict(ended="too-big", error=error, remedy=_TOO_BIG)
        return None

    def _over_processes(self, limits: JobLimits) -> Verdict | None:
        many = self._means.memory == "watch" and len(self._family) > limits.processes
        if not many and not (self._group is not None and self._group.ran_out_of_processes()):
            return None
        return Verdict(ended="failed", error=f"It started more than {limits.processes:,} processes and threads.")

    def _over_disk(self, limits: JobLimits) -> Verdict | None:
        if not self._due("disk", _DISK_S):
            return None
        if _written(self._own, limits.disk_bytes) + _size(self._folder / "runner.log") <= limits.disk_bytes:
            return None
        return self._disk_verdict(limits)

    def _disk_verdict(self, limits: JobLimits) -> Verdict:
        return Verdict(ended="too-big", error=f"It wrote more than {limits.disk_said}.", remedy="Keep less of it.")

    # Its end

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        until = self._clock() + _ENDS_S
        if child.poll() is None and self._means.bubblewrap is not None:
            child.kill()  # the first process of its namespace ends with it, and with that one all others
        while (left := process.descendants(os.getpid())) and self._clock() < until:
            process.kill_all(left)
            time.sleep(0.01)
            child.poll()
            _reap(child.pid)
        child.wait()
        _reap(child.pid)

    def _result(self, code: int, verdict: Verdict | None, limits: JobLimits) -> JobResult:
        result = self._brought()
        if verdict is None and (result is None or not result.complete):
            verdict = self._verdict_of_kernel(result, code, limits)
        if self._group is not None:
            self._group.end()
        if verdict is not None:
            base = result or JobResult(job=self._job, ended=verdict.ended)
            kind = "EngineError" if verdict.ended not in {"stopped", "lost"} else None
            result = replace(
                base,
                ended=verdict.ended,
                error=verdict.error,
                remedy=verdict.remedy,
                error_kind=kind,
                log=base.log or self._tail(),
            )
        elif result is None:
            result = JobResult(
                job=self._job, ended="crashed", error=f"The process that ran the job {_how(code)} and left no result.",
                remedy="Its log may say why.", error_kind="EngineError", log=self._tail(),
            )  # fmt: skip
        if result.ended not in {"done", "stopped"} and self._refused:
            tried = " and to ".join(self._refused)
            result = replace(result, error=f"{result.error or ''} It tried to {tried}, which the box refuses.".strip())
        # every profile says what held it
        profiles = tuple(
            profile
            if profile.environment is None
            else replace(
                profile,
                environment=replace(profile.environment, host={**profile.environment.host, "box": self._means.said}),
            )
            for profile in result.profiles
        )
        return replace(result, profiles=profiles)

    def _verdict_of_kernel(self, result: JobResult | None, code: int, limits: JobLimits) -> Verdict | None:
        """What the kernel stopped it for, where it did so by itself."""
        if self._group is not None and self._group.ran_out_of_memory():
            return Verdict(ended="too-big", error=f"It asked for more than {limits.memory_said}.", remedy=_TOO_BIG)
        if self._group is not None and self._group.ran_out_of_processes():
            return Verdict(ended="failed", error=f"It started more than {limits.processes:,} processes and threads.")
        words = f"{result.error or ''} {result.log}" if result is not None else self._tail()
        if code == -getattr(signal, "SIGXFSZ", 0) or "File too large" in words:
            return self._disk_verdict(limits)
        if result is None and shutil.disk_usage(self._folder).free < _ROOM_BYTES:
            return Verdict(ended="lost", error="The disk of the device became full while it ran.")
        return None

    def _brought(self) -> JobResult | None:
        """The result that the runner left. It comes from a box: a link is not followed, and it is read as data."""
        data = _read_plain(self._own / "result.json", _RESULT_BYTES)
        if not data:
            return None
        try:
            result = decode(data, JobResult)
        except SchemaError:
            return None
        if result.calibration is not None and self._job.verb == "calibrate":  # it had no model of anybody's
            kept = self._own / "data" / "calibrations"
            shutil.copytree(kept, data_folder() / "calibrations", dirs_exist_ok=True, symlinks=True)
        return replace(result, job=self._job)

    def _tail(self) -> str:
        with contextlib.suppress(OSError), (self._folder / "runner.log").open("rb") as file:
            file.seek(-min(_size(self._folder / "runner.log"), 64_000), os.SEEK_END)
            return file.read().decode("utf-8", "replace")
        return ""

    def _leave(self, result: JobResult) -> JobResult:
        """What it made goes beside its result: plain files that lie where it says, whoever the box belongs to now."""
        made = self._own.resolve() / MADE
        for file in result.made:
            inside, place = self._own / MADE / file.path, self._folder / MADE / file.path
            if inside.resolve() != made / file.path or not inside.is_file():
                result = replace(result, made=(), log=f"{result.log}The box left no file {file.path}.\n")
                break
            place.parent.mkdir(parents=True, exist_ok=True)
            inside.replace(place)
        _remove(self._own)
        write_whole(self._folder / "result.json", encode(result))
        self._log.tell(kind="state", state=result.state, text=result.error)
        return result


class _BoxEvents:
    """The events of a box, which may write anything into them: lines up to a length, and up to a number of them."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._left = path, 0, _EVENTS

    def read(self) -> list[JobEvent]:
        if self._left <= 0:
            return []
        data = _read_plain(self._path, _EVENT_BYTES, self._offset)
        end = data.rfind(b"\n") + 1
        self._offset += end if end or len(data) < _EVENT_BYTES else len(data)
        events = []
        for line in data[:end].split(b"\n")[:-1]:
            with contextlib.suppress(SchemaError):
                events.append(decode(line, JobEvent))
        self._left -= len(events)
        return events


def _read_plain(path: Path, most: int, offset: int = 0) -> bytes:
    """Of a plain file, without following a link or waiting for whoever writes to a pipe."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return b""
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return b""
        file.seek(offset)
        return file.read(most)


def _readable(waits: list[Any], seconds: float) -> list[Any]:
    if not waits:
        return []
    return select.select(waits, [], [], seconds)[0]


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _written(folder: Path, most: int) -> int:
    """Bytes that a folder takes of the disk; more than `most` is enough to know."""
    total = files = 0
    for at, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(at, name))  # noqa: PTH118 - a million times
                total += getattr(status, "st_blocks", 0) * 512 or status.st_size
            files += 1
        if total > most or files > _FILES:
            return max(total, most + 1)
    return total


def _processes_of_user() -> int:
    """Processes and threads that the user has now: the kernel's limit counts them all."""
    if sys.platform != "linux":
        return 0
    count, me = 0, os.getuid()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                count += len(os.listdir(f"/proc/{entry.name}/task")) if entry.stat().st_uid == me else 0  # noqa: PTH208 - names
    return count


def _reap(but: int) -> None:
    """Orphans that became ours and have ended; the child itself is waited for by its own name."""
    for pid in process.descendants(os.getpid()):
        if pid != but:
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)


def _remove(folder: Path) -> None:
    """Also folders that the job has closed to us."""
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        _open_again(folder)
        for at, folders, _names in os.walk(folder):  # looks into a folder after it was opened here
            for name in folders:
                _open_again(Path(at, name))


def _open_again(folder: Path) -> None:
    """Never what a link leads to: it may be the owner's."""
    with contextlib.suppress(OSError):
        if not folder.is_symlink():
            folder.chmod(0o700)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    number = -code
    return f"was ended by {signal.Signals(number).name if number in set(signal.Signals) else number}"


def main() -> None:
    folder = Path(sys.argv[1])
    try:
        job = decode((folder / "job.json").read_bytes(), Job)
        order = msgspec.json.decode((folder / ORDER).read_bytes(), type=BoxOrder)
    except InferometerError as error:
        refuse(folder, error, folder)
        return
    process.adopt_orphans()
    warden = Warden(folder, job, order, means_here())
    signal.signal(signal.SIGTERM, warden.ask)
    signal.signal(signal.SIGINT, warden.ask)
    warden.run()


if __name__ == "__main__":
    main()
