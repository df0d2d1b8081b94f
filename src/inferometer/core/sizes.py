"""The sizes that a model's inputs leave open: what they are called, where they stand, and which were given.

A size may be given by our name for it (`width`), by the file's own (`DynamicDimension.3`), or by its place (`x.3` is
axis 3 of input x). A batch that nobody gave is 1 and a prompt of token ids has a default length; any other size is
asked for, because every number would be a guess.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from inferometer.core.binding import Binding
from inferometer.core.dims import evaluate, symbols_in
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.workload import Workload

PROMPT = 512  # where nothing is asked for: the default of llama-bench
_WHOLE = frozenset({"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})
_OPTIONS = {"batch": "--batch N", "query": "--prompt N"}


@frozen
class OpenSize:
    """One size: its name in the graph, the file's name for it if that is another, and the axes of inputs it is in."""

    name: str
    file_name: str | None = None
    places: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        """`width (input x, axis 3)`."""
        named = [] if self.file_name is None else [f"{self.file_name} in the file"]
        where = [f"input {name}, axis {axis}" for name, axis in self.places[:2]]
        more = [f"{len(self.places) - 2} more"] if len(self.places) > 2 else []
        return f"{self.name} ({'; '.join((*named, *where, *more))})"

    @property
    def option(self) -> str:
        """What to type to give it."""
        return _OPTIONS.get(self.name) or f"--size {shlex.quote(self.name)}=N"


def open_sizes(graph: Graph) -> tuple[OpenSize, ...]:
    """Every size that the graph's inputs leave open, in the order of the inputs."""
    places: dict[str, list[tuple[str, int]]] = {}
    for tensor in graph.inputs:
        for axis, dim in enumerate(tensor.shape):
            for name in sorted(symbols_in(dim)):
                places.setdefault(name, []).append((tensor.name, axis))
    named = {ours: theirs for theirs, ours in graph.metadata.get("size_names", {}).items() if ours != theirs}
    return tuple(OpenSize(name=name, file_name=named.get(name), places=tuple(found)) for name, found in places.items())


def default_prompt(graph: Graph) -> int | None:
    """The length of a prompt that nobody gave, where the model reads token ids; None where a length must be given."""
    held = [tensor for tensor in graph.inputs if "query" in tensor.symbols]
    if held and not any(tensor.role == "index" or tensor.dtype in _WHOLE for tensor in held):
        return None
    return min(PROMPT, graph.context_limit or PROMPT)


def in_graph_names(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The given sizes by the graph's names for them. A name that the model does not have is an error."""
    if not sizes:
        return {}
    sizes_there = open_sizes(graph)
    ours = {f"{tensor}.{axis}": size.name for size in sizes_there for tensor, axis in _alone(graph, size)}
    ours |= graph.metadata.get("size_names", {})
    ours |= {name: name for name in graph.symbols}
    named: dict[str, int] = {}
    for name, value in sizes.items():
        if name not in ours:
            listed = ", ".join(map(str, sizes_there)) or "none: every size of its inputs is fixed"
            raise DomainError(f"{graph.name} has no size {name!r}.", remedy=f"Its open sizes: {listed}.")
        if named.setdefault(ours[name], value) != value:
            raise DomainError(f"The size {ours[name]} is given twice: as {named[ours[name]]} and as {value}.")
    return named


def _alone(graph: Graph, size: OpenSize) -> Iterable[tuple[str, int]]:
    """The axes that are this size, and not a sum or product with it."""
    shapes = {tensor.name: tensor.shape for tensor in graph.inputs}
    return ((name, axis) for name, axis in size.places if str(shapes[name][axis]) == size.name)


def with_given_sizes(graph: Graph, workload: Workload, sizes: Mapping[str, int]) -> tuple[Workload, dict[str, int]]:
    """The workload with the given sizes that it has fields for, and the other sizes by the graph's names."""
    rest = in_graph_names(graph, sizes)
    fields = {"batch": "batch", "query": "prompt"}
    if is_generative(graph):
        fields["context"] = "context"  # any other graph is counted with an empty cache, unless its size is given
    for name, field in fields.items():
        if name not in rest:
            continue
        value, before = rest.pop(name), getattr(workload, field)
        if before not in {None, value} and (field, before) != ("batch", 1):
            raise DomainError(f"{field} is {before} and the size {name} is {value}.", remedy="Give one of them.")
        given: dict[str, Any] = {field: value}
        workload = replace(workload, **given)
    return workload, rest


_WINDOWED = frozenset({"convolution", "pool"})


def require_room(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Refuse sizes at which a tensor would be smaller than nothing, or a window would not fit once.

    Shapes with sizes that are not given here are left alone: the data, or a later step, decides them.
    """
    at = ", ".join(f"{name} {size:,}" for name, size in sizes.items()) or "the sizes of its inputs"
    for _, op in graph.ops():
        least = 1 if op.kind in _WINDOWED else 0
        for tensor in op.outputs:
            for axis, dim in enumerate(tensor.shape):
                if (isinstance(dim, int) or symbols_in(dim) <= sizes.keys()) and evaluate(dim, sizes) < least:
                    raise DomainError(
                        f"At {at}, {op.name} of {graph.name} would give {evaluate(dim, sizes)} elements along axis "
                        f"{axis}: what it reads is smaller than its window.",
                        remedy="Give larger sizes.",
                    )


def require_sizes(graph: Graph, known: Iterable[str]) -> None:
    """Every size that the inputs leave open must be known."""
    names = frozenset(known)
    left = [size for size in open_sizes(graph) if size.name not in names]
    if not left:
        return
    count = "one size" if len(left) == 1 else f"{len(left)} sizes"
    square = " (--image N sets both)" if {"height", "width"} <= {size.name for size in left} else ""
    raise DomainError(
        f"{graph.name} leaves {count} of its inputs open: {', '.join(map(str, left))}.",
        remedy=f"Add {' '.join(size.option for size in left)}{square}.",
    )


# From what a user asks to the sizes a graph is counted at.

_FORMAT = "f32"


def bind(graph: Graph, workload: Workload, sizes: Mapping[str, int] | None = None, *, complete: bool = True) -> Binding:
    """The binding of a workload: batch, prompt and context, the model's own defaults, then what was asked by name.

    A size that is still open is an error, or is left out of the binding where it need not be `complete`.
    """
    defaults = graph.metadata.get("default_sizes", {})
    prompt = workload.prompt or default_prompt(graph)
    asked = {
        "batch": workload.batch,
        **({} if prompt is None else {"query": prompt}),
        "context": workload.context or 0,
        "logits": 1,
        **defaults,
    }
    if workload.prompt is not None and "encoder" in defaults:
        asked["encoder"] = workload.prompt
    if workload.image is not None:
        asked |= dict.fromkeys(("image", "height", "width"), workload.image)
    asked |= in_graph_names(graph, sizes or {})
    known = graph.symbols
    chosen = {name: size for name, size in asked.items() if name in known}
    if complete:
        require_sizes(graph, chosen)
    # A model that names no format is counted in f32, as frameworks make it.
    formats, otherwise = workload.precision, graph.precision or _FORMAT
    filled = replace(formats, weights=formats.weights or otherwise, activations=formats.activations or otherwise)
    return Binding(sizes=chosen, precision=filled)
