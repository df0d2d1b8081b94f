"""Places between two moments: answers half received, copies that broke off, connections that are lost, files in use.

No network and no process: the hub, the device and adb are lists of answers, and every count is known.
"""

import errno
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.core.codec import encode
from inferometer.core.errors import DomainError, InferometerError, PlaceError
from inferometer.core.job import Job, JobEvent, JobFile, JobModel, JobResult
from inferometer.core.workload import Workload
from inferometer.hub.places import adb as phones
from inferometer.hub.places import device_side, hub_client
from inferometer.hub.places import ssh as setup
from inferometer.hub.places.adb import Ran
from inferometer.hub.places.artifacts import ArtifactFolder, FileHashes, ModelFiles
from inferometer.hub.places.base import Handle, is_place, parse_address
from inferometer.hub.places.benchmarks import BENCHMARKS
from inferometer.hub.places.bundle import BundlePlace
from inferometer.hub.places.following import LOST, follow, result_in
from inferometer.hub.places.hub import HubPlace
from inferometer.hub.places.hub_client import HubAddress, HubAwayError, HubClient, HubRefusalError, fetch, upload
from inferometer.hub.places.local import FolderHere, LocalPlace, unique
from inferometer.hub.places.requests import _beside, model_path, pack_measurement
from inferometer.hub.places.ssh import SshPlace, _FolderThere
from inferometer.hub.places.ssh.connection import SshConnection
from inferometer.hub.places.wheels import parse_target
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.model import MeasureRequest
from inferometer.store.values import Push

OPENS = {"token": "t"}
DATA = b"0123456789"
SHA = hashlib.sha256(DATA).hexdigest()
FILE = JobFile(path="net.tflite", sha256=SHA, size_bytes=10)
JOB = Job(id="j", verb="profile", model=JobModel(name="net", entry="net.tflite", files=(FILE,)))


# A hub by HTTP


class Connection:
    """Answers requests with the next of `answers`: (status, pieces of the body), or an error that is raised."""

    def __init__(self, *answers):
        self.answers, self.asked, self.closed, self.timeouts = list(answers), [], 0, []

    def request(self, method, path, body, headers):
        self.asked.append((method, path, body, headers))

    def getresponse(self):
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        status, *pieces = answer

        def read(_most=None):
            if not pieces:
                return b""
            if isinstance(pieces[0], BaseException):
                raise pieces.pop(0)
            return pieces.pop(0)

        return SimpleNamespace(status=status, read=read)

    def close(self):
        self.closed += 1


@pytest.fixture
def hub(monkeypatch):
    def made(*answers, **address):
        client, connection = HubClient(HubAddress(**{"url": "http://hub", **address})), Connection(*answers)

        def connected(timeout_s):
            connection.timeouts.append(timeout_s)
            return hub_client._Closing(connection)

        monkeypatch.setattr(client, "_connected", connected)
        client.connection = connection
        return client

    return made


def test_what_is_asked_has_its_type_its_token_and_its_time(hub):
    client = hub(*[(200, b'{"a": 1}')] * 4, **OPENS)
    assert client.get("/x", after=3, none=None) == {"a": 1}
    client.post("/y", {"b": 2}, timeout_s=9.0)
    client.post("/z")
    client.call("PUT", "/w", b"raw")
    bearer = {"authorization": "Bearer t"}
    assert client.connection.asked == [
        ("GET", "/x?after=3", None, bearer),
        ("POST", "/y", b'{"b":2}', {**bearer, "content-type": "application/json"}),
        ("POST", "/z", b"", {**bearer, "content-type": "application/json"}),
        ("PUT", "/w", b"raw", {**bearer, "content-type": "application/octet-stream"}),
    ]
    assert (client.connection.timeouts, client.connection.closed) == ([30.0, 9.0, 30.0, 30.0], 4)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(299, None), (300, HubRefusalError), (400, HubRefusalError), (401, HubRefusalError), (404, HubRefusalError),
     (408, HubAwayError), (425, HubAwayError), (429, HubAwayError), (500, HubAwayError), (501, HubRefusalError),
     (502, HubAwayError), (503, HubAwayError), (504, HubAwayError)],
)  # fmt: skip
def test_what_passes_is_asked_again_and_what_is_refused_is_not(hub, status, kind):
    client = hub((status, b'{"error": "Why.", "remedy": "What."}'))
    if kind is None:
        assert client.get("/x")["error"] == "Why."
        return
    with pytest.raises(kind, match="Why") as refused:
        client.get("/x")
    assert getattr(refused.value, "status", status) == status
    assert (refused.value.remedy == "What.") is (status != 401)


def test_an_answer_that_says_nothing_is_told_by_its_number(hub):
    for body in (b"", b"<html>", b"[]", b'{"other": 1}'):
        with pytest.raises(HubRefusalError, match="The hub at http://hub answers 418"):
            hub((418, body)).get("/x")


def untrusted():
    error = ssl.SSLCertVerificationError("bad")
    error.verify_message = "nobody vouches"
    return error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (socket.gaierror(1, "unknown"), HubAwayError, "cannot be found: unknown"),
        (ConnectionRefusedError(), HubAwayError, "No hub answers"),
        (TimeoutError(), HubAwayError, "was lost: "),
        (ConnectionResetError("reset"), HubAwayError, "was lost: reset"),
        (http.client.IncompleteRead(b""), HubAwayError, "was lost"),
        (ssl.SSLError("broken"), HubAwayError, "was lost"),
        (untrusted(), PlaceError, "cannot be trusted: nobody vouches"),
        (OSError(errno.EHOSTUNREACH, "no way"), HubAwayError, "was lost"),
        (OSError(errno.ENOSPC, "full"), OSError, "full"),
        (KeyError("ours"), KeyError, "ours"),
    ],
)
def test_what_a_network_does_is_told_and_nothing_else_is_hidden(hub, error, kind, says):
    client = hub(error)
    with pytest.raises(kind, match=says) as raised:
        client.get("/x")
    assert isinstance(raised.value, HubAwayError) is (kind is HubAwayError)
    assert client.connection.closed == 1


