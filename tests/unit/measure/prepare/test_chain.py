"""The way from a format to an engine's file."""

from importlib import import_module

import pytest

from inferometer.core.errors import DomainError, FormatError
from inferometer.known.engines import engine
from inferometer.measure.prepare.chain import chain_for, formats_for, quantised_name
from inferometer.measure.prepare.child import ENGINES
from inferometer.measure.prepare.steps import FOLDERS, STEPS, SUFFIXES, require_tool


def names(source, runtime, quantise=None, goal=None):
    return [step.name for step in chain_for(source, engine(runtime), quantise=quantise, goal=goal)]


@pytest.mark.parametrize(
    ("source", "runtime", "quantise", "goal", "chain"),
    [
        ("onnx", "onnxruntime", None, None, ["simplify", "ort-optimise"]),
        ("onnx", "onnxruntime", "i8", None, ["simplify", "ort-i8", "ort-optimise"]),
        ("onnx", "onnxruntime", None, "ort", ["simplify", "ort-format"]),
        ("pt2", "onnxruntime", "i8-dynamic", None, ["torch-onnx", "simplify", "ort-i8-dynamic", "ort-optimise"]),
        ("onnx", "openvino", "i8", None, ["simplify", "openvino-ir", "nncf-i8"]),
        ("tflite", "openvino", "f16", None, ["openvino-ir", "openvino-f16"]),
        ("onnx", "ncnn", None, None, ["simplify", "pnnx"]),
        ("onnx", "ncnn", "f16", None, ["simplify", "pnnx-f16"]),
        ("onnx", "executorch", "i8", None, ["simplify", "onnx2torch", "executorch-i8"]),
        ("onnx", "torch-eager", None, None, ["simplify", "onnx2torch"]),
        ("pt2", "torch-eager", "i4-weights", None, ["torchao-i4-weights"]),
        ("pt2", "torch-compile", "i8", "aoti", ["torchao-i8", "aot-inductor"]),
        ("pt2", "executorch", None, None, ["executorch"]),
        ("pt2", "executorch", "i8", None, ["executorch-i8"]),
        ("safetensors", "torch-eager", "i8-weights", "safetensors", ["torchao-checkpoint-i8-weights"]),
        ("safetensors", "torch-eager", "i8", None, ["torch-export", "torchao-i8"]),
        ("safetensors", "torch-compile", None, None, ["torch-export", "aot-inductor"]),
        ("safetensors", "onnxruntime", None, None, ["torch-export", "torch-onnx", "simplify", "ort-optimise"]),
        ("safetensors", "llamacpp", None, None, ["gguf-f16"]),
        ("safetensors", "llamacpp", "q4_0", None, ["gguf-q4_0"]),
    ],
)
def test_the_fewest_steps_lead_there_with_those_that_help_between(source, runtime, quantise, goal, chain):
    assert names(source, runtime, quantise, goal) == chain


def test_a_format_that_no_tool_makes_is_refused_with_those_that_are_made():
    with pytest.raises(DomainError, match="i8, i8-weights, i4-weights"):
        names("onnx", "openvino", "q4_0")
    with pytest.raises(FormatError, match="safetensors"):
        names("onnx", "llamacpp")


def test_a_model_that_makes_tokens_is_not_exported_and_says_which_engines_have_the_format():
    torch = engine("torch-compile")
    assert formats_for("safetensors", torch, generates=True) == ("i8-weights", "i8-dynamic")
    with pytest.raises(DomainError, match=r"onnxruntime-genai, openvino-genai") as caught:
        chain_for("safetensors", torch, quantise="i4-weights", generates=True)
    assert "i8-weights, i8-dynamic" in caught.value.remedy
    with pytest.raises(FormatError, match=r"ends in \.pt2"):
        chain_for("safetensors", engine("torch-eager"), quantise="i8", goal="safetensors")
    with pytest.raises(FormatError, match="a folder"):
        chain_for("safetensors", engine("torch-eager"), quantise="i8-weights", goal="pt2", generates=True)


def test_a_number_format_goes_by_any_of_its_names():
    assert [quantised_name(name) for name in ("INT8", "int4-weights", "Q4_0")] == ["i8", "i4-weights", "q4_0"]
    assert formats_for("onnx", engine("onnxruntime")) == ("i8", "i8-dynamic")


def test_every_step_names_a_tool_that_is_there_and_what_to_do_where_it_is_not():
    for step in STEPS:
        module, _, function = step.work.partition(":")
        assert callable(getattr(import_module(module, ENGINES), function))
        assert len(step.packages) == len(step.modules)
        assert step.gives in SUFFIXES.keys() | FOLDERS.keys()
    from dataclasses import replace

    absent = replace(STEPS[0], packages=("nothing-such",), modules=("nothing_such",))
    with pytest.raises(Exception, match=r"needs nothing-such.*pip install"):
        require_tool(absent)
