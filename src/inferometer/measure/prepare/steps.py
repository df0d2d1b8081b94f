"""What can be done to a model's file, as data: what goes in, what comes out, by which tool, and what that needs.

A step that `quantises` is named by what a user asks for: a number format alone (`i8`) means weights and activations,
`i8-weights` means that only the weights are stored so, `i8-dynamic` that activations are quantised while it runs.
"""

from collections.abc import Mapping
from dataclasses import field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal

from inferometer.core.errors import MissingDependencyError
from inferometer.core.frozen import frozen

StepTurn = Literal["way", "first", "last"]  # on the way to a format; as soon as its format is reached; when all is done
SUFFIXES: Mapping[str, str] = {
    "onnx": ".onnx", "ort": ".ort", "openvino": ".xml", "ncnn": ".param", "mnn": ".mnn", "gguf": ".gguf",
    "tflite": ".tflite", "pte": ".pte", "pt2": ".pt2", "aoti": ".pt2",
}  # fmt: skip
COMPILED = frozenset({"aoti"})  # what an engine need not compile again: made rather than what it compiles
# Formats that are a folder, and a file that lies in each of them.
FOLDERS: Mapping[str, str] = {
    "safetensors": "config.json", "ctranslate2": "model.bin", "onnxruntime-genai": "genai_config.json",
    "openvino-genai": "openvino_model.xml",
}  # fmt: skip
COMPANIONS: Mapping[str, str] = {"openvino": ".bin", "ncnn": ".bin"}  # the weights, in a file beside it


@frozen
class PrepareStep:
    """One thing that a tool does. `work` names the function that calls the tool, from `inferometer.engines` on.

    `changes` is what it does to a question about the model's speed. `runtimes` are the engines it is made for; none
    means every engine that opens what it gives. `fixed` tools want every size of the inputs. A step that is `optional`
    is kept only if the outputs stay right and it is not slower. A tool that `renames` gives layers names of its own.
    `of_arrays` is a step for models that take and give arrays alone, and make no tokens.
    """

    name: str
    title: str
    takes: tuple[str, ...]
    gives: str
    packages: tuple[str, ...]  # the tool first, then what it needs beside it
    modules: tuple[str, ...]
    extra: str
    work: str
    quantises: str | None = None
    changes: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    runtimes: tuple[str, ...] = ()
    calibrated: bool = False
    fixed: bool = False
    renames: bool = False
    of_arrays: bool = False
    optional: bool = False
    place: StepTurn = "way"

    @property
    def tool(self) -> str:
        return self.packages[0]

    def missing(self) -> str | None:
        """The package that is not installed, if one is not."""
        pairs = zip(self.packages, self.modules, strict=True)
        return next((package for package, module in pairs if find_spec(module) is None), None)

    def tool_version(self) -> str:
        try:
            return version(self.tool)
        except PackageNotFoundError:
            return "unknown"


def require_tool(step: PrepareStep) -> None:
    package = step.missing()
    if package is not None:
        raise MissingDependencyError(
            f"The step {step.name} ({step.title}) needs {package}, which is not installed.",
            remedy=f"pip install 'inferometer[{step.extra}]', or only `pip install {package}`.",
        )


_BOTH_I8 = {"weights": "i8", "activations": "i8"}
_WHILE_IT_RUNS = {"weights": "i8", "dynamic": "i8"}
_DENSE = {"only": "linear"}  # torchao's `quantize_` leaves convolutions and tables as they are
_NNCF = (("nncf", "openvino"), ("nncf", "openvino"))
_OF_TORCH = ("torch-eager", "torch-compile", "torch-graph")
_ORT = (("onnxruntime", "onnx"), ("onnxruntime", "onnx"))


def _gguf(stored: str) -> PrepareStep:
    return PrepareStep(
        name=f"gguf-{stored}",
        title=f"a Hugging Face checkpoint as GGUF, weights in {stored}",
        takes=("safetensors",),
        gives="gguf",
        packages=("gguf", "safetensors"),
        modules=("gguf", "safetensors"),
        extra="llamacpp",
        work=".llamacpp.convert:convert",
        quantises=stored,
        changes={"weights": stored},
        options={"weights": stored},
    )


def _nncf_weights(stored: str) -> PrepareStep:
    packages, modules = _NNCF
    return PrepareStep(
        name=f"nncf-{stored}-weights",
        title=f"weights in {stored}, written out when they are used",
        takes=("openvino",), gives="openvino", packages=packages, modules=modules, extra="prepare",
        work=".openvino.convert:compress", quantises=f"{stored}-weights", changes={"weights": stored},
        options={"weights": stored}, runtimes=("openvino",),
    )  # fmt: skip


