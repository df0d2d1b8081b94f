"""Ops under their modules' names: `model.layers.0.mlp.up_proj` instead of `linear_4`.

A module that computes one thing gives its name to it. Where it computes several, the operator's name follows; the
second of a name is `add_1`, counted within the module, so that equal layers have equal names but for their index.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Tensor
from inferometer.formats.torch.scope import PlacedOp

_FLOWING = frozenset({"activation", "index"})


@frozen
class NamedProgram:
    placed: tuple[PlacedOp, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def with_module_names(placed: list[PlacedOp], inputs: list[Tensor], outputs: list[Tensor]) -> NamedProgram:
    names = _op_names(placed, taken={tensor.name for tensor in inputs})
    tensors = _tensor_names(placed, names)

    def tensor(found: Tensor) -> Tensor:
        return replace(found, name=tensors.get(found.name, found.name)) if found.role in _FLOWING else found

    def placed_as(entry: PlacedOp, name: str) -> PlacedOp:
        op = replace(entry.op, name=name)
        return replace(entry, op=rewritten(op, tensor, name_of=lambda inner: f"{name}.{inner}"))

    renamed = tuple(placed_as(entry, name) for entry, name in zip(placed, names, strict=True))
    constants = _lifted(renamed)

    def weight(found: Tensor) -> Tensor:
        return replace(found, name=constants[found.name]) if found.name in constants else found

    return NamedProgram(
        placed=tuple(replace(entry, op=rewritten(entry.op, weight)) for entry in renamed) if constants else renamed,
        inputs=tuple(inputs),
        outputs=tuple(tensor(found) for found in outputs),
    )


def rewritten(op: Op, tensor: Callable[[Tensor], Tensor], *, name_of: Callable[[str], str] | None = None) -> Op:
    """The op with every tensor, those of its bodies too, passed through `tensor`; inner ops renamed by `name_of`."""
    attributes = op.attributes
    if "bodies" in attributes:
        bodies = tuple(
            tuple(
                rewritten(replace(inner, name=name_of(inner.name) if name_of else inner.name), tensor) for inner in body
            )
            for body in attributes["bodies"]
        )
        attributes = {**attributes, "bodies": bodies}
    return replace(
        op,
        inputs=tuple(tensor(found) for found in op.inputs),
        outputs=tuple(tensor(found) for found in op.outputs),
        weights=tuple(tensor(found) for found in op.weights),
        attributes=attributes,
    )


def _op_names(placed: list[PlacedOp], *, taken: set[str]) -> list[str]:
    alone = Counter(entry.path for entry in placed)
    parents: set[str] = set()
    for path in alone:
        parts = path.split(".")
        parents |= {".".join(parts[:length]) for length in range(len(parts))}
    seen: Counter[str] = Counter()
    names: list[str] = []
    for entry in placed:
        sole = entry.path and alone[entry.path] == 1 and entry.path not in parents
        stem = entry.path if sole else f"{entry.path}.{entry.label}" if entry.path else entry.label
        name = stem
        while name in taken:
            seen[stem] += 1
            name = f"{stem}_{seen[stem]}"
        taken.add(name)
        names.append(name)
    return names


def _tensor_names(placed: list[PlacedOp], names: list[str]) -> Mapping[str, str]:
    """A tensor is called like the op that makes it; of several, by its place too."""
    renamed: dict[str, str] = {}
    for entry, name in zip(placed, names, strict=True):
        several = len(entry.op.outputs) > 1
        for index, tensor in enumerate(entry.op.outputs):
            if tensor.role == "activation":
                renamed[tensor.name] = f"{name}.{index}" if several else name
    return renamed


def _lifted(placed: Iterable[PlacedOp]) -> dict[str, str]:
    """Constants that tracing has numbered, called by the op that first uses them: a layer's own, layer after layer."""
    renamed: dict[str, str] = {}
    for entry in placed:
        for weight in entry.op.weights:
            if weight.name.startswith(("lifted_tensor_", "_lifted_tensor")) and weight.role == "constant":
                renamed.setdefault(weight.name, f"{entry.op.name}.constant")
    return renamed