def test_a_download_goes_on_where_it_broke_off_or_begins_anew_if_the_hub_does(hub, tmp_path):
    to, told = tmp_path / "part", []
    client = hub((200, b"012", b"34", ConnectionResetError("cut")))
    with pytest.raises(HubAwayError):
        client.download("/f", to, start=0, tell=told.append)
    assert (to.read_bytes(), told) == (b"01234", [3, 5])
    assert client.connection.asked[0][3] == {}
    client = hub((206, b"56", b"789"))
    assert client.download("/f", to, start=5, tell=told.append) == 10
    assert client.connection.asked[0][3] == {"range": "bytes=5-"}
    assert (to.read_bytes(), told[2:]) == (DATA, [7, 10])
    assert hub((200, b"abc")).download("/f", to, start=5, tell=told.append) == 3  # it sends all of it
    assert to.read_bytes() == b"abc"
    with pytest.raises(HubRefusalError):
        hub((404, b'{"error": "No."}')).download("/f", to, start=0, tell=told.append)
    assert to.read_bytes() == b"abc"


def test_a_file_of_a_job_is_fetched_from_where_it_is_and_counts_when_it_is_whole(hub, tmp_path):
    folder = ArtifactFolder(root=tmp_path)
    with pytest.raises(HubAwayError, match="broke off at 4 of 10 bytes"):
        fetch(hub((200, b"0123")), folder, FILE, "a b", lambda _at: None)
    client = hub((206, b"456789"))
    fetch(client, folder, FILE, "a b", lambda _at: None)
    assert client.connection.asked[0][1].endswith(f"/agent/artifacts/{SHA}?device=a%20b")
    assert folder.path(SHA).read_bytes() == DATA
    fetch(hub(), folder, FILE, "a b", lambda _at: None)  # it is there
    folder.path(SHA).unlink()
    folder.append(SHA, 0, DATA, most=10)
    fetch(hub(), folder, FILE, "a b", lambda _at: None)  # all of it had arrived, and was not yet in its place
    assert folder.path(SHA).read_bytes() == DATA


def test_a_hub_that_says_how_far_an_upload_is_is_believed(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_client, "_PIECE", 4)
    path, told = tmp_path / "f", []
    path.write_bytes(DATA)
    states = [(200, json.dumps({"arrived": at, "complete": at == 10}).encode()) for at in (6, 3, 7, 10)]
    client = hub(*states)
    upload(client, path, FILE, 2, told.append)
    sent = [(request.rpartition("?")[2], body) for _, request, body, _ in client.connection.asked]
    assert sent == [
        ("offset=2&size=10", b"2345"), ("offset=6&size=10", b"6789"), ("offset=3&size=10", b"3456"),
        ("offset=7&size=10", b"789"),
    ]  # fmt: skip
    assert (told, client.connection.timeouts) == ([6, 3, 7, 10], [300.0] * 4)
    path.write_bytes(b"012")
    short = hub((200, b'{"arrived": 3, "complete": false}'), (200, b'{"arrived": 3, "complete": false}'))
    with pytest.raises(DomainError, match="has changed while it was sent"):
        upload(short, path, FILE, 0, told.append)


def test_a_hub_is_found_by_what_was_given_the_settings_or_here(monkeypatch):
    settings = {"INFEROMETER_PORT": "99"}
    monkeypatch.setattr(hub_client, "value_of", settings.get)
    assert hub_client.hub_address() == HubAddress(url="http://127.0.0.1:99")
    settings |= {"INFEROMETER_HUB": "https://h", "INFEROMETER_TOKEN": "t", "INFEROMETER_CA": "c"}
    assert hub_client.hub_address() == HubAddress(url="https://h", ca="c", **OPENS)
    assert hub_client.hub_address("u", "v", "w") == HubAddress(url="u", ca="w", **{**OPENS, "token": "v"})


# Sending runs


class Outbox:
    """A store with runs that wait to be sent."""

    def __init__(self, *runs):
        self.waiting, self.queued, self.noted = [Push(run=run, hub="http://hub", queued=0.0) for run in runs], [], []

    def queue_push(self, *given):
        self.queued.append(given)

    def waiting_pushes(self, _hub):
        return self.waiting

    def note_push(self, push, **outcome):
        self.noted.append((push.run, outcome))

    def export(self, run, to):
        if run == "broken":
            raise InferometerError("It is damaged.")
        to.write_bytes(run.encode())
        return to


def test_runs_are_sent_until_the_hub_is_away_and_the_rest_waits(hub):
    link = b'{"link": "http://hub/runs/x"}'
    client = hub((200, link), (403, b'{"error": "No."}'), (400, b'{"error": "Odd."}'), (503, b'{"error": "Later."}'))
    store = Outbox("a", "broken", "b", "c", "d", "e")
    pushed = hub_client.push(store, client, ["a"], project="p")
    assert store.queued == [("a", "http://hub", "p")]
    assert [(each.run, each.link is not None, each.waits) for each in pushed] == [
        ("a", True, False), ("broken", False, False), ("b", False, True), ("c", False, False), ("d", False, True),
        ("e", False, True),
    ]  # fmt: skip
    away = "The hub at http://hub: Later."
    assert store.noted == [
        ("a", {}), ("broken", {"reason": "It is damaged.", "refused": True}),
        ("b", {"reason": "No.", "refused": False}),
        ("c", {"reason": "Odd.", "refused": True}), ("d", {"reason": away}), ("e", {"reason": away}),
    ]  # fmt: skip
    assert len(client.connection.asked) == 4  # it was not asked again for the last one
    assert client.connection.asked[0][2:] == (b"a", {"content-type": "application/zip"})


# The place of a hub


def test_what_came_of_a_job_is_told_with_its_run_and_a_reference_that_moved(monkeypatch):
    told = []
    monkeypatch.setattr("inferometer.core.notices.tell", told.append)
    place = HubPlace(parse_address("hub:pi?url=http://hub"), sleep=lambda _s: None)
    row = {"moved": True, "device": "pi", "run": "r1", "run_link": "/runs/r1"}
    asked = []
    result = JobResult(job=JOB, ended="done")
    monkeypatch.setattr(place._client, "call", lambda *given, **more: asked.append((given, more)) or encode(result))
    monkeypatch.setattr(place._client, "get", lambda path: asked.append(path) or row)
    assert place.fetch(Handle(address="a", job="j", folder="7")) == result
    assert asked == [(("GET", "/api/v1/fleet/jobs/7/result"), {"query": {"fetched": "true"}}), "/api/v1/fleet/jobs/7"]
    assert told == [
        "The reference on pi moved while this was measured: look at it with care.", "Run r1: http://hub/runs/r1",
    ]  # fmt: skip
    row.update(moved=None, run=None)
    place.fetch(Handle(address="a", job="j", folder="7"))
    assert len(told) == 2


