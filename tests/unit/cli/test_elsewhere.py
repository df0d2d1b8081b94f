"""`--on PLACE`: what comes back is stored and printed as if measured here; what went wrong is said in its words."""

import json
from dataclasses import replace

import pytest

from inferometer.cli import elsewhere
from inferometer.cli.run import run
from inferometer.core.calibration import Calibration
from inferometer.core.codec import encode
from inferometer.core.job import JobResult
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Verification,
)
from inferometer.core.workload import Workload
from inferometer.hub.places.requests import Calibrating, judging_of, pack_calibration, request_of

PHASE = Phase(
    name="forward", time_s=2.0, samples_s=(2.0,), statistic="median",
    ops=(OpTime(name="first", kind="activation", time_s=2.0),),
)  # fmt: skip
PROFILE = Profile(
    kind="measured", model=ModelFacts(name="net"), device=DeviceFacts(name="local"), workload=Workload(),
    phases=(PHASE,), summary=Headline(latency_s=2.0), runtime="onnxruntime", environment=Environment(),
)  # fmt: skip
ADDRESS = "ssh://pi@board"


@pytest.fixture
def there(monkeypatch):
    """A place that answers with what a test gives it, and keeps what it was asked."""
    asked = []

    def answer(place, work, progress=None):
        asked.append((place, work))
        return replace(answer.result, job=work.job)

    work = pack_calibration(None, Calibrating())
    answer.result, answer.asked = JobResult(job=work.job, ended="done", profiles=(PROFILE,)), asked
    for module in ("elsewhere", "commands.profile", "commands.bench", "commands.calibrate"):
        monkeypatch.setattr(f"inferometer.cli.{module}.run_elsewhere", answer)
    return answer


def test_a_profile_from_elsewhere_is_a_run_here(there, capsys):
    there.result = replace(there.result, series={"memory_bytes": ((5, 7.0),)}, log="an engine's words\n")
    assert (
        run(["profile", "resnet50", "--on", ADDRESS, "--on", "raspberry-pi-5", "--runs", "3", "--format", "json"]) == 0
    )
    out, err = capsys.readouterr()
    assert json.loads(out)["phases"][0]["ops"][0]["name"] == "first"
    place, work = there.asked[0]
    assert place == ADDRESS
    assert judging_of(work.job).device == "raspberry-pi-5"
    assert request_of(work.job, None).plan.runs == 3
    run_id = err.split()[1].rstrip(":")
    assert run(["runs", "show", run_id, "--format", "json"]) == 0
    assert "net" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("result", "code", "says"),
    [
        ({"ended": "refused", "error": "No.", "remedy": "Do this.", "error_kind": "FormatError"}, 2, "No. Do this."),
        ({"ended": "refused", "error": "There is no x.", "error_kind": "UnknownNameError"}, 2, "There is no x."),
        ({"ended": "failed", "error": "It broke.", "error_kind": "SomethingNew"}, 2, "It broke."),
        ({"ended": "lost", "error": "Gone.", "log": "a\nKilled\n"}, 2, "Gone. Its log ends with: Killed"),
        ({"ended": "stopped"}, 130, "Interrupted"),
    ],
)  # fmt: skip
def test_what_went_wrong_there_is_said_here(there, capsys, result, code, says):
    there.result = replace(there.result, profiles=(), **result)
    assert run(["profile", "resnet50", "--on", ADDRESS]) == code
    assert says in capsys.readouterr().err


def test_a_measurement_that_ended_early_is_printed_and_fails(there, capsys):
    there.result = replace(there.result, ended="crashed", error="It was killed.", remedy="Use a smaller batch.")
    assert run(["profile", "resnet50", "--on", ADDRESS]) == 2
    out, err = capsys.readouterr()
    assert "forward" in out
    assert "ended early (crashed): It was killed." in err
    assert "smaller batch" in err


def test_a_disturbed_measurement_fails_a_strict_check(there, capsys):
    disturbed = replace(PROFILE, environment=Environment(disturbed=True, reasons=("by a backup.",)))
    there.result = replace(there.result, profiles=(disturbed,))
    assert run(["profile", "resnet50", "--on", ADDRESS, "--strict"]) == 1
    assert "disturbed by a backup" in capsys.readouterr().err


def test_bench_sends_a_model_and_never_a_command(there, capsys, tmp_path):
    saved = tmp_path / "out.json"
    assert run(["bench", "--on", ADDRESS, "--runtime", "openvino", "-o", str(saved), "--", "resnet50"]) == 0
    job = there.asked[0][1].job
    assert (job.verb, job.runtime, job.options["shape"], job.plan) == ("bench", "openvino", False, {})
    assert saved.is_file()
    capsys.readouterr()
    assert run(["bench", "--on", ADDRESS, "--", "./model", "--fast"]) == 2
    assert "a command is not sent elsewhere" in capsys.readouterr().err
    assert run(["bench", "--runtime", "openvino", "--", "true"]) == 2
    assert "with --on" in capsys.readouterr().err


