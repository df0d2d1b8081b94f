import json
from dataclasses import replace
from importlib.metadata import version

import pytest

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.errors import FormatError
from inferometer.core.workload import Precision, Workload
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.predict.basis.calibrations import (
    HostSetup,
    choose_calibration,
    differences,
    host_setup,
    main_weight_format,
    widened,
    with_calibration,
)
from inferometer.predict.basis.files import (
    SHIPPED,
    content_hash,
    file_name,
    files_in,
    own_folder,
    read_calibration,
    sealed,
    write_calibration,
)
from inferometer.predict.precision import with_overrides
from inferometer.predict.question import Basis, Question


def made(**given):
    table = Utilisation(
        op_class="linear", stream="floor", axes=("rows",), grid=((1.0, 8.0),), values=(0.2, 0.5), residual=0.1
    )
    values = {
        "device": "nvidia-h200", "runtime": "torch-compile", "dtype": "bf16", "created": "2026-11-15T10:00:00+00:00",
        "tables": (table,), "residuals": {"linear": 0.1, "step.decode": 0.05}, "versions": {"torch": "2.11"},
        "valid": {"linear": {"rows": (1.0, 8.0)}}, "threads": 4,
    }  # fmt: skip
    return Calibration(**values | given)


def test_a_file_gives_back_what_was_written(tmp_path):
    path = write_calibration(made(), tmp_path)
    assert read_calibration(path) == sealed(made())
    assert path.name == file_name(made())
    assert path.name.startswith("nvidia-h200-torch-compile-bf16-2026-11-15-")


def test_the_hash_is_of_the_content_and_not_of_itself():
    assert content_hash(made()) == content_hash(sealed(made()))
    assert content_hash(made()) != content_hash(made(threads=8))
    assert len(content_hash(made())) == 64


@pytest.mark.parametrize("kept", [0, 1, 100, 400])
def test_a_file_that_was_cut_off_is_refused(tmp_path, kept):
    path = write_calibration(made(), tmp_path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(FormatError, match="not a usable calibration"):
        read_calibration(path)


def test_a_file_that_was_changed_is_refused(tmp_path):
    path = write_calibration(made(), tmp_path)
    path.write_text(path.read_text().replace("0.2", "0.3"))
    with pytest.raises(FormatError, match="changed after it was written"):
        read_calibration(path)


def test_a_file_without_a_hash_is_refused(tmp_path):
    path = write_calibration(made(), tmp_path)
    plain = json.loads(path.read_text()) | {"content_hash": None}
    path.write_text(json.dumps(plain))
    with pytest.raises(FormatError, match="no content hash"):
        read_calibration(path)


@pytest.mark.parametrize(
    "text", ['{"schema": "inferometer.profile/1"}', '{"schema": "inferometer.calibration/9"}', "[]"]
)
def test_a_document_of_another_kind_or_version_is_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"other\.json"):
        read_calibration(path)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FormatError, match=r"nowhere\.json"):
        read_calibration(tmp_path / "nowhere.json")


def test_the_newest_is_chosen_and_the_users_own_before_the_shipped(tmp_path):
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    write_calibration(made(created="2026-01-01"), own)
    newest = write_calibration(made(created="2026-02-01"), own)
    write_calibration(made(created="2026-12-01"), shipped)
    assert choose_calibration("nvidia-h200", "torch-compile", "bf16", folders=(own,), shipped=shipped).path == newest
    assert (
        choose_calibration("nvidia-h200", "torch-compile", folders=(), shipped=shipped).calibration.created
        == "2026-12-01"
    )
    assert (
        choose_calibration("nvidia-h200", "torch-compile", "f32", folders=(own,), shipped=shipped).calibration is None
    )


def test_a_broken_file_is_passed_over_with_its_reason(tmp_path):
    good = write_calibration(made(), tmp_path)
    (tmp_path / "nvidia-h200-broken.json").write_text("{")
    found = choose_calibration("nvidia-h200", "torch-compile", folders=(tmp_path,), shipped=None)
    assert found.path == good
    assert "nvidia-h200-broken.json" in found.refused[0]


@pytest.mark.parametrize(
    ("setup", "words", "factor"),
    [
        (HostSetup(versions={"torch": "2.12"}), "made with torch 2.11; now it is 2.12", 1.5),
        (HostSetup(threads=8), "made with 4 threads; now there are 8", 3.0),
    ],
)
def test_what_has_changed_is_said_and_widens(tmp_path, setup, words, factor):
    write_calibration(made(), tmp_path)
    found = choose_calibration("nvidia-h200", "torch-compile", folders=(tmp_path,), shipped=None, setup=setup)
    assert words in found.notes[0]
    assert found.calibration.residuals["step.decode"] == pytest.approx(0.05 * factor)
    assert found.calibration.notes == found.notes