@pytest.mark.parametrize(
    ("row", "again", "told"),
    [
        ({"expected_s": None, "expected_from": None}, False, []),
        ({"expected_s": None, "expected_from": "not predicted"}, True, []),
        ({"expected_s": 90.0, "expected_from": "why"}, True, ["Expected to take 90 s (why)."]),
    ],
)
def test_the_expected_time_is_told_once_it_is_known(monkeypatch, row, again, told):
    heard = []
    monkeypatch.setattr("inferometer.core.notices.tell", heard.append)
    place = HubPlace(parse_address("hub:pi?url=http://hub"), sleep=lambda _s: None)
    monkeypatch.setattr(place._client, "get", lambda _path: row)
    assert place._tell_expected(Handle(address="a", job="j", folder="7")) is again
    assert heard == told


# On a device


def test_what_is_old_goes_and_what_is_as_old_as_allowed_or_runs_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(device_side, "is_alive", lambda folder: folder.endswith("runs"))
    for name, at in (("jobs/old", 0.0), ("jobs/runs", 0.0), ("jobs/young", 10.0)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x").write_bytes(b"12345")
        os.utime(tmp_path / name, (at, at))
    for name, at in (("incoming/a.part", 0.0), ("incoming/b.part", 10.0), ("incoming/c.other", 0.0)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"123")
        os.utime(tmp_path / name, (at, at))
    assert device_side.collect_garbage(str(tmp_path), older_s=90.0, now=100.0) == 5 + 3
    left = {path.name for folder in ("jobs", "incoming") for path in (tmp_path / folder).iterdir()}
    assert left == {"runs", "young", "b.part", "c.other"}


@pytest.mark.parametrize(
    ("quota", "keep", "gone"),
    [(300, "", ""), (299, "", "0"), (100, "", "01"), (99, "", "012"), (100, "0", "12"), (None, "", ""), (0, "012", "")],
)
def test_files_over_the_quota_go_the_longest_unused_first(tmp_path, quota, keep, gone):
    for name in "012":
        place = tmp_path / "artifacts" / "aa" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x" * 100)
        os.utime(place, (int(name), int(name)))
    freed = device_side.collect_garbage(str(tmp_path), older_s=1e9, quota_bytes=quota, keep=keep, now=10.0)
    left = {path.name for path in (tmp_path / "artifacts" / "aa").iterdir()}
    assert (freed, left) == (100 * len(gone), set("012") - set(gone))


def test_files_are_laid_out_by_name_and_used_now(tmp_path):
    folder = ArtifactFolder(root=tmp_path)
    folder.append(SHA, 0, DATA, most=10)
    folder.seal(SHA)
    os.utime(folder.path(SHA), (0, 0))
    files = [{"path": "deep/a.bin", "sha256": SHA}, {"path": "deep/a.bin", "sha256": SHA}]
    device_side.lay_out(tmp_path, files, tmp_path / "job")
    assert (tmp_path / "job" / "deep" / "a.bin").read_bytes() == DATA
    assert folder.path(SHA).stat().st_mtime > 0
    assert (tmp_path / "job" / "deep" / "a.bin").stat().st_ino == folder.path(SHA).stat().st_ino


@pytest.mark.parametrize("broken", [(), ("link",), ("link", "symlink")])
def test_a_file_is_linked_or_else_copied(tmp_path, monkeypatch, broken):
    def refused(*_given):
        raise OSError("not here")

    (tmp_path / "a").write_bytes(DATA)
    for name in broken:
        monkeypatch.setattr(device_side.os, name, refused)
    device_side.link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == DATA
    assert (tmp_path / "b").is_symlink() is (broken == ("link",))
    assert ((tmp_path / "b").stat().st_ino == (tmp_path / "a").stat().st_ino) is (len(broken) < 2)


@pytest.mark.parametrize(
    ("wish", "module"), [(None, "runner"), ({"wish": "none"}, "runner"), ({"wish": "auto"}, "warden"), ({}, "warden")]
)
def test_a_runner_is_started_apart_in_a_box_if_one_is_wished_for(tmp_path, monkeypatch, wish, module):
    started = {}

    def popen(command, **more):
        started.update(command=command, **more)
        return SimpleNamespace(pid=1234, returncode=None)

    monkeypatch.setattr(device_side.subprocess, "Popen", popen)
    monkeypatch.setenv("PYTHONPATH", "before")
    assert device_side.run_detached(tmp_path, ["a", "b"], {"SETTING": "1"}, wish) == 1234
    assert started["command"] == [sys.executable, "-P", "-m", f"inferometer.hub.agent.{module}", str(tmp_path)]
    assert (started["start_new_session"], started["cwd"], started["stdin"]) == (True, tmp_path, subprocess.DEVNULL)
    assert started["env"]["PYTHONPATH"].split(os.pathsep) == ["a", "b", "before"]
    assert started["env"]["SETTING"] == "1"
    assert started["stdout"].name == started["stderr"].name == str(tmp_path / "runner.log")
    assert (tmp_path / "runner.pid").read_bytes() == b"1234"
    assert (tmp_path / "box.json").exists() is (module == "warden")
    monkeypatch.delenv("PYTHONPATH")
    assert device_side.environment_for(["a"], {})["PYTHONPATH"] == "a"


@pytest.mark.parametrize(("age_s", "fresh"), [(3599.0, True), (3600.0, False)])
def test_a_result_is_worth_picking_up_for_an_hour(tmp_path, monkeypatch, age_s, fresh):
    (tmp_path / "result.json").write_text("{}")
    born = (tmp_path / "result.json").stat().st_mtime
    monkeypatch.setattr(device_side.time, "time", lambda: born + age_s)
    assert device_side._worth_picking_up(tmp_path) is fresh


def test_a_runner_that_cannot_be_asked_by_a_file_is_interrupted_if_it_lives(tmp_path, monkeypatch):
    killed = []
    monkeypatch.setattr(device_side.os, "kill", lambda *given: killed.append(given))
    (tmp_path / "runner.pid").write_text("77")
    for alive in (False, True):
        monkeypatch.setattr(device_side, "is_alive", lambda _folder, alive=alive: alive)
        device_side.interrupt_runner(str(tmp_path))
    assert killed == [(77, signal.SIGTERM)]


def test_the_end_of_a_log_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(device_side, "_LOG_BYTES", 4)
    assert device_side.log_tail(str(tmp_path)) == ""
    (tmp_path / "runner.log").write_bytes(b"012345")
    assert device_side.log_tail(str(tmp_path)) == "2345"


def test_packages_are_unpacked_whole_once_with_programs_that_run(tmp_path):
    wheel = tmp_path / "w.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        program = zipfile.ZipInfo("x/program")
        program.external_attr = 0o755 << 16
        archive.writestr(program, "#!")
        for name in ("x/plain.py", "x-1.data/platlib/y.py", "x-1.data/purelib", "x-1.data/data/z", "/abs", "x/"):
            archive.writestr(name, "text")
    folder = ArtifactFolder(root=tmp_path)
    sha256 = device_side.hash_file(wheel)
    folder.add(wheel, JobFile(path="w", sha256=sha256, size_bytes=wheel.stat().st_size))
    to = Path(device_side.unpack(str(tmp_path), "env/k", [sha256]))
    found = {path.relative_to(to).as_posix() for path in to.rglob("*") if path.is_file()}
    assert found == {"x/program", "x/plain.py", "y.py"}
    assert os.access(to / "x/program", os.X_OK)
    assert not os.access(to / "x/plain.py", os.X_OK)
    assert [path.name for path in (tmp_path / "env").iterdir()] == ["k"]
    folder.path(sha256).unlink()
    assert device_side.unpack(str(tmp_path), "env/k", [sha256]) == str(to)  # it is there already


def test_whoever_was_quicker_unpacked_it_and_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    for name in ("partial", "folder"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
    device_side._settle(tmp_path / "partial", tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]
    (tmp_path / "partial").mkdir()
    with pytest.raises(OSError):  # noqa: PT011 - whatever the system says
        device_side._settle(tmp_path / "partial", tmp_path / "nowhere" / "folder")


@pytest.mark.parametrize("code", [0, 1])
def test_packages_are_fetched_by_the_devices_own_pip_or_its_words_are_told(tmp_path, monkeypatch, code):
    asked = []

    def pip(command, **_more):
        asked.append(command)
        Path(command[command.index("--target") + 1]).mkdir(parents=True)
        return SimpleNamespace(returncode=code, stdout="out", stderr="x" * 3000 + "why" if code else "")

    monkeypatch.setattr(device_side.subprocess, "run", pip)
    for _ in range(2):
        found = device_side.install(str(tmp_path), "env/k", ["a>=1", "b"])
    assert asked[0][:4] == [sys.executable, "-m", "pip", "install"]
    assert asked[0][-2:] == ["a>=1", "b"]
    if code == 0:
        assert (found, len(asked)) == ({"folder": str(tmp_path / "env/k")}, 1)
    else:
        assert (found["error"][-3:], len(found["error"]), len(asked)) == ("why", 2000, 2)
    assert [path.name for path in (tmp_path / "env").iterdir()] == ([] if code else ["k"])


def test_a_function_is_called_by_name_and_its_error_is_an_answer(tmp_path, capsys):
    device_side.call("ask_to_stop", {"folder": str(tmp_path)})
    device_side.call("ask_to_stop", {"folder": str(tmp_path / "none")})
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert good == {"answer": None}
    assert (bad["number"], bad["path"]) == (errno.ENOENT, str(tmp_path / "none" / "cancel"))


def test_the_files_of_a_job_are_those_of_its_models_and_its_inputs():
    files = [{"path": name} for name in "abc"]
    job = {"model": {"files": files[:1]}, "reference": {"files": files[1:2]}, "inputs": {"x": files[2]}}
    assert device_side.files_of(job) == files
    assert device_side.files_of({"model": None, "inputs": None}) == []


@pytest.mark.parametrize(
    ("ended", "code"), [({"ended": "done"}, 0), ({"ended": "failed", "error": "why", "remedy": None}, 1), (None, 1)]
)
def test_a_bundle_that_ran_leaves_its_result_and_says_how_it_went(tmp_path, monkeypatch, capsys, *, ended, code):
    folder = tmp_path / "root" / "jobs" / "j"
    folder.mkdir(parents=True)
    (folder / "runner.log").write_text("last words")
    started = []

    def start(*given):
        started.append(given)
        if ended is not None:
            (folder / "result.json").write_text(json.dumps(ended))
        return {"folder": str(folder)}

    monkeypatch.setattr(device_side, "start", start)
    monkeypatch.setattr(device_side, "unpack", lambda _root, key, hashes: f"{key} {len(hashes)}")
    monkeypatch.setattr(device_side, "_show_events", lambda _folder: None)
    facts = {"code": "c" * 64, "env": "e", "wheels": ["w", "v"]}
    asked = SimpleNamespace(out=tmp_path / "result.json", box="strict")
    assert device_side._run_unpacked(tmp_path / "root", facts, {"id": "j"}, asked) == code
    assert started[0][2:] == (
        [f"code/{'c' * 16} 1", "env/e 2"], {"INFEROMETER_CACHE": str(tmp_path / "root" / "cache")}, {"wish": "strict"},
    )  # fmt: skip
    said = capsys.readouterr().err
    assert (asked.out.exists(), folder.exists()) == (ended is not None, ended is None)
    assert ("why" in said, "last words" in said) == (code == 1 and ended is not None, ended is None)
    folder.mkdir(exist_ok=True)
    device_side._run_unpacked(tmp_path / "root", {**facts, "wheels": []}, {"id": "j"}, asked)
    assert started[-1][2] == [f"code/{'c' * 16} 1"]


def test_stages_of_a_bundle_are_shown_once_each_until_it_has_ended(tmp_path, monkeypatch, capsys):
    lines = [JobEvent(job="j", number=1, at=0.0, kind="state", state="running")]
    lines += [JobEvent(job="j", number=2, at=0.0, kind="progress", stage=stage) for stage in ("load", "load", "runs")]
    lines += [JobEvent(job="j", number=3, at=0.0, kind="notice", text="look")]
    encoded = [encode(line) + b"\n" for line in lines]
    looks = iter([True, KeyboardInterrupt(), True, False, False])

    def alive(_folder):
        found = next(looks)
        if isinstance(found, BaseException):
            raise found
        with (tmp_path / "events.jsonl").open("ab") as file:
            file.write(b"".join(encoded[:2]))
        del encoded[:2]
        return found

    monkeypatch.setattr(device_side, "is_alive", alive)
    monkeypatch.setattr(device_side.time, "sleep", lambda _s: None)
    device_side._show_events(tmp_path)
    assert capsys.readouterr().err == "load …\nruns …\nlook …\n"
    assert (tmp_path / "cancel").exists()  # Ctrl-C stops it, and what it measured is kept


# Following


class Folder:
    def __init__(self, *pieces, alive=(), **files):
        self.pieces, self.data, self.lives, self.files = list(pieces), b"", list(alive), files

    def read(self, name, offset=0):
        if name != "events.jsonl":
            return self.files.get(name.partition(".")[0], b"")
        if self.pieces:
            self.data += self.pieces.pop(0)
        return self.data[offset:]

    def alive(self):
        return self.lives.pop(0)


def test_a_runner_is_gone_after_three_looks_in_a_row_and_looks_pause_only_while_nothing_comes():
    slept = []
    running = encode(JobEvent(job="j", number=1, at=0.0, kind="state", state="running")) + b"\n"
    folder = Folder(running, b"", b"", b"", b"", b"", b"", alive=[False, False, True, False, False, False])
    events = list(follow(folder, "j", look_s=0.25, sleep=slept.append, now=lambda: 7.0))
    assert [(event.number, event.state, event.at) for event in events] == [
        (1, "running", 0.0),
        (2, "inconclusive", 7.0),
    ]
    assert (slept, folder.lives, events[-1].text) == ([0.25] * 5, [], LOST)


def test_a_result_that_is_there_is_read_and_of_a_lost_one_the_end_of_its_log():
    result = JobResult(job=JOB, ended="stopped")
    assert result_in(Folder(result=encode(result)), JOB) == result
    assert result_in(Folder(runner=b"y" + b"x" * 64_000), JOB).log == "x" * 64_000


# Over SSH


class Device:
    """Answers what is called there by name, and keeps it."""

    host = "board"

    def __init__(self, **answers):
        self.answers, self.calls, self.sent = answers, [], []

    def call(self, function, **arguments):
        self.calls.append((function, arguments))
        answer = self.answers[function]
        return answer.pop(0) if isinstance(answer, list) else answer

    def send(self, source, to, at, _tell):
        self.sent.append((source.name, to, at))


FACTS = {
    "root": "/r", "free_bytes": 10**9, "missing": [], "parts": {}, "ready": [], "packages": {}, "pip": True,
    "system": "linux", "machine": "x86_64", "python": [3, 12, 0], "libc": ["glibc", "2.31"],
}  # fmt: skip


@pytest.mark.parametrize(("free", "fits"), [(100_000_010, True), (100_000_009, False)])
def test_a_device_needs_room_for_the_files_and_a_hundred_megabytes(free, fits):
    facts = {**FACTS, "free_bytes": free}
    if fits:
        setup._require_room(Device(), facts, 10)
    else:
        with pytest.raises(PlaceError, match="too little room"):
            setup._require_room(Device(), facts, 10)


def test_a_file_is_sent_from_where_it_broke_off_again_if_it_is_damaged_and_not_a_third_time(tmp_path):
    (tmp_path / "f").write_bytes(DATA)
    there = "/r/incoming/s.part"
    for seals, sent in (([True], [4]), ([False, True], [4, 0])):
        board = Device(seal=list(seals))
        setup._Device(board, {**FACTS, "missing": ["s"], "parts": {"s": 4}}).send(tmp_path / "f", "s")
        assert board.sent == [("f", there, at) for at in sent]
    board = Device(seal=[False, False, True])
    with pytest.raises(PlaceError, match="damaged, 2 times"):
        setup._Device(board, {**FACTS, "missing": ["s"], "parts": {"s": 99}}).send(tmp_path / "f", "s")
    assert [at for _, _, at in board.sent] == [10, 0]
    here = Device(look_around={"missing": []})
    setup._Device(here, FACTS).send(tmp_path / "f", "s")
    assert here.sent == []
    lacking = Device(look_around={"missing": ["s"]}, seal=True)
    setup._Device(lacking, FACTS).send(tmp_path / "f", "s")
    assert [at for _, _, at in lacking.sent] == [0]


def test_how_much_was_sent_is_told_every_ten_seconds(monkeypatch):
    told, now = [], [0.0]
    monkeypatch.setattr(setup.notices, "listener", SimpleNamespace(get=lambda: told.append))
    tell = setup._told_now_and_then("net", 200, clock=lambda: now[0])
    for at, sent in ((9.9, 20), (10.0, 50), (19.9, 60), (20.0, 100)):
        now[0] = at
        tell(sent)
    assert told == ["25% of net sent", "50% of net sent"]


def test_code_and_packages_are_taken_from_where_they_are_or_brought(monkeypatch, tmp_path):
    ready = setup._Device(Device(), {**FACTS, "ready": ["code/k"]})
    assert ready.code("code/k", "s", b"wheel") == "/r/code/k"
    board = Device(seal=True, unpack="/r/code/k")
    assert setup._Device(board, {**FACTS, "missing": ["s"]}).code("code/k", "s", b"wheel") == "/r/code/k"
    assert board.calls[-1] == ("unpack", {"root": "/r", "key": "code/k", "hashes": ["s"]})
    need = SimpleNamespace(names=("numpy",), install=("numpy>=1",))
    fetched = Device(look_around={"ready": []}, install={"folder": "/r/env/x"})
    assert setup._Device(fetched, FACTS).packages((need,)) == "/r/env/x"
    key = fetched.calls[1][1]["key"]
    assert key.startswith("env/linux-x86_64-cp312-")
    again = Device(look_around={"ready": [key]})
    assert setup._Device(again, FACTS).packages((need,)) == f"/r/{key}"
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(DATA)
    monkeypatch.setattr(setup, "download_wheels", lambda *_given: [wheel])
    monkeypatch.setattr(setup, "FileHashes", lambda: FileHashes(tmp_path / "hashes"))
    sending = Device(
        look_around=[{"ready": []}, {"missing": [SHA]}], install={"error": "no index"}, seal=True, unpack="/r/e"
    )
    assert setup._Device(sending, FACTS).packages((need,)) == "/r/e"
    assert sending.calls[-1][1]["hashes"] == [SHA]
    without = Device(look_around=[{"ready": []}, {"missing": [SHA]}], seal=True, unpack="/r/e")
    assert setup._Device(without, {**FACTS, "pip": False}).packages((need,)) == "/r/e"
    with pytest.raises(PlaceError, match="has no torch or tpu"):
        setup._Device(Device(), FACTS).packages((SimpleNamespace(names=("torch", "tpu"), install=()),))


def test_only_what_a_device_lacks_is_brought_there(monkeypatch, tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(DATA)
    needs = (SimpleNamespace(names=("numpy",), install=("n",), is_met=lambda packages: packages == {"numpy": "1"}),)
    monkeypatch.setattr(setup, "needs_of", lambda *_given: needs)
    monkeypatch.setattr(setup, "our_wheel", lambda: b"wheel")
    code = hashlib.sha256(b"wheel").hexdigest()
    facts = {**FACTS, "ready": [f"code/{code[:16]}"], "packages": {"numpy": "1"}}
    board = Device(look_around=dict(facts), seal=True)
    made = setup.set_up(board, "~/x", JOB, {SHA: path})
    assert made == setup.DeviceSetup(root="/r", paths=(f"/r/code/{code[:16]}",))
    asked = {"root": "~/x", "packages": ["numpy"], "hashes": [SHA, code], "keys": [f"code/{code[:16]}"]}
    assert (board.sent, board.calls) == ([], [("look_around", asked)])
    board = Device(look_around={**facts, "missing": [SHA, code]}, seal=True)
    setup.set_up(board, "~/x", JOB, {SHA: path})
    assert board.sent == [("net.tflite", f"/r/incoming/{SHA}.part", 0)]


def test_whether_a_runner_lives_is_asked_seldom():
    now, asked, answers = [0.0], [], iter([True, False])

    def call(name, **_given):
        asked.append((name, now[0]))
        return next(answers)

    reads = iter([b"", b"x"])
    connection = SimpleNamespace(call=call, read=lambda _path, _offset: next(reads))
    place = SimpleNamespace(connection=connection, patiently=lambda ask: ask())
    folder = _FolderThere(place, "/f", clock=lambda: now[0])
    for moment, alive in ((9.9, True), (10.0, True), (19.9, True), (20.0, False)):
        now[0] = moment
        assert folder.alive() is alive
    assert asked == [("is_alive", 10.0), ("is_alive", 20.0)]
    assert folder.read("events.jsonl") == b""
    assert folder._lived_at == 10.0
    now[0] = 25.0
    folder.read("events.jsonl")
    assert folder.alive()  # it has just spoken
    assert len(asked) == 2


@pytest.mark.parametrize("root", [None, "/chosen"])
def test_a_job_over_ssh_is_started_with_its_settings_and_cleaned_up_after(monkeypatch, root):
    monkeypatch.setattr("inferometer.hub.places.ssh.require_known", lambda _job: None)
    made = setup.DeviceSetup(root="/r", paths=("/r/code",))
    monkeypatch.setattr("inferometer.hub.places.ssh.set_up", lambda *_given: made)
    place = SshPlace(parse_address(f"ssh://pi@board?box=none&quota=5GB{f'&root={root}' if root else ''}"))
    board = Device(start={"folder": "/r/jobs/j", "resumed": False}, clear=None, collect_garbage=0)
    result = JobResult(job=JOB, ended="done")
    board.read = lambda path, _offset=0: encode(JOB) if path.endswith("job.json") else encode(result)
    place._connection = board
    handle = place.submit(JOB, {})
    settings = {"INFEROMETER_CACHE": "/r/cache"}
    if root:
        settings |= {"INFEROMETER_DATA": "/r/data", "INFEROMETER_CONFIG": "/r/config.toml"}
    asked = board.calls[0][1]
    assert (asked["settings"], asked["box"], asked["paths"]) == (settings, {"wish": "none"}, ["/r/code"])
    assert (handle.folder, place.title) == ("/r/jobs/j", "pi@board")
    assert place.fetch(handle) == result
    assert board.calls[1:] == [
        ("clear", {"folder": "/r/jobs/j"}),
        ("collect_garbage", {"root": "/r", "older_s": 30 * 86_400.0, "quota_bytes": 5 * 10**9, "keep": [SHA]}),
    ]
    board.read = lambda _path, _offset=0: b""
    with pytest.raises(PlaceError, match="fetched before"):
        place.fetch(handle)
    with pytest.raises(InferometerError, match="box"):
        SshPlace(parse_address("ssh://board?box=iron"))


# A phone


class Phone:
    """An adb server: files by path, answers to commands by their beginning."""

    def __init__(self, files=(), **answers):
        self.files, self.answers, self.ran, self.pushed = dict(files), answers, [], []

    def version(self):
        return 41

    def devices(self):
        return self.answers.get("devices", {"s": "device"})

    def run(self, _serial, command):
        self.ran.append(command)
        word = command.split()[0]
        code, out = self.answers.get(word, (0, b""))
        return Ran(code=code, stdout=out, stderr=b"")

    def size_of(self, _serial, path):
        data = self.files.get(path.rpartition("/")[2])
        return None if data is None else len(data)

    def pull(self, _serial, path):
        return self.files[path.rpartition("/")[2]]

    def push(self, _serial, data, to, mode=0o644):
        self.pushed.append((to, b"".join(data), mode))


@pytest.fixture
def phone(tmp_path):
    (tmp_path / "benchmark_model").write_bytes(b"program")

    def made(*, sleep=None, **given):
        address = parse_address(f"adb:s?binary={tmp_path}/benchmark_model&folder=/data/x")
        place = phones.AdbPlace(address, sleep=sleep or (lambda _s: None))
        place._server = Phone(**given)
        return place

    return made


@pytest.mark.parametrize(
    ("server", "where"),
    [("", ("127.0.0.1", 5037)), ("board", ("board", 5037)), ("board:99", ("board", 99)), (":99", ("127.0.0.1", 99)),
     ("board:x", ("board", 5037))],
)  # fmt: skip
def test_an_adb_server_is_here_unless_the_address_says_where(tmp_path, server, where):
    (tmp_path / "benchmark_model").write_bytes(b"program")
    address = parse_address(f"adb:s?binary={tmp_path}/benchmark_model&server={server}")
    found = phones.AdbPlace(address)._server
    assert (found.host, found.port) == where


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"shape": False}, ["--graph=m"]),
        ({"shape": True, "plan": Plan(runs=7), "threads": 4, "options": {"a": "b"}},
         ["--graph=m", "--enable_op_profiling=true", "--num_runs=7", "--num_threads=4", "--a=b"]),
    ],
)  # fmt: skip
def test_what_a_benchmark_of_litert_is_asked(request_, words):
    assert BENCHMARKS[0].arguments("m", MeasureRequest(model="m", **request_)) == words


