"""The queue at given moments, on SQLite: when a lease, a pause, a share or a mark begins and ends, to the millisecond.

The clock stands still until it is moved, so that every time and every sum is known.
"""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.fleet import DEVICES, a_job, a_result, submitted
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.job import JobEvent
from inferometer.store.errors import LeaseLostError
from inferometer.store.queue import shares
from inferometer.store.queue.devices import Registrar
from inferometer.store.queue.fleet import Fleet, grade
from inferometer.store.queue.shares import Turn, rank
from inferometer.store.queue.values import FleetDevice, LeaseCheck, LeaseTiming, NewDevice, NewJob, Wanted, fails_often
from inferometer.store.queue.wanted import fits, read, refuse_unfitting, written
from unit.store.conftest import START
from unit.store.profiles import profile

A_MOMENT = 0.001
TIMING = LeaseTiming(lease_s=60.0, attempts=3, backoff_s=5.0, failures=3)
STEADY = LeaseCheck(before_s=1.0, after_s=1.0, moved=False)


@pytest.fixture
def fleet(store):
    """A queue with two devices. Whatever a test does, events are numbered and nothing is before it or after now."""
    made = Fleet.of(store, TIMING)
    for device in DEVICES:
        made.register(device)
    yield made
    now = made.now()
    for row in made.jobs(limit=1000):
        events = made.events(row.id)
        assert not events or [event.number for event in events] == list(range(1, row.events + 1))
        known = (row.created, row.leased, row.ended, row.heard, *(event.at for event in events))
        assert all(START <= at <= now for at in known if at is not None)
    for device in made.devices():
        assert all(START <= fault.at <= now for fault in made.faults(device.name))
        assert START <= device.registered <= device.heartbeat <= now


def event(kind="state", number=1, at=START, **more):
    return JobEvent(job="x", number=number, at=at, kind=kind, **more)


def measured(fleet, seed, *, device="pi", check=None, took_s=0.0, **options):
    """A job that a device brings to its end; gives its id."""
    job, lease = submitted(fleet, seed, wanted=Wanted(device=device), **options), fleet.lease(device)
    fleet._clock.now += took_s
    fleet.finish(job, lease.id, a_result(lease.job, profile()), check)
    return job


# Leases


