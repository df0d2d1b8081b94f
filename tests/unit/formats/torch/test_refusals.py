"""Files that are not what they seem: pickles, bombs, damage. Each is an error that names the file; none is run."""

import json
import pickle
import struct
import zipfile
from copy import deepcopy

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.base import look
from inferometer.formats.torch import read_pt2, reader
from inferometer.formats.trust import archive
from unit.formats.torch.archives import DATA, document_of, members_of, packed, with_document


class Trap:
    """Unpickling it would fail the test."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def changed(**parts):
    """mlp's document with the parts at these dotted paths replaced."""
    document = deepcopy(document_of("mlp"))
    for path, value in parts.items():
        place = document
        *parents, last = path.split("__")
        for key in parents:
            place = place[int(key) if key.isdigit() else key]
        place[int(last) if last.isdigit() else last] = value
    return document


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_followed_and_never_run(tmp_path, protocol):
    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps({"a": Trap()}, protocol=protocol))
    assert 0 < reader.match(look(path)) < 0.5
    with pytest.raises(FormatError, match=r"model\.pt.*pickle without tensors.*torch\.export"):
        read_pt2(path)


def test_torchs_first_format_is_recognised(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + b"more")
    assert reader.match(look(path)) == 0.9
    with pytest.raises(FormatError, match=r"pickle in '.*model\.bin' cannot be followed"):
        read_pt2(path)


# What torch.save of Python 2 wrote: strings of bytes, and an ordered dictionary as a list of pairs.
MAGIC, SYSTEM = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2), pickle.dumps({}, protocol=2)
TENSOR = (
    b"ctorch._utils\n_rebuild_tensor\n((U\x07storagectorch\nFloatStorage\nU\x0245U\x03cpuK\x0cNtQ"
    b"K\x00K\x03K\x04\x86K\x04K\x01\x86tR"
)
PYTHON_2 = b"\x80\x02ccollections\nOrderedDict\n](](U\x06weight" + TENSOR + b"ee\x85R."


def old_file(path, numbers):
    keys = pickle.dumps(["45"], protocol=2)
    path.write_bytes(MAGIC + pickle.dumps(1001, protocol=2) + SYSTEM + PYTHON_2 + keys + bytes(8) + bytes(numbers))
    return path


def test_a_file_that_python_2_saved_is_counted(tmp_path):
    graph = read_pt2(old_file(tmp_path / "old.pt", 48))
    assert [(tensor.name, tensor.shape) for tensor, _ in graph.weights()] == [("weight", (3, 4))]


def test_an_old_file_without_all_of_its_numbers_is_cut_short(tmp_path):
    with pytest.raises(FormatError, match=r"old\.pt' is cut short: 55 bytes are left for tensors of 56"):
        read_pt2(old_file(tmp_path / "old.pt", 47))


def test_a_torch_save_file_is_recognised_by_its_members_and_never_run(tmp_path):
    path = packed(tmp_path / "model.pth", {"data.pkl": pickle.dumps(Trap()), "data/0": bytes(8), "version": b"3"})
    assert reader.match(look(path)) == 0.7
    with pytest.raises(FormatError, match="pickle without tensors"):
        read_pt2(path)


def test_a_damaged_torchscript_archive_is_refused(tmp_path):
    path = packed(tmp_path / "model.pt", {"data.pkl": b"x", "code/__torch__.py": b"", "version": b"3"})
    with pytest.raises(FormatError, match=r"'data\.pkl' of '.*model\.pt' cannot be followed"):
        read_pt2(path)


