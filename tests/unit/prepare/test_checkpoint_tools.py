"""A small checkpoint for the engines of language models, by the tools for their folders: the same tokens come out."""

import json

import pytest

pytest.importorskip("torch", reason="torch is not installed: the converters need it")
pytest.importorskip("transformers", reason="transformers is not installed: the converters need it")

from inferometer.core.graph import is_generative
from inferometer.errors import FormatError
from inferometer.plugins import load_all
from inferometer.prepare.child import carry_out
from inferometer.prepare.order import ToolOrder
from inferometer.prepare.steps import step_named
from inferometer.prepare.tools.checkpoint import whole_checkpoint
from inferometer.readers.resolve import read
from inferometer.runtimes.base import Request, Target
from inferometer.synth import synthesise

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
    [("ctranslate2", "ctranslate2"), ("genai", "onnxruntime-genai"), ("openvino-llm", "openvino-genai")],
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
