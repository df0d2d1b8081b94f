"""A job is data that may come from anywhere: what it may not say is refused when it is read."""

import msgspec
import pytest

from inferometer.core.codec import decode, document, encode
from inferometer.core.errors import DomainError, InferometerError, SchemaError, TrustError
from inferometer.core.job import Job, JobEvent, JobFile, JobModel, JobResult
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Profile
from inferometer.core.workload import Workload

A, B = "a" * 64, "b" * 64
NET = JobModel(name="net.onnx", entry="net.onnx", files=(JobFile(path="net.onnx", sha256=A, size_bytes=3),))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"verb": "shell"}, "valid inferometer.job/1"),
        ({"verb": "profile", "model": None}, "needs a model"),
        ({"runtime": "os:system"}, "cannot be sent"),
        ({"options": {"against": "os:system"}}, "cannot be sent"),
        ({"id": "../../etc"}, "not the id"),
        ({"seconds_at_most": -1.0}, "at most"),
        ({"runtime": "r" * 10_000}, "cannot be sent"),
        ({"options": {"providers": ["files/evil.so"]}}, "names the provider 'files/evil.so'"),
        ({"options": {"providers": ["evil.so"]}}, "names the provider 'evil.so'"),
        ({"options": {"providers": ["evil.so.1"]}}, "names the provider 'evil.so.1'"),
        ({"options": {"providers": ["C:\\evil.dll"]}}, "names the provider"),
        ({"options": {"providers": [["a"]]}}, "names the provider"),
        ({"options": {"providers": 5}}, "valid inferometer.job/1"),
        ({"options": {"unit": "../gpu"}}, "names the unit '../gpu'"),
        ({"options": {"device": "/etc/passwd"}}, "names the device"),
        ({"options": {"weights": "f32;reboot"}}, "names the weights"),
        ({"options": {"options": {"CACHE_DIR": "/home/x"}}}, "option 'CACHE_DIR' to '/home/x'"),
        ({"options": {"options": {"CONFIG_FILE": "plugins.so"}}}, "is no plain value"),
        ({"options": {"inputs": {"x": "/etc/passwd"}}}, "is no number"),
        ({"options": {"words": "w" * 1_000_001}}, "words has 1,000,001 letters"),
        ({"command": "c" * 20_001}, "command has 20,001 letters"),
        ({"model": {"name": "/etc/passwd"}}, "'/etc/passwd' is a path, and the job brings no file"),
        ({"model": {"name": "../../secret.onnx"}}, "is a path"),
        ({"model": {"name": "~/secret.onnx"}}, "is a path"),
        ({"model": {"name": "C:secret.onnx"}}, "is a path"),
        ({"model": {"name": "a\nb"}}, "is a path"),
        ({"model": {"name": "n" * 10_000}}, "name has 10,000 letters"),
        ({"reference": {"name": "/etc/passwd"}}, "is a path"),
        ({"inputs": {"x": {"path": "inputs/x.npz", "sha256": A, "size_bytes": 1}}}, "inputs are .npy files"),
        ({"inputs": {"x": {"path": "net.onnx/x.npy", "sha256": A, "size_bytes": 1}}}, "as a file and as the folder"),
        ({"inputs": {"x": {"path": "NET.onnx", "sha256": A, "size_bytes": 1}}}, "names the same file twice"),
        ({"schema": "inferometer.job/2"}, "Upgrade"),
    ],
)
def test_a_job_that_is_more_than_data_is_refused(change, says):
    plain = document(Job(id="j1", verb="profile", model=NET))
    with pytest.raises(SchemaError) as refused:
        decode(msgspec.json.encode({**plain, **change}), Job)
    assert says in str(refused.value)


@pytest.mark.parametrize("path", [
    "/etc/passwd", "../x", "a/../../x", "", "C:\\x", "a\\b", "C:x", "a\0b", "a//b", "./a", "a/.", "a/", "a\nb",
    "a\x1bb", "\u202ea", "CON", "con.onnx", "a/NUL", "lpt1.bin", "a.", "a ", " a", "x" * 201, "a/" * 600 + "b",
])  # fmt: skip
def test_a_file_stays_in_the_folder_of_its_job(path):
    with pytest.raises(DomainError, match="inside its folder"):
        JobFile(path=path, sha256=A, size_bytes=1)


