"""On this machine every engine for CPUs answers in every format, whatever was calibrated here and what was not."""

import pytest

from inferometer.core.calibration import Calibration
from inferometer.core.device import Roof, Sourced
from inferometer.core.dtypes import is_gguf_block
from inferometer.core.errors import DomainError
from inferometer.known import device
from inferometer.known.engines import engines
from inferometer.known.machine.detect.identity import this_machine
from inferometer.predict import ask as asking
from inferometer.predict.basis.files import own_folder, write_calibration

RATE = Sourced(value=1e11, origin="calibrated", source="a test", date="2026-01-01")
ROOF = Roof(machine="m", created="2026-01-01T00:00:00+00:00", peaks={"f32": RATE}, bandwidth_bytes_per_s=RATE)
HERE = [
    name
    for name, described in engines().items()
    if described.takes in {"all", "tokens"} and described.runs_on(device("raspberry-pi-5"))
]
FORMATS = (None, "f32", "f16", "bf16", "i8", "q8_0", "q4_0", "q4_k")


def calibrated(runtime, dtype, peak, machine_id=None):
    """As if that engine had been calibrated here, in that format alone."""
    write_calibration(
        Calibration(
            device="local", runtime=runtime, dtype=dtype, created="2026-01-01T00:00:00", peaks={peak: RATE},
            bandwidths={"dram": RATE}, environment={"machine_id": machine_id or this_machine().id},
        ),
        own_folder(),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    local = device("local")
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    monkeypatch.setattr(asking, "roof_for", lambda _: ROOF)
    monkeypatch.setattr(asking, "device_for", lambda *_: local)


def answered(runtime, **formats):
    return asking.ask("smollm2-135m", on="local", runtime=runtime, context=64, **formats).answer()


def notes(profile):
    return " ".join(profile.provenance.notes)


MADE = [("onnxruntime", "f32", "f32"), ("llamacpp", "q8_0", "i8"), ("llamacpp", "bf16", "bf16")]


@pytest.mark.parametrize("made", MADE, ids="-".join)
def test_every_engine_for_cpus_answers_in_every_format(made):
    """With each calibration one format of activations, so that the three of them meet all."""
    calibrated(*made)
    for turn, runtime in enumerate(HERE, MADE.index(made)):
        activations = (None, "f16", "i8")[turn % 3]
        for weights in FORMATS:
            if (
                weights is not None
                and is_gguf_block(weights)
                and engines()[runtime].opens
                and "gguf" not in engines()[runtime].opens
            ):
                with pytest.raises(DomainError, match="is a format of GGUF files"):
                    answered(runtime, weights=weights)
                continue
            step = answered(runtime, weights=weights, activations=activations).phase("decode")
            assert 0 < step.time_s <= step.high_s, (runtime, weights, activations)


def test_the_engine_that_was_asked_about_is_the_one_to_calibrate():
    calibrated("onnxruntime", "f32", "f32")
    assert "`inferometer calibrate --runtime llamacpp --dtype q4_0`" in notes(answered("llamacpp", weights="q4_0"))
    calibrated("llamacpp", "q8_0", "i8")  # another format of the same engine stands in, and a note says so
    said = notes(answered("llamacpp", weights="q4_0"))
    assert "inferometer calibrate" not in said
    assert "that of q8_0 weights is used instead" in said
    for runtime, activations in (("onnxruntime", "f32"), ("onnxruntime", "bf16"), ("ideal", None)):
        # It is calibrated; its probes are in f32 alone; it is no engine.
        assert "inferometer calibrate" not in notes(answered(runtime, activations=activations))


def test_a_calibration_of_another_machine_in_a_shared_folder_is_not_ours():
    calibrated("onnxruntime", "f32", "f32", machine_id="another")
    answer = answered("onnxruntime", activations="f32")
    used = answer.judged_by.calibration
    assert used is None or used.device != "local", "a shipped one may serve it"
    assert "`inferometer calibrate --runtime onnxruntime`" in notes(answer)
