"""The edge to llama.cpp's C functions: those of xllamacpp's own compiled module, or of llama-cpp-python."""

import ctypes
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.core.frozen import frozen

# What can be asked of llama.cpp beside the target's own fields, as text by name → values; and where it put a model.

_Value = TypeVar("_Value")

# The types llama.cpp keeps a cache in, with their numbers in ggml's enumeration.
CACHE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
_FLASH = {"auto": -1, "off": 0, "on": 1}
_SWITCH = {"off": False, "on": True}
_APIS = {"auto": "auto", "direct": "direct", "server": "server"}


@frozen
class LlamaOptions:
    """`layers` are put on the accelerator; None: all where there is one. `api` is the door: C functions, or a server.

    `batch` is how many tokens of a prompt are given at once, `ubatch` how many are computed at once.
    """

    api: str = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    flash: int = -1
    layers: int | None = None
    batch: int = 2048
    ubatch: int = 512
    warmup: bool = False


def parse_options(given: Mapping[str, str]) -> LlamaOptions:
    """The names are those of llama.cpp's own command line where it has one."""
    known = ("api", "type_k", "type_v", "flash_attention", "n_gpu_layers", "n_batch", "n_ubatch", "warmup")
    for name in given:
        if name not in known:
            raise UnknownNameError("option of llama.cpp", name, known, listing=f"There are: {', '.join(known)}.")
    return LlamaOptions(
        api=_choice(given, "api", _APIS, "auto"),
        type_k=_type(given, "type_k"),
        type_v=_type(given, "type_v"),
        flash=_choice(given, "flash_attention", _FLASH, "auto"),
        layers=_number(given, "n_gpu_layers", least=0),
        batch=_number(given, "n_batch", least=1) or LlamaOptions().batch,
        ubatch=_number(given, "n_ubatch", least=1) or LlamaOptions().ubatch,
        warmup=_choice(given, "warmup", _SWITCH, "off"),
    )


def _type(given: Mapping[str, str], name: str) -> str:
    asked = given.get(name, "f16").casefold()
    _choice({name: asked}, name, CACHE_TYPES, "f16")
    return asked


def _choice(given: Mapping[str, str], name: str, values: Mapping[str, _Value], default: str) -> _Value:
    asked = given.get(name, default).casefold()
    if asked not in values:
        raise DomainError(
            f"llama.cpp's option {name} was given {given[name]!r}.", remedy=f"It takes: {', '.join(values)}."
        )
    return values[asked]


def _number(given: Mapping[str, str], name: str, *, least: int) -> int | None:
    if name not in given:
        return None
    text = given[name]
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise DomainError(
            f"llama.cpp's option {name} was given {text!r}.", remedy=f"It takes a whole number from {least} up."
        )
    return int(text)


# Which devices a model is put on, and what the engine's log says of where it went.

Devices = ctypes.Array[ctypes.c_void_p]  # handles, and an empty one at the end
_ACCELERATORS = frozenset({1, 2})  # a card of its own, or one that shares the host's memory
_ALL = 999
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers")


def choose_devices(
    asked: str | None, layers: int | None, devices: Sequence[tuple[str, int, int]]
) -> tuple[str, Devices, int]:
    """The unit, the devices to use beside the CPU, and how many layers to put on them."""
    gpus = [(name, handle) for name, kind, handle in devices if kind in _ACCELERATORS and name != "BLAS"]
    unit = asked or ("gpu" if gpus else "cpu")
    kind, _, index = unit.partition(":")
    there = ["cpu", *(f"gpu:{index} ({name})" for index, (name, _) in enumerate(gpus))]
    if kind not in {"cpu", "gpu"} or (index and not index.isdigit()):
        raise EngineError(f"llama.cpp has no unit {unit!r}.", remedy=f"There are: {', '.join(there)}.")
    if kind == "cpu":
        if layers:
            raise DomainError(f"{layers} layers were asked for on an accelerator, and the unit cpu.")
        return "cpu", (ctypes.c_void_p * 1)(None), 0
    chosen = gpus if not index else gpus[int(index) : int(index) + 1]
    if not chosen:
        raise EngineError(
            f"llama.cpp sees no {unit} here.",
            remedy=f"There are: {', '.join(there)}. Builds for accelerators are packages of their own.",
        )
    handles = (ctypes.c_void_p * (len(chosen) + 1))(*(handle for _, handle in chosen), None)
    return unit, handles, _ALL if layers is None else layers


