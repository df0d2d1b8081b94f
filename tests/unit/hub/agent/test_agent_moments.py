"""An agent between two moments: when it gives signs of life, what it tells once, when it gives up. No hub, no process.

The hub is a list of answers, the clock is moved by hand, and what the machine would say is given.
"""

import errno
import hashlib
import json
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fakes.fleet import a_job, a_result
from inferometer.core.box import BoxOrder, Ceiling, Means
from inferometer.core.codec import decode, document, encode
from inferometer.core.errors import DomainError, EngineError, FormatError
from inferometer.core.job import Job, JobEvent, JobFile, JobModel, JobResult
from inferometer.hub.agent import facts, holding, reference, runner, serving_hub, warden
from inferometer.hub.agent.carrying_out import carry_out, failed
from inferometer.hub.agent.holding import (
    CancelledError,
    Held,
    Holding,
    LeaseGoneError,
    Seams,
    ShutOutError,
    StoppingError,
)
from inferometer.hub.agent.reference import cool_down, measure_reference, moved
from inferometer.hub.agent.runner import LEASE, EventLog, _Watch
from inferometer.hub.agent.serving_hub import AgentPlan, HubAgent
from inferometer.hub.agent.warden import JobLimits, Verdict, Warden, limits_for
from inferometer.hub.box.seccomp import Refused
from inferometer.hub.places.artifacts import ArtifactFolder
from inferometer.hub.places.following import EventTail, ToldLog
from inferometer.hub.places.hub_client import HubAwayError, HubRefusalError
from inferometer.measure.bench.loop import LoopProgress
from unit.hub.web.samples import network

JOB = a_job()


class Hub:
    """Answers each question with the next answer, or raises it; the last one stays."""

    url = "http://hub"

    def __init__(self, *answers):
        self.answers = list(answers) or [{"written": 99, "cancel": False}]
        self.asked = []

    def post(self, path, value=None, timeout_s=None):
        self.asked.append((path.rpartition("/")[2], value, timeout_s))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def paths(self):
        return [path for path, _, _ in self.asked]


class Clock:
    """Time that passes only by sleeping, or by hand."""

    def __init__(self):
        self.now, self.slept = 1000.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def held(tmp_path, clock):
    """Makes a job that an agent holds, with a hub that answers so."""

    def made(*answers, job=JOB, **more):
        (tmp_path / "state").mkdir(exist_ok=True)
        seams = Seams(reference=None, sleep=clock.sleep, clock=clock)
        known = Held(**{"id": "i", "lease": "l", "lease_s": 100.0, "job": document(job), **more})
        return Holding(Hub(*answers), "pi", tmp_path / "root", tmp_path / "state", known, seams)

    return made


def event(kind="progress", number=1, **more):
    return JobEvent(**{"job": "x", "number": number, "at": 5.0, "kind": kind, **more})


AWAY = HubAwayError("It is away.")
ALIVE = {"cancel": False}


def test_a_job_that_brings_no_files_has_a_folder_to_run_in(held, monkeypatch):
    """A calibration: nothing else makes the folder then."""
    job, started = replace(JOB, verb="calibrate", model=None), []

    def run(folder, *_):
        started.append(json.loads((folder / "job.json").read_bytes()))

    monkeypatch.setattr(holding.device_side, "run_detached", run)
    held(*[ALIVE] * 9, job=job)._begin()
    assert [each["id"] for each in started] == [job.id]


# Signs of life


def test_a_sign_of_life_is_given_every_ten_seconds(held, clock):
    mine = held(ALIVE)
    for moment, beats in ((0, 1), (9.9, 1), (10, 2), (19.9, 2), (20, 3)):
        clock.now = 1000.0 + moment
        mine._keep()
        assert mine._client.paths == ["beat"] * beats
    assert mine._client.asked[0][1] == {"device": "pi", "lease": "l", "job": "i"}


def test_progress_is_told_every_second_and_anything_else_at_once(held, clock):
    mine = held({"written": 1, "cancel": False}, {"written": 2, "cancel": False}, {"written": 3, "cancel": False})
    mine._told.add(1, event(stage="a", share=0.1))
    mine._keep()
    mine._told.add(1, event(number=2, stage="b", share=0.1))
    clock.now += 0.9
    mine._keep()
    assert mine._client.paths == ["events"]
    mine._told.add(1, event("notice", number=3, text="now"))
    mine._keep()
    told = mine._client.asked[1][1]
    assert (told["device"], told["lease"]) == ("pi", "l")
    assert [(each["count"], each["event"]["kind"]) for each in told["events"]] == [(2, "progress"), (3, "notice")]
    mine._keep()
    assert (len(mine._client.asked), mine._told.sent) == (3, 3)  # the hub had written one of the two
    clock.now += 0.9
    mine._told.add(1, event(number=4, stage="c", share=0.1))
    mine._keep()
    assert len(mine._client.asked) == 3
    clock.now += 0.1
    mine._keep()
    assert len(mine._client.asked) == 4


def test_a_hub_that_is_away_is_asked_again_in_two_seconds_and_does_not_renew_the_runner(held, clock):
    mine = held(AWAY, AWAY, ALIVE, round=1)
    mine._folder().mkdir(parents=True)
    for moment, asked, renewed in ((0, 1, None), (1.9, 1, None), (10, 2, None), (20, 3, 1020.0)):
        clock.now = 1000.0 + moment
        mine._keep()
        assert len(mine._client.asked) == asked
        lease = mine._folder() / LEASE
        assert lease.exists() is (renewed is not None)
    assert float(lease.read_bytes()) == 1020.0 + 0.85 * 100.0


def test_what_could_not_be_told_is_told_again(held, clock):
    mine = held(AWAY, {"written": 1, "cancel": True})
    mine._told.note("something")
    mine._keep()
    clock.now += 1.9
    mine._keep()
    assert len(mine._client.asked) == 1
    clock.now += 0.1
    mine._keep()
    assert [value["events"][0]["count"] for _, value, _ in mine._client.asked] == [1, 1]
    assert (mine._cancelled, mine._told.unsent()) == (True, [])


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, LeaseGoneError), (409, LeaseGoneError), (401, ShutOutError), (403, ShutOutError), (400, HubAwayError)],
)
def test_what_a_refusal_of_the_hub_means(held, status, error):
    with pytest.raises(error):
        held(HubRefusalError(status, "No."))._post("x", {})


