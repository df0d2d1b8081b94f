from dataclasses import replace

import pytest

from inferometer.core.binding import Binding
from inferometer.core.graph import Block, Graph, Op
from inferometer.core.sizes import bind
from inferometer.core.workload import Precision, Workload
from inferometer.engines.base import Kernel
from inferometer.formats.resolve import read
from inferometer.measure.run.correct import correct
from inferometer.measure.run.layers import graph_layers, layer_kind
from inferometer.measure.run.ops import measured_ops


@pytest.fixture(scope="module")
def llama():
    graph = read("llama-3.2-1b")
    workload = Workload(prompt=8, precision=Precision(weights="f32", activations="f32"))
    return graph_layers(graph, bind(graph, workload))


def kernel(name, kind, *layers, seconds=1e-3):
    return Kernel(name=name, kind=kind, samples_s=(seconds, seconds), layers=layers)


def test_a_node_of_our_own_files_is_its_layer(llama):
    (found,) = llama.find(["layers.3.attn.q_proj/MatMul"], "matmul")
    assert (found.name, found.kind) == ("layers.3.attn.q_proj", "linear")
    assert found.flops == 2 * 8 * 2048 * 2048


def test_a_module_is_the_layer_whose_weight_it_holds(llama):
    (found,) = llama.find(["model.layers.15.mlp.down_proj"], "linear")
    assert found.name == "layers.15.mlp.down_proj"


def test_a_module_without_weights_is_the_op_of_that_kind_in_the_same_part(llama):
    (found,) = llama.find(["model.layers.2.self_attn"], "attention")
    assert found.name == "layers.2.attn.attention"


@pytest.mark.parametrize(
    ("model", "around_attention", "around_the_rest"),
    [
        ("llama-3.2-1b", "layers.3.attn.residual", "layers.3.mlp.residual"),
        ("gpt2", "layers.3.attn.residual", "layers.3.mlp.residual"),
        ("pythia-1b", "layers.3.residual", "layers.3.residual"),  # one sum around both
    ],
)
def test_llama_cpps_sums_are_the_models_and_not_its_products(model, around_attention, around_the_rest):
    graph = read(model)
    weights = {weight for _, op in graph.ops() for weight in op.weights}
    names = {tensor.name.replace("{}", "3"): f"blk.3.{place}" for place, tensor in enumerate(weights)}
    graph = replace(graph, metadata={**graph.metadata, "stored_as": {gguf: name for name, gguf in names.items()}})
    layers = graph_layers(graph, bind(graph, Workload(prompt=8)))
    named = ["blk.3.attn_residual", "blk.3.ffn_residual"]
    assert [layers.find([name], "elementwise")[0].name for name in named] == [around_attention, around_the_rest]


def test_what_the_model_does_not_have_is_no_layer(llama):
    assert llama.find(["Reorder_7"], "copy") == ()


def test_a_node_deep_in_a_branch_belongs_to_the_op_that_holds_it(llama):
    (found,) = llama.find(["layers.3.attn.q_proj/else/inner/Conv"], "convolution")
    assert found.name == "layers.3.attn.q_proj"


def test_a_branch_that_is_known_to_be_taken_stands_in_place_of_its_if():
    ops = Op(name="dec/If_1/rnn/Cast", kind="cast"), Op(name="dec/If_1/rnn/LSTM", kind="view")
    layers = graph_layers(Graph(name="m", blocks=(Block(name="main", ops=ops),)), Binding())
    named = {"dec/If_1/then/rnn/LSTM": "recurrent", "dec/If_1": "control", "dec/If_1/then/rnn/Slice": "copy"}
    found = [[layer.name for layer in layers.find([name], kind)] for name, kind in named.items()]
    assert found == [["dec/If_1/rnn/LSTM"], ["dec/If_1/rnn/Cast"], []]


def test_a_name_without_a_part_is_not_the_top_of_the_model(llama):
    assert llama.find(["sizes/Shape"], "view") == ()
    assert llama.find(["Norm_12"], "norm") == ()


