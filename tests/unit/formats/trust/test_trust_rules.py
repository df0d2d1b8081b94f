"""Every rule of the door by itself: what passes, what is refused, and each limit at its last allowed value."""

import io
import json
import struct
import zipfile
from types import SimpleNamespace

import pytest

from inferometer.core.errors import FormatError, TrustError
from inferometer.formats.trust import archive, door
from inferometer.formats.trust import door as programs
from inferometer.formats.trust.archive import Archive, local_names, open_archive
from inferometer.formats.trust.door import FORMATS, require_data
from unit.formats.torch.archives import members_of, packed

# Zip files


def member(size, packed_size):
    return SimpleNamespace(file_size=size, compress_size=packed_size, header_offset=0)


@pytest.mark.parametrize(
    ("size", "packed_size", "limit", "refused"),
    [
        (100, 100, 100, None), (101, 101, 100, "claims 101 bytes; at most 100"),
        (1 << 20, 1, 1 << 30, None), ((1 << 20) + 1, 1, 1 << 30, "a zip bomb"),  # smaller ones cannot harm
        (250 * 5000, 5000, 1 << 30, None), (250 * 5000 + 1, 5000, 1 << 30, "a zip bomb"),
        ((1 << 20) + 1, 0, 1 << 30, "a zip bomb"),
    ],
)  # fmt: skip
def test_a_member_that_claims_too_much_is_refused(tmp_path, size, packed_size, limit, refused):
    if refused is None:
        archive._refuse_bomb(tmp_path, "x", member(size, packed_size), limit)
    else:
        with pytest.raises(FormatError, match=refused):
            archive._refuse_bomb(tmp_path, "x", member(size, packed_size), limit)


def test_a_member_is_read_up_to_its_limit_whatever_it_claims(tmp_path):
    path = packed(tmp_path / "m.zip", {"a": b"0123456789", "b": b""})
    opened = open_archive(path)
    assert (opened.read("a", limit=10), opened.read("b"), opened.size("a"), opened.size("c")) == (DATA, b"", 10, None)
    opened.members["a"].file_size = 9  # it lies
    with pytest.raises(FormatError):
        opened.read("a", limit=9)
    with pytest.raises(FormatError, match="has no member 'c'"):
        opened.read("c")


DATA = b"0123456789"


@pytest.mark.parametrize(
    ("members", "most", "size", "refused"), [(2, 2, 1000, False), (3, 2, 1000, True), (2, 2, 10, True)]
)
def test_a_directory_is_bounded_before_it_is_read(tmp_path, monkeypatch, *, members, most, size, refused):
    path = packed(tmp_path / "m.zip", {str(number): b"" for number in range(members)})
    monkeypatch.setattr(archive, "MAX_MEMBERS", most)
    monkeypatch.setattr(archive, "MAX_DIRECTORY", size)
    if refused:
        with pytest.raises(FormatError, match=f"claims {members} members in"):
            open_archive(path)
    else:
        assert len(open_archive(path).members) == members


def ending(members, size, *, comment=b""):
    return (
        b"PK\x05\x06" + struct.pack("<4HIIH", 0, 0, members & 0xFFFF, members & 0xFFFF, size, 0, len(comment)) + comment
    )


def test_a_directory_of_the_larger_kind_counts_by_its_own_record(tmp_path):
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 0, 0, 0, 0, 7, 2_000_000, 99, 0)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, 5, 1)
    path = tmp_path / "m.zip"
    path.write_bytes(b"12345" + record + locator + ending(1, 1))
    with path.open("rb") as file, pytest.raises(FormatError, match=r"claims 2,000,000 members in 99 bytes"):
        archive._bound_directory(path, file)
    path.write_bytes(b"12345XX" + record[2:] + locator + ending(1, 1))  # no record where it should be
    with path.open("rb") as file:
        archive._bound_directory(path, file)


@pytest.mark.parametrize("junk", [b"", b"PK\x05\x06", b"x" * 100, ending(1, 1)[:21]])
def test_a_file_without_a_directory_is_no_zip_file(tmp_path, junk):
    path = tmp_path / "m.zip"
    path.write_bytes(junk)
    with pytest.raises(FormatError, match="not a sound zip file"):
        open_archive(path)
    with pytest.raises(FormatError, match="There is no file"):
        open_archive(tmp_path / "none")


def test_a_directory_is_found_behind_the_longest_comment(tmp_path):
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("a", "x")
        made.comment = b"c" * 65_535
    assert list(open_archive(path).members) == ["a"]


