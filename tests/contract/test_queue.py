"""The queue keeps its promises on SQLite and on a real PostgreSQL: the same suite over both."""

import re
import shutil
import threading
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from fakes.fleet import DEVICES, a_job, a_result, submitted
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.job import JobEvent
from inferometer.store import open_store
from inferometer.store.errors import LeaseLostError
from inferometer.store.queue.devices import Registrar
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import DEVICE_STATES, LeaseCheck, LeaseTiming, NewDevice, NewJob, Wanted
from inferometer.store.tables import fleet_jobs, fleet_results, metadata, runs
from unit.store import postgres
from unit.store.profiles import profile

TIMING = LeaseTiming(lease_s=60.0, attempts=3, backoff_s=5.0, failures=3)


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
        return folder / "template.db"
    return request.getfixturevalue("postgres_server").new_store()


@pytest.fixture
def store(place, tmp_path):
    if isinstance(place, Path):
        shutil.copy(place, tmp_path / "runs.db")
        place = tmp_path / "runs.db"
    with open_store(place, artifacts=tmp_path / "artifacts", clock=Clock()) as opened:
        if opened.database.postgres:
            opened.database.write(lambda connection: postgres.emptied(connection, metadata.sorted_tables))
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
    assert fleet.look_after() == ()
    clock.now += 2
    assert fleet.look_after() == (job,)
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
    fleet.look_after()
    assert fleet.finish(job, lease.id, a_result(a_job(), profile()))
    clock.now += 100
    assert (fleet.job(job).state, fleet.lease("jetson")) == ("done", None)


def test_a_job_that_is_lost_too_often_is_inconclusive_and_its_device_quarantined(fleet, clock):
    job = submitted(fleet, wanted=Wanted(device="pi"))
    for _ in range(3):
        lease = fleet.lease("pi")
        fleet.give_back(job, lease.id, "The disk is full.", counts=True)
        clock.now += 300
    row, device = fleet.job(job), fleet.device("pi")
    assert (row.state, row.attempts, device.state) == ("inconclusive", 3, "quarantined")
    assert row.reason == "It was tried 3 times without an answer that counts. The last time on pi: The disk is full."
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
    fleet.look_after()
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
        thread.join()
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
    with pytest.raises(DomainError, match="already, of somebody else"):
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
    check = LeaseCheck(before_s=1.0, after_s=1.2, moved=True)
    fleet.set_state("jetson", "maintenance")  # nobody else could do better
    fleet.finish(job, lease.id, a_result(a_job(), profile()), check)
    row = fleet.job(job)
    assert (row.state, row.moved, store.get(row.run).tags) == ("inconclusive", True, ("reference-moved",))
    assert fleet.result(job).ended == "done"  # what was measured is there, for whoever wants to look at it
    assert fleet.checks("pi")[0].change == pytest.approx(0.2)
    assert fleet.trust("pi").grade == "ungraded"


def test_a_project_with_jobs_that_wait_is_not_deleted(fleet, store):
    job = submitted(fleet, project="phones")
    with pytest.raises(DomainError, match="1 job in the queue"):
        store.delete_project("phones", with_runs=True)
    fleet.cancel(job)
    store.delete_project("phones", with_runs=True)
    assert rows_in(fleet, fleet_jobs) == 0


# Faults of devices, and of those who speak for them


MOVED = LeaseCheck(before_s=1.0, after_s=1.2, moved=True)
OFTEN = NewDevice(name="pi", labels=DEVICES[0].labels, probes=True)


def test_a_reference_that_moved_twice_gives_the_job_to_a_device_that_has_not_tried_it(fleet, clock):
    job = submitted(fleet)
    fleet.finish(job, fleet.lease("pi").id, a_result(a_job(), profile()), MOVED)
    assert (fleet.job(job).state, fleet.job(job).run) == ("queued", None)
    clock.now += 5
    assert fleet.lease("pi") is None
    fleet.finish(job, fleet.lease("jetson").id, a_result(a_job(), profile()), MOVED)
    assert (fleet.job(job).state, fleet.job(job).run is None) == ("inconclusive", False)  # both have tried
    assert (fleet.device("pi").state, fleet.device("pi").failures) == ("ready", 0)


