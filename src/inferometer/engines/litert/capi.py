"""The edge to LiteRT's C functions, for what its Python interface does not have: the profiler.

The functions are called as release 2.3.0 has them. Another release is tried in a process of its own first (`check`).
"""

import ctypes
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferometer.core.errors import EngineError
from inferometer.engines.litert.mapping import ProfilerEvent

_Pointer, _Size, _Int = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CPU = 1
_RANK = 0x7F
_FUNCTIONS = (
    "LiteRtCreateEnvironment", "LiteRtDestroyEnvironment", "LiteRtCreateModelFromFile", "LiteRtDestroyModel",
    "LiteRtCreateOptions", "LiteRtDestroyOptions", "LiteRtSetOptionsHardwareAccelerators",
    "LiteRtCreateOpaqueOptions", "LiteRtAddOpaqueOptions", "LiteRtCreateCompiledModel", "LiteRtDestroyCompiledModel",
    "LiteRtCompiledModelGetProfiler", "LiteRtStartProfiler", "LiteRtResetProfiler", "LiteRtGetNumProfilerEvents",
    "LiteRtGetProfilerEvents", "LiteRtGetModelSignature", "LiteRtGetNumSignatureInputs",
    "LiteRtGetNumSignatureOutputs", "LiteRtGetSignatureInputTensorByIndex", "LiteRtGetSignatureOutputTensorByIndex",
    "LiteRtGetTensorName", "LiteRtGetRankedTensorType", "LiteRtCompiledModelResizeInputTensor",
    "LiteRtGetCompiledModelOutputTensorLayouts", "LiteRtGetCompiledModelInputBufferRequirements",
    "LiteRtGetCompiledModelOutputBufferRequirements", "LiteRtCreateManagedTensorBufferFromRequirements",
    "LiteRtDestroyTensorBuffer", "LiteRtGetTensorBufferHostMemory", "LiteRtGetTensorBufferSize",
    "LiteRtRunCompiledModel",
)  # fmt: skip


class _Layout(ctypes.Structure):
    _fields_ = [
        ("rank", ctypes.c_uint32), ("dims", ctypes.c_int32 * 8), ("strides", ctypes.c_uint32 * 8),
    ]  # fmt: skip


class _Ranked(ctypes.Structure):
    _fields_ = [("element", _Int), ("layout", _Layout)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("tag", ctypes.c_char_p), ("kind", _Int), ("start_us", ctypes.c_uint64), ("elapsed_us", ctypes.c_uint64),
        ("memory_before", ctypes.c_int64 * 3), ("memory_after", ctypes.c_int64 * 3), ("number", ctypes.c_uint64),
        ("subgraph", ctypes.c_uint64), ("source", _Int),
    ]  # fmt: skip


def library_path() -> Path | None:
    spec = find_spec("ai_edge_litert")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        library = next((path for path in sorted(Path(place).glob("*LiteRt.*")) if path.suffix != ".py"), None)
        if library is not None:
            return library
    return None


def missing_functions(path: Path) -> list[str]:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return [str(error)]
    return [name for name in _FUNCTIONS if not hasattr(library, name)]