@pytest.mark.parametrize(
    ("names", "clear"),
    [
        (["a", "b/a"], True), (["a..b", "b/..c"], True), (["a/../b"], False), ([".."], False), (["/a"], False),
        (["a\\b"], False), (["c:a"], False), (["a\0b"], False), (["A", "a"], False), (["a/B", "A/b"], False),
        (["straße", "STRASSE"], False),
    ],
)  # fmt: skip
def test_names_mean_one_member_each_within_the_archive(tmp_path, names, clear):
    if clear:
        archive._require_clear(tmp_path, names)
    else:
        with pytest.raises(FormatError, match="member"):
            archive._require_clear(tmp_path, names)


@pytest.mark.parametrize(
    ("names", "folder"),
    [(["m/a", "m/b/c"], "m/"), (["m/a", "n/b"], ""), (["m/a", "b"], ""), (["models/a"], ""), (["data/a", "data/b"], ""),
     (["a"], ""), ([], "")],
)  # fmt: skip
def test_the_folder_that_all_members_stand_in_is_left_out(names, folder):
    assert archive._common_folder(names) == folder


def test_the_first_bytes_of_a_zip_file_show_its_first_names(tmp_path):
    path = packed(tmp_path / "m.zip", {"a": b"12345", "deep/b": b"", "c": b"x"})
    data = path.read_bytes()
    assert local_names(data) == ["m/a", "m/deep/b", "m/c"]
    assert local_names(data[: data.index(b"m/deep") - 1]) == ["m/a"]  # the next header is cut off
    assert local_names(b"no zip") == local_names(b"") == []


# Pickles


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("torch FloatStorage", True), ("torch.cuda HalfTensor", True), ("torch.cuda.sparse FloatTensor", True),
        ("torch float16", True), ("torch bfloat16", True), ("torch uint8", True), ("torch quint4x2", True),
        ("torch per_channel_affine", True), ("torch._utils _rebuild_tensor_v2", True),
        ("torch._utils _rebuild_parameter", True),
        ("collections OrderedDict", True), ("_codecs encode", True),
        ("torch load", False), ("torch floatStorage", False), ("torch.hub FloatStorage", False),
        ("torch Storage", False),
        ("torch FloatStorage.x", False), ("torch._utils _rebuild_anything", False), ("builtins eval", False),
        ("os system", False), ("torch float", False), ("xtorch FloatStorage", False),
    ],
)  # fmt: skip
def test_a_pickle_may_name_tensors_and_containers(name, plain):
    assert programs._is_plain(name) is plain
    written = b"\x80\x02c" + name.replace(" ", "\n", 1).encode() + b"\n."
    assert list(programs.strange_calls(written)) == ([] if plain else [name.replace(" ", ".")])


@pytest.mark.parametrize(
    ("code", "name"),
    [(b"\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL"), (b"(ios\nsystem\n.", "INST"), (b"(o.", "OBJ"),
     (b"\x82\x01.", "EXT1"), (b"\x83\x01\x00.", "EXT2"), (b"\x84\x01\x00\x00\x00.", "EXT4"), (b"\x92.", "NEWOBJ_EX")],
)  # fmt: skip
def test_a_pickle_that_puts_names_together_says_so(code, name):
    assert list(programs.strange_calls(code)) == [f"a name that it puts together as it runs ({name})"]


def test_a_pickle_has_so_many_instructions_and_says_all_that_it_calls(monkeypatch):
    monkeypatch.setattr(programs, "_MOST_OPCODES", 3)
    assert list(programs.strange_calls(b"NNN.")) == []
    assert list(programs.strange_calls(b"NNNN.")) == ["more instructions than any model has"]
    monkeypatch.undo()
    assert list(programs.strange_calls(b"cos\nsystem\ncos\nremove\n.")) == ["os.system", "os.remove"]
    assert "cannot be followed" in next(programs.strange_calls(b"cos\n"))