def test_a_cancelled_job_ends_where_it_is_unless_a_runner_has_it(held):
    mine = held({"cancel": True})
    with pytest.raises(CancelledError):
        mine._go_on()
    begun = held({"cancel": True}, round=1)
    begun._folder().mkdir(parents=True)
    (begun._folder() / "job.json").write_text("{}")
    begun._go_on()
    assert begun._cancelled
    begun.stopping = True
    with pytest.raises(StoppingError):
        begun._keep()


def test_a_result_is_brought_until_it_is_heard_with_longer_pauses_up_to_half_a_minute(held, clock):
    mine = held(*[AWAY] * 10, {})
    mine._post_until_heard("result", {"a": 1})
    assert clock.slept == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    assert {timeout_s for _, _, timeout_s in mine._client.asked} == {300.0}
    stopped = held(AWAY)
    stopped.stopping = True
    with pytest.raises(StoppingError):
        stopped._post_until_heard("result", {})


def test_what_is_still_to_be_told_goes_before_the_result(held):
    mine = held({"written": 1, "cancel": False}, {})
    mine._told.note("last words")
    mine._not_before = float("inf")
    mine._bring_back(a_result(JOB))
    assert mine._client.paths == ["events", "result"]
    assert "reference" not in mine._client.asked[1][1]
    measured = held(before_s=2.0, after_s=2.2, waited_s=7.0)
    measured._bring_back(a_result(JOB))
    assert measured._client.asked[-1][1]["reference"] == {
        "before_s": 2.0, "after_s": 2.2, "moved": True, "waited_s": 7.0,
    }  # fmt: skip


# Fetching and running


def test_a_file_is_fetched_again_after_longer_pauses_and_three_times_if_it_arrives_damaged(held, clock, monkeypatch):
    answers = iter([AWAY] * 7 + [FormatError("damaged"), AWAY, FormatError("damaged"), None])

    def fetch(*_given):
        answer = next(answers)
        if answer is not None:
            raise answer

    monkeypatch.setattr(holding, "fetch", fetch)
    mine = held({"cancel": False, "damaged": False, "written": 99})
    waited = []
    mine._wait = waited.append
    mine._bring_file(None, JOB.files[0])
    assert waited == [0.5, 1, 2, 4, 8, 15, 15, 15]
    assert [path for path in mine._client.paths if path == "damaged"] == ["damaged"] * 2
    assert [line["event"]["text"] for line in mine._told._lines] == [
        "net.onnx arrived damaged, 1 of 3 times.", "net.onnx arrived damaged, 2 of 3 times.",
    ]  # fmt: skip
    damaged = held({"cancel": False, "damaged": True})
    with pytest.raises(LeaseGoneError, match=r"no good copy of net\.onnx"):
        damaged._complain(JOB.files[0])


def test_a_file_that_was_made_is_sent_again_after_longer_pauses_unless_the_hub_has_no_room(held, monkeypatch):
    answers, sent = [], []

    def upload(_client, path, *_given):
        sent.append(path.name)
        if (answer := answers.pop(0)) is not None:
            raise answer

    monkeypatch.setattr(holding, "upload", upload)
    files = tuple(replace(JOB.files[0], path=name) for name in ("a.onnx", "b.onnx"))
    result, mine, waited = replace(a_result(JOB), made=files), held(round=1), []
    mine._wait = waited.append
    answers[:] = [*[AWAY] * 7, None, AWAY, None]
    assert mine._send_made(result) == result
    assert waited == [0.5, 1, 2, 4, 8, 15, 15, 0.5], "and for each file anew"
    answers[:] = [None, HubRefusalError(413, "It is full.")]
    kept = mine._send_made(result)
    assert (kept.made, kept.log) == ((), "b.onnx was not kept: It is full.\n")
    assert sent[-2:] == ["a.onnx", "b.onnx"]
    answers[:] = [HubRefusalError(404, "It is gone.")]
    with pytest.raises(LeaseGoneError, match="gone"):
        mine._send_made(result)


def test_waiting_goes_in_small_steps_with_signs_of_life(held, clock):
    mine = held(ALIVE)
    mine._wait(1.0)
    assert clock.slept == pytest.approx([0.2] * 5, abs=1e-9)
    assert mine._client.paths == ["beat"]
    clock.slept.clear()
    mine._wait(0.1)
    assert clock.slept == [0.1]


@pytest.mark.parametrize(("limit_s", "longest_s"), [(None, float("inf")), (100.0, 260.0)])
def test_a_runner_has_twice_its_limit_and_a_minute(held, limit_s, longest_s):
    assert held(job=replace(JOB, seconds_at_most=limit_s))._longest_s() == longest_s


@pytest.mark.parametrize(
    ("more", "cancelled", "ended", "again"),
    [
        ({}, False, "done", True),
        ({"after_s": 1.049}, False, "done", False),
        ({"after_s": 0.94}, False, "done", True),
        ({"repeated": True}, False, "done", False),
        ({"before_s": None}, False, "done", False),
        ({"after_s": None}, False, "done", False),
        ({}, True, "done", False),
        ({}, False, "failed", False),
    ],
)
def test_a_job_is_measured_once_more_if_its_device_changed_meanwhile(held, *, more, cancelled, ended, again):
    mine = held(round=1, **{"before_s": 1.0, "after_s": 1.06, **more})
    mine._cancelled = cancelled
    mine._folder().mkdir(parents=True)
    assert mine._again(a_result(JOB, ended=ended)) is again
    assert mine._folder().exists() is not again
    if again:
        assert (mine.held.repeated, mine.held.before_s, mine.held.after_s) == (True, None, None)
        assert "once more" in mine._told._lines[0]["event"]["text"]


