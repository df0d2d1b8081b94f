"""Opens ncnn's files. Its wheels have no timers of their own, so layers are timed by asking for one after the other.

An extractor computes what a blob needs and keeps what it has. Asking for every layer's result in the order of the file
runs each layer once, in the layout and format that it would have anyway; what the asking itself costs is measured on a
result that is there already.
"""

import os
import time
from collections.abc import Callable, Mapping, MutableMapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from inferometer.core.errors import DomainError, EngineError
from inferometer.engines.base import Kernel, Opened, Port, Stage, Target
from inferometer.engines.feeding import alive, require_arrays_on_cpu, require_fitting
from inferometer.engines.host import captured_stderr, threads_of

Array = np.ndarray[Any, Any]

_AS_IT_IS = 1  # `extract` in the layer's own layout and format
_LOOK_S, _HALF_A_CORE = 0.05, 0.5  # at how busy the cores are, and by how much they must lack one
_ASKED = 200  # times that a result is asked for again, to see what asking costs


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> "NcnnSession":
    _check(target, name)
    threads = threads_of(target.threads)
    _wait_asleep(threads, os.environ)  # noqa: TID251 - no setting of ours: what the library itself reads
    import ncnn  # noqa: PLC0415 - the engine is imported when a model is opened

    # by default as ncnn decides: in f16 where the processor computes in it
    able = bool(getattr(ncnn, "cpu_support_arm_asimdhp", lambda: 0)())
    if target.precision == "f16" and not able:
        raise EngineError("ncnn computes in f16 only on Arm processors that do.", remedy="Ask for f32.")
    half = able if target.precision is None else target.precision == "f16"
    start = clock()
    net = ncnn.Net()
    net.opt.num_threads = threads
    net.opt.lightmode = True
    for option in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"):
        setattr(net.opt, option, half)
    with captured_stderr() as printed:
        wrong = net.load_param(str(target.path)) or net.load_model(str(target.path.with_suffix(".bin")))
        words = " ".join(printed().split())
    if wrong:
        raise _refused(target.path, words)
    loaded = clock() - start
    inputs = tuple(_port(blob, target) for blob in net.input_names())
    opened = Opened(
        stages=(Stage(name="load", seconds=loaded),),
        versions={"ncnn": version("ncnn")},
        inputs=inputs,
        outputs=_outputs(net, inputs),
        threads=threads,
        placed={"cpu": len(net.layers())},
        precision="f16" if half else "f32",
        sums="f16" if half else None,
    )
    return NcnnSession(net, opened, target, clock)


def _refused(path: Path, words: str) -> EngineError:
    remedy = "A layer that it does not know must go: pnnx names it, and newer versions of ncnn know more."
    if "ModelBin" in words or "load_model" in words:
        remedy = (
            f"{path.with_suffix('.bin').name!r} is cut short, or belongs to another network: fetch or convert both."
        )
    return EngineError(f"ncnn refused {str(path)!r}: {words or 'it gave no reason'}.", remedy=remedy)


def _wait_asleep(
    threads: int, environment: MutableMapping[str, str], busy: Callable[[float], float] = psutil.cpu_percent
) -> None:
    """Where other programs leave fewer cores than threads, let threads that wait for each other sleep.

    The wheel has GNU's OpenMP, whose threads spin at every barrier 300,000 times, or 1,000 times if there are more of
    them than cores; ncnn's own `openmp_blocktime` is for LLVM's. Beside one busy program on two cores a step that takes
    1.8 ms with one thread took 85 ms with two, and 2.4 ms with threads that sleep. It is read when the library loads.
    """
    cores = psutil.cpu_count() or threads
    if threads > 1 and cores * (1 - busy(_LOOK_S) / 100) < threads - _HALF_A_CORE:
        environment.setdefault("GOMP_SPINCOUNT", "1000")


def _check(target: Target, name: str) -> None:
    require_arrays_on_cpu(target, name, "ncnn", listing="It has none: choose threads and precision.")
    for path in (target.path, target.path.with_suffix(".bin")):
        if not path.is_file():
            raise EngineError(
                f"{name} was given {str(target.path)!r}, and {path.name!r} is no file.",
                remedy="Give the .param file, with its .bin file beside it.",
            )
    if target.batch != 1:
        raise DomainError(f"ncnn runs one input at a time, and {target.batch} were asked for.", remedy="Batch 1.")


def _port(blob: str, target: Target) -> Port:
    shape = target.shapes.get(blob) or _stated(target.path, blob)
    if shape is None:
        raise EngineError(
            f"{target.path.name!r} does not say the sizes of its input {blob!r}.",
            remedy="Give them with --size or --image, or write them into the Input layer: 0=WIDTH 1=HEIGHT 2=CHANNELS.",
        )
    return Port(name=blob, dtype="float32", shape=tuple(shape))