# Programs


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("1", True), ("s0 + 1", True), ("-s0 // 2", True), ("not s0", True), ("s0 < 3 < s1", True), ("s0[0, 1]", True),
        ("Max(s0, 1)", True), ("Symbol('s0')", True), ("Float('1.5e-3')", True), ("None", True), ("True", True),
        ("x.size()", True), ("math.inf", True), ("Symbol('s0', integer=True)", True), ("''", True), ("1.5", True),
        ("Symbol('a b')", False), ("Symbol('a.b')", False), ("x.item()", False), ("x.data", False), ("open(1)", False),
        ("s__0", False), ("b'x'", False), ("1j", False), ("...", False), ("lambda: 1", False), ("{1: 2}", False),
        ("[1]", False), ("x()()", False), ("(y := 1)", False), ("a if b else c", False), ("f'{a}'", False),
        ("1; 2", False), ("", False), ("1 +", False), ("*a", False), ("a: 1", False),
    ],
)  # fmt: skip
def test_arithmetic_is_numbers_symbols_and_known_functions(text, is_one):
    assert programs.is_arithmetic(text) is is_one
    assert programs.is_arithmetic(f" {text} ") is is_one


def test_arithmetic_has_a_length():
    assert programs.is_arithmetic("s" * 20_000)
    assert not programs.is_arithmetic("s" * 20_001)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("torch.ops.aten.add.Tensor", True), ("torch.ops.aten.add", True), ("torch.ops.prims.iota.default", True),
        ("torch.ops.higher_order.cond", True), ("_operator.getitem", True), ("math.ceil", True),
        ("torch.sym_max", True),
        ("torch._sym_sqrt", True), ("torch.ops.aten.from_file", False), ("torch.ops.aten.from_file.out", False),
        ("torch.ops.other.add", False), ("torch.ops.aten.add.Tensor.x", False), ("xtorch.ops.aten.add", False),
        ("_operator.attrgetter", False), ("math.fsum", False), ("torch.load", False), ("", False),
    ],
)  # fmt: skip
def test_operators_are_those_that_compute(name, is_one):
    assert programs.is_operator(name) is is_one


@pytest.mark.parametrize(
    ("text", "plain"),
    [('[1, {"a": null}]', True), ('{"type": "__enum__"}', False), ('"default_factory"', False),
    ('["importlib"]', False),
     ("[", False), ("[" * 100_000, False)],
)  # fmt: skip
def test_a_tree_of_arguments_imports_nothing(text, plain):
    assert programs.is_plain_tree(text) is plain


@pytest.mark.parametrize("key", sorted(programs._CHECKED))
def test_everything_that_pytorch_would_evaluate_is_looked_at_wherever_it_stands(key):
    bad = "__import__('os').system('x')"
    for document in ({key: bad}, {"graph": [{key: bad}]}, {"a": {"b": {key: [bad]}}}):
        (fault,) = programs._document_faults(document, "")
        said = programs._SAID.get(key, "a name")
        assert fault == f"has {said} that is none: {bad!r}"
    assert list(programs._document_faults({"metadata": {key: bad}, "other": bad}, "")) == []
    assert list(programs._document_faults({key: 7}, "")) == []


@pytest.mark.parametrize(
    ("key", "good"),
    [("target", "torch.ops.aten.add.Tensor"), ("expr_str", "s0"), ("in_spec", "[]"), ("name", "x_1"), ("name", ""),
     ("fqn", "layers.0.weight"), ("guards_code", "L['x'].size()[0] <= 9")],
)  # fmt: skip
def test_what_is_as_it_should_be_passes(key, good):
    assert list(programs._document_faults({"x": [{key: good}]}, "")) == []


@pytest.mark.parametrize(
    ("document", "faults"),
    [
        ({"as_custom_obj": {}}, 1),
        ({"custom_obj": None}, 1),
        ({"custom_obj_values": {}}, 0),
        ({"custom_obj_values": {"a": 1}}, 1),
    ],
)
def test_an_object_that_is_no_tensor_is_named(document, faults):
    found = list(programs._document_faults(document, ""))
    assert found == ["takes or holds an object that is no tensor"] * faults


@pytest.mark.parametrize(
    ("entry", "payloads"),
    [({"path_name": "weight_0"}, []), ({"path_name": "custom_obj_0"}, ["custom_obj_0"]),
    ({"path_name": "opaque_obj"}, ["opaque_obj"]),
     ({"path_name": "w", "use_pickle": True}, ["w"]), ({"use_pickle": True}, [""]), (None, []), ("x", [])],
)  # fmt: skip
def test_which_members_of_a_list_of_weights_are_unpickled(entry, payloads):
    assert list(programs._payloads({"config": {"a": entry}})) == payloads
    assert list(programs._payloads([entry])) == list(programs._payloads({"config": [entry]})) == []


