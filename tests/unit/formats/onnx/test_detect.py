"""ONNX is known by its fields: it has no magic number."""

from pathlib import Path

import pytest

from inferometer.formats.base import HEAD_BYTES, Peek
from inferometer.formats.onnx import reader
from unit.formats.onnx.onnx_bytes import field, graph, model, node, tensor, value


def confidence(raw, size=None):
    return reader.match(Peek(path=Path("any"), size=len(raw) if size is None else size, head=raw[:HEAD_BYTES]))


def small(**more):
    return model(graph([node("Relu", "x", "y")], [value("x", (1, 4))], ["y"]), **more)


def test_a_model_is_known_by_its_graph():
    assert confidence(small()) >= 0.9


def test_a_graph_that_goes_on_beyond_the_head_is_known_too():
    body = graph([node("Relu", "x", "y")], [value("x", (1, 4))], ["y"], [tensor("w", (1 << 20,))])
    assert len(model(body)) > HEAD_BYTES
    assert confidence(model(body)) >= 0.9


def test_the_operator_sets_may_come_first():
    raw = field(1, 8) + field(8, field(2, 17)) + field(7, graph([node("Relu", "x", "y")]))
    assert confidence(raw) >= 0.9


@pytest.mark.parametrize(
    ("raw", "sure"),
    [
        (field(1, 8) + field(8, field(1, "") + field(2, 17)), 0.9), (field(1, 8) + field(8, field(3, 17)), 0.0),
        (field(1, 8) + field(8, field(2, 17)) + field(7, b""), 0.0), (field(1, 8) + field(2, "torch"), 0.3),
        (field(1, 8) + field(9, field(2, 17)), 0.0), (field(1, 8), 0.0), (field(2, "torch"), 0.0),
        (field(1, 8) + field(8, field(2, 17)) + field(14, field(1, "a")), 0.9),
    ],
)  # fmt: skip
def test_how_sure_it_is_follows_from_what_is_seen(raw, sure):
    assert confidence(raw) == sure


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\x08", b"GGUF\x03\0\0\0", b"\x1c\0\0\0TFL3", b"PK\x03\x04", b"\x89PNG", b'{"model_type": "x"}',
        bytes(100),
        b"\xff" * 100, b"hello world, this is text", b"\x0a\x03abc\x12\x03def" * 9,
    ],
)  # fmt: skip
def test_other_files_are_not(raw):
    assert confidence(raw) == 0.0


def test_a_version_that_cannot_be_is_no_model():
    assert confidence(field(1, 4000) + small()[2:]) == 0.0


def test_a_model_that_was_cut_short_is_known_as_one():
    assert 0.5 <= confidence(small()[:30], size=30) < 0.9
    assert confidence(small()[:5], size=5) < 0.5


def test_a_folder_is_no_model():
    assert reader.match(Peek(path=Path("folder"), is_folder=True, names=("model.onnx",))) == 0.0


def test_importing_the_reader_brings_no_library():
    import subprocess
    import sys

    code = (
        "import sys; import inferometer.formats.onnx as o; "
        "heavy = ('onnx', 'numpy', 'google.protobuf', 'inferometer.formats.onnx.walk'); "
        "print(any(name in sys.modules for name in heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
