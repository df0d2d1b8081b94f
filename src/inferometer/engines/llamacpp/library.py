"""The edge to llama.cpp's C functions: those of xllamacpp's own compiled module, or of llama-cpp-python."""

from __future__ import annotations

import ctypes
import struct
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError
from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