def test_what_llama_bench_is_asked():
    asked = MeasureRequest(model="m", workload=Workload(generate=5, context=0), plan=Plan(runs=3), options={"fa": "1"})
    assert BENCHMARKS[1].arguments("m", asked) == [
        "-m", "m", "-o", "json", "-n", "5", "-d", "0", "-r", "3", "--fa", "1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "fits"),
    [(b"fs 1 1 48829 x", True), (b"fs 1 1 48828 x", False), (b"fs 1 1 odd x", True), (b"", True)],
)
def test_a_phone_needs_room_for_the_files_and_fifty_megabytes(phone, said, fits):
    place = phone(df=(0, said))  # in kibibytes
    if fits:
        place._require_room(100)
    else:
        with pytest.raises(PlaceError, match="too little room"):
            place._require_room(100)
    assert place._server.ran == ["df -k /data | tail -n 1"]


def test_only_a_file_that_is_not_there_whole_is_sent_and_its_hash_is_looked_at(phone, tmp_path):
    (tmp_path / "f").write_bytes(DATA)
    there = phone(files={SHA: DATA})
    there._send(tmp_path / "f", SHA, 10)
    assert there._server.pushed == []
    half = phone(files={SHA: b"01234"}, sha256sum=(0, f"{SHA}  f".encode()))
    half._send(tmp_path / "f", SHA, 10)
    assert half._server.pushed == [(f"/data/x/artifacts/{SHA}.part", DATA, 0o755)]
    assert half._server.ran[-1] == f"mv /data/x/artifacts/{SHA}.part /data/x/artifacts/{SHA}"
    damaged = phone(sha256sum=(0, b"other f"))
    with pytest.raises(PlaceError, match="arrived on the phone s damaged"):
        damaged._send(tmp_path / "f", SHA, 10)
    phone(sha256sum=(0, b""))._send(tmp_path / "f", SHA, 10)  # a phone without that program


