"""Graphs of `torch.save` files and TorchScript archives: one op for each weight, since their network is code."""

from __future__ import annotations

import io
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError
from inferometer.formats.stored import Stored, tensors_graph, tensors_only
from inferometer.formats.torch.pickled import PickledTensor, is_buffer, tensors_in
from inferometer.formats.torch.reader import LEGACY_MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from inferometer.core.graph import Graph
    from inferometer.formats.trust.archive import Archive

_LARGEST_PICKLE = 256 << 20  # bytes of structure; weights lie outside of it
_LENGTH = 8  # bytes before the numbers of a storage
_LEGACY_PICKLES = 3  # a magic number, a version and the writer's types, before the object itself


def archive_graph(archive: Archive) -> Graph:
    """A zip file with `data.pkl`: what torch.save and torch.jit.save write."""
    if min(member.header_offset for member in archive.members.values()) > 0:
        raise FormatError(  # what is left of a larger file ends with the directory of an archive that lay in it
            f"{str(archive.path)!r} is damaged: its zip directory is that of another file inside it.",
            remedy="Copy or save it again.",
        )
    scripted = any(name.startswith("code/") for name in archive.members)
    member = next(name for name in archive.members if name.endswith("data.pkl"))
    data = archive.read(member, limit=_LARGEST_PICKLE)
    tensors = tensors_in(io.BytesIO(data), f"{member!r} of {str(archive.path)!r}")
    return _graph(archive.path, tensors, "torchscript" if scripted else "torch.save")


def legacy_graph(path: Path) -> Graph:
    """A file of torch.save before 1.6, or a plain pickle: pickles one after the other, and then the numbers."""
    with path.open("rb") as file:
        stream = io.BytesIO(file.read(_LARGEST_PICKLE))
    tensors: dict[str, PickledTensor] = {}
    for _ in range(_LEGACY_PICKLES + 1):
        tensors = tensors_in(stream, repr(str(path)))
        if tensors or stream.tell() == len(stream.getbuffer()):
            break
    if stream.getbuffer()[: len(LEGACY_MAGIC)] == LEGACY_MAGIC:  # a plain pickle has its numbers inside
        tensors_in(stream, repr(str(path)))  # the names of the storages
        _require_numbers(path, tensors.values(), path.stat().st_size - stream.tell())
    return _graph(path, tensors, "torch.save")


def _require_numbers(path: Path, tensors: Iterable[PickledTensor], left: int) -> None:
    """After the pickles come the storages: a length each, and as many numbers as the tensors in it reach."""
    storages: dict[str, int] = {}
    for tensor in tensors:
        if tensor.dtype is not None:
            reached = int(dtype(tensor.dtype).nbytes(tensor.offset + prod(tensor.shape)))
            storages[tensor.storage] = max(storages.get(tensor.storage, 0), reached)
    needed = sum(_LENGTH + size for size in storages.values())
    if left < needed:
        raise FormatError(
            f"{str(path)!r} is cut short: {left:,} bytes are left for tensors of {needed:,}.",
            remedy="Copy or save it again.",
        )


def _graph(path: Path, tensors: Mapping[str, PickledTensor], form: str) -> Graph:
    if not tensors:
        raise FormatError(
            f"{str(path)!r} is a pickle without tensors: there is nothing to count in it.",
            remedy="Save the model with torch.export.save, or its weights with safetensors.",
        )
    unique: dict[tuple[str, int, tuple[int, ...]], str] = {}
    for name, tensor in tensors.items():
        unique.setdefault((tensor.storage, tensor.offset, tensor.shape), name)
    kept = [(name, tensors[name]) for name in unique.values()]
    learned = [_stored(name, tensor) for name, tensor in kept if not is_buffer(name)]
    what = "TorchScript archive" if form == "torchscript" else "torch.save file"
    note = tensors_only(f"A {what} is a pickle, whose code is not run")
    graph = tensors_graph(path.stem, learned, norm="layer")
    return replace(graph, metadata={**graph.metadata, "format": form, "notes": (note, _CONVERT)})


def _stored(name: str, tensor: PickledTensor) -> Stored:
    nbytes = 0 if tensor.dtype is None else int(dtype(tensor.dtype).nbytes(prod(tensor.shape)))
    return Stored(names=(name,), shape=tensor.shape, dtype=tensor.dtype, nbytes=nbytes)


_CONVERT = (
    "To predict or measure it, export the network: torch.export.save(torch.export.export(module, inputs), 'm.pt2'), or "
    "torch.onnx.export."
)