def test_a_runner_is_gone_if_it_is_gone_at_three_looks_in_a_row(held, clock, monkeypatch):
    mine = held(ALIVE, round=1)
    mine._folder().mkdir(parents=True)
    (mine._folder() / "job.json").write_text("{}")
    alive = iter([True, False, False, True, False, False, False])
    monkeypatch.setattr(holding.FolderHere, "alive", lambda _folder: next(alive))
    result = mine._measured()
    assert (result.ended, len(clock.slept)) == ("lost", 6)
    assert next(alive, None) is None


def test_the_reference_is_run_again_only_after_a_whole_result_and_once(held, monkeypatch):
    for before_s, after_s, ended, wanted in (
        (1.0, None, "done", 7.0), (1.0, 3.0, "done", 3.0), (None, None, "done", None), (1.0, None, "failed", None),
    ):  # fmt: skip
        mine = held(ALIVE, round=1, before_s=before_s, after_s=after_s)
        monkeypatch.setattr(mine, "_reference", lambda: 7.0)
        mine._folder().mkdir(parents=True, exist_ok=True)
        (mine._folder() / "job.json").write_text("{}")
        (mine._folder() / "result.json").write_bytes(encode(a_result(JOB, ended=ended)))
        mine._measured()
        assert mine.held.after_s == wanted


def test_an_agent_that_comes_back_finds_what_it_had_at_every_step(held, tmp_path):
    mine = held(round=2, waited_s=1.5, before_s=0.5, repeated=True)
    mine._save(giving_back="why", fault=True)
    found = Holding.found(mine._client, "pi", tmp_path / "root", tmp_path / "state", mine._seams)
    assert encode(found.job) == encode(mine.job)
    assert replace(found.held, job={}) == replace(mine.held, job={})
    assert (found.held.giving_back, found.held.fault, found.held.round) == ("why", True, 2)
    mine._folder(1).mkdir(parents=True), mine._folder(2).mkdir()
    mine._clear()
    assert list((tmp_path / "root" / "jobs").iterdir()) == []
    assert Holding.found(mine._client, "pi", tmp_path / "root", tmp_path / "state", mine._seams) is None


def test_a_runner_gets_twenty_seconds_to_stop_before_it_is_killed(held, clock, monkeypatch):
    killed = []
    monkeypatch.setattr(holding.device_side, "is_alive", lambda _folder: True)
    monkeypatch.setattr(Holding, "_kill_runner", lambda _holding: killed.append(clock.now))
    mine = held(round=1)
    mine._stop_runner()
    assert killed == []  # there is none
    mine._folder().mkdir(parents=True)
    mine._stop_runner()
    assert killed == [pytest.approx(1000.0 + 20.0)]
    assert (mine._folder() / "cancel").exists()
    mine._stop_runner(at_once=True)
    assert len(killed) == 2
    assert len(clock.slept) == 100


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "no room"), "Its disk is full: no room."),
        (OSError(errno.EDQUOT, "quota"), "Its disk is full: quota."),
        (OSError(errno.EIO, "broken"), "Its disk cannot be used: broken."),
        (OSError("odd"), "Its disk cannot be used: odd."),
    ],
)
def test_what_is_wrong_with_a_disk(error, said):
    assert holding._disk_words(error) == said


# What is told


def test_of_one_stage_a_second_is_told_its_end_always_and_its_final_state_never(tmp_path):
    log = ToldLog(tmp_path / "told.jsonl", "mine")
    for number, (at, stage, share) in enumerate(
        [(5.0, "a", 0.1), (5.9, "a", 0.2), (6.0, "a", 0.3), (6.1, "b", 0.1), (6.2, "b", 1.0), (6.3, "b", None)], start=1
    ):
        log.add(1, event(number=number, at=at, stage=stage, share=share))
    log.add(1, event("state", number=7, state="done"))
    log.add(2, event("state", number=1, state="running"))
    told = [(line["round"], line["number"]) for line in log._lines]
    assert told == [(1, 1), (1, 3), (1, 4), (1, 5), (2, 1)]
    assert (log.heard(1), log.heard(2), log.heard(3)) == (5, 1, 0)
    assert {line["event"]["job"] for line in log._lines} == {"mine"}


def test_an_agent_that_comes_back_reads_what_was_told_but_for_half_a_line(tmp_path):
    path = tmp_path / "told.jsonl"
    first = ToldLog(path, "j", now=lambda: 3.0)
    for text in ("a", "b", "c"):
        first.note(text)
    with path.open("ab") as file:
        file.write(b'{"round": 0, "numb')
    again = ToldLog(path, "j")
    assert [line["event"]["text"] for line in again.unsent()] == ["a", "b", "c"]
    again.sent = 2
    assert [(line["count"], line["event"]["text"]) for line in again.unsent()] == [(3, "c")]
    assert again.unsent()[0]["event"]["at"] == 3.0


def test_so_many_are_told_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.hub.places.following._MOST", 2)
    log = ToldLog(tmp_path / "told.jsonl", "j")
    for text in "abc":
        log.note(text)
    assert [line["count"] for line in log.unsent()] == [1, 2]
    log.sent = 2
    assert [line["count"] for line in log.unsent()] == [3]


