"""Files of formats that are not read are called by their names, with the way to one that is."""

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.detect import read_graph

FILES = {
    "model.engine": (b"ftrt\0\0\0\0" + bytes(64), "a TensorRT engine"),
    "model.plan": (b"ptrt" + bytes(64), "a TensorRT engine"),
    "model.trt": (b"\xab" * 64, "a TensorRT engine"),
    "model.rknn": (b"RKNN" + bytes(64), "an RKNN model"),
    "model.hef": (b"\x01HEF" + bytes(64), "a Hailo executable"),
    "model.pte": (b"\x1c\0\0\0ET99" + bytes(64), "an ExecuTorch program"),
    "model.h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "a Keras or HDF5 file"),
    "model.param": (b"\xdd\x85v\x00" + bytes(64), "an ncnn network in its binary form"),
    "ggml-base.bin": (b"lmgg" + bytes(64), "a GGML file of before GGUF"),
    "ggjt-base.bin": (b"tjgg" + bytes(64), "a GGML file of before GGUF"),
    "model.json": (b'{"modelTopology": {}}', "a TensorFlow.js model"),
    "graph.json": (b'{"weightsManifest": []}', "a TensorFlow.js model"),
    "inference.json": (b'{"base_code": {"magic": "pir"}, "program": {}}', "a Paddle program"),
    "program.json": (b'{"base_code": {"magic": "pir"}}', None),
    "model.keras": (b"\xab" * 64, "a Keras or HDF5 file"),
    "model.dlc": (b"\xab" * 64, "a Qualcomm deep-learning container"),
    "model.mnn": (b"\x28\0\0\0" + bytes(64), "an MNN model"),
    "model.mlmodel": (b"\x08\x07" + bytes(64), "a Core ML model"),
    "model.pdiparams": (bytes(64), "a Paddle model"),
    "weights.bin": (b"\xab" * 64, "weights of an OpenVINO or ncnn model"),
    "saved_model.pb": (b"\x08\x01\x12" + bytes(64), "a TensorFlow SavedModel"),
    "frozen.pb": (b"\x0a\x07" + bytes(64), "a frozen TensorFlow graph"),
    "fetched.onnx": (
        b"version https://git-lfs.github.com/spec/v1\n",
        "a pointer to a file that Git LFS keeps elsewhere",
    ),
    "forest.pkl": (b"\x80\x04\x95\0\0\0\0\0\0\0\0\x8c\x10sklearn.ensemble", "a model of scikit-learn in a pickle"),
    "arrays.bin": (b"\x80\x04\x95\0\0\0\0\0\0\0\0\x8c\x13joblib.numpy_pickle", "a file of joblib"),
    "boosted.pkl": (b"\x80\x04\x95\0\0\0\0\0\0\0\0\x8c\x0cxgboost.core", "a model of XGBoost in a pickle"),
    "light.pkl": (b"\x80\x04\x95\0\0\0\0\0\0\0\0\x8c\x0elightgbm.basic", "a model of LightGBM in a pickle"),
    "boosted.txt": (b"xgboost" + bytes(64), None),
    "packed.joblib": (b"x\x9c" + bytes(64), "a file of joblib"),
    "packed.pt": (b"PK\x03\x04" + bytes(26) + b"net/.data/0.storage", "a package of torch.package"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_called_by_its_name(name, tmp_path):
    content, title = FILES[name]
    (tmp_path / name).write_bytes(content)
    told = f"No reader knows '.*{name}'" if title is None else f"{name}' seems to be {title}, which is not read"
    with pytest.raises(FormatError, match=told) as caught:
        read_graph(tmp_path / name)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("names", "title"),
    [
        (("saved_model.pb", "variables"), "a TensorFlow SavedModel"),
        (("saved_model.pbtxt",), "a TensorFlow SavedModel"),
        (("Manifest.json", "Data"), "a Core ML package"),
        (("inference.pdmodel", "inference.pdiparams"), "a Paddle model"),
        (("inference.json", "inference.pdiparams"), "a Paddle model"),
    ],
)
def test_a_folder_is_called_by_what_lies_in_it(names, title, tmp_path):
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(FormatError, match=f"seems to be {title}"):
        read_graph(tmp_path)


def test_weights_in_a_folder_that_were_not_fetched_are_called_so(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(FILES["fetched.onnx"][0])
    with pytest.raises(FormatError, match=r"model\.safetensors' is a pointer to a file that Git LFS keeps.*lfs pull"):
        read_graph(tmp_path)


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "an empty file"),
        (b"abcdefghijklmnopqrst", "20 bytes that start with b'abcdefghijklmnop'"),
        ((), "an empty folder"),
        ("abc", "a folder with a, b, c"),
        ("abcdefghi", "a folder with a, b, c, d, e, f, g, h, …"),
    ],
)
def test_what_nobody_knows_is_told_by_how_it_looks(content, seen, tmp_path):
    path = tmp_path / "some"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.mkdir()
        for name in content:
            (path / name).write_bytes(b"x")
    with pytest.raises(FormatError) as caught:
        read_graph(path)
    assert str(caught.value).startswith(f"No reader knows {str(path)!r}: {seen}.")
    assert "Formats that are known: aoti, config.json, " in caught.value.remedy