def placed_by_log(lines: Sequence[str], layers: int, unit: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Layers by where they are (the output counts as one), and a note where not all are where they were asked for."""
    match = next((found for line in lines if (found := _OFFLOADED.search(line))), None)
    there, total = (int(match[1]), int(match[2])) if match else (0, layers)
    placed = {name: count for name, count in (("gpu", there), ("cpu", total - there)) if count}
    if unit != "cpu" and there < total:
        return placed, (f"{total - there} of {total} layers run on the CPU.",)
    return placed, ()


# Where fields lie in llama.cpp's parameter structures, found by the defaults it fills them with.
#
# The structures grow from release to release, and a package of compiled code says nothing of its headers. The defaults
# do: 512 tokens of context, 4 threads, a row of minus ones before the rope frequencies, f16 for both caches after an
# empty callback. A field that is not found where its neighbours say it should be is None, and is not used.

_UNSET = 0xFFFFFFFF
_MINUS_ONE = struct.unpack("<I", struct.pack("<f", -1.0))[0]
_DEFAULT_THREADS = 4
_F16 = 1


@frozen
class ContextFields:
    """Offsets in bytes in `llama_context_params`. The first four are the same in every release that has them."""

    context: int = 0
    batch: int = 4
    ubatch: int = 8
    sequences: int = 12
    threads: int  # those for prompts follow
    flash: int | None
    callback: int | None  # its argument follows
    type_k: int | None  # that of v follows


@frozen
class ModelFields:
    """Offsets in bytes in `llama_model_params`."""

    devices: int = 0
    layers: int = 16


@frozen
class TensorFields:
    """Offsets in bytes in `ggml_tensor`."""

    type: int = 0
    buffer: int = 8
    shape: int = 16
    op: int = 80
    sources: int
    count: int
    name: int


def context_fields(raw: bytes) -> ContextFields | None:
    """`raw` is what `llama_context_default_params` gives. None where it does not begin as it should."""
    words = struct.unpack(f"<{len(raw) // 4}I", raw[: len(raw) // 4 * 4])
    if words[:4] != (512, 2048, 512, 1):
        return None
    threads = _first(range(4, 12), lambda at: words[at] == words[at + 1] == _DEFAULT_THREADS)
    if threads is None:
        return None
    unset = _first(range(threads + 2, 20), lambda at: words[at : at + 4] == (_UNSET,) * 4)
    callback = _first(range(threads + 2, len(words) - 6), lambda at: _is_callback(words, at))
    return ContextFields(
        threads=threads * 4,
        flash=None if unset is None else unset * 4 + 12,
        callback=None if callback is None else callback * 4,
        type_k=None if callback is None else callback * 4 + 16,
    )


def _is_callback(words: tuple[int, ...], at: int) -> bool:
    """Two empty pointers, after a threshold that is off and before the types of the caches."""
    return (
        at % 2 == 0
        and words[at - 1] == _MINUS_ONE
        and words[at : at + 4] == (0, 0, 0, 0)
        and words[at + 4 : at + 6] == (_F16, _F16)
    )


def model_fields(raw: bytes) -> ModelFields | None:
    """`raw` is what `llama_model_default_params` gives: two empty pointers, layers, and a split by layer."""
    words = struct.unpack("<6I", raw[:24])
    sound = words[:4] == (0, 0, 0, 0) and words[4] in {0, 999, _UNSET} and words[5] == 1
    return ModelFields() if sound else None


def tensor_fields(*, name_at: int, sources: int = 10, parameters: int = 64) -> TensorFields | None:
    """`name_at` is where a tensor's name lies, by ggml itself: the sources, a view and the data lie before it."""
    flags = 84 + parameters
    first = (flags + 4 + 7) // 8 * 8
    expected = first + sources * 8 + 24
    return TensorFields(sources=first, count=sources, name=name_at) if name_at == expected else None


def _first(places: range, holds: Callable[[int], bool]) -> int | None:
    return next((place for place in places if holds(place)), None)


Observer = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
_Logger = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_POINTER, _INT, _SIZE, _TEXT, _BOOL = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_bool
_WARNING, _ERROR = 3, 4


class Parameters(ctypes.Structure):
    """Any of llama.cpp's parameter structures, with room to spare: it reads and writes the beginning it knows."""

    _fields_ = [("raw", ctypes.c_uint8 * 512)]

    def put(self, at: int, value: int, *, size: int = 4) -> None:
        self.raw[at : at + size] = tuple(value.to_bytes(size, "little", signed=value < 0))


class LlamaBatch(ctypes.Structure):
    """`llama_batch`: tokens with their positions and sequences, and whose logits are wanted."""

    _fields_ = [
        ("n_tokens", _INT), ("token", _POINTER), ("embd", _POINTER), ("pos", _POINTER), ("n_seq_id", _POINTER),
        ("seq_id", _POINTER), ("logits", _POINTER),
    ]  # fmt: skip


# name: result, arguments
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (_POINTER, _POINTER)),
    "llama_supports_gpu_offload": (_BOOL, ()),
    "llama_print_system_info": (_TEXT, ()),
    "llama_model_default_params": (Parameters, ()),
    "llama_context_default_params": (Parameters, ()),
    "llama_model_load_from_file": (_POINTER, (_TEXT, Parameters)),
    "llama_model_free": (None, (_POINTER,)),
    "llama_model_n_layer": (_INT, (_POINTER,)),
    "llama_model_n_ctx_train": (_INT, (_POINTER,)),
    "llama_model_has_encoder": (_BOOL, (_POINTER,)),
    "llama_model_get_vocab": (_POINTER, (_POINTER,)),
    "llama_vocab_n_tokens": (_INT, (_POINTER,)),
    "llama_vocab_type": (ctypes.c_int, (_POINTER,)),
    "llama_vocab_is_eog": (_BOOL, (_POINTER, _INT)),
    "llama_init_from_model": (_POINTER, (_POINTER, Parameters)),
    "llama_free": (None, (_POINTER,)),
    "llama_n_ctx": (ctypes.c_uint32, (_POINTER,)),
    "llama_n_batch": (ctypes.c_uint32, (_POINTER,)),
    "llama_n_ubatch": (ctypes.c_uint32, (_POINTER,)),
    "llama_n_seq_max": (ctypes.c_uint32, (_POINTER,)),
    "llama_n_threads": (_INT, (_POINTER,)),
    "llama_n_threads_batch": (_INT, (_POINTER,)),
    "llama_set_n_threads": (None, (_POINTER, _INT, _INT)),
    "llama_get_memory": (_POINTER, (_POINTER,)),
    "llama_memory_clear": (None, (_POINTER, _BOOL)),
    "llama_batch_init": (LlamaBatch, (_INT, _INT, _INT)),
    "llama_batch_free": (None, (LlamaBatch,)),
    "llama_decode": (_INT, (_POINTER, LlamaBatch)),
    "llama_synchronize": (None, (_POINTER,)),
    "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), (_POINTER, _INT)),
    "llama_sampler_init_greedy": (_POINTER, ()),
    "llama_sampler_sample": (_INT, (_POINTER, _POINTER, _INT)),
    "llama_sampler_free": (None, (_POINTER,)),
    "llama_tokenize": (_INT, (_POINTER, _TEXT, _INT, _POINTER, _INT, _BOOL, _BOOL)),
    "llama_detokenize": (_INT, (_POINTER, _POINTER, _INT, _POINTER, _INT, _BOOL, _BOOL)),
    "llama_token_to_piece": (_INT, (_POINTER, _INT, _POINTER, _INT, _INT, _BOOL)),
    "ggml_get_name": (_POINTER, (_POINTER,)),
    "ggml_op_desc": (_TEXT, (_POINTER,)),
    "ggml_op_name": (_TEXT, (ctypes.c_int,)),
    "ggml_type_name": (_TEXT, (ctypes.c_int,)),
    "ggml_nbytes": (_SIZE, (_POINTER,)),
    "ggml_backend_buffer_name": (_TEXT, (_POINTER,)),
    "ggml_backend_buffer_is_host": (_BOOL, (_POINTER,)),
    "ggml_backend_dev_count": (_SIZE, ()),
    "ggml_backend_dev_get": (_POINTER, (_SIZE,)),
    "ggml_backend_dev_name": (_TEXT, (_POINTER,)),
    "ggml_backend_dev_type": (ctypes.c_int, (_POINTER,)),
}