@pytest.mark.parametrize(
    ("files", "ended", "words"),
    [
        ({"code": b"1\n", "err": b"a\nb\nc\nd\n"}, "failed", "ended with exit code 1. It said: b / c / d"),
        ({}, "lost", "benchmark_model was ended without an exit code."),
        ({"code": b"x"}, "lost", "was ended without an exit code."),
        ({"code": b"3", "cancel": b""}, "stopped", "It was stopped before it was done."),
        ({"code": b"0", "out": b"nonsense", "cancel": b""}, "failed", "What benchmark_model printed cannot be read"),
    ],
)
def test_how_a_benchmark_on_a_phone_ended(phone, files, ended, words):
    place = phone(files={"job.json": encode(JOB), **files})
    result = place.fetch(Handle(address="a", job="j", folder="/data/x/jobs/j"))
    assert (result.ended, words in result.error) == (ended, True)
    assert place._server.ran[-1] == "rm -rf /data/x/jobs/j"


@pytest.mark.parametrize(("code", "says"), [(126, "arm64-v8a"), (127, "arm64-v8a"), (125, "by hand"), (128, "by hand")])
def test_a_program_that_a_phone_cannot_start_is_of_another_machine(phone, code, says):
    assert says in phone()._program.failed(JOB, code, "").remedy


