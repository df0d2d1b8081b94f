"""Choosing the reader of a file by its content."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.plugins import usable
from inferometer.formats.base import GROUP, Peek, Reader, look

_LEAST = 0.1  # less confidence than this is no match
_SURE = 0.5  # a reader that is less sure gives way to a format that nothing here reads, if the content shows it


def read_graph(path: Path | str, *, readers: Iterable[Reader] | None = None) -> Graph:
    """The graph of a model file or folder, with its format, by the reader that is most confident of the content."""
    peek = look(Path(path))
    reader = choose_reader(peek, readers=readers)
    graph = reader.read(peek.path)
    return replace(graph, metadata={**graph.metadata, "format": _format_of(peek, reader, graph)})


def _format_of(peek: Peek, reader: Reader, graph: Graph) -> str:
    """The name that runtimes know the format by."""
    if peek.is_folder and any(name.endswith(".safetensors") for name in peek.names):
        return "safetensors"
    stated = graph.metadata.get("format")
    if peek.is_folder or peek.path.suffix == ".json":
        return stated if stated in reader.formats and stated != "safetensors" else "config"
    if "task" in reader.formats:  # an archive with a network in it, or the network itself
        return "task" if peek.head.startswith(b"PK") else "tflite"
    return stated if stated in reader.formats else min(reader.formats)


def choose_reader(peek: Peek, *, readers: Iterable[Reader] | None = None) -> Reader:
    """The most confident reader; the name decides a tie, so that the choice does not depend on the order of loading."""
    candidates, broken = usable(GROUP) if readers is None else (tuple(readers), ())
    ranked = sorted(((reader.match(peek), reader) for reader in candidates), key=lambda pair: (-pair[0], pair[1].name))
    if not ranked or ranked[0][0] < _LEAST or (ranked[0][0] < _SURE and foreign_content(peek) is not None):
        raise _unmatched(peek, candidates, broken)
    return ranked[0][1]


def _unmatched(peek: Peek, readers: tuple[Reader, ...], broken: tuple[str, ...]) -> FormatError:
    foreign = foreign_format(peek) if peek.is_folder or peek.head else None
    if foreign is not None:
        return FormatError(f"{str(peek.path)!r} seems to be {foreign.title}, which is not read.", remedy=foreign.remedy)
    known = ", ".join(sorted({name for reader in readers for name in reader.formats})) or "none"
    remedy = " ".join((f"Formats that are known: {known}.", *broken))
    return FormatError(f"No reader knows {str(peek.path)!r}: {_seen(peek)}.", remedy=remedy)


def _seen(peek: Peek) -> str:
    if peek.is_folder:
        shown = ", ".join(peek.names[:8]) + (", …" if len(peek.names) > 8 else "")
        return f"a folder with {shown}" if peek.names else "an empty folder"
    if not peek.head:
        return "an empty file"
    return f"{peek.size} bytes that start with {peek.head[:16]!r}"


# Formats that people have and nothing here reads: what a file is, and how to get to one that is read.
#
# This only words an error: a file's name counts as evidence here, as it never does where a reader is chosen.


@frozen
class Foreign:
    title: str
    remedy: str
    magic: bytes = b""
    suffixes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of a folder: what lies in it; of a file: what it is called
    keys: tuple[bytes, ...] = ()  # what stands in its beginning, all of it, after the magic where there is one


_TO_TFLITE = "Convert it: tf.lite.TFLiteConverter gives a .tflite file, `python -m tf2onnx.convert` an .onnx file."
_BUILT = "It holds compiled kernels and no network. Give the ONNX file that it was built from."
_PICKLE, _TREES = b"\x80", "Convert it to ONNX: skl2onnx.to_onnx, or onnxmltools.convert_xgboost and convert_lightgbm."

FORMATS = (
    Foreign(title="a pointer to a file that Git LFS keeps elsewhere", magic=b"version https://git-lfs",
            remedy="Fetch the file itself: git lfs pull."),
    Foreign(title="a model of XGBoost in a pickle", magic=_PICKLE, keys=(b"xgboost",), remedy=_TREES),
    Foreign(title="a model of LightGBM in a pickle", magic=_PICKLE, keys=(b"lightgbm",), remedy=_TREES),
    Foreign(title="a model of scikit-learn in a pickle", magic=_PICKLE, keys=(b"sklearn",), remedy=_TREES),
    Foreign(title="a file of joblib", magic=_PICKLE, keys=(b"joblib",), suffixes=(".joblib",), remedy=_TREES),
    Foreign(title="a package of torch.package", magic=b"PK\x03\x04", keys=(b"/.data/",),
            remedy="It holds code beside weights. Load it with torch.package and save the network: torch.export.save."),
    Foreign(title="a TensorFlow SavedModel", remedy=_TO_TFLITE, names=("saved_model.pb",)),
    Foreign(title="a TensorFlow SavedModel", remedy=_TO_TFLITE, names=("saved_model.pbtxt",)),
    Foreign(title="a Core ML package", names=("Manifest.json", "Data"),
            remedy="Convert the original model to ONNX; Core ML has no way back."),
    Foreign(title="a Paddle model", names=("inference.pdmodel",),
            remedy="Convert it: paddle2onnx --model_dir FOLDER --model_filename inference.pdmodel "
            "--params_filename inference.pdiparams --save_file model.onnx."),
    Foreign(title="a Paddle model", names=("inference.json", "inference.pdiparams"),
            remedy="Convert it: paddle2onnx --model_dir FOLDER --model_filename inference.json "
            "--params_filename inference.pdiparams --save_file model.onnx."),
    Foreign(title="a TensorFlow.js model", keys=(b'"modelTopology"',),
            remedy="Convert it: tensorflowjs_converter --output_format=keras_saved_model, then to TFLite or ONNX."),
    Foreign(title="a TensorFlow.js model", keys=(b'"weightsManifest"',),
            remedy="Convert it: tensorflowjs_converter --output_format=keras_saved_model, then to TFLite or ONNX."),
    Foreign(title="a Paddle program", keys=(b'"base_code"', b'"program"'),
            remedy="Convert it with paddle2onnx, which takes the folder it lies in."),
    Foreign(title="a Keras or HDF5 file", magic=b"\x89HDF\r\n\x1a\n", suffixes=(".h5", ".hdf5", ".keras"),
            remedy=f"Load it with keras.models.load_model. {_TO_TFLITE}"),
    Foreign(title="a Keras archive", suffixes=(".keras",),
            remedy="Load it with keras.models.load_model and export it: model.export('m.onnx', format='onnx')."),
    Foreign(title="a TensorRT engine", magic=b"ftrt", suffixes=(".engine", ".plan", ".trt"), remedy=_BUILT),
    Foreign(title="a TensorRT engine", magic=b"ptrt", remedy=_BUILT),
    Foreign(title="an RKNN model", magic=b"RKNN", suffixes=(".rknn",), remedy=_BUILT),
    Foreign(title="a Hailo executable", magic=b"\x01HEF", suffixes=(".hef",), remedy=_BUILT),
    Foreign(title="an ExecuTorch program", suffixes=(".pte",),
            remedy="It is cut short or damaged, or of another version of the format: convert the model again."),
    Foreign(title="an ncnn network in its binary form", magic=b"\xdd\x85v\x00", suffixes=(".param", ".ncnn"),
            remedy="Give the text it was made of, a .param file that starts with 7767517."),
    Foreign(title="a GGML file of before GGUF", magic=b"lmgg", remedy="Convert it with llama.cpp's convert scripts."),
    Foreign(title="a GGML file of before GGUF", magic=b"tjgg", remedy="Convert it with llama.cpp's convert scripts."),
    Foreign(title="a Core ML model", suffixes=(".mlmodel", ".mlmodelc"),
            remedy="Convert the original model to ONNX; Core ML has no way back."),
    Foreign(title="a Paddle model", suffixes=(".pdmodel", ".pdiparams", ".pdparams"),
            remedy="Convert it with paddle2onnx, which takes the folder it lies in."),
    Foreign(title="an MNN model", suffixes=(".mnn",), remedy="It is cut short or damaged: convert the model again."),
    Foreign(title="a frozen TensorFlow graph", suffixes=(".pb",), remedy=_TO_TFLITE),
    Foreign(title="a Qualcomm deep-learning container", suffixes=(".dlc",), remedy=_BUILT),
    Foreign(title="weights of an OpenVINO or ncnn model", suffixes=(".bin",),
            remedy="Give the file with the network that lies beside it: OpenVINO's .xml, or ncnn's .param."),
)  # fmt: skip


def foreign_format(peek: Peek) -> Foreign | None:
    """What the file seems to be: by its content first, then by its name."""
    if peek.is_folder:
        return next((entry for entry in FORMATS if entry.names and set(entry.names) <= set(peek.names)), None)
    suffix = peek.path.suffix.casefold()
    by_name = (entry for entry in FORMATS if peek.path.name in entry.names or (suffix and suffix in entry.suffixes))
    return foreign_content(peek) or next(by_name, None)


def foreign_content(peek: Peek) -> Foreign | None:
    """What the first bytes of a file say that it is."""
    for entry in FORMATS:
        begins = peek.head.startswith(entry.magic)
        if (entry.magic or entry.keys) and begins and all(key in peek.head for key in entry.keys):
            return entry
    return None
