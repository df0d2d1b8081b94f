"""What a job says is known before it travels, and its files are looked at before anything opens them."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from fakes import hostile
from inferometer.core.errors import (
    DomainError,
    FormatError,
    InferometerError,
    SchemaError,
    TrustError,
    UnknownNameError,
)
from inferometer.core.job import Job, JobFile, JobModel
from inferometer.formats.trust import door
from inferometer.hub.agent.carrying_out import carry_out, require_files
from inferometer.hub.fleet.forecast import measuring_s
from inferometer.hub.places.artifacts import model_files
from inferometer.hub.places.requests import Judging, pack_measurement, require_known
from inferometer.measure.run.model import MeasureRequest
from unit.formats.torch.test_package import package


def job_of(**known):
    return Job(**{"id": "j1", "verb": "profile", "model": JobModel(name="resnet50"), **known})


def carried(folder, entry, *beside):
    """A job with files as they lie in a folder."""
    files = tuple(
        JobFile(path=name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        for name in (entry, *beside)
        for data in [(folder / name).read_bytes()]
    )
    return job_of(model=JobModel(name=entry, entry=entry, files=files))


def network(path, *, external=None):
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    if external is None:
        weight.raw_data = np.ones(4, np.float32).tobytes()
    else:
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", external), ("offset", "0"), ("length", "16")):
            weight.external_data.add(key=key, value=value)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"model": JobModel(name="no-such-model")}, UnknownNameError, "no model of the catalog named 'no-such-model'"),
        ({"model": JobModel(name="net.onnx")}, UnknownNameError, "no model of the catalog named 'net.onnx'"),
        ({"reference": JobModel(name="secret")}, UnknownNameError, "no model of the catalog named 'secret'"),
        ({"options": {"invented": 1}}, SchemaError, "asks for 'invented'"),
        ({"options": {"trust": ["m.pt2"]}}, SchemaError, "asks for 'trust'"),
        ({"options": {"turns": {}}}, SchemaError, "asks for 'turns'"),
        ({"plan": {"command": "x"}}, SchemaError, "asks for 'command'"),
        ({"options": {"options": {"CACHE_DIR": "x"}}, "runtime": "openvino"}, UnknownNameError, "option of OpenVINO"),
        ({"options": {"options": {"rpc": "host:1"}}, "runtime": "llamacpp"}, UnknownNameError, "option of llama.cpp"),
        ({"options": {"options": {"ep.context_enable": "1"}}, "runtime": "onnxruntime"}, UnknownNameError, "option of"),
        ({"options": {"options": {"a": "1"}}}, DomainError, "of an engine that it does not name"),
        ({"verb": "calibrate", "model": None, "options": {"folder": "x"}}, SchemaError, "asks for 'folder'"),
    ],
)
def test_what_a_job_says_is_known_or_refused_wherever_it_goes_by(change, kind, says, tmp_path):
    job = job_of(**change)
    with pytest.raises(kind, match=says):
        require_known(job)
    with pytest.raises(kind, match=says):
        measuring_s(job, tmp_path, None, ())
    result = carry_out(job, tmp_path, lambda _: None)
    assert (result.ended, result.error_kind) == ("refused", kind.__name__)
    assert says in result.error


def test_options_that_change_how_an_engine_computes_are_taken():
    require_known(job_of(runtime="openvino", options={"options": {"NUM_STREAMS": "2"}, "providers": ["GPU.0"]}))
    require_known(job_of(runtime="onnxruntime", options={"providers": ["CUDAExecutionProvider"], "unit": "gpu:1"}))


def test_a_file_of_the_device_is_neither_opened_nor_shown(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"the key is kept")
    with pytest.raises(DomainError) as refused:
        JobModel(name=str(secret))
    assert "kept" not in str(refused.value)
    relative = job_of(model=JobModel(name="secret"))
    result = carry_out(relative, tmp_path, lambda _: None)
    assert result.ended == "refused"
    assert "bytes" not in result.error


def test_a_file_that_the_model_does_not_name_is_refused(tmp_path):
    network(tmp_path / "m.onnx", external="m.data")
    (tmp_path / "m.data").write_bytes(np.ones(4, np.float32).tobytes())
    (tmp_path / "other.data").write_bytes(b"?")
    assert require_files(carried(tmp_path, "m.onnx", "m.data"), tmp_path) == ()
    with pytest.raises(TrustError, match=r"carries 'other\.data', which 'm\.onnx' does not need"):
        require_files(carried(tmp_path, "m.onnx", "m.data", "other.data"), tmp_path)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", "C:\\secret.bin"])
def test_weights_outside_the_folder_of_a_model_are_refused(location, tmp_path):
    network(tmp_path / "m.onnx", external=location)
    with pytest.raises(FormatError, match="not within the model's folder"):
        require_files(carried(tmp_path, "m.onnx"), tmp_path)


@pytest.mark.parametrize("make", hostile.PROGRAMS, ids=lambda make: make.__name__)
def test_a_hostile_program_of_a_job_is_refused_and_has_not_run(make, tmp_path):
    make(tmp_path, tmp_path / "mark")
    result = carry_out(carried(tmp_path, "m.pt2"), tmp_path, lambda _: None)
    assert result.ended == "refused"
    assert not (tmp_path / "mark").exists()


def test_a_compiled_package_needs_the_owner_of_the_device(tmp_path):
    path = package(tmp_path, whole=True)
    job = carried(tmp_path, "model.pt2")
    with pytest.raises(TrustError, match="is a compiled library") as refused:
        require_files(job, tmp_path)
    assert refused.value.remedy.endswith("inferometer hub agent --allow native-code.")
    assert require_files(job, tmp_path, native_code=True) == (str(path),)
    door.remember(path)
    require_files(job, tmp_path)


def test_a_file_that_is_none_or_has_another_size_is_refused(tmp_path):
    job = carried(network(tmp_path / "m.onnx").parent, "m.onnx")
    (tmp_path / "m.onnx").write_bytes(b"short")
    with pytest.raises(FormatError, match="has 5 bytes, and was said to have"):
        require_files(job, tmp_path)
    (tmp_path / "m.onnx").unlink()
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(FormatError, match="is not there, or is no file"):
        require_files(job, tmp_path)
    (tmp_path / "m.onnx").rmdir()
    (tmp_path / "m.onnx").symlink_to("/dev/zero")
    with pytest.raises(FormatError, match="is not there, or is no file"):
        require_files(job, tmp_path)


def test_of_a_folder_the_model_travels_and_code_beside_it_does_not(tmp_path):
    for name in ("config.json", "model.safetensors", "modeling.py", "pytorch_model.bin", "README.md", "evil.so"):
        (tmp_path / name).write_bytes(b"{}")
    names = [Path(file.path).name for file in model_files(str(tmp_path)).model.files]
    assert names == ["config.json", "model.safetensors"]


def test_a_network_of_ncnn_travels_with_its_weights(tmp_path):
    (tmp_path / "m.param").write_text("7767517\n")
    (tmp_path / "m.bin").write_bytes(b"")
    assert [file.path for file in model_files(str(tmp_path / "m.param")).model.files] == ["m.param", "m.bin"]


def test_a_reference_of_the_same_name_lies_in_a_folder_of_its_own(tmp_path):
    for folder, data in (("one", b"1"), ("two", b"22")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.tflite").write_bytes(data)
    asked, other = MeasureRequest(model=str(tmp_path / "one/net.tflite")), str(tmp_path / "two/net.tflite")
    packed = pack_measurement("verify", asked, Judging(against="litert"), reference=other)
    assert packed.job.reference.entry == "reference/net.tflite"
    assert packed.files[packed.job.reference.sha256] == tmp_path / "two/net.tflite"


def test_what_the_owner_of_this_machine_trusts_does_not_travel(tmp_path):
    with pytest.raises(InferometerError, match="holds on this machine, and the job runs on another"):
        pack_measurement("profile", MeasureRequest(model="resnet50", trust=(str(tmp_path),)))