def _pnnx(name: str, title: str, stored: str | None) -> PrepareStep:
    numbers = {} if stored is None else {"weights": stored}
    return PrepareStep(
        name=name, title=title, takes=("onnx",), gives="ncnn", packages=("pnnx",), modules=("pnnx",), extra="ncnn",
        work=".ncnn.convert:convert", quantises=stored, changes=numbers, options=numbers, fixed=True, renames=True,
    )  # fmt: skip


def _mnn(name: str, title: str, stored: str | None) -> PrepareStep:
    numbers = {} if stored is None else {"weights": stored}
    asked = stored if stored in {None, "f16"} else f"{stored}-weights"
    return PrepareStep(
        name=name, title=title, takes=("onnx",), gives="mnn", packages=("MNN", "onnx"), modules=("_tools", "onnx"),
        extra="mnn", work=".mnn.convert:convert", quantises=asked, changes=numbers, options=numbers,
    )  # fmt: skip


def _ctranslate2(name: str, title: str, stored: str | None) -> PrepareStep:
    changes = {"i8": _WHILE_IT_RUNS}.get(stored or "", {} if stored is None else {"weights": stored})
    packages = ("ctranslate2", "transformers", "torch")
    return PrepareStep(
        name=name, title=title, takes=("safetensors",), gives="ctranslate2", packages=packages, modules=packages,
        extra="checkpoints", work=".ctranslate2.convert:convert", quantises="i8-dynamic" if stored == "i8" else stored,
        changes=changes, options={} if stored is None else {"weights": stored},
    )  # fmt: skip


def _genai(name: str, title: str, stored: str | None) -> PrepareStep:
    numbers = {} if stored is None else {"weights": stored}
    return PrepareStep(
        name=name, title=title, takes=("safetensors",), gives="onnxruntime-genai",
        packages=("onnxruntime-genai", "onnx-ir", "transformers", "torch"),
        modules=("onnxruntime_genai", "onnx_ir", "transformers", "torch"), extra="checkpoints",
        work=".onnxruntime_genai.convert:build", quantises=None if stored is None else f"{stored}-weights",
        changes=numbers, options=numbers,
    )  # fmt: skip


def _openvino_genai(name: str, title: str, stored: str | None) -> PrepareStep:
    numbers = {} if stored is None else {"weights": stored}
    packages = ("openvino", *(("nncf",) if stored in {"i8", "i4"} else ()), "transformers", "torch")
    return PrepareStep(
        name=name, title=title, takes=("safetensors",), gives="openvino-genai", packages=packages, modules=packages,
        extra="checkpoints", work=".openvino_genai.convert:convert",
        quantises=stored if stored in {None, "f16"} else f"{stored}-weights", changes=numbers, options=numbers,
    )  # fmt: skip


def _executorch(
    name: str, title: str, work: str, quantised: str | None = None, *, calibrated: bool = False
) -> PrepareStep:
    packages = ("executorch", "torch", "torchao", "ruamel.yaml")
    changes = {} if quantised is None else _BOTH_I8 if calibrated else _WHILE_IT_RUNS
    modules = ("executorch", "torch", "torchao", "ruamel")
    return PrepareStep(
        name=name, title=title, takes=("pt2",), gives="pte", packages=packages, modules=modules, extra="executorch",
        work=f".executorch.convert:{work}", quantises=quantised, changes=changes, calibrated=calibrated, fixed=True,
    )  # fmt: skip


def _torchao(asked: str, title: str, numbers: Mapping[str, str], *, calibrated: bool = False) -> PrepareStep:
    packages = ("torchao", "torch")
    return PrepareStep(
        name=f"torchao-{asked}", title=title, takes=("pt2",), gives="pt2", packages=packages, modules=packages,
        extra="torchao", work=".torch.torchao:quantise" if calibrated else ".torch.torchao:quantise_dense",
        quantises=asked, changes=numbers if calibrated else {**numbers, **_DENSE}, options={"way": asked},
        runtimes=_OF_TORCH, calibrated=calibrated, fixed=True,
    )  # fmt: skip


