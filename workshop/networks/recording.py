# mypy: disable-error-code="misc, no-untyped-call"
# (torch may be absent where types are checked: its classes are then of no known type)
"""A quick trace for the many networks of an archive: what torch.export finds, at a twentieth of its price.

torch.export interprets a module to prove what holds for every input. With every size fixed nothing needs a proof: the
module is run on the meta device, where nothing is computed, and each operator that torch is given is written down
before it is taken apart. This leans on torch's internals, so only the building of the archive uses it, which compares
it with torch.export (`build --check`).
"""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher, no_python_dispatcher
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from inferometer.core.graph import Graph
from inferometer.formats.torch.convert import program_graph
from inferometer.formats.torch.program import (
    Argument,
    HeldInput,
    Program,
    ProgramBody,
    ProgramCall,
    ProgramValue,
    Ref,
    format_of,
    named_arguments,
)

_NOTHING = frozenset({"aten.detach.default", "aten.detach_.default", "prim.device.default"})


def recorded(module: Any, inputs: tuple[Any, ...], *, name: str) -> Graph:
    """The graph of a module on the meta device, from one run of it."""
    recorder = _Recorder(module)
    for argument, tensor in zip(inspect.signature(module.forward).parameters, inputs, strict=False):
        recorder.given(argument, tensor)
    with torch.no_grad(), recorder.paths(), enable_python_dispatcher(), recorder:
        result = module(*inputs)
    return program_graph(recorder.program(name, result))


class _Recorder(ProxyTorchDispatchMode):
    """Sees operators before they are taken apart. Only modes of this class are let in there."""

    def __init__(self, module: Any) -> None:
        TorchDispatchMode.__init__(self, torch._C.DispatchKey.PreDispatch)  # noqa: SLF001 - see the docstring above
        self._mode_key = torch._C._TorchDispatchModeKey.PROXY  # noqa: SLF001 - as above
        self.pre_dispatch = True
        self.enter_stack: list[Any] = []
        self.names: dict[int, str] = {}
        self.kept: list[Any] = []  # a tensor that is gone would leave its id to another
        self.values: dict[str, ProgramValue] = {}
        self.held: dict[str, HeldInput] = {}
        self.inputs: list[str] = []
        self.calls: list[ProgramCall] = []
        self.stack: list[str] = [""]
        self.places = {id(inner): path for path, inner in module.named_modules()}
        self._hold(module)

    def _hold(self, module: Any) -> None:
        for path, tensor in module.named_parameters():
            self._held(path, tensor, "weight")
        for path, tensor in module.named_buffers():
            self._held(path, tensor, "constant")
        for path, inner in module.named_modules():
            for key, tensor in vars(inner).items():
                if isinstance(tensor, torch.Tensor) and id(tensor) not in self.names:
                    self._held(f"{path}.{key}".lstrip("."), tensor, "constant")

    def _held(self, path: str, tensor: Any, role: Any) -> None:
        name = f"p_{len(self.held)}"
        self._name(name, tensor)
        self.held[name] = HeldInput(name=path.replace("{}", "{ }"), role=role)

    def given(self, name: str, tensor: Any) -> None:
        self._name(name, tensor)
        self.inputs.append(name)

    def _name(self, name: str, tensor: Any) -> None:
        self.names[id(tensor)] = name
        self.kept.append(tensor)
        self.values[name] = ProgramValue(
            shape=tuple(map(int, tensor.shape)),
            dtype=format_of(str(tensor.dtype).removeprefix("torch."), tensor.dtype.itemsize),
            strides=tuple(map(int, tensor.stride())),
        )

    def paths(self) -> Any:
        """While it is open, the stack says which module runs."""
        return _Hooks(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        with no_python_dispatcher():  # the kernels for shapes that are written in C++ are ten times as quick
            result = func(*args, **kwargs)
        target = str(func)
        if target in _NOTHING:
            if isinstance(result, torch.Tensor) and id(args[0]) in self.names:
                self.names[id(result)] = self.names[id(args[0])]
                self.kept.append(result)
            return result
        arguments = [self._argument(value) for value in (*args, *kwargs.values())]
        number, label = len(self.calls), func._schema.name.rpartition("::")[2]  # noqa: SLF001 - torch's own public name of an operator
        outputs = []
        for index, tensor in enumerate(_tensors(result)):
            name = f"{label}_{number}#{index}"
            self._name(name, tensor)
            outputs.append(name)
        known = [argument.name for argument in func._schema.arguments]  # noqa: SLF001 - as above
        names = [*known[: len(args)], *kwargs]
        self.calls.append(
            ProgramCall(
                name=f"{label}_{number}",
                target=target,
                arguments=named_arguments(names, arguments),
                outputs=tuple(outputs),
                path=self.stack[-1],
            )
        )
        return result

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.names:
                self._held(f"lifted_tensor_{len(self.held)}", value, "constant")
            return Ref(self.names[id(value)])
        if isinstance(value, bool | int | float | str) or value is None:
            return value
        if isinstance(value, list | tuple):
            return tuple(map(self._argument, value))
        if isinstance(value, torch.dtype):
            return format_of(str(value).removeprefix("torch."), value.itemsize)
        return None  # devices, layouts: they say nothing about the work

    def program(self, name: str, result: Any) -> Program:
        outputs = tuple(self.names[id(tensor)] for tensor in _tensors(result))
        body = ProgramBody(inputs=tuple(self.inputs), outputs=outputs, calls=tuple(self.calls), values=self.values)
        return Program(name=name, body=body, held=self.held)


class _Hooks:
    """Keeps the recorder's stack of modules while the module runs."""

    def __init__(self, recorder: _Recorder) -> None:
        self.recorder = recorder
        self.hooks: list[Any] = []

    def __enter__(self) -> None:
        places, stack = self.recorder.places, self.recorder.stack

        def enter(module: Any, _inputs: Any) -> None:
            stack.append(places.get(id(module), stack[-1]))

        def leave(_module: Any, _inputs: Any, _outputs: Any) -> None:
            stack.pop()

        self.hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
