"""What steps say about themselves, which way leads to a format, and what a model begins as: rules, without a tool."""

import hashlib
import json
from dataclasses import replace

import pytest

from inferometer.core.errors import DomainError, FormatError, MissingDependencyError
from inferometer.core.settings import cache_folder
from inferometer.known.engines import engine
from inferometer.measure.prepare import artifact as origins
from inferometer.measure.prepare import artifact as sources
from inferometer.measure.prepare.artifact import Origin, keep_origin, origin_of, source_of, starting_format
from inferometer.measure.prepare.chain import chain_for, format_meant, formats_for, goals_of
from inferometer.measure.prepare.steps import STEPS, require_tool, step_named

INTEGERS = {"i8", "i4"}
OPTION = {".llamacpp.convert:convert": "weights", ".openvino.convert:compress": "weights",
          ".ncnn.convert:convert": "weights", ".mnn.convert:convert": "weights",
          ".ctranslate2.convert:convert": "weights",
          ".onnxruntime_genai.convert:build": "weights", ".openvino_genai.convert:convert": "weights",
          ".torch.torchao:quantise": "way", ".torch.torchao:quantise_dense": "way",
          ".torch.transformers:quantise": "way", ".litert.convert:quantise": "recipe"}  # fmt: skip
OF_TORCH = ("torch-eager", "torch-compile", "torch-graph")
RUNTIMES = {"onnx2torch": (*OF_TORCH, "executorch"), "aot-inductor": ("torch-compile",), "torchao": OF_TORCH,
            "ort": ("onnxruntime",), "nncf": ("openvino",), "litert": ("litert",)}  # fmt: skip


def asked_by(changes):
    """What a user calls a change of the numbers, by the rule of the module's docstring."""
    weights = changes.get("weights")
    if "dynamic" in changes:
        return f"{weights}-dynamic"
    return f"{weights}-weights" if weights in INTEGERS and "activations" not in changes else weights


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_is_called_what_it_does_to_the_numbers_and_its_tool_is_told_the_same(step):
    assert step.quantises == asked_by(step.changes)
    assert step.calibrated == ("activations" in step.changes), "ranges of activations are found with inputs"
    key = OPTION.get(step.work)
    told = {"weights": step.changes.get("weights"), "way": step.quantises, "recipe": step.quantises}.get(key)
    assert step.options == ({key: told} if told else {})
    family = "onnx2torch" if step.name == "onnx2torch" else step.name.partition("-")[0]
    wanted = RUNTIMES.get(step.name) or RUNTIMES.get(family, ())
    assert step.runtimes == wanted


def test_which_steps_want_every_size_rename_layers_or_only_help():
    def named(key):
        return {step.name for step in STEPS if getattr(step, key)}

    torch_tools = {step.name for step in STEPS if step.name.startswith("torchao-") and step.gives == "pt2"}
    lowered = {"executorch", "executorch-i8", "executorch-i8-dynamic"}
    assert named("fixed") == {
        "torch-export", "onnx2torch", "aot-inductor", "pnnx", "pnnx-f16", *torch_tools, *lowered,
    }  # fmt: skip
    assert named("renames") == {"pnnx", "pnnx-f16"}
    assert named("of_arrays") == {"torch-export"}
    assert {step.name: step.place for step in STEPS if step.optional or step.place != "way"} == {
        "simplify": "first", "ort-optimise": "last",
    }  # fmt: skip
    assert named("optional") == {"simplify", "ort-optimise"}
    nncf = {step.name for step in STEPS if step.gives == "openvino-genai" and "nncf" in step.packages}
    assert nncf == {"openvino-llm-i8-weights", "openvino-llm-i4-weights"}, "floats are halved without it"


def test_a_tool_needs_its_package_first_and_then_what_is_beside_it():
    step = replace(step_named("simplify"), packages=("json-x", "second"), modules=("json", "no_such_module"))
    assert (step.tool, step.missing(), step.tool_version()) == ("json-x", "second", "unknown")
    with pytest.raises(MissingDependencyError, match="needs second, which") as caught:
        require_tool(step)
    assert caught.value.remedy == "pip install 'inferometer[prepare]', or only `pip install second`."
    assert replace(step, packages=("pytest",), modules=("pytest",)).missing() is None
    assert replace(step, packages=("pytest",)).tool_version() == pytest.__version__


