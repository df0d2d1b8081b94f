"""Watching stored runs: steady, suspected, confirmed or withdrawn, and who hears of it."""

import json
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import inferometer as im
from inferometer.api.watching import watch
from inferometer.core.errors import DomainError, PlaceError
from inferometer.hub.telling import badge_text, post_alarm, write_badge
from inferometer.store.recording import recording


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
    assert "As fast as before" in alarm.sentence


def test_a_slow_run_is_suspected_with_the_machine_before_the_code_and_nobody_is_told(store, measured):
    keep(store, measured, BEFORE)
    newer = replace(measured.environment, versions={**measured.environment.versions, "numpy": "9.9"})
    keep(store, measured, [1.2], environment=newer)
    alarm = watch(store=store)
    assert (alarm.state, alarm.told) == ("suspected", False)
    assert alarm.ratio == pytest.approx(1.2, rel=0.02)
    assert [each.name for each in alarm.environment] == ["version of numpy"]
    assert "Before the code, suspect what changed on the machine: version of numpy" in alarm.sentence


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
    assert len(alarm.confirmations) == 12


def test_a_series_is_of_one_branch_one_machine_and_one_workload(store, measured):
    keep(store, measured, [5.0] * 6, tags=("branch:main",))
    other = replace(measured.environment.machine, id="another-machine")
    keep(store, measured, [7.0] * 6, tags=("branch:fix",), environment=replace(measured.environment, machine=other))
    keep(store, measured, [*BEFORE, 1.0], tags=("branch:fix",))
    alarm = watch(store=store, branch="fix")
    assert (alarm.state, len(alarm.baseline)) == ("steady", 8)
    assert any("is the name of 2 machines" in note for note in alarm.notes)
    assert watch(store=store, branch="fix", against="main").ratio == pytest.approx(0.2)


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
    assert "Only what is confirmed is sent" in refused.stderr


class Hook:
    """A webhook of this machine that answers with a status, and keeps what it was sent."""

    def __init__(self, status):
        self.got = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                hook.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
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


def test_a_webhook_gets_the_alarm_and_one_that_fails_is_told_in_a_sentence(store, measured, tmp_path):
    keep(store, measured, [*BEFORE, 1.2])
    alarm = watch(store=store)
    with Hook(200) as hook:
        post_alarm(hook.url, alarm.document())
    assert hook.got[0]["schema"] == "inferometer.alarm/1"
    with (
        Hook(500) as hook,
        pytest.raises(PlaceError, match=r"was not told: it answered 500\. The alarm is kept") as told,
    ):
        post_alarm(hook.url, alarm.document())
    assert "secret" not in str(told.value)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(PlaceError, match="no answer within"):
        post_alarm(f"http://127.0.0.1:{silent.getsockname()[1]}", alarm.document(), timeout_s=0.05)
    with pytest.raises(PlaceError, match="no address of a webhook"):
        post_alarm("file:///etc/passwd", {})
    write_badge(replace(alarm, state="confirmed"), tmp_path / "badge.svg")
    assert "changed +20%" in (tmp_path / "badge.svg").read_text()
    assert badge_text(alarm) == "suspected"
