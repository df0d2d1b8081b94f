"""Configs that make no sense: a clear error, soon, and nothing else."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.counting import calls_of
from golden.test_parameters import ROWS
from inferometer.core.errors import FormatError, InferometerError, UnknownNameError
from inferometer.formats.huggingface.graph import graph_from_config
from unit.formats.huggingface.examples import DEEPSEEK, LLAMA, MIXTRAL, RESNET, VIT

FOLDER = Path(__file__).parents[3] / "data" / "huggingface"
CONFIGS = {
    path.stem: json.loads(path.read_text())["config"] for path in sorted(FOLDER.glob("*.json")) if path.stem != "cases"
}


def refused(config, **changes):
    with pytest.raises(InferometerError) as caught:
        graph_from_config({**config, **changes}, name="broken-model")
    return str(caught.value)


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def test_a_missing_key_is_named():
    text = refused(without(LLAMA, "hidden_size"))
    assert "broken-model" in text
    assert "hidden_size" in text


def test_all_missing_keys_are_named_at_once():
    text = refused({"model_type": "gpt2"})
    assert all(key in text for key in ("n_embd", "n_layer", "n_head", "vocab_size", "n_positions"))


def test_a_key_is_called_as_the_config_calls_it():
    gpt2 = {"model_type": "gpt2", "n_layer": 1, "n_head": 3, "vocab_size": 9, "n_positions": 8}
    assert "n_embd is 10, which 3 heads" in refused({**gpt2, "n_embd": 10})
    assert "hidden_size is 10, which 3 heads" in refused({**gpt2, "hidden_size": 10})


def test_a_key_missing_inside_is_named_with_its_path():
    vision = without({**VIT, "model_type": "qwen2_vl"}, "hidden_size")
    text = refused({**LLAMA, "model_type": "qwen2_vl", "architectures": None, "vision_config": vision})
    assert "vision_config.hidden_size" in text


@pytest.mark.parametrize("layers", [0, -1, 10**12, 10**400, 2.5, float("nan"), "many", [3], True])
def test_layers_that_cannot_be_are_refused_with_what_was_found(layers):
    assert "num_hidden_layers must be a whole number from 1 to 4096" in refused(LLAMA, num_hidden_layers=layers)


@pytest.mark.parametrize("value", [0, -8, 10**30, "x", [], {}, False])
@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "intermediate_size", "num_attention_heads"])
def test_sizes_that_cannot_be_are_refused_by_name(key, value):
    assert key in refused(LLAMA, **{key: value})


def test_heads_that_do_not_divide_are_refused():
    assert "which 7 heads do not divide" in refused(LLAMA, num_attention_heads=7)
    assert "which 3 key-value heads do not divide" in refused(LLAMA, num_key_value_heads=3)


VGG, DENSENET, MOBILENET, YOLO = (
    ROWS[name]["config"] for name in ("vgg16", "densenet121", "mobilenet-v3-large", "yolov8n")
)
SWIN, UNET, MAMBA2, PHI, SD3 = (CONFIGS[name] for name in ("swin", "unet_sdxl", "mamba2", "phi", "sd3_dual"))


def layers_of(**changes):
    """YOLO with its first layer of a kind changed."""
    return [{**YOLO["layers"][0], **changes}, *YOLO["layers"][1:]]


@pytest.mark.parametrize(
    ("config", "changes", "why"),
    [
        (VGG, {"classifier": [8, 8, 8, 8]}, "classifier has 4 layers, and vgg at most 3"),
        (MOBILENET, {"classifier": [8]}, "classifier has 1 layers, and mobilenet_v3 has 2"),
        (DENSENET, {"block_config": [4000, 97]}, "block_config has more than 4096 layers"),
        (RESNET, {"hidden_sizes": [6, 6, 6, 6], "layer_type": "bottleneck"}, "6, which is not a multiple of four"),
        (SWIN, {"num_heads": [2, 4]}, "num_heads has 2 entries for 3 stages"),
        (SWIN, {"num_heads": [2, 4, 7]}, "7 heads, which do not divide a width of 48"),
        (SWIN, {"depths": [2, 2, 4097]}, "depths must be at most"),
        (SWIN, {"depths": [1] * 40, "num_heads": [1] * 40}, "depths must be at most"),
        (UNET, {"down_block_types": ["DownBlock2D"] * 2}, "down_block_types must be 3 of"),
        (UNET, {"down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "Other"]}, "down_block_types must be 3 of"),
        (UNET, {"up_block_types": ["UpBlock2D"] * 3}, "up_block_types must mirror down_block_types"),
        (UNET, {"transformer_layers_per_block": [1, 2]}, "has 2 entries for 3 levels"),
        (UNET, {"attention_head_dim": [2, 5, 4]}, "5 heads, which do not divide 24 channels"),
        (SD3, {"dual_attention_layers": [1, 2]}, "dual_attention_layers must be the first layers"),
        (SD3, {"dual_attention_layers": [0, 1, 2, 3]}, "and not the last"),
        (MAMBA2, {"num_heads": 11}, "times head_dim must be expand × hidden_size, which is 96"),
        (PHI, {"partial_rotary_factor": 0.0}, "must be over 0 and at most 1, and is 0.0"),
        (PHI, {"partial_rotary_factor": 1.1}, "must be over 0 and at most 1, and is 1.1"),
        (PHI, {"partial_rotary_factor": float("nan")}, "must be a finite number"),
        (PHI, {"partial_rotary_factor": True}, "must be a finite number"),
        (YOLO, {"layers": layers_of(module="other")}, "is 'other', and only conv, c2f"),
        (
            YOLO,
            {"layers": [*YOLO["layers"][:3], {**YOLO["layers"][3], "from": [3]}]},
            "names layer 3, which does not come before",
        ),
        (YOLO, {"layers": [*YOLO["layers"][:2], {**YOLO["layers"][2], "out": 1}]}, "out must be at least 2"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_both_sides(config, changes, why):
    graph_from_config(config, name="sound")
    assert why in refused(config, **changes)


def test_more_experts_chosen_than_there_are_is_refused():
    assert "num_experts_per_tok" in refused(MIXTRAL, num_experts_per_tok=9)


def test_a_list_of_another_length_is_refused():
    assert "layer_types has 1 entries for 4 layers" in refused(
        {**LLAMA, "model_type": "gemma2"}, layer_types=["full_attention"], sliding_window=8
    )
    assert "depths has 2 entries for 4 stages" in refused(RESNET, depths=[1, 1])


def test_an_unknown_architecture_names_the_nearest_and_what_is_missing():
    config = {**without(LLAMA, "intermediate_size"), "model_type": "llama5", "architectures": ["Llama5ForCausalLM"]}
    with pytest.raises(UnknownNameError) as caught:
        graph_from_config(config, name="broken-model")
    text = str(caught.value)
    assert "no architecture named 'llama5'" in text
    assert "Did you mean llama" in text
    assert "to be read as llama it lacks intermediate_size" in text
    assert "broken-model" in text


def test_an_unknown_architecture_with_every_key_says_so():
    text = refused(LLAMA, model_type="llamb")
    assert "llama's keys are all there" in text
    assert "set model_type to that name" in text


def test_a_config_that_names_nothing_asks_for_a_model_type():
    assert "neither model_type nor architectures" in refused({"hidden_size": 64})
    assert "neither model_type nor architectures" in refused({"model_type": 7})


def test_an_unknown_class_of_a_known_family_names_those_that_are_known():
    text = refused(LLAMA, architectures=["LlamaForTelepathy"])
    assert "LlamaForTelepathy" in text
    assert "ForCausalLM" in text


def test_a_class_that_only_ends_like_the_bare_model_is_not_taken_for_it():
    bert = {**LLAMA, "model_type": "bert", "type_vocab_size": 2}
    assert "BertLMHeadModel" in refused(bert, architectures=["BertLMHeadModel"])


def test_what_a_template_cannot_expand_is_refused_with_the_reason():
    text = refused({**LLAMA, "model_type": "phi", "architectures": None}, qk_layernorm=True)
    assert "norms on queries and keys" in text


def test_a_part_that_cannot_be_one_is_refused():
    parts = {"text_config": {**RESNET}, "vision_config": {**VIT, "model_type": "clip_vision_model"}}
    assert "cannot be the text part of llava" in refused({"model_type": "llava", **parts})
    parts = {"text_config": {**LLAMA}, "vision_config": {**VIT, "model_type": "unheard_vision"}}
    assert "unheard_vision" in refused({"model_type": "llava", **parts})


def test_a_message_stays_short_whatever_the_value():
    assert len(refused(LLAMA, hidden_size="x" * 10**6)) < 300
    assert len(refused(LLAMA, model_type="x" * 10**6)) < 2500


@pytest.mark.parametrize("config", [LLAMA, DEEPSEEK, VIT, RESNET], ids=["llama", "deepseek", "vit", "resnet"])
def test_a_hostile_config_costs_no_time(config):
    def ask(key, value):
        with pytest.raises(InferometerError):
            graph_from_config({**config, key: value, "num_hidden_layers": 0, "depths": 0}, name="x")

    ask("model_type", "unheard-of")  # what is loaded once is loaded now
    for key in config:
        for value in (10**12, [10**12] * 4096, "x" * 10**6):
            assert calls_of(lambda: ask(key, value)) < 50_000  # noqa: B023 - it is called here


def places(config, path=()):
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


def changed(config, path, value):
    whole = copy.deepcopy(config)
    inside = whole
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return whole


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-10, max_value=10**18),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(-2, 9), st.none(), st.text(max_size=3)), max_size=6),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), case=st.sampled_from(sorted(CONFIGS)), value=VALUES)
def test_any_value_anywhere_gives_a_graph_or_an_error_of_ours(data, case, value):
    path = data.draw(st.sampled_from(sorted(places(CONFIGS[case]))))
    try:
        graph_from_config(changed(CONFIGS[case], path, value), name="fuzzed")
    except InferometerError as error:
        assert "fuzzed" in str(error)


def test_format_errors_are_format_errors():
    with pytest.raises(FormatError):
        graph_from_config(without(LLAMA, "vocab_size"), name="x")