MODULES = {"MNN": "_tools", "ruamel.yaml": "ruamel", "onnxruntime-genai": "onnxruntime_genai", "onnx-ir": "onnx_ir",
           "ai-edge-quantizer": "ai_edge_quantizer", "ai-edge-litert": "ai_edge_litert"}  # fmt: skip
READ = {"onnx", "pt2", "safetensors", "openvino", "tflite"}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_has_a_title_reads_what_is_known_and_names_the_module_of_each_package(step):
    assert isinstance(step.title, str)
    assert set(step.takes) <= READ
    assert step.modules == tuple(MODULES.get(package, package) for package in step.packages)


# The way to a format.


@pytest.mark.parametrize(
    ("name", "goals"),
    [("torch-compile", ("aoti", "pt2", "safetensors")), ("torch-eager", ("pt2", "safetensors")),
     ("onnxruntime", ("onnx",)), ("openvino", ("openvino", "onnx", "tflite")), ("ctranslate2", ("ctranslate2",))],
)  # fmt: skip
def test_what_is_compiled_is_made_rather_than_what_is_not_and_ort_only_where_named(name, goals):
    assert goals_of(engine(name)) == goals


@pytest.mark.parametrize(
    ("source", "name", "of_arrays", "of_tokens"),
    [
        ("safetensors", "executorch", ("i8", "i8-dynamic"), ()),
        ("safetensors", "ctranslate2", ("f16", "bf16", "i8-dynamic"), ("f16", "bf16", "i8-dynamic")),
        ("onnx", "ncnn", ("f16",), ("f16",)),
        ("tflite", "litert", ("f16", "i8", "i8-weights", "i8-dynamic"), ("f16", "i8", "i8-weights", "i8-dynamic")),
        ("tflite", "onnxruntime", (), ()),
        ("safetensors", "torch-graph", ("i8", "i8-weights", "i4-weights", "i8-dynamic", "i4-dynamic"),
         ("i8-weights", "i8-dynamic")),
    ],
)  # fmt: skip
def test_what_a_model_can_be_quantised_to(source, name, of_arrays, of_tokens):
    assert formats_for(source, engine(name)) == of_arrays
    assert formats_for(source, engine(name), generates=True) == of_tokens
    if of_tokens != of_arrays:
        assert format_meant("i4", source, engine(name), generates=True) == "i4"


def test_optional_steps_come_once_and_where_their_format_is():
    made = [step.name for step in chain_for("safetensors", engine("openvino"), quantise="f16")]
    assert made == ["torch-export", "torch-onnx", "simplify", "openvino-ir", "openvino-f16"]
    assert [step.name for step in chain_for("openvino", engine("openvino"), quantise=None)] == []
    assert [step.name for step in chain_for("onnx", engine("onnxruntime"), quantise="none")] == [
        "simplify", "ort-optimise",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "name", "asked", "goal", "error", "message", "remedy"),
    [
        ("onnx", "ncnn", "i8", None, DomainError, "in the format onnx cannot be quantised to i8 for ncnn here.",
         ("It can be quantised to f16. i8 can be made for executorch, mnn, onnxruntime, openvino, torch-compile, "
          "torch-eager, torch-graph.")),
        ("gguf", "ncnn", "q4_0", None, DomainError, "cannot be quantised to q4_0", "Choose another runtime."),
        ("gguf", "ncnn", None, None, FormatError, "in the format ncnn for ncnn of a model in the format gguf.",
         "Give a model in one of the formats onnx."),
        ("gguf", "onnxruntime", None, "ort", FormatError, "No tool here makes a file in the format ort",
         "Give a model in one of the formats onnx, pt2."),
        ("onnx", "openvino", None, "tflite", FormatError, "make no tflite for OpenVINO of a model in the format onnx",
         "Name a file that ends in .xml."),
        ("safetensors", "torch-eager", "i8", "safetensors", FormatError, "make no safetensors quantised to i8 for",
         "Name a file that ends in .pt2."),
    ],
)  # fmt: skip
def test_where_no_way_leads_the_error_says_what_there_is(*, source, name, asked, goal, error, message, remedy):
    with pytest.raises(error) as caught:
        chain_for(source, engine(name), quantise=asked, goal=goal)
    assert message in caught.value.message
    assert caught.value.remedy == remedy


# What a model begins as.