def faults_of(tmp_path, **more):
    return list(programs.program_faults(packed(tmp_path / "m.pt2", {**members_of("mlp"), **more})))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("data/aotinductor/x", "has a compiled library in it (data/aotinductor/x)"),
        ("data/AOTinductor/x", "has a compiled library in it (data/AOTinductor/x)"),
        ("x.SO", "has a compiled library in it (x.SO)"), ("x.dll", "has a compiled library in it (x.dll)"),
        ("x.dylib", "has a compiled library in it (x.dylib)"), ("x.pyd", "has a compiled library in it (x.pyd)"),
        ("data/custom_obj_0", "has a constant that is no tensor (data/custom_obj_0)"),
        ("opaque_obj", "has a constant that is no tensor (opaque_obj)"),
    ],
)  # fmt: skip
def test_members_that_are_no_data_are_named(tmp_path, name, fault):
    assert faults_of(tmp_path, **{name: b""}) == [fault]
    assert faults_of(tmp_path) == faults_of(tmp_path, **{"x.sop": b"", "notes.txt": b""}) == []


def test_a_list_of_weights_that_leads_elsewhere_or_to_a_pickle_is_named(tmp_path):
    def config(**entry):
        return json.dumps({"config": {"w": {"path_name": "w_0", **entry}}}).encode()

    strange = pickled(b"cos\nsystem\n.")
    where = "data/weights/x_config.json"
    assert faults_of(tmp_path, **{where: config()}) == []
    assert faults_of(tmp_path, **{where: config(use_pickle=True), "data/weights/w_0": strange}) == [
        "has pickled weights, which call os.system"
    ]
    assert faults_of(tmp_path, **{where: config(path_name="a/b", use_pickle=True)}) == [
        "has a constant that is no tensor ('a/b')"
    ]
    assert faults_of(tmp_path, **{"data/constants/c_config.json": config(path_name="a(b", use_pickle=True)}) == [
        "has a constant that is no tensor ('a(b')"
    ]
    with pytest.raises(FormatError, match="is no JSON"):
        faults_of(tmp_path, **{where: b"{"})


def pickled(code, name="x/data.pkl", **more):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as made:
        for inner, data in {name: code, **more}.items():
            made.writestr(inner, data)
    return held.getvalue()


@pytest.mark.parametrize(
    ("member_", "data", "faults"),
    [
        ("a.pt", b"", []), ("a.pt", pickled(b"N."), []),
        ("a.pt", pickled(b"cos\nsystem\n."), ["weights, which call os.system"]),
        ("a.PTH", pickled(b"cos\nsystem\n."), ["weights, which call os.system"]),
        ("sample_inputs.pt", pickled(b"cos\nsystem\n."), ["sample inputs, which call os.system"]),
        ("example_x.pt", pickled(b"cos\nsystem\n."), ["sample inputs, which call os.system"]),
        ("constants.pt", pickled(b"cos\nsystem\n."), ["constants, which call os.system"]),
        ("a.pt", pickled(b"cos\nsystem\n.", "x/data.PKL"), ["weights, which call os.system"]),
        ("a.pt", pickled(b"cos\nsystem\n.", "x/data.bin"), []),
        ("a.pt", pickled(b"N.", "x/constants.pkl"), ["weights, which are a program, and no tensors"]),
        ("a.pt", pickled(b"N.", **{"x/code/a.py": b""}), ["weights, which are a program, and no tensors"]),
        ("a.pt", pickled(b"N.", **{"x/DATA.pkl": b"N."}), ["weights, which are a program, and no tensors"]),
        ("a.pt", b"\x80\x02N.", ["weights, which are not as torch.save writes them"]),
        ("a.txt", b"\x80\x02N.", []),
    ],
)  # fmt: skip
def test_pickles_in_a_program_are_looked_through(tmp_path, member_, data, faults):
    assert faults_of(tmp_path, **{member_: data}) == [f"has pickled {fault}" for fault in faults]


def test_a_pickle_that_is_too_long_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_MOST_PICKLE", 2)
    for code, faults in ((b"N.", []), (b"NN.", ["has pickled weights, which are longer than they are read"])):
        assert list(programs.program_faults(packed(tmp_path / "m.pt2", {"a.pt": pickled(code)}))) == faults


def test_a_zip_file_with_a_comment_is_read_in_two_ways(tmp_path):
    path = packed(tmp_path / "m.pt2", members_of("mlp"))
    with zipfile.ZipFile(path, "a") as made:
        made.comment = b"more"
    assert list(programs.program_faults(path)) == ["is a zip file that two programs may read in two ways"]


