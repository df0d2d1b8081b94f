"""Watching stored runs: steady, suspected, confirmed or withdrawn, and who hears of it."""

import json
import socket
import sqlite3
import threading
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

import inferometer as im
from inferometer.api import watching
from inferometer.api.watching import watch
from inferometer.cli.run import run as run_command
from inferometer.core.errors import DomainError, PlaceError
from inferometer.hub.telling import badge_text, tell_alarm, write_badge
from inferometer.store.recording import recording
from inferometer.store.values import Filter
from inferometer.understand.series import Alarm, AlarmRule, EnvironmentChange, Suspicion


@pytest.fixture(scope="module")
def measured():
    bench = im.bench(lambda: sum(range(1000)), plan=im.Plan(runs=5, seconds=0.0, warmup=1), guard=im.NoGuard())
    environment = replace(bench.profile.environment, disturbed=False)
    return replace(bench.profile, model=replace(bench.profile.model, name="resnet18"), environment=environment)


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "runs.db")


def keep(store, measured, times, *, tags=(), **changes):
    """Runs of one series, a time each; the id of the last."""
    for seconds in times:
        phase = replace(measured.phases[0], time_s=seconds)
        summary = replace(measured.summary, latency_s=seconds)
        with recording(store=store, kind="bench", tags=tags) as run:
            run.keep(replace(measured, phases=(phase, *measured.phases[1:]), summary=summary, **changes))
    return run.id


BEFORE = [1.0, 1.01, 0.99, 1.005, 0.995, 1.0, 1.01, 0.99]


def test_a_run_among_its_like_is_steady_and_few_runs_are_too_few(store, measured):
    keep(store, measured, BEFORE[:3])
    assert watch(store=store).state == "too few"
    keep(store, measured, BEFORE[3:])
    alarm = watch(store=store)
    assert alarm.state == "steady"
    assert len(alarm.baseline) == 7
    assert watch(store=store, rule=AlarmRule(window=5)).baseline == alarm.baseline[-5:], "the newest"
    assert "As fast as before" in alarm.sentence


def test_a_slow_run_is_suspected_with_the_machine_before_the_code_and_nobody_is_told(store, measured):
    keep(store, measured, BEFORE)
    newer = replace(measured.environment, versions={**measured.environment.versions, "numpy": "9.9"})
    keep(store, measured, [1.2], environment=newer)
    alarm = watch(store=store)
    assert (alarm.state, alarm.told) == ("suspected", False)
    assert alarm.ratio == pytest.approx(1.2, rel=0.02)
    was = measured.environment.versions.get("numpy")
    assert alarm.environment == (EnvironmentChange(name="version of numpy", before=was, after="9.9"),)
    assert "Before the code, suspect what changed on the machine: version of numpy" in alarm.sentence
    keep(store, measured, [1.2, 1.2], environment=newer)
    later = watch(store=store)
    assert "the last 3 runs are" in later.sentence
    assert later.environment == alarm.environment, "beside the last run that was not slow"


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "Slow. Nothing that is known of the machine has changed."), (1, "machine: a (1 → 2)."),
     (3, "machine: a (1 → 2), b (1 → 2), c (1 → 2)."), (5, "machine: a (1 → 2), b (1 → 2), c (1 → 2) and 2 more.")],
)  # fmt: skip
def test_the_first_three_changes_of_the_machine_are_named_and_the_others_counted(count, words):
    changes = tuple(EnvironmentChange(name=name, before="1", after="2") for name in "abcde"[:count])
    alarm = Alarm(state="suspected", run="r", series={}, sentence="", environment=changes)
    assert watching._with_suspects("Slow.", alarm).endswith(words)


@pytest.mark.parametrize(("ids", "count"), [(("7", None), 0), (("7", "8", None), 2), (("7", "8", "9"), 3)])
def test_a_name_of_several_machines_is_told_of_those_whose_identity_is_known(ids, count):
    row = SimpleNamespace(**ROW)
    named = tuple(SimpleNamespace(machine="box", machine_id=each) for each in ids)
    known = SimpleNamespace(list=lambda *_, **__: SimpleNamespace(rows=named))
    told = f"box is the name of {count} machines; only runs of 7 count."
    assert watching._notes(known, row, []) == ((told,) if count else ())


