"""What an agent asks for and starts: each verb's questions word for word, and how a box is made, without a process."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from fakes.fleet import a_job, a_result
from fakes.places import one_layer
from inferometer.core.box import BoxOrder, Means
from inferometer.core.codec import decode, encode
from inferometer.core.job import JobEvent, JobFile, JobModel
from inferometer.core.profile import Verification
from inferometer.core.workload import Workload
from inferometer.hub.agent import carrying_out, warden
from inferometer.hub.agent.carrying_out import carry_out, result_of
from inferometer.hub.agent.warden import JobLimits, Warden
from inferometer.hub.box import entering
from inferometer.hub.box.entering import EntryPlan
from inferometer.hub.box.seccomp import Refused
from inferometer.hub.box.view import BoxView
from inferometer.measure.prepare.run import Prepared, PrepareRequest, StepResult
from inferometer.measure.run.model import MeasureRequest
from unit.hub.web.samples import network

JOB = a_job()
LIMITS = JobLimits(
    memory_bytes=1000, memory_said="1 kB", floor_bytes=100, disk_bytes=5000, disk_said="5 kB", processes=3, seconds=60.0
)


# Verbs


@pytest.fixture
def asked(monkeypatch):
    """What a verb was asked, by name; its files are as they should be."""
    heard = {}
    monkeypatch.setattr(carrying_out, "require_known", lambda _job: None)
    let_in = "inferometer.hub.agent.carrying_out.require_files"
    monkeypatch.setattr(let_in, lambda _job, _files, **how: heard.update(how) or ("compiled",))
    return heard


def test_a_measurement_is_asked_for_with_all_that_the_job_says(asked, tmp_path, monkeypatch):
    def measured(request, **more):
        asked.update(request=request, **more)
        return "run"

    monkeypatch.setattr("inferometer.api.measure_and_judge", measured)
    monkeypatch.setattr(carrying_out, "result_of", lambda job, run: (job.id, run))
    options = {"predict": False, "device": "nvidia-l4", "against": "openvino", "threads": 3}
    other = JobModel(name="ref", entry="ref.onnx", files=(replace(JOB.model.files[0], path="ref.onnx"),))
    job = replace(JOB, options=options, reference=other)
    assert carry_out(job, tmp_path, "progress") == (JOB.id, "run")
    assert (asked["predict"], asked["on"], asked["reference"], asked["progress"]) == (
        False, "nvidia-l4", "openvino", "progress",
    )  # fmt: skip
    assert asked["reference_model"] == str(tmp_path / "ref.onnx")
    assert (asked["request"].model, asked["request"].threads, asked["request"].trust) == (
        str(tmp_path / "net.onnx"), 3, ("compiled",),
    )  # fmt: skip
    carry_out(JOB, tmp_path, None)
    assert (asked["predict"], asked["on"], asked["reference"], asked["reference_model"]) == (True, None, None, None)


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [("native-code", True), ("a,native-code", True), ("", False), ("native", False), (None, False)],
)
def test_compiled_code_is_run_where_the_owner_allows_it(asked, tmp_path, monkeypatch, setting, allowed):
    monkeypatch.setattr(carrying_out, "value_of", {"INFEROMETER_ALLOW": setting}.get)
    assert isinstance(carrying_out._request(JOB, tmp_path), MeasureRequest)
    assert asked["native_code"] is allowed


def test_a_verification_is_asked_for_against_its_reference(asked, tmp_path, monkeypatch):
    def verified(request, against, **more):
        asked.update(request=request, against=against, **more)
        return Verification(status="verified")

    monkeypatch.setattr(carrying_out, "verify_against", verified)
    job = replace(JOB, verb="verify", options={"against": "litert", "tolerance": {"relative": 0.5}})
    found = carry_out(job, tmp_path, None)
    assert (found.ended, found.verification.status) == ("done", "verified")
    assert (asked["against"], asked["tolerance"].relative, asked["model"]) == ("litert", 0.5, None)


def test_a_preparation_is_asked_for_with_all_that_the_job_says(asked, tmp_path, monkeypatch):
    """Every field of the request differs from its default, and from every other."""

    class EnoughError(Exception):
        pass

    def carried_out(request):
        asked.update(request=request)
        raise EnoughError

    monkeypatch.setattr("inferometer.measure.prepare.run.carry_out_request", carried_out)
    workload = Workload(batch=4)
    options = {"quantise": "i8", "sizes": {"width": 9}, "threads": 3, "runs": 7, "seed": 11}
    job = replace(JOB, verb="prepare", runtime="openvino", workload=workload, options=options)
    with pytest.raises(EnoughError):
        carrying_out._prepare(tmp_path / "made", job, tmp_path, None)
    assert asked["request"] == PrepareRequest(
        model=str(tmp_path / "net.onnx"), runtime="openvino", workload=workload, trust=("compiled",), **options
    )


ON_THE_WAY = StepResult(name="simplify", tool="t 1", title="x", format="onnx", bytes=9, seconds=1.0, cached=False)
PREPARED = Prepared(
    model="m", runtime="onnxruntime", device="local", quantise="i8", original_bytes=9, steps=(ON_THE_WAY,),
    artifact=None,
)  # fmt: skip
SPOILT = replace(ON_THE_WAY, name="quantise", verdict="wrong", kept=False)


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ((ON_THE_WAY,), "There was nothing to do: nothing was made."),
        ((ON_THE_WAY, SPOILT), "The step quantise makes the outputs wrong: nothing was made."),
    ],
    ids=["nothing to do", "wrong"],
)
def test_a_preparation_that_makes_nothing_names_the_step_that_is_wrong_or_says_what_to_ask(
    asked, tmp_path, monkeypatch, steps, error
):
    job = replace(JOB, verb="prepare", options={"quantise": "i8"})
    monkeypatch.setattr(
        "inferometer.measure.prepare.run.carry_out_request", lambda _request: replace(PREPARED, steps=steps)
    )
    result = carrying_out._prepare(tmp_path / "made", job, tmp_path, None)
    assert (result.ended, result.error, result.made) == ("failed", error, ())
    assert (result.remedy is None) == (SPOILT in steps)


def test_what_was_prepared_lies_under_the_models_name_and_its_format(asked, tmp_path, monkeypatch):
    artifact = one_layer(tmp_path).rename(tmp_path / "cached.onnx")
    data, done = artifact.read_bytes(), replace(PREPARED, artifact=artifact)
    monkeypatch.setattr("inferometer.measure.prepare.run.carry_out_request", lambda _request: done)
    job = replace(JOB, verb="prepare", options={"quantise": "i8"})
    result = carrying_out._prepare(tmp_path / "made", job, tmp_path, None)
    assert (result.ended, result.prepared["artifact"]) == ("done", "net-i8.onnx")
    assert [(file.path, file.size_bytes) for file in result.made] == [("net-i8.onnx", len(data))]
    assert (tmp_path / "made" / "net-i8.onnx").read_bytes() == artifact.read_bytes() == data


@pytest.mark.parametrize("made", ["a calibration", None])
def test_a_calibration_is_made_with_all_that_was_asked(tmp_path, monkeypatch, made):
    heard, steps = {}, []
    spent = SimpleNamespace(done=7, left=2, skipped=[1, 2, 3])

    def calibrate(_job, engine, watch):
        watch("at")
        heard.update(engine=engine)
        return SimpleNamespace(calibration=made, outcome=spent, kept=None if made else "the prior is nearer")

    def calibration_job(device, **more):
        heard.update(device=device, **more)
        return "job"

    monkeypatch.setattr(carrying_out, "require_known", lambda _job: None)
    monkeypatch.setattr(carrying_out, "JobResult", SimpleNamespace)
    for name, fake in (
        ("job.calibration_job", calibration_job), ("job.calibrate", calibrate),
        ("job.prepare_engine", lambda job: f"engine of {job}"), ("run.step_of", lambda at: f"step {at}"),
    ):  # fmt: skip
        monkeypatch.setattr(f"inferometer.measure.calibrate.{name}", fake)
    options = {"budget_s": 9.0, "device": "local:cpu", "unit": "cpu", "dtype": "f16", "threads": 2, "guarded": False}
    job = replace(JOB, verb="calibrate", model=None, options={**options, "fresh": True}, runtime="openvino")
    found = carry_out(job, tmp_path, steps.append)
    assert found.job is job
    assert {name: heard[name] for name in options} == options
    assert (heard["runtime"], heard["fresh"], heard["engine"], steps) == (
        "openvino",
        True,
        "engine of job",
        ["step at"],
    )
    if made:
        assert (found.ended, found.log) == ("done", "7 cases measured, 2 left out for lack of time, 3 impossible.\n")
    else:
        assert (found.ended, found.error) == ("stopped", "the prior is nearer")


@pytest.mark.parametrize(("complete", "kind"), [(True, None), (False, "EngineError")])
def test_what_was_measured_becomes_the_result(monkeypatch, complete, kind):
    outcome = SimpleNamespace(
        profiles=(network(),), error="why", remedy="what", log="log", series={"memory_bytes": {0: 1.0, 5: 2.0}}
    )
    monkeypatch.setattr("inferometer.measure.run.outcome.outcome_of", lambda _measured: outcome)
    measured = SimpleNamespace(raw=SimpleNamespace(ended="hung"), complete=complete)
    found = result_of(JOB, measured)
    assert (found.ended, found.error, found.remedy, found.error_kind, found.log) == ("hung", "why", "what", kind, "log")
    assert found.series == {"memory_bytes": ((0, 1.0), (5, 2.0))}


# Entering a box


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("view", [None, BoxView(readable=("/r",), writable=("/w",), devices=("/d",))])
def test_a_process_gives_up_what_its_plan_says_in_this_order(monkeypatch, view, filtered):
    done = []

    def noted(name, answer=None):
        return lambda *given, **more: done.append((name, *given, *more.values())) or answer

    for name, answer in (("set_oom_score", None), ("limit", None), ("die_with_parent", None),
                         ("keep_settings_from_root", True), ("give_up_privileges", None)):  # fmt: skip
        monkeypatch.setattr(entering.process, name, noted(name, answer))
    monkeypatch.setattr(entering, "restrict", noted("restrict"))
    monkeypatch.setattr(entering.seccomp, "install", noted("install"))
    entering.enter(
        EntryPlan(
            run=("m",),
            file_bytes=10,
            processes=20,
            view=view,
            filtered=filtered,
            connecting=True,
            channel=None,
        )
    )
    expected = [("set_oom_score", 1000), ("limit", 10, 20)]
    if view is not None:
        expected += [("die_with_parent",), ("keep_settings_from_root",), ("give_up_privileges",)]
        expected += [("restrict", ("/r",), ("/w",), ("/d",), True)]
    assert done == expected + ([("install", True, False, False)] if filtered else [])


def test_the_listener_of_a_filter_is_handed_out(monkeypatch):
    theirs, ours = socket.socketpair()
    reading, writing = os.pipe()
    for name in ("set_oom_score", "limit"):
        monkeypatch.setattr(entering.process, name, lambda *_given, **_more: None)
    monkeypatch.setattr(entering.seccomp, "install", lambda **_how: writing)
    plan = EntryPlan(
        run=("m",),
        file_bytes=1,
        processes=None,
        view=None,
        filtered=True,
        connecting=False,
        channel=ours.detach(),
    )
    entering.enter(plan)
    words, found, *_ = socket.recv_fds(theirs, 16, 1)
    assert words == b"refused"
    os.write(found[0], b"x")
    assert os.read(reading, 1) == b"x"
    with pytest.raises(OSError, match="Bad file"):
        os.close(writing)  # it was closed here
    theirs.close(), os.close(found[0]), os.close(reading)


# Making a box


@pytest.fixture
def a_warden(tmp_path, monkeypatch):
    monkeypatch.setattr(warden, "data_folder", lambda: tmp_path / "data")
    monkeypatch.setattr(warden, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(warden, "config_file", lambda: tmp_path / "config.toml")
    monkeypatch.setattr(warden, "machine_name", lambda: "pi")
    monkeypatch.setattr(warden, "user_name", lambda: "")

    def made(**means):
        folder = tmp_path / "jobs" / "j"
        (folder / "own").mkdir(parents=True, exist_ok=True)
        return Warden(folder, JOB, BoxOrder(hide=("/secret",)), Means(**means))

    return made


def test_a_box_is_furnished_with_what_predictions_need_and_nothing_that_was_there(a_warden, tmp_path):
    for name in ("data/roofs/r", "data/tokens/t", "cache/catalog/c", "cache/models/m"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    mine = a_warden()
    (mine._own / "left").touch()
    mine._furnish()
    there = {path.relative_to(mine._own).as_posix() for path in mine._own.rglob("*")}
    assert there == {
        "home", "tmp", "config", "share", "cache", "cache/inferometer", "data", "data/roofs", "data/roofs/r",
        "cache/inferometer/catalog", "cache/inferometer/catalog/c",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("means", "filtered", "connecting", "has_view", "processes"),
    [
        ({}, False, False, False, 106), ({"seccomp": True}, False, False, False, 106),
        ({"seccomp": True, "landlock": 4}, True, False, True, 106),
        ({"seccomp": True, "bubblewrap": "/bwrap"}, True, True, False, 106),
        ({"seccomp": True, "bubblewrap": "/bwrap", "memory": "systemd"}, True, True, False, None),
        ({"seccomp": True, "landlock": 4, "memory": "cgroup"}, True, False, True, None),
    ],
)  # fmt: skip
def test_a_runner_is_started_in_as_many_layers_as_there_are(
    a_warden, tmp_path, monkeypatch, *, means, filtered, connecting, has_view, processes
):
    started, groups = {}, []
    monkeypatch.setattr(warden, "_processes_of_user", lambda: 100)
    place = SimpleNamespace(make=lambda _name, **limits: groups.append(limits) or SimpleNamespace(join="join"))
    monkeypatch.setattr(warden, "place_here", lambda: place)
    monkeypatch.setattr(warden.subprocess, "Popen", lambda command, **more: started.update(command=command, **more))
    mine = a_warden(**means)
    mine._start(LIMITS)
    command = started["command"]
    plan = msgspec.json.decode(command[-1], type=EntryPlan)
    assert (plan.filtered, plan.connecting, plan.view is not None, plan.processes) == (
        filtered, connecting, has_view, processes,
    )  # fmt: skip
    assert plan.run == ("inferometer.hub.agent.runner", str(mine._folder), str(mine._own))
    assert (plan.file_bytes, plan.alone) == (5000, False)
    assert (plan.channel is not None) is filtered is bool(started["pass_fds"])
    assert command[command.index(sys.executable) : -1] == [sys.executable, "-P", "-m", "inferometer.hub.box.entering"]
    assert ("/bwrap" in command) is connecting
    assert (started["cwd"], started["start_new_session"], started["stdin"]) == (mine._own, True, subprocess.DEVNULL)
    if means.get("memory") == "systemd":
        assert command[0] == "systemd-run"
        assert {"MemoryMax=1000", "TasksMax=3", "INFEROMETER_MACHINE=pi"} <= set(command)
    else:
        assert started["env"]["INFEROMETER_MACHINE"] == "pi"
        assert "INFEROMETER_USER" not in started["env"]
        assert started["env"]["HOME"] == str(mine._own / "home")
    grouped = means.get("memory") == "cgroup"
    assert groups == ([{"memory_bytes": 1000, "processes": 3}] if grouped else [])
    assert started["preexec_fn"] == ("join" if grouped else None)
    if has_view:
        shown = plan.view
        assert not shown.shows(str(tmp_path / "data"))
        assert shown.writable == (str(mine._own),)
    if mine._channel is not None:
        mine._channel.close()


def test_events_of_a_box_are_passed_on_but_for_how_it_says_it_ended(a_warden):
    mine = a_warden()
    told = [
        JobEvent(job="x", number=9, at=0.0, kind="state", state="running"),
        JobEvent(job="x", number=9, at=0.0, kind="progress", stage="s", done=3, share=0.5),
        JobEvent(job="x", number=9, at=0.0, kind="notice", text="look"),
        JobEvent(job="x", number=9, at=0.0, kind="state", state="done"),
    ]
    (mine._own / "events.jsonl").write_bytes(b"".join(encode(event) + b"\n" for event in told))
    mine._hear(0.0)
    found = [decode(line, JobEvent) for line in (mine._folder / "events.jsonl").read_bytes().splitlines()]
    assert [(event.number, event.job, event.kind, event.state, event.stage, event.done, event.share, event.text)
            for event in found] == [
        (1, JOB.id, "state", "running", None, None, None, None), (2, JOB.id, "progress", None, "s", 3, 0.5, None),
        (3, JOB.id, "notice", None, None, None, None, "look"),
    ]  # fmt: skip


def test_a_refused_call_is_told_once_and_a_listener_that_ended_is_closed(a_warden, monkeypatch):
    mine = a_warden()
    answers = iter([Refused("mount"), Refused("mount"), Refused("bpf"), None])
    monkeypatch.setattr(warden.seccomp, "answer_refused", lambda _listener: next(answers))
    closed = []
    monkeypatch.setattr(warden.os, "close", closed.append)
    mine._listener = 77
    for _ in range(4):
        mine._answer(77)
    assert (mine._refused, closed, mine._listener) == (["call mount", "call bpf"], [77], None)
    texts = [decode(line, JobEvent).text for line in (mine._folder / "events.jsonl").read_bytes().splitlines()]
    assert texts == [f"It tried to call {name}, which the box refuses." for name in ("mount", "bpf")]


def test_a_listener_comes_through_the_channel(a_warden):
    mine = a_warden()
    mine._channel, theirs = socket.socketpair()
    reading, writing = os.pipe()
    socket.send_fds(theirs, [b"refused"], [writing])
    mine._answer(mine._channel)
    assert mine._channel is None
    os.write(mine._listener, b"x")
    assert os.read(reading, 1) == b"x"
    for number in (reading, writing, mine._listener):
        os.close(number)
    mine._channel, other = socket.socketpair()
    other.close()
    mine._answer(mine._channel)
    assert mine._listener is None
    theirs.close()


def test_a_signal_asks_every_python_of_the_box_to_stop_once(a_warden, monkeypatch):
    sent = []
    monkeypatch.setattr(warden.process, "descendants", lambda _pid: [os.getpid(), 1 << 30])
    monkeypatch.setattr(warden.os, "kill", lambda *given: sent.append(given))
    mine = a_warden()
    mine.ask(), mine.ask()
    assert sent == [(os.getpid(), signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt):
        mine._wait(0.0)


@pytest.mark.parametrize(
    ("error", "ended", "words"),
    [(KeyboardInterrupt(), "stopped", "before anything was measured"), (OSError("no"), "failed", "cannot be made: no")],
)
def test_a_box_that_could_not_be_made_or_begun_is_a_result(a_warden, monkeypatch, error, ended, words):
    def broken():
        raise error

    mine = a_warden(seccomp=True, landlock=4)
    monkeypatch.setattr(mine, "_held", broken)
    result = mine.run()
    assert (result.ended, words in result.error) == (ended, True)
    assert not mine._own.exists()


def test_a_box_is_held_until_it_ends_or_uses_up_too_much(a_warden, monkeypatch):
    mine = a_warden()
    monkeypatch.setattr(warden, "available_bytes", lambda: None)
    codes = iter([None, None, 0])
    child = SimpleNamespace(poll=lambda: next(codes), pid=5, returncode=0)
    verdicts = iter([None, "too much"])
    ended, heard = [], []
    monkeypatch.setattr(mine, "_start", lambda limits: heard.append(limits.memory_bytes) or child)
    monkeypatch.setattr(mine, "_furnish", lambda: None)
    monkeypatch.setattr(mine, "_hear", heard.append)
    monkeypatch.setattr(mine, "_end", ended.append)
    monkeypatch.setattr(mine, "_broken", lambda _limits, spent_s: next(verdicts) if spent_s >= 0 else None)
    monkeypatch.setattr(mine, "_result", lambda code, verdict, _limits: (code, verdict))
    assert mine._held() == (0, "too much")
    assert (ended, heard[1:]) == ([child], [0.05, 0.05, 0.0])
    assert heard[0] == int(0.8 * sys.maxsize)


def test_a_job_ends_as_its_result_says(a_warden):
    mine = a_warden()
    mine._leave(a_result(JOB, network(), ended="failed"))
    last = decode((mine._folder / "events.jsonl").read_bytes().splitlines()[-1], JobEvent)
    assert (last.kind, last.state, last.text) == ("state", "failed", "It was failed.")


@pytest.mark.parametrize(("name", "kept"), [("m/good", True), ("linked", False), ("away/secret", False), ("no", False)])
def test_files_that_a_job_made_leave_its_box_and_what_they_point_at_does_not(a_warden, tmp_path, name, kept):
    mine = a_warden()
    (tmp_path / "secret").write_text("secret")
    (mine._own / "made" / "m").mkdir(parents=True)
    (mine._own / "made" / "m" / "good").write_text("good")
    (mine._own / "made" / "linked").symlink_to(tmp_path / "secret")
    (mine._own / "made" / "away").symlink_to(tmp_path)
    named = (JobFile(path=name, sha256="ab" * 32, size_bytes=4),)
    left = mine._leave(replace(a_result(JOB), made=named))
    assert (left.made == named, (mine._folder / "made" / name).is_file()) == (kept, kept)
    assert (f"left no file {name}" in left.log) is not kept


@pytest.mark.parametrize(
    ("verb", "made", "kept"), [("calibrate", True, True), ("calibrate", False, False), ("profile", True, False)]
)
def test_only_a_calibration_that_was_asked_for_leaves_its_box(a_warden, tmp_path, monkeypatch, *, verb, made, kept):
    mine = a_warden()
    mine._job = replace(JOB, verb=verb)
    (mine._own / "data" / "calibrations").mkdir(parents=True)
    (mine._own / "data" / "calibrations" / "c.json").touch()
    (mine._own / "result.json").write_bytes(b"{}")
    result = replace(a_result(JOB), calibration="made" if made else None)
    monkeypatch.setattr(warden, "decode", lambda *_given: result)
    assert mine._brought() == replace(result, job=mine._job)
    assert (tmp_path / "data" / "calibrations" / "c.json").exists() is kept


def test_a_socket_is_readable_when_something_came():
    here, there = socket.socketpair()
    assert warden._readable([], 600.0) == warden._readable([here], 0.0) == []
    there.send(b"x")
    assert warden._readable([here], 600.0) == [here]
    here.close(), there.close()


@pytest.mark.parametrize("readable", [True, False])
def test_a_warden_reads_the_job_and_what_its_owner_wants_from_the_folder(tmp_path, monkeypatch, readable):
    made, handlers, folder = [], {}, tmp_path / "j"
    folder.mkdir()
    fake = SimpleNamespace(ask="ask", run=lambda: made.append("ran"))
    monkeypatch.setattr(warden, "Warden", lambda *given: made.append(given) or fake)
    monkeypatch.setattr(warden, "means_here", lambda: "means")
    monkeypatch.setattr(warden.process, "adopt_orphans", lambda: made.append("adopted"))
    monkeypatch.setattr(warden.signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(sys, "argv", ["warden", str(folder)])
    order = BoxOrder(wish="strict", processes=7)
    (folder / "job.json").write_bytes(encode(JOB) if readable else b'{"schema": "inferometer.job/9"}')
    (folder / "box.json").write_bytes(msgspec.json.encode(order))
    warden.main()
    if readable:
        assert made == ["adopted", (folder, JOB, order, "means"), "ran"]
        assert handlers == {signal.SIGTERM: "ask", signal.SIGINT: "ask"}
    else:
        assert (made, (folder / "result.json").exists()) == ([], True)