def test_events_are_read_once_as_they_are_written_and_half_a_line_is_waited_for(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = EventTail(path, after=1)
    assert tail.read() == []
    lines = [encode(event(number=number)) + b"\n" for number in (1, 2, 3)]
    path.write_bytes(lines[0] + lines[1] + lines[2][:10])
    assert [found.number for found in tail.read()] == [2]
    with path.open("ab") as file:
        file.write(lines[2][10:] + b"cut off\n" + encode(event(number=4)) + b"\n")
    assert [found.number for found in tail.read()] == [3, 4]
    assert tail.read() == []


def test_progress_of_a_stage_is_written_a_quarter_of_a_second_apart(tmp_path):
    now = [1000.0]
    log = EventLog(tmp_path / "events.jsonl", "j", now=lambda: now[0])
    for at, share in ((10.0, -1.0), (10.24, 0.5), (10.25, 0.5), (10.3, 0.5)):
        now[0] = at
        log.progress(LoopProgress(stage="a", done=1, share=share))
    written = [decode(line, JobEvent) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    assert [(found.number, found.at, found.share) for found in written] == [(1, 10.0, 0.0), (2, 10.25, 0.5)]


@pytest.mark.parametrize(
    ("begun", "lease", "now", "interrupted"),
    [
        (True, None, 104.9, None), (True, None, 105.0, (True, False)), (False, None, 200.0, None),
        (False, "150.0", 150.0, None), (False, "150.0", 150.1, (False, True)), (True, "150.0", 151.0, (True, True)),
        (False, "nonsense", 1e9, None),
    ],
)  # fmt: skip
def test_a_job_is_interrupted_at_its_limit_and_after_its_lease(
    tmp_path, monkeypatch, *, begun, lease, now, interrupted
):
    clock, calls = [100.0], []
    monkeypatch.setattr(runner._thread, "interrupt_main", lambda: calls.append("interrupted"))
    watch = _Watch(tmp_path / "cancel", 5.0, clock=lambda: clock[0])
    if begun:
        watch.begin()
    if lease is not None:
        (tmp_path / LEASE).write_text(lease)
    clock[0], looks = now, iter([False, True])
    watch._over.wait = lambda _seconds: next(looks)
    watch._look()
    assert calls == ([] if interrupted is None else ["interrupted"])
    assert (watch.overdue, watch.expired) == (interrupted or (False, False))


def test_nothing_is_interrupted_after_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(runner._thread, "interrupt_main", lambda: pytest.fail("it was"))
    (tmp_path / "cancel").touch()
    watch = _Watch(tmp_path / "cancel", None)
    watch.end()
    watch._over.wait = lambda _seconds: False
    watch._look()


@pytest.mark.parametrize(
    ("expired", "overdue", "ended", "found", "state"),
    [
        (True, True, "stopped", "lost", "inconclusive"), (True, False, "done", "done", "done"),
        (False, True, "stopped", "hung", "failed"), (False, True, "done", "done", "done"),
        (False, False, "stopped", "stopped", "cancelled"),
    ],
)  # fmt: skip
def test_how_an_interrupted_job_ended(tmp_path, monkeypatch, *, expired, overdue, ended, found, state):
    folder = tmp_path / "jobs" / "j"
    folder.mkdir(parents=True)
    job = replace(JOB, seconds_at_most=5.0)
    (folder / "job.json").write_bytes(encode(job))

    def work(job, _files, _progress, _into):
        return a_result(job, network(), ended=ended)

    class Watch(_Watch):
        def start(self):
            self.overdue, self.expired = overdue, expired

    monkeypatch.setattr(runner, "carry_out", work)
    monkeypatch.setattr(runner, "_Watch", Watch)
    result = runner.run_folder(folder)
    assert (result.ended, result.state) == (found, state)
    assert len(result.profiles) == (0 if found == "lost" else 1)  # what was measured is kept
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    assert [decode(line, JobEvent).state for line in lines] == ["running", state]
    assert result.started <= result.finished


# The machine


def test_the_reference_is_the_median_of_its_rounds_but_for_the_first_two(monkeypatch):
    def timed(*times, seconds):
        now, left = [0.0], iter(times)

        def clock():
            now[0] += next(left, 0.0)
            return now[0]

        return measure_reference(seconds=seconds, clock=clock)

    monkeypatch.setattr(reference, "_SIDE", 1)
    monkeypatch.setattr(reference, "_COPY_BYTES", 8)
    monkeypatch.setattr(reference, "_LEAST", 5)
    # began, then start and end of each round; the condition looks at the clock only once there are five.
    assert timed(0, 0, 100, 0, 100, 0, 1, 0, 2, 0, 6, seconds=0.0) == 2
    assert timed(0, 0, 9, 0, 9, 0, 1, 0, 1, 0, 1, 0, 0, 4, 0, 0, 4, 0, 0, 4, seconds=30.0) == 2.5


def test_a_round_of_the_reference_is_four_products_and_a_copy(monkeypatch):
    asked = []

    class Factor:
        def __matmul__(self, other):
            asked.append(("product", other is self))

    chance = SimpleNamespace(random=lambda shape, **_how: asked.append(shape) or Factor())
    monkeypatch.setattr("numpy.random.default_rng", lambda seed: asked.append(seed) or chance)
    monkeypatch.setattr("numpy.copyto", lambda to, what: asked.append(("copy", to.nbytes, what.nbytes)))
    measure_reference(seconds=0.0, clock=lambda: 0.0)
    rounds = [*[("product", True)] * 4, ("copy", 16_000_000, 16_000_000)]
    assert asked == [0, (320, 320), *rounds * 15]


@pytest.mark.parametrize(("after_s", "is_moved"), [(2.099, False), (2.101, True), (1.901, False), (1.899, True)])
def test_a_reference_that_differs_by_more_than_a_twentieth_has_moved(after_s, is_moved):
    assert moved(2.0, after_s) is is_moved


def test_waiting_for_a_quiet_device_looks_every_three_seconds_and_for_a_minute(clock):
    def guard(*codes):
        looks = iter(codes)

        def before():
            code = next(looks, codes[-1])
            return SimpleNamespace(disturbances=[SimpleNamespace(code=code, found="hot")] if code else [])

        return SimpleNamespace(before=before)

    def waited(*codes, **more):
        clock.slept.clear()
        told = []
        return cool_down(guard(*codes), told.append, clock=clock, sleep=clock.sleep, **more), clock.slept, told

    assert waited(None) == (0.0, [], [])
    assert waited("battery") == (0.0, [], [])  # waiting does not charge it
    assert waited("cpu-busy", "temperature-high", None) == (
        6.0,
        [3.0, 3.0],
        ["Waiting until the device is quiet: hot."],
    )
    seconds, slept, told = waited("cpu-hog")
    assert (seconds, len(slept), len(told)) == (60.0, 20, 2)
    assert waited("cpu-busy", most_s=5.9)[0] == 6.0


def test_labels_are_given_by_name_and_value():
    assert facts.parse_labels(["unit=npu", "a=b=c", "unit=gpu"]) == {"unit": ["npu", "gpu"], "a": ["b=c"]}
    for wrong in ("unit", "=x", "unit=", ""):
        with pytest.raises(DomainError, match="--label"):
            facts.parse_labels([wrong])


@pytest.mark.parametrize(
    ("called", "name"), [("My Pi (2)", "My-Pi--2"), ("..", "device"), ("a/b", "a-b"), ("pi.home", "pi.home")]
)
def test_a_device_is_called_as_its_machine_if_that_can_be_in_an_address(monkeypatch, called, name):
    monkeypatch.setattr(
        "inferometer.known.machine.detect.identity.this_machine", lambda: SimpleNamespace(called=called)
    )
    assert facts.device_name(None) == name
    assert facts.device_name("x y") == "x y"


def test_an_agent_tells_of_what_its_machine_has(monkeypatch):
    machine = SimpleNamespace(gpus=("g",), accelerators=(), architecture="x86 64", system="Debian GNU/Linux 12")
    records = [
        {"name": "b", "state": "ready", "version": "1"},
        {"name": "a", "state": "ready"},
        {"name": "c", "state": "missing"},
    ]
    monkeypatch.setattr("inferometer.known.machine.detect.identity.this_machine", lambda: machine)
    monkeypatch.setattr("inferometer.engines.listing.runtime_records", lambda _listed: (records, None))
    monkeypatch.setattr("inferometer.hub.box.found.means_here", lambda: Means(system="darwin"))
    monkeypatch.setattr(facts.msgspec, "to_builtins", lambda _value: {"cpu": "x"})
    monkeypatch.setattr(facts, "_figures", lambda: None)
    monkeypatch.setattr(facts, "_calibrations", list)
    monkeypatch.setattr(facts.sys, "platform", "linux")
    said = facts.registration("pi", {"unit": ("npu",), "room": ("a",)})
    assert said["labels"] == {
        "unit": ["npu"], "runtime": ["a", "b"], "arch": ["x86-64"], "os": ["linux", "debian"], "room": ["a"],
    }  # fmt: skip
    assert (said["facts"]["runtimes"], said["name"]) == ({"b": "1", "a": None}, "pi")
    machine.gpus, machine.accelerators, machine.architecture, machine.system = (), ("n",), "", ""
    assert facts.registration("pi", {})["labels"] == {"unit": ["cpu", "npu"], "runtime": ["a", "b"], "os": ["linux"]}


def test_calibrations_are_sent_along_the_newest_first_as_far_as_there_is_room(monkeypatch, tmp_path):
    made = []
    for number, size in enumerate((40, 70, 60, 40)):
        path = tmp_path / f"{number}.json"
        path.write_bytes(b"x" * size)
        os.utime(path, (number, number))
        made.append(path)

    def read(path):
        if path.name == "1.json":
            raise DomainError("It is damaged.")
        return SimpleNamespace(content_hash=path.stem, device="d", runtime="r", dtype="f32", created="c")

    monkeypatch.setattr("inferometer.predict.basis.files.files_in", lambda _folders: made)
    monkeypatch.setattr("inferometer.predict.basis.files.own_folder", lambda: tmp_path)
    monkeypatch.setattr("inferometer.predict.basis.files.read_calibration", read)
    monkeypatch.setattr(facts, "document", lambda calibration: calibration.content_hash)
    monkeypatch.setattr(facts, "_CALIBRATIONS_BYTES", 80)
    assert [(told["sha256"], told["document"]) for told in facts._calibrations()] == [
        ("3", "3"),
        ("2", None),
        ("0", "0"),
    ]


@pytest.mark.parametrize(("error", "ended"), [(EngineError("x"), "failed"), (DomainError("x", remedy="y"), "refused")])
def test_what_an_engine_did_not_manage_failed_and_the_rest_was_refused(error, ended):
    found = failed(JOB, error)
    assert (found.ended, found.error, found.remedy, found.error_kind) == (
        ended,
        "x",
        error.remedy,
        type(error).__name__,
    )


def test_a_job_without_enough_memory_is_too_big(tmp_path, monkeypatch):
    def too_much(*_given):
        raise MemoryError

    monkeypatch.setattr("inferometer.hub.agent.carrying_out.require_known", too_much)
    found = carry_out(JOB, tmp_path, lambda _step: None)
    assert (found.ended, found.error_kind) == ("too-big", "EngineError")


# The agent itself


def an_agent(tmp_path, clock, *answers, jobs=None, **seams):
    chosen = Seams(**{"reference": None, "sleep": clock.sleep, "clock": clock, **seams})
    said = []
    plan = AgentPlan(name="pi", root=tmp_path, jobs=jobs, poll_s=25.0, labels={"a": ["b"]})
    made = HubAgent(
        Hub(*answers), plan, say=said.append, seams=chosen, facts=lambda name, labels: {"n": name, "l": labels}
    )
    made.said = said
    return made


REGISTERED = {"name": "pi", "state": "ready"}
NOTHING = {"job": None}


def test_an_agent_says_who_it_is_and_waits_longer_for_a_hub_that_is_away(tmp_path, clock):
    agent = an_agent(tmp_path, clock, *[AWAY] * 8, {"name": "pi", "state": "maintenance"})
    agent._register(first=True)
    pauses = [float(words.split()[-2]) for words in agent.said[:8]]
    assert pauses == [0.5, 1, 2, 5, 10, 30, 30, 30]
    assert sum(pauses) <= sum(clock.slept) < sum(pauses) + 8 * 0.2
    assert agent._client.asked[-1][0] == "register"
    said = agent._client.asked[-1][1]
    assert (said["n"], said["l"], said["probes"]) == ("pi", {"a": ["b"]}, False)
    assert agent.said[-2:] == [
        "pi takes jobs from http://hub. Stop it with Ctrl-C.",
        "It gets none at the moment: the hub has it in maintenance.",
    ]
    probing = an_agent(tmp_path, clock, REGISTERED, reference=lambda: 1.0)
    probing._register()
    assert (probing._client.asked[0][1]["probes"], probing.said) == (True, [])


def test_a_hub_that_refuses_the_first_time_is_an_error_and_later_waited_for(tmp_path, clock):
    with pytest.raises(HubRefusalError):
        an_agent(tmp_path, clock, HubRefusalError(400, "No."))._register(first=True)
    later = an_agent(tmp_path, clock, HubRefusalError(400, "No."), REGISTERED)
    later._register()
    assert clock.slept == [0.2] * 3
    with pytest.raises(ShutOutError):
        an_agent(tmp_path, clock, HubRefusalError(401, "No."))._register()


def test_an_agent_registers_again_after_ten_minutes_and_when_it_was_forgotten_or_the_hub_was_away(tmp_path, clock):
    agent = an_agent(tmp_path, clock, REGISTERED, NOTHING)
    polls = iter([0.0, 600.0, 0.1, 0.1])
    inner = agent._next

    def step():
        clock.now += next(polls)
        found = inner()
        if len(agent._client.asked) >= 6:
            agent.stop()
        return found

    agent._next = step
    assert agent.run() == 0
    assert agent._client.paths == ["register", "poll", "poll", "poll", "register", "poll"]
    assert agent._client.asked[1] == ("poll", {"device": "pi", "wait_s": 25.0}, 55.0)
    for answer in (HubRefusalError(404, "Who?"), AWAY):
        forgotten = an_agent(tmp_path, clock, answer, REGISTERED)
        assert forgotten._next() is None
        assert forgotten._client.paths == ["poll", "register"]
    for status, error in ((403, ShutOutError), (409, HubRefusalError)):
        with pytest.raises(error):
            an_agent(tmp_path, clock, HubRefusalError(status, "No."))._next()


def test_an_agent_ends_after_as_many_jobs_as_it_should_take(tmp_path, clock):
    lease = {"id": "i", "lease": "l", "lease_s": 60.0, "job": document(JOB)}
    agent = an_agent(tmp_path, clock, REGISTERED, NOTHING, lease, jobs=2)
    carried = []
    agent._carry_out = lambda holding_: carried.append((holding_.held.id, holding_.held.lease, holding_.held.lease_s))
    assert agent.run() == 2
    assert carried == [("i", "l", 60.0)] * 2


@pytest.mark.parametrize(
    ("reference_s", "answers", "sent", "said"),
    [
        (2.5, [{"state": "ready", "reason": None}], 2.5, 1),
        (None, [{"state": "quarantined", "reason": "Look."}], None, 2),
        (OSError("broken"), [{"state": "ready", "reason": None}], None, 1),
        (1.0, [AWAY], 1.0, 2),
    ],
)
def test_a_probe_tells_how_long_the_reference_took_or_that_it_could_not(
    tmp_path, clock, *, reference_s, answers, sent, said
):
    def reference_():
        if isinstance(reference_s, Exception):
            raise reference_s
        return reference_s

    agent = an_agent(tmp_path, clock, *answers, reference=None if reference_s is None else reference_)
    agent._probe()
    assert agent._client.asked == [("probe", {"device": "pi", "reference_s": sent}, None)]
    assert len(agent.said) == said
    assert clock.slept == ([0.2] * 3 if answers == [AWAY] else [])


def test_an_agent_that_is_stopped_gives_its_job_back_and_one_that_ended_keeps_its_files(tmp_path, clock, monkeypatch):
    collected = []
    monkeypatch.setattr(serving_hub, "collect_garbage", lambda root, **kept: collected.append((root, kept)))

    def a_holding(carry_out_):
        return SimpleNamespace(
            held=SimpleNamespace(id="i"), job=JOB, stopping=False, carry_out=carry_out_, give_back=lambda: "given back"
        )

    def stopped():
        raise StoppingError("Stopped.")

    agent = an_agent(tmp_path, clock, NOTHING)
    agent._carry_out(a_holding(lambda: "done"))
    agent._carry_out(a_holding(stopped))
    assert agent.said == ["Job i: profile net", "Job i: done.", "Job i: profile net", "Job i: given back."]
    assert collected[0] == (
        str(tmp_path), {"older_s": 30 * 86_400.0, "quota_bytes": 50_000_000_000, "keep": [JOB.files[0].sha256]},
    )  # fmt: skip
    agent.stop()
    last = a_holding(lambda: "done")
    agent._carry_out(last)
    assert last.stopping
    with pytest.raises(StoppingError):
        agent._pause(1.0)


# The warden


LIMITS = JobLimits(
    memory_bytes=1000, memory_said="1 kB", floor_bytes=100, disk_bytes=5000, disk_said="5 kB", processes=3, seconds=60.0
)


@pytest.mark.parametrize(("own_s", "job_s", "seconds"), [(100.0, None, 100.0), (100.0, 30.0, 30.0), (20.0, 30.0, 20.0)])
def test_what_a_job_may_use_up(own_s, job_s, seconds):
    order = BoxOrder(memory=Ceiling(share=0.8), disk=Ceiling(amount=700), processes=9, seconds=own_s)
    found = limits_for(order, replace(JOB, seconds_at_most=job_s), memory_free=10_000, disk_free=99)
    assert (found.memory_bytes, found.floor_bytes, found.disk_bytes) == (8000, 500, 700)  # a quarter of what is left
    assert (found.processes, found.seconds, found.disk_said) == (9, seconds, "700 B")
    more = limits_for(BoxOrder(memory=Ceiling(amount=20_000)), JOB, memory_free=10_000, disk_free=1)
    assert more.floor_bytes == 0


RAN_OUT = "The memory of the device ran out while it ran: 99 B were left."


@pytest.fixture
def a_warden(tmp_path, clock):
    def made(memory="watch", **means):
        folder = tmp_path / "jobs" / "j"
        (folder / "own").mkdir(parents=True, exist_ok=True)
        return Warden(folder, JOB, BoxOrder(), Means(memory=memory, **means), clock=clock)

    return made


@pytest.mark.parametrize(
    ("spent_s", "ended"), [(90.0, None), (90.1, ("hung", "It was not done after 60 s, and was stopped."))]
)
def test_a_job_gets_half_a_minute_more_than_its_time(a_warden, monkeypatch, spent_s, ended):
    mine = a_warden()
    monkeypatch.setattr(warden, "available_bytes", lambda: 10**9)
    monkeypatch.setattr(warden.process, "descendants", lambda _pid: [])
    found = mine._broken(LIMITS, spent_s)
    assert (found and (found.ended, found.error)) == ended


@pytest.mark.parametrize(("how", "ended"), [("cancel", "stopped"), ("lease", "lost"), ("signal", "stopped")])
def test_one_that_does_not_stop_by_itself_is_ended_half_a_minute_later(a_warden, clock, monkeypatch, how, ended):
    mine = a_warden()
    monkeypatch.setattr(warden, "available_bytes", lambda: 10**9)
    monkeypatch.setattr(warden.process, "descendants", lambda _pid: [])
    assert mine._broken(LIMITS, 0.0) is None
    if how == "cancel":
        (mine._folder / "cancel").touch()
    elif how == "lease":
        (mine._folder / LEASE).write_text("0")
    else:
        mine.ask()
        mine.ask()
    for later_s, found in ((0.0, None), (30.0, None), (0.1, ended)):
        clock.now += later_s
        verdict = mine._broken(LIMITS, 0.0)
        assert (verdict and verdict.ended) == found


@pytest.mark.parametrize(
    ("memory", "held", "left", "ended"),
    [
        ("watch", (500, 500), 100, None), ("watch", (500, 501), 100, "It asked for more than 1 kB."),
        ("watch", (0,), 99, RAN_OUT), ("watch", (0,), None, None),
        ("systemd", (5000,), 100, None), ("systemd", (0,), 99, RAN_OUT),
        ("cgroup", (5000,), 0, None),
    ],
)  # fmt: skip
def test_a_job_that_holds_too_much_is_too_big(a_warden, monkeypatch, *, memory, held, left, ended):
    monkeypatch.setattr(warden, "available_bytes", lambda: left)
    monkeypatch.setattr(warden.process, "descendants", lambda _pid: list(held))
    monkeypatch.setattr(warden.process, "held_bytes", lambda pid: pid)
    found = a_warden(memory)._over_memory(LIMITS)
    assert (found and found.error) == ended
    assert found is None or found.ended == "too-big"


def test_who_is_there_is_looked_at_four_times_a_second_and_the_disk_once(a_warden, clock):
    mine = a_warden()
    due = []
    for step in range(9):
        clock.now = 1000.0 + step / 8
        due.append((mine._due("family", 0.25), mine._due("disk", 1.0)))
    assert [family for family, _ in due] == [True, False] * 4 + [True]
    assert [disk for _, disk in due] == [True, *[False] * 7, True]


@pytest.mark.parametrize(
    ("memory", "family", "group", "ended"),
    [
        ("watch", 3, None, False), ("watch", 4, None, True), ("cgroup", 9, False, False), ("cgroup", 0, True, True),
        ("systemd", 9, None, False),
    ],
)  # fmt: skip
def test_too_many_processes_are_a_failure(a_warden, *, memory, family, group, ended):
    mine = a_warden(memory)
    mine._family = list(range(family))
    mine._group = None if group is None else SimpleNamespace(ran_out_of_processes=lambda: group)
    found = mine._over_processes(LIMITS)
    assert (found is not None) is ended
    assert found is None or (found.ended, found.error) == ("failed", "It started more than 3 processes and threads.")


def test_what_it_writes_counts_with_what_it_says(a_warden, clock, monkeypatch):
    mine = a_warden()
    monkeypatch.setattr(warden, "_written", lambda _folder, _most: 4000)
    (mine._folder / "runner.log").write_bytes(b"x" * 1000)
    assert mine._over_disk(LIMITS) is None
    with (mine._folder / "runner.log").open("ab") as file:
        file.write(b"x")
    assert mine._over_disk(LIMITS) is None  # it is not looked at again yet
    clock.now += 1.0
    found = mine._over_disk(LIMITS)
    assert (found.ended, found.error) == ("too-big", "It wrote more than 5 kB.")


def test_bytes_on_the_disk_are_counted_up_to_the_limit(tmp_path, monkeypatch):
    assert warden._written(tmp_path, 10**9) == 0
    (tmp_path / "a").write_bytes(b"x" * 10_000)
    first = warden._written(tmp_path, 10**9)
    assert first >= 10_000 // 2
    assert warden._written(tmp_path, 1) >= 2
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert warden._written(tmp_path, 10**9) - first <= 8192
    monkeypatch.setattr(warden, "_FILES", 1)
    assert warden._written(tmp_path, 10**9) == 10**9 + 1


def test_events_of_a_box_are_read_line_by_line_and_not_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(warden, "_EVENTS", 3)
    path = tmp_path / "events.jsonl"
    events = warden._BoxEvents(path)
    lines = [encode(event(number=number)) + b"\n" for number in range(1, 6)]
    path.write_bytes(lines[0] + b"nonsense\n" + lines[1][:5])
    assert [found.number for found in events.read()] == [1]
    path.write_bytes(path.read_bytes() + lines[1][5:] + lines[2])
    assert [found.number for found in events.read()] == [2, 3]
    path.write_bytes(path.read_bytes() + lines[3])
    assert events.read() == []
    monkeypatch.setattr(warden, "_EVENT_BYTES", 300)
    endless = warden._BoxEvents(tmp_path / "other")
    (tmp_path / "other").write_bytes(b"x" * 300)  # a line that is longer than any of ours is skipped
    assert endless.read() == []
    (tmp_path / "other").write_bytes(b"x" * 300 + b"y\n" + lines[0])
    assert [found.number for found in endless.read()] == [1]


def test_only_a_plain_file_is_read_and_no_more_than_asked(tmp_path):
    (tmp_path / "plain").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")
    assert warden._read_plain(tmp_path / "plain", 4) == b"0123"
    assert warden._read_plain(tmp_path / "plain", 4, 8) == b"89"
    for name in ("link", "pipe", "nothing"):
        assert warden._read_plain(tmp_path / name, 4) == b""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (3, "ended with exit code 3"),
        (0, "ended with exit code 0"),
        (-9, "was ended by SIGKILL"),
        (-99, "was ended by 99"),
    ],
)
def test_how_a_process_ended(code, said):
    assert warden._how(code) == said


