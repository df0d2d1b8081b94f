"""What a prediction leaves open is chosen when a study is made, and travels with it to whoever computes its rows."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from inferometer import predict
from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Device, Memory, Roof, Sourced
from inferometer.predict.basis.files import own_folder, write_calibration
from inferometer.predict.basis.roof import machine_roof
from inferometer.predict.sweep import run_study, stream, study_of
from inferometer.predict.sweep.engines import _processes, _work_here
from inferometer.predict.sweep.rows import Rows
from inferometer.predict.sweep.write import fingerprint
from unit.predict.sweep.studies import device, graph, small

TABLE = Utilisation(op_class="linear", stream="floor", axes=("rows",), grid=((1.0,),), values=(0.25,), residual=0.1)
OWN = Calibration(device="nvidia-l4", runtime="torch-compile", dtype="bf16", created="2026-10-01", tables=(TABLE,))
LOCAL = Device(name="local", title="a machine", vendor="Intel", unit="cpu", memories=(Memory(level="dram"),))


def measured(value):
    return Sourced(value=value, origin="measured", source="a test", date="2026-10-01")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder of the user's own; called with a name it is another one from then on."""

    def use(name):
        monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / name))

    use("here")
    return use


def asked(**more):
    return {
        "models": graph(), "devices": [device("nvidia-l4"), device()], "runtimes": "torch-compile",
        "context": [100, 200], **more,
    }  # fmt: skip


def test_a_calibration_of_the_users_own_counts_in_every_process(data, tmp_path):
    plain = run_study(study_of(asked()))["tpot_s"]
    write_calibration(OWN, own_folder())
    study = study_of(asked(), chunk_rows=2)
    here = run_study(study)
    expected = predict(graph(), on=device("nvidia-l4"), runtime="torch-compile", context=100).summary.tpot_s
    assert here["tpot_s"][0] == pytest.approx(expected, rel=1e-12)
    assert (here["tpot_s"][:2] > 1.5 * plain[:2]).all()
    data("elsewhere")  # where the workers find no calibration
    with _processes(1, study) as submit:
        there = Rows([part for chunk in study.chunks() for part in submit(_work_here, chunk, None).result().payload])
    for name in here.columns:
        assert np.array_equal(here[name], there[name], equal_nan=here[name].dtype == float), name
    files = [stream(study, tmp_path / f"{number}.csv", engine=engine).path for number, engine in enumerate(ENGINES)]
    assert files[0].read_bytes() == files[1].read_bytes()


ENGINES = ("local", "local:2")


def test_a_sweep_is_another_one_when_its_calibrations_are(data):
    before = fingerprint(small(runtimes=["torch-compile"]), "csv")
    write_calibration(OWN, own_folder())
    after = fingerprint(small(runtimes=["torch-compile"]), "csv")
    assert before != after
    write_calibration(replace(OWN, created="2026-10-02"), own_folder())
    assert fingerprint(small(runtimes=["torch-compile"]), "csv") not in {before, after}
    data("elsewhere")
    assert fingerprint(small(runtimes=["torch-compile"]), "csv") == before


def test_this_machine_has_the_roof_that_is_kept_for_it(data):
    roof = Roof(
        machine="a machine", created="2026-10-01T00:00:00+00:00", peaks={"f32": measured(1e11)},
        bandwidth_bytes_per_s=measured(1e10),
    )  # fmt: skip
    machine_roof(LOCAL, measure=lambda _: roof)
    study = study_of({"models": graph(), "devices": LOCAL, "weights": ["f32", "q4_0"], "activations": "f32"})
    expected = [
        predict(graph(), on=LOCAL, weights=weights, activations="f32").summary.ttft_s for weights in ("f32", "q4_0")
    ]
    data("elsewhere")
    sent = pickle.loads(pickle.dumps(study))  # noqa: S301 - it was made on the same line
    assert run_study(sent)["ttft_s"].tolist() == pytest.approx(expected, rel=1e-12)


def test_priors_alone_are_no_ones_choice(data):
    write_calibration(OWN, own_folder())
    study = study_of(asked(), calibrated=False)
    assert study.calibrations == ()
    answer = predict(graph(), on=device("nvidia-l4"), runtime="torch-compile", context=100, calibrated=False)
    assert run_study(study)["tpot_s"][0] == pytest.approx(answer.summary.tpot_s, rel=1e-12)