def _torchao_checkpoint(asked: str, title: str, numbers: Mapping[str, str]) -> PrepareStep:
    packages = ("torchao", "transformers", "torch")
    return PrepareStep(
        name=f"torchao-checkpoint-{asked}", title=title, takes=("safetensors",), gives="safetensors", packages=packages,
        modules=packages, extra="checkpoints", work=".torch.transformers:quantise", quantises=asked,
        changes={**numbers, **_DENSE}, options={"way": asked}, runtimes=_OF_TORCH,
    )  # fmt: skip


def _litert(asked: str, title: str, numbers: Mapping[str, str], *, calibrated: bool = False) -> PrepareStep:
    packages, modules = ("ai-edge-quantizer", "ai-edge-litert"), ("ai_edge_quantizer", "ai_edge_litert")
    return PrepareStep(
        name=f"litert-{asked}", title=title, takes=("tflite",), gives="tflite", packages=packages, modules=modules,
        extra="prepare", work=".litert.convert:quantise", quantises=asked, changes=numbers, options={"recipe": asked},
        runtimes=("litert",), calibrated=calibrated,
    )  # fmt: skip


STEPS: tuple[PrepareStep, ...] = (
    PrepareStep(
        name="torch-onnx", title="an exported PyTorch program as ONNX", takes=("pt2",), gives="onnx",
        packages=("torch", "onnxscript", "onnx"), modules=("torch", "onnxscript", "onnx"), extra="torch-onnx",
        work=".torch.convert:to_onnx",
    ),
    PrepareStep(
        name="torch-export", title="a Hugging Face checkpoint as an exported PyTorch program", takes=("safetensors",),
        gives="pt2", packages=("torch", "transformers"), modules=("torch", "transformers"), extra="checkpoints",
        work=".torch.transformers:to_program", fixed=True, of_arrays=True,
    ),
    PrepareStep(
        name="onnx2torch", title="ONNX as an exported PyTorch program", takes=("onnx",), gives="pt2",
        packages=("onnx2torch", "torch", "onnx"), modules=("onnx2torch", "torch", "onnx"), extra="onnx-torch",
        work=".torch.onnx2torch:to_program", runtimes=(*_OF_TORCH, "executorch"), fixed=True,
    ),
    PrepareStep(
        name="simplify", title="constants folded, what does nothing removed", takes=("onnx",), gives="onnx",
        packages=("onnxslim", "onnx"), modules=("onnxslim", "onnx"), extra="prepare",
        work=".onnxruntime.convert:simplify", optional=True, place="first",
    ),
    PrepareStep(
        name="ort-i8", title="int8 weights and activations, with their ranges in the file (QDQ)", takes=("onnx",),
        gives="onnx", packages=_ORT[0], modules=_ORT[1], extra="onnxruntime",
        work=".onnxruntime.convert:quantise_static", quantises="i8", changes=_BOTH_I8, runtimes=("onnxruntime",),
        calibrated=True,
    ),
    PrepareStep(
        name="ort-i8-dynamic", title="int8 weights, activations quantised while it runs", takes=("onnx",), gives="onnx",
        packages=_ORT[0], modules=_ORT[1], extra="onnxruntime", work=".onnxruntime.convert:quantise_dynamic",
        quantises="i8-dynamic", changes=_WHILE_IT_RUNS, runtimes=("onnxruntime",),
    ),
    PrepareStep(
        name="ort-optimise", title="ONNX Runtime's own fusions, made once and saved", takes=("onnx",), gives="onnx",
        packages=_ORT[0][:1], modules=_ORT[1][:1], extra="onnxruntime", work=".onnxruntime.convert:optimise",
        runtimes=("onnxruntime",), optional=True, place="last",
    ),
    PrepareStep(
        name="ort-format", title="ONNX Runtime's own file format", takes=("onnx",), gives="ort",
        packages=_ORT[0][:1], modules=_ORT[1][:1], extra="onnxruntime", work=".onnxruntime.convert:optimise",
        runtimes=("onnxruntime",),
    ),
    PrepareStep(
        name="openvino-ir", title="OpenVINO's own files", takes=("onnx", "tflite"), gives="openvino",
        packages=("openvino",), modules=("openvino",), extra="openvino", work=".openvino.convert:convert",
    ),
    PrepareStep(
        name="openvino-f16", title="weights in f16", takes=("openvino",), gives="openvino", packages=("openvino",),
        modules=("openvino",), extra="openvino", work=".openvino.convert:halve", quantises="f16",
        changes={"weights": "f16"},
    ),
    PrepareStep(
        name="nncf-i8", title="int8 weights and activations by NNCF", takes=("openvino",), gives="openvino",
        packages=_NNCF[0], modules=_NNCF[1], extra="prepare", work=".openvino.convert:quantise", quantises="i8",
        changes=_BOTH_I8, runtimes=("openvino",), calibrated=True,
    ),
    _nncf_weights("i8"),
    _nncf_weights("i4"),
    _pnnx("pnnx", "ONNX as ncnn, weights in f32", None),
    _pnnx("pnnx-f16", "ONNX as ncnn, weights in f16", "f16"),
    _mnn("mnn", "ONNX as MNN, weights in f32", None),
    _mnn("mnn-f16", "ONNX as MNN, weights in f16", "f16"),
    PrepareStep(
        name="mnn-i8", title="ONNX as MNN, int8 weights and activations", takes=("onnx",), gives="mnn",
        packages=("MNN", "onnx"), modules=("_tools", "onnx"), extra="mnn", work=".mnn.convert:quantise", quantises="i8",
        changes=_BOTH_I8, calibrated=True,
    ),
    _mnn("mnn-i8-weights", "ONNX as MNN, weights in i8", "i8"),
    _mnn("mnn-i4-weights", "ONNX as MNN, weights in i4", "i4"),
    _openvino_genai("openvino-llm", "a checkpoint as OpenVINO GenAI's folder, weights in f32", None),
    _openvino_genai("openvino-llm-f16", "a checkpoint as OpenVINO GenAI's folder, weights in f16", "f16"),
    _openvino_genai("openvino-llm-i8-weights", "a checkpoint as OpenVINO GenAI's folder, weights in i8", "i8"),
    _openvino_genai("openvino-llm-i4-weights", "a checkpoint as OpenVINO GenAI's folder, weights in i4", "i4"),
    _genai("genai", "a checkpoint as ONNX Runtime GenAI's folder, weights in f32", None),
    _genai("genai-i8-weights", "a checkpoint as ONNX Runtime GenAI's folder, weights in i8", "i8"),
    _genai("genai-i4-weights", "a checkpoint as ONNX Runtime GenAI's folder, weights in i4", "i4"),
    _ctranslate2("ctranslate2", "a checkpoint as CTranslate2's folder", None),
    _ctranslate2("ctranslate2-f16", "a checkpoint as CTranslate2's folder, weights in f16", "f16"),
    _ctranslate2("ctranslate2-bf16", "a checkpoint as CTranslate2's folder, weights in bf16", "bf16"),
    _ctranslate2("ctranslate2-i8", "int8 weights, activations quantised while it runs", "i8"),
    _executorch("executorch", "an exported PyTorch program for ExecuTorch, lowered to XNNPACK", "lower"),
    _executorch("executorch-i8", "the same with int8 weights and activations", "quantise", "i8", calibrated=True),
    _executorch("executorch-i8-dynamic", "the same with int8 dense layers", "quantise_dynamic", "i8-dynamic"),
    PrepareStep(
        name="aot-inductor", title="compiled ahead of time for this kind of machine (AOTInductor)", takes=("pt2",),
        gives="aoti", packages=("torch",), modules=("torch",), extra="torch", work=".torch.aotinductor:compile_package",
        runtimes=("torch-compile",), fixed=True,
    ),
    _torchao("i8", "int8 weights and activations, as PyTorch's compiler fuses them", _BOTH_I8, calibrated=True),
    _torchao("i8-weights", "int8 weights of dense layers, written out when they are used", {"weights": "i8"}),
    _torchao("i8-dynamic", "int8 dense layers, activations quantised while it runs", _WHILE_IT_RUNS),
    _torchao("i4-weights", "weights of dense layers in 4 bits", {"weights": "i4"}),
    _torchao("i4-dynamic", "the same, activations in int8 while it runs", {"weights": "i4", "dynamic": "i8"}),
    _torchao_checkpoint("i8-weights", "a checkpoint with dense layers in int8, for transformers", {"weights": "i8"}),
    _torchao_checkpoint("i8-dynamic", "the same, activations quantised while it runs", _WHILE_IT_RUNS),
    _litert("i8", "int8 weights and activations, with their ranges in the file", _BOTH_I8, calibrated=True),
    _litert("i8-dynamic", "int8 weights, activations quantised while it runs", _WHILE_IT_RUNS),
    _litert("i8-weights", "int8 weights, written out when they are used", {"weights": "i8"}),
    _litert("f16", "weights in f16", {"weights": "f16"}),
    *(_gguf(stored) for stored in ("f16", "f32", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")),
)  # fmt: skip


def step_named(name: str) -> PrepareStep:
    return next(step for step in STEPS if step.name == name)
