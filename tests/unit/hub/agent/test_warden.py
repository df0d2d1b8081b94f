"""The box around a job: hostile jobs in the real kernel, held by each of the means that this machine has."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from fakes.listeners import listening
from fakes.waiting import until
from inferometer.core.box import BoxOrder, Ceiling, Means
from inferometer.core.codec import decode, document
from inferometer.core.job import Job, JobEvent, JobModel, JobResult
from inferometer.hub.agent import warden as wardens
from inferometer.hub.box.found import means_here

MB = 1_000_000
HOSTILE = Path(__file__).parents[3] / "fakes" / "hostile_job.py"
JOB = Job(id="j1", verb="profile", model=JobModel(name="net"))


def means_of(kind):
    here = means_here()
    if not here.real:
        pytest.skip(f"SKIPPED LOUDLY: no box here: {here.said}")
    if kind.startswith("bubblewrap"):
        if here.bubblewrap is None:
            pytest.skip("SKIPPED LOUDLY: bubblewrap does not work here")
    elif not here.landlock:
        pytest.skip("SKIPPED LOUDLY: this kernel has no Landlock")
    if kind.endswith("group") and here.memory != "cgroup":
        pytest.skip("SKIPPED LOUDLY: no cgroup may be made here")
    return replace(
        here,
        bubblewrap=here.bubblewrap if kind.startswith("bubblewrap") else None,
        memory="cgroup" if kind.endswith("group") else "watch",
    )


each_box = pytest.mark.parametrize("kind", ["bubblewrap, group", "Landlock, watched"])


@pytest.fixture
def place(tmp_path):
    """The folder of a job beside that of another, and a home with secrets in it."""
    folder = tmp_path / "place" / "jobs" / "j1"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "net.onnx").write_bytes(b"a model that others use, too")
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "result.json").write_text("of another job")
    (folder / "job.json").write_text(json.dumps(document(JOB)))
    shutil.copy(HOSTILE, folder)
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    for name in (".ssh/id_ed25519", "token.txt", "config.toml"):
        (home / name).write_text('token = "secret"')
    return folder


def started(folder, means, order, name, user=(), **asked):
    """The warden of a job that does what a function of the fake does."""
    (folder / "attack.json").write_text(json.dumps({"name": name, "with": asked}))
    home = folder.parents[2] / "home"
    environment = {
        **os.environ,  # noqa: TID251 - what the agent would have
        "HOME": str(home), "INFEROMETER_CONFIG": str(home / "config.toml"), "INFEROMETER_TOKEN": "secret",
        "INFEROMETER_DATA": str(home / "data"), "INFEROMETER_CACHE": str(home / "cache"), "AWS_SECRET": "secret",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    words = [msgspec.json.encode(value).decode() for value in (means, order)]
    command = [*user, sys.executable, "-P", str(folder / "hostile_job.py"), str(folder), *words]
    with (folder / "runner.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def held(folder, kind, name, order=None, **asked):
    """The result of a job that did that; nothing of it may be left."""
    order = order or BoxOrder(memory=Ceiling(amount=2000 * MB))
    assert started(folder, means_of(kind), order, name, **asked).wait(240) == 0, "the warden lives through it"
    return left(folder)


def left(folder):
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == ["attack.json", "events.jsonl", "files", "hostile_job.py", "job.json", "result.json", "runner.log"]
    result = decode((folder / "result.json").read_bytes(), JobResult)
    last = decode((folder / "events.jsonl").read_bytes().splitlines()[-1], JobEvent)
    assert (last.state, last.text) == (result.state, result.error)
    return result


def running(mark):
    return [each.pid for each in psutil.process_iter(["cmdline"]) if mark in (each.info["cmdline"] or ())]


def looks(place, server, sock):
    home = place.parents[2] / "home"
    me = os.getpid()
    return {
        "readable": [
            *(str(home / name) for name in (".ssh/id_ed25519", "token.txt", "config.toml")), "/etc/shadow",
            str(place.parent / "other" / "result.json"), f"/proc/{me}/environ", f"/proc/{me}/root/etc/shadow",
        ],
        "writable": [str(place / "files" / "net.onnx"), str(place / "job.json"), "/tmp/from-a-box", "/usr/from-a-box"],  # noqa: S108 - it must not
        "openable": ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", f"/proc/{me}/mem"],
        "port": server.getsockname()[1], "sock": str(sock), "victim": me, "home": str(home),
    }  # fmt: skip


@pytest.fixture
def listeners():
    with listening() as both:
        yield both


def test_a_folder_that_was_closed_to_an_ordinary_user_goes_and_nothing_behind_a_link_is_opened():
    """To root nothing is closed."""
    with tempfile.TemporaryDirectory(prefix="ifm-") as place:
        Path(place).chmod(0o777)
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                if os.getuid() == 0:
                    os.setuid(65534)
                own, others = Path(place, "own"), Path(place, "others")
                (own / "closed" / "inner").mkdir(parents=True)
                others.mkdir()
                (own / "closed" / "inner" / "file").touch()
                (own / "closed" / "link").symlink_to(others)
                for folder in (others, own / "closed" / "inner", own / "closed", own):
                    folder.chmod(0)
                wardens._remove(own)
                code = 0 if not own.exists() and others.stat().st_mode & 0o777 == 0 else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@each_box
def test_a_job_sees_nothing_of_its_device_and_reaches_nobody(place, kind, listeners):
    result = held(place, kind, "look_around", **looks(place, *listeners))
    assert result.error.startswith("Done: []."), "nothing of it was possible"
    assert "It tried to open a network socket" in result.error
    assert "call ptrace" in result.error
    assert (place / "files" / "net.onnx").read_bytes() == b"a model that others use, too"


@pytest.mark.parametrize("kind", ["bubblewrap, group", "bubblewrap, watched", "Landlock, group", "Landlock, watched"])
def test_a_job_that_asks_for_too_much_memory_is_told_how_much_it_may_have(place, kind):
    order = BoxOrder(memory=Ceiling(amount=100 * MB))
    result = held(place, kind, "take_memory", order, size=2000 * MB)
    assert (result.ended, result.error) == ("too-big", "It asked for more than 100 MB.")
    assert "smaller batch" in result.remedy


@each_box
def test_a_job_within_its_limits_is_left_alone(place, kind):
    order = BoxOrder(memory=Ceiling(amount=200 * MB))
    assert held(place, kind, "take_memory", order, size=50 * MB).error == "It has 50 MB."


@each_box
def test_a_job_that_starts_thousands_of_processes_is_ended_with_all_of_them(place, kind):
    result = held(place, kind, "start_processes", BoxOrder(processes=60), many=10_000)
    assert (result.ended, result.error) == ("failed", "It started more than 60 processes and threads.")
    assert not running(str(place))


@each_box
def test_a_job_that_fills_the_disk_is_ended(place, kind):
    result = held(place, kind, "write", BoxOrder(disk=Ceiling(amount=20 * MB)), size=2 * MB, files=50)
    assert (result.ended, result.error) == ("too-big", "It wrote more than 20 MB.")


@each_box
def test_a_file_beyond_the_limit_cannot_be_made_even_if_it_is_empty(place, kind):
    result = held(place, kind, "write_sparse", BoxOrder(disk=Ceiling(amount=20 * MB)), size=10_000 * MB)
    assert (result.ended, result.error) == ("too-big", "It wrote more than 20 MB.")


@each_box
def test_a_job_that_will_not_stop_leaves_no_process_behind(place, kind):
    (place / "lease").write_text("0")
    mark = f"left-by-{place.parents[2].name}"
    assert started(place, means_of(kind), BoxOrder(), "outlive", mark=mark).wait(240) == 0
    result = decode((place / "result.json").read_bytes(), JobResult)
    assert (result.ended, result.error) == ("lost", "Its lease ran out: the hub could not be reached.")
    assert not running(mark)


@each_box
def test_a_link_in_place_of_a_result_is_not_followed_and_a_closed_folder_goes(place, kind, tmp_path):
    secret = tmp_path / "home" / "result.json"
    secret.write_bytes(json.dumps(document(JobResult(job=JOB, ended="done", error="read by the warden"))).encode())
    result = held(place, kind, "litter", secret=str(secret))
    assert (result.ended, result.error_kind) == ("crashed", "EngineError")
    assert "left no result" in result.error


@each_box
def test_a_box_ends_with_its_warden(place, kind):
    mark = str(place)
    warden = started(place, means_of(kind), BoxOrder(), "start_processes", many=0)
    until(lambda: ((place / "own" / "home").is_dir() and running(mark)) or warden.poll() is not None, "a box")
    assert warden.poll() is None
    warden.kill()
    warden.wait()
    until(lambda: not running(mark), "the end of what was in the box")


@pytest.mark.parametrize("kind", ["bubblewrap, watched", "Landlock, watched"])
def test_an_ordinary_user_has_a_box_too(kind, listeners):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("SKIPPED LOUDLY: only root becomes another user")
    folder = Path(f"/tmp/inferometer-nobody-{os.getpid()}")  # noqa: S108 - anybody may enter it
    try:
        place_of = folder / "place" / "jobs" / "j1"
        (place_of / "files").mkdir(parents=True)
        (place_of / "files" / "net.onnx").write_bytes(b"a model")
        (place_of / "job.json").write_text(json.dumps(document(JOB)))
        shutil.copy(HOSTILE, place_of)
        (folder / "home" / ".ssh").mkdir(parents=True)
        (folder / "home" / ".ssh" / "id_ed25519").write_text("secret")
        (place_of / "attack.json").touch()
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, 65534)
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
        if subprocess.run(
            [*nobody, sys.executable, "-c", "import msgspec"], check=False, capture_output=True
        ).returncode:
            pytest.skip("SKIPPED LOUDLY: another user cannot run this Python")
        if any(not parent.stat().st_mode & 0o001 for parent in Path(sys.executable).resolve().parents):
            pytest.skip("SKIPPED LOUDLY: this Python lies where nobody else may enter")
        order, means, wanted = BoxOrder(processes=60), means_of(kind), looks(place_of, *listeners)
        assert started(place_of, means, order, "look_around", nobody, **wanted).wait(240) == 0
        assert left(place_of).error.startswith("Done: [].")
        assert started(place_of, means, order, "start_processes", nobody, many=10_000).wait(240) == 0
        assert left(place_of).error == "It started more than 60 processes and threads."
        assert not running(str(place_of))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_an_owner_who_wants_a_box_gets_no_job_without_one(place):
    assert started(place, Means(system="darwin"), BoxOrder(wish="strict"), "litter").wait(240) == 0
    result = left(place)
    assert result.ended == "refused"
    assert "macOS has no way" in result.error
    assert "--box auto" in result.remedy