def test_a_compiled_model_says_that_its_program_is_not_in_it(tmp_path):
    path = packed(tmp_path / "model.pt2", {"archive_format": b"pt2", "data/aotinductor/model/a.so": b"x"})
    with pytest.raises(FormatError, match="no graph in it"):
        read_pt2(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK", b"PK\x03\x04", b"PK\x03\x04" + bytes(40)])
def test_what_is_no_zip_file_is_said_plainly(tmp_path, content):
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    assert reader.match(look(path)) == 0
    with pytest.raises(FormatError, match=r"model\.pt2"):
        read_pt2(path)


def test_a_file_that_is_not_there_or_a_folder(tmp_path):
    with pytest.raises(FormatError, match="no file"):
        read_pt2(tmp_path / "none.pt2")
    with pytest.raises(FormatError, match="cannot be opened"):
        read_pt2(tmp_path)


def test_another_zip_file_is_not_ours(tmp_path):
    path = packed(tmp_path / "letters.docx", {"word/document.xml": b"<a/>"})
    assert reader.match(look(path)) == 0
    with pytest.raises(FormatError, match=r"without an exported program; it holds word/document\.xml"):
        read_pt2(path)


def test_a_truncated_file_is_damaged_wherever_it_ends(tmp_path):
    whole = (DATA / "mlp.pt2").read_bytes()
    path = tmp_path / "cut.pt2"
    for end in range(4, len(whole), 997):
        path.write_bytes(whole[:end])
        with pytest.raises(FormatError, match=r"cut\.pt2"):
            read_pt2(path)


def test_a_member_whose_bytes_changed_is_damaged(tmp_path):
    whole = bytearray((DATA / "mlp.pt2").read_bytes())
    place = whole.find(b'"nodes"')
    whole[place + 1] ^= 0x20
    path = tmp_path / "changed.pt2"
    path.write_bytes(whole)
    with pytest.raises(FormatError, match=r"models/model\.json.*CRC"):
        read_pt2(path)


def test_a_missing_weight_is_named(tmp_path):
    members = members_of("mlp")
    del members["data/weights/weight_2"]
    with pytest.raises(
        FormatError, match=r"no member 'data/weights/weight_2', where the tensor 'layers.0.linear.weight'"
    ):
        read_pt2(packed(tmp_path / "m.pt2", members))


def test_a_weight_that_claims_more_than_the_file_holds_is_refused(tmp_path):
    members = members_of("mlp")
    members["data/weights/weight_0"] = bytes(16)
    with pytest.raises(FormatError, match=r"'inlet\.weight' .* claims 256 bytes and .* holds 16"):
        read_pt2(packed(tmp_path / "m.pt2", members))


def test_a_zip_bomb_is_refused_for_what_it_claims(tmp_path):
    members = {**members_of("mlp"), "models/model.json": b" " * (8 << 20)}
    path = packed(tmp_path / "bomb.pt2", members, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    with pytest.raises(FormatError, match="zip bomb"):
        read_pt2(path)


def test_a_member_larger_than_any_program_is_refused(tmp_path):
    whole = archive.open_archive(with_document(tmp_path / "m.pt2", b" " * 5000))
    with pytest.raises(FormatError, match="claims 5,000 bytes; at most 4,096 are read"):
        whole.read("models/model.json", limit=4096)


def test_a_directory_that_claims_more_than_the_file_has_is_refused(tmp_path):
    whole = bytearray((DATA / "gpt.pt2").read_bytes())
    end = whole.rfind(b"PK\x05\x06")
    struct.pack_into("<I", whole, end + 12, 0xFFFFFFF0)
    path = tmp_path / "directory.pt2"
    path.write_bytes(whole)
    with pytest.raises(FormatError, match=r"directory\.pt2"):
        read_pt2(path)


def test_a_directory_of_countless_members_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_MEMBERS", 10)
    with pytest.raises(FormatError, match="claims 16 members"):
        read_pt2(packed(tmp_path / "m.pt2", {str(n): b"" for n in range(16)}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe{", "not JSON"),
        (b"[]", "not an exported program"),
        (b"{}", "schema_version"),
        (b"nonsense", "not JSON"),
        (b'{"schema_version": {"major": 8}}', "graph_module"),
        (b'{"schema_version": {"major": 9, "minor": 1}, "torch_version": "3.0"}', "9.1 .*torch 3.0.*newer than 8"),
        (b'{"schema_version": {"major": 1}}', "older than 5"),
        (b"[" * 100_000, "not JSON|nested|not an exported program"),
    ],
)
def test_a_document_that_is_no_program(tmp_path, text, said):
    with pytest.raises(FormatError, match=said):
        read_pt2(with_document(tmp_path / "m.pt2", text))


HUGE = 1 << 62
GRAPH = "graph_module__graph"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({f"{GRAPH}__tensor_values__x__sizes": [{"as_int": -3}]}, "a size of -3"),
        ({f"{GRAPH}__tensor_values__x__sizes": [{"as_int": 1}] * 100}, "100 dimensions"),
        ({f"{GRAPH}__tensor_values__x__sizes": [{}]}, "neither a number nor an expression"),
        ({f"{GRAPH}__tensor_values__x__dtype": 99}, "number format 99"),
        ({f"{GRAPH}__tensor_values__x": {}}, "dtype"),
        ({f"{GRAPH}__tensor_values": {}}, "no shape"),
        (
            {f"{GRAPH}__nodes__0__inputs__0__arg": {"as_tensor": {"name": "linear_4"}}},
            "'linear_4', which nothing before",
        ),
        ({f"{GRAPH}__nodes__0__inputs__0__arg": {"as_tensor": {"name": "linear"}}}, "'linear', which nothing before"),
        ({f"{GRAPH}__nodes__0__inputs": 3}, r"nodes\[0\]|nodes\[...\]"),
        ({f"{GRAPH}__nodes": []}, "which nothing before it makes"),
        ({"graph_module__signature__input_specs": []}, "which nothing before it makes"),
    ],
)
def test_a_program_that_contradicts_itself(tmp_path, parts, said):
    with pytest.raises(FormatError, match=said) as caught:
        read_pt2(with_document(tmp_path / "m.pt2", changed(**parts)))
    assert "m.pt2" in str(caught.value)


def test_a_tensor_of_2_to_the_62_by_2_to_the_62_numbers_is_only_a_number(tmp_path):
    document = changed(**{f"{GRAPH}__tensor_values__x__sizes": [{"as_int": HUGE}, {"as_int": HUGE}]})
    assert read_pt2(with_document(tmp_path / "m.pt2", document)).inputs[0].elements == HUGE**2


def test_an_operator_that_is_not_known_is_custom_with_a_reason(tmp_path):
    document = changed(**{f"{GRAPH}__nodes__0__target": "torch.ops.mylib.fancy.default"})
    first = read_pt2(with_document(tmp_path / "m.pt2", document)).blocks[0].ops[0]
    assert first.kind == "custom"
    assert first["reason"] == "mylib.fancy.default is not a known operator"


def test_an_operator_whose_arguments_say_too_little_is_custom(tmp_path):
    document = changed(**{f"{GRAPH}__nodes__0__inputs": []})
    first = read_pt2(with_document(tmp_path / "m.pt2", document)).blocks[0].ops[0]
    assert first.kind == "custom"


def test_braces_in_names_do_not_become_indices(tmp_path):
    text = json.dumps(document_of("mlp")).replace("inlet", "in{}let").encode()
    members = members_of("mlp")
    config = "data/weights/model_weights_config.json"
    members |= {"models/model.json": text, config: members[config].replace(b"inlet", b"in{}let")}
    graph = read_pt2(packed(tmp_path / "m.pt2", members))
    assert graph.blocks[0].ops[0].weights[0].name == "in{ }let.weight"
    assert graph.parameters == 306


def test_several_programs_without_a_choice_are_named(tmp_path):
    document = members_of("mlp")["models/model.json"]
    path = packed(tmp_path / "m.pt2", {"models/a.json": document, "models/b.json": document})
    with pytest.raises(FormatError, match="2 programs: a, b"):
        read_pt2(path)
    with pytest.raises(FormatError, match="no program 'c'"):
        read_pt2(path, model="c")