@pytest.mark.parametrize(
    ("name", "network", "language"),
    [("litert", "tflite", "tflite"), ("onnxruntime", "onnx", "onnx"), ("openvino", "onnx", "onnx"),
     ("llamacpp", "onnx", "safetensors"), ("ctranslate2", "onnx", "safetensors"),
     ("torch-eager", "onnx", "safetensors"), ("executorch", "onnx", "onnx")],
)  # fmt: skip
def test_a_name_of_the_catalog_begins_as_what_leads_to_the_engine(name, network, language):
    assert starting_format("resnet50", engine(name)) == (network, False)
    assert starting_format("llama-3.2-1b", engine(name)) == (language, True)


def test_random_weights_are_made_once_at_the_sizes_asked_for_and_told_apart_by_all_of_them(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(origins, "synthesise", lambda model, path, **more: made.append((model, path, more)))
    monkeypatch.setattr(sources, "is_kept", lambda path: path in [row[1] for row in made])
    first = source_of("squeezenet1.1", engine("onnxruntime"), image=64, seed=3)
    assert source_of("squeezenet1.1", engine("onnxruntime"), image=64, seed=3) == first
    assert made == [("squeezenet1.1", first, {"format": "onnx", "weights": "f32", "seed": 3, "sizes": {"image": 64}})]
    assert first.parent.parent == cache_folder() / "models"
    assert first.name == "squeezenet1.1.onnx"
    others = {
        source_of("squeezenet1.1", engine("litert"), image=64, seed=3),
        source_of("squeezenet1.1", engine("onnxruntime"), image=64, seed=4),
        source_of("squeezenet1.1", engine("onnxruntime"), image=65, seed=3),
        source_of("resnet50", engine("onnxruntime"), image=64, seed=3),
        source_of("squeezenet1.1", engine("onnxruntime"), seed=3),
    }
    assert len(others | {first}) == 6
    assert made[-1][2]["sizes"] == {}
    folder = source_of("llama-3.2-1b", engine("llamacpp"), image=64)
    assert (folder.name, made[-1][2]["format"], made[-1][2]["sizes"]) == ("llama-3.2-1b", "safetensors", {})


def test_a_config_without_weights_is_made_anew_when_its_content_changes(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(origins, "synthesise", lambda _model, path, **_: made.append(path))
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 300}  # fmt: skip
    place = tmp_path / "config.json"
    places = set()
    for layers in (2, 3, 2):
        place.write_text(json.dumps({**config, "num_hidden_layers": layers}))
        places.add(source_of(str(tmp_path), engine("llamacpp")))
    assert len(places) == 2
    assert starting_format(str(tmp_path), engine("llamacpp")) == ("safetensors", True)


# Where a file came from.


def written(path, content):
    path.write_bytes(content)
    return path


def test_an_origin_is_found_by_content_wherever_the_file_lies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "model.gguf", b"original")
    made = written(tmp_path / "a.bin", b"x" * 100)
    keep_origin(made, Origin(model="model.gguf", image=96, sizes={"n": 3}))
    copied = written(tmp_path / "elsewhere.bin", b"x" * 100)
    assert origin_of(str(copied)) == Origin(model=str(tmp_path / "model.gguf"), image=96, sizes={"n": 3})
    (tmp_path / "model.gguf").unlink()
    assert origin_of(str(copied)) is None, "what it was made of is gone"
    keep_origin(made, Origin(model="resnet50"))
    assert origin_of(str(made)) == Origin(model="resnet50"), "a name of the catalog is no path"
    assert origin_of(str(written(tmp_path / "b.bin", b"y" * 100))) is None
    assert origin_of(str(tmp_path / "absent.bin")) is None


def test_the_size_the_beginning_and_the_end_of_every_file_tell_contents_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(origins, "_PIECE", 4)

    def place(*contents):
        folder = tmp_path / hashlib.sha256(repr(contents).encode()).hexdigest()
        folder.mkdir()
        for number, content in enumerate(contents):
            written(folder / f"{number}.bin", content)
        return origins._place(folder)

    base = place(b"abcdMMMMwxyz", b"1")
    others = [
        place(b"XbcdMMMMwxyz", b"1"), place(b"abcdMMMMwxyX", b"1"), place(b"abcdMMMMMwxyz", b"1"),
        place(b"abcdMMMMwxyz", b"2"), place(b"abcdMMMMwxyz"),
    ]  # fmt: skip
    assert len({base, *others}) == 6
    assert place(b"abcdNNNNwxyz", b"1") == base, "the middle of a file of gigabytes is not read"
    assert base.parent == cache_folder() / "prepared" / "origins"
