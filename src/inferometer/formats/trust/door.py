"""The door: what a file passes before an engine or a tool opens it."""

import hashlib
import mmap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from inferometer.core.errors import TrustError
from inferometer.core.frozen import frozen
from inferometer.core.json_text import parse_json
from inferometer.core.settings import data_folder
from inferometer.formats.trust import programs

# What this machine compiled itself: packages with native code that run here without being asked about.
#
# Each is remembered by the hash of its content, as an empty file in the data folder, so that a copy of it under
# another name is known too, and one that was changed is not.

_FOLDER = "compiled-here"


def remember(path: Path) -> None:
    """Called by the tool that has just compiled the file."""
    place = _place(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()


def is_made_here(path: Path) -> bool:
    return (data_folder() / _FOLDER).is_dir() and _place(path).is_file()


def _place(path: Path) -> Path:
    with path.open("rb") as file:
        return data_folder() / _FOLDER / hashlib.file_digest(file, "sha256").hexdigest()


# Configs in a model's folder: whether one names code, or a file elsewhere, that a library would load for it.

_MOST_BYTES = 64 << 20
_LARGE = frozenset({"tokenizer.json", "vocab.json", "vocabulary.json"})  # words, in which nothing is named
_LIBRARIES = frozenset({"custom_ops_library", "library_path"})
_FILES = ("_file", "filename", "file_name")


def config_faults(path: Path) -> Iterator[str]:
    """Of the configs of a folder, or of a file and the files beside it."""
    folder = path if path.is_dir() else path.parent
    for file in sorted({*folder.glob("*.json"), *([path] if path.suffix == ".json" else ())}):
        if file.name in _LARGE or not file.is_file() or file.stat().st_size > _MOST_BYTES:
            continue
        try:
            document = parse_json(file.read_bytes())
        except (OSError, ValueError):
            continue  # what needs it says so
        yield from (f"{fault} in {file.name}" for fault in _faults_in(document, ""))


def _faults_in(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        for inner, part in value.items():
            name = key if key == "weight_map" else str(inner)
            yield from _faults_in(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from _faults_in(part, key)
    elif isinstance(value, str) and value:
        if key in _LIBRARIES:
            yield f"names the library {value[:80]!r}"
        elif key.endswith("attn_implementation") and "/" in value:
            yield f"names kernels to be fetched and run, {value[:80]!r},"
        elif (key.endswith(_FILES) or key == "weight_map") and leaves(value):
            yield f"names a file outside its folder, {value[:80]!r},"


def leaves(name: str) -> bool:
    """Whether a relative name leads out of the folder that it is in, on any system."""
    parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
    return name.startswith("/") or bool(PureWindowsPath(name).anchor) or ".." in parts or "\0" in name


def require_data(path: Path, format: str, *, trusted: bool = False) -> None:  # noqa: A002 - the word of every loader
    """Refuse a model that could run code of its own, unless its owner trusts it (`--trust`).

    A file that is not there passes: whoever opens it says so.
    """
    look = _LOOKS.get(format)
    if trusted or look is None or not path.exists():
        return
    fault = next(look(path), None)
    if fault is not None:
        raise TrustError(
            f"{str(path)!r} could run code of its own when it is opened: it {fault}.",
            remedy=f"If you trust who made it, say so: --trust {path}",
        )


def _package_faults(path: Path) -> Iterator[str]:
    if not is_made_here(path):
        yield "is a compiled library, and was not made by `inferometer prepare` on this machine"


def _onnx_faults(path: Path) -> Iterator[str]:
    """Parts that were compiled for one provider: what they do cannot be read from them."""
    files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
    for file in files:
        if not file.is_file() or file.stat().st_size == 0:
            continue
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(b"EPContext") >= 0:
                yield "has parts that were compiled for one provider (EPContext)"


def _genai_faults(path: Path) -> Iterator[str]:
    yield from config_faults(path)
    yield from _onnx_faults(path)


_LOOKS: Mapping[str, Callable[[Path], Iterator[str]]] = {
    "pt2": programs.faults,
    "aoti": _package_faults,
    "onnx": _onnx_faults,
    "ort": _onnx_faults,
    "config": config_faults,
    "safetensors": config_faults,
    "onnxruntime-genai": _genai_faults,
    "openvino-genai": config_faults,
    "ctranslate2": config_faults,
}


# Each format that a model or an input comes in, and what is done about code in it.


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
