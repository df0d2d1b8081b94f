"""Whether an answer is one to its question: every way in which it can be about something else, and times that lie."""

from dataclasses import replace

import pytest

from fakes.fleet import a_job, a_result
from fakes.places import one_layer, packed
from inferometer.core.codec import document
from inferometer.core.job import JobFile, JobModel
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import ModelFacts
from inferometer.core.workload import Workload
from inferometer.hub.fleet.desk import mismatch, too_fast
from inferometer.hub.fleet.forecast import Said, answer, floors
from inferometer.known import device as device_named
from unit.hub.web.samples import decoder, network

JOB = a_job()
OTHER = JobModel(name="net", entry="net.onnx", files=(JobFile(path="net.onnx", sha256="cd" * 32, size_bytes=7),))
HONEST = network(name="net")


def on_machine(profile, machine):
    return replace(profile, environment=replace(profile.environment, machine=MachineFacts(id=machine)))


def test_an_honest_answer_is_believed():
    assert mismatch(JOB, a_result(JOB, on_machine(HONEST, "m1")), "m1", "net") is None
    assert mismatch(JOB, a_result(JOB, HONEST), "m1", "net") is None  # an older agent does not say its machine
    assert mismatch(JOB, a_result(JOB, ended="crashed"), "m1", None) is None
    assert too_fast(a_result(JOB, HONEST), [{"forward": 1e-4}]) is None


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (a_result(a_job(2), HONEST), "another job, profile-2"),
        (a_result(a_job(model=OTHER), HONEST), "another model"),
        (a_result(replace(JOB, workload=Workload(batch=8)), HONEST), "another question"),
        (a_result(a_job(runtime="litert"), HONEST), "another question"),
        (a_result(JOB, *[HONEST] * 50), "50 profiles, and the job asks for 1"),
        (a_result(JOB), "0 profiles, and the job asks for 1"),
        (a_result(JOB, network(name="other")), "Its model is other, and the job is about net"),
        (a_result(JOB, on_machine(HONEST, "m2")), "Its machine is m2, and the job is about m1"),
        (a_result(JOB, replace(HONEST, runtime="litert")), "Its runtime is litert"),
        (a_result(JOB, replace(HONEST, workload=Workload(batch=1))), "Its batch is 1, and the job is about 2"),
        (a_result(JOB, replace(HONEST, kind="predicted")), "Its kind is predicted"),
    ],
)
def test_an_answer_to_another_question_is_not(result, says):
    assert says in mismatch(JOB, result, "m1", "net")


def test_a_verb_that_is_done_has_made_something():
    verify = replace(JOB, verb="verify")
    assert "nothing of what verify makes" in mismatch(verify, a_result(verify), None, None)
    assert mismatch(verify, a_result(verify, ended="refused"), None, None) is None


def test_what_was_prepared_has_its_proof_and_may_have_files_and_no_time():
    prepare = replace(JOB, verb="prepare")
    made, proven = (JobFile(path="net-i8.onnx", sha256="cd" * 32, size_bytes=2),), {"schema": "inferometer.prepared/1"}
    renamed = network(name="what a tool calls it")
    assert "nothing of what prepare makes" in mismatch(prepare, a_result(prepare, renamed), None, "net")
    for profiles in ((), (renamed,)):
        result = replace(a_result(prepare, *profiles), made=made, prepared=proven)
        assert mismatch(prepare, result, None, "net") is None
    assert "2 profiles" in mismatch(prepare, replace(a_result(prepare, renamed, renamed), prepared=proven), None, "net")
    assert "the job makes none" in mismatch(JOB, replace(a_result(JOB, HONEST), made=made), None, "net")