def test_a_lease_holds_to_its_last_moment_and_every_word_of_its_agent_moves_that(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    assert (lease.lease_s, lease.row.lease_until, lease.row.leased) == (60.0, START + 60, START)
    for say in (
        lambda: fleet.keep(job, lease.id),
        lambda: fleet.tell(job, lease.id, []),
        lambda: fleet.lease("pi"),
    ):
        clock.now += 60
        assert fleet.look_after() == ()
        say()
        assert fleet.job(job).lease_until == clock.now + 60
        assert fleet.device("pi").heartbeat == clock.now
    assert fleet.lease("pi").row.lease_until == clock.now + 60  # as its agent is told
    assert fleet.job(job).leased == START
    clock.now += 60 + A_MOMENT
    assert fleet.look_after() == (job,)
    assert fleet.job(job).lease_until is None


@pytest.mark.parametrize(
    ("attempts", "pause_s"), [(0, 5), (1, 5), (2, 10), (3, 20), (6, 160), (7, 300), (8, 300), (30, 300)]
)
def test_a_pause_is_twice_as_long_each_time_and_five_minutes_at_most(attempts, pause_s):
    found = LeaseTiming().backoff(attempts)
    assert (found, type(found)) == (pause_s, float)


def test_a_job_that_was_lost_waits_out_its_pause_and_no_longer(fleet, clock):
    job = submitted(fleet, wanted=Wanted(device="pi"))
    for attempt, pause_s in ((1, 5), (2, 10)):
        lease = fleet.lease("pi")
        assert lease.row.attempts == attempt
        fleet.give_back(job, lease.id, "No room.", counts=True)
        row = fleet.job(job)
        assert (row.not_before, row.attempts, row.reason) == (clock.now + pause_s, attempt, "No room.")
        assert fleet.events(job)[-1].text == f"pi: No room. It is tried again in {pause_s} s."
        clock.now += pause_s - A_MOMENT
        assert (fleet.lease("pi"), fleet.waiting()) == (None, ())
        clock.now += A_MOMENT
        assert [count for count, _ in fleet.waiting()] == [1]
    lease = fleet.lease("pi")
    fleet.give_back(job, lease.id, "It is off.", counts=False)
    row = fleet.job(job)
    assert (row.attempts, row.not_before, fleet.events(job)[-1].text) == (2, clock.now, "pi: It is off.")
    fleet.set_state("pi", "ready")
    fleet.give_back(job, fleet.lease("pi").id, "No room.", counts=True)
    assert (fleet.job(job).state, fleet.job(job).attempts, fleet.job(job).ended) == ("inconclusive", 3, clock.now)


def test_a_job_is_left_to_others_for_just_as_long_as_a_lease(fleet, clock):
    job = submitted(fleet)
    fleet.give_back(job, fleet.lease("pi").id, "No room.", counts=True)
    clock.now += TIMING.lease_s - A_MOMENT
    fleet.beat("jetson")
    assert fleet.lease("pi") is None
    clock.now += A_MOMENT
    assert fleet.lease("pi").row.id == job


@pytest.mark.parametrize("why_not", ["away", "maintenance", "no label"])
def test_a_job_is_not_left_to_one_that_cannot_take_it(fleet, clock, why_not):
    labels = {"unit": "cpu", "runtime": "litert"} if why_not == "no label" else {}
    job = fleet.submit(NewJob(job=a_job(runtime=None), wanted=Wanted(labels=labels)))[0].id
    fleet.give_back(job, fleet.lease("pi").id, "No room.", counts=True)
    clock.now += 5
    if why_not == "maintenance":
        fleet.set_state("jetson", "maintenance")
    if why_not == "away":
        clock.now = START + 90
        assert not fleet.device("jetson").away(clock.now)
        clock.now += A_MOMENT
        fleet = Fleet.of(fleet, replace(TIMING, lease_s=600.0))
    assert fleet.lease("pi").row.id == job


def test_a_token_ends_its_agents_lease_at_its_end_and_not_before(fleet, store, clock):
    store.create_user("ada")
    secret = store.create_token("ada", scopes=["agent"], lasts_s=30)
    board = NewDevice(name="board", labels=DEVICES[0].labels, token=secret.token.id)
    fleet.register(board, Registrar(user="ada"))
    job = submitted(fleet, wanted=Wanted(device="board"))
    fleet.lease("board")
    clock.now += 30 - A_MOMENT
    assert fleet.look_after() == ()
    clock.now += A_MOMENT
    assert fleet.look_after() == (job,)
    assert (fleet.device("board").failures, [fault.job for fault in fleet.faults("board")]) == (0, [job])


@pytest.mark.parametrize(
    ("expected_s", "late_s", "told"),
    [
        (12.0, 120.0, "It has taken 2 min, and was expected to take 12 s: it may hang."),
        (1.0, 60.0, "It has taken 60 s, and was expected to take 1 s: it may hang."),  # a disk may be slow
        (None, None, None),
    ],
)
def test_a_job_is_late_after_ten_times_what_was_expected_and_not_in_its_first_minute(
    fleet, clock, expected_s, late_s, told
):
    job, lease = submitted(fleet), fleet.lease("pi")
    fleet.expect(job, expected_s, "a test")
    assert (fleet.job(job).expected_s, fleet.job(job).expected_from) == (expected_s, "a test")
    while clock.now < START + (late_s or 300.0):
        clock.now += 30
        fleet.keep(job, lease.id)
    assert (fleet.look_after(), fleet.job(job).late) == ((), False)
    clock.now += A_MOMENT
    assert (fleet.look_after(), fleet.job(job).late) == ((), told is not None)
    fleet.look_after()
    assert [said.text for said in fleet.events(job) if said.kind == "notice"] == ([told] if told else [])


@pytest.mark.parametrize(("silent_s", "away"), [(90.0, False), (90.0 + A_MOMENT, True)])
def test_a_device_is_away_after_a_minute_and_a_half_of_silence(fleet, clock, silent_s, away):
    assert fleet.device("pi").away(START + silent_s) is away


def test_a_run_is_still_after_two_minutes_without_news_while_it_runs(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    assert fleet.job(job).still_s(START + 1e6) is None  # it has told nothing, and may be sent its model
    fleet.tell(job, lease.id, [(1, event(state="running"))])
    row = fleet.job(job)
    assert (row.heard, row.still_s(START + 119.9), row.still_s(START + 120)) == (START, None, 120.0)
    assert replace(row, state="done").still_s(START + 120) is None
    clock.now += 30
    fleet.tell(job, lease.id, [(1, event(state="running"))])  # the same again is no news
    assert fleet.job(job).heard == START


# What an agent says


def test_what_an_agent_says_is_written_once_in_its_order_and_between_lease_and_now(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    clock.now += 7
    first = [(1, event("notice", text="early", at=START - 9)), (2, event(state="running", at=START + 3))]
    assert fleet.tell(job, lease.id, first) == (2, False)
    assert fleet.job(job).state == "running"
    later = [*first, (3, event("notice", text="late", at=START + 99)), (4, event(state="done", at=START + 5))]
    assert fleet.tell(job, lease.id, later) == (4, False)
    told = fleet.events(job, after=2)
    assert [(said.number, said.text, said.at) for said in told] == [
        (3, "early", START), (4, None, START + 3), (5, "late", START + 7),
    ]  # fmt: skip
    assert (fleet.job(job).state, fleet.job(job).events) == ("running", 5)  # its end comes with the result
    fleet.cancel(job, by="ada")
    assert fleet.events(job)[-1].text == "Cancelled by ada."
    assert fleet.tell(job, lease.id, later[:1]) == (4, True)
    fleet.cancel(job, by="bob")
    assert len(fleet.events(job)) == 6


def test_of_what_an_agent_says_without_end_some_is_kept_and_all_is_heard(fleet, clock, monkeypatch):
    monkeypatch.setattr("inferometer.store.queue.ending._MOST_EVENTS", 5)
    job, lease = submitted(fleet), fleet.lease("pi")  # two events are there
    said = [(count, event("notice", text=str(count))) for count in range(1, 11)]
    for some in (said[:2], said[2:]):
        clock.now += 1
        assert fleet.tell(job, lease.id, some) == (some[-1][0], False)
    assert [each.text for each in fleet.events(job, after=2)] == ["1", "2", "3"]
    assert fleet.job(job).lease_until == clock.now + 60


def test_the_next_attempt_counts_its_own_words_anew(fleet, clock):
    job, lease = submitted(fleet, wanted=Wanted(device="pi")), fleet.lease("pi")
    fleet.tell(job, lease.id, [(5, event("notice", text="first"))])
    fleet.give_back(job, lease.id, "It is off.", counts=False)
    again = fleet.lease("pi")
    assert (again.row.heard, again.row.reason, again.row.late) == (None, None, False)
    assert fleet.tell(job, again.id, [(1, event("notice", text="second"))]) == (1, False)
    texts = ["first", "pi: It is off.", "pi takes it.", "second"]
    assert [said.text for said in fleet.events(job, after=2)] == texts


# Asking twice


def test_a_result_that_nobody_fetched_answers_the_same_question_for_an_hour(fleet, clock):
    job = measured(fleet, 1)
    again = NewJob(job=a_job(), wanted=Wanted(device="pi"))
    clock.now += 3600 - A_MOMENT
    assert (fleet.submit(again)[0].id, fleet.submit(again)[1]) == (job, False)
    clock.now += A_MOMENT
    assert fleet.submit(again)[1]


@pytest.mark.parametrize(
    "other", [{"project": "q"}, {"user": "bob"}, {"wanted": Wanted(device="pi")}, {"job": a_job(2)}, {"anew": True}]
)
def test_another_question_is_another_job(fleet, other):
    asked = NewJob(job=a_job())
    first = fleet.submit(asked)[0].id
    assert fleet.submit(asked)[0].id == first
    row, new = fleet.submit(replace(asked, **other))
    assert (new, row.id != first) == (True, True)


def test_a_job_that_is_being_stopped_or_came_to_nothing_is_asked_anew(fleet):
    for seed, ended in enumerate(("stopped", "failed")):
        job, lease = submitted(fleet, seed), fleet.lease("pi")
        if ended == "stopped":
            fleet.cancel(job)
        else:
            fleet.finish(job, lease.id, a_result(lease.job, ended="failed"))
        row, new = fleet.submit(NewJob(job=a_job(seed)))
        assert (new, row.id != job) == (True, True)
        fleet.cancel(row.id)
        if ended == "stopped":
            fleet.finish(job, lease.id, a_result(lease.job, ended="stopped"))


def test_of_several_that_ask_the_same_the_last_one_answers(fleet, clock):
    asked, sent = NewJob(job=a_job()), []
    for anew in (False, True, True):
        sent.append(fleet.submit(replace(asked, anew=anew))[0].id)
        clock.now += 1
    assert fleet.submit(asked)[0].id == sent[-1]
    assert len({*sent}) == 3


def test_an_engine_is_the_same_however_it_is_written(fleet):
    job = submitted(fleet, wanted=Wanted(labels={"runtime": "OnnxRuntime"}))
    assert fleet.lease("pi").row.id == job
    with pytest.raises(DomainError, match="runs on onnxruntime"):
        fleet.submit(NewJob(job=a_job(2), wanted=Wanted(labels={"runtime": "litert"})))


def test_devices_with_and_without_a_token_are_served_together(fleet, store):
    store.create_user("ada")
    tokens = [store.create_token("ada", scopes=("agent",)).token.id for _ in range(2)]
    for name, token in zip(("bound", "shut"), tokens, strict=True):
        fleet.register(NewDevice(name=name, labels=DEVICES[0].labels, token=token))
    store.revoke_token(tokens[1])
    for seed in range(3):
        submitted(fleet, seed)
    assert fleet.lease_all(dict.fromkeys(("shut", "bound", "pi"))).keys() == {"bound", "pi"}


@pytest.mark.parametrize("priority", [-101, 101])
def test_a_priority_has_limits(fleet, priority):
    assert submitted(fleet, 1, priority=priority + (1 if priority < 0 else -1))
    with pytest.raises(DomainError, match="from -100 to 100"):
        submitted(fleet, 2, priority=priority)


# Shares


def test_the_time_of_devices_is_charged_once_whatever_became_of_it_and_halves_every_hour(fleet, clock):
    def used():
        return {name: seconds for name, (_, seconds) in fleet.used().items()}

    measured(fleet, 1, took_s=10.0, project="p")
    assert used() == {"p": 10.0}
    clock.now += 3600
    assert used() == {"p": 5.0}
    job, lease = submitted(fleet, 2, project="p"), fleet.lease("pi")
    clock.now += 3600
    fleet.give_back(job, lease.id, "It is off.", counts=False)
    assert used() == {"p": 2.5 + 3600}
    fleet.finish(job, lease.id, a_result(lease.job, profile()))  # late, and paid for
    assert used() == {"p": 2.5 + 3600}
    other, _ = submitted(fleet, 3, project="q"), submitted(fleet, 4, project="r")
    fleet.cancel(other)
    assert used() == {"p": 2.5 + 3600, "q": 0.0, "r": 0.0}


def test_a_clock_that_was_put_back_gives_nobody_time_back(fleet, store, clock):
    measured(fleet, 1, took_s=10.0, project="p")
    job, lease = submitted(fleet, 2, project="p"), fleet.lease("pi")
    clock.now -= 5
    fleet.give_back(job, lease.id, "It is off.", counts=False)
    assert store.database.write(lambda c: shares.used(c, fleet._now()))["p"][1] == pytest.approx(10.0)
    clock.now += 5


@pytest.mark.parametrize(
    ("hours", "left_s"), [(0, 80.0), (1, 40.0), (2, 20.0), (3, 10.0), (0.5, 80 / 2**0.5), (-1, 80.0)]
)
def test_time_that_was_used_counts_half_after_every_hour(hours, left_s):
    at_us = 1_760_000_000_000_000
    found = shares._now(80.0, at_us, at_us + round(hours * 3_600_000_000))
    assert (found, type(found)) == (pytest.approx(left_s), float)


def test_turns_go_by_priority_then_devices_in_use_then_time_used_then_age():
    def turn(**more):
        return Turn(**{"project": 5, "priority": 0, "held": 1, "used_s": 10.0, **more})

    better = [{"priority": 1, "held": 9, "used_s": 99.0}, {"held": 0, "used_s": 99.0, "project": 9}]
    better += [{"used_s": 9.0, "project": 9}, {"project": 4}]
    assert all(rank(turn(**more)) < rank(turn()) for more in better)


@pytest.mark.parametrize(
    ("paid", "jobs", "taken"),
    [
        ({}, "a0 a0 a0 b0 c0 c1", "c1 a0 b0 a0 c0"),
        ({"a": 50}, "a0 a0 b0 b0 a2 b1", "a2 b1 b0 a0 b0"),
        ({"a": 5, "b": 50}, "a0 b0 c0 a0 b0 c0", "c0 a0 b0 c0 a0"),
        ({"c": 5}, "c2 c2 a1 b1 b1", "c2 c2 a1 b1 b1"),
    ],
)
def test_devices_go_to_the_urgent_then_to_who_has_fewest_and_used_least(fleet, store, clock, *, paid, jobs, taken):
    """Jobs are a project and a priority, in the order in which they came; the five that five devices get at once."""
    names = [f"d{number}" for number in range(5)]
    for name in names:
        fleet.register(NewDevice(name=name, labels=DEVICES[0].labels))
    for project in "abc":
        store.create_project(project)
        if project in paid:
            measured(fleet, project, took_s=paid[project], project=project)
    asked = {}
    for seed, (project, priority) in enumerate(jobs.split()):
        asked[submitted(fleet, seed, project=project, priority=int(priority))] = f"{project}{priority}"
        clock.now += 1
    given_ = [lease.row.id for lease in fleet.lease_all(dict.fromkeys(names)).values()]
    assert [asked[job] for job in given_] == taken.split()
    for kind in set(taken.split()):  # of those alike, the oldest
        mine = [job for job, what in asked.items() if what == kind]
        assert [job for job in given_ if asked[job] == kind] == mine[: taken.split().count(kind)]


def test_what_was_used_long_ago_counts_less_than_what_was_used_now(fleet, clock):
    for project, took_s, then_s in (("old", 40.0, 3 * 3600), ("new", 10.0, 0)):
        measured(fleet, project, took_s=took_s, project=project)  # 40 s, halved three times, are 5
        clock.now += then_s
    jobs = {project: submitted(fleet, number, project=project) for number, project in enumerate(("new", "old"))}
    assert fleet.lease("pi").row.id == jobs["old"]


def test_how_long_devices_were_busy(fleet, clock):
    measured(fleet, 1, took_s=10.0)
    measured(fleet, 2, took_s=20.0)
    running = submitted(fleet, 3)
    assert fleet.lease("jetson").row.id == running
    clock.now += 5
    waits = submitted(fleet, 4)
    assert fleet.busy(36) == {"pi": 30.0, "jetson": 5.0}
    assert fleet.busy(25) == {"pi": 20.0, "jetson": 5.0}  # of those that began in that time
    fleet.give_back(running, fleet.lease("jetson").id, "It is off.", counts=False)
    assert fleet.busy(25) == {"pi": 20.0}
    assert fleet.counts() == {"done": 2, "queued": 2}
    assert [row.id for row in fleet.jobs(states=("queued",))] == [running, waits]


# Devices


def test_what_a_device_is_probed_for_and_when_it_is_believed(fleet, clock, monkeypatch):
    monkeypatch.setattr("inferometer.store.queue.devices._USUAL", 3)
    fleet.register(replace(DEVICES[0], probes=True))
    for seed, before_s in enumerate((9.0, 9.0, 0.5, 1.0, 1.0)):  # the last three count, by their median
        clock.now += 1
        measured(fleet, seed, check=LeaseCheck(before_s=before_s, after_s=1.0, moved=False))
    for reference_s, state in ((1.4999, "ready"), (1.5, "quarantined"), (0.6667, "ready"), (0.6666, "quarantined")):
        fleet.set_state("pi", "quarantined")
        fleet.set_state("pi", "ready")
        found = fleet.probed("pi", reference_s)
        assert (found.state, found.probing) == (state, state != "ready")


def test_what_is_known_of_two_checks_says_nothing_of_a_probe(fleet):
    for seed, believed in ((1, True), (2, True), (3, False)):
        measured(fleet, seed, check=STEADY)
        assert (fleet.probed("pi", 99.0).state == "ready") is believed
        fleet.set_state("pi", "ready")


def test_an_answer_that_cannot_be_is_probed_at_once_and_any_other_fault_after_two(fleet, clock):
    fleet.register(replace(DEVICES[0], probes=True))
    for seed, doubt in ((1, None), (2, "It cannot be.")):
        fleet.probed("pi", 1.0)
        job, lease = submitted(fleet, seed, wanted=Wanted(device="pi")), fleet.lease("pi")
        fleet.finish(
            job, lease.id, a_result(lease.job, profile(), ended="lost" if doubt is None else "done"), doubt=doubt
        )
        assert fleet.device("pi").probing is (doubt is not None)
        fleet.set_state("pi", "ready")
    assert fleet.device("pi").failures == 0


def test_failures_in_a_row_are_forgotten_with_the_next_answer(fleet, clock):
    for seed in (1, 2):
        job, lease = submitted(fleet, seed, wanted=Wanted(device="pi")), fleet.lease("pi")
        fleet.give_back(job, lease.id, "No room.", counts=True)
        assert fleet.device("pi").failures == seed
        clock.now += 1
    measured(fleet, 3)
    assert (fleet.device("pi").failures, len(fleet.faults("pi"))) == (0, 2)
    submitted(fleet, 4, wanted=Wanted(device="jetson"))
    lease = fleet.lease("jetson")
    fleet.give_back(lease.row.id, lease.id, "No room.", counts=True)
    assert fleet.device("jetson").failures == 1
    measured(fleet, 5, device="jetson")
    assert fleet.device("jetson").failures == 0, "one is forgotten as well"
    newest, before = fleet.faults("pi")
    assert newest.at == before.at + 1
    assert len(fleet.faults("pi", most=1)) == 1


@pytest.mark.parametrize(
    ("failures", "faults", "often"), [(1, 2, False), (2, 0, True), (0, 3, True), (0, 2, False), (3, 9, True)]
)
def test_a_device_fails_often_after_two_in_a_row_or_three_in_a_week(failures, faults, often):
    assert fails_often(failures, faults) is often


def test_faults_count_for_a_week_and_are_kept_for_a_month(fleet, clock):
    fleet.give_back(submitted(fleet), fleet.lease("pi").id, "No room.", counts=True)
    ended = measured(fleet, 2)
    clock.now = START + 7 * 86_400
    assert fleet.recent_faults() == {"pi": 1}
    assert fleet.tidy() == 0
    clock.now += A_MOMENT
    assert fleet.recent_faults() == {}
    assert (fleet.tidy(), fleet.events(ended)) == (3, ())  # queued, taken, done
    clock.now = START + 30 * 86_400
    fleet.tidy()
    assert len(fleet.faults("pi")) == 1
    clock.now += A_MOMENT
    fleet.tidy()
    assert fleet.faults("pi") == ()


def test_a_grade_is_of_the_last_month_and_checks_are_told_oldest_first(fleet, clock):
    for seed, before_s in ((1, 1.0), (2, 2.0), (3, 3.0)):
        measured(fleet, seed, check=LeaseCheck(before_s=before_s, after_s=2 * before_s, moved=False, waited_s=4.0))
        clock.now += 1
    checks = fleet.checks("pi")
    assert [(check.before_s, check.after_s, check.waited_s, check.change) for check in checks] == [
        (1.0, 2.0, 4.0, 1.0), (2.0, 4.0, 4.0, 1.0), (3.0, 6.0, 4.0, 1.0),
    ]  # fmt: skip
    assert [check.at for check in checks] == [START, START + 1, START + 2]
    assert [check.before_s for check in fleet.checks("pi", most=2)] == [2.0, 3.0]
    clock.now = START + 1 + 30 * 86_400
    assert (fleet.grades().keys(), fleet.grades()["pi"].leases, fleet.trust("pi").leases) == ({"pi"}, 2, 3)


def test_repeats_are_of_one_device_and_one_job(fleet, clock):
    for device in ("pi", "jetson"):
        for seed in (1, 1, 2):
            measured(fleet, seed, device=device, anew=True)
    for device in ("pi", "jetson"):
        assert fleet.trust(device).repeats.count == 2
    measured(fleet, 1, anew=True)
    assert (fleet.trust("pi").repeats.count, fleet.trust("jetson").repeats.count) == (3, 2)


@given(st.lists(st.floats(0.001, 0.5), min_size=5, max_size=30))
def test_nine_in_ten_references_are_within_what_a_grade_says(changes):
    found = grade([LeaseCheck(before_s=1.0, after_s=1 + change, moved=False) for change in changes]).references
    within = sum(abs((1 + change) - 1) <= found.p90 for change in changes)
    below = sum(abs((1 + change) - 1) < found.p90 for change in changes)
    assert within >= 0.9 * len(changes) > below
    assert found.count == len(changes)


def test_a_device_keeps_its_state_and_its_projects_when_it_registers_again(fleet, store, clock):
    store.create_project("phones"), store.create_project("cars")
    store.create_user("ada")
    mine = Registrar(user="ada", project="phones", everyone=False)
    device = NewDevice(name="board", labels={"unit": ("gpu", "cpu", "gpu")}, version="v" * 200, skew_s=1e12)
    first = fleet.register(device, mine)
    assert (first.everyone, first.registered, first.skew_s, first.version) == (False, START, 1e9, "v" * 100)
    assert (first.labels, fleet.projects_of("board")) == ({"unit": ("cpu", "gpu")}, ("phones",))
    fleet.set_state("board", "maintenance", "A new fan.")
    clock.now += 5
    again = fleet.register(replace(device, skew_s=-2.5), replace(mine, project="cars"))
    assert (again.state, again.reason, again.registered, again.heartbeat) == (
        "maintenance", "A new fan.", START, START + 5,
    )  # fmt: skip
    assert (again.skew_s, fleet.projects_of("board")) == (-2.5, ("cars", "phones"))
    assert [found.name for found in fleet.devices(project="cars")] == ["board", "jetson", "pi"]
    assert fleet.register(device, replace(mine, everyone=True)).everyone
    assert fleet.register(device, mine).everyone  # nobody took that back


def test_a_device_takes_the_jobs_of_its_projects_and_one_shared_with_all_takes_any(fleet, store):
    for project in ("phones", "cars"):
        store.create_project(project)
    for name in ("pi", "jetson"):
        fleet.share(name, None, shared=False)
    fleet.share("pi", "phones")
    phones, (car, _) = submitted(fleet, 1, project="phones"), (None, None)
    with pytest.raises(DomainError, match="works for this project"):
        submitted(fleet, 2, project="cars")
    assert fleet.lease("jetson") is None
    assert fleet.lease("pi", project="cars") is None
    assert fleet.lease("pi", project="phones").row.id == phones
    fleet.share("jetson", None)
    car = submitted(fleet, 2, project="cars")
    assert fleet.lease("jetson").row.id == car
    fleet.share("pi", "phones", shared=False)
    assert fleet.projects_of("pi") == ()
    with pytest.raises(UnknownNameError, match="project of this device"):
        fleet.share("pi", "phones", shared=False)
    with pytest.raises(UnknownNameError):
        fleet.share("nobody", None)


def test_a_device_that_works_for_a_project_no_more_leaves_nobody_waiting_for_ever(fleet, store):
    store.create_project("phones")
    for name in ("pi", "jetson"):
        fleet.share(name, None, shared=False)
    fleet.share("pi", "phones")
    job = submitted(fleet, project="phones")
    fleet.share("pi", "phones", shared=False)
    assert (fleet.job(job).state, fleet.result(job).ended) == ("failed", "refused")


def test_a_device_with_a_job_is_not_forgotten(fleet):
    job, lease = submitted(fleet), fleet.lease("pi")
    with pytest.raises(DomainError, match=f"measuring job {job}"):
        fleet.remove("pi")
    fleet.finish(job, lease.id, a_result(lease.job))
    fleet.remove("pi")
    assert [device.name for device in fleet.devices()] == ["jetson"]


@pytest.mark.parametrize(
    ("wanted", "suits"),
    [
        ({}, True), ({"device": "pi"}, True), ({"device": "pie"}, False), ({"labels": {"unit": "CPU"}}, True),
        ({"labels": {"unit": "gpu"}}, False), ({"labels": {"unit": "cpu", "os": "linux"}}, False),
        ({"labels": {"colour": "red"}}, False), ({"device": "pi", "labels": {"unit": "gpu"}}, False),
    ],
)  # fmt: skip
def test_a_device_suits_a_job_with_all_that_it_asks_for(wanted, suits):
    assert fits(Wanted(**wanted), "pi", {"unit": ("npu", "cpu")}) is suits


def test_a_device_of_long_ago_is_away():
    device = FleetDevice(
        name="d", user="u", labels={}, facts={}, version="", state="ready", registered=0.0, heartbeat=10.0
    )
    assert [device.away(now) for now in (0.0, 100.0, 100.5)] == [False, False, True]


# What becomes of a result


def test_every_profile_of_a_result_is_a_run_and_those_after_the_first_are_below_it(fleet, store, clock):
    options = {"project": "phones", "user": "bob", "name": "three", "tags": ("b", "a")}
    job, lease = submitted(fleet, wanted=Wanted(device="pi"), **options), fleet.lease("pi")
    clock.now += 9
    fleet.finish(job, lease.id, a_result(lease.job, profile(1), profile(2), profile(3)))
    first = fleet.job(job).run
    rows = store.list().rows
    assert {row.parent for row in rows if row.id != first} == {first}
    assert sorted(row.latency_s for row in rows) == [0.01, 0.02, 0.03]
    assert store.row(first).latency_s == 0.01
    for row in rows:
        assert (row.project, row.name, row.tags, row.author, row.status, row.kind) == (
            "phones", "three", ("a", "b"), "bob", "finished", "profile",
        )  # fmt: skip
        assert (row.created, row.started, row.ended, row.reason) == (START + 9, START, START + 9, None)


@pytest.mark.parametrize(
    ("ended", "status", "state"),
    [("done", "finished", "done"), ("failed", "failed", "failed"), ("stopped", "killed", "cancelled")],
)
def test_a_run_ends_as_its_job_did(fleet, store, ended, status, state):
    job, lease = submitted(fleet), fleet.lease("pi")
    if ended == "stopped":
        fleet.cancel(job)
    fleet.finish(job, lease.id, a_result(lease.job, profile(), ended=ended))
    row = fleet.job(job)
    assert (row.state, store.row(row.run).status) == (state, status)
    assert row.reason == store.row(row.run).reason == (None if ended == "done" else f"It was {ended}.")


def test_a_result_without_a_check_has_not_moved_and_a_moved_one_counts_its_attempts(fleet, clock):
    moved = LeaseCheck(before_s=1.0, after_s=1.2, moved=True)
    assert fleet.job(measured(fleet, 1)).moved is None
    steady = fleet.job(measured(fleet, 2, check=STEADY))
    assert (steady.moved, steady.state) == (False, "done")
    once = Fleet.of(fleet, replace(TIMING, attempts=1))  # no further attempt: it is kept, and doubted
    job, lease = submitted(once, 3), once.lease("pi")
    once.finish(job, lease.id, a_result(lease.job, profile()), moved)
    assert (once.job(job).state, once.job(job).moved, once.job(job).attempts) == ("inconclusive", True, 1)
    assert once.job(job).reason.startswith("The reference moved twice")
    failed, lease = submitted(fleet, 4), fleet.lease("pi")
    fleet.finish(failed, lease.id, a_result(lease.job, ended="failed"), moved)  # an error is an error, warm or cold
    assert fleet.job(failed).state == "failed"


def test_a_fetched_result_stays_and_an_answer_that_was_known_changes_nothing(fleet, clock):
    job, lease = submitted(fleet), fleet.lease("pi")
    assert fleet.result(job, fetched=True) is None
    answer = a_result(lease.job, profile())
    assert [fleet.finish(job, lease.id, answer, device="pi") for _ in range(2)] == [True, False]
    assert fleet.faults("pi") == ()
    with pytest.raises(LeaseLostError, match="not leased under other any more: it is done"):
        fleet.finish(job, "other", answer, device="pi")
    with pytest.raises(LeaseLostError):
        fleet.finish(job, lease.id, answer, device="jetson")
    assert [fault.reason for fault in fleet.faults("jetson")] == [
        "jetson brought an answer that it had no lease for, which was not taken."
    ]
    assert len(fleet.events(job)) == 3  # the final state is the last event
    assert fleet.result(job, fetched=True) == fleet.result(job) == answer
    assert fleet.document(job) == lease.job


def test_an_answer_that_became_a_loss_is_known_when_it_comes_again(fleet, clock):
    """Its agent has not heard that it arrived; it did nothing wrong by sending it twice."""
    job = submitted(fleet, wanted=Wanted(device="pi"))
    for _ in range(3):
        fleet.set_state("pi", "ready")
        clock.now += 300
        lease = fleet.lease("pi")
        brought = a_result(lease.job, ended="stopped")  # nobody had asked for that
        assert fleet.finish(job, lease.id, brought)
    assert (fleet.job(job).state, fleet.result(job).ended) == ("inconclusive", "lost")
    assert fleet.finish(job, lease.id, brought) is False
    assert len(fleet.faults("pi")) == 3


def test_what_somebody_cancelled_is_not_measured_again_on_another_device(fleet):
    job, lease = submitted(fleet), fleet.lease("pi")
    fleet.cancel(job)
    fleet.finish(job, lease.id, a_result(lease.job, profile()), replace(STEADY, moved=True))
    assert (fleet.job(job).state, fleet.lease("jetson")) == ("inconclusive", None)


def test_lists_of_jobs_are_the_newest_first_and_as_long_as_asked(fleet, clock):
    jobs = []
    for seed in range(3):
        jobs.append(submitted(fleet, seed, project="pq"[seed % 2], priority=seed))
        clock.now += 1
    assert [row.id for row in fleet.jobs()] == jobs[::-1]
    assert [row.id for row in fleet.jobs(limit=2)] == jobs[:0:-1]
    assert [row.id for row in fleet.jobs(states=("queued",))] == jobs[::-1]  # by priority
    assert [row.id for row in fleet.jobs(project="q")] == jobs[1:2]
    done = measured(fleet, 9, priority=9)
    assert (
        [row.id for row in fleet.jobs(device="pi")] == [row.id for row in fleet.jobs(run=fleet.job(done).run)] == [done]
    )
    for limit in (0, 1001):
        with pytest.raises(DomainError):
            fleet.jobs(limit=limit)
    assert len(fleet.jobs(limit=1000)) == 4


# What a job asks for, and why no device is that

LABELS = {"a": {"os": ("linux",), "gpu": ("t4", "l4")}, "b": {"os": ("mac",), "gpu": ("m4",)}}


def unfitting(labels, device=None):
    rest = {"user": "u", "facts": {}, "version": "1", "state": "ready", "registered": 0.0, "heartbeat": 0.0}
    devices = tuple(FleetDevice(name=name, labels=held, **rest) for name, held in LABELS.items())
    with pytest.raises(DomainError) as error:
        refuse_unfitting(Wanted(device=device, labels=labels), devices)
    return str(error.value), error.value.remedy


@pytest.mark.parametrize("order", [*permutations(("os", "gpu", "ram"))])
@pytest.mark.parametrize("device", [None, "a"])
def test_the_label_that_no_device_has_is_named_wherever_it_stands(order, device):
    whose = "No device of the fleet has" if device is None else "a does not have"
    missing = {"os": ("bsd", "os=linux"), "gpu": ("h100", "gpu=l4, gpu=m4, gpu=t4"), "ram": ("big", "No label 'ram'")}
    had = {"os": "LINUX", "gpu": "t4"}
    for lacks, (value, there) in missing.items():
        asked = {**had, lacks: value}
        said, remedy = unfitting({key: asked[key] for key in order if key in asked}, device)
        assert said.startswith(f"{whose} {lacks}={value}. ")
        assert there in remedy or device == "a"
    said, _ = unfitting({key: {"os": "mac", "gpu": "t4"}[key] for key in order if key != "ram"})
    assert " at once." in said  # each is there, and not on one device
    assert all(each in said for each in ("os=mac", "gpu=t4"))


@pytest.mark.parametrize("wrong", ["", "two words", "a/b", "-a", "a" * 101, "ä"])
def test_every_label_of_a_wish_is_held_to_what_labels_are(wrong):
    good = {"one": "a", "two": "b"}
    assert read(written(Wanted(labels=good))).labels == good
    assert written(Wanted(labels=dict(reversed(good.items())))) == written(Wanted(labels=good))
    for labels in ({**good, wrong: "c"}, {**good, "three": wrong}, {wrong: "c", **good}, {**good, "one": wrong}):
        with pytest.raises(DomainError, match="cannot be a"):
            written(Wanted(labels=labels))