@pytest.mark.parametrize(("ratio", "state"), [(1.2, "confirmed"), (1.0, "withdrawn"), (0.8, "confirmed")])
def test_only_what_holds_in_turns_is_told(store, measured, ratio, state):
    keep(store, measured, [*BEFORE, 1.2])
    asked = []

    def measure(baseline, request):
        asked.append((baseline.model, request.model))
        phase = measured.phases[0]
        old, new = replace(phase, time_s=1.0), replace(phase, time_s=ratio)
        return replace(measured, phases=(old,)), replace(measured, phases=(new,))

    alarm = watch(store=store, baseline="resnet34", in_turns=measure)
    assert (alarm.state, alarm.told) == (state, state == "confirmed")
    assert asked == [("resnet34", "resnet18")] * 12
    assert alarm.confirmations == ({"baseline_s": 1.0, "run_s": ratio},) * 12
    assert alarm.ratio == ratio
    assert f"takes {ratio:.3f} of the baseline's time" in alarm.sentence
    assert [f": it is {way}." in alarm.sentence for way in ("slower", "faster")] == [ratio > 1, ratio < 1]


def test_a_series_is_of_one_branch_one_machine_and_one_workload(store, measured):
    keep(store, measured, [5.0] * 6, tags=("branch:main",))
    other = replace(measured.environment.machine, id="another-machine")
    keep(store, measured, [7.0] * 6, tags=("branch:fix",), environment=replace(measured.environment, machine=other))
    keep(store, measured, [*BEFORE, 1.0], tags=("branch:fix",))
    alarm = watch(store=store, branch="fix")
    assert (alarm.state, len(alarm.baseline)) == ("steady", 8)
    assert any("is the name of 2 machines" in note for note in alarm.notes)
    assert watch(store=store, branch="fix", against="main").ratio == pytest.approx(0.2)


ROW = {
    "id": "a", "kind": "bench", "model": "m", "device": "d", "runtime": "r", "machine": "box", "machine_id": "7",
    "batch": 1, "precision": "f32", "threads": 4, "workload": "w", "created": 9.0, "tpot_s": None, "latency_s": 1.0,
    "disturbed": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "other", [{"kind": "load"}, {"batch": 2}, {"precision": "f16"}, {"threads": None}, {"workload": "v"},
              {"id": "a"}, {"latency_s": None}, {"disturbed": True}], ids=str
)  # fmt: skip
def test_one_thing_that_differs_makes_a_run_one_of_another_series_or_none_to_be_held_against(other):
    row = SimpleNamespace(**ROW)
    assert watching._is_alike(SimpleNamespace(**{**ROW, "id": "b"}), row)
    assert not watching._is_alike(SimpleNamespace(**{**ROW, "id": "b", **other}), row)


def test_a_series_is_looked_up_by_what_all_its_runs_have():
    row = SimpleNamespace(**ROW)
    shared = {"model": "m", "device": "d", "runtime": "r"}
    asked = {**shared, "machine": "7", "status": ("finished",), "until": 9.0}
    assert watching._series_filter(row, "main") == Filter(**asked, tags=("branch:main",))
    assert watching._series_filter(row, None) == Filter(**asked)
    assert watching._key(row, "main") == {
        **shared, "machine": "box", "machine_id": "7", "workload": "w", "precision": "f32", "branch": "main",
    }  # fmt: skip
    times = [watching._time(SimpleNamespace(tpot_s=token, latency_s=whole)) for token, whole in
             ((0.1, 2.0), (None, 2.0), (None, None))]  # fmt: skip
    assert times == [0.1, 2.0, 0.0]


