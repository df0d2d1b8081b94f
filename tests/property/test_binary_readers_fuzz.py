"""Damaged and hostile files: a reader gives a graph, or an error that names the file. Nothing else, and soon."""

import json
import struct
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferometer.core.errors import InferometerError
from inferometer.core.graph import Graph
from inferometer.formats.base import look
from inferometer.formats.gguf import reader as gguf
from inferometer.formats.safetensors import reader as safetensors
from inferometer.formats.tflite import reader as tflite
from inferometer.predict.work.count import coverage
from unit.formats.gguf.gguf_bytes import header
from unit.formats.safetensors.safetensors_bytes import described, packed
from unit.formats.tflite.tflite_bytes import convolution, model, operator, quantised, subgraph, tensor


def gguf_file():
    metadata = {
        "general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 32,
        "llama.feed_forward_length": 32, "llama.attention.head_count": 2, "tokenizer.ggml.tokens": ["a", "b"],
        "list": ("u32", [1, 2]), "nested": [["a"], ["b"]],
    }  # fmt: skip
    names = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    tensors = {f"blk.0.{name}.weight": ((32, 32), "q8_0") for name in names}
    tensors |= {f"blk.0.{name}.weight": ((32,), "f32") for name in ("attn_norm", "ffn_norm")}
    tensors |= {"token_embd.weight": ((7, 32), "f16"), "output_norm.weight": ((32,), "f32")}
    raw, size = header(metadata, tensors)
    return raw + bytes(size)


def safetensors_file():
    entries, size = described({"a.weight": ("F32", [2, 3]), "a.bias": ("F32", [2])}, {"format": "pt"})
    return packed(entries, size)


def tflite_file():
    """A branch with two bodies, a quantised convolution, an open batch."""
    main = subgraph(
        [
            tensor("x", (1, 4, 4, 2), signature=(-1, 4, 4, 2)),
            tensor("w", (3, 1, 1, 2), 9, buffer=1, quantization=quantised(3)),
            tensor("y", (1, 4, 4, 3), signature=(-1, 4, 4, 3)), tensor("c", (), 6), tensor("z", (1, 4, 4, 3)),
        ],
        (0, 3), (4,),
        [
            operator(0, (0, 1, -1), (2,), (1, {1: ("i", 1), 2: ("i", 1)})),
            operator(1, (3, 2), (4,), (92, {0: ("i", 1), 1: ("i", 2)})),
        ],
    )  # fmt: skip
    bodies = [
        subgraph([tensor("b", (1, 4, 4, 3)), tensor("r", (1, 4, 4, 3))], (0,), (1,), [operator(2, (0,), (1,))])
        for _ in range(2)
    ]
    return model([3, 118, 19], [main, *bodies], [bytes(6)])


def task_file():
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.tflite", convolution())
    return buffer.getvalue()


FILES = {
    "gguf": (gguf, gguf_file()),
    "safetensors": (safetensors, safetensors_file()),
    "tflite": (tflite, tflite_file()),
    "task": (tflite, task_file()),
}
QUICK = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.fixture(scope="module")
def path():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "hostile.bin")


def check(reader, path, raw):
    path.write_bytes(raw)
    assert 0 <= reader.match(look(path)) <= 1
    try:
        graph = reader.read(path)
    except InferometerError as error:
        assert "hostile.bin" in str(error)
        return None
    assert isinstance(graph, Graph)
    assert graph.parameters >= 0
    assert 0 <= coverage(graph).share <= 1
    return graph


@pytest.mark.parametrize("kind", FILES)
def test_the_undamaged_file_is_read(path, kind):
    assert check(*FILES[kind][:1], path, FILES[kind][1]) is not None


@pytest.mark.parametrize("kind", FILES)
def test_a_file_cut_anywhere_is_refused_or_read(path, kind):
    reader, raw = FILES[kind]
    step = max(1, len(raw) // 400)
    for cut in range(0, len(raw), step):
        check(reader, path, raw[:cut])


@pytest.mark.parametrize("kind", FILES)
@QUICK
@given(data=st.data())
def test_changed_bytes_are_refused_or_read(path, kind, data):
    reader, raw = FILES[kind]
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(raw), 1200) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    check(reader, path, bytes(changed))


@pytest.mark.parametrize("kind", ["gguf", "safetensors", "tflite"])
@QUICK
@given(data=st.data())
def test_large_numbers_anywhere_are_refused_or_read(path, kind, data):
    """2⁶³, 2³¹ and −1 where counts, lengths, sizes and offsets stand."""
    reader, raw = FILES[kind]
    number = data.draw(st.sampled_from([2**63, 2**63 - 1, 2**64 - 1, 2**32 - 1, 2**31, 2**31 - 1, 0]))
    width = data.draw(st.sampled_from([4, 8]))
    place = data.draw(st.integers(4, min(len(raw), 1200) - width))
    written = (number % 2 ** (8 * width)).to_bytes(width, "little")
    check(reader, path, raw[:place] + written + raw[place + width :])


@pytest.mark.parametrize(
    ("reader", "start"),
    [
        (gguf, b"GGUF\x03\0\0\0"), (gguf, b"GGUF\0\0\0\x03"), (tflite, b"\x10\0\0\0TFL3"), (tflite, b"PK\x03\x04"),
        (safetensors, struct.pack("<Q", 40) + b"{"),
    ],
)  # fmt: skip
@QUICK
@given(rest=st.binary(max_size=400))
def test_noise_behind_a_right_beginning_is_refused_or_read(path, reader, start, rest):
    check(reader, path, start + rest)


@QUICK
@given(
    entries=st.dictionaries(
        st.text(max_size=5),
        st.fixed_dictionaries(
            {},
            optional={
                "dtype": st.sampled_from(["F32", "BF16", "I4", "F6_E2M3", "x", 3]),
                "shape": st.lists(st.integers(-2, 2**65), max_size=3),
                "data_offsets": st.lists(st.integers(-2, 2**65), max_size=3),
            },
        ),
        max_size=3,
    )
)
def test_any_header_that_is_json_is_refused_or_read(path, entries):
    check(safetensors, path, packed(json.dumps(entries).encode(), 64))
