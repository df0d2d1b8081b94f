"""One suite over every reader: what it says of any file, and what it does with one that is not what it seems."""

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from contract.runtime_cases_ctranslate2 import write_llama
from contract.runtime_cases_mnn import write_network
from contract.runtime_cases_ncnn import LAYERS
from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.plugins import load_all
from inferometer.formats.base import GROUP, HEAD_BYTES, Peek, Reader, look
from inferometer.formats.detect import choose_reader, read_graph
from unit.formats.gguf.gguf_bytes import header
from unit.formats.openvino.ir_text import convolution_ir
from unit.formats.ort.ort_bytes import linear_ort
from unit.formats.safetensors.safetensors_bytes import described, packed
from unit.formats.tflite.tflite_bytes import convolution

DATA = Path(__file__).parents[1] / "data"
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50,
}  # fmt: skip


class Toy:
    """A reader of somebody else's: files that start with TOY, each one weight of so many numbers."""

    name = "toy"
    formats = frozenset({"toy"})

    def match(self, peek: Peek) -> float:
        return 1.0 if peek.head.startswith(b"TOY") else 0.0

    def read(self, path: Path) -> Graph:
        text = path.read_bytes() if path.is_file() else b""
        if not text.startswith(b"TOY") or not text[3:].isdigit():
            raise FormatError(f"{str(path)!r} is no toy.")
        weight = Tensor(name="w", shape=(int(text[3:]),), role="weight")
        return Graph(name="toy", blocks=(Block(name="b", ops=(Op(name="o", kind="norm", weights=(weight,)),)),))


READERS = {**load_all(GROUP)[0], "toy": Toy()}


