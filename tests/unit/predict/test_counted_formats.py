"""The formats that are named are those that are counted: a model's own, and the arithmetic the runtime uses."""

from dataclasses import replace

import pytest

from inferometer import predict, sweep
from inferometer.core import Block, Graph, Precision
from inferometer.formats.resolve import read
from inferometer.measure.run.model_file import main_format, mixture_note
from inferometer.predict.precision import counted_precision, weight_formats
from inferometer.predict.work.count import graph_work
from inferometer.understand.view.page import page_of
from inferometer.understand.view.phrases import formats_of
from inferometer.understand.view.predictions import prediction_card, summary_row
from unit.predict.decoders import LLAMA_3_1_8B, at, project, tokens


@pytest.mark.parametrize(
    ("model", "runtime", "words"),
    [
        ("deepseek-v3", "torch-compile", "f8e4m3 weights, bf16 activations"),  # router and norms: under a twentieth
        ("gpt-oss-20b", "ideal", "mxfp4+bf16 weights, bf16 activations"),  # the experts; attention and embedding
        ("gpt-oss-20b", "torch-compile", "bf16"),  # PyTorch turns them into it as it loads them
        ("llama-3.2-1b", "torch-compile", "bf16"),
    ],
)
def test_a_title_names_the_formats_that_are_counted(model, runtime, words):
    profile = predict(model, on="nvidia-h200", runtime=runtime, tp=8)
    assert f" · {words} · " in prediction_card(profile).subtitle
    assert page_of(profile).subtitle.endswith(words)


def test_a_title_names_the_arithmetic_where_it_is_another():
    profile = predict("llama-3.2-1b", on="raspberry-pi-5", runtime="llamacpp", weights="q4_0", kv="q8_0")
    assert formats_of(profile) == "q4_0+q6_k weights, bf16 activations, q8_0 cache, computed in i8/f32"


def test_rows_of_comparisons_and_sweeps_name_the_same():
    profile = predict("gpt-oss-20b", on="nvidia-h200", runtime="ideal")
    rows = sweep("gpt-oss-20b", "nvidia-h200", runtimes="ideal", weights=[None, "i8"])
    assert summary_row(profile)["weights"] == "mxfp4"
    assert rows["weights"].tolist() == ["mxfp4", "i8"]


def test_a_format_that_most_weights_do_not_take_is_said():
    config = read("gpt-oss-20b")
    file = replace(config, metadata={**config.metadata, "format": "gguf"})  # a file has the formats that it has
    profile = predict(file, on="nvidia-h200", runtime="ideal", weights="i8")
    assert "91% of the weights are mxfp4 as the model states; i8 counts for the rest." in profile.provenance.notes
    other = predict("llama-3.2-1b", on="nvidia-h200", runtime="torch-compile", weights="i8")
    assert not any("as the model states" in note for note in other.provenance.notes)


def test_the_shares_make_the_bytes_that_are_counted():
    """bf16 has two bytes and q4_0 eighteen for 32 numbers, in whole blocks: shares × bytes are the weights' size."""
    graph = read("gpt-oss-20b")
    shares = weight_formats(graph, Precision(weights="bf16"))
    assert sum(shares.values()) == pytest.approx(1)
    size = graph.parameters * (2 * shares["bf16"] + 17 / 32 * shares["mxfp4"])
    assert predict("gpt-oss-20b", on="nvidia-h200", runtime="ideal").model.weight_bytes == pytest.approx(size, rel=1e-3)


def test_only_weights_that_name_no_format_follow_what_is_asked():
    assert counted_precision(LLAMA_3_1_8B, Precision(weights="q4_0")).weights == "q4_0"
    block = LLAMA_3_1_8B.blocks[1]
    own = replace(
        LLAMA_3_1_8B,
        blocks=tuple(
            replace(each, ops=tuple(_stored(op, "i8") for op in each.ops)) if each is block else each
            for each in LLAMA_3_1_8B.blocks
        ),
    )
    assert counted_precision(own, Precision(weights="q4_0")).weights == "i8"
    assert graph_work(own, at(context=1)).weights < graph_work(LLAMA_3_1_8B, at(context=1)).weights


def _stored(op, name):
    return replace(op, weights=tuple(replace(tensor, dtype=name) for tensor in op.weights))


def test_layers_of_two_blocks_that_share_their_names_are_all_counted():
    """A file that keeps one layer of three wider: the second block's weights have the same names but for the number."""
    first, second = (
        Block(name=name, ops=(_stored(project("l.{}", "x", "q", 64, 64), kind),), count=count, first=at)
        for name, kind, count, at in (("a", "q8_0", 1, 0), ("b", "q4_0", 2, 1))
    )
    graph = Graph(name="mixed", blocks=(first, second), inputs=(tokens("x", 64),))
    assert main_format(graph) == "q4_0"
    assert [*mixture_note(graph)] == ["The weights are stored as q4_0 67%, q8_0 33% (of the parameters)."]


def answered_everywhere(model, on, **asked):
    """Bytes of the weights and the time of a token, the same by `predict` and in a sweep."""
    profile = predict(model, on=on, calibrated=False, **asked)
    axes = {{"runtime": "runtimes"}.get(name, name): value for name, value in asked.items()}
    rows = sweep(models=model, devices=on, calibrated=False, **axes)
    assert float(rows["tpot_s"][0]) == pytest.approx(profile.summary.tpot_s)
    return profile.model.weight_bytes, profile.summary.tpot_s


@pytest.mark.parametrize(("plain", "own"), [("i8", "q8_0"), ("int4", "q4_0")])
@pytest.mark.parametrize("on", ["raspberry-pi-5", "apple-m2-ultra-gpu"])
def test_eight_and_four_bits_are_the_blocks_that_llama_cpp_has_for_them(plain, own, on):
    asked = {"runtime": "llamacpp", "context": 500}
    assert answered_everywhere("llama-3.2-1b", on, weights=plain, **asked) == answered_everywhere(
        "llama-3.2-1b", on, weights=own, **asked
    )


@pytest.mark.parametrize("model", ["deepseek-v3", "gpt-oss-20b"])
def test_fewer_bits_are_fewer_bytes_whatever_a_config_states(model):
    asked = {"runtime": "vllm", "context": 500}
    sizes = [answered_everywhere(model, "nvidia-h200", weights=name, **asked)[0] for name in ("bf16", "f8e4m3", "i4")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 1.7 * sizes[1] > 2.5 * sizes[2]


@pytest.mark.parametrize("model", ["d-fine-n", "rtdetr-r18"])
def test_what_a_compiler_computes_of_constants_alone_needs_no_arithmetic_of_the_device(model):
    compiled = predict(model, on="qualcomm-snapdragon-8-elite-npu").phase("forward")
    eager = predict(model, on="nvidia-t4", runtime="torch-eager").phase("forward")
    constants = {op.name for op in eager.ops} - {op.name for op in compiled.ops}
    assert any(name.endswith("position_embedding.arange") for name in constants)
    assert all("position_embedding" in name for name in constants), "and nothing else is left out"