class Library:
    """The functions, under their own names, and the layouts found. `lines` are what the engine logged last."""

    def __init__(self, parts: Sequence[Any], *, label: str) -> None:
        self.label = label
        for name, (result, arguments) in _FUNCTIONS.items():
            function = next((getattr(part, name) for part in parts if hasattr(part, name)), None)
            if function is None:
                raise EngineError(f"{label} does not export {name}.")
            function.restype, function.argtypes = result, list(arguments)
            setattr(self, name, function)
        self.lines: list[str] = []
        self._logger = _Logger(self._log)
        self._log_get = next((part.llama_log_get for part in parts if hasattr(part, "llama_log_get")), None)
        self._held = 0
        self._before: tuple[int | None, int | None] = (None, None)
        self.context, self.model = self._layouts()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _layouts(self) -> tuple[ContextFields, ModelFields]:
        context = context_fields(bytes(self.llama_context_default_params().raw))
        model = model_fields(bytes(self.llama_model_default_params().raw))
        if context is None or model is None or not self._batches_are_known():
            raise EngineError(f"{self.label} has structures of another shape than those known here.")
        return context, model

    def _batches_are_known(self) -> bool:
        batch = self.llama_batch_init(2, 0, 1)
        filled = (batch.token, batch.pos, batch.n_seq_id, batch.seq_id, batch.logits)
        known = batch.n_tokens == 0 and not batch.embd and all(filled) and len(set(filled)) == len(filled)
        if known:
            self.llama_batch_free(batch)
        return known

    def tensor_layout(self, tensor: int, *, sources: int, parameters: int) -> TensorFields | None:
        return tensor_fields(name_at=self.ggml_get_name(tensor) - tensor, sources=sources, parameters=parameters)

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Warnings and errors of the engine are kept instead of printed."""
        self.hold()
        self.lines = []
        try:
            yield self.lines
        finally:
            self.release()

    def hold(self) -> None:
        """Takes the engine's log, which is one for the whole process. Each hold is to be released."""
        if self._held == 0:
            self._before = self._logging()
            self.llama_log_set(ctypes.cast(self._logger, ctypes.c_void_p), None)
        self._held += 1

    def release(self) -> None:
        """Gives the log back to whom it was taken from, unless another has taken it meanwhile."""
        self._held -= 1
        if self._held == 0 and self._logging()[0] in {None, ctypes.cast(self._logger, ctypes.c_void_p).value}:
            self.llama_log_set(*self._before)

    def _logging(self) -> tuple[int | None, int | None]:
        """Who has the log now. A release that cannot say has its own, which prints."""
        if self._log_get is None:
            return None, None
        callback, argument = ctypes.c_void_p(), ctypes.c_void_p()
        self._log_get(ctypes.byref(callback), ctypes.byref(argument))
        return callback.value, argument.value

    def _log(self, level: int, text: bytes, _: int | None) -> None:
        line = text.decode(errors="replace").strip()
        if (level in {_WARNING, _ERROR} and line) or "offloaded" in line:
            self.lines.append(line)

    def devices(self) -> tuple[tuple[str, int, int], ...]:
        """Name, kind (0 is the CPU, 1 and 2 accelerators) and handle of each device."""
        handles = [self.ggml_backend_dev_get(index) for index in range(self.ggml_backend_dev_count())]
        return tuple(
            (self.ggml_backend_dev_name(handle).decode(), self.ggml_backend_dev_type(handle), handle)
            for handle in handles
        )


