"""Hugging Face modules on the meta device, against the counts that were published and the templates of our own."""

import resource
import sys

import pytest

from inferometer.core.binding import Binding
from inferometer.core.errors import FormatError, MissingDependencyError
from inferometer.predict import coverage, graph_work, op_works

pytest.importorskip("torch", reason="torch is not installed: Hugging Face modules are not tested")
pytest.importorskip("transformers", reason="transformers is not installed: Hugging Face modules are not tested")

from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.torch import read_pretrained_config

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own remarks while it is imported

TINY = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "dtype": "bfloat16",
    "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA_70B = TINY | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 131_072,
}  # fmt: skip
GEMMA_2 = {
    "model_type": "gemma2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "sliding_window": 32,
}  # fmt: skip
MIXTURE = {
    "model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
    "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 16,
    "num_key_value_heads": 2, "vocab_size": 50, "norm_topk_prob": True, "dtype": "bfloat16",
}  # fmt: skip


def at(**sizes):
    return Binding(sizes={"batch": 1, "query": 1, "context": 0, "logits": 1} | sizes)


def kinds(graph, *wanted):
    return [op for _, op in graph.ops() if op.kind in wanted]


@pytest.fixture(scope="module")
def tiny():
    return read_pretrained_config(TINY, name="tiny")


def test_its_layers_are_one_block(tiny):
    layers = next(block for block in tiny.blocks if block.count > 1)
    assert (layers.name, layers.count) == ("model.layers", 3)
    assert "model.layers.{}.self_attn.q_proj" in {op.name for op in layers.ops}


def test_it_says_what_the_config_says(tiny):
    assert (tiny.architecture, tiny.precision, tiny.context_limit) == ("llama", "bf16", 128)
    formats = {weight.dtype for _, op in tiny.ops() for weight in op.weights}
    # Its own format is left to the workload; ids and the frequencies of the rotation keep theirs.
    assert ([tensor.dtype for tensor in tiny.inputs], formats) == (["i64"], {None, "f32"})
    assert {str(size) for size in tiny.inputs[0].shape} == {"batch", "query"}
    assert coverage(tiny).share == 1


def test_one_graph_serves_prefill_and_decode(tiny):
    attention = kinds(tiny, "attention")[0]
    assert (attention["heads"], attention["kv_heads"], attention["causal"], attention["cached"]) == (4, 2, True, True)
    step = graph_work(tiny, at(context=100))
    assert step.kv_reads == 3 * 100 * 2 * 2 * 16 * 2  # layers · tokens · (k, v) · kv heads · width · bytes
    assert graph_work(tiny, at(query=10)).kv_reads == 0


@pytest.mark.parametrize("config", [TINY, MIXTURE], ids=["llama", "qwen3_moe"])
def test_products_and_caches_are_those_of_the_template(config):
    """The traced module and the hand-written template agree on all that is not spelled out in small ops."""
    traced, template = read_pretrained_config(config, name="a"), graph_from_config(config, name="b")
    assert traced.parameters == template.parameters
    for sizes in (at(query=7), at(context=9, batch=3)):
        ours, theirs = graph_work(traced, sizes), graph_work(template, sizes)
        assert (ours.kv_reads, ours.kv_writes) == (theirs.kv_reads, theirs.kv_writes)
        assert ours.total_flops == pytest.approx(theirs.total_flops, rel=0.1)


def test_the_products_of_a_dense_model_are_exactly_the_templates():
    traced, template = read_pretrained_config(TINY, name="a"), graph_from_config(TINY, name="b")

    def products(graph):
        works = op_works(graph, at(query=7, batch=2))
        return {
            kind: sum(block.count * work.total_flops for block, op, work in works if op.kind == kind)
            for kind in ("linear", "attention")
        }

    assert products(traced) == products(template)


def test_windows_and_caps_are_told():
    graph = read_pretrained_config(GEMMA_2)
    found = [(op["window"], op["soft_cap"]) for op in kinds(graph, "attention")]
    assert found == [(32, True), (None, True)]


def test_experts_are_one_op_with_all_their_weights():
    experts = kinds(read_pretrained_config(MIXTURE), "moe_experts")[0]
    assert (experts["experts"], experts["top_k"], experts["hidden"], experts["intermediate"]) == (8, 2, 64, 32)
    assert [weight.shape for weight in experts.weights] == [(8, 64, 64), (8, 64, 32)]


def test_the_workload_may_ask_for_another_format(tiny):
    from inferometer.core.workload import Precision

    asked = Binding(sizes=at().sizes, precision=Precision(weights="i8", activations="bf16"))
    assert graph_work(tiny, asked).weights < graph_work(tiny, at()).weights * 0.6


def test_an_encoder_and_an_image_model_are_read():
    bert = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "num_hidden_layers": 2, "hidden_size": 64,
            "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 50,
            "max_position_embeddings": 128}  # fmt: skip
    vit = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "num_hidden_layers": 2,
           "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "image_size": 64, "patch_size": 16,
           "num_channels": 3, "num_labels": 10}  # fmt: skip
    for config in (bert, vit):
        graph = read_pretrained_config(config)
        assert not kinds(graph, "attention")[0]["causal"]
        assert graph.parameters == graph_from_config(config, name="x").parameters


def test_a_folder_with_a_config_is_read(tmp_path):
    import json

    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert read_pretrained_config(tmp_path).parameters == read_pretrained_config(TINY).parameters


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "model_type"),
        ({"model_type": "unheard-of"}, "transformers cannot read"),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "read_module"),
        ({**TINY, "num_attention_heads": 0}, "transformers cannot"),
    ],
)
def test_configs_that_cannot_be_read(config, said):
    with pytest.raises(FormatError, match=said):
        read_pretrained_config(config)


def test_an_unknown_format_is_an_error():
    with pytest.raises(FormatError, match="no number format 'f99'"):
        read_pretrained_config(TINY, dtype="f99")


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match="pip install transformers"):
        read_pretrained_config(TINY)


def test_a_model_far_larger_than_memory_is_read():
    """Ten of Llama-3-70B's eighty layers: each takes as long to trace as the others, and has 855,654,400 weights."""
    graph = read_pretrained_config(LLAMA_70B | {"num_hidden_layers": 10})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert graph.parameters == 70_553_706_496 - 70 * 855_654_400  # the whole as published with the checkpoint
    assert next(block.count for block in graph.blocks if block.count > 1) == 10
    assert peak < 4e9  # the weights alone are 21 GB
