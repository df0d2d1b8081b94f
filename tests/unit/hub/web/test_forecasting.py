"""Expected times: of a job, and of its turn in the queue."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.fleet import a_result
from fakes.listeners import listening
from fakes.places import one_layer, packed
from inferometer.core.codec import document
from inferometer.core.device import Roof, Sourced
from inferometer.hub.box.found import means_here
from inferometer.hub.fleet import forecasting
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.fleet.forecast import answer, measuring_s
from inferometer.hub.fleet.starting import starts_in
from inferometer.hub.web.guard.rules import Rules
from inferometer.known import device as device_named
from inferometer.predict.basis.roof import with_roof
from inferometer.store import open_store
from inferometer.store.queue.values import NewDevice, NewJob, Wanted


def sourced(value):
    return Sourced(value=value, origin="measured", source="a test", date="2026-01-01")


ROOF = Roof(machine="m", created="", peaks={"f32": sourced(1e9)}, bandwidth_bytes_per_s=sourced(1e9))


@pytest.fixture
def device():
    return with_roof(replace(device_named("local:cpu"), peaks={}), ROOF)


@pytest.fixture
def desk(tmp_path, device):
    with open_store(tmp_path / "runs.db") as store:
        made = FleetDesk(store, Rules())
        labels = {"runtime": ("onnxruntime",)}
        made.fleet.register(NewDevice(name="pi", labels=labels, facts={"device": document(device)}))
        made.fleet.register(NewDevice(name="bare", labels=labels))
        yield made


def given(desk, folder, name="net.onnx", device="pi", **changes):
    work = packed(one_layer(folder, name=name))
    for file in work.job.files:
        desk.artifacts.add(work.files[file.sha256], file)
    job = replace(work.job, **changes)
    return desk.fleet.submit(NewJob(job=job, wanted=Wanted(device=device)))[0].id, job


def forecast(desk, job):
    desk.forecaster._looked_at = float("-inf")  # as if some seconds had passed
    return desk.forecaster.forecast(desk.fleet.job(job), desk.fleet.document(job))


def test_a_plan_says_how_often_a_step_is_run(device, tmp_path):
    work = packed(one_layer(tmp_path))
    bench = replace(work.job, verb="bench", plan={"runs": 100, "seconds": 0.0, "warmup": 0})
    step = measuring_s(bench, tmp_path, device, ()) / 100
    assert 0 < step < 1
    timed = replace(bench, plan={"runs": 1, "seconds": 7.0, "warmup": 0})
    assert measuring_s(timed, tmp_path, device, ()) == 7.0
    assert measuring_s(replace(timed, verb="profile"), tmp_path, device, ()) == 14.0  # once more with timers
    assert measuring_s(replace(timed, verb="verify"), tmp_path, device, ()) == pytest.approx(2 * step)
    assert measuring_s(replace(work.job, verb="calibrate", options={"budget_s": 30.0}), tmp_path, device, ()) == 30.0


def test_a_job_is_expected_to_take_what_is_predicted_and_then_what_it_took(desk, tmp_path):
    first, job = given(desk, tmp_path, plan={"runs": 3, "seconds": 2.0, "warmup": 0})
    expected = forecast(desk, first)
    assert expected.seconds == pytest.approx(2 * 2.0 + 6.0, rel=0.01), expected
    assert "predicted for pi: 4 s of measuring, and 6 s around it" in expected.source
    assert desk.fleet.job(first).expected_s == expected.seconds
    lease = desk.fleet.lease("pi")
    desk.fleet.finish(first, lease.id, a_result(job))
    desk.fleet.result(first, fetched=True)
    again, _ = given(desk, tmp_path, plan={"runs": 3, "seconds": 2.0, "warmup": 0})
    expected = forecast(desk, again)
    assert expected.source == "as it took before on pi"
    took = desk.fleet.job(first)
    assert expected.seconds == pytest.approx(took.ended - took.leased)


def test_devices_of_a_kind_are_predicted_once(desk, tmp_path, device, monkeypatch):
    asked = []
    seen = {"seconds": 1.0}
    monkeypatch.setattr(desk.forecaster, "_asked", lambda _job, device, _more: asked.append(device.name) or seen)
    desk.fleet.register(
        NewDevice(name="twin", labels={"runtime": ("onnxruntime",)}, facts={"device": document(device)})
    )
    found = [forecast(desk, given(desk, tmp_path, device=name)[0]) for name in ("pi", "twin")]
    assert [expected.source.split(":")[0] for expected in found] == ["predicted for pi", "predicted for twin"]
    assert asked == ["pi"]


def test_what_cannot_be_predicted_says_why(desk, tmp_path, monkeypatch):
    monkeypatch.setattr(forecasting, "in_a_process", lambda asked, *_: answer(asked))
    job, _ = given(desk, tmp_path, device="bare")
    assert forecast(desk, job).source == "no device that fits has said what it can do"
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"nonsense")
    work = packed(one_layer(tmp_path))
    sha256 = hashlib.sha256(b"nonsense").hexdigest()
    file = replace(work.job.files[0], sha256=sha256, size_bytes=8)
    desk.artifacts.add(broken, file)
    bad = replace(work.job, id="profile-bad", model=replace(work.job.model, files=(file,)))
    row, _ = desk.fleet.submit(NewJob(job=bad, wanted=Wanted(device="pi")))
    expected = forecast(desk, row.id)
    assert expected.seconds is None
    assert expected.source.startswith("not predicted for pi: ")
    assert str(tmp_path) not in expected.source


def test_what_a_forecast_left_behind_is_dropped(desk, tmp_path):
    old, new = (desk.root / "forecasts" / name / "files" for name in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old.parent, (0, 0))
    desk.tidy()
    assert (old.parent.exists(), new.exists()) == (False, True)
    forecast(desk, given(desk, tmp_path)[0])
    assert list((desk.root / "forecasts").iterdir()) == [new.parent]


HERE = means_here()


@pytest.mark.parametrize("linked", ["hard", "soft"])
@pytest.mark.parametrize(
    "means",
    [
        pytest.param(HERE, marks=pytest.mark.skipif(not HERE.bubblewrap, reason="bubblewrap does not work here")),
        pytest.param(
            replace(HERE, bubblewrap=None), marks=pytest.mark.skipif(not HERE.landlock, reason="there is no Landlock")
        ),
    ],
    ids=["bubblewrap", "landlock"],
)
def test_a_file_that_takes_over_its_reader_sees_nothing_of_the_hub(tmp_path, monkeypatch, means, linked):
    """Neither its store, nor another's model, nor its token, nor the network; it writes nothing and starts nothing."""
    monkeypatch.setenv("INFEROMETER_TOKEN", "ifm_x")
    monkeypatch.setenv("OTHER_TOKEN", "x")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
    monkeypatch.setattr(forecasting, "_READER", "fakes.hostile_forecast")
    store, other, model = (tmp_path / name for name in ("runs.db", "other.onnx", "mine.onnx"))
    for path in (store, other, model):
        path.write_text(path.name)
    folder = tmp_path / "forecasts" / "one"
    (folder / "files").mkdir(parents=True)
    (os.link if linked == "hard" else os.symlink)(model, folder / "files" / "net.onnx")
    with listening() as (server, place):
        asked = {
            "files": str(folder / "files"), "port": server.getsockname()[1], "socket": str(place),
            "readable": [str(store), str(other), "/etc/shadow", str(Path.home() / ".bashrc")],
            "writable": [str(folder / "own" / "x"), str(folder / "files" / "net.onnx"), str(tmp_path / "x")],
        }  # fmt: skip
        found = forecasting.in_a_process(asked, folder, [store], means)
    assert found == {"done": ["a thread"], "model": "mine.onnx"}
    assert model.read_text() == "mine.onnx"