def test_a_phone_is_watched_until_its_benchmark_has_ended_or_is_gone(phone):
    slept = []
    place = phone(files={"job.json": encode(JOB)}, kill=(1, b""), sleep=slept.append)
    handle = Handle(address="a", job="j", folder="/data/x/jobs/j")
    assert [event.state for event in place.events(handle)] == ["running", "inconclusive"]
    assert slept == []
    running = phone(files={"job.json": encode(JOB)}, sleep=lambda _s: running._server.files.update(code=b"1"))
    assert [(event.number, event.state) for event in running.events(handle, 1)] == [(2, "failed")]


def test_a_phone_that_refuses_a_command_is_told_in_its_words(phone):
    for code, out, says in ((1, b"why not", "the phone s: why not"), (7, b"", "the phone s: exit code 7")):
        with pytest.raises(PlaceError, match=says):
            phone(touch=(code, out))._shell("touch x")


# Bundles and requests


@pytest.mark.parametrize(
    ("target", "has_wheels", "platform"),
    [
        ("here", False, {"python": None, "system": None}),
        ("linux-x86_64-cp312", False, {"python": None, "system": None}),
        ("linux-arm64-cp312", True, {"python": [3, 12], "system": "linux aarch64"}),
        ("macos-arm64-cp311", True, {"python": [3, 11], "system": "darwin aarch64"}),
        ("win-amd64-cp313", True, {"python": [3, 13], "system": "win32 x86_64"}),
    ],
)
def test_a_bundle_with_packages_is_for_one_kind_of_device(tmp_path, target, has_wheels, platform):
    assert BundlePlace(tmp_path / "b.zip", target=target)._platform(has_wheels=has_wheels) == platform


