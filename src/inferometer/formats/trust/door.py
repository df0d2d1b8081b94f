"""The door: what a file passes before an engine or a tool opens it."""

import ast
import hashlib
import json
import mmap
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from inferometer.core.errors import TrustError
from inferometer.core.frozen import frozen
from inferometer.core.json_text import parse_json
from inferometer.core.settings import data_folder
from inferometer.formats.trust.archive import open_archive

# Programs exported by PyTorch (`.pt2`): whether one could do more than compute.
#
# `torch.export.load` trusts its file. It unpickles sample inputs, weights and constants, evaluates sizes and guards as
# Python, turns the names of inputs into source, looks operators up by any dotted name, and loads a compiled library
# that lies in the same archive. So each of these is looked at here, and what is no tensor, size or known operator is
# named.

# What a pickle would call, without running it.
#
# A pickle names what it calls. As `torch.save` writes it, each name stands in the pickle as it is, so that reading the
# names is enough; an instruction that puts a name together while it runs is refused, whatever it would put together.

_MOST_OPCODES = 20_000_000
# Tensors, their storages and types, and plain containers: what PyTorch's own reader of bare weights lets a pickle name.
_REBUILT = "tensor tensor_v2 tensor_v3 parameter parameter_with_state qtensor sparse_tensor meta_tensor_no_storage "
_REBUILT += "device_tensor_from_numpy device_tensor_from_cpu_tensor nested_tensor wrapper_subclass"
_NAMES = frozenset({
    "collections OrderedDict", "collections Counter", "builtins set", "builtins bytearray", "builtins complex",
    "__builtin__ set", "__builtin__ bytearray", "__builtin__ complex", "_codecs encode", "torch Size", "torch Tensor",
    "torch device", "torch._tensor _rebuild_from_type_v2", "torch.nn.parameter Parameter",
    "torch.serialization _get_layout", "torch.storage TypedStorage", "torch.storage UntypedStorage",
    "torch.storage _LegacyStorage", *(f"torch._utils _rebuild_{name}" for name in _REBUILT.split()),
})  # fmt: skip
_TYPES = re.compile(
    r"torch(\.cuda|\.sparse|\.cuda\.sparse)? [A-Z][A-Za-z0-9]*(Storage|Tensor)"
    r"|torch (bool|bfloat16|(u?int|q?u?int|float|complex|bits)\d+\w*|per_(channel|tensor)_\w+)"
)
# How instructions name what is called by what lies on the stack, or outside the pickle.
_HIDDEN = frozenset({"STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "NEWOBJ_EX"})


def strange_calls(pickled: bytes) -> Iterator[str]:
    """What is named in the pickle that is no part of a tensor, as `os.system`; a pickle that hides names says so."""
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
            if count > _MOST_OPCODES:
                yield "more instructions than any model has"
                return
            if opcode.name in _HIDDEN:
                yield f"a name that it puts together as it runs ({opcode.name})"
            elif opcode.name == "GLOBAL" and not _is_plain(str(argument)):
                yield str(argument).replace(" ", ".")
    except (ValueError, IndexError, KeyError, EOFError, OverflowError, UnicodeError, AttributeError) as error:
        yield f"something that cannot be followed ({error})"


def _is_plain(name: str) -> bool:
    return name in _NAMES or _TYPES.fullmatch(name) is not None


_LIBRARY = "data/aotinductor/"
_OBJECTS = ("custom_obj", "opaque_obj")  # constants of other kinds than tensors
_PAYLOADS = re.compile(r"data/(weights|constants)/[^/]*config\.json")
_PICKLED = (".pt", ".pth", ".pkl")
_SCRIPT = ("constants.pkl", "code/")  # what PyTorch runs as TorchScript
_MOST_PICKLE = 256 << 20
_NAME = re.compile(r"[A-Za-z_]\w*|", re.ASCII)
_PATH = re.compile(r"[\w.\-/+@$ ]*")  # of a weight in its module: nothing that ends a string or opens a call
# Operators that compute on tensors, by the libraries that PyTorch and its quantisers bring.
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|torchvision|quantized_decomposed|torchao)\.\w+(\.\w+)?"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|map|map_impl|associative_scan|wrap|wrap_with_set_grad_enabled"
    r"|wrap_with_autocast|auto_functionalized(_v2)?|flex_attention|out_dtype|strict_mode|invoke_subgraph)"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|not_|xor|lshift|rshift"
    r"|inv|invert|getitem|matmul)"
    r"|math\.(ceil|floor|trunc|sqrt|pow|log2)|torch\.(_?sym_\w+|_C\._set_grad_enabled)"
)
_OPENING = ("torch.ops.aten.from_file",)  # an operator that opens a file of the machine
# Of sizes: sympy's own, and PyTorch's.
_FUNCTIONS = frozenset(
    """
    Symbol Integer Float Rational Add Mul Pow Mod Max Min Abs Eq Ne Lt Le Gt Ge And Or Not Xor Piecewise ExprCondPair
    floor ceiling StrictLessThan LessThan StrictGreaterThan GreaterThan Equality Unequality
    FloorDiv CleanDiv CeilDiv IntTrueDiv FloatTrueDiv PythonMod ModularIndexing Where CeilToInt FloorToInt TruncToInt
    TruncToFloat RoundToInt RoundDecimal ToFloat LShift RShift PowByNatural FloatPow Identity BitwiseFn_bitwise_and
    BitwiseFn_bitwise_or BitwiseFn_bitwise_xor OpaqueUnaryFn_sqrt OpaqueUnaryFn_log2
    max min abs isnan int float bool
    """.split()  # noqa: SIM905 - a list of names reads better as text
)
# Of tensors, and of the modules `math` and `torch`, as conditions on sizes have them.
_METHODS = frozenset({
    "size", "stride", "storage_offset", "dim", "numel", "isnan", "inf", "trunc", "floor", "ceil", "sqrt", "log2", "pow",
    "sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "sym_ite", "sym_sum", "_sym_sqrt", "_sym_log2",
})  # fmt: skip
_WORD = re.compile(r"[A-Za-z_]\w*|-?\d[\d.e+-]*|", re.ASCII)
_ARITHMETIC = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.expr_context, ast.Subscript, ast.Tuple, ast.keyword,
)  # fmt: skip
_LONGEST = 20_000  # letters of one size or guard


