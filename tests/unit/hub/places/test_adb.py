"""A phone over the real adb protocol, with a server of ours in place of one: no phone was here."""

import shutil
from dataclasses import replace

import pytest

from fakes.adb_server import SERIAL, AdbServerFake
from fakes.places import RECORDED
from inferometer.core.errors import DomainError, PlaceError, UnknownNameError
from inferometer.core.job import JobModel
from inferometer.core.workload import Workload
from inferometer.hub.places import adb as adb_place
from inferometer.hub.places.adb import AdbServer
from inferometer.hub.places.base import resolve
from inferometer.hub.places.requests import pack_measurement
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.model import MeasureRequest


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(adb_place, "_LOOK_S", 0.02)
    running = AdbServerFake()
    yield running
    running.stop()


@pytest.fixture
def phone(server):
    host, _, port = server.address.partition(":")
    return AdbServer(host=host, port=int(port))


@pytest.fixture
def binary(tmp_path):
    """A llama-bench that prints what a real one printed, and the arguments that it was given."""
    path = tmp_path / "llama-bench"
    path.write_text(f'#!/bin/sh\necho "$LD_LIBRARY_PATH $@" >&2\ncat "{RECORDED}/llama_bench.json"\n')
    path.chmod(0o755)
    return path


def address(server, binary, tmp_path, more="", serial=SERIAL):
    return f"adb:{serial}?server={server.address}&binary={binary}&folder={tmp_path}/phone{more}"


def job_of(tmp_path, name="net.gguf", **asked):
    (tmp_path / name).write_bytes(b"weights")
    return pack_measurement("profile", MeasureRequest(model=str(tmp_path / name), **asked))


def test_files_and_commands_cross_the_protocol_whole(phone, tmp_path):
    data = bytes(range(256)) * 1000
    assert phone.version() == 0x29
    assert phone.devices() == {SERIAL: "device"}
    phone.push(SERIAL, [data[:100_000], data[100_000:]], f"{tmp_path}/x", mode=0o755)
    assert (phone.size_of(SERIAL, f"{tmp_path}/x"), phone.pull(SERIAL, f"{tmp_path}/x")) == (len(data), data)
    assert phone.size_of(SERIAL, f"{tmp_path}/none") is None
    ran = phone.run(SERIAL, "echo out; echo err >&2; exit 7")
    assert (ran.code, ran.stdout, ran.stderr) == (7, b"out\n", b"err\n")
    with pytest.raises(PlaceError, match="does not take"):
        phone.push(SERIAL, [b"x"], f"{tmp_path}/no/such/folder")
    with pytest.raises(PlaceError, match="does not give"):
        phone.pull(SERIAL, f"{tmp_path}/none")
    with pytest.raises(PlaceError, match="not found"):
        phone.run("other", "true")


def test_what_is_asked_becomes_arguments_and_what_is_printed_a_profile(server, binary, tmp_path):
    (tmp_path / "libllama.so").write_bytes(b"a library")
    asked = {"threads": 4, "plan": Plan(runs=2), "options": {"flash-attn": "1"}}
    work = job_of(tmp_path, workload=Workload(prompt=64, generate=8, context=16), **asked)
    with resolve(address(server, binary, tmp_path, f"&with={tmp_path}/libllama.so")) as place:
        handle = place.submit(work.job, work.files)
        assert [event.state for event in place.events(handle)] == ["running", "done"]
        result = place.fetch(handle)
    assert result.log.startswith(". -m net.gguf -o json -p 64 -n 8 -d 16 -t 4 -r 2 --flash-attn 1\n")
    assert (result.profiles[0].runtime, result.profiles[0].model.name) == ("llamacpp", "net")
    assert not list((tmp_path / "phone" / "jobs").iterdir())


