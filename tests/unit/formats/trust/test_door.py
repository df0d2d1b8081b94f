"""The door: what could run code is named and refused, what is data passes, and the owner may open anything."""

import json
import os
import pickle

import pytest

from fakes import hostile
from inferometer.core.errors import FormatError, InferometerError, TrustError
from inferometer.formats.trust import door
from inferometer.formats.trust.door import is_arithmetic, is_operator, require_data, strange_calls
from unit.formats.torch.archives import DATA, NAMES, members_of, packed

SAID = {
    hostile.sample_inputs: "has pickled sample inputs, which call posix.mkdir",
    hostile.sample_inputs_of_a_newer_protocol: "call a name that it puts together as it runs",
    hostile.old_sample_inputs: "are not as torch.save writes them",
    hostile.old_weights: "has pickled weights, which call posix.mkdir",
    hostile.pickled_weight: "has pickled weights, which call posix.mkdir",
    hostile.opaque_constant: "has a constant that is no tensor",
    hostile.size_that_calls: "has a size that is none: \"__import__('os')",
    hostile.guard_that_calls: "has a condition on sizes that is none",
    hostile.input_named_by_a_call: "has a name that is none",
    hostile.operator_of_the_system: "has an operator that is none: 'torch.serialization.os.mkdir'",
    hostile.operator_that_opens_a_file: "has an operator that is none",
    hostile.tree_that_imports: "has a list of outputs that is none",
    hostile.library_beside_the_program: "has a compiled library in it (data/aotinductor/model/m.so)",
}


@pytest.mark.skipif(os.name != "posix", reason="the calls have other names elsewhere")
@pytest.mark.parametrize("make", SAID, ids=lambda make: make.__name__)
def test_what_a_program_would_run_is_said_before_anything_opens_it(make, tmp_path):
    path = make(tmp_path, tmp_path / "mark")
    with pytest.raises(TrustError) as refused:
        require_data(path, "pt2")
    assert SAID[make] in refused.value.message
    assert refused.value.remedy == f"If you trust who made it, say so: --trust {path}"
    assert not (tmp_path / "mark").exists()
    require_data(path, "pt2", trusted=True)


@pytest.mark.parametrize("make", [hostile.second_member_of_one_name, hostile.member_outside])
def test_a_zip_file_that_two_programs_read_in_two_ways_is_refused(make, tmp_path):
    with pytest.raises(FormatError, match="member"):
        require_data(make(tmp_path, tmp_path / "mark"), "pt2")


def test_members_in_two_folders_or_behind_a_comment_are_refused(tmp_path):
    path = packed(tmp_path / "m.pt2", {f"m/{name}": data for name, data in members_of("mlp").items()}, folder="")
    require_data(path, "pt2")
    packed(path, {**{f"m/{name}": data for name, data in members_of("mlp").items()}, "n/x": b""}, folder="")
    with pytest.raises(TrustError, match="two programs may read in two ways"):
        require_data(path, "pt2")


@pytest.mark.parametrize("name", NAMES)
def test_programs_that_compute_pass(name):
    require_data(DATA / f"{name}.pt2", "pt2")


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s77', positive=True, integer=True)",
        "2*s77 + 1",
        "Mul(Integer(-2), Pow(Symbol('s0'), Integer(2)))",
        "Max(1, FloorDiv(s0, 8))",
        "L['x'].size()[0] <= 9",
        "L['args'][0].stride()[1] == 4 and s0 != 3",
        "math.isnan(L['y'])",
        "TruncToInt(Mul(Float('0.5', precision=53), ToFloat(Symbol('s53', positive=True, integer=True))))",
        "math.trunc(0.5*torch.sym_float(L['x'].size()[2])) >= 2",
    ],
)
def test_sizes_and_conditions_as_pytorch_writes_them_are_arithmetic(text):
    assert is_arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')",
        "lambdify('x', 'y')",
        "Add('__import__(0)', 1)",
        "().__class__.__bases__",
        "[x for x in (1,)]",
        "s0 if s1 else open('x')",
        "exec('x')",
        "Symbol(f'{s0}')",
        "s0.size.__globals__",
        "(" * 10_000,
        "1" * 30_000,
    ],
)
def test_what_else_python_would_evaluate_is_not(text):
    assert not is_arithmetic(text)


def test_operators_compute_on_tensors():
    assert is_operator("torch.ops.aten.linear.default")
    assert is_operator("_operator.floordiv")
    for name in (
        "torch.hub.load", "_operator.methodcaller", "torch.ops.image.write_file", "torch.ops.aten.from_file.default",
        "torch.ops.higher_order.call_torchbind", "torch.ops.aten.add.Tensor.__globals__", "os.system",
    ):  # fmt: skip
        assert not is_operator(name), name


def test_tensors_and_containers_are_all_that_a_pickle_may_name():
    names = (b"torch._utils _rebuild_tensor_v2", b"torch FloatStorage", b"collections OrderedDict", b"torch float32")
    plain = b"\x80\x02" + b"".join(b"c" + name.replace(b" ", b"\n") + b"\n" for name in names) + b"."
    assert list(strange_calls(plain)) == []
    assert list(strange_calls(pickle.dumps(print, protocol=2))) == ["__builtin__.print"]
    assert "cannot be followed" in next(strange_calls(b"\x80\x02cut off"))


@pytest.mark.parametrize("form", [form for form in hostile.FORMATS if form not in {"pt2", "aoti"}])
def test_configs_that_name_code_or_files_elsewhere_are_refused(form, tmp_path):
    for number, make in enumerate(hostile.FORMATS[form]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(TrustError, match="could run code of its own"):
            require_data(make(folder, folder / "mark"), form)


def test_a_checkpoint_with_a_class_of_its_own_passes_since_that_is_never_imported(tmp_path):
    config = {**hostile.CONFIG, "auto_map": {"AutoModel": "modeling.Model"}, "attn_implementation": "sdpa"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    require_data(tmp_path, "config")


def test_a_package_passes_if_it_was_compiled_here_and_not_once_it_is_changed(tmp_path):
    path = hostile.package_from_elsewhere(tmp_path, None)
    with pytest.raises(TrustError, match="was not made by `inferometer prepare` on this machine"):
        require_data(path, "aoti")
    door.remember(path)
    require_data(path, "aoti")
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(TrustError):
        require_data(path, "aoti")


def test_a_hostile_program_does_run_where_it_is_trusted_and_only_there(tmp_path):
    torch = pytest.importorskip("torch")
    from inferometer.engines.torch.convert import load_program

    for number, make in enumerate((hostile.old_weights, hostile.pickled_weight, hostile.size_that_calls)):
        folder, mark = tmp_path / str(number), tmp_path / f"mark-{number}"
        folder.mkdir()
        path = make(folder, mark)
        with pytest.raises(TrustError):
            load_program(torch, path)
        assert not mark.exists()
        with pytest.raises(InferometerError):  # it is no model, but by then it has run
            load_program(torch, path, trusted=True)
        assert mark.exists()


def test_pytorch_itself_unpickles_tensors_alone_while_it_loads_a_program(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from inferometer.engines.torch import convert

    monkeypatch.setattr(convert, "require_data", lambda *_, **__: None)  # what if something slipped through
    mark = tmp_path / "mark"
    with pytest.raises(FormatError):
        convert.load_program(torch, hostile.sample_inputs(tmp_path, mark))
    assert not mark.exists()
    assert torch.load.__name__ == "load"
