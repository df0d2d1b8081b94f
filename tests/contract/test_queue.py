"""The queue keeps its promises on SQLite and on a real PostgreSQL: the same suite over both."""

import re
import shutil
import threading
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from fakes.fleet import DEVICES, a_job, a_result, submitted
from inferometer.core.job import JobEvent
from inferometer.errors import DomainError, UnknownNameError
from inferometer.store import open_store
from inferometer.store.errors import LeaseLostError
from inferometer.store.queue.devices import Registrar
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import Check, NewDevice, NewJob, Timing, Wanted
from inferometer.store.tables import fleet_jobs, fleet_results, metadata, runs
from unit.store import postgres
from unit.store.profiles import profile

TIMING = Timing(lease_s=60.0, attempts=3, backoff_s=5.0, failures=3)


class Clock:
    """A millisecond later at every look, and else when it is told to go on."""

    def __init__(self):
        self.now = 1_760_000_000.0

    def __call__(self):
        self.now += 0.001
        return self.now


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def place(request, tmp_path_factory):
    """A template, so that a store is a copy of a file; or one database, emptied."""
    folder = tmp_path_factory.mktemp("queues")
    if request.param == "sqlite":
        open_store(folder / "template.db").close()
        yield folder / "template.db"
        return
    with postgres.server() as server:
        url = server.url(server.database())
        open_store(url).close()
        yield url


@pytest.fixture
def store(place, tmp_path):
    if isinstance(place, Path):
        shutil.copy(place, tmp_path / "runs.db")
        place = tmp_path / "runs.db"
    with open_store(place, artifacts=tmp_path / "artifacts", clock=Clock()) as opened:
        if opened.database.postgres:
            every = ", ".join(metadata.tables)
            opened.database.write(lambda connection: connection.execute(text(f"TRUNCATE {every}")))
        yield opened


@pytest.fixture
def fleet(store):
    made = Fleet.of(store, TIMING)
    for device in DEVICES:
        made.register(device)
    return made


@pytest.fixture
def clock(store):
    return store._clock


def rows_in(fleet, table):
    with fleet.database.reading() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def test_a_job_goes_from_the_queue_over_a_device_to_a_run(fleet, store):
    row, new = fleet.submit(NewJob(job=a_job(), project="phones", user="ada", name="first", tags=("nightly",)))
    assert (new, row.state, row.attempts, row.device) == (True, "queued", 0, None)
    lease = fleet.lease("pi")
    assert (lease.row.id, lease.row.state, lease.row.attempts, lease.job) == (row.id, "preparing", 1, a_job())
    assert fleet.device("pi").job == row.id
    fleet.tell(row.id, lease.id, [(1, JobEvent(job=row.key, number=1, at=0.0, kind="state", state="running"))])
    assert fleet.job(row.id).state == "running"
    assert fleet.result(row.id) is None
    assert fleet.finish(row.id, lease.id, a_result(a_job(), profile()))
    ended = fleet.job(row.id)
    assert (ended.state, ended.reason, fleet.device("pi").job) == ("done", None, None)
    assert fleet.result(row.id) == a_result(a_job(), profile())
    run, listed = store.get(ended.run), store.row(ended.run)
    assert (run.profile, run.project, run.name, run.tags) == (profile(), "phones", "first", ("nightly",))
    assert (run.parameters["device"], run.parameters["submitted by"], listed.kind) == ("pi", "ada", "profile")
    assert [event.state for event in fleet.events(row.id)] == ["queued", "preparing", "running", "done"]
    assert [event.number for event in fleet.events(row.id, after=2)] == [3, 4]


def test_what_is_sent_twice_is_there_once(fleet):
    first, again = submitted(fleet), fleet.submit(NewJob(job=a_job()))
    assert (again[0].id, again[1]) == (first, False)
    assert fleet.submit(NewJob(job=a_job(), user="bob"))[1]
    lease = fleet.lease("pi", project="default")
    assert fleet.lease("pi").id == lease.id  # the answer may have been lost
    running = (1, JobEvent(job="x", number=1, at=0.0, kind="state", state="running"))
    assert [fleet.tell(first, lease.id, [running]) for _ in range(2)] == [(1, False)] * 2
    assert [fleet.finish(first, lease.id, a_result(a_job(), profile())) for _ in range(2)] == [True, False]
    assert (rows_in(fleet, fleet_results), rows_in(fleet, runs)) == (1, 1)
    assert fleet.submit(NewJob(job=a_job()))[0].id == first  # nobody has fetched it
    again, new = fleet.submit(NewJob(job=a_job(), anew=True))
    assert (new, again.key, again.id != first) == (True, a_job().id, True)
    fleet.cancel(again.id)
    fleet.result(first, fetched=True)
    assert fleet.submit(NewJob(job=a_job()))[1]


