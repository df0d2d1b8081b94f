"""Qualcomm AI Hub and AWS Device Farm through their own clients, against servers of ours: what is asked and said."""

import json
import shlex
from dataclasses import replace

import pytest

from fakes.device_services import KEY, SECRET, TOKEN
from fakes.places import QUICK, device_farm, one_layer, qai_hub
from inferometer.core.codec import encode
from inferometer.core.errors import DomainError, PlaceError, UnknownNameError
from inferometer.hub.places.base import resolve
from inferometer.hub.places.benchmarks import BENCHMARKS
from inferometer.hub.places.device_farm import _spec
from inferometer.hub.places.requests import pack_measurement
from inferometer.measure.run.model import MeasureRequest


@pytest.fixture
def qualcomm(tmp_path_factory):
    with qai_hub(tmp_path_factory) as given:
        yield given


@pytest.fixture
def farm(tmp_path_factory):
    with device_farm(tmp_path_factory) as given:
        yield given


def job_of(folder, name, **asked):
    path = folder / name
    if path.suffix == ".onnx":  # it is read for the files beside it
        one_layer(folder, name=name)
    else:
        path.write_bytes(name.encode())
    return pack_measurement("profile", MeasureRequest(model=str(folder / name), guarded=False, energy=False, **asked))


def options(service, kind="inference_job"):
    return [getattr(job, kind).options for job in service.jobs.values() if job.WhichOneof("job") == kind]


def test_qualcomm_is_asked_for_the_unit_and_the_runs_and_gets_the_file(qualcomm, tmp_path):
    work = job_of(tmp_path, "net.tflite", unit="npu", plan=QUICK)
    qualcomm.place.submit(work.job, work.files)
    assert options(qualcomm.service) == ["--compute_unit npu --max_profiler_iterations 3"]
    assert list(qualcomm.service.files.values()) == [b"net.tflite"]


def test_a_model_that_the_engine_does_not_open_is_compiled_first(qualcomm, tmp_path):
    work = job_of(tmp_path, "net.onnx", runtime="litert")
    handle = qualcomm.place.submit(work.job, work.files)
    assert options(qualcomm.service, "compile_job") == ["--target_runtime tflite"]
    assert [event.state for event in qualcomm.place.events(handle)] == ["queued", "preparing", "running", "done"]
    profile = qualcomm.place.fetch(handle).profiles[0]
    assert (profile.runtime, profile.device.name) == ("litert", "Samsung Galaxy S24")
    assert {op.name: op.unit for op in profile.phases[-1].ops} == {"conv": "npu", "softmax": "cpu"}


def test_what_cannot_be_compiled_fails_with_the_compilers_words(qualcomm, tmp_path):
    work = job_of(tmp_path, "odd.onnx", runtime="qnn")
    handle = qualcomm.place.submit(work.job, work.files)
    assert [event.state for event in qualcomm.place.events(handle)][-1] == "failed"
    assert "Frobnicate" in qualcomm.place.fetch(handle).error


@pytest.mark.parametrize(("name", "asked", "words"), [
    ("net.gguf", {}, "opens .dlc, .onnx, .pt2, .tflite"), ("net.tflite", {"runtime": "qnn"}, "does not open .tflite"),
    ("net.tflite", {"threads": 4}, "cannot be asked for threads"), ("net.onnx", {"runtime": "ncnn"}, "It has litert"),
    ("net.onnx", {"unit": "tpu"}, "cpu, gpu, npu"),
])  # fmt: skip
def test_what_qualcomm_cannot_do_is_refused_before_anything_is_sent(qualcomm, tmp_path, name, asked, words):
    work = job_of(tmp_path, name, **asked)
    with pytest.raises((DomainError, UnknownNameError), match=words):
        qualcomm.place.submit(work.job, work.files)
    assert qualcomm.service.asked == []


def test_a_device_that_qualcomm_has_not_is_answered_with_those_near_it(qualcomm, tmp_path):
    work = qualcomm.quick(tmp_path)
    with resolve("qai-hub:Samsung Galaxy S42") as place, pytest.raises(UnknownNameError, match="Samsung Galaxy S24"):
        place.submit(work.job, work.files)


def test_tokens_that_do_not_hold_and_services_that_refuse_are_said_in_a_sentence(qualcomm, tmp_path, monkeypatch):
    work = qualcomm.quick(tmp_path)
    qualcomm.service.refuses["jobs"] = (400, "The model has no input")
    with pytest.raises(PlaceError, match="The model has no input"):
        qualcomm.place.submit(work.job, work.files)
    other = tmp_path / "other.ini"
    for text, words in ((f"[api]\napi_url = {qualcomm.service.url}\nweb_url = x\napi_token = wrong\n", "authenticate"),
                        ("[api]\n", "token is missing")):  # fmt: skip
        other.write_text(text)
        monkeypatch.setenv("QAIHUB_CLIENT_INI", str(other))
        with resolve("qai-hub:Samsung Galaxy S24") as place, pytest.raises(PlaceError, match=words) as said:
            place.submit(work.job, work.files)
        assert "qai-hub configure" in said.value.remedy
        assert "│" not in said.value.message