def test_a_modules_own_time_is_a_row_of_its_part_without_work(llama):
    (found,) = llama.find(["model.layers.2.self_attn"], "custom")
    assert (found.name, found.kind, found.flops) == ("layers.2.attn", "custom", 0.0)
    assert found.block == llama.by_name["layers.2.attn.q_proj"].block


def test_layers_stand_in_the_order_of_execution(llama):
    names = [layer.name for layer in sorted(llama.by_name.values(), key=lambda layer: layer.place)]
    assert names[0] == "embed"
    assert names.index("layers.0.mlp.down_proj") < names.index("layers.1.attn.norm") < names.index("lm_head")
    assert len({layer.place for layer in llama.by_name.values()}) == len(names)


def test_kernels_of_one_layer_are_one_op_and_their_times_add_up(llama):
    kernels = (
        kernel("mm_1", "aten::mm", "model.layers.0.self_attn.q_proj"),
        kernel("add_1", "aten::add", "model.layers.0.self_attn.q_proj", seconds=5e-4),
        kernel("Reorder", "ReorderInput"),
        kernel("Reorder", "ReorderInput"),
    )
    corrected = correct(kernels, clean_s=1.0)
    ops = measured_ops(kernels, corrected, llama)
    assert [op.name for op in ops] == ["layers.0.attn.q_proj", "Reorder", "Reorder"]
    assert ops[0].time_s == pytest.approx(1.5e-3)
    assert ops[0].kernel == "mm_1 + add_1"
    assert (ops[0].kind, ops[1].kind) == ("linear", "copy")
    assert ops[0].samples_s == pytest.approx((1.5e-3, 1.5e-3))
    assert ops[1].flops is None
    assert sum(op.time_s for op in ops) + corrected.unattributed_s == pytest.approx(1.0)


def test_a_fused_kernel_names_its_main_layer_and_keeps_the_others(llama):
    kernels = (kernel("fused", "FusedMatMul", "layers.0.mlp.act/Sigmoid", "layers.0.mlp.gate_proj/MatMul"),)
    (op,) = measured_ops(kernels, correct(kernels, clean_s=1.0), llama)
    assert op.name == "layers.0.mlp.gate_proj"
    assert op.layers[2:] == ("layers.0.mlp.gate_proj", "layers.0.mlp.act", "layers.0.mlp.mul")
    assert op.flops > 2 * 8 * 2048 * 8192


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("FusedConv", "convolution"), ("aten::addmm", "linear"), ("aten::mm", "matmul"), ("ReorderInput", "copy"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"), ("GroupQueryAttention", "attention"),
        ("MUL_MAT", "linear"), ("LayerNormalization", "norm"), ("QuickGelu", "activation"), ("Add", "elementwise"),
        ("", "custom"),
    ],
)  # fmt: skip
def test_an_engines_word_tells_the_kind(word, kind):
    assert layer_kind(word) == kind


@pytest.mark.parametrize("model", ["llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "mistral-7b"])
@pytest.mark.parametrize(
    ("module", "op", "layers"),
    [
        ("model.layers.1.self_attn.q_proj", "aten::mm", ["layers.1.attn.q_proj"]),
        ("model.layers.1.self_attn", "aten::mul", ["layers.1.attn.rotary"]),
        ("model.layers.1", "aten::add", ["layers.1.attn.residual", "layers.1.mlp.residual"]),
        ("model.layers.1.mlp", "aten::mul", ["layers.1.mlp.mul"]),
        ("model.layers.1.mlp.act_fn", "aten::silu", ["layers.1.mlp.act"]),
        ("model.layers.1.mlp.act_fn", "host", ["layers.1.mlp"]),
    ],
)
def test_what_a_module_of_transformers_runs_is_the_layer_that_is_predicted(model, module, op, layers):
    """A rotary embedding is products and sums in the attention's module, and residuals are added around it."""
    graph = read(model)
    found = graph_layers(graph, bind(graph, Workload(prompt=16))).find((module,), layer_kind(op))
    assert [layer.name for layer in found] == layers
