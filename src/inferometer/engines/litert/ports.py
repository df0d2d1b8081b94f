"""Inputs and outputs of a TFLite file, and what is wrong with what was given for them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Port
from inferometer.engines.feeding import require_fitting


@frozen
class FileTensor:
    """A tensor of the file. `signature` has −1 where the size is open, `shape` the size it has now."""

    name: str
    index: int
    dtype: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]

    def port(self) -> Port:
        return Port(name=self.name, dtype=self.dtype, shape=tuple(None if dim < 0 else dim for dim in self.signature))


def tensors_of(details: Sequence[Mapping[str, Any]]) -> tuple[FileTensor, ...]:
    """From the interpreter's details of its inputs or outputs. A number distinguishes two of one name."""
    names = [str(detail["name"]) for detail in details]
    tensors = []
    for detail, name in zip(details, names, strict=True):
        shape = tuple(int(dim) for dim in detail["shape"])
        signature = tuple(int(dim) for dim in detail.get("shape_signature", ()))
        tensors.append(
            FileTensor(
                name=name if names.count(name) == 1 else f"{name}:{detail['index']}",
                index=int(detail["index"]),
                dtype=_dtype_name(detail["dtype"]),
                shape=shape,
                signature=signature if len(signature) == len(shape) else shape,
            )
        )
    return tuple(tensors)


def _dtype_name(dtype: Any) -> str:
    name: str = np.dtype(dtype).name
    return name


def concrete(tensor: FileTensor, *, batch: int, asked: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """The shape to open an input with: what is asked for, else the batch on an open first axis and 1 on the others."""
    if asked is not None and len(asked) != len(tensor.shape):
        raise DomainError(
            f"The input {tensor.name!r} has {len(tensor.shape)} axes in the file; {list(asked)} was asked for."
        )
    shape = []
    for axis, (dim, now) in enumerate(zip(tensor.signature, tensor.shape, strict=True)):
        wanted = None if asked is None else asked[axis]
        if dim >= 0:
            if wanted not in {None, dim}:
                raise DomainError(f"Axis {axis} of the input {tensor.name!r} is {dim} in the file, not {wanted}.")
            shape.append(dim)
        else:
            shape.append(wanted or (batch if axis == 0 and batch > 1 else max(1, now)))
    if batch > 1 and (not shape or shape[0] != batch):
        raise DomainError(
            f"A batch of {batch} was asked for; the input {tensor.name!r} is {list(tensor.signature)} in the file.",
            remedy="Use the batch of the file, or export the model with an open first axis.",
        )
    return tuple(shape)


def check_inputs(wanted: Sequence[FileTensor], given: Mapping[str, np.ndarray[Any, Any]]) -> None:
    require_fitting([tensor.port() for tensor in wanted], given)
    for name, array in given.items():
        if not array.size:
            raise DomainError(f"The input {name!r} has the shape {list(array.shape)}: it holds nothing.")
