"""What the hub works out without a socket: who gets work, when jobs begin, what streams tell, what pages say."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from starlette.datastructures import QueryParams

from fakes.fleet import a_job, a_result
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import Environment, OpTime, Phase, Provenance, Run, Verification
from inferometer.hub.fleet import desk, forecast, forecasting, starting
from inferometer.hub.fleet.desk import cases_of, too_fast
from inferometer.hub.web import app
from inferometer.hub.web.api.agents import _event
from inferometer.hub.web.api.people import _csv, _grants
from inferometer.hub.web.downloads import exported_run
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.pages import catalog as atlas_page
from inferometer.hub.web.pages import fleet as fleet_pages
from inferometer.hub.web.pages.run import _attribution_rows, held_of
from inferometer.hub.web.rendering import _coded, _linked, _moment, _share, _span
from inferometer.store.errors import StoreError
from inferometer.store.queue.values import FleetDevice, JobRow, LeaseCheck, Wanted
from inferometer.store.queue.wanted import written
from inferometer.store.values import AuditEntry, Metric, RunRow, Visitor
from inferometer.understand.view import drawing as dataflow
from inferometer.understand.view.page import badges_of, environment_groups, environment_text, page_of
from inferometer.understand.view.profiles import phase_rows
from unit.hub.web.samples import decoder, network

NOW = 1000.0
PATIENT_S = 600.0  # that nobody waits in these tests: what is waited for comes


def device(name="d", **more):
    known = {"user": "u", "labels": {"unit": ("cpu",)}, "facts": {}, "version": "1", "state": "ready"}
    return FleetDevice(**{"name": name, **known, "registered": 0.0, "heartbeat": NOW, **more})


def job(number, **more):
    known = {"key": "k", "project": "p", "user": "u", "verb": "profile", "state": "queued", "wanted": Wanted()}
    return JobRow(**{"id": f"j{number}", **known, "priority": 0, "attempts": 0, "created": float(number), **more})


# Who gets work


class Fleet:
    """A queue that gives each device that asks the next of `jobs`, unless it is in `refused`."""

    def __init__(self, jobs=(), refused=()):
        self.jobs, self.refused = list(jobs), refused
        self.beats, self.rounds, self.clock = [], [], NOW

    def now(self):
        return self.clock

    def beat(self, name):
        self.beats.append(name)

    def lease(self, name, *, project=None):
        return self.lease_all({name: project}).get(name)

    def lease_all(self, asking):
        self.rounds.append(asking)
        return {name: self.jobs.pop(0) for name in asking if self.jobs and name not in self.refused}

    def waiting(self):
        return [(len(self.jobs), written(Wanted()))] if self.jobs else []

    def look_after(self):
        self.rounds.append("looked after")

    def tidy(self):
        self.rounds.append("tidied")


def played(play, *given, **options):
    async def run():
        fleet = Fleet(*given, **options)
        dispatcher = desk.Dispatcher(fleet)
        try:
            return await play(dispatcher, fleet)
        finally:
            dispatcher.stop()

    return asyncio.run(run())


def test_who_waited_longest_is_served_first_and_each_gets_one():
    async def play(dispatcher, fleet):
        waiting = [asyncio.create_task(dispatcher.wait(device(name), "p", PATIENT_S)) for name in "abc"]
        await asyncio.sleep(0)
        fleet.jobs += ["first", "second", "third"]
        dispatcher.ring()
        return await asyncio.gather(*waiting), [asked for asked in fleet.rounds if asked != "looked after"]

    answers, rounds = played(play)
    assert answers == ["first", "second", "third"]
    assert rounds == [{"a": "p", "b": "p", "c": "p"}]


def test_one_that_has_a_job_is_not_ready_or_was_not_listening_asks_the_queue_itself():
    async def play(dispatcher, fleet):
        found = [await dispatcher.wait(device(job="x"), None, PATIENT_S), await dispatcher.wait(device(), None, 0.0)]
        dispatcher._unheard.add("d")
        found.append(await dispatcher.wait(device(), None, PATIENT_S))
        assert "d" not in dispatcher._unheard
        return found

    assert played(play, ["a", "b", "c"]) == ["a", "b", "c"]


def test_who_waits_in_vain_is_remembered_and_asked_no_more_than_it_must_be():
    async def play(dispatcher, fleet):
        old, young = device("old", heartbeat=NOW - 20.1), device("young", heartbeat=NOW - 20.0)
        assert [await dispatcher.wait(each, None, 0.02) for each in (old, young)] == [None, None]
        assert fleet.beats == ["old"]
        fleet.clock = NOW + 39.9
        assert (dispatcher.idle("old"), dispatcher.idle("unknown")) == (None, None)  # a minute since it was looked up
        assert dispatcher.idle("young") == young
        assert dispatcher.idle("young") is None  # once
        dispatcher._idle["young"] = young
        dispatcher._unheard.add("young")
        assert dispatcher.idle("young") is None
        dispatcher._idle["young"] = young
        dispatcher.forget("young")
        assert dispatcher._idle == {}
        assert dispatcher._waiters == {}

    played(play)


def test_a_device_that_asks_by_another_connection_is_answered_there():
    async def play(dispatcher, fleet):
        first = asyncio.create_task(dispatcher.wait(device(), None, PATIENT_S))
        await asyncio.sleep(0)
        second = asyncio.create_task(dispatcher.wait(device(), None, PATIENT_S))
        assert await first is None
        fleet.jobs.append("job")
        dispatcher.ring()
        assert await second == "job"
        gone = desk._Waiter(device("gone"), None)
        gone.answer.cancel()
        dispatcher._answer(gone, "lease")
        assert dispatcher._unheard == {"gone"}
        changed = asyncio.create_task(dispatcher.wait(device(), None, PATIENT_S))
        await asyncio.sleep(0)
        dispatcher.forget("d")
        return await changed

    assert played(play) is None


def test_a_job_that_one_may_not_have_goes_to_the_next_that_waits():
    async def play(dispatcher, fleet):
        waiting = [asyncio.create_task(dispatcher.wait(device(name), None, PATIENT_S)) for name in "ab"]
        await asyncio.sleep(0)
        fleet.jobs.append("only")
        dispatcher.ring()
        found = await waiting[1], waiting[0].done()
        waiting[0].cancel()
        return found

    assert played(play, refused=("a",)) == ("only", False)


@pytest.mark.parametrize(
    ("waiters", "wishes", "batch"), [("abc", [2], "ab"), ("abc", [1, 1, 5], "abc"), ("ab", [0], "")]
)
def test_a_batch_is_no_more_than_there_are_jobs(waiters, wishes, batch, monkeypatch):
    async def found():
        made = {name: desk._Waiter(device(name), None) for name in waiters}
        counted = [desk._Wish(count, Wanted()) for count in wishes]
        return "".join(waiter.device for waiter, _ in desk._batch(made, counted)), sum(w.count for w in counted)

    assert asyncio.run(found()) == (batch, sum(wishes) - len(batch))
    monkeypatch.setattr(desk, "_AT_ONCE", 1)
    assert asyncio.run(found())[0] == batch[:1]


def test_leases_are_looked_after_every_second_and_old_events_dropped_every_hour(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(desk.time, "monotonic", lambda: now[0])
    fleet = Fleet()
    dispatcher = desk.Dispatcher(fleet)
    for moment in (0.9, 1.0, 1.9, 2.0, 3599.9, 3600.0):
        now[0] = 1000.0 + moment
        asyncio.run(dispatcher._round())
    assert fleet.rounds == ["looked after"] * 3 + ["tidied"]


# When jobs begin


def starts(jobs, devices, used=None):
    known = {row.project: (number, 0.0) for number, row in enumerate(jobs)}
    rows = {state: tuple(row for row in jobs if row.state == state) for state in ("queued", "preparing", "running")}

    def listed(states, limit):
        return tuple(row for state in states for row in rows[state])[:limit]

    fleet = SimpleNamespace(
        now=lambda: NOW, jobs=listed, devices=lambda **_asked: tuple(devices), used=lambda: known | (used or {})
    )
    return dict(starting.starts_in(fleet))


def test_jobs_begin_one_after_another_on_each_device():
    jobs = [job(number, expected_s=10.0 * number) for number in (1, 2, 3, 4)]
    assert starts(jobs, [device()]) == {"j1": 0.0, "j2": 10.0, "j3": 30.0, "j4": 60.0}
    assert starts(jobs, [device("a"), device("b")]) == {"j1": 0.0, "j2": 0.0, "j3": 10.0, "j4": 20.0}
    assert starts(jobs, [device("a", state="maintenance"), device("b", heartbeat=NOW - 91)]) == dict.fromkeys(
        ("j1", "j2", "j3", "j4")
    )


def test_a_device_is_free_when_what_it_has_should_be_done_and_never_if_nobody_knows():
    held = job(0, state="running", device="d", leased=NOW - 4, expected_s=10.0)
    assert starts([held, job(1, expected_s=5.0), job(2)], [device()]) == {"j1": 6.0, "j2": 11.0}
    assert starts([replace(held, leased=NOW - 40), job(1)], [device()]) == {"j1": 0.0}  # late: at any moment
    assert starts([replace(held, expected_s=None), job(1)], [device()]) == {"j1": None}
    assert starts([job(1), job(2)], [device()]) == {"j1": 0.0, "j2": None}


def test_a_job_begins_no_sooner_than_its_pause_is_over_and_only_where_it_fits():
    waits = job(1, not_before=NOW + 30, expected_s=5.0)
    assert starts([waits], [device()]) == {"j1": 30.0}
    other = job(2, expected_s=20.0)
    assert starts([waits, other], [device()]) == {"j1": 30.0, "j2": 0.0}
    gpu = job(3, wanted=Wanted(labels={"unit": "gpu"}), expected_s=1.0)
    assert starts([gpu, other], [device(), device("g", labels={"unit": ("gpu",)})]) == {"j3": 0.0, "j2": 0.0}
    assert starts([gpu], [device()]) == {"j3": None}


def test_turns_are_taken_by_priority_devices_in_use_and_time_used():
    jobs = [job(1, project="a", expected_s=10.0), job(2, project="a", expected_s=10.0)]
    jobs += [job(3, project="b", expected_s=10.0), job(4, project="a", priority=1, expected_s=10.0)]
    used = {"a": (1, 5.0), "b": (2, 0.0)}
    assert starts(jobs, [device()], used) == {"j4": 0.0, "j3": 10.0, "j1": 20.0, "j2": 30.0}
    used = {"a": (1, 5.0), "b": (2, 14.0)}  # after its first job the other has used 15
    assert starts(jobs, [device()], used) == {"j4": 0.0, "j3": 10.0, "j1": 20.0, "j2": 30.0}
    used = {"a": (1, 5.0), "b": (2, 16.0)}
    assert starts(jobs, [device()], used) == {"j4": 0.0, "j1": 10.0, "j3": 20.0, "j2": 30.0}
    running = job(9, project="b", state="running", device="d", leased=NOW, expected_s=100.0)
    assert starts([*jobs[:1], jobs[2], running], [device(), device("e")], {"a": (1, 99.0), "b": (2, 0.0)}) == {
        "j1": 0.0, "j3": 10.0,
    }  # fmt: skip


def test_projects_give_back_what_they_hold_when_it_ends():
    projects = starting._Projects({"p": (1, 2.0)}, Counter(p=1), [(5.0, "p", 7.0)])
    for at, held, used in ((4.9, 1, 2.0), (5.0, 0, 9.0)):
        projects.until(at)
        assert projects.rank(job(3)) == (0, held, used, 1, 3.0, "j3")


# How long jobs take


def forecaster(devices, done=()):
    asked = []
    fleet = SimpleNamespace(
        now=lambda: NOW,
        devices=lambda **_asked: tuple(devices),
        device=lambda name: asked.append(name) or next(each for each in devices if each.name == name),
        jobs=lambda *, limit, **_asked: tuple(done)[:limit],
    )
    return forecasting.Forecaster(SimpleNamespace(fleet=fleet)), asked


def took(seconds, **more):
    return job(9, state="done", leased=100.0, ended=100.0 + seconds, **more)


def test_the_device_that_is_asked_is_ready_there_and_free():
    facts = {"device": {"x": 1}}
    poor = [device("broken", state="quarantined", facts=facts), device("away", heartbeat=NOW - 91, facts=facts)]
    poor += [device("busy", job="j", facts=facts), device("mute")]
    for place in range(len(poor) + 1):
        mine, _ = forecaster([*poor[:place], device("best", facts=facts), *poor[place:]])
        assert mine._choose(Wanted(), "p").device.name == "best"
    mine, asked = forecaster([device(name) for name in "abcd"])
    assert mine._choose(Wanted(), "p") is None
    assert asked == ["a", "b", "c"]
    assert forecaster([device(facts=facts)])[0]._choose(Wanted(labels={"unit": "gpu"}), "p") is None


@pytest.mark.parametrize(
    ("done", "seconds", "source"),
    [
        ([], 6.0 + 2.0, "predicted for d: 2 s of measuring, and 6 s around it"),
        ([took(3.0, key="o"), took(4.0, key="o")], 8.0, "predicted for d: 2 s of measuring, and 6 s around it"),
        (
            [took(30.0, key="o"), took(4.0, key="o"), took(9.0, key="o")],
            6.0,
            "predicted for d: 2 s of measuring, and 4 s around it",
        ),
        ([took(30.0), took(4.0, key="o")], 30.0, "as it took before on d"),
        ([took(30.0, project="q")], 8.0, "predicted for d: 2 s of measuring, and 6 s around it"),
        ([took(30.0), took(10.0), took(11.0)], 11.0, "the median of 3 earlier runs on d"),
    ],
)
def test_a_job_takes_what_it_took_or_what_is_predicted_and_what_the_shortest_took_around_it(done, seconds, source):
    mine, _ = forecaster([device(facts={"device": {"x": 1}})], done)
    mine._asked = lambda _job, _device, _more: {"seconds": 2.0}
    found = mine._expected(job(1), a_job())
    assert (found.seconds, found.source) == (seconds, source)


def test_the_tenth_of_the_times_that_were_taken_is_what_starting_takes():
    mine, _ = forecaster([device(facts={"device": {}})], [took(float(number), key="o") for number in range(1, 21)])
    mine._asked = lambda _job, _device, _more: {"seconds": 0.0}
    assert mine._predicted(a_job(), device(), [float(number) for number in range(1, 21)]).seconds == 3.0


def test_what_is_predicted_is_remembered_by_all_that_it_depends_on():
    mine, _ = forecaster([])
    asked = []
    mine._asked = lambda job, device, more: asked.append((job.id, device.name, more)) or {"seconds": 1.0}
    one = device(facts={"device": {"x": 1}})
    same = [(a_job(1), one, {}), (a_job(2), replace(one, name="twin"), {})]  # another id is no other question
    other = [
        (replace(a_job(), runtime="x"), one, {}), (a_job(), device(facts={"device": {"x": 2}}), {}),
        (a_job(), device(facts={"device": {"x": 1}, "calibrations": [1]}), {}), (a_job(), one, {"floors": 1}),
    ]  # fmt: skip
    for job_, device_, more in (*same, *other):
        mine._remembered(job_, device_, **more)
    assert len(asked) == 5


def test_looks_at_the_devices_are_seconds_apart(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(forecasting.time, "monotonic", lambda: now[0])
    mine, asked = forecaster([device(facts={"device": {"x": 1}})])
    for moment, looks in ((100.0, 1), (102.0, 1), (102.1, 2), (103.0, 2)):
        now[0] = 1000.0 + moment
        mine._likely(Wanted(), "p")
        assert len(asked) == looks
    mine._likely(Wanted(), "q")
    mine._likely(Wanted(labels={"unit": "cpu"}), "p")
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("verb", "plan", "options", "seconds"),
    [
        ("verify", {}, {}, 2 * 0.5),
        ("calibrate", {}, {"budget_s": 30.0}, 30.0),
        ("bench", {"runs": 10, "seconds": 1.0, "warmup": 3}, {}, 3 * 0.5 + 10 * 0.5),
        ("bench", {"runs": 10, "seconds": 8.0, "warmup": 0}, {}, 8.0),
        ("bench", {"runs": 100, "seconds": 1.0, "seconds_at_most": 20.0, "warmup": 0}, {}, 20.0),
        ("bench", {"runs": 10, "seconds": 1.0}, {}, 5 * 0.5 + 10 * 0.5),
        ("bench", {"runs": 10, "seconds": 1.0, "warmup_seconds_at_most": 2.0}, {}, 2.0 + 10 * 0.5),
        ("profile", {"runs": 10, "seconds": 1.0, "warmup": 2}, {}, 2 * 0.5 + 2 * 10 * 0.5),
        ("profile", {"runs": 10, "seconds": 1.0, "warmup": 2}, {"shape": False}, 2 * 0.5 + 10 * 0.5),
    ],
)
def test_a_job_measures_for_as_long_as_its_plan_says(monkeypatch, tmp_path, *, verb, plan, options, seconds):
    for name in ("read", "_predicted"):
        monkeypatch.setattr(forecast, name, lambda *_given: None)
    monkeypatch.setattr(forecast, "whole_s", lambda _profile: 0.5)
    monkeypatch.setattr(forecast, "require_known", lambda _job: None)
    (tmp_path / "net.onnx").write_bytes(b"")
    asked = replace(a_job(), verb=verb, plan=plan, options=options)
    assert forecast.measuring_s(asked, tmp_path, None, ()) == pytest.approx(seconds)


# What cannot be believed


def timed(**times):
    made = network(name="net")
    load, forward = made.phases
    given = {"time_s": 1.0, "samples_s": (1.0,), "floor_s": None, **times}
    return replace(made, phases=(load, replace(forward, **given)), summary=replace(made.summary, latency_s=1.0))


@pytest.mark.parametrize(
    ("times", "floor_s", "believed"),
    [
        ({}, 4.0, True), ({}, 4.01, False), ({"floor_s": 64.1}, 0.0, False), ({"floor_s": 64.0}, 0.0, True),
        ({"floor_s": 64.1}, 4.0, True),
        ({"samples_s": (1.0, 0.99)}, 4.0, False), ({"samples_s": None}, 4.0, True),
        ({"time_s": 1e-7, "samples_s": ()}, 0.0, True), ({"time_s": 0.9e-7, "samples_s": ()}, 0.0, False),
        ({"name": "load", "time_s": 1e-9}, 4.0, True), ({"name": "own", "time_s": 1e-9}, 4.0, True),
    ],
)  # fmt: skip
def test_a_time_is_believed_from_a_quarter_of_its_floor_on(times, floor_s, believed):
    found = too_fast(a_result(a_job(), timed(**times)), [{"forward": floor_s}])
    assert (found is None) is believed


def test_each_profile_has_the_floors_of_its_own_case():
    result = a_result(a_job(), timed(), timed(), timed())
    assert too_fast(result, [{"forward": 4.0}, {"forward": 4.0}]) is None
    assert too_fast(result, [{"forward": 4.0}, {"forward": 5.0}]) is not None
    assert [len(cases_of(replace(a_job(), verb=verb))) for verb in ("profile", "bench", "verify")] == [1, 1, 0]
    assert cases_of(replace(a_job(), options={"cases": [{"prompt": 1}, {"prompt": 2}]})) == [
        {"prompt": 1},
        {"prompt": 2},
    ]


# Streams


class Watched:
    """A store that is looked at: each look finds the next of `looks`."""

    def __init__(self, *looks, again=None):
        self.looks, self.again, self.sights = list(looks), again, []

    def seen_with(self, sight):
        self.sights.append(sight)
        return self

    def visitor_again(self, _visitor):
        return self.again.pop(0)


def streamed(store, *, visitor=None, count=99, poll_s=0.5):
    """What a stream tells, over so many looks, and the pauses between them."""
    pauses, left = [], [count]

    async def pause(seconds):
        pauses.append(seconds)

    async def is_disconnected():
        left[0] -= 1
        return left[0] < 0

    def look(seen):
        value = seen.looks.pop(0)
        if isinstance(value, Exception):
            raise value
        return "run", value, value == "last"

    request = SimpleNamespace(scope={"inferometer.visitor": visitor}, is_disconnected=is_disconnected)
    streams = app.LiveStreams(store, Rules(poll_s=poll_s), pause)

    async def gathered():
        return [encoded async for encoded in streams._changes(request, look)]

    return asyncio.run(gathered()), pauses


def test_a_stream_tells_what_changed_once_and_ends_with_the_last():
    told, pauses = streamed(Watched("a", "a", "b", "b", "last"))
    assert told == [app.event("run", value) for value in ("a", "b", "last")]
    assert pauses == [0.5] * 4


def test_a_quiet_stream_says_every_fifteen_seconds_that_it_is_there():
    told, _ = streamed(Watched(*["a"] * 8, "b", *["b"] * 4, "last"), poll_s=5.0)
    quiet = b": still here\n\n"
    a, b, last = (app.event("run", value) for value in ("a", "b", "last"))
    assert told == [a, quiet, quiet, b, quiet, last]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreError("It is away at /srv.", told="It is away."), "It is away."),
        (UnknownNameError("run", "x", []), "This run is not there any more."),
    ],
)
def test_a_stream_that_cannot_go_on_says_why(error, reason):
    told, _ = streamed(Watched("a", error))
    assert json.loads(told[-1].split(b"data: ")[1]) == {"reason": reason}
    assert len(told) == 2


def test_a_stream_sees_what_its_visitor_may_see_by_now_and_ends_with_their_right():
    def who(**more):
        return Visitor(**{"user": "u", "scopes": ("read",), "roles": {}, **more})

    store = Watched("a", "b", again=[who(numbers=frozenset({1})), who(numbers=frozenset({2})), None])
    told, _ = streamed(store, visitor=who(numbers=frozenset({1, 2})))
    assert [sight.projects for sight in store.sights] == [{1, 2}, {1}, {2}]
    assert b"has ended" in told[-1]
    everything = Watched("a", "last", again=[who(roles=None)] * 2)
    streamed(everything, visitor=who(roles=None))
    assert everything.sights == [None]


def test_streams_are_counted_by_whose_they_are():
    async def counted():
        streams = app.LiveStreams(None, Rules())

        async def two():
            yield b"1"
            yield b"2"

        mine, other = streams._counted("me", two()), streams._counted("you", two())
        await anext(mine), await anext(other)
        assert streams._streams == {"me": 1, "you": 1}
        assert [part async for part in mine] == [b"2"]
        assert dict(streams._streams) == {"you": 1}
        await other.aclose()
        return dict(streams._streams)

    assert asyncio.run(counted()) == {}


def test_the_newest_metrics_are_told_by_the_time_they_came(monkeypatch):
    monkeypatch.setattr(app, "_MOST_METRICS", 2)
    metrics = [Metric(name="a", value=1.0, step=9, at=1.0), Metric(name="a", value=2.0, step=0, at=2.0)]
    metrics += [Metric(name="b", value=3.0, step=1, at=2.0), Metric(name="a", value=4.0, step=5)]
    row = RunRow(id="r", project="p", status="running", kind="k", created=1.0)
    store = SimpleNamespace(row=lambda _run: row, metrics=lambda _run: metrics)
    name, value, last = app.LiveStreams(None, Rules())._one_run("r")(store)
    assert (name, [metric["value"] for metric in value["metrics"]], last) == ("run", [2.0, 3.0], False)
    assert app._last(metrics) == {"a": {"value": 2.0, "step": 0}, "b": {"value": 3.0, "step": 1}}


# People


def test_a_spreadsheet_gets_texts_and_not_formulas():
    entry = AuditEntry(number=1, at=2.5, user="=x", action="-a", subject="a=b", detail="@d")
    assert _csv((entry,)).splitlines() == [
        "number,at,user,action,project,subject,detail,token,session,address", "1,2.5,'=x,'-a,,a=b,'@d,,,",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "project", "granted"),
    [("read", None, True), ("write", None, True), ("admin", None, False), ("agent", None, False), ("agent", "p", True),
     ("agent", "q", False)],
)  # fmt: skip
def test_a_member_grants_what_is_theirs(scope, project, granted):
    owner = Visitor(user="u", scopes=("write",), roles={"p": "writer", "q": "reader"})
    assert _grants(owner, scope, project) is granted
    assert not _grants(replace(owner, scopes=("read",)), "agent", "p")


def test_an_agents_clock_is_put_right():
    plain = {"schema": "inferometer.job-event/1", "job": "j", "number": 1, "at": 100.0, "kind": "notice", "text": "x"}
    assert _event(plain, 30.0).at == 70.0


# Pages


def test_the_points_of_a_device_are_drawn_about_its_median():
    checks = tuple(
        LeaseCheck(before_s=before, after_s=after, moved=after > 1.1) for before, after in ((1, 1), (1, 1.2), (0.9, 1))
    )
    found = fleet_pages._drawing(checks)
    assert found["most"] == pytest.approx(0.2)
    assert [(point["x"], point["before"], point["after"], point["moved"]) for point in found["points"]] == [
        (0.0, 20.0, 20.0, False), (50.0, 20.0, 2.0, True), (100.0, 29.0, 20.0, False),
    ]  # fmt: skip
    assert fleet_pages._drawing(checks[:1]) is None
    assert fleet_pages._drawing((checks[0],) * 2)["most"] == 0.01


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, ("ready", "good")), ({"job": "j"}, ("measuring", "busy")), ({"heartbeat": NOW - 91}, ("away", "bad")),
        ({"state": "maintenance", "job": "j"}, ("maintenance", "quiet")),
        ({"state": "quarantined"}, ("quarantined", "bad")),
    ],
)  # fmt: skip
def test_a_device_stands_as_it_does(more, said):
    assert fleet_pages.standing(device(**more), NOW) == said


def test_a_device_to_choose_says_how_many_jobs_it_would_run_before_another():
    """Those that wait and that it fits, whoever else may take them, and the one that it has."""
    waiting = [job(1), job(2, wanted=Wanted(labels={"unit": "gpu"})), job(3, wanted=Wanted(device="b"))]
    asked = []
    fleet = SimpleNamespace(
        jobs=lambda **more: asked.append(more) or waiting, now=lambda: NOW,
        grades=lambda: {"a": SimpleNamespace(grade="B", why="It repeats.")},
    )  # fmt: skip
    both = {"unit": ("cpu", "gpu"), "runtime": ("onnxruntime",)}
    devices = [device("a"), device("b", labels=both, job="j9", state="maintenance", reason="A fan."), device("c")]
    rows = {row["name"]: row for row in fleet_pages.device_choices(fleet, devices)}
    assert {name: row["ahead"] for name, row in rows.items()} == {"a": 1, "b": 4, "c": 1}
    assert asked == [{"states": ("queued",), "limit": 1000}]
    assert [(row["standing"], row["tone"], row["ready"], row["trust"]) for row in rows.values()] == [
        ("ready", "good", True, "B"), ("maintenance", "quiet", False, "ungraded"), ("ready", "good", True, "ungraded"),
    ]  # fmt: skip
    named = {key: rows["b"][key] for key in ("reason", "units", "engines")}
    assert named == {"reason": "A fan.", "units": ("cpu", "gpu"), "engines": ("onnxruntime",)}


def test_the_facts_of_a_device_are_those_it_told():
    facts = {"machine": {"memory_bytes": 8 * 2**30, "cpu_name": "A76", "gpus": ["a", "b"], "boxed": True, "none": None},
             "runtimes": {"onnx": "1.2", "bare": None}, "box": "bubblewrap"}  # fmt: skip
    found = dict(fleet_pages._facts(device(facts=facts, labels={"unit": ("cpu", "gpu")}, skew_s=-2.1)))
    assert found == {
        "memory": "8 GiB", "cpu name": "A76", "gpus": "a, b", "boxed": "yes", "engines": "onnx 1.2, bare",
        "labels": "unit=cpu, unit=gpu", "agent": "1, of u", "box for jobs": "bubblewrap",
        "clock": "2 s behind the hub's",
    }  # fmt: skip
    ahead = dict(fleet_pages._facts(device(facts={"machine": "odd", "runtimes": []}, labels={}, skew_s=2.6)))
    assert ahead == {"agent": "1, of u", "clock": "3 s ahead of the hub's"}
    assert "clock" not in dict(fleet_pages._facts(device(skew_s=2.0)))
    wishes = (Wanted(), Wanted(device="d"), Wanted(device="d", labels={"a": "b"}))
    assert [fleet_pages._asks(job(1, wanted=wish)) for wish in wishes] == ["any device", "d", "d, a=b"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"), ("x", "x"), (True, "yes"), ([1, 2], "1, 2"),
        (list(range(16)), ", ".join(map(str, range(16)))),
        (list(range(17)), "17 values"), (["a"] * 17, ", ".join(["a"] * 17)),
        ({"held_bytes": 2048, "spent_s": 0.5, "ok": False}, "held 2 KiB, spent 500 ms, ok no"),
        ({"ok": True, "series": list(range(17))}, "ok yes"),
        ({"power_w": 5, "clock_hz": 1e9, "used_j": 2.0, "plain": 1.5}, "power 5 W, clock 1 GHz, used 2 J, plain 1.5"),
    ],
)  # fmt: skip
def test_facts_are_written_for_people(value, text):
    assert environment_text(value) == text


def test_the_badges_of_a_run_say_what_it_is_and_whether_it_is_right():
    def words(profile):
        return [(word, tone) for word, tone, _ in badges_of(profile)]

    made = network()
    assert words(made) == [("measured", "plain"), ("verified", "good"), ("disturbed", "bad")]
    wrong = replace(made, verification=Verification(status="failed", reference="x"), environment=None)
    assert words(wrong) == [("measured", "plain"), ("failed", "bad")]
    calm = replace(made, verification=Verification(status="unchecked"), environment=Environment(disturbed=False))
    assert words(calm) == [("measured", "plain"), ("unverified", "quiet"), ("quiet", "good")]
    assert words(replace(calm, kind="predicted", environment=Environment())) == [("predicted", "plain")]
    assert badges_of(made)[2][2] == "the load rose"


def test_a_page_says_what_it_ran_on_under_headings():
    made = network()
    machine = MachineFacts(id="m1", name="pi", memory_bytes=2**30)
    environment = replace(
        made.environment, machine=machine, host={"cpu": "told", "free_bytes": 1024}, versions={"onnx": "1"}
    )
    found = dict(environment_groups(replace(made, environment=environment, provenance=None)))
    assert list(found) == ["Machine", "Software", "While it was measured"]
    assert ("memory", "1 GiB") in found["Machine"]
    assert ("machine id", "m1") in found["Machine"]
    assert ("free", "1 KiB") in found["Machine"]
    assert "cpu" not in dict(found["Machine"])
    assert found["While it was measured"] == [
        ("threads", "2"), ("load before", "0.1"), ("load after", "3"), ("disturbed", "the load rose"),
    ]  # fmt: skip
    bare = replace(
        made, environment=replace(environment, machine=None), provenance=Provenance(tool="t", version="1", created="c")
    )
    found = dict(environment_groups(bare))
    assert ("cpu", "told") in found["Machine"]
    assert found["How it was made"] == [("tool", "t 1"), ("created", "c")]


def test_a_subtitle_names_the_model_the_place_and_every_size():
    assert page_of(decoder()).subtitle.split(" · ")[:1] == ["tiny-llm"]
    assert [part for part in page_of(decoder()).subtitle.split(" · ") if part[-1].isdigit()] == [
        "batch 1", "prompt 32", "generate 17",
    ]  # fmt: skip
    assert held_of([Metric(name="memory_bytes", value=5.0, step=1500), Metric(name="x", value=1.0, step=0)]) == [
        (1.5, 5.0)
    ]


def test_phases_are_listed_with_how_often_they_ran_and_what_is_in_no_layer():
    rows = {row["name"]: row for row in phase_rows(decoder())}
    assert (rows["prefill"]["runs"], rows["decode"]["runs"]) == (None, 32)
    assert rows["prefill"]["rest_s"] == pytest.approx(0.001)
    assert rows["decode"]["parts"] == "run 3 ms, sample 60 µs, read 40 µs"
    assert [row["phase"] for row in page_of(decoder()).percentiles.rows] == ["decode"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (59.9, "59.9 s"),
        (60, "1 min 0 s"),
        (61.4, "1 min 1 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (7380, "2 h 3 min"),
    ],
)
def test_a_span_is_in_the_words_of_a_clock(seconds, said):
    assert _span(seconds) == said


def test_templates_write_shares_moments_links_and_code():
    assert [_share(value) for value in (None, 0.0, 0.1234, 1.0)] == ["–", "0.0 %", "12.3 %", "100.0 %"]
    assert [_moment(value) for value in (None, 0.0)] == ["–", "1970-01-01 00:00:00 UTC"]
    assert _coded("run `a<b` now") == "run <code>a&lt;b</code> now"
    assert _coded("one ` alone <") == "one ` alone &lt;"
    linked = _linked("A page, https://x.org/a?b=1")
    assert linked == 'A page, <a href="https://x.org/a?b=1" rel="noreferrer" target="_blank">https://x.org/a?b=1</a>'
    assert _linked('A page, https://x.org/"') == "A page, https://x.org/&#34;"
    assert _linked("A page") == "A page"


def test_rows_that_are_not_shown_are_summed(monkeypatch):
    monkeypatch.setattr("inferometer.hub.web.pages.run._MOST_ROWS", 2)
    rows = [
        SimpleNamespace(name=name, time_s=t, share=t / 10, count=c)
        for name, t, c in (("a", 4, 1), ("b", 3, 2), ("c", 2, 3), ("d", 1, 4))
    ]
    table = SimpleNamespace(
        rows=rows, by="kind", phase="p", whole_s=10, remainder="r", remainder_s=0, remainder_share=0
    )
    shown = _attribution_rows(table)["rows"]
    assert [row["name"] for row in shown] == ["a", "b", "2 more"]
    assert (shown[2]["time_s"], shown[2]["share"], shown[2]["count"]) == (3, pytest.approx(0.3), 7)
    assert len(_attribution_rows(SimpleNamespace(**{**vars(table), "rows": rows[:2]}))["rows"]) == 2


def test_a_drawing_has_as_many_steps_as_can_be_drawn(monkeypatch):
    monkeypatch.setattr(dataflow, "_MOST_SPANS", 6)
    op = OpTime(name="a", kind="linear", time_s=1.0, samples_s=tuple(map(float, range(9))))
    phase = Phase(
        name="decode", time_s=1.0, ops=(op, replace(op, name="b", samples_s=None)), op_context=tuple(range(9))
    )
    drawn = dataflow._drawable(phase)
    assert len(drawn.op_context) == len(drawn.ops[0].samples_s) == 3
    assert [float(step) for step in drawn.op_context] == list(drawn.ops[0].samples_s)
    assert drawn.ops[1].samples_s is None
    short = replace(phase, op_context=(0, 1, 2))
    assert dataflow._drawable(short) is short
    assert dataflow._drawable(replace(phase, op_context=None)).op_context is None


def test_texts_of_the_atlas_are_codes_into_the_distinct_ones_and_every_eighth_row_is_predicted_first(monkeypatch):
    assert atlas_page._coded(["b", "a", "b"]) == {"values": ["b", "a"], "codes": [0, 1, 0]}
    now, order = [0.0], []
    monkeypatch.setattr(atlas_page.time, "monotonic", lambda: now[0])

    def predicted(row):
        order.append(row)
        now[0] += 1.0
        return float(row)

    monkeypatch.setattr("inferometer.predict.published_rows.predicted_seconds", predicted)
    found, tried = atlas_page._predictions(SimpleNamespace(rows=lambda: range(20)))
    assert order == [0, 8, 16, 1, 9]
    assert tried == 5
    assert {place: value for place, value in enumerate(found) if value is not None} == {
        row: float(row) for row in order
    }
    asked = atlas_page.atlas_values(QueryParams("model=m&device=&nonsense=1"))["data"]["asked"]
    assert asked == {"model": "m"}


def test_a_run_without_a_profile_cannot_be_saved():
    with pytest.raises(DomainError, match="has no profile: it is failed"):
        exported_run(Run(id="r", project="p", status="failed", created=""), "json")
    with pytest.raises(UnknownNameError, match="format"):
        exported_run(Run(id="r", project="p", status="failed", created=""), "gif")


def test_a_job_took_the_time_since_its_lease():
    assert forecasting._took(job(1, created=5.0, ended=9.0)) == 4.0
    assert forecasting._took(job(1, created=5.0, leased=7.0, ended=9.0)) == 2.0