def test_nothing_is_sent_twice_and_a_job_that_runs_is_picked_up(server, binary, tmp_path):
    binary.write_text(
        f"#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.02; done\ncat '{RECORDED}/llama_bench.json'\n"
    )
    work = job_of(tmp_path)
    with resolve(address(server, binary, tmp_path)) as place:
        handle = place.submit(work.job, work.files)
        sent = len(server.pushed)
        assert place.submit(work.job, work.files) == handle
        assert len(server.pushed) == sent
        (tmp_path / "go").touch()
        list(place.events(handle))
        place.fetch(handle)
        with pytest.raises(PlaceError, match="fetched before"):
            place.fetch(handle)
        again = place.submit(work.job, work.files)
        assert [path.rpartition("/")[2] for path in server.pushed[sent:]] == ["job.json"]
        list(place.events(again))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"verb": "verify"}, "cannot verify"),
        ({"verb": "calibrate", "model": None}, "cannot calibrate"),
        ({"model": JobModel(name="resnet50")}, "needs a model file"),
        ({"runtime": "litert"}, "--runtime is litert"),
        ({"options": {"unit": "npu"}}, "cannot be asked for unit"),
        ({"options": {"against": "litert"}}, "our own measuring"),
    ],
)
def test_what_a_phone_cannot_do_is_refused(server, binary, tmp_path, change, says):
    work = job_of(tmp_path)
    with resolve(address(server, binary, tmp_path)) as place, pytest.raises(DomainError) as refused:
        place.submit(replace(work.job, **change), work.files)
    assert says in str(refused.value)


def test_a_file_of_another_engine_is_refused(server, binary, tmp_path):
    work = job_of(tmp_path, "net.tflite")
    with resolve(address(server, binary, tmp_path)) as place, pytest.raises(DomainError, match=r"opens \.gguf"):
        place.submit(work.job, work.files)


def test_which_phone_is_said(server, binary, tmp_path):
    work = job_of(tmp_path)
    other = resolve(address(server, binary, tmp_path, serial="emulator-5556"))
    with pytest.raises(UnknownNameError, match=r"adb sees emulator-5554 \(device\)"):
        other.submit(work.job, work.files)
    server.phones = {SERIAL: "unauthorized"}
    with resolve(address(server, binary, tmp_path)) as place, pytest.raises(PlaceError, match="allow debugging"):
        place.submit(work.job, work.files)
    server.phones = {SERIAL: "device", "other": "device"}
    with resolve(address(server, binary, tmp_path, serial="")) as place, pytest.raises(PlaceError, match="2 phones"):
        place.submit(work.job, work.files)
    server.phones = {SERIAL: "device"}
    with resolve(address(server, binary, tmp_path, serial="")) as place:
        assert place.submit(work.job, work.files).job == work.job.id


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("#!/no/such/interpreter\n", "arm64-v8a"),
        ("#!/bin/sh\necho hello\n", "cannot be read"),
        ("#!/bin/sh\necho 'unknown model architecture' >&2; exit 1\n", "unknown model architecture"),
    ],
)
def test_a_benchmark_that_does_not_work_is_told_in_its_words(server, binary, tmp_path, program, says):
    binary.write_text(program)
    work = job_of(tmp_path)
    with resolve(address(server, binary, tmp_path)) as place:
        handle = place.submit(work.job, work.files)
        assert list(place.events(handle))[-1].state == "failed"
        result = place.fetch(handle)
    assert says in f"{result.error} {result.remedy}"


def test_an_address_without_a_program_or_a_server_says_what_to_do(tmp_path, binary):
    with pytest.raises(DomainError, match="binary=PATH"):
        resolve("adb:x")
    with pytest.raises(DomainError, match="no file"):
        resolve("adb:x?binary=/no/llama-bench")
    shutil.copy(binary, tmp_path / "mybench")
    with pytest.raises(UnknownNameError, match="kind=NAME"):
        resolve(f"adb:x?binary={tmp_path}/mybench")
    work = job_of(tmp_path)
    with resolve(f"adb:x?binary={binary}&server=127.0.0.1:1") as place, pytest.raises(PlaceError, match="start-server"):
        place.submit(work.job, work.files)