def test_a_bundle_for_here_runs_here(tmp_path):
    facts = {**BundlePlace(tmp_path / "b.zip")._platform(has_wheels=True), "expects": []}
    assert device_side._unfit(facts) is None
    assert "made for Python" in device_side._unfit({**facts, "python": [3, 1]})
    assert str(parse_target("win-arm64-cp312")) == "win-aarch64-cp312"


def test_the_result_beside_a_bundle_is_its_end(tmp_path):
    place = BundlePlace(tmp_path / "b.zip")
    handle = Handle(address="a", job="j")
    result = JobResult(job=JOB, ended="failed", error="why")
    (tmp_path / "result.json").write_bytes(encode(result))
    assert [(event.number, event.state, event.text) for event in place.events(handle)] == [
        (1, "queued", None), (2, "failed", "why"),
    ]  # fmt: skip
    assert [event.number for event in place.events(handle, 1)] == [2]
    assert place.fetch(handle) == result


def test_a_reference_of_another_content_lies_beside_the_model():
    def of(path, sha256):
        file = JobFile(path=path, sha256=sha256 * 64, size_bytes=1)
        return ModelFiles(model=JobModel(name=path, entry=path, files=(file,)), paths={})

    model = of("net.onnx", "a")
    assert _beside(of("net.onnx", "a"), model) == of("net.onnx", "a")
    shared = JobFile(path="other.bin", sha256="c" * 64, size_bytes=1)
    two = of("net.onnx", "b")
    two = replace(two, model=replace(two.model, files=(*two.model.files, shared)))
    assert [file.path for file in _beside(two, model).model.files] == ["reference/net.onnx", "reference/other.bin"]
    assert _beside(of("other.onnx", "b"), model) == of("other.onnx", "b")
    moved = _beside(of("net.onnx", "b"), model).model
    assert (moved.entry, moved.files[0].path) == ("reference/net.onnx", "reference/net.onnx")