def candidates() -> tuple[tuple[str, tuple[Path, ...]], ...]:
    """Packages that may have the functions, with their compiled files, in order of preference."""
    packages = []
    for package, folder, patterns in (
        ("xllamacpp", "", ("xllamacpp*.so", "xllamacpp*.pyd", "xllamacpp*.dylib")),
        ("llama_cpp", "lib", ("*llama.so", "*llama.dylib", "llama.dll", "*ggml*.so", "*ggml*.dylib", "ggml*.dll")),
    ):
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            files = [path for pattern in patterns for path in sorted((Path(place) / folder).glob(pattern))]
            if files:
                packages.append((package, tuple(dict.fromkeys(files))))
    return tuple(packages)


@cache
def _loaded(package: str, files: tuple[Path, ...]) -> Library:
    """Once a process: the engine keeps one log for all, and so do we."""
    return Library([ctypes.CDLL(str(path)) for path in files], label=package)


def find_library() -> tuple[Library | None, str]:
    """The first package whose functions can be called and whose structures are known; else why there is none."""
    reasons = []
    for package, files in candidates():
        try:
            return _loaded(package, files), ""
        except (EngineError, OSError) as error:
            reasons.append(str(error))
    return None, " ".join(reasons) or "No package with llama.cpp's functions is installed."