def test_whatever_an_agent_says_is_a_sign_of_life(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    for say in (
        lambda: fleet.tell(job, lease.id, []),
        lambda: fleet.keep(job, lease.id),
        lambda: fleet.lease("pi"),
        lambda: fleet.beat("pi"),
    ):
        clock.now += 95
        assert fleet.device("pi").away(fleet.now())
        say()
        assert not fleet.device("pi").away(fleet.now())


def test_a_lease_that_runs_out_gives_the_job_to_another_after_a_pause(fleet, clock):
    job = submitted(fleet)
    lost = fleet.lease("pi")
    clock.now += 59
    fleet.keep(job, lost.id)
    clock.now += 59
    assert fleet.expire() == ()
    clock.now += 2
    assert fleet.expire() == (job,)
    assert (fleet.job(job).state, fleet.lease("jetson")) == ("queued", None)
    clock.now += 5
    lease = fleet.lease("jetson")
    assert (lease.row.id, lease.row.attempts, lease.id != lost.id) == (job, 2, True)
    for late in (
        lambda: fleet.keep(job, lost.id),
        lambda: fleet.tell(job, lost.id, []),
        lambda: fleet.finish(job, lost.id, a_result(a_job())),
        lambda: fleet.give_back(job, lost.id, "late", counts=True),
    ):
        with pytest.raises(LeaseLostError, match="any more"):
            late()
    assert "no sign of life" in fleet.events(job)[2].text


def test_a_late_result_is_taken_if_nobody_else_has_the_job(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    clock.now += 61
    fleet.expire()
    assert fleet.finish(job, lease.id, a_result(a_job(), profile()))
    clock.now += 100
    assert (fleet.job(job).state, fleet.lease("jetson")) == ("done", None)


def test_a_job_that_is_lost_too_often_fails_and_its_device_is_quarantined(fleet, clock):
    job = submitted(fleet, wanted=Wanted(device="pi"))
    for _ in range(3):
        lease = fleet.lease("pi")
        fleet.give_back(job, lease.id, "The disk is full.", counts=True)
        clock.now += 300
    row, device = fleet.job(job), fleet.device("pi")
    assert (row.state, row.attempts, device.state) == ("failed", 3, "quarantined")
    assert row.reason == "It was lost 3 times. The last time on pi: The disk is full."
    assert device.reason == "It lost 3 jobs in a row. The last: The disk is full."
    assert fleet.result(job).ended == "lost"
    assert fleet.lease("pi") is None
    again = submitted(fleet, seed=2)
    assert fleet.set_state("pi", "ready").failures == 0
    assert fleet.lease("pi").row.id == again


def test_a_job_that_a_device_lost_is_left_to_another_for_the_time_of_a_lease(fleet, clock):
    job = submitted(fleet)
    fleet.give_back(job, fleet.lease("pi").id, "The disk is full.", counts=True)
    clock.now += 5
    assert fleet.lease("pi") is None
    other = submitted(fleet, seed=2)
    lease = fleet.lease("pi")
    assert lease.row.id == other
    fleet.give_back(other, lease.id, "The disk is full.", counts=True)
    clock.now += 20
    fleet.set_state("jetson", "maintenance")  # nobody else is there any more
    assert fleet.lease("pi").row.id == job


def test_a_job_that_nobody_else_takes_goes_back_to_the_device_that_lost_it(fleet, clock):
    job = submitted(fleet)
    fleet.give_back(job, fleet.lease("pi").id, "The disk is full.", counts=True)
    clock.now += 5
    assert fleet.lease("pi") is None
    clock.now += TIMING.lease_s
    fleet.beat("jetson")
    assert fleet.lease("pi").row.id == job


def test_a_device_that_is_switched_off_blames_nobody(fleet):
    job, lease = submitted(fleet), fleet.lease("pi")
    fleet.give_back(job, lease.id, "It is switched off.", counts=False)
    assert (fleet.job(job).attempts, fleet.device("pi").failures) == (0, 0)
    assert fleet.lease("jetson").row.id == job


def test_maintenance_lets_a_job_end_and_gives_no_other(fleet):
    submitted(fleet), submitted(fleet, seed=2)
    lease = fleet.lease("pi")
    fleet.set_state("pi", "maintenance", "A new fan.")
    assert fleet.lease("pi").id == lease.id
    fleet.finish(lease.row.id, lease.id, a_result(lease.job))
    assert fleet.lease("pi") is None
    with pytest.raises(UnknownNameError, match="state"):
        fleet.set_state("pi", "asleep")


def test_cancelling(fleet, clock):
    waits, runs_now, lost = submitted(fleet, priority=-1), submitted(fleet, seed=2), submitted(fleet, seed=3)
    lease, other = fleet.lease("pi"), fleet.lease("jetson")
    assert {lease.row.id, other.row.id} == {runs_now, lost}
    assert fleet.cancel(waits).state == fleet.cancel(waits).state == "cancelled"
    assert fleet.result(waits).ended == "stopped"
    assert not fleet.keep(lease.row.id, lease.id).cancelling
    assert fleet.cancel(lease.row.id).state == "preparing"
    fleet.cancel(other.row.id)
    assert fleet.keep(lease.row.id, lease.id).cancelling
    fleet.finish(lease.row.id, lease.id, a_result(a_job(), ended="stopped"))
    clock.now += 61
    fleet.expire()
    assert {fleet.job(job).state for job in (waits, runs_now, lost)} == {"cancelled"}
    with pytest.raises(UnknownNameError, match="job"):
        fleet.cancel("nowhere")


def test_priorities_come_first_and_projects_take_turns(fleet, clock):
    for number in range(4):
        submitted(fleet, seed=number, project="many")
        clock.now += 1
    few, urgent = submitted(fleet, seed=10, project="few"), submitted(fleet, seed=11, project="many", priority=5)
    served = []
    for _ in range(4):
        lease = fleet.lease("pi")
        clock.now += 10
        fleet.finish(lease.row.id, lease.id, a_result(lease.job))
        served.append(lease.row)
    assert served[0].id == urgent
    assert served[1].id == few  # the other project has used the device
    assert [row.project for row in served[2:]] == ["many", "many"]


def test_many_are_served_at_once_in_the_order_in_which_one_after_the_other_would_be(fleet):
    names = [f"d{number}" for number in range(12)]
    for name in names:
        fleet.register(NewDevice(name=name, labels={"runtime": ("onnxruntime",)}))
    fleet.register(NewDevice(name="other", labels={"runtime": ("openvino",)}))
    for number in range(9):
        # Of one project few are urgent and many are not: the rest of them comes before what another has.
        project, priority = (("a", 2), ("a", 1), ("b", 1), ("c", 0))[number % 4]
        submitted(fleet, seed=number, project=project, priority=priority)
    first = fleet.lease_all(dict.fromkeys(["other", *names, "nobody"]))
    assert list(first) == names[:9]
    assert fleet.lease_all(dict.fromkeys(names[:2])).keys() == first.keys() & set(names[:2])  # again what they have
    given = [(lease.row.project, lease.row.priority, lease.job.id) for lease in first.values()]
    for name, lease in first.items():
        assert (fleet.device(name).job, len(fleet.events(lease.row.id))) == (lease.row.id, 2)
        fleet.give_back(lease.row.id, lease.id, "The device is switched off.", counts=False)
    fleet.database.write(lambda connection: connection.execute(text("UPDATE fleet_jobs SET not_before_us = 0")))
    leases = [fleet.lease(name) for name in names[:9]]
    assert [(lease.row.project, lease.row.priority, lease.job.id) for lease in leases] == given


def test_what_waits_is_counted_by_what_it_wants(fleet, clock):
    for number in range(3):
        submitted(fleet, seed=number)
    submitted(fleet, seed=9, wanted=Wanted(device="pi"))
    assert sorted(count for count, _ in fleet.waiting()) == [1, 3]
    lease = fleet.lease("pi")
    fleet.give_back(lease.row.id, lease.id, "The disk is full.", counts=True)
    assert sum(count for count, _ in fleet.waiting()) == 3  # one waits for its pause to be over
    assert fleet.counts() == {"queued": 4}


def test_two_devices_never_get_the_same_job(fleet):
    for number in range(20):
        submitted(fleet, seed=number)
    names = [f"d{number}" for number in range(10)]
    for name in names:
        fleet.register(NewDevice(name=name, labels={"runtime": ("onnxruntime",)}))
    leases = []
    threads = [threading.Thread(target=lambda name=name: leases.append(fleet.lease(name))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({lease.row.id for lease in leases}) == len({lease.id for lease in leases}) == 10


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Wanted(device="pie"), "no device of the fleet named 'pie'.*pi"),
        (Wanted(labels={"unit": "npu"}), "No device of the fleet has unit=npu.*unit=cpu, unit=gpu"),
        (Wanted(labels={"colour": "red"}), "No device of the fleet has colour=red.*No label 'colour'"),
        (Wanted(device="pi", labels={"unit": "gpu"}), "pi does not have unit=gpu.*unit=cpu"),
        (Wanted(labels={"unit": "gpu", "runtime": "litert"}), "unit=gpu and runtime=litert at once"),
    ],
)
def test_a_job_that_no_device_can_take_is_refused_at_once(fleet, wanted, says):
    job = a_job(runtime=None if "runtime" in wanted.labels else "onnxruntime")
    with pytest.raises((DomainError, UnknownNameError)) as refused:
        fleet.submit(NewJob(job=job, wanted=wanted))
    assert re.search(says, str(refused.value))
    assert rows_in(fleet, fleet_jobs) == 0


def test_a_job_whose_last_device_goes_fails_and_says_so(fleet):
    gpu = submitted(fleet, wanted=Wanted(labels={"unit": "GPU"}))
    any_ = submitted(fleet, seed=2)
    fleet.remove("jetson")
    assert (fleet.job(gpu).state, fleet.job(any_).state) == ("failed", "queued")
    assert "No device of the fleet can take it any more" in fleet.job(gpu).reason


def test_a_name_belongs_to_whoever_registered_it(fleet):
    with pytest.raises(DomainError, match="the one of local"):
        fleet.register(NewDevice(name="pi"), Registrar(user="mallory"))
    assert fleet.register(NewDevice(name="pi"), Registrar(user="admin", takes_over=True)).user == "admin"
    for name in ("any", "a b", "", "x" * 101):
        with pytest.raises(DomainError):
            fleet.register(NewDevice(name=name))


def test_an_agent_reads_the_files_of_its_own_job_only(fleet):
    job = submitted(fleet)
    (mine,) = {file.sha256 for file in a_job().files}
    assert not fleet.may_read("pi", mine)
    lease = fleet.lease("pi")
    assert fleet.may_read("pi", mine)
    assert not fleet.may_read("pi", "0" * 64)
    assert not fleet.may_read("jetson", mine)
    assert fleet.files_in_use() == {mine}
    fleet.finish(job, lease.id, a_result(a_job()))
    assert (fleet.may_read("pi", mine), fleet.files_in_use()) == (False, frozenset())


def test_an_agent_of_one_project_gets_no_job_of_another(fleet, store):
    submitted(fleet, project="secret")
    store.create_project("open")
    assert fleet.lease("pi", project="open") is None
    assert fleet.lease("pi", project="secret") is not None


def test_a_reference_that_moved_marks_the_job_and_its_run(fleet, store):
    job, lease = submitted(fleet), fleet.lease("pi")
    check = Check(before_s=1.0, after_s=1.2, moved=True)
    fleet.finish(job, lease.id, a_result(a_job(), profile()), check)
    row = fleet.job(job)
    assert (row.moved, store.get(row.run).tags) == (True, ("reference-moved",))
    assert fleet.checks("pi")[0].change == pytest.approx(0.2)
    assert fleet.trust("pi").grade == "ungraded"


def test_a_project_with_jobs_that_wait_is_not_deleted(fleet, store):
    job = submitted(fleet, project="phones")
    with pytest.raises(DomainError, match="1 job in the queue"):
        store.delete_project("phones", with_runs=True)
    fleet.cancel(job)
    store.delete_project("phones", with_runs=True)
    assert rows_in(fleet, fleet_jobs) == 0
