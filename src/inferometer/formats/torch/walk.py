"""From an exported program in memory to a `Program`. It looks at torch's objects and needs no torch to do so."""

from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.core.dims import Dim
from inferometer.formats.torch.body import module_path, name_symbols, parse_size
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

_ROLES = {"PARAMETER": "weight", "BUFFER": "constant", "CONSTANT_TENSOR": "constant"}


def program_of(exported: Any, *, name: str, given: Mapping[tuple[str, int], str] | None = None) -> Program:
    """`exported` is a torch.export.ExportedProgram; `given` names axes of its inputs."""
    signature = exported.graph_signature
    users = list(signature.user_inputs)
    raw = _Walker(sizes={})
    nodes = {node.name: node for node in exported.graph.nodes}
    tensors = [(user, nodes[user]) for user in users if isinstance(user, str) and _is_tensor(_meta(nodes.get(user)))]
    ours, explained = name_symbols([(user, raw.value(_meta(node))) for user, node in tensors], given)
    walker = _Walker(sizes=ours)
    body = walker.body(exported.graph_module)
    outputs = [output for output in signature.user_outputs if isinstance(output, str) and output in body.values]
    return Program(
        name=name,
        body=ProgramBody(
            inputs=tuple(user for user, _ in tensors), outputs=tuple(outputs), calls=body.calls, values=body.values
        ),
        held=_held(exported, body.values),
        mutated=frozenset(signature.buffers_to_mutate.values()),
        metadata={"symbols": explained, "size_names": {theirs: str(symbol) for theirs, symbol in ours.items()}},
    )


def _held(exported: Any, values: Mapping[str, ProgramValue]) -> dict[str, HeldInput]:
    """The module's own tensors. Tied ones are the same object under two names; the first name is kept."""
    tensors = {**exported.constants, **exported.state_dict}
    held: dict[str, HeldInput] = {}
    first: dict[int, str] = {}
    for spec in exported.graph_signature.input_specs:
        role = _ROLES.get(spec.kind.name)
        argument = getattr(spec.arg, "name", None)
        if role is None or not isinstance(argument, str) or argument not in values:
            continue
        tensor = tensors.get(spec.target)
        name = str(spec.target).replace("{}", "{ }")
        shared = first.setdefault(id(tensor), name) if tensor is not None else name
        held[argument] = HeldInput(name=shared, role="weight" if role == "weight" else "constant")
    return held


def _meta(node: Any) -> Any:
    return None if node is None else node.meta.get("val")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "stride")


def _is_symbolic(value: Any) -> bool:
    return hasattr(getattr(value, "node", None), "expr")


class _Walker:
    """Reads graph modules; `sizes` are our names for torch's symbols."""

    def __init__(self, sizes: Mapping[str, Dim]) -> None:
        self._sizes = sizes
        self._parsed: dict[Any, Dim] = {}

    def size(self, size: Any) -> Dim:
        if not _is_symbolic(size):
            return int(size)
        expression = size.node.expr
        if expression not in self._parsed:
            self._parsed[expression] = parse_size(str(expression), self._sizes)
        return self._parsed[expression]

    def value(self, tensor: Any) -> ProgramValue:
        try:
            strides: tuple[Dim, ...] | None = tuple(self.size(stride) for stride in tensor.stride())
        except (RuntimeError, TypeError):  # sparse and nested tensors have none
            strides = None
        return ProgramValue(
            shape=tuple(self.size(size) for size in tensor.shape),
            dtype=format_of(str(tensor.dtype).removeprefix("torch."), tensor.dtype.itemsize),
            strides=strides,
        )

    def body(self, module: Any) -> ProgramBody:
        values: dict[str, ProgramValue] = {}
        calls: list[ProgramCall] = []
        inputs: list[str] = []
        outputs: list[str] = []
        for node in module.graph.nodes:
            values |= {name: self.value(tensor) for name, tensor in _tensors(node)}
            if node.op == "placeholder" and _is_tensor(_meta(node)):
                inputs.append(node.name)
            elif node.op == "output":
                outputs += [result.name for result in _nodes(node.args) if result.name in values]
            elif node.op == "call_function" and not _is_item(node):
                calls.append(self.call(node, module))
        return ProgramBody(inputs=tuple(inputs), outputs=tuple(outputs), calls=tuple(calls), values=values)

    def call(self, node: Any, module: Any) -> ProgramCall:
        schema = getattr(node.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema else []
        names = [*names[: len(node.args)], *[""] * (len(node.args) - len(names)), *node.kwargs]
        arguments = [self.argument(found, module) for found in (*node.args, *node.kwargs.values())]
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = module_path(f",{stack[-1][0]},").replace("{}", "{ }") if stack else ""
        return ProgramCall(
            name=node.name,
            target=_target(node.target),
            arguments=named_arguments(names, arguments),
            outputs=tuple(name for name, _ in _tensors(node)),
            path=path,
        )

    def argument(self, argument: Any, module: Any) -> Argument:
        if isinstance(argument, bool | int | float | str) or argument is None:
            return argument
        if isinstance(argument, list | tuple):
            return tuple(self.argument(item, module) for item in argument)
        if hasattr(argument, "op") and hasattr(argument, "meta"):
            return self._node(argument, module)
        if type(argument).__name__ == "dtype":
            return format_of(str(argument).removeprefix("torch."), argument.itemsize)
        return None  # devices, layouts, generators: they say nothing about the work

    def _node(self, node: Any, module: Any) -> Argument:
        if node.op == "get_attr" and hasattr(inner := _attribute(module, node.target), "graph"):
            return self.body(inner)
        value = _meta(node)
        if _is_tensor(value):
            return Ref(node.name)
        if isinstance(value, list | tuple):  # all results of a call at once
            return tuple(Ref(name) for name, _ in _tensors(node))
        return self.size(value) if _is_symbolic(value) else value if isinstance(value, bool | int | float) else None


def _tensors(node: Any) -> list[tuple[str, Any]]:
    """The tensors a node makes with their names. Of several each is named by the node that takes it out."""
    value = _meta(node)
    if _is_item(node):
        return []
    if _is_tensor(value):
        return [(node.name, value)]
    if not isinstance(value, list | tuple):
        return []
    taken = {user.args[1]: user.name for user in node.users if _is_item(user)}
    return [(taken.get(index, f"{node.name}#{index}"), item) for index, item in enumerate(value) if _is_tensor(item)]


def _is_item(node: Any) -> bool:
    """Whether a node takes one result out of a call's several."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem" and (
        isinstance(_meta(node.args[0]), list | tuple)
    )  # fmt: skip


def _nodes(argument: Any) -> Iterator[Any]:
    if isinstance(argument, list | tuple):
        for item in argument:
            yield from _nodes(item)
    elif hasattr(argument, "op"):
        yield argument


def _attribute(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part, None)
    return module


def _target(target: Any) -> str:
    """`aten.add.Tensor`, `higher_order.cond`, `_operator.add`."""
    if hasattr(target, "_schema"):
        return str(target)
    if any(base.__name__ == "HigherOrderOperator" for base in type(target).__mro__):
        return f"higher_order.{target.name()}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"