@pytest.mark.parametrize(
    ("ratio", "runs", "words"),
    [(1.25, 1, "this run is 25.0% slower than the 8 before"),
     (0.9, 3, "the last 3 runs are 10.0% faster than the 8 before")],
)  # fmt: skip
def test_how_far_the_newest_runs_are_from_those_before_is_one_sentence(ratio, runs, words):
    found = Suspicion(ratio=ratio, errors=5.0, noise=0.015, runs=runs, baseline=8, stands_out=True)
    assert watching._apart(found) == f"{words}, and runs of this series lie 1.5% apart"


def test_the_baseline_is_what_was_measured_since_the_last_change(store, measured):
    keep(store, measured, [*BEFORE, *(1.5 * time for time in BEFORE), 1.5])
    alarm = watch(store=store)
    assert alarm.state == "steady"
    assert len(alarm.change_points) == 1
    assert len(alarm.baseline) == 8


def test_a_disturbed_run_is_no_baseline_and_a_prediction_is_not_watched(store, measured):
    keep(store, measured, BEFORE)
    keep(store, measured, [9.0] * 20, environment=replace(measured.environment, disturbed=True))
    keep(store, measured, [1.0])
    assert watch(store=store).state == "steady"
    with recording(store=store, kind="predict") as run:
        run.keep(im.predict("resnet18", on="nvidia-l4"))
    with pytest.raises(DomainError, match="has no measured time"):
        watch(store=store)


def test_a_series_with_holes_is_judged_by_what_there_is_and_says_so(store, measured):
    keep(store, measured, BEFORE)
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("UPDATE runs SET created_us = created_us - ?", (30 * 86_400 * 10**6,))
    for _ in range(3):  # nights on which it failed
        with pytest.raises(RuntimeError), recording(store=store, kind="bench"):
            raise RuntimeError
    keep(store, measured, [1.2])
    alarm = watch(store=store)
    assert (alarm.state, len(alarm.baseline)) == ("suspected", 8)
    assert "The run before is 30 days older." in alarm.notes
    keep(store, measured, [1.2])
    assert not any("days older" in note for note in watch(store=store).notes)


@pytest.mark.parametrize(("days", "told"), [(13, False), (15, True)])
def test_a_fortnight_without_a_run_is_a_hole(store, measured, days, told):
    keep(store, measured, BEFORE[:1])
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("UPDATE runs SET created_us = created_us - ?", (days * 86_400 * 10**6,))
    keep(store, measured, BEFORE[1:2])
    notes = (f"The run before is {days} days older.",) if told else ()
    assert watch(store=store).notes == notes


def test_what_is_measured_in_turns_is_not_predicted(measured, monkeypatch):
    other, asked = replace(measured, runtime="other"), []

    def pair(*requests, **more):
        asked.append((requests, more))
        return SimpleNamespace(profile=measured), SimpleNamespace(profile=other)

    monkeypatch.setattr("inferometer.api.measurements.measure_pair_and_judge", pair)
    assert watching._in_turns("baseline", "request") == (measured, other)
    assert asked == [(("baseline", "request"), {"predict": False})]


def test_the_command_tags_the_run_writes_the_badge_and_ends_with_one_only_when_confirmed(
    store, measured, answered, tmp_path
):
    run = keep(store, measured, [*BEFORE, 1.2])
    done = answered("watch", "--store", store, "--badge", str(tmp_path / "b.json"), "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["state"] == "suspected"
    assert json.loads((tmp_path / "b.json").read_text())["message"] == "suspected"
    assert "alarm:suspected" in answered("runs", "show", run, "--store", store, "--format", "json").stdout
    refused = answered("watch", "--store", store, "--webhook", "https://x.example")
    assert refused.returncode == 2
    assert "Only what is confirmed is told" in refused.stderr


class Hook:
    """A webhook of this machine that answers with a status, and keeps what it was sent."""

    def __init__(self, status):
        self.got = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                hook.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                hook.path, hook.headers = self.path, dict(self.headers)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_words):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.handle_request)
        self.thread.start()
        return self

    def __exit__(self, *_error):
        self.thread.join()
        self.server.server_close()


