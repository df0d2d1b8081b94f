"""Graphs as PyTorch modules: probes of networks that no library builds from a config.

Every op is a module under its own name, so that a profiler's times of modules are those of ops. What torchvision does
in place is done in place: on a CPU, new memory costs as much as the work on it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from inferometer.core.dims import evaluate
from inferometer.core.errors import EngineError
from inferometer.engines.base import Port, Runtime, Session, Stage, Target, TextSession
from inferometer.engines.host import threads_of
from inferometer.known.engines import runtime_effects
from inferometer.measure.calibrate.probes.models import Probe, ProbeRun, graph_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from inferometer.core.engine import Execution
    from inferometer.core.graph import Graph, Op, Tensor

_IN_PLACE = frozenset({"relu", "relu6", "hardswish", "hardsigmoid", "silu"})  # what PyTorch can write over its input
_CHANNELS_LAST, _CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def open_probe(runtime: Runtime, target: Target, probe: Probe, run: ProbeRun) -> Session | TextSession:
    """Open a probe: image networks as graphs, text networks as transformers builds them from their config."""
    if run.image is None:
        return runtime.open(target)
    execution = runtime_effects(runtime.name).execution
    return open_graph(target, graph_of(probe), {"image": run.image}, execution=execution)


def open_graph(target: Target, graph: Graph, sizes: Mapping[str, int], *, execution: Execution = "launched") -> Session:
    """A session of the graph with random weights, as the runtime opens those of models it knows."""
    from inferometer.engines.torch.arrays import Arrays  # noqa: PLC0415 - brings torch
    from inferometer.engines.torch.engine import Threads, choose_device, import_torch  # noqa: PLC0415
    from inferometer.engines.torch.host import TorchHost  # noqa: PLC0415 - as above
    from inferometer.engines.torch.modules import Module, seeded  # noqa: PLC0415 - as above

    torch = import_torch()
    place = choose_device(target, torch)
    threads = Threads(torch, threads_of(target.threads))
    try:
        with seeded(torch, target.seed):
            model = module_of(torch, graph, sizes).to(place.device).eval()
        ports = tuple(Port(name=tensor.name, dtype="float32", shape=_open(tensor, sizes)) for tensor in graph.inputs)
        module = Module(model=model, precision="f32", inputs=ports, positional=True)
        host = TorchHost(
            torch=torch, target=target, place=place, module=module, threads=threads,
            paid=(Stage(name="load", seconds=0.0),), execution=execution,
        )  # fmt: skip
    except BaseException:
        threads.close()
        raise
    return Arrays(host, execution=execution)


def _open(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int | str, ...]:
    """The shape of an input, its batch left open until it is fed."""
    first, *rest = tensor.shape
    return ("batch", *(int(evaluate(dim, sizes)) for dim in rest)) if tensor.shape else (str(first),)


def module_of(torch: Any, graph: Graph, sizes: Mapping[str, int]) -> Any:
    """The graph as one module of modules. `sizes` are the open sizes, without the batch."""
    for _, op in graph.ops():
        if op.kind not in _MAKERS:
            raise EngineError(f"A probe has the op {op.name} ({op.kind}), which cannot be built in PyTorch here.")
    steps, result = _steps(graph)
    last = {name: index for index, step in enumerate(steps) for name in step.inputs} | {result: len(steps)}
    root = torch.nn.Module()
    for step in sorted(steps, key=lambda step: step.name.count(".")):  # an op inside another comes after it
        _hang(torch, root, step.name, _MAKERS[step.op.kind](torch, step.op, {**sizes, "batch": 1}))
    for index, step in enumerate(steps):
        step.module = root.get_submodule(step.name)
        step.spent = tuple(name for name in dict.fromkeys(step.inputs) if last[name] == index)
    return _whole(root, steps, graph.inputs[0].name, result)


class _OpCall:
    """One op in the order of execution: the names it reads and writes, and the names whose last reader it is."""

    __slots__ = ("inputs", "module", "name", "op", "output", "spent")

    def __init__(self, *, op: Op, name: str, inputs: tuple[str, ...], output: str) -> None:
        self.op, self.name, self.inputs, self.output = op, name, inputs, output
        self.module: Any = None
        self.spent: tuple[str, ...] = ()


def _steps(graph: Graph) -> tuple[list[_OpCall], str]:
    """Every op in order, and the name of the result. Names that repetitions share are numbered."""
    now = {graph.inputs[0].name: graph.inputs[0].name}
    steps: list[_OpCall] = []
    for block in graph.blocks:
        for number in range(block.count):
            for op in block.ops:
                inputs = tuple(now[block.full_name(tensor.name, number)] for tensor in op.inputs)
                given = block.full_name(op.outputs[0].name, number)
                now[given] = f"{given}@{len(steps)}"
                name = block.full_name(op.name, number)
                steps.append(_OpCall(op=op, name=name, inputs=inputs, output=now[given]))
    return steps, now[graph.outputs[0].name]


def _hang(torch: Any, root: Any, name: str, module: Any) -> None:
    """Put the module at its place in the tree, and create what lies between."""
    *path, last = name.split(".")
    for part in path:
        if part not in root._modules:  # noqa: SLF001 - `hasattr` would also find methods of the same name
            root.add_module(part, torch.nn.Module())
        root = root._modules[part]  # noqa: SLF001 - as above
    root.add_module(last, module)


def _whole(root: Any, steps: Sequence[_OpCall], first: str, result: str) -> Any:
    def forward(x: Any) -> Any:
        values = {first: x}
        for step in steps:
            taken = [values[name] for name in step.inputs]
            for name in step.spent:
                del values[name]
            values[step.output] = step.module(*taken)
            taken.clear()
        return values[result]

    # Whether an op may overwrite what it reads is known only here: nothing reads it later, and it is not the input.
    for step in steps:
        own = [name in step.spent and name != first for name in step.inputs]
        if hasattr(step.module, "inplace"):
            step.module.inplace = own[0] and step.op.get("function") in _IN_PLACE
        if hasattr(step.module, "over"):
            step.module.over = tuple(own)
    root.forward = forward
    return root


def _shape(op: Op, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(evaluate(dim, sizes)) for dim in op.outputs[0].shape)


def _convolution(torch: Any, op: Op, _sizes: Mapping[str, int]) -> Any:
    return torch.nn.Conv2d(
        op["in_channels"], op["out_channels"], op["kernel"], stride=op["strides"], padding=op["padding"],
        dilation=op["dilations"], groups=op["groups"], bias=len(op.weights) > 1,
    )  # fmt: skip


def _norm(torch: Any, op: Op, _sizes: Mapping[str, int]) -> Any:
    features = op["features"]
    if op["norm"] == "batch":
        return torch.nn.BatchNorm2d(features)
    norm = torch.nn.LayerNorm(features)
    if len(op.inputs[0].shape) == 4 and op.inputs[0].shape[1] == features:  # the channels of a plane
        plain = norm.forward
        norm.forward = lambda x: plain(x.permute(*_CHANNELS_LAST)).permute(*_CHANNELS_FIRST)
    return norm


def _activation(torch: Any, op: Op, _sizes: Mapping[str, int]) -> Any:
    names = {"relu": "ReLU", "relu6": "ReLU6", "hardswish": "Hardswish", "hardsigmoid": "Hardsigmoid", "silu": "SiLU"}
    return getattr(torch.nn, names.get(op["function"]) or {"gelu": "GELU", "sigmoid": "Sigmoid"}[op["function"]])()


def _pool(torch: Any, op: Op, sizes: Mapping[str, int]) -> Any:
    shape = _shape(op, sizes)
    if op["function"] == "global" or not op.get("kernel"):
        pool = torch.nn.AdaptiveAvgPool2d(shape[2:] or 1)
        return pool if len(shape) == 4 else _calling(torch, lambda x: torch.flatten(pool(x), 1))
    kind = torch.nn.MaxPool2d if op["function"] == "max" else torch.nn.AvgPool2d
    return kind(op["kernel"], stride=op["strides"], padding=op["padding"], ceil_mode=bool(op.get("ceil")))


def _linear(torch: Any, op: Op, _sizes: Mapping[str, int]) -> Any:
    return torch.nn.Linear(op["in_features"], op["out_features"], bias=len(op.weights) > 1)


def _elementwise(torch: Any, op: Op, _sizes: Mapping[str, int]) -> Any:
    """Two inputs, or one and a weight. A sum overwrites the first of its inputs that nothing else reads."""
    if op.weights:
        weight = torch.nn.Parameter(torch.ones(*op.weights[0].shape))
        return _calling(torch, lambda x: x * weight if op["function"] == "multiply" else x + weight, weight=weight)
    if op["function"] == "multiply":
        return _calling(torch, lambda x, y: x * y)

    def add(x: Any, y: Any) -> Any:
        if module.over[0]:
            return x.add_(y)
        return y.add_(x) if module.over[1] else x + y

    module = _calling(torch, add)
    module.over = (False, False)
    return module


def _copy(torch: Any, op: Op, _sizes: Mapping[str, int]) -> Any:
    if op["function"] == "concat" and op.weights:  # a learned token before the others
        token = torch.nn.Parameter(torch.zeros(*op.weights[0].shape))
        return _calling(torch, lambda x: torch.cat((token.expand(x.shape[0], -1, -1), x), 1), token=token)
    if op["function"] == "concat":
        return _calling(torch, lambda *parts: torch.cat(parts, 1))
    channels = op.outputs[0].shape[1]
    to = _CHANNELS_FIRST if isinstance(channels, int) and channels == op.inputs[0].shape[-1] else _CHANNELS_LAST
    return _calling(torch, lambda x: x.permute(*to))


def _view(torch: Any, op: Op, sizes: Mapping[str, int]) -> Any:
    """A plane as rows, the first of the rows, or the same numbers in another shape."""
    had, shape = len(op.inputs[0].shape), _shape(op, sizes)
    if (had, len(shape)) == (4, 3):
        return _calling(torch, lambda x: x.flatten(2).transpose(1, 2))
    if (had, len(shape)) == (3, 2):
        return _calling(torch, lambda x: x[:, 0])
    return _calling(torch, partial(_reshaped, shape=shape[1:]))


def _attention(torch: Any, op: Op, _sizes: Mapping[str, int]) -> Any:
    heads = op["heads"]

    def attend(*rows: Any) -> Any:
        parts = (x.view(*x.shape[:2], heads, -1).transpose(1, 2) for x in rows)
        attended = torch.nn.functional.scaled_dot_product_attention(*parts)
        return attended.transpose(1, 2).reshape(rows[0].shape)

    return _calling(torch, attend)


def _reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x.reshape(x.shape[0], *shape)


def _calling(torch: Any, function: Callable[..., Any], **weights: Any) -> Any:
    """A module that calls a function."""
    module = torch.nn.Module()
    for name, weight in weights.items():
        module.register_parameter(name, weight)
    module.forward = function
    return module


_MAKERS: dict[str, Callable[..., Any]] = {
    "convolution": _convolution, "norm": _norm, "activation": _activation, "pool": _pool, "linear": _linear,
    "elementwise": _elementwise, "copy": _copy, "view": _view, "attention": _attention,
}  # fmt: skip