def test_a_run_that_was_stopped_and_that_nobody_cancelled_is_tried_again(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    assert fleet.finish(job, lease.id, a_result(a_job(), profile(), ended="stopped"))
    row = fleet.job(job)
    assert (row.state, row.run, row.reason) == (
        "queued", None, "Its run was stopped there, and nobody had cancelled it.",
    )  # fmt: skip
    clock.now += 5
    again = fleet.lease("jetson")
    fleet.cancel(job)
    fleet.finish(job, again.id, a_result(a_job(), profile(), ended="stopped"))
    assert (fleet.job(job).state, fleet.job(job).run is None) == ("cancelled", False)


@pytest.mark.parametrize("ended", ["refused", "failed", "crashed", "hung", "too-big"])
def test_an_error_of_the_model_is_its_answer_and_is_not_tried_again(fleet, ended):
    job, lease = submitted(fleet), fleet.lease("pi")
    fleet.finish(job, lease.id, a_result(a_job(), ended=ended))
    assert (fleet.job(job).state, fleet.lease("jetson"), fleet.device("pi").failures) == ("failed", None, 0)


def test_an_answer_that_cannot_be_is_set_aside_and_its_device_marked(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    assert fleet.finish(job, lease.id, a_result(a_job(), profile()), device="pi", doubt="It is of another model.")
    assert (fleet.job(job).state, rows_in(fleet, runs), rows_in(fleet, fleet_results)) == ("queued", 0, 0)
    (fault,) = fleet.faults("pi")
    assert (fault.job, fault.reason, fault.kept) == (job, "It is of another model.", True)
    clock.now += 5
    with pytest.raises(LeaseLostError):  # the lease has had its answer
        fleet.finish(job, lease.id, a_result(a_job(), profile()), device="pi")
    assert fleet.lease("jetson").row.id == job


def test_a_second_answer_is_refused_and_changes_nothing(fleet):
    job, lease = submitted(fleet), fleet.lease("pi")
    fleet.finish(job, lease.id, a_result(a_job(), profile()), device="pi")
    events, run = fleet.events(job), fleet.job(job).run
    for _ in range(2):
        with pytest.raises(LeaseLostError, match="has its answer already"):
            fleet.finish(job, lease.id, a_result(a_job(), ended="failed"), device="pi")
    assert (fleet.result(job), fleet.events(job)) == (a_result(a_job(), profile()), events)
    assert (fleet.job(job).state, fleet.job(job).run, rows_in(fleet, runs)) == ("done", run, 1)
    assert [fault.reason for fault in fleet.faults("pi")] == ["pi brought a second answer, which was not taken."]


def test_an_answer_of_another_device_is_refused_and_noted_while_the_job_goes_on(fleet):
    job, lease = submitted(fleet), fleet.lease("pi")
    for speak in (
        lambda: fleet.finish(job, lease.id, a_result(a_job(), profile()), device="jetson"),
        lambda: fleet.keep(job, lease.id, device="jetson"),
        lambda: fleet.tell(job, lease.id, [], device="jetson"),
        lambda: fleet.give_back(job, lease.id, "It is off.", counts=False, device="jetson"),
    ):
        with pytest.raises(LeaseLostError):
            speak()
    assert fleet.events(job)[-1].text == "jetson brought an answer that it had no lease for, which was not taken."
    assert fleet.finish(job, lease.id, a_result(a_job(), profile()), device="pi")
    assert fleet.job(job).state == "done"


def test_a_late_answer_is_noted_in_the_job_that_another_has_by_now(fleet, clock):
    job, lost = submitted(fleet), fleet.lease("pi")
    clock.now += 61
    fleet.look_after()
    clock.now += 5
    lease = fleet.lease("jetson")
    for _ in range(2):
        with pytest.raises(LeaseLostError, match="any more: it is preparing"):
            fleet.finish(job, lost.id, a_result(a_job(), profile()), device="pi")
    notices = [event.text for event in fleet.events(job) if event.kind == "notice"]
    assert notices == ["pi brought an answer that it had no lease for, which was not taken."]
    assert fleet.finish(job, lease.id, a_result(a_job(), profile()), device="jetson")


def test_a_device_that_fails_often_runs_its_reference_before_it_gets_another_job(fleet, clock):
    fleet.register(OFTEN)
    for seed in range(3):
        job, lease = submitted(fleet, seed=seed), fleet.lease("pi")
        fleet.finish(job, lease.id, a_result(a_job(), profile()), LeaseCheck(before_s=1.0, after_s=1.0, moved=False))
    for seed in (4, 5):
        fleet.give_back(submitted(fleet, seed=seed), fleet.lease("pi").id, "The disk is full.", counts=True)
    submitted(fleet, seed=6)
    assert (fleet.device("pi").probing, fleet.lease("pi")) == (True, None)
    fleet.probed("pi", 1.2)
    assert (fleet.device("pi").probing, fleet.lease("pi") is None) == (False, False)


@pytest.mark.parametrize(
    ("reference_s", "says"),
    [(2.0, "It was probed: its reference takes 2 times as long as usual."), (None, "could not run its reference")],
)
def test_a_device_that_is_not_what_it_was_is_quarantined_by_its_probe(fleet, reference_s, says):
    fleet.register(OFTEN)
    for seed in range(3):
        job, lease = submitted(fleet, seed=seed), fleet.lease("pi")
        fleet.finish(job, lease.id, a_result(a_job(), profile()), LeaseCheck(before_s=1.0, after_s=1.0, moved=False))
    fleet.set_state("pi", "quarantined")
    assert fleet.set_state("pi", "ready").probing  # whoever put it back may have mended nothing
    assert says in fleet.probed("pi", reference_s).reason
    assert fleet.device("pi").state == "quarantined"


@pytest.mark.parametrize("before", DEVICE_STATES)
@pytest.mark.parametrize("after", DEVICE_STATES)
def test_only_what_comes_out_of_quarantine_is_probed(fleet, before, after):
    fleet.register(OFTEN)
    assert not fleet.set_state("pi", before).probing
    assert fleet.set_state("pi", after).probing == (before == "quarantined")


def test_what_a_job_made_belongs_to_its_run_with_its_name_size_and_hash(store, fleet):
    job, lease = submitted(fleet), fleet.lease("pi")
    files = {"made.onnx": b"12345", "log": b""}
    fleet.finish(job, lease.id, a_result(a_job(), profile()), files=files)
    (row,) = store.list(limit=10).rows
    made = {each.name: (each.size_bytes, each.sha256) for each in store.get(row.id).artifacts}
    assert made == {
        name: (len(data), sha256(data).hexdigest()) for name, data in (("made.onnx", b"12345"), ("log", b""))
    }


def test_an_agent_that_cannot_be_probed_gets_jobs_as_before(fleet, clock):
    for seed in (4, 5):
        fleet.give_back(submitted(fleet, seed=seed), fleet.lease("pi").id, "The disk is full.", counts=True)
    assert fleet.lease("pi") is None
    again = submitted(fleet, seed=6)
    assert (fleet.device("pi").probing, fleet.lease("pi").row.id) == (False, again)


def test_a_token_that_ends_ends_the_lease_of_its_agent(fleet, store, clock):
    store.create_user("ada")
    revoked, expires = store.create_token("ada", scopes=["agent"]), store.create_token("ada", scopes=["agent"])
    fleet.register(NewDevice(name="board", labels=DEVICES[0].labels, token=revoked.token.id), Registrar(user="ada"))
    job, other = submitted(fleet, wanted=Wanted(device="board")), submitted(fleet, seed=2, wanted=Wanted(device="pi"))
    lease = fleet.lease("board")
    fleet.lease("pi")
    assert fleet.look_after() == ()
    store.revoke_token(revoked.token.id)
    assert fleet.look_after() == (job,)
    assert fleet.job(job).reason == "The token of its agent does not hold any more."
    assert (fleet.job(job).state, fleet.job(other).state) == ("queued", "preparing")
    assert fleet.device("board").failures == 0
    with pytest.raises(LeaseLostError):
        fleet.keep(job, lease.id, device="board")
    fleet.register(NewDevice(name="board", labels=DEVICES[0].labels, token=expires.token.id), Registrar(user="ada"))
    clock.now += 5
    fleet.lease("board")
    store.delete_user("ada")
    assert fleet.look_after() == (job,)


def test_a_job_that_takes_ten_times_as_long_as_expected_says_so_once(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    fleet.expect(job, 12.0, "a test")
    for _ in range(2):
        clock.now += 59
        fleet.keep(job, lease.id)
    fleet.look_after()
    assert not fleet.job(job).late
    clock.now += 10
    for _ in range(2):
        fleet.look_after()
    assert fleet.job(job).late
    notices = [event.text for event in fleet.events(job) if event.kind == "notice"]
    assert notices == ["It has taken 2 min, and was expected to take 12 s: it may hang."]
    fleet.give_back(job, lease.id, "It is off.", counts=False)
    fleet.lease("jetson")
    assert not fleet.job(job).late


def test_a_run_that_tells_nothing_new_is_known_by_it(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    fleet.tell(job, lease.id, [(1, JobEvent(job="x", number=1, at=0.0, kind="state", state="running"))])
    for _ in range(3):
        clock.now += 50
        fleet.keep(job, lease.id)
    assert fleet.job(job).still_s(fleet.now()) == pytest.approx(150, abs=1)
    fleet.tell(job, lease.id, [(2, JobEvent(job="x", number=2, at=0.0, kind="progress", stage="runs", share=0.5))])
    assert fleet.job(job).still_s(fleet.now()) is None


@pytest.mark.parametrize("off_s", [-30 * 86_400.0, 30 * 86_400.0])
def test_whatever_clock_a_device_has_its_events_are_between_the_lease_and_now(fleet, clock, off_s):
    job, lease = submitted(fleet), fleet.lease("pi")
    clock.now += 7
    told = JobEvent(job="x", number=1, at=clock.now + off_s, kind="state", state="running")
    fleet.tell(job, lease.id, [(1, told)])
    assert fleet.job(job).leased <= fleet.events(job)[-1].at <= fleet.now()


def test_a_file_that_the_hub_has_lost_ends_all_jobs_that_wait_for_it(fleet):
    (sha256,) = {file.sha256 for file in a_job().files}
    held, waits, measured = submitted(fleet), submitted(fleet, seed=2), submitted(fleet, seed=3)
    assert {fleet.lease("pi").row.id, fleet.lease("jetson").row.id} == {held, waits}
    assert set(fleet.lack_file(sha256, held)) == {held, measured}
    for job in (held, measured):
        row = fleet.job(job)
        assert (row.state, fleet.result(job).remedy) == (
            "inconclusive", "Run the same command again: it sends the file anew.",
        )  # fmt: skip
        assert row.reason == "The hub's copy of net.onnx was damaged or lost, and is thrown away."
    assert fleet.job(waits).state == "preparing"  # its device may have the file
    assert fleet.faults("pi") == ()
    assert fleet.submit(NewJob(job=a_job()))[1]  # the same command is a new job


def test_a_run_says_who_measured_it_and_who_asked(fleet, store):
    fleet.register(NewDevice(name="board", labels=DEVICES[0].labels), Registrar(user="ada"))
    job = submitted(fleet, wanted=Wanted(device="board"), user="bob")
    fleet.finish(job, fleet.lease("board").id, a_result(a_job(), profile()))
    parameters = store.get(fleet.job(job).run).parameters
    assert (parameters["measured by"], parameters["submitted by"]) == ("board, an agent of ada", "bob")