def onnx_bytes():
    """A model with one Relu, as protobuf by hand: field and wire type, length, content."""

    def field(number, content):
        if isinstance(content, int):
            return bytes([number << 3, content])
        return bytes([number << 3 | 2, len(content)]) + content

    def value(name):
        shape = field(2, field(1, field(1, 1)) + field(1, field(1, 4)))
        return field(1, name) + field(2, field(1, field(1, 1) + shape))

    node = field(1, field(1, b"x") + field(2, b"y") + field(3, b"relu") + field(4, b"Relu"))
    graph = node + field(2, b"toy") + field(11, value(b"x")) + field(12, value(b"y"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


def gguf_bytes():
    raw, size = header({"general.architecture": "unheard-of"}, {"a.weight": ((4, 32), "q8_0")})
    return raw + bytes(size)


def safetensors_bytes():
    return packed(*described({"a.weight": ("F32", [2, 3])}, {"format": "pt"}))


def mnn_bytes():
    with TemporaryDirectory() as folder:
        return write_network(Path(folder)).read_bytes()


def ctranslate2_bytes():
    with TemporaryDirectory() as folder:
        return (write_llama(Path(folder)) / "model.bin").read_bytes()


SAMPLES = {
    "ctranslate2": ctranslate2_bytes,
    "executorch": (DATA / "executorch" / "xnnpack.pte").read_bytes,
    "gguf": gguf_bytes,
    "huggingface": lambda: json.dumps(CONFIG).encode(),
    "mnn": mnn_bytes,
    "ncnn": LAYERS.encode,
    "onnx": onnx_bytes,
    "openvino": lambda: convolution_ir().encode(),
    "ort": linear_ort,
    "safetensors": safetensors_bytes,
    "tflite": convolution,
    "toy": lambda: b"TOY12",
}


def sample(name):
    if name in SAMPLES:
        return SAMPLES[name]()
    stored = sorted(DATA.rglob("*.pt2"))
    if name == "torch" and stored:
        return stored[0].read_bytes()
    pytest.skip(f"there is no sample of {name}'s format here")
    return None


JUNK = {
    "empty": b"",
    "one byte": b"{",
    "zeros": bytes(4096),
    "random": random.Random(7).randbytes(4096),  # noqa: S311 - the same junk in every run
    "text": b"hello, this is no model\n" * 10,
    "wrong JSON": b'{"model_type": 3, "architectures": "x", "layers": [1, 2}',
    "other JSON": b'{"hello": [1, 2, 3]}',
    "a list": b'["model_type"]',
}


@pytest.fixture(params=sorted(READERS))
def reader(request):
    return READERS[request.param]


@pytest.fixture
def junk(tmp_path):
    """Files that are no model."""
    paths = [tmp_path / f"{name}.bin" for name in JUNK]
    for path, data in zip(paths, JUNK.values(), strict=True):
        path.write_bytes(data)
    return paths


def test_a_reader_keeps_the_contract(reader):
    assert isinstance(reader, Reader)
    assert reader.name
    assert reader.formats
    assert all(isinstance(entry, str) for entry in reader.formats)


def test_every_installed_reader_is_known_by_its_entry_point():
    loaded, broken = load_all(GROUP)
    assert not broken
    assert all(entry.name == name for name, entry in loaded.items())


def test_match_answers_with_a_share_whatever_it_sees(reader, junk):
    for path in junk:
        assert 0.0 <= reader.match(look(path)) <= 1.0, path.name


def test_match_does_not_trust_a_suffix(reader, tmp_path):
    for suffix in (".onnx", ".gguf", ".safetensors", ".tflite", ".pt2", ".json"):
        path = tmp_path / f"model{suffix}"
        path.write_bytes(b"nothing of the kind")
        assert reader.match(look(path)) < 0.1


def test_match_answers_for_folders(reader, tmp_path):
    assert reader.match(look(tmp_path)) == 0.0
    (tmp_path / "notes.txt").write_text("words")
    assert reader.match(look(tmp_path)) < 0.1


def test_match_answers_for_every_truncation_of_its_own_format(reader, tmp_path):
    good = sample(reader.name)
    for size in range(0, len(good), max(1, len(good) // 40)):
        assert 0.0 <= reader.match(Peek(path=tmp_path / "x", size=size, head=good[:size])) <= 1.0


def test_a_good_sample_is_matched_and_read(reader, tmp_path):
    path = tmp_path / "a-model"
    path.write_bytes(sample(reader.name))
    assert reader.match(look(path)) >= 0.5
    graph = reader.read(path)
    assert isinstance(graph, Graph)
    assert graph.blocks


def test_what_is_no_model_is_an_error_that_names_the_file(reader, junk):
    for path in junk:
        with pytest.raises(InferometerError) as caught:
            reader.read(path)
        assert path.name in str(caught.value), path.name


def test_a_folder_without_a_model_is_an_error_that_names_it(reader, tmp_path):
    folder = tmp_path / "empty-folder"
    folder.mkdir()
    with pytest.raises(InferometerError, match="empty-folder"):
        reader.read(folder)


def test_a_file_that_is_not_there_is_an_error_that_names_it(reader, tmp_path):
    with pytest.raises(InferometerError, match="nowhere"):
        reader.read(tmp_path / "nowhere")


def test_a_truncated_sample_is_read_or_refused_by_name(reader, tmp_path):
    good = sample(reader.name)
    path = tmp_path / "cut"
    for size in range(0, len(good), max(1, len(good) // 25)):
        path.write_bytes(good[:size])
        try:
            assert isinstance(reader.read(path), Graph)
        except InferometerError as error:
            assert "cut" in str(error)


def test_the_surest_reader_is_chosen_by_content(tmp_path):
    for name in sorted(READERS):
        path = tmp_path / "model"
        path.write_bytes(sample(name) if name != "torch" else b"TOY1")
        expected = name if name != "torch" else "toy"
        assert choose_reader(look(path), readers=READERS.values()).name == expected


def test_a_tie_is_decided_by_name(tmp_path):
    class Other(Toy):
        name = "another"

    path = tmp_path / "model"
    path.write_bytes(b"TOY1")
    for readers in ((Toy(), Other()), (Other(), Toy())):
        assert choose_reader(look(path), readers=readers).name == "another"


def test_a_file_that_nobody_knows_says_what_was_found_and_what_is_known(tmp_path):
    path = tmp_path / "mystery.onnx"
    path.write_bytes(b"MYSTERY" * 3)
    with pytest.raises(FormatError) as caught:
        read_graph(path, readers=[Toy()])
    text = str(caught.value)
    assert "mystery.onnx" in text
    assert "21 bytes" in text
    assert "MYSTERY" in text
    assert "toy" in text


def test_an_empty_file_and_an_empty_folder_are_called_so(tmp_path):
    (tmp_path / "void").write_bytes(b"")
    with pytest.raises(FormatError, match="an empty file"):
        read_graph(tmp_path / "void", readers=[Toy()])
    (tmp_path / "hollow").mkdir()
    with pytest.raises(FormatError, match="an empty folder"):
        read_graph(tmp_path / "hollow", readers=[Toy()])


@pytest.mark.installed
def test_reading_through_the_installed_readers(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    by_file, by_folder = read_graph(tmp_path / "config.json"), read_graph(str(tmp_path))
    assert by_file.parameters == by_folder.parameters > 0


def test_a_peek_holds_the_beginning_of_a_file_only(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(bytes(3 * HEAD_BYTES))
    peek = look(path)
    assert (peek.size, len(peek.head)) == (3 * HEAD_BYTES, HEAD_BYTES)


def test_a_peek_at_nothing_is_an_error(tmp_path):
    with pytest.raises(FormatError, match="no file or folder"):
        look(tmp_path / "missing")