class Profiled:
    """A compiled model with its profiler on. Handles are freed in the order opposite to that they were made in."""

    def __init__(self, library: Path, model: Path, threads: int, shapes: Sequence[Sequence[int]]) -> None:
        self._library = ctypes.CDLL(str(library))
        self._handles: list[tuple[str, Any]] = []
        self._memory: Any = ctypes.CDLL(None)
        self._free = _Free(lambda place: self._memory.free(_Pointer(place)))
        self._memory.strdup.restype = _Pointer
        try:
            self._open(model, threads, shapes)
        except BaseException:
            self.close()
            raise

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise EngineError(f"LiteRT's {name} gave the status {status}.")

    def _make(self, name: str, destroy: str | None, *arguments: Any) -> Any:
        handle = _Pointer()
        self._call(name, *arguments, ctypes.byref(handle))
        if destroy is not None:
            self._handles.append((destroy, handle))
        return handle

    def _open(self, model: Path, threads: int, shapes: Sequence[Sequence[int]]) -> None:
        self._environment = self._make("LiteRtCreateEnvironment", "LiteRtDestroyEnvironment", 0, None)
        path = ctypes.c_char_p(str(model).encode())
        self._model = self._make("LiteRtCreateModelFromFile", "LiteRtDestroyModel", self._environment, path)
        options = self._make("LiteRtCreateOptions", "LiteRtDestroyOptions")
        self._call("LiteRtSetOptionsHardwareAccelerators", options, _CPU)
        self._add(options, b"runtime_options_string", b"enable_profiling = true\n")
        self._add(options, b"xnnpack", b"num_threads = %d\n" % threads)
        given = (self._environment, self._model, options)
        self._compiled = self._make("LiteRtCreateCompiledModel", "LiteRtDestroyCompiledModel", *given)
        self._profiler = self._make("LiteRtCompiledModelGetProfiler", None, self._compiled)
        if not self._profiler.value:
            raise EngineError("LiteRT gave no profiler.")
        self._ports(shapes)

    def _add(self, options: Any, name: bytes, text: bytes) -> None:
        opaque = _Pointer()
        copy = _Pointer(self._memory.strdup(text))
        self._call("LiteRtCreateOpaqueOptions", ctypes.c_char_p(name), copy, self._free, ctypes.byref(opaque))
        self._call("LiteRtAddOpaqueOptions", options, opaque)

    def _ports(self, shapes: Sequence[Sequence[int]]) -> None:
        """Buffers for the first signature: the main graph where the file has none."""
        first = _Size(0)
        signature = self._make("LiteRtGetModelSignature", None, self._model, first)
        self._counts = _Size(), _Size()
        for kind, count in zip(("Inputs", "Outputs"), self._counts, strict=True):
            self._call(f"LiteRtGetNumSignature{kind}", signature, ctypes.byref(count))
        ins, outs = (count.value for count in self._counts)
        if ins != len(shapes):
            raise EngineError(f"LiteRT's first signature has {ins} inputs, and the graph {len(shapes)}.")
        inputs = [self._type(signature, "Input", index) for index in range(ins)]
        outputs = [self._type(signature, "Output", index) for index in range(outs)]
        self.input_names = tuple(name for name, _ in inputs)
        self.output_names = tuple(name for name, _ in outputs)
        self._resize([ranked for _, ranked in inputs], shapes)
        layouts = (_Layout * outs)()
        update = ctypes.c_bool(True)  # noqa: FBT003 - the sizes after resizing, not before
        self._call("LiteRtGetCompiledModelOutputTensorLayouts", self._compiled, first, _Size(outs), layouts, update)
        for (_, ranked), layout in zip(outputs, layouts, strict=True):
            ranked.layout = layout
        self._inputs = (_Pointer * ins)(*(self._buffer("Input", index, each[1]) for index, each in enumerate(inputs)))
        self._outputs = (_Pointer * outs)(
            *(self._buffer("Output", index, each[1]) for index, each in enumerate(outputs))
        )

    def _type(self, signature: Any, kind: str, index: int) -> tuple[str, _Ranked]:
        tensor = self._make(f"LiteRtGetSignature{kind}TensorByIndex", None, signature, _Size(index))
        name, ranked = ctypes.c_char_p(), _Ranked()
        self._call("LiteRtGetTensorName", tensor, ctypes.byref(name))
        self._call("LiteRtGetRankedTensorType", tensor, ctypes.byref(ranked))
        return (name.value or b"").decode(errors="replace"), ranked

    def _resize(self, inputs: Sequence[_Ranked], shapes: Sequence[Sequence[int]]) -> None:
        for index, (ranked, shape) in enumerate(zip(inputs, shapes, strict=True)):
            rank = ranked.layout.rank & _RANK
            if rank == len(shape) and tuple(ranked.layout.dims[:rank]) != tuple(shape):
                sizes = (_Int * rank)(*shape)
                given = (self._compiled, _Size(0), _Size(index), sizes, _Size(rank))
                self._call("LiteRtCompiledModelResizeInputTensor", *given)
                ranked.layout.dims[:rank] = tuple(shape)

    def _buffer(self, kind: str, index: int, ranked: _Ranked) -> Any:
        name = f"LiteRtGetCompiledModel{kind}BufferRequirements"
        needs = self._make(name, None, self._compiled, _Size(0), _Size(index))
        given = (self._environment, ctypes.byref(ranked), needs)
        buffer = self._make("LiteRtCreateManagedTensorBufferFromRequirements", "LiteRtDestroyTensorBuffer", *given)
        return buffer.value

    def write(self, index: int, raw: bytes) -> None:
        self._call("LiteRtGetTensorBufferSize", self._pointer(self._inputs, index), ctypes.byref(size := _Size()))
        if len(raw) > size.value:
            raise EngineError(f"LiteRT's input {index} has room for {size.value} bytes; {len(raw)} were given.")
        ctypes.memmove(self._host(self._inputs, index), raw, len(raw))

    def read(self, index: int, nbytes: int) -> bytes:
        return ctypes.string_at(self._host(self._outputs, index), nbytes)

    def _pointer(self, buffers: Any, index: int) -> Any:
        return _Pointer(buffers[index])

    def _host(self, buffers: Any, index: int) -> Any:
        return self._make("LiteRtGetTensorBufferHostMemory", None, self._pointer(buffers, index)).value

    def run(self) -> None:
        """One pass, with the events of this pass alone."""
        ins, outs = self._counts
        self._call("LiteRtResetProfiler", self._profiler)
        self._call("LiteRtStartProfiler", self._profiler)
        self._call("LiteRtRunCompiledModel", self._compiled, _Size(0), ins, self._inputs, outs, self._outputs)

    def events(self) -> list[ProfilerEvent]:
        count = _Int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, ctypes.byref(count))
        raw = (_Event * max(1, count.value))()
        self._call("LiteRtGetProfilerEvents", self._profiler, count, raw)
        return [
            ProfilerEvent(
                tag=(event.tag or b"").decode(errors="replace"),
                kind=event.kind,
                elapsed_us=event.elapsed_us,
                number=event.number,
                subgraph=event.subgraph,
            )
            for event in raw[: count.value]
        ]

    def close(self) -> None:
        while self._handles:
            destroy, handle = self._handles.pop()
            getattr(self._library, destroy)(handle)