def test_set_ups_that_are_equal_are_one_key_in_whatever_order_their_packages_were_found():
    one = HostSetup(versions={"torch": "2.11", "numpy": "2"}, threads=4)
    assert {one: 1}[HostSetup(versions={"numpy": "2", "torch": "2.11"}, threads=4)] == 1
    assert one != HostSetup(versions={"torch": "2.11", "numpy": "2"}, threads=8)


def test_what_is_not_known_is_not_compared():
    assert differences(made(), HostSetup()) == ()
    assert differences(made(), HostSetup(versions={"torch": "2.11", "numpy": "2"}, threads=4)) == ()
    assert widened(made(), 2.0).tables[0].residual == pytest.approx(0.2)


def test_peaks_that_nobody_states_are_those_that_were_reached():
    rate = Sourced(value=5e10, origin="measured", source="s", date="2026-11-15")
    bare = Device(name="d", title="D", vendor="v", unit="cpu", memories=(Memory(level="dram"), Memory(level="l3")))
    found = with_calibration(bare, made(peaks={"f32": rate}, bandwidths={"dram": rate}))
    assert found.peaks == {"f32": rate}
    assert [memory.bandwidth_bytes_per_s for memory in found.memories] == [rate, None]
    stated = with_calibration(found, made(peaks={"f32": replace(rate, value=1.0)}))
    assert stated.peaks["f32"].value == 5e10  # what a device states stays


def test_every_shipped_calibration_is_whole():
    paths = files_in((SHIPPED,))
    assert {read_calibration(path).device for path in paths} >= {"nvidia-h200"}
    for path in paths:
        assert path.name == file_name(read_calibration(path))


# ---- which one a question gets --------------------------------------------------------------------------------------


def test_a_build_of_the_same_version_is_the_same_version():
    assert differences(made(versions={"torch": "2.11.0+cu130"}), HostSetup(versions={"torch": "2.11.0"})) == ()


def test_what_runs_here_is_read_without_any_engine():
    found = host_setup("onnxruntime")
    assert found.versions["onnxruntime"] == version("onnxruntime")
    assert found.threads >= 1
    assert host_setup("onnxruntime", 7).threads == 7
    assert "onnxruntime" not in host_setup("llamacpp").versions


def test_weights_of_another_format_are_better_than_none(tmp_path):
    for name in ("q8_0", "f16"):
        write_calibration(made(runtime="llamacpp", dtype=name), tmp_path)
    own = choose_calibration("nvidia-h200", "llamacpp", "q8_0", folders=(tmp_path,), shipped=None)
    assert (own.calibration.dtype, own.notes) == ("q8_0", ())
    near = choose_calibration("nvidia-h200", "llamacpp", "q6_k", folders=(tmp_path,), shipped=None)
    assert near.calibration.dtype == "q8_0"
    assert near.notes == ("There is no calibration of q6_k weights; that of q8_0 weights is used instead.",)
    name = next(iter(own.calibration.residuals))
    assert near.calibration.residuals[name] > 2 * own.calibration.residuals[name]


def test_the_format_of_weights_is_that_of_most_bytes():
    graph = read("smollm2-135m")
    assert main_weight_format(graph, Precision(weights="q4_0")) == "q4_0"
    assert main_weight_format(graph, Precision()) == "bf16"
    mixed = with_overrides(with_overrides(graph, {"*proj*": "q4_k"}), {"*down*": "q6_k"})
    assert main_weight_format(mixed, Precision()) == "q4_k"


def test_a_question_is_answered_in_the_formats_of_its_calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    graph, gpu = read("smollm2-135m"), device("nvidia-h200")
    write_calibration(made(runtime="llamacpp", dtype="q8_0", versions={}), own_folder())
    found = Question(
        graph=graph, device=gpu, runtime="llamacpp", workload=Workload(precision=Precision(weights="q8_0"))
    ).basis()
    assert found.calibration.dtype == "q8_0"
    assert (found.precision.activations, found.precision.kv) == ("f32", "f16")
    bare = Question(graph=graph, device=gpu, runtime="openvino").basis()
    assert bare == Basis(device=gpu, precision=Precision())


def test_on_this_machine_other_threads_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    here = device("local")
    peaks = {"f32": Sourced(value=1e11, origin="calibrated", source="a test", date="2026-11-15")}
    write_calibration(
        made(device="local", runtime="onnxruntime", dtype="f32", versions={}, threads=64, peaks=peaks), own_folder()
    )
    question = Question(graph=read("resnet18"), device=here, runtime="onnxruntime", had_threads=1)
    found = question.basis()
    assert found.notes == ("The calibration of 2026-11-15 was made with 64 threads; now there are 1.",)
    same = replace(question, had_threads=64).basis()
    assert same.notes == ()
    assert float(same.device.peaks["f32"]) == 1e11