@pytest.mark.parametrize(
    ("text", "place"), [("local", True), ("local:x", True), ("ssh://h", True), ("ssh", False), ("other:x", False)]
)
def test_what_is_a_place(text, place):
    assert is_place(text) is place


def test_an_address_without_a_host_has_a_rest_that_is_unquoted():
    address = parse_address("bundle:my%20job.zip?leave=a%2Cb&target=")
    assert (address.rest, address.options, address.host) == ("my job.zip", {"leave": "a,b", "target": ""}, None)
    assert parse_address("ssh://u%40x@h/p/").user == "u@x"
    assert parse_address("ssh://u@h/p/").rest == "p"


def test_the_least_used_hashes_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.hub.places.artifacts._REMEMBERED", 2)
    memory = tmp_path / "hashes.json"
    hashes = FileHashes(memory)
    for name in "abc":
        (tmp_path / name).write_text(name)
        hashes.file(tmp_path / name, name)
    hashes.file(tmp_path / "a", "a")
    hashes.remember()
    kept = [Path(key.partition("|")[0]).name for key in json.loads(memory.read_text())]
    assert kept == ["c", "a"]
    memory.unlink()
    hashes = FileHashes(memory)
    hashes._known = {}
    hashes.remember()
    assert not memory.exists()  # nothing new
    with pytest.raises(InferometerError, match="cannot be read"):
        hashes.file(tmp_path / "none", "none")


def test_another_limit_is_another_job(monkeypatch):
    monkeypatch.setattr("inferometer.core.notices.tell", lambda _text: None)
    monkeypatch.setattr("inferometer.hub.places.hub.require_known", lambda _job: None)
    place = HubPlace(parse_address("hub:pi?url=http://hub&seconds_at_most=2min"), sleep=lambda _s: None)
    sent = []
    row = {"id": "7", "link": "/x", "state": "queued", "device": None}
    monkeypatch.setattr(place._client, "post", lambda _path, value: sent.append(value) or row)
    handle = place.submit(replace(JOB, model=JobModel(name="resnet50")), {})
    assert (handle.job, sent[0]["job"]["id"], sent[0]["job"]["seconds_at_most"]) == ("j-120s", "j-120s", 120.0)


# Here


def test_the_folder_of_a_job_here_is_read_from_a_byte_on(tmp_path, monkeypatch):
    folder = FolderHere(folder=tmp_path)
    (tmp_path / "events.jsonl").write_bytes(DATA)
    assert (folder.read("events.jsonl"), folder.read("events.jsonl", 4), folder.read("none")) == (DATA, b"456789", b"")
    monkeypatch.setattr(device_side, "is_alive", lambda found: found == str(tmp_path))
    assert folder.alive()


def test_a_job_here_is_started_once_with_its_files_and_goes_when_it_is_fetched(tmp_path, monkeypatch):
    started, collected = [], []
    monkeypatch.setattr(device_side, "run_detached", lambda *given: started.append(given))
    monkeypatch.setattr(device_side, "collect_garbage", lambda root, **how: collected.append((root, how)))
    (tmp_path / "model").write_bytes(DATA)
    place = LocalPlace(tmp_path / "place")
    job = replace(JOB, reference=JOB.model)  # a model may be its own reference
    handle = place.submit(job, {SHA: tmp_path / "model"})
    folder = tmp_path / "place" / "jobs" / "j"
    assert handle == Handle(address="local", job="j", folder=str(folder))
    assert place.submit(job, {}) == handle
    assert started == [(folder, [str(Path(device_side.__file__).parents[3])], {})]
    assert collected == [(str(tmp_path / "place"), {"older_s": 7 * 86_400.0})] * 2
    assert (folder / "files" / "net.tflite").read_bytes() == DATA
    place.cancel(handle)
    assert (folder / "cancel").exists()
    result = JobResult(job=job, ended="done")
    (folder / "result.json").write_bytes(encode(result))
    assert place.fetch(handle) == result
    assert not folder.exists()
    place.cancel(handle)  # it is done and fetched
    with pytest.raises(InferometerError, match="fetched before"):
        place.fetch(handle)
    (tmp_path / "file").touch()
    with pytest.raises(InferometerError, match="cannot be made"):
        LocalPlace(tmp_path / "file").submit(job, {})


def test_the_id_of_a_job_is_its_verb_and_a_mark_of_what_it_asks():
    first = pack_measurement("bench", MeasureRequest(model="resnet50")).job
    assert re.fullmatch(r"bench-[0-9a-f]{16}", first.id)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", first.created)
    assert re.fullmatch(r"j-[0-9a-f]{8}", unique(JOB).id)


@pytest.mark.parametrize(
    ("job", "folder", "path"),
    [(JOB.model, Path("/f"), "/f/net.tflite"), (JobModel(name="resnet50"), Path("/f"), "resnet50")],
)
def test_a_model_lies_in_the_folder_of_its_job_or_is_a_name(job, folder, path):
    assert model_path(job, folder) == path


@pytest.mark.parametrize(
    ("status", "written", "complaint", "answer"),
    [
        (0, '{"answer": 5}', "", 5),
        (0, 'welcome!\n{"answer": null}', "a warning", None),
        (1, '{"answer": 5}', "Traceback\nKilled", "Killed"),
        (None, '{"answer": 5}', "", "said nothing"),  # ended by a signal
        (0, "", "", "said nothing"),
        (0, json.dumps({"error": "No space left", "path": "/x", "number": errno.ENOSPC}), "", "/x: No space left"),
        (0, json.dumps({"error": "Not yours", "path": "", "number": errno.EACCES}), "", "look_around: Not yours"),
    ],
)
def test_what_a_device_says_counts_where_it_ended_well(status, written, complaint, answer, monkeypatch):
    said = SimpleNamespace(exit_status=status, stdout=written, stderr=complaint)
    connection = SshConnection(parse_address("ssh://board"))
    monkeypatch.setattr(connection, "_run", lambda *_given, **_more: said)
    try:
        if not isinstance(answer, str):
            assert connection.call("look_around") == answer
            return
        with pytest.raises(PlaceError, match=answer) as error:
            connection.call("look_around")
        assert ("Make room" in str(error.value.remedy)) == ("space" in written)
    finally:
        connection.close()
