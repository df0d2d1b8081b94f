import zipfile

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats import tflite
from inferometer.formats.base import look
from inferometer.formats.detect import read_graph
from inferometer.formats.tflite import reader
from unit.formats.tflite.tflite_bytes import convolution


def bundle(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_content_decides_not_the_name(tmp_path):
    (tmp_path / "model.bin").write_bytes(convolution())
    (tmp_path / "fake.tflite").write_text("hello")
    assert reader.match(look(tmp_path / "model.bin")) == 1
    assert reader.match(look(tmp_path / "fake.tflite")) == 0
    assert reader.match(look(bundle(tmp_path / "a.task", {"detector.tflite": convolution()}))) == 0.9
    assert reader.match(look(bundle(tmp_path / "b.zip", {"data.pkl": b"x"}))) == 0
    assert reader.match(look(tmp_path)) == 0


def test_a_bundle_and_a_network_alone_are_told_apart_and_say_what_they_are(tmp_path):
    (tmp_path / "a.bin").write_bytes(convolution())
    packed = bundle(tmp_path / "b.bin", {"detector.tflite": convolution()})
    alone = read_graph(tmp_path / "a.bin")
    assert (alone.metadata["format"], read_graph(packed).metadata["format"]) == ("tflite", "task")
    assert alone.metadata["description"] == "made by hand"


def test_the_models_of_a_bundle_are_its_blocks(tmp_path):
    path = bundle(tmp_path / "two.task", {"a.tflite": convolution(), "b.tflite": convolution(), "labels.txt": b"cat"})
    graph = reader.read(path)
    assert [block.name for block in graph.blocks] == ["a.tflite", "b.tflite"]
    assert graph.parameters == 2 * 112
    assert list(graph.metadata["members"]) == ["a.tflite", "b.tflite"]


def test_a_bundle_of_bundles_is_read(tmp_path):
    inner = bundle(tmp_path / "inner.task", {"a.tflite": convolution()}, zipfile.ZIP_DEFLATED).read_bytes()
    outer = bundle(tmp_path / "outer.task", {"first.tflite": convolution(), "inner.task": inner})
    assert [block.name for block in reader.read(outer).blocks] == ["first.tflite", "inner.task/a.tflite"]


def test_a_member_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tflite, "_MEMBER_LIMIT", 10_000)
    path = bundle(tmp_path / "bomb.task", {"a.tflite": bytes(10_000_000)}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 20_000
    with pytest.raises(FormatError, match=r"bomb\.task:a\.tflite.* unpacks to more than 10,000 bytes"):
        reader.read(path)


def test_a_bundle_with_countless_members_is_refused(tmp_path):
    path = bundle(tmp_path / "many.task", {f"{index}.tflite": b"" for index in range(1100)})
    with pytest.raises(FormatError, match="1,100 members"):
        reader.read(path)


def test_a_bundle_without_models_or_a_damaged_one_is_said_plainly(tmp_path):
    with pytest.raises(FormatError, match="holds no TFLite model"):
        reader.read(bundle(tmp_path / "none.task", {"a.txt": b"x"}))
    whole = bundle(tmp_path / "cut.task", {"a.tflite": convolution()}).read_bytes()
    (tmp_path / "cut.task").write_bytes(whole[:-40])
    with pytest.raises(FormatError, match="not a sound zip"):
        reader.read(tmp_path / "cut.task")


def test_a_member_that_is_damaged_is_named(tmp_path):
    path = bundle(tmp_path / "bad.task", {"a.tflite": convolution()[:60]})
    with pytest.raises(FormatError, match=r"bad\.task:a\.tflite"):
        reader.read(path)


def test_a_file_that_is_not_there_or_empty_is_said_plainly(tmp_path):
    with pytest.raises(FormatError, match="There is no file"):
        reader.read(tmp_path / "none.tflite")
    (tmp_path / "empty.tflite").touch()
    with pytest.raises(FormatError, match=r"empty\.tflite"):
        reader.read(tmp_path / "empty.tflite")
