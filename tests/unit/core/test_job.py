"""A job is data that may come from anywhere: what it may not say is refused when it is read."""

import msgspec
import pytest

from inferometer.core.codec import decode, document, encode
from inferometer.core.job import Job, JobEvent, JobFile, JobModel, JobResult
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Profile
from inferometer.core.workload import Workload
from inferometer.errors import DomainError, InferometerError, SchemaError

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
        ({"schema": "inferometer.job/2"}, "Upgrade"),
    ],
)
def test_a_job_that_is_more_than_data_is_refused(change, says):
    plain = document(Job(id="j1", verb="profile", model=NET))
    with pytest.raises(SchemaError) as refused:
        decode(msgspec.json.encode({**plain, **change}), Job)
    assert says in str(refused.value)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "C:\\x", "a\\b", "C:x", "a\0b"])
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
                for file, sha in ([("config.json", A), ("weights", B)])
            ),
        )
        for name in ("one", "two")
    ]
    assert folders[0].sha256 == folders[1].sha256
    assert folders[0].sha256 not in {A, B}


def test_a_model_opens_one_of_its_own_files():
    with pytest.raises(InferometerError, match="not among its files"):
        JobModel(name="net", entry="other", files=NET.files)


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
