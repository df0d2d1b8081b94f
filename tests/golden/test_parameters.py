"""Parameter counts are exact: what a config expands to has as many parameters as were published of the model.

The published counts and their sources stand in the catalog's rows. The twelve below also stand in the project's field
notes, and hold whatever a row says.
"""

import tomllib
from importlib.resources import files

import pytest

from fakes.every import every
from inferometer.formats.huggingface.graph import graph_from_config

FOLDER = files("inferometer.known") / "data" / "models"
ROWS = {
    name: row
    for entry in sorted(FOLDER.iterdir(), key=lambda entry: entry.name)
    if entry.name.endswith(".toml")
    for name, row in tomllib.loads(entry.read_text(encoding="utf-8")).get("models", {}).items()
}
TWELVE = {
    "tinyllama-1.1b": 1_100_048_384,
    "llama-3.2-1b": 1_235_814_400,
    "gemma-3-1b": 999_885_952,
    "deepseek-r1-distill-qwen-1.5b": 1_777_088_000,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "phi-3-mini": 3_821_079_552,
    "llama-2-13b": 13_015_864_320,
    "qwen3-30b-a3b": 30_532_122_624,
}
# Families and heads of which the catalog has no row; what `model.num_parameters()` prints for the named checkpoint.
OTHERS = {
    "google/flan-t5-small": (  # a head of its own, gated MLPs
        76_961_152,
        {
            "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 512, "d_kv": 64,
            "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 8, "num_heads": 6, "vocab_size": 32128,
            "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
        },
    ),
    "facebook/opt-350m": (  # words narrower than the layers, norms after the sums
        331_196_416,
        {
            "model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 1024, "ffn_dim": 4096,
            "num_hidden_layers": 24, "num_attention_heads": 16, "word_embed_proj_dim": 512, "vocab_size": 50272,
            "max_position_embeddings": 2048, "do_layer_norm_before": False,
        },
    ),
    "bigscience/bloom-560m": (  # its model card: 559,214,592 parameters, 256,901,120 of them embedding parameters
        559_214_592,
        {
            "model_type": "bloom", "architectures": ["BloomForCausalLM"], "n_embed": 1024, "n_layer": 24,
            "num_attention_heads": 16, "vocab_size": 250880,
        },
    ),
    "EleutherAI/gpt-j-6b": (
        6_050_882_784,
        {
            "model_type": "gptj", "architectures": ["GPTJForCausalLM"], "n_embd": 4096, "n_layer": 28, "n_head": 16,
            "n_inner": None, "n_positions": 2048, "rotary_dim": 64, "vocab_size": 50400, "tie_word_embeddings": False,
        },
    ),
    "google/gemma-2b": (
        2_506_172_416,
        {
            "model_type": "gemma", "architectures": ["GemmaForCausalLM"], "hidden_size": 2048,
            "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1,
            "head_dim": 256, "vocab_size": 256000,
        },
    ),
    "google-bert/bert-base-uncased": (  # with its masked-language head
        109_514_298,
        {
            "model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768, "intermediate_size": 3072,
            "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512,
            "type_vocab_size": 2,
        },
    ),
    "facebook/dinov2-base": (
        86_580_480,
        {
            "model_type": "dinov2", "architectures": ["Dinov2Model"], "hidden_size": 768, "num_hidden_layers": 12,
            "num_attention_heads": 12, "mlp_ratio": 4, "image_size": 518, "patch_size": 14,
        },
    ),
}  # fmt: skip


def number(value):
    return value["value"] if isinstance(value, dict) else value


COUNTED = [name for name, row in ROWS.items() if "config" in row and "parameters" in row]
SPARSE = [name for name, row in ROWS.items() if "config" in row and "active_parameters" in row]


@every(COUNTED)
def test_a_catalog_model_has_the_published_number_of_parameters(name):
    graph = graph_from_config(ROWS[name]["config"], name=name)
    assert graph.parameters == number(ROWS[name]["parameters"])


@pytest.mark.parametrize(("name", "published"), TWELVE.items())
def test_the_twelve_counts_of_the_field_notes(name, published):
    assert graph_from_config(ROWS[name]["config"], name=name).parameters == published


@pytest.mark.parametrize("name", OTHERS)
def test_models_beside_the_catalog(name):
    published, config = OTHERS[name]
    assert graph_from_config(config, name=name).parameters == published


@pytest.mark.parametrize("name", SPARSE)
def test_a_mixture_has_the_published_number_of_active_parameters(name):
    graph = graph_from_config(ROWS[name]["config"], name=name)
    assert graph.active_parameters == number(ROWS[name]["active_parameters"])


def test_a_dense_model_uses_all_of_its_parameters():
    graph = graph_from_config(ROWS["llama-3.1-8b"]["config"], name="llama-3.1-8b")
    assert graph.active_parameters == graph.parameters


def test_at_least_forty_models_are_held_to_their_counts():
    assert len(COUNTED) >= 40
    assert all("source" in ROWS[name] for name in COUNTED)
