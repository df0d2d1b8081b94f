"""Sessions of OpenVINO: the edge that imports it."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import openvino as ov

from inferometer.core.errors import DomainError, FormatError
from inferometer.engines.base import Kernel, Opened, Port, Session, Stage, Target
from inferometer.engines.feeding import require_fitting
from inferometer.engines.host import threads_of
from inferometer.engines.openvino.devices import (
    choose_device,
    fault_of,
    guarded,
    placement_note,
    precision_hint,
    unit_of,
)

Array = np.ndarray[Any, Any]
Clock = Callable[[], float]
_DTYPES = {"boolean": "bool"}


def open_session(target: Target, name: str, *, clock: Clock = time.perf_counter) -> Session:
    del name  # one runtime is opened from here
    if target.text:
        raise DomainError(
            f"OpenVINO was asked to open {str(target.path)!r} as a language model; here it opens models of arrays.",
            remedy="Choose openvino-genai, onnxruntime, torch-eager or llamacpp for text.",
        )
    if target.instrument:
        from inferometer.engines.openvino.recorded import OpenvinoRecordedSession  # noqa: PLC0415 - plain sessions need none

        return OpenvinoRecordedSession(target, clock=clock)
    return OpenvinoSession(target, clock=clock)


class OpenvinoSession:
    """A compiled model with one request. A model with open sizes is compiled again for the sizes that are fed."""

    counting = False
    cost_per_kernel_s: float | None = None

    def __init__(self, target: Target, *, clock: Clock) -> None:
        if not target.path.exists():
            raise FormatError(f"There is no file {str(target.path)!r}.", remedy="Check the path.")
        self._target, self._clock = target, clock
        self._core = ov.Core()
        self._device = choose_device(target, self._core.available_devices)
        self._threads = threads_of(target.threads)
        with guarded(target.path, "refused"):
            start = clock()
            self._model = self._core.read_model(str(target.path))
            load_s = clock() - start
        # Named once, before anything is compiled: a tensor that is passed on unchanged then gets more names.
        self._ports = tuple(_port(entry) for entry in self._model.inputs)
        self._results = tuple(_name(entry) for entry in self._model.outputs)
        if target.sizes:
            self._reshape(_sized(self._ports, target))
        self._fed: dict[str, Array] = {}
        self._compiled, self._request, self.opened = self._compile((Stage(name="load", seconds=load_s),))

    def _reshape(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        with guarded(self._target.path, f"refused the sizes {_listed(shapes)} for"):
            self._model.reshape({name: list(shape) for name, shape in shapes.items()})

    def _settings(self) -> dict[str, Any]:
        # Full precision is asked for only where no weight or input is stored in a shorter float.
        stores = (op for op in self._model.get_ops() if op.get_type_name() in _STORES)
        shorter = any(op.get_output_element_type(0).get_type_name() in {"f16", "bf16"} for op in stores)
        hint = precision_hint(self._target.precision, all_f32=not shorter)
        settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", **self._target.options}
        if hint is not None:
            settings.setdefault("INFERENCE_PRECISION_HINT", hint)
        if self._device == "CPU":
            settings |= {"INFERENCE_NUM_THREADS": self._threads, "NUM_STREAMS": "1"}
        return settings | {"PERF_COUNT": "YES" if self.counting else "NO"}

    def _compile(self, stages: tuple[Stage, ...]) -> tuple[Any, Any, Opened]:
        with guarded(self._target.path, "refused"):
            start = self._clock()
            compiled = self._core.compile_model(self._model, self._device, self._settings())
            request = compiled.create_infer_request()
            compile_s = self._clock() - start
        devices = [str(name) for name in _property(compiled, "EXECUTION_DEVICES") or [self._device]]
        threads = _property(compiled, "INFERENCE_NUM_THREADS")
        opened = Opened(
            stages=(*stages, Stage(name="compile", seconds=compile_s)),
            versions={"openvino": str(ov.__version__)},
            inputs=self._ports,
            outputs=tuple(
                replace(_port(entry), name=name) for name, entry in zip(self._results, compiled.outputs, strict=True)
            ),
            threads=int(threads) if threads else self._threads,
            unit=unit_of(devices[0].strip("()")),
            placed={},
            precision=_precision(_property(compiled, "INFERENCE_PRECISION_HINT")),
            notes=placement_note(self._device, [name.strip("()") for name in devices]),
        )
        return compiled, request, replace(opened, placed=_placed(compiled, devices))

    def feed(self, inputs: Mapping[str, Array]) -> None:
        if self._request is None:
            raise DomainError("The session is closed.")
        require_fitting(self._ports, inputs)
        shapes = {name: tuple(array.shape) for name, array in inputs.items()}
        if any(not _fixed(entry, shapes[name]) for name, entry in self._inputs()):
            self._reshape(shapes)
            self._compiled, self._request, self.opened = self._compile(self.opened.stages[:1])
        self._fed = {name: np.array(array, order="C") for name, array in inputs.items()}
        with guarded(self._target.path, "refused the inputs of"):
            for name, entry in self._inputs():
                self._request.set_tensor(entry, ov.Tensor(self._fed[name], shared_memory=True))

    def _inputs(self) -> Iterator[tuple[str, Any]]:
        """What is compiled keeps the order of the model's inputs."""
        return zip((port.name for port in self._ports), self._compiled.inputs, strict=True)

    def step(self) -> None:
        if not self._fed:
            raise DomainError("A step was asked for before any inputs were fed.")
        request = self._request
        try:
            request.infer(share_outputs=True)  # in this thread, and no output is copied
        except Exception as error:
            raise fault_of(self._target.path, "failed to run", error) from error

    def outputs(self) -> Mapping[str, Array]:
        if not self._fed:
            return {}
        entries = zip(self._results, self._compiled.outputs, strict=True)
        return {name: np.array(self._request.get_tensor(entry).data) for name, entry in entries}

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return {}

    def close(self) -> None:
        self._request = self._compiled = self._model = self._core = None
        self._fed = {}