def test_each_job_waits_for_those_before_it(desk, tmp_path):
    jobs = [given(desk, tmp_path, id=f"profile-{number}")[0] for number in range(3)]
    for job in jobs:
        desk.fleet.expect(job, 10.0, "a test")
    desk.fleet.lease("pi")
    left = starts_in(desk.fleet)
    assert left[jobs[1]] == pytest.approx(10.0, abs=1)
    assert left[jobs[2]] == pytest.approx(20.0, abs=1)
    desk.fleet.expect(jobs[1], None, "unknown")
    assert starts_in(desk.fleet)[jobs[2]] is None


def test_jobs_begin_in_the_order_of_fair_shares(desk, tmp_path):
    """Three jobs of one project came before one of another, which has used nothing: it is second."""
    jobs = {}
    for number, project in enumerate(("busy", "busy", "busy", "quiet")):
        work = packed(one_layer(tmp_path, name=f"net{number}.onnx"))
        for file in work.job.files:
            desk.artifacts.add(work.files[file.sha256], file)
        new = NewJob(job=replace(work.job, id=f"key{number}"), wanted=Wanted(device="pi"), project=project)
        jobs[number] = desk.fleet.submit(new)[0].id
        desk.fleet.expect(jobs[number], 10.0, "a test")
    starts = starts_in(desk.fleet)
    begun = []
    while (lease := desk.fleet.lease("pi")) is not None:
        begun.append(lease.row.id)
        desk.fleet.finish(lease.row.id, lease.id, a_result(lease.job))
    assert sorted(starts, key=starts.get) == begun
    assert begun == [jobs[0], jobs[3], jobs[1], jobs[2]]
    assert sorted(starts.values()) == pytest.approx([0.0, 10.0, 20.0, 30.0], abs=1)


def test_what_a_box_prints_is_text_from_elsewhere(tmp_path, monkeypatch):
    """Whoever has taken over what reads a model could print anything: a nest without end ends no thread of the hub."""
    ran = forecasting.subprocess.CompletedProcess([], 0, stdout="[" * 100_000)
    monkeypatch.setattr(forecasting.subprocess, "run", lambda *_, **__: ran)
    with pytest.raises(ValueError, match="nested too deeply"):  # which a forecast takes for "unknown"
        forecasting.in_a_process({}, tmp_path, ())
