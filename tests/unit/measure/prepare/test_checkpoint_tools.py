"""A small checkpoint for the engines of language models, by the tools for their folders: the same tokens come out."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch is not installed: the converters need it")
pytest.importorskip("transformers", reason="transformers is not installed: the converters need it")

from inferometer.core.errors import FormatError
from inferometer.core.graph import is_generative
from inferometer.core.plugins import load_all
from inferometer.engines.base import Request, Target
from inferometer.engines.ctranslate2.convert import _with_old_names
from inferometer.engines.onnxruntime_genai import convert as onnxruntime_genai
from inferometer.engines.order import ToolOrder
from inferometer.engines.torch.checkpoint import _mended, whole_checkpoint
from inferometer.formats.resolve import read
from inferometer.formats.synth import synthesise
from inferometer.measure.prepare.child import carry_out
from inferometer.measure.prepare.steps import step_named

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 300, "max_position_embeddings": 256,
    "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
}  # fmt: skip
PROMPT = (17, 31, 8, 250, 99)
RUNTIMES = load_all("inferometer.runtimes")[0]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return synthesise(LLAMA, tmp_path_factory.mktemp("llama") / "small", format="safetensors", weights="f32").path


def generated(runtime, target):
    session = RUNTIMES[runtime].open(target)
    ids = [token for event in session.generate(Request(prompt=PROMPT, generate=8)) for token in event.ids]
    session.close()
    return ids


@pytest.fixture(scope="module")
def expected(checkpoint):
    return generated("torch-eager", Target(path=checkpoint, format="safetensors", text=True, threads=1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the converters', of the libraries that they use
@pytest.mark.parametrize(
    ("step", "runtime"),
    [
        ("ctranslate2", "ctranslate2"),
        ("genai", "onnxruntime-genai"),
        ("openvino-llm", "openvino-genai"),
        ("torchao-checkpoint-i8-weights", "torch-eager"),
    ],
)
def test_what_a_tool_makes_of_a_checkpoint_generates_the_checkpoints_tokens(  # noqa: PLR0917 - pytest's fixtures
    step, runtime, checkpoint, expected, tmp_path, monkeypatch
):
    for switch in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(switch, "1")  # what the tools set in their own process, undone here
    named = step_named(step)
    if named.missing():
        pytest.skip(f"SKIPPED LOUDLY: {named.missing()} is not installed")
    made = tmp_path / "out" / "model"
    made.parent.mkdir()
    order = ToolOrder(source=checkpoint, target=made, format=named.gives, options=named.options)
    assert carry_out(named.work, order).error is None
    graph = read(str(made))
    assert graph.metadata["format"] == named.gives
    assert is_generative(graph)
    assert graph.parameters == read(str(checkpoint)).parameters
    precision = "f32" if "f32" in RUNTIMES[runtime].capabilities.precision else None
    target = Target(path=made, format=named.gives, text=True, threads=1, precision=precision)
    assert generated(runtime, target) == expected


def test_of_a_prompt_the_head_of_a_genai_folder_computes_the_last_token_alone(checkpoint, tmp_path, monkeypatch):
    """As far as the order goes: what the builder makes of it is looked at where it runs."""
    asked = []
    monkeypatch.setattr(
        onnxruntime_genai.subprocess, "run", lambda command, **_: asked.append(command) or SimpleNamespace(returncode=0)
    )
    (tmp_path / "work" / "out").mkdir(parents=True)
    order = ToolOrder(source=checkpoint, target=tmp_path / "work" / "out" / "model", format="onnxruntime-genai")
    list(onnxruntime_genai.build(order))
    assert "prune_lm_head=true" in asked[0]


def test_a_short_phi3_is_not_taken_for_one_with_a_long_context():
    short = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "max_position_embeddings": 512}
    assert _mended(short)["original_max_position_embeddings"] == 512
    long = {**short, "rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096}
    assert _mended(long) == long


def test_converters_find_the_rotary_base_where_transformers_had_it():
    """Without it they take 10,000 for every model of that family."""
    rope = {"rope_theta": 500_000.0, "rope_type": "default"}
    layer = SimpleNamespace(self_attn=SimpleNamespace())
    model = SimpleNamespace(
        config=SimpleNamespace(rope_parameters=rope, rope_scaling=rope, model_type="phi3"),
        model=SimpleNamespace(layers=[layer]),
    )
    config = _with_old_names(model).config
    assert (config.rope_theta, config.rope_scaling) == (500_000.0, None)
    assert layer.self_attn.rotary_emb.long_factor is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_encoder_is_exported_with_its_inputs_and_layers_names_and_gives_the_same(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=64, **sizes)).eval()
    model.save_pretrained(tmp_path / "bert")
    order = ToolOrder(
        source=tmp_path / "bert", target=tmp_path / "model.pt2", format="pt2", shapes={"input_ids": (1, 6)},
        dtypes={"input_ids": "int64"},
    )  # fmt: skip
    assert carry_out(".torch.transformers:to_program", order).error is None
    ids = torch.arange(6)[None]
    made = torch.export.load(order.target).module()(ids)["logits"]
    assert torch.allclose(made, model(ids).logits, atol=1e-6)
    graph = read(str(order.target))
    assert [tensor.name for tensor in graph.inputs] == ["input_ids"]
    assert any("bert.encoder.layer.0.attention.self.query" in op.name for _, op in graph.ops())


def test_a_checkpoint_without_a_tokeniser_gets_one_beside_it_and_stays_as_it_is(checkpoint, tmp_path):
    (tmp_path / "work" / "out").mkdir(parents=True)
    before = sorted(path.name for path in checkpoint.iterdir())
    order = ToolOrder(source=checkpoint, target=tmp_path / "work" / "out" / "model", format="ctranslate2")
    folder, notes = whole_checkpoint(order)
    assert "made-up words" in notes[0]
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]) == LLAMA["vocab_size"]
    assert sorted(path.name for path in checkpoint.iterdir()) == before


def test_an_architecture_that_nobody_names_is_refused_with_what_to_write(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    order = ToolOrder(source=tmp_path, target=tmp_path / "a" / "b" / "model", format="ctranslate2")
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(FormatError, match="unheard-of") as caught:
        whole_checkpoint(order)
    assert "architectures" in caught.value.remedy