@pytest.mark.parametrize("given", ["qualcomm", "farm"])
def test_a_job_is_picked_up_by_the_same_command_and_no_key_is_kept(given, request, tmp_path):
    given = request.getfixturevalue(given)
    work = given.quick(tmp_path)
    first = given.place.submit(work.job, work.files)
    sent = len([path for method, path in given.service.asked if method == "PUT"])
    second = given.place.submit(work.job, work.files)
    assert (second, len([path for method, path in given.service.asked if method == "PUT"])) == (first, sent)
    kept = [path.read_text() for path in given.root.rglob("*.json")]
    list(given.place.events(second))
    told = [*kept, encode(given.place.fetch(second)).decode()]
    assert not [key for key in (TOKEN, KEY, SECRET) for text in told if key in text]
    with pytest.raises(PlaceError, match="fetched before"):
        given.place.fetch(second)


def test_the_newest_system_of_a_phone_is_chosen_unless_another_is_named(farm, tmp_path):
    work = farm.quick(tmp_path)
    farm.place.submit(work.job, work.files)
    assert farm.service.runs[f"{farm.service.ARN}:run:0"]["_on"] == [farm.service.devices[0]["arn"]]
    with resolve(f"aws:google pixel 8?os=9.1&binary={farm.root}/benchmark_model") as place:
        place.submit(work.job, work.files)
    assert farm.service.runs[f"{farm.service.ARN}:run:1"]["_on"] == [farm.service.devices[1]["arn"]]


@pytest.mark.parametrize(("address", "words"), [
    ("aws:Pixel 88", "Google Pixel 8"), ("aws:Google Pixel 8?project=x", "has lab"), ("aws:", "names no phone"),
    ("aws:Google Pixel 8?minutes=0", "1 to 150"), ("aws:Google Pixel 8?token=x", "takes project"),
])  # fmt: skip
def test_a_phone_a_project_or_an_option_that_is_not_there_is_said(farm, tmp_path, address, words):
    work, mark = farm.quick(tmp_path), "&" if "?" in address else "?"
    with (
        pytest.raises((UnknownNameError, DomainError), match=words),
        resolve(f"{address}{mark}binary={farm.root}/benchmark_model") as place,
    ):
        place.submit(work.job, work.files)


@pytest.mark.parametrize(("call", "code", "remedy"), [
    ("CreateUpload", "LimitExceededException", "other runs"), ("ListDevices", "AccessDeniedException", "aws configure"),
    ("ScheduleRun", "ArgumentException", "same command"),
])  # fmt: skip
def test_what_amazon_refuses_is_said_with_its_code_and_what_to_do(farm, tmp_path, call, code, remedy):
    farm.service.refuses[call] = code
    work = farm.quick(tmp_path)
    with pytest.raises(PlaceError, match=code) as said:
        farm.place.submit(work.job, work.files)
    assert remedy in said.value.remedy


def test_without_keys_amazon_is_not_asked_and_the_way_to_them_is_named(farm, tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    work = farm.quick(tmp_path)
    with pytest.raises(PlaceError, match="credentials") as said:
        farm.place.submit(work.job, work.files)
    assert "aws configure" in said.value.remedy


def test_a_fault_of_the_service_is_inconclusive_and_one_stopped_on_its_page_is_cancelled(farm, tmp_path):
    for result, state, ended in (("ERRORED", "inconclusive", "lost"), ("STOPPED", "cancelled", "stopped")):
        work = farm.quick(tmp_path)
        handle = farm.place.submit(work.job, work.files)
        for run in farm.service.runs.values():
            run |= {"status": "COMPLETED", "result": result, "message": "the phone fell off the shelf"}
        assert [event.state for event in farm.place.events(handle)][-1] == state
        assert farm.place.fetch(handle).ended == ended


def test_a_run_that_left_nothing_is_lost_and_not_failed(farm, tmp_path):
    work = farm.quick(tmp_path)
    handle = farm.place.submit(work.job, work.files)
    for run in farm.service.runs.values():
        run |= {"status": "COMPLETED", "result": "FAILED"}
    assert [event.state for event in farm.place.events(handle)][-1] == "inconclusive"
    assert "without an exit code" in farm.place.fetch(handle).error


def test_a_name_cannot_leave_its_place_in_the_spec():
    """A model's name is somebody else's word: one argument in the phone's shell, and one string in the spec."""
    odd = 'a"; reboot; $(reboot) #\n- x.tflite'
    words = shlex.join(["./b", *BENCHMARKS[0].arguments(odd, MeasureRequest(model="m"))])
    lines = [line for line in _spec(words).splitlines() if line.startswith("      - ")]
    assert len(lines) == 4
    host = shlex.split(json.loads(lines[2].removeprefix("      - ")))
    assert host[2:6] == ["adb", "-s", "$DEVICEFARM_DEVICE_UDID", "shell"]
    assert f"--graph={odd}" in shlex.split(host[6])


def test_the_same_job_on_another_device_is_another(qualcomm, tmp_path):
    work = qualcomm.quick(tmp_path)
    first = qualcomm.place.submit(work.job, work.files)
    with resolve("qai-hub:Samsung Galaxy S24?os=14") as place:
        second = place.submit(replace(work.job), work.files)
    assert first.folder != second.folder
