"""A measurement becomes a job and a job the same measurement; what is not understood is refused."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from inferometer.core.codec import decode, encode
from inferometer.core.errors import SchemaError
from inferometer.core.job import Job, JobModel
from inferometer.core.workload import Workload
from inferometer.hub.places.requests import (
    Calibrating,
    Judging,
    calibrating_of,
    judging_of,
    pack_calibration,
    pack_measurement,
    request_of,
)
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.isolate import ChildLimits
from inferometer.measure.run.model import MeasureRequest
from inferometer.measure.run.order import TextOrder
from inferometer.measure.run.tolerance import Tolerance

ASKED = MeasureRequest(
    model="resnet50", runtime="onnxruntime", workload=Workload(batch=2, prompt=3), plan=Plan(runs=7, warmup=0),
    cases=(TextOrder(prompt=1, generate=2),), words="hello", weights="f16", threads=3, unit="gpu:1",
    providers=("CPUExecutionProvider",), precision="f16", optimisation="all", sizes={"n": 4}, inputs={"x": "1.5"},
    options={"session.disable_prepacking": "1"}, limits=ChildLimits(silence_s=5.0, memory_bytes=10), seed=9,
    shape=False, guarded=False, strict=True, energy=False, ignore_memory=True,
    loop="bare", sustained_s=60.0, cool_down_s=5.0, command="inferometer profile",
)  # fmt: skip
JUDGED = Judging(predict=False, device="nvidia-h200", against="openvino", tolerance=Tolerance(relative=0.1))


def sent(job):
    return decode(encode(job), Job)


def test_every_option_arrives():
    untouched = {entry.name for entry in fields(ASKED) if getattr(ASKED, entry.name) == entry.default}
    assert untouched == {"turns", "trust"}, "both hold on one machine; the request of this test must set every option"
    job = sent(pack_measurement("profile", ASKED, JUDGED).job)
    assert request_of(job, Path("files")) == ASKED
    assert judging_of(job) == JUDGED


def test_only_what_was_asked_travels():
    job = pack_measurement("profile", MeasureRequest(model="resnet50"), Judging()).job
    assert (job.plan, job.options) == (None, {})
    assert request_of(sent(job), Path()) == MeasureRequest(model="resnet50")


def test_files_are_named_by_where_they_will_lie(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    (tmp_path / "net.tflite").write_bytes(b"net")
    asked = MeasureRequest(model=str(tmp_path / "net.tflite"), inputs={"x": str(tmp_path / "x.npy"), "y": "2"})
    work = pack_measurement("verify", asked, Judging(against="litert"), reference=str(tmp_path / "net.tflite"))
    assert set(work.files.values()) == {tmp_path / "net.tflite", tmp_path / "x.npy"}
    there = request_of(sent(work.job), Path("/there"))
    assert there.model == str(Path("/there/net.tflite"))
    assert there.inputs == {"x": str(Path("/there/inputs/0-x.npy")), "y": "2"}


def test_a_calibration_arrives():
    asked = Calibrating(budget_s=9.0, device="local:cpu", unit="cpu", dtype="f32", threads=2, guarded=False, fresh=True)
    assert calibrating_of(sent(pack_calibration("openvino", asked).job)) == asked


@pytest.mark.parametrize("change", [{"options": {"invented": 1}}, {"plan": {"laps": 3}}, {"options": {"threads": "x"}}])
def test_what_this_version_does_not_know_is_refused_and_not_skipped(change):
    job = replace(Job(id="j", verb="profile", model=JobModel(name="resnet50")), **change)
    with pytest.raises(SchemaError) as refused:
        (request_of(job, Path()), judging_of(job))
    assert "Upgrade" in str(refused.value) or "does not hold" in str(refused.value)


def test_the_same_question_has_the_same_id_and_another_one_has_not():
    ids = [
        pack_measurement("profile", asked, Judging()).job.id
        for asked in (ASKED, replace(ASKED, command="typed otherwise"), replace(ASKED, seed=1))
    ]
    assert ids[0] == ids[1] != ids[2]