def _name(entry: Any) -> str:
    """The tensor's name in the file. Of several it is the operation's; one without has the operation's, too."""
    names = sorted(entry.get_names())
    own = str(entry.get_node().get_friendly_name()).removesuffix("/sink_port_0")
    return own if own in names or not names else str(names[0])


def _port(entry: Any) -> Port:
    shape = entry.get_partial_shape()
    kind = entry.get_element_type().to_dtype().name
    dims = tuple(dim.get_length() if dim.is_static else None for dim in shape) if shape.rank.is_static else (None,)
    return Port(name=_name(entry), dtype=_DTYPES.get(kind, kind), shape=dims)


def _fixed(entry: Any, shape: tuple[int, ...]) -> bool:
    """Whether it is compiled for just these sizes."""
    compiled = entry.get_partial_shape()
    return bool(compiled.is_static) and tuple(compiled.to_shape()) == shape


def _sized(ports: tuple[Port, ...], target: Target) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs with the sizes that were given for names, where the file is ONNX and has them."""
    if target.format != "onnx":
        raise DomainError(
            f"Sizes were given ({', '.join(target.sizes)}); a {target.format} file gives no names to open dims.",
            remedy="Feed arrays of the sizes wanted: the model is compiled for them.",
        )
    from inferometer.engines.onnx_nodes import load_model, require_sizes  # noqa: PLC0415 - rarely needed

    model = load_model(target.path)
    require_sizes(model, target.path, target.sizes)
    dims = {port.name: [dim.dim_param for dim in port.type.tensor_type.shape.dim] for port in model.graph.input}
    shapes = {}
    for port in ports:
        named = zip(port.shape, dims.get(port.name, []), strict=False)
        shapes[port.name] = tuple(target.sizes.get(name, -1 if dim is None else int(dim)) for dim, name in named)
    return shapes


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


_STORES = frozenset({"Constant", "Parameter"})


def _property(compiled: Any, name: str) -> Any:
    """None where the device has no such property."""
    try:
        return compiled.get_property(name)
    except RuntimeError:
        return None


def _precision(value: Any) -> str | None:
    name = value.get_type_name() if hasattr(value, "get_type_name") else None
    return str(name) if name in {"f32", "f16", "bf16"} else None


def _placed(compiled: Any, devices: list[str]) -> dict[str, int]:
    """Operations that will be executed, by device. A device that shows no runtime model is left out."""
    try:
        ops = compiled.get_runtime_model().get_ordered_ops()
    except RuntimeError:
        return {}
    skip = {"Const", "Input", "Output", "Parameter", "Result"}
    count = sum(str(info_of(op).get("layerType", "")) not in skip for op in ops)
    return {devices[0].strip("()"): count} if len(devices) == 1 else {}


def info_of(op: Any) -> dict[str, str]:
    """What the runtime model says of an operation."""
    return {key: str(value.astype(str)) for key, value in op.get_rt_info().items()}
