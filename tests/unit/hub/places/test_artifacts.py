"""Files by the hash of their content: which belong to a model, and how they are copied and collected."""

import hashlib
import os
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferometer.core.errors import DomainError, FormatError, InferometerError, UnknownNameError
from inferometer.core.job import JobFile
from inferometer.hub.places.artifacts import ArtifactFolder, FileHashes, model_files
from inferometer.hub.places.device_side import collect_garbage, look_around, unpack_wheel

DATA = bytes(range(256)) * 5000
SHA = hashlib.sha256(DATA).hexdigest()
FILE = JobFile(path="net.tflite", sha256=SHA, size_bytes=len(DATA))


@pytest.fixture
def hashes(tmp_path):
    return FileHashes(tmp_path / "hashes.json")


def paths_of(found):
    return [file.path for file in found.model.files]


@pytest.mark.parametrize("name", ["net.tflite", "net.gguf", "net.pt2"])
def test_a_model_of_one_file_is_that_file(tmp_path, hashes, name):
    (tmp_path / name).write_bytes(DATA)
    found = model_files(str(tmp_path / name), hashes=hashes)
    assert (found.model.sha256, found.model.entry, found.model.name) == (SHA, name, name)
    assert found.paths == {SHA: (tmp_path / name).resolve()}


def test_external_data_of_an_onnx_file_goes_along(tmp_path, hashes):
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, [1, 4]) for port in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph), path, save_as_external_data=True, location="net.data", size_threshold=0)
    assert paths_of(model_files(str(path), hashes=hashes)) == ["net.onnx", "net.data"]
    (tmp_path / "net.data").unlink()
    with pytest.raises(InferometerError, match=r"net\.data"):
        model_files(str(path), hashes=hashes)


def test_an_openvino_model_is_two_files_and_parts_of_a_gguf_belong_together(tmp_path, hashes):
    (tmp_path / "net.xml").write_text("<net/>")
    with pytest.raises(FormatError, match=r"net\.bin"):
        model_files(str(tmp_path / "net.xml"), hashes=hashes)
    (tmp_path / "net.bin").write_bytes(DATA)
    assert paths_of(model_files(str(tmp_path / "net.xml"), hashes=hashes)) == ["net.xml", "net.bin"]
    for number in (1, 2):
        (tmp_path / f"big-{number:05}-of-00002.gguf").write_bytes(bytes([number]))
    found = model_files(str(tmp_path / "big-00001-of-00002.gguf"), hashes=hashes)
    assert paths_of(found) == ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]


def test_a_folder_is_what_is_in_it_without_what_tools_hide(tmp_path, hashes):
    folder = tmp_path / "llama"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(DATA)
    found = model_files(str(folder), hashes=hashes)
    assert paths_of(found) == ["llama/config.json", "llama/model.safetensors"]
    assert found.model.entry == "llama"
    (folder / "config.json").unlink()
    (folder / "model.safetensors").unlink()
    with pytest.raises(FormatError, match="no files"):
        model_files(str(folder), hashes=hashes)


def test_a_catalog_name_has_no_files_and_a_typo_is_an_error(hashes):
    assert model_files("resnet50", hashes=hashes).model.files == ()
    with pytest.raises(UnknownNameError, match="resnet50"):
        model_files("resnet5O", hashes=hashes)
    with pytest.raises(FormatError, match="no file"):
        model_files("missing.onnx", hashes=hashes)


def test_a_model_of_ones_own_catalog_goes_along_as_its_config(tmp_path, hashes, monkeypatch):
    config = '{architectures = ["BertForMaskedLM"], model_type = "bert", hidden_size = 64}'
    (tmp_path / "mine.toml").write_text(f'[models.my-bert]\ntitle = "Mine"\nfamily = "bert"\nconfig = {config}\n')
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path))
    found = model_files("my-bert", hashes=hashes)
    assert (found.model.name, paths_of(found)) == ("my-bert", ["my-bert/config.json"])