def test_a_model_is_what_is_in_its_files_whatever_it_is_called():
    other = JobModel(name="b.onnx", entry="b.onnx", files=(JobFile(path="b.onnx", sha256=A, size_bytes=3),))
    assert NET.sha256 == other.sha256 == A
    assert JobModel(name="resnet50").sha256 is None
    folders = [
        JobModel(
            name=name,
            entry=name,
            files=tuple(
                JobFile(path=f"{name}/{file}", sha256=sha, size_bytes=1)
                for file, sha in ([("config.json", A), ("weights.safetensors", B)])
            ),
        )
        for name in ("one", "two")
    ]
    assert folders[0].sha256 == folders[1].sha256
    assert folders[0].sha256 not in {A, B}


def test_a_model_opens_one_of_its_own_files():
    with pytest.raises(InferometerError, match="not among its files"):
        JobModel(name="net", entry="other", files=NET.files)


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ("m.tflite", "evil.so"), ("m.tflite", "other.tflite"), ("m.onnx", "evil.so.1"), ("m.onnx", "evil.DLL"),
        ("m.onnx", "x.py"), ("m.onnx", "x.pkl"), ("m.xml", "x.json"), ("m.gguf", "lora.bin"), ("m.pt2", "x.json"),
        ("m", "m/modeling.py"), ("m", "m/pytorch_model.bin"), ("m", "m/training_args.bin"), ("m", "m/x.pt"),
        ("m", "beside.json"), ("m", "m/README.md"), ("evil.py", "evil.py"), ("model.pkl", "model.pkl"),
    ],
)  # fmt: skip
def test_what_is_no_part_of_a_model_is_not_carried(entry, path):
    opened = entry if "." in entry else f"{entry}/config.json"
    paths = dict.fromkeys((opened, path))
    with pytest.raises(TrustError, match="is no part of a model") as refused:
        JobModel(name="m", entry=entry, files=tuple(JobFile(path=name, sha256=A, size_bytes=1) for name in paths))
    assert repr(path) in refused.value.message


@pytest.mark.parametrize(
    "paths",
    [
        ("m.onnx", "m.onnx.data", "weights/w1"), ("m.xml", "m.bin"), ("m.param", "m.bin"),
        ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"), ("m.pt2",), ("m.mnn",), ("m.pte",), ("net",),
        ("m/config.json", "m/model.safetensors", "m/tokenizer.model", "m/merges.txt", "m/chat_template.jinja"),
        ("m/model.bin", "m/vocabulary.json"), ("m/openvino_model.xml", "m/openvino_model.bin"),
        ("m/genai_config.json", "m/model.onnx", "m/model.onnx.data", "m/model.onnx_data"),
    ],
)  # fmt: skip
def test_what_models_consist_of_is_carried(paths):
    entry = paths[0].partition("/")[0]
    JobModel(name="m", entry=entry, files=tuple(JobFile(path=name, sha256=A, size_bytes=1) for name in paths))


@pytest.mark.parametrize(
    "pair", [("a.onnx", "A.onnx"), ("é.onnx", "e\u0301.onnx"), ("a", "a/b"), ("ß.onnx", "ss.onnx")]
)
def test_names_that_a_file_system_takes_for_one_are_refused(pair):
    with pytest.raises(DomainError, match=r"names the same file twice|as a file and as the folder"):
        JobModel(name="m", entry=pair[0], files=tuple(JobFile(path=name, sha256=A, size_bytes=1) for name in pair))


def test_two_files_of_one_name_do_not_stand_in_for_each_other():
    other = JobModel(name="net.onnx", entry="net.onnx", files=(JobFile(path="net.onnx", sha256=B, size_bytes=3),))
    with pytest.raises(DomainError, match="two files of one name"):
        Job(id="j1", verb="verify", model=NET, reference=other)


def test_a_result_says_the_state_that_its_job_ends_in():
    job = Job(id="j1", verb="profile", model=NET)
    states = {end: JobResult(job=job, ended=end).state for end in ("done", "stopped", "refused", "lost")}
    assert states == {"done": "done", "stopped": "cancelled", "refused": "failed", "lost": "inconclusive"}
    profile = Profile(
        kind="measured", model=ModelFacts(name="net"), device=DeviceFacts(name="local"), workload=Workload(batch=3),
        phases=(), summary=Headline(),
    )  # fmt: skip
    result = JobResult(job=job, ended="done", profiles=(profile, profile), series={"memory_bytes": ((1, 2.0),)})
    assert decode(encode(result), JobResult) == result
    assert "precision" in document(result)["profiles"][1], "a profile has one shape, wherever it is"


def test_an_event_is_a_line():
    event = JobEvent(job="j1", number=1, at=0.0, kind="state", state="done")
    assert event.final
    assert decode(encode(event), JobEvent) == event