def program_faults(path: Path) -> Iterator[str]:
    """What in a program is no data, each as the end of a sentence that begins with the file."""
    archive = open_archive(path)
    with zipfile.ZipFile(path) as whole:
        # PyTorch and Python must see the same members: one folder with all of them, or none, and nothing behind them.
        tops = {name.partition("/")[0] if "/" in name else "" for name in whole.namelist()}
        if len(tops) > 1 or whole.comment:
            yield "is a zip file that two programs may read in two ways"
        for name in archive.members:
            if name.casefold().startswith(_LIBRARY) or name.casefold().endswith((".so", ".dll", ".dylib", ".pyd")):
                yield f"has a compiled library in it ({name})"
            if name.rpartition("/")[2].startswith(_OBJECTS):
                yield f"has a constant that is no tensor ({name})"
        pickled = {name for name in archive.members if name.casefold().endswith(_PICKLED)}
        for name in archive.members:
            if not name.casefold().endswith(".json"):
                continue
            document = archive.document(name)
            if _PAYLOADS.fullmatch(name):
                folder = name.rpartition("/")[0]
                for payload in _payloads(document):
                    if not _PATH.fullmatch(payload) or "/" in payload or payload.startswith(_OBJECTS):
                        yield f"has a constant that is no tensor ({payload[:80]!r})"
                    pickled.add(f"{folder}/{payload}")
            elif isinstance(document, dict) and "graph_module" in document:
                yield from _document_faults(document, "")
        for name in sorted(pickled & archive.members.keys()):
            with whole.open(archive.members[name]) as file:
                yield from (f"has pickled {_kind(name)}, which {fault}" for fault in _pickle_faults(file))