def test_a_file_is_read_again_only_if_it_changed(tmp_path, monkeypatch):
    path = tmp_path / "net.tflite"
    path.write_bytes(DATA)
    first = FileHashes(tmp_path / "hashes.json")
    assert first.file(path, "net.tflite").sha256 == SHA
    first.remember()
    again = FileHashes(tmp_path / "hashes.json")
    with monkeypatch.context() as patch:
        patch.setattr("inferometer.hub.places.artifacts.hash_file", lambda _: pytest.fail("it was read again"))
        assert again.file(path, "net.tflite").sha256 == SHA
    path.write_bytes(b"other")
    assert again.file(path, "net.tflite").sha256 == hashlib.sha256(b"other").hexdigest()


def test_a_copy_that_broke_off_goes_on_where_it_was(tmp_path):
    source, folder = tmp_path / "net.tflite", ArtifactFolder(root=tmp_path / "place")
    source.write_bytes(DATA)
    folder.append(SHA, 0, DATA[:1000], most=len(DATA))
    assert folder.missing([SHA, SHA]) == (SHA,)
    sent = []
    folder.add(source, FILE, tell=sent.append)
    assert folder.path(SHA).read_bytes() == DATA
    assert sent[0] > 1000
    sent.clear()
    folder.add(source, FILE, tell=sent.append)
    assert sent == [], "what is there is not sent again"


def test_a_chunk_counts_once_and_leaves_no_gap(tmp_path):
    folder = ArtifactFolder(root=tmp_path)
    assert folder.append(SHA, 0, DATA[:10], most=20) == 10
    assert folder.append(SHA, 5, DATA[5:15], most=20) == 15, "sent again from byte 5"
    with pytest.raises(DomainError, match="from byte 15"):
        folder.append(SHA, 16, b"x", most=20)
    with pytest.raises(DomainError, match="more were sent"):
        folder.append(SHA, 15, bytes(6), most=20)


def test_what_arrived_wrong_is_thrown_away(tmp_path):
    folder = ArtifactFolder(root=tmp_path)
    folder.append(SHA, 0, b"wrong", most=5)
    with pytest.raises(FormatError, match="another hash"):
        folder.seal(SHA)
    assert folder.arrived(SHA) == 0
    assert folder.missing([SHA]) == (SHA,)


def test_the_longest_unused_go_first(tmp_path):
    folder = ArtifactFolder(root=tmp_path)
    hashes = []
    for number in range(4):
        data = bytes([number]) * 100
        hashes.append(hashlib.sha256(data).hexdigest())
        folder.append(hashes[-1], 0, data, most=100)
        folder.seal(hashes[-1])
        os.utime(folder.path(hashes[-1]), (number, number))
    folder.append(SHA, 0, b"begun", most=100)
    freed = collect_garbage(str(tmp_path), older_s=1e9, quota_bytes=250, keep=[hashes[0]], now=10.0)
    assert (freed, folder.missing(hashes)) == (200, (hashes[1], hashes[2])), "0 is kept, 3 fits"
    os.utime(tmp_path / "incoming" / f"{SHA}.part", (0, 0))
    assert collect_garbage(str(tmp_path), older_s=5.0, now=100.0) == 205, "too old, and a copy that never ended"


def test_a_device_says_what_it_has(tmp_path):
    found = look_around(str(tmp_path), ["numpy", "no-such-package"], [SHA], ["env/x"])
    assert found["packages"] == {"numpy": np.__version__, "no-such-package": None}
    assert (found["missing"], found["parts"], found["ready"]) == ([SHA], {}, [])
    assert found["free_bytes"] > 0


def test_a_wheel_is_unpacked_as_pip_would(tmp_path):
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (
            "x/__init__.py",
            "x-1.data/purelib/y.py",
            "x-1.data/scripts/x",
            "../out.py",
            "x-1.dist-info/METADATA",
        ):
            archive.writestr(name, "text")
    unpack_wheel(wheel, tmp_path / "to")
    found = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "to").rglob("*") if path.is_file())
    assert found == ["to/x-1.dist-info/METADATA", "to/x/__init__.py", "to/y.py"]
    assert not (tmp_path / "out.py").exists()
