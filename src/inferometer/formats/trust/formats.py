"""Each format that a model or an input comes in, and what is done about code in it."""

from __future__ import annotations

from inferometer.core.frozen import frozen


@frozen
class CarriedCode:
    """`could` is what a file of the format could bring along, `held` what keeps that from running.

    Formats that nothing here opens are in the list too: they are told from others and refused when a file is read.
    """

    format: str
    could: str
    held: str


_NATIVE = "It interprets the file's operators and loads no library for them; unknown ones are refused."
_NOT_OPENED = "Nothing opens it: what is in it is counted or refused without being loaded."

FORMATS = (
    CarriedCode(
        format="pt2",
        could="pickles, guards and sizes that are evaluated, operators by any name, a compiled library",
        held="Looked through before PyTorch opens it; then only tensors are unpickled. Else: --trust FILE.",
    ),
    CarriedCode(
        format="aoti",
        could="a compiled library, which is all it is",
        held="Opened if `prepare` made it on this machine. Else: --trust FILE, or `agent --allow native-code`.",
    ),
    CarriedCode(
        format="onnx",
        could="operators of other libraries, compiled parts for one provider (EPContext), weights in other files",
        held="No library is registered; compiled parts are refused; other files must lie in the model's folder.",
    ),
    CarriedCode(format="ort", could="as onnx", held="As onnx."),
    CarriedCode(
        format="safetensors",
        could="code beside the weights (auto_map), kernels by address, weights as pickles",
        held="transformers' own classes alone, from safetensors alone; addresses and files elsewhere are refused.",
    ),
    CarriedCode(format="config", could="as safetensors", held="As safetensors."),
    CarriedCode(
        format="onnxruntime-genai",
        could="a library of operators (custom_ops_library), files elsewhere",
        held="Both are refused. Else: --trust FOLDER.",
    ),
    CarriedCode(format="openvino-genai", could="files elsewhere", held="They are refused."),
    CarriedCode(format="ctranslate2", could="files elsewhere", held="They are refused."),
    CarriedCode(format="gguf", could="a chat template (Jinja)", held="Prompts are given as tokens: it is not run."),
    CarriedCode(format="tflite", could="custom operators, delegates", held=f"{_NATIVE} A delegate is the owner's."),
    CarriedCode(format="openvino", could="operators of extensions", held=_NATIVE),
    CarriedCode(format="ncnn", could="custom layers", held=_NATIVE),
    CarriedCode(format="mnn", could="plug-in operators", held=_NATIVE),
    CarriedCode(format="pte", could="delegates with compiled parts", held=_NATIVE),
    CarriedCode(format="npy", could="pickled objects", held="Read without pickles."),
    CarriedCode(format="torch.save", could="pickles", held=_NOT_OPENED),
    CarriedCode(format="torchscript", could="pickles, a program", held=_NOT_OPENED),
    CarriedCode(format="savedmodel", could="Python functions, file operators", held=_NOT_OPENED),
    CarriedCode(format="keras", could="lambda layers", held=_NOT_OPENED),
    CarriedCode(format="coreml", could="custom layers", held=_NOT_OPENED),
    CarriedCode(format="joblib", could="pickles", held=_NOT_OPENED),
)