def brought(mine, result):
    (mine._own / "result.json").write_bytes(encode(result))


def test_a_result_is_what_the_box_left_with_what_held_it(a_warden):
    mine = a_warden(landlock=4, seccomp=True)
    brought(mine, replace(a_result(Job(id="other", verb="calibrate"), network())))
    found = mine._result(0, None, LIMITS)
    assert (found.ended, found.job) == ("done", JOB)
    assert found.profiles[0].environment.host["box"] == "Landlock 4 and seccomp, memory by watching"
    (mine._own / "result.json").write_bytes(b"{}")
    (mine._folder / "runner.log").write_bytes(b"y" * 7 + b"x" * 64_000)
    crashed = mine._result(-9, None, LIMITS)
    assert (crashed.ended, crashed.log) == ("crashed", "x" * 64_000)
    assert crashed.error == "The process that ran the job was ended by SIGKILL and left no result."


@pytest.mark.parametrize(("free", "ended"), [(999_999, "lost"), (1_000_000, "crashed")])
def test_a_runner_that_had_no_room_for_its_result_is_no_failure_of_the_model(a_warden, monkeypatch, free, ended):
    mine = a_warden()
    monkeypatch.setattr("inferometer.hub.agent.warden.shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    found = mine._result(1, None, LIMITS)
    assert (found.ended, "disk" in found.error) == (ended, ended == "lost")
    brought(mine, a_result(JOB, network()))
    assert mine._result(0, None, LIMITS).ended == "done", "it found room"


@pytest.mark.parametrize(
    ("ended", "kind"), [("too-big", "EngineError"), ("hung", "EngineError"), ("stopped", None), ("lost", None)]
)
def test_a_verdict_goes_before_what_the_box_says_and_keeps_what_was_measured(a_warden, ended, kind):
    mine = a_warden()
    brought(mine, replace(a_result(JOB, network()), log="said"))
    found = mine._result(0, Verdict(ended=ended, error="why", remedy="what"), LIMITS)
    assert (found.ended, found.error, found.remedy, found.error_kind) == (ended, "why", "what", kind)
    assert (len(found.profiles), found.log) == (1, "said")


@pytest.mark.parametrize(
    ("group", "result", "code", "error"),
    [
        ((True, True), None, 0, "It asked for more than 1 kB."),
        ((False, True), None, 0, "It started more than 3 processes and threads."),
        ((False, False), None, -signal.SIGXFSZ, "It wrote more than 5 kB."),
        (None, replace(a_result(JOB, ended="failed"), log="OSError: File too large"), 1, "It wrote more than 5 kB."),
        (None, a_result(JOB, ended="failed"), 1, "It was failed."),
        ((True, True), a_result(JOB), 0, None),  # it was done all the same
    ],
)
def test_what_the_kernel_stopped_it_for_is_said(a_warden, *, group, result, code, error):
    mine = a_warden("cgroup")
    ends = []
    if group is not None:
        mine._group = SimpleNamespace(
            ran_out_of_memory=lambda: group[0], ran_out_of_processes=lambda: group[1], end=lambda: ends.append(1)
        )
    if result is not None:
        brought(mine, result)
    assert mine._result(code, None, LIMITS).error == error
    assert len(ends) == (group is not None)


def test_what_was_refused_is_said_of_a_job_that_failed_and_of_no_other(a_warden):
    mine = a_warden()
    mine._refused = [Refused("socket", 2).words, Refused("mount").words]
    for ended, said in (
        ("done", None),
        ("stopped", "It was stopped."),
        ("failed", "It was failed. It tried to open a network socket and to call mount, which the box refuses."),
    ):
        brought(mine, a_result(JOB, ended=ended))
        assert mine._result(0, None, LIMITS).error == said


def test_a_box_that_must_be_one_and_is_none_takes_no_job(tmp_path):
    folder = tmp_path / "jobs" / "j"
    folder.mkdir(parents=True)
    order = BoxOrder(wish="strict")
    result = Warden(folder, JOB, order, Means(system="darwin")).run()
    assert result.ended == "refused"
    kept = decode((folder / "result.json").read_bytes(), JobResult)
    assert kept.error == result.error
    events = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    assert [(each["state"], each["text"]) for each in events] == [("failed", result.error)]


@pytest.mark.parametrize(
    ("ended", "looked_at"),
    [("refused", True), ("failed", True), ("crashed", True), ("done", False), ("too-big", False), ("stopped", False)],
)
def test_a_model_that_could_not_be_read_is_looked_at_for_damage(held, ended, looked_at):
    data = b"model"
    file = JobFile(path="net.onnx", sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
    job = replace(JOB, model=JobModel(name="net", entry="net.onnx", files=(file,)))
    mine = held(ALIVE, job=job)
    place = ArtifactFolder(root=mine._root).path(file.sha256)
    assert mine._spoilt(a_result(job, ended=ended)) is None  # it is not here
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    assert mine._spoilt(a_result(job, ended=ended)) is None
    place.write_bytes(b"other")
    found = mine._spoilt(a_result(job, ended=ended))
    assert found == ("net.onnx was damaged on its disk, and is thrown away." if looked_at else None)
    assert place.exists() is not looked_at


@pytest.mark.parametrize("there", [True, False])
def test_a_result_that_is_there_needs_no_files_and_no_lease(held, monkeypatch, there):
    mine = held(HubAwayError("It is away."), round=1)
    mine._folder().mkdir(parents=True)
    if there:
        (mine._folder() / "result.json").write_bytes(b"{}")
    done = []
    monkeypatch.setattr(mine, "_bring_files", lambda: done.append("files"))
    monkeypatch.setattr(mine, "_measured", lambda: done.append("measured") or "result")
    monkeypatch.setattr(mine, "_again", lambda _result: len(done) < 3)
    assert mine._answer() == "result"
    assert done == (["measured"] * 3 if there else ["files", "measured", "measured"])
    assert mine._client.paths == ([] if there else ["beat"])