def test_each_case_of_a_language_model_is_compared_with_its_own_lengths():
    cases = [{"prompt": 32, "generate": 17}, {"prompt": 64, "generate": 17}]
    job = replace(a_job(runtime="llamacpp"), workload=Workload(), options={"cases": cases})
    short = decoder()
    long = replace(short, workload=replace(short.workload, prompt=64))
    assert mismatch(job, a_result(job, short, long), None, None) is None
    assert "Its prompt is 32, and the job is about 64" in mismatch(job, a_result(job, short, short), None, None)
    assert mismatch(job, a_result(job, short, ended="stopped"), None, None) is None  # what there was until then


def times(profile, time_s, **changes):
    """The same profile with another time of its forward pass."""
    load, forward = profile.phases
    changed = replace(forward, **{"time_s": time_s, "samples_s": (time_s,), **changes})
    return replace(profile, phases=(load, changed), summary=replace(profile.summary, latency_s=time_s))


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        (times(HONEST, 1e-9, floor_s=None), "1 ns: no engine answers a call in that time"),
        (times(HONEST, 1e-3, floor_s=None), "cannot take less than 8 ms"),
        (times(HONEST, 7e-3, samples_s=(7e-3, 1e-9)), "Its shortest forward takes 1 ns"),
        (replace(HONEST, summary=replace(HONEST.summary, latency_s=1e-9)), "Its headline of forward takes 1 ns"),
    ],
)
def test_no_time_is_believed_that_is_far_below_its_floor(profile, says):
    assert says in too_fast(a_result(JOB, profile), [{"forward": 8e-3}])


def test_a_floor_that_only_the_document_states_may_be_one_of_a_busy_machine():
    stated = [times(HONEST, time_s, floor_s=64e-3) for time_s in (1e-3, 0.9e-3)]
    assert [too_fast(a_result(JOB, profile), [{}]) for profile in stated] == [
        None, "Its phase forward takes 900 µs, and cannot take less than 4 ms on this device."
    ]  # fmt: skip


def test_beating_a_floor_as_honest_engines_do_is_believed():
    assert too_fast(a_result(JOB, times(HONEST, 4e-3)), [{"forward": 8e-3}]) is None


def test_the_floor_is_counted_here_whatever_a_device_says_of_itself(tmp_path):
    work, honest = packed(one_layer(tmp_path)), device_named("nvidia-t4")
    said = Said(workloads=(Workload(batch=1),), unit="gpu")
    true = floors(work.job, tmp_path, honest, said)
    assert true["model"] == "net"
    assert true["floors"][0]["forward"] > 0
    peaks = {name: replace(peak, value=1e40) for name, peak in honest.peaks.items()}
    boasting = replace(honest, name="local", peaks=peaks)
    busy = {name: replace(peak, value=peak.value / 12, origin="measured") for name, peak in honest.peaks.items()}
    shared = tuple(
        replace(level, bandwidth_bytes_per_s=rate and replace(rate, value=rate.value / 12, origin="measured"))
        for level in honest.memories
        for rate in [level.bandwidth_bytes_per_s]
    )
    beside_others = replace(honest, name="local", peaks=busy, memories=shared)
    found = floors(work.job, tmp_path, beside_others, said)["floors"][0]["forward"]
    assert found == pytest.approx(true["floors"][0]["forward"] * 12 / 16)  # figures of a busy machine refuse nobody
    lied = floors(work.job, tmp_path, boasting, said)["floors"][0]["forward"]
    assert lied > true["floors"][0]["forward"] / 10_000  # as fast as the fastest of the catalog, and no faster
    under_its_name = floors(work.job, tmp_path, replace(boasting, name=honest.name), said)
    assert under_its_name == true  # the catalog knows better
    asked = {"job": document(work.job), "files": str(tmp_path), "device": document(honest), "calibrations": []}
    plain = {"workloads": [{"batch": 1}], "unit": "gpu"}
    assert answer({**asked, "floors": plain}) == true


def test_facts_of_a_model_without_a_name_hinder_nothing():
    nameless = replace(HONEST, model=ModelFacts(name=""))
    assert mismatch(JOB, a_result(JOB, nameless), None, None) is None