def _outputs(net: Any, inputs: tuple[Port, ...]) -> tuple[Port, ...]:
    """Ncnn says how large results are only once it has them: zeros go through the network once."""
    import ncnn  # noqa: PLC0415 - as above

    extractor = net.create_extractor()
    zeros = [np.zeros([size for size in port.shape[1:] if isinstance(size, int)], np.float32) for port in inputs]
    for port, array in zip(inputs, zeros, strict=True):
        extractor.input(port.name, ncnn.Mat(array).clone())
    ports = []
    for name in net.output_names():
        failed, mat = extractor.extract(name)
        if failed:
            raise EngineError(f"ncnn cannot compute {name!r} of inputs of these sizes.", remedy="Check the sizes.")
        ports.append(Port(name=name, dtype="float32", shape=(1, *np.array(mat).shape)))
    return tuple(ports)


def _stated(path: Path, blob: str) -> tuple[int, ...] | None:
    """The sizes that the file's Input layer has: width, height, depth and channels, the innermost first."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if words[:1] == ["Input"] and blob in words[4:]:
            given = dict(word.split("=", 1) for word in words[5:] if "=" in word)
            sizes = [int(given.get(key, "0")) for key in ("2", "11", "1", "0")]
            return (1, *(size for size in sizes if size > 0)) if any(sizes) else None
    return None


class NcnnSession:
    """A Session. A step is one extractor: the inputs put in, every output asked for."""

    def __init__(self, net: Any, opened: Opened, target: Target, clock: Callable[[], float]) -> None:
        # What lies in the network's memory stands before the network, so that it goes first if nobody closes.
        self._fed: dict[str, Any] = {}
        self._found: dict[str, Any] = {}
        self.opened, self._net, self._clock = opened, net, clock
        self._asked = tuple(port.name for port in opened.outputs)
        self._layers = _layers(net, target) if target.instrument else ()
        self._samples: list[list[float]] = [[] for _ in self._layers]
        self.cost_per_kernel_s: float | None = None

    def feed(self, inputs: Mapping[str, Array]) -> None:
        import ncnn  # noqa: PLC0415 - the engine is there by now

        alive(self._net)
        require_fitting(self.opened.inputs, inputs)
        # ncnn has no batch, and aligns channels: a copy has its layout. A Mat does not keep the array that it is made
        # of, which has to live until it is copied.
        rows = {name: np.ascontiguousarray(array[0]) for name, array in inputs.items()}
        self._fed = {name: ncnn.Mat(row).clone() for name, row in rows.items()}

    def step(self) -> None:
        """Errors are raised here: their traceback must not keep an extractor longer than the network."""
        missing = self._run()
        if missing is not None:
            raise EngineError(f"ncnn failed in a step: it could not compute {missing!r}.")

    def _run(self) -> str | None:
        """Run once, and give the name of the result that could not be computed, if there is one."""
        extractor = alive(self._net).create_extractor()
        for name, mat in self._fed.items():
            extractor.input(name, mat)
        missing = self._step_by_step(extractor) if self._layers else None
        for name in self._asked if missing is None else ():
            failed, mat = extractor.extract(name)
            if failed:
                return name
            self._found[name] = mat
        return missing

    def _step_by_step(self, extractor: Any) -> str | None:
        clock, extract = self._clock, extractor.extract
        for (kernel, blob), samples in zip(self._layers, self._samples, strict=True):
            start = clock()
            failed = extract(blob, _AS_IT_IS)[0]
            samples.append(clock() - start)
            if failed:
                return kernel.name
        if self.cost_per_kernel_s is None:
            self.cost_per_kernel_s = self._cost(extractor, self._layers[-1][1])
        return None

    def _cost(self, extractor: Any, blob: int) -> float:
        times = []
        for _ in range(_ASKED):
            start = self._clock()
            extractor.extract(blob, _AS_IT_IS)
            times.append(self._clock() - start)
        return median(times)

    def outputs(self) -> Mapping[str, Array]:
        alive(self._net)
        return {name: np.array(mat)[None] for name, mat in self._found.items()}

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        if not self._layers or not self._samples[0]:
            return {}
        kernels = tuple(
            Kernel(name=kernel.name, kind=kernel.kind, samples_s=tuple(samples), layers=kernel.layers, provider="cpu")
            for (kernel, _), samples in zip(self._layers, self._samples, strict=True)
        )
        self._samples = [[] for _ in self._layers]
        return {"forward": kernels}

    def close(self) -> None:
        # What lies in the network's own memory goes before the network does: the other order may hang.
        self._fed, self._found = {}, {}
        self._net = None


def _layers(net: Any, target: Target) -> tuple[tuple[Kernel, int], ...]:
    """What is asked for, in order: a layer by its first result. What goes in is there already."""
    nodes: dict[str, list[str]] = {}
    for node in target.nodes:
        nodes.setdefault(node.name.split("/", 1)[0], []).append(node.name)
    return tuple(
        (
            Kernel(
                name=layer.name,
                kind=layer.type,
                samples_s=(),
                layers=tuple(nodes.get(layer.name.split("/", 1)[0], ())) if target.nodes else (layer.name,),
            ),
            int(layer.tops[0]),
        )
        for layer in net.layers()
        if layer.type not in {"Input", "MemoryData"} and layer.tops
    )
