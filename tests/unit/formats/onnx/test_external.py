"""Data outside the file: it must lie beside it, and be as long as the file says."""

import os

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.onnx import reader
from unit.formats.onnx.onnx_bytes import INT64, graph, model, node, tensor, value

X = value("x", ("batch", 1024))


def written(folder, external, *, data=None, dims=(1024, 1024)):
    """A model whose one weight lies in a file of its own."""
    body = graph([node("MatMul", "x w", "y")], [X], ["y"], [tensor("w", dims, external=external)])
    (folder / "model.onnx").write_bytes(model(body))
    if data is not None:
        (folder / "data.bin").write_bytes(data)
    return folder / "model.onnx"


def test_only_place_and_length_are_read(tmp_path):
    path = written(tmp_path, {"location": "data.bin", "offset": 4096, "length": 4 << 20})
    with (tmp_path / "data.bin").open("wb") as file:
        os.truncate(file.fileno(), 8 << 30)  # a hole of eight gigabytes
    result = reader.read(path)
    assert result.parameters == 1 << 20
    assert result.metadata["external_data"] == {"files": ["data.bin"], "bytes": 4 << 20, "missing": {}}


def test_a_missing_file_is_reported_and_the_model_read(tmp_path):
    result = reader.read(written(tmp_path, {"location": "data.bin", "length": 4 << 20}))
    assert result.parameters == 1 << 20
    assert result.metadata["external_data"]["missing"] == {"data.bin": 1}


def test_a_length_that_is_left_out_follows_from_the_shape(tmp_path):
    assert reader.read(written(tmp_path, {"location": "data.bin"}, data=bytes(4 << 20))).parameters == 1 << 20


@pytest.mark.parametrize(
    "location",
    ["/etc/passwd", "../data.bin", "sub/../../data.bin", "..\\data.bin", "C:\\data.bin", "C:data.bin", "//host/share",
     "",
     "a\0b"],
)  # fmt: skip
def test_data_outside_the_models_folder_is_refused_by_the_tensors_name(tmp_path, location):
    path = written(tmp_path, {"location": location, "length": 4 << 20})
    with pytest.raises(FormatError, match="not within the model's folder") as caught:
        reader.read(path)
    assert "tensor 'w'" in str(caught.value)
    assert "model.onnx" in str(caught.value)


@pytest.mark.parametrize(
    ("external", "why"),
    [
        ({"location": "data.bin", "length": 7}, "in 7 external bytes"),
        ({"location": "data.bin", "offset": 1, "length": 4 << 20}, "which has 4,194,304"),
        ({"location": "data.bin", "offset": 2**62, "length": 4 << 20}, "which has 4,194,304"),
        ({"location": "data.bin", "offset": "-1"}, "'-1' as its offset"),
        ({"location": "data.bin", "length": "9" * 30}, "as its length"),
        ({"location": "data.bin", "offset": "٣"}, "as its offset"),
        ({"offset": 0}, "without a location"),
        ({"location": "."}, "not a file"),
    ],
)
def test_claims_that_the_file_does_not_hold_are_refused(tmp_path, external, why):
    path = written(tmp_path, external, data=bytes(4 << 20))
    with pytest.raises(FormatError, match=why) as caught:
        reader.read(path)
    assert "tensor 'w'" in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name are a thing of Unix")
def test_a_pipe_is_not_waited_for(tmp_path):
    path = written(tmp_path, {"location": "data.bin", "length": 4 << 20})
    os.mkfifo(tmp_path / "data.bin")
    with pytest.raises(FormatError, match="not a file"):
        reader.read(path)


def test_a_shape_stored_outside_is_read(tmp_path):
    stored = tensor("s", (2,), INT64, external={"location": "data.bin", "offset": 8, "length": 16})
    body = graph([node("Reshape", "x s", "y")], [X], ["y"], [stored])
    (tmp_path / "model.onnx").write_bytes(model(body))
    (tmp_path / "data.bin").write_bytes(bytes(8) + (0).to_bytes(8, "little") + (1024).to_bytes(8, "little"))
    assert reader.read(tmp_path / "model.onnx").outputs[0].shape[1] == 1024