class Dripping:
    """Answers a letter at a time, and never to the end: no single wait is long."""

    def __enter__(self):
        self.socket, self.sent, self.stopped = socket.create_server(("127.0.0.1", 0)), 0, threading.Event()
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/"
        self.thread = threading.Thread(target=self._drip)
        self.thread.start()
        return self

    def _drip(self):
        caller, _ = self.socket.accept()
        with caller, suppress(OSError):
            caller.sendall(b"HTTP/1.1 200 OK\r\nx: ")
            while not self.stopped.wait(0.02):
                caller.sendall(b"x")
                self.sent += 1

    def __exit__(self, *_error):
        self.stopped.set()
        self.thread.join()
        self.socket.close()


def test_a_webhook_gets_the_alarm_and_one_that_fails_is_told_in_a_sentence(store, measured, tmp_path):
    keep(store, measured, [*BEFORE, 1.2])
    alarm = watch(store=store)
    confirmed = replace(alarm, state="confirmed")
    with Hook(200) as hook:
        tell_alarm(hook.url, confirmed)
    assert hook.got[0]["schema"] == "inferometer.alarm/1"
    with (
        Hook(500) as hook,
        pytest.raises(PlaceError, match=r"was not told: it answered 500\. The alarm is kept") as told,
    ):
        tell_alarm(hook.url, confirmed)
    assert "secret" not in str(told.value)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(PlaceError, match="no answer within"):
        tell_alarm(f"http://127.0.0.1:{silent.getsockname()[1]}", confirmed, timeout_s=0.05)
    with pytest.raises(PlaceError, match="no place that can be told"):
        tell_alarm("file:///etc/passwd", confirmed)
    with Dripping() as slow, pytest.raises(PlaceError, match=r"no answer within 0\.2 s"):
        tell_alarm(slow.url, confirmed, timeout_s=0.2)
    assert slow.sent > 3, "each byte came in time, and the answer did not"
    tell_alarm("http://127.0.0.1:9/", alarm)  # what is only suspected is told nobody
    write_badge(replace(alarm, state="confirmed"), tmp_path / "badge.svg")
    assert "changed +20%" in (tmp_path / "badge.svg").read_text()
    assert badge_text(alarm) == "suspected"


# What the documented requests take, as recorded from GitHub's REST reference (2022-11-28) and GitLab's (v4).
FORGES = {
    "github:o/r#7": ("/repos/o/r/issues/7/comments", {"body": str}, "Authorization"),
    "github:o/r@abc123": (
        "/repos/o/r/statuses/abc123",
        {"state": {"error", "failure", "pending", "success"}, "description": 140, "context": str}, "Authorization",
    ),
    "gitlab:g/sub/p!7": ("/projects/g%2Fsub%2Fp/merge_requests/7/notes", {"body": str}, "Private-Token"),
    "gitlab:g/p@abc123": (
        "/projects/g%2Fp/statuses/abc123",
        {"state": {"pending", "running", "success", "failed", "canceled", "skipped"}, "description": 255, "name": str},
        "Private-Token",
    ),
}  # fmt: skip


def an_alarm(state="confirmed", ratio=1.2, sentence="It is slower. " * 20):
    return Alarm(state=state, run="r1", series={"model": "resnet18"}, sentence=sentence, ratio=ratio)


@pytest.mark.parametrize("place", FORGES)
def test_a_forge_gets_what_its_reference_asks_for(place, monkeypatch):
    path, schema, header = FORGES[place]
    monkeypatch.setenv("INFEROMETER_FORGE_TOKEN", "secret")
    with Hook(201) as hook:
        monkeypatch.setenv("INFEROMETER_FORGE", hook.url.removesuffix("/secret"))
        tell_alarm(place, an_alarm())
    assert hook.path == path
    assert "secret" in {name.title(): value for name, value in hook.headers.items()}[header]
    (body,) = hook.got
    assert body.keys() == schema.keys()
    for name, allowed in schema.items():
        if isinstance(allowed, set):
            assert body[name] in allowed
        elif isinstance(allowed, int):
            assert len(body[name]) <= allowed
        assert isinstance(body[name], str)


