"""Engines of language models beyond what the suite of every runtime asks: which layers their kernels stand for."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from contract.runtime_cases_ctranslate2 import llama as ctranslate2_llama
from contract.runtime_cases_onnxruntime_genai import llama as genai_llama
from contract.runtime_cases_openvino_genai import llama as openvino_llama
from contract.runtime_cases_openvino_genai import write_pipeline
from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.graph import is_generative
from inferometer.core.plugins import load_all
from inferometer.engines.base import Ready, Request
from inferometer.engines.openvino_genai.session import layer_of
from inferometer.formats.resolve import read

RUNTIMES = load_all("inferometer.runtimes")[0]


def opened(name, target):
    if not isinstance(RUNTIMES[name].probe(), Ready):
        pytest.skip(f"SKIPPED LOUDLY: {name} is not installed")
    return RUNTIMES[name].open(target)


def ids_of(session, request):
    return [token for event in session.generate(request) for token in event.ids]


def test_the_kernels_of_onnxruntime_genai_are_nodes_of_the_folders_file(tmp_path):
    target = genai_llama(tmp_path)
    session = opened("onnxruntime-genai", replace(target, instrument=True))
    list(session.generate(Request(prompt=(7, 8, 9), generate=3)))
    kernels = session.kernels()["decode"]
    session.close()
    names = {op.name for _, op in read(str(target.path)).ops()}
    products = [kernel for kernel in kernels if kernel.kind in {"MatMul", "FusedMatMul", "Gemm"}]
    assert products
    assert all(kernel.layers and set(kernel.layers) <= names for kernel in products)


@pytest.mark.parametrize(("apart", "made"), [(False, 4), (True, 1)])
def test_tokens_that_are_asked_for_apart_come_before_the_next_step(tmp_path, apart, made):
    """Calibration floods the caches between two steps; a profile wants nothing between them."""
    session = opened("onnxruntime-genai", genai_llama(tmp_path))
    events = session.generate(Request(prompt=(7, 8, 9), generate=5, apart=apart))
    first, second = next(events), next(events)
    counted = session._model.running.token_count() - 4  # the prompt, and the token that ended its reading
    assert (first.kind, second.kind, counted) == ("prefill", "token", made)
    assert [event.context for event in (second, *events)] == [3, 4, 5, 6]
    session.close()


def test_an_end_token_ends_a_text_unless_the_length_is_part_of_the_question(tmp_path):
    """The engine is told that the second token it makes ends a text."""
    target = ctranslate2_llama(tmp_path)
    session = opened("ctranslate2", target)
    asked = Request(prompt=(7, 8, 9), generate=6)
    ids = ids_of(session, asked)
    config = target.path / "config.json"
    config.write_text(config.read_text().replace('"t2"', f'"t{ids[1]}"'))
    again = opened("ctranslate2", target)
    assert ids_of(again, asked) == ids
    assert len(ids_of(again, replace(asked, ignore_end=False))) < len(ids)


def test_the_end_that_a_folder_of_onnxruntime_genai_names_counts_only_where_it_may(tmp_path):
    target, asked = genai_llama(tmp_path), Request(prompt=(7, 8, 9), generate=6)
    ids = ids_of(opened("onnxruntime-genai", target), asked)
    config = json.loads((target.path / "genai_config.json").read_text())
    config["model"]["eos_token_id"] = ids[1]
    (target.path / "genai_config.json").write_text(json.dumps(config))
    again = opened("onnxruntime-genai", target)
    assert len(ids_of(again, asked)) == 6
    assert len(ids_of(again, replace(asked, ignore_end=False))) < 6


def test_ctranslate2_runs_as_many_sequences_as_were_asked_for(tmp_path):
    session, asked = opened("ctranslate2", replace(ctranslate2_llama(tmp_path), batch=3)), []
    engine = session._generator

    def generate_batch(prompts, **more):
        asked.append(prompts)
        return engine.generate_batch(prompts, **more)

    session._generator = SimpleNamespace(generate_batch=generate_batch)
    assert len(ids_of(session, Request(prompt=(7, 8, 9), generate=2))) == 2  # those of the first
    assert [len(prompts) for prompts in asked] == [3] * len(asked)


@pytest.mark.parametrize(
    ("name", "make"),
    [("ctranslate2", ctranslate2_llama), ("onnxruntime-genai", genai_llama), ("openvino-genai", openvino_llama)],
)
def test_a_prompt_after_a_depth_is_the_text_of_both(name, make, tmp_path):
    """What lies in the cache are the keys and values of those tokens, however an engine puts them there."""
    session = opened(name, make(tmp_path))
    depth = 9
    filler = tuple((1 + 7 * place) % session.vocabulary for place in range(depth))
    split = ids_of(session, Request(prompt=(7, 8, 9), generate=5, depth=depth))
    assert split == ids_of(session, Request(prompt=(*filler, 7, 8, 9), generate=5))
    session.close()


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("__module.model.model.layers.3.self_attn.q_proj/aten::linear/MatMul", "layers.3.attn.q_proj"),
        ("__module.model.layers.0.self_attn/aten::scaled_dot_product_attention/X", "layers.0.attn.attention"),
        ("__module.model.layers.0.self_attn/aten::mul/Multiply_2", "layers.0.attn.rotary"),
        ("__module.model.layers.12.post_attention_layernorm/aten::mean/ReduceMean", "layers.12.mlp.norm"),
        ("__module.model.layers.1.mlp/aten::mul/Multiply", "layers.1.mlp.mul"),
        ("__module.model.layers.1/aten::add/Add", "layers.1.attn.residual"),
        ("__module.model.layers.1/aten::add/Add_1", "layers.1.mlp.residual"),
        ("__module.model.embed_tokens/aten::embedding/Gather", "embed"),
        ("__module.model.lm_head/aten::linear/MatMul", "lm_head"),
        ("__module.model.model.norm/aten::mean/ReduceMean", "final_norm"),
        ("__module.model.rotary_emb/aten::cos/Cos", None),
        ("Gather_123", None),
    ],
)
def test_a_traced_modules_name_says_which_layer_it_is(name, layer):
    assert layer_of(name) == layer


def test_a_pipelines_graph_is_its_configs_and_without_one_says_what_is_not_counted(tmp_path):
    folder = write_pipeline(tmp_path / "llama")
    graph = read(str(folder))
    assert graph.metadata["format"] == "openvino-genai"
    assert is_generative(graph)
    assert "counted as f32" in graph.metadata["notes"][-1]
    (folder / "config.json").unlink()
    assert "cache is not counted" in read(str(folder)).metadata["notes"][-1]


@pytest.mark.parametrize("name", ["ctranslate2", "onnxruntime-genai", "openvino-genai"])
def test_a_folder_of_something_else_is_refused_with_how_to_make_one(name, tmp_path):
    target = replace(genai_llama(tmp_path), format=name, path=tmp_path)
    with pytest.raises(InferometerError, match="no folder of") as caught:
        opened(name, target)
    assert f"--for {name}" in caught.value.remedy


def test_a_config_without_a_decoder_is_refused_by_its_name(tmp_path):
    (tmp_path / "genai_config.json").write_text('{"model": {"decoder": {}, "context_length": 1, "vocab_size": 2}}')
    with pytest.raises(FormatError, match="genai_config"):
        read(str(tmp_path))