def test_verify_says_what_was_found_there(there, capsys):
    failed = Verification(status="failed", reference="onnxruntime, f32", reason="too far off")
    there.result = replace(there.result, profiles=(), verification=failed)
    assert run(["verify", "resnet50", "--against", "onnxruntime", "--relative", "0.1", "--on", ADDRESS]) == 1
    assert "too far off" in capsys.readouterr().err
    judging = judging_of(there.asked[0][1].job)
    assert (judging.against, judging.tolerance.relative) == ("onnxruntime", 0.1)


def test_a_calibration_of_that_machine_stays_there_and_of_a_catalog_device_is_kept_here(there, capsys, tmp_path):
    made = Calibration(device="local", runtime="onnxruntime", dtype="f32", created="2026-11-15T00:00:00+00:00")
    there.result = replace(there.result, profiles=(), calibration=made, log="3 cases measured.\n")
    assert run(["calibrate", "--on", ADDRESS, "--budget", "30s"]) == 0
    err = capsys.readouterr().err
    assert "The device keeps it" in err
    assert "3 cases measured." in err
    assert run(["calibrate", "--on", ADDRESS, "--out", str(tmp_path / "c.json")]) == 0
    assert (tmp_path / "c.json").is_file()
    there.result = replace(there.result, calibration=replace(made, device="raspberry-pi-5"))
    assert run(["calibrate", "--on", ADDRESS, "--device", "raspberry-pi-5"]) == 0
    assert "raspberry-pi-5" in capsys.readouterr().err
    assert run(["calibrate", "--on", ADDRESS, "--folder", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["profile", "resnet50", "--on", ADDRESS, "--on", "local"], "two places"),
        (["profile", "resnet50", "--on", "shs://pi@board"], "Did you mean ssh"),
        (["profile", "resnet50", "--on", "no-such-device"], "no device named"),
        (["verify", "resnet50", "--against", "onnxruntime", "--on", "nvidia-h200"], "no place named"),
        (["calibrate", "--on", "nvidia-h200"], "no place named"),
        (["bench", "--on", "nvidia-h200", "--", "resnet50"], "no place named"),
        (["profile", "no-such-model", "--on", ADDRESS], "no model named"),
        (["profile", "missing.onnx", "--on", ADDRESS], "no file or folder"),
        (["profile", "resnet50", "--runtime", "os:system", "--on", ADDRESS], "cannot be sent with a job"),
        (["bundle", "create", "resnet50", "-o", "x.zip", "--target", "linux"], "is not a target"),
        (["bundle", "import", "missing.json"], "cannot be read"),
        (["bundle", "creat", "x"], "Did you mean create"),
    ],
)
def test_a_typo_is_an_error_that_says_what_there_is(there, capsys, words, says):
    assert run(words) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("words", ["import", "bundle import"])
@pytest.mark.parametrize("verb", ["profile", "bench"])
def test_the_result_of_a_bundle_becomes_a_run(there, capsys, tmp_path, verb, words):
    advice = "inferometer: bundle import is called import now.\n" if words == "bundle import" else ""
    job = replace(there.result.job, verb=verb, model=elsewhere_model())
    (tmp_path / "result.json").write_bytes(encode(replace(there.result, job=job)))
    assert run([*words.split(), str(tmp_path / "result.json"), "--tag", "field"]) == 0
    out, err = capsys.readouterr()
    assert "first" in out
    assert err.startswith(f"{advice}Run ")
    (tmp_path / "result.json").write_bytes(encode(replace(there.result, job=job, ended="stopped", profiles=())))
    assert run(["bundle", "import", str(tmp_path / "result.json")]) == 2
    assert "before anything was measured" in capsys.readouterr().err


def elsewhere_model():
    from inferometer.core.job import JobModel

    return JobModel(name="resnet50")


def test_a_bundle_is_written_and_not_recorded(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.hub.places.bundle.our_wheel", lambda: b"wheel")
    monkeypatch.setattr("inferometer.hub.places.bundle._repacked", lambda _name: b"package")
    file = tmp_path / "job.zip"
    assert run(["profile", "resnet50", "--runtime", "onnxruntime", "--on", f"bundle:{file}"]) == 0
    err = capsys.readouterr().err
    assert file.is_file()
    assert "On the device: python job.zip" in err
    assert "Run " not in err
    for words in (["verify", "resnet50", "--against", "onnxruntime"], ["calibrate"], ["bench"]):
        tail = ["--", "resnet50"] if words == ["bench"] else []
        assert run([*words, "--on", f"bundle:{file}", *tail]) == 0
    assert elsewhere.waits(f"bundle:{file}")
