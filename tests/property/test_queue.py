"""The queue as a state machine: whatever devices, users and clocks do, no job is lost, doubled or run twice at once.

Devices behave as agents do: they stop a job whose lease they could not keep (their own clock may go wrong, but not the
time that passes), and they bring a result again until they hear that it is there. Answers are lost at random.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import func, select

from fakes.fleet import a_job, a_result
from inferometer.core.errors import DomainError
from inferometer.core.job import FINAL
from inferometer.store import open_store
from inferometer.store.errors import LeaseLostError
from inferometer.store.queue.devices import Registrar
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import HELD, LeaseCheck, LeaseTiming, NewDevice, NewJob, Wanted
from inferometer.store.tables import fleet_results, metadata, runs
from unit.store import postgres
from unit.store.profiles import profile

TIMING = LeaseTiming(lease_s=60.0, attempts=3, backoff_s=5.0, failures=3)
NAMES = ("a", "b", "c")
PLACES = {}


class Clock:
    now = 1_760_000_000.0

    def __call__(self):
        return self.now


class Run:
    """A job that runs on a device, in the real world: until it is done, or its agent stops it."""

    def __init__(self, lease, until):
        self.lease, self.until, self.brought = lease, until, False


class Queue(RuleBasedStateMachine):
    kind = "sqlite"

    @initialize()
    def begin(self):
        self.clock, self.runs, self.jobs, self.unheard = Clock(), {}, {}, []
        self.asked_to_stop, self.ended = set(), {}
        place = PLACES[self.kind]
        self.folder = Path(tempfile.mkdtemp(prefix="ifm-queue-"))
        if self.kind == "sqlite":
            place = shutil.copy(place, self.folder / "runs.db")
        self.store = open_store(place, clock=self.clock)
        if self.kind != "sqlite":
            self.store.database.write(lambda connection: postgres.emptied(connection, metadata.sorted_tables))
        self.fleet = Fleet.of(self.store, TIMING)
        self.store.create_user("ada")
        self.tokens = {}
        for name in NAMES:
            self.admit(name)

    def teardown(self):
        if hasattr(self, "store"):
            self.left_alone_every_job_ends()
            self.store.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def left_alone_every_job_ends(self):
        self.runs = {}
        for _ in range(2 * len(self.jobs) + 1):
            if not self.fleet.jobs(states=("queued", *HELD)):
                break
            self.wait(TIMING.backoff_most_s + TIMING.lease_s)
            for name in NAMES:
                self.admit(name)
                self.look_after(name)
                self.probe(name, heard=True)
                self.poll(name, heard=True)
                self.bring(name, "done", moved=False, doubted=False, heard=True)
        assert {self.fleet.job(job).state for job in self.jobs} <= FINAL

    # Users

    @rule(seed=st.integers(0, 8), unit=st.sampled_from([None, "cpu", "gpu", "npu"]), priority=st.integers(0, 2))
    def submit(self, seed, unit, priority):
        wanted = Wanted(labels={"unit": unit} if unit else {})
        project = f"p{seed % 3}"
        new = NewJob(job=a_job(seed, runtime=None), wanted=wanted, priority=priority, project=project)
        if unit == "npu":
            with pytest.raises(DomainError):
                self.fleet.submit(new)
            return
        row, fresh = self.fleet.submit(new)
        assert fresh == (row.id not in self.jobs)
        self.jobs[row.id] = unit

    @rule(data=st.data())
    def cancel(self, data):
        if self.jobs:
            job = data.draw(st.sampled_from(sorted(self.jobs)))
            self.asked_to_stop.add(job)
            self.fleet.cancel(job)

    @rule(data=st.data())
    def lose_a_file(self, data):
        """The hub's copy of a model is damaged, and a device that has a job with it says so."""
        if self.runs:
            run = self.runs[data.draw(st.sampled_from(sorted(self.runs)))]
            self.fleet.lack_file(run.lease.job.files[0].sha256, run.lease.row.id)

    @rule(name=st.sampled_from(NAMES))
    def admit(self, name):
        """A new token for a device's agent. The device b is one that can be probed."""
        if name not in self.tokens:
            token = self.tokens[name] = self.store.create_token("ada", scopes=["agent"]).token.id
            labels = {"unit": ("gpu" if name == "c" else "cpu",)}
            device = NewDevice(name=name, labels=labels, token=token, probes=name == "b")
            self.fleet.register(device, Registrar(user="ada"))

    @rule(name=st.sampled_from(NAMES))
    def revoke(self, name):
        """Its agent hears of it at once, and stops what it runs."""
        if name in self.tokens:
            self.store.revoke_token(self.tokens.pop(name))
            self.runs.pop(name, None)
            self.fleet.look_after()

    @rule(name=st.sampled_from(NAMES), state=st.sampled_from(["ready", "maintenance", "quarantined"]))
    def change(self, name, state):
        self.fleet.set_state(name, state)

    @rule(name=st.sampled_from(NAMES))
    def look_after(self, name):
        self.fleet.set_state(name, "ready")

    # Devices

    @rule(name=st.sampled_from(NAMES), heard=st.booleans())
    def poll(self, name, heard):
        """An agent polls when nothing runs; the answer may be lost on its way."""
        if name in self.runs or name not in self.tokens:
            return
        lease = self.fleet.lease(name)
        if lease is not None and heard:
            unit = self.jobs[lease.row.id]
            assert unit is None or (unit == "gpu") == (name == "c")
            self.runs[name] = Run(lease, self.clock.now + lease.lease_s)

    @rule(name=st.sampled_from(NAMES), heard=st.booleans())
    def keep(self, name, heard):
        run = self.runs.get(name)
        if run is None:
            return
        asked = self.clock.now
        try:
            row = self.fleet.keep(run.lease.row.id, run.lease.id, device=name)
        except LeaseLostError:
            self.runs.pop(name)
            return
        if heard:
            run.until = asked + TIMING.lease_s
            if row.cancelling:
                self.bring(name, "stopped", moved=False, doubted=False, heard=True)

    @rule(
        name=st.sampled_from(NAMES),
        ended=st.sampled_from(["done", "failed", "lost", "stopped"]),
        moved=st.booleans(),
        doubted=st.booleans(),
        heard=st.booleans(),
    )
    def bring(self, name, ended, moved, doubted, heard):
        """`stopped` may also be what nobody asked for; `doubted` is an answer that cannot be one."""
        run = self.runs.get(name)
        if run is None:
            return
        result = a_result(run.lease.job, profile(), ended=ended)
        check = LeaseCheck(before_s=1.0, after_s=2.0, moved=True) if moved else None
        doubt = "It cannot be." if doubted else None
        try:
            self.fleet.finish(run.lease.row.id, run.lease.id, result, check, device=name, doubt=doubt)
        except LeaseLostError:
            self.runs.pop(name)
            return
        run.brought = True
        self.unheard.append((run.lease, result))
        if heard:
            self.runs.pop(name)

    @rule(data=st.data())
    def bring_again(self, data):
        """What was delivered is delivered once more, much later."""
        if not self.unheard:
            return
        lease, result = data.draw(st.sampled_from(self.unheard))
        before = self.fleet.result(lease.row.id)
        with suppress(LeaseLostError):
            self.fleet.finish(lease.row.id, lease.id, result)
        if before is not None:
            assert self.fleet.result(lease.row.id) == before

    @rule(name=st.sampled_from(NAMES), counts=st.booleans())
    def give_back(self, name, counts):
        run = self.runs.pop(name, None)
        if run is not None:
            with suppress(LeaseLostError):
                self.fleet.give_back(run.lease.row.id, run.lease.id, "It is off.", counts=counts)

    @rule(name=st.sampled_from(NAMES), heard=st.booleans())
    def probe(self, name, heard):
        if name not in self.runs and self.fleet.device(name).probing and heard:
            self.fleet.probed(name, 1.0)

    @rule(name=st.sampled_from(NAMES))
    def die(self, name):
        """Power off: what ran is gone, and the hub hears nothing of it."""
        self.runs.pop(name, None)

    @rule(seconds=st.sampled_from([1.0, 6.0, 31.0, 61.0]))
    def wait(self, seconds):
        self.clock.now += seconds
        self.runs = {name: run for name, run in self.runs.items() if run.until >= self.clock.now}
        self.fleet.look_after()

    # What always holds

    @invariant()
    def nothing_is_lost_or_doubled(self):
        if not hasattr(self, "fleet"):
            return
        rows = {row.id: row for row in self.fleet.jobs(limit=1000)}
        assert rows.keys() == self.jobs.keys()
        held = [row.device for row in rows.values() if row.state in HELD]
        assert len(held) == len(set(held))
        with self.store.database.reading() as connection:
            results = set(connection.execute(select(fleet_results.c.job_id)).scalars())
            stored = connection.execute(select(func.count()).select_from(runs)).scalar_one()
        assert results == {row.id for row in rows.values() if row.state in FINAL}
        assert stored == sum(row.run is not None for row in rows.values())

    @invariant()
    def what_has_ended_stays_so_and_only_what_somebody_cancelled_is_cancelled(self):
        for job in getattr(self, "jobs", {}):
            row = self.fleet.job(job)
            assert row.attempts <= TIMING.attempts
            assert self.ended.get(job, row.state) == row.state
            assert row.state != "cancelled" or job in self.asked_to_stop
            if row.final:
                self.ended[job] = row.state

    @invariant()
    def no_job_runs_twice_at_once(self):
        running = [run.lease.row.id for run in getattr(self, "runs", {}).values() if not run.brought]
        assert len(running) == len(set(running))

    @invariant()
    def events_are_numbered_without_a_gap(self):
        for job in getattr(self, "jobs", {}):
            events = self.fleet.events(job)
            assert [event.number for event in events] == list(range(1, len(events) + 1))
            assert [event.final for event in events[:-1]] == [False] * (len(events) - 1)
            assert all(Clock.now <= event.at <= self.clock.now for event in events)


class OnPostgres(Queue):
    kind = "postgresql"


def settings_of(examples):
    return settings(max_examples=examples, stateful_step_count=30, suppress_health_check=list(HealthCheck))


def test_whatever_happens_on_sqlite(tmp_path):
    PLACES["sqlite"] = tmp_path / "template.db"
    open_store(PLACES["sqlite"]).close()
    run_state_machine_as_test(Queue, settings=settings_of(8))


@pytest.mark.slow
def test_whatever_happens_on_postgresql(postgres_server):
    PLACES["postgresql"] = postgres_server.new_store()
    run_state_machine_as_test(OnPostgres, settings=settings_of(5))
