"""The runner of a job: what it leaves in the folder, however the job goes."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from inferometer.core import notices
from inferometer.core.codec import decode, document
from inferometer.core.job import Job, JobEvent, JobModel, JobResult
from inferometer.hub.agent import runner
from inferometer.hub.agent.carrying_out import carry_out, hide_places
from inferometer.hub.places import device_side
from inferometer.hub.places.device_side import is_alive, write_whole
from inferometer.measure.bench.loop import LoopProgress

JOB = Job(id="j1", verb="profile", model=JobModel(name="no-such-model"), options={"predict": False})


def folder_of(tmp_path, job=JOB, **change):
    folder = tmp_path / job.id
    folder.mkdir()
    write_whole(folder / "job.json", json.dumps({**document(job), **change}).encode())
    return folder


def events_in(folder):
    return [decode(line, JobEvent) for line in (folder / "events.jsonl").read_bytes().splitlines()]


def test_a_refusal_is_a_result(tmp_path):
    folder = folder_of(tmp_path)
    runner.run_folder(folder)
    result = decode((folder / "result.json").read_bytes(), JobResult)
    assert (result.ended, result.error_kind) == ("refused", "UnknownNameError")
    assert "no-such-model" in result.error
    assert [(event.number, event.state) for event in events_in(folder)] == [(1, "running"), (2, "failed")]


def test_a_fault_of_ours_is_a_result_with_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.hub.agent.carrying_out.request_of", lambda *_: 1 / 0)
    result = carry_out(replace(JOB, model=JobModel(name="resnet50")), tmp_path, lambda _: None)
    assert (result.ended, result.error) == ("failed", "ZeroDivisionError: division by zero")
    assert "Traceback" in result.log


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("{job}/files/net.onnx cannot be read.", "net.onnx cannot be read."),
        ("'{job}/files/net/config.json': no such key", "'net/config.json': no such key"),
        ("Could not write into {job}.", "Could not write into the job's folder."),
        ("Could not write into '{job}'", "Could not write into 'the job's folder'"),
        ("{root}/artifacts/ab/abcd is empty", "artifacts/ab/abcd is empty"),
        ("{temporary}/inferometer-x1/conv/model.xml: broken", "model.xml: broken"),
        ('File "{home}/env/lib/engine.py", line 7', 'File "~/env/lib/engine.py", line 7'),
        ("{home}stead/x stays, as /usr/lib/engine.so does", "{home}stead/x stays, as /usr/lib/engine.so does"),
    ],
)
def test_reasons_name_no_place_of_the_device(monkeypatch, said, told):
    places = {"root": "/srv/agent", "job": "/srv/agent/jobs/j1", "home": "/home/ada", "temporary": "/srv/tmp"}
    monkeypatch.setattr("tempfile.gettempdir", lambda: places["temporary"])
    monkeypatch.setattr("os.path.expanduser", lambda _: places["home"])
    assert hide_places(said.format(**places), Path(places["job"])) == told.format(**places)


def test_error_remedy_log_and_notices_of_a_result_name_no_place(tmp_path, monkeypatch):
    folder = folder_of(tmp_path)

    def told(job, files, _progress, _into):
        notices.tell(f"{files}/net.onnx is large.")
        return JobResult(job=job, ended="failed", error=f"{files}/a: bad", remedy=f"See {files}/b", log=f"{files}/c\n")

    monkeypatch.setattr(runner, "carry_out", told)
    runner.run_folder(folder)
    result = decode((folder / "result.json").read_bytes(), JobResult)
    assert (result.error, result.remedy, result.log) == ("a: bad", "See b", "c\n")
    assert [event.text for event in events_in(folder)[1:]] == ["net.onnx is large.", "a: bad"]


@pytest.mark.parametrize("change", [{"schema": "inferometer.job/2"}, {"verb": "shell"}])
def test_a_job_that_cannot_be_read_is_refused_with_what_to_do(tmp_path, monkeypatch, change):
    folder = folder_of(tmp_path, **change)
    monkeypatch.setattr("sys.argv", ["runner", str(folder)])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    runner.main()
    result = decode((folder / "result.json").read_bytes(), JobResult)
    assert (result.ended, result.error_kind, result.job.id) == ("refused", "SchemaError", "j1")
    assert events_in(folder)[-1].state == "failed"


def test_a_job_that_takes_too_long_is_stopped_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_LOOK_S", 0.001)

    def endless(*_):
        import time

        while True:
            time.sleep(0.001)

    monkeypatch.setattr(runner, "carry_out", endless)
    job = Job(id="j2", verb="profile", model=JobModel(name="net"), seconds_at_most=0.01)
    result = runner.run_folder(folder_of(tmp_path, job))
    assert (result.ended, result.state) == ("hung", "failed")
    assert "0.01 s" in result.error
    folder = folder_of(tmp_path, Job(id="j3", verb="profile", model=JobModel(name="net")))
    (folder / "cancel").touch()
    assert runner.run_folder(folder).ended == "stopped"


def test_one_job_of_a_place_is_measured_at_a_time(tmp_path):
    told, waited = [], []
    with runner.alone(tmp_path / "lock", told.append):
        other = runner.alone(
            tmp_path / "lock", told.append, sleep=lambda _: waited.append(1) or len(waited) < 3 or 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            other.__enter__()
    assert (len(told), len(waited)) == (1, 3), "that it waits is told once, however often it looks"
    with runner.alone(tmp_path / "lock", told.append):
        assert len(told) == 1, "it is free again"


def test_a_job_is_picked_up_while_it_runs_and_measured_again_if_it_is_lost_or_old(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(device_side, "run_detached", lambda folder, *_: started.append(folder))
    job = document(Job(id="j5", verb="calibrate"))

    def resumed():
        return device_side.start(str(tmp_path), job, [], {})["resumed"]

    assert not resumed()
    assert not resumed(), "nobody runs it: the device was restarted"
    monkeypatch.setattr(device_side, "is_alive", lambda _: True)
    assert resumed()
    result = tmp_path / "jobs" / "j5" / "result.json"
    result.write_text("{}")
    assert resumed(), "it has just ended"
    os.utime(result, (0, 0))
    assert not resumed(), "a result of long ago is not what was asked for now"
    assert len(started) == 3


def test_progress_is_told_a_few_times_a_second(tmp_path):
    now = iter([0.0, 1.0, 1.0, 1.1, 1.2, 1.2, 1.5, 1.5])
    log = runner.EventLog(tmp_path / "events.jsonl", "j", now=lambda: next(now))
    log.tell(kind="state", state="running")
    for done, stage in enumerate(("load", "load", "runs", "runs")):
        log.progress(LoopProgress(stage=stage, done=done, share=2.0))
    told = [(event.stage, event.done, event.share) for event in events_in(tmp_path)[1:]]
    assert told == [("load", 0, 1.0), ("runs", 2, 1.0), ("runs", 3, 1.0)]


def test_a_number_that_another_process_has_by_now_is_not_the_runner(tmp_path):
    folder = tmp_path / "j-9f3c"
    folder.mkdir()
    assert not is_alive(str(folder))
    (folder / "runner.pid").write_text(str(os.getpid()))
    assert not is_alive(str(folder))