@pytest.mark.parametrize("place", [place for place in FORGES if "@" in place])
@pytest.mark.parametrize(
    ("state", "ratio", "good"), [("steady", None, True), ("confirmed", 0.8, True), ("confirmed", 1.2, False)]
)
def test_a_commit_is_marked_either_way(place, state, ratio, good, monkeypatch):
    monkeypatch.setenv("INFEROMETER_FORGE_TOKEN", "secret")
    with Hook(201) as hook:
        monkeypatch.setenv("INFEROMETER_FORGE", hook.url.removesuffix("/secret"))
        tell_alarm(place, an_alarm(state, ratio))
    assert (hook.got[0]["state"] == "success") == good


def test_without_a_token_or_a_server_of_mail_the_place_says_what_to_set(monkeypatch):
    for name in ("INFEROMETER_FORGE_TOKEN", "INFEROMETER_SMTP"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PlaceError, match="INFEROMETER_FORGE_TOKEN"):
        tell_alarm("github:o/r#7", an_alarm())
    with pytest.raises(PlaceError, match="INFEROMETER_SMTP"):
        tell_alarm("mailto:team@example.org", an_alarm())


class MailServer:
    """A server of mail that takes one message; it answers a sender with a code, or hangs up."""

    def __init__(self, answer=b"250 fine"):
        self.answer, self.lines = answer, []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"smtp://127.0.0.1:{self.listening.getsockname()[1]}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()
        self.listening.close()

    def serve(self):
        connection, _ = self.listening.accept()
        with connection, connection.makefile("rwb") as stream:
            stream.write(b"220 here\r\n")
            stream.flush()
            in_data = False
            for line in stream:
                self.lines.append(line.decode().strip())
                if in_data and line != b".\r\n":
                    continue
                word = line[:4].upper()
                in_data = word == b"DATA"
                if word == b"MAIL" and not self.answer:
                    return
                reply = {b"DATA": b"354 go on", b"MAIL": self.answer, b"QUIT": b"221 bye"}.get(word, b"250 fine")
                stream.write(reply + b"\r\n")
                stream.flush()
                if word == b"QUIT":
                    return


def test_a_mail_has_the_sentence_and_the_run(monkeypatch):
    with MailServer() as server:
        monkeypatch.setenv("INFEROMETER_SMTP", server.url)
        tell_alarm("mailto:team@example.org", an_alarm(sentence="It is slower."))
    assert "Subject: resnet18: changed +20%" in server.lines
    assert {"To: team@example.org", "It is slower.", "Run r1"} <= set(server.lines)


@pytest.mark.parametrize(("answer", "words"), [(b"550 no", "550"), (b"", "was not told")])
def test_a_server_of_mail_that_refuses_or_hangs_up_is_told_in_a_sentence(answer, words, monkeypatch):
    with MailServer(answer) as server:
        monkeypatch.setenv("INFEROMETER_SMTP", server.url)
        with pytest.raises(PlaceError, match=words):
            tell_alarm("mailto:team@example.org", an_alarm())


@pytest.mark.parametrize(
    ("state", "ratio", "code"),
    [("confirmed", 1.2, 1), ("confirmed", 0.8, 0), ("suspected", 1.2, 0), ("steady", None, 0)],
)
def test_only_a_run_that_is_slower_for_sure_fails_and_what_stands_out_is_tagged(monkeypatch, state, ratio, code):
    tagged = []
    opened = SimpleNamespace(retag=lambda run, add: tagged.append((run, add)))
    alarm = replace(an_alarm(state=state, ratio=ratio), series={"model": "m", "runtime": "r", "machine": "box"})
    monkeypatch.setattr("inferometer.api.watching.watch", lambda _run, **_: alarm)
    monkeypatch.setattr("inferometer.cli.commands.runs.open_chosen", lambda _store: nullcontext(opened))
    assert run_command(["runs", "watch"]) == code
    assert [add for _, add in tagged] == ([(f"alarm:{state}",)] if state != "steady" else [])
