"""Live modules, through torch.export. What it makes and what its files hold become the same graph."""

import subprocess
import sys

import pytest

from inferometer.core.dims import Symbol
from inferometer.core.errors import FormatError, MissingDependencyError
from inferometer.formats.torch import read_exported, read_module, read_pt2
from inferometer.formats.torch.program import rows
from inferometer.predict import coverage

LACKING = "torch is not installed: live modules are not tested"


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'inferometer\[torch\]'"):
        read_module(object(), ())


def test_the_reader_is_light_to_import():
    code = "import sys, inferometer.formats.torch; print({'torch', 'msgspec', 'numpy', 'zipfile'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason=LACKING)


@pytest.fixture(scope="module")
def models(torch):
    from unit.formats.torch import models

    return models


def comparable(graph):
    """A graph without the bytes that only a file knows."""

    def bare(tensors):
        return [(tensor.name, tensor.shape, tensor.dtype, tensor.role) for tensor in tensors]

    def op_of(op):
        bodies = [[op_of(inner) for inner in body] for body in op.get("bodies", ())]
        rest = {key: value for key, value in op.attributes.items() if key != "bodies"}
        return op.name, op.kind, bare(op.inputs), bare(op.outputs), bare(op.weights), rest, bodies

    return [(block.name, block.count, block.first, [op_of(op) for op in block.ops]) for block in graph.blocks]


CASES = {
    "mlp": lambda torch, models: (models.Mlp(8, 8, 3, 2), (torch.zeros(2, 8),)),
    "gpt": lambda torch, models: (models.small_gpt(), (torch.zeros(2, 4, dtype=torch.long),)),
    "cnn": lambda torch, models: (models.small_resnet(), (torch.zeros(1, 3, 32, 32),)),
    "mixed": lambda torch, models: (models.Mixed(), (torch.zeros(2, 6, 8), torch.ones(2))),
    "encoder": lambda torch, models: (models.small_encoder(), (torch.zeros(2, 4, 8),)),
}


@pytest.mark.filterwarnings("ignore")  # torch's own remarks while it traces and saves
@pytest.mark.parametrize("name", CASES)
def test_a_live_program_and_its_file_are_the_same_graph(torch, models, tmp_path, name):
    module, inputs = CASES[name](torch, models)
    exported = torch.export.export(module.eval(), inputs, strict=False)
    for program in (exported, exported.run_decompositions()):
        torch.export.save(program, tmp_path / "program.pt2")
        ours, stored = read_exported(program), read_pt2(tmp_path / "program.pt2")
        assert comparable(ours) == comparable(stored)
        assert ours.parameters == stored.parameters == sum(p.numel() for p in module.parameters())
        assert coverage(ours).share == 1


def test_named_sizes_keep_their_names(torch, models):
    shapes = {"ids": {0: torch.export.Dim("sentences"), 1: torch.export.Dim("words", max=16)}}
    graph = read_module(models.small_gpt(), (torch.zeros(2, 4, dtype=torch.long),), dynamic_shapes=shapes)
    assert graph.symbols == {"sentences", "words"}
    assert graph.name == "Gpt"


def test_a_number_that_a_module_gives_is_no_tensor_of_the_graph(torch):
    class Sized(torch.nn.Module):
        def forward(self, x):
            return x + 1, x.shape[0], 3

    graph = read_module(Sized(), (torch.zeros(3, 5),), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
    assert [tensor.shape for tensor in graph.outputs] == [(Symbol("rows"), 5)]


def test_sizes_of_inputs_in_lists_and_by_keyword_keep_their_names(torch):
    class Pair(torch.nn.Module):
        def forward(self, pair, *, scale):
            return pair[0] + pair[1] * scale

    one, two = torch.export.Dim("one"), torch.export.Dim("two")
    graph = read_module(
        Pair(), ([torch.zeros(3, 5), torch.zeros(3, 5)],), kwargs={"scale": torch.zeros(5)},
        dynamic_shapes={"pair": [{0: one, 1: two}, {0: one, 1: two}], "scale": {0: two}}, name="pair",
    )  # fmt: skip
    assert graph.symbols == {"one", "two"}
    assert graph.name == "pair"


def test_a_module_on_the_meta_device_needs_no_memory(torch):
    with torch.device("meta"):
        module = torch.nn.Sequential(*(torch.nn.Linear(200_000, 200_000, bias=False) for _ in range(20)))
        x = torch.empty(1, 200_000)
    assert read_module(module, (x,)).parameters == 20 * 200_000**2  # 3.2 TB in f32


def test_control_flow_that_depends_on_data_is_an_error_with_torchs_own_words(torch):
    class Branch(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(FormatError, match=r"torch\.export cannot trace Branch: .*data.dependent.*torch\.cond"):
        read_module(Branch(), (torch.zeros(3),))


def test_what_is_no_module_and_what_is_no_tuple(torch):
    with pytest.raises(FormatError, match=r"torch\.nn\.Module was expected, and this is a int"):
        read_module(3, ())
    with pytest.raises(FormatError, match="must be a tuple, and are a Tensor"):
        read_module(torch.nn.ReLU(), torch.zeros(3))


def test_every_operator_of_core_aten_is_in_the_table(torch):
    def is_core(packet):
        return hasattr(packet, "overloads") and any(
            torch.Tag.core in getattr(packet, overload).tags for overload in packet.overloads()
        )

    names = [name for name in dir(torch.ops.aten) if not name.endswith("_")]  # exported programs change none in place
    core = {name for name in names if is_core(getattr(torch.ops.aten, name))}
    assert len(core) > 150
    assert core - set(rows()) == set()


def test_every_operator_of_the_table_exists(torch):
    aten = torch.ops.aten
    assert [name for name in rows() if not hasattr(aten, name) and not hasattr(aten, f"{name}_")] == []


def test_a_size_that_depends_on_the_data_is_reported(torch):
    class Chosen(torch.nn.Module):
        def forward(self, x):
            return x.nonzero().float() * 2

    found = coverage(read_module(Chosen(), (torch.zeros(4, 4),)))
    assert 0 < len(found.uncovered) <= found.ops
    assert all("unknown size: u" in entry.reason for entry in found.uncovered)
