"""Exported programs are read without torch."""

import subprocess
import sys

import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol
from inferometer.formats.base import look
from inferometer.formats.torch import read_pt2, reader
from inferometer.predict import coverage, footprint, graph_work
from unit.formats.torch.archives import DATA, NAMES, document_of, legacy, members_of, packed

PARAMETERS = {"mlp": 306, "gpt": 3016, "cnn": 1335, "mixed": 2884, "encoder": 1200}
GRAPHS = {name: read_pt2(DATA / f"{name}.pt2") for name in NAMES}


def ops(graph, kind):
    return [op for _, op in graph.ops() if op.kind == kind]


def one(graph, name):
    return next(op for _, op in graph.ops() if op.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_recognised_by_its_members(name):
    assert reader.match(look(DATA / f"{name}.pt2")) == 0.9


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_counted_once(name):
    assert GRAPHS[name].parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_op_has_a_rule_and_its_work_can_be_counted(name):
    graph = GRAPHS[name]
    binding = Binding(sizes={"batch": 2, "query": 4})
    assert coverage(graph, binding).share == 1
    assert graph_work(graph, binding).total_flops > 0
    assert footprint(graph, binding).peak_bytes > 0


def test_reading_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from inferometer.formats.torch import read_pt2\n"
        "print(read_pt2(sys.argv[1]).parameters)"
    )
    done = subprocess.run([sys.executable, "-c", code, DATA / "gpt.pt2"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3016"


def test_equal_layers_are_one_block():
    layers = GRAPHS["gpt"].blocks[1]
    assert (layers.name, layers.count, layers.first) == ("h", 3, 0)
    assert [block.name for block in GRAPHS["gpt"].blocks] == ["main", "h", "main"]


def test_names_are_those_of_the_modules():
    names = [op.name for op in GRAPHS["gpt"].blocks[1].ops if op.kind != "view"]
    assert names == [
        "h.{}.ln_1", "h.{}.c_attn", "h.{}.scaled_dot_product_attention", "h.{}.c_proj", "h.{}.add", "h.{}.ln_2",
        "h.{}.fc", "h.{}.gelu", "h.{}.proj", "h.{}.add_1",
    ]  # fmt: skip


def test_what_a_layer_hands_on_keeps_its_name_through_all_of_them():
    before, layers, after = GRAPHS["gpt"].blocks
    handed = before.ops[-1].outputs[0].name
    assert layers.ops[0].inputs[0].name == handed
    assert layers.ops[-1].outputs[0].name == handed
    assert after.ops[0].inputs[0].name == handed


def test_tied_weights_have_one_name():
    graph = GRAPHS["gpt"]
    assert one(graph, "lm_head").weights[0].name == one(graph, "wte").weights[0].name == "wte.weight"


def test_open_sizes_have_names_that_a_workload_binds():
    graph = GRAPHS["gpt"]
    assert graph.symbols == {"batch", "query"}
    assert graph.inputs[0].shape == (Symbol("batch"), Symbol("query"))
    assert graph.inputs[0].role == "index"
    assert graph.metadata["symbols"]["query"].startswith("axis 1 of input 'ids'")


def test_causal_attention_is_told_from_the_operator():
    attention = ops(GRAPHS["gpt"], "attention")[0]
    assert attention.get("causal")
    assert (attention["heads"], attention["head_dim"], attention["context"]) == (2, 4, 0)
    assert attention["query"] == Symbol("query")


def test_weights_have_their_bytes_as_stored():
    weight = one(GRAPHS["mlp"], "inlet").weights[0]
    assert (weight.name, weight.dtype, weight.stored_bytes) == ("inlet.weight", "f32", 8 * 8 * 4)


def test_a_buffer_is_a_constant_and_no_parameter():
    scaled = one(GRAPHS["mlp"], "layers.{}.mul")
    assert [(tensor.name, tensor.role) for tensor in scaled.weights] == [("scale", "constant")]


def test_batch_norm_has_scale_and_shift_as_parameters_and_statistics_as_constants():
    norm = one(GRAPHS["cnn"], "bn1")
    assert norm["norm"] == "batch"
    assert [tensor.role for tensor in norm.weights] == ["weight", "weight", "constant", "constant"]


def test_tensors_that_no_op_uses_are_kept_apart():
    stored = GRAPHS["cnn"].blocks[-1]
    assert stored.name == "stored"
    assert all(op.name.endswith("num_batches_tracked") for op in stored.ops)


def test_convolutions_and_pools_say_their_windows():
    graph = GRAPHS["cnn"]
    conv = one(graph, "conv1")
    assert (conv["in_channels"], conv["out_channels"], conv["kernel"], conv["strides"]) == (3, 4, (7, 7), (2, 2))
    assert one(graph, "maxpool")["kernel"] == (3, 3)
    assert one(graph, "avgpool")["function"] == "global"


def test_layers_that_differ_are_blocks_of_their_own():
    names = [block.name for block in GRAPHS["cnn"].blocks]
    assert names == ["main", "layer1.0", "layer1.1", "main", "stored"]


def test_stacked_cells_are_an_op_for_each_layer():
    first, second = ops(GRAPHS["mixed"], "recurrent")
    assert (first["cell"], first["hidden"], first["directions"], first["steps"]) == ("lstm", 8, 2, 6)
    assert second.inputs[0].name == first.outputs[0].name
    assert second.inputs[0].shape == (2, 6, 16)


def test_a_branch_has_both_bodies():
    cond = ops(GRAPHS["mixed"], "control")[0]
    kinds = [[op.kind for op in body] for body in cond["bodies"]]
    assert kinds == [["linear"], ["linear", "elementwise"]]
    assert {weight.name for weight in cond.weights} == {"head.weight", "head.bias"}


def test_a_buffer_that_is_written_to_is_a_cache_and_only_the_new_part_is_written():
    graph = GRAPHS["mixed"]
    write = ops(graph, "scatter")[0]
    assert write.inputs[0].role == write.outputs[0].role == "kv"
    assert write["in_place"]
    assert ops(graph, "matmul")[0].inputs[1].role == "kv"


def test_products_of_core_aten_are_linear_where_a_factor_is_stored():
    graph = GRAPHS["encoder"]
    linear = {op.name: op.source_type for op in ops(graph, "linear")}
    assert linear["layers.{}.linear1.addmm"] == "aten.addmm"
    assert linear["layers.{}.self_attn.bmm"] == "aten.bmm"  # by an expanded weight
    assert len(ops(graph, "matmul")) == 2  # scores, and their sum over the values


def test_views_are_free_and_clones_are_not():
    binding = Binding(sizes={"batch": 1})
    graph = GRAPHS["encoder"]
    assert graph_work(graph, binding).bytes > 0
    assert {op.source_type for op in ops(graph, "copy")} >= {"aten.clone"}
    assert "aten.permute" in {op.source_type for op in ops(graph, "view")}


def test_the_layout_before_torch_2_8_is_read_too(tmp_path):
    path = legacy(tmp_path / "old.pt2")
    assert reader.match(look(path)) == 0.9
    graph = read_pt2(path)
    assert graph.parameters == PARAMETERS["mlp"]
    assert one(graph, "inlet").weights[0].stored_bytes is None  # its weights are in a pickle, which is not opened


def test_one_of_several_programs_is_chosen_by_name(tmp_path):
    members = members_of("mlp")
    document = members.pop("models/model.json")
    members = {name: data for name, data in members.items() if "config" not in name}
    path = packed(tmp_path / "two.pt2", {**members, "models/a.json": document, "models/b.json": document})
    assert read_pt2(path, model="b").name == "b"


def test_the_version_of_torch_is_kept():
    assert GRAPHS["mlp"].metadata["torch_version"] == "2.13.0+cpu"
    assert document_of("mlp")["schema_version"] == {"major": 8, "minor": 20}