# Folders and the door


@pytest.mark.parametrize(
    ("name", "out"),
    [("a", False), ("a/b", False), ("a..b", False), ("a/../b", True), ("..", True), ("/a", True), ("..\\a", True),
     ("\\a", True), ("C:a", True), ("a\0", True), ("", False)],
)  # fmt: skip
def test_a_name_that_leads_out_of_its_folder(name, out):
    assert door.leaves(name) is out


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"custom_ops_library": "x.so"}, "names the library 'x.so'"),
        ({"a": [{"library_path": "l"}]}, "names the library 'l'"),
        ({"attn_implementation": "org/kernel"}, "names kernels to be fetched and run, 'org/kernel',"),
        ({"_attn_implementation": "org/kernel"}, "names kernels to be fetched and run, 'org/kernel',"),
        ({"attn_implementation": "sdpa"}, None), ({"attn": "org/kernel"}, None),
        ({"vocab_file": "../x"}, "names a file outside its folder, '../x',"),
        ({"filename": "/x"}, "names a file outside its folder, '/x',"),
        ({"file_name": "a/b"}, None), ({"file": "../x"}, None), ({"custom_ops_library": ""}, None),
        ({"vocab_file": 7}, None),
        ({"weight_map": {"w": "../x"}}, "names a file outside its folder, '../x',"),
        ({"weight_map": {"../x": "y"}}, None),
        ({"weight_map": {"custom_ops_library": "x.so"}}, None),
    ],
)  # fmt: skip
def test_what_a_config_names(tmp_path, document, fault):
    (tmp_path / "config.json").write_text(json.dumps(document))
    expected = [] if fault is None else [f"{fault} in config.json"]
    assert list(door.config_faults(tmp_path)) == list(door.config_faults(tmp_path / "model.safetensors")) == expected


def test_configs_that_are_words_too_large_or_broken_are_left_to_others(tmp_path, monkeypatch):
    bad = json.dumps({"custom_ops_library": "x.so"})
    for name in ("tokenizer.json", "vocab.json", "vocabulary.json"):
        (tmp_path / name).write_text(bad)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "folder.json").mkdir()
    assert list(door.config_faults(tmp_path)) == []
    (tmp_path / "b.json").write_text(bad)
    (tmp_path / "a.json").write_text(bad)
    assert [fault.rpartition(" ")[2] for fault in door.config_faults(tmp_path)] == ["a.json", "b.json"]
    monkeypatch.setattr(door, "_MOST_BYTES", len(bad))
    assert len(list(door.config_faults(tmp_path / "a.json"))) == 2
    monkeypatch.setattr(door, "_MOST_BYTES", len(bad) - 1)
    assert list(door.config_faults(tmp_path)) == []


@pytest.mark.parametrize("form", ["onnx", "ort", "onnxruntime-genai"])
def test_parts_that_were_compiled_for_one_provider_are_refused(tmp_path, form):
    (tmp_path / "a.onnx").write_bytes(b"plain")
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "b.bin").write_bytes(b"EPContext")
    require_data(tmp_path, form)
    (tmp_path / "z.onnx").write_bytes(b"x EPContext x")
    place = tmp_path if form == "onnxruntime-genai" else tmp_path / "z.onnx"
    with pytest.raises(TrustError, match=r"compiled for one provider \(EPContext\)"):
        require_data(place, form)
    require_data(place, form, trusted=True)
    require_data(place, "gguf")  # such a file has no operators
    require_data(tmp_path / "none.onnx", form)


def test_what_is_looked_at_is_known_by_its_format():
    assert set(door._LOOKS) <= {row.format for row in FORMATS}
    assert {row.format for row in FORMATS if "--trust" in row.held} == {"pt2", "aoti", "onnxruntime-genai"}


def test_what_was_compiled_here_is_known_by_its_content(tmp_path, monkeypatch):
    monkeypatch.setattr(door, "data_folder", lambda: tmp_path / "data")
    path, copy = tmp_path / "m.pt2", tmp_path / "copy.pt2"
    path.write_bytes(b"library")
    assert not door.is_made_here(path)
    door.remember(path)
    door.remember(path)
    copy.write_bytes(b"library")
    assert door.is_made_here(copy)
    copy.write_bytes(b"other")
    assert not door.is_made_here(copy)


def test_an_archive_has_weights_unless_it_is_said_to_have_none(tmp_path):
    assert Archive(path=tmp_path, members={}).weights