def _payloads(document: Any) -> Iterator[str]:
    """The members that a list of weights or constants has unpickled."""
    entries = document.get("config") if isinstance(document, dict) else None
    for entry in entries.values() if isinstance(entries, dict) else ():
        path = str(entry.get("path_name", "")) if isinstance(entry, dict) else ""
        if path.startswith(_OBJECTS) or (isinstance(entry, dict) and entry.get("use_pickle")):
            yield path


def _kind(name: str) -> str:
    for word, told in (("sample_inputs", "sample inputs"), ("example", "sample inputs"), ("constants", "constants")):
        if word in name:
            return told
    return "weights"


def _pickle_faults(file: IO[bytes]) -> Iterator[str]:
    """Of one member: the zip file of `torch.save`, and in it pickles that name tensors alone."""
    if not file.read(1):
        return
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as inner:
            names = [name.casefold().partition("/")[2] or name.casefold() for name in inner.namelist()]
            if len(set(names)) < len(names) or any(name.startswith(_SCRIPT) for name in names):
                yield "are a program, and no tensors"
            for entry in inner.infolist():
                if entry.filename.casefold().endswith(".pkl"):
                    if entry.file_size > _MOST_PICKLE:
                        yield "are longer than they are read"
                        return
                    yield from (f"call {call}" for call in strange_calls(inner.read(entry)))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, EOFError):
        yield "are not as torch.save writes them"


def _document_faults(value: Any, key: str) -> Iterator[str]:
    """Of a program's graph: everything in it that PyTorch evaluates, looks up or writes into source."""
    if isinstance(value, dict):
        for inner, part in value.items():
            if inner != "metadata":  # of the tracer: shown, and not evaluated
                yield from _document_faults(part, str(inner))
    elif isinstance(value, list):
        for part in value:
            yield from _document_faults(part, key)
    elif isinstance(value, str) and (check := _CHECKED.get(key)) is not None and not check(value):
        yield f"has {_SAID.get(key, 'a name')} that is none: {value[:80]!r}"
    if key in {"as_custom_obj", "custom_obj"} or (key == "custom_obj_values" and value):
        yield "takes or holds an object that is no tensor"


def is_operator(text: str) -> bool:
    return _OPERATOR.fullmatch(text) is not None and not text.startswith(_OPENING)


def is_arithmetic(text: str) -> bool:
    """A size, or a condition on sizes: numbers, symbols, and functions that are known; no other call or attribute."""
    try:
        tree = ast.parse(text.strip(), mode="eval") if len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return tree is not None and all(map(_is_arithmetic_node, ast.walk(tree)))


def _is_arithmetic_node(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str() as text):
            return _WORD.fullmatch(text) is not None  # a symbol, an input or a number: nothing that calls
        case ast.Constant(value=value):
            return value is None or isinstance(value, int | float)
        case ast.Call(func=ast.Name(id=name)):
            return name in _FUNCTIONS
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Attribute(attr=name):
            return name in _METHODS
        case ast.Name(id=name):
            return "__" not in name
        case _:
            return isinstance(node, _ARITHMETIC)


def is_plain_tree(text: str) -> bool:
    """How arguments nest: a tree of containers, none of which imports a module to be made."""
    try:
        return not any(word in json.dumps(parse_json(text)) for word in ("__enum__", "default_factory", "importlib"))
    except ValueError:
        return False


def _is_path(text: str) -> bool:
    return _PATH.fullmatch(text) is not None


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


_CHECKED: Mapping[str, Callable[[str], bool]] = {
    "target": is_operator, "as_operator": is_operator, "expr_str": is_arithmetic, "guards_code": is_arithmetic,
    "in_spec": is_plain_tree, "out_spec": is_plain_tree, "name": _is_name, "forward_arg_names": _is_name,
    "fqn": _is_path, "parameter_name": _is_path, "buffer_name": _is_path, "tensor_constant_name": _is_path,
    "user_input_name": _is_path,
}  # fmt: skip
_SAID = {
    "target": "an operator", "as_operator": "an operator", "expr_str": "a size", "guards_code": "a condition on sizes",
    "in_spec": "a list of inputs", "out_spec": "a list of outputs",
}  # fmt: skip


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
    "pt2": program_faults,
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
